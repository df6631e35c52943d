"""Plans on disk."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import FileError, QuerySmasherError
from querysmasher.files import read_archive, write_archive
from querysmasher.planning.plan import Plan
from querysmasher.planning.prediction import Measured
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategy import DenseStrategy, DiagonalStrategy, FourierStrategy, Strategy
from querysmasher.privacy.budget import Budget
from querysmasher.workload.storage import ragged, unragged, workload_from_data, workload_to_data


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan to a file, all or nothing."""
    write_archive(path, "plan", plan_to_data(plan))


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan back."""
    data = read_archive(path, "plan")
    try:
        return plan_from_data(data)
    except (QuerySmasherError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        msg = f"{str(path)!r} does not hold a whole plan ({type(error).__name__})"
        raise FileError(msg) from error


def plan_to_data(plan: Plan) -> dict[str, Any]:
    """Return plain data, with arrays in it, from which `plan_from_data` rebuilds the plan."""
    patterns = {m.blocks: None for m in plan.measured}
    number = {pattern: i for i, pattern in enumerate(patterns)}
    centres = {id(c): c for c in plan.centres}
    which = {key: i for i, key in enumerate(centres)}
    return {
        "workload": workload_to_data(plan.workload),
        "budget": plan.budget.to_json(),
        "centres": list(centres.values()),
        "centre_of": [which[id(c)] for c in plan.centres],
        "solutions": [
            {"reached": s.reached, "bound": s.bound, "method": s.method, **_strategy_to_data(s.strategy)}
            for s in plan.solutions
        ],
        "patterns": [[[list(axes), solution] for axes, solution in pattern] for pattern in patterns],
        "measured": ragged(m.attributes for m in plan.measured),
        "pattern_of": np.array([number[m.blocks] for m in plan.measured], dtype=np.int64),
        "variances": np.array([m.variance for m in plan.measured]),
        "root_losses": np.array([m.root_loss for m in plan.measured]),
        "weighted_loss": plan.weighted_loss,
        "gap": plan.gap,
        "solver": plan.solver,
        "centering": plan.centering,
        "tolerance": plan.tolerance,
    }


def plan_from_data(data: dict[str, Any]) -> Plan:
    """Rebuild a plan from what `plan_to_data` returned."""
    patterns = [tuple((tuple(axes), solution) for axes, solution in pattern) for pattern in data["patterns"]]
    measured = zip(
        unragged(data["measured"]),
        data["pattern_of"].tolist(),
        data["variances"].tolist(),
        data["root_losses"].tolist(),
        strict=True,
    )
    for centre in data["centres"]:
        centre.flags.writeable = False
    return Plan(
        workload_from_data(data["workload"]),
        Budget.from_json(data["budget"]),
        tuple(data["centres"][i] for i in data["centre_of"]),
        tuple(
            Solution(_strategy_from_data(s), s["reached"], s["bound"], s["method"]) for s in data["solutions"]
        ),
        tuple(
            Measured(attributes, patterns[p], variance, root) for attributes, p, variance, root in measured
        ),
        data["weighted_loss"],
        data["gap"],
        data["solver"],
        data["centering"],
        data["tolerance"],
    )


def _strategy_to_data(strategy: Strategy) -> dict[str, Any]:
    if isinstance(strategy, DenseStrategy):
        return {"shape": list(strategy.shape), "matrix": strategy.matrix, "lattice": strategy.lattice}
    if isinstance(strategy, FourierStrategy):
        return {"spectrum": strategy.spectrum}
    assert isinstance(strategy, DiagonalStrategy)  # noqa: S101 - there are three kinds
    return {"bases": list(strategy.bases), "weights": strategy.weights}


def _strategy_from_data(data: dict[str, Any]) -> Strategy:
    if "matrix" in data:
        return DenseStrategy(tuple(data["shape"]), _floats(data["matrix"]), data["lattice"])
    if "spectrum" in data:
        return FourierStrategy(_floats(data["spectrum"]))
    return DiagonalStrategy(tuple(map(_floats, data["bases"])), _floats(data["weights"]))


def _floats(array: Any) -> Array:
    """Return an array of floating-point numbers as it is, and refuse anything else."""
    if type(array) is not np.ndarray or array.dtype != np.float64:
        msg = "a strategy is not made of floating-point numbers"
        raise TypeError(msg)
    return array
