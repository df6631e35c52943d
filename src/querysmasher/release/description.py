"""A machine-readable description beside a file of answers: a Frictionless `datapackage.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from querysmasher.fields import read_json
from querysmasher.files import replacing
from querysmasher.formatting import escaped
from querysmasher.release.dictionary import fields_of
from querysmasher.release.released import Released
from querysmasher.release.tidy import Tidy
from querysmasher.statistics.reliability import Rules

NAME = "datapackage.json"

STANDARD = "https://datapackage.org/profiles/2.0/datapackage.json"
"""The name of version 2 of the standard; nothing is fetched from there."""

FORMATS = {
    ".parquet": ("parquet", "application/vnd.apache.parquet"),
    ".pq": ("parquet", "application/vnd.apache.parquet"),
    ".csv": ("csv", "text/csv"),
    ".csv.gz": ("csv", "text/csv"),
    ".arrow": ("arrow", "application/vnd.apache.arrow.file"),
    ".feather": ("arrow", "application/vnd.apache.arrow.file"),
    ".json": ("json", "application/json"),
    ".xlsx": ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
}
"""Name and media type of each format."""

NOT_READ, NOT_COUNTED = ("arrow",), ("parquet", "json")
"""Formats that the tools of the standard do not read as tables, and those whose bytes they do not count."""


def software(*libraries: str) -> str:
    """Return the version of this library, and of others, as files name those who wrote them."""
    return ", ".join(f"{name} {import_module(name).__version__}" for name in ("querysmasher", *libraries))


def about(release: Released, level: float | None = None, rules: Rules | None = None) -> dict[str, Any]:
    """Return where figures come from and what is guaranteed, as plain data."""
    return {
        **release.provenance.to_json(),
        "guarantee": release.guarantee,
        "private": release.noise.is_private,
        "budget": release.plan.budget.to_json(),
        "noise": release.noise.description,
        "record": release.record,
        **({} if release.counted.is_whole else {"counted": release.counted.to_json()}),
        **({} if level is None else {"level": level}),
        **({} if rules is None else {"thresholds": list(rules.thresholds)}),
        **({} if rules is None or rules.suppress is None else {"suppress": rules.suppress}),
        "software": software(),
    }


def write_description(
    path: Path, tidy: Tidy, source: Mapping[str, Any], sheets: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Describe a file of answers in the `datapackage.json` of its folder, beside other files described there.

    `sheets` are the columns of each sheet of a workbook. A `datapackage.json` that this library has not
    written is left alone; the description then has the name of the file before its own.
    """
    target = path.with_name(NAME)
    others = _others(target, path)
    if others is None:
        target = path.with_name(f"{path.name}.{NAME}")
        others = []
    package = {
        "$schema": STANDARD,
        "name": _slug(path.stem),
        "title": source.get("title", "Private counts"),
        "description": source["guarantee"],
        **({"created": f"{source['date']}T00:00:00Z"} if "date" in source else {}),
        **({"version": source["version"]} if "version" in source else {}),
        **_contributors(source),
        "querysmasher": dict(source),
        "resources": [*others, *_resources(path, tidy, source, sheets)],
    }
    with replacing(target) as temporary:
        temporary.write_bytes(document(package))


def document(content: Mapping[str, Any]) -> bytes:
    """Return plain data as a JSON file for people and programs."""
    return (escaped(json.dumps(content, indent=2, ensure_ascii=False)) + "\n").encode()


def _resources(
    path: Path, tidy: Tidy, source: Mapping[str, Any], sheets: Mapping[str, Sequence[str]] | None
) -> list[dict[str, Any]]:
    """Return the description of a file, or of each sheet of a workbook."""
    ending = next(e for e in sorted(FORMATS, key=len, reverse=True) if path.name.lower().endswith(e))
    kind, media = FORMATS[ending]
    common = {
        "path": path.name,
        **({} if kind in NOT_READ else {"type": "table"}),
        "format": kind,
        "mediatype": media,
        **({"compression": "gz"} if ending.endswith(".gz") else {}),
        "encoding": "utf-8",
        **({} if kind in NOT_COUNTED else {"bytes": path.stat().st_size}),
    }
    if kind == "json":
        common["dialect"] = {"property": "answers", "json": {"property": "answers", "keyed": True}}
    made: list[dict[str, Any]] = []
    parts: list[tuple[str | None, Sequence[str] | None]] = [*sheets.items()] if sheets else [(None, None)]
    for sheet, columns in parts:
        own = {} if sheet is None else {"dialect": {"sheetName": sheet, "excel": {"sheet": sheet}}}
        fields = fields_of(tidy, source, columns, nan=kind == "parquet")
        name = _slug(path.name if sheet is None else f"{path.name}-{len(made) + 1}-{sheet}")
        described = {"schema": {"fields": fields, "missingValues": [""]}, "querysmasher": dict(source)}
        made.append({"name": name, **common, **own, **described})
    return made


def _others(target: Path, path: Path) -> list[Any] | None:
    """Return what an existing description says of other files; None if it is not one of ours."""
    if not target.exists():
        return []
    try:
        found = read_json(target.read_bytes())
        resources = found["resources"]
        if "querysmasher" not in found or not isinstance(resources, list):
            return None
        named = [(one, Path(one["path"]).name) for one in resources]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return [one for one, name in named if name != path.name and target.with_name(name).is_file()]


def _contributors(source: Mapping[str, Any]) -> dict[str, Any]:
    if "organisation" not in source and "contact" not in source:
        return {}
    contact = source.get("contact")
    key = "email" if contact and "@" in contact else "path"
    publisher = {"title": source.get("organisation", contact), "roles": ["publisher"]}
    return {"contributors": [{**publisher, **({key: contact} if contact else {})}]}


def _slug(name: str) -> str:
    """Return a name as Frictionless has it: lower case, digits, dots, dashes."""
    return (
        "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "-" for c in name.lower()) or "answers"
    )
