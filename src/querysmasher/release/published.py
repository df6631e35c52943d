"""Checks of the files beside the noisy numbers: the plan, the errors of estimates, the page.

All of them follow from the release. A plan is that of the release if it rounds to its integer plan; what its
planner claims beyond that (how close to the optimum it is) can only be checked by planning again.
"""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from querysmasher.errors import MissingExtraError, QuerySmasherError
from querysmasher.formatting import count
from querysmasher.planning.estimating import size_share, sized_costs
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.plan import Plan
from querysmasher.planning.residual_plan import joined, residual_plan
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.digests import plan_digest
from querysmasher.privacy.dropped import rest
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.release.comparing import CLOSE, sha256
from querysmasher.release.finding import FAILED, OK, OPEN, Finding
from querysmasher.release.release import Release
from querysmasher.report.release_report import TITLE, release_page

ALIKE = 1e-3
"""Maximum relative difference of variances under two plans that differ by rounding on another machine."""

NOTHING = 1e-9
"""Maximum difference of two numbers that should both be zero, in records or as shares."""

PARTS = re.compile(
    r'(.*<script type="application/json" id="data">)(.*?)(</script><script>)(.*?)(</script><script>.*)',
    re.DOTALL,
)
"""A page: markup, data, chart libraries, scripts."""

HEADING = re.compile(r"<h1>(.*?)</h1>", re.DOTALL)
ESTIMATES = '<section id="estimates">'


def check_plan(release: Release, file: Path) -> tuple[Plan | None, Finding]:
    """Compare a published plan with what was measured; return it if it is the plan of the release."""
    try:
        plan = Plan.load(file)
        wrong = _other_plan(release, plan, file)
    except QuerySmasherError as error:
        return None, Finding(file.name, FAILED, str(error))
    if wrong:
        return None, Finding(file.name, FAILED, wrong)
    words = f"rounds to the integer plan of {release.measurements:,} noisy integers; it costs"
    cost, budget = plan.privacy_cost, plan.budget.privacy_cost
    return plan, Finding(file.name, OK, f"{words} {cost:.9g}, of {budget:.9g} allowed")


def _other_plan(release: Release, plan: Plan, file: Path) -> str:
    """Return how a plan differs from that of a release; nothing if it does not."""
    stated = release.provenance.plan_digest
    if stated is not None and stated != sha256(file):
        return f"the release names a plan with another digest: {stated}"
    same = {
        "workload": plan.asked == release.asked and (plan.sizes_first or plan.workload == release.workload),
        "budget": plan.budget == release.plan.budget,
        "centres": plan.centres == release.centres,
    }
    wrong = [what for what, is_same in same.items() if not is_same]
    if wrong:
        return f"has another {' and another '.join(wrong)} than the release"
    if plan.privacy_cost > plan.budget.privacy_cost * (1 + CLOSE):
        return "costs more than its budget"
    rounded = _planned_again(release, plan)
    if plan_digest(rounded) == plan_digest(release.plan):
        return ""
    fresh = replace(release, plan=rounded, entry=None)
    if [m.attributes for m in rounded.measured] == [m.attributes for m in release.plan.measured] and all(
        math.isclose(fresh.predictor.total(group), release.predictor.total(group), rel_tol=ALIKE)
        for group in release.workload
    ):
        return ""
    return "is not the plan that was measured: it rounds to other integers"


def _planned_again(release: Release, plan: Plan) -> IntegerPlan:
    """Return the integer plan that follows from a plan, and from the noisy size if that is measured first."""
    explored, most = release.exploration, release.plan.max_records
    share = 0.0 if explored is None else explored.options.get("error_share", 0.0)
    allowed = release.noise.distribution.allowed_cost(plan.budget)
    cost = rest(allowed, release.counted.dropped) * (1 - share)
    if not plan.sizes_first or plan.asked is None:
        return integer_plan(plan, cost, most)
    if release.public_total is not None:
        costs = sized_costs(plan.asked, plan.budget, float(release.public_total), cost)
        return joined([residual_plan(plan.asked.schema, plan.budget, costs, most)], plan.budget)
    first = replace(release.plan, measured=release.plan.measured[:1])
    size = replace(release, plan=first, exploration=None, entry=None).estimate().total
    left = cost - float(privacy_cost(first))
    costs = sized_costs(plan.asked, plan.budget, size, left)
    parts = residual_plan(plan.asked.schema, plan.budget, costs, most)
    total = residual_plan(plan.asked.schema, plan.budget, {(): size_share(plan.budget) * cost}, most)
    return joined([total, parts], plan.budget)


def check_errors(release: Release, file: Path) -> Finding:
    """Compute the errors of the estimates again."""
    expected = release.estimate().errors().to_frame()
    try:
        found = csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=expected.schema))
    except (pa.ArrowException, ValueError, OSError) as error:
        return Finding(file.name, FAILED, f"it cannot be read ({type(error).__name__})")
    if found.column_names != expected.column_names or len(found) != len(expected):
        return Finding(file.name, FAILED, "it has other columns or rows")
    for name in expected.column_names:
        if not all(map(close, found[name].to_pylist(), expected[name].to_pylist())):
            return Finding(file.name, FAILED, f"does not follow from the noisy numbers: column {name!r}")
    tables = count(len(found), "table")
    return Finding(file.name, OK, f"errors of the estimates of {tables} follow from the noisy numbers")


def close(one: Any, other: Any) -> bool:
    """Return whether two values are equal but for rounding, in nested plain data."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)]
    if all(numbers):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=NOTHING)
    return type(one) is type(other) and bool(one == other)


def check_page(release: Release, file: Path, same_version: bool) -> Finding:
    """Write the page again, and compare; `same_version` is whether this version wrote the folder.

    Pages that other versions of this software write differ, and are not compared.
    """
    try:
        given = file.read_text(encoding="utf-8")
        heading = html.unescape(found.group(1)) if (found := HEADING.search(given)) else ""
        fresh = release_page(release, heading, release.estimate() if ESTIMATES in given else None)
        same, same_libraries = _compared(given, fresh)
    except MissingExtraError as error:
        return Finding(file.name, OPEN, str(error))
    except (OSError, ValueError, RecursionError) as error:
        return Finding(file.name, FAILED, f"it cannot be read ({type(error).__name__})")
    if not same and same_version:
        return Finding(file.name, FAILED, "does not follow from the noisy numbers")
    if not same:
        return Finding(file.name, OPEN, "another version of this software wrote the folder")
    if not same_libraries:
        return Finding(file.name, OPEN, "follows from the noisy numbers, but has other chart libraries")
    own = release.provenance.title or TITLE
    words = "" if heading == own else f"; nobody checks its heading {heading!r}"
    return Finding(file.name, OK, f"the page follows from the noisy numbers{words}")


def _compared(given: str, fresh: str) -> tuple[bool, bool]:
    """Return whether text, scripts and data of two pages are the same, and whether their libraries are."""
    one, other = PARTS.fullmatch(given), PARTS.fullmatch(fresh)
    if one is None or other is None:
        return False, False
    before, data, middle, libraries, after = one.groups()
    same = (before, middle, after) == (other[1], other[3], other[5])
    return same and close(json.loads(data), json.loads(other[2])), libraries == other[4]
