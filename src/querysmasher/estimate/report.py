"""The page about an estimate: tables on one and two attributes, with a switch for the unbiased values."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from querysmasher.arrays import Array
from querysmasher.files import check_ending
from querysmasher.formatting import count, one_line
from querysmasher.html import Html, element, join
from querysmasher.html import table as html_table
from querysmasher.report.page import ENDINGS, POLICY, asset, markup, write_page
from querysmasher.schema import Schema

MOST_PAIRS, MOST_CELLS = 60, 1_500
"""Maximum number of pairs on a page, and of cells of a pair."""

SWITCH = (
    "const box=document.getElementById('unbiased');"
    "box.addEventListener('change',()=>document.body.classList.toggle('both',box.checked));"
)

STYLE = ".unbiased{display:none;opacity:.65}.both .unbiased{display:revert}"


def write_estimate_report(
    schema: Schema,
    estimated: Callable[..., Array],
    unbiased: Callable[[tuple[int, ...]], Array | None],
    about: Mapping[str, Any],
    path: str | os.PathLike[str],
    title: str | None,
) -> Path:
    """Write the page and return its path.

    `estimated` returns the table on some attributes, by name; `unbiased` the same by index, or None.
    """
    target = Path(path)
    check_ending(target, ENDINGS)
    sections: list[Html] = []
    left_out = 0
    for order in (1, 2):
        shown = 0
        for places in combinations(range(len(schema)), order):
            names = [schema.names[a] for a in places]
            cells = math.prod(schema.sizes[a] for a in places)
            if cells > MOST_CELLS or (order == 2 and shown >= MOST_PAIRS):
                left_out += 1
                continue
            shown += 1
            sections.append(_section(schema, names, estimated(*names), unbiased(places)))
    if left_out:
        sections.append(element("p", f"{count(left_out, 'larger or further table')} not shown."))
    text = markup(
        "estimate",
        policy=Html(POLICY),
        title=title or about.get("title") or "Estimate from a private release",
        style=join([asset("styles.css"), Html(STYLE)]),
        error=about["error"],
        note=about["note"],
        guarantee=about["guarantee"],
        sections=join(sections),
        script=Html(SWITCH),
    )
    return write_page(target, f"{text}\n")


def _section(schema: Schema, names: list[str], values: Array, raw: Array | None) -> Html:
    """Return one table, with the last attribute in columns."""
    heading = element("h2", " × ".join(map(one_line, names)))
    rows = [one_line(label) for label in schema[names[0]].shown]

    def unbiased(*cell: int) -> Html:
        words = "not measured" if raw is None else f"{raw[cell]:,.1f}"
        return element("span", words, class_="unbiased")

    if len(names) == 1:
        head = [one_line(names[0]), "estimate", element("span", "unbiased", class_="unbiased")]
        lines = [[row, f"{values[i]:,.1f}", unbiased(i)] for i, row in enumerate(rows)]
    else:
        head = ["", *(one_line(label) for label in schema[names[1]].shown)]
        lines = [
            [
                row,
                *(element("span", f"{value:,.1f}", " ", unbiased(i, j)) for j, value in enumerate(values[i])),
            ]
            for i, row in enumerate(rows)
        ]
    wide = html_table(head, lines, numbers=list(range(1, len(head))))
    return element("section", heading, element("div", wide, class_="scroll"))
