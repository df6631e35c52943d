"""Noisy measurements of a table, and what is needed to answer from them: the substance of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from querysmasher.planning.centre import Centres
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies import strategy_of_integers
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.release.exploration import Exploration
from querysmasher.release.noise_record import NoiseRecord
from querysmasher.release.provenance import Provenance
from querysmasher.release.reconstruction import Reconstruction
from querysmasher.release.repeats import combined_noise, repeats
from querysmasher.release.store import Store
from querysmasher.report.guarantees import record_words, remarks
from querysmasher.report.left_out import ALL, Counted, LeftOut
from querysmasher.workload.workload import Workload


@dataclass(frozen=True, eq=False, repr=False)
class Measurements:
    """Noisy measurements of a table, as `measure` made them."""

    plan: IntegerPlan
    workload: Workload
    """The workload that was planned."""
    centres: Centres
    noise: NoiseRecord
    store: Store
    public_total: int | None = None
    entry: Entry | None = None
    """The entry of the ledger that records the cost, or None if it was not recorded."""
    counted: Counted = ALL
    """Which records of the table were counted, and how many were left out, if that was measured."""
    provenance: Provenance = field(default_factory=Provenance)
    """Who publishes the release, when, from which data."""
    asked: Workload | None = None
    """The workload to estimate, if the plan was meant for estimates of more than it measures."""
    exploration: Exploration | None = None
    """The phases of a release by `explore`, or None if it was planned in advance."""

    @property
    def guarantee(self) -> str:
        """The guarantee of the release, in words."""
        said = [f"NONE: this is a simulation. {self.noise.description}"]
        if self.noise.is_private:
            said = [
                self.plan.budget.describe(self.person),
                f"Noise: {self.noise.description}",
                *remarks(self.plan.budget),
            ]
        return " ".join(filter(None, [*said, self.counted.words()]))

    @property
    def person(self) -> str | None:
        """The column by which persons were distinguished, or None if they were not."""
        return self.counted.person

    @property
    def left_out(self) -> LeftOut | None:
        """How many records were left out, measured with noise, or None if that was not measured."""
        return self.counted.left_out

    @property
    def record(self) -> str:
        """Whether the cost was recorded in a ledger, in words."""
        return record_words(self.entry)

    @cached_property
    def measurements(self) -> int:
        """Number of released noisy values."""
        return sum(map(self.plan.count, self.plan.measured))

    @cached_property
    def estimator(self) -> Estimator:
        """Computes the variance of any query under the noise that was added."""
        strategies = [strategy_of_integers(s) for s in self.plan.strategies]
        twins: dict[int, int] = {}  # the same rows, each with noise of the same variance
        for number, strategy in enumerate(self.plan.strategies):
            if strategy.multipliers is not None:
                twins[number] = len(strategies)
                strategies.append(
                    strategy_of_integers(replace(strategy, multipliers=np.ones_like(strategy.multipliers)))
                )
        measured = [tuple(self._noises(own, twins)) for own in repeats(self.plan)]
        return Estimator.of(
            self.plan.schema, self.centres, strategies, measured, public_total=self.public_total is not None
        )

    def _noises(self, numbers: tuple[int, ...], twins: Mapping[int, int]) -> Iterator[Measured]:
        """Iterate over the independent noises on a set: σ² × multiplier, and the variance from rounding."""
        m = self.plan.measured[numbers[0]]
        variance, extra = combined_noise(self.plan, self.noise.distribution, numbers)
        blocks = m.blocks if m.attributes else ()
        yield Measured(m.attributes, blocks, variance, 0.0)
        if extra:
            even = tuple((axes, twins.get(number, number)) for axes, number in blocks)
            yield Measured(m.attributes, even, extra, 0.0)

    @cached_property
    def reconstruction(self) -> Reconstruction:
        """Reconstructs marginals."""
        return Reconstruction(self.plan, self.centres, self.store, self.public_total, self.estimator)
