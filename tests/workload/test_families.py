"""Families: rows by their definition, Grams by their rows, words by their meaning, weights, chosen ranges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import WorkloadError
from querysmasher.workload import family as module
from querysmasher.workload.families import CircleBeside, Circular, Identity, Prefix, Range, by_length
from querysmasher.workload.joint import AbsDifference, Affine, RandomQueries, Rows
from querysmasher.workload.registry import family_from_json, workload_from_data, workload_to_data
from tests.profiles import fewer
from tests.strategies import attributes, families, integer_arrays, joint_families, matrices

SIZES = range(1, 8)
NAMED = [Identity, Prefix, Range, Circular]
SHAPES = [(1, 1), (1, 4), (4, 1), (3, 3), (2, 5), (5, 3)]


def by_definition(family, n):
    """The queries of a named family, each as the set of the values that it counts."""
    if family is Identity:
        return [{c} for c in range(n)]
    if family is Prefix:
        return [set(range(c + 1)) for c in range(n)]
    if family is Range:
        return [set(range(b, c + 1)) for b in range(n) for c in range(b, n)]
    return [
        {(start + step) % n for step in range(length)} for start in range(n) for length in range(1, n + 1)
    ]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("family", NAMED)
def test_rows_of_named_families_are_their_definition(family, n):
    counted = by_definition(family, n)
    rows = np.array([[float(value in query) for value in range(n)] for query in counted])
    np.testing.assert_array_equal(family((n,)).matrix(), rows)
    assert family((n,)).rows == len(rows)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("family", NAMED)
def test_closed_form_grams_equal_the_written_out_ones(family, n):
    W = family((n,)).matrix()
    np.testing.assert_array_equal(family((n,)).gram(), W.T @ W)


@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_circular_ranges_beside_further_values(around, beside, data):
    family = CircleBeside((around + beside,), around)
    queries = [*by_definition(Circular, around), *({around + i} for i in range(beside))]
    W = np.array([[float(value in query) for value in range(around + beside)] for query in queries])
    np.testing.assert_array_equal(family.matrix(), W)
    np.testing.assert_array_equal(family.gram(), W.T @ W)
    weights = data.draw(integer_arrays((len(W),), 1, 9)).astype(float)
    np.testing.assert_allclose(family.weighted_gram(weights), (W.T * weights) @ W)
    table = data.draw(integer_arrays((around + beside, 2), 0, 9))
    np.testing.assert_array_equal(family.answers(table), W @ table)
    values = data.draw(integer_arrays((len(W), 2), -3, 3)).astype(float)
    np.testing.assert_allclose(family.spread(values), W.T @ values)
    assert family_from_json(family.to_json()) == family


def test_values_beside_the_others_have_no_index_to_compare(refuses):
    schema = qs.Schema([qs.Ordinal("a", range(3)), qs.Ordinal("b", range(3), missing="missing")])
    for compared in (qs.affine, qs.abs_difference):
        with refuses(WorkloadError, ValueError, "'b'", "'missing' stands beside the others", "qs.where"):
            compared(schema, "a", "b")


@pytest.mark.parametrize("shape", SHAPES)
def test_comparisons_of_two_attributes_are_their_definition(shape):
    cells = [(a, b) for a in range(shape[0]) for b in range(shape[1])]
    affine = [[float(a + b <= c) for a, b in cells] for c in range(sum(shape) - 1)]
    apart = [[float(abs(a - b) <= c) for a, b in cells] for c in range(max(shape))]
    np.testing.assert_array_equal(Affine(shape).matrix(), affine)
    np.testing.assert_array_equal(AbsDifference(shape).matrix(), apart)


@given(st.data())
def test_every_gram_is_the_weighted_sum_of_outer_products(data):
    if data.draw(st.booleans()):
        family = data.draw(families(data.draw(attributes("x"))))
    else:
        family = data.draw(joint_families(data.draw(st.sampled_from([*SHAPES, (2, 1, 3)]))))
    W = family.matrix()
    weights = np.ones(len(W)) if family.weights is None else family.weights
    expected = sum(w * np.outer(row, row) for w, row in zip(weights, W, strict=True))
    np.testing.assert_allclose(family.gram(), expected, rtol=1e-12, atol=1e-12)
    assert W.shape == (family.rows, family.cells)


@fewer(60)
@given(st.data())
def test_answers_are_the_rows_applied_to_a_table(data):
    shape = data.draw(st.sampled_from([(1,), (4,), (2, 3), (3, 3)]))
    if len(shape) == 1:
        attribute = qs.Ordinal("x", range(shape[0]))
        family = data.draw(families(attribute))
    else:
        family = data.draw(joint_families(shape))
    table = data.draw(integer_arrays((*shape, 2, 3), 0, 9)).astype(float)
    expected = np.tensordot(family.matrix().reshape(-1, *shape), table, axes=len(shape))
    np.testing.assert_allclose(family.answers(table), expected, atol=1e-9)


@pytest.mark.parametrize("family", [Affine, AbsDifference])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_family_is_symmetric_exactly_when_exchanging_its_axes_changes_nothing(family, shape):
    rows = family(shape).matrix().reshape(-1, *shape)
    exchanged = rows.transpose(0, 2, 1)
    assert family(shape).is_symmetric == (rows.shape == exchanged.shape and bool((rows == exchanged).all()))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("family", [Identity, Prefix, Range])
def test_words_mean_what_the_rows_count(family, n):
    attribute = qs.Ordinal("x", [10 * i for i in range(n)])
    said = family((n,)).labels([attribute])
    heard = [[float(eval(words, {"x": value})) for value in attribute.values] for words in said]  # noqa: S307
    np.testing.assert_array_equal(family((n,)).matrix(), heard)


@pytest.mark.parametrize("shape", SHAPES)
def test_words_of_comparisons_mean_what_the_rows_count(shape):
    pair = [qs.Ordinal("x", range(shape[0])), qs.Ordinal("y", range(shape[1]))]
    cells = [(a, b) for a in range(shape[0]) for b in range(shape[1])]
    for family in (Affine(shape), AbsDifference(shape)):
        said = [words.replace("|x - y|", "abs(x - y)") for words in family.labels(pair)]
        heard = [[float(eval(words, {"x": a, "y": b})) for a, b in cells] for words in said]  # noqa: S307
        np.testing.assert_array_equal(family.matrix(), heard)


def test_words_of_arcs_name_their_two_ends():
    said = Circular((3,)).labels([qs.Cyclic("hour", [8, 16, 24])])
    assert said[:4] == ["hour == 8", "hour in 8 .. 16", "hour in 8 .. 24", "hour == 16"]
    assert said[7] == "hour in 24 .. 8"  # start 24, two hours: it wraps
    np.testing.assert_array_equal(Circular((3,)).matrix()[7], [1, 0, 1])
    assert len(said) == 9


def test_random_queries_are_zeros_and_ones_with_the_asked_frequency():
    W = RandomQueries((40, 50), 30, 0.3, seed=5).matrix()
    assert set(np.unique(W)) == {0.0, 1.0}
    assert W.mean() == pytest.approx(0.3, abs=0.01)  # five standard deviations
    np.testing.assert_array_equal(W, RandomQueries((40, 50), 30, 0.3, seed=5).matrix())
    assert (RandomQueries((40, 50), 30, 0.3, seed=6).matrix() != W).any()


def test_families_are_alike_exactly_when_their_queries_are():
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert Rows((2,), rows) == Rows((2,), rows.copy())
    assert hash(Rows((2,), rows)) == hash(Rows((2,), rows.copy()))
    assert Rows((2,), rows, np.ones(2)) == Rows((2,), rows)
    assert Rows((2,), rows) != Rows((2,), rows[::-1])
    assert Rows((2,), rows, np.array([1.0, 2.0])) != Rows((2,), rows)
    assert Rows((2,), rows, row_labels=("a", "b")) != Rows((2,), rows)
    assert Identity((2,)).key != Prefix((2,)).key
    assert Identity((2,)).key != Identity((3,)).key
    assert Affine((2, 3)).key != Affine((3, 2)).key
    assert RandomQueries((2, 3), 4, 0.5, 1).key != RandomQueries((2, 3), 4, 0.5, 2).key


def test_weights_are_never_mistaken_for_another_row():
    weighted = Rows((2,), np.eye(2), np.array([2.0, 3.0]))
    longer = Rows((2,), np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]]))
    assert weighted.key != longer.key
    assert weighted != longer


def test_a_matrix_can_be_changed_afterwards_without_changing_the_family():
    given_rows = np.eye(3)
    family = Rows((3,), given_rows)
    given_rows[0, 0] = 7
    assert family.matrix()[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        family.matrix()[0, 0] = 7


def test_a_matrix_too_large_to_write_out_is_refused_with_its_size(refuses):
    with refuses(WorkloadError, ValueError, "circular", "4,000,000 queries", "64 GB"):
        Circular((2_000,)).matrix()
    assert Circular((2_000,)).gram().shape == (2_000, 2_000)  # stated all the same


def test_the_limit_on_matrices_is_where_it_says(monkeypatch, refuses):
    monkeypatch.setattr(module, "MAX_MATRIX_ENTRIES", 16)
    assert Identity((4,)).matrix().size == 16
    with refuses(WorkloadError, ValueError):
        Identity((5,)).matrix()


@given(st.data())
def test_a_family_comes_back_from_plain_data(data):
    family = data.draw(st.one_of(families(data.draw(attributes("x"))), joint_families((2, 3))))
    again = family_from_json(family.to_json())
    assert again == family
    assert str(again) == str(family)
    np.testing.assert_array_equal(again.matrix(), family.matrix())


# --- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "more", "words"),
    [
        ([[1, 0]], {}, ["expected 3 columns", "got 2"]),
        (np.zeros((0, 3)), {}, ["at least one row"]),
        ([1, 0, 0], {}, ["2 dimensions"]),
        ([[1, 0, np.nan]], {}, ["finite"]),
        ([[1, 0, -np.inf]], {}, ["finite"]),
        ([["a", "b", "c"]], {}, ["numbers"]),
        ([[1, 0, 0]], {"row_weights": [0.0]}, ["weights", "positive"]),
        ([[1, 0, 0]], {"row_weights": [-1.0]}, ["weights", "positive"]),
        ([[1, 0, 0]], {"row_weights": [np.inf]}, ["weights", "finite"]),
        ([[1, 0, 0]], {"row_weights": [1.0, 1.0]}, ["weights", "expected 1"]),
        ([[1, 0, 0]], {"row_labels": ("a", "b")}, ["labels", "expected 1"]),
    ],
)
def test_rows_that_cannot_be_are_refused(rows, more, words, refuses):
    with refuses(WorkloadError, ValueError, *words):
        Rows((3,), rows, **more)


@given(st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(lambda shape: matrices(*shape)))
def test_custom_rows_are_taken_as_they_are(rows):
    family = qs.queries(qs.Schema.of(x=rows.shape[1]), x=rows.tolist()).groups[0].families[0]
    np.testing.assert_array_equal(family.matrix(), rows)


# --- other weights -----------------------------------------------------------------------------


@given(st.data())
def test_the_weighted_gram_matrix_is_that_of_the_weighted_rows(data):
    attribute = data.draw(attributes("a", 7))
    family = data.draw(families(attribute))
    own = st.lists(st.floats(1e-3, 1e3), min_size=family.rows, max_size=family.rows)
    u = np.array(data.draw(own))
    again = family.reweighted(u)
    W = family.matrix()
    np.testing.assert_allclose(again.gram(), W.T @ (u[:, None] * W), rtol=1e-9, atol=1e-12 * u.sum())
    np.testing.assert_array_equal(again.matrix(), W)
    assert again.labels([attribute]) == family.labels([attribute])
    assert (again.rows, again.closed_form, str(again)) == (family.rows, family.closed_form, str(family))


@given(st.integers(1, 7).flatmap(lambda n: st.lists(st.floats(1e-3, 1e3), min_size=n, max_size=n)))
def test_circular_ranges_weighed_by_length_look_the_same_from_every_value(lengths):
    family = Circular((len(lengths),))
    u = np.tile(lengths, len(lengths))
    again = family.reweighted(u)
    W = family.matrix()
    assert again.looks_alike
    np.testing.assert_allclose(again.gram(), W.T @ (u[:, None] * W), rtol=1e-9)
    np.testing.assert_allclose(by_length(u), u, rtol=1e-12)
    uneven = u.copy()
    uneven[0] *= 2
    assert family.reweighted(uneven).looks_alike == (len(lengths) == 1)


def test_weights_distinguish_families():
    (family,) = qs.queries(qs.Schema.of(a=3), a="prefix").groups[0].families
    one, two = (
        family.reweighted(np.array([1.0, 2, 3])),
        family.reweighted(np.array([1.0, 2, 4])),
    )
    assert one == family.reweighted(np.array([1.0, 2, 3]))
    assert len({one, two, family}) == 3
    assert one.key != family.key
    with pytest.raises(NotImplementedError):
        one.to_json()


# --- chosen ranges -----------------------------------------------------------------------------

AGES = qs.Schema.of(age=9, sex=2)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=9), st.booleans())
def test_answers_are_those_of_the_rows(pairs, weighted):
    first, last = np.sort(np.array(pairs), axis=1).T
    weights = np.arange(1.0, len(pairs) + 1) if weighted else None
    family = qs.ranges(AGES, "age", first, last, weights)
    table = np.arange(18.0).reshape(9, 2) ** 2
    np.testing.assert_allclose(family.answers(table), family.matrix() @ table)
    assert [tuple(np.flatnonzero(row)[[0, -1]]) for row in family.matrix()] == list(
        zip(first.tolist(), last.tolist(), strict=True)
    )
    workload = qs.queries(AGES, age=family, sex="identity")
    again = workload_from_data(workload_to_data(workload))
    assert again == workload
    labels = list(workload.labels())
    assert labels[0] == f"{first[0]} <= age <= {last[0]} and sex == 0"


def test_one_end_for_all():
    assert qs.ranges(AGES, "age", 0, [3, 5]).matrix().sum(axis=1).tolist() == [4, 6]


@pytest.mark.parametrize(
    ("first", "last", "weights", "why"),
    [
        ([0, 1], [1, 2, 3], None, "as many"),
        ([3], [2], None, "first <= last"),
        ([0], [9], None, "0 to 8"),
        ([-1], [3], None, "0 to 8"),
        ([0.5], [3], None, "integers"),
        (["a"], [3], None, "integers"),
        ([[0]], [3], None, "integers"),
        ([], [], None, "expected"),
        ([0], [3], [0.0], "positive"),
        ([0], [3], [1.0, 2.0], "one per range"),
    ],
)
def test_bad_ranges_are_refused(first, last, weights, why):
    with pytest.raises(WorkloadError, match=why):
        qs.ranges(AGES, "age", first, last, weights)


def test_small_plans_take_weighted_ranges():
    family = qs.ranges(AGES, "age", 0, np.arange(9), np.arange(1.0, 10.0))
    workload = qs.queries(AGES, age=family)
    rows = qs.linear(AGES, ["age"], np.tri(9), weights=np.arange(1.0, 10.0))
    budget = qs.PrivacyCost(1.0)
    assert qs.plan(workload, budget).weighted_loss == pytest.approx(
        qs.plan(rows, budget).weighted_loss, rel=1e-3
    )
