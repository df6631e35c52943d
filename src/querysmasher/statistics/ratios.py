"""Means, totals and shares by group, and ratios of two noisy numbers.

With N and D jointly normal, R = N / D has the standard error √w / |D| of the delta method, w = Var(N - R D).
The interval is Fieller's: all r for which N - r D is within z standard errors of zero. It has exact
coverage however noisy the denominator is. Writing r = R + δ, its ends solve

    δ² (D² - z² v) + 2 δ z² u - z² w = 0,    v = Var D,  u = Cov(N, D) - R v.

If D is within z standard errors of zero, no bounded set has that coverage, and the interval is the whole
line. So the interval covers at least as often as stated, and within a percentage point of it if the true
denominator is five standard errors or more from zero. A figure whose denominator is within two standard
errors of zero is marked as unreliable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute, literal
from querysmasher.errors import (
    OutsideMeasuredSpaceError,
    PredicateError,
    Remedy,
    WorkloadError,
    as_given,
    explained,
)
from querysmasher.statistics.figures import AnswerSource, Column, Figures, LinearErrors
from querysmasher.statistics.selection import ROWS, Groups, RowFactor, among
from querysmasher.workload.sum import numbers, on_all

TOO_CLOSE = 2.0
"""A denominator within so many standard errors of zero makes a ratio unreliable."""

ROUNDING = 1e-12
"""Variances below this fraction of their terms are rounding errors."""

ASSUMED = (
    "Intervals cover the noise, not this assumption: "
    "the figure of the records themselves can lie outside them."
)
ANYWHERE = "Intervals cover the noise, and any places of the records within their bins."
MIDPOINTS = "Bins count as their mid-points."
INTERPOLATED = "Records are taken as spread evenly within each bin."

ASSUMPTIONS = (None, "midpoint")

By = str | Sequence[str] | None
"""No grouping attribute, one, or several."""


def apart(figures: Figures, reach: float) -> tuple[Array, Array]:
    """Return how far the intervals of figures reach below and above their values."""
    low, high = figures.reaching(reach)
    with np.errstate(invalid="ignore"):  # infinite values
        return figures.values - low, high - figures.values


def joint_error(x: Array, y: Array, correlation: Array) -> Array:
    """Return √(x² + y² - 2 ρ x y), without cancellation."""
    with np.errstate(invalid="ignore"):
        square = (np.abs(x) - np.abs(y)) ** 2 + 2 * (np.abs(x * y) - correlation * x * y)
        square = np.where(square > ROUNDING * (x**2 + y**2), square, 0.0)
    return np.where(np.isfinite(x) & np.isfinite(y), np.sqrt(square), np.inf)


def at_worst(a: Figures, b: Figures, correlation: Array, sign: Array | float = 1.0) -> Array:
    """Return the correlation of two errors; that at which they add up if one is stepwise."""
    return np.where(a.stepwise | b.stepwise, -sign, correlation)


def ratios_of(
    title: str,
    columns: tuple[Column, ...],
    numerator: Figures,
    denominator: Figures,
    correlation: Array,
    note: str = "",
    scale: float = 1.0,
    shift: float = 0.0,
) -> Figures:
    """Return shift + scale × N / D as figures, given the correlation of the errors of N and D."""
    N, D = numerator.values, denominator.values
    with np.errstate(divide="ignore", invalid="ignore"):
        R = np.where(D == 0, np.nan, N / D)
        error = joint_error(numerator.std, R * denominator.std, correlation) / np.abs(D)
    worst = at_worst(numerator, denominator, correlation, np.sign(R))
    far = (np.abs(D) > TOO_CLOSE * denominator.std) & (D != 0)

    def linear() -> LinearErrors:
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = scale * (1 / D.ravel()), scale * (-R.ravel() / D.ravel())
        return numerator.errors.plus(denominator.errors, *factors)

    def end(x: Array, y: Array, sign: int) -> Array:
        """Return the r at which (N - r D)² = x² + r² y² - 2 ρ r x y: the smaller one, or the larger."""
        with np.errstate(all="ignore"):
            covariance = worst * x * y
            square = D**2 - y**2
            u = R * y**2 - covariance
            u = np.where(np.abs(u) > ROUNDING * (np.abs(R) * y**2 + np.abs(covariance)), u, 0.0)
            root = np.sqrt(u**2 + square * joint_error(x, R * y, worst) ** 2)
            return np.where((square > 0) & np.isfinite(x), R + (u + sign * root) / square, np.nan)

    def ends(reach: float) -> tuple[Array, Array]:
        below_N, above_N = apart(numerator, reach)
        below_D, above_D = apart(denominator, reach)
        turned = D < 0  # then N / D = (-N) / (-D)
        below_N, above_N = np.where(turned, [above_N, below_N], [below_N, above_N])
        below_D, above_D = np.where(turned, [above_D, below_D], [below_D, above_D])
        above = np.where(turned, -N, N)
        low = end(below_N, np.where(below_N <= above, above_D, below_D), -1)
        high = end(above_N, np.where(-above_N <= above, below_D, above_D), +1)
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)
        return shift + scale * low, shift + scale * high

    return Figures(
        title,
        columns,
        shift + scale * R,
        scale * np.where(np.isnan(R), np.nan, error),
        note,
        linear=linear,
        ends=ends,
        trusted=np.asarray(far & numerator.reliable & denominator.reliable),
    )


def correlations(covariance: Array, x: Array, y: Array) -> Array:
    """Return correlations from covariances and standard errors; zero where one of these is."""
    scale = x * y
    return np.clip(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0), -1, 1)


def notes(attribute: Attribute, *assumed: str) -> str:
    """Return what is assumed about an attribute, and which of its values a statistic leaves out."""
    beside = ", ".join(map(literal, attribute.beside))
    skipped = f"Records with {beside} in {attribute.name!r} are left out." if beside else ""
    rounded = f"In {attribute.name!r}, {attribute.rounding}." if attribute.rounding else ""
    return " ".join(filter(None, [*assumed, rounded, skipped]))


def with_unit(attribute: Attribute) -> str:
    """Return the name of an attribute and, if it is stated, the unit of its numbers."""
    return attribute.name if attribute.unit is None else f"{attribute.name} ({attribute.unit})"


def places(attribute: Attribute, words: str, assume: str | None) -> tuple[str, bool]:
    """Return what is assumed about the records in bins, and whether intervals cover all their places."""
    if assume not in ASSUMPTIONS:
        raise WorkloadError(f"assume: expected 'midpoint' or None, got {as_given(assume)}")
    if attribute.edges is None:
        return "", False
    return f"{words} {ANYWHERE if assume is None else ASSUMED}", assume is None


def _of_number(
    statistic: Callable[[Groups, Attribute, Array, str], Figures],
    source: AnswerSource,
    attribute: str,
    by: By,
    where: str | None,
    assume: str | None,
) -> Figures:
    """Return a statistic of a number, also with all records at the lower and upper ends of their bins.

    If only sums of mid-points were measured, all bins are taken as wide as the widest.
    """
    given = source.schema[attribute]
    middles = numbers(given)
    groups = Groups(source, by, where, attribute)
    words, anywhere = places(given, MIDPOINTS, assume)
    note = notes(given, words)
    with _naming_means(groups, attribute):
        figures = statistic(groups, given, middles, note)
    if not anywhere:
        return figures
    low, high = given.ends
    half = float((high - low).max()) / 2
    try:
        corners = [statistic(groups, given, ends, note) for ends in (low, high)]
    except OutsideMeasuredSpaceError:
        with _naming_means(groups, attribute, BOUNDLESS):
            corners = [statistic(groups, given, ends, note) for ends in (middles - half, middles + half)]
    return replace(figures, corners=tuple(corners))


BOUNDLESS = "; without them, the interval is known only with assume{}'midpoint'"


@contextmanager
def _naming_means(groups: Groups, attribute: str, otherwise: str = "") -> Iterator[None]:
    """Name the queries that a mean or total needs in an error that says they were not planned."""
    try:
        yield
    except OutsideMeasuredSpaceError as error:
        schema = groups.source.schema
        about = {*groups.names, *(schema.names[p] for factor in groups.conditions for p in factor.positions)}
        by = [name for name in schema.names if name in about]
        if attribute in about:
            raise
        python = f"for example qs.means(schema, {attribute!r}, by={by!r}){otherwise.format('=')}"
        spec = (
            f'for example [[workload]] kind = "means", attribute = "{attribute}", by = {json.dumps(by)}'
            f"{otherwise.format(' = ')}"
        )
        raise OutsideMeasuredSpaceError(error.problem, Remedy(python, spec)) from None


@explained("release.mean('age', by='sex')")
def mean(  # noqa: D417 - a method of the release
    source: AnswerSource,
    attribute: str,
    by: By = None,
    *,
    where: str | None = None,
    assume: str | None = None,
) -> Figures:
    """Return the mean of a number, by group, among the records of a predicate.

    It uses what was measured: the sums that `sums` and `means` ask for, or a distribution. Intervals are
    Fieller's.

    Args:
        attribute: a number, an ordinal attribute with numbers as values, or a binned one.
        by: grouping attributes.
        where: a predicate.
        assume: records in a bin count as its mid-point. By default the interval covers any places of the
            records within their bins; with "midpoint" it covers the noise only.
    """
    return _of_number(_mean, source, attribute, by, where, assume)


def _mean(groups: Groups, given: Attribute, values: Array, note: str) -> Figures:
    """Return the mean of an attribute whose values in order are these numbers."""
    # The attribute is centred at the middle of its range and scaled, so that numerator and denominator are
    # of one size; the mean and Fieller's interval follow the change of scale.
    shift = float(values.max() + values.min()) / 2
    scale = float(values.max() - values.min()) / 2 or 1.0
    rows = (on_all(given, row) for row in ((values - shift) / scale, np.ones(len(values))))
    position = groups.source.schema.position(given.name)
    above, below = (RowFactor.of((), (position,), row) for row in rows)
    return _per_record(groups, above, below, f"Mean of {with_unit(given)}", scale, shift, note)


@explained("release.total('age', by='sex')")
def total_of(
    source: AnswerSource,
    attribute: str,
    by: By = None,
    *,
    where: str | None = None,
    assume: str | None = None,
) -> Figures:
    """Return the sum of a number over the records of each group; the arguments are those of `mean`."""
    return _of_number(_total, source, attribute, by, where, assume)


def _total(groups: Groups, given: Attribute, values: Array, note: str) -> Figures:
    """Return the total of an attribute whose values in order are these numbers."""
    scale = float(np.abs(values).max()) or 1.0
    position = groups.source.schema.position(given.name)
    rows = RowFactor.of((ROWS,), (position,), on_all(given, values)[None] / scale)
    title = f"Total of {with_unit(given)}{groups.words}"
    return groups.queries(rows).figures(slice(None), title, groups.columns(), note, scale)


@explained("release.share('age >= 65', of=\"sex == 'F'\")")
def share(source: AnswerSource, predicate: str, of: str | None = None, by: By = None) -> Figures:
    """Return the fraction of the records with `of` that also satisfy a predicate, by group."""
    groups = Groups(source, by, of, name="of")
    conditions = among(source.schema, predicate, "predicate")
    if not conditions:
        raise PredicateError(
            f"predicate: expected a condition such as 'age >= 18', got {as_given(predicate)}"
        )
    above = reduce(RowFactor.times, conditions)
    below = RowFactor.of((), above.positions, np.ones_like(above.rows))
    return _per_record(groups, above, below, f"Share of {predicate.strip()}")


def _per_record(
    groups: Groups,
    above: RowFactor,
    below: RowFactor,
    what: str,
    scale: float = 1.0,
    shift: float = 0.0,
    note: str = "",
) -> Figures:
    """Return shift + scale × N / D: the sums of `above` and of `below` over the records of each group."""
    N, D = above.rows, below.rows
    each, both = (
        groups.queries(RowFactor.of((ROWS,), above.positions, np.stack(rows))) for rows in ([N, D], [N + D])
    )
    numerator, denominator = map(each.figures, np.arange(each.order.size).reshape(2, -1))
    _, joint_std = both.answers
    covariance = (joint_std.ravel() ** 2 - numerator.std**2 - denominator.std**2) / 2
    correlation = correlations(covariance, numerator.std, denominator.std)
    title = f"{what}{groups.words}"
    return ratios_of(title, groups.columns(), numerator, denominator, correlation, note, scale, shift)
