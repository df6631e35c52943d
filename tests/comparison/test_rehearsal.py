"""A rehearsal: estimates are compared on a table that the user gives, and only then."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import querysmasher as qs
from querysmasher.cli.app import app
from querysmasher.comparison.rehearsal import rehearse
from tests.cli.conftest import Ran
from tests.estimate.tables import BUDGET, counted, frame, people

pytestmark = pytest.mark.usefixtures("unmeasured")

SCHEMA, RECORDS = people()
TABLE = frame(SCHEMA, RECORDS)
WORKLOAD = qs.marginals(SCHEMA, 3)


def test_nothing_is_said_about_estimates_without_a_table():
    assert qs.compare(WORKLOAD, BUDGET, ["querysmasher"]).rehearsed is None


@pytest.mark.slow
def test_a_rehearsal_states_the_errors_of_every_way():
    compared = qs.compare(WORKLOAD, BUDGET, ["querysmasher"], rehearsal=TABLE)
    rows = {row.name: row for row in compared.rehearsed.rows}
    assert set(rows) == {"unbiased", "post-processed", "estimate", "explore"}
    assert [r.share for r in compared.rehearsed.rows] == sorted(r.share for r in rows.values())
    assert compared.rehearsed.winner in {"estimate", "explore"}
    assert rows["unbiased"].rmse == pytest.approx(compared.rows[0].rmse, rel=0.1)
    release = qs.explore(WORKLOAD, TABLE, BUDGET, seed=0)
    places = [SCHEMA.positions(group.attributes) for group in WORKLOAD]
    exact = np.concatenate([counted(SCHEMA, RECORDS, place).ravel() for place in places])
    own = np.abs(release.estimate().answer().values - exact).sum() / len(RECORDS) / len(WORKLOAD.groups)
    assert rows["explore"].share == pytest.approx(own, rel=0.5)
    assert "not private" in repr(compared)
    assert "on the rehearsal table" in repr(compared)


@pytest.mark.slow
def test_ways_that_do_not_support_the_workload_say_so():
    rows = {row.name: row for row in rehearse(qs.all_kway(SCHEMA, 1, "prefix"), TABLE, BUDGET, 1).rows}
    assert rows["unbiased"].share is not None
    assert rows["explore"].share is None
    assert "marginals only" in rows["explore"].note


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE[["a", "e"]].to_csv("other.csv", index=False)
    (tmp_path / "release.toml").write_text(
        """
[[schema]]
name = "a"
kind = "ordinal"
range = [0, 7]
[[schema]]
name = "e"
kind = "ordinal"
range = [0, 2]
[[workload]]
kind = "marginals"
k = 2
[budget]
rho = 0.01
"""
    )
    ran = Ran(CliRunner().invoke(app, ["compare", "--rehearsal", "other.csv"]))
    assert ran.code == 0
    assert "on the rehearsal table" in ran.out
    ran = Ran(CliRunner().invoke(app, ["compare", "--rehearsal", "other.csv", "--json"]))
    assert {row["name"] for row in json.loads(ran.out)["rehearsal"]} >= {"explore", "unbiased"}
