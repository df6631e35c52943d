"""Covariances of many pairs of prefixes under a filter, in a few passes over the values.

For l < h, the covariance of the prefixes up to l and up to h is Var(l) plus the sum of r_i K_ij r_j over i
≤ l < j ≤ h. The eigenvalues of K are a smooth function of those of the second difference, λ, except for the
lowest ones: κ(λ) = c − Σ_m b_m/(λ + q_m) + ε, with poles q_m in a geometric sequence, fitted by least
squares. The matrix with eigenvalues 1/(λ + q), q = 4 sinh²(φ/2), is the inverse of a tridiagonal one, a sum
of exponentials of distances,

    (e^(−φd) + s·e^(−φ(P−d))) / (2 sinh φ·(1 − s·e^(−φP))),

with d = |i − j| and, with the sign of the reflection, d = i + j + shift; P is the period and s = ±1 its
sign. Each exponential is a product of a function of i and one of j, so that the sum follows from running
sums. The lowest frequencies are added one by one. What remains is the rounding error of integer filters at
single high frequencies: it changes variances by less than 1e-3 of their size at 14 bits, as they average over
all frequencies, and by up to a few percent at 7 bits.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import Array
from querysmasher.privacy.factors import Reflection
from querysmasher.workload.line import Places

LOWEST = 64
"""Number of frequencies that are added one by one."""

RATIO = 2.5
"""Ratio of consecutive poles: the error of the fit is of the order exp(−2π²/log RATIO)."""

SAMPLES = 2_000
"""Number of eigenvalues to which the function is fitted."""


def crossing(reflection: Reflection, inverse: Array, scales: Array, low: Places, high: Places) -> Array:
    """Return Σ r_i K_ij r_j over i ≤ low < j ≤ high, for many pairs, given K's eigenvalues and r."""
    squares, poles, weights, constant = _fitted(reflection, inverse)
    result = np.zeros(low.shape)
    for pole, weight in zip(poles, weights, strict=True):
        if weight:
            result += weight * _resolvent(reflection, float(pole), scales, low, high)
    count = min(LOWEST, squares.size)
    left = inverse[:count] - constant - (1 / (squares[:count, None] + poles)) @ weights
    for k in np.flatnonzero(np.abs(left) > 1e-12 * np.abs(inverse[:count])):
        for wave in reflection.waves(int(k)):
            sums = np.cumsum(scales * wave)
            result += left[k] * sums[low] * (sums[high] - sums[low])
    return result


def _fitted(reflection: Reflection, inverse: Array) -> tuple[Array, Array, Array, float]:
    """Return λ, the poles, their weights and the constant."""
    squares = reflection.second_differences
    first = min(LOWEST, squares.size // 2)
    least = max(float(squares[first]), 1e-14) / 100
    count = math.ceil(math.log(4_000 / least) / math.log(RATIO))
    poles = least * RATIO ** np.arange(count)
    chosen = np.unique(np.geomspace(first + 1, squares.size, SAMPLES).astype(np.int64)) - 1
    chosen = chosen[squares[chosen] > 0]
    basis = (
        np.column_stack([1 / (squares[chosen, None] + poles), np.ones(chosen.size)]) / inverse[chosen, None]
    )
    norms = np.sqrt((basis**2).sum(axis=0))
    solution = np.linalg.lstsq(basis / norms, np.ones(chosen.size), rcond=1e-13)[0] / norms
    return squares, np.asarray(poles, dtype=float), np.asarray(solution[:-1]), float(solution[-1])


def _resolvent(reflection: Reflection, pole: float, scales: Array, low: Places, high: Places) -> Array:
    """Return the same sum for the matrix with eigenvalues 1/(λ + pole)."""
    from scipy.signal import lfilter  # noqa: PLC0415 - loading it takes longer than a small plan

    place = np.arange(reflection.size)
    phi = 2 * math.asinh(math.sqrt(pole) / 2)
    decay = math.exp(-phi)
    ahead = lfilter([1.0], [1.0, -decay], scales)  # Σ_{i≤l} r_i e^(−φ(l−i))
    behind = lfilter([0.0, decay], [1.0, -decay], scales[::-1])[::-1]  # Σ_{j>l} r_j e^(−φ(j−l))
    result = ahead[low] * (behind[low] - np.exp(-phi * (high - low)) * behind[high])
    sign, period = reflection.period
    falling = np.cumsum(scales * np.exp(-phi * place))
    rising = np.cumsum(scales * np.exp(-phi * (period - place)))
    result = result + sign * falling[low] * (rising[high] - rising[low])
    if reflection.sign:
        far = math.exp(-phi * reflection.shift)
        result = result + reflection.sign * far * falling[low] * (falling[high] - falling[low])
        half = (period - reflection.shift) / 2
        back = np.cumsum(scales * np.exp(-phi * (half - place)))
        result = result + reflection.sign * sign * back[low] * (back[high] - back[low])
    return np.asarray(result / (2 * math.sinh(phi) * (1 - sign * math.exp(-phi * period))))
