"""What a plan measures on an attribute set, and with how much noise."""

from __future__ import annotations

from dataclasses import dataclass

Blocks = tuple[tuple[tuple[int, ...], int], ...]
"""Pairs of axes of an attribute set and the index of their solution."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An attribute set, the strategies measured on it, and their noise."""

    attributes: tuple[int, ...]
    blocks: Blocks
    variance: float
    """σ²: the variance of the noise on the answers to the strategies' rows."""
    root_loss: float
    """√L at unit cost."""
    whole: tuple[int, ...] = ()
    """Indexes of the workload's groups that are measured here as they are, not split."""
