"""What a family leaves on each subset of its axes, as a function of the centres, with its derivative."""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centering import split_axis, split_gram
from querysmasher.planning.decomposition import is_few
from querysmasher.planning.roles import Kept, RoleFamily
from querysmasher.planning.subworkload import Part


class RoleSplit:
    """A role family: what it leaves on each subset of its axes, and the derivative of that."""

    def __init__(self, family: RoleFamily) -> None:
        """Take a family of queries and its roles."""
        self.roles = family.roles
        self.gram: Array | None = None
        self.rows: Array = np.zeros(())
        if family.family.closed_form:
            self.gram = family.family.gram()
        else:
            rows = family.family.matrix()
            if family.family.weights is not None:
                rows = rows * np.sqrt(family.family.weights)[:, None]
            self.rows = rows.reshape(-1, *family.family.shape).transpose(0, *(1 + a for a in family.order))

    def at(self, centres: list[Array], number: int) -> tuple[float, dict[Kept, Part]]:
        """Return the square of what is left on no axis, and the parts on the others that are not nothing.

        The parts are numbered from `number` on.
        """
        if self.gram is not None:
            w = centres[self.roles[0]]
            square, centred = split_gram(self.gram, w)
            return square, {} if centred is None else {(0,): Part((len(w),), (w,), centred, number=number)}
        square = 0.0
        parts: dict[Kept, Part] = {}
        norm = np.linalg.norm(self.rows)
        for bits in range(2 ** len(self.roles)):
            kept = tuple(a for a in range(len(self.roles)) if bits >> a & 1)
            left = self._left(kept, centres, None)
            if np.linalg.norm(left) <= 1e-12 * norm:
                continue
            if not kept:
                square = float(np.vdot(left, left))
                continue
            shape, flat = left.shape[1:], left.reshape(len(left), -1)
            own = tuple(centres[self.roles[a]] for a in kept)
            thin = _is_thin(kept, left)
            content = flat if thin else flat.T @ flat
            parts[kept] = Part(shape, own, content, thin, number=number + len(parts))
        return square, parts

    def _left(self, kept: Kept, centres: list[Array], skip: int | None) -> Array:
        """Return q ⊗(C on kept axes, w on the others), leaving the axis `skip` as it is."""
        left = self.rows
        for axis in reversed(range(len(self.roles))):
            if axis != skip:
                left = split_axis(left, centres[self.roles[axis]], axis + 1, keep=axis in kept)
        return left

    def add_gradient(
        self, square: float, slopes: dict[Kept, Array], centres: list[Array], gradients: list[Array]
    ) -> None:
        """Pass the derivatives by the square and by the parts on to the centres."""
        if self.gram is not None:
            (role,) = self.roles
            on_centre = self.gram @ centres[role]
            gradients[role] += 2 * square * on_centre
            if (0,) in slopes:  # −2 G C Γ 1, with G C = G − (Gw) 1ᵀ
                ones = slopes[0,].sum(axis=1)
                gradients[role] -= 2 * (self.gram @ ones - on_centre * ones.sum())
            return
        for kept in [(), *slopes]:
            left = self._left(kept, centres, None)
            if not kept:
                change = 2 * square * left
            elif _is_thin(kept, left):
                change = slopes[kept].reshape(left.shape)
            else:
                change = (2 * left.reshape(len(left), -1) @ slopes[kept]).reshape(left.shape)
            for axis, role in enumerate(self.roles):
                loose = self._left(kept, centres, axis)
                at = 1 + sum(a < axis for a in kept)  # where the axis stands in `left` and in `loose`
                if axis in kept:
                    change_sum = change.sum(axis=at)
                    gradients[role] -= _along(loose, at, change_sum)
                else:
                    gradients[role] += _along(loose, at, change)


def _is_thin(kept: Kept, left: Array) -> bool:
    """Tell whether what is left is kept as rows, as `decomposition` keeps it: where they are few."""
    return is_few(len(left), left[0].size, len(kept))


def _along(tensor: Array, axis: int, weights: Array) -> Array:
    """Return, for each place of an axis, the inner product of the rest with `weights`."""
    moved = np.moveaxis(tensor, axis, 0)
    return moved.reshape(len(moved), -1) @ weights.ravel()
