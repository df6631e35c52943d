"""The statistics of a release, as its methods."""

from __future__ import annotations

from collections.abc import Sequence

from querysmasher.errors import explained
from querysmasher.statistics import quantiles, ratios, tables
from querysmasher.statistics.contrasts import Differences, Operand, Quotients, contrast
from querysmasher.statistics.figures import Figures, Source
from querysmasher.statistics.quantiles import Quantiles
from querysmasher.statistics.ratios import By, Ratios
from querysmasher.statistics.reliability import THRESHOLDS
from querysmasher.statistics.tables import CrossTable, Percent


class Statistical(Source):
    """Statistics computed from answers and their joint covariance alone: post-processing, at no privacy cost.

    Every result has `values`, `std`, `interval(level, simultaneous=False)`, `cv`, flags and `to_frame()`. An
    interval is for the noise: it covers the figure that the exact counts of the records counted
    (`Release.counted`) would give. For means, totals and quantiles of a binned attribute these are counts of
    bins, and the figure of the records themselves can differ from it by more than the interval.
    """

    @explained("release.table('sex', 'age')")
    def table(
        self,
        *attributes: str,
        totals: bool = True,
        percent: Percent = None,
        thresholds: Sequence[float] = THRESHOLDS,
        suppress: float | None = None,
    ) -> CrossTable:
        """Return the cross-table of one attribute or several; the last one forms the columns.

        Args:
            attributes: names of attributes.
            totals: whether to add totals, the last entry of each axis.
            percent: None for counts; "row", "column" or "total" for percentages of those.
            thresholds: coefficients of variation at which cells are flagged.
            suppress: coefficient of variation above which a cell is left out. This is computed from noisy
                values and biases what remains: small counts survive where their noise is positive.
        """
        return tables.table(
            self, attributes, totals=totals, percent=percent, thresholds=thresholds, suppress=suppress
        )

    @explained("release.mean('age', by='sex')")
    def mean(self, attribute: str, by: By = None, *, where: str | None = None) -> Ratios:
        """Return the mean of an ordinal or binned attribute, by group, among the records of a predicate.

        Bins count as their mid-points: the interval does not cover where records lie within bins. Intervals
        are Fieller's.
        """
        return ratios.mean(self, attribute, by, where)

    @explained("release.total_of('age', by='sex')")
    def total_of(self, attribute: str, by: By = None, *, where: str | None = None) -> Figures:
        """Return the sum of an ordinal or binned attribute over the records of each group.

        Bins count as their mid-points: the interval does not cover where records lie within bins.
        """
        return ratios.total_of(self, attribute, by, where)

    @explained("release.share('age >= 65', of=\"sex == 'F'\")")
    def share(self, predicate: str, of: str | None = None, by: By = None) -> Ratios:
        """Return the share of records that satisfy a predicate among those that satisfy `of`, by group."""
        return ratios.share(self, predicate, of, by)

    @explained("release.ratio('age < 18', 'age >= 65')")
    def ratio(self, a: Operand, b: Operand) -> Quotients:
        """Return a / b, of counts or of other statistics; see `difference`."""
        return contrast(Quotients, self, a, b)

    @explained("release.difference('age < 18', 'age >= 65')")
    def difference(self, a: Operand, b: Operand) -> Differences:
        """Return a - b, of counts or of other statistics, with an interval that accounts for shared noise.

        Args:
            a: a predicate or a workload, whose counts are meant; or what `mean`, `total_of`, `share`,
                `quantile`, `table` or `difference` of this release returned, or one entry of it.
            b: likewise; as many figures as a, or a single one.
        """
        return contrast(Differences, self, a, b)

    @explained("release.quantile('age', [0.1, 0.5, 0.9])")
    def quantile(
        self,
        attribute: str,
        probabilities: float | Sequence[float],
        by: By = None,
        *,
        where: str | None = None,
        bins: str = "interpolation",
    ) -> Quantiles:
        """Return quantiles of an ordinal or binned attribute, by group, among the records of a predicate.

        Args:
            attribute: an attribute with numbers as values, or a binned one.
            probabilities: one probability or several.
            by: grouping attributes.
            where: a predicate.
            bins: "interpolation" spreads the records evenly within each bin; "midpoints" returns mid-points.
                The interval covers neither assumption, only the noise.
        """
        return quantiles.quantile(self, attribute, probabilities, by, where, bins)
