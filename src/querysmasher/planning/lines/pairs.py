"""Lower bounds for lines where a record is replaced: pairs of values, drawn by groups of values.

Let the groups of both values of a pair be drawn by a joint distribution Π, and each value within its group
evenly. With the marginals of the values on the diagonal of D, and C the weights of pairs, no strategy has a
root loss below √2 tr M^½, M = G^½(D - C)G^½ (`solvers.couplings`). Π is the best for the means of queries
over a few groups: queries of high frequency ask for values that are drawn evenly, those of low frequency
decide how they are paired.

C = DHSHᵀD with the groups' indicators H, and S = Π over the products of its marginals. The integral of
`solvers.bounds` takes, instead of tr M(M + t²)⁻¹ for D alone,

    tr M(M + t²)⁻¹ = tr G(G + t²D⁻¹)⁻¹ - tr (1 - SF)⁻¹S(H - Y)ᵀDY,  F = HᵀD(H - Y),  Y = t²D⁻¹(G + t²D⁻¹)⁻¹H,

by the formula of Sherman, Morrison and Woodbury: a few solutions of the tridiagonal system of prefixes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, square_root
from querysmasher.planning.lattice import RANK
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import LineGram
from querysmasher.planning.solvers.bounds import trace_integral
from querysmasher.planning.solvers.design import GROUPS, pairs_of_groups, value_of_groups

ENTRIES = 800_000
"""Maximum number of entries of the indicators of groups."""


@dataclass(frozen=True, eq=False)
class Pairing:
    """How pairs of values are drawn: the group of every value, and the joint distribution of two groups."""

    labels: NDArray[np.intp]
    joint: Array

    @classmethod
    def best(cls, gram: LineGram) -> Pairing:
        """Return the best pairing of a few groups."""
        n = gram.size
        count = min(GROUPS, max(4, ENTRIES // n), n)
        labels = np.arange(n) * count // n
        means = np.zeros((count, n))
        means[labels, np.arange(n)] = 1 / np.bincount(labels)[labels]
        return cls(labels, pairs_of_groups(gram.times(means) @ means.T))

    @property
    def marginals(self) -> Array:
        """The probability of every value."""
        return np.asarray((self.joint.sum(axis=1) / np.bincount(self.labels))[self.labels])

    def independent(self) -> Pairing:
        """Return the same with independent values."""
        marginals = self.joint.sum(axis=1)
        return Pairing(self.labels, np.outer(marginals, marginals))


def paired_value(gram: LineGram, pairing: Pairing) -> float | None:
    """Return a lower bound on tr M^½, or None if there are no prefixes to solve for."""
    q, n = pairing.marginals, gram.size
    H = (pairing.labels[:, None] == np.arange(len(pairing.joint))).astype(float)
    ends = pairing.joint.sum(axis=1)
    S = pairing.joint / np.outer(ends, ends)
    if n <= limits().line_matrix:
        whole = np.zeros((n, n))
        for family, weight in gram.families:
            whole += weight * family.gram()
        return value_of_groups(square_root(whole, RANK), pairing.labels, pairing.joint)
    path, rows, middle = gram.path
    if not path.any():
        return None
    from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

    weights, values = path.copy(), gram.values
    weights[-1] += weights.mean()  # the total is public, and changes nothing
    least = RANK * weights.max()
    surplus = math.sqrt(float(np.maximum(least - weights, 0.0).sum())) * (1 + math.log(n) / math.pi)
    weights = np.maximum(weights, least)
    image = np.diff(-np.diff(rows, append=0.0) / weights, prepend=0.0)  # TQ
    laplacian, beside = 1 / weights, -1 / weights[:-1]  # T
    laplacian[1:] -= beside

    def term(t: float) -> float:
        inverse = q / (t**2 + values * q)
        diagonal = laplacian + inverse
        ahead, ratios, _ = lapack.dpttrf(diagonal, beside)
        back = lapack.dpttrf(diagonal[::-1], beside[::-1])[0][::-1]
        result = float((values * inverse + t**2 * inverse**2 / (ahead + back - diagonal) / q).sum())
        scaled = inverse[:, None] * H
        solved = scaled - inverse[:, None] * lapack.dpttrs(ahead, ratios, scaled)[0]
        if len(rows):
            few = inverse[:, None] * lapack.dpttrs(ahead, ratios, image.T)[0]
            inside = np.linalg.solve(np.eye(len(rows)) + middle @ (few.T @ rows.T), middle)
            result += t**2 * float((few * (few @ inside.T) / q[:, None]).sum())
            solved -= few @ (inside @ (few.T @ H))
        Y = t**2 * solved / q[:, None]
        rest = H - Y
        F, W = H.T @ (q[:, None] * rest), rest.T @ (q[:, None] * Y)
        try:
            return result - float(np.trace(np.linalg.solve(np.eye(len(S)) - S @ F, S @ W)))
        except np.linalg.LinAlgError:  # t is so small that its terms hardly count
            return 0.0

    trace = float((weights + values + np.square(gram.few).sum(axis=0)).sum())
    return max(0.0, trace_integral(term, math.log(math.sqrt(trace) / n)) - math.sqrt(2) * surplus)
