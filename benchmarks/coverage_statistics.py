"""The statistics whose coverage is simulated, and the table they are of."""

import numpy as np

DECILES = [0.1, 0.25, 0.5, 0.75, 0.9]


def schema(qs):
    return qs.Schema(
        [
            qs.Categorical("sex", ["F", "M"]),
            qs.Categorical("region", ["N", "S", "W"]),
            qs.Binned("income", edges=[0, 10, 20, 30, 45, 60, 80, 110, 150, 200]),
            qs.Ordinal("age", range(0, 100, 5)),
            qs.Categorical("rare", ["no", "yes"]),
        ]
    )


def people(records, tiny):
    """Counts of all cells: one small region, and a group whose size is about its noise."""
    income = np.array([4, 9, 12, 14, 12, 9, 6, 4, 2.0])
    age = np.exp(-(((np.arange(20) - 8) / 6) ** 2))
    rare = tiny / records
    parts = [[0.5, 0.5], [0.6, 0.35, 0.05], income / income.sum(), age / age.sum(), [1 - rare, rare]]
    shares = np.einsum("a,b,c,d,e->abcde", *parts)
    return np.random.default_rng(5).poisson(shares * records)


def counts_of(release, *predicates):
    """Some counts as one workload."""
    import querysmasher as qs  # noqa: PLC0415

    schema = release.workload.schema
    asked = [qs.where(schema, predicate) for predicate in predicates]
    return sum(asked[1:], asked[0])


def pairs(release):
    """Numerators and denominators, of which some overlap."""
    above = counts_of(release, "region == 'W'", "region == 'N'", "sex == 'F'", "income >= 60")
    return above, counts_of(release, "region == 'S'", "region != 'S'", "sex == 'M'", "region == 'N'")


STATISTICS = {
    "counts, 2 × 3 with totals": lambda r: r.table("sex", "region"),
    "percentages of rows": lambda r: r.table("sex", "region", percent="row", totals=False),
    "percentages of columns": lambda r: r.table("sex", "region", percent="column", totals=False),
    "percentages of the total": lambda r: r.table("sex", "region", percent="total", totals=False),
    "mean income by region": lambda r: r.mean("income", by="region", assume="midpoint"),
    "mean age by sex": lambda r: r.mean("age", by="sex"),
    "total income by region": lambda r: r.total_of("income", by="region", assume="midpoint"),
    "share of high incomes by region": lambda r: r.share("income >= 60", by="region"),
    "share of the old by sex": lambda r: r.share("age >= 60", by="sex"),
    "share of the old among women": lambda r: r.share("age >= 60", of="sex == 'F'"),
    "ratios of counts": lambda r: r.ratio(*pairs(r)),
    "differences of counts": lambda r: r.difference(*pairs(r)),
    "mean incomes of regions less that of all": lambda r: r.difference(
        r.mean("income", by="region", assume="midpoint"), r.mean("income", assume="midpoint")
    ),
    "mean incomes of regions over that of all": lambda r: r.ratio(
        r.mean("income", by="region", assume="midpoint"), r.mean("income", assume="midpoint")
    ),
    "shares of regions less that of all": lambda r: r.difference(
        r.share("income >= 60", by="region"), r.share("income >= 60")
    ),
    "quantiles of income by region": lambda r: r.quantile("income", DECILES, by="region", assume="midpoint"),
    "median incomes of regions less that of all": lambda r: r.difference(
        r.quantile("income", 0.5, by="region", assume="midpoint"),
        r.quantile("income", 0.5, assume="midpoint"),
    ),
    "90% over 10% quantiles by sex": lambda r: r.ratio(
        r.quantile("income", 0.9, by="sex", assume="midpoint"),
        r.quantile("income", 0.1, by="sex", assume="midpoint"),
    ),
    # in the small region, tails are below their noise (howto/statistics.md)
    "90% over 10% quantiles by region (tails)": lambda r: r.ratio(
        r.quantile("income", 0.9, by="region", assume="midpoint"),
        r.quantile("income", 0.1, by="region", assume="midpoint"),
    ),
    "quantiles of age by sex (steps)": lambda r: r.quantile("age", [0.1, 0.5, 0.9], by="sex"),
    "mean income of a tiny group": lambda r: r.mean("income", where="rare == 'yes'", assume="midpoint"),
    "median income of a tiny group": lambda r: r.quantile(
        "income", 0.5, where="rare == 'yes'", assume="midpoint"
    ),
}
TOGETHER = (
    "counts, 2 × 3 with totals",
    "percentages of rows",
    "mean income by region",
    "share of high incomes by region",
    "quantiles of income by region",
)
"""Those whose simultaneous intervals are simulated."""

COSTLY = ("median incomes of regions less that of all", "90% over 10% quantiles by region (tails)")
"""Those computed from every second release."""

CONSERVATIVE = ("steps", "tiny", "fine", "tails")
"""What covers at least as often as stated."""
