"""Workloads around products of families: predicates, few rows, mixtures, large attributes, long schemas."""

import json
import sys
from dataclasses import dataclass
from functools import cache

from benchmarks.process import outcome, peak_gigabytes, timed
from benchmarks.report import Table, console

MEMORY = 2.0
"""Maximum peak memory, GB."""


@dataclass(frozen=True)
class Row:
    """A workload and its targets; times are ratios of processor time in one process."""

    name: str
    build: str
    arguments: tuple = ()
    above: float | None = None
    """Maximum excess of the error over a lower bound of all mechanisms, as a fraction."""
    seconds: float | None = None
    against: str = "uniform"
    """What the time is compared with: "uniform", the paper's plan; "eigh"; "tables" alone; or nothing."""
    ratio: float | None = None
    """Maximum ratio of times."""
    eigh: int = 0
    numbers: int | None = None
    """Maximum number of measurements."""
    better: float | None = None
    """Maximum loss as a fraction of the best split plan's."""
    error: float | None = None
    """Maximum error."""
    gap: float | None = None
    """Maximum gap, by the certificate."""
    slow: bool = False


ROWS = [
    Row("20 predicates, 50 × 30 × 4", "boxes", (20,), 0.016, 1, numbers=20),
    Row("100 predicates", "boxes", (100,), 0.018, 3, numbers=100),
    Row("500 mixed, 50 × 30 × 10 × 4 × 2", "mixed", (500,), 0.02, 60, "eigh", eigh=500, slow=True),
    Row("100 disjunctions and sums, 50 × 30 × 10", "disjunctions", (100,), 0.001, 5, numbers=100),
    Row("CPS 1+2-way + 20 predicates", "tables", (20,), None, None, "tables", 3, better=0.87, slow=True),
    Row("CPS 1+2-way + 60 predicates", "tables", (60,), None, None, "tables", 4, better=0.81, slow=True),
    Row("60 predicates on sets of 11 attributes", "scattered", (60,), None, 5, "eigh", eigh=500, numbers=61),
    Row("Adult 1+2-way + 20 predicates on 3 of 14", "adult", (20,), None, 2, "eigh", eigh=500),
    Row("Adult 1+2-way + 60 predicates on 3 of 14", "adult", (60,), None, 3, "eigh", eigh=500),
    Row("a + b <= 8, 10 × 10", "one", ("a + b <= 8",), 1e-6, numbers=1),
    Row("a < 3 or b < 3, 10 × 10", "one", ("a < 3 or b < 3",), 1e-6, numbers=1),
    Row("a + b <= 8 or c + d <= 8, [10]^4", "one", ("a + b <= 8 or c + d <= 8",), 1e-6, numbers=1),
    *(Row(f"{k} random rows, 10 × 10", "random", (10, k), 0.02, numbers=k) for k in (3, 10, 30)),
    Row("3 random rows × 10⁶ beside tables, 20 × 21", "million", (20, 21, 3), None, 5, gap=1e-4),
    Row("affine, 10 × 10", "joint", ("affine", 10), 0.02),
    Row("abs, 10 × 10", "joint", ("abs", 10), 0.02),
    Row("2,000 random rows, 60 × 60", "random", (60, 2000), 0.01, None, "eigh", 6, 3600, slow=True),
    Row("300 random rows, 60 × 60", "random", (60, 300), 0.01, 5, "eigh", eigh=3600),
    Row("prefix + affine + abs, 100 × 100", "sums", ("paa", 100), 0.02, 10),
    Row("identity + prefix + range, 100 × 100", "sums", ("ipr", 100), 0.02, 60),
    Row("the same + affine, 200 × 200", "sums", ("ipra", 200), 0.02, 60, "eigh", eigh=2000, slow=True),
    Row("affine, 100 × 100", "joint", ("affine", 100), 0.02, None, "uniform", 3),
    Row("census, 1-way", "census", (1,), None, None, "uniform", 2, slow=True),
    Row("census, 1+2-way", "census", (2,), None, None, "uniform", 2, slow=True),
    Row("prefix, 500 values", "prefix", (500,), None, None, "eigh", 15, 500),
    Row("prefix, 2,000 values", "prefix", (2000,), None, None, "eigh", 15, 2000, slow=True),
    Row("prefix a(600), range × sex, identity × region", "mixture", (0,), None, 1, ratio=3, error=3.335),
    Row("prefix a(600) × sex, range b(300) × region, 1-way", "mixture", (1,), None, 2, ratio=3, error=3.203),
    Row("all 1+2-way on 100 × 2 × 4 × 300, ranges, tables", "mixture", (2,), None, 1.5, ratio=3, error=6.28),
    Row("all 1+2-way, prefixes on 2 × 100 × 4 × 24, a predicate", "mixture", (3,), None, 2, ratio=4),
    Row(
        "windows of 32, 2,048 values",
        "windows",
        (2048, 32),
        None,
        None,
        "eigh",
        eigh=500,
        error=2.41,
        gap=0.01,
    ),
    Row(
        "windows of 7 and 30, 100,000 values",
        "windows",
        (100_000, 7, 30),
        None,
        20,
        "eigh",
        eigh=500,
        gap=0.01,
    ),
    Row("100 attributes of 2 to 100 values, 1+2-way", "many", (), None, None, "uniform", 4),
]


def cliffs(quick):
    """Predicates, few rows, mixtures and large attributes."""
    table = Table(
        "Around products of families",
        "Default plans. *above best*: how far the error can be above the best of **any** mechanism, at most,"
        " by a dense solve of its own or else by `plan.limit()`. *seconds* of processor, on one core."
        ' *ratio*: to the plan with `centering="uniform"`, to one eigendecomposition of a random matrix with'
        " as many rows as stated, or to the tables alone, in the same process. *of split*: the loss as a"
        " fraction of the best plan that splits every query.",
        ("workload", "ours", "above best", "numbers", "seconds", "ratio", "to", "GB", "of split"),
        f"every target on error, time and measurements holds, below {MEMORY:g} GB",
    )
    for row in ROWS:
        if quick and row.slow:
            continue
        found = run(row)
        console.log(f"{row.name}: {found}", highlight=False)
        to = f"eigh({row.eigh:,})" if row.against == "eigh" else row.against
        table.add(
            row.name,
            f"{found['rmse']:.4f}",
            "" if found["above"] is None else f"{found['above']:.2%}",
            f"{found['numbers']:,}",
            f"{found['seconds']:.2f}",
            f"{found['ratio']:.2f}",
            to,
            f"{found['gigabytes']:.2f}",
            "" if found["better"] is None else f"{found['better']:.3f}",
        )
        for what, value, most in (
            ("above the best", found["above"], row.above),
            ("seconds", found["seconds"], row.seconds),
            (f"time / {to}", found["ratio"], row.ratio),
            ("measurements", found["numbers"], row.numbers),
            ("loss / split", found["better"], row.better),
            ("GB", found["gigabytes"], MEMORY),
            ("error", found["rmse"], row.error),
            ("gap", found["gap"], row.gap),
        ):
            if most is not None:
                held = value is not None and value <= most
                table.check(held, f"{row.name}: {what} {value}, target {most:g}")
    return table


@cache
def run(row):
    """Plan in a process of its own, on one core."""
    bounded = row.above is not None
    given = json.dumps([row.build, row.arguments, row.against, row.eigh, row.better is not None, bounded])
    return outcome("cliffs", given, one_core=True)


def perform(build, arguments, against, eigh, split, bounded):
    """Plan one row: its error, its time, what that is compared with, and a bound of its own."""
    import querysmasher as qs  # noqa: PLC0415 - the parent stays small
    from benchmarks import cliff_workloads  # noqa: PLC0415
    from querysmasher.planning.limits import limited  # noqa: PLC0415

    workload = getattr(cliff_workloads, build)(*arguments)
    cost = qs.PrivacyCost(1.0)
    qs.plan(qs.affine(qs.Schema.of(a=3, b=3), "a", "b"), cost, progress=False)  # loads all libraries
    plan, seconds = timed(lambda: qs.plan(workload, cost, progress=False))
    gigabytes = peak_gigabytes()
    if against == "eigh":
        other = cliff_workloads.eigh_seconds(eigh)
    elif against == "tables":
        tables = cliff_workloads.tables(0)
        _, other = timed(lambda: qs.plan(tables, cost, progress=False))
    else:
        _, other = timed(lambda: qs.plan(workload, cost, centering="uniform", progress=False))
    better = None
    if split:
        with limited(beside_work=0):
            better = plan.weighted_loss / qs.plan(workload, cost, progress=False).weighted_loss
    best = cliff_workloads.lower_bound(workload) if bounded else None
    if bounded and best is None:
        best = plan.limit().rmse
    return {
        "rmse": plan.weighted_rmse,
        "gap": plan.gap,
        "above": None if best is None else max(0.0, plan.weighted_rmse / best - 1),
        "numbers": plan.measurements,
        "seconds": seconds,
        "ratio": seconds / other,
        "gigabytes": gigabytes,
        "better": better,
    }


if __name__ == "__main__":
    print(json.dumps(perform(*json.loads(sys.argv[1]))))
