"""The schema about which predicates are written, and the one row that a predicate asks for."""

import querysmasher as qs
from tests.reference import query_rows

PEOPLE = qs.Schema(
    [
        qs.Ordinal("age", [0, 1, 2, 3]),
        qs.Categorical("sex", ["F", "M", "it's"]),
        qs.Cyclic("hour", [0.5, 1.5, 2.5]),
        qs.Ordinal("flag", [False, True]),
        qs.Ordinal("one", [7]),
    ]
)


ORDER = ("<", "<=", ">", ">=")


def row_of(schema, text):
    rows, weights = query_rows(qs.where(schema, text))
    assert rows.shape[0] == 1
    assert weights.tolist() == [1.0]
    return rows[0]
