"""`init` writes a spec from which all else runs; `plan` says what the library says, without data."""

import re

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.cli import specs
from querysmasher.formatting import number
from querysmasher.spec import read_spec, template
from tests.cli.conftest import SPEC, planned_once
from tests.spec.files import WORKLOAD


def test_the_table(run, folder):
    (folder / "people.csv").unlink()  # planning needs no data
    ran = run("plan")
    plan = read_spec("release.toml").plan()
    assert plan.budget.describe() in ran.words
    assert f"Expected error ± {number(plan.rmse)}" in ran.words
    for row in plan.summary():
        assert f"{row.group.describe()} {row.queries} ± {number(row.rmse)}" in ran.words
    assert ran.err == ""


def test_json(run, folder):
    read = run("plan", "--json").json
    plan = read_spec("release.toml").plan()
    assert read["expected_error"] == pytest.approx(plan.rmse)
    assert read["guarantee"] == plan.budget.describe()
    assert [g["queries"] for g in read["groups"]] == [g.rows for g in plan.workload]
    assert [g["expected_error"] for g in read["groups"]] == pytest.approx([s.rmse for s in plan.summary()])
    assert sum(g["budget_share"] for g in read["groups"]) == pytest.approx(1 - plan.budget_shares()[()])
    assert read["measurements"] == plan.measurements
    assert set(read["estimate"]) == {"planning_seconds", "measuring_seconds", "memory_bytes"}


def test_queries_in_an_order_of_their_own_have_their_share(run, folder):
    table = '[[workload]]\nkind = "queries"\nfamilies = {age = "prefix", sex = "identity"}\n'
    (folder / "release.toml").write_text(SPEC.replace("[budget]", table + "[budget]"))
    groups = run("plan", "--json").json["groups"]
    shares = {g["group"]: g["budget_share"] for g in groups}
    assert shares["age (prefix) × sex (identity)"] == shares["sex (identity) × age (prefix)"] > 0


def test_single_queries_are_told_in_full(run, folder):
    table = '[[workload]]\nkind = "where"\npredicate = "age >= 3 and sex == \'F\'"\n'
    (folder / "release.toml").write_text(SPEC.replace("[budget]", table + "[budget]"))
    assert "age >= 3 and sex == 'F'" in run("plan").out


def test_the_noise_of_the_spec_counts(run, folder):
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", "epsilon = 1\ndelta = 1e-6"))
    rounded = run("plan", "--json").json
    (folder / "release.toml").write_text(
        SPEC.replace("rho = 0.5", "epsilon = 1\ndelta = 1e-6") + '[measure]\nnoise = "discrete"'
    )
    discrete = run("plan", "--json").json
    budget = qs.ApproxDP(1.0, 1e-6)
    factor = np.sqrt(budget.privacy_cost / budget.discrete_privacy_cost)
    assert factor > 1.01
    assert discrete["expected_error"] == pytest.approx(factor * rounded["expected_error"])
    assert "mu =" not in discrete["equivalents"]
    assert "mu =" in rounded["equivalents"]
    release = read_spec("release.toml").measure(read_spec("release.toml").plan(), "people.csv")
    measured = np.sqrt(np.mean(release.variances(release.workload)))
    assert measured == pytest.approx(discrete["expected_error"], rel=0.02)


def test_many_groups_are_summed_up_unless_all_are_wanted(run, folder, monkeypatch):
    monkeypatch.setattr(specs, "MOST_ROWS", 5)
    groups = run("plan", "--json").json["groups"]
    plan = read_spec("release.toml").plan()
    asked = ["all_kway: 1 attribute at a time", "all_kway: 2 attributes at a time"]
    assert [g["group"] for g in groups] == asked
    for way, group in enumerate(groups, start=1):
        own = [s for s in plan.summary() if len(s.attributes) == way]
        assert group["queries"] == sum(s.queries for s in own)
        total = sum(s.queries * s.rmse**2 for s in own)
        assert group["expected_error"] == pytest.approx(np.sqrt(total / group["queries"]))
    assert len(run("plan", "--all", "--json").json["groups"]) == 10


def test_a_plan_can_be_kept(run, folder):
    assert "Written: my.plan" in run("plan", "--save", "my.plan").out
    assert qs.Plan.load("my.plan").workload == read_spec("release.toml").workload
    run("plan", "--save", "my.plan", code=4).fails(4, "'my.plan' already exists; --force replaces it")
    run("plan", "--save", "my.plan", "--force")


@pytest.mark.parametrize(("seconds", "words"), [(50, "50 seconds"), (600, "10 minutes"), (9000, "2.5 hours")])
def test_what_takes_long_is_told_first(run, folder, monkeypatch, seconds, words):
    numbers = read_spec("release.toml").plan(progress=False).measurements
    assert run("plan").err == ""
    monkeypatch.setattr(specs, "NOISE_SECONDS", seconds / numbers)
    ran = run("plan", "--json")
    assert ran.err.startswith(
        f"This is a large task: measuring may take about {words} in addition to reading"
    )
    assert ran.json["estimate"]["measuring_seconds"] == seconds


def marginals(sizes, more="", budget="rho = 0.5"):
    """A spec of all 1- and 2-way marginals of attributes of these sizes."""
    schema = "".join(
        f'[[schema]]\nname = "a{i}"\nkind = "ordinal"\nrange = [0, {n - 1}]\n' for i, n in enumerate(sizes)
    )
    plan = f'[budget]\n{budget}\n[plan]\ncentering = "uniform"\n'
    return f'{schema}[[workload]]\nkind = "marginals"\nk = [1, 2]\n{more}{plan}'


@pytest.mark.slow
def test_a_sparse_schema_points_to_estimates(run, folder):
    """Up to the number of records that the remark names, most counts are cells below their noise."""
    (folder / "release.toml").write_text(marginals([300, 400, 2]))
    words = run("plan").words
    said = (
        "records, most of these counts are cells of tables whose average count is below its expected error."
    )
    assert f"{said} Estimates are usually closer to the truth there: `querysmasher explore`" in words
    read = run("plan", "--json").json
    records = float(re.match(r"with fewer than ([\d,]+) records", read["sparse"])[1].replace(",", ""))
    below = [g["queries"] for g in read["groups"] if records / g["queries"] <= g["expected_error"]]
    assert 2 * sum(below) > read["queries"]
    assert records >= 30_000
    more = [g["queries"] for g in read["groups"] if 1.2 * records / g["queries"] <= g["expected_error"]]
    assert 2 * sum(more) < read["queries"], "with more records, they are not"
    where = '[[workload]]\nkind = "where"\npredicate = "a0 < 7"\n'
    (folder / "release.toml").write_text(marginals([300, 400, 2], where))
    assert "closer to the truth there: add [estimate] to the spec" in run("plan").words, (
        "explore takes marginals only"
    )
    (folder / "release.toml").write_text(marginals([300, 400, 2], where) + "[estimate]\n")
    assert said not in run("plan").words, "the remedy is one"


@pytest.mark.parametrize(
    "text",
    [
        SPEC,
        marginals([100, 24, 5]),
        marginals([100, 24, 5], budget="epsilon = 1\ndelta = 1e-6"),
        marginals([90, 2], '[[workload]]\nkind = "queries"\nfamilies = {a0 = "range", a1 = "identity"}\n'),
    ],
    ids=["small", "dense", "epsilon", "ranges"],
)
def test_an_ordinary_schema_does_not(run, folder, text):
    (folder / "release.toml").write_text(text)
    assert run("plan", "--json").json["sparse"] is None
    assert "usually closer" not in run("plan").words


def test_remarks_name_the_keys_of_the_spec(run, folder):
    (folder / "release.toml").write_text(marginals([100, 60, 2]))
    words = run("plan").words
    assert '[[workload]] weighting = "tables" gives tables equal weight; [plan] objective = "worst"' in words
    assert "weighing(" not in words


@pytest.mark.parametrize(
    ("budget", "delta"), [("epsilon = 1\ndelta = 1e-9", "1e-09"), ("rho = 0.5", "1e-06")]
)
def test_other_words_are_at_the_delta_of_the_budget(run, folder, budget, delta):
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", budget))
    said = run("plan", "--json").json["equivalents"]
    assert re.search(r"\(epsilon, delta\) = \(([\d.]+), ([\de-]+)\)", said)[2] == delta
    if "epsilon" in budget:
        assert f"(epsilon, delta) = (1, {delta})" in said


def test_other_words_are_rounded_up(run, folder):
    """Each is a budget that suffices if it is copied."""
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", "rho = 0.3333333333"))
    said = run("plan", "--json").json["equivalents"]
    assert said == (
        "zCDP with rho = 0.3334, Gaussian DP with mu = 0.8165, (epsilon, delta) = (3.886, 1e-06); "
        "privacy cost 0.6667"
    )
    given = qs.zCDP(0.3333333333)
    for budget in (qs.zCDP(0.3334), qs.GaussianDP(0.8165), qs.ApproxDP(3.886, 1e-6), qs.PrivacyCost(0.6667)):
        assert given.privacy_cost <= budget.privacy_cost <= 1.001 * given.privacy_cost


@pytest.mark.slow
def test_what_is_said_of_the_share_of_the_budget_is_true(run, folder):
    said = (
        "The budget share is the fraction of the budget spent on exactly the attributes of a row. Rows on "
        "the same attributes show the same share, unless their queries are measured whole."
    )
    table = '[[workload]]\nkind = "queries"\nfamilies = {{sex = "identity", age = "{}"}}\n'
    where = '[[workload]]\nkind = "where"\npredicate = "sex == \'F\' and age {}"\n'
    split = [table.format("prefix"), table.format("range")]
    whole = [where.format(">= 3"), where.format("<= 8")]
    for asked, are_split in ((split, True), (whole, False)):
        (folder / "release.toml").write_text(SPEC.replace(WORKLOAD, "\n" + "".join(asked)))
        assert said in run("plan").words
        first, second = (group["budget_share"] for group in run("plan", "--json").json["groups"])
        own = read_spec("release.toml").plan().budget_shares()["sex", "age"]
        assert first == pytest.approx(own if are_split else own - second)
        assert second == pytest.approx(own if are_split else own - first)


@pytest.mark.slow
def test_the_tour_of_the_help_runs_as_printed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run("init", "--example")
    assert ran.out.startswith("Written: release.toml, people.csv\nNext: edit release.toml")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["people.csv", "release.toml"]
    assert (tmp_path / "release.toml").read_text() == template()
    with planned_once():
        assert "Expected error" in run("plan").out
        assert "Every measurement spends the budget again" in run("release").words
    assert "age >= 18" in run("answer", "out", "age >= 18").out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "people.csv", "release.toml"]


def test_with_a_codebook(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "book.csv").write_text("attribute,kind,values\na,ordinal,0..3\nb,ordinal,0..4\n")
    ran = run("init", "sub/survey.toml", "--codebook", "sub/book.csv", "--json")
    assert ran.json == {"written": ["sub/survey.toml"]}
    assert read_spec("sub/survey.toml").schema == qs.Schema.of(a=4, b=5)
    assert 'codebook = "book.csv"' in (tmp_path / "sub" / "survey.toml").read_text()
    ran = run("init", "--codebook", "sub/book.csv")
    assert read_spec("release.toml").schema == qs.Schema.of(a=4, b=5)
    assert "querysmasher plan`" in ran.out


def test_nothing_is_overwritten_unless_forced(run, folder):
    before = (folder / "release.toml").read_text()
    run("init", code=4).fails(4, "'release.toml' already exists; --force replaces it")
    run("init", "other.toml", "--example", code=4).fails(
        4, "'people.csv' already exists; --force replaces it"
    )
    assert (folder / "release.toml").read_text() == before
    assert not (folder / "other.toml").exists()
    run("init", "--force")
    assert (folder / "release.toml").read_text() == template()


def test_what_init_refuses(run, folder):
    ran = run("init", "x.toml", "--codebook", "people.csv", code=2)
    ran.fails(2, "codebook people.csv: expected a header with the columns attribute, kind and values")
    run("init", "x.toml", "--codebook", "none.csv", code=4)
    run("init", "none/x.toml", code=4)
    ran = run("init", "x.toml", "--codebook", "people.csv", "--example", code=2)
    assert "only one of the two" in ran.err
    assert not (folder / "x.toml").exists()
