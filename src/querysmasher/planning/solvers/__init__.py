"""Numerical methods: each finds the best strategy it allows for one block.

`solve` chooses by this table, top to bottom:

===============  ==============================================================  =======================
method           block                                                           certificate
===============  ==============================================================  =======================
``circulant``    every Gram is circulant (marginals, circular ranges)            exact, closed form
``dense``        at most 3,000 cells (4,500 if all queries tie the attributes,   within the tolerance
                 6,000 on one attribute), or thin: few queries on many cells
``structured``   up to 50 million cells; and above 500 cells, if the gap of      near-optimal, with a gap
                 queries that do not tie attributes is within 10 tolerances
===============  ==============================================================  =======================

If ``structured`` is chosen and centres are uniform, ``fourier`` is tried too, and the better one is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from querysmasher.arrays import in_order
from querysmasher.errors import TooLargeError
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.optimum import is_circulant, is_thin, solve_circulant, solve_dense
from querysmasher.planning.solvers.structured import solve_fourier, solve_structured
from querysmasher.planning.split import Block

SOLVERS = ("optimal", "dense", "structured")
"""Choices of a user: the table above, or one method for all blocks that it accepts."""

NEAR = 10
"""Accepted gap of a product basis, in tolerances, where the optimum takes long: most of it is the bound's."""

METHODS = {
    "circulant": "the queries look the same from every cell, so the optimum has a closed form",
    "dense": "the block is small, or has few queries, so it is solved to the requested tolerance",
    "structured": "there are too many cells to find the optimum quickly, so strategies have a product basis",
    "fourier": "there are too many cells to find the optimum quickly, and a filter beats a product basis",
    "whole": "the queries are measured together, without splitting: no mechanism is more accurate",
    "line": "several families use the attribute, so it has a separate centre on every attribute set",
    "mirrored": "the attribute has very many values, so a filter that reflects at its ends measures it",
    "coarse": "no query distinguishes some values of the attribute, so only their sums are measured",
    "tree": "the hierarchy of very many values is a tree, so its nodes are counted with one precision each",
    "crossed": "hierarchies of very many values do not nest, so the groups of all are counted together",
}
"""Reasons to choose a method, by its name."""

Solver = Callable[[Block, float], Solution]
"""Finds a strategy for a block, within a tolerance of the best it allows."""

MOST_REMEMBERED = 100
"""Maximum number of solutions of small blocks that are remembered."""

MEMORY: list[dict[Hashable, Solution]] = []
"""Solutions of small blocks, in a process that plans versions of a workload one after the other."""


def solve(block: Block, tolerance: float, *, solver: str = "optimal") -> Solution:
    """Solve one block by the table above, unless its solution is remembered."""
    if not MEMORY or block.cells > limits().light_cells:
        return _solve(block, tolerance, solver)
    remembered, key = MEMORY[-1], (block, tolerance, solver)
    if key not in remembered:
        if len(remembered) >= MOST_REMEMBERED:
            remembered.clear()
        remembered[key] = _solve(block, tolerance, solver)
    return remembered[key]


def _solve(block: Block, tolerance: float, solver: str) -> Solution:
    several = len(block.shape) > 1
    if is_circulant(block):
        return solve_circulant(block)
    most = limits()
    dense_cells = most.dense_cells if several else most.axis_values
    together = several and all(len(term.pieces) == 1 for term in block.terms)
    if together:
        dense_cells = max(dense_cells, most.joint_dense_cells)  # no product basis comes near
    if solver == "dense":
        dense_cells = most.dense_cells_forced
    fits = several and block.cells <= most.structured_cells and max(block.shape) <= most.axis_values
    thin = is_thin(block)
    if not (solver == "structured" and several) and (block.cells <= dense_cells or thin):
        if solver == "optimal" and fits and not (together or thin) and block.cells > most.bounded_cells:
            quick = solve_structured(block, tolerance)
            if quick.gap <= NEAR * tolerance:
                return quick
        return solve_dense(block, tolerance)
    if fits and solver != "dense":
        structured = solve_structured(block, tolerance)
        if solver == "structured" or not all(centre.is_uniform for centre in block.centres):
            return structured
        both = (structured, solve_fourier(block))
        return both[in_order([solution.reached for solution in both])[0]]
    allowed = f"{dense_cells:,}" if solver == "dense" or not several else f"{most.structured_cells:,}"
    msg = (
        f"a subworkload on {len(block.shape)} attributes of sizes {block.shape} mixes "
        f"{len(block.terms)} families of queries over {block.cells:,} cells, more than the {allowed} that "
        f"the solver {solver!r} accepts. Remedies: coarser values or bins for the largest attribute; fewer "
        "attributes at a time; one family per attribute set, which is solved at any size"
    )
    raise TooLargeError(msg)
