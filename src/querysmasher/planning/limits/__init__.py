"""The tuning constants of planning, in one frozen place.

A number is a limit if it says how much: which sizes are accepted, at which size or amount of work the method
changes, how many steps, rounds or plans a search takes, how close is close enough, how many bits are spent.

A number stays beside its algorithm if it is part of its mathematics or arithmetic: a tolerance of
floating-point arithmetic, the size of an intermediate array (`CHUNK`), the range of exact integers, a
coefficient of a formula, of a quadrature or of one iteration. `tests/planning/test_limits.py` lists these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from querysmasher.planning.limits.bounds import BoundLimits
from querysmasher.planning.limits.centres import CentreLimits
from querysmasher.planning.limits.estimates import EstimateLimits
from querysmasher.planning.limits.large import LargeLimits
from querysmasher.planning.limits.objectives import ObjectiveLimits
from querysmasher.planning.limits.sizes import SizeLimits
from querysmasher.planning.limits.solvers import SolverLimits
from querysmasher.planning.limits.strategies import StrategyLimits


@dataclass(frozen=True)
class PlanningLimits(
    SizeLimits,
    LargeLimits,
    SolverLimits,
    StrategyLimits,
    CentreLimits,
    BoundLimits,
    ObjectiveLimits,
    EstimateLimits,
):
    """Limits on size and effort. They affect planning time and accuracy, never the validity of a plan."""


_in_force = [PlanningLimits()]


def limits() -> PlanningLimits:
    """Return the limits in force."""
    return _in_force[-1]


@contextmanager
def limited(**changes: Any) -> Iterator[PlanningLimits]:
    """Change limits inside a `with` block, in all threads: for tests and experiments."""
    _in_force.append(replace(limits(), **changes))
    try:
        yield limits()
    finally:
        _in_force.pop()
