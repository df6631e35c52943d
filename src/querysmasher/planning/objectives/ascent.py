"""Raise a bound that depends on multipliers, by a quasi-Newton method.

The variables are square roots: multipliers stay positive, and where every query is measured by itself, the
bound is a quadratic function of them. One evaluation is one plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.objectives.multipliers import Multipliers
from querysmasher.planning.quasi_newton import minimize
from querysmasher.workload.weighted import by_length

SPREAD = 50.0
"""Factor of the variables: the first step is of length one, and their sums of squares are about one."""


@dataclass(frozen=True, eq=False)
class Height:
    """The bound at some multipliers, and its derivatives."""

    bound: float
    groups: Array
    """With respect to the multiplier of every group."""
    rows: list[Array]
    """With respect to the multipliers of the rows of every scope, whatever their sum."""
    level: float = 1.0
    """What the bound loses per multiplier."""


def raised(
    start: Multipliers, at: Callable[[Multipliers], Height], scale: float, steps: int, gain: float
) -> Multipliers:
    """Return multipliers of a higher bound; `scale` is about as large as the bound."""
    scopes = [s for s, scope in enumerate(start.scopes.scopes) if not scope.fixed]
    places = np.flatnonzero(start.groups > 0)
    used = np.array([[own.count(s) for s in scopes] for own in start.scopes.of_group], dtype=float)
    used = used.reshape(len(start.groups), len(scopes))[places]
    ends = np.cumsum([len(places), *(len(start.rows[s]) for s in scopes)])
    best: list[tuple[float, Multipliers]] = []

    def unpacked(x: Array) -> tuple[Multipliers, Array, list[Array]]:
        """Return the multipliers at a point, and their square roots."""
        roots, *own = np.split(x / SPREAD, ends[:-1])
        sums = np.array([float(z @ z) for z in own])
        groups, rows = np.zeros(len(start.groups)), list(start.rows)
        groups[places] = roots**2 * np.prod(sums**used, axis=1)
        for s, z, total in zip(scopes, own, sums, strict=True):
            rows[s] = z**2 / total
        return replace(start, groups=groups * unit, rows=tuple(rows)), roots, own

    def lowered(x: Array) -> tuple[float, Array]:
        """Return the negative bound and its derivative by the square roots."""
        multipliers, roots, own = unpacked(x)
        height = at(multipliers)
        best.append((height.bound, multipliers))
        amounts = multipliers.groups[places]
        parts = [2 * amounts * height.groups[places] / roots]
        for number, (s, z) in enumerate(zip(scopes, own, strict=True)):
            slopes = height.rows[s] - height.level * float(amounts @ used[:, number])
            if start.scopes.scopes[s].by_length:
                slopes = by_length(slopes)
            parts.append(2 * z / float(z @ z) * slopes)
        return -height.bound / scale, -np.concatenate(parts) / (scale * SPREAD)

    unit = float(start.groups.sum())
    first = np.concatenate([np.sqrt(start.groups[places] / unit), *(np.sqrt(start.rows[s]) for s in scopes)])
    minimize(lowered, first * SPREAD, steps=steps, gain=gain, gradient=0.0)
    return max(best, key=lambda one: one[0])[1]
