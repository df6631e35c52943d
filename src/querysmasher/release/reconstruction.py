"""Consistent, unbiased marginals reconstructed from noisy answers, and the covariance of answers.

With z the noisy answers of set A, the residual r_A = B†z estimates the part of the table on exactly A. The
estimator corrects residuals by what was measured of queries that are not split, and adds them up to tables.
All marginals come from the same residuals, so they agree wherever they overlap.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.lifting import centred, subsets
from querysmasher.planning.estimator.whole import summed
from querysmasher.planning.solution import Blocks
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan
from querysmasher.release.store import Store, combined_answers, repeats
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group, Workload

KEPT = 30_000_000
"""Maximum number of values of residuals cached for reuse."""


@dataclass(eq=False)
class Reconstruction:
    """Reconstructs residuals and marginals on demand; caches recently used residuals."""

    plan: IntegerPlan
    centres: Centres
    store: Store
    public_total: int | None
    estimator: Estimator
    _kept: OrderedDict[tuple[int, ...], Array] = field(default_factory=OrderedDict)

    @cached_property
    def _numbers(self) -> Mapping[tuple[int, ...], tuple[int, ...]]:
        """The indexes of the measurements of each attribute set, but for queries that are not split."""
        firsts = {numbers: self.plan.measured[numbers[0]] for numbers in repeats(self.plan)}
        return {m.attributes: numbers for numbers, m in firsts.items() if not self._is_whole_queries(m)}

    def residual(self, attributes: tuple[int, ...]) -> Array | None:
        """Return the residual of a set (increasing indexes), or None if it is not measured."""
        if not attributes and self.public_total is not None:
            return np.array(float(self.public_total))
        if attributes in self._kept:
            self._kept.move_to_end(attributes)
            return self._kept[attributes]
        numbers = self._numbers.get(attributes)
        if numbers is None:
            return None
        residual = centred(self._estimated(numbers), [self.centres[a] for a in attributes])
        self._kept[attributes] = residual = np.ascontiguousarray(residual)
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > KEPT:
            self._kept.popitem(last=False)
        return residual

    def marginal(self, attributes: tuple[int, ...], *, complete: bool = True) -> Array:
        """Return the marginal on attributes in any order.

        Without `complete`, unmeasured parts count as zero, which is right for queries without such parts.
        """
        if complete:
            self._check_complete(attributes)
        if self.estimator.is_single:
            return self._of_single(attributes)
        return self.estimator.table(attributes, self.residual, self._whole_answers)

    def _is_whole_queries(self, measured: IntegerMeasured) -> bool:
        """Return whether a measurement is one of queries that are not split."""
        return any(self.estimator.strategies[number].whole for _, number in measured.blocks)

    def _whole_answers(self) -> Array:
        """Return the answers to all queries that are not split."""
        whole = [i for i, m in enumerate(self.plan.measured) if self._is_whole_queries(m)]
        return np.concatenate([self.store[number].astype(float) for number in whole])

    def _of_single(self, attributes: tuple[int, ...]) -> Array:
        """Return the marginal from the only measurement, right for what follows from its queries."""
        (measured,) = self.plan.measured
        if not set(attributes) <= set(measured.attributes):
            names = ", ".join(self.plan.schema.names[a] for a in attributes)
            raise OutsideMeasuredSpaceError(
                f"the marginal on ({names}) cannot be reconstructed: the release measures other queries"
            )
        others = tuple(axis for axis, a in enumerate(measured.attributes) if a not in attributes)
        ordered = [a for a in measured.attributes if a in attributes]
        return self._table.sum(axis=others).transpose([ordered.index(a) for a in attributes])

    @cached_property
    def _table(self) -> Array:
        """Estimated counts of all cells, from which answers to the only measurement's queries follow."""
        return self._estimated((0,))

    def _check_complete(self, attributes: tuple[int, ...]) -> None:
        """Refuse a marginal of which some cells cannot be estimated."""
        if not self.estimator.is_split:
            names = tuple(self.plan.schema.names[a] for a in attributes)
            families = tuple(Identity((self.plan.schema.sizes[a],)) for a in attributes)
            self.estimator.check(Group(names, families))
            return
        missing = [kept for kept in subsets(sorted(attributes)) if not self.is_whole(kept)]
        if missing:
            sets = "; ".join("{" + ", ".join(self.plan.schema.names[a] for a in m) + "}" for m in missing)
            raise OutsideMeasuredSpaceError(
                f"the marginal cannot be reconstructed: the sets {sets} are not measured, or only in part; "
                "add them to the planned workload, or ask release.estimate(), which fills such sets in"
            )

    def is_whole(self, attributes: tuple[int, ...]) -> bool:
        """Return whether the whole residual space of a set is measured, not only a few queries in it."""
        if not attributes and self.public_total is not None:
            return True
        if attributes in self._numbers:
            return self.estimator.residual.is_full(attributes)
        return any(self.plan.schema.sizes[a] == 1 for a in attributes)

    def _estimated(self, numbers: tuple[int, ...]) -> Array:
        """Return the cells that fit the answers of repeated measurements, with an axis per attribute."""
        measured = self.plan.measured[numbers[0]]
        answers = combined_answers(self.plan, self.store, numbers)
        strategies = [self.plan.strategies[number] for _, number in measured.blocks]
        tensor = answers.reshape([math.prod(strategy.rows) for strategy in strategies])
        labels: list[int] = []  # the attribute's axis of every dimension reconstructed so far
        for (axes, number), strategy in zip(measured.blocks, strategies, strict=True):
            tensor = self.estimator.strategies[number].undone(strategy, tensor)
            tensor = tensor.reshape((*tensor.shape[:-1], *strategy.shape))
            labels += axes
        return tensor.transpose([labels.index(a) for a in range(len(labels))])


def answered(group: Group, table: Array, std: Array, public_total: int | None) -> Array:
    """Return the answers to a group from its marginal, with an axis per family.

    A query has no error if it counts every record equally often. Its answer is exactly that multiple of the
    public number of records, and not the sum of cells that have rounding errors.
    """
    answers = summed(group, table)
    if std.all():
        return answers
    often = summed(group, np.ones(table.shape)) / table.size
    return np.where(std == 0, often * float(public_total or 0), answers)


MAX_COVARIANCE = 10_000
"""Maximum number of answers."""


def covariance(estimator: Estimator, workload: Workload, other: Workload | None = None) -> Array:
    """Return the covariance matrix of the answers to a small workload, or between two workloads."""
    shape = workload.query_count, (other or workload).query_count
    if shape[0] * shape[1] > MAX_COVARIANCE**2:
        what = f"{shape[0]:,} answers" if other is None else f"{shape[0]:,} with {shape[1]:,} answers"
        raise TooLargeError(
            f"workload: a covariance of {what} is too large; at most {MAX_COVARIANCE:,} are allowed"
        )
    right = _images(estimator, workload if other is None else other)
    left = right if other is None else _images(estimator, workload, {attributes for attributes, _ in right})
    result = np.zeros(shape)
    for noise in left:
        if noise in right:
            (variance, rows, image), (_, columns, shared) = left[noise], right[noise]
            result[np.ix_(rows, columns)] += variance * (image @ shared.T)
    return result


def _images(
    estimator: Estimator, workload: Workload, only: Collection[tuple[int, ...]] | None = None
) -> dict[tuple[tuple[int, ...], Blocks], tuple[float, NDArray[np.int64], Array]]:
    """Return how queries depend on each independent noise: its variance, the queries and their images."""
    parts: dict[tuple[tuple[int, ...], Blocks], list[tuple[float, NDArray[np.int64], Array]]] = {}
    start = 0
    for group in workload:
        rows = np.arange(start, start + group.rows)
        for measured, image in estimator.images(group, only):
            noise = measured.attributes, measured.blocks
            parts.setdefault(noise, []).append((measured.variance, rows, image))
        start += group.rows
    return {
        noise: (
            same[0][0],
            np.concatenate([rows for _, rows, _ in same]),
            np.concatenate([i for *_, i in same]),
        )
        for noise, same in parts.items()
    }
