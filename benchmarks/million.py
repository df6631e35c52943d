"""Attributes of up to a million values: error against closed forms of other mechanisms, time and memory."""

import json
import math
import sys
import time

from benchmarks.process import outcome, peak_gigabytes
from benchmarks.report import Table, console

SIZES = (4_096, 16_384, 131_072, 1_000_000)
BRANCHES = (2, 4, 8, 16)


def tree(n, branch=2):
    """Return the RMSE of prefixes under the best weights of the levels of a tree of equal nodes, at cost 1.

    The tree has N leaves, the next power of `branch`. Its level residuals are common eigenspaces; with m_l
    their dimensions and E_l the energy of the n prefixes there, the least loss is (Σ √(m_l E_l))² / N.
    Branch 2 is the Haar wavelet.
    """
    import numpy as np  # noqa: PLC0415 - the parent stays small

    size = leaves = branch ** math.ceil(math.log(n, branch) - 1e-9)
    total = math.sqrt(((np.arange(1, n + 1) / leaves) ** 2).sum() * leaves)  # the constant vector: m = 1
    while size > 1:
        child = size // branch
        taken = np.arange(size) + 1.0
        full = np.floor(taken / child)
        rest = taken - full * child
        energy = (full * child**2 + rest**2 - taken**2 / branch) / child
        every = (n // size) * energy.sum() + energy[: n % size].sum()
        total += math.sqrt((leaves // size) * (branch - 1) * every)
        size = child
    return math.sqrt(total**2 / leaves / n)


def toeplitz(n):
    """Return the RMSE of prefixes under the square-root factorisation, at cost 1."""
    import numpy as np  # noqa: PLC0415

    k = np.arange(1, n)
    squares = np.cumsum(np.append(1.0, np.cumprod((2 * k - 1) / (2 * k))) ** 2)
    return math.sqrt(squares[-1] * squares.mean())


def _sum(qs, n, *families):
    schema = qs.Schema.of(a=n)
    return sum(
        (qs.queries(schema, a=family) for family in families[1:]), start=qs.queries(schema, a=families[0])
    )


def _weighted(qs, n):
    import numpy as np  # noqa: PLC0415

    schema = qs.Schema.of(a=n)
    return qs.queries(schema, a=qs.ranges(schema, "a", 0, np.arange(n), np.arange(1.0, n + 1) / n))


def _wild(qs, n, weigh, *more):
    """Return prefixes with independent random weights, and other families."""
    import numpy as np  # noqa: PLC0415

    schema = qs.Schema.of(a=n)
    weights = weigh(np.random.default_rng(0), n)
    asked = np.flatnonzero(weights)
    prefixes = qs.queries(schema, a=qs.ranges(schema, "a", 0, asked, weights[asked]))
    return sum((qs.queries(schema, a=family) for family in more), start=prefixes).weighing("tables")


def _with_sums(qs, n, family, *by):
    """Return counts about a number from 0 to 1, and its sums, which weigh as much as all counts do."""
    number = qs.Number("a", 0, 1 - 1 / n, step=1 / n)
    schema = qs.Schema([number, qs.Categorical("group", [str(i) for i in range(20)])])
    counts = qs.queries(schema, {"a": family} | dict.fromkeys(by, "identity"))
    return (counts + qs.sums(schema, "a", by=list(by))).weighing("tables")


def _crossed(qs, n):
    regions = [str(place) for place in range(20)]
    attributes = [
        qs.Ordinal("a", range(n)),
        qs.Categorical("sex", ["F", "M"]),
        qs.Categorical("region", regions),
    ]
    return qs.all_kway(qs.Schema(attributes), [1, 2, 3])


def _several(qs, n):
    large = [qs.Ordinal(name, range(n)) for name in "abc"]
    schema = qs.Schema([*large, qs.Categorical("region", list("uvwxyz"))])
    pairs = [qs.queries(schema, {name: "prefix", "region": "identity"}) for name in "abc"]
    return sum(pairs, start=qs.all_kway(schema, 1))


def dense_optimum(n, steps=8):
    """Return the least RMSE of prefixes of any matrix mechanism at cost 1, from below.

    It is tr (P^½GP^½)^½ / √n at the best distribution p of the values; every p gives a lower bound.
    """
    import numpy as np  # noqa: PLC0415

    place = np.arange(n)
    gram = n - np.maximum.outer(place, place).astype(float)
    p, best = np.full(n, 1 / n), 0.0
    for _ in range(steps):
        root = np.sqrt(p)
        values, vectors = np.linalg.eigh(root[:, None] * gram * root)
        diagonal = (vectors**2) @ np.sqrt(np.maximum(values, 0.0))
        best = max(best, float(diagonal.sum()))
        p = p * (diagonal / p) ** 1.5
        p /= p.sum()
    return best / math.sqrt(n)


CASES = {
    "prefix": lambda qs, n: qs.queries(qs.Schema.of(a=n), a="prefix"),
    "range": lambda qs, n: qs.queries(qs.Schema.of(a=n), a="range"),
    "prefix + identity": lambda qs, n: _sum(qs, n, "prefix", "identity"),
    "range + identity": lambda qs, n: _sum(qs, n, "range", "identity"),
    "prefix + range, as tables": lambda qs, n: _sum(qs, n, "prefix", "range").weighing("tables"),
    "rising weights": _weighted,
    "lognormal weights": lambda qs, n: _wild(qs, n, lambda rng, n: rng.lognormal(0, 1, n)),
    "half of them × 100": lambda qs, n: _wild(qs, n, lambda rng, n: 1 + 99.0 * (rng.random(n) < 0.5)),
    "prefix + sum, as tables": lambda qs, n: _with_sums(qs, n, "prefix"),
    "range × group(20) + sum × group(20), as tables": lambda qs, n: _with_sums(qs, n, "range", "group"),
    "one in a hundred": lambda qs, n: _wild(qs, n, lambda rng, n: 1.0 * (rng.random(n) < 0.01)),
    "× 100, and all ranges": lambda qs, n: _wild(
        qs, n, lambda rng, n: 1 + 99.0 * (rng.random(n) < 0.5), "range"
    ),
    "prefix × sex × region(20), ≤3-way": _crossed,
    "three prefix attributes, 1-way": lambda qs, n: qs.all_kway(qs.Schema.of(a=n, b=n, c=n), 1),
    "three and region(6), 1+2-way": _several,
}

ASKED = [
    *(("prefix", n, 0.0025) for n in SIZES),
    *(("range", n, 0.0005) for n in (100_000, 1_000_000)),
    ("prefix + identity", 1_000_000, 0.0025),
    ("range + identity", 1_000_000, 0.0005),
    ("prefix + range, as tables", 100_000, 0.01),
    *(("prefix + sum, as tables", n, 0.003) for n in (10_000, 100_000)),
    ("range × group(20) + sum × group(20), as tables", 100_000, 0.003),
    ("rising weights", 100_000, 0.01),
    ("lognormal weights", 100_000, 0.06),
    ("half of them × 100", 100_000, 0.06),
    ("one in a hundred", 100_000, 0.01),
    ("× 100, and all ranges", 100_000, 0.01),
    ("prefix × sex × region(20), ≤3-way", 100_000, 0.004),
    ("three prefix attributes, 1-way", 10_000, 0.015),
    ("three and region(6), 1+2-way", 10_000, 0.015),
]


def million(quick):
    """Return the table of attributes with many values."""
    table = Table(
        "Attributes of many values",
        "Root mean squared errors at privacy cost 1. *Haar* (Privelet) and *best tree*, a weighted hierarchy "
        "of 2, 4, 8 or 16 branches as in HDMM's templates, have the best weights per level; *Toeplitz* is "
        "the square-root factorisation. These are closed forms, at any size. HDMM's search for prefixes "
        "(OPT_0, a p-Identity strategy) needs the n × n Gram matrix and O(n²p) operations per step: it was "
        "not run at these sizes. Like every matrix mechanism, it is not better than ours by more than the "
        "certified gap. Weights that jump from value to value may cost up to 6 %. *Seconds* is the processor "
        "time to plan, all variances of prefixes included.",
        ("workload", "n", "Haar", "best tree", "Toeplitz", "ours", "certified gap", "seconds", "GB"),
        "attributes of many values are planned near the optimum, in seconds",
    )
    for name, n, most in ASKED:
        if quick and n > 20_000:
            continue
        found = _run(name, n)
        peers = ["", "", ""]
        if name == "prefix":
            trees = {b: tree(n, b) for b in BRANCHES}
            peers = [f"{trees[2]:.3f}", f"{min(trees.values()):.3f}", f"{toeplitz(n):.3f}"]
            for peer in peers:
                table.check(found["rmse"] < float(peer), f"{name} {n:,}: {found['rmse']:.3f} < {peer}")
        gap = found["gap"]
        figures = shown(found, rmse=".3f", gap=".2%", seconds=".1f", gigabytes=".2f")
        table.add(name, f"{n:,}", *peers, *figures)
        table.check(gap <= most, f"{name} {n:,}: gap {gap:.3%} <= {most:.2%}")
        longest, memory = (30, 2) if n == 100_000 and most >= 0.01 else (20, 1)
        table.check(found["seconds"] <= longest, f"{name} {n:,}: {found['seconds']:.1f} s <= {longest} s")
        table.check(found["gigabytes"] <= memory, f"{name} {n:,}: {found['gigabytes']:.2f} GB <= {memory} GB")
    return table


def implicit(quick):
    """Return the table of strategies without matrices at sizes at which the optimum is known."""
    table = Table(
        "Strategies without matrices against the optimum",
        "Root mean squared errors of all prefixes at privacy cost 1. *Optimum* is that of any matrix "
        "mechanism, by eigenvalue decompositions; *planned* is our strategy for attributes of many values; "
        "*measured* is the same in integers, with its rounded noise.",
        ("n", "optimum", "planned", "measured", "above the optimum"),
        "strategies without matrices are within 0.3 % of the optimum, in integers",
    )
    for n in (300, 1_000, 2_000)[: 2 if quick else 3]:
        found = _run("implicit", n)
        above = found["measured"] / found["optimum"] - 1
        table.add(f"{n:,}", *shown(found, optimum=".4f", planned=".4f", measured=".4f"), f"{above:.2%}")
        table.check(above <= 0.003, f"prefix {n:,}: {above:.3%} above the optimum <= 0.3 %")
    return table


def measured(quick):
    """Return the table of measuring and answering prefixes of many values."""
    table = Table(
        "Measuring an attribute of many values",
        "All prefixes, measured in exact integers and answered with their standard errors, on top of "
        "counting: processor time.",
        ("records", "n", "counting, s", "measuring and answering, s", "GB"),
        "many values are measured and answered in seconds",
    )
    records, n = (10**6, 10**5) if quick else (10**7, 10**6)
    found = _run("measured", n, records)
    table.add(f"{records:,}", f"{n:,}", *shown(found, counting=".1f", seconds=".1f", gigabytes=".2f"))
    table.check(found["seconds"] <= 6, f"measured and answered in {found['seconds']:.1f} s <= 6 s")
    table.check(abs(found["whitened"] - 1) <= 0.05, f"std over error {found['whitened']:.3f} is 1 within 5 %")
    return table


def shown(found, **formats):
    """Return figures as the table shows them, each in its format."""
    return [format(found[key], how) for key, how in formats.items()]


def _run(name, n, *more):
    """Plan in a process of its own, which reports its memory; log what came out."""
    found = outcome("million", name, n, *more)
    console.log(f"{name} {n:,}: {found}", highlight=False)
    return found


def perform(name, n):
    """Plan one case, and return what came out."""
    import querysmasher as qs  # noqa: PLC0415 - the parent stays small

    workload = CASES[name](qs, n)
    start = time.process_time()
    plan = qs.plan(workload, qs.PrivacyCost(1.0))
    if name == "prefix":
        plan.variances(workload)
    seconds = time.process_time() - start
    return {"rmse": plan.rmse, "gap": plan.gap, "seconds": seconds}


def perform_implicit(n):
    """Plan prefixes without matrices, and return their errors as planned and as measured."""
    import querysmasher as qs  # noqa: PLC0415
    from querysmasher.planning.limits import limited  # noqa: PLC0415
    from querysmasher.planning.objectives.objective import as_measured  # noqa: PLC0415

    workload = qs.queries(qs.Schema.of(a=n), a="prefix")
    with limited(dense_values=100):
        plan = qs.plan(workload, qs.PrivacyCost(1.0))
    as_released = as_measured(plan, 10**8).variances(workload)
    return {
        "optimum": dense_optimum(n),
        "planned": plan.rmse,
        "measured": math.sqrt(as_released.mean()),
    }


def perform_measured(n, records):
    """Measure and answer prefixes; compare errors of far-apart ones with their standard errors."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    import querysmasher as qs  # noqa: PLC0415
    from querysmasher.data.sources import open_table  # noqa: PLC0415

    schema = qs.Schema.of(a=n)
    workload = qs.queries(schema, a="prefix")
    plan = qs.plan(workload, qs.PrivacyCost(1.0))
    values = np.random.default_rng(0).integers(0, n, records)
    frame = pa.table({"a": values})
    start = time.process_time()
    counter = open_table(schema, frame, ["a"], "refuse", None, None)
    counter.records()
    (counts,) = counter.marginals([("a",)])
    counting = time.process_time() - start
    start = time.process_time()
    answers = qs.measure(plan, frame).answer(workload)
    seconds = time.process_time() - start - counting
    errors = np.diff((answers.values - np.cumsum(counts))[:: max(1, n // 20_000)])  # nearly independent
    pairs = np.arange(0, n, max(1, n // 20_000))
    ranges = qs.ranges(schema, "a", pairs[:-1] + 1, pairs[1:])
    expected = plan.variances(qs.queries(schema, a=ranges))
    whitened = math.sqrt(float((errors**2 / expected).mean()))
    return {"counting": counting, "seconds": seconds, "whitened": whitened}


if __name__ == "__main__":
    kind, *sizes = sys.argv[1], *map(int, sys.argv[2:])
    done = {"implicit": perform_implicit, "measured": perform_measured}.get(kind)
    result = perform(kind, *sizes) if done is None else done(*sizes)
    result["gigabytes"] = peak_gigabytes()
    print(json.dumps(result))
