"""Lower bounds on the loss of every strategy for some rows, or for a block that is not solved to optimality.

All are of one quantity. For queries with weighted rows W and any weights p ≥ 0 of the cells, Σp = 1, no
strategy of unit cost has a root loss below the nuclear norm of W P^½, the sum of its singular values
(`design`).

Rows take one square root: with WᵀW = S² and s the diagonal of S, the nuclear norm at p ∝ s² is at least ‖s‖.

A strategy's loss on a sum of Grams is the sum of its losses on each, so the optimum of a block is at least
the sum of the terms' own optima, and those are known or bounded. In addition, uniform weights bound a block
small enough to write out, and weights that are a product over the axes (`trace_root`) a larger one. If its
queries treat many values alike, the optimum itself is known (`exchangeable`).
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np

from querysmasher.arrays import Array, square_root
from querysmasher.planning.grading import LOST, are_far_apart, graded_root, is_graded, lengths
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.circulant import is_circulant, solve_circulant
from querysmasher.planning.solvers.dense import solve_dense
from querysmasher.planning.solvers.exchangeable import exchangeable_bound
from querysmasher.planning.solvers.optimize import solve_design
from querysmasher.planning.solvers.roots import RANK, block_root
from querysmasher.planning.solvers.trace_root import ProductSum, trace_root_bound
from querysmasher.planning.subworkload import Block, Part, Term

SURE = 1e-12
"""Eigenvalues of a Gram matrix below this fraction of the largest are rounding errors, and so are roots."""

# --- rows ---


def independent_root(rows: Array) -> Array:
    """Return independent rows with the same Gram matrix, orthogonal unless some are far shorter than others.

    Every row keeps its direction, relative to its own length.
    """
    if not are_far_apart(rows):
        few = len(rows) <= rows.shape[1]
        values, vectors = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
        sure = values > SURE * values[-1]
        rest = vectors[:, ~sure]
        outside = rest @ (rest.T @ rows) if few else rows @ rest
        if np.all(lengths(outside) <= LOST * lengths(rows)):
            return vectors[:, sure].T @ rows if few else np.sqrt(values[sure])[:, None] * vectors[:, sure].T
    root = graded_root(rows)
    if is_graded(root):
        return root
    _, values, turn = np.linalg.svd(root, full_matrices=False)
    return np.asarray(values[:, None] * turn, dtype=float)


def root_diagonal(root: Array) -> Array | None:
    """Return the diagonal s of the square root of the Gram matrix, if the rows of `root` are orthogonal."""
    return None if is_graded(root) else (1 / lengths(root)) @ root**2


def least_root(root: Array) -> float:
    """Return a lower bound of the root loss at unit cost: zero, if one square root does not tell."""
    diagonal = root_diagonal(root)
    return 0.0 if diagonal is None else float(np.linalg.norm(diagonal))


# --- blocks ---

_known: WeakKeyDictionary[Part, float] = WeakKeyDictionary()
"""Bounds of parts that are still in use: a few parts recur in many blocks."""


def lower_bound(block: Block) -> float:
    """Return a lower bound on √L of the block."""
    if len(block.terms) > 1 and block.cells > limits().bounded_cells:
        optimum = exchangeable_bound(block)
        if optimum is not None:
            return optimum
    bound = math.sqrt(sum(_term_bound(term) for term in block.terms))
    if len(block.terms) > 1 and block.cells <= limits().bounded_cells:
        bound = max(bound, _uniform_bound(block_root(block)))
    elif len(block.terms) > 1:
        gram = _product_sum(block)
        if gram is not None:
            bound = max(bound, trace_root_bound(gram, axis_weights(gram)))
    return bound


def axis_weights(gram: ProductSum) -> list[Array]:
    """Return the best weights of every axis for all queries, traced over the other axes."""
    return [
        solve_design(
            square_root(gram.blend(axis), RANK), np.full(size, 1.0 / size), limits().axis_gap
        ).weights
        for axis, size in enumerate(gram.shape)
    ]


def _product_sum(block: Block) -> ProductSum | None:
    """Return the block as products over single axes and few rows, if that is what it is."""
    products, rows = [], [np.zeros((0, block.cells))]
    for term in block.terms:
        if all(len(piece.axes) == 1 for piece in term.pieces):
            grams = {piece.axes[0]: piece.part.gram for piece in term.pieces}
            products.append((term.coefficient, tuple(grams[axis] for axis in range(len(block.shape)))))
        elif len(term.pieces) == 1 and term.pieces[0].part.thin:
            rows.append(math.sqrt(term.coefficient) * term.pieces[0].part.content)
        else:
            return None
    if block.cells * sum(map(len, rows)) ** 2 > limits().bounded_work:
        return None
    return ProductSum(tuple(products), np.concatenate(rows), block.shape)


def _term_bound(term: Term) -> float:
    return term.coefficient * math.prod(_part_bound(piece.part) for piece in term.pieces)


def _part_bound(part: Part) -> float:
    """Return a lower bound on the loss of every strategy on one part."""
    if part not in _known:
        block = Block.of(part)
        if is_circulant(block):
            root = solve_circulant(block).bound
        elif len(part.shape) == 1:
            root = solve_dense(block, 1e-2).bound
        elif part.thin:
            root = _uniform_bound(part.content)
        else:
            root = math.sqrt(part.trace / block.cells)  # tr M^½ ≥ (tr M)^½
        _known[part] = root**2
    return _known[part]


def _uniform_bound(rows: Array) -> float:
    """Return tr M^½ for uniform weights: a valid and cheap lower bound on √L."""
    eigenvalues = np.linalg.eigvalsh(rows @ rows.T / rows.shape[1])
    sure = eigenvalues > SURE * eigenvalues[-1]  # the root of a rounding error is not small
    return float(np.sqrt(eigenvalues[sure]).sum())
