"""Coverage of the intervals of every statistic over many releases.

`python -m benchmarks.run --only coverage` writes the page. Every release has a plan in integers and exact
integer noise, the default one (rounded) or the discrete Gaussian. The first ones of each table are measured
by `querysmasher.measure` too, from records, and must have the same noisy numbers with the same seeds. What
does not depend on the noise (predicted variances, covariances of answers) is computed once.
"""

from math import erf
from unittest import mock

import numpy as np
from joblib import Parallel, delayed, parallel_config

from benchmarks.coverage_statistics import (
    CONSERVATIVE,
    COSTLY,
    DECILES,
    STATISTICS,
    TOGETHER,
    people,
    schema,
)
from benchmarks.report import Table

LEVEL = 0.95
RUNS = 4_500

PUBLIC = 3
"""Number of releases of each table that are measured through the public function too."""

MOST_KEPT = 200


SETTINGS = {
    "6,000 records, ρ = 0.02": (6_000, 0.02, 12, "rounded", 0),
    "300,000 records, ρ = 0.0005, discrete noise": (300_000, 0.0005, 75, "discrete", 10_000),
}
"""Records, budget, records of the tiny group, noise, first seed."""

LARGE = 5_000
"""Number of bins of the large attribute."""

FEWER = 1_000
"""Number of releases of the table with the large attribute."""


def covered(found, truth, *, simultaneous):
    low, high = found.interval(LEVEL, simultaneous=simultaneous)
    room = 1e-9 * np.abs(truth)
    return (low <= truth + room) & (truth <= high + room)


def remembering(release, kept):
    """Make the releases of one plan share covariances and standard errors, which do not depend on noise."""
    from querysmasher.release.answers import Answers  # noqa: PLC0415

    known, predict = release.covariance, release.estimator.variances

    def remembered(make, name, *asked):
        key = (
            name,
            *(
                tuple((g.attributes, tuple(f.key for f in g.families)) for g in queries)
                for queries in asked
                if queries is not None
            ),
        )
        found = kept.get(key)
        if found is None:
            found = make(*asked)
            if len(kept) < MOST_KEPT:  # those of the first release come again, others may not
                kept[key] = found
        return found

    def covariance(workload, other=None):
        return remembered(known, "covariance", workload, other)

    def errors(workload):
        return np.sqrt(np.concatenate([predict(group).ravel() for group in workload]))

    def answer(given):
        workload = as_workload(release.workload.schema, given, release.workload)
        values = []
        for group in workload:
            table = release.reconstruction.marginal(
                release.plan.schema.positions(group.attributes), complete=False
            )
            for _, family in group.parts():
                table = np.moveaxis(family.answers(table), 0, -1)
            values.append(table.ravel())
        return Answers(workload, np.concatenate(values), remembered(errors, "errors", workload))

    from querysmasher.workload.builders import as_workload  # noqa: PLC0415

    for name, function in (("covariance", covariance), ("answer", answer)):
        object.__setattr__(release, name, function)


def check_public(qs, plan, counts, noise, release, seed):
    """Raise if `measure` releases other numbers than those simulated with the same seed."""
    import pyarrow as pa  # noqa: PLC0415

    cells = np.unravel_index(np.repeat(np.arange(counts.size), counts.ravel()), counts.shape)
    values = {a.name: np.array(a.edges or a.values) for a in plan.workload.schema}  # of a bin, its left
    records = pa.table({name: own[at] for (name, own), at in zip(values.items(), cells, strict=True)})
    public = qs.measure(plan, records, seed=seed, noise=noise, progress=False)
    for number in range(len(public.plan.measured)):
        if not np.array_equal(public.store[number], release.store[number]):
            msg = f"measure and the simulation differ with seed {seed}"
            raise AssertionError(msg)


def simulated(runs, records, rho, tiny, noise, first_seed=0):
    """Return, for each statistic: coverage of every figure, of all together, and how many are reliable."""
    from tests.release.tables import simulate, whole  # noqa: PLC0415 - the parent of cells stays small
    from tests.statistics.dense import exact  # noqa: PLC0415

    import querysmasher as qs  # noqa: PLC0415
    from querysmasher.privacy import measurement  # noqa: PLC0415

    own = schema(qs)
    counts = people(records, tiny)
    workload = (
        qs.all_kway(own, [1, 2], "identity")
        + qs.queries(own, income="prefix", region="identity")
        + qs.queries(own, age="prefix", sex="identity")
    )
    plan = qs.plan(workload, qs.zCDP(rho), progress=False)
    integers, first = whole(plan, noise), None
    truly = exact(own, counts)
    truth = {name: ask(truly).values for name, ask in STATISTICS.items()}
    hits = {name: [] for name in STATISTICS}
    together, reliable = {name: [] for name in STATISTICS}, {name: [] for name in STATISTICS}
    kept = {}
    with mock.patch.object(measurement, "check_budget"):  # once is enough
        for seed in range(first_seed, first_seed + runs):
            release = simulate(plan, counts, seed, noise, integers)
            if seed < first_seed + PUBLIC:
                check_public(qs, plan, counts, noise, release, seed)
            first = first or release
            release.__dict__["estimator"] = first.estimator  # which knows no data
            remembering(release, kept)
            for name, ask in STATISTICS.items():
                if name in COSTLY and seed % 2:
                    continue
                found = ask(release)
                figures = getattr(found, "figures", found)
                hits[name].append(covered(found, truth[name], simultaneous=False).ravel())
                reliable[name].append(figures.reliable.ravel())
                if len(figures) > 1 and name in TOGETHER:
                    together[name].append(covered(found, truth[name], simultaneous=True).all())
    return {name: (np.array(hits[name]), np.array(together[name]), np.array(reliable[name])) for name in hits}


def large(runs):
    """Return the coverage of quantiles by group of an attribute of thousands of bins, in the same form."""
    from tests.release.tables import simulate, whole  # noqa: PLC0415

    import querysmasher as qs  # noqa: PLC0415
    from querysmasher.privacy import measurement  # noqa: PLC0415

    own = qs.Schema([qs.Binned("income", edges=range(LARGE + 1)), qs.Categorical("region", ["N", "S", "W"])])
    at = (np.arange(LARGE) + 0.5) / LARGE
    density = np.exp(-((np.log(at) + 1.3) ** 2)) / at
    shares = np.outer(density / density.sum(), [0.6, 0.35, 0.05])
    counts = np.random.default_rng(7).poisson(200_000 * shares)
    plan = qs.plan(qs.queries(own, income="prefix", region="identity"), qs.zCDP(0.01), progress=False)
    integers, first, kept = whole(plan), None, {}
    F = np.concatenate([np.zeros((1, 3)), np.cumsum(counts, axis=0)])
    truth = np.array(
        [np.interp(p * F[-1, g], F[:, g], np.arange(LARGE + 1.0)) for g in range(3) for p in DECILES]
    )
    hits, together, reliable = [], [], []
    with mock.patch.object(measurement, "check_budget"):
        for seed in range(20_000, 20_000 + runs):
            release = simulate(plan, counts, seed, "rounded", integers)
            first = first or release
            release.__dict__["estimator"] = first.estimator
            remembering(release, kept)
            found = release.quantile("income", DECILES, by="region", assume="midpoint")
            hits.append(covered(found, truth, simultaneous=False))
            reliable.append(found.reliable)
    return {f"quantiles of {LARGE:,} bins by region (fine)": tuple(map(np.array, (hits, together, reliable)))}


def coverage(quick):
    """Coverage of every statistic."""
    runs = 100 if quick else RUNS
    table = Table(
        "Coverage of intervals",
        "",
        ("statistic", "table", "releases", "figures", "each", "together", "unreliable"),
        "in each table, intervals of each statistic cover within one percentage point of what they state, "
        "or at least as often where they are conservative",
    )
    kept = 1.0
    work = [delayed(simulated)(runs, *given) for given in SETTINGS.values()]
    work.append(delayed(large)(20 if quick else FEWER))
    with parallel_config("loky", inner_max_num_threads=1):
        results = Parallel(n_jobs=-1)(work)
    for setting, found in zip([*SETTINGS, "200,000 records, ρ = 0.01"], results, strict=True):
        kept *= _add(table, setting, found, quick)
    table.text = (
        "Releases with exact integer noise, as `measure` draws it. *each*: how often "
        f"a {LEVEL:.0%} interval covers what the exact counts give (records of a bin at its mid-point, or "
        "spread evenly in it), on average over the figures of a statistic; *together*: how often all "
        "intervals of `simultaneous=True` do at once; *unreliable*: how many figures are flagged as "
        "such. Intervals of quantiles in steps, in bins whose counts are below their noise (fine), of ratios "
        "of such quantiles (tails), and of groups whose size is about their noise cover at least as often as "
        "stated. Each statistic is checked in each table. Had every interval exactly its level, a run of "
        f"this section would miss one of its checks with probability {1 - kept:.1g} (at most, for "
        "independent checks; the seeds are fixed)."
    )
    return table


def error_of(shares):
    """The standard error of the mean of shares, if 95% is their true mean.

    Figures of one release are correlated: together they are worth as many as their measured variance says.
    """
    mean = np.mean(shares)
    alike = np.var(shares) / (mean * (1 - mean)) if 0 < mean < 1 else 1.0
    return np.sqrt(alike * LEVEL * (1 - LEVEL) / len(shares))


def _add(table, setting, found, quick):
    """Add and check the rows of one table; return how probably all checks pass if all levels are exact."""
    passing = 1.0
    for name, (hits, together, reliable) in found.items():
        shares = {"each": hits.mean(axis=1), "together": together if len(together) else None}
        table.add(
            name,
            setting,
            f"{len(hits):,}",
            hits.shape[1],
            *("" if s is None else f"{100 * s.mean():.2f}%" for s in shares.values()),
            f"{100 * (1 - reliable.mean()):.0f}%",
        )
        safe = any(word in name for word in CONSERVATIVE)
        for what, each in shares.items():
            if each is None:
                continue
            share, error = float(np.mean(each)), error_of(each)
            room = 0.01 + 3 * error * quick
            holds = share >= LEVEL - room and (safe or share <= LEVEL + room)
            table.check(holds, f"{name}, {what}, {setting}: {100 * share:.2f}%")
            passing *= 1 if safe else erf(room / error / np.sqrt(2))
    return passing
