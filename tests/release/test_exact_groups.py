"""Releases with exact counts of groups of values: answers follow from them, and are the best with them."""

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.errors import DataError
from querysmasher.planning import candidates
from querysmasher.planning.limits import limited
from tests.builders import SPLIT, classes_of_groups, grouped
from tests.reference import marginal_map, query_rows
from tests.release.tables import frame, random_counts

SCHEMA = qs.Schema.of(state=3, sex=2, age=5)
TABLE = random_counts(SCHEMA, 5, 2_000)
WORKLOAD = qs.marginals(SCHEMA, [1, 2]) + qs.all_kway(SCHEMA, [1, 2], "prefix") + qs.where(SCHEMA, "age >= 2")
GROUPS = np.array([1, 0, 0, 1, 0])


def release(by, public=None, seed=1):
    exact = grouped(SCHEMA, "age", GROUPS, *by)
    return qs.measure(
        qs.plan(WORKLOAD, qs.zCDP(0.1), exact=exact), frame(SCHEMA, TABLE), seed=seed, public=public
    )


def fitted(made, classes):
    """The least squares estimate of all cells from the noisy numbers and the exact counts."""
    rows, answers = [], []
    for m in made.to_arrays():
        on = marginal_map(SCHEMA, SCHEMA.positions(m.attributes))
        rows.append(m.matrix() @ on / np.sqrt(m.variances.reshape(-1, 1)))
        answers.append((m.answers / np.sqrt(m.variances)).ravel())
    facts = np.eye(classes.max() + 1)[:, classes]
    _, values, turned = np.linalg.svd(facts)
    free = turned[len(values) :]  # what the exact counts leave open
    start = np.linalg.pinv(facts) @ (facts @ TABLE.ravel())
    rows, answers = np.concatenate(rows), np.concatenate(answers)
    return start + free.T @ (np.linalg.pinv(rows @ free.T, rcond=1e-10) @ (answers - rows @ start))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("by", [(), ("state",), ("sex",)])
def test_answers_are_the_best_with_exact_counts(by, whole, monkeypatch, tmp_path):
    if not whole:
        monkeypatch.setattr(candidates, "merged_groups", lambda *_: None)
    made, classes = release(by), classes_of_groups(SCHEMA, "age", GROUPS, by)
    assert bool(made.plan.measured[0].attributes == (0, 1, 2)) == whole
    queries, _ = query_rows(WORKLOAD)
    answers = made.answer(WORKLOAD)
    np.testing.assert_allclose(answers.values, queries @ fitted(made, classes), atol=1e-6)
    facts = grouped(SCHEMA, "age", GROUPS, *by)
    expected = query_rows(facts)[0] @ TABLE.ravel()
    np.testing.assert_array_equal(made.answer(facts).values, expected)
    np.testing.assert_array_equal(made.answer(facts).std, 0.0)
    np.testing.assert_array_equal(made.covariance(facts), 0.0)
    means = (classes[:, None] == classes) / np.bincount(classes)[classes]
    follows = np.abs(queries - queries @ means).max(axis=1) < 1e-9
    np.testing.assert_array_equal(answers.std == 0, follows)
    np.testing.assert_array_equal(answers.values[follows], (queries @ TABLE.ravel())[follows])
    np.testing.assert_allclose(made.covariance(WORKLOAD).diagonal(), answers.std**2, rtol=1e-6, atol=1e-9)
    table = made.marginal("state", "age")
    np.testing.assert_allclose(
        table.ravel(), made.answer(qs.marginals(SCHEMA, ["state", "age"])).values, atol=1e-6
    )
    made.save(tmp_path / "r")
    loaded = qs.Release.load(tmp_path / "r")
    assert loaded.guarantee == made.guarantee
    np.testing.assert_array_equal(loaded.answer(WORKLOAD).values, answers.values)


def test_errors_are_those_predicted():
    for by in ((), ("state",)):
        made = release(by)
        plan = qs.plan(WORKLOAD, qs.zCDP(0.1), exact=grouped(SCHEMA, "age", GROUPS, *by))
        np.testing.assert_allclose(made.variances(WORKLOAD), plan.variances(WORKLOAD), rtol=0.02, atol=1e-9)


def test_public_totals_of_groups_are_read_from_a_file(tmp_path):
    sums = np.array([TABLE[..., g == GROUPS].sum(axis=(1, 2)) for g in (1, 0)])
    rows = [(f"g{g}", s, sums[i, s]) for i, g in enumerate((1, 0)) for s in range(3)]
    totals = pd.DataFrame(rows, columns=["age", "state", "count"])
    totals.to_csv(tmp_path / "t.csv", index=False)
    made, same = release(("state",), tmp_path / "t.csv"), release(("state",))
    np.testing.assert_array_equal(made.answer().values, same.answer().values)
    with pytest.raises(DataError, match="disagrees with the public totals"):
        release(("state",), totals.assign(count=totals["count"].to_numpy()[::-1]))
    with pytest.raises(DataError, match="expected values of 'age' that name a group, g1, g0, got others"):
        release(("state",), totals.replace("g1", "x"))


def test_the_guarantee_says_which_groups():
    made = release(("state",))
    assert "replacing one record by one with the same part of age and state" in made.plan.budget.describe()
    assert "What a record says about part of age and state is not protected" in made.plan.budget.describe()


def test_a_ledger_records_them_and_is_read_again(tmp_path):
    exact = grouped(SCHEMA, "age", GROUPS)
    plan = qs.plan(WORKLOAD, qs.zCDP(0.1), exact=exact)
    limit = qs.zCDP(1, neighbours="replace_one")
    for _ in range(2):
        qs.measure(plan, frame(SCHEMA, TABLE), ledger=qs.Ledger(tmp_path / "people.ledger", limit=limit))
    entries = qs.Ledger(tmp_path / "people.ledger", limit=limit).entries
    assert [entry.unit.exact for entry in entries] == [plan.budget.exact] * 2


ON_BOTH = qs.queries(SCHEMA, age="prefix") + qs.queries(SCHEMA, age="identity", state="prefix")
TIED = ON_BOTH + qs.affine(SCHEMA, "state", "age")


@pytest.mark.parametrize(
    ("workload", "by", "options"),
    [
        (qs.queries(SCHEMA, age="prefix"), (), {"mechanism": "whole"}),
        (ON_BOTH, ("state",), {"mechanism": "whole"}),
        (TIED, ("state",), {}),
        (TIED, (), {}),
        (TIED + qs.all_kway(SCHEMA, [1, 2], "prefix"), ("sex",), {}),
    ],
)
def test_answers_are_those_of_the_table_if_there_is_hardly_any_noise(workload, by, options):
    """Also where exact counts cover all that is measured whole, and where a block ties other attributes."""
    with limited(**({} if options else SPLIT)):
        plan = qs.plan(workload, qs.zCDP(1e8), exact=grouped(SCHEMA, "age", GROUPS, *by), **options)
    answers = qs.measure(plan, frame(SCHEMA, TABLE), seed=1).answer(workload)
    wrong = answers.values - query_rows(workload)[0] @ TABLE.ravel()
    assert np.all(np.abs(wrong) <= 6 * answers.std + 1e-9)
    assert answers.std.max() < 0.01
