"""`explore`, [estimate] and purpose = "estimate" in a spec: estimates and their errors beside answers."""

import json
import math

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.estimate.estimate import Estimate
from tests.cli.conftest import EXPLORED, FULL, draft_of, fail, names


def test_the_folder(run, folder, spec):
    ran = run("explore")
    files = [
        "answers.parquet",
        "datapackage.json",
        "errors.csv",
        "estimates.parquet",
        "release.qs",
        "summary.json",
    ]
    assert names(folder / "out") == files
    release = qs.Release.load("out/release.qs")
    estimate = release.estimate()
    assert release.guarantee in ran.words
    assert "error of the estimate, mean of 4 tables" in ran.words
    np.testing.assert_array_equal(
        pq.read_table("out/estimates.parquet")["value"].to_numpy(), estimate.answer().values
    )
    assert set(pq.read_table("out/estimates.parquet")["note"].to_pylist()) == {estimate.note}
    np.testing.assert_array_equal(
        pq.read_table("out/answers.parquet")["value"].to_numpy(), release.answer().values
    )
    errors = pyarrow.csv.read_csv("out/errors.csv")
    assert errors["kind"].to_pylist() == ["measured"] * 4
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert summary["estimate"]["kind"] == "measured"
    assert [phase["name"] for phase in summary["phases"]] == [p.name for p in release.exploration.phases]
    assert summary["private"] is True
    assert sum(phase["cost"] for phase in summary["phases"]) <= release.plan.budget.privacy_cost * (1 + 1e-12)


@pytest.mark.slow
def test_a_published_folder_verifies_and_a_changed_estimate_is_found(run, folder, spec):
    spec(budget='ledger = {path = "people.ledger", rho = 5.0}')
    run("explore", "--answers", "csv")
    ran = run("verify", "out", "--ledger", "people.ledger")
    assert "VERIFIED" in ran.out
    assert "estimates follow from the noisy numbers" in ran.words
    file = folder / "out" / "estimates.csv"
    first, second, *rest = file.read_text().splitlines()
    cells = second.split(",")
    place = first.split(",").index('"value"') if '"value"' in first else first.split(",").index("value")
    cells[place] = str(float(cells[place]) + 7)
    file.write_text("\n".join([first, ",".join(cells), *rest]) + "\n")
    ran = run("verify", "out", "--ledger", "people.ledger", code=3)
    assert "does not follow from the noisy numbers" in ran.words


def test_release_writes_estimates_if_the_spec_asks_for_them(run, folder, spec):
    run("release", "--out", "plain")
    assert not any(name.startswith("estimates") for name in names(folder / "plain"))
    spec('[estimate]\nanswers = "csv"\n', k=1)
    run("release")
    assert {"answers.parquet", "estimates.csv", "errors.csv"} <= set(names(folder / "out"))
    errors = pyarrow.csv.read_csv("out/errors.csv")
    assert set(errors["kind"].to_pylist()) == {"model-based"}
    assert "VERIFIED" in run("verify", "out").out


def test_errors_need_not_be_bought(run, folder, spec):
    spec("[estimate]\nerror_share = 0\n", k=1)
    read = run("explore", "--json", "--answers", "none").json
    assert read["estimate"]["kind"] == "model-based"
    assert read["estimate"]["interval"] is None
    assert read["files"] == ["release.qs", "summary.json", "errors.csv"]


def test_what_explore_refuses(run, folder, spec):
    spec("[estimate]\nerror_share = 0.7\n")
    assert "error_share" in run("explore", code=2).err
    spec("[estimate]\nshare = 0.1\n")
    assert "share" in run("explore", code=2).err
    (folder / "release.toml").write_text(
        EXPLORED.format(budget="", more="").replace('kind = "marginals"', 'kind = "all_kway"')
    )
    assert "expected marginals only" in run("explore", code=2).err
    assert names(folder) == ["people.csv", "release.toml"]


def test_an_unfinished_exploration_is_completed_without_measuring_again(run, folder, spec, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(Estimate, "write", fail(FULL))
        ran = run("explore", code=4)
    draft = draft_of(folder).name
    assert f"querysmasher explore --resume {draft}" in " ".join(ran.err.split())
    (folder / "people.csv").unlink()  # nothing is read again
    run("explore", "--resume", draft)
    assert "estimates.parquet" in names(folder / "out")
    spec('[measure]\nnoise = "discrete"\n')
    assert "different noise" in run("explore", "--resume", "out", "--out", "other", code=2).err


PURPOSE = '[plan]\npurpose = "estimate"\n'


@pytest.fixture
def spec(folder):
    """Write a spec that asks for marginals, with more sections."""

    def write(more="", budget="", k="[2, 3]"):
        text = EXPLORED.format(budget=budget, more=more)
        (folder / "release.toml").write_text(text.replace("k = [2, 3]", f"k = {k}"))

    write()
    return write


def kinds():
    return set(pyarrow.csv.read_csv("out/errors.csv")["kind"].to_pylist())


@pytest.mark.slow
def test_errors_are_bought_as_the_spec_says_and_verify(run, folder, spec):
    run("release", "--out", "plain")
    spec("[estimate]\nerror_share = 0.1\n")
    ran = run("release")
    assert kinds() == {"measured"}
    assert "error of the estimate, mean of 4 tables" in ran.words
    plain, bought = (json.loads((folder / out / "summary.json").read_text()) for out in ("plain", "out"))
    assert bought["expected_error"] == pytest.approx(plain["expected_error"] / math.sqrt(0.9))
    assert bought["estimate"]["kind"] == "measured"
    assert run("plan", "--json").json["expected_error"] == pytest.approx(bought["expected_error"])
    assert "VERIFIED" in run("verify", "out").out


@pytest.mark.slow
def test_the_command_line_comes_before_the_spec(run, folder, spec):
    spec("[estimate]\nerror_share = 0.1\n", k=1)
    run("release", "--error-share", "0")
    assert kinds() == {"model-based"}
    spec(k=1)
    read = run("release", "--error-share", "0.05", "--json", "--force").json
    assert kinds() == {"measured"}
    assert {"estimates.parquet", "errors.csv"} <= set(read["files"])
    assert run("explore", "--error-share", "0", "--json", "--force").json["estimate"]["kind"] == "model-based"


@pytest.mark.parametrize("command", ["release", "explore"])
@pytest.mark.parametrize("share", ["nan", "0.7", "-0.1", "inf", "much"])
def test_other_shares_are_refused_at_once(run, folder, spec, command, share):
    assert "share" in run(command, f"--error-share={share}", code=2).err
    spec(f"[estimate]\nerror_share = {share if share != 'much' else repr(share)}\n")
    assert "error_share" in run(command, code=2).err
    assert names(folder) == ["people.csv", "release.toml"]


def test_targets_are_not_missed_for_errors(run, folder, spec):
    spec("[estimate]\nerror_share = 0.1\n", k="[2, 3]\ntarget = 100")
    assert "error_share: expected 0 for a plan with accuracy targets" in " ".join(
        run("release", code=2).err.split()
    )
    assert names(folder) == ["people.csv", "release.toml"]


@pytest.mark.slow
def test_a_plan_for_estimates_writes_estimates_and_verifies(run, folder, spec):
    spec(PURPOSE, k=1)
    assert "measured first, with 1% of the budget" in run("plan", "--save", "my.plan").words
    ran = run("release", "--plan", "my.plan")
    assert {"plan.qs", "answers.parquet", "estimates.parquet", "errors.csv"} <= set(names(folder / "out"))
    assert "error of the estimate" in ran.words
    assert "VERIFIED" in run("verify", "out").out
    spec(PURPOSE + "records = 1000\n", k=1)
    run("release", "--force", "--error-share", "0.02")
    assert "VERIFIED" in run("verify", "out").out
    spec(k=1)
    assert "different workload" in run("release", "--plan", "my.plan", "--force", code=2).err


@pytest.mark.slow
def test_an_unfinished_release_for_estimates_is_completed(run, folder, spec, monkeypatch):
    spec(PURPOSE, k=1)
    with monkeypatch.context() as broken:
        broken.setattr(Estimate, "write", fail(FULL))
        run("release", code=4)
    draft = draft_of(folder).name
    assert "different workload" in run("explore", "--resume", draft, code=2).err
    run("release", "--resume", draft)
    assert "VERIFIED" in run("verify", "out").out


def test_many_tables_of_a_plan_for_estimates_are_summed_up(run, folder):
    schema = "".join(f'[[schema]]\nname = "a{i}"\nkind = "ordinal"\nvalues = [0, 1]\n' for i in range(9))
    (folder / "many.toml").write_text(
        f'{schema}[[workload]]\nkind = "marginals"\nk = 3\n[budget]\nrho = 1.0\n{PURPOSE}'
    )
    rows = run("plan", "many.toml", "--json").json["groups"]
    assert [row["queries"] for row in rows] == [1, 9 * 2, 36 * 4, 84 * 8]
