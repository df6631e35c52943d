"""What a release guarantees, which records it counts and what it spent, in plain words."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from querysmasher.arrays import Numbers
from querysmasher.errors import DataError, PlanError, PrivacyError, Remedy, as_given
from querysmasher.fields import floats, fraction, integers, text
from querysmasher.formatting import count
from querysmasher.privacy.accounting import Dropped, ends
from querysmasher.privacy.budget import ApproxDP, Budget, GaussianDP, readable, zCDP
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.entries import DELTA, Total
from querysmasher.privacy.unit import Unit

LARGE_EPSILON = 10
LARGE_DELTA = 1e-4
"""Thresholds above which ε and δ get a remark."""

REACH = 1.959964
"""Half-width of a 95% interval, in standard errors."""

COUNTED = (
    "Every count, its error and its interval are about the records that are counted, not about all records "
    "in the table."
)
"""The remark that is shown wherever records are left out."""

POLICIES = ("refuse", "drop")

REFUSE = Remedy(
    "use unknown='refuse', and correct the data or the schema if records are refused",
    'use [measure] unknown = "refuse", and correct the data or the schema if records are refused',
)
WHOLE = Remedy(
    "omit it, or use it together with person= or unknown='drop'",
    'omit it, or use it together with [measure] person or unknown = "drop"',
)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """How many records were left out, measured with noise: see `privacy.accounting`.

    `values` is one number of dropped records or, where persons are distinguished, the number of persons in
    each of `bins`.
    """

    measured: Dropped
    values: Numbers
    noise: Distribution

    def __post_init__(self) -> None:
        """Check that there is one finite value per measured number."""
        if self.values.shape != (self.measured.size,) or not np.isfinite(self.values).all():
            raise PrivacyError("left out: expected one finite value per number")

    @property
    def std(self) -> float:
        """The standard error of each value."""
        variance = float(self.measured.variance)
        return math.sqrt(variance + self.noise.extra_variance(variance))

    @property
    def bins(self) -> list[tuple[int, int | None]]:
        """How many records persons lack, from and to, in each bin; the last has no end."""
        limits = ends(self.measured.unit.records_per_person) if self.measured.persons else ()
        return list(zip((1, *(end + 1 for end in limits)), (*limits, None), strict=True))

    @property
    def total(self) -> tuple[float, float]:
        """The sum of all values, records or persons, and its standard error."""
        return float(self.values.sum()), self.std * math.sqrt(self.values.size)

    @property
    def records(self) -> tuple[int, int | None]:
        """A 95% interval of the number of records left out, other than those without a person.

        Where persons are distinguished, each bin contributes its upper end to the second number, which
        assumes that nobody is in the last bin. It is None if somebody visibly is. To the first, each bin
        contributes its lower end, but none more than that of one bin: the one for which the bound is best.
        The bounds for all of them hold together.
        """
        if not self.measured.persons:
            return _interval(*self.total)
        low = np.array([first for first, _ in self.bins], dtype=float)
        high = np.array([last or 0 for _, last in self.bins], dtype=float)
        reach = NormalDist().inv_cdf(1 - 0.025 / len(low))
        capped = np.minimum.outer(low, low)
        least = capped @ self.values - reach * self.std * np.linalg.norm(capped, axis=1)
        _, most = _interval(float(high @ self.values), self.std * float(np.linalg.norm(high)))
        return max(math.floor(least.max()), 0), None if self.values[-1] > REACH * self.std else most

    def words(self) -> str:
        """Return how many were left out, in sentences."""
        low, high = _interval(*self.total)
        what = "persons have records left out" if self.measured.persons else "records were left out"
        said = f"About {max(self.total[0], 0):,.0f} {what} (95% interval {low:,} to {high:,})."
        if not self.measured.persons:
            return said
        least, most = self.records
        last = f"{self.bins[-2][1]:,}"
        if most is None:
            bound = f"no upper bound is known: about {self.values[-1]:,.0f} lack more than {last} each"
        else:
            bound = f"at most {most:,} if nobody lacks more than {last}"
        return f"{said} With 95% confidence, these are at least {count(least, 'record')} in all; {bound}."

    def rows(self) -> list[tuple[str, str]]:
        """Return the table of bins: how many records persons lack, and how many persons do."""
        rows = []
        for (low, high), value in zip(self.bins, self.values.tolist(), strict=True):
            label = f"more than {low - 1:,}" if high is None else f"{low:,} to {high:,}"
            rows.append((f"{low:,}" if low == high else label, f"{value:,.0f}"))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        numbers = {"std": self.std, "records": list(self.records)}
        if not self.measured.persons:
            return {"value": self.values.tolist()[0], **numbers}
        bins = zip(self.bins, self.values.tolist(), strict=True)
        return {"persons": [{"from": a, "to": b, "value": v} for (a, b), v in bins], **numbers}


def _interval(value: float, std: float) -> tuple[int, int]:
    """Return the 95% interval of a number of records or persons: integers, none below 0."""
    return max(math.floor(value - REACH * std), 0), max(math.ceil(value + REACH * std), 0)


@dataclass(frozen=True)
class Counted:
    """Which records of a table are counted.

    Args:
        person: the column that says to whom a record belongs, or None if persons are not distinguished.
        most: maximum number of records of one person that are counted.
        unknown: "refuse" if a table with a value outside the schema is refused, "drop" if such records are
            left out, None if a file does not say which.
        left_out: how many were left out, if that was measured.
    """

    person: str | None = None
    most: int = 1
    unknown: str | None = "refuse"
    left_out: LeftOut | None = None
    has_zeros: bool = False
    """Whether some combinations of values of measured attributes are impossible, and count as unknown."""

    @property
    def dropped(self) -> Dropped | None:
        """What was measured of the records left out, if anything."""
        return None if self.left_out is None else self.left_out.measured

    @property
    def is_whole(self) -> bool:
        """Whether all records of the table are counted."""
        return self.person is None and self.unknown == "refuse"

    def words(self, measured: bool | None = None) -> str:
        """Return which records are left out, and what that means for counts, in sentences; empty if none are.

        `measured` states whether the number of records left out is measured, if that is yet to happen.
        """
        parts = []
        if self.unknown == "drop":
            zeros = ", or with values there that the schema states to be impossible together"
            said_of = "those with a missing value, or one outside the schema, in a measured attribute"
            parts.append(said_of + zeros * self.has_zeros)
        if self.unknown == "drop" and self.person is not None:
            parts.append(f"those without a value of {self.person!r}")
        if self.person is not None:
            who = f"of each person (a value of {self.person!r}) who has more"
            parts.append(f"all but {self.most:,} {who}, chosen at random")
        said = []
        if parts:
            done = self.left_out is not None if measured is None else measured
            how = "is measured as part of the budget" if done else "is not disclosed"
            nameless = done and self.person is not None and self.unknown == "drop"
            but = f", except for those without a value of {self.person!r}" if nameless else ""
            said = [
                f"Records are left out: {'; '.join(parts)}.",
                COUNTED,
                f"How many are left out {how}{but}.",
            ]
        if self.unknown is None:
            unsaid = "records with a missing value, or one outside the schema, are left out"
            said.append(f"The file does not say whether {unsaid}.")
        return " ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for readers."""
        return {
            "person": self.person,
            "records_per_person": self.most,
            "unknown": self.unknown,
            **({} if self.left_out is None else {"left_out": self.left_out.to_json()}),
        }

    def to_data(self) -> dict[str, Any]:
        """Return plain data with arrays, from which `counted_from_data` rebuilds this."""
        out = self.left_out
        stored = None if out is None else {"variance": str(out.measured.variance), "values": out.values}
        return {"unknown": self.unknown, "left_out": stored}


ALL = Counted()
"""Every record of the table."""


def counted_from_data(
    data: Any, person: str | None, unit: Unit, noise: Distribution, *, has_zeros: bool
) -> Counted:
    """Rebuild which records are counted; an older file says nothing about values outside the schema."""
    if data is None:
        data = {"unknown": "refuse" if unit.total_is_public else None, "left_out": None}
    stored = data["left_out"]
    if {*data} != {"unknown", "left_out"} or (stored is not None and {*stored} != {"variance", "values"}):
        raise ValueError
    unknown = None if data["unknown"] is None else text(data["unknown"], POLICIES)
    left_out = None
    if stored is not None:
        values = (floats if noise.dtype is np.float64 else integers)(stored["values"], 1)
        left_out = LeftOut(Dropped(unit, person is not None, fraction(stored["variance"])), values, noise)
    return Counted(person, unit.records_per_person, unknown, left_out, has_zeros)


def epsilon_words(budget: Budget) -> tuple[str, str]:
    """Return the budget as a short figure and its definition."""
    match budget:
        case ApproxDP():
            return f"ε = {budget.epsilon:.6g}", f"δ = {scientific(budget.delta)}"
        case GaussianDP():
            return f"μ = {budget.mu:.6g}", "Gaussian DP"
        case zCDP():
            return f"ρ = {budget.rho:.6g}", "zero-concentrated DP"
    return f"β = {budget.privacy_cost:.6g}", "privacy cost"


def scientific(value: float) -> str:
    """Return a small number as a power of ten.

    >>> scientific(1e-6), scientific(2.5e-7)
    ('10⁻⁶', '2.5 × 10⁻⁷')
    """
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    mantissa = mantissa.rstrip("0").rstrip(".")
    return power if mantissa == "1" else f"{mantissa} × {power}"


def in_symbols(words: str) -> str:
    """Return a guarantee as pages write it, with Greek letters and powers of ten.

    >>> in_symbols("privacy with epsilon = 1.0 and delta = 1e-06, for any two tables")
    'privacy with ε = 1 and δ = 10⁻⁶, for any two tables'
    """
    letters = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ"}

    def said(match: re.Match[str]) -> str:
        value = float(match[2])
        return f"{letters[match[1]]} = {scientific(value) if match[1] == 'delta' else f'{value:.10g}'}"

    return re.sub(r"\b(epsilon|delta|rho|mu) = ([\d.]+(?:e[+-]?\d+)?)(?![\d])", said, words)


def promise(budget: Budget, counted: Counted = ALL, measured: bool = False) -> str:
    """Return the guarantee with the remarks about it; for `measured` see `Counted.words`."""
    said = [budget.describe(counted.person), *remarks(budget), counted.words(measured)]
    return " ".join(filter(None, said))


def equivalents(budget: Budget) -> str:
    """Return what a budget costs in every definition of privacy, at its own δ if it has one.

    Numbers are rounded up, so that each suffices.

    >>> from querysmasher.privacy.budget import ApproxDP, zCDP
    >>> equivalents(zCDP(0.5))
    'rho = 0.5, mu = 1, epsilon = 4.887 at delta = 1e-06'
    >>> equivalents(ApproxDP(epsilon=1.0, delta=1e-9))
    'rho = 0.01656, mu = 0.182, epsilon = 1 at delta = 1e-09'
    """
    delta = delta_of(budget)
    rho, mu, epsilon = (readable(a, digits=4) for a in (budget.rho, budget.mu, budget.epsilon_at(delta)))
    return f"rho = {rho:.4g}, mu = {mu:.4g}, epsilon = {epsilon:.4g} at delta = {delta!r}"


def total_words(total: Total, delta: float) -> str:
    """Return what several measurements spend together, in every definition of privacy that holds for it.

    >>> from fractions import Fraction
    >>> total_words(Total(Fraction(1, 2)), 1e-6)
    'rho = 0.25 (zCDP), mu = 0.707107 (Gaussian DP), epsilon = 3.30761 at delta = 1e-06'
    """
    mu = "" if total.mu is None else f", mu = {readable(total.mu):.6g} (Gaussian DP)"
    up_to = f" up to delta = {readable(float(total.delta)):.6g}" if total.delta else ""
    epsilon = f"epsilon = {readable(total.epsilon_at(delta)):.6g} at delta = {delta!r}"
    return f"rho = {readable(float(total.rho)):.6g} (zCDP{up_to}){mu}, {epsilon}"


def remarks(budget: Budget) -> list[str]:
    """Return remarks about a large budget, in sentences; it is not refused.

    >>> from querysmasher import ApproxDP
    >>> remarks(ApproxDP(epsilon=1.0, delta=1e-6))
    []
    """
    delta = delta_of(budget)
    stated = budget.stated_delta is not None
    epsilon = getattr(budget, budget.letter) if stated else budget.epsilon_at(delta)
    said = []
    if epsilon > LARGE_EPSILON:
        where = "" if stated else f" (at delta = {delta:g})"
        said.append(
            f"Remark: epsilon = {epsilon:.4g}{where} is above {LARGE_EPSILON}, so the guarantee is weak: "
            "someone who knows the other records may infer one record almost with certainty."
        )
    if delta > LARGE_DELTA:
        said.append(
            f"Remark: delta = {delta:g} is above {LARGE_DELTA:g}; choose it well below 1 / number of "
            "people in the table."
        )
    return said


def delta_of(budget: Budget) -> float:
    """Return the δ at which ε is reported."""
    return DELTA if budget.stated_delta is None else budget.stated_delta


def check_options(budget: Budget, unknown: str, max_records: int) -> None:
    """Refuse options that do not fit a budget."""
    if isinstance(max_records, bool) or not isinstance(max_records, int) or not 1 <= max_records <= 2**40:
        allowed = "expected an integer from 1 to 2^40, such as 1_000_000"
        raise DataError(f"max_records: {allowed}, got {as_given(max_records)}")
    if unknown == "drop" and budget.unit.total_is_public:
        raise PrivacyError(
            "records cannot be dropped: with replace_one neighbours the number of records is published, and "
            "a record replaced by one outside the schema's domain would change it",
            REFUSE,
        )


def check_reported(report_dropped: bool, counted: Counted, has_targets: bool) -> None:
    """Refuse to measure how many records are left out where none are, or where targets would be missed."""
    if type(report_dropped) is not bool:
        raise DataError(f"report_dropped: expected True or False, got {report_dropped!r}")
    if report_dropped and counted.is_whole:
        raise DataError("report_dropped: expected False, because every record is counted", WHOLE)
    if report_dropped and has_targets:
        msg = "report_dropped: expected False for a plan with accuracy targets, which larger noise would miss"
        raise PlanError(msg)
