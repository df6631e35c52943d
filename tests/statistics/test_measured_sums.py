"""Measured sums: means and totals from them cover the table's own, and are as accurate as planned."""

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.planning.limits import limited
from tests.release.tables import random_counts, simulations

SEEDS = range(400)


def covered(figures, truth):
    low, high = figures.interval(0.95)
    return (low <= truth) & (truth <= high)


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("number", ["number", "missing", "ordinal"])
def test_intervals_of_means_and_totals_cover_the_tables_own(number, neighbours):
    """Of 20 groups and 400 releases, 95% within one percentage point: four standard errors."""
    attribute = {
        "number": qs.Number("pay", 0, 500, step=5),
        "missing": qs.Number("pay", -50, 50, missing="missing"),
        "ordinal": qs.Ordinal("pay", [0, 1, 5, 10, 100]),
    }[number]
    schema = qs.Schema([attribute, qs.Ordinal("region", range(20))])
    counts = random_counts(schema, seed=3, records=100_000)
    budget = qs.PrivacyCost(0.5, neighbours=neighbours)
    plan = qs.plan(qs.means(schema, "pay", by="region") + qs.sums(schema, "pay", by="region"), budget)
    values = np.array(attribute.values[: attribute.listed], dtype=float)
    known = counts[: attribute.listed]
    totals = values @ known
    means = totals / known.sum(axis=0)
    hits = [
        (covered(release.mean("pay", by="region"), means), covered(release.total("pay", by="region"), totals))
        for release in simulations(plan, counts, SEEDS)
    ]
    coverage = np.mean(hits, axis=(0, 2))
    np.testing.assert_allclose(coverage, 0.95, atol=0.01)


def test_a_mean_follows_from_the_measured_sum_without_the_distribution():
    schema = qs.Schema([qs.Number("pay", 0, 100_000), qs.Ordinal("region", range(3))])
    plan = qs.plan(qs.means(schema, "pay", by="region"), qs.zCDP(0.5))
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"pay": generator.gamma(2, 9_000, 3000), "region": generator.integers(0, 3, 3000)})
    release = qs.measure(plan, frame, seed=0)
    mean = release.mean("pay", by="region")
    truth = frame["pay"].clip(0, 100_000).round().groupby(frame["region"]).mean()
    assert np.all(np.abs(mean.values - truth) < 5 * mean.std)
    assert "numbers below 0 count as 0" in mean.note
    with pytest.raises(qs.OutsideMeasuredSpaceError):
        release.quantile("pay", 0.5)
    whole = release.mean("pay")
    assert whole.std < mean.std.max()
    difference = release.difference(mean[0], mean[1])
    assert difference.value == pytest.approx(mean.values[0] - mean.values[1])


@pytest.mark.parametrize("groups", [1, 5, 100])
def test_means_are_more_accurate_than_a_clamped_sum_and_a_count_of_every_group(groups):
    """The plain mechanism clamps to the range and divides the budget in the best ratio for this table."""
    schema = qs.Schema([qs.Number("pay", 0, 1000), qs.Ordinal("region", range(groups))])
    plan = qs.plan(qs.means(schema, "pay", by="region"), qs.PrivacyCost(1.0))
    size, reach = 1000, 1000
    for mean in (100, 300, 500, 900):
        workload = qs.means(schema, "pay", by="region")
        variances = plan.variances(workload)
        slope = (mean - 500) / size
        ours = variances[0] / size**2 + slope**2 * variances[-1]  # errors of residuals are nearly independent
        plain = (reach / size + mean / size) ** 2  # (√(a b) + √(c d))² for the best division
        assert ours < 0.8 * plain


def test_sums_of_many_values_are_planned_around_the_even_centre_as_well_as_by_a_search():
    schema = qs.Schema([qs.Number("pay", 0, 600, missing="missing"), qs.Ordinal("region", range(4))])
    workload = qs.means(schema, "pay", by="region") + qs.sums(schema, "pay") + qs.marginals(schema, 0)
    quick = qs.plan(workload, qs.PrivacyCost(1.0))
    with limited(light_cells=1_000):
        searched = qs.plan(workload, qs.PrivacyCost(1.0))
    assert quick.weighted_rmse <= 1.005 * searched.weighted_rmse


def test_sums_beside_counts_and_ranges_of_the_same_number():
    schema = qs.Schema([qs.Number("pay", 0, 1000, step=10), qs.Ordinal("region", range(3))])
    workload = (
        qs.sums(schema, "pay", by="region")
        + qs.queries(schema, pay="range")
        + qs.queries(schema, pay="prefix", region="identity")
    )
    for objective in ("mean", "worst"):
        plan = qs.plan(workload, qs.PrivacyCost(1.0), objective=objective)
        assert plan.gap < 0.02
        release = qs.measure(plan, pd.DataFrame({"pay": [15.0, 995.0], "region": [0, 2]}), seed=0)
        np.testing.assert_allclose(release.answer(workload).std ** 2, plan.variances(workload), rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("power", [0.2, 1.0, 5.0])
def test_intervals_from_bins_cover_the_records_own_figures(power):
    """Values are skewed inside wide bins; every interval covers at least as often as stated."""
    schema = qs.Schema([qs.Binned("pay", edges=[0, 10, 30, 60, 100]), qs.Ordinal("region", range(3))])
    generator = np.random.default_rng(5)
    inside, bins, region = (
        generator.random(9000) ** power,
        generator.integers(0, 4, 9000),
        generator.integers(0, 3, 9000),
    )
    edges = np.array(schema["pay"].edges)
    pay = edges[bins] + inside * np.diff(edges)[bins]
    counts = np.zeros((4, 3), dtype=np.int64)
    np.add.at(counts, (bins, region), 1)
    groups = [pay[region == r] for r in range(3)]
    means, totals = np.array([g.mean() for g in groups]), np.array([g.sum() for g in groups])
    medians = np.array([np.quantile(g, 0.5, method="inverted_cdf") for g in groups])
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.zCDP(0.05))
    hits = []
    for release in simulations(plan, counts, range(80)):
        mean, total = release.mean("pay", by="region"), release.total("pay", by="region")
        median = release.quantile("pay", 0.5, by="region")
        hits.append(
            np.concatenate(
                [
                    covered(mean, means),
                    covered(total, totals),
                    covered(median, medians),
                    covered(release.difference(mean, mean[0]), means - means[0])[1:],
                    covered(release.ratio(total, total[0]), totals / totals[0])[1:],
                    covered(release.ratio(median, mean), medians / means),
                ]
            )
        )
    assert np.mean(hits, axis=0).min() >= 0.95


@pytest.mark.parametrize("asked", ["counts", "sums"])
def test_an_error_over_counts_and_sums_says_that_their_units_differ(asked, tmp_path):
    schema = qs.Schema([qs.Number("pay", 0, 1000), qs.Ordinal("region", range(3))])
    counts = qs.marginals(schema, 0)
    plan = qs.plan(counts + qs.sums(schema, "pay") if asked == "sums" else counts, qs.zCDP(0.5))
    page = plan.report(tmp_path / "plan.html").read_text()
    said = "counts and sums in their own units"
    assert (f"root mean square over all queries, {said}" in repr(plan)) == (asked == "sums")
    assert page.count(said) == (2 if asked == "sums" else 0)
    assert page.count("in records") == (0 if asked == "sums" else 2)


def test_what_only_sums_do_not_determine_names_the_means_to_plan():
    binned = qs.Binned("pay", edges=[0, 10, 50], missing="missing")
    schema = qs.Schema([binned, qs.Ordinal("region", range(2))])
    plan = qs.plan(qs.sums(schema, "pay", by="region") + qs.marginals(schema, ["region"]), qs.zCDP(0.5))
    release = qs.measure(plan, pd.DataFrame({"pay": [5.0, None, 20.0], "region": [0, 0, 1]}), seed=0)
    assert len(release.total("pay", by="region", assume="midpoint")) == 2
    means = r"for example qs\.means\(schema, 'pay', by=\['region'\]\)"
    with pytest.raises(
        qs.OutsideMeasuredSpaceError, match=f"{means}; .* only with assume='midpoint'$"
    ) as error:
        release.total("pay", by="region")
    assert 'kind = "means", attribute = "pay", by = ["region"]; without' in error.value.for_spec()
    with pytest.raises(qs.OutsideMeasuredSpaceError, match=f"{means}$"):
        release.mean("pay", where="region == 1")
    better = qs.measure(
        qs.plan(qs.means(schema, "pay", by="region"), qs.zCDP(0.5)),
        pd.DataFrame({"pay": [5.0], "region": [0]}),
    )
    assert len(better.total("pay", by="region")) == 2
