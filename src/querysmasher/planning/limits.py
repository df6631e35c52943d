"""What planning takes on, and how much effort it spends: one place for every tuning constant.

Tolerances of floating-point arithmetic are not among them; they stand beside the arithmetic they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PlanningLimits:
    """Sizes and efforts of planning. They change what a plan costs and how good it is, never its validity."""

    # --- what is taken on ---
    closed_form_values: int = 12_000
    """Maximum number of values for attributes asked only in ways that look alike from every value."""
    axis_values: int = 6_000
    """Maximum number of values for attributes asked in any other way than by few single queries."""
    dense_cells: int = 3_000
    """Maximum number of cells of a block on several attributes that is written out."""
    dense_cells_forced: int = 12_000
    """The same for `solver="dense"`."""
    structured_cells: int = 20_000_000
    """Maximum number of cells of a block that is not written out."""
    thin_work: float = 4e11
    """Maximum cells × queries² of a block that is solved by its few queries, whatever its cells."""
    merged_rows: int = 1_500
    """Maximum number of queries whose cells are merged."""
    merged_cells: int = 1_000_000
    """Maximum number of combinations of classes of values that merging looks at."""
    merged_entries: int = 100_000_000
    """Maximum number of entries of queries over merged cells, and of one family over its own cells."""
    worst_queries: int = 100_000_000
    """Maximum number of queries of a group that are looked at for the worst."""
    variances: int = 2_000_000_000
    """Maximum number of variances that are returned at once."""
    straddling_entries: int = 100_000_000
    """Maximum number of entries to which product queries that straddle strategies are written out."""

    # --- solving blocks ---
    light_cells: int = 300
    """Up to this size blocks take milliseconds: they are solved in turn, on one core each."""
    threaded_cells: int = 1_200
    """Larger blocks are worth several threads for their matrix products."""
    interior_cells: int = 1_200
    """Up to this size the interior-point method takes all cells at once; beyond, only the active ones."""
    bounded_cells: int = 500
    """Up to this size blocks of several terms that are not solved are also bounded as a whole."""
    blends: tuple[float, ...] = (0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
    """Shares of the strongest term's Gram that structured strategies try in the blend of an axis."""
    rotations: int = 3
    """How many of an axis's Grams structured strategies try as the diagonal one."""
    screening_steps: int = 8
    """Iterations after which structured candidates are compared."""
    final_steps: int = 120
    """Maximum number of iterations of the best structured candidate."""

    # --- choosing centres ---
    joint_cells: int = 400
    """Up to this size the search solves blocks on several attributes exactly; beyond, it estimates them."""
    thin_cells: int = 6_000
    """The same for thin blocks."""
    heavy_cells: int = 1_000
    """A larger block makes an evaluation take seconds: the search must do with few of them."""
    tight_cells: int = 64
    """Up to this size blocks are solved tightly, as it costs nothing."""
    search_gap: float = 1e-5
    """How exactly the search solves blocks. Its value, a maximum, is far more exact; derivatives are not."""
    tight_gap: float = 1e-8
    """The same for small blocks, and for a search that got stuck."""
    heavy_gap: float = 1e-4
    """The same for heavy blocks."""
    search_steps: int = 60
    """Maximum number of steps of the search."""
    heavy_steps: int = 8
    """The same where evaluations are heavy."""
    search_gain: float = 2e-6
    """The search ends when a step gains less than this fraction."""
    heavy_gain: float = 2e-4
    """The same where evaluations are heavy."""
    first_step: float = 0.3
    """Length of the first step, as a fraction of the uniform centre's length."""
    many_classes: int = 100
    """With more classes of attribute sets, attributes that differ in weights only share a centre too."""
    partial_ways: tuple[float, ...] = (1.0, 0.4, 0.1)
    """Where the search only estimates, it tries so much of the way from uniform: estimates overshoot."""
    fine_centre: int = 64
    """Centres are rounded to integers of at most this size."""
    coarse_centre: int = 16
    """The same for attributes measured together with others, where rows need the bits."""

    # --- the limit of all mechanisms ---
    limit_dimension: int = 4_200
    """Maximum dimension of the matrix that is decomposed; beyond, the limit is not computed."""
    large_limit_dimension: int = 1_200
    """Above this dimension mixtures are left out, and fewer steps are made."""
    limit_steps: int = 60
    """Maximum number of steps towards the limit."""
    large_limit_steps: int = 8
    """The same above `large_limit_dimension`."""
    limit_gain: float = 1e-7
    """The search for the limit ends when a step raises the logarithm of the bound by less."""


_in_force = [PlanningLimits()]


def limits() -> PlanningLimits:
    """Return the limits in force."""
    return _in_force[-1]


@contextmanager
def limited(**changes: Any) -> Iterator[PlanningLimits]:
    """Put other limits in force for a while, for all threads: for tests, and for trying them out."""
    _in_force.append(replace(limits(), **changes))
    try:
        yield limits()
    finally:
        _in_force.pop()
