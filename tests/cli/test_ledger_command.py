"""`ledger` and `release` with one: what is spent is recorded once. `verify`: what was changed is found."""

import json
import re
import sqlite3
from fractions import Fraction

import pytest

import querysmasher as qs
from querysmasher.cli import folder as folder_module
from querysmasher.privacy.budget import epsilon
from querysmasher.spec import read_spec
from tests.cli.conftest import FULL, SPEC, draft_of, names
from tests.ledgers import ROUNDED, costing


def with_ledger(text='{path = "people.ledger", cost = 2.0}'):
    """The spec with a ledger."""
    changed = re.sub(r"(\[budget\]\n)", rf"\1ledger = {text}\n", SPEC)
    assert changed != SPEC
    return changed


@pytest.fixture
def spec(folder):
    """Write a spec; its budget is one half of the ledger's limit."""

    def write(text):
        (folder / "release.toml").write_text(text)
        return read_spec("release.toml")

    read = write(with_ledger())
    assert read.budget.privacy_cost == pytest.approx(1)
    return write


@pytest.fixture
def broken(monkeypatch):
    """Makes a run fail after the measurement, once."""

    publish = folder_module.Draft.publish

    def fail(self):
        monkeypatch.setattr(folder_module.Draft, "publish", publish)
        raise FULL

    monkeypatch.setattr(folder_module.Draft, "publish", fail)


def test_create_and_show(run, folder):
    words = run("ledger", "x.ledger", "create", "--rho", "1", "--label", "people, 2024").words
    assert "people, 2024" in words
    assert "rho = 0 (zCDP)" in words
    assert "Left rho = 1 of 1" in words
    ledger = qs.Ledger("x.ledger")
    assert ledger.limit == qs.zCDP(1.0)
    entry = ledger.charge(costing(0.5), ROUNDED)
    words = run("ledger", "x.ledger", "--at-delta", "1e-9").words
    assert "epsilon = 4.22595 at delta = 1e-09" in words
    assert 4.22594 < epsilon(0.5, 1e-9) < 4.22595, "rounded up"
    assert "Left rho = 0.75 of 1: one more release may have epsilon = 7.734 at delta = 1e-09" in words
    assert "rho adds up over releases. Epsilon does not: it follows from the sum of rho." in words
    assert "mu = 0.707107" in words
    assert entry.digest[:12] in words
    read = run("ledger", "x.ledger", "--json").json
    assert read["entries"] == [{**entry.to_json(), "previous": entry.previous, "digest": entry.digest}]
    assert Fraction(read["spent"]["cost"]) == Fraction(1, 2)
    assert Fraction(read["left"]["cost"]) == Fraction(3, 2)
    assert (read["left"]["rho"], read["left"]["delta"]) == (0.75, 1e-6)
    assert read["head"] == entry.digest


def test_epsilon_is_shown_at_the_delta_of_the_limit(run, folder):
    words = run("ledger", "x.ledger", "create", "--epsilon", "1.5", "--delta", "1e-9").words
    assert "one more release may have epsilon = 1.5 at delta = 1e-09" in words
    assert "1e-06" not in words
    read = run("ledger", "x.ledger", "--json").json
    assert (read["left"]["epsilon"], read["left"]["delta"], read["spent"]["delta"]) == (1.5, 1e-9, 1e-9)
    assert "delta: expected a number" in run("ledger", "x.ledger", "--at-delta", "0", code=2).err


def test_verify(run, folder):
    run("ledger", "x.ledger", "create", "--epsilon", "1", "--delta", "1e-6", "--records-per-person", "2")
    head = qs.Ledger("x.ledger").verify().head
    assert run("ledger", "x.ledger", "verify", "--head", head).words.startswith("OK: 0 entries about 'x'")
    qs.Ledger("x.ledger").charge(costing(Fraction(1, 100), records_per_person=2), ROUNDED)
    assert "digest given is in the chain" in run("ledger", "x.ledger", "verify", "--head", head).words
    assert "no entry" in run("ledger", "x.ledger", "verify", "--head", "0" * 64, code=4).err
    connection = sqlite3.connect("x.ledger")
    connection.execute("DROP TRIGGER unchanged")
    connection.execute("UPDATE entries SET content = replace(content, '1/100', '1/900') WHERE number = 1")
    connection.execute("UPDATE entries SET content = replace(content, 'rounded', 'discrete')")
    connection.commit()
    connection.close()
    assert "entry 1 of" in run("ledger", "x.ledger", "verify", code=4).err
    run("ledger", "x.ledger", code=4)


def test_bad_options(run, folder):
    assert "no file" in run("ledger", "x.ledger", code=4).err
    assert "create --rho 1" in run("ledger", "x.ledger", code=4).err
    assert "got none of them" in run("ledger", "x.ledger", "create", code=2).err
    assert "--rho and --mu" in run("ledger", "x.ledger", "create", "--rho", "1", "--mu", "1", code=2).err
    assert (
        "records_per_person"
        in run("ledger", "x.ledger", "create", "--rho", "1", "--records-per-person", "0", code=2).err
    )
    assert "x.ledger" not in names(folder)
    run("ledger", "x.ledger", "create", "--rho", "1")
    assert "never replaced" in run("ledger", "x.ledger", "create", "--rho", "2", code=4).err
    assert "never changes" in run("ledger", "x.ledger", "--rho", "2", code=2).err


def test_a_release_is_recorded_and_says_so(run, spec, folder):
    ran = run("release")
    ledger = qs.Ledger("people.ledger")
    (entry,) = ledger.entries
    assert "Recorded in the ledger of 'people' as entry 1" in ran.words
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert summary["ledger"] == {**entry.to_json(), "previous": entry.previous, "digest": entry.digest}
    assert entry.digest in summary["record"]
    run("release", "--out", "again")
    ran = run("release", "--out", "more", code=3)
    assert "leaves rho = 0 of 1; this measurement needs rho = 0.5" in ran.err
    assert len(ledger.entries) == 2
    assert "more" not in names(folder)


def test_without_a_ledger_every_output_says_that_it_was_not_recorded(run, folder):
    assert "Not recorded in a ledger" in run("release").words
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert summary["ledger"] is None
    assert summary["record"].startswith("Not recorded in a ledger")


@pytest.mark.slow
def test_the_page_says_it_too(run, spec, folder):
    run("release")
    run("report", "out")
    assert qs.Ledger("people.ledger").entries[0].digest in (folder / "out" / "report.html").read_text()
    spec(SPEC)
    run("release", "--out", "other")
    run("report", "other")
    assert "Not recorded in a ledger" in (folder / "other" / "report.html").read_text()


def test_a_path_alone_needs_a_ledger_that_exists(run, spec, folder):
    spec(with_ledger('"people.ledger"'))
    assert "ledger FILE create" in run("release", code=4).err
    assert names(folder) == ["people.csv", "release.toml"]
    run("ledger", "people.ledger", "create", "--cost", "1")
    run("release")
    run("release", "--force", code=3)
    assert len(qs.Ledger("people.ledger").entries) == 1


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("3", 2, "budget.ledger: expected the path of a ledger, or a table"),
        ("{rho = 1.0}", 2, "budget.ledger.path: missing"),
        ('{path = "x", rho = 1.0, mu = 1.0}', 2, "budget.ledger: expected rho, or mu"),
        ('{path = "x", rho = -1.0}', 2, "budget.ledger.rho: expected a positive number"),
        ('{path = "x", limit = 1.0}', 2, "budget.ledger.limit: unknown key"),
        ('{path = "x", rho = 1.0, label = ""}', 2, "budget.ledger.label"),
        ('{path = "none/x", rho = 1.0}', 4, "does not exist"),
        ('"people.csv"', 4, "not a database"),
    ],
)
def test_bad_sections(run, spec, folder, text, code, words):
    (folder / "release.toml").write_text(with_ledger(text))
    assert words in run("release", code=code).err
    assert names(folder) == ["people.csv", "release.toml"]


@pytest.mark.slow
def test_the_plan_says_what_is_left(run, spec):
    assert "Ledger" not in run("plan").out
    run("release")
    left = "leaves rho = 0.5 of 1: one more release may have epsilon = 4.886 at delta = 1e-06 (default noise)"
    assert f"{left}; this spends up to rho = 0.5" in run("plan").words
    run("release", "--out", "two")
    said = "leaves rho = 0 of 1; this spends up to rho = 0.5, which is more"
    assert said in run("plan").words
    assert said in run("plan", "--json").json["ledger"]
    assert "will probably be refused" in run("release", "--out", "three", code=3).err


def test_planning_needs_no_ledger(run, spec, folder):
    run("plan")
    run("check")
    assert names(folder) == ["people.csv", "release.toml"]


def test_a_simulation_is_refused(run, spec, folder):
    assert "--seed" in run("release", "--seed", "1", code=3).err
    assert names(folder) == ["people.csv", "release.toml"]


def test_another_unit_is_refused_before_planning(run, spec, folder):
    run("release")
    spec(with_ledger('"people.ledger"').replace("[budget]\n", "[budget]\nrecords_per_person = 2\n"))
    assert "cannot be added" in run("release", "--out", "two", code=3).err


def test_resuming_is_charged_once(run, spec, folder, broken):
    assert "the budget is spent" in run("release", code=4).err
    left = draft_of(folder)
    assert len(qs.Ledger("people.ledger").entries) == 1
    run("release", "--resume", left)
    (entry,) = qs.Ledger("people.ledger").entries
    assert qs.Release.load("out/release.qs").entry == entry
    assert json.loads((folder / "out" / "summary.json").read_text())["ledger"]["digest"] == entry.digest


def test_resuming_what_was_not_recorded_is_refused(run, spec, folder, broken):
    spec(SPEC)
    run("release", code=4)
    left = draft_of(folder)
    spec(with_ledger())
    assert "not recorded in the ledger" in run("release", "--resume", left, code=3).err
    assert left.is_dir()
    assert "out" not in names(folder)


def test_resuming_with_another_ledger_is_refused(run, spec, folder, broken):
    run("release", code=4)
    left = draft_of(folder)
    (folder / "people.ledger").unlink()
    assert "not recorded in the ledger" in run("release", "--resume", left, code=3).err


def test_a_refused_table_counts_as_spent_and_the_message_says_so(run, spec, folder):
    (folder / "people.csv").write_text("sex,age\nF,1\n")
    assert "The ledger has recorded the cost of this measurement, as entry 1" in run("release", code=5).err
    assert len(qs.Ledger("people.ledger").entries) == 1


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
