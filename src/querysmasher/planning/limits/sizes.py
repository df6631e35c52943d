"""Limits on what is planned at all, and whether it is split."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class SizeLimits:
    """Limits on what is planned at all, and whether it is split."""

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
    beside_rows: int = 2_000
    """Maximum number of such queries in all."""
    most_unsplit: int = 40
    """Maximum number of attribute sets on which queries are measured whole beside others."""
    split_entries: int = 20_000
    """Maximum of cells × queries of queries that are tried split although they can be measured whole."""
    splits_well: float = 1.1
    """Queries beside tables are split if that costs less than this multiple of measuring them whole: tables
    share the cost of what queries leave on their sets."""
    split_gain: float = 1.04
    """Splitting is tried if it may lower the error of queries measured whole beside tables by this factor."""
    tried_cells: int = 1_000
    """Maximum number of cells of a set on which both tables and other queries leave something, to try it."""
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
    kept_queries: int = 10_000
    """Maximum number of queries of a group whose variances are kept."""
    checked_queries: int = 20_000
    """Maximum number of queries of a stored workload whose loss is recomputed when the plan is loaded."""
    checked_groups: int = 100
    """The same of groups."""
    mixture_steps: int = 10
    """Number of shares of the budget that are tried for queries measured whole beside split ones."""
    worthwhile: float = 0.99
    """A plan that measures more queries whole must have less than this fraction of the other plan's loss."""
    coarse_tolerance: int = 16
    """Factor of the tolerance for queries measured whole beside other queries."""
