"""A machine-readable description beside a file of answers: a Frictionless `datapackage.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from querysmasher.attributes import Binned
from querysmasher.files import replacing
from querysmasher.release.columns import FROM, LABEL, TO, AttributeColumns
from querysmasher.release.released import Released
from querysmasher.release.tidy import Tidy
from querysmasher.text import escaped, one_line

NAME = "datapackage.json"

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

COLUMNS = {
    "table": "The attributes of the query; 'total' for all records.",
    "kind": "The family of queries on each attribute: identity (equal to the value), prefix (up to it), …",
    "query": "The query as a predicate.",
    "value": "Unbiased estimate of the number of records, not rounded; it may be negative.",
    "std": "Standard error of the noise.",
    "low": "Lower end of the confidence interval for the noise.",
    "high": "Upper end of the confidence interval for the noise.",
    "cv": "Coefficient of variation: std divided by the absolute value; missing if the value is 0.",
    "flag": "Range of the coefficient of variation.",
}
"""What the columns mean that are not attributes."""

SINGLE = "The value that is counted, or the last of all values up to it (see kind); missing: all values."
SEVERAL = (
    "What is counted: a value, a range first..last, the name of a group, a list of values, or (query) if "
    "that depends on other attributes; missing: all values."
)
ENDS = "Missing if no range of values is counted. A range whose first value is after its last goes round."
"""What the columns of an attribute mean."""


def about(release: Released, level: float | None = None) -> dict[str, Any]:
    """Return where figures come from and what is guaranteed, as plain data."""
    return {
        **release.provenance.to_json(),
        "guarantee": release.guarantee,
        "private": release.noise.is_private,
        "budget": release.plan.budget.to_json(),
        "noise": release.noise.description,
        "record": release.record,
        **({} if level is None else {"level": level}),
        "software": f"querysmasher {import_module('querysmasher').__version__}",
    }


def write_description(path: Path, tidy: Tidy, source: Mapping[str, Any]) -> None:
    """Describe a file of answers in the `datapackage.json` of its folder, beside other files described there.

    A `datapackage.json` that this library has not written is left alone; the description then has the
    name of the file before its own.
    """
    target = path.with_name(NAME)
    others = _others(target, path)
    if others is None:
        target = path.with_name(f"{path.name}.{NAME}")
        others = []
    ending = next(e for e in sorted(FORMATS, key=len, reverse=True) if path.name.lower().endswith(e))
    name, media = FORMATS[ending]
    resource = {
        "name": _slug(path.name),
        "path": path.name,
        "format": name,
        "mediatype": media,
        **({"compression": "gz"} if ending.endswith(".gz") else {}),
        "encoding": "utf-8",
        "bytes": path.stat().st_size,
        "schema": {"fields": _fields(tidy), "missingValues": [""]},
        "querysmasher": dict(source),
    }
    package = {
        "profile": "data-package",
        "name": _slug(path.stem),
        "title": source.get("title", "Private counts"),
        "description": source["guarantee"],
        **({"created": source["date"]} if "date" in source else {}),
        **({"version": source["version"]} if "version" in source else {}),
        **_contributors(source),
        "querysmasher": dict(source),
        "resources": [*others, resource],
    }
    with replacing(target) as temporary:
        text = escaped(json.dumps(package, indent=2, ensure_ascii=False))
        temporary.write_text(text + "\n", encoding="utf-8")


def _others(target: Path, path: Path) -> list[Any] | None:
    """Return what an existing description says of other files; None if it is not one of ours."""
    if not target.exists():
        return []
    try:
        found = json.loads(target.read_text(encoding="utf-8"))
        resources = found["resources"]
        if "querysmasher" not in found or not isinstance(resources, list):
            return None
        named = [(one, Path(one["path"]).name) for one in resources]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return [one for one, name in named if name != path.name and target.with_name(name).is_file()]


def _contributors(source: Mapping[str, Any]) -> dict[str, Any]:
    if "organisation" not in source and "contact" not in source:
        return {}
    contact = source.get("contact")
    key = "email" if contact and "@" in contact else "path"
    publisher = {"title": source.get("organisation", contact), "role": "publisher"}
    return {"contributors": [{**publisher, **({key: contact} if contact else {})}]}


def _fields(tidy: Tidy) -> list[dict[str, Any]]:
    about = {
        name: _attribute(own, role)
        for own in tidy.columns
        for role, name in zip(own.roles, own.names, strict=True)
    }
    return [
        {
            "name": one_line(field.name),
            "type": _type(field.type),
            **(about.get(field.name) or {"description": {**COLUMNS, **tidy.meanings}[field.name]}),
        }
        for field in tidy.schema
    ]


def _attribute(columns: AttributeColumns, role: str) -> dict[str, Any]:
    """Return the words about a column of an attribute, and the labels of its values."""
    attribute = columns.attribute
    title = attribute.name if attribute.title is None else attribute.title
    unit = {} if attribute.unit is None else {"unit": attribute.unit}
    if role in (FROM, TO):
        what = {FROM: "First value counted.", TO: "Last value counted."}[role]
        if isinstance(attribute, Binned):
            what = {FROM: "Left edge of the first bin.", TO: "Right edge of the last bin."}[role]
        return {"title": f"{title}, {role}", "description": f"{what} {ENDS}", **unit}
    if role == LABEL:
        return {"title": f"{title}, label", "description": "The value as readers see it."}
    said = SINGLE if columns.single else SEVERAL
    words = {
        "title": attribute.title,
        "description": " ".join(filter(None, [attribute.description, said])),
        **unit,
    }
    categories = [
        {"value": value if isinstance(value, str | int | float) else str(value), "label": label}
        for value, label in zip(attribute.values, attribute.shown, strict=True)
    ]
    given = {key: word for key, word in words.items() if word is not None}
    return given | ({"categories": categories} if attribute.value_labels is not None else {})


def _type(kind: Any) -> str:
    names = {pa.int64(): "integer", pa.float64(): "number", pa.bool_(): "boolean", pa.date32(): "date"}
    return names.get(kind, "string")


def _slug(name: str) -> str:
    """Return a name as Frictionless has it: lower case, digits, dots, dashes."""
    return (
        "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "-" for c in name.lower()) or "answers"
    )
