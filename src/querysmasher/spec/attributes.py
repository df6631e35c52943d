"""From the tables that describe attributes to a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from querysmasher.attributes import KINDS, WORDS, Attribute, Binned, Label, literal
from querysmasher.errors import SchemaError
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings, Place, shown, within
from querysmasher.spec.model import ATTRIBUTES, Bins, Values
from querysmasher.spec.section import Section

MAX_VALUES = 1_000_000
"""Maximum number of values of a range; a longer one is taken for a mistake."""

EXACT = 2**53
"""From here on, floats do not distinguish neighbouring integers."""


def build_schema(tables: Sequence[object], findings: Findings, place: Place) -> Schema | None:
    """Return the schema that the tables describe, or record their problems."""
    before = len(findings.problems)
    attributes = []
    for number, table in enumerate(tables):
        here = (*place, number)
        if not isinstance(table, Mapping):
            findings.add(here, "expected a table with name, kind, and values, range or edges")
            continue
        kind = findings.choice(table, "kind", ATTRIBUTES, here)
        entry = kind and findings.section(ATTRIBUTES[kind], table, here)
        if kind and entry:
            with findings.at(here):
                attributes.append(_attribute(kind, entry))
    if len(findings.problems) > before:
        return None
    with findings.at(place):
        return Schema(attributes)
    return None


def _attribute(kind: str, entry: Section) -> Attribute:
    if isinstance(entry, Bins):
        with within("edges"):
            attribute: Attribute = Binned(entry.name, edges=entry.edges)
        return _worded(standing_in(attribute, entry.missing), entry)
    assert isinstance(entry, Values)  # noqa: S101 - there is no third model
    if (entry.values is None) == (entry.range is None):
        given = "neither" if entry.values is None else "both"
        msg = f"attribute {entry.name!r}: expected either values or range, got {given}"
        raise SchemaError(msg)
    with within("values" if entry.range is None else "range"):
        values = run(*entry.range) if entry.range else entry.values
        attribute = KINDS[kind](entry.name, values or ())
    return _worded(standing_in(attribute, entry.missing), entry)


def _worded(attribute: Attribute, entry: Values | Bins) -> Attribute:
    """Return the attribute with its title, description, unit and labels for readers."""
    labels = entry.labels
    if isinstance(labels, dict):  # TOML's keys are strings
        with within("labels"):
            by_text = dict(zip(attribute.labels, attribute.values, strict=True))
            strangers = [key for key in labels if key not in by_text]
            if strangers:
                attribute.position(strangers[0])  # names what is near
            labels = {by_text[key]: label for key, label in labels.items()}  # type: ignore[misc]
    words = {key: getattr(entry, key) for key in WORDS}
    with within("labels"):
        return replace(attribute, value_labels=labels, **words)


def standing_in(attribute: Attribute, missing: Label | None) -> Attribute:
    """Return the attribute with the value that missing ones count as."""
    with within("missing"):
        return attribute if missing is None else replace(attribute, missing=missing)


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
            msg = f"expected first <= last, got {literal(first)} and {literal(last)}"
            raise SchemaError(msg)
        return [first + timedelta(n) for n in range(0, len(run(0, (last - first).days, step)) * step, step)]
    if not all(abs(number) < EXACT for number in given):  # nor NaN
        msg = f"expected numbers below 2^53 in absolute value, got {shown(given)}"
        raise SchemaError(msg)
    if step <= 0 or last < first:
        msg = f"expected first <= last and a step above 0, got {given}"
        raise SchemaError(msg)
    steps = (last - first) / step + 1e-9
    if steps >= MAX_VALUES:
        msg = f"{steps + 1:,.0f} values are more than the {MAX_VALUES:,} allowed, got {given}"
        raise SchemaError(msg)
    count = int(steps) + 1
    whole = all(float(number).is_integer() for number in given)
    return [int(first + i * step) if whole else first + i * step for i in range(count)]
