"""The page about a release."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from querysmasher.estimate.estimate import Estimate
from querysmasher.formatting import count, decimal, number, settled, shortened
from querysmasher.html import Html, element, join, scrolling, search_box, table
from querysmasher.release.released import Released
from querysmasher.report.charts import CONFIG, MOST_SERIES, cells_band, cells_bars, cells_heat
from querysmasher.report.cross_data import deep_tables, not_shown, opening, total_data
from querysmasher.report.estimate_section import EstimateSection
from querysmasher.report.guarantees import epsilon_words, guarantee
from querysmasher.report.left_out import LeftOut
from querysmasher.report.page import chart, checked_path, figures, page, write_page
from querysmasher.report.release_data import FOLLOWS, Z95, Answer, Table, planned_answers, tables, total
from querysmasher.report.share_data import CROSS, share_errors
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
    release: Released,
    path: str | os.PathLike[str],
    title: str | None = None,
    estimate: Estimate | None = None,
) -> Path:
    """Write the page about a release, with its estimates if given, and return its path."""
    target = checked_path(path)
    heading = title or release.provenance.title or TITLE
    return write_page(target, release_page(release, heading, estimate))


def release_page(release: Released, title: str, estimate: Estimate | None = None) -> str:
    """Return the page as text, which has only noisy numbers."""
    found, left_out = tables(release)
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
        "total": total_data(release),
        "opening": opening(release, found),
        "attributes": [
            {"name": a.heading, "ordered": a.ordered, "labels": _distinct(a.shown)}
            for a in release.plan.schema
        ],
        "tables": [[list(t.attributes), _numbers(t.values, t.std), _once(_shorter(t.std))] for t in found],
        "answers": [[a.label, *_numbers([a.value], [a.std]), *_shorter([a.std])] for a in answers],
        "series": MOST_SERIES,
        "reach": Z95,
    }
    if estimated is not None:
        data["estimates"] = estimated.data()
    return page("release", title, _summary(release, [*found, *deep], estimated), sections, data)


def _summary(release: Released, found: Sequence[Table], estimated: EstimateSection | None) -> Html:
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
        known = "public, with these neighbours" if std == 0 else f"± {number(Z95 * std)} (95%)"
        name = "Records" if release.counted.is_whole else "Records counted"
        shown.insert(1, (name, decimal(value, 0), known))
    if estimated is not None:
        shown.insert(0, estimated.figure)
    return join(
        [
            _simulation(release),
            element("p", _lead(release, estimated is not None), class_="lead"),
            None if release.counted.is_whole else element("p", release.counted.words()),
            figures(*shown),
        ]
    )


def _lead(release: Released, with_estimates: bool) -> str:
    """Say what kind of numbers the page has."""
    of_which = "" if release.counted.is_whole else " for the records that were counted"
    biased = "The estimates come from the same noisy numbers, but are biased. " if with_estimates else ""
    return (
        f"Noisy counts, consistent with each other and unbiased{of_which}. {biased}Everything on this page "
        "is computed from the released numbers, without reading the table again."
    )


def _simulation(release: Released) -> Html | None:
    if release.noise.is_private:
        return None
    return element(
        "p", "This is a simulation and protects nobody. ", release.noise.description, class_="warning"
    )


def _tables(
    found: Sequence[Table], left_out: int, missing: str | None, has_thirds: bool, whole: bool
) -> Html:
    if not found:
        return element("p", "No table on one or two attributes follows from this release.")
    control = element(
        "div",
        element("label", "Attribute ", element("select", id="first")),
        element("label", "by ", element("select", id="second")),
        element("label", "within ", element("select", id="within")),
        element("label", "show ", element("select", id="view")),
        class_="control sticky",
    )
    percents = [("", "counts"), ("row", "% of row"), ("column", "% of column"), ("total", "% of total")]
    choice = element("select", *(element("option", text, value=v) for v, text in percents), id="percent")
    cross = element(
        "div",
        element("div", element("table", id="cross"), class_="scroll"),
        element("p", id="cross-note", class_="note"),
        id="crossing",
        hidden=True,
    )
    buttons = ("save-csv", "Table as CSV"), ("save-svg", "Chart as SVG"), ("save-png", "Chart as PNG")
    saving = element(
        "div",
        *(element("button", text, type="button", id=name) for name, text in (*buttons, ("print", "Print …"))),
        class_="control",
    )
    return join(
        [
            element(
                "p",
                "Choose one attribute or two",
                ", and a value of a third where three were planned together. " if has_thirds else ". ",
                "Bars and bands are 95% intervals for the noise: each covers ",
                "the count in the table"
                if whole
                else "the count of the records that were counted, not of all records in the table,",
                " 95 times out of 100. Small counts may come out negative.",
            ),
            control,
            element(
                "div",
                element("label", "in cells ", choice),
                element("span", id="percent-off", class_="note"),
                id="percents",
                class_="control",
            ),
            cross,
            element("div", id="legend", class_="legend"),
            chart("chart", element("span", id="caption")),
            saving,
            search_box("filter", "found", "Filter rows, e.g. by value", "Filter rows"),
            element("div", element("table", id="cells"), class_="scroll"),
            element("button", "Show more", type="button", id="more"),
            element(
                "p",
                f"Not shown here: {count(left_out, 'larger table')} on two attributes. {FOLLOWS}",
                class_="note",
            )
            if left_out
            else None,
            element("p", missing, class_="note") if missing else None,
            element("div", id="paper"),
            _printing(),
        ]
    )


def _printing() -> Html:
    """Return the dialog that asks what to print."""

    def option(value: str) -> Html:
        button = element("input", type="radio", name="printing", value=value, id=f"print-{value}")
        return element("p", element("label", button, " ", element("span", id=f"print-{value}-words")))

    buttons = (("print-now", "Print"), ("print-not", "Cancel"))
    return element(
        "dialog",
        element("h3", "What to print"),
        *map(option, ("shown", "all")),
        element(
            "p",
            *(element("button", text, type="button", id=name) for name, text in buttons),
            class_="control",
        ),
        id="printing",
        aria_label="What to print",
    )


def _answers(answers: Sequence[Answer], listed_of: int) -> Html:
    said = f"The list has {len(answers):,} of {listed_of:,}. {FOLLOWS}" if listed_of > len(answers) else ""
    return join(
        [
            element("p", f"Planned queries other than single cells of a table. {said}"),
            search_box("answer-filter", "answers-found", "Filter queries", "Filter queries"),
            element("div", element("table", id="queries"), class_="scroll"),
            element("button", "Show more", type="button", id="more-answers"),
        ]
    )


def _left_out(out: LeftOut) -> Html:
    """Say how many records were left out, and how many persons lack how many."""
    said = [element("p", out.words())]
    if out.asked.persons:
        reach = f"Each number of persons is noisy: ± {number(Z95 * out.std)} (95%), so it may be negative."
        bins = table(["Records left out", "Persons"], out.rows(), numbers=[1])
        said += [scrolling(bins), element("p", reach, class_="note")]
    return join(said)


def _guarantee(release: Released) -> Html:
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


def _released(release: Released) -> Html:
    facts = [
        (
            "noisy numbers",
            f"{release.measurements:,} on {count(len(release.plan.measured), 'attribute set')}",
        ),
        ("noise", release.noise.description),
        ("records, at most", f"{release.plan.max_records:,} (a public cap, not a count)"),
        *((PROVENANCE[name], word) for name, word in release.provenance.to_json().items()),
    ]
    items = (join([element("dt", name), element("dd", value)]) for name, value in facts)
    return join(
        [
            element("dl", *items, class_="facts"),
            element("h3", "Attributes"),
            schema_table(release.plan.schema),
            element("h3", "What was planned"),
            workload_table(release.workload.groups),
            element(
                "p",
                "Any other query that follows from these numbers can be asked later, at no further "
                "privacy cost.",
            ),
        ]
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
