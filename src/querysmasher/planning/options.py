"""The options of planning: mechanism, numerical method, centering and tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from querysmasher.errors import PlanError, as_given, as_share, not_one_of
from querysmasher.planning.mechanisms import DEFAULT, MECHANISMS, Mechanism
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import SOLVERS

CENTERINGS = ("optimized", "uniform")


@dataclass(frozen=True, eq=False)
class Options:
    """A valid combination of planning options, and what they imply for a workload."""

    mechanism: Mechanism
    solver: str
    centering: str
    tolerance: float
    bases: Sequence[Solution] = ()
    """The basis of every attribute, if the mechanism has bases."""
    lines: tuple[int, ...] = ()
    """Indexes of attributes that are planned as lines or trees, with centres of their own."""
    progress: bool | None = None

    @property
    def are_default(self) -> bool:
        """Whether the mechanism and the numerical method are the default ones."""
        return self.mechanism.name == DEFAULT and self.solver == SOLVERS[0]

    @property
    def keeps_whole(self) -> bool:
        """Whether queries may be measured whole, not split, where that is better."""
        return self.are_default and self.centering == "optimized"

    @classmethod
    def of(
        cls,
        mechanism: str | None = None,
        solver: str = "optimal",
        centering: str | None = None,
        tolerance: float = 1e-3,
        bases: Mapping[str, Any] | None = None,
    ) -> Options:
        """Return the options, or refuse unknown or incompatible ones.

        The name of a mechanism as `solver` selects that mechanism.
        """
        if mechanism is None:
            mechanism, solver = named(solver)
        if mechanism not in MECHANISMS:
            raise PlanError(f"mechanism: {not_one_of(MECHANISMS, mechanism)}")
        if solver not in SOLVERS:
            raise PlanError(f"solver: {not_one_of(SOLVERS, solver)}")
        chosen = MECHANISMS[mechanism]
        if solver != SOLVERS[0] and mechanism != DEFAULT:
            msg = f"solver: expected {SOLVERS[0]!r}, as mechanism={mechanism!r} has its own method, got "
            raise PlanError(msg + repr(solver))
        if centering is None:
            centering = "uniform" if chosen.uniform_only else "optimized"
        if centering not in CENTERINGS:
            raise PlanError(f"centering: {not_one_of(CENTERINGS, centering)}")
        if centering == "optimized" and chosen.uniform_only:
            msg = f"centering: mechanism={mechanism!r} is defined for 'uniform' centres only, got 'optimized'"
            raise PlanError(msg)
        if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
            got = f"{as_given(tolerance)}{as_share(tolerance)}"
            raise PlanError(f"tolerance: expected a number between 0 and 1, such as 1e-3, got {got}")
        if bases is not None and not (chosen.has_bases and isinstance(bases, Mapping)):
            given = type(bases).__name__ if chosen.has_bases else f"mechanism={mechanism!r}"
            having = " or ".join(repr(m.name) for m in MECHANISMS.values() if m.has_bases)
            msg = f"bases: expected a mapping of attributes to bases, and mechanism={having}, got {given}"
            raise PlanError(msg)
        return cls(chosen, solver, centering, tolerance)


def named(solver: str) -> tuple[str, str]:
    """Return the mechanism and the numerical method that `solver` alone selects."""
    return (solver, SOLVERS[0]) if solver in MECHANISMS else (DEFAULT, solver)
