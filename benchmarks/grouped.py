"""Sums and means by group beside the plain mechanism: clamped sums and counts with Gaussian noise.

`python -m benchmarks.run --only grouped` writes the page. The plain mechanism is what libraries for
differential privacy have: each sum with noise for the largest number that a record can add, each count with
noise for one, and half of the budget for each. All errors are predicted; they depend on a table only through
the means of its groups.
"""

import numpy as np

from benchmarks.coverage_real import colleges, earnings, flights
from benchmarks.report import Table

GROUPS = [1, 10, 100, 1_000]
RECORDS = 100_000
RHO = 0.5
ROOM = 0.99
"""Ours may have at most 1 / ROOM of the plain error."""


def made(groups):
    """Return skewed numbers in groups of unequal sizes, whose means differ."""
    generator = np.random.default_rng(groups)
    shares = 1 / np.arange(1, groups + 1)
    group = generator.choice(groups, RECORDS, p=shares / shares.sum())
    group[:groups] = np.arange(groups)
    level = generator.lognormal(0, 0.3, groups)
    return 20_000 * level[group] * generator.lognormal(0, 0.9, RECORDS), group


def carriers():
    """Return delays at departure and the carrier of each flight."""
    x, carrier, _ = flights()
    return x, carrier


TABLES = {
    **{f"made up, log-normal ({g:,})": (lambda g=g: made(g), 0, 200_000, 100) for g in GROUPS},
    "delays of flights by carrier": (carriers, -60, 600, 1),
    "earnings by education (cps)": (lambda: earnings()[:2], 0, 26_000, 100),
    "earnings by state (scorecard)": (lambda: colleges()[:2], 0, 200_000, 500),
}
"""By name: numbers and groups, lowest and highest number, and the step of the grid."""


def grouped(quick):
    """Compare sums and means by group with the plain mechanism."""
    import pandas as pd  # noqa: PLC0415

    table = Table(
        "Sums and means by group beside clamped sums",
        "Error of the plain mechanism divided by ours, at the same budget: root mean squares over the "
        "groups. The plain mechanism adds Gaussian noise to a clamped sum and to a count of every group, "
        "with half of the budget for each (all of it for a sum alone). *OpenDP*: the same with the noise "
        "that OpenDP itself asks for: its clamped sum, the scale of its Gaussian mechanism found by its own "
        "accounting; the error of a sum alone, divided by ours. *best split*: if it divided its budget as is "
        "best for the means of this very table, which it cannot know. Ours are plans of `qs.means`, of these "
        "with counts of the groups, of `qs.sums`, and of these with counts. The budget cancels out.",
        (
            "table",
            "groups",
            "mean",
            "best split",
            "mean, with counts",
            "its counts",
            "sum",
            "sum, with counts",
            "its counts",
            "OpenDP, sum",
        ),
        "ours is never worse by more than 1%",
    )
    for name, (load, low, high, step) in list(TABLES.items())[: 2 if quick else None]:
        x, group = load()
        known = ~np.isnan(np.asarray(x, dtype=float))
        x, (codes, _) = np.asarray(x)[known].clip(low, high), pd.factorize(np.asarray(group)[known])
        sizes = np.bincount(codes)
        means = np.bincount(codes, weights=x) / sizes
        reach = max(abs(low), abs(high))
        half = _errors(2.0 * reach**2, 2.0, 0.0, 0.0, means, sizes)
        best = np.sqrt(np.mean(((reach + np.abs(means)) / sizes) ** 2))
        ours = _ours(len(sizes), low, high, step)
        mean, beside = (_errors(*found, means, sizes) for found in ours[:2])
        ratios = [half / mean, best / mean, half / beside]
        ratios += [np.sqrt(2 / ours[1][1]), reach / np.sqrt(ours[2][0])]
        ratios += [np.sqrt(2) * reach / np.sqrt(ours[3][0]), np.sqrt(2 / ours[3][1])]
        ratios.append(_opendp(low, high) / np.sqrt(ours[2][0]))
        table.add(name, f"{len(sizes):,}", *(f"{ratio:.2f}" for ratio in ratios))
        for column, ratio in zip(table.columns[2:], ratios, strict=True):
            if column != "best split":
                table.check(ratio >= ROOM, f"{name}, {column}: {ratio:.3f}")
    return table


def _opendp(low, high):
    """Return the scale of OpenDP's Gaussian noise of a clamped sum, by its own accounting."""
    import opendp.prelude as opendp  # noqa: PLC0415 - an extra

    opendp.enable_features("contrib")
    numbers = opendp.vector_domain(opendp.atom_domain(bounds=(low, high))), opendp.symmetric_distance()
    total = numbers >> opendp.t.then_sum()
    return opendp.binary_search_param(lambda scale: total >> opendp.m.then_gaussian(scale), 1, RHO)


def _errors(of_sum, of_count, covariance, middle, means, sizes):
    """Return the root mean square error of means, from variances of sums of v - middle and of counts."""
    slope = means - middle
    return np.sqrt(np.mean((of_sum - 2 * slope * covariance + slope**2 * of_count) / sizes**2))


def _ours(groups, low, high, step):
    """Return variances of a sum of v - m and of a count, their covariance, and m; of four plans."""
    import querysmasher as qs  # noqa: PLC0415

    schema = qs.Schema([qs.Number("x", low, high, step=step), qs.Ordinal("g", range(groups))])
    middle = (low + high) / 2
    sums, counts = qs.sums(schema, "x", by="g"), qs.queries(schema, g="identity")
    centred = qs.sums(schema, "x", by="g", around=middle)
    found = []
    for workload, asked in (
        (qs.means(schema, "x", by="g"), centred),
        (qs.means(schema, "x", by="g") + counts, centred),
        (sums, sums),
        (sums + counts, sums),
    ):
        plan = qs.plan(workload, qs.zCDP(RHO), progress=False)
        of_sum = float(np.mean(plan.variances(asked)))
        if workload is sums:
            found.append((of_sum, np.nan, np.nan, 0.0))
            continue
        of_count = float(np.mean(plan.variances(counts)))
        around = 0.0 if asked is sums else middle
        other = float(np.mean(plan.variances(qs.sums(schema, "x", by="g", around=around + high - low))))
        covariance = (of_sum + (high - low) ** 2 * of_count - other) / (2 * (high - low))
        found.append((of_sum, of_count, covariance, around))
    return found
