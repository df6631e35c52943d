"""The mechanisms that can be planned and measured. A new one needs an entry here.

A mechanism says which strategies are allowed; a numerical method (`querysmasher.planning.solvers`) finds the
best of them. Spec files, `compare`, the documentation and error messages all derive from this list.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from querysmasher.planning.mechanisms.basis import choose_products
from querysmasher.planning.mechanisms.mechanism import Choice, Mechanism, Task, solve_separately
from querysmasher.planning.mechanisms.whole import choose_whole
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import solve
from querysmasher.planning.solvers.bounds import lower_bound
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.solvers.optimum import fourier_basis
from querysmasher.planning.solvers.structured import solve_fourier
from querysmasher.planning.strategies import DiagonalStrategy
from querysmasher.planning.subworkload import Block


def solve_residual(block: Block, tolerance: float = 0.0, progress: Progress | None = None) -> Solution:  # noqa: ARG001
    """Measure every residual evenly, V ∝ the projection onto the residual space: optimal for marginals."""
    weight = math.prod(n / (n - 1) for n in block.shape)  # the projection's diagonal is its inverse
    bases = tuple(map(fourier_basis, block.shape))  # any orthonormal basis; this one rounds well
    strategy = DiagonalStrategy(bases, np.full([n - 1 for n in block.shape], weight))
    reached = math.sqrt(sum(term.energy for term in block.terms) / weight)
    return Solution(strategy, reached, min(reached, lower_bound(block)), "residual")


MECHANISMS = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(
            "querysmasher",
            "QuerySmasher",
            "the best strategy for every attribute set, around centres chosen for the workload; few queries "
            "as they are, where that is better",
            "no reason below applies",
            "",
            solve_separately(lambda task: partial(solve, solver=task.solver)),
            uniform_only=False,
        ),
        Mechanism(
            "basis",
            "ResidualPlanner+",
            "one basis per attribute, made for its own queries or given as `bases={...}`",
            "policy or software downstream prescribes a basis (Haar wavelets, a hierarchy)",
            "It cannot adapt an attribute's basis to the other attributes of a query, or to queries that tie "
            "attributes.",
            choose_products,
            has_bases=True,
        ),
        Mechanism(
            "residual",
            "ResidualPlanner",
            "measures every residual evenly, whatever the queries",
            "the workload has only marginals, or you may ask any marginal later: it is optimal for these and "
            "favours no query",
            "It adapts to marginals only.",
            solve_separately(lambda _: solve_residual),
        ),
        Mechanism(
            "fourier",
            "Weighted Fourier Factorizations",
            "adds noise to Fourier coefficients",
            "attributes are circular, or one non-product block has too many cells for any other method: it "
            "costs a fast Fourier transform",
            "It cannot distinguish the ends of an attribute from its middle.",
            solve_separately(lambda _: solve_fourier),
        ),
        Mechanism(
            "whole",
            "Whole queries",
            "the queries themselves, not split: the optimum over all mechanisms, found over the cells they "
            "distinguish",
            "queries are few (at most 4,000) and you will ask no others later",
            "It answers nothing later but what follows from the planned queries, takes no large tables, and "
            "makes no use of a total that is public (replace-one neighbours).",
            choose_whole,
            splits=False,
        ),
    )
}
"""Mechanisms by name."""

DEFAULT = "querysmasher"

__all__ = ["DEFAULT", "MECHANISMS", "Choice", "Mechanism", "Task", "solve_separately"]
