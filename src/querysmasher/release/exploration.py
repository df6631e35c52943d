"""How a release was measured in phases: which phase measured what, and the noisy distances between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import PrivacyError
from querysmasher.fields import floats, fraction, integers, items, number, text, whole
from querysmasher.privacy.accounting import Distance, Distances, Dropped, distances_cost, privacy_cost
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.entries import canonical, digest, plan_digest
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.workload.registry import ragged, unragged, workload_to_data
from querysmasher.workload.workload import Workload

PAIRS = "distances of pairs"
"""The name of the phase that measures how far pairs of attributes are from independence."""

PLANNED = "planned measurements"
"""The name of the only phase of a plan that was made in advance, before errors of its estimate."""

ERRORS = "errors of the estimate"
"""The name of the phase that measures how far the estimate is from the table."""


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


@dataclass(frozen=True, eq=False)
class ComparedPhase:
    """A phase that measured how far marginals are from tables that were known before."""

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
    """The options of `explore`, or of `measure` with errors of its estimate, and the phases in order."""

    options: Mapping[str, float]
    phases: tuple[Phase, ...]

    @property
    def errors(self) -> ComparedPhase | None:
        """The measured errors of the estimate, or None if these were not bought."""
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

    def check(self, plan: IntegerPlan) -> None:
        """Refuse phases that do not measure every attribute set of a plan once, in order."""
        ranges = [(p.start, p.stop) for p in self.phases if isinstance(p, MeasuredPhase)]
        starts, stops = (
            [0, *(stop for _, stop in ranges)],
            [*(start for start, _ in ranges), len(plan.measured)],
        )
        if starts != stops or any(start >= stop for start, stop in ranges):
            raise PrivacyError("release: its phases do not measure every attribute set once")


def request_digest(
    workload: Workload,
    budget: Budget,
    max_records: int,
    options: Mapping[str, float],
    dropped: Dropped | None = None,
) -> str:
    """Return the digest of what is asked for before a table is explored."""
    request = {
        "explore": dict(options),
        "workload": workload_to_data(workload),
        "budget": budget.to_json(),
        "max_records": max_records,
    }
    return digest(canonical(request | _dropped(dropped)))


def planned_digest(plan: IntegerPlan, options: Mapping[str, float], dropped: Dropped | None = None) -> str:
    """Return the digest of a plan that is measured together with something else."""
    return digest(canonical({"measure": dict(options), "plan": plan_digest(plan)} | _dropped(dropped)))


def _dropped(dropped: Dropped | None) -> dict[str, Any]:
    if dropped is None:
        return {}
    return {"dropped": {"persons": dropped.persons, "variance": str(dropped.variance)}}


def spent(plan: IntegerPlan, exploration: Exploration | None, dropped: Dropped | None = None) -> Fraction:
    """Return the exact privacy cost of a release; `dropped` is what it measured of records left out."""
    whole = privacy_cost(plan) if exploration is None else exploration.cost(plan)
    return whole if dropped is None else whole + dropped.cost


def exploration_to_data(exploration: Exploration | None) -> dict[str, Any] | None:
    """Return plain data with arrays, from which `exploration_from_data` rebuilds the phases."""
    if exploration is None:
        return None
    return {
        "options": {name: float(value) for name, value in exploration.options.items()},
        "phases": [_phase_to_data(phase) for phase in exploration.phases],
    }


def exploration_from_data(data: Any, plan: IntegerPlan, noise: Distribution) -> Exploration | None:
    """Rebuild the phases of a release; refuse those that do not fit its plan."""
    if data is None:
        return None
    options = {text(name): number(value, 0, 1) for name, value in data["options"].items()}
    phases = tuple(_phase_from_data(phase, plan, noise) for phase in items(data["phases"]))
    exploration = Exploration(options, phases)
    exploration.check(plan)
    return exploration


def _phase_to_data(phase: Phase) -> dict[str, Any]:
    if isinstance(phase, MeasuredPhase):
        return {"name": phase.name, "start": phase.start, "stop": phase.stop}
    distances = phase.distances.queries
    return {
        "name": phase.name,
        "attributes": ragged(distance.attributes for distance in distances),
        "multiples": np.array([distance.multiple for distance in distances], dtype=np.int64),
        "variances": [str(distance.variance) for distance in distances],
        "values": phase.values,
    }


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
    values = data["values"]
    values = floats(values, 1) if noise.dtype is np.float64 else integers(values, 1)
    return ComparedPhase(name, Distances(plan.schema, plan.budget, distances, plan.max_records), values)
