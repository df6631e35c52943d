"""The [[statistics]] tables of a spec: what a release could not answer is refused before it is measured."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import QuerySmasherError, SpecError
from querysmasher.planning.plan import Plan
from querysmasher.release.answers import Answers
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings, LocatedError, within, written
from querysmasher.statistics.contrasts import Statistical
from querysmasher.statistics.statistic import KINDS, Statistic, read_statistics
from querysmasher.workload.builders import as_workload
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload


class Expected(Statistical):
    """Answers of 1 to whatever a plan, or without one any plan on a schema, can answer."""

    def __init__(self, schema: Schema, plan: Plan | None = None) -> None:
        """Take a schema and perhaps a plan."""
        self.workload = Workload(schema, (Group((), ()),))
        self.asked: list[Group] = []
        """What was answered."""
        self._plan = plan

    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> Answers:
        """Return 1 for every query, with the standard error that is expected."""
        wanted = self.workload if workload is None else as_workload(self.schema, workload)
        self.asked += wanted.groups
        values = np.ones(wanted.query_count)
        return Answers(
            wanted, values, values if self._plan is None else np.sqrt(self._plan.variances(wanted))
        )

    def covariance(self, workload: Workload, other: Workload | None = None) -> Array:
        """Return zeros: no statistic is refused because of them."""
        return np.zeros((len(workload), len(workload if other is None else other)))


def build_statistics(
    tables: Sequence[object], schema: Schema | None, findings: Findings
) -> tuple[Statistic, ...]:
    """Return the statistics of the tables, or record their problems; without a schema, only check keys."""
    stated = []
    for number, table in enumerate(tables):
        here = ("statistics", number)
        if not isinstance(table, Mapping):
            findings.add(here, "expected a table with a kind")
        elif findings.choice(table, "kind", KINDS, here):
            needed, more = KINDS[table["kind"]]
            with findings.at(here, {*table, *needed, *more}):
                statistic = Statistic.read(table, str(number + 1))
                stated.append(table)
                if schema is not None:
                    _try(statistic, Expected(schema))
    with findings.at(("statistics",)):
        return read_statistics(stated)
    return ()


def _try(statistic: Statistic, source: Expected) -> None:
    """Refuse a statistic that no release has; errors in its operands name these."""
    for key, operand in statistic.arguments.items():
        if isinstance(operand, Statistic):
            with within(key):
                _try(operand, source)
    try:
        statistic.of(source)
    except QuerySmasherError as error:
        problem = error.for_spec()
        is_named = problem.partition(": ")[0] in statistic.arguments
        found = None if is_named else _quoted(statistic.arguments, problem)
        if found is None:
            raise
        raise LocatedError((found,), problem) from None


def _quoted(arguments: Mapping[str, object], problem: str) -> str | None:
    """Return the argument with the word that a problem quotes first: most know only what was in it."""
    word = next(iter(re.findall("'(.*?)'", problem)), "")
    for key, value in arguments.items():
        given = value if isinstance(value, list) else [value]
        if word and any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", str(each)) for each in given):
            return key
    return None


def check_asked(
    statistics: Sequence[Statistic], workload: Workload, exact: Sequence[Sequence[object]], file: str
) -> None:
    """Refuse statistics that do not follow from the queries and the exact counts.

    A product of queries that vary with each of some attributes is no sum of queries on other sets. On each of
    these attributes, it is a sum of planned queries and constants. Queries that tie attributes may be such
    sums, and not all sums are: `check_planned` has the last word.
    """
    may_follow = cache(_may_follow)
    for number, statistic in enumerate(statistics):
        statistic.of(source := Expected(workload.schema))
        for group in source.asked:
            varying = {
                names[0]: f
                for names, f in group.parts()
                if len(names) == 1 and not may_follow(f, frozenset())
            }
            needed = varying.keys()
            about = [dict(planned.parts()) for planned in workload if needed <= set(planned.attributes)]
            if any(needed <= set(names) for names in exact) or (
                about
                and all(may_follow(f, frozenset(on.get((n,)) for on in about)) for n, f in varying.items())
            ):
                continue
            listed = [name for name in workload.schema.names if name in needed]
            numbers = [
                s.arguments["attribute"] for s in _with_operands(statistic) if s.kind in ("mean", "total")
            ]
            of = next((name for name in numbers if name in needed), None)
            by = [name for name in listed if name != of]
            table = f'kind = "tables", tables = {json.dumps([listed])}'
            means = f'kind = "means", attribute = "{of}", by = {json.dumps(by)}'
            words = " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
            together = " together" if len(listed) > 1 else ""
            why = f"only others about {words} are planned" if about else f"{words} were not planned{together}"
            raise SpecError(
                f"{file}: {written(('statistics', number))}: the queries on ({', '.join(group.attributes)}) "
                f"cannot be answered: {why}. Add [[workload]] {table if of is None else means}"
            )


MOST_WORK = 10**9
"""Maximum number of products to find out whether queries follow from others."""


def _may_follow(asked: Family, planned: frozenset[Family | None]) -> bool:
    """Return whether queries are sums of planned ones and constants, as far as that is easily known."""
    known = [family for family in planned if family is not None]
    rows = sum(family.rows for family in known)
    if len(known) < len(planned) or rows >= asked.cells - 1 or rows**2 * asked.cells > MOST_WORK:
        return True
    if asked.closed_form or not asked.fits_memory:  # its queries are independent
        return 0 < rows >= asked.rows - 1
    scaled = np.vstack([m / (np.abs(m).max() or 1) for m in (f.matrix() for f in (*known, asked))])
    centred = (scaled - scaled.mean(axis=1, keepdims=True)).T
    found, wanted = centred[:, :rows], centred[:, rows:]
    left = wanted - found @ np.linalg.lstsq(found, wanted, rcond=None)[0] if rows else wanted
    return bool(np.abs(left).max() <= 1e-6)


def _with_operands(statistic: Statistic) -> list[Statistic]:
    """Return a statistic and those that it compares."""
    operands = [value for value in statistic.arguments.values() if isinstance(value, Statistic)]
    return [statistic, *(inner for operand in operands for inner in _with_operands(operand))]


def check_planned(statistics: Sequence[Statistic], plan: Plan, file: str) -> None:
    """Refuse statistics that do not follow from what a plan measures."""
    for number, statistic in enumerate(statistics):
        try:
            statistic.of(Expected(plan.workload.schema, plan))
        except QuerySmasherError as error:
            where = written(("statistics", number))
            raise SpecError(f"{file}: {where}: {error.for_spec()}") from None
