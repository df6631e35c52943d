"""Coverage of the intervals of every statistic over many releases: `python -m benchmarks.coverage 5000`.

The figures stand in `docs/howto/statistics.md`.
"""

import sys
from unittest import mock

import numpy as np
from tests.release.tables import simulate, whole
from tests.statistics.dense import exact

import querysmasher as qs
from querysmasher.privacy import measurement

LEVEL = 0.95

SCHEMA = qs.Schema(
    [
        qs.Categorical("sex", ["F", "M"]),
        qs.Categorical("region", ["N", "S", "W"]),
        qs.Binned("income", edges=[0, 10, 20, 30, 45, 60, 80, 110, 150, 200]),
        qs.Ordinal("age", range(0, 100, 5)),
    ]
)

STATISTICS = {
    "counts": lambda r: r.table("sex", "region"),
    "row percentages": lambda r: r.table("sex", "region", percent="row"),
    "column percentages": lambda r: r.table("sex", "region", percent="column", totals=False),
    "total percentages": lambda r: r.table("sex", "region", percent="total", totals=False),
    "mean income by region": lambda r: r.mean("income", by="region"),
    "mean age by sex": lambda r: r.mean("age", by="sex"),
    "total income by region": lambda r: r.total_of("income", by="region"),
    "share by region": lambda r: r.share("income >= 60", by="region"),
    "share of a group": lambda r: r.share("age >= 60", of="sex == 'F'"),
    "ratio": lambda r: r.ratio("region == 'W'", "region == 'S'"),
    "difference": lambda r: r.difference("region == 'N'", "region == 'S'"),
    "quantiles of income by region": lambda r: r.quantile("income", [0.1, 0.25, 0.5, 0.75, 0.9], by="region"),
    "quantiles of age by sex": lambda r: r.quantile("age", [0.1, 0.5, 0.9], by="sex"),
}
TOGETHER = ("counts", "row percentages", "mean income by region", "quantiles of income by region")


def table():
    """A table of about 6,000 records, with one small region."""
    income = np.array([4, 9, 12, 14, 12, 9, 6, 4, 2.0])
    age = np.exp(-(((np.arange(20) - 8) / 6) ** 2))
    shares = np.einsum("a,b,c,d->abcd", [0.5, 0.5], [0.6, 0.35, 0.05], income / income.sum(), age / age.sum())
    return np.random.default_rng(5).poisson(shares * 6000)


def covered(found, truth, *, simultaneous):
    low, high = found.interval(LEVEL, simultaneous=simultaneous)
    room = 1e-9 * np.abs(truth)
    return (low <= truth + room) & (truth <= high + room)


def coverage(runs, noise="discrete"):
    """Return, for each statistic, the coverage of every figure and of all together."""
    counts = table()
    workload = (
        qs.all_kway(SCHEMA, [1, 2], "identity")
        + qs.queries(SCHEMA, income="prefix", region="identity")
        + qs.queries(SCHEMA, age="prefix", sex="identity")
    )
    plan = qs.plan(workload, qs.zCDP(0.02), centering="uniform", progress=False)
    integers, predictor = whole(plan, noise), None
    truth = {name: ask(exact(SCHEMA, counts)).values for name, ask in STATISTICS.items()}
    hits, together = {name: [] for name in STATISTICS}, {name: [] for name in TOGETHER}
    with mock.patch.object(measurement, "check_budget"):  # once is enough
        for seed in range(runs):
            release = simulate(plan, counts, seed, noise, integers)
            predictor = predictor or release.predictor  # which knows no data
            release.__dict__["predictor"] = predictor
            for name, ask in STATISTICS.items():
                found = ask(release)
                hits[name].append(covered(found, truth[name], simultaneous=False).ravel())
                if name in together:
                    together[name].append(covered(found, truth[name], simultaneous=True).all())
    return {name: (np.mean(hits[name], axis=0), together.get(name)) for name in STATISTICS}


if __name__ == "__main__":
    for name, (each, both) in coverage(int((sys.argv[1:] or ["500"])[0])).items():
        shown = ", ".join(f"{100 * share:.1f}" for share in each)
        also = "" if both is None else f"  together {100 * np.mean(both):.1f}%"
        print(f"{name:30} {100 * each.mean():.1f}%{also}  ({shown})")
