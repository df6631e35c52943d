"""Estimates in files: answers as tidy rows, the estimate itself, and its page."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from querysmasher.arrays import Array
from querysmasher.endings import PAGES, check_ending
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.estimate.estimate import Estimate, EstimateTidy
from querysmasher.fields import whole
from querysmasher.files import write_archive
from querysmasher.formats import format_of
from querysmasher.formatting import count, one_line
from querysmasher.html import Html, element, join
from querysmasher.html import table as html_table
from querysmasher.release.release_file import release_from_data, release_to_data
from querysmasher.release.writing import MAX_QUERIES, as_computed, write_tables
from querysmasher.report.page import POLICY, asset, markup, write_page
from querysmasher.schema import Schema
from querysmasher.workload.workload import Workload

MOST_PAIRS, MOST_CELLS = 60, 1_500
"""Maximum number of pairs on a page, and of cells of a pair."""

SWITCH = (
    "const box=document.getElementById('unbiased');"
    "box.addEventListener('change',()=>document.body.classList.toggle('both',box.checked));"
)

STYLE = ".unbiased{display:none;opacity:.65}.both .unbiased{display:revert}"


def write_estimates(
    estimate: Estimate,
    workload: Workload,
    path: str | os.PathLike[str],
    progress: bool | None,
    adopted: Callable[..., Iterable[Array]] = as_computed,
) -> None:
    """Write one row per query: what it counts, its value and the note that it is an estimate.

    The ending of the name decides the format; the file appears under its name only when it is complete.
    """
    form = format_of(path)
    form.check()
    tidy = EstimateTidy(workload, queries=workload.query_count <= MAX_QUERIES, safe=form.safe)
    about, answers = {**estimate.about, "note": estimate.note}, estimate.answers(workload)
    write_tables(path, form, tidy, about, ((values,) for values in answers), progress, adopted)


def save_estimate(estimate: Estimate, path: str | os.PathLike[str]) -> None:
    """Write an estimate to a file, all or nothing."""
    write_archive(path, "estimate", {"release": release_to_data(estimate.release), "seed": estimate.seed})


def estimate_from_data(data: dict[str, Any]) -> Estimate:
    """Return an estimate of the release in a file, in integers if there is a seed."""
    made = release_from_data(data["release"]).estimate()
    return made if data["seed"] is None else made.integers(seed=whole(data["seed"]))


def write_estimate_report(estimate: Estimate, path: str | os.PathLike[str], title: str | None) -> Path:
    """Write the page about an estimate, and return its path.

    It has tables on one and two attributes, with a switch for the unbiased values.
    """
    target = Path(path)
    check_ending(target, PAGES)
    schema = estimate.schema
    sections: list[Html] = []
    left_out = 0
    for order in (1, 2):
        shown = 0
        for subset in combinations(range(len(schema)), order):
            names = [schema.names[a] for a in subset]
            cells = math.prod(schema.sizes[a] for a in subset)
            if cells > MOST_CELLS or (order == 2 and shown >= MOST_PAIRS):
                left_out += 1
                continue
            shown += 1
            sections.append(_section(schema, names, estimate.marginal(*names), _unbiased(estimate, subset)))
    if left_out:
        sections.append(element("p", f"{count(left_out, 'larger or further table')} not shown."))
    unrounded = replace(estimate, seed=None).computed_by(estimate.model)
    error = ". ".join(filter(None, [str(unrounded.error()), unrounded.fallback]))
    page = markup(
        "estimate",
        policy=Html(POLICY),
        title=title or estimate.about.get("title") or "Estimate from a private release",
        style=join([asset("styles.css"), Html(STYLE)]),
        error=error if estimate.seed is None else f"before rounding, {error}",
        note=estimate.note,
        guarantee=estimate.guarantee,
        sections=join(sections),
        script=Html(SWITCH),
    )
    return write_page(target, f"{page}\n")


def _unbiased(estimate: Estimate, attributes: tuple[int, ...]) -> Array | None:
    """Return the unbiased table, or None if it was not measured."""
    try:
        return estimate.release.reconstruction.marginal(attributes)
    except OutsideMeasuredSpaceError:
        return None


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
