"""True answers, for demonstrations: exact integers, against the plainest way to count."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.demo import true_answers
from tests.profiles import fewer
from tests.reference import query_rows
from tests.strategies import workloads


@fewer(60)
@given(workloads(), st.lists(st.integers(0, 10**6), max_size=40))
def test_against_the_queries_written_out(workload, cells):
    schema = workload.schema
    places = np.array(cells, dtype=np.int64) % np.prod(schema.sizes)
    columns = np.unravel_index(places, schema.sizes)
    values = {
        a.name: [None if p >= a.listed else (a.edges or a.values)[p] for p in column]
        for a, column in zip(schema, columns, strict=True)
    }
    types = {a.name: "string" if isinstance(a, qs.Categorical) else "Int64" for a in schema}
    found = true_answers(workload, pd.DataFrame(values).astype(types))
    rows = query_rows(workload)[0]
    expected = rows @ np.bincount(places, minlength=np.prod(schema.sizes))
    assert found.dtype == (np.int64 if np.array_equal(rows, np.rint(rows)) else np.float64)
    np.testing.assert_array_equal(found, expected)


def test_large_coefficients_stay_exact_and_fractions_stay_fractions():
    schema = qs.Schema.of(a=2)
    people = pd.DataFrame({"a": [0, 1, 1]})
    large = qs.linear(schema, ["a"], [[2**53, 2**53 - 1]])
    assert true_answers(large, people).tolist() == [2**53 + 2 * (2**53 - 1)]
    assert true_answers(qs.linear(schema, ["a"], [[0.5, 0.25]]), people).tolist() == [1.0]
    assert true_answers(qs.marginals(schema, [0, 1]), people).tolist() == [3, 1, 2]
