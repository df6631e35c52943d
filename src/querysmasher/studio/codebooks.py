"""Attributes as [[schema]] tables: from codebooks of several kinds, and as people write and read them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from querysmasher.attributes import Attribute
from querysmasher.errors import MissingExtraError, SpecError
from querysmasher.schema import Schema
from querysmasher.spec import read_codebook
from querysmasher.spec.discoveries import DISCOVER, ToDiscover
from querysmasher.spec.schemas import codebook_tables

FEW = 10_000
"""Maximum number of values that an integer with a smallest and a largest value stands for."""

LABELLED = {".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por", ".dta": "read_dta"}
"""The files of SPSS and Stata, and what reads their labels."""

ALTERNATIVES = re.compile(r"[^\\()\[\]*+?.^$|]+(\|[^\\()\[\]*+?.^$|]+)+")
"""A regular expression that only lists values, as CSVW states them."""


def codebook(path: str) -> dict[str, Any]:
    """Return the [[schema]] tables of a codebook, and why other attributes are not complete, by name.

    A codebook is one of ours (CSV or JSON), a Frictionless schema or data package, a CSVW description, or a
    file of SPSS or Stata, of which only the labels are read.
    """
    tables, missing = _attributes_of(Path(path))
    return {"tables": tables, "missing": missing}


def _attributes_of(path: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    if path.suffix.lower() in LABELLED:
        return _labelled(path)
    if path.suffix.lower() == ".json":
        try:
            data = json.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, OSError, RecursionError):
            data = None  # `read_codebook` says what is wrong
        if isinstance(data, Mapping):
            return _described(data, path.name)
    return [table_of(attribute) for attribute in read_codebook(path)], {}


def _labelled(path: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the attributes whose values a file of SPSS or Stata labels; no record is read."""
    try:
        import pyreadstat  # noqa: PLC0415 - an extra, needed for these files only
    except ImportError:
        msg = f"{path.name}: labels of SPSS and Stata need pyreadstat: pip install 'querysmasher[spss]'"
        raise MissingExtraError(msg) from None
    try:
        _, about = getattr(pyreadstat, LABELLED[path.suffix.lower()])(str(path), metadataonly=True)
    except Exception as error:  # noqa: BLE001 - of its own kinds, and of decoding
        msg = f"{path.name} is not a file of SPSS or Stata that can be read ({type(error).__name__})"
        raise SpecError(msg) from None
    made, missing = [], {}
    for name in about.column_names:
        found = about.variable_value_labels.get(name, {})
        labels = {int(v) if isinstance(v, float) and v % 1 == 0 else v: said for v, said in found.items()}
        measure = about.variable_measure.get(name)
        if not labels or measure == "scale":
            missing[name] = f"{path.name} labels {'only some' if labels else 'none'} of its values"
            continue
        title = about.column_names_to_labels.get(name)
        made.append(
            {
                "name": name,
                "kind": "ordinal" if measure == "ordinal" else "categorical",
                "values": list(labels),
                "labels": {str(value): said for value, said in labels.items() if said},
                **({"title": title} if title else {}),
            }
        )
    return made, missing


def _described(data: Mapping[str, Any], title: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the attributes of a Frictionless or CSVW description."""
    made, missing = [], {}
    for field in _fields(data):
        name = field.get("name") or field.get("titles")
        if not isinstance(name, str) or not name:
            continue
        about = _values(field)
        if about is None:
            missing[name] = f"{title} states no list or range of values for it"
            continue
        words = {key: field[key] for key in ("title", "description") if isinstance(field.get(key), str)}
        made.append({"name": name, **about, **words})
    if not made and not missing:
        raise SpecError(f"{title}: expected a codebook, a Frictionless schema or a CSVW description")
    return made, missing


def _fields(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the descriptions of columns, wherever a description of tables has them."""
    for key in ("resources", "tables", "schema", "tableSchema", "fields", "columns"):
        inside = data.get(key)
        for each in inside if isinstance(inside, list) else [inside]:
            if isinstance(each, Mapping):
                yield from [each] if key in ("fields", "columns") else _fields(each)


def _values(field: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return kind and values of a column, or None if these are not stated."""
    constraints, datatype = field.get("constraints"), field.get("datatype")
    stated = {**field, **(constraints if isinstance(constraints, Mapping) else {})}
    stated |= datatype if isinstance(datatype, Mapping) else {}
    kind = stated.get("base", stated.get("type", datatype))
    labels: dict[str, str] = {}
    listed = stated.get("categories", stated.get("enum"))
    if isinstance(listed, list) and listed and all(isinstance(each, Mapping) for each in listed):
        labels = {str(each["value"]): str(each["label"]) for each in listed if {"value", "label"} <= {*each}}
        listed = [each.get("value") for each in listed]
    pattern = stated.get("format", "")
    if not listed and isinstance(pattern, str) and ALTERNATIVES.fullmatch(pattern):
        listed = pattern.split("|")
    if isinstance(listed, list) and listed and all(isinstance(each, str | int | float) for each in listed):
        ordered = bool(stated.get("categoriesOrdered"))
        about = {"kind": "ordinal" if ordered else "categorical", "values": listed}
        return about | ({"labels": labels} if labels else {})
    if kind == "boolean":
        return {"kind": "categorical", "values": [False, True]}
    low, high = (stated.get(key) for key in ("minimum", "maximum"))
    if str(kind).lower() in ("integer", "int", "short", "long", "nonnegativeinteger"):
        try:
            low, high = int(str(low)), int(str(high))
        except ValueError:
            return None
        return {"kind": "ordinal", "range": [low, high]} if low <= high < low + FEW else None
    return None


def table_of(attribute: Attribute) -> dict[str, Any]:
    """Return an attribute as a [[schema]] table."""
    table: dict[str, Any] = {"name": attribute.name, "kind": attribute.kind}
    values = list(attribute.values[: attribute.listed])
    if attribute.edges is not None:
        table["edges"] = [float(edge) if edge % 1 else int(edge) for edge in map(float, attribute.edges)]
        table |= {} if attribute.step is None else {"step": attribute.step}
    elif attribute.is_computed:
        step = values[1] - values[0] if len(values) > 1 else 1  # type: ignore[operator]
        table["range"] = [values[0], values[-1], step]
        table["outside"] = getattr(attribute, "outside", "clamp")
    elif _consecutive(values):
        table["range"] = [values[0], values[-1]]
    else:
        table["values"] = values
    known = {field.name for field in fields(attribute)}
    for key in ("other", "missing", "title", "description", "unit"):
        if key in known and (said := getattr(attribute, key)) is not None:
            table[key] = said
    if attribute.shown != attribute.labels:
        pairs = zip(attribute.labels, attribute.shown, strict=True)
        table["labels"] = {label: shown for label, shown in pairs if label != shown}
    return table


def _consecutive(values: list[Any]) -> bool:
    """Return whether values are at least three integers, each one more than the one before."""
    whole = len(values) > 2 and all(type(value) is int for value in values)
    return whole and values == list(range(values[0], values[0] + len(values)))


def attribute(form: dict[str, str], how: dict[str, Any]) -> dict[str, Any]:
    """Return the [[schema]] table of a form, whose values are written as in a codebook, or discovered."""
    if form.pop("discover"):
        if form["values"].strip():
            raise SpecError("values: expected none, as they are to be discovered")
        form["values"] = DISCOVER
    elif how:
        raise SpecError(f"{next(iter(how))}: allowed only for values to be discovered")
    columns = [key for key, text in form.items() if text.strip() or key in ("attribute", "kind", "values")]
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(columns)
    writer.writerow([" ".join(form[key].split()) for key in columns])
    (table,) = codebook_tables("the form", stream.getvalue())
    return {"table": table | ({"values": DISCOVER, **how} if form["values"] == DISCOVER else {})}


def form_of(schema: Schema, name: str, asked: Sequence[ToDiscover] = ()) -> dict[str, str]:
    """Return an attribute as a form, the inverse of `attribute`; values to be discovered are not known."""
    table = table_of(schema[name])
    values = table.get("values") or table.get("edges") or table.get("range") or []
    as_range = "range" in table and "outside" not in table
    found = next((one for one in asked if one.column == name), None)
    values = [] if found else values
    how = {} if found is None else {"discover": "yes", **found.model_dump()}
    texts = [f"{values[0]}..{values[-1]}"] if as_range else list(map(str, values))
    strings = all(isinstance(value, str) for value in values)
    labels = table.get("labels", {})
    return {
        "attribute": name,
        "kind": table["kind"],
        "values": "; ".join(texts),
        "type": "text" if strings and any(re.fullmatch(r"[-\d.:]+", text) for text in texts) else "",
        "label": "; ".join(labels.get(text, text) for text in texts) if labels and not as_range else "",
        **{key: str(table.get(key, "")) for key in ("missing", "other", "title", "description", "unit")},
        **{key: str(how.get(key) or "") for key in ("discover", "share", "delta", "at_most")},
    }
