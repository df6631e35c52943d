"""Consistent, unbiased marginals reconstructed from noisy answers.

With z the noisy answers of set A, the residual r_A = B†z estimates the part of the table on exactly A. The
estimator corrects residuals by what was measured of queries that are not split, and adds them up to tables.
All marginals come from the same residuals, so they agree wherever they overlap.

The joint covariance of answers.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.lifting import along, subsets
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan
from querysmasher.release.store import Store, combined_answers, repeats
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group, Workload

KEPT = 30_000_000
"""Maximum number of values of residuals cached for reuse."""


class Reconstruction:
    """Reconstructs residuals and marginals on demand; caches recently used residuals."""

    estimator: Estimator

    def __init__(
        self,
        plan: IntegerPlan,
        centres: Centres,
        store: Store,
        public_total: int | None,
        estimator: Estimator,
    ) -> None:
        """Take what was measured, and what predicts its errors."""
        self.plan = plan
        self.centres = centres
        self.store = store
        self.public_total = public_total
        self.estimator = estimator
        self._numbers: Mapping[tuple[int, ...], tuple[int, ...]] = {
            plan.measured[numbers[0]].attributes: numbers
            for numbers in repeats(plan)
            if not self._is_whole_queries(plan.measured[numbers[0]])
        }
        self._kept: OrderedDict[tuple[int, ...], Array] = OrderedDict()
        self._size = 0

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
        residual = self._rebuild(numbers)
        self._kept[attributes] = residual
        self._size += residual.size
        while self._size > KEPT and len(self._kept) > 1:
            self._size -= self._kept.popitem(last=False)[1].size
        return residual

    def marginal(self, attributes: tuple[int, ...], *, complete: bool = True) -> Array:
        """Return the marginal on attributes in any order.

        Without `complete`, unmeasured parts count as zero, which is right for queries without such parts.
        """
        if complete:
            self._check_complete(attributes)
        if self.estimator.single is not None:
            return self._of_single(attributes)
        return self.estimator.table(attributes, self.residual, self._whole_answers)

    def _is_whole_queries(self, measured: IntegerMeasured) -> bool:
        """Return whether a measurement is one of queries that are not split."""
        return any(self.estimator.strategies[number].whole for _, number in measured.blocks)

    def _whole_answers(self) -> Array:
        """Return the answers to all queries that are not split."""
        numbers = [i for i, m in enumerate(self.plan.measured) if self._is_whole_queries(m)]
        return np.concatenate([self.store[number].astype(float) for number in numbers])

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
        (measured,) = self.plan.measured
        ((_, number),) = measured.blocks
        sizes = [self.plan.schema.sizes[a] for a in measured.attributes]
        return self._undone(number, self.store[0].astype(float)).reshape(sizes)

    def _undone(self, number: int, answers: Array) -> Array:
        """Estimate cells, along the last axis, from answers to a strategy, along the first."""
        return self.estimator.strategies[number].undone(self.plan.strategies[number], answers)

    def _check_complete(self, attributes: tuple[int, ...]) -> None:
        """Refuse a marginal of which some cells cannot be estimated."""
        if not self.estimator.is_split:
            names = tuple(self.plan.schema.names[a] for a in attributes)
            families = tuple(Identity.of(self.plan.schema.sizes[a]) for a in attributes)
            self.estimator.check(Group(names, families))
            return
        ordered = sorted(attributes)
        self._refuse_unless_measured([kept for kept in subsets(ordered) if not self.is_whole(kept)])

    def _refuse_unless_measured(self, missing: Sequence[tuple[int, ...]]) -> None:
        if missing:
            sets = "; ".join("{" + ", ".join(self.plan.schema.names[a] for a in m) + "}" for m in missing)
            msg = f"the marginal cannot be reconstructed: the sets {sets} are not measured, or only in part"
            msg += "; add them to the planned workload, or ask release.estimate(), which fills such sets in"
            raise OutsideMeasuredSpaceError(msg)

    def is_whole(self, attributes: tuple[int, ...]) -> bool:
        """Return whether the whole residual space of a set is measured, not only a few queries in it."""
        if not attributes and self.public_total is not None:
            return True
        if attributes in self._numbers:
            return self.estimator.residual.is_full(attributes)
        return any(self.plan.schema.sizes[a] == 1 for a in attributes)

    def _rebuild(self, numbers: tuple[int, ...]) -> Array:
        measured = self.plan.measured[numbers[0]]
        answers = combined_answers(self.plan, self.store, numbers)
        strategies = [self.plan.strategies[number] for _, number in measured.blocks]
        tensor = answers.reshape([math.prod(strategy.rows) for strategy in strategies])
        labels: list[int] = []  # the attribute's axis of every dimension reconstructed so far
        for (axes, number), strategy in zip(measured.blocks, strategies, strict=True):
            tensor = self._undone(number, tensor)
            tensor = tensor.reshape((*tensor.shape[:-1], *strategy.shape))
            labels += axes
        residual = tensor.transpose([labels.index(a) for a in range(len(labels))])
        return np.ascontiguousarray(self._centred(residual, measured.attributes))

    def _centred(self, residual: Array, attributes: tuple[int, ...]) -> Array:
        """Return C r, which sums to zero along every axis: r does already unless a centre is not uniform."""
        for axis, attribute in enumerate(attributes):
            if not self.centres[attribute].is_uniform:
                total = residual.sum(axis=axis, keepdims=True)
                residual = residual - total * along(self.centres[attribute].weights, axis, residual.ndim)
        return residual


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


def summed(group: Group, table: Array) -> Array:
    """Return the sums of the cells of a table that a group asks for, with an axis per family."""
    for _, family in group.parts():  # each answers the first axes, and its queries go to the end
        table = np.moveaxis(family.answers(table), 0, -1)
    return table


MAX_COVARIANCE = 10_000
"""Maximum number of answers."""


def covariance(estimator: Estimator, workload: Workload, other: Workload | None = None) -> Array:
    """Return the covariance matrix of the answers to a small workload, or with those to another one."""
    if other is not None:
        return _between(estimator, workload, other)
    size = workload.query_count
    if size > MAX_COVARIANCE:
        raise TooLargeError(
            f"workload: a covariance of {size:,} answers is too large; at most {MAX_COVARIANCE:,} are allowed"
        )
    images: dict[tuple[tuple[int, ...], Blocks], list[tuple[int, float, Array]]] = {}
    for start, measured, image in _starting(estimator, workload):
        noise = measured.attributes, measured.blocks
        images.setdefault(noise, []).append((start, measured.variance, image))
    result = np.zeros((size, size))
    for parts in images.values():
        rows = np.concatenate([np.arange(first, first + len(image)) for first, _, image in parts])
        stacked = np.concatenate([image for _, _, image in parts])
        result[np.ix_(rows, rows)] += parts[0][1] * (stacked @ stacked.T)
    return result


def _between(estimator: Estimator, workload: Workload, other: Workload) -> Array:
    """Return the covariance of the answers to a workload with those to another one, one column each."""
    shape = workload.query_count, other.query_count
    if shape[0] * shape[1] > MAX_COVARIANCE**2:
        raise TooLargeError(f"workload: a covariance of {shape[0]:,} with {shape[1]:,} answers is too large")
    theirs = list(_starting(estimator, other))
    only = {measured.attributes for _, measured, _ in theirs}
    result = np.zeros(shape)
    for start, noise, image in _starting(estimator, workload, only):
        for column, measured, shared in theirs:
            if (noise.attributes, noise.blocks) == (measured.attributes, measured.blocks):
                block = slice(start, start + len(image)), slice(column, column + len(shared))
                result[block] += noise.variance * (image @ shared.T)
    return result


def _starting(
    estimator: Estimator, workload: Workload, only: Collection[tuple[int, ...]] | None = None
) -> Iterator[tuple[int, Measured, Array]]:
    """Iterate over the images of all groups, each with the index of its first query."""
    start = 0
    for group in workload:
        for measured, image in estimator.images(group, only):
            yield start, measured, image
        start += group.rows
