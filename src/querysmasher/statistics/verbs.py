"""The statistics of a release, as its methods."""

from __future__ import annotations

from querysmasher.statistics.contrasts import difference, ratio
from querysmasher.statistics.figures import AnswerSource
from querysmasher.statistics.quantiles import quantile
from querysmasher.statistics.ratios import mean, share, total_of
from querysmasher.statistics.tables import table


class Statistical(AnswerSource):
    """Statistics computed from answers and their joint covariance alone: post-processing, at no privacy cost.

    Every result has `values`, `std`, `interval(level, simultaneous=False)`, `cv`, flags and `to_frame()`. An
    interval is for the noise: it covers the figure that the exact counts of the records counted
    (`Release.counted`) would give. For means, totals and quantiles of a binned attribute these are counts of
    bins, and the figure of the records themselves can differ from it by more than the interval.
    """

    table = table
    mean = mean
    total_of = total_of
    share = share
    ratio = ratio
    difference = difference
    quantile = quantile
