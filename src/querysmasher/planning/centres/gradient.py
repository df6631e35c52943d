"""What a family leaves on each subset of its axes, as a function of the centres, with its derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre
from querysmasher.planning.centres.roles import RoleFamily
from querysmasher.planning.split import Kept, split_axis, split_parts
from querysmasher.planning.subworkload import Part


class RoleSplit:
    """A role family: what it leaves on each subset of its axes, and the derivative of that."""

    def __init__(self, family: RoleFamily) -> None:
        """Take a family of queries and its roles."""
        self.roles = family.roles
        self.queries = family.queries
        self.gram = family.family.gram() if family.family.closed_form else None

    def at(self, centres: Sequence[Centre], number: int) -> tuple[float, dict[Kept, Part]]:
        """Return the square of what is left on no axis, and the nonzero parts on other sets of axes.

        The parts are numbered from `number` on.
        """
        return split_parts(self.queries, [centres[r] for r in self.roles], number)

    def _left(self, kept: Kept, centres: Sequence[Centre], skip: int | None) -> Array:
        """Return q ⊗(C on kept axes, w on the others), leaving the axis `skip` as it is."""
        left = self.queries.weighted
        for axis in reversed(range(len(self.roles))):
            if axis != skip:
                left = split_axis(left, centres[self.roles[axis]], axis + 1, keep=axis in kept)
        return left

    def add_gradient(
        self,
        square: float,
        slopes: Mapping[Kept, tuple[Part, Array]],
        centres: Sequence[Centre],
        gradients: list[Array],
    ) -> None:
        """Propagate the derivatives with respect to the square and the parts to the centres."""
        if self.gram is not None:
            (role,) = self.roles
            on_centre = self.gram @ centres[role].weights
            gradients[role] += 2 * square * on_centre
            if (0,) in slopes:  # −2 G C Γ 1, with G C = G − (Gw) 1ᵀ
                ones = slopes[0,][1].sum(axis=1)
                gradients[role] -= 2 * (self.gram @ ones - on_centre * ones.sum())
            return
        for kept in [(), *slopes]:
            left = self._left(kept, centres, None)
            if not kept:
                change = 2 * square * left
            else:
                part, slope = slopes[kept]
                by_rows = slope if part.thin else 2 * left.reshape(len(left), -1) @ slope
                change = by_rows.reshape(left.shape)
            for axis, role in enumerate(self.roles):
                loose = self._left(kept, centres, axis)
                at = 1 + sum(a < axis for a in kept)  # the index of the axis in `left` and in `loose`
                if axis in kept:
                    change_sum = change.sum(axis=at)
                    gradients[role] -= _along(loose, at, change_sum)
                else:
                    gradients[role] += _along(loose, at, change)


def _along(tensor: Array, axis: int, weights: Array) -> Array:
    """Return, for each index of an axis, the inner product of the rest with `weights`."""
    moved = np.moveaxis(tensor, axis, 0)
    return moved.reshape(len(moved), -1) @ weights.ravel()
