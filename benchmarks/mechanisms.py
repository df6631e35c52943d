"""The mechanisms of the paper's comparison, recomputed here, beside what their own code reaches."""

import math
import time

from benchmarks.report import Table

WITHIN = 2e-3

SYNTHETIC = [  # (n, family, mechanism, what its own code or the paper reports)
    (10, "marginal", "residual", 23.48),
    (10, "marginal", "basis", 23.48),
    (10, "marginal", "fourier", 23.48),
    (10, "prefix", "fourier", 39.70),
    (10, "range", "fourier", 41.36),
    (10, "affine", "fourier", 45.23),
    (20, "abs", "fourier", 102.54),
    (10, "prefix", "basis", 36.23),
    (10, "range", "basis", 41.83),
    (10, "prefix", "kronecker", 52.35),
]
CPS = [  # (ways, mechanism, what its own code reports)
    ("1", "basis", 3.181),
    ("1", "fourier", 3.589),
    ("1", "union", 3.347),
    ("2", "basis", 6.357),
    ("2", "union", 6.625),
    ("3", "basis", 8.124),
    ("3", "kronecker", 8.634),
    ("<=3", "basis", 8.386),
    ("<=3", "fourier", 10.594),
    ("<=3", "kronecker", 8.623),
]
TITLES = {
    "residual": "ResidualPlanner",
    "basis": "ResidualPlanner+",
    "fourier": "Weighted Fourier Factorizations",
    "kronecker": "HDMM, Kronecker",
    "union": "HDMM, union",
}


def mechanisms(quick):
    """Other mechanisms behind our interface."""
    from benchmarks.schemas import hybrid, one_and_two_way  # noqa: PLC0415 - the parent of cells stays small

    table = Table(
        "Other mechanisms behind one interface",
        "1-way and 2-way queries on [n]^40, and hybrid queries on CPS: *theirs* is what the mechanism's own "
        "code (or the paper) reports, *here* is `qs.plan(..., solver=...)`, or `hdmm`, on the same workload, "
        "*QuerySmasher* is the default plan.",
        ("workload", "mechanism", "theirs", "here", "seconds", "QuerySmasher"),
        "every figure is within 0.2 % of theirs, and none is below ours",
    )
    cases = [(f"{family} n={n}", one_and_two_way(n, family), m, known) for n, family, m, known in SYNTHETIC]
    cases += [(f"CPS {ways}-way", hybrid("cps", ways), m, known) for ways, m, known in CPS]
    ours = {}
    for name, workload, mechanism, known in cases[:3] if quick else cases:
        if name not in ours:
            ours[name], _ = _rmse(workload, "optimal")
        rmse, seconds = _rmse(workload, mechanism)
        row = (name, TITLES[mechanism], f"{known:.3f}", f"{rmse:.3f}", f"{seconds:.2f}", f"{ours[name]:.3f}")
        table.add(*row)
        table.check(abs(rmse / known - 1) <= WITHIN, f"{name}, {mechanism}: {rmse:.4f}, theirs {known}")
        table.check(ours[name] <= rmse * (1 + 1e-6), f"{name}: {mechanism} is below ours")
    return table


def _rmse(workload, mechanism):
    import querysmasher as qs  # noqa: PLC0415
    from querysmasher.comparison.hdmm import TEMPLATES, hdmm  # noqa: PLC0415

    start = time.perf_counter()
    if mechanism in TEMPLATES:
        loss = hdmm(workload, mechanism).weighted_loss
    else:
        loss = qs.plan(workload, qs.PrivacyCost(1.0), solver=mechanism, progress=False).weighted_loss
    return math.sqrt(loss / workload.query_count), time.perf_counter() - start
