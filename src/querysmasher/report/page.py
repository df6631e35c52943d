"""One self-contained page: markup, styles, scripts and data in a single file, without network access."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from querysmasher.endings import check_ending
from querysmasher.errors import FileError, as_given
from querysmasher.extras import altair, check_charts, vl_convert
from querysmasher.files import replacing
from querysmasher.html import Html, element, join, script_data

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""Makes the browser block every request of the page, whatever its content."""


ENDINGS = (".html", ".htm")
"""Allowed endings of the name of a page."""

SCRIPTS = {
    "plan": ("script.js", "sharing.js", "targets.js", "plan.js"),
    "release": ("script.js", "sharing.js", "axes.js", "paper.js", "release.js"),
}
"""The scripts of each kind of page."""

SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""The part of the chart libraries that the scripts of a page use."""


@cache
def libraries() -> str:
    """Return the chart libraries as one script, of the version that altair writes for."""
    version = ".".join(altair().SCHEMA_VERSION.lstrip("v").split(".")[:2])
    bundle = vl_convert().javascript_bundle(SNIPPET, vl_version=version).replace("</script", "<\\/script")
    return f"(() => {{{bundle}\n}})();"


def generator() -> str:
    """Return the versions on which the text of a page depends."""
    return (
        f"querysmasher {import_module('querysmasher').__version__}, altair {altair().__version__}, "
        f"vl-convert {vl_convert().__version__}"
    )


def asset(name: str) -> Html:
    """Return a file that is part of this package."""
    return Html(resources.files("querysmasher.report").joinpath(name).read_text(encoding="utf-8"))


def section(name: str, title: str, *parts: object) -> Html:
    """Return a section of a page with its heading."""
    return element("section", element("h2", title), *parts, id=name)


def figures(*pairs: tuple[str, str, str | None]) -> Html:
    """Return the key figures: each with a title, the figure, and a remark."""
    items = (
        element(
            "div",
            element("dt", name),
            element("dd", value),
            element("dd", remark, class_="remark") if remark else None,
        )
        for name, value, remark in pairs
    )
    return element("dl", *items, class_="figures")


def chart(name: str, caption: object = None) -> Html:
    """Return the container of a chart, which the page's script draws."""
    drawn = element("div", id=name, class_="chart")
    return element("figure", drawn, element("figcaption", caption) if caption else None)


def page(
    kind: str, title: str, summary: object, sections: Sequence[tuple[str, str, Html]], data: dict[str, Any]
) -> str:
    """Return a whole page. `kind` is "plan" or "release"; `data` is for its script."""
    links = (element("a", heading, href=f"#{name}") for name, heading, _ in sections)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=generator()),
        element("title", f"{title} · QuerySmasher"),
        element("style", asset("styles.css")),
    )
    header = element(
        "header",
        element("p", "QuerySmasher", element("span", f"privacy {kind}"), class_="brand"),
        element("h1", title),
        summary,
        element("nav", *links, aria_label="Contents"),
    )
    body = element(
        "body",
        header,
        element(
            "main",
            element("noscript", "Charts and filters on this page need JavaScript."),
            *(section(name, heading, content) for name, heading, content in sections),
        ),
        element(
            "footer",
            "Made with QuerySmasher. This file is self-contained and does not use the network.",
        ),
        script_data(data, "data"),
        element("script", Html(libraries())),
        element("script", join([asset(name) for name in SCRIPTS[kind]])),
        class_=kind,
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def checked_path(path: object) -> Path:
    """Return the path to write; refuse a folder, or a name that is not that of an HTML file.

    Also refuse if no chart can be drawn, before anything is computed for the page.
    """
    check_charts()
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        msg = f"path: expected the path of an HTML file to write, got {as_given(path)}"
        raise FileError(msg)
    target = Path(os.fsdecode(path))
    if target.is_dir():
        example = str(target / "report.html")
        msg = f"path: {str(target)!r} is a folder; expected the path of a file, such as {example!r}"
        raise FileError(msg)
    check_ending(target, ENDINGS)
    return target


def write_page(path: Path, text: str) -> Path:
    """Write a page, all or nothing, and return its path."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path
