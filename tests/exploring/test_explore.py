"""Exploring: exact costs, one entry of a ledger, the same from every engine, errors that are measured."""

import gc
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import querysmasher as qs
from querysmasher import measuring
from querysmasher.errors import (
    BudgetError,
    DataError,
    FileError,
    OutsideMeasuredSpaceError,
    PlanError,
    PrivacyError,
    UnknownAttributeError,
    WorkloadError,
)
from querysmasher.privacy import counts as counted_module
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.counts import CountedOnce
from querysmasher.release.provenance import ComparedPhase
from tests.builders import ALARM, UNIFORM
from tests.estimate.tables import BUDGET, counted, frame, people, sums, true_error
from tests.release.tables import Untouchable

SCHEMA, RECORDS = people()
TABLE = frame(SCHEMA, RECORDS)
WORKLOAD = qs.marginals(SCHEMA, 3)


@pytest.fixture(scope="module")
def release():
    return qs.explore(WORKLOAD, TABLE, BUDGET, seed=1)


@st.composite
def requests(draw):
    """Small tables, marginals of any order, every unit of privacy and noise."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate(sizes)})
    orders = draw(st.lists(st.integers(0, len(sizes)), min_size=1, max_size=2, unique=True))
    count = draw(st.integers(0, 12))
    records = np.array([[draw(st.integers(0, n - 1)) for n in sizes] for _ in range(count)], dtype=np.int64)
    unit = {
        "neighbours": draw(st.sampled_from(["add_remove", "replace_one"])),
        "records_per_person": draw(st.integers(1, 3)),
    }
    budget = draw(
        st.sampled_from([qs.zCDP(0.01, **unit), qs.PrivacyCost(40.0, **unit), qs.ApproxDP(1.0, 1e-6, **unit)])
    )
    options = {
        "noise": draw(st.sampled_from(["rounded", "discrete"])),
        "error_share": draw(st.sampled_from([0, 0.02, 0.5])),
        "seed": draw(st.integers(0, 9)),
    }
    return schema, orders, records.reshape(count, len(sizes)), budget, options


@given(requests())
@settings(max_examples=40)
def test_phases_cost_at_most_the_budget_and_nearly_all_of_it(request):
    schema, orders, records, budget, options = request
    workload = qs.marginals(schema, orders)
    if not any(n > 1 for n in schema.sizes) or max(orders) == 0:
        with pytest.raises(PlanError, match="workload"):
            qs.explore(workload, frame(schema, records), budget, **options)
        return
    try:
        release = qs.explore(workload, frame(schema, records), budget, **options)
    except PlanError as error:
        assert "at least two values" in str(error)  # noqa: PT017 - only if no table has such an attribute
        return
    noise = release.noise.distribution
    spent, allowed = release.exploration.cost(release.plan), Fraction(noise.allowed_cost(budget))
    assert allowed * Fraction(99, 100) < spent <= allowed
    assert sum(p.cost(release.plan) for p in release.exploration.phases) == spent
    compared = sum(p.cost(release.plan) for p in release.exploration.phases if isinstance(p, ComparedPhase))
    together = privacy_cost(release.plan) + compared
    # the worst pair of cells of all phases together costs at most the sum of those of each
    public, rounding = budget.unit.total_is_public, 1 + Fraction(1, 2**24)
    assert together <= spent * rounding if public else together == spent
    estimate = release.estimate()
    values = estimate.answer().values
    assert np.isfinite(values).all()
    assert values.min(initial=0) >= 0
    assert np.isfinite(release.answer().values).all()
    assert estimate.error().records >= -1e9
    if budget.unit.total_is_public:
        assert estimate.total == len(records)


def test_a_release_by_explore_is_a_release(release, tmp_path):
    """It answers what was measured with standard errors, and survives a file with all of its phases."""
    answers = release.answer()
    exact = np.concatenate(
        [counted(SCHEMA, RECORDS, SCHEMA.positions(g.attributes)).ravel() for g in release.workload]
    )
    z = (answers.values - exact) / answers.std
    assert 0.7 < np.sqrt((z**2).mean()) < 1.3
    release.save(tmp_path / "x.qs")
    again = qs.Release.load(tmp_path / "x.qs")
    np.testing.assert_array_equal(again.answer().values, answers.values)
    first, second = release.exploration, again.exploration
    assert [p.name for p in first.phases] == [p.name for p in second.phases]
    assert [p.cost(release.plan) for p in first.phases] == [p.cost(again.plan) for p in second.phases]
    assert release.asked == again.asked == WORKLOAD
    np.testing.assert_array_equal(release.estimate().answer().values, again.estimate().answer().values)
    assert repr(release.estimate().error()) == repr(again.estimate().error())
    titled = release.described(title="x").estimate()
    np.testing.assert_array_equal(titled.answer().values, release.estimate().answer().values)
    assert release.estimate().workload == WORKLOAD


def test_triples_are_measured_where_they_ask_for_it():
    schema, records = sums()
    release = qs.explore(qs.marginals(schema, 3), frame(schema, records), qs.ApproxDP(5.0, 1e-6), seed=0)
    variances = {m.attributes: m.variance for m in release.plan.measured if len(m.attributes) == 3}
    assert min(variances, key=lambda place: variances[place]) == (0, 1, 4)
    exact = counted(schema, records, (0, 1, 4))
    found = np.asarray(release.estimate().marginal("a", "b", "e"))
    assert np.abs(found - exact).sum() < 0.25 * len(records)
    poor = qs.explore(qs.marginals(schema, 3), frame(schema, records), qs.ApproxDP(0.05, 1e-6), seed=0)
    assert all(len(m.attributes) < 3 for m in poor.plan.measured)
    assert "distances of triples" not in [p.name for p in poor.exploration.phases]


# --- custody --------------------------------------------------------------------------------------------


def test_the_whole_budget_is_in_the_ledger_before_the_table_is_opened(tmp_path):
    ledger = qs.Ledger(tmp_path / "people.ledger", limit=qs.ApproxDP(3.0, 1e-6))
    data = Untouchable()
    with pytest.raises(DataError, match="opening the table failed") as raised:
        qs.explore(WORKLOAD, data, BUDGET, ledger=ledger)
    (entry,) = ledger.entries
    assert entry.cost == Fraction(BUDGET.privacy_cost)
    assert "entry 1" in raised.value.__notes__[0]
    release = qs.explore(WORKLOAD, TABLE, BUDGET, ledger=ledger)
    assert len(ledger.entries) == 2
    assert release.entry == ledger.entries[1]
    release.save(tmp_path / "x.qs")
    verdict = qs.verify(tmp_path / "x.qs", ledger)
    assert verdict.ok
    assert {f.name: f.status for f in verdict.findings}["ledger"] == "passed"
    foreign = replace(release, entry=replace(release.entry, plan="0" * 64))
    foreign.save(tmp_path / "y.qs")
    with pytest.raises(FileError, match="about another measurement"):
        qs.Release.load(tmp_path / "y.qs")
    with pytest.raises(PrivacyError, match="Nothing was measured"):
        qs.explore(WORKLOAD, Untouchable(), qs.ApproxDP(2.9, 1e-6), ledger=ledger)
    assert len(ledger.entries) == 2


def test_a_simulation_is_not_charged(tmp_path):
    ledger = qs.Ledger(tmp_path / "people.ledger", limit=qs.ApproxDP(3.0, 1e-6))
    with pytest.raises(PrivacyError, match="a simulation"):
        qs.explore(WORKLOAD, Untouchable(), BUDGET, ledger=ledger, seed=1)
    assert not ledger.entries


def test_a_release_whose_phases_cost_more_than_its_budget_is_refused(release, tmp_path):
    *others, last = release.exploration.phases
    dear = replace(
        last.distances, queries=tuple(replace(d, variance=d.variance / 100) for d in last.distances.queries)
    )
    forged = replace(release.exploration, phases=(*others, replace(last, distances=dear)))
    replace(release, exploration=forged).save(tmp_path / "x.qs")
    with pytest.raises(FileError, match="phases cost more than its budget"):
        qs.Release.load(tmp_path / "x.qs")
    without = replace(release.exploration, phases=release.exploration.phases[1:])
    replace(release, exploration=without).save(tmp_path / "y.qs")
    with pytest.raises(FileError, match="every attribute set once"):
        qs.Release.load(tmp_path / "y.qs")


@pytest.mark.slow
def test_no_exact_count_is_reachable_from_a_release(monkeypatch):
    """Exact tables are kept between phases; when the last is over, nothing refers to them."""
    kept = []
    original = CountedOnce.__init__

    def noted(self, *arguments):
        kept.append(id(self))
        original(self, *arguments)

    monkeypatch.setattr(CountedOnce, "__init__", noted)
    release = qs.explore(WORKLOAD, TABLE, BUDGET, seed=1)
    release.estimate().error()
    gc.collect()
    assert len(kept) == 1
    assert not any(issubclass(type(one), CountedOnce) for one in gc.get_objects())


def test_an_error_between_phases_shows_no_count(monkeypatch):
    """An error in a later phase leaves with all frames cleared."""

    def fail(*_):
        raise ValueError

    monkeypatch.setattr("querysmasher.exploring.explore.filled", fail)
    with pytest.raises(ValueError, match=r"^$") as raised:
        qs.explore(WORKLOAD, TABLE, BUDGET, seed=1)
    trace = raised.value.__traceback__.tb_next  # this frame is the test's own
    while trace:
        assert trace.tb_frame.f_code.co_name == "guarded" or not trace.tb_frame.f_locals
        trace = trace.tb_next


# --- engines --------------------------------------------------------------------------------------------


def same(one, two):
    np.testing.assert_array_equal(one.answer().values, two.answer().values)
    np.testing.assert_array_equal(one.exploration.errors.values, two.exploration.errors.values)


@pytest.mark.parametrize("kind", ["pyarrow", "polars", "csv", "parquet", "duckdb"])
def test_every_engine_gives_the_same_release(release, kind, tmp_path):
    arrow = pa.Table.from_pandas(TABLE)
    TABLE.to_csv(tmp_path / "x.csv", index=False)
    pq.write_table(arrow, tmp_path / "x.parquet")
    tables = {"pyarrow": arrow, "polars": pl.from_arrow(arrow), "duckdb": duckdb.from_arrow(arrow)}
    same(qs.explore(WORKLOAD, tables.get(kind, tmp_path / f"x.{kind}"), BUDGET, seed=1), release)


@pytest.mark.slow
def test_spark_gives_the_same_release(release, spark):
    same(qs.explore(WORKLOAD, spark.createDataFrame(TABLE), BUDGET, seed=1), release)


def test_counting_again_in_every_phase_gives_the_same_release(release, monkeypatch):
    monkeypatch.setattr(counted_module, "KEPT_CELLS", 0)
    monkeypatch.setattr(
        measuring, "CountedOnce", lambda *arguments: CountedOnce(*arguments, counted_module.KEPT_CELLS)
    )
    same(qs.explore(WORKLOAD, TABLE, BUDGET, seed=1), release)


def test_persons_are_bounded():
    """With all records of one person, only as many are counted as the budget says."""
    table = TABLE.assign(who="one")
    budget = qs.PrivacyCost(1e6, records_per_person=2)
    release = qs.explore(WORKLOAD, table, budget, person="who", seed=1)
    assert release.person == "who"
    assert 0 <= release.estimate().total < 4
    with pytest.raises(PrivacyError, match="replace_one"):
        qs.explore(WORKLOAD, table, qs.PrivacyCost(1.0, neighbours="replace_one"), person="who", seed=1)


# --- edges ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [1e-12, 1e-3, 1e6])
def test_an_empty_table_gives_sane_answers(cost):
    empty = pd.DataFrame({name: np.zeros(0, np.int64) for name in SCHEMA.names})
    release = qs.explore(WORKLOAD, empty, qs.PrivacyCost(cost), seed=3)
    values = release.estimate().answer().values
    assert np.isfinite(values).all()
    assert values.min() >= 0
    assert np.isfinite(release.estimate().error().records)


def test_a_huge_budget_finds_the_truth():
    for k in (1, 2, 3):
        release = qs.explore(qs.marginals(SCHEMA, k), TABLE, qs.PrivacyCost(1e9), seed=3)
        estimate = release.estimate()
        for group in estimate.workload:
            exact = counted(SCHEMA, RECORDS, SCHEMA.positions(group.attributes))
            np.testing.assert_allclose(np.asarray(estimate.marginal(*group.attributes)), exact, atol=2)
        assert estimate.error().value < 40


def test_larger_and_mixed_orders():
    release = qs.explore(qs.marginals(SCHEMA, [0, 1, 4]), TABLE, BUDGET, seed=3)
    estimate = release.estimate()
    assert len(estimate.answer()) == qs.marginals(SCHEMA, [0, 1, 4]).query_count
    assert len(estimate.errors()) == 10
    some = qs.queries(SCHEMA, a="identity", c="identity") + qs.queries(SCHEMA, e="identity")
    narrow = qs.explore(some, TABLE[["a", "c", "e"]], BUDGET, seed=3)  # other columns are not read
    assert {m.attributes for m in narrow.plan.measured} == {(), (0,), (2,), (4,), (0, 2)}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"workload": qs.all_kway(SCHEMA, 1, "prefix")}, PlanError, "expected marginals only"),
        ({"workload": "a"}, PlanError, "expected a Workload"),
        ({"budget": 1.0}, PlanError, "budget: expected"),
        ({"budget": qs.PrivacyCost(1e-13)}, BudgetError, "at least 1e-12"),
        ({"error_share": 0.6}, BudgetError, "error_share: expected a number from 0 to 0.5"),
        ({"error_share": True}, BudgetError, "error_share"),
        ({"error_share": float("nan")}, BudgetError, "error_share"),
        ({"noise": "none"}, PrivacyError, "noise: expected"),
        ({"unknown": "keep"}, DataError, "unknown"),
        ({"max_records": 0}, DataError, "max_records"),
        ({"seed": -1}, PrivacyError, "seed"),
        ({"ledger": "x"}, PrivacyError, "ledger: expected a Ledger"),
    ],
)
def test_invalid_arguments_are_refused_before_the_table_is_touched(change, error, words):
    data = Untouchable()
    arguments = {"workload": WORKLOAD, "budget": BUDGET} | change
    with pytest.raises(error, match=words):
        qs.explore(arguments.pop("workload"), data, arguments.pop("budget"), **arguments)
    assert not data.touched


def test_a_table_that_is_too_large_is_refused():
    schema = qs.Schema.of(a=1000, b=1000, c=1000)
    with pytest.raises(PlanError, match="1,000,000,000 cells"):
        qs.explore(qs.marginals(schema, 3), Untouchable(), BUDGET)


# --- shares ---------------------------------------------------------------------------------------------


def test_a_dense_table_is_measured_as_by_the_plan_of_least_error():
    """With so large a budget, only the number of records and the errors cost more than that plan."""
    rich = qs.ApproxDP(1e5, 1e-6)
    release = qs.explore(WORKLOAD, TABLE, rich, seed=0)
    names = [phase.name for phase in release.exploration.phases]
    assert names == ["number of records", "all parts", "errors of the estimate"]
    best = qs.plan(WORKLOAD, rich)
    assert release.answer(WORKLOAD).std.max() < 1.05 * qs.measure(best, TABLE, seed=0).answer().std.max()


PAIRS = qs.marginals(SCHEMA, 2)


@pytest.fixture(scope="module")
def estimate():
    return qs.explore(PAIRS, TABLE, BUDGET, seed=1).estimate()


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
    both = estimate.errors([("a", "b"), ("a", "b", "c")])
    one = both.each[1]
    assert (one.kind, one.std) == ("model-based", None)
    assert "model-based" in str(one)
    assert 0 < one.value < 2 * estimate.total
    with pytest.raises(OutsideMeasuredSpaceError, match="not measured"):
        one.interval()
    assert [e.kind for e in both.each] == ["measured", "model-based"]
    assert both.mean.kind == "model-based"
    rows = both.to_frame("pandas")
    assert rows["kind"].tolist() == ["measured", "model-based"]
    assert rows["low"].isna().tolist() == [False, True]


def test_a_release_without_measured_errors_has_model_based_ones():
    pair = qs.queries(SCHEMA, a="identity", b="identity")
    plan = qs.plan(pair + qs.marginals(SCHEMA, 1), qs.zCDP(0.1), **UNIFORM)
    estimate = qs.measure(plan, TABLE, seed=0).estimate()
    one = estimate.error("a", "b")
    assert one.kind == "model-based"
    assert 0.2 < one.value / true_error(estimate, RECORDS, ("a", "b")) < 5
    assert estimate.error("a", "b") == one  # the same at every call
    bare = qs.explore(pair, TABLE, BUDGET, seed=1, error_share=0)
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
