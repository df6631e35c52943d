"""What the summary of a release folder states about the release; all of it is public."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from querysmasher.planning.plan import Plan
from querysmasher.privacy.accounting import rest
from querysmasher.privacy.entries import plan_digest
from querysmasher.release.release import Release
from querysmasher.release.released import Released
from querysmasher.report.expectations import noise_factor

VERSION = "querysmasher"
"""The key of the version that wrote a summary; all others follow from the release."""


def summary_of(release: Released) -> dict[str, Any]:
    """Return where a release comes from, its guarantee, its cost in a ledger, and its schema."""
    return {
        VERSION: import_module("querysmasher").__version__,
        **release.provenance.to_json(),
        "guarantee": release.guarantee,
        "private": release.noise.is_private,
        "budget": release.plan.budget.to_json(),
        "noise": release.noise.description,
        "person": release.person,
        "counted": release.counted.to_json(),
        "record": release.record,
        "ledger": None if release.entry is None else release.entry.to_data(),
        "integer_plan_digest": plan_digest(release.plan),
        "queries": release.workload.query_count,
        "schema": release.plan.schema.to_json(),
    }


def planned_summary(plan: Plan, release: Released) -> dict[str, Any]:
    """Return what a plan promises about a release: the error to expect, and how close to the optimum it is.

    A plan that learns the number of records first promises neither.
    """
    if plan.sizes_first:
        return {}
    explored, allowed = release.exploration, release.noise.distribution.allowed_cost(plan.budget)
    left = 1 - (0.0 if explored is None else explored.options["error_share"])
    left *= rest(allowed, release.counted.dropped) / allowed
    factor = noise_factor(plan, release.noise.distribution) / math.sqrt(left)
    return {"expected_error": plan.rmse * factor, "gap": plan.gap}


def exploration_summary(release: Release) -> dict[str, Any]:
    """Return the error of the estimates of an exploration, and what its phases cost."""
    if release.exploration is None:
        return {}
    estimate, plan = release.estimate(), release.plan
    error = estimate.error()
    return {
        "estimate": {
            "note": estimate.note,
            "queries": estimate.workload.query_count,
            "error": str(error),
            "kind": error.kind,
            "records": error.value,
            "interval": None if error.std is None else list(error.interval()),
        },
        "phases": [
            {"name": phase.name, "cost": float(phase.cost(plan))} for phase in release.exploration.phases
        ],
    }
