"""`where`: every predicate against Python's own reading of it, and every text that cannot be read."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher import conditions as module
from querysmasher.errors import PredicateError, UnknownAttributeError
from tests.predicates import ORDER, PEOPLE, row_of
from tests.profiles import fewer

NUMERIC = ("age", "hour", "flag", "one")


def by_python(schema, text):
    """The truth of a predicate on every cell of the domain, by Python itself."""
    rename = {name: f"v{i}" for i, name in enumerate(schema.names)}
    for name, short in rename.items():
        text = text.replace(f"`{name}`", short)
    cells = itertools.product(*(a.values for a in schema))
    names = [n if f"`{n}`" not in text else rename[n] for n in schema.names]
    spaces = [
        dict(zip(names, cell, strict=True)) | dict(zip(rename.values(), cell, strict=True)) for cell in cells
    ]
    return np.array([float(eval(text, {}, space)) for space in spaces])  # noqa: S307


@st.composite
def comparisons(draw):
    kind = draw(st.sampled_from(["value", "mirrored", "equal", "in", "chain", "arithmetic"]))
    name = draw(st.sampled_from(NUMERIC))
    sign = draw(st.sampled_from(ORDER))
    number = draw(st.sampled_from([-1, 0, 0.5, 1, 1.25, 2, 3, 7, 100]))
    if kind == "value":
        return f"{name} {sign} {number}"
    if kind == "mirrored":
        return f"{number} {sign} {name}"
    if kind == "chain":
        return f"{number} {sign} {name} {draw(st.sampled_from(ORDER))} {draw(st.integers(-1, 4))}"
    if kind == "arithmetic":
        a, b = (draw(st.sampled_from(NUMERIC)) for _ in range(2))
        ops = [draw(st.sampled_from("+-*")) for _ in range(3)]
        left = f"{a} {ops[0]} {b} {ops[1]} {draw(st.integers(0, 3))}"
        sign = draw(st.sampled_from([*ORDER, "==", "!="]))
        return f"{left} {sign} {draw(st.sampled_from(NUMERIC))} {ops[2]} 2"
    name = draw(st.sampled_from(PEOPLE.names))
    values = [repr(v) for v in PEOPLE[name].values]
    if kind == "equal":
        return f"{name} {draw(st.sampled_from(['==', '!=']))} {draw(st.sampled_from(values))}"
    chosen = ", ".join(draw(st.lists(st.sampled_from(values), max_size=3)))
    return f"{name} {draw(st.sampled_from(['in', 'not in']))} [{chosen}]"


conditions = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        st.lists(inner, min_size=2, max_size=4).map(" and ".join),
        st.lists(inner, min_size=2, max_size=3).map(" or ".join),
        inner.map(lambda t: f"not ({t})"),
    ),
    max_leaves=6,
)


@fewer(150)
@given(conditions)
def test_a_random_predicate_counts_what_python_says(text):
    np.testing.assert_array_equal(row_of(PEOPLE, text), by_python(PEOPLE, text))


@pytest.mark.parametrize(
    "text",
    [
        "18 <= age < 65",
        "age + age <= 2 * hour - 1",
        "age == hour - 0.5",
        "sex in ('F', 'M') and not sex == 'M'",
        'sex == "it\'s"',
        "sex in {'F'}",
        "flag == 1 or flag < True",
        "age <= -1",
        "age >= -1e9 and age < 9" + "9" * 400,
        "age + one < 9" + "9" * 300,
        "((((age == 1))))",
        "one == 7",
        " age == 1 ",
    ],
)
def test_a_chosen_predicate_counts_what_python_says(text):
    np.testing.assert_array_equal(row_of(PEOPLE, text), by_python(PEOPLE, text.strip()))


def test_backticks_quote_any_name_and_leave_texts_alone():
    schema = qs.Schema([qs.Ordinal("hours per week", range(4)), qs.Categorical("s", ["a`b`c", "d"])])
    np.testing.assert_array_equal(
        row_of(schema, "`hours per week` < 2 and 0 < `hours per week`"), [0, 0, 1, 1, 0, 0, 0, 0]
    )
    np.testing.assert_array_equal(row_of(schema, "s == 'a`b`c'"), [1, 0] * 4)


def test_names_that_look_like_our_own_are_only_names(refuses):
    with refuses(UnknownAttributeError, KeyError, "__quoted_0__"):
        qs.where(PEOPLE, "__quoted_0__ == 1")
    schema = qs.Schema([qs.Ordinal("__quoted_0__", range(2)), qs.Ordinal("x y", range(3))])
    np.testing.assert_array_equal(row_of(schema, "`x y` == 1 and __quoted_0__ == 1"), [0, 0, 0, 0, 1, 0])


def test_conditions_joined_by_and_stay_a_product_over_any_number_of_attributes():
    schema = qs.Schema.of({f"a{i}": 50 for i in range(60)})
    workload = qs.where(schema, " and ".join(f"a{i} < {i}" for i in reversed(range(60))))
    (group,) = workload.groups
    assert group.attributes == schema.names
    assert [f.cells for f in group.families] == [50] * 60
    assert [int(f.matrix().sum()) for f in group.families] == [min(i, 50) for i in range(60)]
    assert len(workload) == 1


def test_only_conditions_that_share_attributes_are_tied():
    (group,) = qs.where(PEOPLE, "age < 2 and sex == 'F' and age + hour < 3 and one == 7").groups
    assert group.attributes == ("age", "hour", "sex", "one")
    assert [f.shape for f in group.families] == [(4, 3), (3,), (1,)]


def test_the_words_of_the_query_are_the_predicate():
    workload = qs.where(PEOPLE, " sex == 'F' and age < 2 ", weight=3)
    assert list(workload.labels()) == ["sex == 'F' and age < 2"]
    assert workload.groups[0].weight == 3.0


# --- bins --------------------------------------------------------------------------------------

BINNED = qs.Schema([qs.Binned("x", edges=[0, 10, 25, 40])])
INSIDE = [[0, 5, 9.9], [10, 17, 24.9], [25, 30, 40]]
"""Numbers that fall into each bin: the left edge always, the right one only into the last."""


@pytest.mark.parametrize("sign", ORDER)
@pytest.mark.parametrize("edge", [0, 10, 25, 40])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_bin_is_counted_whole_or_not_at_all_or_the_predicate_is_refused(sign, edge, mirrored, refuses):
    text = f"{edge} {sign} x" if mirrored else f"x {sign} {edge}"
    truths = [{bool(eval(text, {"x": number})) for number in inside} for inside in INSIDE]  # noqa: S307
    if all(len(truth) == 1 for truth in truths):
        np.testing.assert_array_equal(row_of(BINNED, text), [float(t.pop()) for t in truths])
    else:
        with refuses(PredicateError, ValueError, "no bin is split"):
            qs.where(BINNED, text)


def test_bins_can_be_named():
    np.testing.assert_array_equal(row_of(BINNED, "x == '[10, 25)'"), [0, 1, 0])
    np.testing.assert_array_equal(row_of(BINNED, "x in ['[0, 10)', '[25, 40]']"), [1, 0, 1])
    np.testing.assert_array_equal(row_of(BINNED, "x >= '[10, 25)'"), [0, 1, 1])
    np.testing.assert_array_equal(row_of(BINNED, "10 <= x < 25"), [0, 1, 0])


@pytest.mark.parametrize("text", ["x < 5", "x == 10", "x != 3", "x < -1", "x + 1 < 3", "x < 41"])
def test_cutting_a_bin_is_refused(text, refuses):
    with refuses(PredicateError, ValueError, "x"):
        qs.where(BINNED, text)


def test_texts_with_an_order_are_compared_by_their_place():
    schema = qs.Schema([qs.Ordinal("level", ["none", "some", "much"])])
    np.testing.assert_array_equal(row_of(schema, "level >= 'some'"), [0, 1, 1])
    np.testing.assert_array_equal(row_of(schema, "'some' > level"), [1, 0, 0])


# --- what cannot be read -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "expected a string"),
        ("   ", "expected a string"),
        (None, "expected a string"),
        (5, "expected a string"),
        ("age >=", "cannot be read"),
        ("age >= 1 and", "cannot be read"),
        ("(age == 1", "a ( is not closed; write (age == 1)"),
        ("age = 1", "'=' is written '=='; write age == 1"),
        ("sex == F", "strings need quotes, as in sex == 'F'"),
        ("age == 1; sex == 'F'", "cannot be read"),
        ("age\0 == 1", "cannot be read"),
        ("`age == 1", "a quotation mark ` is not closed"),
        ("(" * 300 + "age == 1" + ")" * 300, "cannot be read"),
        ("not " * 20_000 + "age == 1", "nested too deeply"),
        ("-" * 20_000 + "1 < age", "nested too deeply"),
        ("+".join(["age"] * 20_000) + " < 1", "nested too deeply"),
        ("age", "not a condition"),
        ("1", "not a condition"),
        ("age + 1", "not a condition"),
        ("f(age)", "not a condition"),
        ("age and sex == 'F'", "not a condition"),
        ("lambda: age", "not a condition"),
        ("(x := 1)", "not a condition"),
        ("__import__('os').system('true')", "not a condition"),
        ("1 < 2", "name no attribute"),
        ("1 + 1 == 2", "name no attribute"),
        ("'a' == 'a'", "other than one attribute"),
        ("age is 1", "'is' is written '=='; write age == 1"),
        ("age is not 1", "'is not' is written '!='; write age != 1"),
        ("age in 5", "'in' needs"),
        ("age in sex", "'in' needs"),
        ("1 in [1, 2]", "'in' needs"),
        ("age + 1 in [1]", "'in' needs"),
        ("age in [hour]", "not a value"),
        ("age in [[1]]", "not a value"),
        ("age == None", "not a value"),
        ("age == b'x'", "not a value"),
        ("age == ...", "not a value"),
        ("age == 1j", "not a value"),
        ("age == [1]", "not a value"),
        ("age == {}", "not a value"),
        ("age == {[1]}", "neither an attribute, a value"),
        ("age == {[1]: 2}", "neither an attribute, a value"),
        ("age == 4", "no value 4"),
        ("age != 1.5", "no value 1.5"),
        ("age == 'F'", "no value 'F'"),
        ("sex == 'X'", "no value 'X'"),
        ("sex in ['F', 'X']", "no value 'X'"),
        ("sex < 'M'", "categorical"),
        ("'M' >= sex", "categorical"),
        ("age < 'x'", "no value 'x'"),
        ("sex == age", "not numbers"),
        ("sex + 1 == 2", "not numbers"),
        ("age + 'x' == 2", "other than one attribute"),
        ("age / 2 == 1", "+ - *"),
        ("age ** 2 == 1", "+ - *"),
        ("age % 2 == 1", "+ - *"),
        ("-age < 1", "+ - *"),
        ("f(age) == 1", "+ - *"),
        ("age.real == 1", "+ - *"),
        ("age[0] == 1", "+ - *"),
        ("age == f'{1}'", "+ - *"),
        ("age + 0 < 9" + "9" * 400, "too large"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_text_that_is_no_predicate_is_refused_with_the_reason(text, word, refuses):
    with refuses(PredicateError, ValueError, "predicate", word):
        qs.where(PEOPLE, text)


def test_unknown_attributes_are_named(refuses):
    with refuses(UnknownAttributeError, KeyError, "'agee'", "did you mean 'age'"):
        qs.where(PEOPLE, "agee == 1")
    with refuses(UnknownAttributeError, KeyError, "'no such'"):
        qs.where(PEOPLE, "`no such` == 1")
    with refuses(UnknownAttributeError, KeyError, "'G'"):
        qs.where(PEOPLE, "sex == G")


def test_conditions_that_tie_too_many_cells_are_refused(monkeypatch, refuses):
    schema = qs.Schema.of({f"a{i}": 10 for i in range(40)})
    tied = " or ".join(f"a{i} == 1" for i in range(40))
    with refuses(PredicateError, ValueError, "ties 8 attributes", "100,000,000 cells"):
        qs.where(schema, tied)
    monkeypatch.setattr(module, "MAX_CELLS", 100)
    assert len(qs.where(schema, "a0 == 1 or a1 == 1")) == 1
    with refuses(PredicateError, ValueError, "ties 3 attributes"):
        qs.where(schema, "a0 == 1 or a1 == 1 or a2 == 1")


def test_values_out_of_numeric_order_compare_by_position_as_prefixes_do():
    schema = qs.Schema([qs.Ordinal("x", [3, 1, 2])])
    (family,) = qs.where(schema, "x <= 1").groups[0].families
    np.testing.assert_array_equal(family.matrix(), [[1, 1, 0]])
