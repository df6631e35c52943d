"""Quantiles by group, with intervals from the joint covariance of the distribution function.

Let F(x) be the number of records up to x and D that of all. The p-quantile is where g(x) = F(x) - p D passes
zero. The estimate of g(x) is normal with a known variance s²(x), so {x : |g(x)| <= z s(x)} contains the true
quantile with the stated probability: it is outside if and only if the noise at that one x exceeds z s(x).
The interval is the hull of this set, from the first x where the upper band g + z s reaches zero to the last
where the lower band g - z s is below it. This is what inverting the monotone hulls of the bands gives, so it
covers at least as often; the two coincide where the distribution rises faster than its noise.

With bins, F is linear between edges. In a bin, g is linear and s convex, so the ends follow from the bands at
the edges. With separate values, a quantile is the first value v with F(v) >= p D, and the interval is
conservative. Where numbers in bins are multiples of a step, each value v stands for the numbers from v to
v + step, over which its records are spread. A quantile x is rounded to the v with v < x <= v + step.

The estimate itself uses the rearranged (sorted) distribution function, which is monotone.

Several intervals hold together if the noise is within z s at every one of the true quantiles. How large z
must be follows from the correlations of g at these; they are taken at the estimates.

To first order, a quantile x errs by -e / f, where e is the error of g(x) = F(x) - p D and f the density at x.
Here f is what makes the variance of the quantile the square of its standard error, which comes from the band
of the distribution function. Correlations do not depend on f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import TIE, Array
from querysmasher.errors import TooLargeError, WorkloadError, as_given, as_ratio, explained
from querysmasher.formatting import figure
from querysmasher.statistics.figures import AnswerSource, Column, Figures, LinearErrors
from querysmasher.statistics.ratios import (
    INTERPOLATED,
    MIDPOINTS,
    ROUNDING,
    TOO_CLOSE,
    By,
    notes,
    places,
    with_unit,
)
from querysmasher.statistics.selection import ROWS, Groups, RowFactor, family_on, select
from querysmasher.workload.families import Identity, Intervals, Prefix
from querysmasher.workload.sum import numbers

SEPARATE = "A quantile is the first value with at least that share of the records up to it."
OPEN = "A quantile in an open-ended bin is its edge, and flagged as unreliable."
STD = "std is half the width of the 68% interval."

FINE = 10
"""Number of steps between values in a standard error from which on errors are no longer stepwise."""

MAX_ENTRIES = 50_000_000
"""Maximum number of coefficients of the queries of all quantiles together."""


class Crossings:
    """g(x) = F(x) - p D as an array of (figures, points); the true g increases, the noisy one need not."""

    def __init__(
        self, F: Array, vF: Array, between: Array, with_D: Array, p: Array, points: Array, continuous: bool
    ) -> None:
        """Take F, its variances, and its covariances with F at the next value and with D, by value and group.

        There is a figure for every group and probability.
        """
        self.points, self.continuous = points, continuous
        D, vD = F[-1][:, None, None], vF[-1][:, None, None]
        if continuous:  # the left edge: no records, and no noise
            nothing = np.zeros((1, F.shape[1]))
            F, vF, between, with_D = (np.concatenate([nothing, a]) for a in (F, vF, between, with_D))
        F, vF, between, with_D = (a.T[:, None] for a in (F, vF, between, with_D))
        p = p[None, :, None]  # axes: groups, probabilities, points
        g = F - p * D
        g = np.where(np.abs(g) <= TIE * np.abs(D), 0.0, g)  # exactly p D, whatever the last digits
        variances = vF - 2 * p * with_D + p**2 * vD
        covariances = between - p * (with_D[..., :-1] + with_D[..., 1:]) + p**2 * vD
        self.g, self.variances, self.covariances = (
            a.reshape(g.shape[0] * g.shape[1], -1) for a in (g, variances, covariances)
        )
        """g at the points, its variances, and its covariances between neighbouring points."""

    def estimate(self) -> Array:
        """Return where the rearranged g passes zero, between the first and last point where g itself does."""
        g = np.sort(self.g, axis=1)
        last = len(self.points) - 1
        if not self.continuous:
            return self.points[np.minimum((g < 0).sum(axis=1), last)]
        k = np.clip((g < 0).sum(axis=1), 1, last)
        row = np.arange(len(g))
        below, above = g[row, k - 1], g[row, k]
        t = np.clip(np.divide(-below, above - below, out=np.zeros_like(below), where=above > below), 0, 1)
        return np.clip(self.points[k - 1] + t * (self.points[k] - self.points[k - 1]), *self.interval(0.0))

    def interval(self, reach: float) -> tuple[Array, Array]:
        """Return the first point where the upper band reaches zero, and the last where the lower is below."""
        s = reach * np.sqrt(np.maximum(self.variances, 0))
        last = len(self.points) - 1
        is_up, is_low = self.g + s >= 0, self.g - s < 0
        first = np.where(is_up.any(axis=1), is_up.argmax(axis=1), last)
        final = np.where(is_low.any(axis=1), last - is_low[:, ::-1].argmax(axis=1), -1)  # last below zero
        if not self.continuous:
            return self._bounded(self.points[first], self.points[np.minimum(final + 1, last)])
        low = np.where(first > 0, self._within(np.maximum(first - 1, 0), reach), self.points[0])
        high = np.where(final < last, self._within(np.clip(final, 0, last - 1), -reach), self.points[-1])
        return self._bounded(low, np.where(final < 0, self.points[0], high))

    def _bounded(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return the ends of intervals: infinite where there are neither records nor noise."""
        somebody = (self.g != 0).any(axis=1) | (self.variances > 0).any(axis=1)
        return np.where(somebody, low, -np.inf), np.where(somebody, high, np.inf)

    def _within(self, k: NDArray[np.int64], reach: float) -> Array:
        """Return where g + reach × s passes zero between points k and k + 1.

        There g is A + B t and s² a quadratic in t, from 0 to 1: a root of (A + B t)² = reach² s².
        """
        row = np.arange(len(k))
        A, B = self.g[row, k], self.g[row, k + 1] - self.g[row, k]
        v0, v1, c = self.variances[row, k], self.variances[row, k + 1], self.covariances[row, k]
        squared = reach**2
        a, b, rest = B**2 - squared * (v0 - 2 * c + v1), A * B - squared * (c - v0), A**2 - squared * v0
        discriminant = b**2 - a * rest
        root = np.sqrt(np.where(discriminant > ROUNDING * b**2, discriminant, 0))
        q = -(b + np.where(b < 0, -root, root))
        with np.errstate(divide="ignore", invalid="ignore"):
            roots = np.clip(np.nan_to_num(np.stack([q / a, rest / q])), 0, 1)
        variance = (1 - roots) ** 2 * v0 + 2 * roots * (1 - roots) * c + roots**2 * v1
        left = np.abs(A + B * roots + reach * np.sqrt(np.maximum(variance, 0)))
        t = np.where(left[0] <= left[1], roots[0], roots[1])  # the other root is where g - reach × s passes
        return self.points[k] + t * (self.points[k + 1] - self.points[k])


@explained("release.quantile('age', [0.1, 0.5, 0.9])")
def quantile(  # noqa: D417 - a method of the release
    source: AnswerSource,
    attribute: str,
    probabilities: float | Sequence[float],
    by: By = None,
    *,
    where: str | None = None,
    bins: str = "interpolation",
    assume: str | None = None,
) -> Figures:
    """Return quantiles of an ordinal or binned attribute, by group, among the records of a predicate.

    Args:
        attribute: an attribute with numbers as values, or a binned one. Bins may be open-ended: the interval
            of a quantile in such a bin has no end.
        probabilities: one probability or several.
        by: grouping attributes.
        where: a predicate.
        bins: "interpolation" spreads the records evenly within each bin; "midpoints" returns mid-points.
        assume: by default the interval covers any places of the records within their bins; with "midpoint"
            it covers the noise only, under the assumption of `bins`.
    """
    given = source.schema[attribute]
    p = _checked(probabilities)
    if bins not in ("interpolation", "midpoints"):
        raise WorkloadError(f"bins: expected 'interpolation' or 'midpoints', got {as_given(bins)}")
    continuous = given.edges is not None and bins == "interpolation"
    note, anywhere = places(given, INTERPOLATED if continuous else MIDPOINTS, assume)
    if not (continuous and anywhere):
        points, step = numbers(given), 0.0  # open-ended bins are refused
        if (np.diff(points) <= 0).any():
            why = f"the values of {attribute!r} do not increase, so it has no quantiles"
            raise WorkloadError(f"attribute: {why}")
    if continuous:
        points, step = np.array(given.edges, dtype=float), given.step or 0.0
        points[-1] += step
        note = f"{note} {OPEN}" if np.isinf(points).any() else note
        for end, edge, width in ((0, 1, -step), (-1, -2, step)):
            points[end] = points[edge] + width if np.isinf(points[end]) else points[end]
    groups = Groups(source, by, where, attribute)
    F, variances, between, with_D = _distribution(groups, attribute)
    crossings = Crossings(F, variances, between, with_D, p, points, continuous)
    low, high = crossings.interval(1.0)
    estimates = _known(crossings, F, p)

    def on_grid(numbers: Array) -> Array:
        """Return the multiples of the step whose records are spread over an interval with these numbers."""
        steps = np.maximum(np.ceil((numbers - points[0]) / step - TIE) - 1, 0)
        return np.where(np.isinf(numbers), numbers, points[0] + step * steps)

    def ends_of(reach: float) -> tuple[Array, Array]:
        low, high = crossings.interval(reach)
        return (on_grid(low), on_grid(high)) if step else (low, high)

    values = on_grid(estimates) if step else estimates
    gap = step if continuous else float(np.diff(points).max(initial=0.0))
    columns = (
        *groups.columns(len(p)),
        Column("probability", tuple(p.tolist()), tuple(range(len(p))) * F.shape[1]),
    )
    std = np.where(np.isfinite(low), (high - low) / 2, np.nan)

    def linear() -> LinearErrors:
        x = np.nan_to_num(estimates, nan=points[0]).reshape(-1, len(p), 1)
        with np.errstate(divide="ignore", invalid="ignore"):  # open-ended bins may have no width
            within = np.nan_to_num(np.clip((x - points[:-1]) / np.diff(points), 0, 1))
        inside = within if continuous else x >= points
        rows = np.zeros((*inside.shape[:-1], given.size))
        rows[..., : given.listed] = inside - p[:, None]
        return _errors_at(groups, attribute, rows, std)

    figures = Figures(
        f"Quantiles of {with_unit(given)}{groups.words}",
        columns,
        values,
        std,
        notes(given, note or SEPARATE, f"{STD[:-1]}, before rounding." if step else STD),
        linear=linear,
        ends=ends_of,
        trusted=(TOO_CLOSE * np.sqrt(variances[-1]) < F[-1]).repeat(len(p)),
        stepwise=~(std > FINE * gap),
        number=figure if continuous and not step else _plain,
    )
    if not anywhere:
        return figures
    ends = (Crossings(F, variances, between, with_D, p, e, continuous=False) for e in given.ends)
    corners = tuple(replace(figures, values=_known(c, F, p), ends=c.interval, stepwise=True) for c in ends)
    bounded = ~np.isinf([corner.values for corner in corners]).any(axis=0)
    return replace(figures, corners=corners, trusted=figures.reliable & bounded)


def _known(crossings: Crossings, F: Array, p: Array) -> Array:
    """Return the estimates; NaN in groups without records."""
    return np.where(F[-1].repeat(len(p)) > 0, crossings.estimate(), np.nan)


def _plain(value: float, std: float) -> str:
    """Return one of the values of an attribute as text."""
    return f"{value:,.12g}" if np.isfinite(value) else figure(value, std)


def _distribution(groups: Groups, attribute: str) -> tuple[Array, Array, Array, Array]:
    """Return F by value and group, its variances, and its covariances with F at the next value and with D.

    F at the next value differs from F by the count of one value, and D by that of all values above: these
    are ranges, whose variances are known without writing any query out.
    """
    schema = groups.source.schema
    size, n = schema[attribute].size, schema[attribute].listed
    single = RowFactor.of((ROWS,), (schema.position(attribute),), np.eye(1, size))
    _ = groups.queries(single).answers  # refuses a number of which only sums were measured
    to_last = Intervals((size,), np.arange(size), np.maximum(np.arange(size), n - 1))
    answers = (
        groups.queries(family_on(schema, attribute, ROWS, family)).answers
        for family in (Prefix((size,)), Identity((size,)), to_last)
    )
    (F, v), (_, value), (_, rest) = ([a.reshape(size, -1)[:n] for a in pair] for pair in answers)
    v, value, above = v**2, value**2, np.concatenate([rest[1:] ** 2, np.zeros_like(v[:1])])
    return F, v, (v[:-1] + v[1:] - value[1:]) / 2, (v + v[-1:] - above) / 2


def _checked(probabilities: object) -> Array:
    """Return probabilities as an array; refuse those that are not strictly between 0 and 1."""
    several = isinstance(probabilities, Sequence | np.ndarray) and not isinstance(probabilities, str)
    given = list(probabilities) if several else [probabilities]  # type: ignore[call-overload]
    wrong = [
        p
        for p in given
        if isinstance(p, bool) or not isinstance(p, int | float | np.floating) or not 0 < p < 1
    ]
    if not given or wrong:
        got = f"{as_given(wrong[0])}{as_ratio(wrong[0])}" if wrong else "[]"
        raise WorkloadError(
            f"probabilities: expected numbers between 0 and 1 such as [0.1, 0.5, 0.9], got {got}"
        )
    return np.array(given, dtype=float)


def _errors_at(groups: Groups, attribute: str, rows: Array, std: Array) -> LinearErrors:
    """Return the errors of quantiles; `rows` has an axis of groups, one of probabilities and one of values.

    Each row is g over the values of the attribute, at the estimated quantile of its group.
    """
    schema = groups.source.schema
    count, probabilities, size = rows.shape
    if rows.size * count > MAX_ENTRIES:
        raise TooLargeError(
            f"{count * probabilities:,} quantiles over {size:,} values are too many to compare"
        )
    spread = np.zeros((count, probabilities, size, count))
    group = np.arange(count)
    spread[group, :, :, group] = rows
    names = (attribute, *groups.names)
    order = sorted(range(len(names)), key=lambda i: schema.position(names[i]))
    tensor = spread.reshape(count * probabilities, *schema.shape(names)).transpose(0, *(1 + i for i in order))
    factor = RowFactor.of((ROWS,), tuple(schema.position(names[i]) for i in order), tensor)
    queries = select(groups.source, [factor, *groups.conditions], (ROWS,))
    _, errors = queries.answers
    scale = np.divide(std.ravel(), errors, out=np.zeros(errors.shape), where=errors > 0)
    return LinearErrors.of(groups.source, queries.workload, queries.order, -scale)
