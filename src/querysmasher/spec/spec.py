"""A spec: everything a release needs, read from a TOML file and checked. `template` returns a first one."""

from __future__ import annotations

import glob
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querysmasher.attributes import Label
from querysmasher.data.foreign import quietly
from querysmasher.data.framing import CSV
from querysmasher.endings import TABLES
from querysmasher.errors import BudgetError, FileError, PredicateError, SchemaError, SpecError, WorkloadError
from querysmasher.guarantees import Counted, check_options, check_reported, promise
from querysmasher.planning.checks import exact_sets
from querysmasher.planning.estimating import check_error_share
from querysmasher.planning.mechanisms import BASES, DEFAULT, MECHANISMS
from querysmasher.planning.plan import Plan
from querysmasher.planning.planner import least_budget, plan
from querysmasher.privacy.accounting import SHARE
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.budget import ApproxDP, Budget, GaussianDP, PrivacyCost, zCDP
from querysmasher.privacy.distributions import distribution_of
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.privacy.unit import Groups, attributes_of
from querysmasher.schema import Schema
from querysmasher.spec.discoveries import SUPPOSED, Shares, ToDiscover, substituted
from querysmasher.spec.findings import Findings, home_of, not_one_of, shown, unknown_key
from querysmasher.spec.schemas import build_schema, read_codebook
from querysmasher.spec.sections import (
    SECTIONS,
    AboutSection,
    Amount,
    BudgetSection,
    DataSection,
    EstimateSection,
    File,
    LedgerSection,
    MeasureSection,
    OutputSection,
    PlanSection,
)
from querysmasher.spec.workloads import SpecEntry, build_entries
from querysmasher.statistics.statistic import Statistic
from querysmasher.workload.builders import where
from querysmasher.workload.hierarchy import Coarsening
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

    def columns(self) -> list[str]:
        """Return the names of the columns of a CSV or Parquet file, without reading a record."""
        self.check()
        if self.table is None and self.path.suffix.lower() in TABLES["Parquet"]:
            import pyarrow.parquet  # noqa: PLC0415 - takes a while to load

            return list(quietly("reading the schema", pyarrow.parquet.read_schema, str(self.path)).names)
        if self.table is not None or not self.path.is_file():
            raise FileError(f"data: expected one CSV or Parquet file, got {str(self.path)!r}")
        from querysmasher.data.csv import header_of  # noqa: PLC0415 - takes a while to load

        return header_of(str(self.path), CSV(self.path, **self.style))

    def open(self) -> Any:
        """Return the data for `measure`. Nothing is read yet, and nothing is ever modified."""
        self.check()
        if self.table is None:
            parquet = self.path.is_dir() or self.path.suffix.lower() in TABLES["Parquet"]
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
    delta: float | None = None

    def left(self) -> tuple[float, str] | None:
        """Return the privacy cost that is left, also in words, or None if the ledger does not exist yet."""
        ledger = Ledger(self.path) if self.path.exists() else None
        return None if ledger is None else (float(ledger.left), ledger.total.left_words(ledger.limit))

    def open(self) -> Ledger:
        """Open the ledger, or create it if its limit is stated."""
        return Ledger(self.path, limit=self.limit, delta=self.delta, label=self.label)


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
    statistics: tuple[Statistic, ...] = ()
    """What files and the page show beside the counts."""
    estimate: EstimateSection | None = None
    """How to write estimates beside the answers; None for no estimates."""
    discoveries: tuple[ToDiscover, ...] = ()
    """The columns whose values `release` discovers before it plans."""
    discovered: str | None = None
    """What the release and the values that were discovered guarantee together, in words."""

    @cached_property
    def workload(self) -> Workload:
        """All entries together."""
        if len(self.entries) == 1 and self.entries[0].workload.schema is self.schema:
            return self.entries[0].workload  # whose groups are checked
        return Workload(self.schema, tuple(group for e in self.entries for group in e.workload.groups))

    @property
    def remarks(self) -> list[str]:
        """Warnings about what is valid, but probably a mistake."""
        return [f"{self.path.name}: {remark}" for entry in self.entries for remark in entry.remarks]

    @property
    def folder(self) -> Path:
        """The release folder; a relative path starts at the folder of the spec file."""
        return self.path.parent / self.output.folder

    def table(self, path: Path | None = None) -> Source:
        """Return the source of the data that [data] states; `path` replaces its path, not its dialect."""
        source = self.source
        if path is not None:
            return Source(path, style=source.style if source else {})
        if source is None:
            raise SpecError(f"{self.path.name}: data: missing; name the table under [data] or with --data")
        return source

    def buying(self, error_share: float | None) -> Spec:
        """Return the spec with another fraction of the budget for the errors of estimates, if given."""
        if error_share is None:
            return self
        check_error_share(error_share)
        section = self.estimate or EstimateSection()
        return replace(self, estimate=section.model_copy(update={"error_share": error_share}))

    @property
    def error_share(self) -> float:
        """The fraction of the budget that `measure` spends on the errors of the estimates."""
        return (None if self.estimate is None else self.estimate.error_share) or 0.0

    @property
    def public(self) -> list[Path] | None:
        """The files with public totals, if [measure] names any."""
        public = self.measuring.public
        given = [] if public is None else [public] if isinstance(public, str) else public
        return [self.path.parent / file for file in given] or None

    @property
    def answer_share(self) -> float:
        """The fraction of the budget for answers: without errors of estimates and records left out."""
        return (1 - SHARE if self.measuring.report_dropped else 1.0) * (1 - self.error_share)

    @cached_property
    def counted(self) -> Counted:
        """Which records are counted."""
        asked = {name for group in self.workload for name in group.attributes}
        person, most, unknown = self.measuring.person, self.budget.records_per_person, self.measuring.unknown
        return Counted(person, most, unknown, has_zeros=bool(self.schema.zeros(asked)))

    def promise(self, budget: Budget) -> str:
        """Return the guarantee under a budget, and which records are counted."""
        return promise(budget, self.counted, self.measuring.report_dropped)

    def check(self) -> None:
        """Refuse what `measure` would refuse whatever the data are."""
        measuring = self.measuring
        check_options(self.budget, measuring.unknown, measuring.max_records)
        if measuring.person is not None:
            Bound.drawn(measuring.person, self.budget.unit)
        check_reported(measuring.report_dropped, self.counted, self.workload.has_targets)
        if self.statistics and self.planning.purpose == "answers" and not self.schema.impossible_where:
            from querysmasher.spec.spec_statistics import check_asked  # noqa: PLC0415 - loads pyarrow

            exact = [*map(attributes_of, self.budget.exact)]
            check_asked(self.statistics, self.workload, exact, self.path.name)

    @scrubbed
    def discover(self, data: Any, *, seed: int | None = None, progress: bool | None = None) -> Spec:
        """Discover the values of columns that ask for it; return the spec with these, and what is left.

        Formal guarantee: the discovered values, and everything that is measured with the budget that is left,
        together satisfy the budget: its δ pays for all thresholds first, the costs of noise add up exactly,
        and `privacy.entries.Total` says what both mean together.
        """
        from querysmasher.discovering import discover  # noqa: PLC0415 - loads slowly, and no plan needs it

        self.check()
        noise = distribution_of(self.measuring.noise)
        shares = Shares.of(self.budget, self.discoveries, noise)
        costs: list[Fraction] = []
        found: dict[str, Sequence[Label]] = {}
        ledger = None if self.ledger is None else self.ledger.open()
        for one, part, delta in zip(self.discoveries, shares.parts, shares.deltas, strict=True):
            made = discover(
                data,
                one.column,
                part,
                person=self.measuring.person,
                at_most=one.at_most,
                delta=float(delta),
                noise=noise.name,
                ledger=ledger,
                seed=seed,
                progress=progress,
            )
            costs.append(made.discovery.cost)
            found[one.column] = made.values
        return self.with_values(found, shares.rest(noise, costs), shares.words(self.discoveries))

    def supposed(self, text: str | None = None) -> Spec:
        """Return the spec as if the values that `release` discovers were known, and paid for."""
        if not self.discoveries:
            return self
        found = {one.column: [f"value {n}" for n in range(1, SUPPOSED + 1)] for one in self.discoveries}
        noise = distribution_of(self.measuring.noise)
        shares = Shares.of(self.budget, self.discoveries, noise)
        said = f"{self.promise(self.budget)} {shares.words(self.discoveries).replace('were', 'are', 1)}"
        return self.with_values(found, shares.rest(noise), said, text)

    def with_values(
        self,
        found: Mapping[str, Sequence[Label]],
        budget: Budget,
        words: str | None,
        text: str | None = None,
    ) -> Spec:
        """Return the spec with the values of columns, the budget that is left, and words about both."""
        read = read_spec(self.path, text, values=found)
        return replace(read, budget=budget, estimate=self.estimate, discoveries=(), discovered=words)

    def plan(self, progress: bool | None = None) -> Plan:
        """Plan without data."""
        if self.discoveries:
            names = ", ".join(repr(one.column) for one in self.discoveries)
            raise SpecError(
                f"{self.path.name}: schema: the values of {names} are discovered by `querysmasher release`, "
                f"which plans afterwards; `querysmasher plan` supposes {SUPPOSED}, or list values"
            )
        self.check()
        only_of_amounts = {"objective", "insufficient", "purpose", "records"} if self.least else set[str]()
        options = self.planning.model_dump(exclude={"exact", *only_of_amounts})
        options |= {"max_records": self.measuring.max_records, "progress": progress}
        if not self.least:
            return self.checked(plan(self.workload, self.budget, **options))
        unit = {name: getattr(self.budget.unit, name) for name in ("neighbours", "records_per_person")}
        options["exact"] = self.budget.exact or None
        return self.checked(least_budget(self.workload, **unit, **options))

    def checked(self, planned: Plan) -> Plan:
        """Return a plan; refuse it if the statistics do not follow from what it measures."""
        if self.statistics:
            from querysmasher.spec.spec_statistics import check_planned  # noqa: PLC0415 - loads pyarrow

            check_planned(self.statistics, planned, self.path.name)
        return planned

    def fits(self, budget: Budget) -> bool:
        """Return whether a plan's budget is the spec's; a least budget is found by planning again."""
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
        options["public"] = self.public
        planned = self.checked(planned)
        release = measure(planned, data, budget=budget, error_share=self.error_share, **options)
        release = replace(release, statistics=self.statistics) if self.statistics else release
        return release.described(discovered=self.discovered) if self.discovered else release

    @scrubbed
    def explore(self, data: Any, *, seed: int | None = None, progress: bool | None = None) -> Release:
        """Explore a table; this spends the budget, and records it in the ledger of [budget]."""
        from querysmasher.exploring.explore import explore  # noqa: PLC0415 - loads slowly, and no plan needs it

        options = self._options(seed, progress)
        if self.estimate is not None and self.estimate.error_share is not None:
            options["error_share"] = self.estimate.error_share
        release = explore(self.workload, data, self.budget, **options)
        return release.described(discovered=self.discovered) if self.discovered else release

    def _options(self, seed: int | None, progress: bool | None) -> dict[str, Any]:
        """Return the options of both measuring and exploring."""
        return {
            **self.measuring.model_dump(exclude={"public"}),
            "seed": seed,
            "progress": progress,
            "ledger": None if self.ledger is None else self.ledger.open(),
        }


AMOUNTS = ("cost", "rho", "mu", "epsilon", "delta")
"""Keys that state how much may be spent."""

STYLE = ("delimiter", "quote", "encoding", "decimal")
"""Keys of [data] for the dialect of a CSV file."""


def read_spec(
    path: str | os.PathLike[str],
    text: str | None = None,
    values: Mapping[str, Sequence[Label]] | None = None,
) -> Spec:
    """Read and check a spec file; a `SpecError` names every invalid key.

    Paths in the file are relative to its folder. With `text`, check what the file may become. `values` are
    those that were discovered, by column.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig") if text is None else text
        data = tomllib.loads(text)
    except FileNotFoundError:
        raise FileError(f"there is no file {str(path)!r}; `querysmasher init` writes a first one") from None
    except IsADirectoryError:
        msg = f"{str(path)!r} is a folder; name a spec file, such as {str(path / 'release.toml')!r}"
        raise FileError(msg) from None
    except OSError as error:
        raise FileError(f"the file {str(path)!r} cannot be read ({type(error).__name__})") from None
    except RecursionError:
        raise SpecError(f"{path.name} is not valid TOML: brackets are nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        hint = (
            "" if path.suffix == ".toml" else "; a spec file ends in .toml, and names the table under [data]"
        )
        raise SpecError(f"{path.name} is not valid TOML: {error}{hint}") from None
    findings = Findings(path.name, text)
    known = [field.alias or name for name, field in File.model_fields.items()]
    for key in [key for key in data if key not in known]:
        findings.add((key,), home_of(key) or unknown_key(key, known))
        del data[key]
    file = findings.section(File, data, ())
    if file is None:
        findings.finish()
    assert file is not None  # noqa: S101 - finish has raised
    tables, discoveries = substituted(file.attributes or [], values or {}, findings)
    file = file.model_copy(update={"attributes": None if file.attributes is None else tables})
    sections: dict[str, Any] = {
        name: findings.section(model, getattr(file, name) or {}, (name,)) for name, model in SECTIONS.items()
    }
    unit, data_section, planning, measuring, output, estimate, about = sections.values()
    budget = ledger = source = None
    if unit is not None:
        if planning is not None and planning.exact:
            unit = unit.model_copy(update={"neighbours": "replace_one"})
        with findings.at(("budget",), AMOUNTS):
            budget = _amount(unit, unit)
        ledger = _ledger(unit, path, findings)
    if data_section is not None:
        source = _source(data_section, path, findings)
    schema = _with_missing(_schema(file, path, findings), data_section, findings)
    for number, predicate in enumerate(file.impossible if schema else ()):
        with findings.at(("impossible", number)):
            schema = schema.impossible(predicate) if schema else None
    entries = build_entries(file.workload, schema, path.parent, findings)
    statistics: tuple[Statistic, ...] = ()
    if file.statistics:
        from querysmasher.spec.spec_statistics import build_statistics  # noqa: PLC0415 - loads pyarrow

        statistics = build_statistics(file.statistics, schema, findings)
    if planning is not None:
        _check_plan(planning, schema, findings)
        if budget is not None and schema is not None and entries:
            asked = Workload(schema, tuple(group for e in entries for group in e.workload.groups))
            budget = _knowing(budget, planning, asked, findings)
        if measuring is not None and measuring.public is not None and not planning.exact:
            findings.add(("measure", "public"), "allowed only with [plan] exact, the sets of these counts")
    if budget is not None and measuring is not None:
        with findings.at(("measure", "noise")):
            distribution_of(measuring.noise).allowed_cost(budget)  # refuses noise that cannot meet it
        with findings.at(("schema",)):
            _ = discoveries and Shares.of(budget, discoveries, distribution_of(measuring.noise))
    if unit is not None and unit.least and discoveries:
        findings.add(("budget", "least"), "expected an amount: values are discovered with a share of it")
    if unit is not None and unit.least:
        _check_least(planning, entries, findings)
    findings.finish()
    assert schema and budget  # noqa: S101, PT018 - finish has raised
    least = unit.least
    return Spec(
        path,
        schema,
        entries,
        budget,
        planning,
        measuring,
        source,
        output,
        ledger,
        about,
        least,
        statistics,
        None if file.estimate is None else estimate,
        discoveries,
    )


def _schema(file: File, path: Path, findings: Findings) -> Schema | None:
    if (file.codebook is None) == (file.attributes is None):
        given = "neither" if file.codebook is None else "both"
        findings.add((), f"expected either [[schema]] tables or a codebook, got {given}")
    elif file.attributes is not None:
        return build_schema(file.attributes, findings, ("schema",))
    elif file.codebook is not None:
        with findings.at(("codebook",)):
            return read_codebook(path.parent / file.codebook)
    return None


def _with_missing(schema: Schema | None, section: DataSection | None, findings: Findings) -> Schema | None:
    """Return the schema with the values that missing ones count as, as [data] states them."""
    if schema is None or section is None or not section.missing:
        return schema
    attributes = {a.name: a for a in schema}
    for name, value in section.missing.items():
        with findings.at(("data", "missing", name)):
            if schema[name].missing not in (None, value):
                msg = f"the schema has {shown(schema[name].missing)}, got {shown(value)}; state it once"
                raise SchemaError(msg)
            attributes[name] = replace(schema[name], missing=value)
    return Schema(list(attributes.values()), schema.impossible_where)


def _amount(section: Amount, unit: BudgetSection) -> Budget:
    """Return the budget that a section states, for the unit of privacy of [budget]."""
    given = {name: getattr(section, name) for name in AMOUNTS if getattr(section, name) is not None}
    if isinstance(section, BudgetSection) and section.least:
        if given:
            raise BudgetError(f"expected no amount with least = true, got {' and '.join(given)}")
        given = {"cost": 1.0}  # any amount: planning finds the least
    return stated_budget(given, unit.neighbours, unit.records_per_person)


def stated_budget(
    given: Mapping[str, float], neighbours: str, records_per_person: int, dashes: str = ""
) -> Budget:
    """Return the budget of amounts in the order of `AMOUNTS`; errors name them with `dashes` as options."""
    kinds: dict[tuple[str, ...], type[Budget]] = {
        ("rho",): zCDP,
        ("mu",): GaussianDP,
        ("cost",): PrivacyCost,
        ("epsilon", "delta"): ApproxDP,
    }
    if tuple(given) not in kinds:
        stated, got = (
            [" and ".join(f"{dashes}{name}" for name in names) for names in named]
            for named in (kinds, [tuple(given)])
        )
        raise BudgetError(f"expected {', or '.join(stated)}, got {got[0] or 'none of them'}")
    unit: dict[str, Any] = {"neighbours": neighbours, "records_per_person": records_per_person}
    return kinds[tuple(given)](**{**given, **unit})


def _check_least(planning: PlanSection | None, entries: Sequence[SpecEntry], findings: Findings) -> None:
    """Record options that contradict `least = true`."""
    if entries and not any(entry.workload.has_targets for entry in entries):
        findings.add(("budget", "least"), "expected a target in some [[workload]] table, got none")
    if planning and (planning.objective, planning.insufficient) != ("mean", "refuse"):
        findings.add(("plan",), "objective and insufficient have no effect with [budget] least = true")
    if planning and planning.purpose != "answers":
        findings.add(("plan", "purpose"), "expected 'answers' with [budget] least = true, got 'estimate'")


def _ledger(unit: BudgetSection, path: Path, findings: Findings) -> LedgerFile | None:
    if unit.ledger is None:
        return None
    here = ("budget", "ledger")
    given = {"path": unit.ledger} if isinstance(unit.ledger, str) else unit.ledger
    stated = findings.section(LedgerSection, given, here)
    if stated is None:
        return None
    limit = delta = None
    if stated.epsilon is None and any(getattr(stated, name) is not None for name in AMOUNTS[:3]):
        delta, stated = stated.delta, stated.model_copy(update={"delta": None})  # for discovered values
    if any(getattr(stated, name) is not None for name in AMOUNTS):
        with findings.at(here, AMOUNTS):
            limit = _amount(stated, unit)
    return LedgerFile(path.parent / stated.path, limit, stated.label, delta)


def _check_plan(section: PlanSection, schema: Schema | None, findings: Findings) -> None:
    """Record incompatible options of planning."""
    chosen = section.chosen
    if section.records is not None and section.purpose != "estimate":
        findings.add(("plan", "records"), "allowed only with purpose = 'estimate'")
    if section.centering == "optimized" and chosen.uniform_only:
        problem = f"expected uniform, the only choice for mechanism = {chosen.name!r}, got 'optimized'"
        findings.add(("plan", "centering"), problem)
    if section.bases is not None and not chosen.has_bases:
        having = " or ".join(repr(m.name) for m in MECHANISMS.values() if m.has_bases)
        findings.add(("plan", "bases"), f"allowed only with mechanism = {having}, got {chosen.name!r}")
    if section.mechanism is not None and section.solver != "optimal" and section.mechanism != DEFAULT:
        findings.add(("plan", "solver"), f"mechanism = {chosen.name!r} has its own solver; omit this key")
    if schema is None:
        return
    for name, basis in (section.bases or {}).items():
        with findings.at(("plan", "bases", name)):
            schema.position(name)
            if not isinstance(basis, list) and basis not in BASES:
                findings.add(("plan", "bases", name), not_one_of([*BASES, "rows of numbers"], basis))


def _knowing(budget: Budget, section: PlanSection, workload: Workload, findings: Findings) -> Budget:
    """Return the budget for neighbours that agree on the exact counts of [plan]."""
    sets = [(names,) if isinstance(names, str) else tuple(names) for names in section.exact or ()]
    with findings.at(("plan", "exact")):
        knowing = replace(
            budget, exact=tuple(tuple(_public(workload, name) for name in names) for names in sets)
        )
        knowing.unit.known(workload.schema)
        return knowing
    return budget


def _public(workload: Workload, name: str) -> str | Groups:
    """Return an attribute, or the groups of values of a level of a hierarchy or of a predicate."""
    if name in workload.schema:
        return name
    with suppress(WorkloadError):
        level = Coarsening.read(workload, name)
        labels, groups = level.schema[name].labels, level.groups.tolist()
        return Groups(level.attribute, f"{name} of {level.attribute}", tuple(labels), tuple(groups))
    try:
        stated = where(workload.schema, name)
    except PredicateError:
        workload.schema.position(name)
        raise
    return exact_sets(workload, stated)[-1][0]


def _source(section: DataSection, path: Path, findings: Findings) -> Source | None:
    style = {name: value for name in STYLE if (value := getattr(section, name)) is not None}
    given = [name for name in ("path", "database", "table") if getattr(section, name) is not None]
    with findings.at(("data",), STYLE):
        CSV(section.path or "", **style)
    if given == ["path"]:
        return Source(path.parent / str(section.path), style=style)
    if style and given:
        findings.add(
            ("data", next(iter(style))), "this describes a CSV file; it is allowed only together with path"
        )
    if given == ["database", "table"]:
        return Source(path.parent / str(section.database), section.table)
    if given:
        findings.add(("data",), f"expected path, or database and table, got {' and '.join(given)}")
    return None


def template(codebook: str | None = None) -> str:
    """Return the text of a first, valid spec file, with example attributes or those of a codebook."""
    text = resources.files("querysmasher.spec").joinpath("template.toml").read_text(encoding="utf-8")
    _, *parts = re.split(r"^#: (\w+)\n", text, flags=re.MULTILINE)
    wanted = ("always", "example" if codebook is None else "codebook")
    chosen = (part for name, part in zip(parts[::2], parts[1::2], strict=True) if name in wanted)
    return "".join(chosen).replace("CODEBOOK", json.dumps(codebook))
