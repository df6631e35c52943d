"""Releases: what is rebuilt from what was measured, exactly where there is no noise, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import querysmasher as qs
from querysmasher.errors import (
    FileError,
    OutsideMeasuredSpaceError,
    PredicateError,
    SchemaError,
    TooLargeError,
    UnknownAttributeError,
)
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.measurement import measure_table
from querysmasher.privacy.noise import noise_source
from querysmasher.release import reconstruction
from querysmasher.release import reconstruction as covariance_module
from querysmasher.release import release as release_module
from querysmasher.release.reconstruction import MemoryStore
from tests.builders import ALARM, BEST, UNIFORM
from tests.estimate.tables import counted, people
from tests.estimate.tables import frame as frame_of
from tests.reference import query_rows
from tests.release.tables import (
    CLASSES,
    TableCounter,
    Telltale,
    frame,
    marginal,
    random_counts,
    simulate,
    whole,
)
from tests.strategies import workloads


def noiseless(plan, counts, max_records=10**8):
    """A release without noise: what comes out of it must be the truth."""
    return simulate(plan, counts, 0, integers=whole(plan, max_records=max_records), source=Telltale(0))


def truth(workload, counts):
    return query_rows(workload)[0] @ counts.ravel()


def check_truth(release, workload, counts):
    scale = np.abs(query_rows(workload)[0]).max() * max(1, counts.sum())
    np.testing.assert_allclose(release.answer(workload).values, truth(workload, counts), atol=1e-8 * scale)


# --- without noise -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_without_noise_every_answer_is_the_truth(name, neighbours):
    workload, options = CLASSES[name]
    plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours=neighbours), **options)
    counts = random_counts(workload.schema, seed=1, records=90_000_000)  # where a bias of rounding would show
    check_truth(noiseless(plan, counts), workload, counts)


@settings(max_examples=40)
@given(workloads(), st.sampled_from(["optimal", "structured"]), st.integers(0, 10**6))
def test_any_workload_without_noise(workload, solver, seed):
    assume(np.abs(query_rows(workload)[0]).max() > 0)
    plan = qs.plan(workload, qs.PrivacyCost(1.0), solver=solver, **UNIFORM)
    counts = random_counts(workload.schema, seed, records=10_000)
    check_truth(noiseless(plan, counts, max_records=10_000), workload, counts)


@pytest.mark.slow
@pytest.mark.parametrize("options", [UNIFORM, BEST, {"solver": "structured", **BEST}], ids=str)
def test_queries_asked_later_without_noise(options):
    schema = qs.Schema.of(b=4, a=5, c=3)
    plan = qs.plan(
        qs.all_kway(schema, [1, 2], "prefix") + qs.marginals(schema, 2), qs.PrivacyCost(1.0), **options
    )
    counts = random_counts(schema, seed=2, records=10**6)
    release = noiseless(plan, counts)
    check_truth(release, qs.all_kway(schema, [0, 1, 2], "circular"), counts)
    check_truth(release, qs.affine(schema, "c", "b") + qs.abs_difference(schema, "b", "a"), counts)
    check_truth(release, qs.where(schema, "a > 1 or c == 2"), counts)
    check_truth(release, qs.linear(schema, ("c", "a"), np.linspace(-3, 9, 30).reshape(2, 15)), counts)
    for names in [(), ("a",), ("c", "a"), ("a", "c"), ("b", "c")]:
        np.testing.assert_allclose(release.marginal(*names), marginal(schema, counts, names), atol=1e-3)


@pytest.mark.parametrize("records", [0, 1])
def test_tables_of_no_record_and_of_one(records):
    schema = qs.Schema.of(a=3, b=1, c=2)
    counts = np.zeros(schema.sizes, dtype=np.int64)
    counts[2, 0, 1] = records
    for budget in (qs.PrivacyCost(1.0), qs.PrivacyCost(1.0, neighbours="replace_one")):
        plan = qs.plan(qs.marginals(schema, [1, 2, 3]), budget, **UNIFORM)
        release = noiseless(plan, counts)
        np.testing.assert_allclose(release.marginal("c", "b", "a"), counts.transpose(2, 1, 0), atol=1e-9)
        assert qs.measure(plan, frame(schema, counts), seed=1).answer().values.shape == (
            3 + 1 + 2 + 3 + 6 + 2 + 6,
        )


# --- with noise --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema():
    return qs.Schema([qs.Ordinal("b", range(4)), qs.Categorical("a", list("xyz")), qs.Cyclic("c", range(5))])


@pytest.fixture(scope="module")
def plan(schema):
    return qs.plan(qs.all_kway(schema, [1, 2, 3]), qs.PrivacyCost(1.0), **BEST)


@pytest.fixture(scope="module")
def release(plan, schema):
    return simulate(plan, random_counts(schema, 3), seed=5)


def test_marginals_agree_with_each_other(release):
    whole_table = release.marginal("b", "a", "c")
    close = {"atol": 1e-8}
    np.testing.assert_allclose(whole_table.sum(axis=2), release.marginal("b", "a"), **close)
    np.testing.assert_allclose(whole_table.sum(axis=(0, 2)), release.marginal("a"), **close)
    np.testing.assert_allclose(release.marginal("b", "c").sum(axis=0), release.marginal("c"), **close)
    np.testing.assert_allclose(release.marginal("c").sum(), release.marginal(), **close)
    np.testing.assert_allclose(release.marginal("a", "c").sum(), release.marginal("b").sum(), **close)


def test_marginals_in_any_order(release):
    table = release.marginal("b", "a", "c")
    np.testing.assert_array_equal(release.marginal("c", "b", "a"), table.transpose(2, 0, 1))
    np.testing.assert_array_equal(release.marginal("a", "b"), release.marginal("b", "a").T)


def test_answers_agree_with_marginals(release, schema):
    table = release.marginal("a", "b")
    answers = release.answer(qs.queries(schema, a="identity", b="prefix")).values.reshape(3, 4)
    np.testing.assert_allclose(answers, table.cumsum(axis=1), atol=1e-8)
    total = release.answer(qs.marginals(schema, 0)).values
    np.testing.assert_allclose(total, [release.marginal()], atol=1e-8)


def test_the_planned_workload_is_answered_by_default(release, plan):
    one, two = release.answer(), release.answer(plan.workload)
    assert one.workload is plan.workload
    assert one.values.tobytes() == two.values.tobytes()
    assert one.std.tobytes() == two.std.tobytes()


def test_rounding_the_noise_counts_towards_the_variance(plan, schema):
    counts = random_counts(schema, 3)
    total = qs.marginals(schema, 0)
    for noise, more in (("rounded", 1 / 12), ("discrete", 0.0), ("gaussian", 0.0)):
        release = simulate(plan, counts, 1, noise)
        (measured,) = [m for m in release.plan.measured if not m.attributes]
        ((_, multiple),) = release.plan.strategies[measured.blocks[0][1]].factors
        expected = (float(measured.variance) + more) / float(multiple.entries[0, 0]) ** 2
        assert release.variances(total) == pytest.approx(expected, rel=1e-12)


def test_what_is_rebuilt_does_not_depend_on_what_is_kept(plan, schema, monkeypatch):
    counts = random_counts(schema, 3)
    one = simulate(plan, counts, 4).answer()
    monkeypatch.setattr(reconstruction, "KEPT", 5)
    release = simulate(plan, counts, 4)
    two = release.answer()
    np.testing.assert_array_equal(one.values, two.values)
    assert len(release.reconstruction._kept) <= 2


# --- a public total ----------------------------------------------------------------------------------


def test_a_public_total_is_exact(schema):
    budget = qs.PrivacyCost(1.0, neighbours="replace_one")
    plan = qs.plan(qs.all_kway(schema, [1, 2]), budget, **UNIFORM)
    counts = random_counts(schema, 3, records=12_345)
    release = simulate(plan, counts, seed=5)
    assert release.public_total == 12_345
    assert release.marginal() == 12_345
    for names in ("a", "b", "c"):
        assert release.marginal(names).sum() == pytest.approx(12_345, abs=1e-6)
    totals = (
        qs.marginals(schema, 0) + qs.linear(schema, "a", [[2, 2, 2]]) + qs.where(schema, "b >= 0 and c < 9")
    )
    answers = release.answer(totals)
    np.testing.assert_allclose(answers.values, [12_345, 24_690, 12_345], atol=1e-6)
    assert (answers.std == 0).all()
    low, high = answers.interval(0.99)
    np.testing.assert_array_equal(low, high)
    assert not release.covariance(totals).any()
    assert "with the same, public number of records" in budget.describe()


def test_without_a_public_total_it_has_noise(release, schema):
    assert release.public_total is None
    assert release.answer(qs.marginals(schema, 0)).std > 0.5


# --- strangers in the data ---------------------------------------------------------------------------


def test_records_outside_the_domain_are_dropped_whole(refuses):
    schema = qs.Schema.of(a=3, b=2)
    table = pd.DataFrame({"a": [0, 1, 2, 2, 9, None], "b": [0, 1, 1, None, 0, 1], "z": ["?"] * 6})
    plan = qs.plan(qs.marginals(schema, [1, 2]), qs.PrivacyCost(1e6), **UNIFORM)
    with refuses(qs.DataError, ValueError, "'a'"):
        qs.measure(plan, table, seed=1)
    release = qs.measure(plan, table, seed=1, unknown="drop")
    counts = np.array([[1, 0], [0, 1], [0, 1]])
    error = release.marginal("a", "b") - counts
    assert np.abs(error).max() < 6 * release.answer(qs.marginals(schema, 2)).std.max()
    assert release.answer(qs.marginals(schema, 0)).values == pytest.approx(3, abs=7)


# --- refused -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow(schema):
    """Measures {a}, {b} and their pair, and of {c} a single contrast."""
    workload = qs.queries(schema, a="identity", b="prefix") + qs.queries(schema, c=[[1, 1, 0, 0, 0]])
    plan = qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM)
    return simulate(plan, random_counts(schema, 3), seed=6)


def test_queries_outside_what_is_measured_are_refused_by_name(narrow, schema, refuses):
    everything = (narrow.answer, narrow.variances, narrow.covariance)
    for ask in everything:
        with refuses(
            OutsideMeasuredSpaceError, ValueError, "b and c were not planned together", "Add such queries"
        ):
            ask(qs.queries(schema, b="prefix", c="identity"))
        with refuses(
            OutsideMeasuredSpaceError,
            ValueError,
            ": a and c were",
            "; b and c were",
            "; b, a and c were not planned together",
        ):
            ask(qs.marginals(schema, 3))
        with refuses(OutsideMeasuredSpaceError, ValueError, "(c)", "only for other queries"):
            ask(qs.queries(schema, c=[[1, 0, 0, 0, 0]]))
    assert narrow.answer(qs.queries(schema, c=[[0, 0, 2, 2, 2], [1, 1, 1, 1, 1]])).std[0] > 0


def test_marginals_outside_what_is_measured_are_refused_by_name(narrow, refuses):
    with refuses(OutsideMeasuredSpaceError, ValueError, "{a, c}"):
        narrow.marginal("c", "a")
    assert narrow.marginal("b", "a").shape == (4, 3)


def test_a_marginal_of_which_only_a_part_is_measured_is_refused(narrow, refuses):
    """A single contrast of c is measured: a table of c would be nearly all made up."""
    with refuses(OutsideMeasuredSpaceError, ValueError, "{c}", "only in part"):
        narrow.marginal("c")
    schema = qs.Schema.of(a=4, b=3)
    for workload in (qs.affine(schema, "a", "b"), qs.where(schema, "a + b <= 2"), qs.marginals(schema, 0)):
        plan = qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM)
        release = simulate(plan, random_counts(schema, 3), seed=6)
        with refuses(OutsideMeasuredSpaceError, ValueError, "{a, b}"):
            release.marginal("b", "a")


def test_arguments_are_checked(release, schema, refuses):
    with refuses(UnknownAttributeError, KeyError, "'z'"):
        release.marginal("z")
    with refuses(SchemaError, ValueError, "more than once"):
        release.marginal("a", "a")
    other = qs.marginals(qs.Schema.of(b=4), 1)
    for ask in (release.answer, release.variances, release.covariance):
        with refuses(OutsideMeasuredSpaceError, ValueError, "differs from that of the release"):
            ask(other)
        for nothing in ([], 0, "", "a", 3.5):
            predicate = ask == release.answer and isinstance(nothing, str)  # which answer takes, if valid
            error, word = (
                (PredicateError, "predicate")
                if predicate
                else (OutsideMeasuredSpaceError, "expected a Workload")
            )
            with refuses(error, ValueError, word):
                ask(nothing)


def test_what_is_too_large_is_refused(release, schema, monkeypatch, refuses):
    monkeypatch.setattr(release_module, "MAX_ANSWERS", 2)
    monkeypatch.setattr(covariance_module, "MAX_COVARIANCE", 2)
    with refuses(TooLargeError, ValueError, "write(workload, path)"):
        release.answer(qs.queries(schema, a="identity"))
    with refuses(TooLargeError, ValueError, "covariance"):
        release.covariance(qs.queries(schema, a="identity"))


def test_words(release, plan, schema):
    shown = repr(release)
    assert "8 attribute sets" in shown
    assert "NONE: this is a simulation" in shown
    private = qs.measure(plan, frame(schema, random_counts(schema, 3)))
    assert "NONE" not in repr(private)
    assert plan.budget.describe() in private.guarantee
    assert "cryptographic" in private.guarantee


@pytest.mark.parametrize(
    "asked",
    [
        lambda s: qs.marginals(s, [1, 2]),
        lambda s: qs.all_kway(s, 2, "prefix"),
        lambda s: qs.queries(s, b="circular") + qs.affine(s, "a", "b"),
        lambda s: qs.where(s, "a < 3 and d > 1") + qs.marginals(s, 1),
    ],
)
def test_answers_are_the_matrices_times_the_marginals_plus_noise(asked):
    schema, records = people()
    release = qs.measure(qs.plan(asked(schema), qs.zCDP(0.5)), frame_of(schema, records), seed=3)
    scaled = []
    for one in release.to_arrays():
        exact = counted(schema, records, schema.positions(one.attributes)).ravel()
        assert one.matrix().shape == (one.answers.size, exact.size)
        noise = one.answers.ravel() - one.matrix() @ exact
        scaled.append(noise / np.sqrt(one.variances.ravel()))
    together = np.concatenate(scaled)
    assert len(together) == release.measurements
    # a chi-squared sum is outside these bounds with a probability below 1e-7
    spread = 6 * np.sqrt(2 / len(together))
    assert abs((together**2).mean() - 1) < spread
    assert abs(together.mean()) < 6 / np.sqrt(len(together))


SCHEMA = qs.Schema.of(a=3, b=4)
WORKLOAD = qs.marginals(SCHEMA, [1, 2])
PLAN = qs.plan(WORKLOAD, qs.PrivacyCost(1.0), **UNIFORM)
COUNTS = random_counts(SCHEMA, 5)


def repeated(factors, seed=0, counts=COUNTS):
    """A release in which set k is measured len(factors[k]) times, with these multiples of its variance."""
    once = whole(PLAN)
    measured = tuple(
        replace(m, variance=m.variance * factor)
        for m, own in zip(once.measured, factors, strict=True)
        for factor in own
    )
    plan = IntegerPlan(SCHEMA, qs.PrivacyCost(1e3), once.strategies, measured, once.max_records)
    store = MemoryStore()
    for number, answers in measure_table(plan, TableCounter(SCHEMA, counts), noise_source("rounded", seed)):
        store.put(number, answers)
    return replace(simulate(PLAN, counts, seed), plan=plan, store=store)


COUNT = len(whole(PLAN).measured)
fractions = st.fractions(Fraction(1, 8), 8, max_denominator=8)


@given(st.lists(st.lists(fractions, min_size=1, max_size=3), min_size=COUNT, max_size=COUNT))
@settings(max_examples=20)
def test_repeats_are_as_good_as_one_measurement_of_the_combined_precision(factors):
    several = repeated(factors)
    once = repeated([[1 / sum(1 / f for f in own)] for own in factors])
    np.testing.assert_allclose(several.answer().std, once.answer().std, rtol=1e-6)
    np.testing.assert_allclose(
        np.sqrt(np.diag(several.covariance(WORKLOAD))), several.answer().std, rtol=1e-9
    )


@pytest.mark.slow
def test_errors_over_many_releases_have_the_stated_size():
    """Chi-squared of every answer's errors, at the false alarm rate ALARM for all together."""
    factors = [[1, Fraction(1, 3), 2]] * COUNT
    exact = np.concatenate([COUNTS.sum(1), COUNTS.sum(0), COUNTS.ravel()])
    runs = 120
    found = [repeated(factors, seed).answer() for seed in range(runs)]
    squares = sum((one.values - exact) ** 2 for one in found) / found[0].std ** 2
    low, high = stats.chi2(runs).ppf([ALARM / 2 / exact.size, 1 - ALARM / 2 / exact.size])
    assert low < squares.min() <= squares.max() < high
    bias = np.mean([one.values - exact for one in found], axis=0) / found[0].std * np.sqrt(runs)
    assert np.abs(bias).max() < stats.norm.isf(ALARM / 2 / exact.size)


def test_repeats_survive_a_file_and_other_strategies_on_the_same_set_are_refused(tmp_path):
    release = repeated([[1, 2]] * COUNT)
    release.save(tmp_path / "r.qs")
    again = qs.Release.load(tmp_path / "r.qs")
    np.testing.assert_array_equal(again.answer().values, release.answer().values)
    *others, last = release.plan.measured
    twice = [(axes, len(release.plan.strategies)) for axes, _ in last.blocks]
    own = release.plan.strategies[last.blocks[0][1]]
    plan = replace(
        release.plan,
        strategies=(*release.plan.strategies, own),
        measured=(*others, replace(last, blocks=(twice[0], *last.blocks[1:]))),
    )
    replace(release, plan=plan).save(tmp_path / "other.qs")
    with pytest.raises(FileError, match="measured twice"):
        qs.Release.load(tmp_path / "other.qs")
