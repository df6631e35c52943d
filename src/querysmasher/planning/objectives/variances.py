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
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, TIE, Array, first_largest, in_order
from querysmasher.errors import TooLargeError
from querysmasher.formatting import one_line
from querysmasher.planning.estimator.estimator import Estimator, Tied, subsets, tied
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Measured
from querysmasher.planning.split import connected
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group

if TYPE_CHECKING:
    from querysmasher.planning.plan import Plan

Integers = NDArray[np.intp]
Terms = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Extreme:
    """The largest standard error of a group's queries, and the rows of a query that has it."""

    group: Group
    std: float
    rows: tuple[int, ...]
    rms: float | None = None
    """The root mean square of the standard errors of the group's queries, where it was found as well."""

    @property
    def ratio(self) -> float:
        """The standard error relative to the target, which is one for a group without any."""
        return self.std / (1.0 if self.group.target is None else self.group.target.std)

    def query(self, schema: Schema) -> str:
        """Return the query in words."""
        each = [
            one_line(family.label_of([schema[n] for n in names], row))
            for (names, family), row in zip(self.group.parts(), self.rows, strict=True)
        ]
        return " and ".join(filter(None, each)) or "total"


def extremes(plan: Plan) -> list[Extreme]:
    """Return the largest standard error of every group, in order, and the first query that attains it."""
    groups = plan.workload.groups
    if plan.estimator.is_split:
        table = VarianceTable(plan, [(0,) * len(group.families) for group in groups], TIE)
        by_entry = [table.largest(number, table.variances) for number in range(len(table.entries))]
        largest = [by_entry[number] for number in table.entry_of]
        means = table.coefficients(np.array([column.mean() for column in table.columns])) @ table.variances
        mean = means[table.entry_of].tolist()
    else:
        largest, mean = [], []
        for variances in map(plan.estimator.variances, groups):
            query = np.unravel_index(first_largest(variances), variances.shape)
            largest.append((float(variances.max()), tuple(map(int, query))))
            mean.append(float(variances.mean()))
    each = zip(groups, largest, mean, strict=True)
    return [Extreme(group, math.sqrt(v), rows, math.sqrt(m)) for group, (v, rows), m in each]


@dataclass(frozen=True, eq=False, slots=True)
class GroupTerms:
    """Equivalent groups: their clusters, and their terms."""

    members: Sequence[int]
    """The indexes of the groups."""
    clusters: tuple[tuple[int, ...], ...]
    """The families of every cluster, by index."""
    terms: Terms
    """The class of attribute sets of every term, and the column of every cluster on them."""


class VarianceTable:
    """The variances of a workload's queries, by entries, clusters and columns."""

    def __init__(self, plan: Plan, scopes: Sequence[tuple[int, ...]], nearly: float | None = None) -> None:
        """Take a plan and, for every group, the scope of each of its families.

        Groups are equivalent only if they have the same scopes. Noise variances of a class differ by at most
        the fraction `nearly`; unless given, by the plan's tolerance.
        """
        self._plan, self._scopes, nearly = plan, scopes, plan.tolerance if nearly is None else nearly
        self.columns: list[Array] = []
        self._fronts: dict[Hashable, tuple[Integers, Array]] = {}
        self._whole = {index: m for m in plan.measured for index in m.whole}
        split = [m for m in plan.measured if not m.whole]
        self.estimator = self._of(split) if self._whole else plan.estimator
        classes: dict[Hashable, list[int]] = {}
        for index, m in enumerate(plan.measured):
            noise = round(math.log(m.variance) / nearly)
            classes.setdefault(index if m.whole else (m.blocks, noise), []).append(index)
        self.sets = list(classes.values())
        """The indexes of the measured sets of every class."""
        self._class_of = {id(plan.measured[i]): n for n, indexes in enumerate(self.sets) for i in indexes}
        self._class_on = {m.attributes: self._class_of[id(m)] for m in split}
        self._solutions_on = {
            m.attributes: {m.attributes[axes[0]]: number for axes, number in m.blocks}
            for m in split
            if self.estimator.lines.isdisjoint(m.attributes) and len(m.blocks) == len(m.attributes)
        }
        """The number of the solution on every attribute, for sets on which no strategy ties attributes."""
        self._columns_of: defaultdict[Hashable, dict[int | None, int]] = defaultdict(dict)
        """The column of a family alone, by the solution on its attribute; -1 where nothing is left of it."""
        precisions = np.array([1 / m.variance for m in plan.measured])
        self.variances = np.array([len(indexes) / precisions[indexes].sum() for indexes in self.sets])
        """One noise variance for every class, at which its sets cost as much together as planned."""
        self.spent = np.array([sum(plan.measured[i].price for i in indexes) for indexes in self.sets])
        """The privacy cost of every class at σ² = 1."""
        self._numbers: dict[Hashable, int] = {}
        self.kinds: list[tuple[int, ...]] = []
        """The scopes of every column's families."""
        self.near: dict[tuple[int, ...], None] = {}
        """Queries near the largest: each is an entry, and a row of every cluster."""
        self.entries = [self._entry(members) for members in self._equivalent()]
        terms, clusters = (
            max(map(len, every)) for every in zip(*((e.terms, e.clusters) for e in self.entries), strict=True)
        )
        self.classes = np.full((len(self.entries), terms), len(self.sets), dtype=np.intp)
        """The class of every term; the class after the last has no noise."""
        self._column_of = np.full((len(self.entries), clusters, terms), len(self.columns), dtype=np.intp)
        self.entry_of = np.empty(len(scopes), dtype=np.intp)
        """The entry of every group."""
        for row, entry in enumerate(self.entries):
            self.entry_of[list(entry.members)] = row
            for term, (number, columns) in enumerate(entry.terms):
                self.classes[row, term] = number
                self._column_of[row, : len(columns), term] = columns

    def _of(self, measured: Sequence[Measured]) -> Estimator:
        """Return the estimator from some of the measurements."""
        return replace(self._plan, measured=tuple(measured)).estimator

    def _equivalent(self) -> Iterable[list[int]]:
        """Return the indexes of groups with the same families, centres and classes of attribute sets."""
        alike: dict[Hashable, list[int]] = {}
        workload = self._plan.workload
        families = {id(family): family for group in workload for family in group.families}
        family_of = dict(zip(families, _numbered(family.key for family in families.values()), strict=True))
        centre_of = _numbered(self._plan.centres)
        for index, (group, scope) in enumerate(zip(workload, self._scopes, strict=True)):
            attributes = workload.schema.positions(group.attributes)
            order = sorted(attributes)
            key = (
                scope,
                tuple(family_of[id(family)] for family in group.families),
                tuple(map(attributes.index, order)),
                tuple(centre_of[a] for a in attributes),
                None if group.target is None else group.target.std,
                index if index in self._whole else tuple(self._class_on.get(s, -1) for s in subsets(order)),
            )
            alike.setdefault(key, []).append(index)
        return alike.values()

    def _terms(self, group: Group, scopes: tuple[int, ...]) -> Terms | None:
        """Return the terms of a group if each family is on one attribute, and tied to no other; else None."""
        attributes = self._plan.workload.schema.positions(group.attributes)
        if self.estimator.known.groups or any(len(family.shape) != 1 for family in group.families):
            return None
        each = zip(attributes, map(id, group.families), scopes, strict=True)
        columns_of = [self._columns_of[key] for key in each]
        terms = []
        for kept in subsets(sorted(attributes)):
            solutions = self._solutions_on.get(kept)
            if solutions is None:
                if kept in self.estimator.known:
                    continue
                return None
            columns = []
            for index, (attribute, known) in enumerate(zip(attributes, columns_of, strict=True)):
                solution = solutions.get(attribute)
                if solution not in known:
                    family, scope = group.families[index], scopes[index]
                    known[solution] = self._column_alone(solution, attribute, family, scope)
                columns.append(known[solution])
            if min(columns, default=0) >= 0:
                terms.append((self._class_on[kept], tuple(columns)))
        return tuple(terms)

    def _column_alone(self, solution: int | None, attribute: int, family: Family, scope: int) -> int:
        """Return the column of a family that a solution measures, or of what it leaves on no attribute."""
        group = Group((self._plan.workload.schema.names[attribute],), (family,))
        measured = Measured((), (), 1.0, 0.0)
        if solution is not None:
            measured = Measured((attribute,), (((0,), solution),), 1.0, 0.0)
        parts = dict(self.estimator.parts(group)).get(measured.attributes)
        return -1 if parts is None else self._column(list(tied(measured, parts)), (0,), group, (scope,))

    def _entry(self, members: list[int]) -> GroupTerms:
        group, scopes = self._plan.workload.groups[members[0]], self._scopes[members[0]]
        if members[0] in self._whole:
            squares = self._alone(self._whole[members[0]], group)
            alone = tuple((number, (self._append(x, scopes),)) for number, x in squares.items())
            return GroupTerms(members, (tuple(range(len(group.families))),), alone)
        if terms := self._terms(group, scopes):
            return GroupTerms(members, tuple((family,) for family in range(len(group.families))), terms)
        listed = [(m, list(tied(m, parts))) for m, parts in self.estimator.measured_parts(group)]
        families = [(family,) for family in range(len(group.families))]
        together = connected([*families, *(part.indexes for _, parts in listed for part in parts)])
        clusters = tuple(together) if listed else ()  # queries without noise are zero or public
        columns = (tuple(self._column(parts, c, group, scopes) for c in clusters) for _, parts in listed)
        terms = tuple(zip((self._class_of[id(m)] for m, _ in listed), columns, strict=True))
        return GroupTerms(members, clusters, terms)

    def _alone(self, measured: Measured, group: Group) -> Mapping[int, Array]:
        """Return the variances at σ² = 1 from one whole measurement, and the total if queries are centred."""
        estimator = self._of([measured])
        if estimator.is_single and len(self._plan.measured) == 1:
            return {0: self._plan.estimator.variances(group).ravel() / measured.variance}
        if not estimator.is_single or not estimator.contains(group):
            totals = [m for m in self._plan.measured if not m.attributes]  # or it is public
            estimator = self._of([*totals, measured])
        return {self._class_of[id(m)]: (image**2).sum(axis=1) for m, image in estimator.images(group)}

    def _column(
        self, parts: list[Tied], cluster: tuple[int, ...], group: Group, scopes: tuple[int, ...]
    ) -> int:
        """Return the column of a cluster: the product of the variances at σ² = 1 of the parts inside it."""
        inside = [part for part in parts if part.indexes[0] in cluster]
        kind = tuple(scopes[family] for family in cluster)
        key = (kind, *((tuple(map(cluster.index, part.indexes)), part.key) for part in inside))
        if key in self._numbers:
            return self._numbers[key]
        rows = math.prod(group.families[family].rows for family in cluster)
        if rows > limits().worst_queries:
            msg = f"queries on ({', '.join(group.attributes)}): {rows:,} are too many to search"
            raise TooLargeError(msg)
        self._numbers[key] = self._append(self._values(inside, cluster, group), kind)
        return self._numbers[key]

    def _values(self, inside: list[Tied], cluster: tuple[int, ...], group: Group) -> Array:
        """Return the product of the variances at σ² = 1 of the parts inside a cluster."""
        shape = tuple(group.families[family].rows for family in cluster)
        values = np.ones(shape)
        for part in inside:
            order = sorted(range(len(part.indexes)), key=part.indexes.__getitem__)
            spread = [n if family in part.indexes else 1 for n, family in zip(shape, cluster, strict=True)]
            variances = self.estimator.tied_variances(part, group)
            values = values * variances.transpose(order).reshape(spread)
        return np.maximum(values.ravel(), 0.0)

    def _append(self, values: Array, kind: tuple[int, ...]) -> int:
        self.columns.append(values)
        self.kinds.append(kind)
        return len(self.columns) - 1

    # --- expected variances ---

    def coefficients(self, by_column: Array) -> Array:
        """Return the expected variance of every entry at σ² = 1 on one class: entries × classes.

        `by_column` is the expectation of every column.
        """
        result = np.zeros((len(self.entries), len(self.sets) + 1))
        np.add.at(
            result, (np.arange(len(self.entries))[:, None], self.classes), self.expected_terms(by_column)
        )
        return result[:, :-1]

    def slopes(self, by_column: Array, weights: Array) -> Array:
        """Return the derivative of Σ weight × expected variance by the expectation of every column."""
        values = np.append(by_column, 1.0)[self._column_of]
        scale = weights[:, None] * np.append(self.variances, 0.0)[self.classes]
        result = np.zeros(len(self.columns) + 1)
        for cluster in range(values.shape[1]):
            others = np.delete(values, cluster, axis=1).prod(axis=1)
            np.add.at(result, self._column_of[:, cluster], scale * others)
        return result[:-1]

    def expected_terms(self, by_column: Array) -> Array:
        """Return the expectation of every term of every entry."""
        return np.asarray(np.append(by_column, 1.0)[self._column_of].prod(axis=1))

    def terms(self, queries: Integers) -> Array:
        """Return the terms of queries: each is an entry, and a row of every cluster."""
        column_of = self._column_of[queries[:, 0]]
        rows, values = np.broadcast_to(queries[:, 1:, None], column_of.shape), np.ones(column_of.shape)
        for column in np.unique(column_of[column_of < len(self.columns)]):  # they may be too large to join
            used = column_of == column
            values[used] = self.columns[column][rows[used]]
        return np.asarray(values.prod(axis=1))

    # --- largest variances ---

    def largest(self, number: int, variances: Array) -> tuple[float, tuple[int, ...]]:
        """Return the largest variance of an entry, and the row of every family of the first such query."""
        entry, fronts = self.entries[number], self._fronts_of(number)
        noise = variances[self.classes[number, : len(entry.terms)]]
        for _, matrix in fronts:
            noise = noise * matrix[0] if len(matrix) == 1 else noise
        first, *others = [matrix for _, matrix in fronts if len(matrix) > 1] or [np.ones((1, len(noise)))]
        first, left = first * noise, np.arange(len(first))
        values, rest = first.sum(axis=1), np.ones((1, len(noise)))
        if others:
            rest = reduce(lambda rows, matrix: (rows[:, None] * matrix).reshape(-1, len(noise)), others)
            bounds = first @ math.prod(matrix.max(axis=0) for matrix in others)
            least = (rest @ first[bounds.argmax()]).max()  # which rules out most rows
            left = np.flatnonzero(bounds >= least * (1 - TIE))
            values = np.concatenate([(first[rows] @ rest.T).max(axis=1) for rows in _chunks(left, len(rest))])
        chosen = [row := left[first_largest(values)]]
        if others:
            chosen += np.unravel_index(first_largest(rest @ first[row]), [len(matrix) for matrix in others])
        wide = iter(chosen)
        families = self._plan.workload.groups[entry.members[0]].families
        query = [0] * len(families)
        for cluster, (index, _) in zip(entry.clusters, fronts, strict=True):
            row = int(index[next(wide) if len(index) > 1 else 0])
            for family in reversed(cluster):
                row, query[family] = divmod(row, families[family].rows)
        return float(values.max()), tuple(query)

    def peaks(self, number: int, variances: Array, least: float, most: int) -> tuple[Array, Integers]:
        """Return the largest variances of an entry, at most one per row of its first cluster, and queries.

        They are the `most` largest ones of at least `least`, in decreasing order. A query is the entry and
        its row of every cluster: the first of those on the fronts that are equal within the fraction `TIE`.
        """
        fronts = self._fronts_of(number)
        noise = variances[self.classes[number, : len(self.entries[number].terms)]]
        first, *others = [matrix for _, matrix in fronts] or [np.ones((1, len(noise)))]
        first = first * noise
        bounds = first @ math.prod((matrix.max(axis=0) for matrix in others), start=np.ones(len(noise)))
        left = np.flatnonzero(bounds >= least * (1 - TIE))
        rest = np.ones((1, len(noise)))
        for matrix in others if left.size else ():
            rest = (rest[:, None] * matrix).reshape(-1, len(noise))
        chunks = ((first[chunk] @ rest.T).max(axis=1) for chunk in _chunks(left, len(rest)))
        values = np.concatenate([np.zeros(0), *chunks])
        chosen = in_order(-values)[:most]
        chosen = chosen[values[chosen] >= least]
        queries = np.zeros((len(chosen), 1 + self._column_of.shape[1]), dtype=np.intp)
        queries[:, 0] = number
        for query, row, value in zip(queries, left[chosen], values[chosen], strict=True):
            best = int((rest @ first[row] >= value * (1 - TIE)).argmax())
            each = (row, *np.unravel_index(best, [len(matrix) for matrix in others]))
            query[1 : len(fronts) + 1] = [index[i] for (index, _), i in zip(fronts, each, strict=False)]
        return values[chosen], queries

    def _fronts_of(self, number: int) -> list[tuple[Integers, Array]]:
        """Return the front of every cluster of an entry, or all its rows if comparing them is quicker."""
        columns = list(zip(*(columns for _, columns in self.entries[number].terms), strict=True))
        sizes = [len(self.columns[numbers[0]]) for numbers in columns]
        light, several = limits().light_cells, len(sizes) > 1
        many = math.prod(sizes) > light * max(sizes, default=1)
        pruned = [many or (several and size <= light) for size in sizes]
        return [self._rows(each, pruned=p) for each, p in zip(columns, pruned, strict=True)]

    def _rows(self, columns: tuple[int, ...], *, pruned: bool) -> tuple[Integers, Array]:
        """Return indexes of a cluster's rows, all or those of its front, and these rows × terms."""
        if (columns, pruned) in self._fronts:
            return self._fronts[columns, pruned]
        distinct = tuple(sorted(set(columns)))
        if (distinct, pruned) not in self._fronts:
            table = np.stack([self.columns[c] for c in distinct], axis=1)
            index = front(table) if pruned else np.arange(len(table))
            self._fronts[distinct, pruned] = index, table[index]
        index, table = self._fronts[distinct, pruned]
        found = index, table[:, [distinct.index(c) for c in columns]]
        if len(index) == 1:  # most tables have values that are all alike
            self._fronts[columns, pruned] = found
        return found


def _chunks(rows: Integers, width: int) -> Iterable[Integers]:
    """Divide rows into chunks that each make a table of bounded size."""
    step = max(1, CHUNK // width)
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _numbered(values: Iterable[Hashable]) -> list[int]:
    """Return a number for each value; equal values have the same."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def front(table: Array) -> Integers:
    """Return indexes of rows of which one attains the maximum of every sum with nonnegative coefficients.

    The table has nonnegative entries. A row is left out if another is at least as large in every column. Of
    equal rows the first is kept. Indexes increase.
    """
    left = in_order(-table.sum(axis=1))
    scale = table.max(axis=0)
    entries = table[left] / np.where(scale > 0, scale, 1.0)
    rows: list[np.intp] = []
    while left.size:
        rows.append(left[0])
        beyond = (entries > entries[0] * (1 + TIE) + TIE**2).any(axis=1)
        left, entries = left[beyond], entries[beyond]
    return np.sort(np.array(rows))
