"""`values = "discover"`: values are found, a plan is made and a table is measured, under one budget."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs

SPEC = """
[data]
path = "flights.csv"

[[schema]]
name = "dest"
kind = "categorical"
values = "discover"
share = 0.25

[[schema]]
name = "month"
kind = "ordinal"
range = [1, 12]

[[workload]]
kind = "marginals"
k = [1, 2]

[budget]
epsilon = 1.0
delta = 1e-6
ledger = {path = "x.ledger", epsilon = 1.0, delta = 1e-6}
"""
ROWS = 3001


@pytest.fixture
def spec(folder):
    rng = np.random.default_rng(0)
    dest = [*rng.choice(["ATL", "LAX", "XNA"], ROWS - 1, p=[0.6, 0.3, 0.1]), "ZZZ"]
    table = pd.DataFrame({"dest": dest, "month": rng.integers(1, 13, ROWS), "plane": np.arange(ROWS) // 3})
    table.to_csv(folder / "flights.csv", index=False)
    (folder / "release.toml").write_text(SPEC)
    return SPEC


TOGETHER = (
    "The values of 'dest' were discovered in the same table. The release and these values together satisfy "
    "differential privacy with epsilon = 1.0 and delta = 1e-06, for the same neighbours."
)


def test_values_are_found_and_measured_under_one_budget(run, spec, folder):
    ran = run("release")
    assert TOGETHER in ran.words
    assert 'write values = ["ATL", "LAX", "XNA"]' in ran.err
    release = qs.Release.load("out/release.qs")
    assert release.schema["dest"].values == ("ATL", "LAX", "XNA", "other")
    truth = pd.read_csv("flights.csv")["dest"].value_counts()
    assert np.abs(release.marginal("dest") - [truth["ATL"], truth["LAX"], truth["XNA"], 1]).max() < 200
    assert TOGETHER in release.guarantee
    ledger = qs.Ledger("x.ledger")
    first, second = ledger.entries
    assert second == release.entry
    total = Fraction(qs.ApproxDP(1.0, 5e-7).privacy_cost)
    assert (first.delta, second.delta) == (Fraction(5e-7), 0)
    assert Fraction(99, 100) * total < first.cost + second.cost <= total
    assert float(first.cost / total) == pytest.approx(0.25, rel=1e-3)
    assert 0.999 < ledger.total.epsilon_at(1e-6) <= 1.0
    assert "FAILED" not in run("verify", "out", "--ledger", "x.ledger").words
    listed = run("ledger", "x.ledger").out
    assert "delta" in listed
    assert "5e-07" in listed
    shown = run("ledger", "x.ledger", "--at-delta", "1e-7", "--json").json  # less than the values took
    assert shown["spent"]["epsilon"] is None
    assert shown["spent"]["delta_of_values"] == str(Fraction(5e-7))
    run("report", "out", "--out", "page.html")
    for name in ("page.html", "out/summary.json", "out/datapackage.json"):
        assert "were discovered in the same table" in (folder / name).read_text()
    assert "ZZZ" not in "".join((folder / n).read_text() for n in ("page.html", "out/summary.json"))
    assert "needs rho" in run("release", "--out", "again", code=3).err  # nothing is left


def test_a_finished_folder_is_completed_without_finding_values_again(run, spec, folder):
    run("release")
    again = run("release", "--out", "b", "--resume", "out")
    assert "Discovered" not in again.err
    assert json.loads((folder / "b" / "summary.json").read_text())["discovered"] == TOGETHER
    assert len(qs.Ledger("x.ledger").entries) == 2


def test_persons(run, spec, folder):
    text = spec.replace("share = 0.25", 'share = 0.25\nat_most = 1\nother = "elsewhere"')
    text = text.replace("[budget]", "[budget]\nrecords_per_person = 3") + '[measure]\nperson = "plane"\n'
    (folder / "release.toml").write_text(text)
    run("release")
    release = qs.Release.load("out/release.qs")
    assert release.schema["dest"].values == ("ATL", "LAX", "XNA", "elsewhere")
    assert [entry.person for entry in qs.Ledger("x.ledger").entries] == ["plane", "plane"]


def test_a_budget_without_delta_needs_one(run, spec, folder):
    text = spec.replace("epsilon = 1.0\ndelta = 1e-6\nledger", "rho = 0.05\n#").replace("#", "# ledger")
    (folder / "release.toml").write_text(text)
    assert "schema: delta: expected a probability for the values of 'dest'" in run("release", code=2).err
    (folder / "release.toml").write_text(text.replace("share = 0.25", "delta = 1e-7"))
    said = "together satisfy zero-concentrated differential privacy with rho = 0.05 up to delta = 1e-07"
    assert said in run("release").words


def test_what_needs_values_first(run, spec, folder):
    found = "the values of 'dest' are discovered by `querysmasher release`"
    assert found in run("report", "release.toml", code=2).err
    ran = run("plan")
    assert found in ran.err
    assert "errors here suppose 20 of each attribute" in ran.words
    assert "together satisfy differential privacy with epsilon = 1.0 and delta = 1e-06" in ran.words
    assert run("plan", "--json").json["groups"][0]["queries"] == 21
    assert "--save: expected none" in run("plan", "--save", "my.plan", code=2).err
    checked = run("check").words
    assert "All 3,001 records fit" in checked
    assert "The values of 'dest' are discovered by `querysmasher release`; here, all are unlisted." in checked
    (folder / "release.toml").write_text(spec.replace("share = 0.25", "share = 1.5"))
    assert "schema[0].share: expected a number between 0 and 1" in run("release", code=2).err
    (folder / "release.toml").write_text(spec.replace('"categorical"', '"ordinal"'))
    assert 'expected kind = "categorical" for values to be discovered' in run("release", code=2).err
    (folder / "release.toml").write_text(spec.replace("epsilon = 1.0\ndelta = 1e-6\nl", "least = true\nl"))
    assert "expected an amount: values are discovered with a share of it" in run("release", code=2).err


def test_what_cannot_be_planned_is_refused_before_anything_is_spent(run, spec, folder):
    asked = '[[statistics]]\nkind = "share"\npredicate = "month <= 3 and dest == \'other\'"\n\n[budget]'
    text = spec.replace("k = [1, 2]", "k = 1").replace("[budget]", asked)
    (folder / "release.toml").write_text(text)
    ran = run("release", code=2)
    assert "cannot be answered" in ran.err
    assert "Discovered" not in ran.err
    assert not qs.Ledger("x.ledger").entries


def test_a_ledger_with_a_delta_beside_its_limit(run, spec, folder):
    text = spec.replace("epsilon = 1.0\ndelta = 1e-6\nledger", "rho = 0.05\nledger")
    text = text.replace("epsilon = 1.0, delta", "rho = 0.1, delta").replace("share = 0.25", "delta = 1e-7")
    (folder / "release.toml").write_text(text)
    run("release")
    assert qs.Ledger("x.ledger").delta == 1e-6
    run("ledger", "z.ledger", "create", "--rho", "1", "--delta", "1e-7")
    assert "delta = 1e-07 for discovered values" in run("ledger", "z.ledger").words
    assert run("ledger", "z.ledger", "--json").json["limit_delta"] == 1e-7


@pytest.mark.slow
def test_explore(run, spec, folder):
    ran = run("explore")
    assert TOGETHER in ran.words
    assert "FAILED" not in run("verify", "out", "--ledger", "x.ledger").words


def test_a_column_of_rare_values_has_only_others(run, spec, folder):
    table = pd.read_csv("flights.csv")
    table["dest"] = [f"d{i}" for i in range(ROWS)]
    table.to_csv("flights.csv", index=False)
    run("release")
    assert qs.Release.load("out/release.qs").schema["dest"].values == ("other",)
