"""Differences and ratios of two figures of one release: of counts, means, shares, quantiles, percentages.

Each figure has an interval of its own, possibly asymmetric (Fieller's, or that of a quantile): from l_a to
u_a and from l_b to u_b. Their errors have correlation ρ. The interval of a - b recovers the variances from
these ends (the MOVER of Zou and Donner): with x = a - l_a and y = u_b - b,

    lower end = a - b - √(x² + y² - 2 ρ x y),

and likewise the upper end, with x = u_a - a and y = b - l_b. An end r of the interval of a / b is where an
end of the interval of a - r b passes zero. For counts, this is the usual interval of a difference, and
Fieller's of a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, explained
from querysmasher.statistics.figures import AnswerSource, Column, Figure, Figures, LinearErrors
from querysmasher.statistics.quantiles import quantile
from querysmasher.statistics.ratios import TOO_CLOSE, mean, share, total_of
from querysmasher.statistics.tables import CrossTable, table
from querysmasher.workload.builders import where as counting
from querysmasher.workload.workload import Workload

Operand = str | Workload | Figures | Figure | CrossTable
"""A predicate or a workload, whose counts are meant, or the result of a statistic."""


def difference_interval(a: Figures, b: Figures, correlation: Array, reach: float) -> tuple[Array, Array]:
    """Return the ends of intervals of a - b that reach so many standard errors."""
    below_a, above_a, below_b, above_b = _apart(a, b, reach)
    values = a.values - b.values
    low = values - _together(below_a, above_b, correlation)
    return low, values + _together(above_a, below_b, correlation)


def ratio_interval(a: Figures, b: Figures, correlation: Array, reach: float) -> tuple[Array, Array]:
    """Return the ends of intervals of a / b that reach so many standard errors."""
    below_a, above_a, below_b, above_b = _apart(a, b, reach)
    turned = b.values < 0  # then a / b = (-a) / (-b)
    below_a, above_a = np.where(turned, [above_a, below_a], [below_a, above_a])
    below_b, above_b = np.where(turned, [above_b, below_b], [below_b, above_b])
    N, D = np.where(turned, -a.values, a.values), np.abs(b.values)
    low = _passes(N, D, below_a, np.where(below_a <= N, above_b, below_b), correlation, -1)
    high = _passes(N, D, above_a, np.where(-above_a <= N, below_b, above_b), correlation, +1)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)


def _apart(a: Figures, b: Figures, reach: float) -> tuple[Array, Array, Array, Array]:
    """Return how far the intervals of a and of b reach below and above their values."""
    (la, ua), (lb, ub) = a.reaching(reach), b.reaching(reach)
    return a.values - la, ua - a.values, b.values - lb, ub - b.values


def _together(x: Array, y: Array, correlation: Array) -> Array:
    """Return √(x² + y² - 2 ρ x y), without cancellation."""
    with np.errstate(invalid="ignore"):
        reach = np.sqrt((x - y) ** 2 + 2 * (1 - correlation) * x * y)
    return np.where(np.isfinite(x) & np.isfinite(y), reach, np.inf)


def _passes(a: Array, b: Array, x: Array, y: Array, correlation: Array, sign: int) -> Array:
    """Return the r at which (a - r b)² = x² + r² y² - 2 ρ r x y: the smaller one, or the larger."""
    with np.errstate(all="ignore"):
        square, half, rest = b**2 - y**2, a * b - correlation * x * y, a**2 - x**2
        root = np.sqrt(np.maximum(half**2 - square * rest, 0))
        return np.where((square > 0) & np.isfinite(x), (half + sign * root) / square, np.nan)


@explained("release.difference('age < 18', 'age >= 65')")
def difference(source: AnswerSource, a: Operand, b: Operand) -> Figures:  # noqa: D417 - a method of the release
    """Return a - b, of counts or of other statistics, with an interval that accounts for shared noise.

    Args:
        a: a predicate or a workload, whose counts are meant; or what `mean`, `total_of`, `share`,
            `quantile`, `table` or `difference` of this release returned, or one entry of it.
        b: likewise; as many figures as a, or a single one.
    """
    left, right, correlation = _operands(source, a, b)
    return _contrast(
        ("Difference", "-"),
        _columns(a, b, left, right),
        (left, right),
        (left.values - right.values, _together(left.std, right.std, correlation)),
        (1.0, -1.0),
        lambda reach: difference_interval(left, right, correlation, reach),
        left.reliable & right.reliable,
    )


@explained("release.ratio('age < 18', 'age >= 65')")
def ratio(source: AnswerSource, a: Operand, b: Operand) -> Figures:
    """Return a / b, of counts or of other statistics; see `difference`."""
    left, right, correlation = _operands(source, a, b)
    N, D = left.values, right.values
    with np.errstate(divide="ignore", invalid="ignore"):
        R = np.where(D == 0, np.nan, N / D)
        errors = _together(left.std, np.abs(R) * right.std, np.sign(R) * correlation)
        std = np.where(np.isnan(R), np.nan, errors / np.abs(D))
        scales = 1 / D, -R / D
    return _contrast(
        ("Ratio", "/"),
        _columns(a, b, left, right),
        (left, right),
        (R, std),
        scales,
        lambda reach: ratio_interval(left, right, correlation, reach),
        left.reliable & right.reliable & (np.abs(D) > TOO_CLOSE * right.std) & (D != 0),
    )


def _operands(source: AnswerSource, a: Operand, b: Operand) -> tuple[Figures, Figures, Array]:
    """Return both operands as figures, one of b for each of a, and the correlations of their errors."""
    left, right = _figures(source, "a", a), _figures(source, "b", b)
    left, right = left.take(range(len(left))), right.take(_matched(left, right))
    return left, right, _correlation(left.errors, right.errors)


def _contrast(
    words: tuple[str, str],
    columns: tuple[Column, ...],
    operands: tuple[Figures, Figures],
    figures: tuple[Array, Array],
    scales: tuple[Array | float, Array | float],
    ends: Callable[[float], tuple[Array, Array]],
    reliable: NDArray[np.bool_],
) -> Figures:
    """Return contrasts; `scales` are the weights of the errors of both operands."""
    left, right = operands
    what, sign = words
    return Figures(
        f"{what}: {left.title}" + ("" if left.title == right.title else f" {sign} {right.title}"),
        columns,
        *figures,
        " ".join(filter(None, dict.fromkeys([left.note, right.note]))),
        linear=lambda: left.errors.plus(right.errors, *scales),
        ends=ends,
        trusted=reliable,
    )


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


def _correlation(a: LinearErrors, b: LinearErrors) -> Array:
    n = len(a.indexes)
    first, second = a.plus(b, 1.0, 0.0), a.plus(b, 0.0, 1.0)  # on one workload
    stacked = LinearErrors(
        a.source,
        first.workload,
        np.concatenate([first.indexes, second.indexes]),
        np.concatenate([first.coefficients, second.coefficients]),
    ).covariance()
    variances = np.diagonal(stacked)
    scale = np.sqrt(np.maximum(variances[:n] * variances[n:], 0))
    covariance = np.diagonal(stacked, n)
    return np.clip(np.divide(covariance, scale, out=np.zeros(n), where=scale > 0), -1, 1)


def _figures(source: AnswerSource, name: str, given: object) -> Figures:
    """Return an operand as figures of this release."""
    if isinstance(given, str):
        given = counting(source.schema, given)
    if isinstance(given, Workload):
        return _counts(source, given)
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


def _counts(source: AnswerSource, workload: Workload) -> Figures:
    """Return the answers to a workload as figures."""
    answers = source.answer(workload)
    n = len(workload)
    columns = (Column("query", list(workload.labels()), tuple(range(n))),)
    linear = LinearErrors.of(source, workload, np.arange(n))
    return Figures("Count", columns, answers.values, answers.std, linear=lambda: linear)


def _columns(a: Operand, b: Operand, left: Figures, right: Figures) -> tuple[Column, ...]:
    """Return what each contrast is about: common columns as they are, else both figures in words."""
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
