"""A schema from the tables of a spec file, or from a codebook: a CSV or JSON file with the same content.

A codebook is public knowledge, written before anyone looked at the data and never derived from it. Messages
about a file with a wrong header do not quote it: it may be the private table itself.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from querysmasher.attributes import KINDS, WORDS, Attribute, Binned, Label, literal
from querysmasher.errors import FileError, SchemaError, SpecError
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings, Place, shown, within
from querysmasher.spec.model import Section, words

MAX_VALUES = 1_000_000
"""Maximum number of values of a range; a longer one is taken for a mistake."""

EXACT = 2**53
"""From here on, floats do not distinguish neighbouring integers."""


stand_in = Field(default=None, description="one of the values, which missing ones count as")


name = Field(description="a name as a string", min_length=1)
value_labels = Field(
    default=None, description="a list of strings, one per value, or a table of values and labels"
)


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
    title: str | None = words
    description: str | None = words
    unit: str | None = words
    labels: list[str] | dict[str, str] | None = value_labels

    def build(self) -> Attribute:
        """Return the attribute, without what readers see."""
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
    missing: str | None = stand_in
    title: str | None = words
    description: str | None = words
    unit: str | None = words
    labels: list[str] | dict[str, str] | None = value_labels

    def build(self) -> Attribute:
        """Return the attribute, without what readers see."""
        with within("edges"):
            return Binned(self.name, edges=self.edges)


def _worded(entry: Values | Bins) -> Attribute:
    """Return an attribute with the value that missing ones count as, and its words for readers."""
    attribute, labels = entry.build(), entry.labels
    if entry.missing is not None:
        with within("missing"):
            attribute = replace(attribute, missing=entry.missing)
    with within("labels"):
        if isinstance(labels, dict):  # TOML's keys are strings
            by_text = dict(zip(attribute.labels, attribute.values, strict=True))
            for stranger in [key for key in labels if key not in by_text]:
                attribute.position(stranger)  # names what is near
            labels = {by_text[key]: label for key, label in labels.items()}  # type: ignore[misc]
        return replace(attribute, value_labels=labels, **{key: getattr(entry, key) for key in WORDS})


ATTRIBUTES: dict[str, type[Values | Bins]] = {kind: Bins if kind == "binned" else Values for kind in KINDS}
"""The keys of every kind of attribute."""


def build_schema(tables: Sequence[object], findings: Findings, place: Place) -> Schema | None:
    """Return the schema that the tables describe, or record their problems."""
    before = len(findings.problems)
    attributes = []
    for number, table in enumerate(tables):
        here = (*place, number)
        if not isinstance(table, Mapping):
            findings.add(here, "expected a table with name, kind, and values, range or edges")
        elif kind := findings.choice(table, "kind", ATTRIBUTES, here):
            entry = findings.section(ATTRIBUTES[kind], table, here)
            with findings.at(here):
                attributes += [_worded(entry)] if entry else []
    if len(findings.problems) > before:
        return None
    with findings.at(place):
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
    if not all(abs(number) < EXACT for number in given):  # nor NaN
        raise SchemaError(f"expected numbers below 2^53 in absolute value, got {shown(given)}")
    if step <= 0 or last < first:
        raise SchemaError(f"expected first <= last and a step above 0, got {given}")
    steps = (last - first) / step + 1e-9
    if steps >= MAX_VALUES:
        raise SchemaError(f"{steps + 1:,.0f} values are more than the {MAX_VALUES:,} allowed, got {given}")
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
    means all integers from 0 to 99; for binned attributes the values are the edges. Lines with the
    same attribute are combined. Values are numbers if all are written as numbers (`01` is not), and dates if
    all are written as `2024-03-01` (`2024-01-01..2024-12-31` means all days), unless an optional column
    `type` has the word `text`. The optional columns `title`, `description`, `unit` and `label` have words for
    readers; labels are separated by semicolons like the values they stand for. A JSON file has a list of
    objects with `attribute`, `kind` and `values`, `range` or `edges`, and the same words (`labels` as a list
    or an object).
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
        tables = _from_json(title, text) if path.suffix.lower() == ".json" else _from_csv(title, text)
    except csv.Error:  # whose message may quote the file
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
    return [{("name" if key == "attribute" else key): value for key, value in t.items()} for t in tables]


@dataclass
class _Described:
    """What the lines of a codebook say about one attribute."""

    kind: str = ""
    is_text: bool = False
    texts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, line: Mapping[str, str]) -> None:
        """Add a line; refuse one that says something else than those before it."""
        if not name:
            raise SpecError("attribute: missing")
        kind = line["kind"].lower()
        if kind and self.kind not in ("", kind):
            raise SpecError(f"kind: {name!r} was {self.kind!r} before, got {kind!r}")
        self.kind = kind or self.kind
        self.is_text |= line.get("type", "").casefold() == "text"
        texts = line["values"].split(";")
        size = len(_values(texts, self.is_text))
        bins = size - 1 if self.kind == "binned" else size
        labels = [label.strip() for label in line["label"].split(";")] if line.get("label") else [""] * size
        if len(labels) not in (size, bins):
            raise SpecError(f"label: expected {bins}, one per value, got {len(labels)}")
        self.texts += texts
        self.labels += labels + [""] * (size - len(labels))
        for key in WORDS:
            if line.get(key) and self.words.setdefault(key, line[key]) != line[key]:
                raise SpecError(f"{key}: {name!r} had another one before")

    def table(self, title: str, name: str) -> dict[str, Any]:
        """Return the keys of a [[schema]] table."""
        values = _values(self.texts, self.is_text)
        is_binned = self.kind == "binned"
        table: dict[str, Any] = {
            "name": name,
            "kind": self.kind,
            "edges" if is_binned else "values": values,
            **self.words,
        }
        if is_binned and any(self.labels):  # one label per bin, and one edge more
            table["labels"] = self.labels[: len(values) - 1]
        elif any(self.labels):
            if len(self.labels) != len(values):
                msg = f"{title}: label: expected one per value of {name!r}; write its values one by one"
                raise SpecError(msg)
            table["labels"] = {str(v): label for v, label in zip(values, self.labels, strict=True) if label}
        return table


def _from_csv(title: str, text: str) -> list[dict[str, Any]]:
    lines = csv.DictReader(text.splitlines())
    columns = [str(name).strip().casefold() for name in lines.fieldnames or ()]
    if not {"attribute", "kind", "values"} <= set(columns):
        raise SpecError(f"{title}: expected a header with the columns attribute, kind and values")
    lines.fieldnames = columns
    described: dict[str, _Described] = {}
    for line in lines:
        cells = {key: (line[key] or "").strip() for key in columns}
        name = cells["attribute"]
        try:
            described.setdefault(name, _Described()).add(name, cells)
        except SpecError as error:
            raise SpecError(f"{title}, line {lines.line_num}: {error}") from None
    if not described:
        raise SpecError(f"{title}: it has no attribute")
    return [attribute.table(title, name) for name, attribute in described.items()]


def _values(texts: list[str], as_text: bool) -> list[Label]:
    """Return the values of the strings: numbers or dates if all are written so, else strings."""
    stripped = [text.strip() for text in texts]
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
        elif _DECIMAL.fullmatch(text):
            numbers.append(float(text))
        else:
            return list(stripped)
    return numbers


def _days(texts: list[str]) -> list[Label]:
    days: list[Label] = []
    for text in texts:
        first, last = _DATES.fullmatch(text).groups()  # type: ignore[union-attr]
        try:
            days += run(date.fromisoformat(first), date.fromisoformat(last or first))
        except ValueError:  # 30 February; or our own error, for a decreasing range
            return list(texts)
    return days
