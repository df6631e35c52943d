"""Plans on disk."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from querysmasher.errors import PlanError
from querysmasher.fields import floats, integers, items, number, text, whole, wholes, word
from querysmasher.files import read_value, write_archive
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.checking import check_plan
from querysmasher.planning.objectives import LEAST, OBJECTIVES
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Blocks, Certificate, Measured, Solution
from querysmasher.planning.strategies import strategy_from_data
from querysmasher.planning.strategies.strategy import CLOSE
from querysmasher.privacy.budget import Budget
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
        "weighted_loss": plan.weighted_loss,
        "certificate": [plan.certificate.value, plan.certificate.bound],
        "mechanism": plan.mechanism,
        "solver": plan.solver,
        "centering": plan.centering,
        "tolerance": plan.tolerance,
        "objective": plan.objective,
        "asked": None if plan.asked is None else workload_to_data(plan.asked),
        "sizes_first": plan.sizes_first,
    }


def plan_from_data(data: dict[str, Any]) -> Plan:
    """Rebuild a plan from the result of `plan_to_data`, and check that it is consistent."""
    workload = workload_from_data(data["workload"])
    solutions = tuple(map(_solution_from_data, items(data["solutions"])))
    patterns = [blocks_from_data(pattern) for pattern in items(data["patterns"])]
    measured = tuple(
        Measured(attributes, patterns[whole(pattern)], variance, root, groups)
        for attributes, groups, pattern, variance, root in zip(
            unragged(data["measured"]),
            unragged(data["whole"]),
            integers(data["pattern_of"], 1).tolist(),
            floats(data["variances"], 1).tolist(),
            floats(data["root_losses"], 1).tolist(),
            strict=True,
        )
    )
    asked = data["asked"]
    plan = Plan(
        workload,
        Budget.from_json(data["budget"]),
        centres_from_data(data),
        solutions,
        measured,
        weighted_loss=_loss(data, solutions, measured),
        certificate=_certificate(data),
        mechanism=word(data["mechanism"]),
        solver=word(data["solver"]),
        centering=word(data["centering"]),
        tolerance=number(data["tolerance"], 0, 1),
        asked=None if asked is None else workload_from_data(asked),
        sizes_first=data["sizes_first"] is True,
    )
    check_plan(plan)
    return plan


def _certificate(data: dict[str, Any]) -> Certificate:
    if "certificate" not in data:
        raise PlanError("plan: an earlier version of querysmasher wrote it; plan again")
    value, bound = (number(one, 0, math.inf) for one in items(data["certificate"]))
    return Certificate(value, bound, text(data["objective"], (*OBJECTIVES, LEAST)))


def _loss(data: dict[str, Any], solutions: Sequence[Solution], measured: Sequence[Measured]) -> float:
    """Return the sum of the measurements' losses, or the stored loss of a mixture, which is at most that."""
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
    """Return one centre per attribute; attributes may share a centre."""
    stored = [_centre_from_data(centre) for centre in items(data["centres"])]
    return tuple(stored[i] for i in wholes(data["centre_of"]))


def _centre_from_data(data: Any) -> Centre:
    if isinstance(data, np.ndarray) and data.dtype == np.int64:
        return Centre.ratio(integers(data, 1))
    return Centre.of(floats(data, 1))  # weights: files from before centres kept their integers


def blocks_from_data(data: Any) -> Blocks:
    """Return the strategies of an attribute set: pairs of axes and the index of a solution."""
    return tuple((wholes(axes), whole(solution)) for axes, solution in items(data))


def _solution_from_data(data: dict[str, Any]) -> Solution:
    reached, bound = (number(data[name], 0, 1e300) for name in ("reached", "bound"))
    return Solution(strategy_from_data(data["kind"], data), reached, bound, word(data["method"]))
