"""Estimates of a release planned in advance: errors that are bought, and plans with purpose = "estimate"."""

import json
import math

import pyarrow.csv
import pytest

from querysmasher.estimate.estimate import Estimate
from tests.cli.conftest import names
from tests.cli.test_explore import SPEC

PURPOSE = '[plan]\npurpose = "estimate"\n'


@pytest.fixture
def spec(folder):
    """Write a spec that asks for marginals, with more sections."""

    def write(more="", **changes):
        text = SPEC.format(budget="", more=more)
        for old, new in changes.get("replaced", ()):
            text = text.replace(old, new)
        (folder / "release.toml").write_text(text)

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
    spec("[estimate]\nerror_share = 0.1\n")
    run("release", "--error-share", "0")
    assert kinds() == {"model-based"}
    spec()
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
    spec("[estimate]\nerror_share = 0.1\n", replaced=[("k = [2, 3]", "k = [2, 3]\ntarget = 100")])
    assert "error_share: expected 0 for a plan with accuracy targets" in " ".join(
        run("release", code=2).err.split()
    )
    assert names(folder) == ["people.csv", "release.toml"]


@pytest.mark.slow
def test_a_plan_for_estimates_writes_estimates_and_verifies(run, folder, spec):
    spec(PURPOSE)
    assert "measured first, with 1% of the budget" in run("plan", "--save", "my.plan").words
    ran = run("release", "--plan", "my.plan")
    assert {"plan.qs", "answers.parquet", "estimates.parquet", "errors.csv"} <= set(names(folder / "out"))
    assert "error of the estimate" in ran.words
    assert "VERIFIED" in run("verify", "out").out
    spec(PURPOSE + "records = 1000\n")
    run("release", "--force", "--error-share", "0.02")
    assert "VERIFIED" in run("verify", "out").out
    spec()
    assert "different workload" in run("release", "--plan", "my.plan", "--force", code=2).err


@pytest.mark.slow
def test_an_unfinished_release_for_estimates_is_completed(run, folder, spec, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    spec(PURPOSE)
    with monkeypatch.context() as broken:
        broken.setattr(Estimate, "write", full)
        run("release", code=4)
    (draft,) = [name for name in names(folder) if "unfinished" in name]
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
