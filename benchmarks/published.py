"""Default plans beside the figures in the result files that HDMM's authors publish with its code."""

import json
import sys
from dataclasses import dataclass
from functools import cache

from benchmarks.process import outcome, timed
from benchmarks.report import Table, console, gap, seconds

ROUNDING = 1.001
"""Maximum ratio to a published figure, which is rounded."""

LINES = {  # by number of values and kind: the best published error, and the bound by singular values
    (128, "prefix"): (2.3121, 2.2544),
    (128, "range"): (2.5992, 2.5735),
    (128, "windows"): (2.3000, 2.2010),
    (256, "prefix"): (2.5282, 2.4714),
    (256, "range"): (2.9022, 2.8764),
    (256, "windows"): (2.3577, 2.3038),
    (512, "prefix"): (2.7516, 2.6901),
    (512, "range"): (3.2099, 3.1832),
    (512, "windows"): (2.3793, 2.3504),
    (1024, "prefix"): (3.0653, 2.9096),
    (1024, "range"): (3.5681, 3.4923),
    (1024, "windows"): (2.3887, 2.3726),
    (2048, "prefix"): (3.9585, 3.1296),
    (2048, "range"): (3.8502, 3.8028),
    (2048, "windows"): (3.5774, 2.3834),
}


@dataclass(frozen=True)
class Row:
    """A workload, what HDMM reaches, and a lower bound that its files state."""

    name: str
    build: str
    arguments: tuple
    published: float
    bound: float | None = None
    gap: float | None = None
    """Maximum gap."""
    seconds: float | None = None
    """Maximum processor time."""
    slow: bool = False


ROWS = [
    Row("census, persons (2 × 2 × 64 × 115)", "census", (), 2.3519, gap=0.02, seconds=15, slow=True),
    Row("Adult 1: marginals on up to 3 of 14", "adult_marginals", (), 11.2938),
    Row("Adult 2: prefixes and categories, pairs", "adult_pairs", (), 24.9534),
    Row("CPS 1: all marginals", "cps_marginals", (), 1.8585),
    Row("CPS 2: two prefixes in all marginals", "cps_prefixes", (), 6.9755),
    Row("Loans 1: tables of up to 5,000 cells", "loans", ("identity",), 8.2628),
    Row("Loans 2: the same with prefixes", "loans", ("prefix",), 23.6048),
    *(
        Row(
            f"{'windows of 32' if kind == 'windows' else kind}, {size:,} values",
            "line",
            (size, kind),
            *figures,
            slow=size > 512,
        )
        for (size, kind), figures in LINES.items()
    ),
]


def published(quick):
    """HDMM's published figures."""
    table = Table(
        "HDMM's published figures",
        "Default plans beside the result files in the repository of the High-Dimensional Matrix Mechanism"
        " (dpcomp-org/hdmm): `hderror.csv`, of which the best of three templates is shown, and `oned.csv`, of"
        " which the best strategy is shown: that of its convex optimisation, or wavelets for prefixes of"
        " 2,048 values, where this has not converged. All are root mean squared errors at privacy cost 1"
        " under Gaussian noise. *bound* is the published lower bound by singular values. *seconds* of"
        " processor, on one core.",
        ("workload", "queries", "HDMM", "ours", "of HDMM", "bound", "gap", "seconds"),
        "no error is above HDMM's or below the bound, and the census is planned to 2% in 15 seconds",
    )
    for row in ROWS:
        if quick and row.slow:
            continue
        found = run(row)
        console.log(f"{row.name}: {found}", highlight=False)
        ratio = found["rmse"] / row.published
        table.add(
            row.name,
            f"{found['queries']:,}",
            f"{row.published:.4f}",
            f"{found['rmse']:.4f}",
            f"{ratio:.3f}",
            "" if row.bound is None else f"{row.bound:.4f}",
            gap(found["gap"]),
            seconds(found["seconds"]),
        )
        table.check(ratio <= ROUNDING, f"{row.name}: {found['rmse']:.4f}, HDMM {row.published:.4f}")
        if row.bound is not None:
            table.check(found["rmse"] * ROUNDING >= row.bound, f"{row.name}: below the bound {row.bound:.4f}")
        for what, most in (("gap", row.gap), ("seconds", row.seconds)):
            if most is not None:
                table.check(found[what] <= most, f"{row.name}: {what} {found[what]:.3g}, target {most:g}")
    return table


@cache
def run(row):
    """Plan in a process of its own, on one core."""
    return outcome("published", json.dumps([row.build, row.arguments]), one_core=True)


def perform(build, arguments):
    """Plan one row."""
    import querysmasher as qs  # noqa: PLC0415 - the parent stays small
    from benchmarks import published_workloads  # noqa: PLC0415

    workload = getattr(published_workloads, build)(*arguments)
    cost = qs.PrivacyCost(1.0)
    qs.plan(qs.affine(qs.Schema.of(a=3, b=3), "a", "b"), cost, progress=False)  # loads all libraries
    plan, spent = timed(lambda: qs.plan(workload, cost, progress=False))
    return {"queries": len(workload), "rmse": plan.rmse, "gap": plan.gap, "seconds": spent}


if __name__ == "__main__":
    print(json.dumps(perform(*json.loads(sys.argv[1]))))
