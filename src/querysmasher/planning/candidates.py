"""Which queries are measured whole, and which are split over residual spaces.

Splitting pays if many attribute sets share parts. A few queries that tie attributes together are better
measured whole, at the optimum over all mechanisms (`mechanisms`). A candidate says which groups are measured
whole, and in which clusters; the others are split. There are three candidates: no group is whole; the groups
given by rows (predicates, `linear`, `a + b <= c`) are whole and the tables are split; all groups are whole,
together. Each has a lower bound on its error. They are planned in order of bounds. A candidate is skipped if
its bound shows that it cannot be clearly better than the best plan so far. The optimum over all mechanisms
ends the search.

Measuring queries together is never worse than measuring them apart, so clusters grow while the cells that
their queries distinguish are few. Uncentred, every cluster would measure the number of records again. So its
queries are centred: q − α·1 is measured, and α·1 follows from the total, which is measured once for all.

The bound of a cluster takes one square root of the Gram matrix of its queries (`solvers.bounds`). So does the
bound of an attribute set, for the parts of split queries. A candidate's bound is the sum over both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from typing import cast

import numpy as np

from querysmasher.arrays import CHUNK, Array, less_means, one_core
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.allocation import allocated
from querysmasher.planning.cells import (
    Columns,
    MergedRows,
    class_counts,
    distinct_columns,
    height,
    merge,
    work_of,
)
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.estimator.whole import CombinedEstimator
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms import Options, pair_root, root_of, solve_whole
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Certificate, Measured, Solution
from querysmasher.planning.solvers.bounds import least_root, weighed_value
from querysmasher.planning.solvers.design import equal_columns
from querysmasher.planning.solvers.optimum import independent_root, root_diagonal, terms_rows
from querysmasher.planning.split import Block, Decomposer, separate
from querysmasher.planning.strategies import MergedStrategy
from querysmasher.planning.strategies.strategy import CLOSE
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.pairs import Products
from querysmasher.privacy.unit import Unit
from querysmasher.progress import Bar
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group, Workload

AttributeSet = tuple[int, ...]
"""Increasing indexes in the schema."""


# --- what is measured whole ---


@dataclass(frozen=True, eq=False)
class Cluster:
    """Queries that may be measured together, each less a multiple α of the total."""

    groups: tuple[int, ...]
    """Indexes of their groups in the workload."""
    merged: MergedRows
    """The queries on the distinct columns of their cells."""
    alpha: Array | None
    """α of every query; None if the queries are measured as they are."""
    replaced: bool
    """Whether neighbours replace a record. α is then the mean over columns, and the total is public."""

    @cached_property
    def shifted(self) -> MergedRows:
        """The queries less α·1."""
        if self.alpha is None:
            return self.merged
        rows = self.merged.rows - self.alpha[:, None]
        if self.merged.classes is not None:
            rows = centred_within(self.merged.rows, self.merged.classes)
        rows.flags.writeable = False
        return replace(self.merged, rows=rows, spanning=rows)

    @cached_property
    def root(self) -> Array:
        """Independent rows with the same Gram matrix."""
        return root_of(self.shifted)

    def least(self, unit: Unit) -> float:
        """Return a lower bound on the root loss at unit cost, if nothing else is measured."""
        if self.merged.classes is not None:
            return 0.0  # none is known but that of its plan
        if not self.replaced:
            return unit.records_per_person * least_root(self.root)
        even = np.full(self.root.shape[1], 1 / self.root.shape[1])  # at which all queries are zero
        return unit.records_per_person * math.sqrt(2) * weighed_value(self.root, even)

    def value_at(self, centres: Centres) -> float:
        """Return a lower bound on tr M^½ at the weights of centres, less the mean of the rows there."""
        maps = zip(self.merged.maps, (centres[a].weights for a in self.merged.attributes), strict=True)
        masses = [np.bincount(classes, np.maximum(w, 0.0)) for classes, w in maps]
        coarse: Array = reduce(np.multiply.outer, (m / m.sum() for m in masses))
        q = np.bincount(self.merged.labels.ravel(), coarse.ravel(), self.root.shape[1])
        return weighed_value(self.root, np.asarray(q, dtype=float))

    @property
    def total_loss(self) -> float:
        """The loss that the variance of the total causes in centred queries, which use the total."""
        return 0.0 if self.alpha is None or self.replaced else float(self.merged.weights @ self.alpha**2)

    def solved(self, tolerance: float, progress: bool | None = None) -> Unsplit:
        """Return the optimum for these queries alone."""
        small = min(self.merged.rows.shape) <= limits().threaded_cells
        with Bar("Solving", None, progress), one_core() if small else nullcontext():
            root = vars(self).get("root")  # if it is known
            solution = solve_whole(self.shifted, tolerance, root, pairs=self.replaced)
        return Unsplit(self.groups, self.merged, self.alpha, self.replaced, solution)

    @classmethod
    def of(
        cls, groups: tuple[int, ...], merged: MergedRows, unit: Unit, alpha: Array | None = None
    ) -> Cluster:
        """Return a cluster of groups; given α, or if the total is public, it uses the total."""
        if unit.total_is_public:
            return cls(groups, merged, merged.rows.mean(axis=1), replaced=True)
        return cls(groups, merged, alpha, replaced=False)


@dataclass(frozen=True, eq=False)
class Unsplit(Cluster):
    """A cluster that is measured whole, by the optimal strategy."""

    solution: Solution

    @property
    def pair_root(self) -> float:
        """The lower bound of the solution, relative to the cost of the worst pair."""
        if self.merged.classes is None:
            return pair_root(self.solution)
        strategy = cast("MergedStrategy", self.solution.strategy)  # the only kind that is not split
        return self.solution.bound * math.sqrt(
            Products.of(strategy.matrix).among(self.merged.classes).farthest
        )


Planned = Callable[[Sequence[Unsplit]], Plan | PlanError]
"""Plans the workload with these clusters whole and the rest split; returns an error if it is refused."""


def merged_groups(
    workload: Workload,
    indexes: Iterable[int],
    unit: Unit,
    most_work: float,
    columns: Columns | None = None,
) -> MergedRows | None:
    """Return the queries of some groups over distinct columns; None if too much work, or all are known.

    Cells with different values of an attribute on which neighbours agree are not merged, or with different
    groups of its values, if they agree on these.
    """
    schema, groups = workload.schema, [workload.groups[i] for i in indexes]
    attributes, known = _attributes(schema, groups), unit.known(schema)
    public = sorted(known.agreed.union(known.groups).intersection(attributes))
    if not public:
        merged = merge(schema, groups, attributes, most_work, columns)
        return None if merged is None or not merged.rows.any() else merged
    families = tuple(
        Rows((schema.sizes[a],), np.eye(int(known.groups[a].max()) + 1)[:, known.groups[a]])
        if a in known.groups
        else Identity((schema.sizes[a],))
        for a in public
    )
    indicators = Group(tuple(schema.names[a] for a in public), families)
    merged = merge(schema, [*groups, indicators], attributes, most_work)
    if merged is None:
        return None
    classes = merged.rows[-indicators.rows :].argmax(axis=0)
    rows, weights, spanning = (x[: -indicators.rows] for x in (merged.rows, merged.weights, merged.spanning))
    follow = not centred_within(rows, classes).any()
    return None if follow else replace(merged, rows=rows, weights=weights, spanning=spanning, classes=classes)


def centred_within(rows: Array, classes: Integers) -> Array:
    """Return rows less their means over the columns of every class; rounding errors become zero."""
    return less_means(rows, 1, np.unique(classes, return_inverse=True)[1])


def _attributes(schema: Schema, groups: Iterable[Group]) -> list[int]:
    """Return the attributes that groups ask about; the first of all if none, to sum the total over."""
    return sorted({a for group in groups for a in schema.positions(group.attributes)}) or [0]


def without(workload: Workload, unsplit: Sequence[Unsplit]) -> Workload | None:
    """Return the workload of the groups that are split, or None if there are none."""
    if not unsplit:
        return workload
    whole = {i for cluster in unsplit for i in cluster.groups}
    groups = tuple(group for i, group in enumerate(workload) if i not in whole)
    return Workload(workload.schema, groups) if groups else None


# --- the search ---


@dataclass(frozen=True, eq=False)
class Candidate:
    """Groups that are measured whole, in clusters; the others are split."""

    clusters: Sequence[Cluster]
    bound: Callable[[Plan | None], float]
    """A lower bound on its root loss at unit cost, given the best plan so far."""
    is_optimal: bool = False
    """Whether no mechanism is better."""


def best_candidate(
    workload: Workload, budget: Budget, options: Options, planned: Planned, *, centred: bool = True
) -> tuple[Plan, Sequence[Cluster]]:
    """Return the best plan among those that split all groups, some, or none, and its clusters.

    If `centred`, clusters may use the total measured by the other groups. Queries about lines are whole only
    if all queries are, because a line has a separate centre on every set.
    """
    best: Plan | None = None
    clusters: Sequence[Cluster] = ()
    least, worthwhile = math.inf, limits().worthwhile
    bound = 0.0  # on the loss of every mechanism
    refusals: dict[bool, PlanError] = {}
    candidates: Iterable[Candidate] = [Candidate([], lambda _: 0.0)]  # splits all groups
    if options.mechanism.choose is None:
        candidates = [Candidate([_whole(workload, budget.unit)], lambda _: 0.0)]
    elif options.keeps_whole:
        candidates = _candidates(workload, budget.unit, centred, options.lines)
    for candidate in candidates:
        if best is not None:
            loss = best.weighted_loss * budget.privacy_cost  # at unit cost
            least_root_loss = candidate.bound(best)
            bound = max(bound, least_root_loss**2 / budget.privacy_cost if candidate.is_optimal else 0.0)
            if least_root_loss >= math.sqrt(worthwhile * loss):
                continue
        unsplit = [c.solved(options.tolerance, options.progress) for c in candidate.clusters]
        plan = planned(unsplit)
        if candidate.is_optimal and isinstance(plan, Plan):
            bound = max(bound, plan.certificate.bound)
        plan = _combined(plan, unsplit) if centred and unsplit and isinstance(plan, Plan) else plan
        if isinstance(plan, PlanError):
            refusals[bool(candidate.clusters)] = plan
            continue
        value = plan.weighted_loss / (worthwhile if candidate.clusters else 1.0)
        if value < least:
            best, least, clusters = plan, value, candidate.clusters
        if candidate.is_optimal:
            break
    if best is None:
        raise refusals[min(refusals)]
    if bound > best.certificate.bound:
        best = replace(best, certificate=Certificate(best.weighted_loss, bound))
    return best, clusters


def _whole(workload: Workload, unit: Unit) -> Cluster:
    """Return all queries as one cluster; refuse them if they exceed the limits."""
    most, every = limits(), range(len(workload.groups))
    merged = merge(workload.schema, workload.groups, _attributes(workload.schema, workload), most.whole_work)
    if merged is not None and unit.exact:
        merged = merged_groups(workload, every, unit, most.whole_work)
        if merged is not None and merged.classes is not None and merged.rows.shape[1] > most.paired_cells:
            merged = None
    if merged is None:
        raise TooLargeError(
            f"workload: its {len(workload):,} queries are too many, or distinguish too many cells, for "
            f"mechanism='whole': it accepts about {most.merged_rows:,} queries (all ranges of n values count "
            f"as n) or {most.merged_cells:,} cells, and less of one where there is much of the other. "
            "Remedies: fewer queries, or the default mechanism"
        )
    return Cluster.of(tuple(range(len(workload.groups))), merged, unit)


def _candidates(workload: Workload, unit: Unit, centred: bool, lines: AttributeSet) -> Iterator[Candidate]:
    """Yield the candidates in order of bounds; all queries whole come last, or first if quick and optimal."""
    count, most = len(workload.groups), limits()
    names, known = {workload.schema.names[a] for a in lines}, unit.known(workload.schema)
    given = [i for i, group in enumerate(workload) if _is_few(group) and names.isdisjoint(group.attributes)]
    work = most.whole_work if len(given) == count else min(most.whole_work, most.beside_work)
    cells = math.prod(workload.schema.sizes[a] for a in _attributes(workload.schema, workload))
    rows = sum(math.prod(map(height, group.families)) for group in workload)
    light = work_of(rows, cells) <= most.light_work  # even if all values are distinguished
    merged = merged_groups(workload, range(count), unit, work) if given or light else None
    if known.agreed or known.groups:  # groups are whole all together, or not at all
        yield Candidate([], lambda _: 0.0)
        if merged is not None and merged.corner_count <= most.paired_cells and len(known.sets) == 1:
            yield Candidate([Cluster.of(tuple(range(count)), merged, unit)], lambda _: 0.0, is_optimal=True)
        return
    if merged is not None and merged.rows.shape[1] == 1:  # all queries ask for the number of records
        given, merged = [], None
    every = []
    if merged is not None:
        cluster = Cluster.of(tuple(range(count)), merged, unit)
        optimal = not unit.total_is_public or merged.corner_count <= most.paired_cells
        every = [Candidate([cluster], lambda _: cluster.least(unit), optimal)]
        quick = len(given) == count or work_of(len(merged.rows), merged.corner_count) <= most.light_work
        if given and quick and optimal:
            yield every.pop()
    row_groups = RowGroups(workload, given, unit, centred, has_lines=bool(lines))
    split = Candidate([], row_groups.bound_split)
    whole = [Candidate(row_groups.clusters, row_groups.bound_whole)] if row_groups.clusters else []
    yield from sorted([split, *whole], key=lambda candidate: candidate.bound(None)) if whole else [split]
    yield from every


class RowGroups:
    """Groups given by rows, beside tables: their clusters, and lower bounds on the loss, whole or split."""

    def __init__(
        self, workload: Workload, given: Sequence[int], unit: Unit, centred: bool, *, has_lines: bool = False
    ) -> None:
        """Form clusters of the groups at indexes `given`; if `centred`, they may use the tables' total."""
        self.schema, self.unit, self.has_lines = workload.schema, unit, has_lines
        self.groups = [workload.groups[i] for i in given]
        self.columns = distinct_columns(self.groups) if given else None
        clusters = [] if self.columns is None else grown(self.schema, self.groups, self.columns)
        members = [[given[i] for i in cluster] for cluster in clusters]
        whole = {i for cluster in members for i in cluster}
        self.tables = [group for i, group in enumerate(workload) if i not in whole]
        centred = len(members) > 1 and (centred or not self.tables)
        self.clusters = self._clusters(workload, members, centred)
        self.split, self.block_root = cache(self._split), cache(self._block_root)

    def _clusters(self, workload: Workload, members: Sequence[list[int]], centred: bool) -> list[Cluster]:
        """Return the clusters that are measured whole: none if combining them with tables takes long."""
        clusters, rows, cells = [], 0, self._common_cells()
        for indexes in members:
            merged = merged_groups(workload, indexes, self.unit, limits().beside_work, self.columns)
            if merged is None:
                continue
            rows, cells = rows + min(merged.rows.shape), max(cells, merged.rows.shape[1])
            if rows**2 * cells > limits().beside_work:
                return []
            alpha = total_multiples(merged) if centred and not self.unit.total_is_public else None
            cluster = Cluster.of(tuple(indexes), merged, self.unit, alpha)
            if cluster.shifted.rows.any():  # else all follows from a public total
                clusters.append(cluster)
        return clusters

    def _change(self, attributes: AttributeSet) -> float:
        """Return the factor of root losses: if a record is replaced, that of cells drawn independently."""
        if not self.unit.total_is_public:
            return float(self.unit.records_per_person)
        return self.unit.records_per_person * math.sqrt(2) if attributes else 0.0

    def _split(self, centres: Centres) -> dict[AttributeSet, float]:
        """Return a lower bound on the root loss of the queries on every set, if they are split."""
        bounds = {}
        for s in Decomposer(self.schema, centres).decompose(self.groups):
            root = math.sqrt(sum(term.coefficient for term in s.terms))  # of the total
            if s.attributes:
                scale, blocks = separate(s.terms)
                root = math.prod((self.block_root(block) for _, block in blocks), start=math.sqrt(scale))
            bounds[s.attributes] = root * self._change(s.attributes)
        return bounds

    def _block_root(self, block: Block) -> float:
        """Return a lower bound on the root loss of a block."""
        rows = terms_rows(block.terms)
        columns, _ = equal_columns(rows)  # without repeated columns, the bound is higher
        return least_root(independent_root(rows[:, columns]))

    def _tables(self, best: Plan | None) -> dict[AttributeSet, float]:
        """Return the root loss of the tables on every set, under the best plan so far."""
        if best is None or not self.tables:
            return {}
        given = {} if best.whole else self.split(best.centres)
        roots = {m.attributes: m.root_loss * self._change(m.attributes) for m in best.measured if not m.whole}
        return {a: math.sqrt(max(root**2 - given.get(a, 0.0) ** 2, 0.0)) for a, root in roots.items()}

    def bound_whole(self, best: Plan | None) -> float:
        """Return a lower bound on the root loss of all queries, if the given groups are in clusters."""
        total = self._change(()) * math.sqrt(sum(c.total_loss for c in self.clusters))
        clusters = math.fsum(cluster.least(self.unit) for cluster in self.clusters)
        return math.fsum(self._tables(best).values()) + total + clusters

    def bound_split(self, best: Plan | None) -> float:
        """Return a lower bound on the root loss of all queries, if all are split.

        It is infinite if planning would take long: then they are split only if nothing else can be measured.
        Products with a light family of very many values are split family by family, but not bounded before.
        """
        entries = sum(group.rows * math.prod(self.schema.shape(group.attributes)) for group in self.groups)
        if self.clusters and entries > CHUNK:
            families = [family for group in self.groups for family in group.families]
            heavy = (len(f.shape) > 1 or work_of(f.rows, f.cells) > limits().light_work for f in families)
            longest = max(family.cells for family in families)
            if longest <= limits().axis_values or any(heavy):
                return math.inf
            return math.fsum(self._tables(best).values())
        if self.clusters and self._common_cells() > limits().threaded_cells:
            return math.inf
        given, tables = self.split(best.centres if best else uniform(self.schema)), self._tables(best)
        if self.has_lines:  # their centres depend on all queries, and with these the tables' loss on each set
            return max(math.fsum(given.values()), math.fsum(tables.values()))
        return math.fsum(math.hypot(given.get(a, 0.0), tables.get(a, 0.0)) for a in {*given, *tables})

    def _common_cells(self) -> int:
        """Return the maximum number of cells of the attributes that a table and a given group share."""
        if not self.groups:
            return 0
        names, logs = self.schema.names, np.log(self.schema.sizes)  # quicker than a product per pair
        groups = self.tables, self.groups
        tables, given = (np.array([[a in g.attributes for a in names] for g in x]) for x in groups)
        sizes = (float((tables @ (logs * on)).max()) for on in given if len(tables))
        return round(math.exp(max(sizes, default=-math.inf)))


def _is_few(group: Group) -> bool:
    """Return whether a group consists of a limited number of queries, at least partly given by rows."""
    if all(family.closed_form for family in group.families):
        return False
    entries = group.rows * math.prod(family.cells for family in group.families)
    return group.rows <= limits().merged_rows or entries <= limits().merged_entries


# --- clusters ---


def total_multiples(merged: MergedRows) -> Array:
    """Return α of every query: its mean over cells, weighted as in the optimum; 0 if nothing is left.

    α is rounded so that centred rows are ratios of small integers.
    """
    ones = np.ones((1, merged.rows.shape[1]))
    weighed = merged.rows * np.sqrt(merged.weights)[:, None], ones * math.sqrt(merged.weights.sum())
    diagonal = root_diagonal(independent_root(np.concatenate(weighed)))
    cells = ones[0] if diagonal is None else diagonal**2
    scale = np.abs(merged.rows).max(axis=1)
    scale[scale == 0] = 1.0
    grid = limits().centre_integers
    alpha = np.round(grid * (merged.rows @ (cells / cells.sum())) / scale) / grid * scale
    return alpha if np.any(merged.rows != alpha[:, None]) else np.zeros(len(alpha))


def grown(schema: Schema, groups: Sequence[Group], columns: Columns) -> list[list[int]]:
    """Return the indexes of the groups of every cluster; groups that are too large for any are left out.

    `columns` are the distinct columns of their families. Groups of many cells come first. Each joins the
    cluster whose number of cells it multiplies least. That number is estimated: an attribute whose class
    changes c times between neighbouring values has at most c + 1 classes, and changes add up.
    """
    attributes = _attributes(schema, groups)
    changes, joint = class_counts(schema, groups, attributes, columns)
    asked_of = [set(schema.positions(group.attributes)) for group in groups]
    sizes = np.array([[schema.sizes[a] if a in on else 1.0 for a in attributes] for on in asked_of])
    rows = np.array([group.rows for group in groups], dtype=float)

    def cells(changes: Array, counted: Array | float, rows: Array) -> Array:
        """Return the numbers of cells of clusters, infinite if they or the work are too many."""
        count, most = np.minimum(changes + 1.0, joint).prod(axis=-1), limits()
        fits = (count <= most.merged_cells) & (count * rows <= CHUNK) & (counted <= most.structured_cells)
        return np.where(fits & (count * rows**2 <= most.beside_work), count, np.inf)

    alone = cells(changes, 0.0, rows)
    clusters: dict[int, list[int]] = {}  # by their first member, where the sums over a cluster are kept
    for i in sorted(np.flatnonzero(np.isfinite(alone)).tolist(), key=lambda i: -alone[i]):
        firsts = list(clusters)
        together = changes[firsts] + changes[i], np.maximum(sizes[firsts], sizes[i]), rows[firsts] + rows[i]
        growth = cells(together[0], together[1].prod(axis=-1), together[2]) / np.maximum(
            alone[firsts], alone[i]
        )
        best = int(growth.argmin()) if firsts else 0
        if not firsts or math.isinf(growth[best]):
            clusters[i] = [i]
            continue
        first = firsts[best]
        clusters[first].append(i)
        changes[first], sizes[first], rows[first] = (sums[best] for sums in together)
        alone[first] = cells(changes[first], 0.0, rows[first])
    return [sorted(members) for members in sorted(clusters.values(), key=min)]


# --- whole measurements beside split ones ---


def beside(
    split: Plan | None,
    unsplit: Sequence[Unsplit],
    workload: Workload,
    budget: Budget,
    options: Options,
) -> Plan:
    """Return a plan that measures some groups whole, beside the plan of all others.

    The budget is divided, and the certificate computed, as if every group were answered from its own
    measurement.
    """
    if split is not None and not unsplit:
        return split
    unit = budget.unit
    lost, r = math.sqrt(sum(cluster.total_loss for cluster in unsplit)), unit.records_per_person
    centres = uniform(workload.schema) if split is None else split.centres
    solutions = [] if split is None else list(split.solutions)
    measured = [] if split is None else list(split.measured)
    if lost and not unit.total_is_public:
        total = next((m for m in measured if not m.attributes), Measured((), (), 1.0, 0.0))
        others = [m for m in measured if m.attributes]
        measured = [replace(total, root_loss=math.hypot(total.root_loss, lost)), *others]
    if not unit.total_is_public:
        bound = r * math.fsum(m.root_loss for m in measured)
        bound /= 1 if split is None else 1 + split.gap
        bound += r * math.fsum(cluster.solution.bound for cluster in unsplit)
    elif split is None and len(unsplit) == 1:
        bound = r * unsplit[0].pair_root
    else:  # for pairs of cells that are drawn independently, with the weights of the centres
        bound = 0.0 if split is None else math.sqrt(split.certificate.bound * budget.privacy_cost)
        bound += r * math.sqrt(2) * math.fsum(cluster.value_at(centres) for cluster in unsplit)
    for cluster in unsplit:
        blocks = ((tuple(range(len(cluster.merged.attributes))), len(solutions)),)
        solutions.append(cluster.solution)
        measured.append(
            Measured(cluster.merged.attributes, blocks, 1.0, cluster.solution.reached, cluster.groups)
        )
    return allocated(workload, budget, centres, solutions, measured, bound, options)


def _combined(plan: Plan, unsplit: Sequence[Unsplit]) -> Plan | PlanError:
    """Return the plan with its loss after all answers are combined by generalised least squares.

    Its certificate remains about answers that are not combined: of others, no such bound is known.
    From residuals alone, the loss of the split groups is what the plan states, less what centred queries add
    to the loss of the total. Rows measured whole lower it. The other queries are combinations of these rows
    and of the total. Return an error if rounding errors hide queries.
    """
    rows, total, split = plan.estimator, Group((), ()), without(plan.workload, unsplit)
    if not isinstance(rows, CombinedEstimator):
        return plan
    covariances, variance = rows.covariances(total), sum(m.variance for m in rows.measured.get((), ()))
    losses = []
    if split is not None:
        losses += [m.variance * m.root_loss**2 for m in plan.measured if not m.whole]
        losses += [-cluster.total_loss * variance for cluster in unsplit]
        losses += [-rows.gain(group, weighted=True) for group in split]
    for cluster, at in zip(unsplit, rows.slices, strict=True):
        queries = np.zeros((len(cluster.merged.rows), rows.count))
        strategy = cast("MergedStrategy", cluster.solution.strategy)  # the only kind that is not split
        queries[:, at] = strategy.span.combinations(cluster.shifted.rows)
        alpha = np.zeros(len(queries)) if cluster.alpha is None else cluster.alpha
        known = queries @ rows.spread + np.outer(alpha, covariances)
        variances = np.einsum("ij,ij->i", known, queries)
        variances += alpha * (queries @ covariances + alpha * variance)
        before = float(cluster.merged.weights @ variances)
        variances += rows.change(known, queries @ rows.gram)
        losses.append(float(cluster.merged.weights @ variances))
        if losses[-1] < CLOSE * before:
            why = "rounding errors hide queries of small weight; use weights that differ less"
            return PlanError(f"workload: {why}")
    return replace(plan, weighted_loss=math.fsum(losses))
