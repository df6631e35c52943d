"""Marginals and statistics at a level of a hierarchy, against the same queries written out."""

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.errors import UnknownAttributeError, WorkloadError

TRACTS = ["0101", "0102", "0203", "1101", "1102", "1203"]
SCHEMA = qs.Schema(
    [qs.Categorical("sex", ["F", "M"]), qs.Categorical("tract", TRACTS), qs.Ordinal("age", range(5))]
)
GEOGRAPHY = qs.hierarchy(SCHEMA, "tract", state=1, county=2)
STATE = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])


@pytest.fixture(scope="module")
def release():
    workload = qs.all_kway(SCHEMA, [1, 2, 3], {"tract": GEOGRAPHY})
    rng = np.random.default_rng(1)
    data = pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], 4_000),
            "tract": rng.choice(TRACTS, 4_000),
            "age": rng.integers(0, 5, 4_000),
        }
    )
    return qs.measure(qs.plan(workload, qs.PrivacyCost(1.0)), data, seed=3)


def test_a_marginal_at_a_level_is_the_sum_over_its_groups(release):
    at = release.at("state")
    fine = np.asarray(release.marginal("sex", "tract"))
    np.testing.assert_allclose(at.marginal("sex", "state"), fine @ STATE.T)
    np.testing.assert_allclose(at.marginal("state", "sex"), STATE @ fine.T)
    frame = at.marginal("state", "sex").to_frame("pandas")
    assert frame["state"].tolist() == ["0", "0", "1", "1"]
    rows = release.answer(qs.queries(SCHEMA, tract=STATE, sex="identity"))
    np.testing.assert_allclose(frame["std"], rows.std)
    np.testing.assert_allclose(frame["value"], rows.values)
    county = at.release.at("county")
    assert county.marginal("county").shape == (4,)


def test_statistics_at_a_level(release):
    at = release.at("state")
    table = at.table("state", "sex", percent="row")
    one = release.share("sex == 'F'", of=f"tract in {TRACTS[:3]}")
    np.testing.assert_allclose(table.figures.values.reshape(3, 3)[0, 0], 100 * one.values)
    np.testing.assert_allclose(table.figures.std.reshape(3, 3)[0, 0], 100 * one.std)
    total = at.table("state", "sex", percent="total")
    one = release.ratio(f"sex == 'F' and tract in {TRACTS[:3]}", "total")
    np.testing.assert_allclose(total.std[0, 0], 100 * one.std[0])
    by = at.mean("age", by="state")
    for place, digit in enumerate("01"):
        inside = f"tract in {[t for t in TRACTS if t[0] == digit]}"
        one = release.mean("age", where=inside)
        np.testing.assert_allclose(by.values[place], one.values, rtol=1e-9)
        np.testing.assert_allclose(by.std[place], one.std, rtol=1e-9)
    share = at.share("age >= 3", of="state == '1'")
    same = release.share("age >= 3", of=f"tract in {TRACTS[3:]}")
    np.testing.assert_allclose([share.values, share.std], [same.values, same.std])
    assert at.quantile("age", [0.5], by="state").values.shape
    np.testing.assert_allclose(
        at.covariance(at.workload), release.covariance(qs.queries(SCHEMA, tract=STATE))
    )
    assert len(at.answer(["state == '0'", "state == '1' and sex == 'F'"]).values) == 2


def test_any_groups_of_any_attribute(release):
    at = release.at("age", {"young": [0, 1, 2], "old": [3, 4]})
    fine = np.asarray(release.marginal("age"))
    np.testing.assert_allclose(at.marginal("age"), [fine[:3].sum(), fine[3:].sum()])
    first = release.at("tract", 1)
    np.testing.assert_allclose(first.marginal("tract"), release.at("state").marginal("state"))
    assert "tract" in repr(first)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("region",), WorkloadError, ["'state', 'county'", "'region'"]),
        (("region", 1), UnknownAttributeError, ["region"]),
        (("tract", {"a": TRACTS[:2]}), WorkloadError, ["'0203'"]),
        (("tract", 9), WorkloadError, ["got 9"]),
    ],
)
def test_levels_that_do_not_exist(release, arguments, error, words):
    with pytest.raises(error) as caught:
        release.at(*arguments)
    assert all(word in str(caught.value) for word in words)


def test_a_workload_on_another_schema_is_refused(release):
    with pytest.raises(WorkloadError, match="schema"):
        release.at("state").answer(qs.marginals(SCHEMA, 1))
    with pytest.raises(WorkloadError, match="at least one"):
        release.at("state").marginal()
