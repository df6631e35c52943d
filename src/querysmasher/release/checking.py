"""Checks of a release from a file: its noise pays for its guarantee, and its parts are consistent.

Answers are unbiased only if every strategy lies in the residual space around the centres, and their standard
errors are right only if its rows are independent.
"""

from __future__ import annotations

from fractions import Fraction

from querysmasher.errors import PrivacyError
from querysmasher.planning.checking import check_centres, check_kinds
from querysmasher.planning.strategies import strategy_of_integers
from querysmasher.privacy.accounting import check_budget, privacy_cost
from querysmasher.privacy.distributions import distribution_of
from querysmasher.privacy.entries import plan_digest
from querysmasher.release.exploration import planned_digest, request_digest, spent
from querysmasher.release.released import Measured
from querysmasher.release.repeats import repeats

LARGEST_VARIANCE = 2**101


def check_release(release: Measured) -> None:
    """Refuse a release with inconsistent parts, or with too little noise for its budget."""
    plan = release.plan
    check_centres(plan.schema, release.centres)
    if (release.public_total is not None) != plan.budget.unit.total_is_public:
        _refuse("whether the number of records is public contradicts its neighbours")
    if release.person is not None and plan.budget.unit.total_is_public:
        _refuse("persons are distinguished with replace_one neighbours")
    _check_counted(release)
    strategies = [strategy_of_integers(strategy) for strategy in plan.strategies]
    if not all(strategy.is_sound() for strategy in strategies):
        _refuse("a strategy is zero, or has dependent rows")
    check_kinds([plan.measured[own[0]] for own in repeats(plan)], strategies)
    known: set[object] = set()
    for measured in plan.measured:
        if not 0 < measured.variance <= LARGEST_VARIANCE:
            _refuse("a noise variance is zero, or too large")
        if not measured.attributes and len(measured.blocks) != 1:
            _refuse("the number of records is not measured exactly once")
        for axes, number in measured.blocks:
            centres = [release.centres[measured.attributes[a]] for a in axes]
            key = (number, *centres)
            free = strategies[number].whole or strategies[number].own_centre
            if key not in known and not (free or strategies[number].stands_on(centres)):
                _refuse("a strategy is not inside its residual space")
            known.add(key)
    noise = distribution_of(release.noise.name)
    check_budget(plan, noise)
    allowed = Fraction(noise.allowed_cost(plan.budget))
    dropped = release.counted.dropped
    if spent(plan, release.exploration, dropped) > allowed:
        _refuse("its phases cost more than its budget")
    entry = release.entry
    if entry is None:
        return
    what, cost = plan_digest(plan), privacy_cost(plan)
    explored = release.exploration
    if explored is not None and not explored.is_planned:
        asked = release.asked or release.workload
        what = request_digest(asked, plan.budget, plan.max_records, explored.options, dropped)
        cost = allowed
    elif explored is not None or dropped is not None:
        what = planned_digest(plan, {"error_share": 0.0} if explored is None else explored.options, dropped)
        cost = allowed
    if (entry.plan, entry.cost, entry.noise, entry.unit, entry.person) != (
        *(what, cost, release.noise.name),
        *(plan.budget.unit, release.person),
    ):
        _refuse("its entry of a ledger is about another measurement")


def _check_counted(release: Measured) -> None:
    """Refuse records left out in a way in which `measure` leaves out none."""
    counted, unit = release.counted, release.plan.budget.unit
    if counted.unknown != "refuse" and unit.total_is_public:
        _refuse("records are left out with replace_one neighbours")
    if counted.dropped is not None and (counted.is_whole or counted.unknown is None):
        _refuse("it says how many records were left out, but not which")


def _refuse(why: str) -> None:
    msg = f"release: {why}"
    raise PrivacyError(msg)
