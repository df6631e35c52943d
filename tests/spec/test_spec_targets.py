"""Targets, weighting, objectives and the least budget in a spec file, and how plans show them."""

import json

import pytest

import querysmasher as qs
from querysmasher.cli.specs import Expectations
from querysmasher.errors import SpecError
from querysmasher.spec import read_spec, template
from querysmasher.spec import spec as spec_module
from tests.spec import files
from tests.spec.files import AGE, SEX

TEXT = f"""{SEX}{AGE}
[[workload]]
kind = "all_kway"
k = 1
target = 20
level = 0.95

[[workload]]
kind = "all_kway"
k = 2
weighting = "tables"
weight = 3

[budget]
rho = 0.05
"""


def read(tmp_path, text=TEXT):
    return files.read(tmp_path, text)


def test_targets_and_weighting_are_read(tmp_path):
    workload = read(tmp_path).workload
    first, second, third = workload
    assert (
        first.target
        == second.target
        == qs.marginals(workload.schema, 1).within(20, level=0.95).groups[0].target
    )
    assert third.target is None
    assert third.weight == pytest.approx(3 / 20)


@pytest.mark.slow
def test_the_objective_is_read(tmp_path):
    plan = read(tmp_path, TEXT + '\n[plan]\nobjective = "worst"\n').plan()
    assert plan.objective == "worst"


@pytest.mark.slow
def test_the_least_budget_is_found(tmp_path):
    spec = read(tmp_path, TEXT.replace("rho = 0.05", 'least = true\nneighbours = "replace_one"'))
    plan = spec.plan()
    assert plan.objective == "least"
    assert plan.budget.neighbours == "replace_one"
    assert spec.fits(plan.budget)
    assert max(one.ratio for one in plan.extremes if one.group.target is not None) <= 1 + 1e-6


@pytest.mark.parametrize("budget", ["rho = 0.05", "least = true"])
def test_plans_are_made_for_the_records_that_will_be_measured(tmp_path, monkeypatch, budget):
    """Targets hold for what is measured, which depends on the cap on the number of records."""
    given = {}
    for name in ("plan", "least_budget"):
        monkeypatch.setattr(spec_module, name, lambda *_, **options: given.update(options))
    text = TEXT.replace("rho = 0.05", budget) + "\n[measure]\nmax_records = 1000000000000\n"
    read(tmp_path, text).plan()
    assert given["max_records"] == 10**12


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("rho = 0.05", "rho = 0.05\nleast = true", "expected no amount with least = true, got rho"),
        ("target = 20\nlevel = 0.95", "", "expected a target in some [[workload]] table, got none"),
        ("target = 20\n", "", "level: allowed only together with target"),
        ("target = 20", "target = 0", "target: expected a positive number"),
        ("level = 0.95", "level = 95", "level: expected a number between 0 and 1"),
        ('"tables"', '"cells"', "weighting: expected"),
        ("[budget]", '[plan]\nobjective = "best"\n[budget]', "objective: expected"),
        ("[budget]", '[plan]\nobjective = "worst"\n[budget]', "no effect with [budget] least = true"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, problem):
    text = TEXT if "rho" in old else TEXT.replace("rho = 0.05", "least = true")
    with pytest.raises(SpecError) as refused:
        read(tmp_path, text.replace(old, new))
    assert problem in str(refused.value)


def test_the_first_spec_weighs_by_tables(tmp_path):
    path = tmp_path / "release.toml"
    path.write_text(template())
    groups = read_spec(path).workload.groups
    assert {round(g.weight * g.rows, 9) for g in groups if len(g.attributes) == 2 and g.rows > 1} == {1.0}


@pytest.mark.slow
def test_the_largest_error_the_targets_and_the_cost_are_shown(tmp_path):
    spec = read(tmp_path, TEXT.replace("rho = 0.05", "least = true"))
    plan = spec.plan()
    shown = Expectations(plan, spec).to_json(every=True)
    json.dumps(shown)
    assert shown["objective"] == "least"
    assert shown["least_cost"] <= shown["privacy_cost"]
    assert shown["largest_error"] == max(group["largest_error"] for group in shown["groups"])
    assert all(words in repr(plan) for words in ("largest error", "targets", "all met", "costs at least"))
    worst = repr(qs.plan(qs.queries(spec.schema, age="prefix"), qs.PrivacyCost(1.0), objective="worst"))
    assert "of the best possible plan" in worst.split("largest error")[1].splitlines()[0]
    missed = qs.plan(spec.workload, qs.PrivacyCost(0.001), insufficient="scale")
    assert "missed in 2 groups, by up to a factor of" in repr(missed)


def test_a_small_table_known_worse_than_a_huge_one_is_remarked():
    schema = qs.Schema.of(a=100, b=90, c=2)
    workload = qs.marginals(schema, [0, 1, 2])
    remark = 'weighing("tables") gives tables equal weight'
    assert remark in repr(qs.plan(workload, qs.PrivacyCost(1.0)))
    assert remark not in repr(qs.plan(workload.weighing("tables"), qs.PrivacyCost(1.0)))


def test_the_purpose_is_read(tmp_path):
    text = TEXT.replace("target", "# target").replace("level", "# level")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("# "))
    options = '\n[plan]\npurpose = "estimate"\nrecords = 5000\n'
    spec = read(tmp_path, text + options)
    assert spec.planning.purpose == "estimate"
    assert spec.planning.records == 5000
    with pytest.raises(qs.SpecError, match="allowed only with purpose"):
        read(tmp_path, text + "\n[plan]\nrecords = 5000\n")


def test_a_plan_says_that_it_is_meant_for_an_estimate():
    schema = qs.Schema.of(a=3, b=3, c=2)
    plan = qs.plan(qs.marginals(schema, 3), qs.PrivacyCost(1e-3), purpose="estimate")
    assert "an estimate of 18 queries, biased" in repr(plan)
