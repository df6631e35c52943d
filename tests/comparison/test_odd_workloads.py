"""Workloads and options at the edge of what can be compared."""

import pytest

import querysmasher as qs
from querysmasher.comparison.hdmm import TEMPLATES, hdmm
from querysmasher.workload import family
from tests.builders import COST

pytestmark = pytest.mark.usefixtures("unmeasured")

SCHEMA = qs.Schema.of(a=3, b=2, c=1)
ASKED = qs.all_kway(SCHEMA, [0, 1, 2], "prefix")
NOTHING = qs.linear(SCHEMA, ["a"], [[0, 0, 0]])


@pytest.mark.parametrize("template", TEMPLATES)
def test_queries_that_are_zero_cost_nothing(template):
    with_zeros, without = hdmm(ASKED + NOTHING, template), hdmm(ASKED, template)
    assert with_zeros.weighted_loss == pytest.approx(without.weighted_loss)
    assert with_zeros.worst == pytest.approx(without.worst)


def test_nothing_but_zeros_is_for_no_mechanism():
    for row in qs.compare(NOTHING, COST, progress=False).rows:
        assert row.rmse is None
        assert "nothing to measure" in row.note


def test_zeros_beside_queries():
    assert all(row.rmse for row in qs.compare(ASKED + NOTHING, COST, progress=False).rows)


@pytest.mark.slow
def test_errors_are_known_where_the_worst_query_cannot_be_looked_for(monkeypatch):
    expected = {row.mechanism: row.rmse for row in qs.compare(ASKED, COST, progress=False).rows}
    monkeypatch.setattr(family, "MAX_MATRIX_ENTRIES", 8)
    split = [name for name in expected if name != "whole"]  # which writes queries out
    for row in qs.compare(ASKED, COST, split, progress=False).rows:
        assert row.worst is None
        assert row.rmse == pytest.approx(expected[row.mechanism])


@pytest.mark.parametrize("mechanisms", [3, "nope", [3], [["hdmm"]], ["hdmm", "hdmm"]])
def test_mechanisms_that_are_none(mechanisms):
    with pytest.raises(qs.PlanError, match="mechanisms: expected some of querysmasher"):
        qs.compare(ASKED, COST, mechanisms)


def test_one_mechanism_out_of_memory_leaves_the_others(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setitem(TEMPLATES, "union", full)
    rows = {row.mechanism: row for row in qs.compare(ASKED, COST, ["hdmm", "residual"], progress=False).rows}
    assert rows["hdmm"].note == "It does not support this workload: not enough memory."
    assert rows["residual"].rmse


@pytest.mark.slow
def test_a_chart_is_whole_or_not_there(tmp_path):
    compared = qs.compare(ASKED, COST, ["residual"], progress=False)
    for name in ("a.html", "a.svg", "a.PNG", "a.json"):
        compared.chart(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 500
    with pytest.raises(qs.FileError, match="does not exist"):
        compared.chart(tmp_path / "nowhere" / "a.svg")
    with pytest.raises(qs.PlanError, match="expected a name that ends in"):
        compared.chart(tmp_path / "a.tiff")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.PNG", "a.html", "a.json", "a.svg"]
