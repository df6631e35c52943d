"""Hierarchies planned on their nodes, alone and beside other attributes: against dense least squares."""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError, WorkloadError
from querysmasher.planning.limits import limited, limits
from tests.builders import COST, SPLIT, as_lines
from tests.release.tables import check_simulated, frame, random_counts
from tests.strategies import trees


def sized_trees(size, leaves=None):
    """Hierarchies of so many values."""
    return trees(size, leaves, least=size)


TWO = qs.Schema.of(a=12, b=9)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(sized_trees(12, leaves=True), sized_trees(9, leaves=True), st.booleans(), st.booleans())
def test_two_hierarchies_asked_separately_are_certified(first, second, public, total):
    """Against the plan with matrices: the bound holds for every plan, and the gap is moderate."""
    budget = qs.PrivacyCost(1.0, neighbours="replace_one") if public else COST
    workload = qs.queries(TWO, a=first) + qs.queries(TWO, b=second)
    workload = workload + qs.marginals(TWO, 0) if total and not public else workload
    with as_lines(5), limited(**SPLIT):
        plan = qs.plan(workload, budget)
    dense = qs.plan(workload, budget, centering="uniform")
    assert plan.weighted_rmse / (1 + plan.gap) <= dense.weighted_rmse * (1 + 1e-6)
    assert plan.gap < 2


def test_small_hierarchies_are_planned_on_their_nodes_as_closely():
    """As rows that are measured whole, 900 values by three took twelve seconds, for the same error."""
    schema = qs.Schema.of(place=90, sex=3)
    tree = qs.hierarchy(schema, "place", np.arange(90) // 30, np.arange(90) // 6)
    workload = qs.queries(schema, place=tree, sex="identity")
    plan = qs.plan(workload, COST)
    with limited(mixed_values=1_500):
        dense = qs.plan(workload, COST)
    assert dense.whole
    assert not plan.whole
    assert plan.weighted_rmse <= dense.weighted_rmse * 1.001
    assert plan.gap < 1e-3
    large = qs.Schema.of(place=900, sex=3)
    rows = qs.queries(large, place=qs.hierarchy(large, "place", np.arange(900) // 30), sex="identity")
    assert not qs.plan(rows, COST).whole


@pytest.mark.slow
def test_small_hierarchies_keep_one_centre_where_a_record_is_replaced():
    """With a centre for every set, it was 6.42."""
    schema = qs.Schema.of(place=92, age=40, sex=7)
    tree = qs.hierarchy(schema, "place", np.arange(92) // 20, np.arange(92) // 5)
    workload = qs.queries(schema, place=tree, sex="prefix") + 3 * qs.queries(schema, place=tree, age="prefix")
    plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one"))
    assert plan.weighted_rmse <= 6.31


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_homes_and_workplaces(neighbours):
    schema = qs.Schema.of(home=2_000, work=2_000)
    state = np.repeat(np.arange(20), 100)
    homes, works = (qs.hierarchy(schema, name, state) for name in schema.names)
    budget = qs.PrivacyCost(1.0, neighbours=neighbours)
    plan = qs.plan(qs.queries(schema, home=homes) + qs.queries(schema, work=works), budget)
    assert plan.gap < 0.02


GROUPS = [0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3]
SMALL = qs.Schema(
    [qs.Ordinal("age", range(6)), qs.Categorical("sex", ["F", "M"]), qs.Ordinal("town", range(12))]
)
TREE = qs.hierarchy(SMALL, "town", country=[0] * 12, state=[g // 2 for g in GROUPS], county=GROUPS)


@pytest.mark.parametrize(
    "workload",
    [
        qs.queries(SMALL, town=TREE),
        qs.queries(SMALL, town=TREE) + 0.1 * qs.queries(SMALL, town="identity"),
        qs.queries(SMALL, town=TREE, age="prefix", sex="identity"),
        qs.all_kway(SMALL, [1, 2, 3], {"town": TREE}),
        qs.queries(SMALL, town=TREE, age="prefix").weighing("tables") + qs.marginals(SMALL, 0),
    ],
)
def test_the_switch_is_seamless_in_accuracy(workload):
    """The same workload with matrices and on nodes: the error differs by a fraction of a percent."""
    dense = qs.plan(workload, COST)
    plan = planned_on_nodes(workload, COST)
    assert {m.method for m in plan.methods} & {"tree"}
    assert not {m.method for m in dense.methods} & {"tree"}
    assert plan.weighted_rmse == pytest.approx(dense.weighted_rmse, rel=0.006)


def test_the_error_is_certified_against_the_dense_optimum():
    workload = qs.queries(SMALL, town=TREE)
    plan = planned_on_nodes(workload, COST)
    best = qs.plan(workload, COST, mechanism="whole", tolerance=1e-6)
    assert plan.rmse / (1 + plan.gap) <= best.rmse * (1 + 1e-6)
    assert plan.rmse <= best.rmse * 1.001
    assert plan.limit().excess == pytest.approx(plan.gap, abs=1e-5)


@cache
def planned_on_nodes(workload, budget):
    with as_lines(10), limited(**SPLIT):
        return qs.plan(workload, budget)


def released(seed, workload=None, budget=COST):
    asked = qs.all_kway(SMALL, [1, 2, 3], {"town": TREE}) if workload is None else workload
    return qs.measure(planned_on_nodes(asked, budget), DATA, seed=seed)


DATA = frame(SMALL, random_counts(SMALL, 0, records=3_000))


@pytest.mark.slow
def test_answers_are_unbiased_and_standard_errors_right_in_simulation():
    workload = qs.queries(SMALL, town=TREE, sex="identity") + qs.queries(SMALL, town=TREE)
    plan = planned_on_nodes(qs.all_kway(SMALL, [1, 2, 3], {"town": TREE}), COST)
    check_simulated(plan, workload, random_counts(SMALL, 0, records=3_000), 60)


@pytest.mark.slow
def test_plans_and_releases_come_back_from_files(tmp_path):
    release = released(5)
    plan = planned_on_nodes(release.workload, COST)
    plan.save(tmp_path / "x.plan")
    again = qs.Plan.load(tmp_path / "x.plan")
    assert again.variances(plan.workload).tobytes() == plan.variances(plan.workload).tobytes()
    release.save(tmp_path / "x.release")
    loaded = qs.Release.load(tmp_path / "x.release")
    assert loaded.answer().values.tobytes() == release.answer().values.tobytes()
    assert loaded.answer().std.tobytes() == release.answer().std.tobytes()
    assert loaded.workload == release.workload
    assert loaded.at("state").table("state", "sex").figures.std.shape
    assert plan.report(tmp_path / "plan.html").stat().st_size
    assert release.report(tmp_path / "release.html").stat().st_size
    assert "tree" in {block.method for block in plan.methods}


def test_marginals_are_consistent_at_every_level():
    release = released(6)
    towns = np.asarray(release.marginal("town", "sex"))
    np.testing.assert_allclose(release.marginal("town"), towns.sum(axis=1))
    counties = [towns[np.array(GROUPS) == group].sum(axis=0) for group in range(4)]
    np.testing.assert_allclose(release.at("county").marginal("county", "sex"), counties)
    np.testing.assert_allclose(release.marginal("sex"), towns.sum(axis=0))
    answers = release.answer(qs.queries(SMALL, town=TREE))
    np.testing.assert_allclose(answers.values, TREE.matrix() @ towns.sum(axis=1))


@pytest.mark.parametrize("name", ["country", "state", "county"])
def test_statistics_at_a_level_are_those_of_the_same_queries(name):
    """Computed over a few nodes, against rows over all values."""
    release = released(7)
    at = release.at(name)
    level = TREE.groups[TREE.titles.index(name)]
    rows = (level == np.arange(level.max() + 1)[:, None]).astype(float)
    workload = qs.queries(SMALL, town=rows, age="prefix")
    coarse = qs.queries(at.coarsening.schema, {name: "identity", "age": "prefix"})
    found, expected = at.answer(coarse), release.answer(workload)
    np.testing.assert_allclose(found.values, expected.values)
    np.testing.assert_allclose(found.std, expected.std)
    np.testing.assert_allclose(at.covariance(coarse), release.covariance(workload), atol=1e-9)
    union = release.at("town", {"a": [0, 1, 2, 3, 11], "b": [4, 5, 6, 7, 8, 9, 10]})
    one = release.answer(qs.queries(SMALL, town=[[1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]]))
    np.testing.assert_allclose(union.answer().std[0], one.std[0])
    np.testing.assert_allclose(union.answer().values[0], one.values[0])


def test_groups_without_values_cannot_answer_values(refuses):
    coarse = qs.hierarchy(SMALL, "town", state=[g // 2 for g in GROUPS], county=GROUPS, leaves=False)
    release = released(8, qs.queries(SMALL, town=coarse, sex="identity"))
    assert release.answer(qs.queries(SMALL, town=coarse)).std.shape == (6,)
    np.testing.assert_allclose(
        release.at("state").marginal("state"), release.answer(qs.queries(SMALL, town=coarse)).values[:2]
    )
    for call in (
        lambda: release.answer(qs.queries(SMALL, town="identity")),
        lambda: release.answer("town == 3"),
        lambda: release.marginal("town"),
        lambda: release.at("town", [0, 1] * 6).answer(),
    ):
        with refuses(OutsideMeasuredSpaceError, ValueError):
            call()


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hierarchy_beside_prefixes_on_one_large_attribute(refuses):
    n = limits().axis_values + 1
    schema = qs.Schema.of(x=n)
    tree = qs.hierarchy(schema, "x", np.arange(n) // 100)
    assert qs.plan(qs.queries(schema, x=tree) + qs.queries(schema, x="prefix"), COST).gap < 0.01
    other = qs.hierarchy(schema, "x", np.arange(n) % 70)
    with refuses(TooLargeError, ValueError, "some group is not a range", "prefixes"):
        qs.plan(qs.queries(schema, x=other) + qs.queries(schema, x="prefix"), COST)
    assert qs.plan(qs.queries(schema, x=tree) + qs.queries(schema, x=other), COST).gap < 0.01


def test_the_limit_of_a_large_tree_is_its_certificate():
    schema = qs.Schema.of(x=3_000, sex=2)
    tree = qs.hierarchy(schema, "x", np.arange(3_000) // 100, [0] * 3_000)
    plan = qs.plan(qs.queries(schema, x=tree), COST)
    assert plan.limit().excess == plan.gap < 1e-4
    crossed = qs.plan(qs.queries(schema, x=tree, sex="identity"), COST)
    assert "large attributes" in str(crossed.limit())


@pytest.mark.slow
def test_what_a_plan_and_a_release_of_many_values_say(tmp_path):
    """Nothing is written out over values × values."""
    n = 30_000
    schema = qs.Schema.of(x=n, sex=2)
    tree = qs.hierarchy(schema, "x", state=np.arange(n) // 3_000, county=np.arange(n) // 100)
    plan = qs.plan(qs.queries(schema, x=tree), COST)
    assert "the best possible matrix mechanism" in str(plan)
    assert plan.worst == pytest.approx(math.sqrt(plan.variances(plan.workload).max()))
    assert "not computed" not in str(plan)
    crossed = qs.plan(qs.all_kway(schema, [1, 2], {"x": tree, "sex": "identity"}), COST)
    assert "of the best possible plan of this kind" in str(crossed)
    data = pd.DataFrame({"x": np.arange(60_000) % n, "sex": np.arange(60_000) // n})
    release = qs.measure(crossed, data, seed=1)
    frame = release.marginal("x", "sex").to_frame("pandas")
    assert frame.shape[0] == 2 * n
    expected = release.answer(qs.queries(schema, x="identity", sex="identity"))
    np.testing.assert_allclose(frame["std"], expected.std)
    np.testing.assert_allclose(frame["value"], expected.values)
    with pytest.raises(TooLargeError, match="totals=False"):
        release.table("x", "sex", percent="row")
    assert release.at("county").table("county", "sex", percent="row").figures.values.size == 301 * 3


def test_few_other_queries_beside_a_hierarchy():
    n = 2_000
    schema = qs.Schema.of(x=n)
    tree = qs.hierarchy(schema, "x", np.arange(n) // 100)
    plan = qs.plan(qs.queries(schema, x=tree) + qs.where(schema, "x < 150"), COST)
    alone = qs.plan(qs.queries(schema, x=tree), COST)
    assert [m.method for m in plan.methods] == ["tree"]
    assert plan.gap < 0.01
    variances = plan.variances(plan.workload)
    np.testing.assert_allclose(variances[:-1], alone.variances(alone.workload), rtol=5e-3)
    assert plan.weighted_loss == pytest.approx(variances.sum())


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_few_queries_that_divide_the_groups_of_a_hierarchy(neighbours):
    """Without single values among the queries: parts of groups were left out, and the plan was refused."""
    n, budget = 2_000, qs.PrivacyCost(1.0, neighbours=neighbours)
    schema = qs.Schema.of(x=n)
    tree = qs.hierarchy(schema, "x", np.arange(n) // 100, leaves=False)
    workload = qs.queries(schema, x=tree) + qs.where(schema, "x < 37")
    plan, best = (qs.plan(workload, budget, mechanism=m) for m in ("querysmasher", "whole"))
    assert [m.method for m in plan.methods] == ["tree"]
    assert plan.gap < 0.01
    assert plan.weighted_rmse <= 1.01 * best.weighted_rmse
    assert plan.weighted_loss == pytest.approx(plan.variances(workload).sum())


def test_levels_that_do_not_nest_are_refused_before_planning(refuses):
    with refuses(WorkloadError, ValueError, "nest"):
        qs.hierarchy(SMALL, "town", [0, 1] * 6, [0] * 5 + [1] * 7)
