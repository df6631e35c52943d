"""Every statistic against the obvious formula, what statistics refuse, and which of them are unreliable."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import (
    OutOfRangeError,
    OutsideMeasuredSpaceError,
    PredicateError,
    UnknownAttributeError,
    WorkloadError,
)
from tests.builders import UNIFORM
from tests.profiles import fewer
from tests.release.tables import random_counts, simulate
from tests.statistics.dense import Dense, exact
from tests.strategies import integer_arrays

SCHEMA = qs.Schema(
    [
        qs.Categorical("sex", ["F", "M"]),
        qs.Ordinal("age", [20, 30, 45, 70]),
        qs.Binned("income", edges=[0, 10, 30, 100]),
    ]
)
SIZE = 24
SHAPE = (2, 4, 3)
AGE = np.array([20.0, 30, 45, 70])
INCOME = np.array([5.0, 20, 65])


@fewer(25)
@given(st.data())
def test_values_beside_the_others_are_no_numbers(data):
    """Statistics of a table with missing values are those of the table without these records."""
    kinds = {
        "age": lambda missing: qs.Ordinal("age", [20, 30, 45], missing=missing),
        "income": lambda missing: qs.Binned("income", edges=[0, 10, 30, 100], missing=missing),
    }
    name = data.draw(st.sampled_from(sorted(kinds)))
    sex = qs.Categorical("sex", ["F", "M"])
    whole, known = (qs.Schema([sex, kinds[name](missing)]) for missing in ("missing", None))
    counts = data.draw(integer_arrays((2, 4), 30, 90))
    ours = Dense(whole, counts, np.eye(8))
    theirs = Dense(known, counts[:, :3], np.eye(6))
    for ask in (
        lambda release: release.mean(name, by="sex"),
        lambda release: release.total_of(name, by="sex"),
        lambda release: release.quantile(name, [0.2, 0.5], by="sex"),
    ):
        found, expected = ask(ours), ask(theirs)
        np.testing.assert_allclose(found.values, expected.values)
        np.testing.assert_allclose(found.std, expected.std)
        np.testing.assert_allclose(found.interval(), expected.interval())
        np.testing.assert_allclose(found.covariance(), expected.covariance(), atol=1e-9)
        assert found.note.endswith(f"Records with 'missing' in {name!r} are left out.")
        assert expected.note in found.note


@pytest.mark.parametrize("edges", [[0, 10, np.inf], [-np.inf, 0, 10]])
def test_open_ended_bins_have_no_mean(edges, refuses):
    schema = qs.Schema([qs.Binned("income", edges=edges)])
    release = exact(schema, np.array([5, 5]))
    asked = [release.mean, release.total_of]
    asked += [
        lambda name, given=given: release.quantile(name, 0.5, **given)
        for given in ({"assume": "midpoint"}, {"bins": "midpoints"})
    ]
    for ask in asked:
        with refuses(WorkloadError, ValueError, "'income'", "open-ended bin", "public cap"):
            ask("income")


@st.composite
def dense(draw):
    """Counts well above their noise, whose covariance is anything."""
    counts = draw(integer_arrays((SIZE,), 30, 90))
    root = draw(integer_arrays((SIZE, 3), -2, 2))
    return Dense(SCHEMA, counts, np.eye(SIZE) + root @ root.T)


def jacobian(f, x, step=1e-4):
    """Central differences of a function of the cells."""
    columns = [(f(x + step * e) - f(x - step * e)).ravel() / (2 * step) for e in np.eye(len(x))]
    return np.array(columns).T


def table(x, axes):
    """The marginal on the axes, with totals last."""
    t = x.reshape(SHAPE).sum(axis=tuple(a for a in range(3) if a not in axes))
    for axis in range(t.ndim):
        t = np.concatenate([t, t.sum(axis=axis, keepdims=True)], axis=axis)
    return t


def by_sex(x, weights):
    """Weighted sums over age and income, by sex."""
    return (x.reshape(SHAPE) * weights).sum(axis=(1, 2))


OLD = np.array([0, 0, 1.0, 1])[:, None]
RICH = np.array([0, 1.0, 1])
CASES = {
    "counts": (lambda r: r.table("sex", "age"), lambda x: table(x, (0, 1))),
    "three attributes": (lambda r: r.table("sex", "age", "income"), lambda x: table(x, (0, 1, 2))),
    "row": (
        lambda r: r.table("sex", "age", percent="row"),
        lambda x: 100 * table(x, (0, 1)) / table(x, (0, 1))[:, -1:],
    ),
    "column": (
        lambda r: r.table("sex", "age", percent="column"),
        lambda x: 100 * table(x, (0, 1)) / table(x, (0, 1))[-1:],
    ),
    "of the total": (
        lambda r: r.table("age", percent="total"),
        lambda x: 100 * table(x, (1,)) / table(x, (1,))[-1],
    ),
    "row of three": (
        lambda r: r.table("sex", "age", "income", percent="row"),
        lambda x: 100 * table(x, (0, 1, 2)) / table(x, (0, 1, 2))[..., -1:],
    ),
    "column of three, no totals": (
        lambda r: r.table("sex", "age", "income", percent="column", totals=False),
        lambda x: (100 * table(x, (0, 1, 2)) / table(x, (0, 1, 2))[-1:, -1:])[:-1, :-1, :-1],
    ),
    "mean": (
        lambda r: r.mean("age", by="sex"),
        lambda x: by_sex(x, AGE[:, None]) / by_sex(x, np.ones((4, 3))),
    ),
    "mean of bins": (
        lambda r: r.mean("income", assume="midpoint"),
        lambda x: np.array([by_sex(x, INCOME).sum() / x.sum()]),
    ),
    "mean among the old": (
        lambda r: r.mean("age", by=["sex"], where="age >= 45 and income >= 10"),
        lambda x: by_sex(x, AGE[:, None] * OLD * RICH) / by_sex(x, OLD * RICH),
    ),
    "total": (lambda r: r.total_of("income", by="sex"), lambda x: by_sex(x, INCOME * np.ones((4, 1)))),
    "share": (
        lambda r: r.share("age >= 45", of="income >= 10", by="sex"),
        lambda x: by_sex(x, OLD * RICH) / by_sex(x, RICH * np.ones((4, 1))),
    ),
    "share of a tie": (
        lambda r: r.share("age >= 45 or income >= 10", of="age >= 30"),
        lambda x: np.array(
            [
                by_sex(x, np.maximum(OLD, RICH) * np.array([0, 1.0, 1, 1])[:, None]).sum()
                / by_sex(x, np.array([0, 1.0, 1, 1])[:, None] * np.ones(3)).sum()
            ]
        ),
    ),
    "share of the grouping attribute": (
        lambda r: r.share("sex == 'F'", by="age"),
        lambda x: x.reshape(SHAPE)[0].sum(axis=1) / x.reshape(SHAPE).sum(axis=(0, 2)),
    ),
    "ratio": (
        lambda r: r.ratio("sex == 'F'", "age >= 45"),
        lambda x: np.array([x[:12].sum() / by_sex(x, OLD * np.ones(3)).sum()]),
    ),
    "ratio to one": (
        lambda r: r.ratio(qs.queries(SCHEMA, age="identity"), "sex == 'F'"),
        lambda x: x.reshape(SHAPE).sum(axis=(0, 2)) / x[:12].sum(),
    ),
    "difference": (
        lambda r: r.difference(qs.queries(SCHEMA, sex="identity"), qs.where(SCHEMA, "age >= 45")),
        lambda x: by_sex(x, np.ones((4, 3))) - by_sex(x, OLD * np.ones(3)).sum(),
    ),
    "ratio by group": (
        lambda r: r.ratio("age >= 45 and income >= 10", "income >= 10", by="sex"),
        lambda x: by_sex(x, OLD * RICH) / by_sex(x, RICH * np.ones((4, 1))),
    ),
    "difference by groups of the predicate": (
        lambda r: r.difference("age >= 45", "age < 70 or income < 10", by=["sex", "age"]),
        lambda x: (
            (x.reshape(SHAPE) * (OLD - np.maximum(np.array([1, 1, 1.0, 0])[:, None], np.array([1.0, 0, 0]))))
            .sum(axis=2)
            .ravel()
        ),
    ),
    "difference of means": (
        lambda r: r.difference(
            r.mean("age", where="sex == 'F'"), r.mean("age", where="sex == 'M' and income >= 10")
        ),
        lambda x: np.subtract(
            *(
                by_sex(x, AGE[:, None] * w)[i] / by_sex(x, w * np.ones((4, 3)))[i]
                for i, w in ((0, 1), (1, RICH))
            )
        ).reshape(1),
    ),
    "difference of entries": (
        lambda r: r.difference(r.mean("age", by="sex")[0], r.mean("age", by="sex")[1]),
        lambda x: -np.diff(by_sex(x, AGE[:, None]) / by_sex(x, np.ones((4, 3)))),
    ),
    "difference of shares": (
        lambda r: r.difference(r.share("age >= 45", by="sex"), r.share("age >= 45")),
        lambda x: (
            by_sex(x, OLD * np.ones(3)) / by_sex(x, np.ones((4, 3)))
            - by_sex(x, OLD * np.ones(3)).sum() / x.sum()
        ),
    ),
    "difference of percentages": (
        lambda r: r.difference(r.table("sex", "age", percent="row"), r.table("sex", "age", percent="total")),
        lambda x: (
            100 * table(x, (0, 1)) / table(x, (0, 1))[:, -1:] - 100 * table(x, (0, 1)) / x.sum()
        ).ravel(),
    ),
    "difference of totals": (
        lambda r: r.difference(r.total_of("income", by="sex"), r.total_of("age")),
        lambda x: by_sex(x, INCOME * np.ones((4, 1))) - by_sex(x, AGE[:, None]).sum(),
    ),
    "ratio of means": (
        lambda r: r.ratio(r.mean("age", by="sex"), r.mean("income", by="sex")),
        lambda x: by_sex(x, AGE[:, None]) / by_sex(x, INCOME * np.ones((4, 1))),
    ),
    "difference of differences": (
        lambda r: r.difference(
            r.difference("sex == 'F'", "age >= 45"), r.difference("sex == 'M'", "age < 45")
        ),
        lambda x: np.array([x[:12].sum() - x[12:].sum() + x.sum() - 2 * by_sex(x, OLD * np.ones(3)).sum()]),
    ),
}


DENOMINATORS = {
    "mean": lambda x: by_sex(x, np.ones((4, 3))),
    "mean of bins": lambda x: np.array([x.sum()]),
    "mean among the old": lambda x: by_sex(x, OLD * RICH),
    "share": lambda x: by_sex(x, RICH * np.ones((4, 1))),
    "share of a tie": lambda x: np.array([x.reshape(SHAPE)[:, 1:].sum()]),
    "share of the grouping attribute": lambda x: x.reshape(SHAPE).sum(axis=(0, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@fewer(12)
@given(data=st.data())
def test_values_and_errors(name, data):
    release = data.draw(dense())
    ask, formula = CASES[name]
    found = ask(release)
    np.testing.assert_allclose(found.values, formula(release.cells), rtol=1e-9)
    J = jacobian(formula, release.cells)
    covariance = J @ release.cell_covariance @ J.T
    std = np.sqrt(np.diagonal(covariance)).reshape(found.values.shape)
    np.testing.assert_allclose(found.std, std, rtol=1e-5, atol=1e-6)
    joint = getattr(found, "figures", found).covariance()  # what simultaneous intervals stand on
    np.testing.assert_allclose(joint, covariance, rtol=1e-5, atol=1e-4 * max(covariance.max(), 1e-6))


@pytest.mark.parametrize("name", DENOMINATORS)
@fewer(50)
@given(data=st.data())
def test_the_ends_of_an_interval_are_just_compatible_with_the_data(name, data):
    """Fieller: at both ends N - r D is exactly z standard errors from zero."""
    release = data.draw(dense())
    ask, formula = CASES[name]
    found, x, D = ask(release), release.cells, DENOMINATORS[name]
    J_N, J_D = jacobian(lambda x: formula(x) * D(x), x), jacobian(D, x)
    for end in found.interval(0.9):
        combined = J_N - end[:, None] * J_D  # N - r D by cell, one row per group
        variance = np.diagonal(combined @ release.cell_covariance @ combined.T)
        np.testing.assert_allclose((combined @ x) ** 2, 1.6448536269514722**2 * variance, rtol=1e-5)
    low, high = found.interval(0.9)
    assert (low < found.values).all()
    assert (found.values < high).all()


PLANS = {
    "pairs": (qs.all_kway(SCHEMA, [1, 2], "identity"), UNIFORM),
    "best centres": (qs.all_kway(SCHEMA, [1, 2]), {"centering": "optimized"}),
    "a few queries beside tables": (
        qs.all_kway(SCHEMA, [1, 2], "identity")
        + 50 * qs.where(SCHEMA, "age >= 45 and income < 30 and sex == 'F'")
        + 50 * qs.where(SCHEMA, "age + 5 < 50 or income >= 10"),
        {},
    ),
    "whole": (qs.queries(SCHEMA, age="prefix", sex="identity"), {"mechanism": "whole", **UNIFORM}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_any_plan_serves(name, neighbours):
    """Statistics stand on answers and covariance, so they hold for every kind of plan."""
    workload, options = PLANS[name]
    plan = qs.plan(workload, qs.zCDP(0.5, neighbours=neighbours), **options)
    counts = random_counts(SCHEMA, 3, 4000)
    release = simulate(plan, counts, 5)
    pairs = qs.queries(SCHEMA, sex="identity", age="identity")
    cells = release.answer(pairs).values
    total = qs.marginals(SCHEMA, 0) + qs.queries(SCHEMA, sex="identity")
    np.testing.assert_allclose(
        release.covariance(pairs, total), release.covariance(pairs + total)[:8, 8:], atol=1e-9
    )
    two = qs.Schema(SCHEMA.attributes[:2])
    reference = Dense(two, cells, release.covariance(pairs))
    asked = [
        lambda r: r.table("sex", "age", percent="row"),
        lambda r: r.table("age", "sex", percent="total"),
        lambda r: r.mean("age", by="sex"),
        lambda r: r.share("age >= 45", of="sex == 'F'"),
        lambda r: r.quantile("age", [0.3, 0.5], by="sex"),
    ]
    for ask in asked:
        found, expected = ask(release), ask(reference)
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-7)
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-6, atol=1e-6)
        ends = zip(found.interval(0.9), expected.interval(0.9), strict=True)
        for own, other in ends:
            np.testing.assert_allclose(own, other, rtol=1e-6)


def test_a_planned_mean_needs_no_more_than_itself():
    """What can be answered depends on what was planned: a mean is one query, a quantile is not."""
    workload = qs.queries(SCHEMA, age=[AGE.tolist(), [1, 1, 1, 1]], sex="identity")
    release = simulate(qs.plan(workload, qs.zCDP(0.5), **UNIFORM), random_counts(SCHEMA, 3), 5)
    assert release.mean("age", by="sex").values.shape == (2,)
    with pytest.raises(OutsideMeasuredSpaceError, match="age, sex"):
        release.quantile("age", 0.5, by="sex")
    with pytest.raises(OutsideMeasuredSpaceError, match="income"):
        release.mean("income")


@fewer(50)
@given(dense())
def test_groups_are_compared_with_what_they_are_part_of(release):
    """b has one figure per value of some of the columns of a."""
    quantiles = release.quantile("income", [0.2, 0.5], by="sex")
    whole = release.quantile("income", [0.2, 0.5])
    found = release.difference(quantiles, whole)
    assert [c.name for c in found.columns] == ["sex", "probability"]
    np.testing.assert_allclose(found.values, quantiles.values - np.tile(whole.values, 2))
    one = release.difference(quantiles[3], whole[1])
    assert found.std[3] == pytest.approx(one.std[0])
    counts = release.difference(release.table("sex", "age", totals=False), release.table("age", totals=False))
    np.testing.assert_allclose(
        counts.values.reshape(2, 4), -release.table("sex", "age", totals=False).values[::-1]
    )


def test_what_is_refused(refuses):
    release = exact(SCHEMA, np.ones(SIZE))
    cases = [
        (WorkloadError, "sex", lambda: release.mean("sex")),
        (WorkloadError, "categorical", lambda: release.quantile("sex", 0.5)),
        (WorkloadError, "probabilities", lambda: release.quantile("age", 1)),
        (WorkloadError, "probabilities", lambda: release.quantile("age", [])),
        (WorkloadError, "probabilities", lambda: release.quantile("age", ["a"])),
        (WorkloadError, "bins", lambda: release.quantile("income", 0.5, bins="middle")),
        (WorkloadError, "by", lambda: release.mean("age", by="age")),
        (WorkloadError, "by", lambda: release.mean("age", by=3)),
        (WorkloadError, "percent", lambda: release.table("sex", "age", percent="rows")),
        (WorkloadError, "percent", lambda: release.table("sex", percent="row")),
        (WorkloadError, "attributes", release.table),
        (
            WorkloadError,
            "b: expected",
            lambda: release.ratio(qs.queries(SCHEMA, sex="identity"), qs.queries(SCHEMA, age="identity")),
        ),
        (WorkloadError, "a: expected", lambda: release.difference(3, "age >= 45")),
        (
            WorkloadError,
            "by: expected predicates to group, got a Figures as b",
            lambda: release.ratio("age >= 45", release.mean("age"), by="sex"),
        ),
        (
            WorkloadError,
            "a: expected figures of this release",
            lambda: release.difference(exact(SCHEMA, np.ones(SIZE)).mean("age"), release.mean("age")),
        ),
        (
            WorkloadError,
            "b: expected 2 figures",
            lambda: release.difference(release.mean("age", by="sex"), release.mean("income", by="age")),
        ),
        (WorkloadError, "level", lambda: release.mean("age").interval(2)),
        (WorkloadError, "level", lambda: release.mean("age").interval(2, simultaneous=True)),
        (WorkloadError, "thresholds", lambda: release.table("sex", thresholds=(0.3, 0.2))),
        (WorkloadError, "thresholds", lambda: release.table("sex", thresholds=0.3)),
        (WorkloadError, "suppress", lambda: release.table("sex", suppress=-1)),
        (WorkloadError, "value: there are 2", lambda: float(release.mean("age", by="sex"))),
        (PredicateError, "age", lambda: release.share("age")),
        (PredicateError, "predicate: expected", lambda: release.share(3)),
        (PredicateError, "of: expected", lambda: release.share("age > 20", of=3)),
        (PredicateError, "of: expected", lambda: release.share("age > 20", of="")),
        (PredicateError, "where: expected", lambda: release.mean("age", where=3)),
        (PredicateError, "where: expected", lambda: release.total_of("age", where=" ")),
        (PredicateError, "where: expected", lambda: release.quantile("age", 0.5, where=3)),
        (WorkloadError, "attributes: expected names one by one", lambda: release.table(["sex", "age"])),
        (WorkloadError, "totals: expected True or False", lambda: release.table("sex", totals="yes")),
        (WorkloadError, "expected an integer, got 'sex'", lambda: release.mean("age")["sex"]),
        (OutOfRangeError, "from -1 to 0, got 3", lambda: release.mean("age")[3]),
    ]
    for error, word, call in cases:
        with refuses(error, ValueError, word):
            call()
    with refuses(UnknownAttributeError, KeyError, "sx"):
        release.mean("age", by="sx")
    odd = qs.Schema([qs.Ordinal("o", [3, 1, 2]), qs.Ordinal("t", ["low", "high"]), qs.Cyclic("h", [1, 2])])
    with refuses(WorkloadError, ValueError, "do not increase"):
        exact(odd, np.ones(12)).quantile("o", 0.5)
    with refuses(WorkloadError, ValueError, "not numbers"):
        exact(odd, np.ones(12)).mean("t")
    with refuses(WorkloadError, ValueError, "cyclic"):
        exact(odd, np.ones(12)).mean("h")


def test_what_a_contrast_is_about():
    release = exact(SCHEMA, np.ones(SIZE))
    means = release.mean("age", by="sex")
    same = release.difference(means, release.mean("income", by="sex"))
    assert [c.name for c in same.columns] == ["sex"]
    assert same.title == "Difference: Mean of age by sex - Mean of income by sex"
    assert release.ratio(means, release.mean("age"))[1].about == {"sex": "M"}
    entries = release.difference(means[0], means[1])
    assert entries[0].about == {"a": "sex = F", "b": "sex = M"}
    other = release.difference(means[0], release.mean("age"))
    assert other[0].about == {"sex": "F"}
    assert release.difference("sex == 'F'", "sex == 'M'")[0].about == {"a": "sex == 'F'", "b": "sex == 'M'"}
    assert release.difference(means, "sex == 'F'")[0].about["b"] == "sex == 'F'"
    assert "mid-points" in same.note
    spread = release.ratio(release.quantile("income", 0.9), release.quantile("income", 0.1))
    assert spread[0].about == {"a": "probability = 0.9", "b": "probability = 0.1"}


def test_conditions_that_nobody_meets():
    """No records, without noise: nothing bounds a mean or a quantile, and a total is zero."""
    release = Dense(SCHEMA, np.ones(SIZE), np.eye(SIZE))
    never = "age > 50 and age < 40"
    for found in (
        release.mean("age", where=never),
        release.share("sex == 'F'", of=never),
        release.quantile("age", 0.5, where=never),
        release.quantile("income", 0.5, where=never),
        release.ratio("sex == 'F'", never),
    ):
        assert np.isnan(found.values[0])
        assert np.isnan(found.std[0])
        assert [end[0] for end in found.interval()] == [-np.inf, np.inf]
        assert found.flags().tolist() == ["unreliable"]
        assert "nan" not in repr(found)
    assert release.total_of("age", where=never).value == 0
    assert release.share(never).value == 0


def test_titles_state_units():
    schema = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(3), unit="years")])
    release = exact(schema, np.ones(6))
    for found in (release.mean("age", by="sex"), release.total_of("age"), release.quantile("age", 0.5)):
        assert "of age (years)" in found.title


def test_numbers_of_numpy_are_numbers():
    release = Dense(SCHEMA, np.ones(SIZE), np.eye(SIZE))
    found = release.table("sex", thresholds=np.array([0.1, 0.2]), suppress=np.float32(0.5))
    assert found.rules.thresholds == (0.1, 0.2)
    level = np.float32(0.5)
    np.testing.assert_array_equal(found.interval(level), found.interval(float(level)))


def test_unreliable_where_the_denominator_is_near_zero():
    counts = np.zeros(SHAPE)
    counts[0] = 100
    counts[1, 0, 0] = 20
    release = Dense(SCHEMA, counts, 10 * np.eye(SIZE))  # the men: 20, with a standard error of 11
    for found in (
        release.mean("age", by="sex"),
        release.share("age >= 45", by="sex"),
        release.quantile("age", 0.5, by="sex"),
        release.quantile("income", 0.5, by="sex"),
    ):
        assert found.reliable.tolist() == [True, False]
        assert found.flags().tolist()[1] == "unreliable"
        assert "unreliable" in repr(found)
        assert found.to_frame()["flag"].to_pylist()[1] == "unreliable"
    low, high = release.mean("age", by="sex").interval(0.95)
    assert (low[1], high[1]) == (-np.inf, np.inf)
    assert "?: unreliable" in repr(release.table("sex", "age", percent="row"))
    nobody = exact(SCHEMA, np.zeros(SIZE)).mean("age")
    assert np.isnan(nobody.values[0])
    assert nobody.interval()[0][0] == -np.inf
    assert not nobody.reliable[0]
    assert nobody.to_frame().to_pylist()[0]["value"] is None


def pay_in_bins():
    """Records at the lower ends of their bins."""
    schema = qs.Schema([qs.Binned("pay", edges=[0, 10, 20, 30]), qs.Ordinal("age", range(3))])
    people = {"pay": [0.0, 10.0, 20.0] * 3000, "age": [0, 1, 2] * 3000}
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.zCDP(0.5))
    return qs.measure(plan, pa.table(people), seed=1)


FROM_BINS = [
    (lambda r, a: r.mean("pay", assume=a), 10),
    (lambda r, a: r.total("pay", assume=a), 90_000),
    (lambda r, a: r.quantile("pay", 0.5, assume=a), 10),
    (lambda r, a: r.quantile("pay", 0.5, bins="midpoints", assume=a), 10),
    (lambda r, a: r.mean("pay", by="age", assume=a), [0, 10, 20]),
]


@pytest.mark.parametrize(("ask", "truth"), FROM_BINS)
def test_intervals_of_figures_from_bins_cover_where_records_lie(ask, truth):
    release = pay_in_bins()
    found, assumed = ask(release, None), ask(release, "midpoint")
    np.testing.assert_array_equal(found.values, assumed.values)
    np.testing.assert_array_equal(found.std, assumed.std)
    low, high = found.interval(0.99)
    assert ((low <= truth) & (truth <= high)).all()
    assert (found.low <= found.values).all()
    assert (found.values <= found.high).all()
    assert "Intervals cover the noise, and any places of the records within their bins." in repr(found)
    frame = found.to_frame("pandas", 0.99)
    np.testing.assert_allclose(frame[["low", "high"]].to_numpy().T, [low.ravel(), high.ravel()])
    np.testing.assert_array_equal(assumed.low, assumed.high)
    with pytest.raises(WorkloadError, match="assume: expected 'midpoint' or None, got 'even'"):
        ask(release, "even")


@pytest.mark.parametrize("sign", ["difference", "ratio"])
def test_contrasts_of_figures_from_bins_are_extreme_at_the_ends_of_bins(sign):
    release = pay_in_bins()
    mean, median = release.mean("pay", where="age > 0"), release.quantile("pay", 0.5)
    contrast = getattr(release, sign)(mean, median)
    of = {"difference": np.subtract, "ratio": np.divide}[sign]
    ends = [of(a, b) for a in (mean.low, mean.high) for b in (median.low, median.high)]
    np.testing.assert_allclose([contrast.low, contrast.high], [np.min(ends, axis=0), np.max(ends, axis=0)])
    low, high = contrast.interval()
    assert low < contrast.low < contrast.values < contrast.high < high
    assert contrast[0].value == contrast.values[0]
    assert contrast.take([0]).interval() == (low, high)
    noise = getattr(release, sign)(
        *(
            release.mean("pay", where="age > 0", assume="midpoint"),
            release.quantile("pay", 0.5, assume="midpoint"),
        )
    )
    np.testing.assert_allclose(noise.std, contrast.std)
    assert noise.interval()[1] < high


def test_measured_sums_of_mid_points_have_the_widest_bin_as_bound():
    schema = qs.Schema([qs.Binned("pay", edges=[0, 10, 40, 50]), qs.Ordinal("age", range(3))])
    plan = qs.plan(qs.means(schema, "pay", by="age"), qs.zCDP(0.5))
    table = pa.table({"pay": [0.0, 10.0, 40.0] * 3000, "age": [0, 1, 2] * 3000})
    found = qs.measure(plan, table, seed=1).mean("pay", by="age")
    np.testing.assert_allclose(found.high - found.low, 30)
    np.testing.assert_allclose((found.high + found.low) / 2, found.values)


def test_figures_that_assume_mid_points_say_that_intervals_do_not_cover_where_records_lie():
    """Records at the lower ends of their bins: no interval covers their mean, total or median."""
    release = pay_in_bins()
    words = (
        "Intervals cover the noise, not this assumption: the figure of the records themselves can lie outside"
    )
    for ask, truth in FROM_BINS:
        found = ask(release, "midpoint")
        low, high = found.interval(0.99)
        assert ((low > truth) | (high < truth)).all()
        assert words in found.note
        assert words in repr(found)
    means = release.mean("pay", assume="midpoint")
    assert words in release.difference(means, release.quantile("pay", 0.5)).note
    for found, truth in (
        (release.mean("age"), 1),
        (release.quantile("age", 0.5), 1),
        (release.share("age < 1"), 1 / 3),
    ):
        low, high = found.interval(0.999)
        assert (low <= truth) & (truth <= high)
        assert words not in found.note


@given(st.data())
def test_contrasts_from_bins_hold_what_any_places_of_the_records_give(data):
    """Also for numbers of either sign, whose total can be zero: then a ratio can be any number."""
    edges = sorted(data.draw(st.sets(st.integers(-6, 6), min_size=2, max_size=4)))
    schema = qs.Schema([qs.Binned("x", edges=edges), qs.Ordinal("g", range(2))])
    counts = data.draw(integer_arrays((len(edges) - 1, 2), 0, 4))
    counts[0] += 1  # nobody has no mean
    release = exact(schema, counts)
    places = data.draw(
        integer_arrays((*counts.shape, 8), 0, 1)
    )  # at one end of the bin, or just before the other
    inside = (np.array(edges[:-1])[:, None, None] * (1 - places)) + places * (
        np.array(edges[1:])[:, None, None] - 1e-9
    )
    records = [
        np.concatenate([inside[b, g, : counts[b, g]] for b in range(len(edges) - 1)]) for g in range(2)
    ]
    everybody = np.concatenate(records)
    for ask, by_hand in (
        (lambda r, by=None: r.total("x", by=by), np.sum),
        (lambda r, by=None: r.mean("x", by=by), np.mean),
        (
            lambda r, by=None: r.quantile("x", 0.5, by=by),
            lambda x: np.quantile(x, 0.5, method="inverted_cdf"),
        ),
    ):
        a, b = np.array([by_hand(x) for x in records]), by_hand(everybody)
        for found, truth in (
            (release.difference(ask(release, "g"), ask(release)), a - b),
            (release.ratio(ask(release, "g"), ask(release)), a / b if b else None),
        ):
            low, high = found.interval()
            if truth is not None:
                assert (low <= truth + 1e-6 * (1 + abs(truth))).all()
                assert (truth <= high + 1e-6 * (1 + abs(truth))).all()
                assert (found.low <= truth + 1e-6 * (1 + abs(truth))).all()
            without_end = np.isinf(low)
            assert (found.flags()[without_end] == "unreliable").all()


def test_a_difference_with_a_figure_that_has_no_value_has_the_whole_line():
    """The median of a group whose noisy count is below zero has no value, and its interval is finite."""
    cells = np.repeat([[10.0, 20, 10, 5], [-3, 1, -2, 1]], 3, axis=1).ravel()
    release = Dense(SCHEMA, cells, np.eye(SIZE))
    medians = release.quantile("age", 0.5, by="sex")
    assert np.isnan(medians.values[1])
    for contrast in (release.difference, release.ratio):
        found = contrast(medians, release.quantile("age", 0.5))
        low, high = found.interval()
        assert (low[1], high[1]) == (-np.inf, np.inf)
        assert found.flags()[1] == "unreliable"
        assert np.isfinite([low[0], high[0]]).all()


def test_ratios_of_shares_that_groups_cannot_have_are_unknown_without_a_warning():
    schema = qs.Schema([qs.Ordinal("w", [0, 2, 5]), qs.Binned("x", edges=[0, 5, np.inf])])
    table = pa.table({"w": [2, 5, 0] * 50, "x": [1, 7, 8] * 50})
    release = qs.measure(qs.plan(qs.marginals(schema, 2), qs.zCDP(1)), table, seed=1)
    shares = release.share("w != 0", by="w")
    quantiles = release.quantile("x", 0.9, by="w"), release.quantile("x", 0.1, by="w")
    for figures in (release.ratio(shares, shares), release.ratio(*quantiles)):
        for simultaneous in (False, True):
            low, high = figures.interval(simultaneous=simultaneous)
            assert (low[0], high[0]) == (-np.inf, np.inf)
        assert not figures.reliable[0]
