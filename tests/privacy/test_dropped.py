"""How many records were left out: every sentence of the proof, by brute force over neighbours."""

import dataclasses
import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.data.sources import open_table
from querysmasher.errors import BudgetError, DataError, FileError, PlanError, PrivacyError
from querysmasher.guarantees import LeftOut
from querysmasher.privacy.accounting import BINS, SHARE, Dropped, ends, privacy_cost, rest
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.measurement import measure_dropped
from querysmasher.privacy.noise import noise_source
from querysmasher.privacy.phases import Phases
from querysmasher.privacy.unit import Unit
from querysmasher.release.provenance import spent
from tests.builders import ALARM, UNIFORM
from tests.privacy.search import held, shown
from tests.release.tables import TableCounter, Telltale, released, squared_change, whole

KEY = bytes(range(32))
SCHEMA = qs.Schema.of(a=2)
BUDGET = qs.zCDP(0.5, records_per_person=2)


def table_of(people):
    """Person i has people[i] = (valid, unknown) records; the last may be nameless."""
    rows = [(f"p{i}", j % 2) for i, (valid, _) in enumerate(people) for j in range(valid)]
    rows += [(f"p{i}", 9) for i, (_, unknown) in enumerate(people) for _ in range(unknown)]
    return pd.DataFrame(rows, columns=["id", "a"]).astype({"a": "int64"})


def opened(data, most):
    bound = None if most is None else Bound("id", most, KEY)
    return open_table(SCHEMA, data, SCHEMA.names, unknown="drop", bound=bound)


def binned(lacking, most):
    """The bins as the documentation has them: 1 to k, k+1 to 3k, 3k+1 to 7k, …, more than 63k."""
    bins = [0] * 7
    for n in lacking:
        if n:
            bins[next((i for i in range(6) if n <= (2 ** (i + 1) - 1) * most), 6)] += 1
    return bins


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_all_neighbours_that_lack_a_person(most):
    """Every table of two persons with up to 5 valid and 2 unknown records each, and every neighbour of it."""
    kinds = list(itertools.product(range(6), range(3)))
    seen = {}
    for people in itertools.product(kinds, kinds):
        counter = opened(table_of(people), most)
        left = [valid + unknown - min(valid, most) for valid, unknown in people]
        assert counter.left_out().tolist() == binned(left, most)
        assert counter.left_out().dtype == np.int64
        seen[people] = counter.left_out(), next(iter(counter.marginals([("a",)])))
    asked = Dropped(Unit(records_per_person=most), True, Fraction(1))
    worst = 0
    for (first, second), (here, kept) in seen.items():
        for other in (((0, 0), second), (first, (0, 0))):
            there, less = seen[other]
            change = np.abs(here - there)
            assert change.sum() <= 1  # one person, one bin
            assert (change**2).sum() <= asked.cost * asked.variance
            assert np.abs(kept - less).sum() <= most  # what is counted changes as without the bins
            worst = max(worst, int((change**2).sum()))
    assert worst == 1


def test_all_neighbours_without_persons():
    """Every table of up to 4 valid and 4 unknown records: up to r records change the number by up to r."""
    sizes = list(itertools.product(range(5), range(5)))
    seen = {size: opened(table_of([size]), None).left_out() for size in sizes}
    assert {size: left.tolist() for size, left in seen.items()} == {size: [size[1]] for size in sizes}
    for r in (1, 2, 3):
        cost = Dropped(Unit(records_per_person=r), False, Fraction(7)).cost
        near = [
            (one, two)
            for one, two in itertools.product(sizes, sizes)
            if one[0] >= two[0] and one[1] >= two[1] and sum(one) - sum(two) <= r
        ]
        changes = [Fraction(int(seen[one][0] - seen[two][0]) ** 2, 7) for one, two in near]
        assert max(changes) == cost


def test_all_that_is_released_together_changes_by_no_more_than_both_costs():
    plan = whole(qs.plan(qs.marginals(SCHEMA, [0, 1]), BUDGET, **UNIFORM))
    asked = Dropped(BUDGET.unit, True, Fraction(3))

    def everything(people):
        counter = opened(table_of(people), 2)
        counts = next(iter(counter.marginals([("a",)])))
        return released(plan, counts) + [(int(n), asked.variance) for n in counter.left_out()]

    people = [(1, 0), (2, 3), (9, 0), (40, 7), (0, 5), (300, 0)]
    here = everything(people)
    without = [everything([*people[:i], (0, 0), *people[i + 1 :]]) for i in range(len(people))]
    changes = [squared_change(here, there) for there in without]
    assert privacy_cost(plan) < max(changes) <= privacy_cost(plan) + asked.cost


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=6),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_the_bins_depend_neither_on_order_nor_on_the_key(people, most, chance):
    data = table_of(people)
    places = list(range(len(data)))
    chance.shuffle(places)
    bound = Bound("id", most, KEY[::-1])
    counter = open_table(SCHEMA, data.iloc[places], SCHEMA.names, unknown="drop", bound=bound)
    lacking = [valid + unknown - min(valid, most) for valid, unknown in people]
    assert counter.left_out().tolist() == binned(lacking, most)


def test_records_without_a_person_are_in_no_bin():
    """Any number of nameless records changes nothing: nobody can be bounded by them."""
    data = table_of([(5, 0), (1, 1)])
    nameless = pd.DataFrame({"id": [None] * 50, "a": [0, 9] * 25})
    with_them = opened(pd.concat([data, nameless]), 2)
    assert with_them.left_out().tolist() == opened(data, 2).left_out().tolist() == [1, 1, 0, 0, 0, 0, 0]
    assert with_them.records() == 3


def test_the_bins_double():
    assert ends(10) == (10, 30, 70, 150, 310, 630)
    assert len(ends(1)) == BINS - 1
    left = np.array([0, 1, 10, 11, 30, 31, 630, 631, 10**12])
    assert Bound("x", 10, KEY).binned(left).tolist() == [2, 2, 1, 0, 0, 1, 2]
    for most in (1, 3, 10**9):
        sizes = [most * 2**i for i in range(BINS)]  # a person with more than k 2^i records is in bin i
        assert Bound("x", most, KEY).binned(np.array(sizes) + 1 - most).tolist() == [1] * BINS


def test_the_cost_of_what_is_asked():
    unit = Unit(records_per_person=5)
    for persons, change in ((True, 1), (False, 25)):
        asked = Dropped.at_cost(unit, persons, 0.003)
        assert asked.cost <= Fraction(0.003)
        assert asked.cost * asked.variance == change
        assert float(asked.cost) == pytest.approx(0.003, rel=0.003)
    assert Dropped.at_cost(unit, True, 1e9).variance == 1
    assert rest(1.0, None) == 1.0
    for cost in (0.1, 1 / 3, 1e-9):
        asked = Dropped.at_cost(unit, False, cost)
        assert 0.1 - 2e-17 - float(asked.cost) <= rest(0.1, asked) + 1e-16
        assert Fraction(rest(0.7, asked)) + asked.cost <= Fraction(0.7)


@pytest.mark.parametrize(
    "wrong",
    [
        (Unit(), 1, Fraction(1)),
        (Unit(), True, 1.0),
        (Unit(), True, Fraction(1, 2)),
        (Unit(), True, Fraction(2**101)),
        (Unit("replace_one"), True, Fraction(1)),
        ("add_remove", True, Fraction(1)),
    ],
)
def test_odd_questions_are_refused(wrong):
    with pytest.raises(PrivacyError, match="dropped"):
        Dropped(*wrong)


def test_a_budget_that_measures_nothing_is_refused():
    for cost in (0.0, 1e-60, float("nan")):
        with pytest.raises(BudgetError, match="report_dropped: expected False"):
            Dropped.at_cost(Unit(records_per_person=10**9), False, cost)


class Lacking(TableCounter):
    """A table that says what was left out of it."""

    def __init__(self, left):
        super().__init__(SCHEMA, np.zeros(2))
        self.left = left

    def left_out(self):
        return self.left


def test_what_costs_too_much_is_refused_before_counting():
    class Untouched:
        def left_out(self):
            raise AssertionError

    asked = Dropped(Unit(), True, Fraction(1))
    for budget in (qs.PrivacyCost(0.999), qs.PrivacyCost(5, records_per_person=2)):
        with pytest.raises(PrivacyError, match="dropped: it exceeds the budget, or is for another unit"):
            measure_dropped(asked, budget, Untouched(), Telltale(0))
    phases = Phases(SCHEMA, qs.PrivacyCost(1.5), Lacking(np.zeros(7, np.int64)), Telltale(0), 100)
    phases.dropped(asked)
    assert phases.spent == 1
    with pytest.raises(PrivacyError, match=r"phase: it costs 1, and 0\.5 of 1\.5 is left"):
        phases.dropped(asked)


@pytest.mark.parametrize("left", [np.zeros(1, np.int64), np.zeros(7), np.full(7, -1), [0] * 7])
def test_a_counter_that_counts_something_else_is_refused(left):
    asked = Dropped(Unit(), True, Fraction(1))
    with pytest.raises(DataError, match="inconsistent"):
        measure_dropped(asked, qs.PrivacyCost(1), Lacking(left), Telltale(0))


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["rounded", "discrete"])
def test_the_noisy_numbers_are_unbiased_and_have_their_standard_error(noise):
    """Means and variances over 3,000 seeds, 7 numbers each: z below 5.5, a false alarm in 10^7."""
    asked, budget = Dropped(Unit(), True, Fraction(30)), qs.PrivacyCost(1)
    exact = np.array([1000, 300, 70, 12, 3, 0, 1])
    runs = 3000
    drawn = np.array(
        [measure_dropped(asked, budget, Lacking(exact), noise_source(noise, seed)) for seed in range(runs)]
    )
    out = LeftOut(asked, drawn[0], noise_source(noise, 0).distribution)
    errors = (drawn - exact) / out.std
    assert np.abs(errors.mean(axis=0)).max() * np.sqrt(runs) < 5.5
    assert abs((errors**2).mean() - 1) * np.sqrt(7 * runs / 2) < 5.5
    assert ALARM == 1e-7


@pytest.mark.slow
def test_bounds_on_the_number_of_records_hold_as_often_as_they_say():
    """Of 2,000 intervals at most 5% miss, and 5.5 standard deviations more: a false alarm below 10^-7."""
    generator = np.random.default_rng(1)
    most, runs, budget = 3, 2000, qs.PrivacyCost(1, records_per_person=3)
    lacking = generator.integers(1, 180, 400)
    exact = Bound("x", most, KEY).binned(lacking)
    asked = Dropped(Unit(records_per_person=most), True, Fraction(900))
    missed = 0
    for seed in range(runs):
        noisy = measure_dropped(asked, budget, Lacking(exact), noise_source("rounded", seed))
        low, high = LeftOut(asked, noisy, noise_source("rounded", 0).distribution).records
        missed += not (low <= lacking.sum() and (high is None or lacking.sum() <= high))
    assert missed <= runs * 0.05 + 5.5 * np.sqrt(runs * 0.05 * 0.95)


def planned(budget=BUDGET):
    return qs.plan(qs.marginals(SCHEMA, [0, 1]), budget, **UNIFORM)


PEOPLE = [(7, 0)] * 60 + [(2, 1)] * 30 + [(1, 0)] * 40


@pytest.mark.parametrize(
    "options", [{"person": "id"}, {"unknown": "drop"}, {"person": "id", "unknown": "drop"}]
)
@pytest.mark.parametrize("noise", ["rounded", "discrete"])
def test_one_percent_of_the_budget_and_no_more(options, noise, tmp_path):
    data = table_of(PEOPLE if "unknown" in options else [(valid, 0) for valid, _ in PEOPLE])
    release = qs.measure(planned(), data, report_dropped=True, noise=noise, **options)
    allowed = Fraction(release.noise.distribution.allowed_cost(BUDGET))
    asked = release.counted.dropped
    assert Fraction(99, 10000) * allowed < asked.cost <= Fraction(SHARE) * allowed
    assert privacy_cost(release.plan) <= allowed - asked.cost
    assert float(spent(release.plan, None, asked) / allowed) == pytest.approx(1, abs=1e-3)
    assert spent(release.plan, None, asked) <= allowed
    release.save(tmp_path / "x.qs")
    loaded = qs.Release.load(tmp_path / "x.qs")
    assert loaded.left_out.values.tolist() == release.left_out.values.tolist()
    assert loaded.left_out.words() == release.left_out.words()
    assert loaded.guarantee == release.guarantee
    value, std = release.left_out.total
    expected = 30 if "person" not in options else 90 if "unknown" in options else 60
    assert abs(value - expected) < 6 * std


def test_a_ledger_charges_the_whole_budget(tmp_path):
    ledger = qs.Ledger(tmp_path / "x", limit=qs.zCDP(2, records_per_person=2))
    data = table_of([(5, 0)] * 9)
    release = qs.measure(planned(), data, person="id", report_dropped=True, ledger=ledger)
    assert ledger.entries == (release.entry,)
    assert release.entry.cost == Fraction(BUDGET.privacy_cost)
    release.save(tmp_path / "x.qs")
    assert qs.Release.load(tmp_path / "x.qs").entry == release.entry
    assert qs.verify(tmp_path / "x.qs", ledger).ok
    for left_out in (None, LeftOut(Dropped(BUDGET.unit, True, Fraction(10**6)), *_parts(release))):
        other = dataclasses.replace(release, counted=dataclasses.replace(release.counted, left_out=left_out))
        other.save(tmp_path / "y.qs")
        with pytest.raises(FileError):  # the entry is about another measurement
            qs.Release.load(tmp_path / "y.qs")


def _parts(release):
    return release.left_out.values, release.left_out.noise


def test_a_file_with_too_little_noise_is_refused(tmp_path):
    release = qs.measure(planned(), table_of([(5, 0)] * 9), person="id", report_dropped=True)
    least = LeftOut(Dropped(BUDGET.unit, True, Fraction(1)), *_parts(release))
    forged = dataclasses.replace(release, counted=dataclasses.replace(release.counted, left_out=least))
    forged.save(tmp_path / "x.qs")
    with pytest.raises(FileError):
        qs.Release.load(tmp_path / "x.qs")
    assert not qs.verify(tmp_path / "x.qs").ok
    nothing = dataclasses.replace(release.counted, person=None, unknown="refuse")
    dataclasses.replace(release, counted=nothing).save(tmp_path / "x.qs")
    with pytest.raises(FileError):
        qs.Release.load(tmp_path / "x.qs")


def test_it_is_refused_where_nothing_is_left_out(refuses):
    with refuses(DataError, ValueError, "report_dropped"):
        qs.measure(planned(), object(), report_dropped=True)
    with refuses(DataError, ValueError, "report_dropped"):
        qs.explore(qs.marginals(SCHEMA, 1), object(), BUDGET, report_dropped=True)
    for wrong in (1, "yes", None):
        with refuses(DataError, ValueError, "report_dropped"):
            qs.measure(planned(), object(), unknown="drop", report_dropped=wrong)
    aimed = qs.plan(qs.marginals(SCHEMA, 1).within(100), BUDGET)
    with refuses(PlanError, ValueError, "report_dropped"):
        qs.measure(aimed, object(), unknown="drop", report_dropped=True)


@pytest.mark.slow
@pytest.mark.parametrize("error_share", [0.0, 0.1])
def test_explored_sized_and_compared_releases_measure_it_too(error_share, tmp_path):
    schema = qs.Schema.of(a=3, b=4)
    generator = np.random.default_rng(0)
    names = np.repeat(np.arange(300), generator.integers(1, 9, 300))
    data = pd.DataFrame({"id": names, "a": generator.integers(0, 4, len(names)), "b": names % 4})
    workload = qs.marginals(schema, [1, 2])
    options = {"person": "id", "unknown": "drop", "report_dropped": True, "error_share": error_share}
    ledger = qs.Ledger(tmp_path / "x", limit=qs.zCDP(100, records_per_person=2))
    sized = qs.plan(workload, BUDGET, purpose="estimate")
    assert sized.sizes_first
    releases = [
        qs.explore(workload, data, BUDGET, ledger=ledger, **options),
        qs.measure(sized, data, ledger=ledger, **options),
        qs.measure(qs.plan(workload, BUDGET), data, ledger=ledger, **options),
    ]
    kept = data[data.a < 3]
    counted = kept.groupby("id").size().reindex(range(300), fill_value=0).clip(upper=2)
    lacking = data.groupby("id").size() - counted
    allowed = Fraction(BUDGET.privacy_cost)
    for number, release in enumerate(releases):
        value, std = release.left_out.total
        assert abs(value - (lacking > 0).sum()) < 6 * std
        cost = spent(release.plan, release.exploration, release.counted.dropped)
        assert Fraction(99, 100) * allowed < cost <= allowed
        assert "Records are left out" in release.guarantee
        assert "Records are left out" in release.estimate().guarantee
        release.save(tmp_path / f"{number}.qs")
        assert qs.verify(tmp_path / f"{number}.qs", ledger).ok
        release.estimate().save(tmp_path / "x.estimate")
        assert qs.Estimate.load(tmp_path / "x.estimate").guarantee == release.guarantee


@pytest.mark.slow
def test_nothing_exact_gets_out(tmp_path, capfd):
    """7,919 persons lack records, 3,001 of them many: seeded noise never shows these numbers by chance."""
    people = [(3, 0)] * 4918 + [(0, 9)] * 3001
    secrets = {4918, 3001, 7919, 3001 * 9, 4918 * 2}
    data = table_of(people)
    counter = opened(data, 1)
    assert {4918, 3001} <= set(counter.left_out().tolist())
    assert not shown(secrets, repr(counter))
    for most, options in ((1, {"person": "id"}), (10**6, {})):
        plan = planned(qs.PrivacyCost(1e-4, records_per_person=most))
        release = qs.measure(plan, data, seed=3, unknown="drop", report_dropped=True, **options)
        assert not held(secrets, release.left_out.values)
        release.save(tmp_path / "x.qs")
        release.report(tmp_path / "x.html")
        release.write(release.workload, tmp_path / "x.json")
        said = [
            repr(release),
            release._repr_html_(),
            release.left_out.words(),
            str(release.counted.to_json()),
        ]
        said += [(tmp_path / name).read_text().split("<script", 1)[0] for name in ("x.html", "x.json")]
        assert not shown(secrets, " ".join(said))
        assert not held(secrets, qs.Release.load(tmp_path / "x.qs").left_out.values)
    assert capfd.readouterr() == ("", "")


class Broken:
    """Noise that fails once the exact numbers are known."""

    distribution = noise_source("rounded", 0).distribution
    description = "broken"

    def draw(self, variance, size):
        msg = "no entropy"
        raise RuntimeError(msg)


def test_noise_that_fails_leaves_no_exact_number(monkeypatch):
    monkeypatch.setattr("querysmasher.measuring.noise_source", lambda *_: Broken())
    with pytest.raises(RuntimeError) as caught:
        qs.measure(planned(), table_of([(9, 0)] * 4567), person="id", report_dropped=True)
    trace = caught.value.__traceback__
    while trace is not None:
        arrays = [v for v in trace.tb_frame.f_locals.values() if isinstance(v, np.ndarray)]
        if trace.tb_frame.f_code.co_filename.startswith(qs.__path__[0]):
            assert not any(held({4567}, array) for array in arrays)
        trace = trace.tb_next


def test_leaving_it_out_changes_nothing_else():
    """Without report_dropped, seeded releases are those of a table from which nobody was left out."""
    data = table_of([(5, 0)] * 20)
    counts = Counter()
    for seed in range(3):
        one = qs.measure(planned(), data, person="id", seed=seed)
        assert one.left_out is None
        counts[one.guarantee] += 1
    assert len(counts) == 3  # they name their seed
