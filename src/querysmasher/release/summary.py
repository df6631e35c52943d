"""What the summary of a release folder states about the release; all of it is public."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from querysmasher.privacy.digests import plan_digest
from querysmasher.release.released import Released

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
        "record": release.record,
        "ledger": None if release.entry is None else release.entry.to_data(),
        "integer_plan_digest": plan_digest(release.plan),
        "queries": release.workload.query_count,
        "schema": release.plan.schema.to_json(),
    }
