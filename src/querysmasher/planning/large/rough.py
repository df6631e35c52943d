"""The best strategy for weighted prefixes, whatever their weights, as a triangle.

V = P^{-½}(P^½GP^½)^½P^{-½} is an integral of inverses of tridiagonal matrices (`path`), in which R_ij = φ_i ⋯
φ_{j−1} R_jj for i < j. With one mode k per node of the quadrature, and a few constant ones (φ = 1) for
matrices of low rank,

    V_ij = Σ_k o_k(i) φ_k(i) ⋯ φ_k(j−1) b_k(j),   i < j.

V = BᵀB with B lower triangular follows block by block, from the last one to the first, as in a Kalman filter:
O_b, J_b and Φ_b being o, b and the products of φ between the values of block b and its ends,

    B_bbᵀB_bb = V_bb − O_b Σ O_bᵀ,   X_b = (J_b − Φ_b Σ O_bᵀ) B_bb⁻¹,   Σ ← Φ_b Σ Φ_b + X_b X_bᵀ,

and the block of B at rows b and columns a < b is (O_a Φ_{a+1} ⋯ Φ_{b−1} X_b)ᵀ, of which the rank is the
number of modes. Singular values that hardly matter are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.large.balance import COARSE, NEAR
from querysmasher.planning.large.path import Path
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies import TriangleStrategy

TINY = 1e-280
"""Ratios below this are rounding errors."""

FLAT = 1e-10
"""Relative size of eigenvalues that are rounding errors."""


@dataclass(frozen=True, eq=False)
class Modes:
    """V, by modes: mode, value."""

    left: Array
    """o."""
    right: Array
    """b."""
    decay: Array
    """Σ log φ over all values before."""
    extra: Array
    """What is added on the diagonal."""

    @classmethod
    def of(cls, path: Path, p: Array) -> Modes:
        """Return V at a distribution p, scaled and with so much on the diagonal that V_jj = 1."""
        left, right, decay, rows, middles = [], [], [], [], []
        extra = np.zeros(path.size)
        for t in path.nodes(p, COARSE, NEAR).tolist():
            weight = COARSE * 2 / np.pi * t
            inverse, diagonal, ratios = path.resolvent(p, t)
            own = t * np.sqrt(weight) * inverse / p
            left.append(own)
            right.append(own * diagonal)
            decay.append(np.append(0.0, np.cumsum(np.log(np.maximum(ratios, TINY)))))
            if path.values is not None:
                extra += weight * path.values * inverse / p
            if path.rows is not None:
                found, middle = path.low_rank(p, t)
                rows.append(found / p)
                middles.append(weight * t**2 * middle)
        if rows:
            smooth, signs = _combined(np.concatenate(rows), middles)
            left += list(smooth)
            right += list(signs[:, None] * smooth)
            decay += [np.zeros(path.size)] * len(smooth)
        every = np.stack(left), np.stack(right), np.stack(decay)
        v = extra + (every[0] * every[1]).sum(axis=0)
        most = float(v.max())
        return cls(every[0], every[1] / most, every[2], (extra + most - v) / most)

    def triangle(self) -> TriangleStrategy:
        """Return B with BᵀB = V, nearly."""
        size = self.left.shape[1]
        levels = max(0, (-(-size // limits().small_blocks) - 1).bit_length())
        width = -(-size // (1 << levels))
        near, states = self._factorised(width)
        far = [self._blocks(states, width, width << level) for level in range(levels)]
        ranks = tuple(own.shape[1] for own in far)
        every = np.concatenate(far, axis=1) if far else np.zeros((size, 0))
        longest = TriangleStrategy(near, every, ranks).leverage
        return TriangleStrategy(near / longest**0.5, every / longest**0.25, ranks)

    def _factorised(self, width: int) -> tuple[Array, Array]:
        """Return the rows of all B_bb, and X."""
        count, size = self.left.shape
        near, states = np.zeros((size, width)), np.zeros((count, size))
        sigma = np.zeros((count, count))
        below = np.tri(width, dtype=bool)
        for start in range((size - 1) // width * width, -1, -width):
            own = slice(start, min(size, start + width))
            left, right, decay = self.left[:, own], self.right[:, own], self.decay[:, own]
            length = left.shape[1]
            lags = decay[:, :, None] - decay[:, None, :]  # from earlier values to later ones
            block = np.einsum("ki,kij,kj->ij", right, np.exp(np.minimum(lags, 0.0)), left)
            block = np.where(below[:length, :length], block, 0.0)
            block = block + np.tril(block, -1).T + np.diag(self.extra[own])
            if own.stop < size:
                end = self.decay[:, own.stop, None]
                ahead = left * np.exp(end - decay)  # O
                across = np.exp(end - decay[:, :1])  # Φ
                block -= ahead.T @ sigma @ ahead
            found = np.linalg.cholesky(block[::-1, ::-1])[::-1, ::-1].T
            entering = right * np.exp(decay - decay[:, :1])  # J
            if own.stop < size:
                entering -= across * (sigma @ ahead)
                sigma = across * sigma * across.T
            state = np.linalg.solve(found.T, entering.T).T
            sigma = sigma + state @ state.T
            near[own, :length], states[:, own] = found, state
        return near, states

    def _blocks(self, states: Array, width: int, half: int) -> Array:
        """Return Z for the first half of every pair, and Y for the second, with the ranks that matter."""
        count, size = self.left.shape
        pairs = -(-size // (2 * half))
        place = np.arange(size)
        middle = place // (2 * half) * (2 * half) + half
        anchor = self.decay[:, np.minimum(middle, size - 1)]
        entering = states * np.exp(np.minimum(self.decay[:, place // width * width] - anchor, 0.0))
        leaving = self.left * np.exp(np.minimum(anchor - self.decay, 0.0))
        every = np.zeros((pairs * 2 * half, count))
        every[:size] = np.where(place < middle, leaving * (middle < size), entering).T
        z, y = every.reshape(pairs, 2, half, count).transpose(1, 0, 2, 3)
        (white_z, long_z), (white_y, long_y) = _whitened(z), _whitened(y)
        u, values, v = np.linalg.svd(long_y @ long_z.transpose(0, 2, 1))
        rank = max(1, int((values > limits().dropped_values).sum(axis=1).max()))
        root = np.sqrt(np.where(values > limits().dropped_values, values, 0.0))[:, None, :rank]
        z = z @ (white_z @ v.transpose(0, 2, 1)[:, :, :rank] * root)
        y = y @ (white_y @ u[:, :, :rank] * root)
        return np.asarray(np.stack([z, y], axis=1).reshape(-1, rank)[:size])


def _whitened(columns: Array) -> tuple[Array, Array]:
    """Return A and C with columns = (columns A)C, where columns A are orthonormal or zero."""
    values, vectors = np.linalg.eigh(columns.transpose(0, 2, 1) @ columns)
    kept = values > FLAT * np.maximum(values[:, -1:], 1e-300)
    root = np.sqrt(np.where(kept, values, 0.0))
    inverse = np.divide(1.0, root, out=np.zeros_like(root), where=kept)
    return vectors * inverse[:, None, :], root[:, :, None] * vectors.transpose(0, 2, 1)


def _combined(rows: Array, middles: list[Array]) -> tuple[Array, Array]:
    """Return few orthogonal rows F and signs with FᵀSF = the sum of blocks of rowsᵀ middle rows, nearly."""
    count = len(middles[0])
    inside = np.zeros((len(rows), len(rows)))
    for place, middle in enumerate(middles):
        own = slice(place * count, (place + 1) * count)
        inside[own, own] = (middle + middle.T) / 2
    scales = np.sqrt((rows**2).sum(axis=1))
    rows, inside = rows / scales[:, None], inside * np.outer(scales, scales)
    white, long = _whitened(rows.T[None])
    values, vectors = np.linalg.eigh(long[0] @ inside @ long[0].T)
    kept = np.abs(values) > FLAT * np.abs(values).max()
    found = (white[0] @ vectors)[:, kept].T @ rows
    return found * np.sqrt(np.abs(values[kept]))[:, None], np.sign(values[kept])
