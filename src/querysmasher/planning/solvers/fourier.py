"""Weighted Fourier Factorizations: independent noise on Fourier coefficients, in closed form.

V is restricted to be diagonal in the Fourier basis. With g the energy of the queries at each
frequency the best diagonal is ∝ √g and reaches √L = Σ √(g/N). It is the optimum of the queries averaged
over all shifts, hence optimal where shifts change nothing (marginals, circular ranges) and the more
wasteful the more they do. Centres must be uniform: only then does the residual space shift into itself.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.bounds import lower_bound
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.strategies import FourierStrategy
from querysmasher.planning.subworkload import Block, Part

NOTHING = 1e-13
"""Energies below this fraction of the largest are rounding error."""

CHUNK = 20_000_000
"""Maximum number of entries transformed at a time."""


def solve_fourier(block: Block, tolerance: float = 0.0, progress: Progress | None = None) -> Solution:  # noqa: ARG001
    """Return the best strategy diagonal in the Fourier basis: a closed form, whatever the tolerance."""
    energy = np.zeros(block.shape)
    for term in block.terms:
        product = np.full((), term.coefficient)
        order: list[int] = []
        for piece in term.pieces:
            product = np.multiply.outer(product, energies(piece.part))
            order.extend(piece.axes)
        energy += product.transpose(np.argsort(order))
    for axis in range(energy.ndim):  # only rounding errors: residuals have no constant
        np.moveaxis(energy, axis, 0)[0] = 0.0
    energy[energy < NOTHING * energy.max()] = 0.0
    roots = np.sqrt(energy)
    reached = float(roots.sum()) / math.sqrt(block.cells)
    strategy = FourierStrategy(roots * (block.cells / roots.sum()))
    return Solution(strategy, reached, min(reached, lower_bound(block)), "fourier")


def has_uniform_centres(block: Block) -> bool:
    """Return whether shifts map the block's residual space to itself."""
    return all(centre.is_uniform for centre in block.centres)


def energies(part: Part) -> Array:
    """Return the energies of a part's queries at every frequency: they sum to its trace."""
    axes = tuple(range(len(part.shape)))
    total = np.zeros(part.shape)
    if part.thin:
        step = max(1, CHUNK // part.cells)
        for start in range(0, len(part.content), step):
            rows = part.content[start : start + step].reshape(-1, *part.shape)
            total += (np.abs(np.fft.fftn(rows, axes=[1 + a for a in axes])) ** 2).sum(axis=0)
        return total / part.cells
    for cell, row in zip(np.ndindex(part.shape), part.content, strict=True):  # averaged over all shifts
        total += np.roll(row.reshape(part.shape), [-c for c in cell], axes)
    return np.maximum(np.fft.fftn(total).real / part.cells, 0.0)
