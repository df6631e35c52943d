"""The kinds of strategies for blocks. A new kind needs a file and a name in `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from querysmasher.errors import PlanError
from querysmasher.planning.strategies.coarse import CoarseStrategy
from querysmasher.planning.strategies.crossed import CrossedStrategy
from querysmasher.planning.strategies.dense import DenseStrategy, MergedStrategy
from querysmasher.planning.strategies.diagonal import DiagonalStrategy, FourierStrategy
from querysmasher.planning.strategies.few import FewStrategy
from querysmasher.planning.strategies.line import AxisStrategy, MatrixAxis, is_line
from querysmasher.planning.strategies.mirrored import MirroredStrategy
from querysmasher.planning.strategies.nodes import TreeStrategy
from querysmasher.planning.strategies.strategy import AxisRows, Strategy
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy

KINDS: dict[str, type[Strategy]] = {
    kind.kind: kind
    for kind in (
        DenseStrategy,
        DiagonalStrategy,
        FourierStrategy,
        MergedStrategy,
        MatrixAxis,
        FewStrategy,
        MirroredStrategy,
        TreeStrategy,
        CrossedStrategy,
        CoarseStrategy,
    )
}
"""Kinds by name, as in files. An integer factor on all axes has the name of its kind, unless it is dense."""

_known: WeakKeyDictionary[IntegerStrategy, Strategy] = WeakKeyDictionary()

__all__ = [
    "KINDS",
    "AxisRows",
    "AxisStrategy",
    "CoarseStrategy",
    "CrossedStrategy",
    "DenseStrategy",
    "DiagonalStrategy",
    "FewStrategy",
    "FourierStrategy",
    "MatrixAxis",
    "MergedStrategy",
    "MirroredStrategy",
    "Strategy",
    "TreeStrategy",
    "is_line",
    "strategy_from_data",
    "strategy_of_integers",
]


def strategy_from_data(kind: object, data: Mapping[str, Any]) -> Strategy:
    """Rebuild a strategy of the named kind from the result of its `to_data`."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise PlanError(f"strategy: expected one of the kinds {', '.join(KINDS)}, got another")
    return KINDS[kind].from_data(data)


def strategy_of_integers(rounded: IntegerStrategy) -> Strategy:
    """Convert integer rows to the strategy that predicts variances and estimates from answers; cached."""
    if rounded not in _known:
        axes, factor = rounded.factors[0]
        kind = KINDS.get(factor.kind, DenseStrategy)
        if axes != tuple(range(len(rounded.shape))) or rounded.multipliers is not None:
            kind = DiagonalStrategy
        elif type(factor) is Matrix and len(axes) == 1 and factor.rows == factor.cells > 1:
            kind = MatrixAxis  # rows in a residual space are fewer than values
        _known[rounded] = kind.of_integers(rounded)
    return _known[rounded]
