"""`measure`: bad arguments are refused before the data are touched; seeds; what the release then says."""

from dataclasses import replace
from inspect import Parameter, isclass, signature

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher import measuring
from querysmasher.errors import BudgetError, DataError, FileError, PlanError, PrivacyError
from querysmasher.privacy import noise as noise_module
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.entries import plan_digest
from querysmasher.release import reconstruction
from querysmasher.release.reconstruction import FileStore, MemoryStore
from querysmasher.spec import Spec
from tests.builders import UNIFORM
from tests.release.tables import Untouchable, frame, random_counts

SCHEMA = qs.Schema.of(a=4, b=3)
WORKLOAD = qs.all_kway(SCHEMA, [1, 2], "prefix")


@pytest.fixture(scope="module")
def plan():
    return qs.plan(WORKLOAD, qs.PrivacyCost(1.0), **UNIFORM)


@pytest.fixture(scope="module")
def table():
    return frame(SCHEMA, random_counts(SCHEMA, 1))


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"plan": None}, PlanError, "plan"),
        ({"plan": WORKLOAD}, PlanError, "Workload"),
        ({"plan": "x.plan"}, PlanError, "'x.plan'"),
        ({"max_records": 0}, DataError, "max_records"),
        ({"max_records": -5}, DataError, "max_records"),
        ({"max_records": 2**40 + 1}, DataError, "max_records"),
        ({"max_records": 1e8}, DataError, "max_records"),
        ({"max_records": True}, DataError, "max_records"),
        ({"max_records": "many"}, DataError, "max_records"),
        ({"max_records": None}, DataError, "max_records"),
        ({"noise": "laplace"}, PrivacyError, "noise"),
        ({"noise": ""}, PrivacyError, "noise"),
        ({"noise": None}, PrivacyError, "noise"),
        ({"noise": "Rounded"}, PrivacyError, "noise"),
        ({"seed": -1}, PrivacyError, "seed"),
        ({"seed": 1.0}, PrivacyError, "seed"),
        ({"seed": True}, PrivacyError, "seed"),
        ({"seed": "1"}, PrivacyError, "seed"),
        ({"seed": 1, "noise": "opendp"}, PrivacyError, "seed"),
        ({"budget": qs.PrivacyCost(3.5)}, PrivacyError, "budget"),
        ({"budget": 1.0}, PrivacyError, "budget"),
        ({"unknown": "ignore"}, DataError, "unknown"),
        ({"unknown": None}, DataError, "unknown"),
        ({"unknown": True}, DataError, "unknown"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_before_the_data_are_touched(plan, arguments, error, word, refuses):
    data = Untouchable()
    with refuses(error, ValueError, word):
        qs.measure(**{"plan": plan, "data": data, **arguments})
    assert not data.touched


def test_the_budget_that_is_meant_may_be_said(plan, table):
    assert qs.measure(plan, table, seed=0, budget=plan.budget).plan.budget == plan.budget


def test_a_budget_that_the_noise_cannot_meet(refuses):
    plan = qs.plan(WORKLOAD, qs.GaussianDP(1.0), **UNIFORM)
    for noise in ("discrete", "opendp"):
        data = Untouchable()
        with refuses(BudgetError, ValueError, "zCDP"):
            qs.measure(plan, data, noise=noise)
        assert not data.touched


def test_too_many_records_for_exact_answers_is_said_before_the_data_are_touched(refuses):
    schema = qs.Schema.of({f"x{i}": 4 for i in range(7)})
    plan = qs.plan(qs.queries(schema, dict.fromkeys(schema.names, "prefix")), qs.PrivacyCost(1.0), **UNIFORM)
    data = Untouchable()
    with refuses(PlanError, ValueError, "max_records"):
        qs.measure(plan, data, max_records=2**40)
    assert not data.touched


@pytest.mark.parametrize("noise", ["rounded", "discrete", "gaussian"])
def test_the_same_seed_gives_the_same_release(plan, table, noise):
    one, two, three = (qs.measure(plan, table, seed=seed, noise=noise) for seed in (5, 5, 6))
    assert one.answer().values.tobytes() == two.answer().values.tobytes()
    assert one.answer().values.tobytes() != three.answer().values.tobytes()
    again = qs.measure(plan, table, seed=np.int64(5), noise=noise)
    assert again.answer().values.tobytes() == one.answer().values.tobytes()


@pytest.mark.parametrize("noise", DISTRIBUTIONS)
def test_no_seed_gives_a_new_release_every_time(plan, table, noise):
    """Twelve numbers that all agree by chance: less than one time in 10^6."""
    seen = {qs.measure(plan, table, noise=noise).answer().values.tobytes() for _ in range(4)}
    assert len(seen) == 4


@pytest.mark.parametrize("noise", DISTRIBUTIONS)
def test_the_release_says_what_it_is(plan, table, noise):
    unseeded = qs.measure(plan, table, noise=noise)
    assert unseeded.noise.name == noise
    assert not unseeded.noise.seeded
    if noise == "gaussian":
        assert "NONE" in unseeded.guarantee
        assert "simulation" in unseeded.guarantee
        assert not unseeded.noise.is_private
    else:
        assert unseeded.noise.is_private
        assert unseeded.guarantee.startswith(plan.budget.describe())
        assert "simulation" not in unseeded.guarantee
    if noise != "opendp":
        for seed in (0, 7):  # 0 is a seed, too
            seeded = qs.measure(plan, table, seed=seed, noise=noise)
            assert seeded.noise.seeded
            assert not seeded.noise.is_private
            assert "NONE" in seeded.guarantee
            assert "simulation" in seeded.guarantee


def test_only_plan_and_data_are_positional(plan):
    """A cap on the records that were taken for a seed would make a release that protects nobody."""
    data = Untouchable()
    with pytest.raises(TypeError, match="measure: too many positional arguments"):
        qs.measure(plan, data, 1_000_000)
    assert not data.touched


def test_every_seed_of_the_public_interface_is_keyword_only():
    found = 0
    for name in (*qs.__all__, "RoundedGaussian", "DiscreteGaussian", "FloatGaussian", "Spec"):
        public = getattr(qs, name, None) or getattr(noise_module, name, None) or Spec
        members = (
            [getattr(public, m) for m in dir(public) if not m.startswith("_")] if isclass(public) else []
        )
        for member in (public, *members):
            if callable(member) and not isinstance(member, type(type.__call__)):
                try:
                    parameters = signature(member).parameters
                except ValueError:
                    continue  # a builtin
                if "seed" in parameters:
                    found += 1
                    assert parameters["seed"].kind is Parameter.KEYWORD_ONLY, (name, member)
    assert found >= 6


def test_tables_of_any_kind_give_the_same_release(plan, table, tmp_path):
    table.to_csv(tmp_path / "x.csv", index=False)
    table.to_parquet(tmp_path / "x.parquet")
    expected = qs.measure(plan, table, seed=2).answer().values
    shuffled = table.sample(frac=1, random_state=1)[["b", "a"]].assign(other=1)
    for data in (
        pl.from_pandas(table),
        pl.from_pandas(table).lazy(),
        pa.Table.from_pandas(table),
        shuffled,
        tmp_path / "x.csv",
        str(tmp_path / "x.parquet"),
    ):
        assert qs.measure(plan, data, seed=2).answer().values.tobytes() == expected.tobytes()


def test_only_attributes_that_are_measured_are_read(refuses):
    plan = qs.plan(qs.marginals(SCHEMA, 0) + qs.queries(SCHEMA, b="identity"), qs.PrivacyCost(1.0), **UNIFORM)
    table = pd.DataFrame({"b": [0, 1, 2], "a": ["not", "a", "number"]})
    assert qs.measure(plan, table, seed=1).answer().values.shape == (4,)
    assert qs.measure(plan, table[["b"]], seed=1).answer().values.shape == (4,)
    with refuses(DataError, ValueError, "'b'"):
        qs.measure(plan, table[["a"]], seed=1)


def test_the_plan_is_not_changed_by_measuring(plan, table):
    before = [m.variance for m in plan.measured]
    matrices = [s.strategy.matrix.copy() for s in plan.solutions]
    qs.measure(plan, table)
    assert [m.variance for m in plan.measured] == before
    for solution, matrix in zip(plan.solutions, matrices, strict=True):
        np.testing.assert_array_equal(solution.strategy.matrix, matrix)


def test_the_table_is_read_once_and_the_total_only_where_it_is_public(table):
    computed = []
    lazy = pl.from_pandas(table).lazy().map_batches(lambda part: computed.append(1) or part)
    for neighbours, total in (("add_remove", None), ("replace_one", len(table))):
        plan = qs.plan(WORKLOAD, qs.PrivacyCost(1.0, neighbours=neighbours), **UNIFORM)
        computed.clear()
        assert qs.measure(plan, lazy, seed=1).public_total == total
        assert len(computed) == 1


def test_the_store_is_chosen_for_all_numbers_released(table, monkeypatch):
    """A filter asks for a number per cell, more than are independent."""
    plan = qs.plan(WORKLOAD, qs.PrivacyCost(1.0), solver="fourier")
    released = qs.measure(plan, table, seed=1).store
    size = 8 * sum(released[i].size for i in range(len(plan.measured)))
    for spare, kind in ((0, MemoryStore), (-1, FileStore)):
        monkeypatch.setattr(reconstruction, "MEMORY_BYTES", size + spare)
        store = qs.measure(plan, table, seed=1).store
        assert isinstance(store, kind)
        assert all(np.array_equal(store[i], released[i]) for i in range(len(plan.measured)))


@pytest.fixture
def ledger(tmp_path):
    return qs.Ledger(tmp_path / "people.ledger", limit=qs.zCDP(1))


def test_a_ledger_records_the_exact_cost_and_the_release_says_so(plan, table, ledger):
    release = qs.measure(plan, table, ledger=ledger)
    (entry,) = ledger.entries
    assert release.entry == entry
    assert entry.cost == privacy_cost(release.plan)
    assert entry.plan == plan_digest(release.plan)
    for said in (repr(release), release._repr_html_()):
        assert f"as entry 1, with digest {entry.digest}" in said
    again = qs.measure(plan, table, ledger=ledger)  # a cost of 1 each, and the limit is 2
    assert again.entry.number == 2
    with pytest.raises(PrivacyError, match=r"leaves rho = 0 of 1; this measurement needs rho = 0\.5"):
        qs.measure(plan, table, ledger=ledger)


def test_without_a_ledger_the_release_says_that_it_was_not_recorded(plan, table, tmp_path):
    release = qs.measure(plan, table)
    assert release.entry is None
    for said in (repr(release), release._repr_html_()):
        assert "Not recorded in a ledger" in said
    release.save(tmp_path / "x.qs")
    assert "Not recorded in a ledger" in repr(qs.Release.load(tmp_path / "x.qs"))


def test_what_the_ledger_refuses_is_refused_before_the_data_are_touched(plan, ledger):
    data = Untouchable()
    other = qs.plan(WORKLOAD, qs.PrivacyCost(1.0, records_per_person=2), **UNIFORM)
    dear = qs.plan(WORKLOAD, qs.PrivacyCost(2.5), **UNIFORM)
    for given, arguments, word in [
        (plan, {"ledger": "people.ledger"}, "expected a Ledger"),
        (plan, {"ledger": ledger, "seed": 1}, "simulation"),
        (plan, {"ledger": ledger, "noise": "gaussian"}, "simulation"),
        (other, {"ledger": ledger}, "cannot be added"),
        (dear, {"ledger": ledger}, "leaves rho = 1 of 1: one more release may have epsilon = 7.286"),
    ]:
        with pytest.raises(PrivacyError, match=word):
            qs.measure(given, data, **arguments)
    assert not data.touched
    with pytest.raises(DataError, match="unknown"):
        qs.measure(plan, data, ledger=ledger, unknown="ignore")
    for path in ("none.csv", qs.CSV("none.csv"), "none.txt"):
        with pytest.raises(DataError, match="none"):
            qs.measure(plan, path, ledger=ledger)
    assert ledger.entries == ()


def test_the_entry_is_there_when_the_table_is_opened_and_stays_if_it_is_refused(plan, ledger, monkeypatch):
    seen = []
    opening = measuring.open_table

    def looking(*arguments):
        seen.append(len(ledger.entries))
        return opening(*arguments)

    monkeypatch.setattr(measuring, "open_table", looking)
    with pytest.raises(DataError, match="no column") as caught:
        qs.measure(plan, pa.table({"a": [0]}), ledger=ledger)
    assert seen == [1]
    assert len(ledger.entries) == 1
    assert caught.value.__notes__ == ["The ledger has recorded the cost of this measurement, as entry 1"]


def test_the_entry_is_in_the_file_and_must_be_about_this_release(plan, table, ledger, tmp_path):
    release = qs.measure(plan, table, ledger=ledger)
    release.save(tmp_path / "x.qs")
    assert qs.Release.load(tmp_path / "x.qs").entry == release.entry
    for change in ({"cost": release.entry.cost / 2}, {"plan": "0" * 64}, {"noise": "discrete"}):
        foreign = replace(release, entry=replace(release.entry, **change))
        foreign.save(tmp_path / "y.qs")
        with pytest.raises(FileError, match="about another measurement"):
            qs.Release.load(tmp_path / "y.qs")
