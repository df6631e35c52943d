"""Synthetic records: they follow the estimate, stream, and can be read back."""

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.comparison.rehearsal import true_answers
from querysmasher.estimate import microdata
from querysmasher.estimate.estimate_errors import EstimateError
from querysmasher.estimate.evidence import Zeros
from querysmasher.estimate.moves import Followed
from querysmasher.planning.estimator.whole import summed
from tests.estimate.tables import counted, estimated, frame, people, sums

BUDGET = qs.zCDP(0.5)
STATED = ("a < 2 and c == 3", "b == 7 and d == 0 and e == 1", "d == 5")


def coded(frame):
    return np.stack([frame[name].to_numpy() for name in frame.column_names], axis=1)


def test_low_order_tables_of_the_records_follow_the_estimate():
    estimate = estimated(20_000, BUDGET)
    records = coded(estimate.microdata(seed=1).to_frame())
    assert len(records) == round(estimate.total)
    for order, most in ((1, 0.01), (2, 0.02), (3, 0.06)):
        for place in itertools.combinations(range(5), order):
            own = counted(estimate.schema, records, place) / len(records)
            aimed = estimate.model.table(place) / estimate.total
            # as many records drawn independently would be 0.005, 0.03 and 0.1 away
            assert np.abs(own - aimed).sum() < most


def test_records_follow_tables_that_no_pairs_explain():
    schema, truth = sums(20_000)
    plan = qs.plan(qs.marginals(schema, 3), qs.zCDP(0.05))
    estimate = qs.measure(plan, frame(schema, truth), seed=0).estimate()
    records = coded(estimate.microdata(20_000, seed=1).to_frame())
    errors = {"estimate": 0.0, "records": 0.0}
    for place in itertools.combinations(range(5), 3):
        exact = counted(schema, truth, place)
        errors["estimate"] += np.abs(estimate.model.table(place) - exact).sum()
        errors["records"] += np.abs(counted(schema, records, place) - exact).sum()
    assert errors["records"] <= 1.05 * errors["estimate"]
    # values of a and b determine e in 92.5% of the records: pairs alone would say 25%
    assert ((records[:, 0] + records[:, 1]) % 4 == records[:, 4]).mean() > 0.85


@pytest.mark.parametrize("family", ["prefix", "range"])
@pytest.mark.parametrize("stated", [(), ("a < 3 and b == 1", "a == 20")])
def test_records_follow_sums_that_were_asked_for(family, stated):
    schema = qs.Schema.of(a=30, b=3).impossible(*stated)
    rng = np.random.default_rng(0)
    rows = np.stack([np.minimum(rng.geometric(0.15, 8000) - 1, 29), rng.integers(0, 3, 8000)], axis=1)
    rows = rows[Zeros(schema).allowed(rows)]
    workload = qs.queries(schema, a=family) + qs.queries(schema, a=family, b="identity")
    truth = true_answers(workload, frame(schema, rows))
    plan, errors = qs.plan(workload, qs.zCDP(0.005)), np.zeros(3)
    for seed in range(4):
        estimate = qs.measure(plan, frame(schema, rows), seed=seed).estimate()
        made = estimate.microdata(seed=1)
        records = coded(made.to_frame())
        assert Zeros(schema).allowed(records).all()
        tables = [estimate.model.table(schema.positions(group.attributes)) for group in workload]
        of_cells = [summed(group, table).ravel() for group, table in zip(workload, tables, strict=True)]
        answers = [
            estimate.answer().values,
            true_answers(workload, frame(schema, records)),
            np.concatenate(of_cells),
        ]
        errors += [np.abs(values - truth).sum() for values in answers]
        for error in made.errors().each:  # a bound, though records do not follow the cells of the estimate
            place = schema.positions(error.tables[0])
            aimed = estimate.model.table(tuple(sorted(place)))
            scaled = counted(schema, records, tuple(sorted(place))) * estimate.total / len(records)
            assert error.away >= np.abs(scaled - aimed).sum() - 0.1
    assert errors[1] <= 1.05 * errors[0]
    assert errors[1] < errors[2]  # of sums of the cells that the estimate has


def test_a_block_makes_up_for_what_earlier_ones_lack(monkeypatch):
    estimate = estimated(20_000, BUDGET)
    wrong = {}
    for block in (250, 4_000):
        monkeypatch.setattr(microdata, "BLOCK", block)
        records = coded(estimate.microdata(4_000, seed=1).to_frame())
        wrong[block] = sum(
            np.abs(
                counted(estimate.schema, records, place) / 4_000
                - estimate.model.table(place) / estimate.total
            ).sum()
            for place in itertools.combinations(range(5), 2)
        )
    assert wrong[250] < 2 * wrong[4_000]


def test_records_stream_in_blocks_and_are_the_same_again(monkeypatch, tmp_path):
    monkeypatch.setattr(microdata, "BLOCK", 300)
    schema = qs.Schema.of(a=8, b=8, c=4)
    rows = people(20_000)[1][:, :3]
    release = qs.measure(qs.plan(qs.marginals(schema, 2), BUDGET), frame(schema, rows), seed=0)
    made = release.estimate().microdata(1000, seed=2)
    sizes = [len(block) for block in made]
    assert sizes == [300, 300, 300, 100]
    whole = made.to_frame()
    assert whole.equals(made.to_frame())
    made.write(tmp_path / "r.parquet")
    made.write(tmp_path / "r.csv")
    assert coded(pq.read_table(tmp_path / "r.parquet")).tolist() == coded(whole).tolist()
    assert coded(pa.csv.read_csv(tmp_path / "r.csv")).tolist() == coded(whole).tolist()
    assert b"synthetic records" in pq.read_schema(tmp_path / "r.parquet").metadata[b"querysmasher"]
    assert "not of real people" in repr(made)
    pandas = pytest.importorskip("pandas")
    assert isinstance(made.to_frame("pandas"), pandas.DataFrame)
    with pytest.raises(qs.FileError):
        made.write(tmp_path / "r.txt")


def test_nobody_is_impossible():
    estimate = estimated(20_000, BUDGET, STATED)
    frame = estimate.microdata(5000, seed=0).to_frame()
    assert len(frame) == 5000
    assert estimate.model.zeros.allowed(coded(frame)).all()


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("c", "d", "e")])
def test_exact_counts_hold_in_records(names, monkeypatch):
    schema, rows = people(4000)
    workload = qs.marginals(schema, [2])
    plan = qs.plan(workload, qs.zCDP(0.05), exact=qs.marginals(schema, list(names)))
    estimate = qs.measure(plan, frame(schema, rows), seed=0).estimate()
    place = schema.positions(names)
    for block in (50_000, 1500):
        monkeypatch.setattr(microdata, "BLOCK", block)
        records = coded(estimate.microdata(seed=1).to_frame())
        np.testing.assert_array_equal(counted(schema, records, place), counted(schema, rows, place))


def weighed(schema, records, weights, place):
    """The weighted table on some attributes."""
    shape = [schema.sizes[p] for p in place]
    index = np.ravel_multi_index([records[:, p] for p in place], shape)
    return np.bincount(index, weights, np.prod(shape)).reshape(shape)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_weights_never_take_random_tables_away_from_what_is_wanted(seed, records, public):
    rng = np.random.default_rng(seed)
    schema = qs.Schema.of({f"x{i}": int(size) for i, size in enumerate(rng.integers(1, 5, 3))})
    sets = [place for order in (1, 2, 3) for place in itertools.combinations(range(3), order)]
    cells = rng.dirichlet(np.full(schema.sizes, 0.3).ravel()).reshape(schema.sizes) * records
    drawn = np.stack([rng.integers(0, size, records) for size in schema.sizes], axis=1)
    tables = [cells.sum(axis=tuple({0, 1, 2} - {*place})) for place in sets]
    exact = [(0,), (1,)] if public else []
    if public:
        tables[:2] = [counted(schema, drawn, place) for place in exact]
    followed = Followed(Zeros(schema), schema.sizes, records, sets, tables, exact)
    moved = followed.moved(drawn, rng)
    before = followed.distances
    weights = followed.weighted(moved)
    after = followed.distances
    assert weights.sum() == pytest.approx(records)
    assert weights.min() >= 1 / 4 - 1e-9
    assert weights.max() <= 4 + 1e-9
    assert sum(after.values()) <= sum(before.values()) + 1e-6
    for place, table in zip(sets, tables, strict=True):
        own = weighed(schema, moved, weights, place)
        assert np.abs(own - table).sum() == pytest.approx(after[place], abs=1e-3)
        if place in exact:  # as close as the records themselves
            np.testing.assert_allclose(own, counted(schema, moved, place))


def test_weighted_tables_are_much_closer_to_the_estimate(monkeypatch):
    estimate = estimated(20_000, BUDGET, STATED)
    plain = estimate.microdata(600, seed=1)
    made = estimate.microdata(600, seed=1, weights=True)
    frame = made.to_frame()
    assert frame.equals(estimate.microdata(600, seed=1, weights=True).to_frame())
    assert frame.drop_columns("weight").equals(plain.to_frame())
    records, weights = coded(frame.drop_columns("weight")), frame["weight"].to_numpy()
    assert weights.sum() == pytest.approx(estimate.total)
    assert weights.min() >= estimate.total / 600 / 4
    assert estimate.model.zeros.allowed(records).all()
    for place, distance in made._distances.items():  # of which `errors` makes its bounds
        away = weighed(estimate.schema, records, weights, place) - estimate.model.table(place)
        assert distance * estimate.total / 600 == pytest.approx(np.abs(away).sum(), rel=1e-3, abs=0.1)
    assert sum(made._distances.values()) < 0.7 * sum(plain._distances.values())
    monkeypatch.setattr(microdata, "BLOCK", 150)  # every block makes up for the weighted ones before it
    blocks, without = (estimate.microdata(600, seed=1, weights=weights) for weights in (True, False))
    assert sum(blocks.to_frame()["weight"].to_pylist()) == pytest.approx(estimate.total)
    assert sum(blocks._distances.values()) < sum(without._distances.values())


@pytest.mark.parametrize("block", [50_000, 1500])
def test_exact_counts_hold_in_sums_of_weights(block, monkeypatch):
    monkeypatch.setattr(microdata, "BLOCK", block)
    schema, rows = people(4000)
    exact = qs.marginals(schema, ["a", "b"])
    estimate = qs.measure(
        qs.plan(qs.marginals(schema, [2]), qs.zCDP(0.05), exact=exact), frame(schema, rows), seed=0
    ).estimate()
    made = estimate.microdata(seed=1, weights=True).to_frame()
    weights = made["weight"].to_numpy()
    assert len(set(weights)) > 100
    records = coded(made.drop_columns("weight"))
    own = weighed(schema, records, weights, (0, 1))
    np.testing.assert_allclose(own, counted(schema, rows, (0, 1)), atol=1e-6)


def test_a_column_of_weights_needs_its_name():
    schema = qs.Schema.of({"Weight": 2, "a": 2})
    release = qs.measure(
        qs.plan(qs.marginals(schema, 1), qs.zCDP(1)), pa.table({"Weight": [0, 1], "a": [0, 1]}), seed=0
    )
    with pytest.raises(
        qs.WorkloadError, match=r"weights: expected no attribute called 'weight'.*got 'Weight'"
    ):
        release.estimate().microdata(5, weights=True)


def test_records_of_every_kind_of_attribute_can_be_measured_again():
    schema = qs.Schema(
        [
            qs.Categorical("sex", ["F", "M"]),
            qs.Binned("income", edges=[0, 10, 25, 50]),
            qs.Cyclic("hour", range(24)),
            qs.Ordinal("one", ["x"]),
        ]
    )
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "sex": rng.choice(["F", "M"], 500),
            "income": rng.uniform(0, 50, 500),
            "hour": rng.integers(0, 24, 500),
            "one": ["x"] * 500,
        }
    )
    plan = qs.plan(qs.marginals(schema, [1, 2]), qs.zCDP(1))
    frame = qs.measure(plan, table, seed=0).estimate().microdata(200, seed=0).to_frame()
    assert qs.measure(plan, frame, seed=1).plan.schema == schema


def test_values_beside_the_others_and_open_ended_bins_can_be_measured_again():
    schema = qs.Schema(
        [
            qs.Ordinal("age", [1, 2], missing="missing"),
            qs.Categorical("sex", ["F"], other="other", missing="missing"),
            qs.Binned("income", edges=[-np.inf, 0, 10, np.inf], missing="missing"),
        ]
    )
    plan = qs.plan(qs.marginals(schema, [1, 2]), qs.zCDP(1e6))
    table = pa.table({"age": [1, 2, None] * 40, "sex": ["F", None, "X"] * 40, "income": [-5, 50, None] * 40})
    release = qs.measure(plan, table, seed=0)
    frame = release.estimate().microdata(120, seed=0).to_frame()
    assert set(frame["age"].to_pylist()) == {1, 2, None}
    assert set(frame["sex"].to_pylist()) == {"F", "other", None}
    assert set(frame["income"].to_pylist()) == {np.nextafter(0, -1), 10.0, None}
    again = qs.measure(plan, frame, seed=1)
    for names in (("age", "sex"), ("income",)):
        np.testing.assert_allclose(again.marginal(*names), release.marginal(*names), atol=1)


def test_numbers_are_drawn_inside_their_bins():
    schema = qs.Schema(
        [
            qs.Binned("income", edges=[0, 10, 25, 50], missing="missing"),
            qs.Binned("age", edges=[0, 3, 7], step=1),
            qs.Binned("tons", edges=[0, 0.5, 1.5], step=0.25),
        ]
    )
    plan = qs.plan(qs.marginals(schema, [1, 2]), qs.zCDP(1e6))
    table = pa.table({"income": [5, 12, None] * 100, "age": [0, 4, 4] * 100, "tons": [0.3, 1.5, 1.5] * 100})
    release = qs.measure(plan, table, seed=0)
    drawn = release.estimate().microdata(300, seed=0).to_frame()
    assert set(drawn["age"].to_pylist()) == set(range(8))
    assert set(drawn["tons"].to_pylist()) == {0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5}
    assert len(set(drawn["income"].drop_null().to_pylist())) == 200
    assert drawn["income"].null_count == 100
    again = qs.measure(plan, drawn, seed=1)
    for name in schema.names:
        np.testing.assert_allclose(again.marginal(name), release.marginal(name), atol=1)


def test_the_error_of_records_is_that_of_the_estimate_and_their_distance_from_it():
    estimate = estimated(20_000, BUDGET)
    made = estimate.microdata(10_000, seed=1)
    records = coded(made.to_frame())
    for error, of_estimate in zip(made.errors().each, estimate.errors().each, strict=True):
        place = estimate.schema.positions(error.tables[0])
        scaled = counted(estimate.schema, records, place) * estimate.total / len(records)
        away = np.abs(scaled - estimate.model.table(place)).sum()
        assert error.away == pytest.approx(away, rel=1e-3, abs=0.1)
        assert error.value == pytest.approx(of_estimate.value + away, rel=1e-3, abs=0.1)
    assert made.error("b", "a").tables == (("a", "b"),) or made.error("b", "a").tables == (("b", "a"),)
    assert "error of the synthetic records, mean of 10 tables: at most" in str(made.error())
    assert made.errors().to_frame().column_names[-1] == "away"
    with pytest.raises(qs.OutsideMeasuredSpaceError, match="expected tables that records follow"):
        made.error("a", "b", "c")


def test_a_release_fits_its_estimate_once_and_its_errors_are_rehearsed_once(monkeypatch):
    schema = qs.Schema.of(a=3, b=2)
    plan = qs.plan(qs.marginals(schema, [1, 2]), BUDGET)
    release = qs.measure(plan, frame(schema, people(500)[1][:, :2] % [3, 2]), seed=0)
    made = release.estimate().microdata(50, seed=1)
    said = str(made.error())
    monkeypatch.setattr("querysmasher.estimate.estimate_errors._rehearsed", None)
    monkeypatch.setattr("querysmasher.estimate.estimate.settled", None)
    assert str(made.error()) == said
    assert release.estimate().errors().mean.value == made.estimate.error().value


def test_records_of_integers_follow_the_integers(tmp_path):
    estimate = estimated(2000, BUDGET)
    integers = estimate.integers(seed=3)
    made = integers.microdata(seed=1)
    assert len(made) == integers.total
    records = coded(made.to_frame())
    for names in "abcde":
        own = counted(estimate.schema, records, estimate.schema.positions(names))
        np.testing.assert_array_equal(own, integers.marginal(names))
    for error in made.errors().each:
        place = estimate.schema.positions(error.tables[0])
        away = np.abs(counted(estimate.schema, records, place) - estimate.model.table(place)).sum()
        assert error.away >= away - 0.1
    made.write(tmp_path / "r.csv")


def test_the_interval_of_an_error_is_wider_by_the_distance():
    known = EstimateError((("a",),), 100.0, 10.0, 1000.0)
    low, high = known.interval()
    of_records = replace(known, away=7.0)
    assert of_records.interval() == (low - 7, high + 7)
    assert of_records.value == 107


def test_no_records_and_invalid_numbers():
    estimate = estimated(20_000, BUDGET)
    assert len(estimate.microdata(0).to_frame()) == 0
    for n in (-1, 1.5, True):
        with pytest.raises(qs.WorkloadError, match="n: expected"):
            estimate.microdata(n)


def test_an_estimate_of_nobody_has_records_all_the_same():
    schema = qs.Schema.of(a=3, b=2)
    empty = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())})
    plan = qs.plan(qs.marginals(schema, 2), qs.PrivacyCost(1e-3))
    for seed in range(4):
        estimate = qs.measure(plan, empty, seed=seed).estimate()
        assert len(estimate.microdata(10, seed=0).to_frame()) == 10
