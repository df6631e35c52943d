"""Errors of estimates: measured ones cover the truth as often as they say, others are labelled."""

import numpy as np
import pytest
from scipy import stats

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError, UnknownAttributeError, WorkloadError
from tests.builders import ALARM, UNIFORM
from tests.estimate.tables import people
from tests.exploring.people import BUDGET, frame, sums, true_error

SCHEMA, RECORDS = people()
TABLE = frame(SCHEMA, RECORDS)
WORKLOAD = qs.marginals(SCHEMA, 2)


@pytest.fixture(scope="module")
def estimate():
    return qs.explore(WORKLOAD, TABLE, BUDGET, seed=1).estimate()


@pytest.mark.slow
def test_intervals_cover_the_true_errors_as_often_as_they_say():
    """Over tables, seeds and shares; exact binomial bounds, at the false alarm rate ALARM."""
    inside, count = 0, 0
    for make, share in ((people, 0.02), (sums, 0.05)):
        schema, records = make()
        workload = qs.marginals(schema, 2)
        for seed in range(8):
            release = qs.explore(workload, frame(schema, records), BUDGET, seed=seed, error_share=share)
            estimate = release.estimate()
            for one in estimate.errors().each:
                low, high = one.interval(0.9)
                inside += low <= true_error(estimate, records, one.tables[0]) <= high
                count += 1
    low, high = stats.binom(count, 0.9).ppf([ALARM / 2, 1 - ALARM / 2])
    assert low <= inside <= high


def test_the_mean_error_is_far_more_accurate_than_the_errors_of_single_tables(estimate):
    errors = estimate.errors()
    mean = estimate.error()
    assert mean.std == pytest.approx(errors.each[0].std / np.sqrt(len(errors)))
    true = np.mean([true_error(estimate, RECORDS, one.tables[0]) for one in errors.each])
    assert abs(mean.records - true) < 5 * mean.std
    assert mean.share == pytest.approx(mean.value / estimate.total)
    assert mean.kind == "measured"


def test_errors_of_other_tables_are_model_based_and_say_so(estimate):
    one = estimate.error("a", "b", "c")
    assert (one.kind, one.std) == ("model-based", None)
    assert "model-based" in str(one)
    assert 0 < one.value < 2 * estimate.total
    with pytest.raises(OutsideMeasuredSpaceError, match="not measured"):
        one.interval()
    both = estimate.errors([("a", "b"), ("a", "b", "c")])
    assert [e.kind for e in both.each] == ["measured", "model-based"]
    assert both.mean.kind == "model-based"
    rows = both.to_frame("pandas")
    assert rows["kind"].tolist() == ["measured", "model-based"]
    assert rows["low"].isna().tolist() == [False, True]


def test_a_release_without_measured_errors_has_model_based_ones():
    plan = qs.plan(qs.marginals(SCHEMA, [1, 2]), qs.zCDP(0.1), **UNIFORM)
    estimate = qs.measure(plan, TABLE, seed=0).estimate()
    one = estimate.error("a", "b")
    assert one.kind == "model-based"
    assert 0.2 < one.value / true_error(estimate, RECORDS, ("a", "b")) < 5
    assert estimate.error("a", "b") == one  # the same at every call
    bare = qs.explore(WORKLOAD, TABLE, BUDGET, seed=1, error_share=0)
    assert bare.exploration.errors is None
    assert bare.estimate().error().kind == "model-based"


def test_the_order_of_attributes_does_not_matter_and_invalid_ones_are_refused(estimate):
    assert estimate.error("b", "a") == estimate.error("a", "b")
    with pytest.raises(UnknownAttributeError):
        estimate.error("nobody")
    with pytest.raises(WorkloadError, match="level"):
        estimate.error().interval(95)


def test_errors_survive_a_file_and_do_not_describe_rounded_estimates(estimate, tmp_path):
    estimate.save(tmp_path / "x.qs")
    assert type(estimate).load(tmp_path / "x.qs").error() == estimate.error()
    rounded = estimate.integers(seed=1)
    with pytest.raises(OutsideMeasuredSpaceError, match="before rounding"):
        rounded.error("a", "b")
    assert "before rounding" in rounded.report(tmp_path / "r.html").read_text()
    assert str(estimate.error()) in estimate.report(tmp_path / "e.html").read_text()


def test_errors_are_at_least_zero_as_shown():
    release = qs.explore(qs.marginals(SCHEMA, 1), TABLE, qs.zCDP(1e-9), seed=4)
    for one in release.estimate().errors().each:
        low, high = one.interval()
        assert 0 <= low <= high
        assert one.value >= 0
