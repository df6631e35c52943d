"""`report`, `compare` and `demo`."""

from pathlib import Path

import pytest

import querysmasher as qs
from querysmasher import demo
from querysmasher.spec import read_spec


@pytest.fixture
def reported(monkeypatch):
    """Reports that only say what they are about."""
    for cls in (qs.Plan, qs.Release):
        monkeypatch.setattr(
            cls, "report", lambda self, path: Path(path).write_text(type(self).__name__), raising=False
        )


def test_reports(run, folder, reported):
    run("plan", "--save", "my.plan")
    run("release")
    for what, kind in (
        ("release.toml", "Plan"),
        ("my.plan", "Plan"),
        ("out/plan.qs", "Plan"),
        ("out", "Release"),
        ("out/release.qs", "Release"),
    ):
        assert run("report", what, "--force").out == "Written: report.html\n"
        assert (folder / "report.html").read_text() == kind
    assert run("report", "out", "--out", "x.html", "--json").json == {"written": "x.html"}
    run("report", "out", code=4).fails(4, "'report.html' is there already; --force replaces it")
    run("report", "none", "--out", "y.html", code=4).fails(4, "there is no folder or file 'none'")
    run("report", "people.csv", "--out", "y.html", code=4)


class Comparison:
    """What `qs.compare` returns, as far as the command knows it."""

    def __init__(self, workload, budget):
        self.words = f"{len(workload)} queries under {budget}"

    def __str__(self):
        return self.words

    def to_json(self):
        return [{"method": self.words}]

    def chart(self, path):
        Path(path).write_text("chart")


def test_compare(run, folder, monkeypatch):
    monkeypatch.setattr(qs, "compare", Comparison, raising=False)
    spec = read_spec("release.toml")
    words = f"{len(spec.workload)} queries under {spec.budget}"
    assert run("compare").out == words + "\n"
    ran = run("compare", "--json", "--chart", "chart.svg")
    assert ran.json == [{"method": words}]
    assert ran.err == "Written: chart.svg\n"
    assert (folder / "chart.svg").read_text() == "chart"
    run("compare", "--chart", "chart.svg", code=4).fails(
        4, "'chart.svg' is there already; --force replaces it"
    )


def test_the_demo_on_made_up_people(run, monkeypatch):
    monkeypatch.setattr(demo, "MADE_UP", 3_000)
    monkeypatch.setattr(demo, "STATES", [*demo.STATES[:4], "New York", "New Jersey"])
    ran = run("demo", "--made-up")
    assert "3,000 made-up people" in ran.out
    read = run("demo", "--made-up", "--json").json
    everything = read["table"]["rows"][-1]
    assert everything["queries_on"] == "all"
    assert everything["true_error"] == pytest.approx(everything["predicted_error"], rel=0.3)
    assert everything["in_interval"] > 0.85


def test_people_are_made_up_where_the_package_is_missing(monkeypatch):
    monkeypatch.setattr(demo, "MADE_UP", 100)
    monkeypatch.setitem(__import__("sys").modules, "causaldata", None)
    people, words = demo.load_people()
    assert people.num_rows == 100
    assert words.startswith("100 made-up people")
