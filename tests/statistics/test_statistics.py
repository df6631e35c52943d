"""Every statistic against the obvious formula: all cells written out, derivatives taken numerically."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import (
    OutsideMeasuredSpaceError,
)
from tests.builders import UNIFORM
from tests.profiles import fewer
from tests.release.tables import random_counts, simulate
from tests.statistics.dense import Dense
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
    "mean of bins": (lambda r: r.mean("income"), lambda x: np.array([by_sex(x, INCOME).sum() / x.sum()])),
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
