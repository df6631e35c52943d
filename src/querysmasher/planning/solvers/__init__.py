"""One solver per file, one signature: (block, tolerance) -> Solution.

`solve` chooses by this table, top to bottom:

===============  ==============================================================  =======================
solver           block                                                           certificate
===============  ==============================================================  =======================
``circulant``    every Gram is circulant (marginals, circular ranges)            exact, closed form
``dense``        at most 3,000 cells, or thin: few queries on many cells         to the tolerance asked
``structured``   up to 20 million cells                                          near-optimal, honest gap
(none)           anything larger                                                 `TooLargeError`
===============  ==============================================================  =======================

Where ``structured`` is taken and centres are uniform, ``fourier`` is tried too and the better one kept.

``plan(solver="dense")`` takes the dense solver up to 12,000 cells; ``plan(solver="structured")``
takes the structured one for every block of several attributes. ``"residual"`` and ``"fourier"`` are the
mechanisms of that name for every block; ``"basis"`` works on whole attribute sets (see `basis`).
"""

from __future__ import annotations

import math

from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.circulant import is_circulant, solve_circulant
from querysmasher.planning.solvers.dense import solve_dense
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.solvers.fourier import has_uniform_centres, solve_fourier
from querysmasher.planning.solvers.residual import solve_residual
from querysmasher.planning.solvers.roots import is_thin
from querysmasher.planning.solvers.structured import solve_structured
from querysmasher.planning.strategies import Strategy
from querysmasher.planning.subworkload import Block

UNIFORM_SOLVERS = ("residual", "basis", "fourier")
"""Mechanisms that are defined for uniform centres only."""

SOLVERS = ("optimal", "dense", "structured", *UNIFORM_SOLVERS)

DENSE_CELLS = 3_000
DENSE_CELLS_FORCED = 12_000
STRUCTURED_CELLS = 20_000_000
AXIS_CELLS = 6_000


def solve(
    block: Block,
    tolerance: float,
    solver: str = "optimal",
    progress: Progress | None = None,
) -> Solution:
    """Solve one block by the table above, and check that every query of it can be answered."""
    solution = _solve(block, tolerance, solver, progress)
    check_answers(block, solution.strategy)
    return solution


def check_answers(block: Block, strategy: Strategy) -> None:
    """Refuse a strategy that leaves a query of the block out, as it may where arithmetic ends."""
    if strategy.rank == math.prod(n - 1 for n in block.shape):
        return  # the whole residual space
    for term in block.terms:
        rows = [(p.axes, p.part.root if (own := p.part.rows) is None else own) for p in term.pieces]
        if not strategy.contains([(axes, own[own.any(axis=1)]) for axes, own in rows]):
            msg = (
                f"workload: queries on {len(block.shape)} attributes of sizes {block.shape} differ so much "
                "in weight or size, or so little from each other, that double precision loses some of them. "
                "Remedies: weights and coefficients that are less far apart, or fewer of these queries"
            )
            raise PlanError(msg)


def _solve(block: Block, tolerance: float, solver: str, progress: Progress | None) -> Solution:
    several = len(block.shape) > 1
    if solver == "residual":
        return solve_residual(block)
    if solver == "fourier":
        return solve_fourier(block)
    if is_circulant(block):
        return solve_circulant(block)
    dense_cells = DENSE_CELLS_FORCED if solver == "dense" else DENSE_CELLS if several else AXIS_CELLS
    if not (solver == "structured" and several) and (block.cells <= dense_cells or is_thin(block)):
        return solve_dense(block, tolerance, progress)
    if several and block.cells <= STRUCTURED_CELLS and max(block.shape) <= AXIS_CELLS and solver != "dense":
        found = solve_structured(block, tolerance, progress)
        if solver == "structured" or not has_uniform_centres(block):
            return found
        return min(found, solve_fourier(block), key=lambda solution: solution.reached)
    allowed = f"{dense_cells:,}" if solver == "dense" or not several else f"{STRUCTURED_CELLS:,}"
    msg = (
        f"a subworkload on {len(block.shape)} attributes of sizes {block.shape} mixes "
        f"{len(block.terms)} families of queries over {block.cells:,} cells, more than the {allowed} that "
        f"the solver {solver!r} can take. Remedies: coarser values or bins for the largest attribute; fewer "
        "attributes at a time; one family per attribute set, which is solved at any size"
    )
    raise TooLargeError(msg)
