"""From a TOML file to a spec; and a first such file."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from querysmasher.data.framing import CSV
from querysmasher.errors import BudgetError, FileError, SchemaError, SpecError
from querysmasher.planning.mechanisms import BASES, DEFAULT, MECHANISMS
from querysmasher.privacy.budget import ApproxDP, Budget, GaussianDP, PrivacyCost, zCDP
from querysmasher.privacy.distributions import distribution_of
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings, home_of, not_one_of, shown, unknown_key
from querysmasher.spec.schemas import build_schema, read_codebook
from querysmasher.spec.sections import (
    SECTIONS,
    Amount,
    BudgetSection,
    DataSection,
    File,
    LedgerSection,
    PlanSection,
)
from querysmasher.spec.spec import LedgerFile, Source, Spec
from querysmasher.spec.workloads import SpecEntry, build_entries

AMOUNTS = ("cost", "rho", "mu", "epsilon", "delta")
"""Keys that state how much may be spent."""

STYLE = ("delimiter", "quote", "encoding", "decimal")
"""Keys of [data] for the dialect of a CSV file."""


def read_spec(path: str | os.PathLike[str]) -> Spec:
    """Read and check a spec file; a `SpecError` names every invalid key.

    Paths in the file are relative to its folder.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
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
    sections: dict[str, Any] = {
        name: findings.section(model, getattr(file, name) or {}, (name,)) for name, model in SECTIONS.items()
    }
    unit, data_section, planning, measuring, output, estimate, about = sections.values()
    budget = ledger = source = None
    if unit is not None:
        with findings.at(("budget",), AMOUNTS):
            budget = _amount(unit, unit)
        ledger = _ledger(unit, path, findings)
    if data_section is not None:
        source = _source(data_section, path, findings)
    schema = _with_missing(_schema(file, path, findings), data_section, findings)
    entries = build_entries(file.workload, schema, path.parent, findings)
    if planning is not None:
        _check_plan(planning, schema, findings)
    if budget is not None and measuring is not None:
        with findings.at(("measure", "noise")):
            distribution_of(measuring.noise).allowed_cost(budget)  # refuses noise that cannot meet it
    if unit is not None and unit.least:
        _check_least(planning, entries, findings)
    findings.finish()
    assert schema and budget  # noqa: S101, PT018 - finish has raised
    estimate, least = None if file.estimate is None else estimate, unit.least
    return Spec(
        path, schema, entries, budget, planning, measuring, source, output, ledger, about, least, estimate
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
    """Return the schema with the values that missing ones count as, from [data]."""
    if schema is None or section is None or not section.missing:
        return schema
    attributes = {a.name: a for a in schema}
    for name, value in section.missing.items():
        with findings.at(("data", "missing", name)):
            if schema[name].missing not in (None, value):
                msg = f"the schema has {shown(schema[name].missing)}, got {shown(value)}; state it once"
                raise SchemaError(msg)
            attributes[name] = replace(schema[name], missing=value)
    return Schema(list(attributes.values()))


def _amount(section: Amount, unit: BudgetSection) -> Budget:
    """Return the budget that a section states, for the unit of privacy of [budget]."""
    given = {name: getattr(section, name) for name in AMOUNTS if getattr(section, name) is not None}
    if isinstance(section, BudgetSection) and section.least:
        if given:
            raise BudgetError(f"expected no amount beside least = true, got {' and '.join(given)}")
        given = {"cost": 1.0}  # a stand-in: planning finds the amount
    return stated_budget(given, unit.neighbours, unit.records_per_person)


def stated_budget(
    given: Mapping[str, float], neighbours: str, records_per_person: int, dashes: str = ""
) -> Budget:
    """Return the budget that amounts state, in the order of `AMOUNTS`; options of a command have dashes."""
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
    return kinds[tuple(given)](**given, neighbours=neighbours, records_per_person=records_per_person)


def _check_least(planning: PlanSection | None, entries: Sequence[SpecEntry], findings: Findings) -> None:
    """Record what does not fit a budget that planning finds."""
    if entries and not any(entry.workload.has_targets for entry in entries):
        findings.add(("budget", "least"), "expected a target in some [[workload]] table, got none")
    if planning and (planning.objective, planning.insufficient) != ("mean", "refuse"):
        findings.add(("plan",), "objective and insufficient have no meaning beside [budget] least = true")
    if planning and planning.purpose != "answers":
        findings.add(("plan", "purpose"), "expected 'answers' beside [budget] least = true, got 'estimate'")


def _ledger(unit: BudgetSection, path: Path, findings: Findings) -> LedgerFile | None:
    if unit.ledger is None:
        return None
    here = ("budget", "ledger")
    given = {"path": unit.ledger} if isinstance(unit.ledger, str) else unit.ledger
    stated = findings.section(LedgerSection, given, here)
    if stated is None:
        return None
    limit = None
    if any(getattr(stated, name) is not None for name in AMOUNTS):
        with findings.at(here, AMOUNTS):
            limit = _amount(stated, unit)
    return LedgerFile(path.parent / stated.path, limit, stated.label)


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
    """Return the text of a first spec file, valid as it is, with example attributes or a codebook's."""
    text = resources.files("querysmasher.spec").joinpath("template.toml").read_text(encoding="utf-8")
    _, *parts = re.split(r"^#: (\w+)\n", text, flags=re.MULTILINE)
    wanted = ("always", "example" if codebook is None else "codebook")
    chosen = (part for name, part in zip(parts[::2], parts[1::2], strict=True) if name in wanted)
    return "".join(chosen).replace("CODEBOOK", json.dumps(codebook))
