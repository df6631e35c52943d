"""Few queries measured as they are: no splitting, and the optimum over all mechanisms.

Cells that no query distinguishes share a column in every strategy inside the queries' row space, so the
optimum is found over the distinct columns (`planning.cells`). It is the optimum of *any* matrix mechanism for
these queries, and nothing else can be answered later than what follows from them.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import TooLargeError
from querysmasher.planning.asking import nothing_to_measure
from querysmasher.planning.cells import MergedRows, merge
from querysmasher.planning.grading import is_graded, lengths
from querysmasher.planning.lattice import Integers, independent, integer_rows
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms.mechanism import Choice, Task
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.design import solve_design
from querysmasher.planning.solvers.optimum import independent_root, root_diagonal
from querysmasher.planning.strategies import MergedStrategy


def choose_whole(task: Task) -> tuple[list[Solution], list[Choice]]:
    """Measure the whole workload on all attributes it asks about."""
    (one,) = task.sets
    with one_core():
        most, count = limits(), task.workload.query_count
        merged = merge(task.workload.schema, task.workload.groups, one.attributes, most.whole_work)
        if merged is None:
            raise TooLargeError(
                f"workload: mechanism='whole' measures at most {most.merged_rows:,} queries on at most "
                f"{most.merged_cells:,} cells that they distinguish, with {most.whole_work:.0e} cells × "
                f"queries², got {count:,} queries. Remedies: fewer queries, or the default mechanism"
            )
        solution = solve_whole(merged, task.tolerance)
    blocks = ((tuple(range(len(one.attributes))), 0),)
    return [solution], [Choice(blocks, solution.reached, solution.bound)]


def root_of(merged: MergedRows) -> Array:
    """Return independent rows with the same Gram matrix as the queries times the roots of their weights.

    They are orthogonal, unless the queries are far apart in size.
    """
    return independent_root(merged.rows * np.sqrt(merged.weights)[:, None])


def solve_whole(merged: MergedRows, tolerance: float, root: Array | None = None) -> Solution:
    """Return the optimal strategy for all queries, over the distinct columns of their cells."""
    if not merged.rows[merged.weights > 0].any():
        raise nothing_to_measure()
    columns = merged.rows.shape[1]
    root = root_of(merged) if root is None else root
    diagonal = root_diagonal(root)
    if diagonal is not None and len(root) == columns > limits().light_cells:
        found = _of_one_root(merged, root, diagonal)
        if found.gap <= tolerance:
            return found
    start = np.ones(columns) if diagonal is None else diagonal**2
    design = solve_design(root, start, tolerance / 4, enough=limits().whole_nearness * tolerance)
    graded, bound = is_graded(root), design.value
    del root  # as large as the queries, like the design
    matrix, reached = design.filled_strategy() if graded else (design.strategy(), design.upper)
    del design
    strategy = _strategy(merged, matrix, _lattice(merged, len(matrix)))
    return Solution(strategy, reached, bound, "whole")


def _of_one_root(merged: MergedRows, root: Array, diagonal: Array) -> Solution:
    """Return the strategy D G^½ D, D = diag(s^{-½}), for orthogonal rows R of full rank with RᵀR = G.

    With R = ΛUᵀ it has the rows Λ^½ Uᵀ D, whose inverse is D⁻¹ U Λ^{-½}. It needs no second decomposition,
    and is close to the optimum unless cells are asked about very unequally.
    """
    own, scale = lengths(root), 1 / np.sqrt(diagonal)
    unit = root / own[:, None]
    loss = np.sqrt(np.outer(own**2, 1 / own)) * ((unit / scale) @ unit.T)
    matrix = root / np.sqrt(own)[:, None] * scale
    bound, reached = float(np.linalg.norm(diagonal)), float(np.linalg.norm(loss))
    return Solution(_strategy(merged, matrix, None), max(reached, bound), bound, "whole")


def _strategy(merged: MergedRows, matrix: Array, lattice: Integers | None) -> MergedStrategy:
    rows = np.ascontiguousarray(matrix)  # as files store it, so that loaded plans predict the same bits
    return MergedStrategy(merged.shape, merged.maps, merged.labels, rows, lattice)


def _lattice(merged: MergedRows, rank: int) -> Integers | None:
    """Return integer rows that span the queries, if these are ratios of integers and leave something out."""
    if rank == merged.rows.shape[1]:
        return None
    whole = integer_rows(merged.spanning)
    if whole is None:
        return None
    rows = independent(whole)
    return rows if len(rows) == rank else None
