"""The tuning constants of planning, in one frozen class.

A number belongs here if it bounds size or effort: the sizes that are accepted, the size or amount of work at
which the method changes, the accuracy at which a search stops, the bits of integer strategies.

A number stays beside its algorithm if it is part of its mathematics or arithmetic: a floating-point
tolerance, the size of an intermediate array (`CHUNK`), the range of exact integers, a coefficient of a
formula, of a quadrature or of an iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PlanningLimits:
    """Limits on size and effort. They affect planning time and accuracy, never the validity of a plan."""

    # --- what is planned at all, and whether it is split ---

    closed_form_values: int = 12_000
    """Maximum number of values of an attribute whose queries all look the same from every value."""
    axis_values: int = 6_000
    """Maximum number of values of any other attribute, unless only a few single queries ask about it."""
    dense_cells: int = 3_000
    """Maximum number of cells of a block on several attributes whose matrix is written out."""
    joint_dense_cells: int = 4_500
    """The same if the block consists only of queries that tie its attributes together."""
    dense_cells_forced: int = 12_000
    """The same for `solver="dense"`."""
    structured_cells: int = 50_000_000
    """Maximum number of cells of a block whose matrix is not written out, and of the table of a cluster."""
    thin_work: float = 4e11
    """Maximum of cells × queries² for a block with few queries, which may have any number of cells."""
    merged_rows: int = 4_000
    """Maximum number of queries whose cells are merged, or whose loss is recomputed when a plan is loaded."""
    merged_cells: int = 1_000_000
    """Maximum number of coarse cells, combinations of classes of values, that queries distinguish."""
    merged_entries: int = 200_000_000
    """Maximum number of entries of queries that are written out over cells, merged or not, or over nodes."""
    whole_work: float = 5.2e11
    """Maximum of columns × queries² for queries that are measured whole."""
    beside_work: float = 2e9
    """The same where tables, which can be split, are among the queries or are combined with them."""
    worst_queries: int = 100_000_000
    """Maximum number of queries of a group that are searched for the largest variance."""
    large_worst_queries: int = 5_000_000
    """Maximum number of queries of a family for that search, if the plan has lines."""
    variances: int = 2_000_000_000
    """Maximum number of variances returned at once."""
    worthwhile: float = 0.99
    """A plan that measures queries whole must have less than this fraction of the loss of a split plan. So
    must one that ties no attributes, where counts by these are exact, of one that does."""

    # --- attributes with impossible combinations ---

    tied_values: int = 500
    """Maximum number of possible combinations of attributes that are planned as one."""
    constrained_cells: int = 2_000
    """Maximum number of impossible cells that are measured, and to which answers are then fitted."""

    # --- attributes of very many values ---

    line_matrix: int = 400
    """Maximum number of values of a line whose strategy is written out."""
    dense_values: int = 1_500
    """Maximum number of values of an attribute that is always split and solved with matrices written out."""
    mixed_values: int = 40
    """The same if a hierarchy or several families ask about the attribute, in a plan for the mean error."""
    most_values: int = 1_000_100
    """Maximum number of values of any attribute: a million steps, and a few values beside them."""
    crossed_entries: int = 20_000_000
    """Maximum of groups × groups outside the largest level, of hierarchies that do not nest."""
    waves: int = 24
    """Number of low frequencies that adapt to unequal weights."""
    wave_entries: int = 10_000_000
    """Maximum number of entries of these, as rows over all values."""
    exact_range_work: float = 5e7
    """Maximum of values × distinct ends of ranges whose variances are computed one by one, exactly."""

    # --- the numerical methods that solve blocks ---

    light_cells: int = 300
    """Maximum number of cells of a block, or of values of an attribute, that takes milliseconds."""
    threaded_cells: int = 1_500
    """Maximum number of cells of a block for one core, and of predicates that are split beside tables."""
    interior_work: float = 5e8
    """Maximum of queries × cells² for which the interior point also closes gaps that are small already."""
    bounded_cells: int = 500
    """Maximum number of cells, or kinds of cells, of a block of several terms that is bounded as a whole;
    and for which no product basis is tried before it is solved to the optimum."""
    paired_cells: int = 300
    """Maximum number of cells for which all pairs are weighed, if a record is replaced."""
    coupled_gap: float = 0.01
    """The gap above which the closest bound on split plans is found, if a record is replaced."""
    coupled_sets: int = 25
    """Number of kinds of attribute sets, the heaviest, that guide the search for that bound."""
    coupled_work: float = 1e7
    """Maximum of rows² × cells of all blocks for that bound."""
    light_work: float = 3e7
    """Maximum of columns × queries² up to which a plan that measures tables whole is tried."""
    whole_nearness: int = 8
    """Accepted gap of a plan of many whole queries, in tolerances, if a smaller gap would take minutes."""

    # --- the bits of strategies in integers ---

    most_bits: int = 15
    """Maximum number of bits per block; more would bring no visible gain."""
    least_bits: int = 4
    """Minimum number of bits per block; with fewer, rounding would be coarse."""
    good_loss: float = 1.005
    """If rounding multiplies a variance by more than this factor, more bits are tried."""
    most_loss: float = 4.0
    """If rounding multiplies a variance by more than this factor, the plan is refused."""

    # --- the search for the best centres ---

    centre_integers: int = 32
    """Maximum size of the integers to which centres are rounded; the number of values, if that is more."""
    largest_centre: int = 256
    """Maximum size of the integers of any centre: exact measurement needs small ones."""

    # --- the lower bound on the error of every mechanism ---

    limit_dimension: int = 4_200
    """Maximum dimension of the matrix to decompose; beyond, the limit is bounded by products."""
    product_cells: int = 200_000
    """Maximum number of cells of the workload's attributes for that bound."""
    product_work: float = 2e9
    """Maximum of cells × queries² for queries that tie attributes together, and of cells × products²."""

    # --- plans for the largest error, for targets and for the least budget ---

    merged_values: int = 600
    """Maximum number of cells of families that are merged into one, for a multiplier of every query."""
    merged_work: float = 2e9
    """Maximum of the sum of cells³ over these merged families."""
    merged_numbers: int = 10_000_000
    """Maximum number of entries of their queries, written out."""

    # --- plans meant for estimates ---

    usual_records: int = 30_000
    """The number of records for which a plan states errors if none is given."""
    size_share: float = 0.01
    """Share of the budget by which `measure` learns the number of records if none is given."""
    table_share: float = 0.08
    """Minimum share of the budget that larger tables themselves get; below, they get none."""


_in_force = [PlanningLimits()]


def limits() -> PlanningLimits:
    """Return the limits in force."""
    return _in_force[-1]


@contextmanager
def limited(**changes: Any) -> Iterator[PlanningLimits]:
    """Change limits inside a `with` block, in all threads: for tests and experiments."""
    _in_force.append(replace(limits(), **changes))
    try:
        yield limits()
    finally:
        _in_force.pop()
