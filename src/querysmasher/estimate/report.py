"""The page about an estimate: tables on one and two attributes, with a switch for the unbiased values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.arrays import Array
from querysmasher.endings import check_ending
from querysmasher.files import replacing
from querysmasher.formatting import count, one_line
from querysmasher.html import Html, element
from querysmasher.html import table as html_table
from querysmasher.report.page import ENDINGS, POLICY, asset
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
    heading = title or about.get("title") or "Estimate from a private release"
    sections: list[Html] = []
    left_out = 0
    for order in (1, 2):
        shown = 0
        for places in combinations(range(len(schema)), order):
            names = [schema.names[a] for a in places]
            cells = int(np.prod([schema.sizes[a] for a in places]))
            if cells > MOST_CELLS or (order == 2 and shown >= MOST_PAIRS):
                left_out += 1
                continue
            shown += 1
            sections.append(_section(schema, names, estimated(*names), unbiased(places)))
    more = element("p", f"{count(left_out, 'larger or further table')} not shown.") if left_out else None
    body = element(
        "body",
        element(
            "header",
            element("p", "QuerySmasher", element("span", "estimate"), class_="brand"),
            element("h1", heading),
            element("p", str(about["error"]), class_="lead"),
            element("p", element("strong", str(about["note"]))),
            element("p", str(about["guarantee"])),
            element(
                "p",
                element(
                    "label", element("input", type="checkbox", id="unbiased"), " show unbiased values too"
                ),
            ),
        ),
        element("main", *sections, more),
        element("script", Html(SWITCH)),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{heading} · QuerySmasher"),
        element("style", asset("styles.css"), Html(STYLE)),
    )
    with replacing(target) as temporary:
        temporary.write_text(f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n", encoding="utf-8")
    return target


def _section(schema: Schema, names: list[str], values: Array, raw: Array | None) -> Html:
    """Return one table, with the last attribute in columns."""
    heading = element("h2", " × ".join(map(one_line, names)))
    rows = [one_line(label) for label in schema[names[0]].shown]
    if len(names) == 1:
        head = [one_line(names[0]), "estimate", element("span", "unbiased", class_="unbiased")]
        lines = [[row, _number(values[i]), _raw(raw, (i,))] for i, row in enumerate(rows)]
    else:
        head = ["", *(one_line(label) for label in schema[names[1]].shown)]
        lines = [
            [row, *(_both(values[i, j], raw, (i, j)) for j in range(values.shape[1]))]
            for i, row in enumerate(rows)
        ]
    wide = html_table(head, lines, numbers=list(range(1, len(head))))
    return element("section", heading, element("div", wide, class_="scroll"))


def _number(value: float) -> str:
    return f"{value:,.1f}"


def _raw(raw: Array | None, cell: tuple[int, ...]) -> Html:
    said = "not measured" if raw is None else _number(float(raw[cell]))
    return element("span", said, class_="unbiased")


def _both(value: float, raw: Array | None, cell: tuple[int, ...]) -> Html:
    return element("span", _number(value), " ", _raw(raw, cell))
