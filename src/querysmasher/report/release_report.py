"""The page about a release: tables, answers, estimates beside unbiased counts, the guarantee."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.arrays import Array, in_order
from querysmasher.estimate.estimate import Estimate
from querysmasher.estimate.estimate_errors import EstimateError
from querysmasher.formatting import count, decimal, number, settled, shortened
from querysmasher.guarantees import REACH, LeftOut, epsilon_words
from querysmasher.html import Html, element, join, scrolling, table
from querysmasher.release.release import Release
from querysmasher.report.charts import CONFIG, MOST_SERIES, cells_band, cells_bars, cells_heat
from querysmasher.report.page import (
    asset,
    checked_path,
    facts,
    figures,
    guarantee,
    markup,
    page,
    paragraph,
    write_page,
)
from querysmasher.report.release_data import (
    CROSS,
    FOLLOWS,
    MAX_CELLS,
    Table,
    deep_tables,
    fitting,
    not_shown,
    opening,
    percentage_errors,
    planned_answers,
    table_on,
    tables,
    total,
)
from querysmasher.report.words import schema_table, workload_table

PROVENANCE = {
    "organisation": "published by",
    "date": "date of release",
    "spec_digest": "spec (SHA-256)",
    "plan_digest": "plan (SHA-256)",
    "discovered": "discovered values",
}
"""Titles of the fields of a provenance whose names do not explain themselves."""

TITLE = "Private release"
"""The heading of a page if the release has no title."""


def write_release_report(
    release: Release,
    path: str | os.PathLike[str],
    title: str | None = None,
    estimate: Estimate | None = None,
) -> Path:
    """Write the page about a release, with its estimates if given, and return its path."""
    target = checked_path(path)
    heading = title or release.provenance.title or TITLE
    return write_page(target, release_page(release, heading, estimate))


def release_page(release: Release, title: str, estimate: Estimate | None = None) -> str:
    """Return the page as text, which has only noisy numbers."""
    shown, left_out = tables(release)
    deep = deep_tables(release)
    answers, listed_of = planned_answers(release)
    out, records = release.counted.left_out, total(release)
    listed = f"The list has {len(answers):,} of {listed_of:,}. {FOLLOWS}" if listed_of > len(answers) else ""
    stated = [("statistics", "Statistics", _statistics(release))] if release.statistics else []
    sections = [
        *stated,
        ("tables", "Tables", _tables(release, shown, deep, left_out)),
        *([("answers", "Other planned queries", markup("answers", listed=listed))] if answers else []),
        *([] if out is None else [("left-out", "What was left out", _left_out(out))]),
        ("guarantee", "The guarantee", _guarantee(release)),
        ("released", "What was released", _released(release)),
    ]
    data: dict[str, Any] = {
        "config": CONFIG,
        "charts": {"bars": cells_bars(), "band": cells_band(), "heat": cells_heat()},
        "cross": CROSS,
        "apart": percentage_errors(release, [*shown, *deep]),
        "deep": list(map(_table_data, deep)),
        "total": None if records is None else [settled(number) for number in records],
        "opening": opening(release, shown),
        "attributes": [
            {"name": a.heading, "ordered": a.ordered, "labels": _distinct(a.shown)} for a in release.schema
        ],
        "tables": list(map(_table_data, shown)),
        "answers": [[a.query, *_rounded([a.value], [a.std]), shortened(a.std, 4)] for a in answers],
        "series": MOST_SERIES,
        "reach": REACH,
    }
    mean = None
    if estimate is not None:
        mean, section, data["estimates"] = _estimated(release, estimate)
        sections.insert(0, ("estimates", "Estimates", section))
    summary = _summary(release, [*shown, *deep], records, mean)
    return page("release", title, summary, sections, data)


def _summary(
    release: Release,
    shown: Sequence[Table],
    records: tuple[float, float] | None,
    mean: tuple[str, str, str] | None,
) -> Html:
    private, whole = release.noise.is_private, release.counted.is_whole
    budget = epsilon_words(release.plan.budget) if private else ("none", "a simulation")
    ways = [sum(len(t.attributes) == way for t in shown) for way in (1, 2, 3)]
    words = ("one attribute", "two", "three")
    sets = ", ".join(f"{n:,} on {way}" for n, way in zip(ways, words, strict=True) if n)
    measured = f"on {count(len(release.plan.measured), 'attribute set')}"
    key_figures = [
        ("Budget", *budget),
        ("Noisy numbers", f"{release.measurements:,}", measured),
        ("Tables here", f"{len(shown):,}", sets),
    ]
    if records is not None:
        value, std = records
        known = "public, with these neighbours" if std == 0 else f"± {number(REACH * std)} (95%)"
        key_figures.insert(1, ("Records" if whole else "Records counted", decimal(value, 0), known))
    if mean is not None:
        key_figures.insert(0, mean)
    of_which = "" if whole else " for the records that were counted"
    biased = "" if mean is None else "The estimates come from the same noisy numbers, but are biased. "
    lead = (
        f"Noisy counts, consistent with each other and unbiased{of_which}. {biased}Everything on this page "
        "is computed from the released numbers, without reading the table again."
    )
    simulated = f"This is a simulation and protects nobody. {release.noise.description}"
    return join(
        [
            paragraph(None if private else simulated, "warning"),
            element("p", lead, class_="lead"),
            paragraph(release.counted.words()),
            figures(*key_figures),
        ]
    )


def _tables(release: Release, shown: Sequence[Table], deep: Sequence[Table], left_out: int) -> Html:
    if not shown:
        return element("p", "No table on one or two attributes follows from this release.")
    larger = f"Not shown here: {count(left_out, 'larger table')} on two attributes. {FOLLOWS}"
    missing = not_shown(release, [*shown, *deep])
    return markup(
        "tables",
        thirds=", and a value of a third where three were planned together" if deep else "",
        covered="the count in the table"
        if release.counted.is_whole
        else "the count of the records that were counted, not of all records in the table,",
        notes=join([paragraph(larger if left_out else None, "note"), paragraph(missing, "note")]),
    )


def _statistics(release: Release) -> Html:
    """Show the figures of all statistics, with their titles, notes and intervals."""
    said: list[object] = [
        markup(
            "statistics",
            covered=""
            if release.counted.is_whole
            else " of the records that were counted, not of all records",
        )
    ]
    for statistic in release.statistics:
        figures = statistic.of(release)
        header, rows, notes = figures.shown(ROWS, rest="the file of this statistic has all")
        about = len(figures.columns)
        numbers = range(about, len(header) - 1)
        body = scrolling(table([*header[:-1], "flag"], rows, numbers=numbers))
        said += [element("h3", figures.title), body, *(element("p", n, class_="note") for n in notes)]
    return join(said)


def _left_out(out: LeftOut) -> Html:
    """Say how many records were left out, and how many persons have records left out, by bin."""
    said = [element("p", out.words())]
    if out.measured.persons:
        reach = f"Each number of persons is noisy: ± {number(REACH * out.std)} (95%), so it may be negative."
        bins = table(["Records left out", "Persons"], out.rows(), numbers=[1])
        said += [scrolling(bins), element("p", reach, class_="note")]
    return join(said)


def _guarantee(release: Release) -> Html:
    if not release.noise.is_private:
        return element("p", release.guarantee, class_="warning")
    discrete = not release.noise.distribution.is_gaussian
    words = guarantee(release.plan.budget, discrete=discrete, counted=release.counted)
    also = (
        element("p", discovered, class_="warning") if (discovered := release.provenance.discovered) else None
    )
    return join([words, also, element("p", release.record, class_="ledger")])


def _released(release: Release) -> Html:
    sets = count(len(release.plan.measured), "attribute set")
    about = [
        ("noisy numbers", f"{release.measurements:,} on {sets}"),
        ("noise", release.noise.description),
        ("records, at most", f"{release.plan.max_records:,} (a public cap, not a count)"),
        *((PROVENANCE.get(name, name), word) for name, word in release.provenance.to_json().items()),
    ]
    return markup(
        "released",
        facts=facts(about),
        schema=schema_table(release.schema),
        workload=workload_table(release.workload.groups),
    )


def _table_data(table: Table) -> list[Any]:
    """Return a table for the page's script, with a single error if all cells have the same."""
    std = [shortened(float(s), 4) for s in table.std]
    return [list(table.attributes), _rounded(table.values, table.std), std[0] if len({*std}) == 1 else std]


def _rounded(values: Any, std: Any) -> list[float]:
    """Return values rounded to a hundredth of their error, which keeps the page small."""
    return [
        round(settled(v), min(max(2 - math.floor(math.log10(settled(s))), 0), 9)) + 0.0 if s > 0 else v
        for v, s in zip(map(float, values), map(float, std), strict=True)
    ]


def _distinct(labels: Sequence[str]) -> list[str]:
    """Return the labels, with equal ones numbered to distinguish them."""
    seen: dict[str, int] = {}
    result = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        result.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return result


ESTIMATE_CELLS = 60_000
"""Maximum number of cells of all estimated tables that are shown; smaller tables come first."""

ROWS = 200
"""Maximum number of figures of a statistic that are shown."""

LISTED = 10
"""Maximum number of tables whose errors are listed: the largest errors come first."""


def _estimated(release: Release, estimate: Estimate) -> tuple[tuple[str, str, str], Html, list[Any]]:
    """Return the mean error as a key figure, the section about the estimate, and its tables for the script.

    A table has attributes, estimates, unbiased counts and errors or null, and the indexes of the estimates
    outside the interval of their unbiased count.
    """
    errors, schema = estimate.errors(), estimate.schema
    sets = {tuple(sorted(schema.positions(g.attributes))) for g in estimate.workload if g.attributes}
    shown, left_out = fitting(schema, sets, MAX_CELLS, ESTIMATE_CELLS)
    each, mean = list(errors.each), errors.mean
    rows = [
        (" × ".join(error.tables[0]), f"{error.value:,.0f}", f"{error.share:.1%}", _interval(error))
        for error in (each[index] for index in in_order([-error.value for error in each])[:LISTED])
    ]
    how = (
        "This error was measured privately, as part of the budget, and its intervals hold whatever the "
        "estimate assumes."
        if mean.std is not None
        else "This error was not measured. The figure is model-based: it assumes that the table is like the "
        "estimate, so the true error is usually larger."
    )
    if mean.unbiased is not None:
        how += f" That of the unbiased tables is {mean.unbiased:,.0f} on average."
    said = (
        f"The estimated tables are wrong by {count(round(mean.value), 'record')} on average: the sum of the "
        f"absolute errors of all cells of a table, {mean.share:.1%} of all records."
    )
    section = markup(
        "estimates",
        words=" ".join(filter(None, [said, how, estimate.fallback, "The largest errors:"])),
        errors=table(["table", "error", "of all records", "95% interval"], rows, numbers=[1, 2]),
        exact="one attribute" if schema.impossible_where else "one and two attributes",
        left_out=f" Not shown here: {count(left_out, 'larger table')}. {FOLLOWS}" if left_out else "",
        script=asset("estimate.js"),
    )
    data: list[Any] = []
    for axes, values in zip(shown, estimate.model.tables(shown), strict=True):
        row: list[Any] = [list(axes), [round(float(v), 1) for v in values.ravel()], None, None, []]
        unbiased = table_on(release, axes)
        if unbiased is not None:
            row[2] = [round(settled(float(v)), 1) + 0.0 for v in unbiased.values]
            row[3] = [shortened(float(s), 3) for s in unbiased.std]
            row[4] = outside(values.ravel(), unbiased)
        data.append(row)
    remark = f"of the records, a mean over tables; {_reach(mean)}"
    return ("Error of the estimates", f"{mean.share:.1%}", remark), section, data


def outside(values: Array, unbiased: Table) -> list[int]:
    """Return the indexes of estimates outside the 95% interval of their unbiased count, if that is noisy."""
    apart = np.abs(values - unbiased.values) > REACH * unbiased.std
    return np.flatnonzero(apart & (unbiased.std > 0)).tolist()


def _reach(error: EstimateError) -> str:
    """Say how an error is known."""
    if error.std is None:
        return f"{error.kind}: assumes that the table is like the estimate"
    return f"{error.kind}; 95% interval {_interval(error)}"


def _interval(error: EstimateError) -> str:
    """Return the interval of an error as fractions of all records, if it was measured."""
    if error.std is None:
        return f"none: {error.kind}"
    low, high = (end / max(error.total, 1.0) for end in error.interval())
    return f"{low:.1%} to {high:.1%}"
