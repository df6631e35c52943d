"""Answers as a file of tidy rows, with a description for machines beside it.

The description is a Frictionless `datapackage.json`: where the figures come from, what is guaranteed, and a
data dictionary with the type, meaning, unit and labels of every column.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from querysmasher.arrays import Array, one_core
from querysmasher.files import replacing
from querysmasher.formats import format_of
from querysmasher.formats.tabular import Format
from querysmasher.formatting import escaped, one_line, read_json
from querysmasher.progress import Bar
from querysmasher.release.outputs import DESCRIPTION, beside
from querysmasher.release.release import Release
from querysmasher.release.tidy import ABOUT, FROM, LABEL, TO, AttributeColumns, Tidy, column_names
from querysmasher.schema import Schema
from querysmasher.statistics.reliability import Rules, checked_level
from querysmasher.statistics.statistic import Statistic
from querysmasher.workload.workload import Group, Workload

STANDARD = "https://datapackage.org/profiles/2.0/datapackage.json"
"""The name of version 2 of the standard; nothing is fetched from there."""

MAX_QUERIES = 20_000_000
"""Maximum number of rows that all state their query as a predicate; of more, only those that must."""

COLUMNS = {
    "table": "The attributes of the query; 'total' for all records.",
    "kind": "The family of queries on each attribute: identity (equal to the value), prefix (up to it), …",
    "query": "The query as a predicate.",
    "value": "Unbiased estimate of the number of records{counted}, not rounded; it may be negative.",
    "std": "Standard error of the noise.",
    "low": "Lower end of the {level}confidence interval for the noise.",
    "high": "Upper end of the {level}confidence interval for the noise.",
    "cv": "Coefficient of variation: std divided by the absolute value; missing if the value is 0.",
    "flag": "Range of the coefficient of variation{suppressed}.",
}
"""What the columns mean that are not attributes; braces stand for what the user chose."""

FIGURES = {
    "table": "The statistic.",
    "value": "The figure, of the records{counted}, computed from noisy counts.",
    "std": "Standard error of the figure for the noise; to first order if it is a ratio or a quantile.",
    "low": "Lower end of the {level}confidence interval.",
    "high": "Upper end of the {level}confidence interval.",
    "probability": "The fraction of the records up to the quantile.",
    "a": "The first figure that is compared.",
    "b": "The second figure that is compared.",
    "flag": "Range of the coefficient of variation{suppressed}, or unreliable: no interval holds.",
}
"""What the columns of a statistic mean, where it differs from those of answers."""

GROUP = "The group; missing: all values."
COMPARED = "What the figure is about."

TYPES = {pa.int64(): "integer", pa.float64(): "number", pa.bool_(): "boolean", pa.date32(): "date"}
"""The names of types in the standard."""

SINGLE = "The value that is counted, or the last of all values up to it (see kind); missing: all values."
SEVERAL = (
    "What is counted: a value, a range first..last, the name of a group, a list of values, or (query) if "
    "that depends on other attributes; missing: all values."
)
ENDS = "Missing if no range of values is counted. A range whose first value is after its last goes round."
"""What the columns of an attribute mean."""

BIASED = "so the numbers are missing; small counts that remain are too large on average"


def as_computed(_: Group, *numbers: Array) -> Iterable[Array]:
    """Return the numbers that were computed."""
    return numbers


def write_answers(
    release: Release,
    workload: Workload,
    path: str | os.PathLike[str],
    progress: bool | None,
    level: float = 0.95,
    rules: Rules | None = None,
    adopted: Callable[..., Iterable[Array]] = as_computed,
) -> None:
    """Write one row per query: what it counts, value, standard error, interval, cv and flag."""
    form = format_of(path)
    form.check()
    for group in workload:
        release.estimator.check(group)  # before anything is written
    queries = workload.query_count <= MAX_QUERIES
    tidy = Tidy(workload, level, rules, queries=queries, exact=False, safe=form.safe)
    source = about(release, checked_level(level), tidy.rules)
    with one_core():
        write_tables(path, form, tidy, source, map(release.answer_group, workload), progress, adopted)


def write_tables(
    path: str | os.PathLike[str],
    form: Format,
    tidy: Tidy,
    source: Mapping[str, Any],
    numbers: Iterable[Sequence[Array]],
    progress: bool | None,
    adopted: Callable[..., Iterable[Array]],
) -> None:
    """Write the numbers of all groups of a workload, and a description beside the file.

    The file appears under its name only when it is complete. `adopted` may change the numbers of a group.
    """
    with (
        replacing(path) as temporary,
        form.write(temporary, tidy.schema, source) as (write, sheets),
        Bar("Writing", len(tidy.workload.groups), progress) as bar,
    ):
        for group, computed in zip(tidy.workload, numbers, strict=True):
            for table in tidy.tables(group, *adopted(group, *computed)):
                write(table)
            bar.advance()
    write_description(Path(path), form, fields_of(tidy, source, form.has_nan), source, sheets)


def write_statistic(
    release: Release,
    statistic: Statistic,
    path: str | os.PathLike[str],
    level: float = 0.95,
    rules: Rules | None = None,
    adopted: Callable[[Any], Any] | None = None,
) -> None:
    """Write one row per figure of a statistic, and a description beside the file.

    `adopted` may change the numbers of the table.
    """
    form, rules = format_of(path), rules or Rules()
    form.check()
    figures = statistic.of(release)
    frame = figures.to_frame("pyarrow", level, thresholds=rules.thresholds, suppress=rules.suppress)
    names = [form.safe(name) for name in column_names(frame.column_names, (ABOUT[0],))]
    columns = [
        pa.array([None if v is None else form.safe(v) for v in column.to_pylist()], pa.string())
        if column.type == pa.string()
        else column
        for column in frame.columns
    ]
    title = pa.array([form.safe(one_line(figures.title))] * len(frame), pa.string())
    table = pa.table([title, *columns], [ABOUT[0], *names])
    source = {**about(release, checked_level(level), rules), "statistic": statistic.to_json()}
    if figures.note:
        source["note"] = figures.note
    with replacing(path) as temporary, form.write(temporary, table.schema, source) as (write, sheets):
        write(table if adopted is None else adopted(table))

    subjects = dict(zip(names, (column.name for column in figures.columns), strict=False))
    fields = [
        field_of(field, form.has_nan, **_figure(field.name, subjects.get(field.name), release.schema, source))
        for field in table.schema
    ]
    words = {"title": figures.title, **({"description": figures.note} if figures.note else {})}
    write_description(Path(path), form, fields, source, sheets, words)


def _figure(
    column: str, subject: str | None, schema: Schema, source: Mapping[str, Any]
) -> dict[str, str | None]:
    """Return the words about a column of a statistic: about its `subject`, if it says what figures are of."""
    if subject is None:
        return {"description": (COLUMNS | FIGURES)[column].format(**_words(source))}
    if subject not in schema.names or subject in FIGURES:
        return {"description": FIGURES.get(subject, COMPARED)}
    attribute = schema[subject]
    said = " ".join(filter(None, [attribute.description, GROUP]))
    return {"title": attribute.title or subject, "description": said, "unit": attribute.unit}


def field_of(field: Any, nan: bool, **words: Any) -> dict[str, Any]:
    """Describe a column in these words; with `nan`, readers may see missing numbers as NaN."""
    kind = TYPES.get(field.type, "string")
    described = {"name": field.name, "type": kind, **{key: w for key, w in words.items() if w is not None}}
    return described | ({"missingValues": ["", "nan"]} if nan and kind in ("integer", "number") else {})


def software(*libraries: str) -> str:
    """Return the version of this library, and of others, as files name those who wrote them."""
    return ", ".join(f"{name} {import_module(name).__version__}" for name in ("querysmasher", *libraries))


def about(release: Release, level: float | None = None, rules: Rules | None = None) -> dict[str, Any]:
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
    path: Path,
    form: Format,
    fields: Sequence[Mapping[str, Any]],
    source: Mapping[str, Any],
    sheets: Mapping[str, Sequence[str]],
    words: Mapping[str, str] | None = None,
    *,
    together: bool = True,
) -> None:
    """Describe a file of answers, or each sheet of a workbook, in the `datapackage.json` of its folder.

    The description has the name of the file before its own if it is not described `together` with others, or
    if the folder has a `datapackage.json` that this library has not written.
    """
    target = path.with_name(DESCRIPTION)
    resources = _others(target, path) if together else None
    if resources is None:
        target, resources = path.with_name(beside(path.name)), []
    common = {
        "path": path.name,
        **({"type": "table"} if form.is_table else {}),
        "format": form.kind,
        "mediatype": form.media_type,
        **({} if form.compression is None else {"compression": form.compression}),
        "encoding": "utf-8",
        **({"bytes": path.stat().st_size} if form.states_size else {}),
        **({} if form.dialect is None else {"dialect": form.dialect}),
    }
    parts: list[tuple[str | None, Sequence[str] | None]] = [*sheets.items()] if sheets else [(None, None)]
    for number, (sheet, columns) in enumerate(parts, 1):
        dialect = {} if sheet is None else {"dialect": {"sheetName": sheet, "excel": {"sheet": sheet}}}
        name = _slug(path.name if sheet is None else f"{path.name}-{number}-{sheet}")
        described = {
            "schema": {
                "fields": [field for field in fields if columns is None or field["name"] in columns],
                "missingValues": [""],
            },
            "querysmasher": dict(source),
        }
        resources.append({"name": name, **(words or {}), **common, **dialect, **described})
    contact = source.get("contact")
    publisher = {"title": source.get("organisation", contact), "roles": ["publisher"]}
    if contact:
        publisher["email" if "@" in contact else "path"] = contact
    package = {
        "$schema": STANDARD,
        "name": _slug(path.stem),
        "title": source.get("title", "Private counts"),
        "description": source["guarantee"],
        **({"created": f"{source['date']}T00:00:00Z"} if "date" in source else {}),
        **({"version": source["version"]} if "version" in source else {}),
        **({"contributors": [publisher]} if publisher["title"] else {}),
        "querysmasher": dict(source),
        "resources": resources,
    }
    with replacing(target) as temporary:
        temporary.write_bytes(document(package))


def document(content: Mapping[str, Any]) -> bytes:
    """Return plain data as a JSON file for people and programs."""
    return (escaped(json.dumps(content, indent=2, ensure_ascii=False)) + "\n").encode()


def _others(target: Path, path: Path) -> list[Any] | None:
    """Return what an existing description says of other files; None if it is not one of ours."""
    if not target.exists():
        return []
    try:
        package = read_json(target.read_bytes())
        resources = package["resources"]
        if "querysmasher" not in package or not isinstance(resources, list):
            return None
        named = [(resource, Path(resource["path"]).name) for resource in resources]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return [resource for resource, name in named if name != path.name and target.with_name(name).is_file()]


def _slug(name: str) -> str:
    """Return a name as Frictionless has it: lower case, digits, dots, dashes."""
    return (
        "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "-" for c in name.lower()) or "answers"
    )


def fields_of(tidy: Tidy, about: Mapping[str, Any], nan: bool) -> list[dict[str, Any]]:
    """Describe every column; `about` states level and suppression. For `nan`, see `field_of`."""
    meanings = {**COLUMNS, **tidy.meanings}
    words = {name: {"description": said.format(**_words(about))} for name, said in meanings.items()}
    for columns in tidy.columns:
        for role, name in zip(columns.roles, columns.names, strict=True):
            words[name] = _attribute(columns, role)
    return [field_of(field, nan, **words[field.name]) for field in tidy.schema]


def _words(about: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands for the braces of descriptions; `about` states level and suppression."""
    level, above = about.get("level"), about.get("suppress")
    return {
        "level": "" if level is None else f"{100 * level:.6g}% ",
        "counted": " that are counted, not of all records in the table" if "counted" in about else "",
        "suppressed": "" if above is None else f"; suppressed: above {100 * above:.6g}%, {BIASED}",
    }


def _attribute(columns: AttributeColumns, role: str) -> dict[str, Any]:
    """Return the words about a column of an attribute, and the labels of its values."""
    attribute = columns.attribute
    title = attribute.name if attribute.title is None else attribute.title
    if role in (FROM, TO):
        what = {FROM: "First value counted.", TO: "Last value counted."}[role]
        if attribute.edges is not None:
            what = {FROM: "Left edge of the first bin.", TO: "Right edge of the last bin."}[role]
        return {"title": f"{title}, {role}", "description": f"{what} {ENDS}", "unit": attribute.unit}
    if role == LABEL:
        return {"title": f"{title}, label", "description": "The value as readers see it."}
    said = (attribute.description or "").strip()
    said += "" if not said or said.endswith((".", "!", "?", "…")) else "."
    rules = "; ".join(attribute.rules)
    said = " ".join(
        filter(None, [said, SINGLE if columns.single else SEVERAL, rules and f"In the data, {rules}."])
    )
    words = {"title": attribute.title, "description": said, "unit": attribute.unit}
    if attribute.value_labels is None:
        return words
    labels = [
        {"value": value if isinstance(value, str | int | float) else str(value), "label": label}
        for value, label in zip(attribute.values, attribute.shown, strict=True)
    ]
    # the standard has categories only for columns that hold nothing else
    is_list = columns.single and TYPES.get(columns.roles[role], "string") in ("string", "integer")
    return words | {"categories" if is_list else "labels": labels}
