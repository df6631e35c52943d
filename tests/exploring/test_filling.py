"""Water-filling: as good as a general optimiser; tables without signal get nothing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import querysmasher as qs
from querysmasher.exploring.explore import LeastErrorCosts, Request
from querysmasher.exploring.filling import Parts, fill, filled

PARTS = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))


@st.composite
def problems(draw):
    """Parts of up to four tables, each with a few classes of cells, and a budget."""
    tables = draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4, unique=True))
    places = [part for part in PARTS if any(set(part) <= set(table) for table in tables)]
    size = st.floats(0.1, 100)
    variances = np.array([[draw(size) for _ in range(2)] for _ in places])
    counts = np.array([[draw(st.integers(1, 9)) for _ in range(2)] for _ in places], dtype=float)
    costs = np.array([draw(st.floats(0.2, 2)) for _ in places])
    weights = {table: draw(st.floats(0.5, 2)) for table in tables}
    return Parts(tuple(places), variances, counts), weights, costs, draw(st.floats(0.05, 5))


def error(parts, tables, precisions):
    own = dict(zip(parts.sets, parts.after(precisions).errors, strict=True))
    inside = {table: [own[part] for part in own if set(part) <= set(table)] for table in tables}
    return sum(weight * np.linalg.norm(inside[table]) for table, weight in tables.items())


@given(problems())
@settings(max_examples=40, deadline=None)
def test_filling_is_as_good_as_a_general_optimiser(problem):
    parts, tables, costs, budget = problem
    found = filled(parts, tables, costs, budget)
    assert found.min() >= 0
    np.testing.assert_allclose(found @ costs, budget, rtol=1e-6)

    def value(shares):
        return error(parts, tables, shares / costs)

    start = np.full(len(costs), budget / len(costs))
    best = minimize(
        value,
        start,
        bounds=[(0, budget)] * len(costs),
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - budget},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )
    assert error(parts, tables, found) <= 1.002 * best.fun


def test_nothing_to_learn_is_not_measured():
    parts = Parts(((0,),), np.zeros((1, 2)), np.ones((1, 2)))
    assert filled(parts, {(0,): 1.0}, np.ones(1), 1.0).tolist() == [0.0]


def test_what_the_plan_of_least_error_lacks_is_shared_in_proportion():
    direct = LeastErrorCosts(0.5, {(): 1.0, (0,): 2.0, (1,): 5.0})
    assert direct.missing({(0,): 2.5, (1,): 1.0}, 10.0) == {(): 2.0, (1,): 8.0}
    assert direct.missing({}, 0.0) == {}
    assert LeastErrorCosts().missing({}, 1.0) == {}


def test_how_dense_a_table_is_depends_on_its_records():
    schema = qs.Schema.of(a=3, b=4, c=2)
    asked, budget = Request(qs.marginals(schema, 3)), qs.ApproxDP(1.0, 1e-9)
    weights = [
        LeastErrorCosts.of(asked, budget, total, budget.privacy_cost).weight
        for total in (-5, 100, 25_000, 1e6)
    ]
    assert weights[:2] == [0, 0]
    assert 0 < weights[2] < 1
    assert weights[3] == 1


magnitudes = st.sampled_from([0.0, 1e-4, 0.1, 1.0, 7.0, 300.0])


@st.composite
def fillings(draw):
    tables, classes = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    cells = [[draw(magnitudes) for _ in range(classes)] for _ in range(tables)]
    counts = [[draw(st.integers(0, 9)) for _ in range(classes)] for _ in range(tables)]
    weights = [draw(st.sampled_from([0.5, 1.0, 4.0])) for _ in range(tables)]
    costs = [draw(st.sampled_from([0.3, 1.0, 2.0])) for _ in range(tables)]
    budget = draw(st.sampled_from([1e-3, 0.2, 1.0, 50.0]))
    return np.array(cells), np.array(counts, float), np.array(weights), np.array(costs), budget


@given(fillings())
def test_gains_at_the_margin_are_equal_where_anything_is_measured(problem):
    variances, counts, weights, costs, _ = problem
    b = fill(*problem)
    gain = (counts * variances**1.5 * (1 + variances * b[:, None]) ** -1.5).sum(axis=1) * weights / 2 / costs
    if b.any():
        level = gain[b > 0]
        assert level.max() <= level.min() * (1 + 1e-5)
        assert gain.max() <= level.max() * (1 + 1e-5)


def test_a_table_without_signal_gets_nothing():
    variances = np.array([[100.0], [0.0], [1e-6]])
    b = fill(variances, np.full((3, 1), 50.0), np.ones(3), np.ones(3), 0.1)
    np.testing.assert_allclose(b, [0.1, 0, 0], rtol=1e-9)


def test_alike_tables_share_alike_and_many_tables_are_quick():
    generator = np.random.default_rng(0)
    variances = np.tile(generator.lognormal(0, 3, size=(1, 24)), (5_000, 1))
    b = fill(variances, np.ones_like(variances), np.ones(5_000), np.ones(5_000), 10.0)
    np.testing.assert_allclose(b, 10.0 / 5_000, rtol=1e-9)
