"""The best linear unbiased estimate if some cells are known to be 0 that were measured with noise.

Where a plan does not tie attributes (`tying`), impossible cells are measured like any others. Let z be their
estimates, and S the covariance of z. The best estimate of a query that knows them to be 0 is

    q̃ = q̂ − c S⁺ z,   Var q̃ = Var q̂ − c S⁺ cᵀ,   with c = Cov(q̂, z).

So all answers agree with each other and with the zeros, and no error is larger than without this knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property, reduce

import numpy as np

from querysmasher.arrays import Array
from querysmasher.conditions import MAX_CELLS
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.planning.estimator.estimator import AttributeSet, Estimator
from querysmasher.planning.estimator.whole import summed
from querysmasher.planning.lattice import RANK
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.planning.tying import is_possible
from querysmasher.schema import Schema
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group

Images = dict[tuple[AttributeSet, Blocks], tuple[Measured, Array]]
"""For each independent noise, the coefficients of its values for every query."""


def measured_zeros(
    schema: Schema, estimator: Estimator, measured: Collection[AttributeSet], used: Collection[str]
) -> list[Group]:
    """Return the impossible cells of measured sets, as queries; none if they are too many.

    `used` are the predicates whose cells are not estimated at all.
    """
    sets: dict[AttributeSet, None] = {}
    for predicate, masks in schema.zeros(schema.names):
        own = {a for on, _ in masks for a in on}
        around = [some for some in measured if predicate not in used and own.issubset(some)]
        sets |= dict.fromkeys(s for s in around if not any(set(s) < set(other) for other in around))
        sets |= (
            {tuple(sorted(own)): None} if around else {}
        )  # where single cells of larger ones are not known
    groups, cells = [], 0
    for some in sets:
        names = tuple(schema.names[a] for a in some)
        shape = schema.shape(names)
        zeros = np.flatnonzero(~is_possible(schema, names)) if math.prod(shape) <= MAX_CELLS else np.zeros(0)
        cells += len(zeros)
        if cells > limits().constrained_cells or math.prod(shape) > MAX_CELLS:
            return []
        if not zeros.size:
            continue
        rows = np.zeros((len(zeros), math.prod(shape)))
        rows[np.arange(len(zeros)), zeros] = 1.0
        with suppress(OutsideMeasuredSpaceError, TooLargeError):  # of single cells, nothing may be known
            estimator.variances(group := Group(names, (Rows(shape, rows),)))
            groups.append(group)
    return groups


class ConstrainedEstimator(Estimator):
    """The estimator that knows some queries to be 0."""

    def __init__(self, free: Estimator, zeros: Collection[Group]) -> None:
        """Take the estimator that does not know it."""
        super().__init__(free.schema, (), free.strategies, {}, free.known)
        self.free, self.zeros, self.is_split = free, list(zeros), False

    def _noises(self, group: Group) -> Images:
        return {(m.attributes, m.blocks): (m, image) for m, image in self.free.images(group)}

    @cached_property
    def _of_zeros(self) -> Images:
        """The images of all zeros."""
        each = [(group.rows, self._noises(group)) for group in self.zeros]
        keys = {key: pair for _, images in each for key, pair in images.items()}
        return {
            key: (
                measured,
                np.concatenate(
                    [
                        images[key][1] if key in images else np.zeros((rows, image.shape[1]))
                        for rows, images in each
                    ]
                ),
            )
            for key, (measured, image) in keys.items()
        }

    @cached_property
    def _inverse(self) -> Array:
        """S⁺."""
        count = sum(group.rows for group in self.zeros)
        each = (m.variance * (image @ image.T) for m, image in self._of_zeros.values())
        covariance = reduce(np.add, each, np.zeros((count, count)))
        return np.asarray(np.linalg.pinv(covariance, rcond=RANK, hermitian=True), dtype=float)

    def _covariances(self, group: Group) -> Array | None:
        """Return c, with a row per query; None if that takes too much memory."""
        try:
            images = self._noises(group)
        except TooLargeError:
            return None
        known = self._of_zeros
        pairs = (m.variance * (image @ known[key][1].T) for key, (m, image) in images.items() if key in known)
        return reduce(np.add, pairs, np.zeros((group.rows, len(self._inverse))))

    def is_zero(self, group: Group) -> Array:
        """Return which queries count impossible cells only, with an axis per family."""
        if math.prod(self.schema.shape(group.attributes)) > MAX_CELLS:
            return np.zeros(group.shape, dtype=bool)
        possible = is_possible(self.schema, group.attributes)
        weighed = possible * np.random.default_rng(0).uniform(1, 2, possible.shape)  # so that nothing cancels
        return np.asarray(summed(group, weighed) == 0)

    def variances(self, group: Group) -> Array:
        variances, c = self.free.variances(group), self._covariances(group)
        if c is not None:
            gains = np.einsum("qz,qz->q", c @ self._inverse, c).reshape(group.shape)
            variances = np.maximum(variances - gains, 0.0)
        return np.where(self.is_zero(group), 0.0, variances)

    def total(self, group: Group) -> float:
        return float(self.variances(group).sum())

    def check(self, group: Group) -> None:
        self.free.check(group)

    def images(
        self, group: Group, only: Collection[AttributeSet] | None = None
    ) -> Iterator[tuple[Measured, Array]]:
        images, c = self._noises(group), self._covariances(group)
        a = np.zeros((group.rows, 0)) if c is None else c @ self._inverse
        for key in dict.fromkeys([*images, *self._of_zeros]) if a.size else images:
            measured, image = images.get(key) or (self._of_zeros[key][0], np.zeros(()))
            if only is None or measured.attributes in only:
                taken = a @ self._of_zeros[key][1] if a.size and key in self._of_zeros else 0.0
                yield measured, np.where(self.is_zero(group).reshape(-1, 1), 0.0, image - taken)

    def adjusted(self, group: Group, answers: Array, zeros: Array) -> Array:
        """Return q̃ from q̂, with an axis per family, and the estimates z."""
        c = self._covariances(group)
        if c is not None:
            answers = answers - (c @ (self._inverse @ zeros)).reshape(group.shape)
        return np.where(self.is_zero(group), 0.0, answers)
