"""The main job, twice: plan a workload without data, then plan, measure and answer a real table.

Run it with `make demo`. The second part uses a person-level table that ships inside the package
`causaldata`: 214,144 men in the 1960s, with place and quarter of birth, veteran status, and whether they own
their home. The demo owns the data, so it may do what a statistical office may not: print the true error.
"""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.table import Table

import querysmasher as qs

STATES = (
    "Alabama; Alaska; Arizona; Arkansas; California; Colorado; Connecticut; Delaware; District of "
    "Columbia; Florida; Georgia; Hawaii; Idaho; Illinois; Indiana; Iowa; Kansas; Kentucky; Louisiana; "
    "Maine; Maryland; Massachusetts; Michigan; Minnesota; Mississippi; Missouri; Montana; Nebraska; "
    "Nevada; New Hampshire; New Jersey; New Mexico; New York; North Carolina; North Dakota; Ohio; "
    "Oklahoma; Oregon; Pennsylvania; Rhode Island; South Carolina; South Dakota; Tennessee; Texas; United "
    "States, ns; Utah; Vermont; Virginia; Washington; West Virginia; Wisconsin; Wyoming"
).split("; ")
"""The places of birth: public knowledge, stated here and not read from the data."""

console = Console(width=110)


def plan_without_data() -> None:
    """Plan the hybrid workload of the CPS schema: prefixes on numbers, counts on categories."""
    schema = qs.Schema(
        [
            qs.Ordinal("income", range(100)),
            qs.Ordinal("age", range(50)),
            qs.Categorical("marital", range(7)),
            qs.Categorical("race", range(4)),
            qs.Categorical("sex", ["F", "M"]),
        ]
    )
    workload = qs.all_kway(schema, [1, 2, 3])
    start = time.perf_counter()
    plan = qs.plan(workload, qs.PrivacyCost(1.0), tolerance=1e-4)
    seconds = time.perf_counter() - start
    console.rule("1. Plan without data: the CPS schema, all hybrid queries on up to 3 attributes")
    console.print(
        f"[bold]Asked[/]      {workload.query_count:,} queries on {len(workload.groups)} attribute sets"
    )
    console.print(f"[bold]Guarantee[/]  {plan.budget.describe()}")
    console.print(
        f"[bold]Expected[/]   root mean square error {plan.rmse:.3f}, certified within {plan.gap:.4%} of the "
        f"optimum, planned in {seconds:.2f} s"
    )
    shares = plan.budget_shares()
    table = Table(
        "queries on", "how many", "expected error of a count", "budget share", title="What to expect"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for row in plan.summary():
        table.add_row(
            row.group.describe(), f"{row.queries:,}", f"± {row.rmse:.2f}", f"{shares[row.attributes]:.2%}"
        )
    console.print(table)


def release_a_table() -> None:
    """Plan, measure and answer a real table, and print the true error beside the predicted one."""
    from causaldata import mortgages  # noqa: PLC0415 - a package that only the demo needs

    people = mortgages.load_pandas().data
    schema = qs.Schema(
        [
            qs.Categorical("bpl", STATES),
            qs.Cyclic("qob", [1, 2, 3, 4]),
            qs.Categorical("nonwhite", [0, 1]),
            qs.Categorical("vet_wwko", [0, 1]),
            qs.Categorical("home_ownership", [0, 1]),
            qs.Ordinal("qob_minus_kw", np.arange(-54.5, 29.0)),
        ]
    )
    workload = qs.all_kway(schema, [1, 2, 3])
    budget = qs.ApproxDP(epsilon=1.0, delta=1e-6)
    start = time.perf_counter()
    plan = qs.plan(workload, budget)
    planned = time.perf_counter()
    release = qs.measure(plan, people, max_records=1_000_000)
    measured = time.perf_counter()
    answers = release.answer(workload)
    answered = time.perf_counter()
    console.rule("2. A real table: 214,144 people, place and quarter of birth, veterans, home owners")
    console.print(
        f"[bold]Asked[/]      {workload.query_count:,} queries on {len(workload.groups)} attribute sets"
    )
    console.print(f"[bold]Guarantee[/]  {release.guarantee}")
    console.print(
        f"[bold]Time[/]       plan {planned - start:.2f} s, measure {measured - planned:.2f} s, answer "
        f"{answered - measured:.2f} s"
    )
    truth = true_answers(workload, people)
    table = Table(
        "queries on", "how many", "predicted error", "true error", "in 95 % interval", title="Was it true?"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    low, high = answers.interval(0.95)
    covered = (low <= truth) & (truth <= high)
    place = 0
    rows: dict[str, list[slice]] = {}
    for group in workload:
        rows.setdefault(f"{len(group.attributes)} attributes at a time", []).append(
            slice(place, place + group.rows)
        )
        place += group.rows
    rows["all"] = [slice(0, place)]
    for name, parts in rows.items():
        error, std, inside = (
            np.concatenate([array[part] for part in parts])
            for array in (answers.values - truth, answers.std, covered)
        )
        table.add_row(
            name, f"{len(error):,}", f"± {rms(std):.2f}", f"± {rms(error):.2f}", f"{inside.mean():.1%}"
        )
    console.print(table)
    later = qs.where(schema, "home_ownership == 1 and vet_wwko == 1 and bpl in ['New York', 'New Jersey']")
    answer = release.answer(later)
    console.print(
        f"[bold]Asked later[/] veterans who own their home, born in New York or New Jersey: "
        f"{answer.values[0]:,.0f} ± {answer.std[0]:.0f}, at no further cost to privacy"
    )


def true_answers(workload: qs.Workload, people: object) -> np.ndarray:
    """Return exact answers, which only a demo may look at: a release without noise to speak of."""
    certain = qs.plan(workload, qs.PrivacyCost(1e12))
    return (
        qs.measure(certain, people, seed=0, noise="gaussian", max_records=1_000_000).answer(workload).values
    )


def rms(values: np.ndarray) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(values**2)))


if __name__ == "__main__":
    plan_without_data()
    release_a_table()
