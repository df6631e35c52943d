"""A spec: everything a release needs, read from a file and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from querysmasher.errors import SpecError
from querysmasher.measuring import measure
from querysmasher.planning.plan import Plan
from querysmasher.planning.planner import plan
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.release.release import Release
from querysmasher.schema import Schema
from querysmasher.spec.ledger import LedgerPlace
from querysmasher.spec.model import AboutSection, MeasureSection, OutputSection, PlanSection
from querysmasher.spec.source import Source
from querysmasher.spec.workloads import Entry
from querysmasher.workload.workload import Workload


@dataclass(frozen=True)
class Spec:
    """The schema, workload, budget, data source, options and output of a release."""

    path: Path
    schema: Schema
    entries: tuple[Entry, ...]
    budget: Budget
    planning: PlanSection
    measuring: MeasureSection
    source: Source | None
    output: OutputSection
    ledger: LedgerPlace | None = None
    about: AboutSection = field(default_factory=AboutSection)

    @cached_property
    def workload(self) -> Workload:
        """All entries together."""
        first, *others = (entry.workload for entry in self.entries)
        groups = first.groups + tuple(group for other in others for group in other.groups)
        return Workload(self.schema, groups)

    @property
    def folder(self) -> Path:
        """The release folder; a relative path starts at the folder of the spec file."""
        return self.path.parent / self.output.folder

    def table(self, path: Path | None = None) -> Source:
        """Return the source of the data: `path` if given, else that of [data]."""
        source = self.source if path is None else Source(path)
        if source is None:
            msg = f"{self.path.name}: data: missing; name the table under [data] or with --data"
            raise SpecError(msg)
        return source

    @property
    def searches_centres(self) -> bool:
        """Whether planning optimises the centres, which takes longest."""
        return self.planning.centering != "uniform" and not self.planning.chosen.uniform_only

    def plan(self, progress: bool | None = None) -> Plan:
        """Plan without data."""
        return plan(
            self.workload,
            self.budget,
            mechanism=self.planning.mechanism,
            solver=self.planning.solver,
            centering=self.planning.centering,
            tolerance=self.planning.tolerance,
            bases=self.planning.bases,
            progress=progress,
        )

    @scrubbed
    def measure(
        self, planned: Plan, data: Any, *, seed: int | None = None, progress: bool | None = None
    ) -> Release:
        """Measure as planned; this spends the budget, and records it in the ledger of [budget]."""
        return measure(
            planned,
            data,
            seed=seed,
            noise=self.measuring.noise,
            unknown=self.measuring.unknown,
            max_records=self.measuring.max_records,
            budget=self.budget,
            person=self.measuring.person,
            ledger=None if self.ledger is None else self.ledger.open(),
            progress=progress,
        )
