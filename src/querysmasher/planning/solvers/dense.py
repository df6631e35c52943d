"""The optimal strategy of a block small enough, or thin enough, to write out a root of its Gram."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes, square_root
from querysmasher.planning.centering import complement
from querysmasher.planning.lattice import Integers, independent
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.solvers.optimize import solve_design
from querysmasher.planning.strategy import DenseStrategy
from querysmasher.planning.subworkload import Block, Part, Piece

THIN_WORK = 4e11
"""A thin root of r rows over N cells is taken while r²·N is below this: minutes, not hours."""

RANK = 1e-10
"""Singular values below this fraction of the largest are rounding error."""


def is_thin(block: Block, parts: Mapping[int, Part]) -> bool:
    """Tell whether the block has far fewer queries than cells, all of them written out as rows."""
    if any(len(pieces) > 1 or not parts[pieces[0][1]].thin for _, pieces in block.terms):
        return False
    rows = sum(len(parts[pieces[0][1]].content) for _, pieces in block.terms)
    return rows <= block.cells / 2 and rows**2 * block.cells <= THIN_WORK


def solve_dense(
    block: Block, parts: Mapping[int, Part], tolerance: float, progress: Progress | None = None
) -> Solution:
    """Return a strategy within `tolerance` of the optimum (small blocks: far within, as it costs nothing)."""
    root = block_root(block, parts)
    target = tolerance / 100 if block.cells <= 256 else tolerance / 4
    if len(root) * 2 > root.shape[1]:
        design = solve_design(root, start_weights(block, parts), target, progress)
        matrix = design.strategy()
    else:  # cells that no query tells apart share a column: solve with one of each
        merged, back = _merge_cells(root)
        design = solve_design(merged, np.full(merged.shape[1], 1.0), target, progress)
        matrix = design.strategy()[:, back]
    strategy = DenseStrategy(block.shape, matrix, _lattice(block, parts, len(matrix)))
    return Solution(strategy, design.upper, design.value, "dense")


def _lattice(block: Block, parts: Mapping[int, Part], rank: int) -> Integers | None:
    """Return whole-number rows that span a rank-deficient block, if its parts know any."""
    if rank == math.prod(n - 1 for n in block.shape):
        return None
    known = [parts[pieces[0][1]].lattice for _, pieces in block.terms if len(pieces) == 1]
    rows = [lattice for lattice in known if lattice is not None]
    if len(rows) < len(block.terms):
        return None
    stacked = independent(np.concatenate(rows))
    return stacked if len(stacked) == rank else None


def block_root(block: Block, parts: Mapping[int, Part]) -> Array:
    """Return independent rows R with RᵀR the block's Gram."""
    return _thin_root(block, parts) if is_thin(block, parts) else _gram_root(block, parts)


def start_weights(block: Block, parts: Mapping[int, Part]) -> Array:
    """Return the product of each axis's own optimal weights: close to the optimum of the whole."""
    weights = np.ones(())
    for axis, size in enumerate(block.shape):
        blend = axis_blend(block, parts, axis)
        own = np.full(size, 1.0 / size)
        if blend is not None and len(block.shape) > 1:
            own = solve_design(square_root(blend, RANK), own, 1e-4).weights
        weights = np.multiply.outer(weights, own)
    return weights.ravel()


def axis_blend(block: Block, parts: Mapping[int, Part], axis: int) -> Array | None:
    """Return the sum of the Grams that stand on one axis alone, each with its share of the total energy."""
    blend = None
    for coefficient, pieces in block.terms:
        energies = {axes: parts[p].trace for axes, p in pieces if len(axes) == 1}
        for axes, part in pieces:
            if axes == (axis,):
                others = math.prod(e for a, e in energies.items() if a != axes)
                term = coefficient * others * parts[part].partial_trace(0)
                blend = term if blend is None else blend + term
    return blend


def _thin_root(block: Block, parts: Mapping[int, Part]) -> Array:
    stacked = [math.sqrt(c) * parts[number].content for c, ((_, number),) in block.terms]
    _, values, vectors = np.linalg.svd(np.concatenate(stacked), full_matrices=False)
    keep = values > RANK * values[0]
    return values[keep, None] * vectors[keep]


def _gram_root(block: Block, parts: Mapping[int, Part]) -> Array:
    """Return R with RᵀR the block's Gram, worked out inside the residual space, whose rank is known."""
    centres = {
        axis: centre
        for axes, number in block.terms[0][1]
        for axis, centre in zip(axes, parts[number].centres, strict=True)
    }
    inside = [complement(centres[axis]) for axis in range(len(block.shape))]
    gram = np.zeros(())
    for coefficient, pieces in block.terms:
        gram = gram + coefficient * _term_gram(pieces, parts, inside)
    try:
        root = np.asarray(np.linalg.cholesky(gram).T, dtype=float)
        pivots = np.diagonal(root)
        full = bool(pivots.min() > 1e-7 * pivots.max())
    except np.linalg.LinAlgError:
        full = False
    if not full:
        root = square_root(gram, RANK)
    tensor = root.reshape(-1, *(len(f) for f in inside))
    return np.ascontiguousarray(along_axes(tensor, 1, inside).reshape(len(root), -1))


def _term_gram(pieces: Sequence[Piece], parts: Mapping[int, Part], inside: list[Array]) -> Array:
    """Return the Gram of one term in the coordinates `inside` of the residual space."""
    result: Array = np.ones(())
    order: list[tuple[int, int]] = []  # (side, axis) of every dimension of the result
    for axes, number in pieces:
        part, maps = parts[number], [inside[a].T for a in axes]
        if part.thin:
            rows = along_axes(part.content.reshape(-1, *part.shape), 1, maps).reshape(len(part.content), -1)
            own = (rows.T @ rows).reshape(*[len(inside[a]) for a in axes] * 2)
        else:
            own = along_axes(part.content.reshape(*part.shape, *part.shape), 0, [*maps, *maps])
        result = np.multiply.outer(result, own)
        order += [(side, a) for side in (0, 1) for a in axes]
    place = {key: i for i, key in enumerate(order)}
    rows_then_columns = [place[side, axis] for side in (0, 1) for axis in range(len(inside))]
    cells = math.prod(len(f) for f in inside)
    return result.transpose(rows_then_columns).reshape(cells, cells)


def _merge_cells(root: Array) -> tuple[Array, NDArray[np.intp]]:
    """Return the distinct columns, and for every cell the number of its column."""
    scale = np.abs(root).max()
    _, first, back = np.unique(
        np.round(root / scale, 10) + 0.0, axis=1, return_index=True, return_inverse=True
    )
    return root[:, first], back
