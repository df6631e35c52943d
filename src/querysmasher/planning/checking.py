"""Check that a plan is consistent: anyone may have written the file that it comes from.

A bug or a forgery in a plan costs no privacy, which measuring protects by itself. But the predictions and the
answers are correct only if centres sum to one, and if strategies have unit sensitivity and lie inside the
residual spaces around these centres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies.strategy import CLOSE, LARGEST, Strategy
from querysmasher.privacy.integer_plan import IntegerMeasured
from querysmasher.schema import Schema

LARGEST_CENTRE = 1e3


Blocked = Measured | IntegerMeasured
"""What is measured on an attribute set, in integers or not."""


def check_plan(plan: Plan) -> None:
    """Refuse an inconsistent plan."""
    asked, solutions = plan.asked, plan.solutions
    check_centres(plan.workload.schema, plan.centres)
    fits = asked is None or asked.schema == plan.workload.schema
    _require(fits, "what is to be estimated has another schema")
    fits = asked is not None or not plan.sizes_first
    _require(fits, "only a plan for estimates learns the number of records first")
    for solution in solutions:
        bounded = 0 <= solution.bound <= solution.reached * (1 + CLOSE) < math.inf
        _require(bounded, "a lower bound exceeds the loss")
        sound = solution.strategy.is_sound() and abs(solution.strategy.leverage - 1) <= CLOSE
        _require(sound, "a strategy has dependent rows, or a sensitivity other than one")
    known: set[object] = set()
    for measured in plan.measured:
        _check_measured(plan, measured, known)
    check_kinds(plan.measured, [s.strategy for s in solutions])
    whole = [place for m in plan.measured for place in m.whole]
    once = len(set(whole)) == len(whole) and set(whole) <= set(range(len(plan.workload.groups)))
    _require(once, "a group is measured whole twice, or is missing")
    valid = math.isfinite(plan.weighted_loss) and 0 <= plan.gap < math.inf and 0 < plan.tolerance < 1
    _require(valid, "its error, gap or tolerance is invalid")
    _check_loss(plan)


def check_kinds(measured: Sequence[Blocked], strategies: Sequence[Strategy]) -> None:
    """Refuse residuals that are measured twice, and queries that are not split beside other strategies."""
    _require(measured, "nothing is measured")
    residual = set()
    for one in measured:
        if any(strategies[number].whole for _, number in one.blocks):
            _require(len(one.blocks) == 1, "queries that are not split are part of a product")
        else:
            _require(one.attributes not in residual, "an attribute set is measured twice")
            residual.add(one.attributes)
    _check_lines(measured, strategies)


def _check_lines(measured: Sequence[Blocked], strategies: Sequence[Strategy]) -> None:
    """Refuse lines and trees whose centre is not one for all sets that share it, or that are not split."""
    lines = [
        (one.attributes[axes[0]], one.attributes, number)
        for one in measured
        for axes, number in one.blocks
        if strategies[number].own_centre
    ]
    places = {attribute for attribute, *_ in lines}
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    for attribute, attributes, number in lines:  # lines come last, in order: later ones do not matter
        earlier = tuple(a for a in attributes if a != attribute and (a not in places or a < attribute))
        same = known.setdefault((attribute, earlier), number) == number
        _require(same, "an attribute has several centres where it must have one")
    for one in measured:
        split = places.isdisjoint(one.attributes) or not any(strategies[n].whole for _, n in one.blocks)
        _require(split, "queries about an attribute with centres of its own are not split")


def _check_loss(plan: Plan) -> None:
    """Refuse losses that do not belong to the strategies, if they are quick to compute."""
    workload = plan.workload
    if workload.query_count > limits().checked_queries or len(workload.groups) > limits().checked_groups:
        return
    total = 0.0
    try:
        plan.estimator.prepare(workload)
        for group in workload:
            variances = plan.estimator.variances(group)
            for axis, family in enumerate(group.families):
                if family.weights is not None:
                    spread = [-1 if a == axis else 1 for a in range(variances.ndim)]
                    variances = variances * family.weights.reshape(spread)
            total += group.weight * float(variances.sum())
    except TooLargeError:
        return
    same = math.isclose(total, plan.weighted_loss, rel_tol=0.01)
    _require(same, "its losses are not those of its strategies")


def check_centres(schema: Schema, centres: Centres) -> None:
    """Refuse centres unless there is one per attribute, each of which sums to one."""
    _require(len(centres) == len(schema), "the number of centres differs from the number of attributes")
    for centre, size in zip(centres, schema.sizes, strict=True):
        _require(len(centre) == size, "a centre does not fit its attribute")
        small = np.abs(centre.weights).max() <= LARGEST_CENTRE
        off = abs(math.fsum(centre.weights.tolist()) - 1)
        _require(small and off <= 1e-9, "a centre does not sum to one")


def _check_measured(plan: Plan, measured: Measured, known: set[object]) -> None:
    sizes, places = plan.workload.schema.sizes, measured.attributes
    increasing = list(places) == sorted(set(places)) and all(0 <= a < len(sizes) for a in places)
    _require(increasing, "an attribute set is not given by increasing indices")
    covered = sorted(a for axes, _ in measured.blocks for a in axes)
    _require(covered == list(range(len(places))), "strategies do not cover every attribute of a set once")
    positive = all(1 / LARGEST < number < LARGEST for number in (measured.variance, measured.root_loss))
    _require(positive, "a noise variance or a loss is not a positive number")
    for axes, number in measured.blocks:
        _require(0 <= number < len(plan.solutions), "a strategy is missing")
        strategy = plan.solutions[number].strategy
        fits = strategy.shape == tuple(sizes[places[a]] for a in axes)
        _require(fits, "a strategy does not fit its attributes")
        centres = [plan.centres[places[a]] for a in axes]
        free = strategy.whole or strategy.own_centre  # these need no centre of the plan
        key = (number, *centres)
        inside = key in known or free or strategy.stands_on(centres)
        _require(inside, "a strategy is not inside its residual space")
        known.add(key)


def _require(holds: object, why: str) -> None:
    if not holds:
        raise PlanError(f"plan: {why}")
