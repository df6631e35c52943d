"""A spec: everything a release needs, read from a file and checked."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querysmasher.data.foreign import quietly
from querysmasher.data.framing import CSV
from querysmasher.errors import FileError, SpecError
from querysmasher.journal import check_error_share
from querysmasher.planning.plan import Plan
from querysmasher.planning.planner import least_budget, plan
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.schema import Schema
from querysmasher.spec.sections import (
    AboutSection,
    EstimateSection,
    MeasureSection,
    OutputSection,
    PlanSection,
)
from querysmasher.spec.workloads import SpecEntry
from querysmasher.workload.workload import Workload

if TYPE_CHECKING:
    from querysmasher.release.release import Release


@dataclass(frozen=True)
class Source:
    """A CSV or Parquet file, a glob, a folder of Parquet files; or a table of a DuckDB database."""

    path: Path
    table: str | None = None
    style: Mapping[str, str] = field(default_factory=dict)
    """The dialect of a CSV file: options of `CSV`."""

    def check(self) -> None:
        """Refuse a source that does not exist."""
        if not self.path.exists() and not glob.glob(str(self.path), recursive=True):  # noqa: PTH207
            raise FileError(f"data: no file {str(self.path)!r}")

    def open(self) -> Any:
        """Return the data for `measure`. Nothing is read yet, and nothing is ever modified."""
        self.check()
        if self.table is None:
            parquet = self.path.is_dir() or self.path.suffix.lower() in (".parquet", ".pq")
            return CSV(self.path, **self.style) if self.style and not parquet else self.path
        import duckdb  # noqa: PLC0415 - takes a while to load

        connection = quietly("opening the database", duckdb.connect, str(self.path), read_only=True)
        connection.execute("SET enable_progress_bar = false")  # otherwise it prints to stdout
        return quietly(f"opening the table {self.table!r}", connection.table, self.table)


@dataclass(frozen=True)
class LedgerFile:
    """Where the ledger is, and the limit with which it is created if it does not exist."""

    path: Path
    limit: Budget | None = None
    label: str | None = None

    def left(self) -> float | None:
        """Return the privacy cost that is left, or None if the ledger does not exist yet."""
        return float(Ledger(self.path).left) if self.path.exists() else None

    def left_words(self) -> str:
        """Return what is left of an existing ledger, in words."""
        ledger = Ledger(self.path)
        return ledger.total.left_words(ledger.limit)

    def open(self) -> Ledger:
        """Open the ledger, or create it if its limit is stated."""
        return Ledger(self.path, limit=self.limit, label=self.label)


@dataclass(frozen=True)
class Spec:
    """The schema, workload, budget, data source, options and output of a release."""

    path: Path
    schema: Schema
    entries: tuple[SpecEntry, ...]
    budget: Budget
    planning: PlanSection
    measuring: MeasureSection
    source: Source | None
    output: OutputSection
    ledger: LedgerFile | None = None
    about: AboutSection = field(default_factory=AboutSection)
    least: bool = False
    """Whether the budget is the least that meets all targets; `budget` then states the unit of privacy."""
    estimate: EstimateSection | None = None
    """How to write estimates beside the answers, or None if they are not asked for."""

    @cached_property
    def workload(self) -> Workload:
        """All entries together."""
        first, *others = (entry.workload for entry in self.entries)
        groups = first.groups + tuple(group for other in others for group in other.groups)
        return Workload(self.schema, groups)

    @property
    def remarks(self) -> list[str]:
        """What the file may say, and probably does not mean."""
        return [f"{self.path.name}: {remark}" for entry in self.entries for remark in entry.remarks]

    @property
    def folder(self) -> Path:
        """The release folder; a relative path starts at the folder of the spec file."""
        return self.path.parent / self.output.folder

    def table(self, path: Path | None = None) -> Source:
        """Return the source of the data: `path` if given, else that of [data]."""
        source = self.source if path is None else Source(path)
        if source is None:
            raise SpecError(f"{self.path.name}: data: missing; name the table under [data] or with --data")
        return source

    def buying(self, error_share: float | None) -> Spec:
        """Return the spec with another share of the budget for the errors of its estimates, if given."""
        if error_share is None:
            return self
        check_error_share(error_share)
        section = self.estimate or EstimateSection()
        return replace(self, estimate=section.model_copy(update={"error_share": error_share}))

    @property
    def error_share(self) -> float:
        """The share of the budget by which `measure` measures the errors of the estimates."""
        return (None if self.estimate is None else self.estimate.error_share) or 0.0

    def plan(self, progress: bool | None = None) -> Plan:
        """Plan without data."""
        only_of_amounts = {"objective", "insufficient", "purpose", "records"}
        options = self.planning.model_dump(exclude=only_of_amounts if self.least else None)
        options |= {"max_records": self.measuring.max_records, "progress": progress}
        if not self.least:
            return plan(self.workload, self.budget, **options)
        unit = {name: getattr(self.budget.unit, name) for name in ("neighbours", "records_per_person")}
        return least_budget(self.workload, **unit, **options)

    def fits(self, budget: Budget) -> bool:
        """Return whether a plan's budget is the spec's; if planning finds it, plan again and compare."""
        if not self.least:
            return budget == self.budget
        least = self.plan().budget
        return budget.unit == least.unit and budget.privacy_cost <= least.privacy_cost * (1 + 1e-6)

    @scrubbed
    def measure(
        self, planned: Plan, data: Any, *, seed: int | None = None, progress: bool | None = None
    ) -> Release:
        """Measure as planned; this spends the budget, and records it in the ledger of [budget]."""
        from querysmasher.measuring import measure  # noqa: PLC0415 - loads slowly, and no plan needs it

        budget = planned.budget if self.least else self.budget
        options = self._options(seed, progress)
        return measure(planned, data, budget=budget, error_share=self.error_share, **options)

    @scrubbed
    def explore(self, data: Any, *, seed: int | None = None, progress: bool | None = None) -> Release:
        """Explore a table; this spends the budget, and records it in the ledger of [budget]."""
        from querysmasher.exploring.explore import explore  # noqa: PLC0415 - loads slowly, and no plan needs it

        options = self._options(seed, progress)
        if self.estimate is not None and self.estimate.error_share is not None:
            options["error_share"] = self.estimate.error_share
        return explore(self.workload, data, self.budget, **options)

    def _options(self, seed: int | None, progress: bool | None) -> dict[str, Any]:
        """Return what measuring and exploring have in common."""
        return {
            **self.measuring.model_dump(),
            "seed": seed,
            "progress": progress,
            "ledger": None if self.ledger is None else self.ledger.open(),
        }
