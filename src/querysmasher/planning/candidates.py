"""Which queries are measured as they are, and which are split over residual spaces.

Splitting pays where many attribute sets share parts; few queries that tie attributes are better measured
whole, at the optimum over all mechanisms (`mechanisms`). A candidate says which groups stay whole, and
in which clusters; the others are split. There are three: nothing is whole; the queries given by their rows
(predicates, `linear`, `a + b <= c`) are, beside tables that are split; all queries are, together. Each has a
lower bound on its error. They are planned in order of bounds, except those whose bound shows that
they cannot be clearly better than the best plan so far. The optimum over all mechanisms ends the search.

Measuring queries together is never worse than measuring them apart, so clusters grow while the cells that
their queries distinguish are few. Every cluster would learn the number of records anew. Instead its queries
are centred: q − α·1 is measured, and the total once for all of them, from which α·1 follows.

Bounds take one square root of a Gram matrix each (`solvers.bounds`). On every attribute set, the parts of
queries that are split are rows over its cells, or over classes of cells that are alike. The root losses of
all sets and of all clusters add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import mul

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import PlanError
from querysmasher.planning.around import allocated
from querysmasher.planning.cells import MergedRows, are_given, height, merge, value_classes, work_of
from querysmasher.planning.centre import Centre, Centres, uniform
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms import root_of, solve_whole
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Measured, Solution
from querysmasher.planning.solvers.bounds import least_root
from querysmasher.planning.solvers.optimum import independent_root, root_diagonal
from querysmasher.planning.split import Kept, PlacedFamily, split_rows
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.unit import Unit
from querysmasher.progress import Bar
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

Place = tuple[int, ...]
"""An attribute set: increasing indexes in the schema."""

HIDDEN = 1e-9
"""A variance below this fraction of what is known before other answers lower it is rounding error."""

GRID = 16
"""Shares α are multiples of 1/16, so that centred rows stay ratios of small integers."""


# --- what is measured whole ---


@dataclass(frozen=True, eq=False)
class Cluster:
    """Queries that may be measured together, each less a multiple α of the total."""

    places: tuple[int, ...]
    """Indexes of their groups in the workload."""
    merged: MergedRows
    """The queries on the distinct columns of their cells."""
    alpha: Array | None

    @cached_property
    def shifted(self) -> MergedRows:
        """The queries less α·1."""
        if self.alpha is None:
            return self.merged
        rows = self.merged.rows - self.alpha[:, None]
        rows.flags.writeable = False
        return replace(self.merged, rows=rows, spanning=rows)

    @cached_property
    def root(self) -> Array:
        """Independent rows with the same Gram matrix."""
        return root_of(self.shifted)

    @property
    def total_loss(self) -> float:
        """The loss per variance of the total, from which queries that are centred follow."""
        return 0.0 if self.alpha is None else float(self.merged.weights @ self.alpha**2)

    def solved(self, tolerance: float, progress: bool | None = None) -> Unsplit:
        """Return the optimum for these queries alone."""
        small = min(self.merged.rows.shape) <= limits().threaded_cells
        with Bar("Solving", None, progress), one_core() if small else nullcontext():
            solution = solve_whole(self.shifted, tolerance, vars(self).get("root"))  # if it is known
        return Unsplit(self.places, self.merged, self.alpha, solution)


@dataclass(frozen=True, eq=False)
class Unsplit(Cluster):
    """A cluster that is measured as it is, by the optimal strategy."""

    solution: Solution


Planned = Callable[[Sequence[Unsplit]], Plan | PlanError]
"""Plans the workload with some groups whole and the others split; returns why that cannot be measured."""


def merged_groups(workload: Workload, places: Iterable[int], most_work: float) -> MergedRows | None:
    """Return the queries of some groups over their distinct columns, or None if that is too much work."""
    groups = [workload.groups[place] for place in places]
    positions = workload.schema.positions
    attributes = sorted({a for group in groups for a in positions(group.attributes)}) or [0]
    merged = merge(workload.schema, groups, attributes, most_work)
    return None if merged is None or not merged.rows.any() else merged


def without(workload: Workload, unsplit: Sequence[Unsplit]) -> Workload | None:
    """Return the groups that are split, or None if there are none."""
    whole = {place for some in unsplit for place in some.places}
    groups = tuple(group for place, group in enumerate(workload) if place not in whole)
    return Workload(workload.schema, groups) if groups else None


# --- the search ---


@dataclass(frozen=True, eq=False)
class Candidate:
    """Groups that are measured as they are, in clusters; the others are split."""

    clusters: Sequence[Cluster]
    bound: Callable[[Plan | None], float]
    """A lower bound on its root loss at unit cost, given the best plan so far."""
    is_optimal: bool = False
    """Whether no mechanism is better."""

    @property
    def handicap(self) -> float:
        """Factor of its loss in comparisons: a plan that measures queries whole must be clearly better."""
        return 1 / limits().worthwhile if self.clusters else 1.0


def best_candidate(
    workload: Workload,
    budget: Budget,
    tolerance: float,
    planned: Planned,
    progress: bool | None = None,
    *,
    centred: bool = True,
    lines: Place = (),
) -> Plan:
    """Return the best plan among those that split all groups, some, or none.

    If `centred`, clusters of queries measured whole beside others may use these others' total. Queries about
    `lines`, which have a centre for every set, are split if others are.
    """
    best: Plan | None = None
    least = math.inf
    refusals: dict[bool, PlanError] = {}
    for candidate in _candidates(workload, budget.unit, centred, lines):
        if best is not None and candidate.bound(best) >= math.sqrt(limits().worthwhile) * root_loss(best):
            continue
        made = planned([cluster.solved(tolerance, progress) for cluster in candidate.clusters])
        if isinstance(made, PlanError):
            refusals[bool(candidate.clusters)] = made
            continue
        if made.weighted_loss * candidate.handicap < least:
            best, least = made, made.weighted_loss * candidate.handicap
        if candidate.is_optimal:
            break
    if best is None:
        raise refusals[min(refusals)]
    return best


def root_loss(plan: Plan) -> float:
    """Return the root of a plan's loss at unit cost."""
    return math.sqrt(plan.weighted_loss * plan.budget.privacy_cost)


def _candidates(workload: Workload, unit: Unit, centred: bool, lines: Place) -> Iterator[Candidate]:
    """Iterate over the candidates in order of their bounds; all queries whole come first only if quick."""
    count, most = len(workload.groups), limits()
    named = {workload.schema.names[attribute] for attribute in lines}
    given = [i for i, group in enumerate(workload) if _is_few(group) and named.isdisjoint(group.attributes)]
    work = most.whole_work if len(given) == count else min(most.whole_work, most.beside_work)
    merged = merged_groups(workload, range(count), work) if given or _is_quick(workload) else None
    if merged is not None and merged.rows.shape[1] == 1:  # all queries ask for the number of records
        given, merged = [], None
    every = None
    if merged is not None:
        cluster = Cluster(tuple(range(count)), merged, None)
        every = Candidate(
            [cluster],
            lambda _: math.sqrt(unit.change()) * least_root(cluster.root),
            is_optimal=not unit.total_is_public,  # of which rows measured whole make no use
        )
        quick = len(given) == count or work_of(*merged.rows.shape) <= most.quick_whole_work
        if every.is_optimal and given and quick:
            yield every
            every = None
    choice = Given(workload, given, unit, centred)
    whole, split = Candidate(choice.clusters, choice.bound_whole), Candidate([], choice.bound_split)
    if choice.clusters:
        yield from sorted((split, whole), key=lambda candidate: candidate.bound(None))
    else:
        yield split
    if every is not None:
        yield every


class Given:
    """Queries given by their rows beside tables: what they lose at least in clusters, or split."""

    def __init__(self, workload: Workload, given: Sequence[int], unit: Unit, centred: bool) -> None:
        """Take the indexes of their groups, and whether clusters may use the total of tables."""
        self.schema, self.unit = workload.schema, unit
        self.groups = [workload.groups[i] for i in given]
        self.maps = (value_classes(self.schema, self.groups) if given else None) or []
        places = grown(self.schema, self.groups, self.maps) if self.maps else []
        kept = {given[j] for cluster in places for j in cluster}
        self.tables = [group for i, group in enumerate(workload) if i not in kept]
        centred = len(places) > 1 and (not self.tables or (centred and _know_total(self.tables)))
        whole = (tuple(given[j] for j in cluster) for cluster in places)
        self.clusters = self._clusters(workload, whole, centred)
        self.split = cache(self._split)

    def _clusters(self, workload: Workload, whole: Iterable[tuple[int, ...]], centred: bool) -> list[Cluster]:
        """Return the clusters that are measured whole: none if combining them with tables takes long."""
        clusters, rows, cells = [], 0, self._shared_cells()
        for indexes in whole:
            merged = merged_groups(workload, indexes, limits().beside_work)
            if merged is None:
                continue
            rows, cells = rows + min(merged.rows.shape), max(cells, merged.rows.shape[1])
            if rows**2 * cells > limits().beside_work:
                return []
            clusters.append(Cluster(indexes, merged, shares(merged) if centred else None))
        return clusters

    def _change(self, attributes: Place) -> float:
        return math.sqrt(self.unit.change(attributes))

    def _split(self, centres: Centres) -> dict[Place, float]:
        """Return what the queries lose at least on every set if they are split."""
        roots = split_roots(split_groups(centres, self.schema, self.groups, self.maps))
        return {attributes: root * self._change(attributes) for attributes, root in roots.items()}

    def _tables(self, best: Plan | None) -> dict[Place, float]:
        """Return what the tables lose on every set, given a plan of all queries."""
        if best is None or not self.tables:
            return {}
        given = {} if best.whole else self.split(best.centres)
        split = [m for m in best.measured if not m.whole]
        roots = {m.attributes: m.root_loss * self._change(m.attributes) for m in split}
        return {a: math.sqrt(max(root**2 - given.get(a, 0.0) ** 2, 0.0)) for a, root in roots.items()}

    def bound_whole(self, best: Plan | None) -> float:
        """Return what all queries lose at least with these in clusters."""
        total = math.sqrt(self.unit.change(()) * sum(c.total_loss for c in self.clusters))
        clusters = math.fsum(least_root(cluster.root) for cluster in self.clusters)
        return math.fsum(self._tables(best).values()) + total + self._change((0,)) * clusters

    def bound_split(self, best: Plan | None) -> float:
        """Return what all queries lose at least if all are split; infinite if that takes long."""
        if self.clusters and self._shared_cells() > limits().tried_cells:
            return math.inf
        tables = self._tables(best)
        if best is None or not tables:
            return limits().recentred * math.fsum(self.split(uniform(self.schema)).values())
        given = self.split(best.centres)
        return math.fsum(math.hypot(given.get(a, 0.0), tables.get(a, 0.0)) for a in {*given, *tables})

    def _shared_cells(self) -> float:
        """Return the most cells of a set on which both tables and these queries leave something."""
        asked = np.zeros((2, max(len(self.tables), len(self.maps)), len(self.schema)))
        for number, group in enumerate(self.tables):
            asked[0, number, self.schema.positions(group.attributes)] = 1.0
        for number, classes in enumerate(self.maps):
            asked[1, number, list(classes)] = 1.0
        shared = (asked[0] * np.log(self.schema.sizes)) @ asked[1].T
        return float(np.exp(shared.max())) if self.tables else 0.0


def _is_few(group: Group) -> bool:
    """Return whether a group consists of a limited number of queries, at least partly given by rows."""
    entries = group.rows * math.prod(family.cells for family in group.families)
    return are_given(group) and (group.rows <= limits().merged_rows or entries <= limits().merged_entries)


def _is_quick(workload: Workload) -> bool:
    """Return whether tables, which distinguish all values, take little time to plan as they are."""
    names = {name for group in workload for name in group.attributes}
    cells = math.prod(workload.schema.sizes[place] for place in workload.schema.positions(sorted(names)))
    rows = sum(math.prod(map(height, group.families)) for group in workload)
    return cells * min(rows, cells) ** 2 <= limits().quick_whole_work


def _know_total(groups: Iterable[Group]) -> bool:
    """Return whether the number of records follows from some groups."""

    def counts(family: Family) -> bool:
        return family.closed_form or bool(np.any(family.answers(np.ones(family.shape))))

    return any(all(map(counts, group.families)) for group in groups)


# --- clusters ---


def shares(merged: MergedRows) -> Array:
    """Return α of every query: its mean over cells as the optimum weighs them, or 0 if nothing were left."""
    ones = np.ones((1, merged.rows.shape[1]))
    beside = np.concatenate([merged.rows, ones])
    weighed = replace(merged, rows=beside, weights=np.append(merged.weights, merged.weights.sum()))
    diagonal = root_diagonal(root_of(weighed))
    cells = ones[0] if diagonal is None else diagonal**2
    scale = np.abs(merged.rows).max(axis=1)
    scale[scale == 0] = 1.0
    alpha = np.round(GRID * (merged.rows @ (cells / cells.sum())) / scale) / GRID * scale
    return alpha if np.any(merged.rows != alpha[:, None]) else np.zeros(len(alpha))


def grown(schema: Schema, groups: Sequence[Group], maps: Sequence[Mapping[int, Integers]]) -> list[list[int]]:
    """Return the indexes of the groups of every cluster; groups that are too large for any are left out.

    `maps` has the class of every value in each group, by attribute. The two clusters are joined whose union
    distinguishes the fewest cells relative to the larger one, as far as is known: an attribute of which the
    class changes c times from one value to the next has at most c + 1 classes, and changes add up.
    """
    attributes = sorted({a for classes in maps for a in classes})
    joint = [
        np.unique(np.stack([classes[a] for classes in maps if a in classes]), axis=1).shape[1]
        for a in attributes
    ]
    changes = np.array(
        [[np.count_nonzero(np.diff(classes.get(a, ()))) for a in attributes] for classes in maps]
    )
    counted = np.array([[schema.sizes[a] if a in classes else 1.0 for a in attributes] for classes in maps])
    rows = np.array([group.rows for group in groups], dtype=float)

    def cells(changes: Array, rows: Array) -> Array:
        """Return the number of cells of clusters, infinite where they or the work are too many."""
        count = np.minimum(changes + 1.0, joint).prod(axis=-1)
        fits = (count <= min(limits().cluster_cells, limits().merged_cells)) & (
            count * rows**2 <= limits().beside_work
        )
        return np.where(fits, count, np.inf)

    def unions(place: int) -> Array:
        """Return by which factor the unions of one cluster with all others have more cells."""
        count = cells(changes + changes[place], rows + rows[place])
        count[np.maximum(counted, counted[place]).prod(axis=1) > limits().counted_cells] = np.inf
        count[place] = np.inf
        alone = cells(changes, rows)
        return count / np.maximum(alone, alone[place])

    alone = np.isfinite(cells(changes, rows))
    members = [[number] for number in np.flatnonzero(alone).tolist()]
    changes, counted, rows = changes[alone], counted[alone], rows[alone]
    sizes = np.array([unions(place) for place in range(len(members))])
    while np.isfinite(sizes.min(initial=np.inf)):
        first, second = sorted(divmod(int(np.argmin(sizes)), len(members)))
        members[first] += members.pop(second)
        changes[first] += changes[second]
        counted[first] = np.maximum(counted[first], counted[second])
        rows[first] += rows[second]
        changes, counted, rows, sizes = (
            np.delete(each, second, 0) for each in (changes, counted, rows, sizes)
        )
        sizes = np.delete(sizes, second, 1)
        sizes[first] = sizes[:, first] = unions(first)
    return [sorted(cluster) for cluster in members]


# --- whole measurements beside split ones ---


def beside(
    split: Plan | None,
    unsplit: Sequence[Unsplit],
    workload: Workload,
    budget: Budget,
    tolerance: float,
    *,
    combined: bool = True,
) -> Plan:
    """Return a plan that measures some groups as they are, beside the plan of all others.

    The budget is shared as if every group were answered from its own measurement, and so is its certificate.
    If `combined`, the loss is that of answers from all measurements.
    """
    if split is not None and not unsplit:
        return split
    unit = budget.unit
    lost = math.sqrt(sum(cluster.total_loss for cluster in unsplit))
    solutions = [] if split is None else list(split.solutions)
    measured = [] if split is None else list(split.measured)
    if lost and not unit.total_is_public:
        total = next((m for m in measured if not m.attributes), Measured((), (), 1.0, 0.0))
        others = [m for m in measured if m.attributes]
        measured = [replace(total, root_loss=math.hypot(total.root_loss, lost)), *others]
    weigh = (math.sqrt(unit.change(m.attributes)) for m in measured)
    bound = math.fsum(map(mul, weigh, (m.root_loss for m in measured)))
    bound /= 1 if split is None else 1 + split.gap
    bound += math.sqrt(unit.change()) * math.fsum(cluster.solution.bound for cluster in unsplit)
    for cluster in unsplit:
        blocks = ((tuple(range(len(cluster.merged.attributes))), len(solutions)),)
        solutions.append(cluster.solution)
        measured.append(
            Measured(cluster.merged.attributes, blocks, 1.0, cluster.solution.reached, cluster.places)
        )
    centres = uniform(workload.schema) if split is None else split.centres
    plan = allocated(
        workload, budget, centres, solutions, measured, bound, centering="optimized", tolerance=tolerance
    )
    if len(measured) == 1 or not combined:
        return plan
    loss = _combined_loss(plan, [] if split is None else split.workload.groups, unsplit)
    return replace(plan, weighted_loss=loss, certificate=replace(plan.certificate, value=loss))


def _combined_loss(plan: Plan, split: Sequence[Group], unsplit: Sequence[Unsplit]) -> float:
    """Return the weighted loss if all answers are combined by generalised least squares.

    What residuals tell of the groups that are split is known in sum: all their loss but that of the total
    that centred queries need. Rows measured whole lower it by what they tell of the same. The other queries
    are combinations of these rows and of the total.
    """
    rows, total = plan.estimator.whole_rows, Group((), ())
    covariances, variance = rows.known(total), float(rows.residual.variances(total, known=True))
    losses = []
    if split:
        losses += [m.variance * m.root_loss**2 for m in plan.measured if not m.whole]
        losses += [-cluster.total_loss * variance for cluster in unsplit]
        losses += [-plan.estimator.gain(group, weighted=True) for group in split]
    for cluster, at in zip(unsplit, rows.slices, strict=True):
        queries = np.zeros((len(cluster.merged.rows), rows.count))
        queries[:, at] = cluster.solution.strategy.combinations(cluster.shifted.rows)
        alpha = np.zeros(len(queries)) if cluster.alpha is None else cluster.alpha
        known = queries @ rows.spread + np.outer(alpha, covariances)
        variances = np.einsum("ij,ij->i", known, queries)
        variances += alpha * (queries @ covariances + alpha * variance)
        before = float(cluster.merged.weights @ variances)
        variances += rows.change(known, queries @ rows.gram)
        losses.append(float(cluster.merged.weights @ variances))
        if losses[-1] < HIDDEN * before:
            msg = "workload: rounding errors hide some queries beside others; use weights that differ less"
            raise PlanError(msg)
    return math.fsum(losses)


# --- queries that are split ---


@dataclass(frozen=True, eq=False)
class SplitRows:
    """What a group of queries leaves on an attribute set."""

    rows: Array
    """Weighted rows, with an axis over classes of values per attribute."""
    classes: Sequence[Integers]
    """The class of every value, by attribute."""


def split_groups(
    centres: Centres, schema: Schema, groups: Sequence[Group], maps: Sequence[Mapping[int, Integers]]
) -> list[dict[Place, SplitRows]]:
    """Return what each group leaves on every set, given classes of its values.

    What groups that ask the same of other attributes leave are the same objects: queries of one kind on many
    sets are split once.
    """
    known: dict[Hashable, dict[Place, SplitRows]] = {}
    left = []
    for group, classes in zip(groups, maps, strict=True):
        attributes = sorted(classes)
        families = [(*map(attributes.index, schema.positions(n)), family.key) for n, family in group.parts()]
        values = [(centres[a].weights.tobytes(), classes[a].tobytes()) for a in attributes]
        key = group.weight, tuple(families), tuple(values)
        if key not in known:
            known[key] = dict(_split(group, schema, classes, [centres[a] for a in attributes]))
        left.append({tuple(attributes[i] for i in kept): rows for kept, rows in known[key].items()})
    return left


def _split(
    group: Group, schema: Schema, classes: Mapping[int, Integers], centres: Sequence[Centre]
) -> Iterator[tuple[Kept, SplitRows]]:
    """Iterate over what a group leaves on sets of its attributes, given their centres."""
    order: list[int] = []
    rows = np.ones(1)
    for names, family in group.parts():
        positions = schema.positions(names)
        tensor = PlacedFamily.on(positions, family).tensor(weighted=True)
        for axis, a in enumerate(sorted(positions), start=1):
            tensor = np.take(tensor, np.unique(classes[a], return_index=True)[1], axis=axis)
        outer = np.multiply.outer(rows, tensor)  # earlier queries and their axes, then these
        outer = np.moveaxis(outer, 1 + len(order), 1)
        rows = outer.reshape(-1, *outer.shape[2:])
        order += sorted(positions)
    rows = np.sqrt(group.weight) * rows.transpose(0, *(1 + order.index(a) for a in sorted(order)))
    maps = [classes[a] for a in sorted(order)]
    coarse = [
        Centre(np.bincount(one, weights=centre.weights).astype(float))
        for one, centre in zip(maps, centres, strict=True)
    ]
    for kept, left in split_rows(rows, coarse).items():
        sizes = (len(coarse[axis]) for axis in kept)
        yield kept, SplitRows(left.reshape(len(rows), *sizes), [maps[axis] for axis in kept])


def split_roots(groups: Iterable[Mapping[Place, SplitRows]]) -> dict[Place, float]:
    """Return lower bounds of the root loss at unit cost on every set, given what groups leave there."""
    together: dict[Place, list[SplitRows]] = {}
    for group in groups:
        for place, rows in group.items():
            together.setdefault(place, []).append(rows)
    root = cache(_root_of_all)
    return {place: root(*rows) for place, rows in together.items()}


def _root_of_all(*parts: SplitRows) -> float:
    """Return the bound for all rows on a set."""
    common = []
    for maps in zip(*(part.classes for part in parts), strict=True):
        joint = np.unique(np.stack(maps), axis=1, return_inverse=True)[1].ravel()
        common.append(np.unique(joint, return_index=True)[1])
    every = []
    for part in parts:
        rows = part.rows
        for axis, (classes, firsts) in enumerate(zip(part.classes, common, strict=True), start=1):
            rows = rows.take(classes[firsts], axis=axis)
        every.append(rows.reshape(len(rows), -1))
    return least_root(independent_root(np.concatenate(every)))
