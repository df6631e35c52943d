"""`explore`, and [estimate] in a spec: estimates and their errors beside unbiased answers."""

import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from tests.cli.conftest import names
from tests.spec.files import AGE, SEX

SPEC = f"""{SEX}{AGE}
[[schema]]
name = "hour"
kind = "ordinal"
values = [0, 6, 12, 18]

[[workload]]
kind = "marginals"
k = [2, 3]

[budget]
epsilon = 2.0
delta = 1e-6
{{budget}}
[data]
path = "people.csv"
{{more}}
"""


@pytest.fixture
def marginals(folder):
    """A folder whose spec asks for marginals."""

    def write(budget="", more=""):
        (folder / "release.toml").write_text(SPEC.format(budget=budget, more=more))
        return folder

    write()
    return write


def test_the_folder(run, folder, marginals):
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
def test_a_published_folder_verifies_and_a_changed_estimate_is_found(run, folder, marginals):
    marginals('ledger = {path = "people.ledger", rho = 5.0}')
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


def test_release_writes_estimates_if_the_spec_asks_for_them(run, folder, marginals):
    run("release", "--out", "plain")
    assert not any(name.startswith("estimates") for name in names(folder / "plain"))
    marginals(more='[estimate]\nanswers = "csv"\n')
    run("release")
    assert {"answers.parquet", "estimates.csv", "errors.csv"} <= set(names(folder / "out"))
    errors = pyarrow.csv.read_csv("out/errors.csv")
    assert set(errors["kind"].to_pylist()) == {"model-based"}
    assert "VERIFIED" in run("verify", "out").out


def test_errors_need_not_be_bought(run, folder, marginals):
    marginals(more="[estimate]\nerror_share = 0\n")
    read = run("explore", "--json", "--answers", "none").json
    assert read["estimate"]["kind"] == "model-based"
    assert read["estimate"]["interval"] is None
    assert read["files"] == ["release.qs", "summary.json", "errors.csv"]


def test_what_explore_refuses(run, folder, marginals):
    marginals(more="[estimate]\nerror_share = 0.7\n")
    assert "error_share" in run("explore", code=2).err
    marginals(more="[estimate]\nshare = 0.1\n")
    assert "share" in run("explore", code=2).err
    (folder / "release.toml").write_text(
        SPEC.format(budget="", more="").replace('kind = "marginals"', 'kind = "all_kway"')
    )
    assert "expected marginals only" in run("explore", code=2).err
    assert names(folder) == ["people.csv", "release.toml"]


def test_an_unfinished_exploration_is_completed_without_measuring_again(run, folder, marginals, monkeypatch):
    from querysmasher.estimate.estimate import Estimate

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Estimate, "write", full)
        ran = run("explore", code=4)
    (draft,) = [name for name in names(folder) if "unfinished" in name]
    assert f"querysmasher explore --resume {draft}" in " ".join(ran.err.split())
    (folder / "people.csv").unlink()  # nothing is read again
    run("explore", "--resume", draft)
    assert "estimates.parquet" in names(folder / "out")
    marginals(more='[measure]\nnoise = "discrete"\n')
    assert "different noise" in run("explore", "--resume", "out", "--out", "other", code=2).err
