"""What Studio computes beside the command: a plan at another budget is what planning again returns."""

import pytest

import querysmasher as qs
from querysmasher.privacy.budget import ApproxDP
from querysmasher.studio.tasks import at_budget, perform
from tests.spec.files import SMALL

SCHEMA = qs.Schema.of(a=6, b=4, c=3)
WORKLOADS = {
    "tables": qs.marginals(SCHEMA, [1, 2]),
    "prefixes": qs.all_kway(SCHEMA, [1, 2], "prefix") + 5 * qs.where(SCHEMA, "a < 3 and b == 1"),
    "whole": qs.where(SCHEMA, "a < 3") + qs.where(SCHEMA, "a >= 2 and c == 1"),
}


@pytest.mark.parametrize("unit", [{}, {"neighbours": "replace_one"}, {"records_per_person": 3}])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_at_another_budget(name, unit):
    workload = WORKLOADS[name]
    first, second = qs.zCDP(0.5, **unit), ApproxDP(2.0, 1e-6, **unit)
    scaled = at_budget(qs.plan(workload, first), second)
    anew = qs.plan(workload, second)
    assert scaled.rmse == pytest.approx(anew.rmse, rel=1e-9)
    assert scaled.worst_std == pytest.approx(anew.worst_std, rel=1e-9)
    assert scaled.privacy_cost == pytest.approx(anew.privacy_cost, rel=1e-9)
    assert scaled.gap == pytest.approx(anew.gap, abs=1e-9)
    assert scaled.variances(workload) == pytest.approx(anew.variances(workload), rel=1e-9)
    assert scaled.budget == second


def test_what_does_not_scale_is_planned_again():
    plan = qs.plan(WORKLOADS["tables"].within(100), qs.zCDP(0.5))
    assert at_budget(plan, qs.zCDP(1.0)) is None
    plan = qs.plan(WORKLOADS["tables"], qs.zCDP(0.5), objective="worst")
    assert at_budget(plan, qs.zCDP(1.0)) is None
    plan = qs.plan(WORKLOADS["tables"], qs.zCDP(0.5))
    assert at_budget(plan, qs.zCDP(1.0, neighbours="replace_one")) is None


def test_a_moved_budget_is_not_planned_again(monkeypatch):
    def ask(text):
        return perform("plan", {"path": "release.toml", "text": text}, lambda _: None)

    first = ask(SMALL)
    monkeypatch.setattr("querysmasher.spec.spec.plan", None)
    second = ask(SMALL.replace("rho = 0.5", "rho = 2.0"))
    assert float(second["rmse"]) == pytest.approx(float(first["rmse"]) / 2, rel=6e-3)
    assert "error" in ask(SMALL.replace("k = [1, 2]", "k = 1")), "other queries are planned anew"
