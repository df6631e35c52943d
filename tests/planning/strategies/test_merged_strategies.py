"""Strategies over merged cells: against their rows written out, in integers, and from hostile files."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher import arrays
from querysmasher.errors import PlanError
from querysmasher.planning.cells import merge
from querysmasher.planning.lattice import independent, integer_rows
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies import (
    MergedStrategy,
    strategy_from_data,
    strategy_of_integers,
)
from querysmasher.planning.strategies import dense as dense_module
from querysmasher.planning.strategies.dense import Span
from querysmasher.planning.strategies.strategy import squared_lengths
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Merged
from querysmasher.privacy.integer_plan import IntegerStrategy
from tests.planning.exact import exact_rank
from tests.privacy.factors.drawn_factors import every_number
from tests.strategies import full_rank_matrices, integer_arrays


@st.composite
def merged_strategies(draw, axes=3):
    """Any partition of up to 64 cells, and independent integer rows over its columns, their own lattice."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=axes))
    maps = tuple(every_number(draw, n) for n in sizes)
    shape = tuple(int(one.max()) + 1 for one in maps)
    labels = every_number(draw, math.prod(shape)).reshape(shape)
    columns = int(labels.max()) + 1
    matrix = draw(full_rank_matrices(draw(st.integers(1, min(columns, 6))), columns))
    mixing = draw(full_rank_matrices(len(matrix), len(matrix)))
    return MergedStrategy(tuple(sizes), maps, labels, mixing @ matrix / 7, matrix.astype(np.int64))


@st.composite
def product_rows(draw, shape):
    """Rows on disjoint sets of axes that cover all of them, in any order."""
    axes = draw(st.permutations(range(len(shape))))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(shape) - 1)), max_size=2)))
    bounds = [0, *(c for c in cuts if c < len(shape)), len(shape)]
    factors = []
    for low, high in itertools.pairwise(bounds):
        own = tuple(sorted(axes[low:high]))
        cells = math.prod(shape[a] for a in own)
        rows = draw(integer_arrays((draw(st.integers(1, 3)), cells))).astype(float)
        factors.append((own, rows))
    return factors


def products(shape, factors):
    """All products of one row per factor, as rows over all cells."""
    order = [a for axes, _ in factors for a in axes]
    result = []
    for chosen in itertools.product(*(rows for _, rows in factors)):
        tensor = np.ones(())
        for (axes, _), row in zip(factors, chosen, strict=True):
            tensor = np.multiply.outer(tensor, row.reshape([shape[a] for a in axes]))
        result.append(tensor.transpose(np.argsort(order)).ravel())
    return np.array(result)


def rows_of(strategy):
    """The rows of a strategy by its definition, cell by cell."""
    cells = itertools.product(*map(range, strategy.shape))
    labels = [strategy.labels[tuple(m[v] for m, v in zip(strategy.maps, c, strict=True))] for c in cells]
    return strategy.matrix[:, labels]


@settings(max_examples=100, deadline=None)
@given(strategy=merged_strategies(), data=st.data(), chunk=st.sampled_from([1, 50, 10**6]))
def test_variances_and_membership_are_those_of_the_rows_written_out(strategy, data, chunk):
    dense = rows_of(strategy)
    inverse = np.linalg.pinv(dense)
    own = [(tuple(range(len(strategy.shape))), dense)]
    factors = data.draw(st.one_of(product_rows(strategy.shape), st.just(own)))
    queries = products(strategy.shape, factors)
    expected = ((queries @ inverse) ** 2).sum(axis=1)
    rest = ((queries - queries @ inverse @ dense) ** 2).sum(axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_module, "CHUNK", chunk)
        found = strategy.variances(factors)
        inside = strategy.contains(factors)
    assert found.shape == tuple(len(rows) for _, rows in factors)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-8, atol=1e-10 * expected.max(initial=1))
    assert inside == bool(np.all(rest <= 1e-9 * squared_lengths(factors).ravel()))
    image = strategy.transform(queries.reshape(1, -1, *strategy.shape))
    assert image.shape == (1, len(queries), strategy.rank)
    np.testing.assert_allclose(
        image[0] @ image[0].T, queries @ inverse @ inverse.T @ queries.T, atol=1e-8 * expected.max(initial=1)
    )


def test_contrasts_within_classes_along_both_axes_are_outside():
    """Their sums over every class are zero along each axis: nothing of them is left on coarse cells."""
    maps, labels = (np.array([0, 0, 1]), np.array([0, 1, 1])), np.arange(4).reshape(2, 2)
    strategy = MergedStrategy((3, 3), maps, labels, np.eye(4))
    one, other, equal = np.array([[1.0, -1, 0]]), np.array([[0.0, 1, -1]]), np.array([[2.0, 1, 1]])
    assert not strategy.contains([((0,), one), ((1,), other)])
    assert not strategy.contains([((0,), one), ((1,), equal)])
    assert not strategy.contains([((1,), equal), ((0,), one)])
    assert strategy.contains([((1,), equal), ((0,), np.array([[1.0, 1, 5]]))])


@settings(max_examples=60, deadline=None)
@given(strategy=merged_strategies(), bits=st.integers(6, 16))
def test_integer_rows_are_combinations_of_the_lattice(strategy, bits):
    rounded = strategy.rounded([], bits)
    ((axes, factor),) = rounded.factors
    assert axes == tuple(range(len(strategy.shape)))
    assert type(factor) is Merged
    assert factor.rows == strategy.rank
    again = strategy_of_integers(rounded)
    assert type(again) is MergedStrategy
    if bits >= 12:
        assert again.is_sound()
        assert again.contains([(axes, rows_of(strategy))])
    if bits >= 14:
        loss = strategy.rounding_loss(rounded)  # exact, or an upper bound where that is close
        dense = np.linalg.pinv(factor.written_out())
        found = ((rows_of(strategy) @ dense) ** 2).sum(axis=1).max() * float(squared_sensitivity(rounded))
        assert found <= loss * (1 + 1e-6)
        assert loss <= found * limits().good_loss ** 2 * (1 + 1e-6)


def test_large_rows_stay_on_their_lattice_exactly():
    rng = np.random.default_rng(1)
    lattice = rng.integers(-(2**20), 2**20, (3, 8))
    strategy = MergedStrategy(
        (8,), (np.arange(8),), np.arange(8), rng.standard_normal((3, 3)) @ lattice, lattice
    )
    ((_, factor),) = strategy.rounded([], 40).factors
    assert exact_rank([*lattice.tolist(), *factor.matrix.tolist()]) == 3
    assert strategy.rounding_loss(strategy.rounded([], 40)) / strategy.leverage < 1 + 1e-4


def test_short_rows_of_a_lattice_make_up_for_the_rounding_of_long_ones():
    """No combination is closer than half of what the long row has beyond the span of the short one."""
    lattice = np.array([[1, 2, 0], [144182860, 336426673, 192243813]])
    rows = np.array([[0.13328213, 0.03083613, -0.94291249], [0.45828307, 0.99952445, 0.33183329]])
    rows = rows @ np.linalg.pinv(lattice) @ lattice
    strategy = MergedStrategy((3,), (np.arange(3),), np.arange(3), rows, lattice)
    for bits in (30, 33, 36):
        ((_, factor),) = strategy.rounded([], bits).factors
        scale = np.vdot(factor.matrix, rows) / np.vdot(rows, rows)
        error = np.linalg.norm(factor.matrix / scale - rows, axis=1).max() * 2**bits
        assert error < 0.6 * 192243813 * math.sqrt(1.05) + 3


def test_rows_without_a_lattice_are_completed_to_all_columns(limit_planning):
    rng = np.random.default_rng(2)
    maps, labels = (np.array([0, 1, 0, 2]), np.array([0, 1])), np.array([[0, 1], [2, 3], [1, 2]])
    strategy = MergedStrategy((4, 2), maps, labels, rng.standard_normal((2, 4)))
    rounded = strategy.rounded([], 14)
    assert rounded.rows == (4,)
    again = strategy_of_integers(rounded)
    assert again.contains([((0, 1), rows_of(strategy))])
    planned = strategy.variances([((0, 1), rows_of(strategy))]) * strategy.leverage
    found = again.variances([((0, 1), rows_of(strategy))]) * float(squared_sensitivity(rounded))
    np.testing.assert_allclose(found, planned, rtol=0.02)
    assert strategy.obstacle() is None
    limit_planning(dense_cells=3)
    assert all(words in strategy.obstacle() for words in ("4 cells", "integers"))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), tame=st.booleans())
def test_spans_of_rows_far_apart(data, tame):
    """Against a pseudo-inverse of rows of one length; the lengths are up to 10^8 apart."""
    count = data.draw(st.integers(1, 4))
    rows = data.draw(full_rank_matrices(count, 40))
    scales = 10.0 ** np.array(data.draw(st.lists(st.integers(-4, 4), min_size=count, max_size=count)))
    roots = np.sqrt(data.draw(integer_arrays((40,), 1, 50)))
    inverse = np.linalg.pinv(rows * roots) / scales
    vectors = data.draw(integer_arrays((3, 40))).astype(float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "TAME", 1e3 if tame else 0.0)
        span = Span(rows * scales[:, None], roots)
        assert span.is_independent()
        found = vectors @ span.inverse
        inside = vectors @ span.basis
        images = data.draw(integer_arrays((2, count))).astype(float)
        turned = (images * scales) @ span.inverse.T
    np.testing.assert_allclose(found * scales, vectors @ inverse * scales, atol=1e-10)
    np.testing.assert_allclose(turned, images @ (inverse * scales).T, atol=1e-10)
    near = vectors @ inverse * scales @ (rows * roots)
    np.testing.assert_allclose((inside**2).sum(axis=1), (near**2).sum(axis=1), atol=1e-9)
    twice = Span(np.concatenate([rows, rows[:1] * 3]), roots)
    assert not twice.is_independent()
    assert not Span(np.concatenate([rows, rows[:1] * 0]), roots).is_independent()


def test_nearly_dependent_rows_keep_their_digits():
    """Condition number 10^6: from a Gram matrix, errors would be 10^12 times rounding."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((3, 200))
    rows[2] = rows[0] + rows[1] + 1e-6 * rows[2]
    exact = rng.integers(-5, 6, (4, 3)).astype(float)
    span = Span(rows, np.ones(200))
    np.testing.assert_allclose(exact @ rows @ span.inverse, exact, atol=1e-8)
    inside, whole = (np.linalg.norm(lengths, axis=1) for lengths in (exact @ rows @ span.basis, exact @ rows))
    np.testing.assert_allclose(inside, whole, rtol=1e-13)


def whole(workload, attributes):
    """The strategy that asks the queries themselves, of unit sensitivity."""
    found = merge(workload.schema, workload.groups, attributes)
    lattice = independent(integer_rows(found.rows))
    rows = lattice / math.sqrt((lattice**2).sum(axis=0).max())
    return MergedStrategy(found.shape, found.maps, found.labels, rows, lattice)


@pytest.mark.slow
def test_a_large_domain_is_not_written_out():
    """20 rows over 100,000 × 500 cells would be 8 GB of numbers."""
    schema = qs.Schema.of(a=100_000, b=500)
    workload = qs.Workload(
        schema,
        tuple(
            g for i in range(20) for g in qs.where(schema, f"a < {500 * i + 9} and b >= {i * 7 % 20}").groups
        ),
    )
    strategy = whole(workload, (0, 1))
    group = workload.groups[3]
    factors = [((axis,), family.matrix()) for axis, family in enumerate(group.families)]
    tracemalloc.start()
    assert strategy.contains(factors)
    assert strategy.variances(factors)[0, 0] == pytest.approx(1 / (strategy.matrix.max() ** 2), rel=1e-9)
    assert not strategy.contains([((0,), np.eye(1, 100_000)), ((1,), np.ones((1, 500)))])
    strategy.rounded([], 14)
    assert tracemalloc.get_traced_memory()[1] < 3e7
    tracemalloc.stop()


def test_only_a_merged_factor_on_all_axes_in_order_is_taken_for_one(refuses):
    maps, labels = (np.array([0, 1, 0]), np.array([0, 1])), np.array([[0, 1], [1, 0]])
    factor = Merged(maps, labels, np.array([[3, 1], [1, 2]]))
    one = IntegerStrategy((3, 2), (((0, 1), factor),))
    assert type(strategy_of_integers(one)) is MergedStrategy
    for other in (
        IntegerStrategy((2, 3), (((1, 0), factor),)),
        IntegerStrategy((3, 2), (((0, 1), factor),), np.array([1, 2])),
    ):
        with refuses(PlanError, ValueError, "one per axis"):
            strategy_of_integers(other)


SOUND = MergedStrategy(
    (3, 2),
    (np.array([0, 1, 0]), np.array([0, 1])),
    np.array([[0, 1], [2, 0]]),
    np.array([[0.5, 0.5, 0.0], [0.0, 0.5, -0.5]]),
    np.array([[1, 2, -1], [1, 0, 1]]),
)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("shape", lambda s: [2, 3]),
        ("shape", lambda s: [3]),
        ("shape", lambda s: [3.0, 2.0]),
        ("shape", lambda s: []),
        ("maps", lambda m: m[:1]),
        ("maps", tuple),
        ("maps", lambda m: [m[0] * 2, m[1]]),
        ("maps", lambda m: [m[0] - 1, m[1]]),
        ("maps", lambda m: [m[0].astype(float), m[1]]),
        ("maps", lambda m: [m[0] * 2**61, m[1]]),
        ("maps", lambda m: []),
        ("labels", lambda x: x.T.copy()[:1]),
        ("labels", lambda x: x.ravel()),
        ("labels", lambda x: x - 1),
        ("labels", lambda x: x * 2),
        ("labels", lambda x: x * 0),
        ("labels", lambda x: x.astype(float)),
        ("labels", lambda x: x.tolist()),
        ("matrix", lambda x: x[:, :2]),
        ("matrix", lambda x: x * np.nan),
        ("matrix", lambda x: x * 1e61),
        ("matrix", lambda x: x[:0]),
        ("matrix", lambda x: x * 0),
        ("matrix", lambda x: np.concatenate([x, x])),
        ("matrix", lambda x: x[[0, 0]]),
        ("matrix", lambda x: x.astype(int)),
        ("lattice", lambda x: x[:1]),
        ("lattice", lambda x: x + 1),
        ("lattice", lambda x: x[[0, 0]]),
        ("lattice", lambda x: x * 0),
        ("lattice", lambda x: x * 2**51),
        ("lattice", lambda x: np.full_like(x, -(2**63))),
        ("lattice", lambda x: x.astype(float)),
    ],
)
def test_what_no_merged_strategy_holds_is_refused(key, change):
    data = SOUND.to_data()
    assert strategy_from_data("merged", data).is_sound()
    data[key] = change(data[key])
    try:
        found = strategy_from_data("merged", data)
    except ValueError:
        return
    assert not found.is_sound()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_many_products_have_the_same_variances(data):
    """More products than rows are not written out."""
    strategy = data.draw(merged_strategies())
    factors = data.draw(product_rows(strategy.shape))
    few = [np.vstack([rows, [1.0] * rows.shape[1]]) for _, rows in factors]
    factors = [(axes, rows) for (axes, _), rows in zip(factors, few, strict=True)]
    expected = np.empty([len(rows) for _, rows in factors])
    for place in np.ndindex(expected.shape):
        one = [(axes, rows[[i]]) for (axes, rows), i in zip(factors, place, strict=True)]
        expected[place] = strategy.variances(one).item()
    assume(expected.min() > 1e-6 * expected.max())
    times = 2 * strategy.labels.size + 1
    axes, rows = factors[0]
    many = strategy.variances([(axes, np.repeat(rows, times, axis=0)), *factors[1:]])
    np.testing.assert_allclose(many, np.repeat(expected, times, axis=0), rtol=1e-7)
