"""The error of an estimate: measured with a part of the budget, or else model-based; each says which.

The error of a table is Σ_c |estimate - true count|, in records. `explore`, and `measure` with an error share,
measure it for every table of the workload, with noise of a known variance: an unbiased figure with a valid
interval, whatever the estimate assumes (`privacy.accounting`). Otherwise the estimate is rehearsed: the
estimated tables are taken as the truth, measured with the same noise and estimated again. That is
post-processing. It shows what noise and shrinkage do, but not the structure that nobody measured: a
model-based figure, usually too small, without an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.estimate.evidence import AttributeSet, Noisy
from querysmasher.estimate.fitting import centred
from querysmasher.estimate.risk import settled
from querysmasher.estimate.table_model import Model
from querysmasher.planning.estimator.estimator import subsets
from querysmasher.release.release import Release
from querysmasher.release.tidy import frame_of
from querysmasher.statistics.reliability import pointwise

REHEARSALS, FEW = 10, 1_000
"""Number of rehearsals if the tables have at most `FEW` cells; otherwise one is enough."""

MEASURED, MODELLED = "measured", "model-based"
"""Kinds of figures."""


@dataclass(frozen=True)
class EstimateError:
    """The sum of the absolute errors of the cells of an estimated table, or the mean of several such sums.

    Attributes:
        tables: the attributes of each table that the figure is about.
        records: the figure, in records. A measured one carries noise, so that it may be negative.
        std: its standard error, or None if it is model-based.
        total: the estimated number of records.
        unbiased: what the figure is on average for the unbiased tables, which follows from their noise alone;
            None if some of these were not measured.
        away: for synthetic records, how far their tables are from the estimated ones, in records: their error
            differs from that of the estimate by at most as much. None for the estimate itself.
    """

    tables: tuple[tuple[str, ...], ...]
    records: float
    std: float | None
    total: float
    unbiased: float | None = None
    away: float | None = None

    @property
    def kind(self) -> str:
        """How the figure came about: "measured" or "model-based"."""
        return MODELLED if self.std is None else MEASURED

    @property
    def value(self) -> float:
        """The figure, in records, and at least zero; an upper bound for synthetic records."""
        return max(self.records, 0.0) + (self.away or 0.0)

    @property
    def share(self) -> float:
        """The figure as a fraction of the estimated number of records."""
        return self.value / max(self.total, 1.0)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of a confidence interval for the true error, in records, both at least zero.

        Raise `OutsideMeasuredSpaceError` if the error was not measured.
        """
        if self.std is None:
            msg = "interval: the error was not measured; a model-based figure has no interval"
            raise OutsideMeasuredSpaceError(msg)
        reach = pointwise(level) * self.std + (self.away or 0.0)
        return max(self.records - reach, 0.0), max(self.records + reach, 0.0)

    def __str__(self) -> str:
        """Return the figure in words."""
        what = (
            f"table ({', '.join(self.tables[0])})"
            if len(self.tables) == 1
            else f"mean of {len(self.tables):,} tables"
        )
        of = f"the estimate, {what}:" if self.away is None else f"the synthetic records, {what}: at most"
        words = f"error of {of} {self.value:,.1f} records, {self.share:.2%} of all"
        if self.away is not None:
            words += f", of which {self.away:,.1f} between the records and the estimate"
        if self.std is None:
            words += f" ({MODELLED}: assumes that the table is like the estimate)"
        else:
            low, high = self.interval()
            words += f" ({MEASURED}; 95% interval {low:,.1f} to {high:,.1f})"
        if self.unbiased is None:
            return words
        return f"{words}; of the unbiased answers on average: about {self.unbiased:,.1f} records"

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class EstimateErrors:
    """The errors of several estimated tables."""

    each: tuple[EstimateError, ...]

    @property
    def mean(self) -> EstimateError:
        """The mean error of a table: measured if all are."""
        count = len(self.each)
        std = [error.std for error in self.each if error.std is not None]
        unbiased = [error.unbiased for error in self.each if error.unbiased is not None]
        return EstimateError(
            tuple(chain.from_iterable(error.tables for error in self.each)),
            math.fsum(error.records for error in self.each) / count,
            math.hypot(*std) / count if len(std) == count else None,
            self.each[0].total,
            math.fsum(unbiased) / count if len(unbiased) == count else None,
            None
            if self.each[0].away is None
            else math.fsum(error.away or 0.0 for error in self.each) / count,
        )

    def to_frame(self, backend: Any = "pyarrow", level: float = 0.95) -> Any:
        """Return one row per table: its attributes, error, share of all records, interval and kind.

        The column `unbiased` is the error of the unbiased table on average, where that was measured. For
        synthetic records, the last column is how far their table is from the estimated one.
        """
        ends = [(None, None) if error.std is None else error.interval(level) for error in self.each]
        numbers = pa.float64()
        columns = {
            "table": [" × ".join(error.tables[0]) for error in self.each],
            "error": [error.value for error in self.each],
            "share": [error.share for error in self.each],
            "std": pa.array([error.std for error in self.each], numbers),
            "low": pa.array([low for low, _ in ends], numbers),
            "high": pa.array([high for _, high in ends], numbers),
            "kind": [error.kind for error in self.each],
            "unbiased": pa.array([error.unbiased for error in self.each], numbers),
        }
        if self.each[0].away is not None:
            columns["away"] = pa.array([error.away for error in self.each], numbers)
        return frame_of(pa.table(columns), backend)

    def __len__(self) -> int:
        """Count the tables."""
        return len(self.each)

    def __repr__(self) -> str:
        """Show the mean."""
        return str(self.mean)


def errors_of(
    release: Release, model: Model, planned: Sequence[AttributeSet], sets: Sequence[AttributeSet]
) -> EstimateErrors:
    """Return the errors of the tables on sets of increasing attributes: measured, or else rehearsed.

    `planned` are the sets of the tables in the workload of the estimate.
    """
    figures: dict[AttributeSet, tuple[float, float | None]] = {}
    measured = None if release.exploration is None else release.exploration.errors
    if measured is not None:
        tables = (distance.attributes for distance in measured.distances.queries)
        std = measured.std(release.noise.distribution).tolist()
        figures.update(zip(tables, zip(measured.records.tolist(), std, strict=True), strict=True))
    missing = [subset for subset in sets if subset not in figures]
    about = tuple(planned), tuple(missing)
    if missing and about not in model.rehearsed:  # once: it takes longer than the estimate itself
        model.rehearsed[about] = _rehearsed(model, planned, missing)
    rehearsed = model.rehearsed.get(about, [])
    figures.update(zip(missing, ((records, None) for records in rehearsed), strict=True))
    names = model.schema.names
    return EstimateErrors(
        tuple(
            EstimateError(
                (tuple(names[a] for a in subset),), *figures[subset], model.total, _unbiased(model, subset)
            )
            for subset in sets
        )
    )


def _unbiased(model: Model, subset: AttributeSet) -> float | None:
    """Return the expected error of the unbiased table, if its cells have equal normal noise."""
    sizes, square = model.schema.sizes, 0.0
    for part in subsets(subset):
        directions = math.prod(sizes[a] - 1 for a in part)
        if directions:
            noisy = model.evidence.noisy(part)
            if noisy is None:
                return None
            square += directions * noisy.variance * math.prod(sizes[a] for a in part)
    return math.sqrt(2 / math.pi * square)


def _rehearsed(model: Model, planned: Sequence[AttributeSet], sets: Sequence[AttributeSet]) -> list[float]:
    """Return the mean distance of each table from its estimate in rehearsals, with fixed seeds."""
    cells = sum(math.prod(model.schema.sizes[a] for a in subset) for subset in sets)
    draws = REHEARSALS if cells <= FEW else 1
    distances = np.zeros(len(sets))
    for draw in range(draws):

        def noisy(known: Noisy, draw: int = draw) -> Array:
            """Return the residual of an estimated table with noise as on the true one."""
            subset = known.attributes
            table = model.table(subset)
            rng = np.random.default_rng([len(subset), *subset, draw])
            noise = rng.normal(size=table.shape) * math.sqrt(known.variance)
            return centred((table + noise)[None])[0]

        again = settled(Model(model.evidence.replaced(noisy), model.total), planned)
        pairs = zip(model.tables(sets), again.tables(sets), strict=True)
        distances += [float(np.abs(first - second).sum()) for first, second in pairs]
    return list((distances / draws).tolist())
