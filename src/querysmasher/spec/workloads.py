"""From the tables that describe queries to a workload."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from querysmasher.errors import QuerySmasherWarning, WorkloadError
from querysmasher.schema import Schema
from querysmasher.spec.families import read_family, read_rows
from querysmasher.spec.findings import Findings, not_one_of, within, written
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
    linear,
    marginals,
    queries,
    random_queries,
    where,
)
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.workload import Workload


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
