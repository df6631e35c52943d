"""Large budgets are remarked upon, never refused, wherever the guarantee is stated."""

import re
from pathlib import Path

import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.guarantees import promise, remarks
from querysmasher.report.page import guarantee

ROOT = Path(qs.__file__).parent
SCHEMA = qs.Schema.of(a=2, b=3)
LARGE = [
    qs.ApproxDP(epsilon=10.5, delta=1e-6),
    qs.ApproxDP(epsilon=1.0, delta=2e-4),
    qs.zCDP(20),
    qs.PrivacyCost(1e12),
]
USUAL = [qs.ApproxDP(epsilon=10.0, delta=1e-4), qs.zCDP(0.5), qs.GaussianDP(1.0), qs.PrivacyCost(1.0)]


def shown(budget):
    plan = qs.plan(qs.marginals(SCHEMA, 1), budget)
    release = qs.measure(plan, pd.DataFrame({"a": [0, 1], "b": [2, 0]}))
    comparison = qs.compare(plan.workload, budget, ["residual"], progress=False)
    texts = [repr(plan), repr(release), release.guarantee, repr(comparison)]
    texts.append(guarantee(budget))  # which both pages show
    return [*texts, *(value._repr_html_() for value in (plan, release, comparison))]


@pytest.mark.parametrize("budget", LARGE)
def test_large_budgets(budget):
    (said,) = remarks(budget)
    assert promise(budget) == f"{budget.describe()} {said}"
    assert re.fullmatch(r"Remark: [^.].*\.", said)
    for text in shown(budget):
        assert "Remark: " in text


@pytest.mark.parametrize("budget", USUAL)
def test_usual_budgets(budget):
    assert remarks(budget) == []
    for text in shown(budget):
        assert "Remark" not in text


def test_both_are_remarked():
    assert len(remarks(qs.ApproxDP(epsilon=11, delta=0.01))) == 2


def test_the_guarantee_is_stated_nowhere_without_its_remarks():
    stating = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "budget.describe()" in path.read_text() and "remarks(" not in path.read_text()
    }
    assert stating == set()
