"""ResidualPlanner: every residual is measured evenly, V ∝ the projection onto the residual space.

The strategy does not depend on the queries. It is optimal for marginals, and for these alone.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.bounds import lower_bound
from querysmasher.planning.solvers.circulant import fourier_basis
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.strategies import DiagonalStrategy
from querysmasher.planning.subworkload import Block


def solve_residual(block: Block, tolerance: float = 0.0, progress: Progress | None = None) -> Solution:  # noqa: ARG001
    """Return the even strategy: a closed form, exact whatever the tolerance."""
    weight = math.prod(n / (n - 1) for n in block.shape)  # the projection's diagonal is its inverse
    bases = tuple(map(fourier_basis, block.shape))  # any orthonormal basis; this one rounds well
    strategy = DiagonalStrategy(bases, np.full([n - 1 for n in block.shape], weight))
    energy = sum(term.energy for term in block.terms)
    reached = math.sqrt(energy / weight)
    return Solution(strategy, reached, min(reached, lower_bound(block)), "residual")
