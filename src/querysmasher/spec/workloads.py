"""Builds a workload from the [[workload]] tables of a spec file.

The family of one attribute is a name, a list of rows, a list of ranges, or a hierarchy.
"""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from querysmasher.attributes import Attribute
from querysmasher.errors import QuerySmasherWarning, SchemaError, WorkloadError, suggestion
from querysmasher.formatting import count
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings, LocatedError, not_one_of, shown, within, written
from querysmasher.spec.sections import Section, amount, choice, path, positive
from querysmasher.workload.builders import (
    NAMED,
    FamilyLike,
    abs_difference,
    affine,
    all_kway,
    family_for,
    linear,
    marginals,
    means,
    queries,
    random_queries,
    sums,
    where,
)
from querysmasher.workload.families import Intervals
from querysmasher.workload.family import Family
from querysmasher.workload.hierarchy import titled_hierarchy
from querysmasher.workload.workload import WEIGHINGS, Group, Workload

ways = Field(description="an integer number of attributes, or a list of them")
names = Field(description="a list of names of attributes")
among = Field(default=None, description="a list of names of attributes")


class Queries(Section):
    """The common keys of all entries of the workload."""

    kind: str
    weight: float = positive
    weighting: str = choice(WEIGHINGS, "queries")
    target: float | None = amount
    level: float | None = Field(default=None, description="a number between 0 and 1", gt=0, lt=1)

    def build(self, schema: Schema, folder: Path) -> Workload:
        """Return the queries with their weight; files are relative to `folder`."""
        raise NotImplementedError

    def weighed(self, workload: Workload) -> Workload:
        """Return the queries with the weighting and the target of the entry."""
        if self.weighting == "tables":
            workload = self.weight * workload.weighing("tables")
        if self.target is None and self.level is not None:
            raise LocatedError(("level",), "allowed only together with target")
        if self.target is None:
            return workload
        with within("target"):
            return workload.within(self.target, level=self.level)


class Chosen(Queries):
    """The keys of entries that choose a family for every attribute."""

    family: str | dict[str, Any] | None = Field(
        default=None, description="a family, or a table of attributes and their families"
    )

    def families(self, schema: Schema, folder: Path) -> FamilyLike | Mapping[str, FamilyLike]:
        """Return the family of all attributes, or of some."""
        if isinstance(self.family, str):
            with within("family"):
                return _named(self.family)
        return None if self.family is None else _families(schema, self.family, "family", folder)


class Marginals(Queries):
    """All k-way marginals."""

    k: int | list[int] = ways
    attributes: list[str] | None = among

    def build(self, schema: Schema, folder: Path) -> Workload:  # noqa: ARG002 - others need it
        return marginals(schema, self.k, self.weight, attributes=self.attributes)


class AllKway(Chosen):
    """Products of one family per attribute on all sets of k attributes."""

    k: int | list[int] = ways
    attributes: list[str] | None = among

    def build(self, schema: Schema, folder: Path) -> Workload:
        families = self.families(schema, folder)
        return all_kway(schema, self.k, families, self.weight, attributes=self.attributes)


class Tables(Chosen):
    """Products of one family per attribute on chosen sets of attributes."""

    tables: list[list[str]] = Field(description="a list of lists of names of attributes", min_length=1)

    def build(self, schema: Schema, folder: Path) -> Workload:
        family = self.families(schema, folder)
        by_name = family if isinstance(family, Mapping) else dict.fromkeys(schema.names, family)
        groups: list[Group] = []
        with within("tables"):
            for names in self.tables:
                schema.positions(names)  # refuses one that is named twice
                some = {name: by_name.get(name) for name in names}
                groups += queries(schema, some, weight=self.weight).groups
        return Workload(schema, tuple(groups))


class Product(Queries):
    """One product of families."""

    families: dict[str, Any] = Field(description="a table of attributes and their families", min_length=1)

    def build(self, schema: Schema, folder: Path) -> Workload:
        families = _families(schema, self.families, "families", folder)
        return queries(schema, families, weight=self.weight)


class Pair(Queries):
    """Comparisons of two attributes."""

    attributes: list[str] = Field(description="a list of two names of attributes", min_length=2, max_length=2)

    def build(self, schema: Schema, folder: Path) -> Workload:  # noqa: ARG002
        builder, (a, b) = affine if self.kind == "affine" else abs_difference, self.attributes
        return builder(schema, a, b, self.weight)


class Sums(Queries):
    """Sums of a number by group."""

    attribute: str = Field(description="the name of a number")
    by: str | list[str] | None = Field(default=None, description="a name of an attribute, or a list of names")
    around: float | None = Field(default=None, description="a number", allow_inf_nan=False)

    def build(self, schema: Schema, folder: Path) -> Workload:  # noqa: ARG002
        return sums(schema, self.attribute, self.by, around=self.around or 0.0, weight=self.weight)


class Means(Sums):
    """What makes means by group accurate."""

    within: float | None = Field(default=None, description="a positive number", gt=0, allow_inf_nan=False)
    size: float | None = Field(default=None, description="a positive number", gt=0, allow_inf_nan=False)

    def build(self, schema: Schema, folder: Path) -> Workload:  # noqa: ARG002
        about: dict[str, Any] = {"around": self.around, "within": self.within, "size": self.size}
        return means(schema, self.attribute, self.by, weight=self.weight, **about)


class Random(Queries):
    """Random counting queries."""

    attributes: list[str] = names
    count: int = Field(description="an integer from 1 to 10^9", ge=1, le=10**9)
    p: float = Field(default=0.3, description="a probability above 0", gt=0, le=1)
    seed: int = Field(default=0, description="an integer of at least 0", ge=0)

    def build(self, schema: Schema, folder: Path) -> Workload:  # noqa: ARG002
        return random_queries(schema, self.attributes, self.count, self.p, seed=self.seed, weight=self.weight)


class Linear(Queries):
    """Any linear queries, as rows in the spec or in a CSV file."""

    attributes: list[str] = names
    rows: list[list[float]] | None = Field(default=None, description="a list of lists of numbers")
    file: str | None = path
    weights: list[float] | None = Field(default=None, description="a list of numbers, one per query")
    labels: list[str] | None = Field(default=None, description="a list of strings, one per query")

    def build(self, schema: Schema, folder: Path) -> Workload:
        if (self.rows is None) == (self.file is None):
            msg = f"expected either rows or file, got {'neither' if self.rows is None else 'both'}"
            raise WorkloadError(msg)
        with within("rows" if self.file is None else "file"):
            rows: Any = self.rows if self.file is None else read_rows(folder, self.file)
            linear(schema, self.attributes, rows)  # refuses rows that do not fit
        return self.weight * linear(schema, self.attributes, rows, self.weights, self.labels)


class Where(Queries):
    """One counting query per predicate."""

    predicate: str | list[str] = Field(description='a predicate such as "age >= 18", or a list of them')

    def build(self, schema: Schema, folder: Path) -> Workload:  # noqa: ARG002
        given = [self.predicate] if isinstance(self.predicate, str) else self.predicate
        with within("predicate"):
            if not given:
                raise WorkloadError("expected at least one predicate, got []")
            first, *others = (where(schema, text, self.weight) for text in given)
        return sum(others, start=first)


WORKLOADS: dict[str, type[Queries]] = {
    "marginals": Marginals,
    "all_kway": AllKway,
    "tables": Tables,
    "queries": Product,
    "affine": Pair,
    "abs_difference": Pair,
    "random_queries": Random,
    "linear": Linear,
    "where": Where,
    "sums": Sums,
    "means": Means,
}
"""Every kind of [[workload]] table, with its keys and how its queries are built."""


@dataclass(frozen=True)
class SpecEntry:
    """One [[workload]] table: its kind and its queries."""

    kind: str
    workload: Workload
    remarks: tuple[str, ...] = ()
    """Warnings about what is valid, but probably a mistake."""


def build_entries(
    tables: Sequence[object], schema: Schema | None, folder: Path, findings: Findings
) -> tuple[SpecEntry, ...]:
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
                for key in ("attributes", "attribute", "by"):
                    with within(key):
                        schema.positions(getattr(entry, key, None) or ())
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", QuerySmasherWarning)
                    workload = entry.weighed(entry.build(schema, folder))
                told = [w.message for w in caught if isinstance(w.message, QuerySmasherWarning)]
                remarks = tuple(f"{written(here)}: {remark.for_spec()}" for remark in told)
                entries.append(SpecEntry(kind, workload, remarks))
    return tuple(entries)


def _named(given: str) -> str:
    """Return the name of a family; refuse one that does not exist."""
    if given not in NAMED:
        raise WorkloadError(not_one_of(NAMED, given))
    return given


def _families(schema: Schema, given: Mapping[str, Any], key: str, folder: Path) -> dict[str, FamilyLike]:
    families: dict[str, FamilyLike] = {}
    for name, family in given.items():
        with within(key, name):
            families[name] = read_family(schema[name], family, folder)
    return families


def read_family(attribute: Attribute, given: Any, folder: Path) -> Family:
    """Return the family of an attribute; files are relative to `folder`."""
    if isinstance(given, str):
        return family_for(attribute, _named(given))
    if isinstance(given, list):
        return family_for(attribute, given)
    for key, (more, read) in FORMS.items() if isinstance(given, Mapping) else ():
        if key in given and set(given) <= {key, *more}:
            return read(attribute, given, folder)
    *forms, last = (f"{{{key} = …}}" for key in FORMS)
    raise WorkloadError(f"expected a name, a list of rows, {', '.join(forms)}, or {last}, got {shown(given)}")


def _rows(attribute: Attribute, given: Mapping[str, Any], folder: Path) -> Family:
    rows = given["rows"]
    return family_for(attribute, read_rows(folder, rows) if isinstance(rows, str) else rows)


def _hierarchy(attribute: Attribute, given: Mapping[str, Any], folder: Path) -> Family:
    """Return the hierarchy that a table describes."""
    leaves, codebook = given.get("leaves", True), given.get("codebook")
    if not isinstance(leaves, bool):
        raise WorkloadError(f"leaves: expected true or false, got {shown(leaves)}")
    if codebook is not None and not isinstance(codebook, str):
        raise WorkloadError(f"codebook: expected the name of a CSV file, got {shown(codebook)}")
    return titled_hierarchy(
        attribute,
        _levels(attribute, given["hierarchy"], folder),
        leaves=leaves,
        weights=given.get("weights"),
        codebook=None if codebook is None else folder / codebook,
    )


def _ranges(attribute: Attribute, table: Mapping[str, Any], folder: Path) -> Family:
    """Return chosen ranges, each from a first value to a last one."""
    given, weights = table["ranges"], table.get("weights")
    if isinstance(given, str):
        if weights is not None:
            raise WorkloadError("weights: a file of ranges has them in its third column")
        pairs, weights = _file_ranges(attribute, folder, given)
    elif isinstance(given, list) and given and all(isinstance(p, list) and len(p) == 2 for p in given):
        pairs = [(_index(attribute, first), _index(attribute, last)) for first, last in given]
    else:
        raise WorkloadError(
            "ranges: expected a list of pairs of values, [first, last], or the name of a CSV file, got "
            f"{shown(given)}"
        )
    wrong = next((number for number, (first, last) in enumerate(pairs, start=1) if first > last), None)
    if wrong is not None:
        raise WorkloadError(f"ranges: the first value of range {wrong:,} comes after its last one")
    first, last = np.array(pairs).T
    return Intervals((attribute.size,), first, last, weights)


def _index(attribute: Attribute, value: Any) -> int:
    try:
        return attribute.position(value)
    except SchemaError as error:
        raise WorkloadError(f"ranges: {error}") from None


def _file_ranges(
    attribute: Attribute, folder: Path, name: str
) -> tuple[list[tuple[int, int]], list[float] | None]:
    """Return the ranges of a file, and their weights if it has them. Messages do not quote the file."""
    _, lines = _below_header(folder, name, 3, "a first value, a last one and perhaps a weight")
    index = {label: index for index, label in enumerate(attribute.labels)}
    pairs: list[tuple[int, int]] = []
    weights: list[float] = []
    for number, (first, last, *weight) in lines:
        if first not in index or last not in index:
            msg = f"{name!r}, line {number}: expected two values of attribute {attribute.name!r}"
            raise WorkloadError(msg)
        pairs.append((index[first], index[last]))
        try:
            weights += map(float, weight)
        except ValueError:
            raise WorkloadError(f"{name!r}, line {number}: expected a number as weight") from None
    return pairs, weights or None


def read_rows(folder: Path, name: str) -> list[list[float]]:
    """Read queries from a CSV file: one row per query, one number per cell, no header."""
    rows = []
    for number, line in _lines(folder, name):
        try:
            rows.append([float(cell) for cell in line])
        except ValueError:
            raise WorkloadError(f"{name!r}, line {number}: expected numbers only, and no header") from None
        if len(rows[-1]) != len(rows[0]):
            expected = f"{count(len(rows[0]), 'number')}, as before"
            raise WorkloadError(f"{name!r}, line {number}: expected {expected}, got {len(rows[-1]):,}")
    return rows


def _levels(attribute: Attribute, given: Any, folder: Path) -> list[tuple[str | None, Any]]:
    """Return the name, if any, of each level, and the group of every value."""
    if isinstance(given, str):
        return _file_levels(attribute, folder, given)
    if isinstance(given, Mapping) and given:
        return [(title, _groups(attribute, level)) for title, level in given.items()]
    if not isinstance(given, list) or not given:
        raise WorkloadError(
            "hierarchy: expected a list of levels, a table of them, or the name of a CSV file, got "
            f"{shown(given)}"
        )
    return [(None, _groups(attribute, level)) for level in given]


def _file_levels(attribute: Attribute, folder: Path, name: str) -> list[tuple[str | None, Any]]:
    """Return the levels of a file. Messages do not quote it: it may be the private table by mistake."""
    header, lines = _below_header(folder, name, math.inf, "a value and its group at each level")
    known, groups = set(attribute.labels), {}
    for number, (value, *levels) in lines:
        if value not in known:
            problem = f"its first column is not a value of attribute {attribute.name!r}"
            raise WorkloadError(f"{name!r}, line {number}: {problem}")
        if value in groups:
            raise WorkloadError(f"{name!r}, line {number}: its value already has a line")
        groups[value] = levels
    if len(groups) < attribute.size:
        raise WorkloadError(
            f"{name!r}: a value of attribute {attribute.name!r} has no line; expected one for each of "
            f"{attribute.size:,}"
        )
    by_level = zip(*(groups[label] for label in attribute.labels), strict=True)
    return [(title.strip(), list(level)) for title, level in zip(header[1:], by_level, strict=True)]


def _below_header(
    folder: Path, name: str, most: float, what: str
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header of a CSV file, of 2 to `most` columns, and the numbered lines below it."""
    lines = _lines(folder, name)
    width = len(lines[0][1]) if len(lines) > 1 else 0
    if not 2 <= width <= most:
        raise WorkloadError(f"{name!r}: expected a header, then in each line {what}")
    for number, line in lines[1:]:
        if len(line) != width:
            msg = f"{name!r}, line {number}: expected {width} columns, as in the header, got {len(line)}"
            raise WorkloadError(msg)
    return lines[0][1], lines[1:]


def _groups(attribute: Attribute, level: Any) -> Any:
    if isinstance(level, list | str) or (isinstance(level, int) and not isinstance(level, bool)):
        return level  # groups in the order of the values, a column of a codebook, or a number of characters
    if not isinstance(level, Mapping):
        raise WorkloadError(
            "hierarchy: expected each level as a table of values and groups, a list, a number of "
            f"characters of codes, or a column of a codebook, got {shown(level)}"
        )
    if level and all(isinstance(values, list) for values in level.values()):
        named = dict(zip(attribute.labels, attribute.values, strict=True))
        return {group: [named.get(str(value), value) for value in values] for group, values in level.items()}
    labels = set(attribute.labels)
    strangers = [value for value in level if value not in labels]
    if strangers:
        hint = suggestion(strangers[0], attribute.labels)
        raise WorkloadError(f"hierarchy: attribute {attribute.name!r} has no value {strangers[0]!r}{hint}")
    missing = [label for label in attribute.labels if label not in level]
    if missing:
        msg = f"hierarchy: a level has no group for value {missing[0]!r} of attribute {attribute.name!r}"
        raise WorkloadError(msg)
    return [level[label] for label in attribute.labels]


def _lines(folder: Path, name: str) -> list[tuple[int, list[str]]]:
    """Return the non-empty records of a CSV file, each with its line number (of its last line)."""
    try:
        with (folder / name).open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            return [(reader.line_num, line) for line in reader if line]
    except (OSError, ValueError, csv.Error) as error:  # ValueError: not UTF-8, or not a path
        raise WorkloadError(f"the file {name!r} cannot be read ({type(error).__name__})") from None


FORMS: dict[str, tuple[tuple[str, ...], Callable[[Attribute, Mapping[str, Any], Path], Family]]] = {
    "rows": ((), _rows),
    "ranges": (("weights",), _ranges),
    "hierarchy": (("leaves", "weights", "codebook"), _hierarchy),
}
"""The tables that describe a family, by their first key: further keys, and the function that reads them."""
