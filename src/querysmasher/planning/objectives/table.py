"""The variances of all queries of a workload under a plan, as sums of products that are never written out.

A group's queries are tuples of rows, one per *cluster*: a family, or several that a strategy ties. On the
attribute set A, what a query leaves has the variance σ²_A Π_c f_c,A(row of cluster c), so that

    Var(q) = Σ_A σ²_A Π_c f_c,A(q_c).

A *column* is one f_c,A over the rows of a cluster. Equivalent groups share an *entry*; attribute sets with
the same strategies and the same noise share a *class*. Expected variances under product weights are
products of expectations; the largest variance is attained on rows of the clusters' fronts.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.planning.estimator.shares import Share, Tied, tied
from querysmasher.planning.limits import limits
from querysmasher.planning.measured import Measured
from querysmasher.planning.objectives.cluster_fronts import ClusterFronts, Integers
from querysmasher.planning.objectives.columns import JointColumn, Recipe, SingleColumn
from querysmasher.planning.objectives.entry import Clusters, Entry, Term, joined_clusters, padded
from querysmasher.planning.objectives.front import peak, peaks
from querysmasher.planning.objectives.singles import Singles
from querysmasher.planning.planned import Planned
from querysmasher.workload.groups import Group


class VarianceTable:
    """The variances of a workload's queries, by entries, clusters and columns."""

    def __init__(
        self, plan: Planned, scopes: Sequence[tuple[int, ...]], like: VarianceTable | None = None
    ) -> None:
        """Take a plan and, for every group, the scope of each of its families.

        Groups are equivalent only if they have the same scopes. The table of another plan for the same groups
        and scopes, if it has the same structure, makes this one quick to build.
        """
        self.estimator = self._predictor(plan)
        self.is_linear = self.estimator.is_split
        """Whether variances are sums over attribute sets, so that these can share the budget anew."""
        self._numbers: dict[Hashable, int] = {}
        blocks = tuple((m.attributes, m.blocks) for m in plan.measured)
        self._classify(plan, like.sets if like is not None and like.structure[0] == blocks else None)
        self.structure: tuple[Hashable, ...] = (blocks, tuple(map(tuple, self.sets)), plan.centres)
        """What the terms of all entries depend on."""
        self.columns: list[Array] = []
        self.kinds: list[tuple[int, ...]] = []
        """The scopes of every column's families."""
        self.recipes: list[Recipe] | None = []
        """How every column is computed, or None if one is written out."""
        self.entries: list[Entry] = []
        if like is not None and like.recipes is not None and like.structure == self.structure:
            self.entries, self.kinds, self.recipes = like.entries, like.kinds, like.recipes
            self.columns = [recipe.values(self.estimator) for recipe in like.recipes]
        else:
            self.entries += [self._entry(*found) for found in self._equivalent(plan, scopes)]
        self.classes, self.column_of = padded(self.entries, len(self.columns), len(self.sets))
        self._fronts = ClusterFronts(self.entries, self.columns)
        self._singles: Singles | None = None
        self._most = np.array([*(c.max() for c in self.columns), 1.0])

    def _predictor(self, plan: Planned) -> Estimator:
        """Return what predicts the variances."""
        return plan.estimator

    def _kind(self, index: int) -> Hashable:
        """Return what equivalent groups have in common besides, given the index of one."""
        return None if self.is_linear else index

    def _classify(self, plan: Planned, like: list[list[int]] | None) -> None:
        """Number the classes of attribute sets; many are those of a similar plan, if they can be."""
        self.sets: list[list[int]] = list(self._classes(plan, like))
        """The indices of the measured sets of every class."""
        numbers = {index: number for number, own in enumerate(self.sets) for index in own}
        self.class_of = {m.attributes: numbers[index] for index, m in enumerate(plan.measured)}
        self.variances = np.array(
            [
                len(own) / math.fsum(1 / plan.measured[index].variance for index in own)
                if self.is_linear
                else 1.0
                for own in self.sets
            ]
        )
        """The noise variance of every class, at which it costs as much."""
        self.counts = np.array([len(own) for own in self.sets], dtype=float)
        self.changes = np.array(
            [
                plan.budget.unit.squared_change(total=not plan.measured[own[0]].attributes)
                for own in self.sets
            ],
            dtype=float,
        )

    def _classes(self, plan: Planned, like: list[list[int]] | None) -> Iterable[list[int]]:
        """Return the indices of the measured sets of every class, in order of appearance."""
        keys: list[Hashable] = [
            (m.blocks, f"{m.variance:.9e}") if self.is_linear else None for m in plan.measured
        ]
        if len(set(keys)) > limits().many_sets:
            noise = [m.variance for m in plan.measured]
            each = ([noise[index] for index in own] for own in like or ())
            if like is not None and all(max(own) <= limits().kept_classes * min(own) for own in each):
                return like
            keys = [(m.blocks, round(math.log(m.variance) / limits().alike_noise)) for m in plan.measured]
        found: dict[Hashable, list[int]] = {}
        for index, key in enumerate(keys):
            found.setdefault(key, []).append(index)
        return found.values()

    def _equivalent(
        self, plan: Planned, scopes: Sequence[tuple[int, ...]]
    ) -> Iterator[tuple[Group, list[int], tuple[int, ...]]]:
        """Iterate over classes of groups with the same families, centres and classes of attribute sets."""
        found: dict[Hashable, list[int]] = {}
        position, centres = plan.workload.schema.position, plan.centres
        for index, (group, own) in enumerate(zip(plan.workload, scopes, strict=True)):
            places = tuple(map(position, group.attributes))
            order = sorted(places)
            key = (
                own,
                tuple(f.key for f in group.families),
                tuple(map(places.index, order)),
                tuple(centres[p] for p in places),
                None if group.target is None else group.target.std,
                tuple(self.class_of.get(s, -1) for s in subsets(order)) if self.is_linear else None,
                self._kind(index),
            )
            found.setdefault(key, []).append(index)
        groups = plan.workload.groups
        for members in found.values():
            yield groups[members[0]], members, scopes[members[0]]

    def _entry(self, group: Group, members: list[int], scopes: tuple[int, ...]) -> Entry:
        if not self.is_linear:
            return self._written_out(group, members, scopes, {0: self.estimator.variances(group)})
        terms = list(self.estimator.residual.shares(group))
        if all(len(axes) == 1 for m, _ in terms for axes, _ in m.blocks) and all(
            len(names) == 1 for names, _ in group.parts()
        ):
            own = tuple((place,) for place in range(len(group.families)))
            return Entry(group, members, scopes, own, tuple(self._single(*term, scopes) for term in terms))
        listed = [(m, list(tied(m, shares))) for m, shares in terms]
        clusters = joined_clusters(len(group.families), [one.places for _, own in listed for one in own])
        made = tuple(
            Term(self.class_of[m.attributes], self._joint(own, clusters, group, scopes)) for m, own in listed
        )
        ties = frozenset(one.places for _, own in listed for one in own if len(one.places) > 1)
        return Entry(group, members, scopes, clusters, made, frozenset(tuple(sorted(t)) for t in ties))

    def _written_out(
        self, group: Group, members: list[int], scopes: tuple[int, ...], variances: Mapping[int, Array]
    ) -> Entry:
        """Return an entry of one cluster, given the variances of all queries at σ² = 1 on every class."""
        self.recipes = None
        every = tuple(range(len(group.families)))
        terms = tuple(
            Term(number, (self._column(("written out", members[0], number), own.ravel(), scopes),))
            for number, own in variances.items()
        )
        return Entry(group, members, scopes, (every,), terms, frozenset([every]))

    def _single(self, measured: Measured, shares: Sequence[Share], scopes: tuple[int, ...]) -> Term:
        """Return the term of a product on a set whose strategies are products, too."""
        number = {measured.attributes[axes[0]]: n for axes, n in measured.blocks}
        columns = []
        for share, scope in zip(shares, scopes, strict=True):
            strategy = number[share.kept[0]] if share.kept else None
            key = (share.key, strategy, scope)
            if key not in self._numbers:
                self._computed(key, SingleColumn(share.rows, strategy), (scope,))
            columns.append(self._numbers[key])
        return Term(self.class_of[measured.attributes], tuple(columns))

    def _joint(
        self, components: list[Tied], clusters: Clusters, group: Group, scopes: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return the columns of components, each of which lies inside one cluster."""
        columns = []
        for cluster in clusters:
            shape = tuple(group.families[place].rows for place in cluster)
            if math.prod(shape) > limits().worst_queries:
                msg = (
                    f"queries on ({', '.join(group.attributes)}): {math.prod(shape):,} are too many to search"
                )
                raise TooLargeError(msg)
            inside = tuple(one for one in components if one.places[0] in cluster)
            kind = tuple(scopes[place] for place in cluster)
            key = (kind, cluster, shape, *((one.places, one.key) for one in inside))
            if key not in self._numbers:
                self._computed(key, JointColumn(group, cluster, shape, inside), kind)
            columns.append(self._numbers[key])
        return tuple(columns)

    def _computed(self, key: Hashable, recipe: Recipe, kind: tuple[int, ...]) -> None:
        """Add a column that other plans can compute anew."""
        self._column(key, recipe.values(self.estimator), kind)
        if self.recipes is not None:
            self.recipes.append(recipe)

    def _column(self, key: Hashable, values: Array, kind: tuple[int, ...]) -> int:
        self._numbers[key] = len(self.columns)
        self.columns.append(np.maximum(values, 0.0))
        self.kinds.append(kind)
        return self._numbers[key]

    def expected(self, by_column: Array, variances: Array) -> Array:
        """Return the expected variance of every entry, given the expectation of every column."""
        return np.asarray((self._noise(variances) * self._products(by_column)).sum(axis=1))

    def coefficients(self, by_column: Array) -> Array:
        """Return the expected variance of every entry at σ² = 1 on one class: entries × classes."""
        result = np.zeros((len(self.entries), len(self.sets) + 1))
        np.add.at(result, (np.arange(len(self.entries))[:, None], self.classes), self._products(by_column))
        return result[:, :-1]

    def slopes(self, by_column: Array, weights: Array, variances: Array) -> Array:
        """Return the derivative of Σ weight × expected variance by the expectation of every column."""
        values = np.append(by_column, 1.0)[self.column_of]
        scale = weights[:, None] * self._noise(variances)
        result = np.zeros(len(self.columns) + 1)
        for place in range(values.shape[1]):
            others = np.delete(values, place, axis=1).prod(axis=1)
            np.add.at(result, self.column_of[:, place], scale * others)
        return result[:-1]

    def bounds(self, variances: Array) -> Array:
        """Return an upper bound on the largest variance of every entry."""
        return np.asarray((self._noise(variances) * self._most[self.column_of].prod(axis=1)).sum(axis=1))

    def growth(self, factors: Array) -> Array:
        """Return the largest factor by which variances of every entry grow if classes grow by `factors`."""
        return np.asarray(np.append(factors, 0.0)[self.classes].max(axis=1))

    def largest(self, number: int, variances: Array, *, rough: bool = False) -> tuple[float, tuple[int, ...]]:
        """Return the largest variance of an entry, and the rows of its clusters that attain it.

        A `rough` search misses the largest by at most the fraction `rough_search` of the limits per cluster.
        """
        own = self._fronts.of(number, rough=rough)
        value, chosen = peak([matrix for _, matrix in own], self._noise_of(number, variances))
        return value, tuple(int(index[i]) for (index, _), i in zip(own, chosen, strict=True))

    def single_peaks(self, variances: Array) -> dict[int, tuple[float, Array]]:
        """Return the largest variance of many small entries, and its terms: quicker than one by one."""
        if self._singles is None:
            self._singles = Singles(self.entries, self.columns)
        return dict(self._singles.peaks(self._noise(variances)))

    def near_largest(self, number: int, variances: Array, least: float, most: int) -> tuple[float, Array]:
        """Return the largest variance, by a rough search, and the terms of queries of at least `least`.

        These are, for every row of a cluster, the largest query with it, up to `most` in all. The terms are
        those of the entry, in order; the product with the noise of their classes is the variance.
        """
        noise = self._noise_of(number, variances)
        fronts = [matrix for _, matrix in self._fronts.of(number, rough=True)]
        if most == 1:
            value, where = peak(fronts, noise)
            terms = np.ones(len(noise))
            for matrix, row in zip(fronts, where, strict=True):
                terms = terms * matrix[row]
            return value, terms[None]
        values, chosen = peaks(fronts, noise)
        near = np.flatnonzero(values >= max(least, float(values.max()) / 2))
        if len(near) > most:
            near = near[np.argpartition(-values[near], most - 1)[:most]]
        terms = np.ones((len(near), len(noise)))
        for matrix, index in zip(fronts, chosen, strict=True):
            terms = terms * matrix[index[near]]
        return float(values.max()), terms

    def classes_of(self, number: int) -> Integers:
        """Return the classes of an entry's terms; the class after the last has no noise."""
        return np.asarray(self.classes[number])

    def _noise_of(self, number: int, variances: Array) -> Array:
        terms = len(self.entries[number].terms)
        return np.asarray(np.append(variances, 0.0)[self.classes[number, :terms]])

    def _noise(self, variances: Array) -> Array:
        return np.asarray(np.append(variances, 0.0)[self.classes])

    def _products(self, by_column: Array) -> Array:
        return np.asarray(np.append(by_column, 1.0)[self.column_of].prod(axis=1))
