"""`verify`: what `release` publishes is verified by anyone, and what was changed is not."""

import json

import pytest

import querysmasher as qs
from tests.cli.test_ledger import with_ledger


@pytest.fixture
def out(run, folder):
    (folder / "release.toml").write_text(with_ledger())
    run("release")
    return folder / "out"


def test_a_release_is_verified(run, out, folder):
    (folder / "people.csv").unlink()  # no data
    (folder / "release.toml").unlink()
    (out / "plan.qs").rename(folder / "kept.qs")
    assert "plan.qs missing" in run("verify", "out", code=3).out
    (folder / "kept.qs").rename(out / "plan.qs")
    ran = run("verify", "out", "--ledger", "people.ledger")
    assert ran.out.startswith("VERIFIED: out\n")
    assert "FAILED" not in ran.out
    assert "not verified" not in ran.out
    assert ran.out.splitlines()[-1].startswith("VERIFIED: ")
    assert ran.err == ""
    read = run("verify", "out", "--json").json
    assert read["verified"] is True
    assert read["digest"] == json.loads((out / "summary.json").read_text())["digests"]["release.qs"]


@pytest.mark.slow
@pytest.mark.parametrize("answers", ["csv", "none"])
def test_other_answers(run, out, answers):
    run("release", "--out", "other", "--answers", answers)
    assert run("verify", "other").out.startswith("VERIFIED")


def test_a_resumed_release_is_verified(run, out, folder):
    (out / "summary.json").unlink()
    (out / "answers.parquet").unlink()
    out.rename(folder / "left")
    run("release", "--resume", "left")
    assert "FAILED" not in run("verify", "out", "--ledger", "people.ledger").out


def test_what_was_changed_is_not(run, out):
    path = out / "summary.json"
    path.write_text(path.read_text().replace('"private": true', '"private": false'))
    ran = run("verify", "out", code=3)
    assert ran.out.startswith("FAILED: out\n")
    assert "says something else about private" in ran.out
    assert run("verify", "out", "--json", code=3).json["outcome"] == "FAILED"


def test_what_cannot_be_checked_is_no_success(run, out):
    (out / "more").mkdir()
    ran = run("verify", "out", code=7)
    assert ran.out.startswith("NOT VERIFIED: out\n")
    assert ran.out.splitlines()[-1].endswith("1 could not be made (other files)")
    read = run("verify", "out", "--json", code=7).json
    assert (read["verified"], read["outcome"]) == (False, "not verified")


@pytest.mark.slow
def test_a_page_in_the_folder_is_verified(run, out):
    run("report", "out", "--out", "out/report.html")
    assert "byte for byte" in run("verify", "out", "--ledger", "people.ledger").out
    page = out / "report.html"
    page.write_bytes(page.read_bytes() + b"<p>epsilon = 0.001")
    assert "report.html" in run("verify", "out", code=3).out.splitlines()[-1]


def test_bad_paths(run, out):
    assert "no file" in run("verify", "none", code=4).err
    assert "no file" in run("verify", "out", "--ledger", "none.ledger", code=4).err
    assert len(qs.Ledger("people.ledger").entries) == 1
