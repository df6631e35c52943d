"""The demo: plans a workload without data, then plans, measures and answers a table.

The second part uses a person-level table that ships inside the optional package `causaldata`: 214,144 men in
1960, with place and quarter of birth, veteran status, and whether they own their home. Without that
package, the people are fictitious. The data is public, so the demo can show what a statistical office must
not: the true error.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import querysmasher as qs
from querysmasher.arrays import Array
from querysmasher.comparison.rehearsal import true_answers
from querysmasher.formatting import count, error
from querysmasher.report.charts import check_charts
from querysmasher.report.expectations import HEADER, facts

STATES = (
    "Alabama; Alaska; Arizona; Arkansas; California; Colorado; Connecticut; Delaware; District of "
    "Columbia; Florida; Georgia; Hawaii; Idaho; Illinois; Indiana; Iowa; Kansas; Kentucky; Louisiana; "
    "Maine; Maryland; Massachusetts; Michigan; Minnesota; Mississippi; Missouri; Montana; Nebraska; "
    "Nevada; New Hampshire; New Jersey; New Mexico; New York; North Carolina; North Dakota; Ohio; "
    "Oklahoma; Oregon; Pennsylvania; Rhode Island; South Carolina; South Dakota; Tennessee; Texas; United "
    "States, ns; Utah; Vermont; Virginia; Washington; West Virginia; Wisconsin; Wyoming"
).split("; ")
"""The places of birth: public knowledge, stated here and not read from the data."""

QUARTERS = ("Jan–Mar", "Apr–Jun", "Jul–Sep", "Oct–Dec")
MARITAL = ("never married", "married", "spouse absent", "separated", "divorced", "widowed", "unknown")
ORIGINAL = {
    "bpl": ("birthplace", {}),
    "qob": ("quarter", dict(enumerate(QUARTERS, start=1))),
    "nonwhite": ("race", {0: "white", 1: "other"}),
    "vet_wwko": ("veteran", {0: "no", 1: "yes"}),
    "home_ownership": ("home_owner", {0: "no", 1: "yes"}),
    "qob_minus_kw": ("born", {}),
}
"""The columns of the real table, each with the name and the names of values that the demo gives it."""

TITLE = "Birth, military service and homes"
MADE_UP = 50_000
"""Number of fictitious people."""
MAX_RECORDS = 1_000_000
FIGURES = ("queries_on", "queries", "predicted_error", "true_error", "in_interval")
LATER = "home_owner == 'yes' and veteran == 'yes' and birthplace in ['New York', 'New Jersey']"


def run_demo(
    folder: str | os.PathLike[str] = "demo-output", *, made_up: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Run both parts, print them unless `quiet`, and return their figures as plain data.

    Write a page about the plan and one about the release into the folder.
    """
    check_charts()
    console = Console(width=None if sys.stdout.isatty() else 110, quiet=quiet)
    pages = Path(folder)
    try:
        pages.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise qs.FileError(f"folder: cannot create {str(pages)!r} ({error.strerror})") from error
    result = {"plan": plan_without_data(console), "table": release_a_table(console, made_up, pages)}
    console.rule("3. Open the pages in a browser")
    for words, page in result["table"]["pages"].items():
        console.print(f"[bold]{words:10}[/] {page}", soft_wrap=True)
    return result


def plan_without_data(console: Console) -> dict[str, Any]:
    """Plan queries on a schema as large as that of the Current Population Survey: prefixes and counts."""
    schema = qs.Schema(
        [
            qs.Ordinal("income", range(0, 100_000, 1_000), unit="dollars"),
            qs.Ordinal("age", range(16, 66), unit="years"),
            qs.Categorical("marital", MARITAL),
            qs.Categorical("race", ["white", "black", "asian", "other"]),
            qs.Categorical("sex", ["female", "male"]),
        ]
    )
    workload = qs.all_kway(schema, [1, 2, 3])
    start = time.perf_counter()
    plan = qs.plan(workload, qs.PrivacyCost(1.0), tolerance=1e-4)
    seconds = time.perf_counter() - start
    console.rule("1. Plan without data: prefixes and counts on up to 3 attributes of a population survey")
    console.print(f"[bold]Queries[/]        {workload.size_in_words}")
    for name, text in facts(plan):
        console.print(f"[bold]{name.capitalize():15}[/]{text}")
    console.print(f"[bold]{'Time':15}[/]plan {seconds:.2f} s")
    table = _table("What to expect", *HEADER)
    for row in plan.summary():
        table.add_row(*row.cells())
    console.print(table)
    return {"queries": workload.query_count, "expected_error": plan.rmse, "gap": plan.gap, "seconds": seconds}


def people_schema() -> qs.Schema:
    """Return what is publicly known about the table."""
    return qs.Schema(
        [
            qs.Categorical("birthplace", STATES, title="Place of birth"),
            qs.Cyclic("quarter", QUARTERS, title="Quarter of birth"),
            qs.Categorical("race", ["white", "other"], title="Race"),
            qs.Categorical("veteran", ["no", "yes"], title="Veteran of World War II or Korea"),
            qs.Categorical("home_owner", ["no", "yes"], title="Owns a home"),
            qs.Ordinal(
                "born",
                np.arange(-54.5, 29.0).tolist(),
                title="Born",
                unit="quarters after the cutoff",
                description="Quarter of birth, counted from the first whose men were too young for Korea.",
            ),
        ]
    )


def release_a_table(console: Console, made_up: bool, pages: Path) -> dict[str, Any]:
    """Plan, measure and answer a table, and print the true error beside the expected one."""
    people, words = made_up_people() if made_up else load_people()
    schema = people_schema()
    workload = qs.all_kway(schema, [1, 2, 3])
    start = time.perf_counter()
    plan = qs.plan(workload, qs.ApproxDP(epsilon=1.0, delta=1e-6))
    planned = time.perf_counter()
    release = qs.measure(plan, people, max_records=MAX_RECORDS)
    measured = time.perf_counter()
    answers = release.answer(workload)
    answered = time.perf_counter()
    console.rule(f"2. A table: {words}")
    console.print(f"[bold]Queries[/]        {workload.size_in_words}")
    console.print(f"[bold]Guarantee[/]      {release.guarantee}")
    console.print(
        f"[bold]Time[/]           plan {planned - start:.2f} s, measure {measured - planned:.2f} s, answer "
        f"{answered - measured:.2f} s"
    )
    truth = true_answers(workload, people)
    table = _table(
        "Compared with the truth", "group", "queries", "expected error", "true error", "in 95% interval"
    )
    low, high = answers.interval(0.95)
    covered = (low <= truth) & (truth <= high)
    rows = []
    for name, parts in _by_way(workload).items():
        errors, std, inside = (
            np.concatenate([array[part] for part in parts])
            for array in (answers.values - truth, answers.std, covered)
        )
        figures = (name, len(errors), rms(std), rms(errors), float(inside.mean()))
        rows.append(dict(zip(FIGURES, figures, strict=True)))
        table.add_row(name, f"{len(errors):,}", error(rms(std)), error(rms(errors)), f"{inside.mean():.1%}")
    console.print(table)
    later = release.answer(qs.where(schema, LATER))
    console.print(
        f"[bold]Later query[/]    veterans who own their home, born in New York or New Jersey: "
        f"{later.values[0]:,.0f} ± {later.std[0]:.0f}, at no further privacy cost"
    )
    return {
        "people": words,
        "guarantee": release.guarantee,
        "rows": rows,
        "pages": {
            "plan": str(plan.report(pages / "plan.html", title=TITLE)),
            "release": str(release.report(pages / "release.html", title=TITLE)),
        },
        "later_query": {"query": LATER, "value": float(later.values[0]), "std": float(later.std[0])},
    }


def load_people() -> tuple[Any, str]:
    """Return the real table and its description, or a fictitious one if it is not installed."""
    try:
        from causaldata import mortgages  # noqa: PLC0415 - a package that only the demo needs
    except ImportError:
        return made_up_people()
    people = mortgages.load_pandas().data
    for column, (name, values) in ORIGINAL.items():
        people[name] = people.pop(column).replace(values) if values else people.pop(column)
    return people, "214,144 real people, place and quarter of birth, veterans, home owners"


def made_up_people() -> tuple[Any, str]:
    """Return a fixed table of fictitious people, and its description."""
    import pyarrow as pa  # noqa: PLC0415 - takes a while to load

    draw = np.random.default_rng(2026)
    likely = draw.dirichlet(np.full(len(STATES), 2.0))
    quarters = np.clip(draw.normal(-10, 18, MADE_UP).round() + 0.5, -54.5, 28.5)
    columns = {
        "birthplace": np.array(STATES)[draw.choice(len(STATES), MADE_UP, p=likely)],
        "quarter": np.array(QUARTERS)[draw.integers(0, 4, MADE_UP)],
        "race": np.where(draw.random(MADE_UP) < 0.1, "other", "white"),
        "veteran": np.where(draw.random(MADE_UP) < 0.6 - quarters / 150, "yes", "no"),
        "home_owner": np.where(draw.random(MADE_UP) < 0.6, "yes", "no"),
        "born": quarters,
    }
    words = f"{MADE_UP:,} fictitious people, place and quarter of birth, veterans, home owners"
    return pa.table(columns), words


def rms(values: Array) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _by_way(workload: qs.Workload) -> dict[str, list[slice]]:
    """Return the slices of the answers by number of attributes, and of all answers."""
    start = 0
    rows: dict[str, list[slice]] = {}
    for group in workload:
        label = f"{count(len(group.attributes), 'attribute')} at a time"
        rows.setdefault(label, []).append(slice(start, start + group.rows))
        start += group.rows
    return {**rows, "all": [slice(0, start)]}
