"""Where a release comes from: who publishes it, from which data, with which noise, in which phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date as Date  # noqa: N812 - `date` is the name of a field
from fractions import Fraction
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import FileError, PrivacyError, as_given
from querysmasher.fields import floats, fraction, integers, items, number, text, whole
from querysmasher.formatting import shown
from querysmasher.privacy.accounting import Distance, Distances, Dropped, distances_cost, privacy_cost
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import Distribution, distribution_of
from querysmasher.privacy.entries import canonical, digest, plan_digest
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.workload.registry import ragged, unragged, workload_to_data
from querysmasher.workload.workload import Workload


@dataclass(frozen=True)
class NoiseRecord:
    """Which noise a release carries."""

    name: str
    description: str
    seeded: bool

    def __post_init__(self) -> None:
        """Check that the noise is known: the guarantee of a release depends on it."""
        distribution_of(self.name)

    @property
    def distribution(self) -> Distribution:
        """The distribution of the noise."""
        return distribution_of(self.name)

    @property
    def is_private(self) -> bool:
        """Whether the noise protects anyone: not if it can be recomputed or is in floating point."""
        return not self.seeded and self.distribution.is_private


@dataclass(frozen=True)
class Provenance:
    """Words about a release for its readers. All are public, and none changes what is guaranteed."""

    title: str | None = None
    organisation: str | None = None
    contact: str | None = None
    """An address for questions."""
    date: Date | None = None
    """The day of the release."""
    data: str | None = None
    """A label of the table that was measured."""
    version: str | None = None
    """The version of the release, if the organisation numbers them."""
    spec_digest: str | None = None
    """SHA-256 of the spec file."""
    plan_digest: str | None = None
    """SHA-256 of the plan's file."""
    discovered: str | None = None
    """What the release and values that were discovered in the same table guarantee together."""

    def __post_init__(self) -> None:
        """Check the words, and read the date if it is text."""
        words = {field.name: getattr(self, field.name) for field in fields(self)}
        day = words.pop("date")
        for name, given in words.items():
            if given is not None and not (isinstance(given, str) and given.strip()):
                raise FileError(f"{name}: expected a non-empty string, got {as_given(given)}")
            object.__setattr__(self, name, given and shown(given))
        try:
            read = day if day is None or type(day) is Date else Date.fromisoformat(day)
        except (TypeError, ValueError):
            raise FileError(f"date: expected a date such as '2024-03-01', got {as_given(day)}") from None
        object.__setattr__(self, "date", read)

    def to_json(self) -> dict[str, str]:
        """Return the words that are given, as plain data."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in given.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_json` returned; refuse invalid words."""
        known = {field.name for field in fields(cls)}
        given: dict[str, Any] = {name: text(data[name]) for name in data if name in known}
        return cls(**given)


PAIRS, PLANNED, ERRORS = "distances of pairs", "planned measurements", "errors of the estimate"
"""Names of phases: the distances of pairs of attributes from independence, all measurements of a plan made in
advance, and the distances of the table from the estimate."""


@dataclass(frozen=True)
class MeasuredPhase:
    """A phase that measured attribute sets: those from index `start` to `stop` of the plan."""

    name: str
    start: int
    stop: int

    def cost(self, plan: IntegerPlan) -> Fraction:
        """Return the exact privacy cost of the phase, which is part of a release with this plan."""
        sets = plan.measured[self.start : self.stop]
        return privacy_cost(IntegerPlan(plan.schema, plan.budget, plan.strategies, sets, plan.max_records))

    def to_data(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class ComparedPhase:
    """A phase that measured how far marginals are from tables known before."""

    name: str
    distances: Distances
    values: Numbers
    """The noisy distances, in the order of `distances.queries` and in units of 1/multiple of a record."""

    def __post_init__(self) -> None:
        """Check that there is one finite value per distance."""
        if self.values.shape != (len(self.distances.queries),) or not np.isfinite(self.values).all():
            raise PrivacyError("comparison: expected one finite value per distance")

    def cost(self, plan: IntegerPlan) -> Fraction:  # noqa: ARG002 - as for a measurement
        """Return the exact privacy cost of the phase."""
        return distances_cost(self.distances)

    def to_data(self) -> dict[str, Any]:
        """Return plain data with arrays."""
        distances = self.distances.queries
        return {
            "name": self.name,
            "attributes": ragged(distance.attributes for distance in distances),
            "multiples": np.array([distance.multiple for distance in distances], dtype=np.int64),
            "variances": [str(distance.variance) for distance in distances],
            "values": self.values,
        }

    @property
    def records(self) -> Array:
        """The noisy distances, in records."""
        return np.array(
            [float(v) / d.multiple for v, d in zip(self.values.tolist(), self.distances.queries, strict=True)]
        )

    def std(self, noise: Distribution) -> Array:
        """Return the standard errors of the distances, in records."""
        variances = [float(d.variance) for d in self.distances.queries]
        noisy = np.array([v + noise.extra_variance(v) for v in variances])
        return np.sqrt(noisy) / np.array([float(d.multiple) for d in self.distances.queries])


Phase = MeasuredPhase | ComparedPhase


@dataclass(frozen=True, eq=False)
class Exploration:
    """The options of `explore`, or of `measure` in several phases, and the phases in order."""

    options: Mapping[str, float]
    phases: tuple[Phase, ...]

    @property
    def errors(self) -> ComparedPhase | None:
        """The measured errors of the estimate, or None if they were not measured."""
        return self._comparison(ERRORS)

    @property
    def independence(self) -> ComparedPhase | None:
        """The measured distances of pairs from independence, or None if there are none."""
        return self._comparison(PAIRS)

    @property
    def is_planned(self) -> bool:
        """Whether all was planned in advance, and then compared with its estimate."""
        return any(phase.name == PLANNED for phase in self.phases[:1])

    @property
    def was_explored(self) -> bool:
        """Whether `explore` made it, and not `measure`."""
        return not self.is_planned and "size_share" not in self.options

    def _comparison(self, name: str) -> ComparedPhase | None:
        phases = [p for p in self.phases if isinstance(p, ComparedPhase) and p.name == name]
        return phases[-1] if phases else None

    def cost(self, plan: IntegerPlan) -> Fraction:
        """Return the exact privacy cost of all phases."""
        return sum((phase.cost(plan) for phase in self.phases), Fraction(0))

    def to_data(self) -> dict[str, Any]:
        """Return plain data with arrays, from which `exploration_from_data` rebuilds the phases."""
        options = {name: float(value) for name, value in self.options.items()}
        return {"options": options, "phases": [phase.to_data() for phase in self.phases]}


def request_digest(
    workload: Workload,
    budget: Budget,
    max_records: int,
    options: Mapping[str, float],
    dropped: Dropped | None = None,
) -> str:
    """Return the digest of a request to measure a table in phases that are planned on the way."""
    request = {
        "explore": dict(options),
        "workload": workload_to_data(workload),
        "budget": budget.to_json(),
        "max_records": max_records,
    }
    return digest(canonical(request | _dropped(dropped)))


def planned_digest(plan: IntegerPlan, options: Mapping[str, float], dropped: Dropped | None = None) -> str:
    """Return the digest of a plan that is measured with errors of estimates or counts of dropped records."""
    return digest(canonical({"measure": dict(options), "plan": plan_digest(plan)} | _dropped(dropped)))


def _dropped(dropped: Dropped | None) -> dict[str, Any]:
    if dropped is None:
        return {}
    return {"dropped": {"persons": dropped.persons, "variance": str(dropped.variance)}}


def spent(plan: IntegerPlan, exploration: Exploration | None, dropped: Dropped | None = None) -> Fraction:
    """Return the exact privacy cost of a release; `dropped` is what it measured of records left out."""
    whole = privacy_cost(plan) if exploration is None else exploration.cost(plan)
    return whole if dropped is None else whole + dropped.cost


def exploration_from_data(data: Any, plan: IntegerPlan, noise: Distribution) -> Exploration | None:
    """Rebuild the phases of a release; refuse those that do not fit its plan."""
    if data is None:
        return None
    options = {text(name): number(value, 0, 1) for name, value in data["options"].items()}
    phases = tuple(_phase_from_data(phase, plan, noise) for phase in items(data["phases"]))
    ends = [(phase.start, phase.stop) for phase in phases if isinstance(phase, MeasuredPhase)]
    follows = [0, *(stop for _, stop in ends)] == [*(start for start, _ in ends), len(plan.measured)]
    if not follows or any(start >= stop for start, stop in ends):
        raise PrivacyError("release: its phases do not measure every attribute set once")
    return Exploration(options, phases)


def _phase_from_data(data: dict[str, Any], plan: IntegerPlan, noise: Distribution) -> Phase:
    name = text(data["name"])
    if not name.isprintable() or not 1 <= len(name) <= 100:
        raise ValueError
    if "start" in data:
        most = len(plan.measured)
        return MeasuredPhase(name, whole(data["start"], 0, most), whole(data["stop"], 0, most))
    stored = zip(
        unragged(data["attributes"]),
        integers(data["multiples"], 1).tolist(),
        items(data["variances"]),
        strict=True,
    )
    distances = tuple(Distance(attributes, multiple, fraction(v)) for attributes, multiple, v in stored)
    values = (floats if noise.dtype is np.float64 else integers)(data["values"], 1)
    return ComparedPhase(name, Distances(plan.schema, plan.budget, distances, plan.max_records), values)
