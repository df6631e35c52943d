"""The array types used throughout, and products along axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

Array = NDArray[np.float64]

Numbers = NDArray[np.int64] | NDArray[np.float64]
"""Noisy answers: integers or, in simulations, floating point."""


def one_core() -> threadpool_limits:
    """Return a context in which matrix products use one core; threads slow many small products down."""
    return threadpool_limits(1, user_api="blas")


def along_axes(tensor: Array, first: int, matrices: Sequence[Array]) -> Array:
    """Multiply the axes of `tensor` from `first` on by one matrix each, from the right."""
    for axis, matrix in enumerate(matrices, start=first):
        tensor = np.moveaxis(np.tensordot(tensor, matrix, axes=(axis, 0)), -1, axis)
    return tensor


def square_root(gram: Array, cutoff: float) -> Array:
    """Return independent rows R with RᵀR = gram, omitting eigenvalues below `cutoff` × the largest."""
    values, vectors = np.linalg.eigh(gram)
    keep = values > cutoff * values[-1]
    return np.sqrt(values[keep])[:, None] * vectors[:, keep].T


def pseudo_inverse(matrix: Array) -> Array:
    """Return the Moore–Penrose inverse."""
    return np.asarray(np.linalg.pinv(matrix), dtype=float)
