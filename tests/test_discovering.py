"""Discovering values: what a caller sees, what is charged, and what is refused."""

import importlib
import json
import traceback
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher.errors import BudgetError, DataError, PrivacyError, SchemaError
from tests.builders import PRIVATE

discovering = importlib.import_module("querysmasher.discovering")

FLIGHTS = pd.DataFrame(
    {
        "dest": ["LAX"] * 400 + ["ATL"] * 900 + [PRIVATE] + ["ORD"] * 300 + [None] * 50,
        "plane": [f"N{i % 500}" for i in range(1651)],
    }
)
BUDGET = qs.ApproxDP(epsilon=1.0, delta=1e-6)


def test_values_of_many_records_are_found_in_order():
    found = qs.discover(FLIGHTS, "dest", BUDGET, seed=3)
    assert found.values == ("ATL", "LAX", "ORD")
    assert np.abs(found.counts - [900, 400, 300]).max() < 6 * found.std
    assert found.counts.min() >= found.threshold
    again = qs.discover(FLIGHTS.sample(frac=1, random_state=1), "dest", BUDGET, seed=3)
    assert again.values == found.values
    assert (again.counts == found.counts).all()  # nothing depends on the order of the records
    assert repr(found) == "Discovered('dest', ['ATL', 'LAX', 'ORD'])"
    assert list(found.to_frame()["dest"]) == ["ATL", "LAX", "ORD"]
    assert json.loads(json.dumps(found.to_json()))["values"] == ["ATL", "LAX", "ORD"]
    assert "3 values of dest" in found._repr_html_()
    assert len(found) == 3


def test_the_attribute_counts_all_others():
    found = qs.discover(FLIGHTS, "dest", BUDGET, seed=3)
    dest = found.attribute(missing="missing", title="Destination")
    assert dest.values == ("ATL", "LAX", "ORD", "other", "missing")
    release = qs.measure(qs.plan(qs.all_kway(qs.Schema([dest]), 1), qs.zCDP(10)), FLIGHTS)
    assert np.abs(release.marginal("dest") - [900, 400, 300, 1, 50]).max() < 3
    assert found.attribute(other=None).values == found.values


def test_values_of_several_kinds_are_in_order():
    table = pd.DataFrame({"v": pd.Series(["b", 2, 10, True, pd.Timestamp("2024-01-01").date(), "a"] * 200)})
    found = qs.discover(table, "v", BUDGET)
    assert [str(v) for v in found.values] == ["True", "2", "10", "2024-01-01", "a", "b"]
    assert list(found.to_frame()["v"]) == ["True", "2", "10", "2024-01-01", "a", "b"]
    both = qs.discover(pd.DataFrame({"v": pd.Series([True, 1] * 200, dtype=object)}), "v", BUDGET)
    with pytest.raises(SchemaError, match="given more than once"):
        both.attribute()


def test_persons():
    found = qs.discover(FLIGHTS, "dest", BUDGET, person="plane", at_most=1)
    assert found.discovery.most == 1
    assert found.counts.sum() < 500 + 6 * found.std * 2  # 500 planes, each counted once
    assert "at most 1 value of 'dest' is counted" in found.guarantee
    assert "noisy count of persons" in found.words()
    assert "Of each person at most 1 value is counted" in found.words()
    many = qs.discover(FLIGHTS, "dest", qs.ApproxDP(1.0, 1e-6, records_per_person=4), person="plane")
    assert many.discovery.most == 4
    assert many.discovery.cost * many.discovery.variance == 4


@pytest.mark.parametrize("noise", ["rounded", "discrete"])
@pytest.mark.parametrize("delta", [None, 1e-9])
def test_what_is_spent_and_said(noise, delta):
    found = qs.discover(FLIGHTS, "dest", BUDGET, noise=noise, delta=delta)
    assert found.discovery.delta == Fraction(5e-7 if delta is None else delta)
    assert found.guarantee.startswith(
        "The values and their counts satisfy differential privacy with epsilon = 1.0 and delta = 1e-06, for"
    )
    pure = qs.discover(FLIGHTS, "dest", qs.zCDP(0.1), delta=1e-7, noise=noise)
    assert "with rho = 0.1 up to delta = 1e-07, for any two tables that differ by adding" in pure.guarantee
    assert f"at least {pure.threshold}" in pure.words()
    assert "A value that only one record has appears with a probability of at most 1e-07." in pure.words()
    several = qs.discover(FLIGHTS, "dest", qs.zCDP(1, records_per_person=3), delta=1e-7, noise=noise)
    assert "A value that only one person has appears" in several.words()
    assert pure.found_from == int(np.ceil(pure.threshold + 1.959964 * pure.std))
    assert qs.discover(FLIGHTS, "dest", BUDGET, seed=1).guarantee == (
        "This is a simulation with a seed: it protects nobody."
    )


def test_the_ledger_adds_up_both(tmp_path):
    ledger = qs.Ledger(tmp_path / "x.ledger", limit=qs.ApproxDP(epsilon=2, delta=1e-6))
    found = qs.discover(FLIGHTS, "dest", qs.zCDP(0.02), delta=4e-7, ledger=ledger)
    assert found.entry == ledger.entries[0]
    assert (found.entry.cost, found.entry.delta) == (found.discovery.cost, Fraction(4e-7))
    plan = qs.plan(qs.all_kway(qs.Schema([found.attribute(missing="missing")]), 1), qs.zCDP(0.02))
    qs.measure(plan, FLIGHTS, ledger=ledger)
    total = ledger.total
    assert total.delta == Fraction(4e-7)
    assert total.mu is None
    alone = qs.PrivacyCost(float(total.cost))
    assert total.epsilon_at(1e-6) == pytest.approx(alone.epsilon_at(6e-7), rel=1e-9)
    assert "up to delta = 4e-07" in repr(ledger)
    again = qs.Ledger(tmp_path / "x.ledger")
    assert again.total == total
    with pytest.raises(PrivacyError, match=r"needs rho = .* and delta = 7e-07. Nothing was measured"):
        qs.discover(FLIGHTS, "dest", qs.zCDP(0.02), delta=7e-7, ledger=ledger)
    with pytest.raises(PrivacyError, match=r"needs rho = "):  # the δ of values lessens what ε leaves
        qs.measure(
            qs.plan(qs.marginals(qs.Schema.of(a=2), 1), qs.ApproxDP(1.9, 1e-6)), FLIGHTS, ledger=ledger
        )
    assert len(ledger.entries) == 2


def test_a_ledger_whose_limit_states_no_delta_refuses(tmp_path):
    ledger = qs.Ledger(tmp_path / "x.ledger", limit=qs.zCDP(1))
    with pytest.raises(
        PrivacyError, match=r"leaves delta = 0 for .*these need 5e-07.*use a ledger with a delta"
    ):
        qs.discover(FLIGHTS, "dest", BUDGET, ledger=ledger)
    assert ledger.entries == ()
    with pytest.raises(PrivacyError, match="simulation"):
        qs.discover(FLIGHTS, "dest", BUDGET, ledger=ledger, seed=1)
    wide = qs.Ledger(tmp_path / "y.ledger", limit=qs.ApproxDP(1, 1e-6, records_per_person=2))
    with pytest.raises(PrivacyError, match="their costs cannot be added"):
        qs.discover(FLIGHTS, "dest", BUDGET, ledger=wide)


def test_a_delta_beside_a_limit_that_states_none(tmp_path):
    """Discovered values take of it, up to it; everything else is as before."""
    path = tmp_path / "x.ledger"
    ledger = qs.Ledger(path, limit=qs.zCDP(1), delta=1e-6)
    qs.discover(FLIGHTS, "dest", qs.zCDP(0.1), delta=6e-7, ledger=ledger)
    with pytest.raises(PrivacyError, match=r"leaves delta = 4e-07 for discovered values; these need 5e-07"):
        qs.discover(FLIGHTS, "dest", qs.zCDP(0.1), delta=5e-7, ledger=ledger)
    qs.discover(FLIGHTS, "dest", qs.zCDP(0.1), delta=3e-7, ledger=ledger)
    plan = qs.plan(qs.marginals(qs.Schema.of(a=2), 1), qs.zCDP(0.8))
    qs.measure(plan, pd.DataFrame({"a": [0, 1]}), ledger=ledger)
    assert ledger.verify().total.delta == Fraction(6e-7) + Fraction(3e-7)
    assert "limit  zCDP(rho=1.0) up to delta = 1e-06" in repr(ledger)
    assert qs.Ledger(path, limit=qs.zCDP(1), delta=1e-6).delta == qs.Ledger(path).delta == 1e-6
    for wrong in (
        {"limit": qs.zCDP(1), "delta": 2e-6},
        {"delta": 1e-6},
        {"limit": qs.ApproxDP(1, 1e-6), "delta": 1e-6},
    ):
        with pytest.raises(BudgetError, match="delta: "):
            qs.Ledger(path, **wrong)
    plain = qs.Ledger(tmp_path / "y.ledger", limit=qs.zCDP(1))
    assert plain.delta == 0
    assert "delta" not in plain.verify().opening.to_json()  # digests of such ledgers are as before


def test_a_failure_after_the_entry_says_so(tmp_path):
    ledger = qs.Ledger(tmp_path / "x.ledger", limit=qs.ApproxDP(1, 1e-5))
    with pytest.raises(DataError, match="expected a column of strings") as failed:
        qs.discover(pa.table({"v": [[PRIVATE]]}), "v", BUDGET, ledger=ledger)
    assert failed.value.__notes__ == ["The ledger has recorded the cost of this measurement, as entry 1"]
    assert len(ledger.entries) == 1
    with pytest.raises(DataError, match="no file at"):
        qs.discover(str(tmp_path / "no.csv"), "v", BUDGET, ledger=ledger)
    assert len(ledger.entries) == 1  # refused before anything is charged


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"budget": 1.0}, BudgetError, "budget: expected a budget, got 1.0; write qs.discover"),
        (
            {"budget": qs.zCDP(1)},
            BudgetError,
            r"delta: expected a probability, because zCDP\(rho=1.0\) states",
        ),
        ({"delta": 1e-6}, BudgetError, "less than the delta = 1e-06 of the budget"),
        ({"delta": 0}, BudgetError, "delta: expected a number from"),
        ({"column": ""}, DataError, "column: expected the name of a column"),
        ({"column": "nowhere"}, DataError, "no column 'nowhere'"),
        ({"at_most": 2}, DataError, "at_most: expected None, because persons are not distinguished"),
        ({"at_most": 0, "person": "plane"}, DataError, "at_most: expected an integer from 1"),
        ({"person": "nowhere"}, DataError, "no column 'nowhere' that says to whom"),
        ({"noise": "gaussian"}, PrivacyError, "expected integer noise, got 'gaussian'"),
        ({"noise": "laplace"}, PrivacyError, "noise: expected one of"),
        ({"data": [1, 2]}, DataError, "data: expected the path"),
        (
            {"person": "plane", "budget": qs.ApproxDP(1, 1e-6, neighbours="replace_one")},
            PrivacyError,
            "person: with replace_one",
        ),
    ],
)
def test_what_is_refused(options, error, words):
    given = {"data": FLIGHTS, "column": "dest", "budget": BUDGET} | options
    with pytest.raises(error, match=words):
        qs.discover(given.pop("data"), given.pop("column"), given.pop("budget"), **given)


def test_replaced_records_cost_twice_as_much():
    one, other = (
        qs.discover(FLIGHTS, "dest", qs.zCDP(0.05, neighbours=kind), delta=1e-7)
        for kind in ("add_remove", "replace_one")
    )
    assert other.discovery.variance == pytest.approx(2 * float(one.discovery.variance))
    assert "replacing one record" in other.guarantee


def test_no_value_of_one_record_stays_anywhere(monkeypatch):
    found = qs.discover(FLIGHTS, "dest", BUDGET, seed=3)
    assert PRIVATE not in repr(vars(found))

    def failing(*_):
        raise DataError("data: failed")

    monkeypatch.setattr(discovering, "measure_values", failing)
    with pytest.raises(DataError, match="failed") as failed:
        qs.discover(FLIGHTS, "dest", BUDGET)
    ours = [
        f for f, _ in traceback.walk_tb(failed.value.__traceback__) if "querysmasher" in f.f_code.co_filename
    ]
    assert len(ours) > 2
    assert not any("values" in frame.f_locals for frame in ours)


def test_an_empty_table_has_no_values():
    assert qs.discover(FLIGHTS[:0], "dest", BUDGET).values == ()
    nothing = qs.discover(pa.table({"v": pa.nulls(3)}), "v", BUDGET)
    assert nothing.values == ()
    assert nothing.attribute().values == ("other",)


NUMBERS = pd.DataFrame(
    {
        "pay": np.random.default_rng(0).lognormal(10, 0.7, 20_000).round(2),
        "few": np.arange(20_000) % 5,
        "who": np.arange(20_000) // 4,
    }
)


def test_edges_of_equally_many_records():
    found = qs.discover(NUMBERS, "pay", qs.zCDP(0.1), bins=20)
    assert len(found) == 20
    assert (found.edges[0], found.edges[-1]) == (float("-inf"), float("inf"))
    assert all(float(f"{edge:.3g}") == edge for edge in found.edges[1:-1])  # of the public grid
    counts = found.attribute().indexes(NUMBERS["pay"].to_numpy())
    assert np.abs(np.bincount(counts, minlength=20) - 1000).max() < 200
    assert found.guarantee == found.release.guarantee
    assert repr(found).startswith("DiscoveredBins(Binned('pay', edges=[-inf, ")
    assert found.attribute(missing="missing").values[-1] == "missing"


def test_edges_on_a_stated_grid():
    pay = qs.Number("pay", 0, 100_000, step=500)
    found = qs.discover(NUMBERS, pay, qs.zCDP(0.1), bins=4, person="who")
    assert (found.edges[0], found.edges[-1]) == (0, 100_000)
    assert all(edge % 500 == 0 for edge in found.edges)
    truth = np.quantile(NUMBERS.groupby("who")["pay"].first(), [0.25, 0.5, 0.75])
    assert np.abs(np.array(found.edges[1:-1]) / truth - 1).max() < 0.15
    assert "all records of one person (a value of 'who')" in found.guarantee
    ages = qs.discover(NUMBERS, qs.Ordinal("few", range(10)), qs.zCDP(1), bins=2)
    assert ages.edges in ((0, 2, 9), (0, 3, 9))


def test_an_edge_never_leaves_a_bin_nearly_empty():
    """Five numbers only, and forty bins asked for: five bins, each with one number."""
    found = qs.discover(NUMBERS, "few", qs.zCDP(0.5), bins=40)
    held = np.bincount(found.attribute().indexes(np.arange(5)), minlength=len(found))
    assert held.tolist() == [1] * 5


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"bins": 1}, DataError, "bins: expected an integer from 2 to 1,000, got 1"),
        ({"bins": 2.5}, DataError, "bins: expected an integer"),
        ({"bins": 4, "delta": 1e-6}, DataError, "delta: expected None together with bins"),
        ({"bins": 4, "at_most": 2}, DataError, "at_most: expected None together with bins"),
        (
            {"bins": 4, "column": qs.Categorical("pay", ["a"])},
            DataError,
            "expected a number, such as qs.Number",
        ),
        ({"bins": 4, "column": qs.Ordinal("pay", ["a", "b"])}, DataError, "expected a number, such as"),
        ({"bins": 4, "column": 7}, DataError, "column: expected a name or an attribute, got 7"),
        ({"column": qs.Number("pay", 0, 9)}, DataError, "column: expected the name of a column"),
    ],
)
def test_what_is_refused_of_bins(options, error, words):
    given = {"column": "pay"} | options
    with pytest.raises(error, match=words):
        qs.discover(NUMBERS, given.pop("column"), qs.zCDP(1), **given)


def test_edges_are_charged_as_an_ordinary_measurement(tmp_path):
    ledger = qs.Ledger(tmp_path / "x.ledger", limit=qs.zCDP(1))  # no δ is needed
    found = qs.discover(NUMBERS, "few", qs.zCDP(0.5), bins=2, ledger=ledger)
    assert ledger.entries == (found.release.entry,)
    assert ledger.total.delta == 0
    assert float(ledger.total.rho) <= 0.5
