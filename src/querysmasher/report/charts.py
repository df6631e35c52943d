"""The charts as altair specifications.

Colours are variables of the page, so charts follow the reader's light or dark setting, and paper, without
being redrawn.
"""

from __future__ import annotations

import math
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from querysmasher.errors import MissingExtraError

CHARTS = {"altair": "altair", "vl_convert": "vl-convert-python"}
"""The modules that draw charts, and their packages, which an extra installs."""

ACCENT, SECOND, MUTED, INK = "var(--accent)", "var(--second)", "var(--muted)", "var(--ink)"
SERIES = [f"var(--series-{n})" for n in range(1, 7)]
MOST_SERIES = len(SERIES)

FONT = "-apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', Arial, sans-serif"
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titlePadding": 8,
        "domainColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "gridColor": "var(--rule)",
        "gridOpacity": 0.6,
    },
    "legend": {"labelColor": INK, "titleColor": MUTED, "labelFontSize": 12, "orient": "top"},
    "text": {"color": INK, "fontSize": 12},
    "header": {"labelColor": INK, "titleColor": MUTED},
}
"""The configuration of all charts."""

BELOW = ("5% are below", "25% are below", "half are below", "75% are below", "95% are below")
TIPS = {**{f"q{i}": words for i, words in enumerate(BELOW)}, "rmse": "RMSE"}
"""Tooltips of the errors of a kind of queries, by field."""

Rows = list[dict[str, Any]]


def check_charts() -> None:
    """Raise an error if the chart libraries are not installed, without loading them."""
    missing = [package for module, package in CHARTS.items() if find_spec(module) is None]
    if missing:
        msg = f"pages and charts need {' and '.join(missing)}: pip install 'querysmasher[report]'"
        raise MissingExtraError(msg)


def _library(module: str) -> Any:
    check_charts()
    return import_module(module)


altair, vl_convert = partial(_library, "altair"), partial(_library, "vl_convert")
"""Load the library that describes charts, and the one that provides their scripts, on first use."""


def error_curve(points: Rows, epsilon: float, error: float) -> dict[str, Any]:
    """Draw error against ε on logarithmic axes: the average query, between the best and the worst group."""
    alt = altair()
    x, curve = _logarithmic(alt.X, points, "epsilon", "ε"), alt.Chart(alt.InlineData(points))
    low, y = (
        _logarithmic(alt.Y, points, name, "standard error of a count", "low", "high")
        for name in ("low", "error")
    )
    band = curve.mark_area(color=ACCENT, opacity=0.14).encode(x=x, y=low, y2="high:Q")
    line = curve.mark_line(color=ACCENT, strokeWidth=2.5).encode(x=x, y=y)
    planned, here = _mark(alt, "epsilon", epsilon, "planned"), _movable(alt, "epsilon", "error")
    rule = here.mark_rule(color=SECOND, strokeWidth=1.5).encode(x="epsilon:Q", y=alt.Undefined)
    return _moved(alt, [band, line, *planned, rule, here], 260, epsilon=epsilon, error=error)


def cost_curve(points: Rows, target: float, epsilon: float, title: str, planned: float) -> dict[str, Any]:
    """Draw ε against the target on logarithmic axes, and mark the target asked for."""
    alt = altair()
    x, y = _logarithmic(alt.X, points, "target", title), _logarithmic(alt.Y, points, "epsilon", "ε")
    line = alt.Chart(alt.InlineData(points)).mark_line(color=ACCENT, strokeWidth=2.5).encode(x=x, y=y)
    wish, here = _mark(alt, "target", planned, "as stated"), _movable(alt, "target", "epsilon")
    across = here.mark_rule(color=SECOND, strokeWidth=1.5).encode(x=alt.Undefined, y="epsilon:Q")
    return _moved(alt, [line, *wish, across, here], 240, target=target, epsilon=epsilon)


def _mark(alt: Any, field: str, value: float, text: str) -> list[Any]:
    """Return a dashed line at a value, and its label."""
    base = alt.Chart(alt.InlineData([{field: value}])).encode(x=f"{field}:Q")
    label = base.mark_text(color=MUTED, align="left", dx=5, dy=4, baseline="top", text=text)
    return [base.mark_rule(color=MUTED, strokeDash=[3, 3]), label.encode(y=alt.value(0))]


def _movable(alt: Any, x: str, y: str) -> Any:
    """Return a point at the values of two parameters, which the page sets."""
    base = alt.Chart(alt.InlineData([{}])).transform_calculate(**{x: x, y: y})
    point = base.mark_point(color=SECOND, filled=True, size=110, opacity=1)
    return point.encode(x=f"{x}:Q", y=f"{y}:Q")


def _moved(alt: Any, layers: list[Any], height: int, **parameters: float) -> dict[str, Any]:
    """Return a chart with parameters that the page sets."""
    named = [alt.param(name=name, value=value) for name, value in parameters.items()]
    return _plain(alt.layer(*layers).add_params(*named).properties(width="container", height=height))


def error_spread(rows: Rows, log: bool) -> dict[str, Any]:
    """Draw quantiles of the errors of every kind of group, multiplied by `factor`, which the page sets."""
    alt = altair()
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True)
    x = alt.X("q1:Q", title="standard error of a count", scale=scale, axis=alt.Axis(tickCount=6))
    lines = alt.Axis(  # the labels stand beside the plot, on two lines each
        labelExpr="slice(split(datum.label, '|'), 1)",
        labelLimit=190,
        labelColor=INK,
        ticks=False,
        domain=False,
        labelPadding=8,
    )
    y = alt.Y("key:N", sort=None, title=None, axis=lines)
    base = alt.Chart(alt.InlineData(rows)).transform_calculate(
        **{name: f"datum.{name} * factor" for name in TIPS}
    )
    tips = [
        alt.Tooltip("label:N", title="queries"),
        *(alt.Tooltip(f"{name}:Q", title=title, format=".3~s") for name, title in TIPS.items()),
    ]
    span = base.mark_rule(color=ACCENT, strokeWidth=1.5).encode(y=y, x=alt.X("q0:Q", scale=scale), x2="q4:Q")
    body = base.mark_bar(color=ACCENT, height=9, opacity=0.45, cornerRadius=2)
    body = body.encode(y=y, x=x, x2="q3:Q", tooltip=tips)
    middle = base.mark_tick(color=ACCENT, thickness=2.5, height=15).encode(y=y, x="q2:Q", tooltip=tips)
    mean = base.mark_point(color=SECOND, filled=True, size=55, opacity=1).encode(
        y=y, x="rmse:Q", tooltip=tips
    )
    both = alt.layer(span, body, middle, mean).add_params(alt.param(name="factor", value=1))
    return _plain(both.properties(width="container", height=38 * len(rows)))


def budget_bars(rows: Rows) -> dict[str, Any]:
    """Draw the share of the budget that each attribute set gets."""
    alt = altair()
    y = alt.Y("row:O", axis=None)
    tips = [alt.Tooltip("label:N", title="on"), alt.Tooltip("share:Q", title="share in %", format=".2f")]
    base = alt.Chart(alt.InlineData(rows))
    percent = alt.Axis(labelExpr="datum.label + '%'", tickCount=5)
    x = alt.X("share:Q", title="share of the budget", axis=percent)
    bar = base.mark_bar(color=ACCENT, height=8, opacity=0.75, cornerRadius=1).encode(y=y, x=x, tooltip=tips)
    label = base.mark_text(align="left", baseline="bottom", dy=-6).encode(y=y, x=alt.value(0), text="label:N")
    figure = base.mark_text(align="left", dx=6, color=MUTED).encode(y=y, x="share:Q", text="said:N")
    return _plain(alt.layer(bar, label, figure).properties(width="container", height=34 * len(rows)))


def cells_bars() -> dict[str, Any]:
    """Draw counts by category as bars, each with its interval. The page provides the cells."""
    alt = altair()
    labels = alt.Axis(labelLimit=150, labelPadding=7, labelColor=INK, ticks=False, domain=False)
    y = alt.Y("a:N", sort=None, title=None, axis=labels)
    base = alt.Chart(alt.NamedData(name="cells"))
    bar = base.mark_bar(color=ACCENT, opacity=0.35, cornerRadiusEnd=2).encode(
        y=y,
        x=alt.X("value:Q", title="records", axis=alt.Axis(tickCount=5, orient="top")),
        tooltip=_tips(alt, "a"),
    )
    interval = base.mark_rule(color=ACCENT, strokeWidth=2.5).encode(
        y=y, x=alt.X("low:Q", title="records"), x2="high:Q", tooltip=_tips(alt, "a")
    )
    return _plain(alt.layer(bar, interval).properties(width="container", height=200))


def cells_band() -> dict[str, Any]:
    """Draw counts along ordered values: a line in its band of intervals. The page provides the cells."""
    alt = altair()
    base = alt.Chart(alt.NamedData(name="cells"))
    x = alt.X("a:O", sort=None, title=None, axis=_sparse(alt), scale=alt.Scale(type="point", padding=0.5))
    colour = alt.Color("b:N", sort=None, title=None, scale=alt.Scale(range=SERIES), legend=None)
    band = base.mark_area(opacity=0.25).encode(
        x=x, y=alt.Y("low:Q", title="records"), y2="high:Q", color=colour
    )
    line = base.mark_line(strokeWidth=1.8).encode(x=x, y="value:Q", color=colour)
    point = base.mark_point(filled=True, size=22, opacity=1).encode(
        x=x, y="value:Q", color=colour, tooltip=_tips(alt, "a", "b")
    )
    return _plain(alt.layer(band, line, point).properties(width="container", height=320))


def cells_heat() -> dict[str, Any]:
    """Draw counts by two attributes; a dot marks intervals that contain zero. The page provides the cells."""
    alt = altair()
    base = alt.Chart(alt.NamedData(name="cells"))
    x = alt.X("b:O", sort=None, title=None, axis=_sparse(alt), scale=alt.Scale(padding=0))
    labels = alt.Axis(labelLimit=130, labelPadding=6, labelColor=INK, ticks=False, domain=False)
    labels.labelOverlap = "greedy"
    y = alt.Y("a:O", sort=None, title=None, axis=labels)
    # the root keeps small counts visible beside one huge cell
    scale = alt.Scale(type="sqrt", range=[0.02, 1], domainMin=0, clamp=True)
    key = alt.Legend(title="records", format=",~r", symbolType="square", symbolFillColor=ACCENT, values=[])
    depth = alt.Opacity("value:Q", legend=key, scale=scale)
    cell = base.mark_rect(color=ACCENT, stroke="var(--paper)", strokeWidth=0.5)
    cell = cell.encode(x=x, y=y, opacity=depth, tooltip=_tips(alt, "a", "b"))
    unsure = base.transform_filter("datum.low <= 0").mark_point(color=MUTED, filled=True, size=9, opacity=0.8)
    return _plain(alt.layer(cell, unsure.encode(x=x, y=y)).properties(width="container", height=200))


def _tips(alt: Any, *names: str) -> list[Any]:
    fields = [alt.Tooltip(f"{n}:N", title=t) for n, t in zip(names, ("value", "split"), strict=False)]
    formats = [("value", "records"), ("low", "from"), ("high", "to")]
    return [*fields, *(alt.Tooltip(f"{n}:Q", title=t, format=",.1f") for n, t in formats)]


def _sparse(alt: Any) -> Any:
    """Return an axis of many values with as many labels as fit."""
    return alt.Axis(labelOverlap="greedy", labelAngle=0, labelLimit=110, labelSeparation=6, ticks=False)


def _logarithmic(channel: Any, points: Rows, name: str, title: str, *ends: str) -> Any:
    """Return a logarithmic scale, with labels at 1, 2, 5, 10, … from the least to the largest of `ends`."""
    values = [point[end] for point in points for end in ends or (name,)]
    least, most = min(values), max(values)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    inside = [t for t in ticks if least * 0.999 <= t <= most * 1.001]
    axis = altair().Axis(values=inside, format=",~r", labelOverlap="greedy", labelSeparation=6)
    return channel(f"{name}:Q", title=title, scale=altair().Scale(type="log", nice=False), axis=axis)


def _plain(chart: Any) -> dict[str, Any]:
    """Return a chart's specification without what the page already provides."""
    spec: dict[str, Any] = chart.to_dict(validate=False)  # its parts were validated when they were made
    for name in ("config", "$schema", "usermeta"):
        spec.pop(name, None)
    return spec
