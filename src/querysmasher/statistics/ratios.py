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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute, Ordinal
from querysmasher.errors import PredicateError, WorkloadError, as_given, explained
from querysmasher.statistics.figures import AnswerSource, Column, Figures, LinearErrors
from querysmasher.statistics.selection import (
    ROWS,
    Grouped,
    RowFactor,
    among,
    described,
    grouped,
    groups_by,
    rows_on,
)

TOO_CLOSE = 2.0
"""A denominator within so many standard errors of zero makes a ratio unreliable."""

ROUNDING = 1e-12
"""Variances below this share of their terms are rounding errors."""

ASSUMED = (
    "Intervals cover the noise, not this assumption: "
    "the figure of the records themselves can lie outside them."
)
MIDPOINTS = f"Bins count as their mid-points. {ASSUMED}"
INTERPOLATED = f"Records are taken as spread evenly within each bin. {ASSUMED}"

By = str | Sequence[str] | None
"""No grouping attribute, one, or several."""


@dataclass(frozen=True, eq=False)
class RatioParts:
    """Numerators N and denominators D with variances and covariances, for shift + scale × N / D."""

    numerator: Array
    denominator: Array
    numerator_variance: Array
    denominator_variance: Array
    covariance: Array
    scale: float = 1.0
    shift: float = 0.0

    @property
    def values(self) -> Array:
        """The figures."""
        return self.shift + self.scale * self.ratio

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether each denominator is more than two standard errors away from zero."""
        far = np.abs(self.denominator) > TOO_CLOSE * np.sqrt(self.denominator_variance)
        return np.asarray(far & (self.denominator != 0))

    @property
    def ratio(self) -> Array:
        """N / D before scaling; NaN where D is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.denominator == 0, np.nan, self.numerator / self.denominator)

    @property
    def residual_variance(self) -> Array:
        """Var(N - R D)."""
        R = self.ratio
        squares = self.numerator_variance + R**2 * self.denominator_variance
        w = squares - 2 * R * self.covariance
        return np.where(w > ROUNDING * squares, w, 0.0) + np.where(np.isnan(R), np.nan, 0.0)

    @property
    def std(self) -> Array:
        """Standard errors by the delta method."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.scale * np.sqrt(self.residual_variance) / np.abs(self.denominator)

    def interval(self, reach: float) -> tuple[Array, Array]:
        """Return the ends of Fieller's intervals, relative to the value."""
        squared = reach**2
        R, w = self.ratio, self.residual_variance
        u = self.covariance - R * self.denominator_variance
        u = np.where(
            np.abs(u) > ROUNDING * (np.abs(self.covariance) + np.abs(R) * self.denominator_variance), u, 0.0
        )
        a = self.denominator**2 - squared * self.denominator_variance
        bounded = (a > 0) & np.isfinite(R)
        safe = np.where(bounded, a, 1.0)
        root = reach * np.sqrt(np.where(bounded, squared * u**2 + safe * w, 0.0))
        below = np.where(bounded, (-squared * u - root) / safe, -np.inf)
        above = np.where(bounded, (-squared * u + root) / safe, np.inf)
        return self.scale * below, self.scale * above

    def ends(self, reach: float) -> tuple[Array, Array]:
        """Return the ends of Fieller's intervals."""
        low, high = (np.where(np.isinf(end), end, self.values + end) for end in self.interval(reach))
        return low, high


def ratios_of(
    title: str,
    columns: tuple[Column, ...],
    parts: RatioParts,
    errors: Callable[[], tuple[LinearErrors, LinearErrors]],
    note: str = "",
) -> Figures:
    """Return ratios as figures; `errors` returns those of all N, and of all D."""

    def linear() -> LinearErrors:
        N, D = errors()
        R, below = parts.ratio.ravel(), parts.denominator.ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            return N.plus(D, parts.scale / below, -parts.scale * R / below)

    return Figures(
        title,
        columns,
        parts.values,
        parts.std,
        note,
        linear=linear,
        ends=parts.ends,
        trusted=parts.reliable,
    )


def numbers(attribute: Attribute) -> Array:
    """Return the number of each value: itself, or the mid-point of its bin."""
    if attribute.edges is not None:
        edges = np.array(attribute.edges, dtype=float)
        return (edges[:-1] + edges[1:]) / 2
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in attribute.values)
    if not isinstance(attribute, Ordinal) or not numeric:
        what = f"{attribute.kind}" if numeric else f"{attribute.kind} with values that are not numbers"
        raise WorkloadError(
            f"attribute: expected a binned attribute, or an ordinal one with numbers as values; "
            f"{attribute.name!r} is {what}; ask release.table({attribute.name!r}) for its counts"
        )
    values = np.array(attribute.values, dtype=float)
    if not np.isfinite(values).all():
        raise WorkloadError(f"attribute: {attribute.name!r} has a value that is not finite")
    return values


def with_unit(attribute: Attribute) -> str:
    """Return the name of an attribute and, if it is stated, the unit of its numbers."""
    return attribute.name if attribute.unit is None else f"{attribute.name} ({attribute.unit})"


def increasing_numbers(attribute: Attribute) -> Array:
    """Return the number of each value; refuse an attribute whose order is not that of its numbers."""
    values = numbers(attribute)
    if any(a >= b for a, b in pairwise(values)):
        raise WorkloadError(
            f"attribute: the values of {attribute.name!r} do not increase, so it has no quantiles"
        )
    return values


@explained("release.mean('age', by='sex')")
def mean(source: AnswerSource, attribute: str, by: By = None, *, where: str | None = None) -> Figures:
    """Return the mean of an ordinal or binned attribute, by group, among the records of a predicate.

    Bins count as their mid-points: the interval does not cover where records lie within bins. Intervals
    are Fieller's.
    """
    # The attribute is centred at the middle of its range and scaled, so that numerator and denominator are
    # of one size; the mean and Fieller's interval follow the change of scale.
    schema = source.schema
    given = schema[attribute]
    values = numbers(given)
    names = groups_by(schema, by, besides=[attribute])
    shift = float(values.max() + values.min()) / 2
    scale = float(values.max() - values.min()) / 2 or 1.0
    conditions = among(schema, where)
    title = described(f"Mean of {with_unit(given)}", names, where)
    above = RowFactor((), (schema.position(attribute),), (values - shift) / scale)
    note = MIDPOINTS if given.edges is not None else ""
    return _per_record(source, above, names, conditions, title, scale, shift, note)


@explained("release.total_of('age', by='sex')")
def total_of(source: AnswerSource, attribute: str, by: By = None, *, where: str | None = None) -> Figures:
    """Return the sum of an ordinal or binned attribute over the records of each group.

    Bins count as their mid-points: the interval does not cover where records lie within bins.
    """
    schema = source.schema
    given = schema[attribute]
    values = numbers(given)
    names = groups_by(schema, by, besides=[attribute])
    scale = float(np.abs(values).max()) or 1.0
    answers = grouped(
        source, rows_on(schema, attribute, ROWS, values[None] / scale), names, among(schema, where)
    )
    return Figures(
        described(f"Total of {with_unit(given)}", names, where),
        answers.columns(),
        scale * answers.values[0],
        scale * np.sqrt(answers.variances[0]),
        MIDPOINTS if given.edges is not None else "",
        linear=lambda: answers.errors(0, scale),
    )


@explained("release.share('age >= 65', of=\"sex == 'F'\")")
def share(source: AnswerSource, predicate: str, of: str | None = None, by: By = None) -> Figures:
    """Return the share of records that satisfy a predicate among those that satisfy `of`, by group."""
    schema = source.schema
    names = groups_by(schema, by)
    conditions = among(schema, predicate, "predicate")
    if not conditions:
        raise PredicateError(
            f"predicate: expected a condition such as 'age >= 18', got {as_given(predicate)}"
        )
    among_these = among(schema, of, "of")
    title = described(f"Share of {predicate.strip()}", names, of)
    return _per_record(source, reduce(RowFactor.times, conditions), names, among_these, title)


def _per_record(
    source: AnswerSource,
    above: RowFactor,
    by: tuple[str, ...],
    conditions: Sequence[RowFactor],
    title: str,
    scale: float = 1.0,
    shift: float = 0.0,
    note: str = "",
) -> Figures:
    """Return shift + scale × N / D: N sums `above` over the records of each group, and D counts them."""
    N, D = above.rows, np.ones_like(above.rows)

    def answers_to(*rows: Array) -> Grouped:
        return grouped(source, RowFactor((ROWS,), above.positions, np.stack(rows)), by, conditions)

    def errors() -> tuple[LinearErrors, LinearErrors]:
        both = answers_to(N, D)
        return both.errors(0), both.errors(1)

    answers = answers_to(N, D, N + D)
    values, variances = answers.values, answers.variances
    covariance = (variances[2] - variances[0] - variances[1]) / 2
    parts = RatioParts(values[0], values[1], variances[0], variances[1], covariance, scale, shift)
    return ratios_of(title, answers.columns(), parts, errors, note)
