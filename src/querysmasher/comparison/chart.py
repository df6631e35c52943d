"""The chart of a comparison: how far each mechanism is above the best, in the style of the pages.

Pictures for the screen (SVG, HTML) follow the reader's light or dark setting and the width of the page;
those for paper (PNG, PDF) have the light colours.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from querysmasher.arrays import TIE
from querysmasher.errors import PlanError
from querysmasher.files import replacing
from querysmasher.formatting import settled
from querysmasher.report.charts import ACCENT, CONFIG, INK, MUTED, altair, vl_convert
from querysmasher.report.page import asset

CHARTS = (".html", ".svg", ".png", ".pdf", ".json")
"""Endings of the names of charts."""

WIDTH, STEP = 560, 38

Bar = tuple[str, float]
"""A mechanism, and its error."""


def comparison_chart(
    bars: Sequence[Bar], title: str, what: str = "RMSE", path: str | os.PathLike[str] | None = None
) -> Any:
    """Return the chart (altair), in the light colours; also write it, in the format that `path` ends in."""
    spec = _spec(bars, title, what)
    chart = altair().Chart.from_dict(_coloured(spec))
    if path is None:
        return chart
    form = chart_format(path)
    with replacing(path) as temporary:
        if form in ("svg", "html"):
            made = _svg(spec)
            if form == "html":  # without scripts
                made = (
                    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
                    'content="width=device-width, initial-scale=1"><meta name="color-scheme" '
                    f'content="light dark"><title>{escape(title)} · QuerySmasher</title><style>'
                    "body { margin: 1rem; background: var(--paper); }</style></head>"
                    f"<body>{made}</body></html>\n"
                )
            temporary.write_text(made, encoding="utf-8")
        else:
            chart.save(str(temporary), format=form)
    return chart


def chart_format(path: str | os.PathLike[str]) -> str:
    """Return the file format that the name of a chart implies; refuse an unknown one."""
    suffix = Path(path).suffix.lower()
    if suffix not in CHARTS:
        raise PlanError(
            f"path: expected a name that ends in one of {', '.join(CHARTS)}, got {os.fspath(path)!r}"
        )
    return suffix[1:]


def _spec(bars: Sequence[Bar], title: str, what: str) -> dict[str, Any]:
    """Return the specification, in colours that are variables of a page."""
    alt = altair()
    best = min((error for _, error in bars), default=1.0)
    above = [100 * (settled(error / best) - 1) for _, error in bars]
    data = [
        {
            "mechanism": name,
            "above": percent,
            "label": f"{settled(error):,.4g}  ({f'+{percent:.1f}%' if error > best * (1 + TIE) else 'best'})",
        }
        for (name, error), percent in zip(bars, above, strict=True)
    ]
    wide = 7.6 * max((len(name) for name, _ in bars), default=0)  # as wide as any reader's font
    axis = alt.Axis(
        labelLimit=260, minExtent=min(wide, 260), labelColor=INK, ticks=False, domain=False, labelPadding=8
    )
    y = alt.Y("mechanism:N", sort=None, title=None, axis=axis)
    percents = alt.Axis(labelExpr="datum.label + '%'", tickCount=5)
    room = alt.Scale(domain=[0, 1.35 * max(above, default=0.0) or 1], nice=False)
    x = alt.X("above:Q", title=f"{what} above the best, in %", axis=percents, scale=room)
    base = alt.Chart(alt.InlineData(values=data)).encode(y=y, x=x)
    drawn = base.mark_bar(color=ACCENT, height=12, opacity=0.75, cornerRadiusEnd=2)
    label = base.mark_text(align="left", dx=6, color=MUTED).encode(text="label:N")
    heading = alt.TitleParams(title, color=INK, anchor="start", fontSize=14, fontWeight="normal")
    chart = alt.layer(drawn, label).properties(width=WIDTH, height=STEP * max(len(data), 1), title=heading)
    return {**chart.to_dict(), "config": CONFIG}


def _coloured(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a specification with the light colours written out."""
    colours = dict(re.findall(r"--([\w-]+): (#\w+);", asset("styles.css").partition("}")[0]))
    text = re.sub(r"var\(--([\w-]+)\)", lambda variable: colours[variable[1]], json.dumps(spec))
    made: dict[str, Any] = json.loads(text)
    made["config"]["background"] = colours["paper"]
    return made


def _svg(spec: dict[str, Any]) -> str:
    """Return a picture as wide as the page, in colours that follow light and dark."""
    version = ".".join(altair().SCHEMA_VERSION.lstrip("v").split(".")[:2])
    drawn: str = vl_convert().vegalite_to_svg(spec, vl_version=version)
    rules = "".join(
        re.findall(r"(?s)^:root \{.*?\n\}|@media screen and \(prefers.*?\n\}\n", asset("styles.css"))
    )
    style = f"<style>{rules}svg {{ max-width: 100%; height: auto; }}</style>"
    start, rest = drawn.split(">", 1)
    return f'{start}>{style}<rect width="100%" height="100%" fill="var(--paper)"/>{rest}'
