"""The centres that minimise a workload's total error.

Attributes of one role share a centre. Where symmetry makes the uniform centre best, as for marginals and
circular ranges, it is kept without a search. The others are found by a quasi-Newton search on exact
gradients, starting from uniform, and rounded to ratios of small integers, which measuring needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.planning.centre import Centre, Centres, uniform
from querysmasher.planning.centres.model import CentreModel, Evaluation
from querysmasher.planning.centres.own import own_centres
from querysmasher.planning.centres.roles import RoleFamily, Roles, few_roles
from querysmasher.planning.limits import limits
from querysmasher.planning.quasi_newton import Minimum, minimize
from querysmasher.planning.solvers.circulant import is_circulant_gram
from querysmasher.planning.split import is_few
from querysmasher.privacy.budget import Budget
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Workload


@dataclass(frozen=True)
class Candidates:
    """Centres to plan with: uniform ones first, then others to try in turn, large steps before small ones.

    If `is_proven`, the last is known to be the best, so that no comparison is necessary.
    """

    centres: tuple[Centres, ...]
    is_proven: bool
    uniform_bound: float = 0.0
    """A lower bound of Σ√(c·L) over all sets around uniform centres: a plan below it needs no comparison."""
    stopped_early: bool = False
    """Whether the search ended for its effort, rather than because nothing was left to gain."""


def search_centres(workload: Workload, budget: Budget, *, far_apart: bool = False) -> Candidates:
    """Return the centres that are worth planning with.

    If queries are `far_apart` in weight or size, the search misses some of them and proves nothing.
    """
    even = uniform(workload.schema)
    keep = Candidates((even,), is_proven=True)
    if _all_symmetric(workload):
        return keep
    roles = few_roles(workload, limits().many_classes)
    if any(map(_is_written_out, roles.families)):
        return Candidates((even,), is_proven=True, stopped_early=True)
    free = [r for r in range(len(roles.sizes)) if not _is_symmetric(roles, r)]
    if not free:
        return keep
    sensitivities = (budget.unit.squared_change(total=True), budget.unit.squared_change())
    model = CentreModel(roles, sensitivities, free)
    start = [Centre.uniform(n) for n in roles.sizes]
    way = _Way(start, free)
    with one_core():
        own = own_centres(model, start)
        if own is not None:
            centres = _spread(way.rounded(own.centres, roles), roles)
            return Candidates((even, centres), is_proven=False, uniform_bound=own.uniform_bound)
        first = model.at(start)
        if not first.value > 0:
            return keep  # all queries are zero, or ask for what is public
        found = _minimise(model, way, first)
    early = not found.success and found.steps >= (
        limits().heavy_steps if first.is_heavy else limits().search_steps
    )
    if not first.is_exact:
        tried = (way.rounded(way.at(part * found.x), roles) for part in limits().partial_ways)
        spread = (_spread(centres, roles) for centres in tried)
        return Candidates((even, *spread), is_proven=False, stopped_early=early)
    best = _spread(way.rounded(way.at(found.x), roles), roles)
    bound = 0.0 if far_apart else first.value
    return Candidates((even, best), is_proven=False, uniform_bound=bound, stopped_early=early)


@dataclass(frozen=True, eq=False)
class _Way:
    """The centres of the `free` roles as a vector, which is zero at uniform centres."""

    start: list[Centre]
    free: list[int]

    @property
    def size(self) -> int:
        return sum(len(self.start[r]) for r in self.free)

    def at(self, x: Array) -> list[Centre]:
        """Return the centres at x."""
        centres = list(self.start)
        ends = np.cumsum([len(self.start[r]) for r in self.free])
        for role, moves in zip(self.free, np.split(x, ends[:-1]), strict=True):
            centres[role] = Centre(self.start[role].weights + self._scaled(moves))
        return centres

    def gradient(self, gradients: list[Array]) -> Array:
        """Return the derivative with respect to x, given those with respect to the centres."""
        return np.concatenate([self._scaled(gradients[r]) for r in self.free])

    def rounded(self, centres: list[Centre], roles: Roles) -> list[Centre]:
        """Return centres nearby that are ratios of small integers."""
        result = list(centres)
        for role in self.free:
            fine = min(max(limits().fine_centre, len(centres[role])), limits().largest_centre)
            fineness = limits().coarse_centre if _is_tied(roles, role) else fine
            result[role] = replace(Centre.near(centres[role].weights, fineness), start=centres[role].start)
        return result

    @staticmethod
    def _scaled(moves: Array) -> Array:
        """Scale so that the first step has length 1 in x; centres keep their sum."""
        return np.asarray(limits().first_step / math.sqrt(len(moves)) * (moves - moves.mean()))


def _minimise(model: CentreModel, way: _Way, first: Evaluation) -> Minimum:
    """Return where a quasi-Newton search from uniform centres ends."""
    steps, gain = limits().search_steps, limits().search_gain
    if first.is_heavy:
        steps, gain = limits().heavy_steps, limits().heavy_gain

    def search(x: Array, *, tight: bool) -> Minimum:
        def objective(x: Array) -> tuple[float, Array]:
            found = model.at(way.at(x), tight=tight)
            return found.value / first.value, way.gradient(found.gradients) / first.value

        return minimize(objective, x, steps=steps, gain=gain, gradient=limits().search_slope)

    found = search(np.zeros(way.size), tight=False)
    if not found.success and not first.is_heavy:  # stuck on inexact derivatives
        found = search(found.x, tight=True)
    return found


def _spread(centres: list[Centre], roles: Roles) -> Centres:
    """Give every attribute its role's centre."""
    return tuple(centres[r] for r in roles.role_of)


def _all_symmetric(workload: Workload) -> bool:
    """Return quickly whether every family looks the same from every cell."""
    families = {f.key: f for g in workload for f in g.families}
    return all(map(_looks_alike, families.values()))


def _is_symmetric(roles: Roles, role: int) -> bool:
    """Return whether every family asked of a role looks the same from every value.

    Two values always do: what is left on them is a single number, whose largest weight is smallest at the
    uniform centre, with a kink there at which a search by derivatives would not converge.
    """
    if roles.sizes[role] <= 2:
        return True
    return all(_looks_alike(f.family) for f in roles.families if role in f.roles)


def _looks_alike(family: Family) -> bool:
    """Return whether a family looks the same from every value; few queries on many values never do."""
    if len(family.shape) > 1 or (not family.closed_form and is_few(family.rows, family.cells, 1)):
        return False
    return family.looks_alike or (not family.closed_form and is_circulant_gram(family.gram()))


def _is_written_out(asked: RoleFamily) -> bool:
    """Return whether a family ties attributes in so many ways that one plan is all that can be afforded."""
    rows, cells = asked.family.rows, asked.family.cells
    several = len(asked.roles) > 1 and not is_few(2 * rows, cells, len(asked.roles))
    return several and limits().dense_cells < cells <= limits().joint_dense_cells


def _is_tied(roles: Roles, role: int) -> bool:
    """Return whether several families, or a family on several attributes, ask about a role."""
    own = [f for f in roles.families if role in f.roles]
    return len({f.family.key for f in own}) > 1 or any(len(f.roles) > 1 for f in own)
