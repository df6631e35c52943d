"""The entries of a ledger, chained by their digests, and the sum of what they spend.

The digest of an entry is SHA-256(digest of the previous entry + line feed + text of the entry), where the
text is canonical JSON. Entry 0 states the limit, the unit of privacy and the label of the data; every other
entry states a cost as an exact fraction, and the digest of what was measured, which anyone can recompute from
a published release. A changed, removed, inserted or reordered entry changes the digest of every later one.

Canonical JSON has sorted keys, no spaces and ASCII characters only; an array is replaced by the SHA-256 of
its entries (little-endian, row by row), its type and its shape.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from querysmasher.errors import FileError, QuerySmasherError
from querysmasher.privacy.budget import (
    SMALLEST_DELTA,
    ApproxDP,
    Budget,
    epsilon,
    readable,
    root_up,
    rounded,
    zcdp_epsilon,
)
from querysmasher.privacy.budget import number as checked
from querysmasher.privacy.distributions import Distribution, distribution_of
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.unit import AttributeSets, Groups, Unit, sets_to_json


def canonical(data: Any) -> str:
    """Return plain data as the one JSON text that represents it; arrays are represented by their digest."""
    return json.dumps(_plain(data), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(text: str) -> str:
    """Return the SHA-256 of a string in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def plan_digest(plan: IntegerPlan) -> str:
    """Return the digest of everything that a plan measures: domain, budget, integer rows, variances, cap."""
    return digest(
        canonical(
            {
                "schema": plan.schema.to_json(),
                "budget": plan.budget.to_json(),
                "max_records": plan.max_records,
                "strategies": [
                    {
                        "shape": s.shape,
                        "factors": [[axes, factor.kind, factor.to_data()] for axes, factor in s.factors],
                        "multipliers": s.multipliers,
                    }
                    for s in plan.strategies
                ],
                "measured": [[m.attributes, m.blocks, str(m.variance)] for m in plan.measured],
            }
        )
    )


def _plain(data: Any) -> Any:
    if isinstance(data, np.ndarray):
        little = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False)
        sha256 = hashlib.sha256(little.tobytes()).hexdigest()
        return {"dtype": little.dtype.newbyteorder("<").str, "shape": list(data.shape), "sha256": sha256}
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return data


DELTA = 1e-6
"""The δ at which ε is reported for limits without δ."""

LEAST_LEFT = 1e-6
"""The least that is reported as left: as a fraction of the limit, as a cost, and as an ε."""


@dataclass(frozen=True)
class Total:
    """What several measurements spend together: the exact sum of costs, and whether all noise was Gaussian.

    Costs add. Gaussian mechanisms of privacy costs β_1, …, β_n, each chosen after the results of those before
    it were seen, protect together as one Gaussian mechanism of cost Σβ_i does: μ² adds (Dong, Roth, Su 2022;
    Smith, Thakurta 2022 if the costs are chosen on the way, too), and so does ρ = β/2 of zCDP (Bun, Steinke
    2016; Whitehouse, Ramdas, Rogers, Wu 2023 if the costs are chosen on the way). Hence

    - if all noises are Gaussian (`Distribution.is_gaussian`), the total is √(Σβ)-Gaussian DP, and its ε at a
      δ is that of the Gaussian mechanism, exactly: no composition theorem loses anything;
    - if one is a discrete Gaussian, the total is (Σβ/2)-zCDP, and ε at a δ follows from zCDP.

    Where values are discovered (`discovery`), a cost β_i holds up to δ_i only: the result is drawn from one
    of two neighbouring distributions of cost β_i with probability 1 - δ_i, by a coin that is independent of
    it. All coins fall so with probability at least 1 - Σδ_i, also if the δ_i are chosen on the way; one more
    coin makes this 1 - Σδ_i exactly. So M(x) = (1 - Σδ) G + Σδ Q and M(x') = (1 - Σδ) G' + Σδ Q', where G
    and G' are the total of cost Σβ above. If that is (ε, δ'), then P(M(x) ∈ S) <= (1 - Σδ)(e^ε P(G' ∈ S) +
    δ') + Σδ <= e^ε P(M(x') ∈ S) + δ' + Σδ: the total is (ε, δ' + Σδ).
    """

    cost: Fraction = Fraction(0)
    is_gaussian: bool = True
    delta: Fraction = Fraction(0)

    def plus(self, cost: Fraction, noise: Distribution, delta: Fraction = Fraction(0)) -> Total:
        """Return the total after one more measurement."""
        return Total(self.cost + cost, self.is_gaussian and noise.is_gaussian, self.delta + delta)

    def allowed(self, limit: Budget) -> Fraction:
        """Return the cost that may be spent in total under a limit, with the noises and the δ used.

        A limit that states no δ holds up to one that stands beside it.
        """
        if self.delta and limit.stated_delta is not None and self.delta >= limit.stated_delta:
            return Fraction(0)
        left = limit.without(self.delta) if self.delta else limit
        return Fraction(left.privacy_cost if self.is_gaussian else left.discrete_privacy_cost)

    def left(self, limit: Budget) -> Fraction:
        """Return the cost that is left under a limit, with the noises used."""
        return max(self.allowed(limit) - self.cost, Fraction(0))

    def epsilon_left(self, limit: Budget, delta: float) -> float:
        """Return an ε such that one more measurement of (ε, δ) fits, in four digits; 0 if none was found.

        The measurement has noise of the same kind as the total: Gaussian, or a discrete Gaussian. The ε is
        tested: such a measurement costs at most what is left.
        """
        left = self.left(limit)
        if left < LEAST_LEFT:
            return 0.0
        largest = Total(left, self.is_gaussian).epsilon_at(delta)
        for fraction in (1.0, 1 - 1e-4):
            for up in (True, False):
                tried = readable(fraction * largest, up=up, digits=4)
                if tried >= LEAST_LEFT and self.allowed(ApproxDP(tried, delta)) <= left:
                    return tried
        return 0.0

    def left_words(self, limit: Budget, delta: float | None = None) -> str:
        """Return what is left under a limit, rounded down; at the δ of the limit, unless another is given.

        >>> from querysmasher.privacy.budget import zCDP
        >>> Total(Fraction(3, 2)).left_words(zCDP(1))
        'rho = 0.25 of 1: one more release may have epsilon = 3.307 at delta = 1e-06 (default noise)'
        """
        delta = delta or limit.stated_delta or DELTA
        allowed, left = self.allowed(limit), self.left(limit)
        rho, of = (readable(rounded(cost / 2, up=False), up=False) for cost in (left, allowed))
        if left < LEAST_LEFT * allowed:  # what rounding has left
            return f"rho = 0 of {of:.6g}"
        epsilon = self.epsilon_left(limit, delta)
        noise = "default" if self.is_gaussian else "discrete"
        more = f": one more release may have epsilon = {epsilon:g} at delta = {delta!r} ({noise} noise)"
        return f"rho = {rho:.6g} of {of:.6g}{more if epsilon else ''}"

    @property
    def rho(self) -> Fraction:
        """The ρ of zCDP."""
        return self.cost / 2

    @property
    def mu(self) -> float | None:
        """The μ of Gaussian DP, rounded up, or None if the noise was not only Gaussian or a δ was spent."""
        return root_up(self.cost) if self.is_gaussian and not self.delta else None

    def epsilon_at(self, delta: float) -> float:
        """Return the ε at this δ, rounded up: tight for Gaussian noise, by zCDP otherwise.

        It is infinite at a δ that is not above what was spent of it.
        """
        if not self.cost:
            return 0.0
        if self.delta:
            delta = rounded(Fraction(delta) - self.delta, up=False)
        if delta < SMALLEST_DELTA:
            return math.inf
        convert, amount = (epsilon, self.cost) if self.is_gaussian else (zcdp_epsilon, self.rho)
        return convert(rounded(amount, up=True), delta)


START = ""
"""The digest before entry 0, which has no predecessor."""

FORMAT = 1

_SHORT = re.compile(r"[^\x00-\x1f\x7f]{0,200}")
_NAME = re.compile(r".{1,1000}", re.DOTALL)
_HEX = re.compile(r"[0-9a-f]{64}")
_FRACTION = re.compile(r"[0-9]{1,400}(/[0-9]{1,400})?")


@dataclass(frozen=True)
class Opening:
    """Entry 0: what the ledger is about.

    Attributes:
        identity: random digits that distinguish this ledger from every other one.
        label: which data it is about.
        limit: what all entries together may spend, and for which unit of privacy.
        time: when it was created, in UTC.
        delta: the δ up to which a limit that states none holds, for discovered values.
    """

    identity: str
    label: str
    limit: Budget
    time: str
    delta: float = 0.0

    number = 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of the entry."""
        return {
            "format": FORMAT,
            "ledger": self.identity,
            "number": 0,
            "time": self.time,
            "label": self.label,
            "limit": self.limit.to_json(),
            **({"delta": self.delta} if self.delta else {}),
        }

    @cached_property
    def digest(self) -> str:
        """The digest of the entry."""
        return linked(START, self.to_json())


@dataclass(frozen=True)
class Entry:
    """What one measurement spends, or was about to spend when it failed.

    Attributes:
        ledger: the identity of the ledger.
        number: 1 for the first measurement.
        time: when it was written, in UTC.
        label: which data was measured.
        unit: whom the cost is about, and the attribute sets whose exact counts are published.
        cost: the privacy cost β, exactly.
        noise: the name of the distribution of the noise.
        plan: the digest of the integer plan.
        person: the column that says to whom a record belongs, or None if persons are not distinguished.
        previous: the digest of the entry before.
        delta: the δ up to which the cost holds, exactly; 0 but for discovered values.
    """

    ledger: str
    number: int
    time: str
    label: str
    unit: Unit
    cost: Fraction
    noise: str
    plan: str
    person: str | None
    previous: str
    delta: Fraction = Fraction(0)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the entry, of which its digest is computed."""
        return {
            **({"delta": str(self.delta)} if self.delta else {}),
            "ledger": self.ledger,
            "number": self.number,
            "time": self.time,
            "label": self.label,
            "neighbours": self.unit.neighbours,
            "records_per_person": self.unit.records_per_person,
            "person": self.person,
            "cost": str(self.cost),
            "noise": self.noise,
            "plan": self.plan,
            **({"exact": sets_to_json(self.unit.exact)} if self.unit.exact else {}),
        }

    @cached_property
    def digest(self) -> str:
        """The digest of the entry, which fixes all entries before it."""
        return linked(self.previous, self.to_json())

    def to_data(self) -> dict[str, Any]:
        """Return the content with the digests that link it to the others, for readers."""
        return {**self.to_json(), "previous": self.previous, "digest": self.digest}

    @property
    def distribution(self) -> Distribution:
        """The distribution of the noise."""
        return distribution_of(self.noise)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], previous: str) -> Entry:
        """Rebuild an entry from its content; raise ValueError for anything else."""
        entry = cls(
            _match(_SHORT, data["ledger"]),
            _whole(data["number"]),
            _match(_SHORT, data["time"]),
            _match(_SHORT, data["label"]),
            Unit(
                _match(_SHORT, data["neighbours"]),
                _whole(data["records_per_person"]),
                tuple(tuple(map(_known_by, names)) for names in data.get("exact", ())),
            ),
            Fraction(_match(_FRACTION, data["cost"])),
            distribution_of(data["noise"]).name,
            _match(_HEX, data["plan"]),
            None if data["person"] is None else _match(_NAME, data["person"]),
            _match(_HEX, previous),
            Fraction(_match(_FRACTION, data["delta"])) if "delta" in data else Fraction(0),
        )
        _require(entry.to_json() == dict(data))
        return entry


@dataclass(frozen=True)
class Chain:
    """All entries of a ledger, checked: every digest is the one it must be."""

    opening: Opening
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]], path: str) -> Chain:
        """Check the stored entries: (number, content, digest), in order.

        Raise `FileError` if one is missing, foreign, or does not have the digest that follows from its
        content and from the entries before it.
        """
        opening: Opening | None = None
        entries: list[Entry] = []
        for number, row in enumerate(rows):
            try:
                if opening is None:
                    opening = _opening(_content(row, number, START))
                else:
                    before = cls(opening, tuple(entries[-1:])).head
                    entry = Entry.from_json(_content(row, number, before), before)
                    entries.append(entry)  # units of privacy, labels of the data and persons are never mixed
                    same = replace(entry, ledger=opening.identity, number=number, label=opening.label)
                    _require(entry == replace(same, person=entries[0].person))
                    _require(entry.unit.without_exact == opening.limit.unit)
            except (ValueError, LookupError, TypeError, QuerySmasherError, RecursionError, ArithmeticError):
                raise FileError(
                    f"ledger: entry {number} of {path!r} was changed or removed after it was written; "
                    "the ledger can no longer be trusted, and nothing is measured with it"
                ) from None
        if opening is None:
            raise FileError(f"ledger: {path!r} has no first entry")
        return cls(opening, tuple(entries))

    @property
    def head(self) -> str:
        """The digest of the last entry, which fixes all of them."""
        return self.entries[-1].digest if self.entries else self.opening.digest

    @property
    def exact(self) -> AttributeSets:
        """The attribute sets whose exact counts some entry publishes.

        The total is for neighbours that agree on all of them. An entry bounds what changes between neighbours
        that agree on its own exact counts, so also between those that agree on more.
        """
        return replace(
            self.opening.limit.unit, exact=tuple(s for e in self.entries for s in e.unit.exact)
        ).exact

    @property
    def exceeds(self) -> bool:
        """Whether the entries spend more than the limit, or more of δ than stands beside it."""
        total, limit = self.total, self.opening.limit
        beside = limit.stated_delta is None and total.delta > Fraction(self.opening.delta)
        return beside or total.cost > total.allowed(limit)

    @property
    def total(self) -> Total:
        """What all entries spend together."""
        total = Total()
        for entry in self.entries:
            total = total.plus(entry.cost, entry.distribution, entry.delta)
        return total


def linked(previous: str, content: Mapping[str, Any]) -> str:
    """Return the digest of an entry with this content after the entry with this digest."""
    return digest(f"{previous}\n{canonical(content)}")


def _content(row: Sequence[Any], number: int, before: str) -> dict[str, Any]:
    """Return the content of a stored entry; raise ValueError unless it has the right number and digest."""
    position, text, stored = row
    data = json.loads(text)
    _require(position == number and canonical(data) == text and linked(before, data) == stored)
    return dict(data)


def _opening(data: Mapping[str, Any]) -> Opening:
    opening = Opening(
        _match(_SHORT, data["ledger"]),
        _match(_SHORT, data["label"]),
        Budget.from_json(data["limit"]),
        _match(_SHORT, data["time"]),
        checked("delta", data["delta"]) if "delta" in data else 0.0,
    )
    _require(opening.to_json() == dict(data))
    return opening


def _match(pattern: re.Pattern[str], value: object) -> str:
    _require(type(value) is str and pattern.fullmatch(value))
    return str(value)


def _known_by(name: Any) -> str | Groups:
    groups = Groups.of_json(name)
    return groups if isinstance(groups, Groups) else _match(_NAME, name)


def _whole(value: Any) -> int:
    _require(type(value) is int and value >= 0)
    return int(value)


def _require(holds: object) -> None:
    if not holds:
        raise ValueError
