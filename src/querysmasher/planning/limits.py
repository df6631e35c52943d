"""The tuning constants of planning, in one frozen place.

A number is a limit if it says how much: which sizes are accepted, at which size or amount of work the method
changes, how many steps, rounds or plans a search takes, how close is close enough, how many bits are spent.

A number stays beside its algorithm if it is part of its mathematics or arithmetic: a tolerance of
floating-point arithmetic, the size of an intermediate array (`CHUNK`), the range of exact integers, a
coefficient of a formula, of a quadrature or of one iteration.
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
    """Maximum number of values of any other attribute, unless its queries are few single ones."""
    dense_cells: int = 3_000
    """Maximum number of cells of a block on several attributes whose matrix is written out."""
    joint_dense_cells: int = 4_500
    """The same if the block consists only of queries that tie its attributes together."""
    dense_cells_forced: int = 12_000
    """The same for `solver="dense"`."""
    structured_cells: int = 20_000_000
    """Maximum number of cells of a block whose matrix is not written out."""
    thin_work: float = 4e11
    """Maximum of cells × queries² for a block with few queries, which may have any number of cells."""
    merged_rows: int = 4_000
    """Maximum number of queries whose cells are merged."""
    merged_cells: int = 1_000_000
    """Maximum number of coarse cells, combinations of classes of values, that are merged further."""
    merged_entries: int = 200_000_000
    """Maximum number of entries of queries over merged cells, and of one family over its own cells."""
    merged_small: int = 64_000_000
    """Maximum of queries × cells below which cells are merged for any number of queries."""
    whole_work: float = 5.2e11
    """Maximum of columns × queries² for queries that are measured as they are."""
    beside_work: float = 2e9
    """The same where some of the queries are tables, which can also be split; also to combine both."""
    quick_whole_work: float = 3e7
    """The same for tables alone, and for any queries that are planned whole before anything is split."""
    cluster_cells: int = 200_000
    """Maximum number of coarse cells of a cluster of queries on several attribute sets, measured whole."""
    counted_cells: int = 30_000_000
    """Maximum number of cells of its attributes, whose counts are written out, unless one query has more."""
    tried_cells: int = 1_000
    """Maximum number of cells of a set of tables on which other queries leave something, to split those."""
    recentred: float = 0.8
    """Fraction of the error around uniform centres below which the best centres hardly ever lie."""
    worst_queries: int = 100_000_000
    """Maximum number of queries of a group that are searched for the largest variance."""
    large_worst_queries: int = 5_000_000
    """The same where attributes have very many values."""
    variances: int = 2_000_000_000
    """Maximum number of variances returned at once."""
    straddling_entries: int = 100_000_000
    """Maximum number of entries of product queries that straddle strategies, when written out."""
    node_entries: int = 400_000_000
    """Maximum of queries × nodes of a hierarchy for queries that are not about its nodes."""
    completed_cells: int = 3_000
    """Maximum number of cells on which rows without a lattice are completed to the whole space."""
    checked_queries: int = 20_000
    """Maximum number of queries of a stored workload whose loss is recomputed when the plan is loaded."""
    checked_groups: int = 100
    """The same of groups."""
    worthwhile: float = 0.99
    """A plan that measures more queries whole must have less than this fraction of the other plan's loss."""

    # --- attributes of very many values ---

    line_matrix: int = 400
    """Maximum number of values of a line whose strategy is written out."""
    dense_values: int = 1_500
    """Maximum number of values of an attribute that is always split and solved with matrices written out."""
    mixed_values: int = 64
    """The same for one that several families ask about, if the mean error counts."""
    most_values: int = 1_000_000
    """Maximum number of values of any attribute."""
    waves: int = 24
    """Number of low frequencies that adapt to unequal weights."""
    wave_entries: int = 10_000_000
    """Maximum number of entries of these, as rows over all values."""
    exact_range_work: float = 5e7
    """Maximum of values × distinct ends of ranges whose variances are computed one by one, exactly."""

    # --- the numerical methods that solve blocks ---

    gram_values: int = 256
    """Maximum number of values of an attribute whose queries become a Gram matrix even if they are few."""
    close_cells: int = 256
    """Maximum number of cells of a block that is solved more closely than asked, which takes no time."""
    double_cells: int = 400
    """Maximum number of cells for which the interior-point method sums its Hessian in double precision."""
    lattice_entries: int = 5_000_000
    """Maximum number of entries of integer rows that are decomposed in one piece."""
    light_cells: int = 300
    """Maximum number of cells of a block that takes milliseconds: these are solved in turn, on one core."""
    threaded_cells: int = 1_200
    """Maximum number of cells of a block that is solved on one core, if it is the only heavy one."""
    interior_work: float = 1e9
    """Queries × active cells² of its steps up to which it removes gaps that are small already."""
    bounded_cells: int = 500
    """Maximum number of cells of an unsolved block of several terms that is also bounded as a whole."""
    bounded_work: float = 1e8
    """Maximum of cells × queries² of a larger one, for its queries that tie attributes together."""
    wide_work: float = 4e10
    """Maximum of cells × queries² of all further steps to weigh them, if three rounds do not take more."""
    light_work: float = 1e7
    """Cells × queries² up to which few queries on many cells are weighed in double precision."""
    line_trials: int = 20
    """Maximum number of points tried along one direction of a search."""
    whole_nearness: int = 5
    """Tolerances within which a plan of many whole queries is good enough, if more takes minutes."""

    # --- the bits of strategies in integers ---

    most_bits: int = 14
    """Maximum number of bits per block; more would bring no visible gain."""
    least_bits: int = 4
    """Minimum number of bits per block; with fewer, rounding would be coarse."""
    good_loss: float = 1.005
    """Factor by which rounding multiplies a variance above which more bits are tried."""
    most_loss: float = 4.0
    """The same above which a plan is refused."""
    scaled_bits: int = 8
    """With fewer bits, on few cells, the scale at which rows are rounded matters."""
    scaled_cells: int = 40
    """Maximum number of these cells."""
    repaired_step: int = 2**12
    """Maximum entry of a centre for which sums are repaired unit by unit; beyond, rows are projected."""
    diagonal_bits: int = 10
    """Minimum number of bits of a filter's diagonal: with fewer, it takes some bits of other strategies."""
    filter_bits: int = 9
    """The same of the filter itself."""

    # --- the search for the best centres ---

    many_classes: int = 100
    """Maximum number of classes of attribute sets; beyond, different weights may share a centre."""
    fine_centre: int = 64
    """Maximum size of the integers to which centres are rounded; for more values, their number up to 256."""
    coarse_centre: int = 16
    """The same for attributes measured together with others, where rows need the bits."""
    largest_centre: int = 256
    """Maximum size of the integers of any centre: exact measurement needs small ones."""

    # --- the lower bound on the error of every mechanism ---

    limit_dimension: int = 4_200
    """Maximum dimension of the matrix to decompose; beyond, the limit is bounded by products."""
    product_cells: int = 200_000
    """Maximum number of cells of the attributes asked about for that bound."""
    product_work: float = 2e10
    """Maximum of cells × queries² for queries that tie attributes together, in that bound."""
    quadrature_work: float = 2e9
    """The same for a closer bound by quadrature."""
    product_terms: int = 100
    """Maximum number of other groups in that bound."""
    large_limit_dimension: int = 1_200
    """Maximum dimension for which mixtures are tried; beyond, the search also takes fewer steps."""
    limit_steps: int = 60
    """Maximum number of steps towards the limit."""
    large_limit_steps: int = 8
    """The same above `large_limit_dimension`."""
    limit_gain: float = 1e-7
    """The search for the limit ends when a step raises the logarithm of the bound by less than this."""

    # --- plans for the largest error, for targets and for the least budget ---

    added_cells: int = 3_000
    """Maximum number of cells of a group whose weights may be a sum of products."""
    merged_values: int = 600
    """Maximum number of cells of families that are merged into one, for a multiplier of every query."""
    merged_work: float = 2e9
    """Maximum of cells³ of them, in all groups that differ."""
    merged_numbers: int = 10_000_000
    """Maximum number of entries of their queries, written out."""

    # --- plans meant for estimates ---

    usual_records: int = 30_000
    """The number of records for which a plan states errors if none is given."""
    size_share: float = 0.01
    """Share of the budget by which `measure` learns the number of records if none is given."""
    table_share: float = 0.08
    """Minimum share of the budget for which larger tables themselves are measured."""


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
