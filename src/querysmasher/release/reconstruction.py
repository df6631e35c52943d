"""Noisy answers of a release, the marginals reconstructed from them, and the covariance of answers.

A file store appends arrays to a temporary file as they are measured and reads one back at a time, so a
release may be far larger than memory. The file has no name and is deleted with the store or the process.

Several phases may measure an attribute set by the same strategies, each time with independent noise.
Measurements z_i of the same rows, with noise variances v_i, are combined into Σ_i w_i z_i with weights w_i in
proportion to 1/v_i: unbiased, and of the least variance of all unbiased combinations.

With z the noisy answers of set A, the residual r_A = B†z estimates the part of the table on exactly A. The
estimator corrects residuals by the answers to queries that were measured whole, and adds them up to tables.
All marginals come from the same residuals, so they are unbiased and agree wherever they overlap.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers, less_means
from querysmasher.errors import FileError, OutsideMeasuredSpaceError, TooLargeError
from querysmasher.files import Lazy
from querysmasher.planning.constrained import ConstrainedEstimator
from querysmasher.planning.estimator.estimator import Estimator, subsets, within_groups
from querysmasher.planning.estimator.whole import summed
from querysmasher.planning.lattice import Integers
from querysmasher.planning.solution import Blocks
from querysmasher.planning.tying import TiedEstimator
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan
from querysmasher.workload.families import Identity
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

MEMORY_BYTES = 2**29
"""Maximum size of a release that is kept in memory."""


class MemoryStore(dict[int, Numbers]):
    """Answers in memory."""

    def put(self, number: int, answers: Numbers) -> None:
        """Keep the answers of one attribute set."""
        self[number] = answers.ravel()


class FileStore:
    """Answers in a temporary file, which is deleted with the store."""

    def __init__(self) -> None:
        """Open an empty file, without a buffer that could fail to be written when it is closed."""
        self._stream = tempfile.TemporaryFile(prefix="querysmasher-", buffering=0)  # noqa: SIM115
        self._parts: dict[int, tuple[int, int, np.dtype[Any]]] = {}
        weakref.finalize(self, self._stream.close)

    def put(self, number: int, answers: Numbers) -> None:
        """Append the answers of one attribute set."""
        start = self._stream.seek(0, os.SEEK_END)
        data = answers.tobytes()
        if self._stream.write(data) != len(data):  # a full disk takes a part, and refuses the next
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._parts[number] = start, answers.size, answers.dtype

    def __getitem__(self, number: int) -> Numbers:
        """Read the answers of one attribute set."""
        start, size, dtype = self._parts[number]
        self._stream.seek(start)
        answers = np.fromfile(self._stream, dtype, size)
        if answers.size != size:
            raise OSError("the temporary file of the release is truncated")
        return answers

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers kept."""
        return iter(self._parts)


@dataclass(frozen=True, eq=False)
class LoadedStore:
    """Answers in the file of a saved release, of the expected sizes, read one set at a time."""

    _arrays: Sequence[Lazy]
    _sizes: Sequence[int]
    _dtype: np.dtype[Any]

    def __getitem__(self, number: int) -> Numbers:
        """Return the answers of one attribute set."""
        answers = self._arrays[number].fetch()
        fits = answers.dtype == self._dtype and answers.shape == (self._sizes[number],)
        if not fits or not np.isfinite(answers).all():
            raise FileError("the file of the release does not contain the answers it declares")
        return answers


Store = MemoryStore | FileStore | LoadedStore
"""Noisy answers by the index of their attribute set, as one axis each."""


def new_store(numbers: int) -> MemoryStore | FileStore:
    """Return a store for the given number of noisy values; refuse a disk without space for them."""
    size = numbers * 8
    if size <= MEMORY_BYTES:
        return MemoryStore()
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < size:
        raise FileError(
            f"the measurements take {size / 1e6:,.1f} MB, and the temporary folder {folder!r} has "
            f"{free / 1e6:,.1f} MB left; nothing was measured. Set TMPDIR to another folder"
        )
    return FileStore()


def repeats(plan: IntegerPlan) -> list[tuple[int, ...]]:
    """Return the indexes of the measurements of each attribute set by the same strategies, in order."""
    numbers: dict[object, list[int]] = {}
    for number, measured in enumerate(plan.measured):
        numbers.setdefault((measured.attributes, measured.blocks), []).append(number)
    return [tuple(repeated) for repeated in numbers.values()]


def weights(plan: IntegerPlan, numbers: tuple[int, ...]) -> list[float]:
    """Return the weights of repeated measurements, which sum to one."""
    precisions = [1 / plan.measured[number].variance for number in numbers]
    total = sum(precisions, Fraction(0))
    return [float(precision / total) for precision in precisions]


def combined_noise(plan: IntegerPlan, noise: Distribution, numbers: tuple[int, ...]) -> tuple[float, float]:
    """Return the noise of the combination, as `IntegerPlan.noise` does for one measurement."""
    weighted = zip(weights(plan, numbers), numbers, strict=True)
    parts = [(weight**2, plan.noise(plan.measured[number], noise)) for weight, number in weighted]
    first, second = (sum(square * variances[k] for square, variances in parts) for k in (0, 1))
    return first, second


CLOSE = 2.0**-36
"""Rounding errors of an answer that has none, relative to the number of records, are smaller."""

KEPT = 30_000_000
"""Maximum number of values of residuals cached for reuse."""


@dataclass(frozen=True, eq=False)
class PublicCounts:
    """The tables of counts that are published as they are, by attribute set, in the order of their axes.

    Of an attribute in `groups`, they count groups of values: `groups` has the group of every value.
    """

    tables: Mapping[tuple[int, ...], Integers]
    groups: Mapping[int, Integers] = field(default_factory=dict)

    def spread(self, attributes: tuple[int, ...], grouped: int) -> Array:
        """Return a table in which the public counts of groups are spread evenly over their values."""
        table = PublicCounts(self.tables).on(attributes)
        assert table is not None  # noqa: S101 - the caller asks only where groups are counted
        groups, axis = self.groups[grouped], attributes.index(grouped)
        sizes = np.bincount(groups)[groups].reshape(-1, *(1,) * (len(attributes) - 1 - axis))
        return np.asarray(table.take(groups, axis=axis) / sizes)

    def on(self, attributes: tuple[int, ...]) -> Array | None:
        """Return the counts on attributes, in any order, or None if they are not public."""
        if not self.groups.keys().isdisjoint(attributes):
            return None
        for known, table in self.tables.items():
            if set(attributes) <= set(known):
                others = tuple(axis for axis, a in enumerate(known) if a not in attributes)
                left = [a for a in known if a in attributes]
                order = [left.index(a) for a in attributes]
                return np.asarray(table.sum(axis=others)).transpose(order).astype(float)
        return None


@dataclass(eq=False)
class Reconstruction:
    """Reconstructs residuals and marginals on demand; caches recently used residuals."""

    plan: IntegerPlan
    store: Store
    public: PublicCounts
    estimator: Estimator
    _kept: OrderedDict[tuple[int, ...], Array] = field(default_factory=OrderedDict)
    _kept_values: int = 0

    @cached_property
    def _numbers(self) -> Mapping[tuple[int, ...], tuple[int, ...]]:
        """The indexes of the measurements of each attribute set, except those of whole queries."""
        firsts = {numbers: self.plan.measured[numbers[0]] for numbers in repeats(self.plan)}
        return {m.attributes: numbers for numbers, m in firsts.items() if not self._is_whole_queries(m)}

    def residual(self, attributes: tuple[int, ...]) -> Array | None:
        """Return the residual of a set (increasing indexes), or None if it is not measured."""
        if (exact := self.public.on(attributes)) is not None:
            return self.estimator.centred(exact, attributes)
        if attributes in self._kept:
            self._kept.move_to_end(attributes)
            return self._kept[attributes]
        numbers = self._numbers.get(attributes)
        grouped = self.estimator.known.partly(attributes)
        if grouped is not None:
            residual = self._within(attributes, grouped, numbers)
        elif numbers is not None:
            residual = self.estimator.centred(self._estimated(numbers), attributes)
        else:
            return None
        self._kept[attributes] = residual = np.ascontiguousarray(residual)
        self._kept_values += residual.size
        while len(self._kept) > 1 and self._kept_values > KEPT:
            self._kept_values -= self._kept.popitem(last=False)[1].size
        return residual

    def _within(self, attributes: tuple[int, ...], grouped: int, numbers: tuple[int, ...] | None) -> Array:
        """Return the residual of a set on which groups of the values of an attribute have public counts p.

        With P the means over groups and D = 1 - P, it is the public part P·C·p and the best estimate of the
        rest, C·D(DBᵀBD)†DBᵀ(z - B·P·C·p).
        """
        axis, groups = attributes.index(grouped), self.public.groups[grouped]
        spread = self.estimator.centred(self.public.spread(attributes, grouped), attributes)
        known = spread - less_means(spread, axis, groups)
        if numbers is None:
            return known
        measured = self.plan.measured[numbers[0]]
        left = self.estimator.centred(self._estimated(numbers), attributes) - known
        ((axes, number),) = (block for block in measured.blocks if axis in block[0])
        strategy = self.estimator.strategies[number]
        moved = np.moveaxis(left, axes, range(-len(axes), 0))
        rows = strategy.written_out()
        images = moved.reshape(-1, rows.shape[1]) @ rows.T @ rows
        inside = within_groups(strategy, axes.index(axis), groups).covary(images.reshape(-1, *strategy.shape))
        inside = np.moveaxis(inside.reshape(moved.shape), range(-len(axes), 0), axes)
        return known + self.estimator.centred(inside, attributes)

    def marginal(self, attributes: tuple[int, ...], *, complete: bool = True) -> Array:
        """Return the marginal on attributes in any order.

        Without `complete`, unmeasured parts count as zero, which is right for queries without such parts.
        """
        if complete:
            self._check_complete(attributes)
        if (exact := self.public.on(attributes)) is not None:
            return exact
        if not self.estimator.is_single:
            return self.estimator.table(attributes, self.residual, self._whole_answers)
        (measured,) = self.plan.measured  # its table is right for what follows from its queries
        if not set(attributes) <= set(measured.attributes):
            names = ", ".join(self.plan.schema.names[a] for a in attributes)
            raise OutsideMeasuredSpaceError(
                f"the marginal on ({names}) cannot be reconstructed: the release measures other queries"
            )
        others = tuple(axis for axis, a in enumerate(measured.attributes) if a not in attributes)
        ordered = [a for a in measured.attributes if a in attributes]
        return self._table.sum(axis=others).transpose([ordered.index(a) for a in attributes])

    def adjusted(self, group: Group, answers: Array) -> Array:  # noqa: ARG002 - nothing else is known
        """Return answers that fit what is known beside the measurements, with an axis per family."""
        return answers

    def table(self, group: Group) -> tuple[Group, Array]:
        """Return a table from which a group follows, and the group as one of this table.

        It is the marginal or, where that is too large, the answers to the rows of some families, which are
        then asked as they are: rows are applied before the cells that they add up are written out.
        """
        attributes = self.plan.schema.positions(group.attributes)
        cells = math.prod(self.plan.schema.sizes[a] for a in attributes)
        if cells <= KEPT or not self.estimator.is_split:
            return group, self.marginal(attributes, complete=False)
        rows: dict[int, Array] = {}
        families: list[Family] = []
        for names, family in group.parts():
            (first, *more) = self.plan.schema.positions(names)
            if more or family.rows >= self.plan.schema.sizes[first]:
                families.append(family)
            else:
                rows[first] = family.matrix()
                families.append(Identity((family.rows,)))
        return Group(group.attributes, tuple(families)), self.summed(attributes, rows)

    def summed(self, attributes: tuple[int, ...], rows: Mapping[int, Array]) -> Array:
        """Return the marginal on attributes, with the answers to rows in place of the cells of some.

        Rows are applied before large tables are written out.
        """
        cells = math.prod(self.plan.schema.sizes[a] for a in attributes)
        if cells > KEPT and self.estimator.is_split:
            return self.estimator.lifted(partial(self._answered, rows), attributes, rows=rows)
        return applied(self.marginal(attributes, complete=False), attributes, rows)

    def _answered(self, rows: Mapping[int, Array], attributes: tuple[int, ...]) -> Array | None:
        """Return a residual with the answers to rows in place of the cells of some attributes."""
        numbers, centres = self._numbers.get(attributes), self.estimator.centres
        partly = self.estimator.known.partly(attributes) is not None
        if not rows or numbers is None or partly or self.public.on(attributes) is not None:
            residual = self.residual(attributes)
            return residual if residual is None else applied(residual, attributes, rows)
        asked = {axis: (rows[a], centres[a].weights) for axis, a in enumerate(attributes) if a in rows}
        residual = self._estimated(numbers, {axis: q - (q @ w)[:, None] for axis, (q, w) in asked.items()})
        for axis, a in enumerate(attributes):
            if axis not in asked:
                weights = centres[a].weights.reshape(-1, *(1,) * (residual.ndim - 1 - axis))
                residual = residual - residual.sum(axis=axis, keepdims=True) * weights
        return residual

    def _is_whole_queries(self, measured: IntegerMeasured) -> bool:
        """Return whether a measurement is one of whole queries, which are not split."""
        return any(self.estimator.strategies[number].whole for _, number in measured.blocks)

    def _whole_answers(self) -> Array:
        """Return the answers to all whole queries."""
        whole = [i for i, m in enumerate(self.plan.measured) if self._is_whole_queries(m)]
        return np.concatenate([self.store[number].astype(float) for number in whole])

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
        if attributes in self.estimator.known:
            return True
        if attributes in self._numbers:
            return self.estimator.is_full(attributes)
        return any(self.plan.schema.sizes[a] == 1 for a in attributes)

    def _estimated(self, numbers: tuple[int, ...], rows: Mapping[int, Array] = MappingProxyType({})) -> Array:
        """Return the cells that fit the answers of repeated measurements, with an axis per attribute.

        An axis of `rows` has the answers to these rows in place of its cells.
        """
        measured = self.plan.measured[numbers[0]]
        weighted = zip(weights(self.plan, numbers), numbers, strict=True)
        answers = np.asarray(sum(weight * self.store[number] for weight, number in weighted))
        strategies = [self.plan.strategies[number] for _, number in measured.blocks]
        tensor = answers.reshape([math.prod(strategy.rows) for strategy in strategies])
        labels: list[int] = []  # the attribute's axis of every dimension reconstructed so far
        for (axes, number), strategy in zip(measured.blocks, strategies, strict=True):
            undone, height = self.estimator.strategies[number].undone, tensor.shape[0]
            if len(axes) == 1 and axes[0] in rows and height * math.prod(strategy.shape) <= KEPT:
                tensor = np.tensordot(tensor, rows[axes[0]] @ undone(strategy, np.eye(height)).T, (0, 1))
            else:
                tensor = undone(strategy, tensor)
                tensor = tensor.reshape((*tensor.shape[:-1], *strategy.shape))
                for axis, a in enumerate(axes, start=tensor.ndim - len(axes)):
                    if a in rows:
                        tensor = np.moveaxis(np.tensordot(tensor, rows[a], (axis, 1)), -1, axis)
            labels += axes
        return tensor.transpose([labels.index(a) for a in range(len(labels))])


class TiedReconstruction(Reconstruction):
    """Reconstructs marginals on attributes of which some are tied together in what was measured."""

    def __init__(
        self,
        plan: IntegerPlan,
        store: Store,
        public: PublicCounts,
        estimator: TiedEstimator,
        tied: PublicCounts,
    ) -> None:
        """Take what was measured, and the estimator that knows what is tied.

        Public counts are given by attributes of the schema, and by those of which some are `tied` together.
        """
        super().__init__(plan, store, public, estimator)
        self._tying = estimator.tying
        self._inner = Reconstruction(plan, store, tied, estimator.inner)

    def table(self, group: Group) -> tuple[Group, Array]:
        """Return the marginal of a group's attributes, and the group."""
        return group, self.marginal(self._tying.schema.positions(group.attributes), complete=False)

    def marginal(self, attributes: tuple[int, ...], *, complete: bool = True) -> Array:
        """Return the marginal on attributes in any order; impossible cells are 0.

        It may be complete where the marginal of the combinations is not.
        """
        schema = self._tying.schema
        names = tuple(schema.names[a] for a in attributes)
        if complete:
            self.estimator.variances(Group(names, tuple(Identity((schema.sizes[a],)) for a in attributes)))
        if (exact := self.public.on(attributes)) is not None:
            return exact
        return self._tying.table(
            attributes, self._inner.summed(self._tying.over(names), self._tying.sums(names))
        )


class ConstrainedReconstruction(Reconstruction):
    """Reconstructs marginals that fit what is known to be 0."""

    def __init__(self, free: Reconstruction, estimator: ConstrainedEstimator) -> None:
        """Take the reconstruction that does not know it."""
        super().__init__(free.plan, free.store, free.public, estimator)
        self._free, self._constrained = free, estimator

    @cached_property
    def _zeros(self) -> Array:
        """The estimates of what is 0."""
        schema, groups = self._constrained.schema, self._constrained.zeros
        tables = (self._free.marginal(schema.positions(g.attributes), complete=False) for g in groups)
        each = [summed(g, table) for g, table in zip(groups, tables, strict=True)]
        return np.concatenate([np.zeros(0), *each])

    def table(self, group: Group) -> tuple[Group, Array]:
        """Return a table from which a group follows, yet to be adjusted, and the group on it."""
        return self._free.table(group)

    def marginal(self, attributes: tuple[int, ...], *, complete: bool = True) -> Array:
        """Return the marginal on attributes in any order; without `complete`, it is yet to be adjusted."""
        table = self._free.marginal(attributes, complete=complete)
        schema = self._constrained.schema
        names = tuple(schema.names[a] for a in attributes)
        cells = Group(names, tuple(Identity((n,)) for n in table.shape))
        return self.adjusted(cells, table) if complete else table

    def adjusted(self, group: Group, answers: Array) -> Array:
        return self._constrained.adjusted(group, answers, self._zeros)


def applied(table: Array, attributes: Sequence[int], rows: Mapping[int, Array]) -> Array:
    """Return a table on attributes with the answers to rows in place of the cells of some."""
    for axis, a in enumerate(attributes):
        if a in rows:
            table = np.moveaxis(np.tensordot(table, rows[a], (axis, 1)), -1, axis)
    return table


def answered(group: Group, of_table: Group, table: Array, std: Array, known: Reconstruction) -> Array:
    """Return the answers to a group from a table, with an axis per family; `of_table` is the group on it.

    A query without error follows from what is public, or counts impossible cells only. Cells have rounding
    errors, and its answer has none: a query that counts every record equally often is that multiple of the
    number of records, and one of whole numbers, as nearly all are, is a whole number.
    """
    answers, total = known.adjusted(group, summed(of_table, table)), known.public.on(())
    if std.all() or total is None:
        return np.where(std > 0, answers, 0.0)
    records, near, often = float(total), np.rint(answers), summed(of_table, np.ones(table.shape)) / table.size
    is_multiple = np.abs(answers - often * records) <= CLOSE * records * np.abs(often)
    is_whole = np.abs(answers - near) <= CLOSE * records
    return np.where(
        std > 0, answers, np.where(is_multiple, often * records, np.where(is_whole, near, answers))
    )


MAX_COVARIANCE = 10_000
"""Maximum number of answers of a covariance matrix."""


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
            (variance, rows, first), (_, columns, second) = left[noise], right[noise]
            result[np.ix_(rows, columns)] += variance * (first @ second.T)
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
