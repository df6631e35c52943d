"""The page about a release: tables, answers, estimates beside unbiased counts, the guarantee."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.arrays import Array, in_order
from querysmasher.estimate.errors import EstimateError, EstimateErrors
from querysmasher.estimate.estimate import Estimate
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
    Answer,
    Table,
    deep_tables,
    not_shown,
    opening,
    own_table,
    planned_answers,
    share_errors,
    tables,
    total,
)
from querysmasher.report.words import schema_table, workload_table

PROVENANCE = {
    "title": "title",
    "organisation": "published by",
    "contact": "contact",
    "date": "date of release",
    "data": "data",
    "version": "version",
    "spec_digest": "spec (SHA-256)",
    "plan_digest": "plan (SHA-256)",
}
"""Words about the provenance of a release."""

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
    found, left_out = tables(release)
    records = total(release)
    deep = deep_tables(release)
    answers, listed_of = planned_answers(release)
    whole, out = release.counted.is_whole, release.counted.left_out
    missing = not_shown(release, [*found, *deep])
    sections = [
        ("tables", "Tables", _tables(found, left_out, missing, bool(deep), whole)),
        ("answers", "Other planned queries", _answers(answers, listed_of)),
        *([] if out is None else [("left-out", "What was left out", _left_out(out))]),
        ("guarantee", "The guarantee", _guarantee(release)),
        ("released", "What was released", _released(release)),
    ]
    if not answers:
        del sections[1]
    estimated = None if estimate is None else EstimateSection(release, estimate)
    if estimated is not None:
        sections.insert(0, ("estimates", "Estimates", estimated.html()))
    data = {
        "config": CONFIG,
        "charts": {"bars": cells_bars(), "band": cells_band(), "heat": cells_heat()},
        "cross": CROSS,
        "apart": share_errors(release, found, deep),
        "deep": [[list(t.attributes), _numbers(t.values, t.std), _once(_shorter(t.std))] for t in deep],
        "total": None if records is None else [settled(number) for number in records],
        "opening": opening(release, found),
        "attributes": [
            {"name": a.heading, "ordered": a.ordered, "labels": _distinct(a.shown)}
            for a in release.plan.schema
        ],
        "tables": [[list(t.attributes), _numbers(t.values, t.std), _once(_shorter(t.std))] for t in found],
        "answers": [[a.label, *_numbers([a.value], [a.std]), *_shorter([a.std])] for a in answers],
        "series": MOST_SERIES,
        "reach": REACH,
    }
    if estimated is not None:
        data["estimates"] = estimated.data()
    return page("release", title, _summary(release, [*found, *deep], estimated), sections, data)


def _summary(release: Release, found: Sequence[Table], estimated: EstimateSection | None) -> Html:
    figure, remark = epsilon_words(release.plan.budget)
    records = total(release)
    ways = [sum(len(t.attributes) == way for t in found) for way in (1, 2, 3)]
    sets = ", ".join(
        f"{n:,} on {way}" for n, way in zip(ways, ("one attribute", "two", "three"), strict=True) if n
    )
    shown = [
        ("Budget", figure, remark) if release.noise.is_private else ("Budget", "none", "a simulation"),
        (
            "Noisy numbers",
            f"{release.measurements:,}",
            f"on {count(len(release.plan.measured), 'attribute set')}",
        ),
        ("Tables here", f"{len(found):,}", sets),
    ]
    if records is not None:
        value, std = records
        known = "public, with these neighbours" if std == 0 else f"± {number(REACH * std)} (95%)"
        name = "Records" if release.counted.is_whole else "Records counted"
        shown.insert(1, (name, decimal(value, 0), known))
    if estimated is not None:
        shown.insert(0, estimated.figure)
    simulated = f"This is a simulation and protects nobody. {release.noise.description}"
    return join(
        [
            paragraph(None if release.noise.is_private else simulated, "warning"),
            element("p", _lead(release, estimated is not None), class_="lead"),
            paragraph(release.counted.words()),
            figures(*shown),
        ]
    )


def _lead(release: Release, with_estimates: bool) -> str:
    """Say what kind of numbers the page has."""
    of_which = "" if release.counted.is_whole else " for the records that were counted"
    biased = "The estimates come from the same noisy numbers, but are biased. " if with_estimates else ""
    return (
        f"Noisy counts, consistent with each other and unbiased{of_which}. {biased}Everything on this page "
        "is computed from the released numbers, without reading the table again."
    )


def _tables(
    found: Sequence[Table], left_out: int, missing: str | None, has_thirds: bool, whole: bool
) -> Html:
    if not found:
        return element("p", "No table on one or two attributes follows from this release.")
    larger = f"Not shown here: {count(left_out, 'larger table')} on two attributes. {FOLLOWS}"
    return markup(
        "tables",
        thirds=", and a value of a third where three were planned together" if has_thirds else "",
        covered="the count in the table"
        if whole
        else "the count of the records that were counted, not of all records in the table,",
        notes=join([paragraph(larger if left_out else None, "note"), paragraph(missing, "note")]),
    )


def _answers(answers: Sequence[Answer], listed_of: int) -> Html:
    listed = f"The list has {len(answers):,} of {listed_of:,}. {FOLLOWS}" if listed_of > len(answers) else ""
    return markup("answers", listed=listed)


def _left_out(out: LeftOut) -> Html:
    """Say how many records were left out, and how many persons lack how many."""
    said = [element("p", out.words())]
    if out.measured.persons:
        reach = f"Each number of persons is noisy: ± {number(REACH * out.std)} (95%), so it may be negative."
        bins = table(["Records left out", "Persons"], out.rows(), numbers=[1])
        said += [scrolling(bins), element("p", reach, class_="note")]
    return join(said)


def _guarantee(release: Release) -> Html:
    if not release.noise.is_private:
        return element("p", release.guarantee, class_="warning")
    return join(
        [
            guarantee(
                release.plan.budget,
                discrete=not release.noise.distribution.is_gaussian,
                counted=release.counted,
            ),
            element("p", release.record, class_="ledger"),
        ]
    )


def _released(release: Release) -> Html:
    about = [
        (
            "noisy numbers",
            f"{release.measurements:,} on {count(len(release.plan.measured), 'attribute set')}",
        ),
        ("noise", release.noise.description),
        ("records, at most", f"{release.plan.max_records:,} (a public cap, not a count)"),
        *((PROVENANCE[name], word) for name, word in release.provenance.to_json().items()),
    ]
    return markup(
        "released",
        facts=facts(about),
        schema=schema_table(release.plan.schema),
        workload=workload_table(release.workload.groups),
    )


def _numbers(values: Any, std: Any) -> list[float]:
    """Return values rounded to a hundredth of their error, which keeps the page small."""
    return [
        round(settled(v), min(max(2 - math.floor(math.log10(settled(s))), 0), 9)) + 0.0 if s > 0 else v
        for v, s in zip(map(float, values), map(float, std), strict=True)
    ]


def _shorter(std: Any) -> list[float]:
    return [shortened(float(s), 4) for s in std]


def _once(std: list[float]) -> list[float] | float:
    """Return a single error if all cells of a table have the same."""
    return std[0] if len(set(std)) == 1 else std


def _distinct(labels: Sequence[str]) -> list[str]:
    """Return the labels, with equal ones numbered to distinguish them."""
    seen: dict[str, int] = {}
    result = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        result.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return result


PAGE_CELLS, MAX_CELLS = 60_000, 10_000
"""Maximum number of cells of all tables that are shown, and of one; smaller tables come first."""

LISTED = 10
"""Maximum number of tables whose errors are listed: the largest errors come first."""


class EstimateSection:
    """What a page says about an estimate."""

    def __init__(self, release: Release, estimate: Estimate) -> None:
        """Compute the errors of all tables asked for, and choose those that are shown."""
        self.release = release
        self.estimate = estimate
        self.errors = estimate.errors()
        sizes = estimate.schema.sizes
        asked = {tuple(sorted(estimate.schema.positions(g.attributes))) for g in estimate.workload}
        by_size = sorted((math.prod(sizes[a] for a in place), place) for place in asked if place)
        self.places: list[tuple[int, ...]] = []
        cells = 0
        for size, place in by_size:
            if size <= MAX_CELLS and cells + size <= PAGE_CELLS:
                self.places.append(place)
                cells += size
        self.left_out = len(by_size) - len(self.places)

    @property
    def figure(self) -> tuple[str, str, str]:
        """The mean error, for the key figures of the page."""
        mean = self.errors.mean
        return (
            "Error of the estimates",
            f"{mean.share:.1%}",
            f"of the records, a mean over tables; {_reach(mean)}",
        )

    def html(self) -> Html:
        """Return the section."""
        each = list(self.errors.each)
        worst = [each[place] for place in in_order([-one.value for one in each])[:LISTED]]
        rows = [
            (" × ".join(one.tables[0]), f"{one.value:,.0f}", f"{one.share:.1%}", _reach(one)) for one in worst
        ]
        left = f" Not shown here: {count(self.left_out, 'larger table')}. {FOLLOWS}" if self.left_out else ""
        return markup(
            "estimates",
            words=_words(self.errors, self.estimate.fallback),
            errors=table(["table", "error", "of all records", ""], rows, numbers=[1, 2]),
            exact="one attribute" if self.estimate.schema.impossible_where else "one and two attributes",
            left_out=left,
            script=asset("estimate.js"),
        )

    def data(self) -> list[list[Any]]:
        """Return the tables for the script: attributes, estimates, unbiased counts and errors or null, marks.

        The marks are the indexes of estimates outside the interval of their unbiased count.
        """
        result: list[list[Any]] = []
        for place, values in zip(self.places, self.estimate.model.tables(self.places), strict=True):
            row: list[Any] = [list(place), [round(float(v), 1) for v in values.ravel()], None, None, []]
            own = own_table(self.release, place)
            if own:
                row[2] = [round(settled(float(v)), 1) + 0.0 for v in own[0].values]
                row[3] = [shortened(float(s), 3) for s in own[0].std]
                row[4] = outside(values.ravel(), own[0])
            result.append(row)
        return result


def outside(values: Array, own: Table) -> list[int]:
    """Return the indexes of estimates outside the 95% interval of their unbiased count, if that is noisy."""
    apart = np.abs(values - own.values) > REACH * own.std
    return [int(i) for i in np.flatnonzero(apart & (own.std > 0))]


def _reach(error: EstimateError) -> str:
    if error.std is None:
        return f"{error.kind}: assumes that the table is like the estimate"
    low, high = (end / max(error.total, 1.0) for end in error.interval())
    return f"{error.kind}; 95% interval {low:.1%} to {high:.1%}"


def _words(errors: EstimateErrors, fallback: str) -> str:
    mean = errors.mean
    how = (
        "This error was measured privately, as part of the budget, and its intervals hold whatever the "
        "estimate assumes."
        if mean.std is not None
        else "This error was not measured. The figure is model-based: it shows what noise does, not what "
        "nobody measured, and is usually too small."
    )
    unbiased = (
        "" if mean.unbiased is None else f" That of the unbiased tables is {mean.unbiased:,.0f} on average."
    )
    unbiased += f" {fallback}" if fallback else ""
    return (
        f"The estimated tables are wrong by {mean.value:,.0f} records on average: the sum of the absolute "
        f"errors of all cells of a table, {mean.share:.1%} of all records. {how}{unbiased} The largest "
        "errors:"
    )
