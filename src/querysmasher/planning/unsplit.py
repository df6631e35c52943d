"""Queries that are measured as they are, not split over residual spaces."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError, PlanError
from querysmasher.planning.cells import MergedRows, are_given, merge
from querysmasher.planning.clusters import shifted
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms.whole import least_root, root_of, solve_whole, whole_work
from querysmasher.planning.mixture import Unsplit
from querysmasher.planning.plan import Plan
from querysmasher.privacy.unit import Unit
from querysmasher.progress import Bar
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload

Planned = Callable[[Sequence[Unsplit]], Plan]
"""Plans the workload with some groups unsplit and the others split."""

UNMEASURABLE = PlanError, OutsideMeasuredSpaceError
"""Errors of plans that cannot be measured in integers, or of which rounding errors hide what they answer."""


def without(workload: Workload, unsplit: Sequence[Unsplit]) -> Workload | None:
    """Return the groups that are split, or None if there are none."""
    whole = {place for own in unsplit for place in own.places}
    groups = tuple(group for place, group in enumerate(workload) if place not in whole)
    return Workload(workload.schema, groups) if groups else None


def if_measurable(unsplit: Sequence[Unsplit], planned: Planned) -> Plan:
    """Return the plan with some groups unsplit or, if these cannot be measured in integers, without."""
    try:
        return planned(unsplit)
    except UNMEASURABLE:
        return planned([])


def better(first: Plan, unsplit: Sequence[Unsplit], planned: Planned) -> Plan:
    """Return the first plan, unless another is clearly better and can be measured."""
    try:
        other = planned(unsplit)
    except UNMEASURABLE:
        return first
    return other if other.weighted_loss < limits().worthwhile * first.weighted_loss else first


def is_few(group: Group) -> bool:
    """Return whether a group consists of a limited number of queries, at least partly given by rows."""
    entries = group.rows * math.prod(family.cells for family in group.families)
    return are_given(group) and (group.rows <= limits().merged_rows or entries <= limits().given_small)


def merged_groups(workload: Workload, places: Iterable[int], most_work: float) -> MergedRows | None:
    """Return the queries of some groups over their distinct columns, or None if that is too much work."""
    groups = [workload.groups[place] for place in places]
    positions = workload.schema.positions
    attributes = sorted({a for group in groups for a in positions(group.attributes)}) or [0]
    merged = merge(workload.schema, groups, attributes)
    return None if merged is None or whole_work(merged) > most_work or not merged.rows.any() else merged


def solve_unsplit(
    merged: MergedRows,
    places: Iterable[int],
    tolerance: float,
    root: Array | None = None,
    progress: bool | None = None,
    alpha: Array | None = None,
) -> Unsplit:
    """Return the optimum for some groups alone, or less multiples α of the total."""
    if alpha is not None:
        merged = shifted(merged, alpha)
    with working(merged, progress):
        solution = solve_whole(merged, tolerance, root)
    return Unsplit(tuple(places), merged.attributes, solution, merged.rows, merged.weights, alpha)


@dataclass(frozen=True, eq=False)
class Cluster:
    """Queries that may be measured together, each less a multiple α of the total."""

    places: Sequence[int]
    """Indexes of their groups in the workload."""
    merged: MergedRows
    alpha: Array | None = None

    @cached_property
    def root(self) -> Array:
        """Independent rows with the same Gram matrix."""
        return root_of(self.merged if self.alpha is None else shifted(self.merged, self.alpha))

    @property
    def total_loss(self) -> float:
        """The loss per variance of the total."""
        return 0.0 if self.alpha is None else float(self.merged.weights @ self.alpha**2)

    def solved(self, tolerance: float, progress: bool | None) -> Unsplit:
        """Return the optimum for these queries alone."""
        coarse = limits().coarse_tolerance * tolerance
        return solve_unsplit(self.merged, self.places, coarse, self.root, progress, self.alpha)


def least_whole(clusters: Iterable[Cluster], unit: Unit) -> float:
    """Return a lower bound of the root loss at unit cost of measuring queries whole, and the total."""
    known = list(clusters)
    total = math.sqrt(unit.squared_change(total=True) * math.fsum(own.total_loss for own in known))
    return total + math.sqrt(unit.squared_change()) * math.fsum(least_root(own.root) for own in known)


@contextmanager
def working(merged: MergedRows, progress: bool | None) -> Iterator[None]:
    """Show that work is in progress; with one core, unless matrices are large."""
    small = min(merged.rows.shape) <= limits().threaded_cells
    with Bar("Solving", None, progress), one_core() if small else nullcontext():
        yield
