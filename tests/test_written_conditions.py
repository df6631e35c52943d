"""Predicates on odd names and on dates, and queries written as predicates that read back the same."""

import math
import shutil
import subprocess
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PredicateError, UnknownAttributeError
from querysmasher.formatting import written_name
from tests.predicates import ORDER, PEOPLE, row_of
from tests.reference import query_rows

ODD_NAMES = (
    "hours-per-week",
    "hours per week",
    "class",
    "a.b",
    "1",
    "in",
    "a]b",
    "x`y",
    "[z]",
    "'q'",
    '"',
    "ﬁ",
    "-",
)
ODD = qs.Schema([qs.Ordinal(name, [0, 1, 2]) for name in ODD_NAMES])


@given(st.sampled_from(ODD_NAMES), st.sampled_from(ODD_NAMES), st.sampled_from(ORDER))
def test_every_name_can_be_written(first, second, sign):
    """As the name itself says where it is one for Python, and in brackets elsewhere."""
    text = f"{written_name(first)} {sign} 1 and not {written_name(second)} in [0, 1]"
    (group,) = qs.where(ODD, text).groups
    assert set(group.attributes) == {first, second}
    for family, names in ((f, n) for n, f in group.parts()):
        space = {"a": [0, 1, 2]}
        truth = [
            (names != (first,) or eval(f"v {sign} 1", {"v": v}))  # noqa: S307
            and (names != (second,) or v not in (0, 1))
            for v in space["a"]
        ]
        np.testing.assert_array_equal(family.matrix()[0], np.array(truth, dtype=float))


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("hours-per-week >= 1", "[hours-per-week] >= 1"),
        ("hours per week >= 1", "[hours per week] >= 1"),
        ("0 < hours per week", "0 < [hours per week]"),
        ("class == 1", "[class] == 1"),
        ("a.b == 1 and [class] == 0", "[a.b] == 1 and [class] == 0"),
    ],
)
def test_a_name_without_brackets_is_mended_in_the_message(text, mended, refuses):
    with refuses(PredicateError, ValueError, f"needs brackets: {mended}"):
        qs.where(ODD, text)
    assert len(qs.where(ODD, mended)) == 1


@pytest.mark.parametrize(
    "text",
    ["nothing == 1", "[hours-per-week] = 1", "[class] == 7", "[class] == 'a.b'", "[1] == 1 and 1 == 1"],
)
def test_brackets_are_not_proposed_where_they_are_not_missing(text):
    with pytest.raises(qs.QuerySmasherError) as caught:
        qs.where(ODD, text)
    assert "needs brackets" not in str(caught.value)


def test_an_unknown_name_in_brackets_is_named(refuses):
    with refuses(UnknownAttributeError, KeyError, "'hours-per-wek'", "did you mean 'hours-per-week'"):
        qs.where(ODD, "[hours-per-wek] > 1")
    np.testing.assert_array_equal(row_of(PEOPLE, "[age] in [0, 1]"), row_of(PEOPLE, "age in [0, 1]"))
    np.testing.assert_array_equal(row_of(PEOPLE, "[ age ] in[0]"), row_of(PEOPLE, "age in [0]"))


@settings(max_examples=20)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@given(st.sampled_from([n for n in ODD_NAMES if not set(n) & set("`\"'")]), st.sampled_from(["'", '"']))
def test_brackets_survive_a_shell(name, quote):
    predicate = f"{written_name(name)} >= 1"
    command = [shutil.which("bash"), "-c", f"printf %s {quote}{predicate}{quote}"]
    shown = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - our own command
    assert shown.stdout.decode() == predicate


# --- dates ---------------------------------------------------------------------------------------

DAYS = [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1), date(2024, 3, 5)]
DATED = qs.Schema([qs.Ordinal("day", DAYS)])


@given(
    st.sampled_from([*ORDER, "==", "!="]),
    st.sampled_from([*DAYS, date(2024, 3, 2), date(2023, 1, 1)]),
    st.booleans(),
)
def test_dates_compare_as_dates(sign, value, mirrored):
    text = f"'{value}' {sign} day" if mirrored else f"day {sign} '{value}'"
    if sign in ("==", "!=") and value not in DAYS:
        with pytest.raises(PredicateError, match=f"has no value '{value}'"):
            qs.where(DATED, text)
        return
    python = text.replace(f"'{value}'", "value")
    truth = [eval(python, {"day": day, "value": value}) for day in DAYS]  # noqa: S307
    np.testing.assert_array_equal(row_of(DATED, text), np.array(truth, dtype=float))


def test_dates_in_lists_and_chains():
    np.testing.assert_array_equal(row_of(DATED, "day in ['2024-02-29', '2024-03-05']"), [0, 1, 0, 1])
    np.testing.assert_array_equal(row_of(DATED, "'2024-02-29' <= day < '2024-03-05'"), [0, 1, 1, 0])
    unknown = qs.Schema([qs.Ordinal("day", [*DAYS, "unknown"], missing="unknown")])
    np.testing.assert_array_equal(row_of(unknown, "day == 'unknown'"), [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(row_of(unknown, "day < '2024-03-01'"), [1, 1, 0, 0, 0])


WITH_MISSING = qs.Schema(
    [
        qs.Ordinal("a", [3, 4, 7], missing="missing"),
        qs.Binned("b", edges=[0, 5, math.inf], missing="missing"),
        qs.Ordinal("c", ["low", "high"], missing="?"),
        qs.Cyclic("d", [1, 2, 3], missing=-1),
    ]
)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a >= 4", [0, 1, 1, 0]),
        ("a < 4.5", [1, 1, 0, 0]),
        ("not a >= 4", [1, 0, 0, 1]),
        ("a != 4", [1, 0, 1, 1]),
        ("a == 'missing'", [0, 0, 0, 1]),
        ("a in [3, 'missing']", [1, 0, 0, 1]),
        ("2 * a <= 8", [1, 1, 0, 0]),
        ("b >= 0", [1, 1, 0]),
        ("b >= 5", [0, 1, 0]),
        ("b < 5", [1, 0, 0]),
        ("b != 'missing'", [1, 1, 0]),
        ("c >= 'low'", [1, 1, 0]),
        ("d <= 2", [1, 1, 0, 0]),
    ],
)
def test_values_beside_the_others_have_no_place_in_their_order(text, row):
    name = next(name for name in WITH_MISSING.names if name in text.replace("in", "").split())
    np.testing.assert_array_equal(row_of(qs.Schema([WITH_MISSING[name]]), text), row)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("c <= '?'", "'\\?' has no place in the order of 'c'"),
        ("b <= 7", "one of its edges \\[0, 5\\], so that"),
    ],
)
def test_comparisons_that_values_beside_the_others_do_not_allow(text, word):
    with pytest.raises(PredicateError, match=word):
        qs.where(WITH_MISSING, text)


@pytest.mark.parametrize("name", WITH_MISSING.names)
@pytest.mark.parametrize("family", ["identity", "prefix", "range", "circular"])
def test_every_query_about_values_beside_the_others_is_stated_as_a_predicate(name, family):
    schema = qs.Schema([WITH_MISSING[name]])
    group = qs.queries(schema, {name: family}).groups[0]
    for said in (group.predicates(schema), *[group.labels(schema)] * (family != "circular")):
        stated = np.stack([row_of(schema, text) for text in said])
        np.testing.assert_array_equal(stated, group.families[0].matrix())


@pytest.mark.parametrize("edges", [[0, 5, math.inf], [-math.inf, 0, 5], [-math.inf, 5, math.inf]])
@pytest.mark.parametrize("family", ["identity", "prefix", "range"])
def test_every_query_about_open_ended_bins_is_stated_as_a_predicate(edges, family):
    schema = qs.Schema([qs.Binned("b", edges=edges)])
    group = qs.queries(schema, b=family).groups[0]
    stated = np.stack([row_of(schema, text) for text in group.predicates(schema)])
    np.testing.assert_array_equal(stated, group.families[0].matrix())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("day < 2024-03-01", "dates need quotes, as in '2024-03-01'"),
        ("day < 2024-10-12", "dates need quotes, as in '2024-10-12'"),
        ("day < '1.3.2024'", "'1.3.2024' is not a date; write it as in '2024-03-01'"),
        ("day < '20240301'", "is not a date"),
        ("day < '2024-02-30'", "is not a date"),
        ("day < 3", "no value 3"),
        ("day + 1 < 3", "not numbers"),
    ],
)
def test_what_is_no_date_is_refused(text, word, refuses):
    with refuses(PredicateError, ValueError, word):
        qs.where(DATED, text)


@pytest.mark.parametrize("family", ["identity", "prefix", "range"])
def test_the_words_of_queries_on_dates_are_predicates(family):
    workload = qs.queries(DATED, day=family)
    rows, _ = query_rows(workload)
    for label, row in zip(workload.labels(), rows, strict=True):
        np.testing.assert_array_equal(row_of(DATED, label), row)


# --- queries written as predicates ---------------------------------------------------------------


WRITTEN = qs.Schema(
    [
        qs.Categorical("sex", ["F", "M", 'it\'s "x"']),
        qs.Ordinal("hours-per-week", [10, 20.5, 40]),
        qs.Ordinal("level]", ["low", "middle", "high"]),
        qs.Binned("income", edges=[0, 10, 25.5, 100]),
        qs.Cyclic("month", [10, 11, 12, 1]),
        qs.Ordinal("day", DAYS),
        qs.Ordinal("class", range(3)),
        qs.Ordinal("b", range(4)),
        qs.Categorical("yes", [True, False]),
    ]
)


def same_queries(workload):
    rows, _ = query_rows(workload)
    written = list(workload.predicates())
    assert len(written) == len(rows)
    for text, row in zip(written, rows, strict=True):
        (read,), _ = query_rows(qs.where(workload.schema, text))
        np.testing.assert_array_equal(read, row, text)


@given(st.sampled_from(WRITTEN.attributes), st.sampled_from(["identity", "prefix", "range", "circular"]))
def test_families_on_one_attribute(attribute, family):
    if not attribute.ordered and family != "identity":
        return
    schema = qs.Schema([attribute])
    same_queries(qs.queries(schema, {attribute.name: family}))


def test_products_and_others():
    small = qs.Schema(WRITTEN.attributes[:3])
    same_queries(qs.all_kway(small, [1, 2]))
    month = qs.Schema([WRITTEN["month"], WRITTEN["sex"]])
    same_queries(qs.queries(month, month="circular", sex="identity"))
    pair = qs.Schema([WRITTEN["class"], WRITTEN["b"]])
    same_queries(qs.affine(pair, "class", "b") + qs.abs_difference(pair, "b", "class"))
    levels = qs.hierarchy(small, "sex", {"F": "one", "M": "two", 'it\'s "x"': "two"})
    same_queries(qs.queries(small, {"sex": levels, "hours-per-week": "prefix"}))
    same_queries(qs.queries(small, sex=[[1, 0, 1], [0, 1, 0]]))
    same_queries(qs.where(small, "sex == 'F' or [hours-per-week] < 40"))


def test_what_no_predicate_states_stays_in_words():
    schema = qs.Schema([qs.Ordinal("a", [5, 6]), qs.Ordinal("b", [7, 8])])
    assert next(qs.affine(schema, "a", "b").predicates()) == "index of a + index of b <= 0"
    assert next(qs.abs_difference(schema, "a", "b").predicates()) == "(0 <= index of a - index of b <= 0)"
    named = qs.linear(schema, ("a",), [[1, 0]], labels=["my name"])
    assert list(named.predicates()) == ["my name"]
    assert list(qs.queries(schema, a=[[0.5, 1]]).predicates()) == ["query 0 on a"]
    assert list(qs.marginals(schema, 0).predicates()) == ["total"]


def test_bins_are_written_by_their_edges():
    schema = qs.Schema([qs.Binned("income", edges=[-5, 0, 10.5])])

    def written(family):
        return list(qs.queries(schema, income=family).predicates())

    assert written("identity") == ["(-5 <= income < 0)", "0 <= income <= 10.5"]
    assert written("prefix") == ["income < 0", "income <= 10.5"]
    assert written("range") == ["(-5 <= income < 0)", "(-5 <= income <= 10.5)", "0 <= income <= 10.5"]
    assert list(qs.queries(schema, income="prefix").labels()) == written("prefix")
