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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, explained
from querysmasher.statistics.figures import AnswerSource, Column, Figure, Figures, LinearErrors
from querysmasher.statistics.ratios import TOO_CLOSE
from querysmasher.statistics.tables import CrossTable
from querysmasher.workload.builders import where as counting
from querysmasher.workload.workload import Workload

Operand = str | Workload | Figures | Figure | CrossTable
"""A predicate or a workload, whose counts are meant, or the result of a statistic."""

Combined = tuple[Array, Array, Array | float, Array | float]

C = TypeVar("C", bound="Contrast")


@dataclass(frozen=True, eq=False, repr=False)
class Chosen(Figures):
    """Some figures of others, possibly repeated."""

    base: Figures = field(kw_only=True)
    indexes: tuple[int, ...] = field(kw_only=True)

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether intervals and standard errors of each figure hold."""
        return self._of(self.base.reliable)

    def _interval(self, reach: float) -> tuple[Array, Array]:
        low, high = self.base._interval(reach)  # noqa: SLF001 - of the same class
        return self._of(low), self._of(high)

    def _of(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.ravel()[list(self.indexes)]


@dataclass(frozen=True, eq=False, repr=False)
class Contrast(Figures):
    """A difference or a ratio of two figures."""

    a: Figures = field(kw_only=True)
    b: Figures = field(kw_only=True)
    correlation: Array = field(kw_only=True)

    words: ClassVar[tuple[str, str]]
    """What the contrast is called, and the sign between both figures."""

    @staticmethod
    def combined(a: Figures, b: Figures, correlation: Array) -> Combined:
        """Return values, standard errors, and the weights of the errors of a and of b."""
        raise NotImplementedError

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether both figures are reliable."""
        return np.asarray(self.a.reliable & self.b.reliable)

    def _apart(self, reach: float) -> tuple[Array, Array, Array, Array]:
        """Return how far the intervals of a and of b reach below and above their values."""
        (la, ua), (lb, ub) = (figures._interval(reach) for figures in (self.a, self.b))  # noqa: SLF001
        return self.a.values - la, ua - self.a.values, self.b.values - lb, ub - self.b.values


class Differences(Contrast):
    """Differences a - b."""

    words = "Difference", "-"

    @staticmethod
    def combined(a: Figures, b: Figures, correlation: Array) -> Combined:
        return a.values - b.values, _together(a.std, b.std, correlation), 1.0, -1.0

    def _interval(self, reach: float) -> tuple[Array, Array]:
        below_a, above_a, below_b, above_b = self._apart(reach)
        low = self.values - _together(below_a, above_b, self.correlation)
        return low, self.values + _together(above_a, below_b, self.correlation)


class Quotients(Contrast):
    """Ratios a / b."""

    words = "Ratio", "/"

    @staticmethod
    def combined(a: Figures, b: Figures, correlation: Array) -> Combined:
        with np.errstate(divide="ignore", invalid="ignore"):
            R = np.where(b.values == 0, np.nan, a.values / b.values)
            errors = _together(a.std, np.abs(R) * b.std, np.sign(R) * correlation)
            std = np.where(np.isnan(R), np.nan, errors / np.abs(b.values))
            return R, std, 1 / b.values, -R / b.values

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether both figures are reliable, and b is more than two standard errors away from zero."""
        far = np.abs(self.b.values) > TOO_CLOSE * self.b.std
        return np.asarray(super().reliable & far & (self.b.values != 0))

    def _interval(self, reach: float) -> tuple[Array, Array]:
        below_a, above_a, below_b, above_b = self._apart(reach)
        turned = self.b.values < 0  # then a / b = (-a) / (-b)
        below_a, above_a = np.where(turned, [above_a, below_a], [below_a, above_a])
        below_b, above_b = np.where(turned, [above_b, below_b], [below_b, above_b])
        a = np.where(turned, -self.a.values, self.a.values)
        b = np.abs(self.b.values)
        low = _passes(a, b, below_a, np.where(a >= below_a, above_b, below_b), self.correlation, -1)
        high = _passes(a, b, above_a, np.where(a >= -above_a, below_b, above_b), self.correlation, +1)
        bounded = np.isfinite(low) & np.isfinite(high) & np.isfinite(self.values)
        return np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)


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
def difference(source: AnswerSource, a: Operand, b: Operand) -> Differences:  # noqa: D417 - a method of the release
    """Return a - b, of counts or of other statistics, with an interval that accounts for shared noise.

    Args:
        a: a predicate or a workload, whose counts are meant; or what `mean`, `total_of`, `share`,
            `quantile`, `table` or `difference` of this release returned, or one entry of it.
        b: likewise; as many figures as a, or a single one.
    """
    return _contrast(Differences, source, a, b)


@explained("release.ratio('age < 18', 'age >= 65')")
def ratio(source: AnswerSource, a: Operand, b: Operand) -> Quotients:
    """Return a / b, of counts or of other statistics; see `difference`."""
    return _contrast(Quotients, source, a, b)


def _contrast(made: type[C], source: AnswerSource, a: Operand, b: Operand) -> C:
    """Return the difference or the ratio of a and b, figure by figure."""
    left, right = _figures(source, "a", a), _figures(source, "b", b)
    left, right = _chosen(left, range(len(left))), _chosen(right, _matched(left, right))
    correlation = _correlation(left.errors, right.errors)
    values, std, scale_a, scale_b = made.combined(left, right, correlation)
    what, sign = made.words
    return made(
        f"{what}: {left.title}" + ("" if left.title == right.title else f" {sign} {right.title}"),
        _columns(a, b, left, right),
        values,
        std,
        " ".join(filter(None, dict.fromkeys([left.note, right.note]))),
        linear=lambda: left.errors.plus(right.errors, scale_a, scale_b),
        a=left,
        b=right,
        correlation=correlation,
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
        given = _chosen(figures, [index])
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


def _chosen(base: Figures, indexes: Sequence[int]) -> Chosen:
    """Return some figures of others."""
    chosen = list(indexes)
    columns = tuple(
        Column(c.name, c.values, tuple(c.indexes[index] for index in chosen), c.shown) for c in base.columns
    )
    values, std = (array.ravel()[chosen] for array in (base.values, base.std))
    return Chosen(
        base.title,
        columns,
        values,
        std,
        base.note,
        linear=lambda: base.errors.take(chosen),
        base=base,
        indexes=tuple(chosen),
    )


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
