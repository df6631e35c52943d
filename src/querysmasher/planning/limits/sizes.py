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
    cluster_cells: int = 200_000
    """Maximum number of coarse cells of a cluster of queries on several attribute sets, measured whole."""
    counted_cells: int = 30_000_000
    """Maximum number of cells of its attributes, whose counts are written out, unless one query has more."""
    beside_rows: int = 2_000
    """Maximum number of such queries in all."""
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
    kept_queries: int = 10_000
    """Maximum number of queries of a group whose variances are kept."""
    checked_queries: int = 20_000
    """Maximum number of queries of a stored workload whose loss is recomputed when the plan is loaded."""
    checked_groups: int = 100
    """The same of groups."""
    worthwhile: float = 0.99
    """A plan that measures more queries whole must have less than this fraction of the other plan's loss."""
    coarse_tolerance: int = 16
    """Factor of the tolerance for queries measured whole beside other queries."""
