"""What a family leaves on each subset of its axes, as a function of the centres, with its derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre
from querysmasher.planning.centres.roles import RoleFamily
from querysmasher.planning.solvers.circulant import spectral_root_loss
from querysmasher.planning.split import Kept, split_axis, split_parts
from querysmasher.planning.subworkload import Part


class RoleSplit:
    """A role family: what it leaves on each subset of its axes, and the derivative of that."""

    def __init__(self, family: RoleFamily, number: int, *, moves: bool = True, whole: bool = True) -> None:
        """Take a family of queries and its roles; its parts are numbered from `number` on.

        If it does not move, its centres stay what they are at first. Unless its parts are needed `whole`, a
        family that then looks the same from every value is not split at all.
        """
        self.roles = family.roles
        self.queries = family.queries
        self.number = number
        self.moves = moves
        self.whole = whole
        self.closed_root: float | None = None
        """√L of what is left on its only axis, where that was found without splitting it."""
        self._known: tuple[float, dict[Kept, Part]] | None = None

    @cached_property
    def gram(self) -> Array | None:
        """The Gram matrix of the queries, where it has a closed form."""
        family = self.queries.family
        return family.gram() if family.closed_form else None

    def at(self, centres: Sequence[Centre]) -> tuple[float, dict[Kept, Part]]:
        """Return the square of what is left on no axis, and the nonzero parts on other sets of axes."""
        if self._known is None or self.moves:
            own = [centres[r] for r in self.roles]
            family = self.queries.family
            closed = family.closed_form and family.looks_alike and own[0].is_uniform
            if closed and not self.moves and not self.whole:
                self._known = self._in_closed_form(), {}
            else:
                self._known = split_parts(self.queries, own, self.number)
        return self._known

    def _in_closed_form(self) -> float:
        """Return the square of what is left on no axis, and remember √L of what is left on the axis."""
        first = self.queries.family.gram()[0]
        self.closed_root = spectral_root_loss(first) if len(first) > 1 else None
        return float(first.mean())

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
