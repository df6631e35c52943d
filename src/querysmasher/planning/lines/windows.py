"""Ranges of given lengths, as in moving sums: filters in the cosine basis.

Let value j stand at j + ½. In the cosine basis, a range of length l around x has the coefficients
D_l(θ)·cos θx with D_l(θ) = sin(lθ/2)/sin(θ/2). Cosines at all n positions x are orthogonal. So ranges of
length l at all positions, reflected where they pass an end, have a Gram matrix that is a filter, with
eigenvalues D_l².

The bound: let W_c = U F² be these rows, with F² the root of their Gram matrix, and W those that lie inside.
U restricted to the rows of W has norm one at most, so that ‖WP^½‖_* ≥ tr UᵀWP^½ = Σ_j (F⁻²WᵀW)_jj √p_j, and
the best p gives Σ_j (F² − F⁻²EᵀE)_jj², where E has the rows that pass an end. Only their first cells matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.privacy.factors import Reflection
from querysmasher.workload.family import Family

Asked = tuple[Family, float]

WIDEST = 2_000
"""Maximum length of ranges in a bound: it takes a matrix of that size."""

UNSEEN = 1e-9
"""Frequencies that ranges see less than this, relative to the most, are none of theirs."""


def has_lengths(family: Family) -> bool:
    """Return whether all queries are ranges that do not go around the ends."""
    spans = family.original.spans()
    return spans is not None and bool(np.all(spans[0] <= spans[1]))


def length_spectrum(size: int, asked: Sequence[Asked]) -> Array:
    """Return the eigenvalues of ranges of the same lengths, spread evenly over all positions."""
    by_length = np.zeros(2 * size)
    for family, coefficient in asked:
        first, last = family.original.spans() or (np.zeros(0, int),) * 2
        weights = np.ones(family.rows) if family.weights is None else family.weights
        np.add.at(by_length, last - first + 1, coefficient * weights / size)
    angles = np.arange(size) * (np.pi / (2 * size))
    waves = 2 * (by_length.sum() - np.fft.rfft(by_length).real[:size])  # Σ c_l (2 sin(lθ/2))²
    squares = np.square(np.arange(2 * size))
    return np.append(by_length @ squares, np.maximum(waves[1:], 0.0) / (4 * np.sin(angles[1:]) ** 2))


def window_bound(size: int, asked: Sequence[Asked], even: float) -> float:
    """Return a lower bound on the loss of ranges, and of single values of weight `even`, at unit cost.

    Of every length counts what is asked at all positions.
    """
    reflection = Reflection("cosine", size)
    eigenvalues = np.full(size, even)
    angles = np.arange(size) * (np.pi / (2 * size))
    complete = _complete(size, asked)
    for length, weight in complete.items():
        ratio = np.sin(length * angles[1:]) / np.sin(angles[1:])
        eigenvalues += weight * np.append(length, ratio) ** 2
    seen = eigenvalues > UNSEEN**2 * eigenvalues.max()
    roots = np.where(seen, np.sqrt(eigenvalues), 0.0)
    squares = reflection.diagonal(reflection.kernel(roots))
    inverse = reflection.lags(reflection.kernel(np.where(seen, 1 / np.where(seen, roots, 1.0), 0.0)))
    for length, weight in complete.items():
        place = np.arange(length)
        corner = inverse[np.abs(np.subtract.outer(place, place))] + inverse[np.add.outer(place, place) + 1]
        rows = _past_the_end(length)
        lost = weight * np.einsum("ij,ij->j", rows, rows @ corner)
        squares[:length] -= lost
        squares[size - length :] -= lost[::-1]
    return float(np.square(np.maximum(squares, 0.0)).sum())


def _complete(size: int, asked: Sequence[Asked]) -> dict[int, float]:
    """Return the least weight of ranges of every length that are asked at all positions."""
    found: dict[int, Array] = {}
    for family, coefficient in asked:
        first, last = family.original.spans() or (np.zeros(0, int),) * 2
        weights = np.ones(family.rows) if family.weights is None else family.weights
        lengths, counts = np.unique(last - first + 1, return_counts=True)
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
            if length <= min(WIDEST, size // 2) and count > size - length:
                at = last - first + 1 == length
                every = found.setdefault(length, np.zeros(size - length + 1))
                np.add.at(every, first[at], coefficient * weights[at])
    return {length: float(every.min()) for length, every in found.items() if every.min() > 0}


def _past_the_end(length: int) -> Array:
    """Return the ranges that pass the first value, reflected there, over their first cells."""
    rows = np.zeros((length // 2, length))
    for row, before in enumerate(range(1, length // 2 + 1)):
        rows[row, : length - before] = 1.0
        rows[row, :before] += 1.0
    if length % 2 == 0:
        rows[-1] /= np.sqrt(2)  # the range around the end itself, half of which belongs to either side
    return rows
