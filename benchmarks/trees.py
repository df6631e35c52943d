"""Hierarchies of up to a million leaves, alone and by age and sex; and a census-like drill."""

import itertools
import json
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.process import outcome, peak_gigabytes
from benchmarks.report import Table
from benchmarks.spark import local_session

COUNTIES, TRACTS = [51, 3_143], [51, 3_143, 85_000]
MILLION = [10, 100, 1_000, 10_000, 100_000, 1_000_000]
CASES = {  # nodes of each level; crossed with age and sex; weights; most gap and seconds
    "3,143 counties in 51 states": (COUNTIES, False, "query", 0.0015, 5),
    "the same, every level alike": (COUNTIES, False, "level", 0.01, 5),
    "the same × age(116) prefix × sex": (COUNTIES, True, "query", 0.0015, 5),
    "the same, all tables of up to 3 attributes": (COUNTIES, "all", "query", 0.0015, 5),
    "85,000 tracts in counties in states": (TRACTS, False, "query", 0.0015, 15),
    "the same, every level alike ": (TRACTS, False, "level", 0.01, 15),
    "the same × age(116) prefix × sex ": (TRACTS, True, "query", 0.0015, 15),
    "10⁶ leaves in 6 levels": (MILLION, False, "query", 0.0015, 60),
    "the same, every level alike  ": (MILLION, False, "level", 0.01, 60),
}
MOST_MEMORY = 2.0
PEOPLE = 10_000_000


def trees(quick):
    """Plan hierarchies, each in its own process."""
    table = Table(
        "Hierarchies",
        "Made-up geographies with very unequal numbers of children, at privacy cost 1. *Gap* is the "
        "certificate: alone, against any mechanism; crossed, against every plan around the same centres. "
        "*One precision per level* is how far the best with one noise scale per level is above ours. "
        "Seconds are those of the processor for `qs.plan`; memory is the peak of the process.",
        ("workload", "queries", "RMSE", "gap", "one precision per level", "seconds", "GB"),
        "hierarchies are planned within their targets",
    )
    for name, (counts, crossed, weights, gap, seconds) in CASES.items():
        if quick and counts is not COUNTIES:
            continue
        found = _cell("plan", [counts, crossed, weights])
        table.add(
            name.strip(),
            f"{found['queries']:,}",
            f"{found['rmse']:.3f}",
            f"{found['gap']:.4%}",
            "" if found["level"] is None else f"+{found['level']:.2%}",
            f"{found['seconds']:.1f}",
            f"{found['memory']:.2f}",
        )
        table.check(found["gap"] <= gap, f"{name}: gap {found['gap']:.3%}, target {gap:.2%}")
        table.check(found["seconds"] <= seconds, f"{name}: {found['seconds']:.1f} s, target {seconds} s")
        table.check(found["memory"] <= MOST_MEMORY, f"{name}: {found['memory']:.2f} GB, target {MOST_MEMORY}")
    return table


def drill(quick):
    """Measure ten million made-up people: states, counties and tracts by age, sex and race."""
    people = 200_000 if quick else PEOPLE
    table = Table(
        "A census-like drill",
        f"{people:,} made-up people: 85,000 tracts in 3,143 counties in 51 states, age (116), sex, race (7). "
        "Asked: every level of the tracts by 16 age groups, sex and race (19 million cells), the same "
        "without race, and single years of age by sex. From a Parquet file to a release with standard errors "
        "of every count, in one process each; seconds of the processor, and the peak of memory so far. Spark "
        "has two threads in the same machine, whose time and memory are not counted here.",
        ("step", "seconds", "GB"),
        "the drill stays below 3 GB",
    )
    for source in ("Arrow", *(("Spark",) if shutil.which("java") and not quick else ())):
        found = _cell("drill", [people, source])
        for step, seconds, memory in found["steps"]:
            table.add(f"{source}: {step}", f"{seconds:.1f}", f"{memory:.2f}")
        table.check(found["largest"] <= 3.0, f"{source}: {found['largest']:.2f} GB")
    return table


def _cell(name, arguments):
    """Run a measurement in its own process."""
    return outcome("trees", name, json.dumps(arguments), one_core=True)


def geography(counts, concentration):
    """Return for each level but the last the group of every leaf, with very unequal numbers of children."""
    import numpy as np  # noqa: PLC0415 - the parent of cells stays small

    generator = np.random.default_rng(1)
    parents = []
    for above, below in itertools.pairwise(counts):
        shares = generator.dirichlet(np.full(above, concentration))
        parents.append(np.repeat(np.arange(above), 1 + generator.multinomial(below - above, shares)))
    groups = np.arange(counts[-1])
    levels = []
    for own in reversed(parents):
        groups = own[groups]
        levels.append(groups)
    return levels[::-1]


def plan_cell(counts, crossed, weights):
    """Plan one hierarchy."""
    import querysmasher as qs  # noqa: PLC0415

    levels = geography(counts, 1.0 if len(counts) > 3 else 2.0)
    attributes = [qs.Categorical("place", range(counts[-1]))]
    if crossed:
        attributes += [qs.Ordinal("age", range(116)), qs.Categorical("sex", ["F", "M"])]
    schema = qs.Schema(attributes)
    even = [counts[-1] / count for count in counts] if weights == "level" else None
    tree = qs.hierarchy(schema, "place", *levels, weights=even)
    workload = qs.queries(schema, place=tree)
    if crossed == "all":
        workload = qs.all_kway(schema, [1, 2, 3], {"place": tree})
    elif crossed:
        workload = qs.queries(schema, place=tree, age="prefix", sex="identity")
    start = time.process_time()
    plan = qs.plan(workload, qs.PrivacyCost(1.0))
    seconds, memory = time.process_time() - start, peak_gigabytes()
    return {
        "queries": workload.query_count,
        "rmse": plan.weighted_rmse if weights == "query" else plan.rmse,
        "gap": plan.gap,
        "level": None if crossed else per_level(tree, plan),
        "seconds": seconds,
        "memory": memory,
    }


def per_level(tree, plan):
    """Return how far the best strategy with one precision per level is above a plan, as a fraction."""
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import minimize  # noqa: PLC0415

    from querysmasher.planning.lines.trees import WeightedTree, nested  # noqa: PLC0415

    asked = nested([tree], [1.0])
    own = WeightedTree(asked.nodes, np.ones(len(asked.nodes)), asked.weights)
    depth = np.empty(len(asked.nodes), dtype=np.int64)
    for number, level in enumerate(asked.nodes.levels):
        depth[level] = number
    depth[asked.nodes.leaves] = len(asked.nodes.levels) - 1

    def at(x):
        shares = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        spare = asked.nodes.path_sums(shares[depth])  # a leaf that skips levels has some precision to spare
        precisions = shares[depth]
        precisions[asked.nodes.leaves] += 1 - spare
        loss, slopes = own.slopes(precisions)
        by_share = np.bincount(depth, slopes, minlength=len(shares))
        return np.log(loss), -shares * (by_share - by_share @ shares) / loss

    best = minimize(at, np.zeros(len(asked.nodes.levels)), jac=True, method="L-BFGS-B")
    return (np.exp(best.fun) / plan.weighted_loss) ** 0.5 - 1


def drill_cell(people, source):
    """Run the drill once."""
    import numpy as np  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    import querysmasher as qs  # noqa: PLC0415

    steps, clock = [], [time.process_time()]

    def lap(step):
        now = time.process_time()
        steps.append((step, now - clock[0], peak_gigabytes()))
        clock[0] = now

    state, county = geography(TRACTS, 2.0)
    tracts = [f"{s:02}{c:04}{t:05}" for t, (s, c) in enumerate(zip(state, county, strict=True))]
    groups = [f"{min(age // 5 * 5, 75):02}" for age in range(116)]
    schema = qs.Schema(
        [
            qs.Categorical("tract", tracts),
            qs.Ordinal("age_group", sorted(set(groups))),
            qs.Categorical("sex", ["F", "M"]),
            qs.Categorical("race", list("ABCDEFG")),
            qs.Ordinal("age", range(116)),
        ]
    )
    places = qs.hierarchy(schema, "tract", state=2, county=6)
    lap("schema and geography")
    workload = (
        qs.queries(schema, tract=places, age_group="prefix", sex="identity", race="identity")
        + qs.queries(schema, tract=places, age_group="prefix", sex="identity")
        + 10 * qs.queries(schema, age="prefix", sex="identity")
    )
    plan = qs.plan(workload, qs.zCDP(0.5))
    lap(f"plan {workload.query_count:,} queries (± {plan.rmse:.1f})")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        generator = np.random.default_rng(2)
        popular = generator.gamma(2.0, 1.0, len(tracts))
        with pq.ParquetWriter(path, _people(1, tracts, popular, groups, generator).schema) as writer:
            for _ in range(0, people, 1_000_000):
                writer.write_table(_people(min(people, 1_000_000), tracts, popular, groups, generator))
        lap("make up people")
        data = path
        if source == "Spark":
            data = local_session("1g").read.parquet(str(path))
            lap("start Spark")
        release = qs.measure(plan, data, progress=False)
        lap("count, add noise")
        answers = release.answer()
        lap(f"answer {answers.values.size:,} queries with standard errors")
        release.at("county").table("county", "race")
        release.at("state").share("age_group >= '65'", by="state")
        lap("tables of counties, shares by state")
        release.save(Path(folder) / "release.qs")
        lap("save the release")
    return {"steps": steps, "largest": peak_gigabytes()}


def _people(count, tracts, popular, groups, generator):
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    age = np.minimum(generator.gamma(3.0, 13.0, count), 115).astype(np.int64)
    where = np.searchsorted(np.cumsum(popular) / popular.sum(), generator.random(count))
    return pa.table(
        {
            "tract": pa.DictionaryArray.from_arrays(np.minimum(where, len(tracts) - 1), tracts),
            "age_group": pa.DictionaryArray.from_arrays(age, pa.array(groups)),
            "sex": pa.DictionaryArray.from_arrays(generator.integers(0, 2, count), ["F", "M"]),
            "race": pa.DictionaryArray.from_arrays(
                generator.choice(7, count, p=[0.6, 0.2, 0.1, 0.05, 0.02, 0.02, 0.01]), list("ABCDEFG")
            ),
            "age": age,
        }
    ).cast(
        pa.schema(
            [
                ("tract", pa.string()),
                ("age_group", pa.string()),
                ("sex", pa.string()),
                ("race", pa.string()),
                ("age", pa.int64()),
            ]
        )
    )


if __name__ == "__main__":
    cell = {"plan": plan_cell, "drill": drill_cell}[sys.argv[1]]
    print(json.dumps(cell(*json.loads(sys.argv[2]))))
