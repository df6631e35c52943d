"""Which predictor suits what a plan measures: split, whole, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from querysmasher.planning.centre import Centres
from querysmasher.planning.combination import CombinedPredictor
from querysmasher.planning.measured import Measured
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.strategies import Strategy
from querysmasher.planning.whole import WholePredictor
from querysmasher.planning.whole_rows import Whole
from querysmasher.planning.wholes import WholesPredictor
from querysmasher.schema import Schema


def new_predictor(
    schema: Schema,
    centres: Centres,
    strategies: Sequence[Strategy],
    measured: Iterable[tuple[Measured, ...]],
    *,
    public_total: bool,
) -> Predictor:
    """Return what predicts variances under measurements, each given by its independent noises."""
    residual: dict[tuple[int, ...], tuple[Measured, ...]] = {}
    whole: list[tuple[Measured, ...]] = []
    for noises in measured:
        if any(strategies[number].whole for _, number in noises[0].blocks):
            whole.append(noises)
        else:
            residual[noises[0].attributes] = noises
    if len(whole) == 1 and not residual:
        own = {whole[0][0].attributes: whole[0]}
        return WholePredictor(schema, centres, strategies, own, public_total)
    wholes = [Whole.of(noises, strategies) for noises in whole]
    if whole and not any(residual):
        return WholesPredictor(schema, centres, strategies, residual, public_total, wholes)
    predictor = Predictor(schema, centres, strategies, residual, public_total)
    if not whole:
        return predictor
    return CombinedPredictor(predictor, wholes)
