"""Rows whose sizes lie far apart: roots and singular values that are accurate relative to every row.

A Gram matrix in double precision keeps sixteen digits of its largest rows, hence nothing of rows that are
10⁸ times shorter. Here rows are never squared. Orthogonal transformations that treat rows as columns leave in
each an error relative to its length, and Jacobi's method finds the singular values of (well-conditioned
matrix) × (diagonal matrix) to relative accuracy, however far apart the diagonal is.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import ROUNDING, TAME, Array, solve_upper

SAFE = math.sqrt(np.finfo(float).tiny)
"""Squared lengths above this and below its inverse: products of two neither underflow nor overflow."""


def lengths(rows: Array) -> Array:
    """Return the lengths of the rows, safe from underflow."""
    squares = np.einsum("ij,ij->i", rows, rows)
    result = np.asarray(np.sqrt(squares))
    unsafe = ~((squares > SAFE) & (squares < 1 / SAFE))
    if unsafe.any():
        largest = np.abs(rows[unsafe]).max(axis=1, initial=0.0)
        largest[largest == 0] = 1.0
        result[unsafe] = largest * np.linalg.norm(rows[unsafe] / largest[:, None], axis=1)
    return result


def are_far_apart(rows: Array, ratio: float = TAME) -> bool:
    """Return whether some rows are so much shorter than others that a Gram matrix would lose their digits."""
    sizes = lengths(rows)
    sizes = sizes[sizes > 0]
    return bool(sizes.size) and float(sizes.max()) > ratio * float(sizes.min())


def is_graded(root: Array) -> bool:
    """Return whether squaring a root's rows would lose the shortest of them."""
    return are_far_apart(root, 1 / math.sqrt(ROUNDING))


def graded_root(rows: Array) -> Array:
    """Return independent rows R with RᵀR = rowsᵀrows, longest first, each accurate relative to its length.

    The longest remainder comes next, as in the Gram–Schmidt method. The remainder of a row that lies in the
    span of others is rounding error, but can be longer than the remainders of shorter rows. Then it is set to
    zero, and the rest is decomposed again.
    """
    import scipy.linalg  # noqa: PLC0415 - loading it takes longer than a small plan

    sizes = lengths(rows)
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    sizes, left = sizes[order], rows[order]
    basis: Array | None = None  # the unit vectors: writing these out would take cells²
    while True:
        turn, triangle, pivots = scipy.linalg.qr(left.T, mode="economic", pivoting=True, check_finite=False)
        left = np.empty_like(triangle.T)
        left[pivots] = triangle.T
        tails = np.sqrt(np.cumsum(left[:, ::-1] ** 2, axis=1)[:, ::-1])
        left[tails <= ROUNDING * sizes[:, None]] = 0.0
        clean = bool(left[pivots[: left.shape[1]], np.arange(left.shape[1])].all())
        used = left.any(axis=0)
        new_basis = np.asarray(turn[:, used].T, dtype=float)
        basis, left = new_basis if basis is None else new_basis @ basis, left[:, used]
        if clean:
            return np.asarray(np.linalg.qr(left, mode="r"), dtype=float) @ basis


def graded_decomposition(root: Array, weights: Array) -> tuple[Array, Array]:
    """Return s and Y = QᵀR for R diag(p) Rᵀ = Q diag(s²) Qᵀ, both to relative accuracy, s increasing.

    With R = D·U, U of unit rows, and U diag(√p) = TᵀZ for an orthogonal Z, the singular values of T·D are s.
    If X are its left singular vectors then QᵀR = s Xᵀ T⁻ᵀ U, where no long row cancels to leave a short one.
    """
    sizes = np.sqrt(np.einsum("ij,ij->i", root, root))
    order = np.argsort(-sizes, kind="stable")
    unit = root[order] / sizes[order, None]
    triangle = np.asarray(np.linalg.qr((unit * np.sqrt(weights)).T, mode="r"), dtype=float)
    diagonal = np.diagonal(triangle)
    least = 1e-15 * float(np.abs(diagonal).max())
    faint = np.abs(diagonal) < least
    triangle[faint, faint] = np.where(diagonal[faint] < 0, -least, least)
    rows, info = triangle * sizes[order], 1
    pivots = np.abs(np.diagonal(rows))
    if pivots.min() < ROUNDING * pivots.max():  # otherwise, an ordinary decomposition keeps enough digits
        from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

        s, X, _, work, _, info = lapack.dgejsv(rows, joba=0, jobu=0, jobv=0, jobr=1)
        s = s * (work[0] / work[1])
    if info != 0:  # no need for Jacobi's method, or it has not converged
        X, s, _ = np.linalg.svd(rows)
    turned = solve_upper(triangle, X).T @ unit
    return s[::-1], s[::-1, None] * turned[::-1]
