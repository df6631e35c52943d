"""`report`, `compare` and `demo`."""

from pathlib import Path

import pytest

import querysmasher as qs
from querysmasher import demo
from querysmasher.comparison import compare as compare_module
from querysmasher.spec import read_spec
from tests.cli.conftest import SPEC


@pytest.fixture
def reported(monkeypatch):
    """Reports that only say what they are about."""
    for cls in (qs.Plan, qs.Release):
        monkeypatch.setattr(
            cls, "report", lambda self, path: Path(path).write_text(type(self).__name__), raising=False
        )


@pytest.mark.slow
def test_reports(run, folder, reported):
    run("plan", "--save", "my.plan")
    run("release")
    for what, kind, page in (
        ("release.toml", "Plan", "report.html"),
        ("my.plan", "Plan", "report.html"),
        ("out/plan.qs", "Plan", "report.html"),
        ("out", "Release", "out/report.html"),
        ("out/release.qs", "Release", "report.html"),
    ):
        assert run("report", what, "--force").out == f"Written: {page}\n"
        assert (folder / page).read_text() == kind
    assert run("report", "out", "--out", "x.html", "--json").json == {"written": "x.html"}
    run("report", "out", code=4).fails(4, "'out/report.html' already exists; --force replaces it")
    run("report", "none", "--out", "y.html", code=4).fails(
        4, f"no folder or file 'none'; relative paths start at '{folder}'"
    )
    run("report", "people.csv", "--out", "y.html", code=4)


@pytest.mark.slow
def test_the_page_of_a_folder_is_part_of_it(run, folder):
    """It is where readers find the release, follows from it, and a new release may replace both."""
    run("release")
    run("report", "out")
    assert not (folder / "report.html").exists()
    checks = {check["check"]: check["status"] for check in run("verify", "out", "--json").json["checks"]}
    assert checks["report.html"] == checks["files"] == "passed"
    assert "other files" not in checks
    run("release", "--force")
    assert not (folder / "out" / "report.html").exists()


@pytest.mark.slow
def test_compare(run, folder):
    shown = run("compare").out
    for title in ("QuerySmasher", "ResidualPlanner+", "Weighted Fourier Factorizations", "HDMM"):
        assert title in shown
    ran = run("compare", "--json", "--chart", "chart.svg")
    assert {row["mechanism"] for row in ran.json} >= {
        "querysmasher",
        "uniform",
        "basis",
        "residual",
        "fourier",
    }
    assert ran.json[0]["rmse"] == pytest.approx(read_spec("release.toml").plan().weighted_rmse, rel=1e-3)
    assert ran.err == "Written: chart.svg\n"
    assert (folder / "chart.svg").read_text().startswith("<svg")
    run("compare", "--chart", "chart.svg", code=4).fails(4, "'chart.svg' already exists; --force replaces it")


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_compare_shows_errors_on_the_scale_of_the_plan(run, folder):
    """Under the noise of the spec; with weights, under another name."""
    noise = 'epsilon = 1\ndelta = 1e-6\n[measure]\nnoise = "discrete"'
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", noise))
    planned, rows = run("plan", "--json").json, run("compare", "--json").json
    (ours,) = (row for row in rows if row["mechanism"] == "querysmasher")
    assert ours["rmse"] == pytest.approx(planned["expected_error"], rel=1e-6)
    assert ours["worst"] == pytest.approx(planned["largest_error"], rel=1e-6)
    assert "weighted RMSE" not in run("compare").words
    (folder / "release.toml").write_text(SPEC.replace("k = [1, 2]", 'k = [1, 2]\nweighting = "tables"'))
    planned, rows = run("plan", "--json").json, run("compare", "--json").json
    errors = [group["expected_error"] for group in planned["groups"]]
    assert min(errors) < rows[0]["rmse"] < max(errors)
    assert "weighted RMSE" in run("compare").words


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_compare_for_the_largest_error(run, folder):
    """The option overrides the spec, whose objective is the mean."""
    (folder / "release.toml").write_text(SPEC.replace("k = [1, 2]", "k = 1"))
    rows = run("compare", "--objective", "worst", "--json").json
    worst = [row["worst"] for row in rows if row["worst"] is not None]
    assert worst == sorted(worst)
    spec = read_spec("release.toml")
    (ours,) = (row["worst"] for row in rows if row["mechanism"] == "querysmasher")
    assert ours == pytest.approx(qs.plan(spec.workload, spec.budget, objective="worst").worst, rel=1e-6)
    assert ours < spec.plan().worst
    (folder / "release.toml").write_text(SPEC.replace("k = [1, 2]", "k = 0"))
    shown = run("compare", "--objective", "worst").out
    assert shown.index("largest error") < shown.index("RMSE")


@pytest.mark.slow
def test_compare_at_the_least_budget_says_how_closely_targets_are_met(run, folder, monkeypatch):
    """Queries without targets play no role in it."""
    asked = []

    def noted(workload, budget, **options):
        asked.append((workload, budget, options["objective"]))
        return compare_module.Comparison(workload, budget, (), options["objective"])

    monkeypatch.setattr(qs, "compare", noted)
    text = SPEC.replace("k = [1, 2]", "k = 1\ntarget = 20").replace("rho = 0.5", "least = true")
    text = text.replace("[budget]", '[[workload]]\nkind = "marginals"\nk = 0\n\n[budget]')
    (folder / "release.toml").write_text(text)
    run("compare", "--json")
    run("compare", "--objective", "mean", "--json")
    (first, budget, goal), (second, _, other) = asked
    assert (goal, other) == ("worst", "mean")
    assert all(group.target is not None for group in first)
    assert len(second.groups) == len(first.groups) + 1
    assert budget.privacy_cost == pytest.approx(read_spec("release.toml").plan().budget.privacy_cost)


@pytest.mark.slow
def test_the_demo_on_made_up_people(run, folder, monkeypatch):
    monkeypatch.setattr(demo, "MADE_UP", 3_000)
    monkeypatch.setattr(demo, "STATES", [*demo.STATES[:4], "New York", "New Jersey"])
    ran = run("demo", "--made-up")
    assert "3,000 fictitious people" in ran.out
    for page in ("plan.html", "release.html"):
        assert str(Path("demo-output", page)) in ran.out
        assert (folder / "demo-output" / page).exists()
    read = run("demo", "--made-up", "--json", "--folder", "pages").json
    assert (folder / read["table"]["pages"]["release"]).exists()
    everything = read["table"]["rows"][-1]
    assert everything["queries_on"] == "all"
    assert everything["true_error"] == pytest.approx(everything["predicted_error"], rel=0.3)
    assert everything["in_interval"] > 0.85


def test_real_and_made_up_people_have_the_same_readable_columns():
    pytest.importorskip("causaldata")
    real, made_up = demo.load_people()[0], demo.made_up_people()[0].to_pandas()
    assert list(real.columns) == list(made_up.columns)
    for column in real.columns[:-1]:  # the last has numbers
        assert set(made_up[column]) <= set(real[column])
        assert all(isinstance(value, str) for value in real[column].unique())


def test_people_are_made_up_where_the_package_is_missing(monkeypatch):
    monkeypatch.setattr(demo, "MADE_UP", 100)
    monkeypatch.setitem(__import__("sys").modules, "causaldata", None)
    people, words = demo.load_people()
    assert people.num_rows == 100
    assert words.startswith("100 fictitious people")


def test_a_chart_that_cannot_be_drawn_is_refused_at_once(run, folder, monkeypatch):
    monkeypatch.setattr(compare_module, "compare", None)
    assert "expected a name that ends in" in run("compare", "--chart", "a.gif", code=2).err
