"""The estimate of a release: its verbs, what it says of itself, and how it compares with unbiased answers."""

import itertools
import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import UnknownAttributeError, WorkloadError
from querysmasher.estimate import evidence
from querysmasher.estimate.estimate import NOTE, Estimate
from querysmasher.planning.strategies.line import is_line
from tests.builders import COST
from tests.estimate.tables import counted, frame, people


def release_of(asked=None, budget=None, seed=0, records=4000, **options):
    schema, rows = people(records)
    workload = qs.marginals(schema, 2) if asked is None else asked(schema)
    plan = qs.plan(workload, budget or qs.zCDP(0.05), **options)
    return qs.measure(plan, frame(schema, rows), seed=seed), rows


def true_answers(workload, records):
    found = []
    for group in workload:
        table = counted(workload.schema, records, workload.schema.positions(group.attributes))
        for _, family in group.parts():
            table = np.moveaxis(family.answers(table), 0, -1)
        found.append(np.ravel(table))
    return np.concatenate(found)


def test_an_estimate_has_no_standard_errors_and_says_that_it_is_biased(tmp_path):
    release, _ = release_of()
    estimate = release.estimate()
    answers = estimate.answer()
    table = estimate.marginal("a", "c")
    for one in (estimate, answers, answers[0]):
        assert not hasattr(one, "std")
    for one in (estimate, answers, table, answers[0]):
        assert not hasattr(one, "interval")
        assert one.note == NOTE == "estimate: non-negative, shrunk where that is safe, not unbiased"
    assert NOTE in repr(estimate)
    assert NOTE in repr(answers)
    assert NOTE in estimate._repr_html_()
    assert NOTE in answers._repr_html_()
    for made in (answers.to_frame(), table.to_frame(), estimate.to_frame("a == 1")):
        assert set(made["note"].to_pylist()) == {NOTE}
        assert "std" not in made.column_names
    workload = qs.marginals(release.workload.schema, 1)
    for ending in ("csv", "parquet", "json", "arrow", "csv.gz"):
        path = tmp_path / f"answers.{ending}"
        estimate.write(workload, path)
        assert path.exists()
    assert NOTE in (tmp_path / "answers.csv").read_text()
    assert NOTE in (tmp_path / "answers.json").read_text()
    stored = pq.read_table(tmp_path / "answers.parquet")
    assert NOTE in json.loads(stored.schema.metadata[b"querysmasher"])["note"]
    assert stored["value"].to_numpy() == pytest.approx(estimate.answer(workload).values)
    assert "not unbiased" in (tmp_path / "datapackage.json").read_text()


def test_a_page_has_both_kinds_of_numbers_and_a_switch(tmp_path):
    schema = qs.Schema([qs.Categorical("<b>x</b>", ["<i>", "&"]), qs.Ordinal("y", range(3))])
    table = pa.table({"<b>x</b>": ["<i>", "&", "&"], "y": [0, 1, 1]})
    release = qs.measure(qs.plan(qs.marginals(schema, 1), COST), table, seed=0)
    path = release.estimate().report(tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    assert NOTE in text
    assert "<i>" not in text
    assert "not measured" in text
    assert f"{release.marginal('y')[0]:,.1f}" in text
    assert f"{release.estimate().marginal('y')[0]:,.1f}" in text
    assert '<th class="n"><span class="unbiased">unbiased</span></th>' in text
    assert "show unbiased values too" in text
    with pytest.raises(qs.FileError):
        release.estimate().report(tmp_path / "page.txt")


def test_the_release_stays_what_it_is():
    release, _ = release_of()
    before = release.answer().values.copy()
    release.estimate().answer()
    assert release.answer().values.tolist() == before.tolist()
    assert (before < 0).any()  # so that non-negativity means something
    assert (release.estimate().answer().values >= 0).all()


def test_attributes_come_in_the_order_asked_for():
    estimate = release_of()[0].estimate()
    table = np.asarray(estimate.marginal("a", "c", "e"))
    assert np.asarray(estimate.marginal("e", "a", "c")) == pytest.approx(table.transpose(2, 0, 1))
    first = estimate.marginal("c", "a").to_frame()
    assert first.column_names[-2:] == ["value", "note"]
    assert first["value"].to_numpy() == pytest.approx(np.asarray(estimate.marginal("c", "a")).ravel())
    with pytest.raises(qs.WorkloadError, match="only the table itself has labels"):
        estimate.marginal("a").cumsum().to_frame()


def test_tables_that_were_never_measured_are_estimated():
    release, _ = release_of(lambda s: qs.marginals(s, 1))
    with pytest.raises(qs.OutsideMeasuredSpaceError):
        release.marginal("a", "b")
    table = release.estimate().marginal("a", "b", "d", "e")
    assert table.shape == (8, 8, 6, 3)
    assert table.sum() == pytest.approx(release.estimate().total)


def test_an_estimate_is_saved_with_its_releases(tmp_path):
    release, _ = release_of(lambda s: qs.marginals(s, 2) + qs.queries(s, a="prefix"))
    estimate = release.estimate()
    estimate.save(tmp_path / "x.estimate")
    loaded = Estimate.load(tmp_path / "x.estimate")
    assert loaded.answer().values.tolist() == estimate.answer().values.tolist()
    assert loaded.guarantee == estimate.guarantee
    content = (tmp_path / "x.estimate").read_bytes()
    (tmp_path / "bad.estimate").write_bytes(content[:-20])
    with pytest.raises(qs.FileError):
        Estimate.load(tmp_path / "bad.estimate")
    release.save(tmp_path / "y.release")
    with pytest.raises(qs.FileError, match="not a 'querysmasher estimate'"):
        Estimate.load(tmp_path / "y.release")


def test_a_workload_on_another_schema_is_refused():
    estimate = release_of()[0].estimate()
    with pytest.raises(qs.OutsideMeasuredSpaceError, match="schema"):
        estimate.answer(qs.marginals(qs.Schema.of(a=2), 1))


ASKED = {
    "prefixes": lambda s: qs.all_kway(s, [1, 2], "prefix"),
    "ranges": lambda s: qs.all_kway(s, 1, "range"),
    "circular": lambda s: qs.queries(s, b="circular"),
    "joint": lambda s: qs.affine(s, "a", "b") + qs.abs_difference(s, "a", "b"),
    "whole": lambda s: qs.where(s, "a < 3 and b > 2") + qs.where(s, "c == 1") + qs.where(s, "d > 2"),
    "mixed": lambda s: qs.queries(s, a="prefix", c="identity") + qs.marginals(s, 2),
    "random": lambda s: qs.random_queries(s, ("a", "b"), 30),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ASKED)
def test_every_release_has_an_estimate_that_is_no_worse(kind):
    schema, records = people()
    workload = ASKED[kind](schema)
    exact = true_answers(workload, records)
    plan = qs.plan(workload, qs.zCDP(0.002))
    ours = theirs = 0.0
    for seed in range(6):
        release = qs.measure(plan, frame(schema, records), seed=seed)
        values = release.estimate().answer().values
        assert np.isfinite(values).all()
        assert values.min() >= 0
        ours += np.mean((values - exact) ** 2)
        theirs += np.mean((release.answer().values - exact) ** 2)
    assert ours <= 1.02 * theirs  # the seeds are fixed


@pytest.mark.parametrize("kind", ASKED)
def test_with_a_huge_budget_estimates_are_the_truth(kind):
    schema, records = people()
    workload = ASKED[kind](schema)
    release = qs.measure(qs.plan(workload, qs.PrivacyCost(1e8)), frame(schema, records), seed=0)
    assert release.estimate().answer().values == pytest.approx(true_answers(workload, records), abs=1.0)


def few_values(records):
    """People of at most five values of each attribute: around the best centres they are planned at once."""
    schema, rows = people(records)
    small = qs.Schema.of({name: min(schema[name].size, 5) for name in schema.names})
    return small, np.minimum(rows, [size - 1 for size in small.sizes])


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize("kind", [*ASKED, "constant"])
def test_answers_without_error_are_the_public_number_of_records(kind, centering):
    schema, records = people(997) if centering == "uniform" else few_values(997)
    asked = ASKED | {"constant": lambda s: qs.linear(s, ("c",), [[2, 2, 2, 2], [1, 0, 1, 0], [0, 0, 0, 0]])}
    workload = asked[kind](schema) + qs.where(schema, "a >= 0") + qs.marginals(schema, 1)
    budget = qs.zCDP(0.02, neighbours="replace_one")
    release = qs.measure(qs.plan(workload, budget, centering=centering), frame(schema, records), seed=0)
    estimate, answers = release.estimate(), release.answer()
    sure = answers.std == 0
    exact = true_answers(workload, records)[sure]
    assert 997 in exact.tolist()
    assert answers.values[sure].tolist() == exact.tolist()
    assert estimate.answer().values[sure].tolist() == exact.tolist()
    for one in (release, estimate):
        assert float(one.marginal()) == 997
        assert one.answer("a >= 0 or b > 1").values.tolist() == [997.0]
        assert float(one.table("a")[None]) == 997
    assert estimate.table("a", "b")[None, None] == 997
    assert estimate.integers(seed=0).total == 997


def test_no_count_exceeds_the_public_number_of_records():
    budget = qs.zCDP(0.00001, neighbours="replace_one")
    release, _ = release_of(lambda s: qs.all_kway(s, [1, 2], "prefix"), budget)
    assert release.answer().values.max() > 4000
    assert release.estimate().answer().values.max() == 4000


def test_queries_that_may_be_negative_are_not_made_positive():
    schema, records = people()
    workload = qs.linear(schema, ("c",), [[1, -1, 0, 0], [-1, 0, 0, 1], [-2, -1, 1, 0]])
    release = qs.measure(qs.plan(workload, COST), frame(schema, records), seed=0)
    exact = true_answers(workload, records)
    assert exact.min() < -100
    assert release.estimate().answer().values == pytest.approx(exact, abs=30)


def test_if_the_total_was_not_measured_it_is_at_least_the_largest_count():
    schema, records = people()
    workload = qs.where(schema, "a < 6") + qs.where(schema, "a < 3 and b > 2")
    release = qs.measure(qs.plan(workload, COST), frame(schema, records), seed=0)
    with pytest.raises(qs.OutsideMeasuredSpaceError):
        release.marginal()
    estimate = release.estimate()
    assert estimate.total == pytest.approx(float(release.answer().values.max()))
    assert np.asarray(estimate.marginal("a", "e")).sum() == pytest.approx(estimate.total)


def test_prefixes_do_not_decrease():
    release, _ = release_of(lambda s: qs.all_kway(s, 2, "prefix"), qs.zCDP(0.001))
    for group, values in zip(release.workload, release.estimate().answers(release.workload), strict=True):
        for axis in range(2):
            assert (np.diff(values, axis=axis) >= 0).all(), group


def test_counts_of_nested_sets_do_not_decrease():
    release, _ = release_of(lambda s: qs.affine(s, "a", "b") + qs.abs_difference(s, "a", "b"), qs.zCDP(0.001))
    for values in release.estimate().answers(release.workload):
        assert (np.diff(values) >= 0).all()


@settings(max_examples=20)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    rows=st.integers(0, 6),
    public=st.booleans(),
    k=st.integers(0, 2),
)
def test_empty_and_tiny_tables_give_sane_answers(sizes, rows, public, k):
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    k = min(k, len(sizes))
    if (public and k == 0) or all(n == 1 for n in sizes):
        k = min(1, len(sizes))
        if public and all(n == 1 for n in sizes):
            return  # nothing is left to measure
    records = np.stack([np.arange(rows) % n for n in sizes], axis=1)
    budget = qs.zCDP(0.5, neighbours="replace_one") if public else qs.zCDP(0.5)
    release = qs.measure(qs.plan(qs.marginals(schema, k), budget), frame(schema, records), seed=1)
    estimate = release.estimate()
    for order in range(len(sizes) + 1):
        for names in itertools.combinations(schema.names, order):
            table = np.asarray(estimate.marginal(*names))
            assert np.isfinite(table).all()
            assert table.min() >= 0
            assert table.sum() == pytest.approx(estimate.total, abs=1e-6 * (1 + estimate.total))


def test_a_noisy_total_below_zero_gives_tables_of_zeros():
    schema = qs.Schema.of(a=30, b=20)
    plan = qs.plan(qs.marginals(schema, 2), qs.PrivacyCost(1e-3))
    empty = frame(schema, np.zeros((0, 2), dtype=np.int64))
    seeds = [s for s in range(20) if qs.measure(plan, empty, seed=s).marginal() < 0]
    assert seeds
    estimate = qs.measure(plan, empty, seed=seeds[0]).estimate()
    assert estimate.total == 0
    assert not np.asarray(estimate.marginal("a", "b")).any()


@pytest.fixture(scope="module")
def estimate():
    return release_of()[0].estimate()


def test_totals_are_sums_of_the_cells(estimate):
    table = estimate.table("c", "e")
    cells = np.asarray(estimate.marginal("c", "e"))
    assert table.values.shape == (5, 4)
    np.testing.assert_allclose(table.values[:-1, :-1], cells)
    np.testing.assert_allclose(table.values[-1, :-1], cells.sum(axis=0))
    assert table[None, None] == pytest.approx(estimate.total)
    assert table[2, None] == pytest.approx(cells[2].sum())
    np.testing.assert_allclose(estimate.table("c", "e", totals=False).values, cells)
    assert not hasattr(table, "std")
    assert not hasattr(table, "interval")


@pytest.mark.parametrize(("percent", "axes"), [("row", -1), ("column", 0), ("total", (0, 1))])
def test_percentages_are_of_rows_columns_or_all(estimate, percent, axes):
    table = estimate.table("c", "e", percent=percent, totals=False)
    np.testing.assert_allclose(table.values.sum(axis=axes), 100)
    shown = estimate.table("c", "e", percent=percent)
    np.testing.assert_allclose(shown.values[:-1, :-1], table.values)
    assert shown[None, None] == pytest.approx(100)
    assert "%" in repr(shown)
    of = {"row": "of each row", "column": "of each column", "total": "of the total"}[percent]
    assert f"Percent {of}" in repr(shown)


def test_every_output_says_what_it_is(estimate):
    for table in (estimate.table("e"), estimate.table("a", "c", "e", percent="row")):
        assert NOTE in repr(table)
        assert NOTE in table._repr_html_()
        frame = table.to_frame("pandas")
        assert set(frame["note"]) == {NOTE}
        assert len(frame) == len(table)
    assert estimate.integers(seed=0).table("e").to_frame("pandas")["note"].iloc[0].endswith("at random")


def test_frames_are_long_or_wide(estimate):
    table = estimate.table("c", "e")
    long, wide = table.to_frame("pandas"), table.to_frame("pandas", wide=True)
    assert list(long.columns) == ["c", "e", "value", "note"]
    assert list(wide.columns) == ["c", "0", "1", "2", "Total"]
    np.testing.assert_allclose(wide.iloc[:, 1:].to_numpy(), table.values)
    np.testing.assert_allclose(long["value"].to_numpy(), table.values.ravel())
    assert long["c"].isna().sum() == 4


def test_percentages_of_nothing_are_missing():
    schema = qs.Schema.of(a=2, b=2).impossible("a == 0")
    frame = pa.table({"a": [1, 1, 1], "b": [0, 1, 1]})
    release = qs.measure(qs.plan(qs.marginals(schema, 2), qs.ApproxDP(50.0, 1e-6)), frame, seed=0)
    table = release.estimate().table("a", "b", percent="row")
    assert np.isnan(table.values[0]).all()
    assert "·" in repr(table)
    assert table.to_frame("pandas")["value"].isna().sum() == 3


def test_what_is_no_table_is_refused(estimate):
    with pytest.raises(WorkloadError, match="at least one attribute"):
        estimate.table()
    with pytest.raises(WorkloadError, match="percent: expected 'total' or None, got 'row'"):
        estimate.table("a", percent="row")
    with pytest.raises(WorkloadError, match="no totals"):
        estimate.table("a", totals=False)[None]
    with pytest.raises(UnknownAttributeError, match="unknown"):
        estimate.table("zip")


@pytest.mark.parametrize("missing", [None, "?"])
def test_errors_of_lines_are_those_of_their_rows_written_out(missing, monkeypatch):
    schema = qs.Schema([qs.Number("income", 0, 1_999, missing=missing), qs.Categorical("sex", ["F", "M"])])
    workload = qs.queries(schema, income="prefix", sex="identity")
    table = pa.table({"income": np.arange(500) * 4, "sex": ["F"] * 500})
    release = qs.measure(qs.plan(workload, qs.zCDP(0.1)), table, seed=1)
    assert any(map(is_line, release.unfitted[0].strategies))
    tracemalloc.start()
    noisy = evidence.Evidence.of_release(release).noisy((0,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2_000**2 / 4  # a quarter of one matrix
    monkeypatch.setattr(evidence, "is_line", lambda _: False)
    written_out = evidence.Evidence.of_release(release).noisy((0,))
    assert noisy.variance == pytest.approx(written_out.variance, rel=1e-6)


def test_errors_are_those_of_tables_that_are_not_too_large(monkeypatch):
    schema = qs.Schema.of(a=3, b=2)
    table = pa.table({"a": [0, 2], "b": [1, 0]})
    release = qs.measure(qs.plan(qs.all_kway(schema, [1, 2]), qs.zCDP(1.0)), table)
    estimate = release.estimate()
    monkeypatch.setattr("querysmasher.estimate.estimate.LARGEST", 3)
    assert estimate.error().tables == (("a",), ("b",))
