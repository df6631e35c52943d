"""Attributes of up to a million values: error against closed forms of other mechanisms, time and memory."""

import json
import math
import subprocess
import sys
import time

from benchmarks.report import Table, console

SIZES = (4_096, 16_384, 131_072, 1_000_000)
BRANCHES = (2, 4, 8, 16)


def haar(n, branch=2):
    """Return the RMSE of prefixes under the best weights of the levels of a tree of equal nodes, at cost 1.

    The level residuals are common eigenspaces; with m_l their dimensions and E_l the energy of the prefixes
    there, the least loss is (Σ √(m_l E_l))² / n. Branch 2 is the Haar wavelet.
    """
    import numpy as np  # noqa: PLC0415 - the parent stays small

    total = math.sqrt(((np.arange(1, n + 1) / n) ** 2).sum() * n)  # the constant vector: m = 1
    size = n
    while size > 1:
        child = size // branch
        taken = np.arange(size) + 1.0
        full = np.floor(taken / child)
        rest = taken - full * child
        energy = (full * child**2 + rest**2 - taken**2 / branch) / child
        total += math.sqrt((n // size) * (branch - 1) * energy.sum() * (n // size))
        size = child
    return math.sqrt(total**2 / n / n)


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


CASES = {
    "prefix": lambda qs, n: qs.queries(qs.Schema.of(a=n), a="prefix"),
    "range": lambda qs, n: qs.queries(qs.Schema.of(a=n), a="range"),
    "prefix + identity": lambda qs, n: _sum(qs, n, "prefix", "identity"),
    "range + identity": lambda qs, n: _sum(qs, n, "range", "identity"),
    "prefix + range, as tables": lambda qs, n: _sum(qs, n, "prefix", "range").weighing("tables"),
    "rising weights": _weighted,
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
    ("rising weights", 100_000, 0.01),
    ("prefix × sex × region(20), ≤3-way", 100_000, 0.004),
    ("three prefix attributes, 1-way", 10_000, 0.015),
    ("three and region(6), 1+2-way", 10_000, 0.015),
]


def million(quick):
    """Return the table of attributes with many values."""
    table = Table(
        "Attributes of many values",
        "Root mean squared errors at privacy cost 1. *Haar* and *best tree* (2, 4, 8 or 16 branches, where "
        "these fit) have the best weights per level; *Toeplitz* is the square-root factorisation: closed "
        "forms. *Seconds* is the processor time to plan, all variances of prefixes included.",
        ("workload", "n", "Haar", "best tree", "Toeplitz", "ours", "certified gap", "seconds", "GB"),
        "attributes of many values are planned near the optimum, in seconds",
    )
    for name, n, most in ASKED:
        if quick and n > 20_000:
            continue
        found = _run(name, n)
        peers = ["", "", ""]
        if name == "prefix":
            trees = {b: haar(n, b) for b in BRANCHES if b ** round(math.log(n, b)) == n}
            peers = [
                f"{trees[2]:.3f}" if 2 in trees else "",
                f"{min(trees.values()):.3f}" if trees else "",
                f"{toeplitz(n):.3f}",
            ]
            for peer in filter(None, peers):
                table.check(found["rmse"] < float(peer), f"{name} {n:,}: {found['rmse']:.3f} < {peer}")
        gap = found["gap"]
        table.add(
            name,
            f"{n:,}",
            *peers,
            f"{found['rmse']:.3f}",
            f"{gap:.2%}",
            f"{found['seconds']:.1f}",
            f"{found['gigabytes']:.2f}",
        )
        table.check(gap <= most, f"{name} {n:,}: gap {gap:.3%} <= {most:.2%}")
        table.check(found["seconds"] <= 20, f"{name} {n:,}: {found['seconds']:.1f} s <= 20 s")
        table.check(found["gigabytes"] <= 1, f"{name} {n:,}: {found['gigabytes']:.2f} GB <= 1 GB")
        console.log(f"{name} {n:,}: {found}", highlight=False)
    return table


def _run(name, n):
    """Plan in a process of its own, which reports its memory."""
    command = [sys.executable, "-m", "benchmarks.million", name, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own module
    return json.loads(done.stdout.splitlines()[-1])


def perform(name, n):
    """Plan one case, and print what came out."""
    import resource  # noqa: PLC0415 - only where a process measures itself

    import querysmasher as qs  # noqa: PLC0415 - the parent stays small

    workload = CASES[name](qs, n)
    start = time.process_time()
    plan = qs.plan(workload, qs.PrivacyCost(1.0))
    if name == "prefix":
        plan.variances(workload)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"rmse": plan.rmse, "gap": plan.gap, "seconds": seconds, "gigabytes": peak}))


if __name__ == "__main__":
    perform(sys.argv[1], int(sys.argv[2]))
