"""Checks of a release from a file: its noise pays for its guarantee, and its parts are consistent.

Answers are unbiased only if every strategy lies in the residual space around the centres, and their standard
errors are right only if its rows are independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PrivacyError
from querysmasher.planning.checking import are_rows, check_centres, is_residual
from querysmasher.privacy.accounting import check_budget
from querysmasher.privacy.distributions import distribution_of
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.release.released import Released

LARGEST_VARIANCE = 2**101


def check_release(release: Released) -> None:
    """Refuse a release with inconsistent parts, or with too little noise for its budget."""
    plan = release.plan
    check_centres(plan.schema, release.centres)
    if (release.public_total is not None) != plan.budget.unit.total_is_public:
        _refuse("whether the number of records is public contradicts its neighbours")
    for strategy in plan.strategies:
        _check_strategy(strategy)
    known: set[object] = set()
    for measured in plan.measured:
        if not 0 < measured.variance <= LARGEST_VARIANCE:
            _refuse("a noise variance is zero, or too large")
        if not measured.attributes and len(measured.blocks) != 1:
            _refuse("the number of records is not measured exactly once")
        for axes, number in measured.blocks:
            centres = [release.centres[measured.attributes[a]] for a in axes]
            key = (number, *map(id, centres))
            if key not in known and not _stands_on(plan.strategies[number], centres):
                _refuse("a strategy is not inside its residual space")
            known.add(key)
    check_budget(plan, distribution_of(release.noise.name))


def _check_strategy(strategy: IntegerStrategy) -> None:
    """Refuse factors that rounding never produces: it makes one or, with multipliers, one per axis."""
    axes = [own for own, _ in strategy.factors]
    every = tuple(range(len(strategy.shape)))
    expected = [every] if strategy.multipliers is None else [(a,) for a in every]
    if axes != expected or not axes:
        _refuse("a strategy has invalid factors")
    for _, factor in strategy.factors:
        if factor.spectrum is not None:
            if not factor.spectrum.any():
                _refuse("a strategy is zero")
        elif not are_rows(factor.written_out()):
            _refuse("a strategy has dependent rows")


def _stands_on(strategy: IntegerStrategy, centres: Sequence[Array]) -> bool:
    """Return whether a strategy lies in the residual space around these centres."""
    if not centres:
        return True  # the number of records
    for axes, factor in strategy.factors:
        spectrum = factor.spectrum
        if spectrum is not None:  # all columns are shifts of one: each axis must sum to zero
            uniform = all(np.all(centre == centre[0]) for centre in centres)
            if not uniform or any(spectrum.take(0, axis=axis).any() for axis in range(spectrum.ndim)):
                return False
        else:
            rows = factor.written_out().reshape(-1, *(strategy.shape[a] for a in axes))
            if not is_residual(rows, [centres[a] for a in axes]):
                return False
    return True


def _refuse(why: str) -> None:
    msg = f"release: {why}"
    raise PrivacyError(msg)
