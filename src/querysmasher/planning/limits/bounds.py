"""Limits on the lower bound on the error of every mechanism."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class BoundLimits:
    """Limits on the lower bound on the error of every mechanism."""

    limit_dimension: int = 4_200
    """Maximum dimension of the matrix to decompose; beyond, the limit is bounded by products."""
    product_cells: int = 200_000
    """Maximum number of cells of the attributes asked about for that bound."""
    product_work: float = 2e10
    """Maximum of cells × queries² for queries that tie attributes together, in that bound."""
    quadrature_work: float = 2e9
    """The same for a closer bound by quadrature."""
    product_terms: int = 100
    """Maximum number of other groups in that bound."""
    large_limit_dimension: int = 1_200
    """Maximum dimension for which mixtures are tried; beyond, the search also takes fewer steps."""
    limit_steps: int = 60
    """Maximum number of steps towards the limit."""
    large_limit_steps: int = 8
    """The same above `large_limit_dimension`."""
    limit_gain: float = 1e-7
    """The search for the limit ends when a step raises the logarithm of the bound by less than this."""
