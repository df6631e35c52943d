"""Guarantees and what was spent, in plain words."""

from __future__ import annotations

import re

from querysmasher.privacy.budget import Budget, readable
from querysmasher.privacy.entries import DELTA, Entry, Total
from querysmasher.report.left_out import ALL, Counted

LARGE_EPSILON = 10
LARGE_DELTA = 1e-4
"""Thresholds above which ε and δ get a remark."""


def epsilon_words(budget: Budget) -> tuple[str, str]:
    """Return the budget as a short figure and its definition."""
    if budget.stated_delta is not None:
        return f"ε = {getattr(budget, budget.letter):.6g}", f"δ = {scientific(budget.stated_delta)}"
    said = {
        "zCDP": (f"ρ = {budget.rho:.6g}", "zero-concentrated DP"),
        "GaussianDP": (f"μ = {budget.mu:.6g}", "Gaussian DP"),
    }
    return said.get(type(budget).__name__, (f"β = {budget.privacy_cost:.6g}", "privacy cost"))


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

    def said(found: re.Match[str]) -> str:
        value = float(found[2])
        return f"{letters[found[1]]} = {scientific(value) if found[1] == 'delta' else f'{value:.10g}'}"

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


def record_words(entry: Entry | None) -> str:
    """Return whether the cost of a release was recorded in a ledger."""
    if entry is None:
        return "Not recorded in a ledger. Privacy loss adds up across releases about the same people."
    return f"Recorded in the ledger of {entry.label!r} as entry {entry.number}, with digest {entry.digest}."


def total_words(total: Total, delta: float) -> str:
    """Return what several measurements spend together, in every definition of privacy that holds for it.

    >>> from fractions import Fraction
    >>> total_words(Total(Fraction(1, 2)), 1e-6)
    'rho = 0.25 (zCDP), mu = 0.707107 (Gaussian DP), epsilon = 3.30761 at delta = 1e-06'
    """
    mu = "" if total.mu is None else f", mu = {readable(total.mu):.6g} (Gaussian DP)"
    epsilon = f"epsilon = {readable(total.epsilon_at(delta)):.6g} at delta = {delta!r}"
    return f"rho = {readable(float(total.rho)):.6g} (zCDP){mu}, {epsilon}"


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
