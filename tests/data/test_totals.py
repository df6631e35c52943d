"""Public totals from files and frames."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import querysmasher as qs
from querysmasher.data.totals import read_totals
from querysmasher.errors import DataError
from tests.release.tables import frame, random_counts

SCHEMA = qs.Schema(
    [qs.Categorical("state", ["NH", "VT", "ME"]), qs.Ordinal("sex", range(2)), qs.Ordinal("age", range(4))]
)
TABLE = random_counts(SCHEMA, 3, 500)
STATES = TABLE.sum(axis=(1, 2))
PLAN = qs.plan(qs.marginals(SCHEMA, [1, 2]), qs.zCDP(0.5), exact=qs.marginals(SCHEMA, ["state"]))
TOTALS = pd.DataFrame({"state": ["VT", "ME", "NH"], "count": STATES[[1, 2, 0]]})


def given(kind, tmp_path):
    match kind:
        case "pandas":
            return TOTALS
        case "polars":
            return pl.DataFrame(TOTALS.to_dict("list"))
        case "parquet":
            TOTALS.to_parquet(tmp_path / "t.parquet")
            return tmp_path / "t.parquet"
        case "csv":
            TOTALS.to_csv(tmp_path / "t.csv", index=False)
            return str(tmp_path / "t.csv")
    return [TOTALS]


@pytest.mark.parametrize("kind", ["pandas", "polars", "parquet", "csv", "list"])
def test_public_totals_are_read_and_published(kind, tmp_path):
    totals = given(kind, tmp_path)
    release = qs.measure(PLAN, frame(SCHEMA, TABLE), seed=1, public=totals)
    np.testing.assert_array_equal(release.marginal("state"), STATES)
    same = qs.measure(PLAN, frame(SCHEMA, TABLE), seed=1)
    np.testing.assert_array_equal(same.answer().values, release.answer().values)


def test_tables_of_several_sets_are_found_by_their_columns():
    one = pd.DataFrame({"sex": [0, 1], "count": [3, 4]})
    two = pd.DataFrame({"count": [5, 2], "age": [1, 0], "state": ["ME", "NH"]})
    first, second = read_totals(SCHEMA, (("age", "state"), ("sex",)), [one, two])
    assert second.tolist() == [3, 4]
    assert first.shape == (4, 3)
    assert (first[1, 2], first[0, 0], first.sum()) == (5, 2, 7)


def test_a_table_that_disagrees_is_refused_without_saying_where():
    """The error is the same wherever the tables disagree, and however much."""
    messages = set()
    for change in ([1, -1, 0], [0, 5, -5], [3, 0, 0], [0, 0, 1]):
        totals = TOTALS.assign(count=TOTALS["count"] + change)
        with pytest.raises(DataError) as caught:
            qs.measure(PLAN, frame(SCHEMA, TABLE), seed=1, public=totals)
        messages.add(str(caught.value))
    assert messages == {"public: the table disagrees with the public totals; nothing was measured"}


def test_neighbours_are_both_refused_or_both_measured():
    cells = np.flatnonzero(TABLE.ravel())
    for totals in (TOTALS, TOTALS.assign(count=[1, 2, 3])):
        outcomes = set()
        for cell in cells[:5]:
            other = TABLE.ravel().copy()
            other[cell] -= 1
            other[cell // 8 * 8 + (cell + 1) % 8] += 1  # in the same state
            try:
                qs.measure(PLAN, frame(SCHEMA, other.reshape(TABLE.shape)), seed=1, public=totals)
                outcomes.add("measured")
            except DataError as error:
                outcomes.add(str(error))
        assert len(outcomes) == 1


@pytest.mark.parametrize(
    ("totals", "message"),
    [
        (
            TOTALS.rename(columns={"count": "n"}),
            "expected tables with the columns state, count, got the columns state, n",
        ),
        (TOTALS.assign(sex=0), "got the columns state, count, sex"),
        ([TOTALS, TOTALS], "expected tables with the columns state, count"),
        (TOTALS.assign(state="XX"), "expected values of 'state' from the schema, got others"),
        (TOTALS.assign(count=[1, -1, 2]), "expected non-negative integers in the column 'count'"),
        (TOTALS.assign(count=[1.5, 1, 2]), "expected non-negative integers in the column 'count'"),
        (pd.concat([TOTALS, TOTALS]), "expected every combination of state once, got some repeated"),
        ("nowhere.csv", "there is no file 'nowhere.csv'"),
        (3, "expected a path, a dataframe or a list of them, got 3"),
    ],
)
def test_invalid_totals_are_refused_before_anything_is_read(totals, message, tmp_path):
    ledger = qs.Ledger(tmp_path / "l", limit=qs.zCDP(1, neighbours="replace_one"))
    with pytest.raises(DataError, match=f"public: .*{message}"):
        qs.measure(PLAN, frame(SCHEMA, TABLE), public=totals, ledger=ledger)
    assert not ledger.entries


def test_totals_without_exact_counts_are_refused():
    plan = qs.plan(qs.marginals(SCHEMA, 1), qs.zCDP(0.5))
    with pytest.raises(DataError, match="public: expected a plan with exact counts"):
        qs.measure(plan, frame(SCHEMA, TABLE), seed=1, public=TOTALS)
