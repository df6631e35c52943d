"""The estimates on the page about a release: their errors first, then estimates beside unbiased counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from querysmasher.arrays import Array, in_order
from querysmasher.estimate.errors import EstimateError, EstimateErrors
from querysmasher.estimate.estimate import Estimate
from querysmasher.formatting import count, settled, shortened
from querysmasher.html import Html, element, join, table
from querysmasher.release.released import Released
from querysmasher.report.page import asset
from querysmasher.report.release_data import FOLLOWS, Z95, Table, own_table

PAGE_CELLS, MAX_CELLS = 60_000, 10_000
"""Maximum number of cells of all tables that are shown, and of one; smaller tables come first."""

MARKED = (
    "† marks an estimate outside the 95% interval of its unbiased count. Noise alone causes such marks: if "
    "all estimates were exact, about 5 of 100 would be marked. Where a table has many more, its estimates "
    "are off by more than noise explains: trust its unbiased counts. Where it has no more, noise explains "
    "the marks, and they say nothing against the estimates. Nor does a mark beside an interval that is "
    "wholly below zero: such an interval has missed the count, and every estimate is outside it."
)
"""Which number to trust where the two disagree."""

LISTED = 10
"""Maximum number of tables whose errors are listed: the largest errors come first."""


class EstimateSection:
    """What a page says about an estimate."""

    def __init__(self, release: Released, estimate: Estimate) -> None:
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
        views = [("both", "both"), ("unbiased", "unbiased only"), ("estimate", "estimates only")]
        control = element(
            "div",
            element("label", "Table ", element("select", id="estimate-table")),
            element(
                "label",
                "show ",
                element(
                    "select", *(element("option", text, value=v) for v, text in views), id="estimate-view"
                ),
            ),
            class_="control",
        )
        left = f" Not shown here: {count(self.left_out, 'larger table')}. {FOLLOWS}" if self.left_out else ""
        exact = "one attribute" if self.estimate.schema.impossible_where else "one and two attributes"
        return join(
            [
                element("p", _words(self.errors, self.estimate.fallback)),
                element(
                    "div",
                    table(["table", "error", "of all records", ""], rows, numbers=[1, 2]),
                    class_="scroll",
                ),
                element(
                    "p",
                    "An estimate is non-negative and usually closer to the truth on sparse tables, but it is "
                    "biased: its cells have no standard errors. Estimates are rounded to a tenth. Tables on "
                    f"{exact} add up to the same totals but for rounding; larger tables do so nearly. The "
                    "unbiased count is noisier, and its interval holds for every single cell, "
                    f"whatever the estimate assumes; tables that were not measured have none.{left}",
                ),
                element("p", MARKED),
                control,
                element("div", element("table", id="estimate-cells"), class_="scroll"),
                element("p", id="estimate-note", class_="note"),
                element("button", "Show more", type="button", id="estimate-more"),
                element("script", asset("estimate.js")),
            ]
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
    apart = np.abs(values - own.values) > Z95 * own.std
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
