"""The 2020 redistricting file, persons of one state, beside the Census Bureau's published allocation."""

import json
import sys
import time
from dataclasses import replace

import numpy as np

from benchmarks import bureau
from benchmarks.process import outcome, peak_gigabytes
from benchmarks.report import Table
from benchmarks.trees import geography

COUNTS = [1, 14, 193, 552, 24_611]
FEW = [1, 5, 20, 60, 2_500]
"""Units of every level, from the state to blocks, and those of a quick run."""
PEOPLE = 643_000
QUERIES = {  # the Bureau's name of every table, and its attributes here
    "total": (("total", frozenset()), ()),
    "race": (("total", frozenset({"race"})), ("race",)),
    "Hispanic × race": (("total", frozenset({"hispanic", "race"})), ("hispanic", "race")),
    "voting age × race": (("total", frozenset({"voting_age", "race"})), ("voting_age", "race")),
    "voting age × Hispanic × race": (
        ("total", frozenset(bureau.SIZES)),
        ("voting_age", "hispanic", "race"),
    ),
    "group quarters": (("types", frozenset()), ("quarters",)),
}
KINDS = {"mean": 5, "least": 60, "worst": 60}
"""Plans, and the most seconds of each."""
PUBLIC_KINDS = {"mean": 10, "least": 180, "worst": 180}
"""The same where a record is replaced."""


def redistricting(quick):
    """Plan the redistricting file at the Bureau's budget, and at the least that reaches its errors."""
    counts = FEW if quick else COUNTS
    table = Table(
        "The 2020 redistricting file",
        f"Persons of one made-up state of {counts[-1]:,} blocks in {counts[-2]} block groups, {counts[-3]} "
        f"tracts and {counts[-4]} counties, with very unequal numbers of parts; group quarters (8), voting "
        "age, Hispanic origin, race (63). The largest standard error at each level. *Bureau*: its published "
        f"allocation, ρ = {bureau.RHO:g} × 3995/4099 for these levels, with the best linear unbiased "
        "estimate of every count from all measurements. *mean*: the least mean squared error relative to "
        "the Bureau's, at its privacy cost. *worst*: `objective='worst'` with the Bureau's errors as "
        "targets, at its privacy cost. *least*: `least_budget` with its errors as targets, at a fraction of "
        "its privacy cost; the *least possible fraction* is a certified bound for plans of this kind. All "
        "for adding or removing one record; nothing is exact or known to be zero.",
        ("query", "level", "Bureau", *KINDS),
        "every error of the Bureau's is lowered at its budget, and reached at a smaller one",
    )
    least = fill(table, counts, KINDS, 0.02, public=False)
    table.check(least["cost"] <= 0.81, f"least budget: {least['cost']:.3f} of the Bureau's, target 0.81")
    return table


def public_facts(quick):
    """Plan the same with what is public."""
    counts = FEW if quick else COUNTS
    table = Table(
        "The redistricting file, with public facts",
        "The same where the state's total is exact, so that a record is replaced, and where nursing "
        "facilities have no minors. Both sides use both: the Bureau's estimates are made anew, for the 15 "
        "possible combinations of group quarters and voting age, and its privacy cost leaves out what it "
        "spent on the state's total. Certified bounds are loose where a record is replaced in so many "
        "tables: the *least possible fraction* is what is proved, not what is likely.",
        ("query", "level", "Bureau", *PUBLIC_KINDS),
        "every error of the Bureau's is lowered at its budget, and reached at a smaller one",
    )
    least = fill(table, counts, PUBLIC_KINDS, 0.35, public=True)
    table.check(least["cost"] < 1, f"least budget: {least['cost']:.3f} of the Bureau's")
    return table


def fill(table, counts, kinds, loosest, *, public):
    """Fill in a table of plans of these kinds; return that of least budget."""
    found = {
        kind: outcome("redistricting", "plan", json.dumps([counts, kind, public]), one_core=True)
        for kind in kinds
    }
    errors = zip(found["mean"]["bureau"], *(one["errors"] for one in found.values()), strict=True)
    for (query, level), each in zip(asked(public=public), errors, strict=True):
        table.add(query, level, *(f"{error:.2f}" for error in each))
    for kind, one in found.items():
        seconds = kinds[kind]
        table.check(one["seconds"] <= seconds, f"{kind}: {one['seconds']:.0f} s, target {seconds} s")
        table.check(one["gap"] <= loosest, f"{kind}: gap {one['gap']:.2%}, target {loosest:.0%}")
    rows = {
        "queries": [one["queries"] for one in found.values()],
        "fraction of the privacy cost": [f"{one['cost']:.3f}" for one in found.values()],
        "largest error relative to the Bureau's": [f"{one['ratio']:.3f}" for one in found.values()],
        "certified gap": [f"{one['gap']:.2%}" for one in found.values()],
        "least possible fraction": ["", f"{found['least']['least']:.3f}", ""],
        "seconds": [f"{one['seconds']:.1f}" for one in found.values()],
        "GB": [f"{one['memory']:.2f}" for one in found.values()],
    }
    for name, values in rows.items():
        shown = [f"{value:,}" if isinstance(value, int) else value for value in values]
        table.add(name, "", "", *shown)
    least, worst = found["least"], found["worst"]
    table.check(least["ratio"] <= 1 + 1e-6, f"least budget: an error {least['ratio']:.4f} times the Bureau's")
    table.check(worst["ratio"] < 1, f"worst: an error {worst['ratio']:.4f} times the Bureau's")
    return least


def measured(quick):
    """Measure and answer a made-up state."""
    counts, people = (FEW, 20_000) if quick else (COUNTS, PEOPLE)
    table = Table(
        "The redistricting file, measured",
        f"{people:,} made-up people, measured by the plan of least mean error of the table above; all "
        "queries are answered with standard errors. Seconds are those of the processor; memory is the peak "
        "so far.",
        ("step", "seconds", "GB"),
        "a state is measured and answered in 5 minutes and 4 GB",
    )
    found = outcome("redistricting", "measure", json.dumps([counts, people]), one_core=True)
    for step, seconds, memory in found["steps"]:
        table.add(step, f"{seconds:.1f}", f"{memory:.2f}")
    total = sum(seconds for _, seconds, _ in found["steps"])
    table.check(total <= 300, f"{total:.0f} s, target 300 s")
    table.check(found["memory"] <= 4, f"{found['memory']:.2f} GB, target 4 GB")
    table.check(found["largest"] <= 6, f"an error of {found['largest']:.1f} standard errors, target 6")
    return table


# --- in processes of their own ---


def asked(*, public=False):
    """Return every table and level, in the order of the workload."""
    every = [(query, level) for query in QUERIES for level in bureau.LEVELS]
    return every[1:] if public else every  # the state's total


def state(counts, *, public=False):
    """Return the workload, with the Bureau's largest errors as targets, and these errors."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    levels = geography(counts, 2.0)
    tree = bureau.Tree.of_levels([*levels, np.arange(counts[-1])])
    schema = qs.Schema(
        [
            qs.Categorical("block", [f"{block:05}" for block in range(counts[-1])]),
            *(qs.Categorical(name, range(size)) for name, size in [("quarters", 8), *bureau.SIZES.items()]),
        ]
    )
    if public:
        schema = schema.impossible(f"quarters == {bureau.NURSING} and voting_age == 0")
    units = [qs.hierarchy(schema, "block", groups, leaves=False) for groups in levels]
    tables = [bureau.combined(table) if public else table for table, _ in QUERIES.values()]
    theirs = (bureau.with_public_facts() if public else bureau.published()).errors(tree, tables)
    errors = [float(each.max()) for table in tables for each in theirs[table]][public:]
    families = dict(zip(bureau.LEVELS, [*units, "identity"], strict=True))
    groups = []
    for (query, level), error in zip(asked(public=public), errors, strict=True):
        others = dict.fromkeys(QUERIES[query][1], "identity")
        groups.extend(qs.queries(schema, block=families[level], **others).within(error))
    return qs.Workload(schema, tuple(groups)), errors


def mean_plan(workload, budget):
    """Return the plan of least mean error relative to targets, in which all tables and levels count alike."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    groups = [replace(g, target=None, weight=1 / (g.target.std**2 * g.rows)) for g in workload]
    return qs.plan(qs.Workload(workload.schema, tuple(groups)), budget)


def plan_cell(counts, kind, public):
    """Plan the file in one of three ways."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    workload, errors = state(counts, public=public)
    cost, neighbours = (bureau.PUBLIC_COST, "replace_one") if public else (bureau.COST, "add_remove")
    budget = qs.PrivacyCost(cost, neighbours=neighbours)
    start = time.process_time()
    if kind == "mean":
        plan = mean_plan(workload, budget)
    elif kind == "least":
        plan = qs.least_budget(workload, neighbours=neighbours)
    else:
        plan = qs.plan(workload, budget, objective="worst")
    seconds = time.process_time() - start
    ours = [extreme.std for extreme in plan.extremes]
    return {
        "queries": workload.query_count,
        "bureau": errors,
        "errors": ours,
        "ratio": max(own / error for own, error in zip(ours, errors, strict=True)),
        "cost": plan.budget.privacy_cost / cost,
        "gap": plan.gap,
        "least": (plan.least_cost or 0.0) / cost,
        "seconds": seconds,
        "memory": peak_gigabytes(),
    }


def measure_cell(counts, people):
    """Make up people, measure and answer."""
    import pyarrow as pa  # noqa: PLC0415

    import querysmasher as qs  # noqa: PLC0415

    steps, clock = [], [time.process_time()]

    def lap(step):
        now = time.process_time()
        steps.append((step, now - clock[0], peak_gigabytes()))
        clock[0] = now

    workload, _ = state(counts)
    plan = mean_plan(workload, qs.PrivacyCost(bureau.COST))
    lap(f"plan {workload.query_count:,} queries")
    rng = np.random.default_rng(3)
    popular = rng.gamma(1.0, 1.0, counts[-1])
    draws = {
        "block": rng.choice(counts[-1], people, p=popular / popular.sum()),
        "quarters": rng.choice(8, people, p=[0.965, *[0.005] * 7]),
        "voting_age": rng.choice(2, people, p=[0.2, 0.8]),
        "hispanic": rng.choice(2, people, p=[0.9, 0.1]),
        "race": np.minimum(rng.geometric(0.6, people) - 1, 62),
    }
    columns = {
        name: pa.DictionaryArray.from_arrays(values, list(workload.schema[name].values))
        for name, values in draws.items()
    }
    data = pa.table(columns)
    lap("make up people")
    release = qs.measure(plan, data, progress=False)
    lap("count, add noise")
    answers = release.answer()
    lap(f"answer {answers.values.size:,} queries with standard errors")
    county = geography(counts, 2.0)[1]
    exact = np.bincount(county[draws["block"]], minlength=counts[1])
    own = release.answer(qs.Workload(workload.schema, (workload.groups[1],)))
    largest = float(np.abs((own.values - exact) / own.std).max())
    lap("compare the counties with exact counts")
    return {"steps": steps, "memory": peak_gigabytes(), "largest": largest}


if __name__ == "__main__":
    cell = {"plan": plan_cell, "measure": measure_cell}[sys.argv[1]]
    print(json.dumps(cell(*json.loads(sys.argv[2]))))
