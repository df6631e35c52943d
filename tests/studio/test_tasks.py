"""What Studio computes beside the command: a plan at another budget is what planning again returns."""

from pathlib import Path

import pytest

from querysmasher.cli.specs import Expectations
from querysmasher.planning import solvers
from querysmasher.spec import read_spec
from querysmasher.studio.tasks import at_budget, perform
from tests.spec.files import SMALL

WORKLOADS = {
    "tables": '{kind = "marginals", k = [1, 2]}',
    "prefixes": '{kind = "all_kway", k = [1, 2], family = "prefix"}, '
    '{kind = "where", predicate = "a < 3 and b == 1", weight = 5}',
    "whole": '{kind = "where", predicate = ["a < 3", "a >= 2 and c == 1"]}',
    "many": '{kind = "linear", attributes = ["a"], rows = [[1, 0, 2, 0, 0, 0], [0, 1, 1, 1, 1, 1]]}, '
    '{kind = "all_kway", k = 3}',
}
IN_WORDS = ["", ', neighbours = "replace_one"', ", records_per_person = 3"]


def expectations(workload, budget, more=""):
    spec = spec_of(workload, budget, more)
    return Expectations(spec.plan(), spec)


def spec_of(workload, budget, more=""):
    sizes = {"a": 6, "b": 4, "c": 3}
    schema = ", ".join(
        f'{{name = "{name}", kind = "ordinal", range = [0, {k - 1}]}}' for name, k in sizes.items()
    )
    text = f"schema = [{schema}]\nworkload = [{workload}]\nbudget = {{{budget}}}\n{more}"
    return read_spec(Path("release.toml"), text)


@pytest.mark.parametrize("unit", IN_WORDS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_at_another_budget(name, unit):
    first = expectations(WORKLOADS[name], f"rho = 0.5{unit}", 'measure = {noise = "discrete"}')
    assert first.rows(every=True)
    anew = expectations(
        WORKLOADS[name], f"epsilon = 2.0, delta = 1e-6{unit}", 'measure = {noise = "discrete"}'
    )
    scaled = at_budget(first, anew.spec)
    plan, other, times = scaled.plan, anew.plan, scaled.factor / anew.factor
    assert times * plan.rmse == pytest.approx(other.rmse, rel=1e-9)
    assert times * plan.worst_std == pytest.approx(other.worst_std, rel=1e-9)
    assert plan.gap == pytest.approx(other.gap, abs=1e-9)
    assert times**2 * plan.variances(plan.workload) == pytest.approx(
        other.variances(other.workload), rel=1e-9
    )
    assert scaled.budget == other.budget == anew.budget
    assert scaled.facts() == anew.facts()
    assert [row.cells() for row in scaled.rows(every=True)] == [row.cells() for row in anew.rows(every=True)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("rho = 0.5", 'plan = {objective = "worst"}'), ("rho = 1", 'plan = {objective = "worst"}')),
        (("rho = 0.5",), ('rho = 1, neighbours = "replace_one"',)),
        (("rho = 0.5",), ("rho = 1", "plan = {tolerance = 0.01}")),
    ],
)
def test_what_does_not_scale_is_planned_again(before, after):
    table = WORKLOADS["tables"]
    assert at_budget(expectations(table, *before), spec_of(table, *after)) is None
    aimed = table.replace("}", ", target = 100}")
    assert at_budget(expectations(aimed, "rho = 0.5"), spec_of(aimed, "rho = 1")) is None


def test_blocks_that_a_change_leaves_alike_are_solved_once(monkeypatch):
    def planned(target, family="prefix"):
        table = f'{{kind = "all_kway", k = [1, 2], family = "{family}", target = {target}}}'
        return spec_of(table, "rho = 0.5").plan()

    anew = [planned(target) for target in (50, 60)]
    monkeypatch.setattr(solvers, "MEMORY", [{}])
    before = planned(50)
    solved = dict(solvers.MEMORY[0])
    after = planned(60)
    assert solved
    assert [solved] == solvers.MEMORY, "every block of the second plan is known"
    for plan, other in zip(anew, (before, after), strict=True):
        assert plan.rmse == pytest.approx(other.rmse, rel=1e-6)
        assert plan.worst_std == pytest.approx(other.worst_std, rel=1e-6)
    monkeypatch.setattr(solvers, "MOST_REMEMBERED", 1)
    planned(50, "range")
    assert len(solvers.MEMORY[0]) == 1, "no more are kept"


def test_a_moved_budget_is_not_planned_again(monkeypatch):
    def ask(text):
        return perform("plan", {"path": "release.toml", "text": text}, lambda _: None)

    first = ask(SMALL)
    monkeypatch.setattr("querysmasher.spec.spec.plan", None)
    second = ask(SMALL.replace("rho = 0.5", "rho = 2.0"))
    assert float(second["rmse"]) == pytest.approx(float(first["rmse"]) / 2, rel=6e-3)
    assert "error" in ask(SMALL.replace("k = [1, 2]", "k = 1")), "other queries are planned anew"
