"""Closed form for blocks that look the same from every cell: marginals, circular ranges, their mixes.

If every Gram is circulant, shifting all cells changes nothing, so by convexity uniform weights are
optimal: √L = Σ √(λ/N) over the eigenvalues λ, which are Fourier transforms, and V is diagonal in the
real Fourier basis with entries ∝ √λ. As cosine and sine of one frequency share their eigenvalue, the
diagonal of V is constant.
"""

from __future__ import annotations

import math
from operator import attrgetter

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategies import DenseStrategy, DiagonalStrategy, Strategy
from querysmasher.planning.subworkload import Block, Part


def is_circulant(block: Block) -> bool:
    """Return whether every Gram of the block is circulant and of full rank around a uniform centre."""
    return all(len(piece.axes) == 1 and _spectrum(piece.part) is not None for piece in block.pieces)


def solve_circulant(block: Block) -> Solution:
    """Return the optimum, with both bounds computed from the strategy itself."""
    spectrum = _block_spectrum(block)
    bases = tuple(map(fourier_basis, block.shape))
    h = np.sqrt(spectrum)
    diagonal = h
    for basis in bases:  # v = (⊗ B∘B)ᵀ h, axis by axis
        diagonal = np.tensordot(diagonal, basis**2, axes=(0, 0))
    h = h / diagonal.max()
    strategy: Strategy = DiagonalStrategy(bases, h)
    if len(bases) == 1:
        strategy = DenseStrategy(block.shape, np.sqrt(h)[:, None] * bases[0])
    bound = float(np.sqrt(spectrum / block.cells).sum())
    return Solution(strategy, math.sqrt(float((spectrum / h).sum())), bound, "circulant")


def _block_spectrum(block: Block) -> Array:
    spectrum: Array = np.zeros([n - 1 for n in block.shape])
    for term in block.terms:
        product = np.full((), term.coefficient)
        for piece in sorted(term.pieces, key=attrgetter("axes")):
            own = _spectrum(piece.part)
            assert own is not None  # noqa: S101 - `is_circulant` has checked it
            product = np.multiply.outer(product, own)
        spectrum += product
    return spectrum


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
    return spectrum if np.all(spectrum > 1e-10 * spectrum.max(initial=0.0)) else None


def is_circulant_gram(gram: Array) -> bool:
    """Return whether every row of a Gram matrix is the previous one, shifted by one cell."""
    close = 1e-12 * np.abs(gram).max()
    pairs = (gram[1:2, 1:], gram[:1, :-1]), (gram[1:, 0], gram[:-1, -1]), (gram[1:, 1:], gram[:-1, :-1])
    return all(np.abs(own - previous).max(initial=0.0) <= close for own, previous in pairs)
