"""Guarantees and what was spent, in plain words."""

from __future__ import annotations

import math
import re

import numpy as np

from querysmasher.formatting import count, number
from querysmasher.html import Html, element, join, scrolling, table
from querysmasher.privacy.budget import Budget, readable
from querysmasher.privacy.entries import Entry, Total
from querysmasher.report.left_out import ALL, Counted

DELTA = 1e-6
"""The δ at which ε is reported for budgets without δ."""

LARGE_EPSILON = 10
LARGE_DELTA = 1e-4
"""Thresholds above which ε and δ get a remark."""

FALSE_ALARMS = (0.01, 0.05, 0.1)


def epsilon_words(budget: Budget) -> tuple[str, str]:
    """Return the budget as a short figure and its definition."""
    if budget.stated_delta is not None:
        return f"ε = {getattr(budget, budget.letter):.6g}", f"δ = {scientific(budget.stated_delta)}"
    said = {"zCDP": f"ρ = {budget.rho:.6g}", "GaussianDP": f"μ = {budget.mu:.6g}"}
    name = {"zCDP": "zero-concentrated DP", "GaussianDP": "Gaussian DP"}
    kind = type(budget).__name__
    return said.get(kind, f"β = {budget.privacy_cost:.6g}"), name.get(kind, "privacy cost")


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


def guarantee(budget: Budget, *, discrete: bool = False, counted: Counted = ALL) -> Html:
    """Explain what is guaranteed, whom it protects, and what an attacker could still learn."""
    person = counted.person
    replace = budget.neighbours == "replace_one"
    single = budget.records_per_person == 1 and person is None
    whose = "one record" if single else "the records of one person"
    aim = (
        f"which of two versions of {whose} is in the table"
        if replace
        else f"whether {whose} {'is' if single else 'are'} in the table"
    )
    guess = (1 + budget.delta_at(0.0, discrete=discrete)) / 2
    rows = [("Guesses yes or no, and is right", "50%", _percent(guess))]
    rows += [
        (f"With {said} false alarms, detects a person", said, _percent(power(budget, a, discrete=discrete)))
        for a in FALSE_ALARMS
        for said in [_percent(a)]
    ]
    weak = guess > 0.9
    return join(
        [
            element("p", in_symbols(budget.describe(person)), class_="lead"),
            *(element("p", remark, class_="warning") for remark in remarks(budget)),
            None if counted.is_whole else element("p", counted.words()),
            element("h3", "What an attacker could learn"),
            element(
                "p",
                f"Consider the strongest attacker, who knows every other record, reads the whole release, "
                f"has unlimited computing power, and wants to find out {aim}. Even this attacker succeeds at "
                "most this often:",
            ),
            scrolling(
                table(
                    ["The attacker", "without the release", "with it, at most"],
                    rows,
                    numbers=[1, 2],
                    class_="odds",
                )
            ),
            element(
                "p",
                "The last column is close to 100%: this budget gives little protection against such an "
                "attacker. A smaller budget protects more.",
                class_="warning",
            )
            if weak
            else None,
            element("h3", "In other definitions of privacy"),
            _currencies(budget, discrete, person),
            element("h3", "What is not hidden"),
            element("ul", *(element("li", text) for text in _not_hidden(budget, replace, person))),
        ]
    )


def power(budget: Budget, alarm: float, *, discrete: bool = False) -> float:
    """Return an upper bound on the power of a test with this false-alarm rate, from all valid (ε, δ)."""
    best = 1.0
    for epsilon in np.concatenate([[0.0], np.geomspace(1e-3, 60, 120)]).tolist():
        delta = budget.delta_at(epsilon, discrete=discrete)
        best = min(best, math.exp(epsilon) * alarm + delta, 1 - math.exp(-epsilon) * (1 - delta - alarm))
    return best


def delta_of(budget: Budget) -> float:
    """Return the δ at which ε is reported."""
    return DELTA if budget.stated_delta is None else budget.stated_delta


def _currencies(budget: Budget, discrete: bool, person: str | None) -> Html:
    delta = delta_of(budget)
    cost = budget.discrete_privacy_cost if discrete else budget.privacy_cost
    rows = [
        ("(ε, δ)", f"ε = {number(budget.epsilon_at(delta, discrete=discrete))}, δ = {scientific(delta)}"),
        ("zero-concentrated", f"ρ = {number(cost / 2)}"),
    ]
    if not discrete:
        rows.append(("Gaussian", f"μ = {number(math.sqrt(cost))}"))
    rows.append(("privacy cost", f"β = {number(cost)}"))
    facts = (join([element("dt", name), element("dd", value)]) for name, value in rows)
    whose = "one record" if budget.records_per_person == 1 and person is None else "one person"
    said = (
        f"ε bounds how much more likely {whose} can make any outcome: by a factor of e to the ε. "
        f"δ, here {scientific(delta)}, is the total probability by which this bound may be exceeded. It is "
        "not the probability of publishing the data: with this noise, the bound degrades gradually."
    )
    return join([element("dl", *facts, class_="facts"), element("p", said)])


def _not_hidden(budget: Budget, replace: bool, person: str | None) -> list[str]:
    texts = [
        "What holds for people in general: that smoking is harmful says something about every smoker.",
        "The schema: attributes and their possible values are public.",
        "Other releases about the same people: privacy loss adds up across them.",
    ]
    if replace:
        texts.append("The number of records: these neighbours make it public.")
    if budget.records_per_person > 1 and person is None:
        most = count(budget.records_per_person, "record")
        texts.append(f"A person with more than {most}: such a person is protected less.")
    return texts


def _percent(share: float) -> str:
    """Return a share as a percentage, rounded up, so that a bound remains a bound."""
    return f"{min(math.ceil(share * 1000 - 1e-9) / 10, 100):.1f}%".replace(".0%", "%")
