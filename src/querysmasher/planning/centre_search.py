"""The centres that minimise a workload's total error.

Attributes of one role share a centre. Where symmetry makes the uniform centre best, as for marginals and
circular ranges, it is kept without a search. The others are found by a quasi-Newton search on exact
gradients, starting from uniform, and rounded to ratios of small whole numbers, as measuring needs them.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.planning.centering import Centres, uniform
from querysmasher.planning.centre_model import CentreModel
from querysmasher.planning.decomposition import is_few
from querysmasher.planning.quasi_newton import minimize
from querysmasher.planning.roles import Roles, find_roles
from querysmasher.planning.solvers.circulant import is_circulant_gram
from querysmasher.privacy.budget import Budget
from querysmasher.workload.families import Family
from querysmasher.workload.workload import Workload

FINE, COARSE = 64, 16
"""Centres are rounded to whole numbers of at most this size: coarser where rows on several attributes at once
are measured, because those need the bits."""

STEP = 0.3
"""A first step has length 1 in the search's own scale: this fraction of the uniform centre's length."""

STEPS, HEAVY_STEPS = 60, 8
RELATIVE_GAIN, HEAVY_GAIN = 2e-6, 2e-4
"""The search ends when a step gains less than this fraction."""

FLAT = 1e-9
"""It also ends where no entry of the gradient is larger."""

MANY_CLASSES = 100
"""With more classes of attribute sets, attributes that differ in weights only share a centre too."""

PARTS = (1.0, 0.4, 0.1)
"""Where the model only estimates, so much of the way from uniform is tried: estimates overshoot."""


def search_centres(workload: Workload, budget: Budget, *, far_apart: bool = False) -> list[Centres]:
    """Return centres to plan with: the best ones, or several to try in turn where they are only estimated.

    A single choice is known to be no worse than uniform. Several start with uniform, then come bold steps
    before timid ones. Queries that are `far_apart` in weight or size are not all seen by the search.
    """
    even = uniform(workload.schema)
    if _all_symmetric(workload):
        return [even]
    roles = find_roles(workload)
    if len(roles.classes) > MANY_CLASSES:
        roles = find_roles(workload, coarse=True)
    free = [r for r in range(len(roles.sizes)) if not _is_symmetric(roles, r)]
    if not free:
        return [even]
    model = CentreModel(roles, (budget.unit.squared_change(total=True), budget.unit.squared_change()))
    start = [np.full(n, 1.0 / n) for n in roles.sizes]
    ends = np.cumsum([roles.sizes[r] for r in free])

    def centres_at(x: Array) -> list[Array]:
        centres = list(start)
        for role, moves in zip(free, np.split(x, ends[:-1]), strict=True):
            centres[role] = start[role] + STEP / math.sqrt(len(moves)) * (moves - moves.mean())
        return centres

    with one_core():
        first, _ = model.value_and_gradient(start)
        if not first > 0:
            return [even]  # all queries are zero, or ask for what is public

        def objective(x: Array) -> tuple[float, Array]:
            value, gradients = model.value_and_gradient(centres_at(x))
            return value / first, np.concatenate(
                [STEP / math.sqrt(len(g)) * (g - g.mean()) / first for g in map(gradients.__getitem__, free)]
            )

        steps, gain = (HEAVY_STEPS, HEAVY_GAIN) if model.heavy else (STEPS, RELATIVE_GAIN)
        found = minimize(objective, np.zeros(int(ends[-1])), steps=steps, gain=gain, gradient=FLAT)
        if not found.success and not model.heavy:  # stuck on inexact derivatives
            model.tight = True
            found = minimize(objective, found.x, steps=steps, gain=gain, gradient=FLAT)

        def rounded(x: Array) -> list[Array]:
            fineness = [COARSE if _is_tied(roles, r) else FINE for r in range(len(roles.sizes))]
            return [round_centre(w, fineness[r]) if r in free else w for r, w in enumerate(centres_at(x))]

        best = rounded(found.x)
        last, _ = model.value_and_gradient(best)
    if model.exact and not far_apart:
        return [even if last >= first else _spread(best, roles)]
    if model.exact:
        return [even, _spread(best, roles)]
    return [even, *(_spread(rounded(part * found.x), roles) for part in PARTS)]


def _spread(centres: list[Array], roles: Roles) -> Centres:
    """Give every attribute its role's centre."""
    for centre in centres:
        centre.flags.writeable = False
    return tuple(centres[r] for r in roles.role_of)


def round_centre(centre: Array, fineness: int) -> Array:
    """Return a centre nearby that is a ratio of whole numbers of at most `fineness`."""
    k = np.round(centre * (fineness / np.abs(centre).max()))
    k /= max(1, np.gcd.reduce(k.astype(np.int64)))
    return k / k.sum()


def _all_symmetric(workload: Workload) -> bool:
    """Tell at once whether every family looks the same from every cell."""
    families = {f.key: f for g in workload for f in g.families}
    return all(map(_looks_alike, families.values()))


def _is_symmetric(roles: Roles, role: int) -> bool:
    """Tell whether every family asked of a role looks the same from every value.

    Two values count as alike: what is left on them is a single number, whose largest weight the uniform
    centre makes smallest, with a kink there that a search on derivatives could not settle on.
    """
    if roles.sizes[role] <= 2:
        return True
    return all(_looks_alike(f.family) for f in roles.families if role in f.roles)


def _looks_alike(family: Family) -> bool:
    """Tell whether a family looks the same from every value; few queries on many values never do."""
    if len(family.shape) > 1 or (not family.closed_form and is_few(family.rows, family.cells, 1)):
        return False
    return is_circulant_gram(family.gram())


def _is_tied(roles: Roles, role: int) -> bool:
    """Tell whether a role is asked about by several families, or together with others by one."""
    own = [f for f in roles.families if role in f.roles]
    return len({f.family.key for f in own}) > 1 or any(len(f.roles) > 1 for f in own)
