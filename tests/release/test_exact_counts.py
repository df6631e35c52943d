"""Releases with exact counts: answers equal them, and everything else agrees with them."""

import dataclasses

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import FileError, PrivacyError
from querysmasher.files import write_archive
from querysmasher.release.release_file import release_to_data
from tests.reference import query_rows
from tests.release.tables import frame, random_counts

SCHEMA = qs.Schema.of(state=3, sex=2, age=4)
TABLE = random_counts(SCHEMA, 5, 2_000)
WORKLOAD = qs.marginals(SCHEMA, [1, 2]) + qs.all_kway(SCHEMA, [1, 2], "prefix") + qs.where(SCHEMA, "age >= 2")


def release(names=("state", "sex"), seed=1, table=TABLE, **options):
    plan = qs.plan(WORKLOAD, qs.zCDP(0.1), exact=qs.marginals(SCHEMA, list(names)))
    return qs.measure(plan, frame(SCHEMA, table), seed=seed, **options)


def truth(workload, table=TABLE):
    return query_rows(workload)[0] @ table.ravel()


@pytest.mark.parametrize("names", [("state",), ("sex", "state"), ("age", "sex")])
def test_answers_equal_exact_counts_and_have_no_error(names):
    made = release(names)
    exact = qs.marginals(SCHEMA, list(names)) + qs.queries(SCHEMA, dict.fromkeys(names, "prefix"))
    answers = made.answer(exact)
    np.testing.assert_array_equal(answers.values, truth(exact))
    np.testing.assert_array_equal(answers.std, 0.0)
    np.testing.assert_array_equal(made.variances(exact), 0.0)
    np.testing.assert_array_equal(made.covariance(exact), 0.0)
    axes = tuple(a for a, n in enumerate(SCHEMA.names) if n not in names)
    expected = TABLE.sum(axis=axes).transpose(np.argsort(np.argsort(SCHEMA.positions(names))))
    np.testing.assert_array_equal(made.marginal(*names), expected)
    assert made.public_total == 2_000


def test_every_query_without_error_is_answered_exactly():
    made = release()
    answers = made.answer(WORKLOAD)
    known = answers.std == 0
    np.testing.assert_array_equal(answers.values[known], truth(WORKLOAD)[known])
    np.testing.assert_array_equal(
        known, made.plan.budget.unit.known(SCHEMA).sets and made.variances(WORKLOAD) == 0
    )
    assert 0 < known.sum() < len(known)


def test_queries_measured_whole_are_answered_beside_exact_counts():
    states = qs.marginals(SCHEMA, ["state"])
    workload = qs.where(SCHEMA, "age < sex") + qs.where(SCHEMA, "state < age") + states
    plan = qs.plan(workload, qs.zCDP(0.1), exact=states)
    assert plan.whole
    answers = qs.measure(plan, frame(SCHEMA, TABLE), seed=1).answer(workload)
    np.testing.assert_allclose(answers.std**2, plan.variances(workload), rtol=0.02)
    np.testing.assert_array_equal(answers.values[2:], TABLE.sum(axis=(1, 2)))
    assert np.abs((answers.values - truth(workload))[:2] / answers.std[:2]).max() < 5


def test_all_tables_agree_with_exact_counts():
    made = release(("state",))
    for names in (("state", "sex"), ("state", "age")):
        np.testing.assert_allclose(made.marginal(*names).sum(axis=1), TABLE.sum(axis=(1, 2)), atol=1e-8)


@pytest.mark.slow
def test_errors_are_those_predicted():
    """100 draws; a false alarm of the largest of 60 z-scores above 5 in less than one of 10,000 runs."""
    plan = qs.plan(WORKLOAD, qs.zCDP(0.1), exact=qs.marginals(SCHEMA, ["state", "sex"]))
    releases = [qs.measure(plan, frame(SCHEMA, TABLE), seed=seed) for seed in range(100)]
    errors = np.array([made.answer(WORKLOAD).values for made in releases]) - truth(WORKLOAD)
    expected = releases[0].variances(WORKLOAD)
    noisy = expected > 0
    np.testing.assert_array_equal(errors[:, ~noisy], 0.0)
    z = errors[:, noisy].mean(axis=0) / np.sqrt(expected[noisy] / 100)
    assert np.abs(z).max() < 5
    ratio = (errors[:, noisy] ** 2).mean(axis=0) / expected[noisy]
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / 100)


def test_statistics_follow():
    made = release(("state", "sex"))
    shares = made.share("sex == 0", of="state == 1")
    assert float(shares.std[0]) == 0.0
    assert float(shares.values[0]) == pytest.approx(TABLE[1, 0].sum() / TABLE[1].sum())
    assert made.mean("age", by="sex").std.min() > 0


def test_a_release_with_exact_counts_is_saved_and_loaded(tmp_path):
    made = release()
    made.save(tmp_path / "r")
    loaded = qs.Release.load(tmp_path / "r")
    assert loaded.guarantee == made.guarantee
    for one, other in zip(loaded.exact, made.exact, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(loaded.answer(WORKLOAD).values, made.answer(WORKLOAD).values)


def changed(data):
    exact = [table.copy() for table in data["exact"]]
    exact[0][0, 0] += 1
    return exact


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d.update(exact=changed(d)), "contradict the number of records"),
        (lambda d: d.update(exact=[-d["exact"][0]]), "release"),
        (lambda d: d.update(exact=[d["exact"][0].T]), "release"),
        (lambda d: d.update(exact=[]), "release"),
    ],
)
def test_a_forged_table_of_exact_counts_is_refused(tmp_path, change, error):
    data = release_to_data(release())
    change(data)
    write_archive(tmp_path / "r", "release", data)
    with pytest.raises(FileError, match=error):
        qs.Release.load(tmp_path / "r")


def test_exact_tables_that_contradict_each_other_are_refused(tmp_path):
    plan = qs.plan(
        qs.marginals(SCHEMA, ["age", "sex"]),
        qs.zCDP(0.1),
        exact=qs.marginals(SCHEMA, ["state", "sex"]) + qs.marginals(SCHEMA, ["sex"]),
    )
    assert plan.budget.exact == (("sex", "state"),)
    schema = qs.Schema.of(a=2, b=2, c=2, d=2)
    exact = qs.marginals(schema, ["a", "b"]) + qs.marginals(schema, ["b", "c"])
    made = qs.measure(
        qs.plan(qs.marginals(schema, ["d"]), qs.zCDP(0.1), exact=exact),
        frame(schema, random_counts(schema, 1, 50)),
        seed=1,
    )
    other = np.roll(made.exact[1], 1, axis=0)
    if np.array_equal(made.exact[1].sum(axis=1), other.sum(axis=1)):
        pytest.fail("the case must contradict")
    data = release_to_data(dataclasses.replace(made, exact=(made.exact[0], other)))
    write_archive(tmp_path / "r", "release", data)
    with pytest.raises(FileError, match="exact counts contradict each other"):
        qs.Release.load(tmp_path / "r")


def test_nothing_else_of_the_table_is_exact():
    """Tables with the same exact counts and noise: only noisy answers differ."""
    other = TABLE.copy()
    first, second = np.flatnonzero(TABLE[0, 0])[0], (np.flatnonzero(TABLE[0, 0])[0] + 1) % 4
    other[0, 0, first] -= 1
    other[0, 0, second] += 1
    one, two = release_to_data(release()), release_to_data(release(table=other))
    for name in ("exact", "public_total", "variances", "budget"):
        assert all(
            np.array_equal(a, b) for a, b in zip(np.ravel(one[name]), np.ravel(two[name]), strict=True)
        )


def test_the_guarantee_says_what_is_exact():
    assert (
        "with the same sex and state, and so have the same exact counts by sex × state"
        in qs.plan(WORKLOAD, qs.zCDP(0.1), exact=qs.marginals(SCHEMA, ["state", "sex"])).budget.describe()
    )


@pytest.mark.parametrize("intended", [qs.zCDP(0.1), qs.zCDP(0.1, neighbours="replace_one")])
def test_a_budget_for_other_neighbours_is_refused(intended):
    with pytest.raises(PrivacyError, match="budget: the plan has budget"):
        release(budget=intended)
    plan = qs.plan(WORKLOAD, qs.zCDP(0.1), exact=qs.marginals(SCHEMA, ["state"]))
    qs.measure(plan, frame(SCHEMA, TABLE), seed=1, budget=plan.budget)
