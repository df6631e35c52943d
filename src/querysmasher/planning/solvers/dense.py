"""Optimal strategies: in closed form for blocks that look the same from every cell, or written out.

If every Gram is circulant (marginals, circular ranges, their mixes), shifting all cells changes nothing, so
by convexity uniform weights are optimal: √L = Σ √(λ/N) over the eigenvalues λ, which are Fourier transforms,
and V is diagonal in the real Fourier basis with entries ∝ √λ. As cosine and sine of one frequency share their
eigenvalue, the diagonal of V is constant.

Other blocks small enough, or thin enough, are solved from a root of their Gram matrix: independent rows R
with RᵀR = G. The Gram matrix itself is decomposed if that keeps every query, as it nearly always does: it is
small and quick. It can lose queries that are far apart in weight or size, or nearly dependent. Then their
rows are decomposed, which takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import TAME, Array, along_axes, square_root
from querysmasher.planning.centre import complement
from querysmasher.planning.grading import graded_root, is_graded, lengths, spans
from querysmasher.planning.lattice import Integers, independent
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.design import Progress, solve_design
from querysmasher.planning.strategies import DenseStrategy, DiagonalStrategy, Strategy
from querysmasher.planning.subworkload import Block, Part, Piece


def is_circulant(block: Block) -> bool:
    """Return whether every Gram of the block is circulant and of full rank around a uniform centre."""
    return all(len(piece.axes) == 1 and _spectrum(piece.part) is not None for piece in block.pieces)


def solve_circulant(block: Block) -> Solution:
    """Return the optimum, with both bounds computed from the strategy itself."""
    spectrum = _block_spectrum(block)
    bases = tuple(map(fourier_basis, block.shape))
    h = np.sqrt(spectrum)
    diagonal = h
    for basis in bases:  # v = (⊗ B∘B)ᵀ h, axis by axis
        diagonal = np.tensordot(diagonal, basis**2, axes=(0, 0))
    h = h / diagonal.max()
    strategy: Strategy = DiagonalStrategy(bases, h)
    if len(bases) == 1:
        strategy = DenseStrategy(block.shape, np.sqrt(h)[:, None] * bases[0])
    bound = float(np.sqrt(spectrum / block.cells).sum())
    return Solution(strategy, math.sqrt(float((spectrum / h).sum())), bound, "circulant")


def _block_spectrum(block: Block) -> Array:
    spectrum: Array = np.zeros([n - 1 for n in block.shape])
    for term in block.terms:
        product = np.full((), term.coefficient)
        for piece in sorted(term.pieces, key=attrgetter("axes")):
            own = _spectrum(piece.part)
            assert own is not None  # noqa: S101 - `is_circulant` has checked it
            product = np.multiply.outer(product, own)
        spectrum += product
    return spectrum


def fourier_basis(n: int) -> Array:
    """Return the real Fourier basis of R^n without the constant: (n-1) orthonormal rows."""
    frequency = np.arange(1, n // 2 + 1)
    angle = 2 * np.pi * np.outer(frequency, np.arange(n)) / n
    rows = np.empty((2 * len(frequency), n))
    rows[0::2], rows[1::2] = np.cos(angle), np.sin(angle)
    rows = rows[: n - 1]  # for even n the last sine is zero
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _spectrum(part: Part) -> Array | None:
    """Return the eigenvalues in the order of `fourier_basis`, or None if the part is not circulant."""
    if part.thin or len(part.shape) != 1:
        return None
    (n,) = part.shape
    if not part.centres[0].is_uniform or not is_circulant_gram(part.content):
        return None
    eigenvalues = np.fft.rfft(part.content[0]).real[1:]
    spectrum = np.repeat(eigenvalues, 2)[: n - 1]
    return spectrum if np.all(spectrum > 1e-10 * spectrum.max(initial=0.0)) else None


def is_circulant_gram(gram: Array) -> bool:
    """Return whether every row of a Gram matrix is the previous one, shifted by one cell."""
    close = 1e-12 * np.abs(gram).max()
    pairs = (gram[1:2, 1:], gram[:1, :-1]), (gram[1:, 0], gram[:-1, -1]), (gram[1:, 1:], gram[:-1, :-1])
    return all(np.abs(own - previous).max(initial=0.0) <= close for own, previous in pairs)


RANK = 1e-10
"""Singular values below this fraction of the largest are rounding error, unless queries depend on them."""


def is_thin(block: Block) -> bool:
    """Return whether the block has far fewer queries than cells, all of them written out as rows."""
    if any(len(term.pieces) > 1 or not term.pieces[0].part.thin for term in block.terms):
        return False
    rows = sum(len(piece.part.content) for piece in block.pieces)
    return rows <= block.cells / 2 and rows**2 * block.cells <= limits().thin_work


def stacked_rows(block: Block) -> Array:
    """Return the rows of a thin block, with the roots of their coefficients."""
    return np.concatenate([math.sqrt(term.coefficient) * term.pieces[0].part.content for term in block.terms])


def block_root(block: Block, *, strict: bool = True) -> Array:
    """Return independent rows R with RᵀR the block's Gram.

    Unless `strict`, rows many orders of magnitude shorter than the longest may be missing. That is enough to
    estimate the loss, and makes it smooth where a direction vanishes.
    """
    if is_thin(block):
        return _thin_root(block, strict)
    return _gram_root(block, strict)


def _thin_root(block: Block, strict: bool) -> Array:
    stacked = stacked_rows(block)
    root = _tame_root(stacked)
    if root is not None:
        return root
    _, values, vectors = np.linalg.svd(stacked, full_matrices=False)
    keep = values > RANK * values[0]
    root = values[keep, None] * vectors[keep]
    if not strict or (not is_graded(root) and spans(vectors[keep], stacked)):
        return root
    return graded_root(stacked)


def _tame_root(rows: Array) -> Array | None:
    """Return a root by way of the rows' Gram matrix, or None if that could lose some of them."""
    values, turn = np.linalg.eigh(rows @ rows.T)
    keep = values > values[-1] / TAME**2
    root = np.asarray(turn[:, keep].T @ rows, dtype=float)
    return root if spans(root / np.sqrt(values[keep])[:, None], rows) else None


def _gram_root(block: Block, strict: bool) -> Array:
    """Return R with RᵀR the block's Gram, computed inside the residual space, whose rank is known."""
    inside = [complement(centre.weights) for centre in block.centres]
    gram = np.zeros(())
    for term in block.terms:
        gram = gram + term.coefficient * _pieces_gram(term.pieces, inside)
    root = full_root(gram)
    if root is None:
        root = square_root(gram, RANK)
        rows = _block_rows(block, inside) if strict else root
        if not spans(root / lengths(root)[:, None], rows):
            root = graded_root(rows)
    tensor = root.reshape(-1, *(len(f) for f in inside))
    return np.ascontiguousarray(along_axes(tensor, 1, inside).reshape(len(root), -1))


def full_root(gram: Array) -> Array | None:
    """Return the Cholesky root, or None if the rank is not clearly full."""
    try:
        root = np.asarray(np.linalg.cholesky(gram).T, dtype=float)
    except np.linalg.LinAlgError:
        return None
    pivots = np.diagonal(root)
    return root if pivots.min() > 1e-7 * pivots.max() else None


def _independent_rows(gram: Array) -> Array:
    root = full_root(gram)
    return square_root(gram, RANK) if root is None else root


def _block_rows(block: Block, inside: list[Array]) -> Array:
    """Return rows whose Gram is the block's, in the coordinates `inside` of the residual space."""
    return np.concatenate(
        [math.sqrt(term.coefficient) * _pieces_rows(term.pieces, inside) for term in block.terms]
    )


def _pieces_rows(pieces: Sequence[Piece], inside: list[Array]) -> Array:
    """Return rows whose Gram is the product of pieces, in the coordinates `inside` of the residual space."""
    result: Array = np.ones((1,))
    order: list[int] = []
    for piece in pieces:
        rows = _part_rows(piece.part, [inside[a].T for a in piece.axes])
        result = np.multiply.outer(result, rows.reshape(len(rows), *(len(inside[a]) for a in piece.axes)))
        result = np.moveaxis(result, 1 + len(order), 1)
        result = result.reshape(-1, *result.shape[2:])
        order += piece.axes
    cells = math.prod(len(f) for f in inside)
    return result.transpose(0, *(1 + np.argsort(order))).reshape(-1, cells)


def _part_rows(part: Part, maps: list[Array]) -> Array:
    """Return at most as many rows as dimensions, whose Gram is the part's in the coordinates `maps`."""
    own = part.rows
    if own is None:
        return _independent_rows(_part_gram(part, maps))
    rows = along_axes(own.reshape(-1, *part.shape), 1, maps).reshape(len(own), -1)
    return graded_root(rows) if len(rows) > rows.shape[1] else rows


def _pieces_gram(pieces: Sequence[Piece], inside: list[Array]) -> Array:
    """Return the Gram of the product of pieces in the coordinates `inside` of the residual space."""
    result: Array = np.ones(())
    order: list[tuple[int, int]] = []  # (side, axis) of every dimension of the result
    for piece in pieces:
        own = _part_gram(piece.part, [inside[a].T for a in piece.axes])
        result = np.multiply.outer(result, own.reshape(*[len(inside[a]) for a in piece.axes] * 2))
        order += [(side, a) for side in (0, 1) for a in piece.axes]
    place = {key: i for i, key in enumerate(order)}
    rows_then_columns = [place[side, axis] for side in (0, 1) for axis in range(len(inside))]
    cells = math.prod(len(f) for f in inside)
    return result.transpose(rows_then_columns).reshape(cells, cells)


def _part_gram(part: Part, maps: list[Array]) -> Array:
    """Return the Gram of one part in the coordinates `maps`."""
    if part.thin:
        rows = along_axes(part.content.reshape(-1, *part.shape), 1, maps).reshape(len(part.content), -1)
        return rows.T @ rows
    gram = along_axes(part.content.reshape(*part.shape, *part.shape), 0, [*maps, *maps])
    cells = math.prod(m.shape[1] for m in maps)
    return gram.reshape(cells, cells)


def solve_dense(block: Block, tolerance: float, progress: Progress | None = None) -> Solution:
    """Return a strategy within `tolerance` of the optimum (much closer for small blocks, at no cost)."""
    root = block_root(block)
    target = tolerance / (100 if block.cells <= limits().close_cells else 4)
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
