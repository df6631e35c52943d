"""From the tables that describe queries to a workload.

The family of one attribute is a name, rows, chosen ranges, or a hierarchy.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.attributes import Attribute
from querysmasher.errors import QuerySmasherWarning, SchemaError, WorkloadError, suggestion
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings, not_one_of, shown, within, written
from querysmasher.spec.model import (
    WORKLOADS,
    AllKway,
    Linear,
    Marginals,
    Pair,
    Product,
    Queries,
    Random,
    Where,
)
from querysmasher.workload.builders import (
    FamilyLike,
    abs_difference,
    affine,
    all_kway,
    family_for,
    linear,
    marginals,
    queries,
    random_queries,
    where,
)
from querysmasher.workload.families import ONE_ATTRIBUTE, Intervals
from querysmasher.workload.family import Family, check_weights
from querysmasher.workload.hierarchy import titled_hierarchy
from querysmasher.workload.workload import Workload

HIERARCHY_KEYS = {"hierarchy", "leaves", "weights", "codebook"}

FORMS = "a name, a list of rows, {rows = …}, {ranges = …}, or {hierarchy = …}"


def read_family(schema: Schema, name: str, given: Any, folder: Path) -> Family:
    """Return the family for the attribute called `name`; files are relative to `folder`."""
    attribute = schema[name]
    if isinstance(given, str):
        if given not in ONE_ATTRIBUTE:
            raise WorkloadError(not_one_of(ONE_ATTRIBUTE, given))
        return family_for(attribute, given)
    if isinstance(given, list):
        return family_for(attribute, given)
    if isinstance(given, Mapping) and set(given) == {"rows"}:
        rows = given["rows"]
        return family_for(attribute, read_rows(folder, rows) if isinstance(rows, str) else rows)
    if isinstance(given, Mapping) and "ranges" in given and set(given) <= {"ranges", "weights"}:
        return _ranges(attribute, given["ranges"], given.get("weights"), folder)
    if isinstance(given, Mapping) and "hierarchy" in given and set(given) <= HIERARCHY_KEYS:
        return _hierarchy(attribute, given, folder)
    msg = f"expected {FORMS}, got {shown(given)}"
    raise WorkloadError(msg)


def _hierarchy(attribute: Attribute, given: Mapping[str, Any], folder: Path) -> Family:
    """Return the hierarchy that a table describes."""
    leaves, codebook = given.get("leaves", True), given.get("codebook")
    if not isinstance(leaves, bool):
        msg = f"leaves: expected true or false, got {shown(leaves)}"
        raise WorkloadError(msg)
    if codebook is not None and not isinstance(codebook, str):
        msg = f"codebook: expected the name of a CSV file, got {shown(codebook)}"
        raise WorkloadError(msg)
    return titled_hierarchy(
        attribute,
        _levels(attribute, given["hierarchy"], folder),
        leaves=leaves,
        weights=given.get("weights"),
        codebook=None if codebook is None else folder / codebook,
    )


def _ranges(attribute: Attribute, given: Any, weights: Any, folder: Path) -> Family:
    """Return chosen ranges, each from a first value to a last one."""
    if isinstance(given, str):
        if weights is not None:
            msg = "weights: a file of ranges has them in its third column"
            raise WorkloadError(msg)
        pairs, weights = _file_ranges(attribute, _lines(folder, given), given)
    elif isinstance(given, list) and given and all(isinstance(p, list) and len(p) == 2 for p in given):
        pairs = [(_place(attribute, first), _place(attribute, last)) for first, last in given]
    else:
        msg = (
            "ranges: expected a list of pairs of values, [first, last], or the name of a CSV file, got "
            f"{shown(given)}"
        )
        raise WorkloadError(msg)
    wrong = next((number for number, (first, last) in enumerate(pairs, start=1) if first > last), None)
    if wrong is not None:
        msg = f"ranges: the first value of range {wrong:,} comes after its last one"
        raise WorkloadError(msg)
    first, last = np.array(pairs).T
    if weights is not None:
        check_weights("weights", weights)
        weights = np.asarray(weights, dtype=float)
    return Intervals((attribute.size,), first, last, weights)


def _place(attribute: Attribute, value: Any) -> int:
    """Return the index of a value."""
    try:
        return attribute.position(value)
    except SchemaError as error:
        msg = f"ranges: {error}"
        raise WorkloadError(msg) from None


def _file_ranges(
    attribute: Attribute, lines: list[tuple[int, list[str]]], name: str
) -> tuple[list[tuple[int, int]], list[float] | None]:
    """Return the ranges of a file, and their weights if it has them. Messages do not quote it."""
    width = len(lines[0][1]) if lines else 0
    if width not in (2, 3) or len(lines) < 2:
        msg = f"{name!r}: expected a header, then in each line a first value, a last one and perhaps a weight"
        raise WorkloadError(msg)
    places = {label: place for place, label in enumerate(attribute.labels)}
    pairs: list[tuple[int, int]] = []
    weights: list[float] = []
    for number, line in lines[1:]:
        if len(line) != width:
            msg = f"{name!r}, line {number}: expected {width} columns, as in the header, got {len(line)}"
            raise WorkloadError(msg)
        if line[0] not in places or line[1] not in places:
            msg = f"{name!r}, line {number}: expected two values of attribute {attribute.name!r}"
            raise WorkloadError(msg)
        pairs.append((places[line[0]], places[line[1]]))
        try:
            weights += map(float, line[2:])
        except ValueError:
            msg = f"{name!r}, line {number}: expected a number as weight"
            raise WorkloadError(msg) from None
    return pairs, weights or None


def read_rows(folder: Path, name: str) -> list[list[float]]:
    """Read queries from a CSV file: one row per query, one number per cell, no header."""
    rows = []
    for number, line in _lines(folder, name):
        try:
            rows.append([float(cell) for cell in line])
        except ValueError:
            msg = f"{name!r}, line {number}: expected numbers only, and no header"
            raise WorkloadError(msg) from None
        if len(rows[-1]) != len(rows[0]):
            msg = f"{name!r}, line {number}: expected {len(rows[0])} numbers, as before, got {len(rows[-1])}"
            raise WorkloadError(msg)
    return rows


def _levels(attribute: Attribute, given: Any, folder: Path) -> list[tuple[str | None, Any]]:
    """Return the name, if any, of each level, and the group of every value."""
    if isinstance(given, str):
        lines = _lines(folder, given)
        levels = _file_levels(attribute, lines, given)
        return list(zip((name.strip() for name in lines[0][1][1:]), levels, strict=True))
    if isinstance(given, Mapping) and given:
        return [(title, _groups(attribute, level)) for title, level in given.items()]
    if not isinstance(given, list) or not given:
        msg = (
            "hierarchy: expected a list of levels, a table of them, or the name of a CSV file, got "
            f"{shown(given)}"
        )
        raise WorkloadError(msg)
    return [(None, _groups(attribute, level)) for level in given]


def _file_levels(attribute: Attribute, lines: list[tuple[int, list[str]]], name: str) -> list[list[Any]]:
    """Return the levels of a file. Messages do not quote it: it may be the private table, by mistake."""
    width = len(lines[0][1]) if lines else 0
    if width < 2:
        msg = f"{name!r}: expected a header, then in each line a value and its group at each level"
        raise WorkloadError(msg)
    known = set(attribute.labels)
    groups: dict[str, list[str]] = {}
    for number, (value, *own) in lines[1:]:
        problem = None
        if len(own) != width - 1:
            problem = f"expected {width} columns, as in the header, got {len(own) + 1}"
        elif value not in known:
            problem = f"its first column is not a value of attribute {attribute.name!r}"
        elif value in groups:
            problem = "its value already has a line"
        if problem:
            msg = f"{name!r}, line {number}: {problem}"
            raise WorkloadError(msg)
        groups[value] = own
    if len(groups) < attribute.size:
        msg = (
            f"{name!r}: a value of attribute {attribute.name!r} has no line; expected one for each of "
            f"{attribute.size:,}"
        )
        raise WorkloadError(msg)
    return [[groups[label][level] for label in attribute.labels] for level in range(width - 1)]


def _groups(attribute: Attribute, level: Any) -> Any:
    if isinstance(level, list | str) or (isinstance(level, int) and not isinstance(level, bool)):
        return level  # in the order of the values; a column of a codebook; the length of a prefix
    if not isinstance(level, Mapping):
        msg = (
            "hierarchy: expected each level as a table of values and groups, a list, a number of "
            f"characters of codes, or a column of a codebook, got {shown(level)}"
        )
        raise WorkloadError(msg)
    if level and all(isinstance(own, list) for own in level.values()):
        named = dict(zip(attribute.labels, attribute.values, strict=True))
        return {group: [named.get(str(value), value) for value in own] for group, own in level.items()}
    labels = set(attribute.labels)
    strangers = [value for value in level if value not in labels]
    if strangers:
        hint = suggestion(strangers[0], attribute.labels)
        msg = f"hierarchy: attribute {attribute.name!r} has no value {strangers[0]!r}{hint}"
        raise WorkloadError(msg)
    missing = [label for label in attribute.labels if label not in level]
    if missing:
        msg = f"hierarchy: a level has no group for value {missing[0]!r} of attribute {attribute.name!r}"
        raise WorkloadError(msg)
    return [level[label] for label in attribute.labels]


def _lines(folder: Path, name: str) -> list[tuple[int, list[str]]]:
    """Return the lines of a CSV file that are not empty, each with the number of its last line."""
    try:
        with (folder / name).open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            return [(reader.line_num, line) for line in reader if line]
    except (OSError, ValueError, csv.Error) as error:  # ValueError: not UTF-8, or not a path
        msg = f"the file {name!r} cannot be read ({type(error).__name__})"
        raise WorkloadError(msg) from None


@dataclass(frozen=True)
class Entry:
    """One [[workload]] table: its kind and its queries."""

    kind: str
    workload: Workload
    remarks: tuple[str, ...] = ()
    """What is allowed, and probably not meant."""


def build_entries(
    tables: Sequence[object], schema: Schema | None, folder: Path, findings: Findings
) -> tuple[Entry, ...]:
    """Return the workload of the tables, or record their problems; without a schema, only check keys."""
    entries = []
    for number, table in enumerate(tables):
        here = ("workload", number)
        if not isinstance(table, Mapping):
            findings.add(here, "expected a table with a kind")
            continue
        kind = findings.choice(table, "kind", WORKLOADS, here)
        entry = kind and findings.section(WORKLOADS[kind], table, here)
        if kind and entry and schema:
            with findings.at(here, type(entry).model_fields):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", QuerySmasherWarning)
                    asked = _Builder(schema, folder).build(kind, entry)
                told = [one.message for one in caught if isinstance(one.message, QuerySmasherWarning)]
                remarks = tuple(f"{written(here)}: {remark.for_spec()}" for remark in told)
                entries.append(Entry(kind, _weighed(asked, entry), remarks))
    return tuple(entries)


def _weighed(asked: Workload, entry: Queries) -> Workload:
    """Return the queries with the weighting and the target of their entry."""
    if entry.weighting == "tables":
        asked = entry.weight * asked.weighing("tables")
    if entry.target is None:
        if entry.level is not None:
            with within("level"):
                msg = "allowed only together with target"
                raise WorkloadError(msg)
        return asked
    with within("target"):
        return asked.within(entry.target, level=entry.level)


@dataclass(frozen=True)
class _Builder:
    schema: Schema
    folder: Path

    def build(self, kind: str, entry: Queries) -> Workload:
        match entry:
            case Marginals():
                return marginals(self.schema, entry.k, entry.weight)
            case AllKway():
                return all_kway(self.schema, entry.k, self._family(entry.family), entry.weight)
            case Product():
                return queries(self.schema, self._families(entry.families, "families"), weight=entry.weight)
            case Pair():
                builder = affine if kind == "affine" else abs_difference
                a, b = entry.attributes
                with within("attributes"):
                    return builder(self.schema, a, b, entry.weight)
            case Random():
                with within("attributes"):
                    self.schema.positions(entry.attributes)
                return random_queries(
                    self.schema, entry.attributes, entry.count, entry.p, seed=entry.seed, weight=entry.weight
                )
            case Linear():
                return self._linear(entry)
            case Where():
                return self._where(entry)
        raise AssertionError(kind)

    def _family(self, given: str | dict[str, Any] | None) -> FamilyLike | Mapping[str, FamilyLike]:
        if not isinstance(given, str):
            return None if given is None else self._families(given, "family")
        with within("family"):
            if given not in ONE_ATTRIBUTE:
                raise WorkloadError(not_one_of(ONE_ATTRIBUTE, given))
        return given

    def _families(self, given: Mapping[str, Any], key: str) -> dict[str, FamilyLike]:
        families: dict[str, FamilyLike] = {}
        for name, family in given.items():
            with within(key, name):
                families[name] = read_family(self.schema, name, family, self.folder)
        return families

    def _linear(self, entry: Linear) -> Workload:
        with within("attributes"):
            self.schema.positions(entry.attributes)
        if entry.rows is not None and entry.file is None:
            key, rows = "rows", entry.rows
        elif entry.file is not None and entry.rows is None:
            with within("file"):
                key, rows = "file", read_rows(self.folder, entry.file)
        else:
            msg = f"expected either rows or file, got {'neither' if entry.rows is None else 'both'}"
            raise WorkloadError(msg)
        with within(key):
            asked = linear(self.schema, entry.attributes, rows)
        if entry.weights is None and entry.labels is None:
            return entry.weight * asked
        return entry.weight * linear(self.schema, entry.attributes, rows, entry.weights, entry.labels)

    def _where(self, entry: Where) -> Workload:
        given = [entry.predicate] if isinstance(entry.predicate, str) else entry.predicate
        with within("predicate"):
            if not given:
                msg = "expected at least one predicate, got []"
                raise WorkloadError(msg)
            asked = [where(self.schema, text, entry.weight) for text in given]
        return sum(asked[1:], start=asked[0])
