"""The centre of each attribute: a vector that sums to one, around which queries are split.

With wᵢ the centre of attribute i and Cᵢ = I − wᵢ1ᵀ, every row q on the attributes S splits into
parts q⇒A = q · ⊗(Cᵢ for i ∈ A, wᵢ for i ∈ S∖A), and the parts' answers add up to the answer of q.
The uniform centre is the paper's: its parts lie in mutually orthogonal residual spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.planning.limits import limits
from querysmasher.schema import Schema


@dataclass(frozen=True, eq=False)
class Centre:
    """Weights of an attribute's values, which sum to one, and integers in the same ratios, if known.

    Centres with equal weights are equal. Exact measurement needs the integers; an intermediate
    centre of a search has none.
    """

    weights: Array
    integers: NDArray[np.int64] | None = None
    start: Array | None = None
    """Weights of the values, near the best design around this centre, if a search has them."""

    def __post_init__(self) -> None:
        """Refuse weights that do not sum to one, and make the arrays read-only."""
        weights = np.asarray(self.weights, dtype=float)
        if weights.ndim != 1 or not weights.size or not np.isfinite(weights).all():
            msg = "centre: a centre does not fit its attribute: expected one finite number per value"
            raise PlanError(msg)
        size = float(np.abs(weights).sum())
        if size > len(weights) * limits().largest_centre or abs(float(weights.sum()) - 1) > 1e-9 * max(
            1.0, size
        ):
            raise PlanError("centre: a centre does not sum to one")
        object.__setattr__(self, "weights", weights)
        for array in (self.weights, self.integers):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def uniform(cls, size: int) -> Centre:
        """Return the uniform centre of `size` values."""
        return cls.ratio(np.ones(size, dtype=np.int64))

    @classmethod
    def ratio(cls, integers: NDArray[np.int64]) -> Centre:
        """Return the centre k / Σk."""
        largest = limits().largest_centre
        if integers.size and not -largest <= integers.min() <= integers.max() <= largest:
            raise PlanError(f"centre: expected integers of at most {largest} in absolute value")
        if not integers.sum() > 0:
            raise PlanError("centre: a centre does not sum to one: expected integers with a positive sum")
        k = integers // np.gcd.reduce(integers)
        return cls(k / k.sum(), k)

    @classmethod
    def near(cls, weights: Array, most: int) -> Centre:
        """Return a nearby centre that is a ratio of integers of at most `most`.

        Of the integers nearest to some multiples of the weights, it takes those in the most similar ratios.
        """
        largest = np.linspace(most, most / 2, 65)
        rounded = np.round(weights * (largest / np.abs(weights).max())[:, None])
        usable = rounded[rounded.sum(axis=1) > 0]
        distances = np.linalg.norm(usable / usable.sum(axis=1, keepdims=True) - weights, axis=1)
        return cls.ratio(usable[distances.argmin()].astype(np.int64))

    def positive(self) -> Centre:
        """Return the centre, with a little weight for values that have none."""
        if self.weights.min() > 0:
            return self
        finer = self.exact * max(1, limits().centre_integers // int(self.exact.max()))
        return Centre.ratio(np.maximum(finer, 1))

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all values have the same weight."""
        return bool(np.all(self.weights == self.weights[0]))

    @property
    def exact(self) -> NDArray[np.int64]:
        """The integers, for exact measurement; raises `PlanError` if there are none."""
        if self.integers is None:
            msg = f"centre: exact measurement needs ratios of integers of at most {limits().largest_centre}"
            raise PlanError(msg)
        return self.integers

    @cached_property
    def _key(self) -> bytes:
        return self.weights.tobytes()

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.weights)

    def __eq__(self, other: object) -> bool:
        """Return whether the other centre has the same weights."""
        return isinstance(other, Centre) and self._key == other._key

    def __hash__(self) -> int:
        """Hash the weights."""
        return hash(self._key)


Centres = tuple[Centre, ...]


def uniform(schema: Schema) -> Centres:
    """Return the uniform centre of every attribute; it is the same object for equal sizes."""
    by_size = {n: Centre.uniform(n) for n in set(schema.sizes)}
    return tuple(by_size[n] for n in schema.sizes)


def complement(centre: Array) -> Array:
    """Return an orthonormal basis (n-1 rows) of the rows b with b · centre = 0."""
    basis, _ = np.linalg.qr(centre[:, None], mode="complete")
    return np.ascontiguousarray(basis[:, 1:].T)
