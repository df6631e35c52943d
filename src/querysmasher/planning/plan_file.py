"""Plans on disk, and checks that a loaded plan is consistent: anyone may have written its file.

A bug or a forgery in a plan costs no privacy: measuring computes the cost itself. But the predictions and the
answers are correct only if centres sum to one, and if strategies have unit sensitivity and lie inside the
residual spaces around these centres.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from querysmasher.errors import PlanError, TooLargeError
from querysmasher.fields import floats, integers, items, number, text, whole, wholes, word
from querysmasher.files import read_value, write_archive
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.grading import SAFE
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.objective import OBJECTIVES
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import LEAST, Blocks, Certificate, Measured, Solution
from querysmasher.planning.strategies import is_line, strategy_from_data
from querysmasher.planning.strategies.strategy import CLOSE, LARGEST, Strategy
from querysmasher.planning.tying import Tying
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.integer_plan import IntegerMeasured
from querysmasher.schema import Schema
from querysmasher.workload.family import strings
from querysmasher.workload.registry import ragged, unragged, workload_from_data, workload_to_data


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan to a file atomically."""
    write_archive(path, "plan", plan_to_data(plan))


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a file."""
    return read_value(path, "plan", plan_from_data)


def plan_to_data(plan: Plan) -> dict[str, Any]:
    """Return plain data, with arrays in it, from which `plan_from_data` rebuilds the plan."""
    patterns = {m.blocks: None for m in plan.measured}
    number = {pattern: i for i, pattern in enumerate(patterns)}
    return {
        "workload": workload_to_data(plan.workload),
        "budget": plan.budget.to_json(),
        **centres_to_data(plan.centres),
        "solutions": [
            {
                "reached": s.reached,
                "bound": s.bound,
                "method": s.method,
                "kind": s.strategy.kind,
                **s.strategy.to_data(),
            }
            for s in plan.solutions
        ],
        "patterns": [[[list(axes), solution] for axes, solution in pattern] for pattern in patterns],
        "measured": ragged(m.attributes for m in plan.measured),
        "whole": ragged(m.whole for m in plan.measured),
        "pattern_of": np.array([number[m.blocks] for m in plan.measured], dtype=np.int64),
        "variances": np.array([m.variance for m in plan.measured]),
        "root_losses": np.array([m.root_loss for m in plan.measured]),
        "prices": np.array([m.price for m in plan.measured]),
        "weighted_loss": plan.weighted_loss,
        "certificate": [plan.certificate.value, plan.certificate.bound],
        "mechanism": plan.mechanism,
        "solver": plan.solver,
        "centering": plan.centering,
        "tolerance": plan.tolerance,
        "objective": plan.objective,
        "asked": None if plan.asked is None else workload_to_data(plan.asked),
        "sizes_first": plan.sizes_first,
        "tied": tied_to_data(plan.tying),
    }


def plan_from_data(data: dict[str, Any]) -> Plan:
    """Rebuild a plan from the result of `plan_to_data`, and check that it is consistent."""
    if not {"certificate", "prices"} <= data.keys():
        raise PlanError("plan: an earlier version of querysmasher wrote it; plan again")
    value, bound = (number(x, 0, math.inf) for x in items(data["certificate"]))
    workload = workload_from_data(data["workload"])
    solutions = tuple(map(_solution_from_data, items(data["solutions"])))
    patterns = [blocks_from_data(pattern) for pattern in items(data["patterns"])]
    measured = tuple(
        Measured(attributes, patterns[whole(pattern)], variance, root, groups, price)
        for attributes, groups, pattern, variance, root, price in zip(
            unragged(data["measured"]),
            unragged(data["whole"]),
            integers(data["pattern_of"], 1).tolist(),
            floats(data["variances"], 1).tolist(),
            floats(data["root_losses"], 1).tolist(),
            floats(data["prices"], 1).tolist(),
            strict=True,
        )
    )
    estimated = data["asked"]
    plan = Plan(
        workload,
        Budget.from_json(data["budget"]),
        centres_from_data(data),
        solutions,
        measured,
        weighted_loss=_loss(data, solutions, measured),
        certificate=Certificate(value, bound, text(data["objective"], (*OBJECTIVES, LEAST))),
        mechanism=word(data["mechanism"]),
        solver=word(data["solver"]),
        centering=word(data["centering"]),
        tolerance=number(data["tolerance"], 0, 1),
        asked=None if estimated is None else workload_from_data(estimated),
        sizes_first=data["sizes_first"] is True,
        tying=tied_from_data(data, workload.schema),
    )
    check_plan(plan)
    return plan


def tied_to_data(tying: Tying | None) -> list[list[str]]:
    """Return the names of the attributes that are tied together."""
    return [] if tying is None else [[*names] for names in tying.components]


def tied_from_data(data: dict[str, Any], schema: Schema) -> Tying | None:
    """Return which attributes are tied together; files from before there were any do not say."""
    components = tuple(strings(names) for names in items(data.get("tied", [])))
    return Tying(schema, components) if components else None


def _loss(data: dict[str, Any], solutions: Sequence[Solution], measured: Sequence[Measured]) -> float:
    """Return the sum of the measurements' losses, or the stored loss if whole queries make it smaller."""
    most = math.fsum(m.variance * m.root_loss**2 for m in measured)
    stored = number(data["weighted_loss"], 0, math.inf)
    if len(measured) > 1 and any(solution.strategy.whole for solution in solutions):
        return number(stored, 0, most * (1 + CLOSE))
    return stored if math.isclose(stored, most, rel_tol=1e-12) else most


def centres_to_data(centres: Centres) -> dict[str, Any]:
    """Return the distinct centres, as integers if known, else as weights, and each attribute's index."""
    which = {centre: i for i, centre in enumerate(dict.fromkeys(centres))}
    return {
        "centres": [c.weights if c.integers is None else c.integers for c in which],
        "centre_of": [which[c] for c in centres],
    }


def centres_from_data(data: dict[str, Any]) -> Centres:
    """Return one centre per attribute; several attributes may have the same one."""
    stored = [
        Centre(floats(c, 1)) if getattr(c, "dtype", None) == np.float64 else Centre.ratio(integers(c, 1))
        for c in items(data["centres"])
    ]
    return tuple(stored[i] for i in wholes(data["centre_of"]))


def blocks_from_data(data: Any) -> Blocks:
    """Return the strategies of an attribute set: pairs of axes and the index of a solution."""
    return tuple((wholes(axes), whole(solution)) for axes, solution in items(data))


def _solution_from_data(data: dict[str, Any]) -> Solution:
    reached, bound = (number(data[name], 0, 1e300) for name in ("reached", "bound"))
    return Solution(strategy_from_data(data["kind"], data), reached, bound, word(data["method"]))


# --- checks ---


def check_plan(plan: Plan) -> None:
    """Refuse an inconsistent plan."""
    fits = plan.asked is None or (plan.asked.schema == plan.workload.schema and plan.tying is None)
    plan = plan.inner
    check_centres(plan.workload.schema, plan.centres)
    _require(fits, "what is to be estimated has another schema")
    fits = plan.asked is not None or not plan.sizes_first
    _require(fits, "only a plan for estimates learns the number of records first")
    for solution in plan.solutions:
        bounded = 0 <= solution.bound <= solution.reached * (1 + CLOSE) < math.inf
        _require(bounded, "a lower bound exceeds the loss")
        sound = solution.strategy.is_sound() and abs(solution.strategy.leverage - 1) <= CLOSE
        _require(sound, "a strategy has dependent rows, or a sensitivity other than one")
    sizes, inside = plan.workload.schema.sizes, set[object]()
    for m in plan.measured:
        increasing = list(m.attributes) == sorted(set(m.attributes).intersection(range(len(sizes))))
        _require(increasing, "an attribute set is not given by increasing indexes")
        covered = sorted(a for axes, _ in m.blocks for a in axes) == list(range(len(m.attributes)))
        _require(covered, "strategies do not cover every attribute of a set once")
        positive = 1 / LARGEST < m.variance < LARGEST and SAFE < m.root_loss < 1 / SAFE
        _require(positive, "a noise variance or a loss is not a positive number")
        _require(0 <= m.price < LARGEST, "a price is not a number")
        for axes, i in m.blocks:
            _require(0 <= i < len(plan.solutions), "a strategy is missing")
            strategy, on = plan.solutions[i].strategy, [m.attributes[a] for a in axes]
            _require(strategy.shape == tuple(sizes[a] for a in on), "a strategy does not fit its attributes")
            if not (strategy.whole or is_line(strategy)):  # these need no centre of the plan
                centres = [plan.centres[a] for a in on]
                stands = (i, *centres) in inside or strategy.stands_on(centres)  # each is checked once
                _require(stands, "a strategy is not inside its residual space")
                inside.add((i, *centres))
    check_kinds(plan.measured, [s.strategy for s in plan.solutions])
    whole = [group for m in plan.measured for group in m.whole]
    once = len(set(whole)) == len(whole) and set(whole) <= set(range(len(plan.workload.groups)))
    _require(once, "a group is measured whole twice, or is missing")
    valid = math.isfinite(plan.weighted_loss) and 0 <= plan.gap < math.inf and 0 < plan.tolerance < 1
    _require(valid, "its error, gap or tolerance is invalid")
    _check_loss(plan)


def check_centres(schema: Schema, centres: Centres) -> None:
    """Refuse centres unless there is one per attribute."""
    _require([*map(len, centres)] == [*schema.sizes], "a centre does not fit its attribute")


def check_kinds(measurements: Sequence[Measured | IntegerMeasured], strategies: Sequence[Strategy]) -> None:
    """Refuse residuals measured twice, whole queries in products, and lines with contradictory centres."""
    _require(measurements, "nothing is measured")
    on_line = [is_line(strategy) for strategy in strategies]
    lines = {m.attributes[axes[0]] for m in measurements for axes, i in m.blocks if on_line[i]}
    residuals, centre_of = set(), dict[tuple[int, tuple[int, ...]], int]()
    for m in measurements:
        if any(strategies[i].whole for _, i in m.blocks):
            _require(len(m.blocks) == 1, "queries that are not split are part of a product")
            split = lines.isdisjoint(m.attributes)
            _require(split, "queries about an attribute with centres of its own are not split")
        else:
            _require(m.attributes not in residuals, "an attribute set is measured twice")
            residuals.add(m.attributes)
        for axes, i in m.blocks:
            if on_line[i]:  # lines come last, in order: later ones do not matter
                line = m.attributes[axes[0]]
                earlier = tuple(a for a in m.attributes if a != line and (a not in lines or a < line))
                same = centre_of.setdefault((line, earlier), i) == i
                _require(same, "an attribute has several centres where it must have one")


def _check_loss(plan: Plan) -> None:
    """Refuse a loss that does not belong to the strategies, if it is quick to compute."""
    if plan.workload.query_count > limits().merged_rows:
        return
    try:
        losses = [g.query_weights() @ plan.estimator.variances(g).ravel() for g in plan.workload]
    except TooLargeError:
        return
    same = math.isclose(math.fsum(losses), plan.weighted_loss, rel_tol=0.01)
    _require(same, "its losses are not those of its strategies")


def _require(holds: object, why: str) -> None:
    if not holds:
        raise PlanError(f"plan: {why}")
