"""Queries written as predicates: `where` reads them back as the same queries."""

import datetime as dt

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from tests.reference import query_rows

DAYS = [dt.date(2024, 3, 1), dt.date(2024, 3, 2), dt.date(2024, 4, 1)]
SCHEMA = qs.Schema(
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


@given(st.sampled_from(SCHEMA.attributes), st.sampled_from(["identity", "prefix", "range", "circular"]))
def test_families_on_one_attribute(attribute, family):
    if not attribute.ordered and family != "identity":
        return
    schema = qs.Schema([attribute])
    same_queries(qs.queries(schema, {attribute.name: family}))


def test_products_and_others():
    small = qs.Schema(SCHEMA.attributes[:3])
    same_queries(qs.all_kway(small, [1, 2]))
    month = qs.Schema([SCHEMA["month"], SCHEMA["sex"]])
    same_queries(qs.queries(month, month="circular", sex="identity"))
    pair = qs.Schema([SCHEMA["class"], SCHEMA["b"]])
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
