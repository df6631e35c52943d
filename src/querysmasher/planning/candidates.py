"""Which queries are measured as they are, and which are split over residual spaces.

Splitting pays where many attribute sets share parts; few queries that tie attributes are better measured
whole, at the optimum over all mechanisms (`mechanisms.whole`). A candidate says which groups stay whole, and
in which clusters; the others are split. There are three: nothing is whole; the queries given by their rows
(predicates, `linear`, `a + b <= c`) are, beside tables that are split; all queries are, together. Each has a
lower bound on its error (`bounds`). They are planned in order of bounds, except those whose bound shows that
they cannot be clearly better than the best plan so far. The optimum over all mechanisms ends the search.

Measuring queries together is never worse than measuring them apart, so clusters grow while the cells that
their queries distinguish are few. Every cluster would learn the number of records anew. Instead its queries
are centred: q − α·1 is measured, and the total once for all of them, from which α·1 follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import mul

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, one_core
from querysmasher.errors import PlanError
from querysmasher.planning.allocation import allocated
from querysmasher.planning.bounds import Place, least_clustered, split_groups, split_roots
from querysmasher.planning.cells import MergedRows, are_given, height, merge, value_classes
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms.whole import root_of, solve_whole, whole_work
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Measured, Solution
from querysmasher.planning.solvers.bounds import least_root, root_diagonal
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.unit import Unit
from querysmasher.progress import Bar
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

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
        with working(self.merged, progress):
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


@contextmanager
def working(merged: MergedRows, progress: bool | None) -> Iterator[None]:
    """Show that work is in progress; with one core, unless matrices are large."""
    small = min(merged.rows.shape) <= limits().threaded_cells
    with Bar("Solving", None, progress), one_core() if small else nullcontext():
        yield


# --- the search ---


@dataclass(frozen=True, eq=False)
class Candidate:
    """Groups that are measured as they are, in clusters; the others are split."""

    clusters: Callable[[], Sequence[Cluster]]
    bound: Callable[[Plan | None], float]
    """A lower bound on its root loss at unit cost, given the best plan so far."""
    handicap: float = 1.0
    """Factor of its loss in comparisons: a plan that measures more queries whole must be clearly better."""
    coarseness: float = 1.0
    """How much coarser than the plan its clusters are solved: they are a part of its error."""
    is_optimal: bool = False
    """Whether no mechanism is better."""


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
    refusals: dict[float, PlanError] = {}
    for candidate in _candidates(workload, budget.unit, centred, lines):
        if best is not None and candidate.bound(best) >= math.sqrt(limits().worthwhile) * root_loss(best):
            continue
        clusters = candidate.clusters()
        if not clusters and candidate.handicap > 1:
            continue  # its queries are too many to be measured whole
        coarse = tolerance * candidate.coarseness
        made = planned([cluster.solved(coarse, progress) for cluster in clusters])
        if isinstance(made, PlanError):
            refusals[candidate.handicap] = made
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
    work = most.whole_work if len(given) == count else min(most.whole_work, most.mixed_whole_work)
    merged = merged_groups(workload, range(count), work) if given or _is_quick(workload) else None
    if merged is not None and merged.rows.shape[1] == 1:  # all queries ask for the number of records
        given, merged = [], None
    every = None
    if merged is not None:
        cluster = Cluster(tuple(range(count)), merged, None)
        every = Candidate(
            lambda: [cluster],
            lambda _: math.sqrt(unit.squared_change()) * least_root(cluster.root),
            1 / most.worthwhile,
            is_optimal=not unit.total_is_public,  # of which rows measured whole make no use
        )
        if (
            every.is_optimal
            and given
            and (len(given) == count or whole_work(merged) <= most.quick_whole_work)
        ):
            yield replace(every, bound=lambda _: 0.0)
            every = None
    yield from _given_or_not(workload, given, unit, centred)
    if every is not None:
        yield every


def _given_or_not(workload: Workload, given: Sequence[int], unit: Unit, centred: bool) -> Iterable[Candidate]:
    """Return the candidates that measure given queries whole or split all, that of the lower bound first."""
    schema, groups = workload.schema, [workload.groups[i] for i in given]
    nothing = Candidate(list, lambda _: 0.0)
    maps = value_classes(schema, groups) if given else None
    places = [] if maps is None else grown(schema, groups, maps)
    if maps is None or not places:
        return [nothing]
    rest = [group for i, group in enumerate(workload) if i not in {given[j] for own in places for j in own}]
    centred = len(places) > 1 and (not rest or (centred and _know_total(rest)))
    change = math.sqrt(unit.squared_change())

    @cache
    def roots(centres: Centres) -> dict[Place, float]:
        """Return what the given queries lose at least on every set if they are split."""
        found = split_roots(split_groups(centres, schema, groups, maps))
        return {
            place: root * math.sqrt(unit.squared_change(total=not place)) for place, root in found.items()
        }

    def known(best: Plan) -> dict[Place, float]:
        """Return what a plan loses on every set that it splits."""
        factors = ((m, math.sqrt(unit.squared_change(total=not m.attributes))) for m in best.measured)
        return {m.attributes: m.root_loss * factor for m, factor in factors if not m.whole}

    @cache
    def clusters() -> list[Cluster]:
        found = []
        for own in places:
            indexes = tuple(given[j] for j in own)
            merged = merged_groups(workload, indexes, limits().beside_work)
            if merged is not None:
                found.append(Cluster(indexes, merged, shares(merged) if centred else None))
        return found if sum(min(own.merged.rows.shape) for own in found) <= limits().beside_rows else []

    @cache
    def least() -> float:
        """Return what clusters lose at least, before any is merged."""
        parts = split_groups(uniform(schema), schema, groups, maps)
        return change * least_clustered(maps, places, parts)

    def bound_whole(best: Plan | None) -> float:
        if best is None:
            return least()
        own = roots(best.centres) if rest else {}
        tables = known(best) if rest else {}
        losses = (max(root**2 - own.get(place, 0.0) ** 2, 0.0) for place, root in tables.items())
        lost = math.fsum(map(math.sqrt, losses))
        if lost + least() >= root_loss(best):
            return lost + least()
        total = math.sqrt(unit.squared_change(total=True) * sum(own.total_loss for own in clusters()))
        return lost + total + change * math.fsum(least_root(own.root) for own in clusters())

    def bound_split(best: Plan | None) -> float:
        if best is None or not rest:
            return limits().recentred * math.fsum(roots(uniform(schema)).values())
        own, tables = roots(best.centres), known(best)
        return math.fsum(math.hypot(own.get(place, 0.0), tables.get(place, 0.0)) for place in {*own, *tables})

    some = Candidate(clusters, bound_whole, 1 / limits().worthwhile, limits().coarse_tolerance)
    split = replace(nothing, bound=bound_split)
    if _shared_cells(schema, rest, maps) > limits().tried_cells:
        return [some, replace(nothing, bound=lambda best: 0.0 if best is None else math.inf)]  # takes long
    if rest and len(places) == 1:
        return [some, split]
    return sorted((split, some), key=lambda candidate: candidate.bound(None))


def _shared_cells(schema: Schema, tables: Sequence[Group], maps: Sequence[Mapping[int, Integers]]) -> float:
    """Return the largest number of cells of a set on which both tables and given queries leave something."""
    asked = np.zeros((2, max(len(tables), len(maps)), len(schema)))
    for number, group in enumerate(tables):
        asked[0, number, schema.positions(group.attributes)] = 1.0
    for number, classes in enumerate(maps):
        asked[1, number, list(classes)] = 1.0
    return float(np.exp(((asked[0] * np.log(schema.sizes)) @ asked[1].T).max())) if tables else 0.0


def _is_few(group: Group) -> bool:
    """Return whether a group consists of a limited number of queries, at least partly given by rows."""
    entries = group.rows * math.prod(family.cells for family in group.families)
    return are_given(group) and (group.rows <= limits().merged_rows or entries <= limits().given_small)


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

    `maps` has the class of every value in each group, by attribute. Two clusters are joined whose union
    distinguishes the fewest cells, as far as is known: an attribute of which the class changes c times from
    one value to the next has at most c + 1 classes, and changes add up.
    """
    attributes = sorted({a for classes in maps for a in classes})
    values = np.log([schema.sizes[a] for a in attributes])
    joint = [np.unique(np.stack([own[a] for own in maps if a in own]), axis=1).shape[1] for a in attributes]
    most = math.log(max(min(limits().cluster_cells, limits().merged_cells), 1))

    def cells(changes: Array) -> Array:
        return np.asarray(np.log(np.minimum(changes + 1, joint)).sum(axis=1))

    def fit(cells: Array, rows: Array) -> NDArray[np.bool_]:
        work = math.log(limits().beside_work) if limits().beside_work > 0 else -math.inf
        return np.asarray((cells <= most) & (cells + 2 * np.log(rows) <= work))

    def clustered(members: Sequence[Sequence[int]]) -> tuple[Array, Array]:
        """Return the changes of every attribute, and the rows, of clusters."""
        changes = [[_changes(maps, own, a) for a in attributes] for own in members]
        rows = [sum(groups[number].rows for number in own) for own in members]
        table = np.array(changes, dtype=float).reshape(len(members), len(attributes))
        return table, np.array(rows, dtype=float)

    def all_fit(members: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
        changes, rows = clustered(members)
        return fit(cells(changes), rows)

    members: list[list[int]] = []
    alone = all_fit([[number] for number in range(len(maps))])
    for number in sorted(np.flatnonzero(alone).tolist(), key=lambda number: -len(maps[number])):
        homes = (own for own in members if maps[number].keys() <= maps[own[0]].keys())
        home = next((own for own in homes if all_fit([[*own, number]])[0]), None)
        members += [[number]] if home is None else []
        if home is not None:
            home.append(number)  # its attributes are among those of the first
    changes, rows = clustered(members)
    asked = np.array([[a in maps[own[0]] for a in attributes] for own in members], dtype=bool)
    asked = asked.reshape(changes.shape)

    def with_others(place: int) -> Array:
        """Return the logarithms of the cells of all unions with one cluster, infinite if it is too large."""
        union = cells(changes + changes[place])
        fits = fit(union, rows + rows[place]) & alive & alive[place]
        fits &= (asked | asked[place]) @ values <= math.log(limits().counted_cells)
        fits[place] = False
        return np.where(fits, union, np.inf)

    alive = np.ones(len(members), dtype=bool)
    sizes = np.array([with_others(i) for i in range(len(members))])
    while np.isfinite(sizes.min(initial=np.inf)):
        first, second = divmod(int(np.argmin(sizes)), len(members))
        members[first] += members[second]
        changes[first] += changes[second]
        asked[first] |= asked[second]
        rows[first] += rows[second]
        alive[second] = False
        sizes[second] = sizes[:, second] = np.inf
        sizes[first] = sizes[:, first] = with_others(first)
    return [sorted(own) for own, lives in zip(members, alive, strict=True) if lives]


def _changes(maps: Sequence[Mapping[int, Integers]], cluster: Sequence[int], attribute: int) -> int:
    """Return how often the class of an attribute changes from one value to the next, in all groups."""
    classes = (maps[number][attribute] for number in cluster if attribute in maps[number])
    return sum(int(np.count_nonzero(np.diff(own))) for own in classes)


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
    unit = budget.unit
    lost = math.sqrt(sum(own.total_loss for own in unsplit))
    solutions = [] if split is None else list(split.solutions)
    measured = [] if split is None else list(split.measured)
    if lost and not unit.total_is_public:
        total = next((m for m in measured if not m.attributes), Measured((), (), 1.0, 0.0))
        others = [m for m in measured if m.attributes]
        measured = [replace(total, root_loss=math.hypot(total.root_loss, lost)), *others]
    weigh = (math.sqrt(unit.squared_change(total=not m.attributes)) for m in measured)
    bound = math.fsum(map(mul, weigh, (m.root_loss for m in measured)))
    bound /= 1 if split is None else 1 + split.gap
    bound += math.sqrt(unit.squared_change()) * math.fsum(own.solution.bound for own in unsplit)
    for own in unsplit:
        blocks = ((tuple(range(len(own.merged.attributes))), len(solutions)),)
        solutions.append(own.solution)
        measured.append(Measured(own.merged.attributes, blocks, 1.0, own.solution.reached, own.places))
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
        losses += [-own.total_loss * variance for own in unsplit]
        losses += [-plan.estimator.gain(group, weighted=True) for group in split]
    for own, at in zip(unsplit, rows.slices, strict=True):
        queries = np.zeros((len(own.merged.rows), rows.count))
        queries[:, at] = own.solution.strategy.combinations(own.shifted.rows)
        alpha = np.zeros(len(queries)) if own.alpha is None else own.alpha
        known = queries @ rows.spread + np.outer(alpha, covariances)
        variances = np.einsum("ij,ij->i", known, queries)
        variances += alpha * (queries @ covariances + alpha * variance)
        before = float(own.merged.weights @ variances)
        variances += rows.weights.change(known, queries @ rows.gram)
        losses.append(float(own.merged.weights @ variances))
        if losses[-1] < HIDDEN * before:
            msg = "workload: rounding errors hide some queries beside others; use weights that differ less"
            raise PlanError(msg)
    return math.fsum(losses)
