"""The kinds of strategies for blocks. A new kind needs a file of its own and a name in `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querysmasher.errors import PlanError
from querysmasher.planning.strategies.axis import AxisStrategy, has_own_centre
from querysmasher.planning.strategies.dense import DenseStrategy
from querysmasher.planning.strategies.diagonal import DiagonalStrategy
from querysmasher.planning.strategies.fourier import FourierStrategy
from querysmasher.planning.strategies.matrix_axis import MatrixAxis
from querysmasher.planning.strategies.merged import MergedStrategy
from querysmasher.planning.strategies.mirrored import MirroredStrategy
from querysmasher.planning.strategies.strategy import AxisRows, Strategy
from querysmasher.planning.strategies.tree import TreeStrategy
from querysmasher.privacy.integer_plan import IntegerStrategy

KINDS: dict[str, type[Strategy]] = {
    kind.kind: kind
    for kind in (
        FourierStrategy,
        MirroredStrategy,
        TreeStrategy,
        MatrixAxis,
        MergedStrategy,
        DenseStrategy,
        DiagonalStrategy,
    )
}
"""Kinds by name, as in files. Integer rows become the first kind that accepts them."""

__all__ = [
    "KINDS",
    "AxisRows",
    "AxisStrategy",
    "DenseStrategy",
    "DiagonalStrategy",
    "FourierStrategy",
    "MatrixAxis",
    "MergedStrategy",
    "MirroredStrategy",
    "Strategy",
    "TreeStrategy",
    "has_own_centre",
    "strategy_from_data",
    "strategy_of_integers",
]


def strategy_from_data(kind: object, data: Mapping[str, Any]) -> Strategy:
    """Rebuild a strategy of the named kind from the result of its `to_data`."""
    if not isinstance(kind, str) or kind not in KINDS:
        msg = f"strategy: expected one of the kinds {', '.join(KINDS)}, got another"
        raise PlanError(msg)
    return KINDS[kind].from_data(data)


def strategy_of_integers(strategy: IntegerStrategy) -> Strategy:
    """Convert integer rows to a strategy, to predict variances."""
    for kind in KINDS.values():
        found = kind.of_integers(strategy)
        if found is not None:
            return found
    msg = "strategy: expected one factor on all axes in order, or one per axis"
    raise PlanError(msg)
