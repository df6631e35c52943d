"""Reads a schema from the tables of a spec file, or from a codebook, a CSV or JSON file of the same content.

A codebook is public knowledge, never derived from the data. Messages about a file with a wrong header do not
quote it: it may be the private table itself.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from querysmasher.attributes import (
    EXACT,
    KINDS,
    MOST_VALUES,
    OUTSIDE,
    WORDS,
    Attribute,
    Binned,
    Label,
    Number,
    literal,
)
from querysmasher.errors import FileError, SchemaError, SpecError
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings, Location, shown, within
from querysmasher.spec.sections import Section, choice, words

stand_in = Field(default=None, description="the value that missing ones count as: a listed one, or a string")
name = Field(description="a name as a string", min_length=1)
value_labels = Field(
    default=None, description="a list of strings, one per value, or a table of values and labels"
)


DECLARED = ("other", "missing")
"""The keys that declare a value that others count as."""


class Values(Section):
    """An attribute with listed values, or a range of values."""

    name: str = name
    kind: str
    values: list[Any] | None = Field(
        default=None, description="a list of strings, numbers or dates", min_length=1
    )
    range: list[int | float | date] | None = Field(
        default=None, description="two or three numbers: first, last, step", min_length=2, max_length=3
    )
    missing: str | int | float | bool | date | None = stand_in
    other: str | int | float | bool | date | None = Field(
        default=None, description="the value that unlisted ones count as: a listed one, or a string"
    )
    title: str | None = words
    description: str | None = words
    unit: str | None = words
    labels: list[str] | dict[str, str] | None = value_labels

    def build(self) -> Attribute:
        """Return the attribute, without titles and labels."""
        if (self.values is None) == (self.range is None):
            given = "neither" if self.values is None else "both"
            raise SchemaError(f"attribute {self.name!r}: expected either values or range, got {given}")
        with within("values" if self.range is None else "range"):
            return KINDS[self.kind](self.name, run(*self.range) if self.range else self.values or ())


class Bins(Section):
    """A binned attribute."""

    name: str = name
    kind: str
    edges: list[int | float] = Field(description="a list of increasing numbers", min_length=2)
    step: int | float | None = Field(default=None, description="a positive number", gt=0, allow_inf_nan=False)
    missing: str | None = stand_in
    title: str | None = words
    description: str | None = words
    unit: str | None = words
    labels: list[str] | dict[str, str] | None = value_labels

    def build(self) -> Attribute:
        """Return the attribute, without titles and labels."""
        with within("edges"):
            return Binned(self.name, edges=self.edges, step=self.step)


class Grid(Section):
    """A number on a grid."""

    name: str = name
    kind: str
    range: list[int | float] = Field(
        description="two or three numbers: lowest, highest, step", min_length=2, max_length=3
    )
    outside: str = choice(OUTSIDE, "clamp")
    missing: str | None = stand_in
    title: str | None = words
    description: str | None = words
    unit: str | None = words
    labels: list[str] | dict[str, str] | None = value_labels

    def build(self) -> Attribute:
        """Return the attribute, without titles and labels."""
        low, high, step = (*self.range, 1)[:3]
        with within("range"):
            return Number(self.name, low, high, step=step, outside=self.outside)


def _worded(entry: Values | Bins | Grid) -> Attribute:
    """Return an attribute with its words, its labels, and the values that missing and other ones count as."""
    attribute, labels = entry.build(), entry.labels
    for key in DECLARED:
        if (value := getattr(entry, key, None)) is not None:
            with within(key):
                if key not in {field.name for field in fields(attribute)}:
                    raise SchemaError(f"expected a categorical attribute, got {entry.kind} {entry.name!r}")
                attribute = replace(attribute, **{key: value})
    with within("labels"):
        if isinstance(labels, dict):  # TOML's keys are strings
            by_text = dict(zip(attribute.labels, attribute.values, strict=True))
            for stranger in [key for key in labels if key not in by_text]:
                attribute.position(stranger)  # raises an error with the nearest value
            labels = {by_text[key]: label for key, label in labels.items()}  # type: ignore[misc]
        return replace(attribute, value_labels=labels, **{key: getattr(entry, key) for key in WORDS})


MODELS: dict[str, type[Values | Bins | Grid]] = {"binned": Bins, "number": Grid}

ATTRIBUTES = {kind: MODELS.get(kind, Values) for kind in KINDS}
"""The model of every kind of [[schema]] table."""


def build_schema(tables: Sequence[object], findings: Findings, location: Location) -> Schema | None:
    """Return the schema that the tables describe, or record their problems."""
    before = len(findings.problems)
    attributes = []
    for number, table in enumerate(tables):
        here = (*location, number)
        if not isinstance(table, Mapping):
            findings.add(here, "expected a table with name, kind, and values, range or edges")
        elif kind := findings.choice(table, "kind", ATTRIBUTES, here):
            entry = findings.section(ATTRIBUTES[kind], table, here)
            with findings.at(here):
                attributes += [_worded(entry)] if entry else []
    if len(findings.problems) > before:
        return None
    with findings.at(location):
        return Schema(attributes)
    return None


def run(first: Any, last: Any, step: Any = 1) -> list[Label]:
    """Return the numbers, or the dates, from `first` to `last`, both included; a step of dates is in days.

    >>> run(0, 10, 5)
    [0, 5, 10]
    >>> [str(day) for day in run(date(2024, 2, 28), date(2024, 3, 1))]
    ['2024-02-28', '2024-02-29', '2024-03-01']
    """
    given: list[Any] = [first, last, step]
    if any(isinstance(end, date) for end in given):
        if type(first) is not date or type(last) is not date or type(step) is not int:
            msg = f"expected two dates and optionally an integer number of days, got {shown(given)}"
            raise SchemaError(msg)
        if last < first:
            raise SchemaError(f"expected first <= last, got {literal(first)} and {literal(last)}")
        return [first + timedelta(n) for n in range(0, len(run(0, (last - first).days, step)) * step, step)]
    if not all(abs(number) < EXACT for number in given):  # also refuses NaN
        raise SchemaError(f"expected numbers below 2^53 in absolute value, got {shown(given)}")
    if step <= 0 or last < first:
        raise SchemaError(f"expected first <= last and a step above 0, got {given}")
    steps = (last - first) / step + 1e-9
    if steps >= MOST_VALUES:
        raise SchemaError(f"{steps + 1:,.0f} values are more than the {MOST_VALUES:,} allowed, got {given}")
    count = int(steps) + 1
    whole = all(float(number).is_integer() for number in given)
    return [int(first + i * step) if whole else first + i * step for i in range(count)]


_RANGE = re.compile(r"\s*(-?\d{1,99})\s*\.\.\s*(-?\d{1,99})\s*")
_WHOLE = re.compile(r"0|-?[1-9]\d{0,99}")  # a longer one is an identifier, not a number
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)\.\d+")
_DATE = r"\d{4}-\d\d-\d\d"
_DATES = re.compile(rf"({_DATE})(?:\s*\.\.\s*({_DATE}))?")


def read_codebook(path: str | os.PathLike[str]) -> Schema:
    """Return the schema that a codebook describes.

    A CSV file has the columns `attribute`, `kind` and `values`. Values are separated by semicolons; `0..99`
    means all integers from 0 to 99; for binned attributes the values are the edges, and for numbers the
    lowest, the highest and, if it is not 1, the step. Lines about the same
    attribute are combined. Values are numbers if all are written as numbers (`01` is not), and dates if all
    are written as `2024-03-01` (`2024-01-01..2024-12-31` means all days). The word `text` in an optional
    column `type` makes them strings. The optional columns `missing` and `other` declare the values that
    missing and unlisted ones count as. The optional columns `title`, `description`, `unit` and `label` are
    for readers; labels are separated by semicolons, one per value. A JSON file has a list of objects with
    `attribute`, `kind` and `values`, `range` or `edges` (`"-inf"` and `"inf"` among them); `missing` and
    `other`; `title`, `description` and `unit`; and `labels` as a list or an object.
    """
    path = Path(path)
    title = f"codebook {path.name}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not a path
        raise FileError(f"{title}: the file {str(path)!r} cannot be read ({type(error).__name__})") from None
    if path.suffix.lower() not in (".csv", ".json"):
        raise SpecError(f"{title}: expected a name that ends in .csv or .json")
    try:
        tables = _from_json(title, text) if path.suffix.lower() == ".json" else codebook_tables(title, text)
    except csv.Error:  # its message may quote the file
        raise SpecError(f"{title}: it is not valid CSV") from None
    findings = Findings(title)
    schema = build_schema(tables, findings, ())
    findings.finish()
    assert schema is not None  # noqa: S101 - finish has raised
    return schema


def _from_json(title: str, text: str) -> list[Any]:
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError):
        tables = None
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        msg = f"{title}: expected a list of objects with attribute, kind, and values, range or edges"
        raise SpecError(msg)
    for table in tables:
        if isinstance(table.get("edges"), list):  # JSON has no infinite numbers
            table["edges"] = [float(e) if e in ("inf", "-inf") else e for e in table["edges"]]
    return [{("name" if key == "attribute" else key): value for key, value in t.items()} for t in tables]


def codebook_tables(title: str, text: str) -> list[dict[str, Any]]:
    """Return the [[schema]] tables that the text of a CSV codebook states."""
    lines = csv.DictReader(text.splitlines())
    columns = lines.fieldnames = [str(name).strip().casefold() for name in lines.fieldnames or ()]
    if not {"attribute", "kind", "values"} <= set(columns):
        raise SpecError(f"{title}: expected a header with the columns attribute, kind and values")
    by_name: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for line in lines:
        cells, here = {key: (line[key] or "").strip() for key in columns}, f"{title}, line {lines.line_num}"
        if not cells["attribute"]:
            raise SpecError(f"{here}: attribute: missing")
        by_name.setdefault(cells["attribute"], []).append((here, {**cells, "kind": cells["kind"].lower()}))
    if not by_name:
        raise SpecError(f"{title}: it has no attribute")
    return [_table(title, name, about) for name, about in by_name.items()]


def _table(title: str, name: str, lines: list[tuple[str, dict[str, str]]]) -> dict[str, Any]:
    """Return the keys of a [[schema]] table, from the lines of a codebook about one attribute."""
    as_text = any(line.get("type", "").casefold() == "text" for _, line in lines)
    table: dict[str, Any] = {"name": name}
    strings: list[str] = []
    labels: list[str] = []
    for here, line in lines:
        for key in ("kind", *DECLARED, "outside", "step", *WORDS):
            if (said := line.get(key)) and table.setdefault(key, said) != said:
                another = (
                    f"was {table[key]!r} before, got {said!r}" if key == "kind" else "had another one before"
                )
                raise SpecError(f"{here}: {key}: {name!r} {another}")
        is_grid = table.get("kind") == "number"  # its range is no list of values
        parts = (line["values"].replace("..", ";") if is_grid else line["values"]).split(";")
        size = len(_values(parts, as_text, table.get("kind") == "binned"))
        bins = size - (table.get("kind") == "binned")
        given = [label.strip() for label in line["label"].split(";")] if line.get("label") else [""] * size
        if len(given) not in (size, bins):
            raise SpecError(f"{here}: label: expected {bins}, one per value, got {len(given)}")
        strings += parts
        labels += given + [""] * (size - len(given))
    is_binned = table.setdefault("kind", "") == "binned"
    values = _values(strings, as_text, is_binned)
    for key in DECLARED:
        if key in table:
            (table[key],) = _values(
                [table[key]], as_text or not any(isinstance(v, int | float) for v in values)
            )
    if "step" in table:
        (table["step"],) = _values([table["step"]], as_text=False)
    if table["kind"] == "number" and "step" in table:
        values.append(table.pop("step"))
    table[{"binned": "edges", "number": "range"}.get(table["kind"], "values")] = values
    if is_binned and any(labels):  # one label per bin, and one edge more
        table["labels"] = labels[: len(values) - 1]
    elif any(labels):
        if len(labels) != len(values):
            msg = f"{title}: label: expected one per value of {name!r}; write its values one by one"
            raise SpecError(msg)
        table["labels"] = {str(v): label for v, label in zip(values, labels, strict=True) if label}
    return table


def _values(strings: list[str], as_text: bool, is_binned: bool = False) -> list[Label]:
    """Return the values of the strings: numbers or dates if all are written so, else strings.

    The edges of bins may be infinite.
    """
    stripped = [text.strip() for text in strings]
    if as_text:
        return list(stripped)
    if all(map(_DATES.fullmatch, stripped)):
        return _days(stripped)
    numbers: list[Label] = []
    for text in stripped:
        if span := _RANGE.fullmatch(text):
            numbers += run(int(span[1]), int(span[2]))
        elif _WHOLE.fullmatch(text):
            numbers.append(int(text))
        elif _DECIMAL.fullmatch(text) or (is_binned and text in ("inf", "-inf")):
            numbers.append(float(text))
        else:
            return list(stripped)
    return numbers


def _days(strings: list[str]) -> list[Label]:
    days: list[Label] = []
    for text in strings:
        first, last = _DATES.fullmatch(text).groups()  # type: ignore[union-attr]
        try:
            days += run(date.fromisoformat(first), date.fromisoformat(last or first))
        except ValueError:  # 30 February, or a decreasing range
            return list(strings)
    return days
