"""Plans with exact counts: what they measure, how accurate they are, and what they refuse."""

import math

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError, TooLargeError
from tests.builders import COST
from tests.planning.drawn import SEEDS, drawn
from tests.reference import (
    PUBLIC,
    estimates,
    marginal_map,
    mechanism,
    pair_bounds,
    query_rows,
    split_map,
    split_variances,
    subsets,
)

SCHEMA = qs.Schema.of(state=3, sex=2, age=4)


def random_plan(seed, **options):
    workload, _ = drawn(seed)
    schema = workload.schema
    random = np.random.default_rng([seed, 2])
    names = random.permutation(schema.names)[: random.integers(1, max(2, len(schema)))].tolist()
    try:
        return qs.plan(workload, COST, exact=qs.marginals(schema, names), **options), names
    except PlanError as error:
        assert "nothing to measure" in str(error)  # noqa: PT017 - one exact set leaves nothing unprotected
        return None, names


def classes_of(schema, names):
    cells = np.unravel_index(np.arange(math.prod(schema.sizes)), schema.sizes)
    return sum(cells[a] * 100**i for i, a in enumerate(schema.positions(names)))


def whole_variances(plan, names):
    """The variances of the best linear unbiased estimates, with exact counts almost without noise."""
    schema = plan.workload.schema
    exact = marginal_map(schema, tuple(sorted(schema.positions(names)))) / math.sqrt(PUBLIC)
    queries, _ = query_rows(plan.workload)
    return (estimates(queries, np.concatenate([mechanism(plan), exact])) ** 2).sum(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:60])
def test_random_plans_are_as_accurate_as_they_say_and_near_the_best_of_their_kind(seed):
    plan, names = random_plan(seed, centering="uniform" if seed % 2 else "optimized")
    if plan is None:
        return
    workload, schema = plan.workload, plan.workload.schema
    known = plan.budget.unit.known(schema)
    found, (queries, weights) = plan.variances(workload), query_rows(workload)
    expected = whole_variances(plan, names) if plan.whole else split_variances(plan, workload)
    close = 1e-6 * found.max() + 1e3 * PUBLIC * (queries**2).sum(axis=1)
    assert np.all(np.abs(found - expected) <= 1e-5 * expected + close)
    assert weights @ found == pytest.approx(plan.weighted_loss, rel=1e-6)
    classes = np.unique(classes_of(schema, names), return_inverse=True)[1]
    means = (classes[:, None] == classes) / np.bincount(classes)[classes]
    follows = np.abs(queries - queries @ means).max(axis=1) < 1e-9 * np.abs(queries).max(axis=1)
    np.testing.assert_allclose(found[follows], 0.0, atol=1e-12 * found.max())
    assert np.all(found[~follows] > 0)
    assert not any(m.attributes in known for m in plan.measured)
    rows = mechanism(plan)
    gram = rows.T @ rows
    squares = np.diagonal(gram)
    costs = squares[:, None] + squares[None, :] - 2 * gram
    assert costs[classes[:, None] == classes].max() == pytest.approx(1.0, rel=1e-4)
    parts = []
    for kept in subsets(range(len(schema))):
        part = queries * np.sqrt(weights)[:, None] @ split_map(schema, plan.centres, kept)
        sure = np.linalg.norm(part, axis=1) > 1e-9 * np.linalg.norm(
            queries * np.sqrt(weights)[:, None], axis=1
        )
        if sure.any() and kept not in known:
            parts.append(part[sure] @ marginal_map(schema, kept))
    parts = [queries * np.sqrt(weights)[:, None]] if plan.whole else parts
    low, high = pair_bounds(parts, classes=classes)
    assert math.sqrt(plan.certificate.bound) <= high * (1 + 1e-6)
    assert math.sqrt(plan.certificate.value) >= low * (1 - 1e-6)


@pytest.mark.parametrize(
    ("names", "rmse"),
    [([], 2.3), (["state"], 2.1), (["state", "sex"], 1.7)],
)
def test_errors_fall_with_what_is_known(names, rmse):
    workload = qs.marginals(SCHEMA, [1, 2])
    budget = qs.PrivacyCost(1.0, neighbours="replace_one")
    plan = qs.plan(workload, budget, exact=qs.marginals(SCHEMA, names) if names else qs.marginals(SCHEMA, 0))
    assert plan.rmse < rmse
    assert plan.budget.exact == ((tuple(sorted(names)),) if names else ())


def test_one_private_attribute_beside_public_ones_costs_what_it_costs_alone():
    """Within each value of the public attribute, records are measured as if they were all there are."""
    plan = qs.plan(qs.marginals(SCHEMA, ["state", "age"]), COST, exact=qs.marginals(SCHEMA, ["state"]))
    alone = qs.plan(qs.marginals(qs.Schema.of(age=4), 1), qs.PrivacyCost(1.0, neighbours="replace_one"))
    assert plan.rmse == pytest.approx(alone.rmse, rel=1e-4)


@pytest.mark.parametrize(
    "exact", ["identity", "prefix", "range", "circular", [[1, 0, 0], [0, 1, 0]], [[1, 2, 5], [0, 0, 1]]]
)
def test_any_queries_that_determine_all_counts_say_what_is_exact(exact):
    plan = qs.plan(qs.marginals(SCHEMA, 2), COST, exact=qs.queries(SCHEMA, state=exact, sex=[[1, 1]]))
    assert plan.budget.exact == (("state",),)


def test_the_exact_total_is_a_public_number_of_records():
    plan = qs.plan(qs.marginals(SCHEMA, 2), COST, exact=qs.marginals(SCHEMA, 0))
    assert (plan.budget.neighbours, plan.budget.exact) == ("replace_one", ())


@pytest.mark.parametrize(
    ("exact", "message"),
    [
        (3, "exact: expected a workload of counts to publish, such as .*, got 3"),
        (qs.marginals(qs.Schema.of(a=2), 1), "exact: expected a workload on the schema of the planned one"),
        (
            qs.where(SCHEMA, "age >= 2 and sex == 1"),
            r"exact: expected queries that determine every count on \(sex, age\), or that of every group",
        ),
        (qs.affine(SCHEMA, "age", "sex"), "exact: expected queries that determine every count"),
        (
            qs.queries(SCHEMA, age=[[1, 1, 0, 0], [0, 1, 1, 0], [1, 2, 1, 0]]),
            r"publish all of them, as in qs.marginals\(schema, \['age'\]\)",
        ),
        (
            qs.queries(SCHEMA, state=[[1, 0, 0], [0, 1, 0]], sex="identity"),
            r"determine every count on \(state, sex\)",
        ),
        (qs.marginals(SCHEMA, [1]), r"counts on \(state, sex\).*publish these as well"),
        (qs.marginals(SCHEMA, 2), "nothing to measure"),
    ],
)
def test_what_is_refused(exact, message):
    with pytest.raises(PlanError, match=message):
        qs.plan(qs.marginals(SCHEMA, 2), COST, exact=exact)


def test_exact_tables_that_are_too_large_to_count_are_refused():
    schema = qs.Schema.of(a=5_000, b=5_000, c=3, d=2)
    with pytest.raises(
        TooLargeError, match=r"exact: the exact table on \(a, b, c\) has 75,000,000 cells, more than"
    ):
        qs.plan(qs.marginals(schema, ["d"]), COST, exact=qs.marginals(schema, ["a", "b", "c"]))


def test_few_queries_are_measured_whole_at_the_optimum_over_all_mechanisms():
    workload = qs.where(SCHEMA, "age < sex") + qs.where(SCHEMA, "state < age")
    exact = qs.marginals(SCHEMA, ["state"])
    plan = qs.plan(workload, COST, exact=exact)
    assert plan.whole == (0, 1)
    assert plan.gap < 1e-3
    assert plan.rmse < 0.8 * qs.plan(workload, COST, exact=exact, centering="uniform").rmse
    same = qs.plan(workload, COST, exact=exact, mechanism="whole")
    assert same.rmse == pytest.approx(plan.rmse, rel=1e-3)


def test_whole_queries_are_refused_with_several_exact_tables():
    exact = qs.marginals(SCHEMA, ["state"]) + qs.marginals(SCHEMA, ["sex"])
    with pytest.raises(PlanError, match="mechanism: expected one that splits queries"):
        qs.plan(qs.where(SCHEMA, "age < sex"), COST, mechanism="whole", exact=exact)


def test_small_tables_are_certified_against_all_mechanisms():
    for workload in (qs.marginals(SCHEMA, [1, 2]), qs.all_kway(SCHEMA, 2, "prefix")):
        assert qs.plan(workload, COST, exact=qs.marginals(SCHEMA, ["state"])).gap < 1e-3


@pytest.mark.parametrize("mechanism", ["residual", "basis", "fourier"])
def test_other_mechanisms_use_exact_counts_too(mechanism):
    workload, exact = qs.marginals(SCHEMA, [1, 2]), qs.marginals(SCHEMA, ["state"])
    plan = qs.plan(workload, COST, mechanism=mechanism, exact=exact)
    assert plan.rmse == pytest.approx(qs.plan(workload, COST, exact=exact).rmse, rel=1e-3)


def test_targets_and_largest_errors_with_exact_counts():
    exact = qs.marginals(SCHEMA, ["state"])
    workload = qs.marginals(SCHEMA, [1, 2]) + qs.all_kway(SCHEMA, 1, "prefix")
    worst = qs.plan(workload, COST, exact=exact, objective="worst")
    assert worst.worst <= qs.plan(workload, COST, exact=exact).worst
    assert worst.worst_std == pytest.approx(math.sqrt(worst.variances(workload).max()), rel=1e-6)
    least = qs.least_budget(workload.within(10), exact=exact)
    assert least.budget.exact == (("state",),)
    assert math.sqrt(least.variances(workload).max()) <= 10 * (1 + 1e-6)
    assert least.privacy_cost < qs.least_budget(workload.within(10), neighbours="replace_one").privacy_cost


def test_lines_beside_a_public_attribute(monkeypatch):
    schema = qs.Schema.of(state=3, age=700)
    workload = qs.queries(schema, state="identity", age="prefix")
    plan = qs.plan(workload, COST, exact=qs.marginals(schema, ["state"]))
    alone = qs.plan(
        qs.queries(qs.Schema.of(age=700), age="prefix"), qs.PrivacyCost(1.0, neighbours="replace_one")
    )
    assert plan.rmse == pytest.approx(alone.rmse, rel=0.02)
    (last,) = {float(v) for v in plan.variances(qs.marginals(schema, ["state"]))}
    assert last == 0.0


def test_a_plan_with_exact_counts_is_saved_and_loaded(tmp_path):
    plan = qs.plan(qs.marginals(SCHEMA, [1, 2]), COST, exact=qs.marginals(SCHEMA, ["state"]))
    plan.save(tmp_path / "p.plan")
    loaded = qs.Plan.load(tmp_path / "p.plan")
    assert loaded.budget == plan.budget
    np.testing.assert_array_equal(loaded.variances(plan.workload), plan.variances(plan.workload))
