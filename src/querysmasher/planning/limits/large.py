"""Limits on attributes of very many values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class LargeLimits:
    """Limits on attributes of very many values."""

    line_matrix: int = 400
    """Maximum number of values of a line whose strategy is written out."""
    line_gap: float = 2e-4
    """Gap to which such strategies are solved."""
    dense_values: int = 1_500
    """Maximum number of values of an attribute that is always split and solved with matrices written out."""
    mixed_values: int = 64
    """The same for one that several families ask about, if the mean error counts."""
    most_values: int = 1_000_000
    """Maximum number of values of any attribute."""
    waves: int = 24
    """Number of low frequencies that adapt to unequal weights."""
    wave_entries: int = 10_000_000
    """Maximum number of entries of these, as rows over all values."""
    exact_range_work: float = 5e7
    """Maximum of values × distinct ends of ranges whose variances are computed one by one, exactly."""
    quick_values: int = 20_000
    """Maximum number of values of an attribute that is planned quickly; beyond, fewer plans are tried."""
    path_steps: int = 4
    """Number of steps towards the lower bound of weighted prefixes."""
    forest_gap: float = 1e-3
    """The bound of a hierarchy of very many values is raised until the gap is far below this."""
    line_rounds: int = 4
    """Number of rounds in which the diagonal and the low frequencies adapt to each other."""
    line_enough: float = 1.004
    """A strategy with a loss within this factor of its bound is good enough."""
