"""The optimal strategy of a block small enough, or thin enough, to write out a root of its Gram."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, square_root
from querysmasher.planning.grading import is_graded
from querysmasher.planning.lattice import Integers, independent
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.solvers.optimize import solve_design
from querysmasher.planning.solvers.roots import RANK, block_root
from querysmasher.planning.strategies import DenseStrategy
from querysmasher.planning.subworkload import Block


def solve_dense(block: Block, tolerance: float, progress: Progress | None = None) -> Solution:
    """Return a strategy within `tolerance` of the optimum (much closer for small blocks, at no cost)."""
    root = block_root(block)
    effort = 100 if block.cells <= limits().close_cells else 4 if block.cells <= limits().dense_cells else 1
    target = tolerance / effort
    if len(root) * 2 > root.shape[1]:
        design = solve_design(root, start_weights(block), target, progress)
        back = np.arange(root.shape[1])
    else:  # cells that no query distinguishes share a column: solve with one of each
        merged, back = _merge_cells(root)
        design = solve_design(merged, np.full(merged.shape[1], 1.0), target, progress)
    matrix, reached = design.strategy(), design.upper
    if is_graded(root):
        matrix, reached = design.filled_strategy()
    matrix = matrix[:, back]
    strategy = DenseStrategy(block.shape, matrix, _lattice(block, len(matrix)))
    return Solution(strategy, reached, design.value, "dense")


def _lattice(block: Block, rank: int) -> Integers | None:
    """Return integer rows that span a rank-deficient block, if its parts have any."""
    if rank == math.prod(n - 1 for n in block.shape):
        return None
    known = [term.pieces[0].part.lattice for term in block.terms if len(term.pieces) == 1]
    rows = [lattice for lattice in known if lattice is not None]
    if len(rows) < len(block.terms):
        return None
    stacked = independent(np.concatenate(rows))
    return stacked if len(stacked) == rank else None


def start_weights(block: Block) -> Array:
    """Return the product of each axis's own optimal weights: close to the optimum of the whole."""
    weights = np.ones(())
    for axis, (size, centre) in enumerate(zip(block.shape, block.centres, strict=True)):
        if centre.start is not None:
            weights = np.multiply.outer(weights, centre.start)
            continue
        blend = axis_blend(block, axis)
        own = np.full(size, 1.0 / size)
        if blend is not None and len(block.shape) > 1:
            own = solve_design(square_root(blend, RANK), own, 1e-4).weights
        weights = np.multiply.outer(weights, own)
    return weights.ravel()


def axis_blend(block: Block, axis: int) -> Array | None:
    """Return the sum of the Grams on one axis, traced over the others, each with its share of the energy."""
    blend = None
    for term in block.terms:
        for piece in term.pieces:
            if axis in piece.axes:
                others = math.prod(other.part.trace for other in term.pieces if other is not piece)
                own = term.coefficient * others * piece.part.partial_trace(piece.axes.index(axis))
                blend = own if blend is None else blend + own
    return blend


def _merge_cells(root: Array) -> tuple[Array, NDArray[np.intp]]:
    """Return the distinct columns, and the index of every cell's column."""
    # Each row in its own scale if they are far apart: short rows, too, must distinguish cells.
    scale = np.abs(root).max(axis=1 if is_graded(root) else None, keepdims=True)
    scale = np.maximum(scale, np.finfo(float).tiny)
    _, first, back = np.unique(
        np.round(root / scale, 10) + 0.0, axis=1, return_index=True, return_inverse=True
    )
    return root[:, first], back
