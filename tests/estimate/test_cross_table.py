"""Estimated cross-tables: cells, totals and percentages, without standard errors, marked as biased."""

import numpy as np
import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher.errors import UnknownAttributeError, WorkloadError
from querysmasher.estimate.estimate import NOTE
from tests.estimate.test_estimate import release_of


@pytest.fixture(scope="module")
def estimate():
    return release_of()[0].estimate()


def test_totals_are_sums_of_the_cells(estimate):
    table = estimate.table("c", "e")
    cells = np.asarray(estimate.marginal("c", "e"))
    assert table.values.shape == (5, 4)
    np.testing.assert_allclose(table.values[:-1, :-1], cells)
    np.testing.assert_allclose(table.values[-1, :-1], cells.sum(axis=0))
    assert table[None, None] == pytest.approx(estimate.total)
    assert table[2, None] == pytest.approx(cells[2].sum())
    np.testing.assert_allclose(estimate.table("c", "e", totals=False).values, cells)
    assert not hasattr(table, "std")
    assert not hasattr(table, "interval")


@pytest.mark.parametrize(("percent", "axes"), [("row", -1), ("column", 0), ("total", (0, 1))])
def test_percentages_are_of_rows_columns_or_all(estimate, percent, axes):
    table = estimate.table("c", "e", percent=percent, totals=False)
    np.testing.assert_allclose(table.values.sum(axis=axes), 100)
    shown = estimate.table("c", "e", percent=percent)
    np.testing.assert_allclose(shown.values[:-1, :-1], table.values)
    assert shown[None, None] == pytest.approx(100)
    assert "%" in repr(shown)
    of = {"row": "of each row", "column": "of each column", "total": "of the total"}[percent]
    assert f"Percent {of}" in repr(shown)


def test_every_output_says_what_it_is(estimate):
    for table in (estimate.table("e"), estimate.table("a", "c", "e", percent="row")):
        assert NOTE in repr(table)
        assert NOTE in table._repr_html_()
        frame = table.to_frame("pandas")
        assert set(frame["note"]) == {NOTE}
        assert len(frame) == len(table)
    assert estimate.integers(seed=0).table("e").to_frame("pandas")["note"].iloc[0].endswith("at random")


def test_frames_are_long_or_wide(estimate):
    table = estimate.table("c", "e")
    long, wide = table.to_frame("pandas"), table.to_frame("pandas", wide=True)
    assert list(long.columns) == ["c", "e", "value", "note"]
    assert list(wide.columns) == ["c", "0", "1", "2", "Total"]
    np.testing.assert_allclose(wide.iloc[:, 1:].to_numpy(), table.values)
    np.testing.assert_allclose(long["value"].to_numpy(), table.values.ravel())
    assert long["c"].isna().sum() == 4


def test_percentages_of_nothing_are_missing():
    schema = qs.Schema.of(a=2, b=2).impossible("a == 0")
    frame = pa.table({"a": [1, 1, 1], "b": [0, 1, 1]})
    release = qs.measure(qs.plan(qs.marginals(schema, 2), qs.ApproxDP(50.0, 1e-6)), frame, seed=0)
    table = release.estimate().table("a", "b", percent="row")
    assert np.isnan(table.values[0]).all()
    assert "·" in repr(table)
    assert table.to_frame("pandas")["value"].isna().sum() == 3


def test_what_is_no_table_is_refused(estimate):
    with pytest.raises(WorkloadError, match="at least one attribute"):
        estimate.table()
    with pytest.raises(WorkloadError, match="percent: expected 'total' or None, got 'row'"):
        estimate.table("a", percent="row")
    with pytest.raises(WorkloadError, match="no totals"):
        estimate.table("a", totals=False)[None]
    with pytest.raises(UnknownAttributeError, match="unknown"):
        estimate.table("zip")
