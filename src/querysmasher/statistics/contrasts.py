"""Differences and ratios of two figures of one release: of counts, means, shares, quantiles, percentages.

Each figure has an interval, possibly asymmetric (Fieller's, or that of a quantile): from l_a to
u_a and from l_b to u_b. Their errors have correlation ρ. The interval of a - b recovers the variances from
these ends (the MOVER of Zou and Donner): with x = a - l_a and y = u_b - b,

    lower end = a - b - √(x² + y² - 2 ρ x y),

and likewise the upper end, with x = u_a - a and y = b - l_b. An end r of the interval of a / b is where an
end of the interval of a - r b passes zero. For counts, this is the usual interval of a difference, and
Fieller's of a ratio. Quantiles that are one of few values err in steps, to which no correlation applies:
with ρ = -1 the interval has all differences of what lies in both intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, product

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, as_given, explained
from querysmasher.statistics.figures import AnswerSource, Column, Figure, Figures, LinearErrors
from querysmasher.statistics.quantiles import quantile
from querysmasher.statistics.ratios import (
    By,
    apart,
    at_worst,
    correlations,
    joint_error,
    mean,
    ratios_of,
    share,
    total_of,
)
from querysmasher.statistics.selection import Groups
from querysmasher.statistics.tables import CrossTable, table
from querysmasher.workload.builders import where as counting
from querysmasher.workload.workload import Workload

Operand = str | Workload | Figures | Figure | CrossTable
"""A predicate or a workload, whose counts are meant, or the result of a statistic."""


def difference_ends(a: Figures, b: Figures, correlation: Array, reach: float) -> tuple[Array, Array]:
    """Return the ends of intervals of a - b that reach `reach` standard errors.

    Without a finite value, such as the quantile of a group whose noisy count is below zero, nothing bounds
    it.
    """
    (below_a, above_a), (below_b, above_b) = apart(a, reach), apart(b, reach)
    with np.errstate(invalid="ignore"):  # infinite values
        values = a.values - b.values
        low = values - joint_error(below_a, above_b, correlation)
        high = values + joint_error(above_a, below_b, correlation)
    known = np.isfinite(values)
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)


@explained("release.difference('age < 18', 'age >= 65')")
def difference(source: AnswerSource, a: Operand, b: Operand, by: By = None) -> Figures:  # noqa: D417 - a method
    """Return a - b, of counts or of other statistics, with an interval that accounts for shared noise.

    Args:
        a: a predicate or a workload, to compare counts; or a result of `mean`, `total_of`, `share`,
            `quantile`, `table` or `difference` of this release, or one entry of such a result.
        b: the same, with as many figures as a, or a single figure.
        by: grouping attributes, in whose groups the counts of two predicates are compared.
    """
    return _contrast(source, a, b, by, "Difference", "-", _difference)


def _difference(
    title: str, columns: tuple[Column, ...], left: Figures, right: Figures, correlation: Array, note: str
) -> Figures:
    with np.errstate(invalid="ignore"):  # infinite values
        values = left.values - right.values
    return Figures(
        title,
        columns,
        values,
        joint_error(left.std, right.std, correlation),
        note,
        linear=lambda: left.errors.plus(right.errors, 1.0, -1.0),
        ends=lambda reach: difference_ends(left, right, at_worst(left, right, correlation), reach),
        trusted=left.reliable & right.reliable,
    )


@explained("release.ratio('age < 18', 'age >= 65')")
def ratio(source: AnswerSource, a: Operand, b: Operand, by: By = None) -> Figures:
    """Return a / b, of counts or of other statistics; see `difference`."""
    return _contrast(source, a, b, by, "Ratio", "/", ratios_of)


Contrasting = Callable[[str, tuple[Column, ...], Figures, Figures, Array, str], Figures]
"""Returns contrasts of figures, from title, columns, both figures, their correlations, and a note."""


def _contrast(
    source: AnswerSource, a: Operand, b: Operand, by: By, what: str, sign: str, contrasting: Contrasting
) -> Figures:
    """Return one contrast for each figure of a, also for extreme places of the records within bins.

    A difference, or a ratio whose denominator does not change its sign, is extreme at these. If the
    denominator can have either sign, the ratio can be any number.
    """
    if by is not None:
        a, b = _by_group(source, "a", a, by), _by_group(source, "b", b, by)
    left, right = _figures(source, "a", a), _figures(source, "b", b)
    left, right = left.take(range(len(left))), right.take(_matched(left, right))
    title = f"{what}: {left.title}" + ("" if left.title == right.title else f" {sign} {right.title}")
    note = " ".join(filter(None, dict.fromkeys([left.note, right.note])))
    columns = _columns(a, b, left, right)

    def contrast(x: Figures, y: Figures) -> Figures:
        covariance = np.diagonal(x.errors.covariance(y.errors))
        made = contrasting(title, columns, x, y, correlations(covariance, x.std, y.std), note)
        return replace(made, stepwise=x.stepwise | y.stepwise)

    made, several = contrast(left, right), left.corners or right.corners
    pairs = product(left.corners or (left,), right.corners or (right,)) if several else ()
    corners = [contrast(*pair) for pair in pairs]
    if right.corners and sign == "/":
        any_number = (right.low <= 0) & (right.high >= 0)
        made = replace(made, trusted=made.reliable & ~any_number)
        corners = [_without_end(*pair, any_number) for pair in zip(corners, cycle((-np.inf, np.inf)))]
    return replace(made, corners=tuple(corners))


def _without_end(figures: Figures, end: float, chosen: NDArray[np.bool_]) -> Figures:
    """Return figures, of which the chosen ones have this infinite end in place of a value and an interval."""

    def ends(reach: float) -> tuple[Array, Array]:
        low, high = figures.reaching(reach)
        return np.where(chosen, end, low), np.where(chosen, end, high)

    return replace(figures, values=np.where(chosen, end, figures.values), ends=ends)


def _by_group(source: AnswerSource, name: str, given: object, by: By) -> Figures:
    """Return how many records of each group satisfy a predicate."""
    if not isinstance(given, str):
        raise WorkloadError(
            f"by: expected predicates to group, got {as_given(given)} as {name}; state the groups of a "
            "statistic in itself, as in release.mean('income', by='region')"
        )
    groups = Groups(source, by, given, name=name)
    return groups.queries().figures(slice(None), f"Count{groups.words}", groups.columns())


def _matched(left: Figures, right: Figures) -> Sequence[int]:
    """Return the figure of b for each of a: the same one, the only one, or that of the same group."""
    n, m = len(left), len(right)
    if m in (1, n):
        return range(n) if m == n else [0] * n
    columns = {column.name: column for column in left.columns}
    number = {tuple(column[i] for column in right.columns): i for i in range(m)}
    try:
        keys = [tuple(columns[column.name][i] for column in right.columns) for i in range(n)]
        return [number[key] for key in keys]
    except KeyError:
        raise WorkloadError(
            f"b: expected {n:,} figures, one per figure of a, a single one, or one per group of a, got {m:,}"
        ) from None


def _figures(source: AnswerSource, name: str, given: object) -> Figures:
    """Return an operand as figures of this release."""
    if isinstance(given, str):
        given = counting(source.schema, given)
    if isinstance(given, Workload):
        answers, n = source.answer(given), len(given)
        columns = (Column("query", list(given.labels()), tuple(range(n))),)
        linear = LinearErrors.of(source, given, np.arange(n))
        return Figures("Count", columns, answers.values, answers.std, linear=lambda: linear)
    if isinstance(given, Figure) and given.origin is not None:
        figures, index = given.origin
        given = figures.take([index])
    if isinstance(given, CrossTable):
        given = given.figures
    if not isinstance(given, Figures):
        raise WorkloadError(
            f"{name}: expected a predicate, a Workload or the result of a statistic, got "
            f"{type(given).__name__}"
        )
    if given.errors.source is not source:
        raise WorkloadError(
            f"{name}: expected figures of this release, got those of another; the noise of two releases is "
            "independent, so the squares of their standard errors add up"
        )
    return given


def _columns(a: Operand, b: Operand, left: Figures, right: Figures) -> tuple[Column, ...]:
    """Return what each contrast is about: the columns if they are the same, else both figures in words."""
    counts = isinstance(a, str | Workload), isinstance(b, str | Workload)
    if not any(counts):
        values = {c.name: [c[i] for i in range(len(left))] for c in left.columns}
        if all(values.get(c.name) == [c[i] for i in range(len(left))] for c in right.columns):
            return left.columns  # b is about the same, or about more
    same = left.title == right.title  # then the title of the contrast says what they are
    return tuple(
        Column(name, [_words(operand, i, counted, same) for i in range(len(left))], tuple(range(len(left))))
        for name, operand, counted in (("a", left, counts[0]), ("b", right, counts[1]))
    )


def _words(figures: Figures, index: int, counted: bool, same: bool) -> str:
    about = ", ".join(
        column.text(index) if counted else f"{column.name} = {column.text(index)}"
        for column in figures.columns
    )
    if counted or (same and about):
        return about
    return f"{figures.title}: {about}" if about else figures.title


class Statistical(AnswerSource):
    """Statistics computed from answers and their joint covariance alone: post-processing, at no privacy cost.

    Every result has `values`, `std`, `interval(level, simultaneous=False)`, `cv`, flags and `to_frame()`. An
    interval covers the figure of the counted records (`Release.counted`): it accounts for the noise and, for
    means, totals and quantiles of a binned attribute, for any places of the records within their bins.
    """

    table = table
    mean = mean
    total_of = total_of
    total = total_of
    share = share
    ratio = ratio
    difference = difference
    quantile = quantile
