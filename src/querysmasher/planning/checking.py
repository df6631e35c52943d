"""Check that a plan is consistent: anyone may have written the file that it comes from.

A bug or a forgery in a plan costs no privacy, which measuring protects by itself. But the predictions and the
answers are correct only if centres sum to one, and if strategies have unit sensitivity and lie inside the
residual spaces around these centres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.planning.strategies.strategy import CLOSE, FAINTEST, Strategy
from querysmasher.schema import Schema


class HasBlocks(Protocol):
    """What is measured on an attribute set, in integers or not."""

    @property
    def attributes(self) -> tuple[int, ...]: ...
    @property
    def blocks(self) -> Blocks: ...


LARGEST_CENTRE = 1e3

LARGEST_GAP = 1e15


def check_plan(plan: Plan) -> None:
    """Refuse an inconsistent plan."""
    check_centres(plan.workload.schema, plan.centres)
    if plan.asked is not None and plan.asked.schema != plan.workload.schema:
        _refuse("what is to be estimated has another schema")
    if plan.sizes_first and plan.asked is None:
        _refuse("only a plan for estimates learns the number of records first")
    for solution in plan.solutions:
        if not 0 <= solution.bound <= solution.reached * (1 + CLOSE) < math.inf:
            _refuse("a lower bound exceeds the loss")
        if not solution.strategy.is_sound() or abs(solution.strategy.leverage - 1) > CLOSE:
            _refuse("a strategy has dependent rows, or a sensitivity other than one")
    known: set[object] = set()
    for measured in plan.measured:
        _check_measured(plan, measured, known)
    check_kinds(plan.measured, [s.strategy for s in plan.solutions])
    whole = [place for m in plan.measured for place in m.whole]
    if len(set(whole)) < len(whole) or not set(whole) <= set(range(len(plan.workload.groups))):
        _refuse("a group is measured whole twice, or is missing")
    if not (math.isfinite(plan.weighted_loss) and 0 <= plan.gap < LARGEST_GAP and 0 < plan.tolerance < 1):
        _refuse("its error, gap or tolerance is invalid")
    _check_loss(plan)


def check_kinds(measured: Sequence[HasBlocks], strategies: Sequence[Strategy]) -> None:
    """Refuse residuals that are measured twice, and queries that are not split beside other strategies."""
    residual = set()
    for one in measured:
        whole = [strategies[number].whole for _, number in one.blocks]
        if any(whole):
            if len(whole) > 1:
                _refuse("queries that are not split are part of a product")
        elif one.attributes in residual:
            _refuse("an attribute set is measured twice")
        else:
            residual.add(one.attributes)
    if not measured:
        _refuse("nothing is measured")
    _check_lines(measured, strategies)


def _check_lines(measured: Sequence[HasBlocks], strategies: Sequence[Strategy]) -> None:
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
        if known.setdefault((attribute, earlier), number) != number:
            _refuse("an attribute has several centres where it must have one")
    for one in measured:
        if any(strategies[number].whole for _, number in one.blocks) and places & set(one.attributes):
            _refuse("queries about an attribute with centres of its own are not split")


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
    if not math.isclose(total, plan.weighted_loss, rel_tol=0.01):
        _refuse("its losses are not those of its strategies")


def check_centres(schema: Schema, centres: Centres) -> None:
    """Refuse centres unless there is one per attribute, each of which sums to one."""
    if len(centres) != len(schema):
        _refuse("the number of centres differs from the number of attributes")
    for centre, size in zip(centres, schema.sizes, strict=True):
        if len(centre) != size:
            _refuse("a centre does not fit its attribute")
        if (
            np.abs(centre.weights).max() > LARGEST_CENTRE
            or abs(math.fsum(centre.weights.tolist()) - 1) > 1e-9
        ):
            _refuse("a centre does not sum to one")


def _check_measured(plan: Plan, measured: Measured, known: set[object]) -> None:
    sizes, places = plan.workload.schema.sizes, measured.attributes
    if list(places) != sorted(set(places)) or not all(0 <= a < len(sizes) for a in places):
        _refuse("an attribute set is not given by increasing indices")
    if sorted(a for axes, _ in measured.blocks for a in axes) != list(range(len(places))):
        _refuse("strategies do not cover every attribute of a set once")
    if not all(FAINTEST < number < 1 / FAINTEST for number in (measured.variance, measured.root_loss)):
        _refuse("a noise variance or a loss is not a positive number")
    for axes, number in measured.blocks:
        if not 0 <= number < len(plan.solutions):
            _refuse("a strategy is missing")
        strategy = plan.solutions[number].strategy
        if strategy.shape != tuple(sizes[places[a]] for a in axes):
            _refuse("a strategy does not fit its attributes")
        centres = [plan.centres[places[a]] for a in axes]
        key = (number, *centres)
        free = strategy.whole or strategy.own_centre  # these need no centre of the plan
        if key not in known and not (free or strategy.stands_on(centres)):
            _refuse("a strategy is not inside its residual space")
        known.add(key)


def _refuse(why: str) -> None:
    msg = f"plan: {why}"
    raise PlanError(msg)
