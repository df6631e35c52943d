"""The tuning constants of planning: accepted sizes, sizes at which the method changes, and effort.

A constant that only its own algorithm can judge stands beside that algorithm: a tolerance of floating-point
arithmetic, the size of an intermediate array, the steps and damping of one iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PlanningLimits:
    """Limits on size and effort. They affect planning time and accuracy, never the validity of a plan."""

    # --- accepted sizes ---
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
    merged_entries: int = 100_000_000
    """Maximum number of entries of queries over merged cells, and of one family over its own cells."""
    given_entries: int = 200_000_000
    """The same over merged cells, if all queries are given by their rows."""
    merged_small: int = 3_000_000
    """Maximum of queries × cells below which cells are merged for any number of queries."""
    given_small: int = 64_000_000
    """The same for queries given by their rows."""
    whole_work: float = 5.2e11
    """Maximum of columns × queries² for queries that are measured as they are."""
    mixed_whole_work: float = 4e10
    """The same where some of the queries are tables, which are also planned split."""
    quick_whole_work: float = 3e7
    """The same for tables alone, and for any queries that are planned whole before anything is split."""
    beside_work: float = 2e9
    """The same for queries measured whole beside tables that are split."""
    beside_entries: int = 30_000_000
    """Maximum number of entries of such queries over the coarse cells of their attributes."""
    cluster_cells: int = 200_000
    """Maximum number of coarse cells of a cluster of queries on several attribute sets, measured whole."""
    counted_cells: int = 30_000_000
    """Maximum number of cells of its attributes, whose counts are written out, unless one query has more."""
    most_unsplit: int = 40
    """Maximum number of attribute sets on which queries are measured whole beside others."""
    split_entries: int = 20_000
    """Maximum of cells × queries of queries that are tried split although they can be measured whole."""
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
    class_entries: int = 2_000_000
    """Maximum number of cells on which what is left of queries is written out."""
    node_entries: int = 400_000_000
    """Maximum of queries × nodes of a hierarchy for queries that are not about its nodes."""
    completed_cells: int = 3_000
    """Maximum number of cells on which rows without a lattice are completed to the whole space."""

    # --- attributes of very many values ---
    dense_values: int = 1_500
    """Maximum number of values of an attribute that is always split and solved with matrices written out."""
    most_values: int = 1_000_000
    """Maximum number of values of any attribute."""
    waves: int = 24
    """Number of low frequencies that adapt to unequal weights."""
    wave_entries: int = 10_000_000
    """Maximum number of entries of these, as rows over all values."""
    triangle_values: int = 250_000
    """Maximum number of values of an attribute whose strategy follows the weight of every single prefix."""
    balance_steps: int = 40
    """Maximum number of steps towards the distribution that determines it."""
    written_values: int = 2_000
    """Maximum number of values of an attribute whose V⁻¹ is written out for the variances of ranges."""
    exact_range_work: float = 5e7
    """Maximum of values × distinct ends of ranges whose variances are computed one by one, exactly."""
    quick_values: int = 20_000
    """Maximum number of values of an attribute that is planned quickly; beyond, fewer plans are tried."""
    path_steps: int = 4
    """Number of steps towards the lower bound of weighted prefixes."""

    # --- solving blocks ---
    gram_values: int = 256
    """Maximum number of values of an attribute whose queries become a Gram matrix even if they are few."""
    close_cells: int = 256
    """Maximum number of cells of a block that is solved more closely than asked, which takes no time."""
    double_cells: int = 400
    """Maximum number of cells for which the interior-point method sums its Hessian in double precision."""
    lattice_entries: int = 5_000_000
    """Maximum number of entries of integer rows that are decomposed in one piece."""
    covariance_cells: int = 4_000
    """Maximum number of coarse cells whose covariances are written out."""
    light_cells: int = 300
    """Maximum number of cells of a block that takes milliseconds: these are solved in turn, on one core."""
    threaded_cells: int = 1_200
    """Maximum number of cells of a block that is solved on one core, if it is the only heavy one."""
    interior_cells: int = 1_200
    """Maximum number of cells for the interior-point method; beyond, it runs on the active ones only."""
    interior_work: float = 1e9
    """Queries × active cells² of its steps up to which it removes gaps that are small already."""
    bounded_cells: int = 500
    """Maximum number of cells of an unsolved block of several terms that is also bounded as a whole."""
    bounded_work: float = 1e8
    """Maximum of cells × queries² of a larger one, for its queries that tie attributes together."""
    blends: tuple[float, ...] = (0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
    """Shares of the strongest term's Gram that structured strategies try in the blend of an axis."""
    rotations: int = 3
    """Number of an axis's Grams that structured strategies try to make diagonal."""
    screening_steps: int = 8
    """Number of iterations after which structured candidates are compared."""
    final_steps: int = 120
    """Maximum number of iterations of the best structured candidate."""

    wide_steps: int = 15
    """Effort to weigh few queries on many cells, in steps over all cells: where these take long."""
    wide_work: float = 2e10
    """The same, in cells × queries² of all steps: where these take little time."""
    active_cells: int = 30
    """Number of cells per independent query that take part first."""
    joining_cells: int = 12
    """Maximum number of cells per independent query that join at a time."""
    middle_work: float = 3e8
    """Maximum of cells × queries² of one step up to which a stalled search is begun anew, more exactly."""
    light_work: float = 1e7
    """Cells × queries² of a design that takes milliseconds."""

    # --- choosing centres ---
    joint_cells: int = 400
    """Maximum number of cells of a block on several attributes that is solved; larger ones are estimated."""
    thin_cells: int = 12_000
    """The same for thin blocks."""
    heavy_cells: int = 1_000
    """Maximum number of cells of a block that is quick to evaluate; larger ones leave time for few steps."""
    tight_cells: int = 64
    """Maximum number of cells of a block that is solved tightly, which costs nothing at this size."""
    search_gap: float = 1e-5
    """Gap to which the search solves blocks. Its value, a maximum, is far more exact; derivatives are not."""
    tight_gap: float = 1e-8
    """The same for small blocks, and for a search that is stuck."""
    heavy_gap: float = 1e-4
    """The same for heavy blocks."""
    own_gap: float = 1e-3
    """Gap to which designs are solved that only determine a centre of more than `light_cells` values."""
    rough_gap: float = 1e-2
    """The same in the first round, while the weight of the total is a guess."""
    own_change: float = 3e-3
    """Maximum change of the weight of the total, as a fraction, in the last round of designs."""
    search_steps: int = 60
    """Maximum number of steps of the search."""
    heavy_steps: int = 10
    """The same where evaluations are heavy."""
    search_gain: float = 2e-6
    """The search ends when a step gains less than this fraction."""
    heavy_gain: float = 2e-5
    """The same where evaluations are heavy."""
    first_step: float = 0.3
    """Length of the first step, as a fraction of the uniform centre's length."""
    many_classes: int = 100
    """Maximum number of classes of attribute sets; beyond, different weights may share a centre."""
    partial_ways: tuple[float, ...] = (1.0, 0.4, 0.1)
    """Fractions of the way from uniform centres to try if the search only estimates: estimates overshoot."""
    fine_centre: int = 64
    """Maximum size of the integers to which centres are rounded; for more values, their number up to 256."""
    coarse_centre: int = 16
    """The same for attributes measured together with others, where rows need the bits."""

    # --- the limit of all mechanisms ---
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
