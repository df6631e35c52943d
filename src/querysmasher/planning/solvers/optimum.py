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
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from querysmasher.arrays import ROUNDING, Array, along_axes, square_root
from querysmasher.planning.centre import complement
from querysmasher.planning.grading import are_far_apart, graded_root, is_graded, lengths
from querysmasher.planning.lattice import RANK, Integers, common_lattice
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.design import (
    GROUPS,
    Iterate,
    equal_columns,
    fixed_point,
    newton,
    pairs_of_groups,
    solve_design,
    solve_pairs,
    value_of_groups,
)
from querysmasher.planning.split import Block, Part, Term
from querysmasher.planning.strategies import DenseStrategy, DiagonalStrategy, Strategy
from querysmasher.planning.strategies.strategy import CLOSE
from querysmasher.privacy.pairs import Products


def outer_product(tensors: Iterable[tuple[Array, Sequence[int]]]) -> Array:
    """Return the outer product of tensors whose axes are numbered, with its axes in the order of numbers."""
    operands: list[Any] = [x for tensor, axes in tensors for x in (tensor, list(axes))]
    return np.asarray(np.einsum(*operands, sorted(axis for axes in operands[1::2] for axis in axes)))


def is_circulant(block: Block) -> bool:
    """Return whether every Gram of the block is circulant and of full rank around a uniform centre."""
    return all(_spectrum(piece.part) is not None for piece in block.pieces)


def solve_circulant(block: Block) -> Solution:
    """Return the optimum, with its loss and the lower bound computed separately."""
    spectrum = np.zeros([n - 1 for n in block.shape])
    for term in block.terms:
        factors = ((_spectrum(piece.part), piece.axes) for piece in term.pieces)
        spectrum += term.coefficient * outer_product((h, axes) for h, axes in factors if h is not None)
    bases = tuple(map(fourier_basis, block.shape))
    h = np.sqrt(spectrum)
    h = h / along_axes(h, 0, [basis**2 for basis in bases]).max()  # v = (⊗ B∘B)ᵀ h
    strategy: Strategy = DiagonalStrategy(bases, h)
    if len(bases) == 1:
        strategy = DenseStrategy(block.shape, np.sqrt(h)[:, None] * bases[0])
    bound = float(np.sqrt(spectrum / block.cells).sum())
    return Solution(strategy, math.sqrt(float((spectrum / h).sum())), bound, "circulant")


def solve_circulant_pairs(block: Block, tolerance: float) -> Solution:
    """Return the optimum of one attribute if a record is replaced, relative to the cost of the worst pair.

    Pairs at the same distance are alike, so M is diagonal in the Fourier basis: with weights p of
    distances d, its entries are λ (2/n) Σ p (1 - cos 2πkd/n).
    """
    (n,) = block.shape
    pieces = [(term.coefficient, term.pieces[0].part.content[0]) for term in block.terms]
    spectrum = np.maximum(np.fft.fft(sum(weight * row for weight, row in pieces)).real[1:], 0.0)

    def at(p: Array) -> Iterate:
        roots = np.sqrt(spectrum * changed(p))
        return Iterate(p, changed(spectrum / roots), float(roots.sum()))

    def changed(weights: Array) -> Array:
        return np.asarray(2 / n * (weights.sum() - np.fft.fft(np.append(0.0, weights)).real[1:]))

    def curvature(design: Iterate, _: bool) -> Array:
        s = spectrum * changed(design.weights)
        differences = np.apply_along_axis(changed, 0, np.eye(n - 1))
        return np.asarray(0.5 * (differences * (spectrum**2 * s**-1.5)) @ differences.T)

    design = fixed_point(at, np.ones(n - 1), tolerance / 4, 80, patience=20)
    if design.gap > tolerance / 4 and n <= limits().light_cells:
        design = at(newton(at, curvature, design.weights, tolerance / 4))
    h = np.sqrt(spectrum / changed(design.weights))
    h /= h.sum() / n  # the diagonal of V
    frequency = np.arange(n - 1) // 2
    strategy = DenseStrategy((n,), np.sqrt(h[frequency])[:, None] * fourier_basis(n))
    bound = design.value / math.sqrt(changed(h).max())
    return Solution(strategy, math.sqrt(float((spectrum / h).sum())), bound * (1 - ROUNDING), "circulant")


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
    return spectrum if np.all(spectrum > RANK * spectrum.max(initial=0.0)) else None


def is_circulant_gram(gram: Array) -> bool:
    """Return whether every row of a Gram matrix is the previous one, shifted by one cell."""
    close = ROUNDING * np.abs(gram).max()
    pairs = (gram[1:2, 1:], gram[:1, :-1]), (gram[1:, 0], gram[:-1, -1]), (gram[1:, 1:], gram[:-1, :-1])
    return all(np.abs(row - previous).max(initial=0.0) <= close for row, previous in pairs)


def is_thin(block: Block) -> bool:
    """Return whether the block has far fewer queries than cells, all of them written out as rows."""
    if any(len(term.pieces) > 1 or not term.pieces[0].part.thin for term in block.terms):
        return False
    rows = sum(len(piece.part.content) for piece in block.pieces)
    return rows <= block.cells / 2 and rows**2 * block.cells <= limits().thin_work


def independent_root(rows: Array) -> Array:
    """Return independent rows with the same Gram matrix, orthogonal unless some are far shorter than others.

    Every row keeps its direction, relative to its own length.
    """
    if not are_far_apart(rows):
        few = len(rows) <= rows.shape[1]
        values, vectors = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
        sure = values > ROUNDING * values[-1]
        rest = vectors[:, ~sure]
        outside = rest @ np.asarray(np.linalg.qr(rows.T @ rest, mode="r")).T if few else rows @ rest
        if np.all(lengths(outside) <= CLOSE * lengths(rows)):
            return vectors[:, sure].T @ rows if few else np.sqrt(values[sure])[:, None] * vectors[:, sure].T
    root = graded_root(rows)
    if is_graded(root):
        return root
    _, values, turn = np.linalg.svd(root, full_matrices=False)
    return np.asarray(values[:, None] * turn, dtype=float)


def root_diagonal(root: Array) -> Array | None:
    """Return the diagonal s of the square root of the Gram matrix, if the rows of `root` are orthogonal."""
    return None if is_graded(root) else np.einsum("ij,ij,i->j", root, root, 1 / lengths(root))


def block_root(block: Block) -> Array:
    """Return independent rows R with RᵀR the block's Gram."""
    if is_thin(block):
        return independent_root(terms_rows(block.terms))
    inside = [complement(centre.weights) for centre in block.centres]  # the residual space has full rank
    maps = [basis.T for basis in inside]
    root = _triangle(reduce(np.add, (term_gram(term, maps) for term in block.terms)))
    if root is None:
        root = independent_root(terms_rows(block.terms, maps))
    folded = root.reshape(-1, *(len(basis) for basis in inside))
    return np.ascontiguousarray(along_axes(folded, 1, inside).reshape(len(root), -1))


def _triangle(gram: Array) -> Array | None:
    """Return the Cholesky root of a Gram matrix, or None if its rank is not clearly full."""
    try:
        root = np.asarray(np.linalg.cholesky(gram).T, dtype=float)
    except np.linalg.LinAlgError:
        return None
    pivots = np.diagonal(root)
    return root if pivots.min() > math.sqrt(ROUNDING) * pivots.max() else None


def term_gram(term: Term, maps: Sequence[Array]) -> Array:
    """Return the Gram matrix of a term in coordinates given by a matrix per axis."""
    tensors = []
    for axes, part in ((piece.axes, piece.part) for piece in term.pieces):
        tensor = along_axes(part.gram.reshape(part.shape * 2), 0, [maps[a] for a in axes * 2])
        tensors.append((tensor, [*axes, *(len(maps) + a for a in axes)]))
    product = term.coefficient * outer_product(tensors)
    return product.reshape(math.prod(product.shape[: len(maps)]), -1)


def terms_rows(terms: Iterable[Term], maps: Sequence[Array] | None = None) -> Array:
    """Return rows whose Gram is the sum of terms, over cells or in coordinates given by a matrix per axis."""
    every = []
    for term in terms:
        count, tensors = len(term.pieces), []
        for number, piece in enumerate(term.pieces):
            rows = _part_rows(piece.part, [maps[a] for a in piece.axes] if maps else [])
            tensors.append((rows, [number, *(count + a for a in piece.axes)]))
        product = outer_product(tensors)
        every.append(math.sqrt(term.coefficient) * product.reshape(math.prod(product.shape[:count]), -1))
    return np.concatenate(every)


def _part_rows(part: Part, maps: list[Array]) -> Array:
    """Return at most as many rows as dimensions, with an axis for each map, or for each axis of the part."""
    tensor = along_axes(part.rows.reshape(-1, *part.shape), 1, maps)
    rows = tensor.reshape(len(tensor), -1)
    return independent_root(rows).reshape(-1, *tensor.shape[1:]) if len(rows) > rows.shape[1] else tensor


def solve_dense(block: Block, tolerance: float, *, pairs: bool = False) -> Solution:
    """Return a strategy within `tolerance` of the optimum (much closer for small blocks, at no cost).

    For `pairs` of cells, it is the optimum if a record is replaced.
    """
    root = block_root(block)
    target = tolerance / 4 if block.cells > limits().light_cells else tolerance / 100
    if len(root) * 2 <= root.shape[1]:  # cells that no query distinguishes share a column
        columns, back = equal_columns(root)
        root, start = root[:, columns], np.ones(len(columns))
    else:
        back, start = np.arange(root.shape[1]), reduce(np.multiply.outer, axis_weights(block)).ravel()
    matrix, reached, bound = best_of_pairs(root, tolerance / 2) if pairs else best_rows(root, start, target)
    lattice = None
    if len(root) < math.prod(n - 1 for n in block.shape):
        known = [t.pieces[0].part.lattice if len(t.pieces) == 1 else None for t in block.terms]
        lattice = common_lattice(known, len(root))
    return Solution(DenseStrategy(block.shape, matrix[:, back], lattice), reached, bound, "dense")


def best_rows(
    root: Array, start: Array, tolerance: float, *, enough: float = 0.0
) -> tuple[Array, float, float]:
    """Return the rows of a strategy for the queries of a root, the √L they reach, and a lower bound on it."""
    design = solve_design(root, start, tolerance, enough=enough)
    rows, reached = design.filled_strategy() if is_graded(root) else (design.strategy(), design.upper)
    return rows, reached, design.value * (1 - ROUNDING)


def best_of_pairs(
    root: Array, tolerance: float, classes: Integers | None = None, *, enough: float = 0.0
) -> tuple[Array, float, float]:
    """Return rows for the queries of a root if a record is replaced, the √L they reach, and a lower bound.

    Columns have length one at most, and √L is that of these. Of few columns, only pairs of the same class
    count, if classes are given. Of many columns, the weights are those of cells,
    not of pairs: with both cells drawn independently by weights q, M is 2(R diag(q) Rᵀ − Rq qᵀRᵀ), and its
    trace root at least √2 (tr (R diag(q) Rᵀ)^½ − ‖Rq‖). Pairs drawn by groups of neighbouring cells may give
    more.
    """
    if root.shape[1] <= limits().paired_cells:
        design = solve_pairs(root, tolerance, classes)
        rows = design.strategy()
        longest = float(np.sqrt(np.einsum("ij,ij->j", rows, rows).max()))
        return rows / longest, design.upper * longest, design.value * longest * (1 - ROUNDING)
    design = solve_design(root, np.ones(root.shape[1]), tolerance, enough=enough)
    rows, q = design.strategy(), design.weights / design.weights.sum()
    value = design.value - float(np.linalg.norm(root @ q))
    if classes is None and max(root.shape) <= limits().dense_values:
        value = max(value, grouped_value(root))
    value *= math.sqrt(2 / Products.of(rows).farthest)
    return rows, design.upper, max(0.0, value) * (1 - ROUNDING)


def grouped_value(root: Array) -> float:
    """Return a lower bound on √L, less √2, for pairs of cells drawn by groups of neighbouring cells."""
    groups = min(GROUPS, root.shape[1])
    labels = np.arange(root.shape[1]) * groups // root.shape[1]
    means = root @ ((labels[:, None] == np.arange(groups)) / np.bincount(labels))
    return value_of_groups(root, labels, pairs_of_groups(means.T @ means))


def axis_weights(block: Block) -> list[Array]:
    """Return good weights of a single axis, from its centre; of several, the best for the traced queries."""
    starts = [np.ones(size) for size in block.shape]
    if all(piece.part.centres for piece in block.terms[0].pieces):  # queries are split
        starts = [np.abs(c.weights) + ROUNDING if c.start is None else c.start for c in block.centres]
    if len(starts) == 1:
        return starts
    roots = (square_root(_axis_blend(block, axis), RANK) for axis in range(len(starts)))
    return [solve_design(root, start, 1e-4).weights for root, start in zip(roots, starts, strict=True)]


def _axis_blend(block: Block, axis: int) -> Array:
    """Return the sum of the Grams on one axis, traced over the others, each in proportion to its energy."""
    blend = np.zeros((block.shape[axis],) * 2)
    for term in block.terms:
        (piece,) = (piece for piece in term.pieces if axis in piece.axes)
        blend += term.energy / piece.part.trace * piece.part.partial_trace(piece.axes.index(axis))
    return blend
