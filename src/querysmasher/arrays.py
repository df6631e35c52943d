"""The array types used throughout, products along axes, and triangular systems."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]

Numbers = NDArray[np.int64] | NDArray[np.float64]
"""Noisy answers: integers or, in simulations, floating point."""


SMALL_TRIANGLE = 64
"""Triangular systems up to this size are not halved."""

CHUNK = 4_000_000
"""Maximum number of entries of an intermediate array."""

TAME = 1e3
"""Maximum condition number of rows that may be squared: squaring loses six of sixteen digits."""

SMALL_PIVOTS = 200_000
"""Maximum number of entries of a matrix that is decomposed here: loading scipy takes longer."""

FEW_ROWS = 16
"""Matrices of at most so many rows are decomposed here: scipy is slower."""

ROUNDING = 1e-12
"""Numbers below this fraction of the largest are rounding error."""

STRAIGHT = 2.0**-48
"""Second differences below this fraction of the largest number are rounding errors of equal steps."""

HALF = math.sqrt(np.finfo(float).eps)
"""Numbers below this fraction of the largest have lost half of their digits."""

TIE = 1e-9
"""Numbers that differ by less than this fraction are equal: which is larger depends on the processor."""


def one_core() -> AbstractContextManager[object]:
    """Return a context in which matrix products use one core; threads slow many small products down."""
    context: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
    return context


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:  # noqa: ARG001 - an import may have loaded another
    """Find the libraries that use threads, which takes milliseconds."""
    return ThreadpoolController()


def first_largest(values: Sequence[float] | Array) -> int:
    """Return the index of the first of the largest values, which are equal within the fraction `TIE`.

    >>> first_largest([1.0, 3.0, 3.0 + 1e-15])
    1
    """
    numbers = np.asarray(values, dtype=float).reshape(-1)
    top = numbers.max()
    return int((numbers >= top - TIE * abs(top)).argmax() if math.isfinite(top) else numbers.argmax())


def in_order(values: Sequence[float] | Array) -> NDArray[np.intp]:
    """Return the indexes of values from the least to the largest; those equal within `TIE` stay in order.

    >>> in_order([3.0, 1.0 + 1e-15, 2.0, 1.0])
    array([1, 3, 2, 0])
    """
    numbers = np.asarray(values, dtype=float)
    order = np.argsort(numbers, kind="stable")
    following, before = numbers[order[1:]], numbers[order[:-1]]
    with np.errstate(invalid="ignore"):
        is_new = (following != before) & ~(np.abs(following - before) <= TIE * np.abs(before))
    return order[np.lexsort((order, np.append(0, np.cumsum(is_new))[: order.size]))]


def along_axes(tensor: Array, first: int, matrices: Sequence[Array]) -> Array:
    """Multiply the axes of `tensor` from `first` on by one matrix each, from the right."""
    for axis, matrix in enumerate(matrices, start=first):
        tensor = np.moveaxis(np.tensordot(tensor, matrix, axes=(axis, 0)), -1, axis)
    return tensor


def less_means(values: Array, axis: int, groups: NDArray[np.int64]) -> Array:
    """Subtract from the entries along an axis their means over each group; rounding errors become zero."""
    rows = np.moveaxis(values, axis, -1)
    indicators = np.eye(int(groups.max()) + 1)[groups]
    left = rows - ((rows @ indicators) / np.maximum(indicators.sum(axis=0), 1))[..., groups]
    scale = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    return np.moveaxis(np.where(np.abs(left) > ROUNDING * scale, left, 0.0), -1, axis)


def kronecker(factors: Iterable[Array]) -> Array:
    """Return the Kronecker product of vectors, or of matrices; one if there are none."""

    def multiplied(left: Array, right: Array) -> Array:
        vectors = right.ndim == 1  # for which the general function is slow
        return np.multiply.outer(left, right).ravel() if vectors else np.asarray(np.kron(left, right))

    return reduce(multiplied, factors, np.ones(1))


def square_root(gram: Array, cutoff: float) -> Array:
    """Return independent rows R with RᵀR = gram, omitting eigenvalues below `cutoff` × the largest."""
    values, vectors = np.linalg.eigh(gram)
    keep = values > cutoff * values[-1]
    return np.sqrt(values[keep])[:, None] * vectors[:, keep].T


def solve_upper(triangle: Array, right: Array) -> Array:
    """Return X with triangle · X = right, for an upper triangular matrix with zeros below its diagonal.

    Large systems are halved, so that most of the work is one matrix product. A small one is left to the
    general method, which finds nothing to eliminate and substitutes back.
    """
    if len(triangle) <= SMALL_TRIANGLE:
        return np.asarray(np.linalg.solve(triangle, right), dtype=float)
    half = len(triangle) // 2
    last = solve_upper(triangle[half:, half:], right[half:])
    first = solve_upper(triangle[:half, :half], right[:half] - triangle[:half, half:] @ last)
    return np.concatenate([first, last])


def solve_cholesky(factor: Array, right: Array) -> Array:
    """Return X with L Lᵀ X = right, for a lower triangular L with zeros above its diagonal."""
    forward = solve_upper(factor[::-1, ::-1], right[::-1])[
        ::-1
    ]  # with both axes reversed, L is upper triangular
    return solve_upper(factor.T, forward)


def triangle_of(pieces: Iterable[Array], size: int) -> Array:
    """Return the triangle R of the QR decomposition of a tall matrix, given by pieces of its rows.

    RᵀR is the matrix's Gram matrix, as accurate as if it were decomposed at once, in the memory of a piece.
    """
    triangle = np.empty((0, size))
    for piece in pieces:
        triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, piece]), mode="r"), dtype=float)
    return triangle


def tame_root(gram: Array) -> Array | None:
    """Return the Cholesky root R with RᵀR = gram if its condition number is clearly below `TAME`."""
    largest = np.abs(gram).sum(axis=1).max()  # or more: no eigenvalue exceeds this
    try:
        np.linalg.cholesky(TAME**2 * gram - largest * np.eye(len(gram)))
        return np.asarray(np.linalg.cholesky(gram), dtype=float).T
    except np.linalg.LinAlgError:
        return None


def pivoted(matrix: Array) -> tuple[Array, NDArray[np.intp]]:
    """Return the absolute diagonal of the triangle of a pivoted QR decomposition, and the pivots.

    An entry of the diagonal is the length of a column after its projection onto the columns before it is
    subtracted. The column for which this is longest comes next.
    """
    if matrix.size > SMALL_PIVOTS and len(matrix) > FEW_ROWS:
        import scipy.linalg  # noqa: PLC0415 - loading it takes longer than a small plan

        triangle, pivots = scipy.linalg.qr(matrix, mode="r", pivoting=True, check_finite=False)
        return np.abs(np.diagonal(triangle)), np.asarray(pivots)
    left = np.array(matrix, dtype=float)
    order = np.arange(left.shape[1])
    sizes = np.zeros(min(left.shape))
    for step in range(len(sizes)):
        rest = left[step:, step:]
        lengths = np.sqrt(np.einsum("ij,ij->j", rest, rest))
        longest = int(lengths.argmax())
        sizes[step] = lengths[longest]
        if not sizes[step]:
            break
        swap, back = [step, step + longest], [step + longest, step]
        left[:, swap], order[swap] = left[:, back], order[back]
        mirror = rest[:, 0].copy()  # Householder's reflection takes the column to the first unit vector
        mirror[0] += math.copysign(sizes[step], mirror[0])
        mirror /= np.linalg.norm(mirror)
        rest -= np.outer(2 * mirror, mirror @ rest)
    return sizes, order


def pseudo_inverse(matrix: Array) -> Array:
    """Return the Moore–Penrose inverse."""
    return np.asarray(np.linalg.pinv(matrix), dtype=float)
