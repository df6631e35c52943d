"""Strategies on one attribute around their own centre: their certificates, and the variances of ranges."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.limits import limited
from querysmasher.planning.lines.filters import solve_line
from querysmasher.planning.lines.gram import LineGram
from querysmasher.planning.objectives.objective import as_measured
from querysmasher.planning.solvers.bounds import window_diagonal
from querysmasher.planning.strategies import MatrixAxis, MirroredStrategy
from querysmasher.privacy.factors import Reflection
from querysmasher.workload.families import Circular, Identity, Prefix, Range
from querysmasher.workload.joint import Rows
from tests.builders import COST, has_lines, moving
from tests.profiles import fewer
from tests.strategies import matrices

LINE = 200
SUM = Rows((LINE,), np.arange(LINE)[None] / (LINE - 1))
SUMS = Rows(
    (LINE,), np.array([np.append(np.arange(LINE - 1), 0.0), np.linspace(-1, 1, LINE)]), np.array([1e-4, 1.0])
)
"""With a missing value beside the numbers, and around their middle."""


def line(*asked, total=0.0):
    """Return the best strategy for families on one attribute, and its Gram matrix written out."""
    gram = LineGram.of(LINE, asked, total)
    dense = sum(c * f.gram() for f, c in asked) + total
    return gram, solve_line(gram), dense


def whole_gram(strategy):
    """V of a strategy: what it measures around its centre, and its total."""
    rows = strategy.written_out()
    return rows.T @ rows + 1 / strategy.total_variance


def smooth(kind):
    place = (np.arange(LINE) + 0.5) / LINE
    return {
        "rising": place,
        "step": np.where(place < 0.5, 1.0, 100.0),
        "bump": np.exp(-(((place - 0.5) / 0.05) ** 2) / 2) + 1e-3,
        "falling": np.exp(-5 * place),
    }[kind]


@pytest.mark.slow
@pytest.mark.parametrize("written_out", [True, False])
@pytest.mark.parametrize(
    ("asked", "total", "most"),
    [
        ([(Prefix((LINE,)), 1.0)], 0.0, 0.0025),
        ([(Range((LINE,)), 1.0)], 0.0, 0.0005),
        ([(Prefix((LINE,)), 1.0), (Identity((LINE,)), 2.0)], 0.0, 0.0025),
        ([(Range((LINE,)), 1.0), (Identity((LINE,)), 2.0)], 0.0, 0.0005),
        ([(Circular((LINE,)), 1.0), (Identity((LINE,)), 2.0)], 30.0, 1e-6),
        ([(Identity((LINE,)), 1.0)], 20.0, 1e-6),
        ([(Prefix((LINE,)), 1.0), (Range((LINE,)), 2 / LINE)], 0.0, 0.01),
        ([(Prefix((LINE,)), 1.0), (Circular((LINE,)), 1 / LINE)], 0.0, 0.01),
        ([(Prefix((LINE,)), 1.0)], 100.0, 0.01),
        ([(Prefix((LINE,)), 1.0)], 4_000.0, 0.01),
        ([(Range((LINE,)), 2 / LINE)], 400.0, 0.01),
        *(
            ([(Prefix((LINE,)).reweighted(smooth(kind)), 1.0)], 0.0, 0.01)
            for kind in ("rising", "step", "bump", "falling")
        ),
        *(([(Prefix((LINE,)), 1.0), (SUM, weight * LINE)], 0.0, 0.0025) for weight in (0.1, 1, 10)),
        *(([(Range((LINE,)), 2 / LINE), (SUMS, weight * LINE)], 0.0, 0.0025) for weight in (0.1, 1, 10)),
        *(([(Identity((LINE,)), 1.0), (SUMS, weight * LINE)], 30.0, 0.0025) for weight in (0.1, 1, 10)),
        ([(Prefix((LINE,)), 1.0), (Range((LINE,)), 2 / LINE), (SUMS, LINE)], 100.0, 0.01),
    ],
)
def test_strategies_on_one_attribute_are_certified_and_their_bounds_hold(asked, total, most, written_out):
    with limited(line_matrix=LINE if written_out else 0):
        gram, found, dense = line(*asked, total=total)
    assert isinstance(found.strategy, MatrixAxis) == written_out
    V = whole_gram(found.strategy)
    assert np.diag(V).max() == pytest.approx(1.0, rel=1e-9)
    assert found.loss == pytest.approx(np.trace(dense @ np.linalg.inv(V)), rel=1e-7)
    assert np.sqrt(found.loss / found.bound) - 1 <= (max(most, 1e-4) if written_out else most)
    # the bound is below the optimum, which the fixed point approaches from both sides
    p, v = np.full(LINE, 1 / LINE), np.ones(LINE)
    for _ in range(30):
        p = p * v**2 / (p @ v**2)
        values, vectors = np.linalg.eigh(np.sqrt(np.outer(p, p)) * dense)
        v = (vectors**2 @ np.sqrt(np.maximum(values, 0))) / p
    assert found.bound <= (p * v).sum() * v.max() * (1 + 1e-9)
    random = np.random.default_rng(0).standard_normal((2, LINE))
    np.testing.assert_allclose(gram.times(random), random @ dense, rtol=1e-8, atol=1e-8 * np.abs(dense).max())


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["prefix", "range", "cosine", "circular"])
def test_variances_of_many_ranges_follow_from_running_sums(ends, limit_planning):
    n = 700
    frequencies = Reflection(ends, n).second_differences.copy()
    frequencies[0] = frequencies[0] or frequencies[1] / 4
    spectrum = np.sqrt(1 / frequencies + 0.1)
    extra = np.random.default_rng(1).standard_normal((2, n))
    plain = MirroredStrategy(ends, spectrum, np.ones(n), extra)
    strategy = replace(plain, diagonal=1 / np.sqrt(plain.squares))
    first, last = np.sort(np.random.default_rng(2).integers(0, n, (400, 2)), axis=1).T
    schema = qs.Schema.of(a=n)
    family = qs.ranges(schema, "a", first, last)
    expected = np.einsum("ij,ij->i", family.matrix(), family.matrix() @ np.linalg.inv(whole_gram(strategy)))
    balanced = family.matrix() - (family.matrix() @ strategy.centre)[:, None]
    widest = int((last - first).max()) + 1
    for work in (1e9, 400 * (widest - 1), 0):  # along the diagonals, end by end, by running sums
        limit_planning(exact_range_work=work)
        np.testing.assert_allclose(strategy.whole_variances(family), expected, rtol=1e-7)
        np.testing.assert_allclose(
            strategy.query_variances(family), strategy.variances([((0,), balanced)]), rtol=1e-6
        )


@pytest.mark.parametrize("width", [None, 30])
def test_filters_of_moving_sums_are_no_smooth_functions(width, limit_planning):
    """Their ranges are taken end by end, or along diagonals: running sums would be wrong by a tenth."""
    n = 2_000
    schema = qs.Schema.of(a=n)
    plan = qs.plan(qs.queries(schema, a="prefix") if width is None else moving(schema, [width]), COST)
    (strategy,) = (s.strategy for s in plan.solutions if s.strategy.kind == "mirrored")
    low, high = np.array([0, 5, 900, 1_900]), np.array([29, 34, 929, 1_999])
    rows = ((np.arange(n) >= low[:, None]) & (np.arange(n) <= high[:, None])).astype(float)
    expected = np.einsum("ij,ij->i", rows, strategy.covary_whole(rows))
    for work in (1e9, 4 * 99, 0):
        limit_planning(exact_range_work=work)
        np.testing.assert_allclose(strategy.of_spans(low, high), expected, rtol=1e-6)


@pytest.mark.parametrize("fewer", [{"waves": 2}, {"wave_entries": 2 * LINE}])
def test_low_frequencies_that_adapt_gain_percents(fewer):
    asked = [(Prefix((LINE,)).reweighted(smooth("bump")), 1.0)]
    with limited(line_matrix=0):
        _, many, _ = line(*asked, total=400.0)
        with limited(**fewer):
            _, few, _ = line(*asked, total=400.0)
    assert few.loss > 1.02 * many.loss


def test_several_families_on_one_attribute_gain_by_a_centre_on_every_set():
    schema = qs.Schema.of(a=100, sex=2, region=4)
    workload = qs.queries(schema, a="prefix") + qs.queries(schema, a="range", sex="identity")
    workload += qs.queries(schema, a="identity", region="identity")
    plan = qs.plan(workload, COST)
    with limited(mixed_values=100):
        split = qs.plan(workload, COST)
    assert plan.weighted_rmse < split.weighted_rmse


# --- a few other rows ---------------------------------------------------------------------------


@fewer(40)
@given(st.data())
def test_a_few_rows_on_a_line_are_certified(data):
    size = data.draw(st.integers(4, 24))
    made = data.draw(st.lists(st.sampled_from([Prefix, Range, Identity, Circular]), max_size=2, unique=True))
    asked = [(kind((size,)), data.draw(st.floats(0.1, 10))) for kind in made]
    rows = data.draw(matrices(data.draw(st.integers(1, 3)), size))
    asked.append((Rows((size,), rows), data.draw(st.sampled_from([0.1, 1.0, 1e3]))))  # perhaps alone
    gram = LineGram.of(size, asked, data.draw(st.sampled_from([0.0, 2.0])))
    dense = sum(c * f.gram() for f, c in asked) + gram.total
    with limited(line_matrix=0):
        found = solve_line(gram)
    V = whole_gram(found.strategy)
    assert np.diag(V).max() <= 1 + 1e-9
    assert found.loss == pytest.approx(np.trace(dense @ np.linalg.inv(V)), rel=1e-6)
    p = np.full(size, 1 / size)
    for _ in range(200):
        values, vectors = np.linalg.eigh(np.sqrt(np.outer(p, p)) * dense)
        v = (vectors**2 @ np.sqrt(np.maximum(values, 0))) / np.maximum(p, 1e-300)
        p = np.maximum(p * v**2, 1e-30)
        p /= p.sum()
    np.testing.assert_array_less(found.bound, np.square((p * v).sum()) * (1 + 1e-3) + 1e-9)


@pytest.mark.parametrize(("asked", "total"), [(SUM, 0.0), (SUM, 1.0), (SUMS, 5.0)])
def test_a_few_rows_alone_are_nearly_optimal(asked, total):
    _, found, dense = line((asked, 1.0), total=total)
    assert found.loss == pytest.approx(np.trace(dense @ np.linalg.inv(whole_gram(found.strategy))), rel=1e-7)
    assert np.sqrt(found.loss / found.bound) - 1 <= 0.002


@pytest.mark.parametrize("missing", [None, "missing"])
def test_sums_beside_lines_are_near_the_best_however_much_they_weigh(missing):
    number = qs.Number("income", 0, 1_999, missing=missing)
    schema = qs.Schema([number, qs.Categorical("sex", ["F", "M"])])
    for family, by in (("prefix", {}), ("range", {}), ("prefix", {"sex": "identity"})):
        counts = qs.queries(schema, income=family)
        means = qs.queries(schema, income="sum") + qs.means(schema, "income", by="sex")
        for weight in (0.1, 1, 10):
            workload = counts + qs.queries(schema, income=family, **by) + weight * len(counts) * means
            plan = qs.plan(workload, COST)
            assert has_lines(plan)
            assert plan.gap <= 0.003


def test_sums_keep_their_errors_in_integers():
    schema = qs.Schema([qs.Number("income", 0, 19_999), qs.Categorical("sex", ["F", "M"])])
    workload = qs.queries(schema, income="prefix") + 1e4 * qs.queries(schema, income="sum", sex="identity")
    plan = qs.plan(workload, COST)
    rounded = as_measured(plan, 10**7)
    assert (rounded.variances(workload) / plan.variances(workload)).max() <= 1.01


# --- ranges of given lengths -------------------------------------------------------------------


@fewer(40)
@given(st.data())
def test_the_bound_is_below_every_plan(data):
    size = data.draw(st.integers(2, 30))
    schema = qs.Schema.of(a=size)
    lengths = data.draw(st.lists(st.integers(1, size // 2), min_size=1, max_size=3, unique=True))
    count = sum(size - length + 1 for length in lengths)
    weights = np.array(data.draw(st.lists(st.floats(0.5, 2), min_size=count, max_size=count)))
    even = data.draw(st.sampled_from([0.0, 0.3]))
    workload = moving(schema, lengths, weights)
    asked = [(group.families[0], group.weight) for group in workload]
    bound = float(np.square(window_diagonal(LineGram.of(size, [*asked, (Identity((size,)), even)]))).sum())
    if even:
        workload = workload + even * qs.queries(schema, a="identity")
    assert 0 < bound <= qs.plan(workload, COST, centering="uniform").weighted_loss * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "lengths", "most"), [(2_048, [32], 2.41), (20_000, [7, 30], 2.25)])
def test_moving_sums_are_nearly_optimal(size, lengths, most):
    plan = qs.plan(moving(qs.Schema.of(a=size), lengths), COST)
    assert plan.rmse <= most
    assert plan.gap <= 0.01
