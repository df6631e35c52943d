"""Mechanisms side by side."""

import json
import warnings

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.comparison import compare as module
from querysmasher.comparison import hdmm as hdmm_module
from querysmasher.comparison.hdmm import TEMPLATES, hdmm
from querysmasher.workload import family
from tests.builders import COST

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(12))])
WORKLOAD = qs.all_kway(SCHEMA, [1, 2])
BUDGET = qs.zCDP(0.5)
FEW = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(5))])
"""For the largest error, which takes many plans."""


@pytest.fixture(scope="module")
def comparison():
    return qs.compare(WORKLOAD, BUDGET)


def by_name(comparison):
    return {row.mechanism: row for row in comparison.rows}


def test_every_row_is_what_the_mechanism_plans(comparison):
    rows = by_name(comparison)
    assert set(rows) == {"querysmasher", "uniform", "basis", "residual", "fourier", "whole", "hdmm"}
    for solver in ("basis", "residual", "fourier"):
        plan = qs.plan(WORKLOAD, BUDGET, solver=solver)
        assert rows[solver].rmse == plan.weighted_rmse
        assert rows[solver].worst == pytest.approx(plan.variances(WORKLOAD).max() ** 0.5)
    assert all(row.seconds > 0 and row.megabytes > 0 for row in comparison.rows)
    assert rows["hdmm"].note.endswith("template.")


def test_the_best_comes_first_and_ties_keep_their_order(comparison):
    assert comparison.rows[0].mechanism == "querysmasher"
    shown = [float(f"{row.rmse:.4g}") for row in comparison.rows]
    assert shown == sorted(shown)


@pytest.mark.usefixtures("unmeasured")
def test_the_budget_scales_hdmm_as_it_scales_the_others(comparison):
    for budget in (qs.zCDP(2.0), qs.PrivacyCost(1.0, neighbours="replace_one")):
        other = by_name(qs.compare(WORKLOAD, budget, ["hdmm"]))["hdmm"]
        scale = (budget.unit.change() / budget.privacy_cost) ** 0.5
        assert other.rmse == pytest.approx(by_name(comparison)["hdmm"].rmse * scale)
        assert ("number of records" in other.note) == budget.unit.total_is_public


@pytest.mark.usefixtures("unmeasured")
def test_what_a_mechanism_cannot_take_is_said_and_the_rest_goes_on():
    result = qs.compare(WORKLOAD + qs.affine(SCHEMA, "sex", "age"), BUDGET)
    row = result.rows[-1]
    assert (row.mechanism, row.rmse, row.worst) == ("hdmm", None, None)
    assert row.note.startswith("It does not support this workload: HDMM accepts only products")
    assert (
        repr(result)
        .splitlines()[-1]
        .startswith("HDMM: Shown for comparison only; it cannot produce a release.")
    )


def test_table_and_json(comparison):
    lines = repr(comparison).splitlines()[1:]
    assert lines[0].split()[:2] == ["mechanism", "RMSE"]
    assert lines[1].startswith("QuerySmasher ")
    assert json.loads(json.dumps(comparison.to_json()))[0]["title"] == "QuerySmasher"
    html = comparison._repr_html_()
    assert html.count("<tr>") == 8
    assert "largest error" in html


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "start"),
    [("svg", b"<svg"), ("PNG", b"\x89PNG"), ("pdf", b"%PDF"), ("json", b"{"), ("html", b"<!")],
)
def test_charts_are_written_by_their_suffix(comparison, tmp_path, suffix, start):
    path = tmp_path / f"chart.{suffix}"
    comparison.chart(path)
    text = path.read_bytes().lstrip()
    assert text.startswith(start)
    if suffix == "html":
        assert b'src="http' not in text


@pytest.mark.slow
def test_the_chart_shows_how_far_each_is_above_the_best(comparison, tmp_path):
    spec = json.dumps(comparison.chart().to_dict())
    errors = {row.title: row.rmse for row in comparison.rows if row.rmse is not None}
    best = min(errors.values())
    for name, error in errors.items():
        assert f'"{name}"' in spec
        assert ("(best)" if error == best else f"(+{error / best - 1:.1%})") in spec
    assert "above the best" in spec
    assert "var(--" not in spec, "colours for paper are written out"
    comparison.chart(tmp_path / "chart.svg")
    drawn = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert "var(--accent)" in drawn
    assert "--accent: #" in drawn
    assert "prefers-color-scheme: dark" in drawn
    assert "viewBox" in drawn
    assert "max-width: 100%" in drawn


def test_charts_of_other_kinds_or_nowhere_are_refused(comparison, tmp_path):
    with pytest.raises(qs.PlanError, match=r"ends in one of \.html, \.svg, \.png, \.pdf, \.json"):
        comparison.chart(tmp_path / "chart.txt")
    with pytest.raises(qs.FileError, match="does not exist"):
        comparison.chart(tmp_path / "nowhere" / "a.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SCHEMA, BUDGET), "workload: expected a Workload as first argument, got a Schema"),
        ((WORKLOAD, 1.0), "budget: expected PrivacyCost"),
        ((WORKLOAD, BUDGET, ["magic"]), "mechanisms: expected some of querysmasher, uniform, basis"),
        ((WORKLOAD, BUDGET, "magic"), "got 'magic'"),
        *(
            ((WORKLOAD, BUDGET, odd), "mechanisms: expected some of querysmasher")
            for odd in (3, [3], [["hdmm"]], ["hdmm", "hdmm"])
        ),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(qs.PlanError, match=message):
        qs.compare(*arguments)


@pytest.mark.parametrize(("seconds", "times"), [(0, 1), (1000, 2)])
def test_slow_mechanisms_are_run_once(monkeypatch, seconds, times):
    runs = []

    def run(workload, budget, objective):
        runs.append(np.ones(10**6))
        return 1.0, None, ""

    monkeypatch.setattr(module, "MEASURED_SECONDS", seconds)
    monkeypatch.setattr(module, "COMPARED", (module.Compared("slow", "Slow", "", run),))
    (row,) = qs.compare(WORKLOAD, BUDGET, ["slow"]).rows
    assert len(runs) == times
    assert row.megabytes == (None if times == 1 else pytest.approx(8, rel=0.1))


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_notes_are_sentences(comparison):
    odd = qs.compare(WORKLOAD + qs.affine(SCHEMA, "sex", "age"), qs.zCDP(0.5, neighbours="replace_one"))
    for row in (*comparison.rows, *odd.rows):
        for said in filter(None, (row.cannot, row.note)):
            assert all(s[0].isupper() for s in said.removesuffix(".").split(". ")), said
            assert said.endswith(".")
            assert not said.endswith("..")


def test_no_warning_of_a_library_is_printed(recwarn, monkeypatch):
    def loud(*_):
        warnings.warn("overflow encountered in reduce", RuntimeWarning, stacklevel=1)
        return np.float64(1e308) * 1e308, None, ""

    known = module.COMPARED
    monkeypatch.setattr(module, "COMPARED", (*known[:-1], module.Compared("hdmm", "HDMM", "", loud)))
    assert qs.compare(WORKLOAD, BUDGET, ["hdmm"], progress=False).rows[0].rmse == np.inf
    assert list(recwarn) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("unmeasured")
def test_very_many_attributes_do_not_overflow(monkeypatch):
    """The Kronecker template starts from a product of 250 losses of 20, beyond any float."""
    schema = qs.Schema.of({f"a{i}": 20 for i in range(250)})
    workload = qs.queries(schema, a0="identity") + qs.queries(schema, a1="prefix")
    small = qs.Schema.of(a0=20, a1=20)
    expected = hdmm(qs.queries(small, a0="identity") + qs.queries(small, a1="prefix"), "kronecker")
    assert hdmm(workload, "kronecker").weighted_loss == pytest.approx(expected.weighted_loss, rel=1e-5)
    monkeypatch.setattr(hdmm_module, "LARGEST", 0.0)
    row = qs.compare(workload, BUDGET, ["hdmm"], progress=False).rows[0]
    assert "union" in row.note
    with pytest.raises(qs.TooLargeError, match="on all 250 attributes together"):
        hdmm(workload, "kronecker")


@pytest.mark.usefixtures("unmeasured")
def test_targets_do_not_keep_mechanisms_from_being_compared():
    workload = qs.all_kway(qs.Schema.of(a=4, b=3), 2, "prefix")
    plain = qs.compare(workload, qs.zCDP(0.5), ["querysmasher"])
    aimed = qs.compare(workload.within(1e-3), qs.zCDP(0.5), ["querysmasher"])
    assert aimed.rows[0].rmse == plain.rows[0].rmse


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_every_mechanism_is_planned_for_the_same_objective():
    few = qs.all_kway(FEW, [1, 2])
    result = qs.compare(few, BUDGET, ["querysmasher", "basis", "fourier", "hdmm"], objective="worst")
    rows = by_name(result)
    for mechanism in ("querysmasher", "basis", "fourier"):
        plan = qs.plan(few, BUDGET, mechanism=mechanism, objective="worst")
        assert rows[mechanism].worst == pytest.approx(plan.worst)
        mean = qs.plan(few, BUDGET, mechanism=mechanism)
        assert rows[mechanism].worst < mean.worst
    assert result.rows[0].mechanism == "querysmasher"
    assert [row.worst for row in result.rows] == sorted(row.worst for row in result.rows)
    assert result.head[1:4] == ("largest error", "above best", "RMSE")
    assert result.cells(result.rows[0])[1:3] == (f"{result.rows[0].worst:.4g}", "best")
    assert "It minimises the mean error only." in rows["hdmm"].note
    assert "Largest error above the best" in json.dumps(result.chart().to_dict())


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_the_worst_error_is_relative_to_targets():
    aimed = qs.all_kway(FEW, 1).within(2) + qs.all_kway(FEW, 2).within(5)
    result = qs.compare(aimed, BUDGET, ["querysmasher", "hdmm"], objective="worst")
    assert result.rows[0].worst == pytest.approx(qs.plan(aimed, BUDGET, objective="worst").worst)
    assert result.rows[1].worst is None
    assert result.head[1] == "largest error / target"
    with pytest.raises(qs.PlanError, match="objective: expected one of mean, worst"):
        qs.compare(aimed, BUDGET, objective="best")


@pytest.mark.usefixtures("unmeasured")
def test_the_weighted_error_is_on_the_scale_of_a_standard_error():
    """It lies between the least and the largest standard error, whatever the weights, and has its name."""
    workload = WORKLOAD.weighing("tables") + 3 * qs.where(SCHEMA, "age >= 3")
    weights = np.concatenate([group.query_weights() for group in workload])
    for scale in (1, 1e-3):
        result = qs.compare(scale * workload, BUDGET, ["querysmasher", "hdmm"])
        rows = by_name(result)
        variances = qs.plan(workload, BUDGET).variances(workload)
        assert rows["querysmasher"].rmse == pytest.approx(
            np.average(variances, weights=weights) ** 0.5, rel=1e-6
        )
        assert rows["querysmasher"].rmse < rows["hdmm"].rmse < 2 * rows["querysmasher"].rmse
        assert result.head[1] == "weighted RMSE"
        assert module.WEIGHTED in repr(result)
        assert "weighted RMSE" in result._repr_html_()
    plain = qs.compare(3 * WORKLOAD, BUDGET, ["residual"])
    assert plain.rows[0].rmse == pytest.approx(qs.plan(WORKLOAD, BUDGET, mechanism="residual").rmse)
    assert (plain.head[1], module.WEIGHTED in repr(plain)) == ("RMSE", False)


# --- at the edge of what can be compared ---------------------------------------------------------

EDGE = qs.Schema.of(a=3, b=2, c=1)
ASKED = qs.all_kway(EDGE, [0, 1, 2], "prefix")
NOTHING = qs.linear(EDGE, ["a"], [[0, 0, 0]])


@pytest.mark.parametrize("template", TEMPLATES)
def test_queries_that_are_zero_cost_nothing(template):
    with_zeros, without = hdmm(ASKED + NOTHING, template), hdmm(ASKED, template)
    assert with_zeros.weighted_loss == pytest.approx(without.weighted_loss)
    assert with_zeros.worst == pytest.approx(without.worst)


@pytest.mark.usefixtures("unmeasured")
def test_nothing_but_zeros_is_for_no_mechanism():
    for row in qs.compare(NOTHING, COST, progress=False).rows:
        assert row.rmse is None
        assert "nothing to measure" in row.note


@pytest.mark.usefixtures("unmeasured")
def test_zeros_beside_queries():
    assert all(row.rmse for row in qs.compare(ASKED + NOTHING, COST, progress=False).rows)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.slow
def test_errors_are_known_where_the_worst_query_cannot_be_looked_for(monkeypatch):
    expected = {row.mechanism: row.rmse for row in qs.compare(ASKED, COST, progress=False).rows}
    monkeypatch.setattr(family, "MAX_MATRIX_ENTRIES", 8)
    split = [name for name in expected if name != "whole"]  # which writes queries out
    for row in qs.compare(ASKED, COST, split, progress=False).rows:
        assert row.worst is None
        assert row.rmse == pytest.approx(expected[row.mechanism])


@pytest.mark.usefixtures("unmeasured")
def test_one_mechanism_out_of_memory_leaves_the_others(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setitem(TEMPLATES, "union", full)
    rows = {row.mechanism: row for row in qs.compare(ASKED, COST, ["hdmm", "residual"], progress=False).rows}
    assert rows["hdmm"].note == "It does not support this workload: not enough memory."
    assert rows["residual"].rmse


def test_a_small_difference_never_shows_as_none():
    errors = (7.587, 7.58701, 7.589, 7.68)
    assert [module._above(error, 7.587) for error in errors] == ["best", "best", "< 0.1%", "1.2%"]


def test_a_refusal_is_a_sentence_about_the_workload():
    (row,) = qs.compare(qs.all_kway(qs.Schema.of(a=90, b=90), 2, "range"), qs.zCDP(0.5), ["whole"]).rows
    assert row.rmse is None
    assert row.note.startswith("It does not support this workload: its 16,769,025 queries are too many")
