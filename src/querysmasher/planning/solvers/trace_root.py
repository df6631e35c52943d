"""Lower bounds on the trace root of a sum of Kronecker products and a few rows, without a large matrix.

For a Gram matrix G = Σ_k c_k ⊗_i G_ki + TᵀT and weights p = ⊗p_i of the cells, which sum to one, no strategy
has a loss below (tr M^½)², M = P^½GP^½ (`design`). Two bounds on that trace need only matrices over one axis.

*Common bases.* tr M^½ is the sum of the singular values of the stacked roots X_k of M's terms, hence at
least Σ tr(Y_kᵀX_k) for all Y_k with ΣY_kᵀY_k ≤ I. With the polar decompositions X_k = U_kS_k take
Y_k = U_k Q diag(θ_k) Qᵀ, where Q = ⊗Q_i is orthogonal and Σθ_k² = 1 at every column of Q. The best θ gives

    tr M^½ ≥ Σ_j (Σ_k s_kj²)^½,  s_k = diag(QᵀS_kQ),

which is exact if Q diagonalises all terms, and never below the root of the sum of the terms' squared traces.

*One product and few rows.* In the product's eigenbasis M = D + UᵀU with D diagonal and U as many rows as T:

    tr M^½ = tr D^½ + 1/(2π) ∫ t^{-½} g(t) dt,  g(t) = log det(I + U(D + t)⁻¹Uᵀ),  t from 0 to ∞.

The eigenvalues λ_j of M are at least those of D, in order, so that g(t) = Σ_j ∫ 1/(x + t) dx over x between
the two: all even derivatives of g are positive, and Gauss's rule on any interval underestimates. On the last,
infinite one, g(t) ≥ tr X − tr X²/2 for X = UUᵀ/(max D + t), in closed form. Of several products one is
treated so, and the squared bound of the others is added: (tr (A + B)^½)² ≥ (tr A^½)² + (tr B^½)².
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from querysmasher.arrays import Array, along_axes
from querysmasher.planning.limits import limits

NOTHING = 1e-12
"""Eigenvalues below this fraction of the largest are rounding error."""

NODES = 3
"""Number of nodes of Gauss's rule on an interval."""

RATIO = 4.0
"""Ratio of the ends of an interval."""

FINE = 40
"""Number of nodes that represent the weight t^{-½} on an interval, exactly for polynomials of low degree."""

CHUNK = 4_000_000
"""Maximum number of entries of an intermediate array, unless rows are long."""


@dataclass(frozen=True, eq=False)
class ProductSum:
    """A Gram matrix Σ_k c_k ⊗_i G_ki + TᵀT over cells with several axes."""

    products: tuple[tuple[float, tuple[Array, ...]], ...]
    """The coefficient of each product, and its Gram matrix on every axis."""
    rows: Array
    """The rows T (rows × cells)."""
    shape: tuple[int, ...]

    def blend(self, axis: int) -> Array:
        """Return the Gram matrix of one axis, traced over the others."""
        tensor = np.moveaxis(self.rows.reshape(-1, *self.shape), 1 + axis, -1).reshape(-1, self.shape[axis])
        total = np.asarray(tensor.T @ tensor, dtype=float)
        for coefficient, grams in self.products:
            others = math.prod(float(np.trace(g)) for i, g in enumerate(grams) if i != axis)
            total += coefficient * others * grams[axis]
        return total

    def weighted(self, weights: Sequence[Array]) -> ProductSum:
        """Return P^½GP^½ for weights p that are a product over the axes."""
        roots = [np.sqrt(p / p.sum()) for p in weights]
        rows = self.rows.reshape(-1, *self.shape)
        for axis, r in enumerate(roots, start=1):
            rows = rows * r.reshape([-1 if i == axis else 1 for i in range(rows.ndim)])
        products = tuple(
            (c, tuple(g * np.outer(r, r) for g, r in zip(grams, roots, strict=True)))
            for c, grams in self.products
        )
        return ProductSum(products, rows.reshape(self.rows.shape), self.shape)


def trace_root_bound(gram: ProductSum, weights: Sequence[Array]) -> float:
    """Return a lower bound on tr (P^½GP^½)^½ for weights p that are a product over the axes."""
    own = gram.weighted(weights)
    best = _best_bases(own)
    work = math.prod(own.shape) * len(own.rows) ** 2
    if own.products and 0 < work <= limits().quadrature_work:
        strongest = max(own.products, key=lambda one: one[0] * math.prod(map(_trace_root, one[1])) ** 2)
        rest = tuple(one for one in own.products if one is not strongest)
        first = _product_and_rows(ProductSum((strongest,), own.rows, own.shape))
        others = _best_bases(ProductSum(rest, own.rows[:0], own.shape)) if rest else 0.0
        best = max(best, math.hypot(first, others))
    return best


def _best_bases(gram: ProductSum) -> float:
    return max(_in_common_bases(gram, bases) for bases in _bases(gram))


def _trace_root(gram: Array) -> float:
    return float(np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum())


def _bases(gram: ProductSum) -> Iterator[list[Array]]:
    """Iterate over orthogonal bases of all axes: those of the blend, of equal shares, and of each product."""
    axes = range(len(gram.shape))
    yield [np.linalg.eigh(gram.blend(axis))[1] for axis in axes]
    if len(gram.products) > 1:
        every = [[grams[axis] / np.trace(grams[axis]) for _, grams in gram.products] for axis in axes]
        yield [np.linalg.eigh(np.sum(own, axis=0))[1] for own in every]
        for number in range(len(gram.products)):
            yield [np.linalg.eigh(own[number])[1] for own in every]


def _in_common_bases(gram: ProductSum, bases: list[Array]) -> float:
    """Return Σ_j (Σ_k s_kj²)^½ for the bases Q."""
    total = np.zeros(gram.shape)
    for coefficient, grams in gram.products:
        diagonal = np.full((), math.sqrt(coefficient))
        for own, basis in zip(grams, bases, strict=True):
            diagonal = np.multiply.outer(diagonal, np.einsum("ij,ij->j", basis, _root(own) @ basis))
        total += diagonal**2
    if len(gram.rows):
        values, turn = np.linalg.eigh(gram.rows @ gram.rows.T)
        sure = values > NOTHING * values[-1]
        # S = Σ σ v vᵀ with σv = turned rows: its diagonal is the sum of their squares over σ
        turned = (turn[:, sure] / values[sure] ** 0.25).T @ gram.rows
        diagonal = np.zeros(gram.shape)
        step = max(1, CHUNK // gram.rows.shape[1])
        for i in range(0, len(turned), step):
            image = along_axes(turned[i : i + step].reshape(-1, *gram.shape), 1, bases)
            diagonal += np.einsum("r...,r...->...", image, image)
        total += diagonal**2
    return float(np.sqrt(total).sum())


def _root(gram: Array) -> Array:
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, dtype=float)


def _product_and_rows(gram: ProductSum) -> float:
    """Return tr (D + UᵀU)^½, underestimated by quadrature."""
    ((coefficient, grams),) = gram.products
    diagonal: Array = np.full((), coefficient)
    rows = gram.rows.reshape(-1, *gram.shape)
    bases = []
    for own in grams:
        values, vectors = np.linalg.eigh(own)
        sure = values > NOTHING * values[-1]
        diagonal = np.multiply.outer(diagonal, values[sure])
        bases.append(vectors[:, sure])
    # what rows ask of directions outside the product's space is left out, which only lowers the bound
    rows = along_axes(rows, 1, bases).reshape(len(rows), -1)
    diagonal = diagonal.ravel()
    gram_of_rows = rows @ rows.T
    squares = np.linalg.eigvalsh(gram_of_rows)
    last = 100 * float(diagonal.max() + squares[-1])
    total = 0.0
    for start, end in _intervals(float(diagonal.min()) / RATIO, last):
        for t, weight in _gauss(start / end):
            total += weight * math.sqrt(end) * _log_determinant(rows, diagonal + t * end)
    most = float(diagonal.max())
    tail = squares.sum() * 2 / math.sqrt(most) * math.atan(math.sqrt(most / last))
    total += max(0.0, float(tail - (squares**2).sum() / (3 * last**1.5)))
    return float(np.sqrt(diagonal).sum() + total / (2 * math.pi))


def _intervals(first: float, last: float) -> Iterator[tuple[float, float]]:
    """Iterate over intervals from 0 to `last`, whose ends have equal ratios after `first`."""
    count = max(1, math.ceil(math.log(last / first) / math.log(RATIO)))
    ends = [last * RATIO ** -(count - k) for k in range(count + 1)]
    yield 0.0, ends[0]
    yield from pairwise(ends)


@cache
def _gauss(start: float) -> list[tuple[float, float]]:
    """Return nodes and weights of Gauss's rule for the weight t^{-½} on [start, 1].

    With t = x² the weight is constant, so a fine rule in x represents it. Lanczos's method finds the few
    nodes that integrate as many polynomials in t as there can be.
    """
    x, w = np.polynomial.legendre.leggauss(FINE)
    low = math.sqrt(start)
    t, fine = (low + (1 - low) * (x + 1) / 2) ** 2, (1 - low) * w
    previous, vector = np.zeros(FINE), np.sqrt(fine / fine.sum())
    matrix, beta = np.zeros((NODES, NODES)), 0.0
    for k in range(NODES):
        following = t * vector - beta * previous
        matrix[k, k] = vector @ following
        following -= matrix[k, k] * vector
        beta = float(np.linalg.norm(following))
        previous, vector = vector, following / beta
        if k + 1 < NODES:
            matrix[k, k + 1] = matrix[k + 1, k] = beta
    nodes, vectors = np.linalg.eigh(matrix)
    return list(zip(nodes.tolist(), (fine.sum() * vectors[0] ** 2).tolist(), strict=True))


def _log_determinant(rows: Array, diagonal: Array) -> float:
    """Return log det(I + rows · diag(1/diagonal) · rowsᵀ)."""
    gram = np.eye(len(rows))
    step = max(1, CHUNK // len(rows))
    for i in range(0, rows.shape[1], step):
        scaled = rows[:, i : i + step] / np.sqrt(diagonal[i : i + step])
        gram += scaled @ scaled.T
    return 2 * float(np.log(np.diagonal(np.linalg.cholesky(gram))).sum())
