"""One self-contained page: markup, styles, scripts and data in a single file, without network access.

The fixed markup of both kinds of pages, with its sentences, is in `markup.html`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.endings import PAGES, check_ending
from querysmasher.errors import FileError
from querysmasher.files import replacing
from querysmasher.formatting import count, number
from querysmasher.guarantees import ALL, Counted, delta_of, in_symbols, remarks, scientific
from querysmasher.html import Html, element, join, script_data, table
from querysmasher.privacy.budget import Budget
from querysmasher.report.charts import altair, check_charts, vl_convert

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""Makes the browser block every request of the page, whatever its content."""


SCRIPTS = {
    "plan": ("script.js", "saving.js", "targets.js", "plan.js"),
    "release": ("script.js", "saving.js", "axes.js", "paper.js", "release.js"),
}
"""The scripts of each kind of page."""

FALSE_ALARMS = (0.01, 0.05, 0.1)

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


@cache
def _blocks() -> dict[str, str]:
    """Return the fixed markup of the pages, by the name of each block."""
    parts = re.split(r"<!-- ([\w-]+) -->\n", asset("markup.html"))
    return dict(zip(parts[1::2], (text.strip().replace("\n", " ") for text in parts[2::2]), strict=True))


def markup(name: str, **parts: object) -> Html:
    """Return a block of `markup.html` with its parts filled in; those that are not `Html` are escaped."""
    return Html(_blocks()[name].format_map({key: join([part]) for key, part in parts.items()}))


def paragraph(text: str | None, class_: str | None = None) -> Html | None:
    """Return a paragraph, or nothing if there is no text."""
    return element("p", text, class_=class_) if text else None


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return names and values as the terms of a list."""
    return join(join([element("dt", name), element("dd", value)]) for name, value in pairs)


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


def guarantee(budget: Budget, *, discrete: bool = False, counted: Counted = ALL) -> Html:
    """Explain what is guaranteed, whom it protects, and what an attacker could still learn."""
    replaces, person = budget.neighbours == "replace_one", counted.person
    single = budget.records_per_person == 1 and person is None
    whose = "one record" if single else "the records of one person"
    present = f"whether {whose} {'is' if single else 'are'} in the table"
    delta, cost = delta_of(budget), budget.discrete_privacy_cost if discrete else budget.privacy_cost
    guess = (1 + budget.delta_at(0.0, discrete=discrete)) / 2
    detects = "the other version" if replaces else "the record" if single else "the person"
    rows = [("Guesses yes or no, and is right", "50%", _percent(guess))]
    for alarms in FALSE_ALARMS:
        said, detected = (_percent(part) for part in (alarms, power(budget, alarms, discrete=discrete)))
        rows.append((f"With {said} false alarms, detects {detects}", said, detected))
    definitions = [
        ("(ε, δ)", f"ε = {number(budget.epsilon_at(delta, discrete=discrete))}, δ = {scientific(delta)}"),
        ("zero-concentrated", f"ρ = {number(cost / 2)}"),
        *([] if discrete else [("Gaussian", f"μ = {number(math.sqrt(cost))}")]),
        ("privacy cost", f"β = {number(cost)}"),
    ]
    more = ["The number of records: these neighbours make it public."] if replaces else []
    if budget.exact:
        said = f"The exact counts {budget.unit.exact_words}, and what a record says about "
        more.append(f"{said}{budget.unit.agreed_words}: these neighbours agree on it.")
    if budget.records_per_person > 1 and person is None:
        most = count(budget.records_per_person, "record")
        more.append(f"A person with more than {most}: such a person is protected less.")
    return markup(
        "guarantee",
        words=in_symbols(budget.describe(person)),
        remarks=join([*(paragraph(r, "warning") for r in remarks(budget)), paragraph(counted.words())]),
        aim=f"which of two versions of {whose} is in the table" if replaces else present,
        odds=table(["The attacker", "without the release", "with it, at most"], rows, [1, 2], class_="odds"),
        warning=markup("weak") if guess > 0.9 else None,
        definitions=facts(definitions),
        whose="one record" if single else "one person",
        delta=scientific(delta),
        more=join(element("li", text) for text in more),
    )


def power(budget: Budget, alarm: float, *, discrete: bool = False) -> float:
    """Return an upper bound on the power of a test with this false-alarm rate, from all valid (ε, δ)."""
    best = 1.0
    for epsilon in np.concatenate([[0.0], np.geomspace(1e-3, 60, 120)]).tolist():
        delta = budget.delta_at(epsilon, discrete=discrete)
        best = min(best, math.exp(epsilon) * alarm + delta, 1 - math.exp(-epsilon) * (1 - delta - alarm))
    return best


def page(
    kind: str, title: str, summary: object, sections: Sequence[tuple[str, str, Html]], data: dict[str, Any]
) -> str:
    """Return a whole page. `kind` is "plan" or "release"; `data` is for its script."""
    return markup(
        "page",
        policy=Html(POLICY),
        generator=generator(),
        title=title,
        style=asset("styles.css"),
        kind=kind,
        summary=summary,
        links=join(element("a", heading, href=f"#{name}") for name, heading, _ in sections),
        sections=join(
            element("section", element("h2", h), content, id=name) for name, h, content in sections
        ),
        data=script_data(data, "data"),
        libraries=Html(libraries()),
        scripts=join(asset(name) for name in SCRIPTS[kind]),
    )


def checked_path(path: object) -> Path:
    """Return the path to write; refuse a folder, or a name that is not that of an HTML file.

    Also refuse if no chart can be drawn, before anything is computed for the page.
    """
    check_charts()
    if path and isinstance(path, str | os.PathLike) and Path(path).is_dir():
        example = str(Path(path) / "report.html")
        raise FileError(f"path: {str(path)!r} is a folder; expected the path of a file, such as {example!r}")
    check_ending(path, PAGES)
    return Path(str(path))


def write_page(path: Path, text: str) -> Path:
    """Write a page, all or nothing, and return its path."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def _percent(fraction: float) -> str:
    """Return a fraction as a percentage, rounded up, so that a bound remains a bound."""
    return f"{min(math.ceil(fraction * 1000 - 1e-9) / 10, 100):.1f}%".replace(".0%", "%")
