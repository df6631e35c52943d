"""Optimised centres: near the best ones, never worse than uniform, and the whole pipeline with them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning import centring
from querysmasher.planning.allocation import plan_at
from querysmasher.planning.centre import Centre
from querysmasher.planning.centring import attribute_roles, search_centres
from querysmasher.planning.limits import limited
from querysmasher.planning.mechanisms import Options
from tests.builders import COST, cps, cube, pairs, plan_split
from tests.profiles import fewer
from tests.reference import optimal_loss
from tests.release.tables import check_simulated, random_counts


def loss_at(centres, workload, budget=COST):
    """The loss around given centres, through the planner itself."""
    options = Options.of(centering="uniform", tolerance=1e-6)
    return plan_at(centres, workload, budget, options).weighted_loss


def some_workloads():
    s = qs.Schema.of(a=5, b=4, c=3)
    rng = np.random.default_rng(0)
    real = qs.linear(s, ("c", "a"), rng.normal(size=(4, 15)), weights=[1, 2, 3, 4])
    return {
        "prefix": qs.all_kway(s, [1, 2], "prefix"),
        "range and marginals": qs.all_kway(s, [1, 2, 3], "range") + 3 * qs.marginals(s, 2),
        "affine": qs.affine(s, "a", "b") + qs.all_kway(s, 1, "prefix"),
        "everything": qs.affine(s, "b", "a")
        + qs.all_kway(s, [1, 2, 3], "prefix")
        + 3 * qs.marginals(s, 2)
        + real,
        "rows": real + qs.where(s, "a >= 2 and b == 1"),
        "alike": qs.all_kway(cube(4, 3), [1, 2], "prefix") + pairs(cube(4, 3), qs.abs_difference),
    }


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", some_workloads())
def test_no_centres_nearby_are_clearly_better(name, neighbours):
    """Of those on the line through the uniform ones, and of random ones beside them."""
    workload = some_workloads()[name]
    budget = qs.PrivacyCost(1.0, neighbours=neighbours)
    found = search_centres(workload, budget.unit)
    best = min(loss_at(found.at(way), workload, budget) for way in (0.0, 1.0, 1.5, 2.0))
    plan = plan_split(workload, budget, tolerance=1e-6)
    assert plan.weighted_loss <= best * (1 + 1e-5)
    rng = np.random.default_rng(0)
    for _ in range(4):
        raw = [np.maximum(c.weights * np.exp(0.2 * rng.standard_normal(len(c))), 1e-3) for c in plan.centres]
        others = tuple(Centre(own / own.sum()) for own in raw)
        # where a record is replaced, centres are those for adding or removing one
        near = 5e-3 if neighbours == "add_remove" else 3e-2
        assert loss_at(others, workload, budget) >= plan.weighted_loss * (1 - near)


@st.composite
def asked_in_one_way(draw):
    """Workloads on one attribute: the split plan reaches what no mechanism betters."""
    schema = qs.Schema.of(a=draw(st.integers(2, 8)))
    first = draw(st.sampled_from(["prefix", "range"]))
    weight = draw(st.floats(1e-3, 1e3))
    return qs.queries(schema, a=first) + weight * qs.queries(schema, a=draw(st.sampled_from(ONE)))


ONE = ["identity", "prefix", "range", "circular"]


@pytest.mark.slow
@fewer(30)
@given(asked_in_one_way())
def test_on_one_attribute_the_centre_is_the_best_of_any_mechanism(workload):
    """Up to the rounding of the centre to small integers."""
    gram = sum(group.weight * group.families[0].gram() for group in workload)
    best = optimal_loss(gram, np.eye(len(gram)))
    assert plan_split(workload, tolerance=1e-6).weighted_loss <= best * (1 + 4e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        pairs(cube(22, 3), qs.affine) + qs.all_kway(cube(22, 3), 3, "prefix"),
        pairs(cube(12, 3), qs.affine) + qs.all_kway(cube(12, 3), 1, "prefix"),
    ],
    ids=["mixed blocks", "thin blocks"],
)
def test_tied_attributes_gain_too(asked):
    assert not search_centres(asked, COST.unit).is_exact
    uniform = plan_split(asked, centering="uniform")
    assert plan_split(asked).weighted_loss < 0.99 * uniform.weighted_loss


def test_the_values_between_straight_queries_have_no_weight(monkeypatch):
    schema = qs.Schema([qs.Number("a", 0, 320, missing="unknown"), qs.Categorical("b", ["x", "y", "z"])])
    young = qs.queries(schema, a=[[1] * 18 + [0] * 304], b="identity")
    workload = qs.means(schema, "a", by="b", around=30) + qs.sums(schema, "a") + young
    few = search_centres(workload, COST.unit).at(1.0)
    monkeypatch.setattr(centring, "_corners", lambda _: {})
    written_out = search_centres(workload, COST.unit).at(1.0)
    assert set(np.flatnonzero(few[0].weights)) <= {0, 17, 18, 320, 321}
    assert loss_at(few, workload) == pytest.approx(loss_at(written_out, workload), rel=1e-3)


def test_means_of_a_fine_number_with_missing_values():
    """Without matrices of all values, which would take terabytes."""
    schema = qs.Schema([qs.Number("a", 0, 10**5, missing="unknown"), qs.Categorical("b", ["x", "y", "z"])])
    plan = qs.plan(qs.means(schema, "a", by="b"), COST)
    assert plan.gap <= 1e-3


@pytest.mark.parametrize("family", ["identity", "circular"])
def test_symmetric_workloads_keep_uniform_centres_without_a_search(family, monkeypatch):
    monkeypatch.setattr(centring, "attribute_roles", lambda *_, **__: pytest.fail("searched"))
    workload = qs.all_kway(cube(6, 4), [1, 2], family)
    found = search_centres(workload, COST.unit)
    assert found.is_exact
    assert all(centre.is_uniform for way in (1.0, 2.0) for centre in found.at(way))


def test_symmetric_attributes_stay_uniform_among_others():
    plan = qs.plan(qs.all_kway(cps(), [1, 2]), COST, centering="optimized")
    for centre, attribute in zip(plan.centres, plan.workload.schema, strict=True):
        assert centre.is_uniform == (attribute.kind == "categorical")


@pytest.mark.slow
def test_alike_attributes_share_a_role_and_a_centre():
    schema = cube(4, 4)
    workload = qs.all_kway(schema, [1, 2], "prefix") + pairs(schema, qs.affine)
    assert len(set(attribute_roles(workload))) == 1
    plan = qs.plan(workload, COST, centering="optimized")
    assert len(set(plan.centres)) == 1


def test_attributes_that_differ_in_weights_only_share_a_centre():
    schema, rng = cube(6, 8), np.random.default_rng(3)
    workload = qs.all_kway(schema, 1, "prefix")
    for a, b in combinations(schema.names, 2):
        workload = workload + qs.queries(schema, {a: "prefix", b: "prefix"}, weight=rng.integers(1, 6))
    assert len(set(attribute_roles(workload))) == 1
    uniform, together = (qs.plan(workload, COST, centering=c) for c in ("uniform", "optimized"))
    assert len(set(together.centres)) == 1
    assert together.weighted_loss < 0.95 * uniform.weighted_loss


@pytest.mark.parametrize(("size", "limit"), [(60, "largest_centre"), (4, "centre_integers")])
def test_coarser_integers_of_centres_lose_accuracy(size, limit):
    workload = qs.queries(qs.Schema.of(a=size), a="prefix")
    fine = plan_split(workload)
    with limited(**{limit: 4}):
        coarse = plan_split(workload)
    assert np.abs(coarse.centres[0].exact).max() <= 4
    assert coarse.rmse > (1.003 if size > 4 else 1.001) * fine.rmse


FIGURES = [  # (workload, uniform, optimised) at privacy cost 1
    (qs.all_kway(cps(), 1), 3.1350, 3.064),
    (qs.all_kway(cps(), [1, 2, 3]), 8.1400, 7.57),
    (qs.all_kway(cube(10, 1), 1, "prefix"), 1.6188, 1.5563),
    (qs.all_kway(cube(10, 2), [1, 2], "prefix"), 2.6123, 2.4493),
    (qs.all_kway(cube(10, 2), [1, 2], "range"), 2.5931, 2.4923),
    (qs.all_kway(cube(10, 40), [1, 2], "prefix"), 33.6934, 32.70),
    (qs.all_kway(cube(4, 5), [1, 2], "prefix"), 3.2290, 3.1028),
]


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "uniform", "optimised"), FIGURES)
def test_known_figures(workload, uniform, optimised):
    assert qs.plan(workload, COST, centering="uniform", tolerance=1e-4).rmse == pytest.approx(
        uniform, rel=2e-4
    )
    assert qs.plan(workload, COST, centering="optimized", tolerance=1e-4).rmse <= optimised


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_never_worse_than_uniform(seed):
    rng = np.random.default_rng(seed)
    sizes = {f"a{i}": int(rng.integers(1, 6)) for i in range(int(rng.integers(1, 4)))}
    schema = qs.Schema.of(sizes)
    workload = qs.all_kway(schema, [1], str(rng.choice(["identity", "prefix", "range"])))
    workload += float(rng.uniform(0.1, 3)) * qs.all_kway(
        schema, len(sizes), str(rng.choice(["prefix", "range"]))
    )
    if len(sizes) > 1:
        workload += qs.affine(schema, "a1", "a0")
    plans = [qs.plan(workload, COST, centering=c, tolerance=1e-6) for c in ("uniform", "optimized")]
    assert plans[1].weighted_loss <= plans[0].weighted_loss * (1 + 1e-6)


@pytest.mark.slow
def test_the_pipeline_works_with_optimised_centres(tmp_path):
    schema = qs.Schema.of(a=6, b=4, c=3)
    workload = (
        qs.all_kway(schema, [1, 2, 3], "prefix") + qs.affine(schema, "a", "b") + qs.where(schema, "a >= 2")
    )
    plan = plan_split(workload, centering="optimized")
    assert not plan.centres[0].is_uniform
    plan.save(tmp_path / "plan")
    plan = qs.Plan.load(tmp_path / "plan")
    release = check_simulated(plan, workload, random_counts(schema, 3, records=400), 400)
    release.save(tmp_path / "release")
    again = qs.Release.load(tmp_path / "release").answer(workload)
    np.testing.assert_array_equal(again.values, release.answer(workload).values)
    total = release.marginal("a", "b", "c").sum()
    assert release.marginal("b").sum() == pytest.approx(total)
