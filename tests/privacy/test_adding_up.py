"""Factors of one row, added up while counting: the same integers as from counts, in every engine."""

import itertools

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.data.counting import Limits
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.limits import limited
from querysmasher.privacy import measurement
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.counts import CountedOnce, Sums
from querysmasher.privacy.factors import matrix
from querysmasher.privacy.measurement import added_up, exact_answers, foldable, measure_table
from querysmasher.privacy.noise import noise_source
from querysmasher.release import reconstruction
from tests.builders import SPLIT

SCHEMA = qs.Schema(
    [qs.Number("v", 0, 20, step=2), qs.Categorical("g", ["x", "y", "z"]), qs.Ordinal("w", range(4))]
)
ROW, OTHER = np.array([-9, 4, 0, 7, 1, 1, 2, 3, -5, 8, 2**40]), np.array([3, -1, 0, 2])
ASKED = [
    Sums(("g",), {"v": ROW}),
    Sums((), {"v": ROW}),
    Sums(("w", "g"), {"v": ROW}),
    Sums(("g",), {"v": ROW, "w": OTHER}),
    Sums((), {"v": ROW, "w": OTHER}),
]
TINY = Limits(read_rows=3, chunk_rows=4, keep_bytes=0)


def records(count=50, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "v": rng.integers(-3, 25, count),
            "g": rng.choice(["x", "y", "z"], count),
            "w": rng.integers(0, 4, count),
        }
    )


def plainly(data, sums):
    """Add up record by record, in Python's integers."""
    table = np.zeros(SCHEMA.shape(sums.by), dtype=object)
    for record in data.itertuples():
        code = {"v": int(np.clip((record.v + 1) // 2, 0, 10)), "g": "xyz".index(record.g), "w": record.w}
        adds = 1
        for name, row in sums.rows.items():
            adds *= int(row[code[name]])
        table[tuple(code[name] for name in sums.by)] += adds
    return table.astype(np.int64)


def in_parquet(data, folder):
    pq.write_table(pa.Table.from_pandas(data), folder / "x.parquet")
    return folder / "x.parquet"


def in_csv(data, folder):
    data.to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


ENGINES = {
    "pandas": lambda data, _: data,
    "duckdb": lambda data, _: duckdb.from_arrow(pa.Table.from_pandas(data)),
    "parquet": in_parquet,
    "csv": in_csv,
}


@pytest.mark.parametrize("limits", [None, TINY], ids=["", "tiny"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_adds_up_the_same(engine, limits, tmp_path):
    data = records()
    counter = open_table(SCHEMA, ENGINES[engine](data, tmp_path), SCHEMA.names, limits=limits)
    for sums, found in zip(ASKED, counter.sums(ASKED), strict=True):
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, plainly(data, sums))
    once = CountedOnce(SCHEMA, counter, [("v", "g")])
    np.testing.assert_array_equal(next(once.sums(ASKED[:1])), plainly(data, ASKED[0]))


@pytest.mark.slow
def test_spark_adds_up_the_same(spark):
    data = records(500)
    counter = open_table(SCHEMA, spark.createDataFrame(data).repartition(7), SCHEMA.names)
    for sums, found in zip(ASKED, counter.sums(ASKED), strict=True):
        np.testing.assert_array_equal(found, plainly(data, sums))
    (counts,) = counter.marginals([("g",)])
    assert counts.tolist() == [int((data.g == g).sum()) for g in "xyz"]


def test_of_persons_only_the_counted_records_are_added_up():
    data = records(60).assign(id=np.arange(60) % 7)
    counter = open_table(SCHEMA, data, SCHEMA.names, bound=Bound("id", 2, bytes(32)))
    ones = Sums(("g",), {"v": np.ones(11, np.int64)})
    (counts,) = counter.marginals([("g",)])
    assert counts.sum() == 14
    np.testing.assert_array_equal(next(counter.sums([ones])), counts)


def test_large_tables_are_added_up_record_by_record():
    schema = qs.Schema.of(a=2000, b=1000, c=3)
    rng = np.random.default_rng(0)
    data = pd.DataFrame({n: rng.integers(0, s, 300) for n, s in zip("abc", schema.sizes, strict=True)})
    counter = open_table(schema, data, schema.names)
    (found,) = counter.sums([Sums(("a", "b"), {"c": np.array([2**60, -5, 7])})])
    expected = np.zeros((2000, 1000), np.int64)
    np.add.at(expected, (data.a, data.b), np.array([2**60, -5, 7])[data.c])
    np.testing.assert_array_equal(found, expected)


def split(workload, budget):
    """Plan with all queries split."""
    with limited(**SPLIT):
        return qs.plan(workload, budget)


WORKLOADS = [
    qs.sums(SCHEMA, "v", by=["g"]),
    qs.means(SCHEMA, "v", by=["g", "w"]),
    qs.sums(SCHEMA, "v") + qs.marginals(SCHEMA, 2),
    qs.queries(SCHEMA, v="sum", w="sum", g="identity"),
    qs.means(SCHEMA, "v", by=["g"]) + qs.queries(SCHEMA, v="prefix"),
]


@pytest.mark.parametrize("number", range(len(WORKLOADS)))
@pytest.mark.parametrize("kind", ["add_remove", "replace_one"])
@pytest.mark.parametrize("few", [matrix.FEW_ROWS, 1.0])
def test_folded_measurements_have_the_same_exact_answers(number, kind, few, monkeypatch):
    monkeypatch.setattr(measurement, "COUNTED_CELLS", 1)
    monkeypatch.setattr(matrix, "FEW_ROWS", few)
    data = records(200)
    plan = split(WORKLOADS[number], qs.zCDP(0.5, neighbours=kind))
    whole = integer_plan(plan, plan.budget.privacy_cost, 10**6)
    counter = open_table(SCHEMA, data, SCHEMA.names)
    folded = foldable(whole)
    for n, rows in folded.items():
        measured = whole.measured[n]
        names = whole.names(measured)
        (counts,) = counter.marginals([names])
        tables = np.array(list(counter.sums(added_up(rows, names))))
        expected = exact_answers(whole, measured, counts)
        tables = tables.reshape(*map(len, rows.values()), *tables.shape[1:])
        found = exact_answers(whole, measured, tables, rows)
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
    assert folded or number == 2
    seeded = [dict(measure_table(whole, counter, noise_source("rounded", 7))) for _ in range(2)]
    assert seeded[0].keys() == set(range(len(whole.measured)))


def test_only_large_tables_that_nothing_else_needs_are_added_up(monkeypatch):
    plan = split(qs.means(SCHEMA, "v", by=["g"]), qs.zCDP(0.5))
    whole = integer_plan(plan, 1.0, 10**6)
    assert foldable(whole) == {}  # few cells: one pass counts all
    monkeypatch.setattr(measurement, "COUNTED_CELLS", 11)
    names = {whole.names(whole.measured[n]) for n in foldable(whole)}
    assert names == {("v", "g")}
    both = split(qs.means(SCHEMA, "v", by=["g"]) + qs.marginals(SCHEMA, 3), qs.zCDP(0.5))
    needed = integer_plan(both, 1.0, 10**6)
    assert foldable(needed) == {}  # the marginal on all three is counted anyway


def test_sums_that_are_impossible_are_refused(monkeypatch):
    monkeypatch.setattr(measurement, "COUNTED_CELLS", 11)
    plan = integer_plan(split(qs.sums(SCHEMA, "v", by=["g"]), qs.zCDP(0.5)), 1.0, 10**6)

    class Wrong:
        def __init__(self, add, dtype=np.int64):
            self.inner, self.add, self.dtype = open_table(SCHEMA, records(), SCHEMA.names), add, dtype

        def records(self):
            return self.inner.records()

        def marginals(self, sets):
            return self.inner.marginals(sets)

        def sums(self, asked):
            return ((table + self.add).astype(self.dtype) for table in self.inner.sums(asked))

    assert len(dict(measure_table(plan, Wrong(0), noise_source("rounded", 1)))) == len(plan.measured)
    for wrong in (Wrong(2**50), Wrong(-(2**50)), Wrong(0, np.float64)):
        with pytest.raises(DataError, match="inconsistent"):
            list(measure_table(plan, wrong, noise_source("rounded", 1)))


@given(
    st.lists(st.sampled_from(["identity", "prefix", "sum", "range", None]), min_size=3, max_size=3),
    st.sampled_from(["add_remove", "replace_one"]),
)
def test_answers_without_tables_are_those_from_tables(families, kind):
    """Rows applied before cells are written out: the same numbers as from marginals."""
    chosen = dict(zip(SCHEMA.names, families, strict=True))
    if chosen["g"] in ("sum", "prefix", "range") or not any(chosen.values()):
        return
    asked = qs.queries(SCHEMA, {name: family for name, family in chosen.items() if family})
    plan = split(asked + qs.marginals(SCHEMA, [1, 2]), qs.zCDP(0.5, neighbours=kind))
    release = qs.measure(plan, records(), seed=2)
    groups = [*asked.groups, *qs.sums(SCHEMA, "v", by=["w"]).groups]
    expected = [release.answer_group(group) for group in groups]
    kept = reconstruction.KEPT
    try:
        for reconstruction.KEPT in (0, 30):  # nothing is small, or only some pseudo-inverses are
            again = qs.measure(plan, records(), seed=2)
            for group, (values, std) in zip(groups, expected, strict=True):
                found = again.answer_group(group)
                np.testing.assert_allclose(found[0], values, rtol=1e-9, atol=1e-7)
                np.testing.assert_array_equal(found[1], std)
    finally:
        reconstruction.KEPT = kept


def test_a_mean_by_groups_of_a_fine_number(monkeypatch):
    """The statistics of a release that was added up are those of one that was counted."""
    monkeypatch.setattr(measurement, "COUNTED_CELLS", 1)
    monkeypatch.setattr(reconstruction, "KEPT", 1)
    data = records(4000)
    plan = split(qs.means(SCHEMA, "v", by=["g"]), qs.zCDP(50))
    release = qs.measure(plan, data, seed=1)
    clamped = (data.v + 1).floordiv(2).clip(0, 10) * 2
    expected = [clamped[data.g == g].mean() for g in "xyz"]
    found = release.mean("v", by="g")
    assert np.abs((found.values - expected) / found.std).max() < 5
    assert found.std.max() < 0.1
    assert list(itertools.chain(found.values)) == list(release.mean("v", by="g").values)
