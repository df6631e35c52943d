"""Charts are an extra: all else works without them, and what needs them says so before it begins."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import querysmasher as qs
from querysmasher.report.charts import CHARTS, check_charts

PROJECT = Path(__file__).parents[1]

WITHOUT = """
import os, sys
sys.modules |= dict.fromkeys(["altair", "vl_convert"])  # as if they were not installed
import pyarrow as pa
import querysmasher as qs
schema = qs.Schema.of(age=4, sex=2)
workload = qs.all_kway(schema, [1, 2])
plan = qs.plan(workload, qs.zCDP(0.5))
plan.save("plan.qs")
release = qs.measure(qs.Plan.load("plan.qs"), pa.table({"age": [0, 1, 3], "sex": [0, 1, 1]}), seed=1)
release.save("release.qs")
answers = qs.Release.load("release.qs").answer()
release.write(workload, "answers.csv")
comparison = qs.compare(workload, qs.zCDP(0.5))
for shown in (schema, workload, plan, release, answers, comparison):
    assert repr(shown) and shown._repr_html_()
before = sorted(os.listdir())
attempts = {
    "plan": lambda: plan.report("plan.html"),
    "release": lambda: release.report("release.html", title="x"),
    "comparison": lambda: comparison.chart("methods.svg"),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except ImportError as error:
        assert isinstance(error, qs.QuerySmasherError)
        print(name, error)
assert sorted(os.listdir()) == before
"""


def python(folder, *arguments):
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
def test_all_but_pages_and_pictures_works_without_charts(tmp_path):
    ran = python(tmp_path, "-c", WITHOUT)
    assert ran.returncode == 0, ran.stderr
    said = "pages and charts need altair and vl-convert-python: pip install 'querysmasher[report]'"
    assert ran.stdout.splitlines() == [f"{name} {said}" for name in ("plan", "release", "comparison")]


def test_pages_are_refused_before_anything_is_computed(tmp_path, monkeypatch):
    plan = qs.plan(qs.all_kway(qs.Schema.of(age=3), 1), qs.zCDP(0.5))
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setattr("querysmasher.report.plan_report.error_rows", None)
    with pytest.raises(qs.MissingExtraError, match=r"need vl-convert-python: pip .*\[report\]"):
        plan.report(tmp_path / "plan.html")


def test_the_extra_installs_what_charts_need():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    def packages(requirements):
        return {r.partition(">")[0].partition("[")[0] for r in requirements}

    assert packages(project["optional-dependencies"]["report"]) == set(CHARTS.values())
    assert not packages(project["dependencies"]) & {*CHARTS.values(), "pandas"}
    assert "pandas" in packages(project["optional-dependencies"]["demo"])  # the tutorial's tables
    check_charts()


def test_make_installs_what_the_demo_needs_and_then_every_extra():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [row for row in (PROJECT / "Makefile").read_text().splitlines() if "--editable" in row]
    demo, setup = (line.partition("[")[2].partition("]")[0].split(",") for line in lines)
    assert demo == ["demo"]
    assert sorted(setup) == sorted(extras)
