"""The variances of all queries of a workload under a plan, as sums of products that are never written out.

A group's queries are tuples of rows, one per *cluster*: a family, or several that a strategy ties. On the
attribute set A, what a query leaves has the variance σ²_A Π_c f_c,A(row of cluster c), so that

    Var(q) = Σ_A σ²_A Π_c f_c,A(q_c).

A *column* is one f_c,A over the rows of a cluster. Equivalent groups share an *entry*; attribute sets with
the same strategies and nearly the same noise share a *class*. Expected variances under product weights are
products of expectations; the largest variance is attained on the clusters' fronts: rows that no other row
exceeds in every column.

A group that is measured whole beside others is answered from its own measurement here. Combined with the
others, its variances are no larger.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import TIE, Array, first_largest, in_order
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.formatting import one_line
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.planning.estimator.residual import Tied, tied
from querysmasher.planning.estimator.whole import Whole
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Measured
from querysmasher.schema import Schema
from querysmasher.workload.workload import Group

if TYPE_CHECKING:
    from querysmasher.planning.plan import Plan

Integers = NDArray[np.intp]

Clusters = tuple[tuple[int, ...], ...]
"""The families of every cluster of a group, by index."""

CHUNK = 2_000_000
"""Maximum number of sums computed at once."""


@dataclass(frozen=True)
class Extreme:
    """The largest standard error of a group's queries, and the rows of a query that has it."""

    group: Group
    std: float
    rows: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """The standard error relative to the target, which is one for a group without any."""
        return self.std / (1.0 if self.group.target is None else self.group.target.std)

    def query(self, schema: Schema) -> str:
        """Return the query in words."""
        each = [
            one_line(family.labels([schema[n] for n in names])[row])
            for (names, family), row in zip(self.group.parts(), self.rows, strict=True)
        ]
        return " and ".join(filter(None, each)) or "total"


def extremes(plan: Plan) -> list[Extreme]:
    """Return the largest standard error of every group, in order, and the first query that attains it."""
    groups = plan.workload.groups
    if not plan.estimator.is_split:
        plan.estimator.prepare(groups)
        return [_extreme(group, plan.estimator.variances(group)) for group in groups]
    numbers: dict[Hashable, int] = {}
    scopes = [tuple(numbers.setdefault(f.key, len(numbers)) for f in group.families) for group in groups]
    table = VarianceTable(plan, scopes)
    found: dict[int, Extreme] = {}
    for number, entry in enumerate(table.entries):
        variance, rows = table.largest(number, table.variances)
        found |= {member: Extreme(groups[member], math.sqrt(variance), rows) for member in entry.members}
    return [found[index] for index in range(len(groups))]


def _extreme(group: Group, variances: Array) -> Extreme:
    rows = np.unravel_index(first_largest(variances), variances.shape)
    return Extreme(group, math.sqrt(float(variances.max())), tuple(map(int, rows)))


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """Equivalent groups: a representative, its clusters, and its terms."""

    group: Group
    members: Sequence[int]
    """The indices of the groups."""
    clusters: Clusters
    terms: tuple[tuple[int, tuple[int, ...]], ...]
    """The class of attribute sets of every term, and the column of every cluster on them."""

    def query(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return the row of every family, given the row of every cluster."""
        found = [0] * len(self.group.families)
        for cluster, row in zip(self.clusters, rows, strict=True):
            shape = [self.group.families[place].rows for place in cluster]
            for place, index in zip(cluster, np.unravel_index(row, shape), strict=True):
                found[place] = int(index)
        return tuple(found)


class VarianceTable:
    """The variances of a workload's queries, by entries, clusters and columns."""

    def __init__(self, plan: Plan, scopes: Sequence[tuple[int, ...]]) -> None:
        """Take a plan and, for every group, the scope of each of its families.

        Groups are equivalent only if they have the same scopes.
        """
        self._plan = plan
        self._whole = {place: m for m in plan.measured for place in m.whole}
        self.estimator = (
            self._of([m for m in plan.measured if not m.whole]) if self._whole else plan.estimator
        )
        self._classify()
        self._numbers: dict[Hashable, int] = {}
        self.columns: list[Array] = []
        self.kinds: list[tuple[int, ...]] = []
        """The scopes of every column's families."""
        self.entries = [self._entry(*found) for found in self._equivalent(scopes)]
        terms, clusters = (
            max(len(own) for own in every)
            for every in zip(*((e.terms, e.clusters) for e in self.entries), strict=True)
        )
        self.classes = np.full((len(self.entries), terms), len(self.sets), dtype=np.intp)
        """The class of every term; the class after the last has no noise."""
        self._column_of = np.full((len(self.entries), clusters, terms), len(self.columns), dtype=np.intp)
        for row, entry in enumerate(self.entries):
            for place, (number, columns) in enumerate(entry.terms):
                self.classes[row, place] = number
                self._column_of[row, : len(columns), place] = columns
        self._fronts: dict[Hashable, tuple[Integers, Array]] = {}
        self._most = np.array([*(c.max() for c in self.columns), 1.0])

    def _of(self, measured: Sequence[Measured]) -> Estimator:
        """Return the estimator from some of the measurements."""
        plan = self._plan
        strategies = [solution.strategy for solution in plan.solutions]
        public = plan.budget.unit.total_is_public
        one_each = [(m,) for m in measured]
        return Estimator.of(plan.workload.schema, plan.centres, strategies, one_each, public_total=public)

    def _classify(self) -> None:
        """Number the classes of attribute sets."""
        plan = self._plan
        found: dict[Hashable, list[int]] = {}
        for index, m in enumerate(plan.measured):
            noise = round(math.log(m.variance) / limits().alike_noise)
            found.setdefault(index if m.whole else (m.blocks, noise), []).append(index)
        self.sets = list(found.values())
        """The indices of the measured sets of every class."""
        self._class_of = {id(plan.measured[i]): n for n, own in enumerate(self.sets) for i in own}
        self._class_on = {m.attributes: self._class_of[id(m)] for m in plan.measured if not m.whole}
        noises = ([1 / plan.measured[i].variance for i in own] for own in self.sets)
        self.variances = np.array([len(own) / math.fsum(own) for own in noises])
        """The noise variance of every class, at which it costs as much."""
        unit = plan.budget.unit
        changes = [unit.change(plan.measured[own[0]].attributes) for own in self.sets]
        self.spent = np.array([len(own) * change for own, change in zip(self.sets, changes, strict=True)])
        """The privacy cost of every class at σ² = 1."""

    def _equivalent(
        self, scopes: Sequence[tuple[int, ...]]
    ) -> Iterator[tuple[Group, list[int], tuple[int, ...]]]:
        """Iterate over classes of groups with the same families, centres and classes of attribute sets."""
        found: dict[Hashable, list[int]] = {}
        workload, centres = self._plan.workload, self._plan.centres
        for index, (group, own) in enumerate(zip(workload, scopes, strict=True)):
            places = workload.schema.positions(group.attributes)
            order = sorted(places)
            key = (
                own,
                tuple(f.key for f in group.families),
                tuple(map(places.index, order)),
                tuple(centres[p] for p in places),
                None if group.target is None else group.target.std,
                index if index in self._whole else tuple(self._class_on.get(s, -1) for s in subsets(order)),
            )
            found.setdefault(key, []).append(index)
        for members in found.values():
            yield workload.groups[members[0]], members, scopes[members[0]]

    def _entry(self, group: Group, members: list[int], scopes: tuple[int, ...]) -> Entry:
        if members[0] in self._whole:
            every = tuple(range(len(group.families)))
            squares = self._alone(self._whole[members[0]], group)
            alone = tuple(
                (number, (self._column((members[0], number), own, scopes),))
                for number, own in squares.items()
            )
            return Entry(group, members, (every,), alone)
        listed = [(m, list(tied(m, shares))) for m, shares in self.estimator.residual.shares(group)]
        clusters: Clusters = ()  # if nothing is measured of the queries, which are zero or public
        if listed:
            clusters = _joined(len(group.families), [one.indices for _, own in listed for one in own])
        terms = tuple(
            (self._class_of[id(m)], tuple(self._joint(own, cluster, group, scopes) for cluster in clusters))
            for m, own in listed
        )
        return Entry(group, members, clusters, terms)

    def _alone(self, measured: Measured, group: Group) -> Mapping[int, Array]:
        """Return the variances at σ² = 1 from one whole measurement, and the total if queries are centred."""
        estimator = self._of([measured])
        if estimator.is_single and len(self._plan.measured) == 1:
            return {0: self._plan.estimator.variances(group).ravel() / measured.variance}
        try:
            estimator.check(group)
        except OutsideMeasuredSpaceError:
            totals = self._of([m for m in self._plan.measured if not m.attributes])  # or it is public
            estimator = Estimator(totals.residual, [Whole.of((measured,), totals.strategies)])
        return {self._class_of[id(m)]: (image**2).sum(axis=1) for m, image in estimator.images(group)}

    def _joint(
        self, components: list[Tied], cluster: tuple[int, ...], group: Group, scopes: tuple[int, ...]
    ) -> int:
        """Return the column of a cluster: the product of the components that lie inside it."""
        shape = tuple(group.families[place].rows for place in cluster)
        if math.prod(shape) > limits().worst_queries:
            msg = f"queries on ({', '.join(group.attributes)}): {math.prod(shape):,} are too many to search"
            raise TooLargeError(msg)
        inside = [one for one in components if one.indices[0] in cluster]
        kind = tuple(scopes[place] for place in cluster)
        key = (kind, *((tuple(map(cluster.index, one.indices)), one.key) for one in inside))
        if key not in self._numbers:
            values = np.ones(shape)
            for one in inside:
                own = self.estimator.residual.tied_variances(one, group)
                order = sorted(range(len(one.indices)), key=one.indices.__getitem__)
                spread = [n if place in one.indices else 1 for n, place in zip(shape, cluster, strict=True)]
                values = values * own.transpose(order).reshape(spread)
            self._column(key, values.ravel(), kind)
        return self._numbers[key]

    def _column(self, key: Hashable, values: Array, kind: tuple[int, ...]) -> int:
        self._numbers[key] = len(self.columns)
        self.columns.append(np.maximum(values, 0.0))
        self.kinds.append(kind)
        return self._numbers[key]

    # --- expected variances ---

    def expected(self, by_column: Array, variances: Array) -> Array:
        """Return the expected variance of every entry, given the expectation of every column."""
        return np.asarray((self._noise(variances) * self.expected_terms(by_column)).sum(axis=1))

    def coefficients(self, by_column: Array) -> Array:
        """Return the expected variance of every entry at σ² = 1 on one class: entries × classes."""
        result = np.zeros((len(self.entries), len(self.sets) + 1))
        np.add.at(
            result, (np.arange(len(self.entries))[:, None], self.classes), self.expected_terms(by_column)
        )
        return result[:, :-1]

    def slopes(self, by_column: Array, weights: Array, variances: Array) -> Array:
        """Return the derivative of Σ weight × expected variance by the expectation of every column."""
        values = np.append(by_column, 1.0)[self._column_of]
        scale = weights[:, None] * self._noise(variances)
        result = np.zeros(len(self.columns) + 1)
        for place in range(values.shape[1]):
            others = np.delete(values, place, axis=1).prod(axis=1)
            np.add.at(result, self._column_of[:, place], scale * others)
        return result[:-1]

    def _noise(self, variances: Array) -> Array:
        return np.asarray(np.append(variances, 0.0)[self.classes])

    def expected_terms(self, by_column: Array) -> Array:
        """Return the expectation of every term of every entry."""
        return np.asarray(np.append(by_column, 1.0)[self._column_of].prod(axis=1))

    # --- largest variances ---

    def bounds(self, variances: Array) -> Array:
        """Return an upper bound on the largest variance of every entry."""
        return np.asarray((self._noise(variances) * self.expected_terms(self._most[:-1])).sum(axis=1))

    def growth(self, factors: Array) -> Array:
        """Return the largest factor by which variances of every entry grow if classes grow by `factors`."""
        return np.asarray(np.append(factors, 0.0)[self.classes].max(axis=1))

    def largest(self, number: int, variances: Array) -> tuple[float, tuple[int, ...]]:
        """Return the largest variance of an entry, and the row of every family of the first such query."""
        fronts = self._fronts_of(number, TIE)
        value, chosen = peak([matrix for _, matrix in fronts], self._noise_of(number, variances))
        rows = [int(index[i]) for (index, _), i in zip(fronts, chosen, strict=True)]
        return value, self.entries[number].query(rows)

    def near_largest(
        self, number: int, variances: Array, least: float, most: int, slack: float
    ) -> tuple[float, Array]:
        """Return the largest variance, to a fraction `slack`, and the terms of queries of at least `least`.

        These are, for every row of a cluster, the largest query with it, up to `most` in all. The terms are
        those of the entry, in order; the product with the noise of their classes is the variance.
        """
        noise = self._noise_of(number, variances)
        fronts = [matrix for _, matrix in self._fronts_of(number, slack)]
        values, chosen = peaks(fronts, noise)
        near = np.flatnonzero(values >= max(least, float(values.max()) / 2))
        if len(near) > most:
            near = near[np.argpartition(-values[near], most - 1)[:most]]
        terms = np.ones((len(near), len(noise)))
        for matrix, index in zip(fronts, chosen, strict=True):
            terms = terms * matrix[index[near]]
        return float(values.max()), terms

    def _noise_of(self, number: int, variances: Array) -> Array:
        terms = len(self.entries[number].terms)
        return np.asarray(np.append(variances, 0.0)[self.classes[number, :terms]])

    def _fronts_of(self, number: int, slack: float) -> list[tuple[Integers, Array]]:
        """Return the front of every cluster of an entry: indices of rows, and these rows × terms."""
        entry = self.entries[number]
        return [self._front(entry, place, slack) for place in range(len(entry.clusters))]

    def _front(self, entry: Entry, place: int, slack: float) -> tuple[Integers, Array]:
        columns = [own[place] for _, own in entry.terms]
        distinct, alone = tuple(sorted(set(columns))), len(entry.clusters) == 1
        key = distinct, alone or slack
        if key not in self._fronts:
            table = np.stack([self.columns[c] for c in distinct], axis=1)
            index = np.arange(len(table)) if alone else front(table, slack)
            self._fronts[key] = index, table[index]
        index, table = self._fronts[key]
        return index, table[:, [distinct.index(c) for c in columns]]


def _joined(count: int, ties: list[tuple[int, ...]]) -> Clusters:
    """Return the clusters of `count` families, given the families that each component ties."""
    sets = [{place} for place in range(count)]
    for places in ties:
        touched = [s for s in sets if not s.isdisjoint(places)]
        if len(touched) > 1:
            sets = [s for s in sets if s.isdisjoint(places)] + [set().union(*touched)]
    return tuple(tuple(sorted(s)) for s in sorted(sets, key=min))


def front(table: Array, slack: float = TIE) -> Integers:
    """Return indices of rows of which one attains the maximum of every sum with nonnegative coefficients.

    The table has nonnegative entries. A row is left out if another is larger, or smaller by less than the
    fraction `slack`, in every column. Of equal rows the first is kept. Indices increase.
    """
    left = in_order(-table.sum(axis=1))
    scale = table.max(axis=0)
    entries = table[left] / np.where(scale > 0, scale, 1.0)
    found: list[np.intp] = []
    while left.size:
        found.append(left[0])
        beyond = (entries > entries[0] * (1 + slack) + TIE**2).any(axis=1)
        left, entries = left[beyond], entries[beyond]
    return np.sort(np.array(found))


def peaks(tables: list[Array], coefficients: Array) -> tuple[Array, list[Integers]]:
    """Return the largest sum Σ_t c_t Π_i table_i[row_i, t] with every row of every table, and all its rows.

    The result has one value per row of a table, with the index of a row in each table. The largest of all is
    among them.
    """
    sizes = [len(table) for table in tables]
    long = [axis for axis, size in enumerate(sizes) if size > 1]
    if len(long) <= 1:
        products = coefficients
        for table in tables:
            products = products * table
        values = products.sum(axis=-1).reshape(-1)
        every, none = np.arange(len(values)), np.zeros(len(values), dtype=np.intp)
        return values, [every if axis in long else none for axis in range(len(sizes))]
    best = {axis: np.full(sizes[axis], -1.0) for axis in long}
    where = {axis: np.zeros(sizes[axis], dtype=np.intp) for axis in long}
    for start, tensor in _sums(tables, coefficients):
        for axis in long:
            found, at = _largest_along(tensor, axis)
            part = slice(start, start + len(found)) if axis == 0 else slice(None)
            larger = found > best[axis][part]
            best[axis][part] = np.where(larger, found, best[axis][part])
            where[axis][part] = np.where(larger, at + start * math.prod(sizes[1:]), where[axis][part])
    places = np.concatenate(list(where.values()))
    return np.concatenate(list(best.values())), list(np.unravel_index(places, sizes))


def peak(tables: list[Array], coefficients: Array) -> tuple[float, tuple[int, ...]]:
    """Return the largest sum Σ_t c_t Π_i table_i[row_i, t], and the index of its row in each table.

    Of sums equal within the fraction `TIE`, the first counts.
    """
    if not tables:
        return float(coefficients.sum()), ()
    sizes = [len(table) for table in tables]
    best, reached, place = -1.0, -1.0, 0
    for start, values in _sums(tables, coefficients):
        best = max(best, float(values.max()))
        if reached < best * (1 - TIE):
            near = int((values >= best * (1 - TIE)).argmax())
            reached, place = float(values.flat[near]), start * math.prod(sizes[1:]) + near
    return best, tuple(map(int, np.unravel_index(place, sizes)))


def _sums(tables: list[Array], coefficients: Array) -> Iterator[tuple[int, Array]]:
    """Iterate over the sums of all choices of rows, some rows of the first table at a time."""
    rest = np.ones((1, len(coefficients)))
    for table in tables[1:]:
        rest = (rest[:, None] * table).reshape(-1, len(coefficients))
    first = tables[0] * coefficients
    step = max(1, CHUNK // len(rest))
    for start in range(0, len(first), step):
        yield start, (first[start : start + step] @ rest.T).reshape(-1, *map(len, tables[1:]))


def _largest_along(tensor: Array, axis: int) -> tuple[Array, Integers]:
    """Return the largest entry for every index of an axis, and its index in the flat tensor."""
    moved = np.moveaxis(tensor, axis, 0)
    at = moved.reshape(len(moved), -1).argmax(axis=1)
    others = np.unravel_index(at, moved.shape[1:])
    index = (*others[:axis], np.arange(len(moved)), *others[axis:])
    return tensor[index], np.ravel_multi_index(index, tensor.shape)
