"""Optimised centres: exact gradients, never worse than uniform, and the whole pipeline with them."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.around import plan_at
from querysmasher.planning.centre import Centre
from querysmasher.planning.centres.model import CentreModel
from querysmasher.planning.centres.products import Products
from querysmasher.planning.centres.roles import Coefficient, RoleTerm, SetClass, Use, find_roles
from querysmasher.planning.centres.search import search_centres
from querysmasher.planning.options import Options
from tests.builders import COST, cps, cube, pairs, plan_split
from tests.release.tables import frame, random_counts, simulations


def total_root_loss(workload, centres):
    """F(w) of given centres, through the planner itself."""
    options = Options.of(centering="uniform", tolerance=1e-9)
    return np.sqrt(plan_at(centres, workload, COST, options, progress=False).weighted_loss)


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


def centres_near_uniform(sizes, rng):
    raw = [1 + 0.3 * rng.random(n) for n in sizes]
    return [Centre(r / r.sum()) for r in raw]


def assert_gradient(model, centres):
    """The gradient is the slope between two nearby points, along a random direction for every role."""
    rng = np.random.default_rng(1)
    found = model.at(centres, tight=True)
    for role, gradient in enumerate(found.gradients):
        direction = rng.normal(size=len(gradient))
        direction -= direction.mean()
        step = 1e-5 / np.abs(direction).max()
        ends = []
        for sign in (1, -1):
            moved = list(centres)
            moved[role] = Centre(centres[role].weights + sign * step * direction)
            ends.append(model.at(moved, tight=True).value)
        slope = (ends[0] - ends[1]) / (2 * step)
        assert gradient @ direction == pytest.approx(slope, rel=1e-4, abs=1e-5 * np.abs(gradient).max())
    return found


@pytest.mark.parametrize("name", some_workloads())
def test_gradient_agrees_with_finite_differences(name):
    roles = find_roles(some_workloads()[name])
    model = CentreModel(roles, (1, 1))
    assert assert_gradient(model, centres_near_uniform(roles.sizes, np.random.default_rng(1))).is_exact


@pytest.mark.parametrize("name", some_workloads())
def test_model_value_is_the_planners(name):
    workload = some_workloads()[name]
    roles = find_roles(workload)
    centres = centres_near_uniform(roles.sizes, np.random.default_rng(2))
    assert CentreModel(roles, (1, 1)).at(centres).value == pytest.approx(
        total_root_loss(workload, tuple(centres[r] for r in roles.role_of)), rel=1e-5
    )


@pytest.mark.slow
def test_large_mixed_blocks_are_only_estimated_and_the_plan_is_still_no_worse():
    schema = cube(22, 3)
    workload = pairs(schema, qs.affine) + qs.all_kway(schema, 3, "prefix")
    found = search_centres(workload, COST)
    assert len(found.centres) == 4
    assert not found.is_proven
    uniform = qs.plan(workload, COST, centering="uniform")
    assert qs.plan(workload, COST, centering="optimized").weighted_loss < uniform.weighted_loss


def test_large_thin_blocks_are_only_estimated_and_the_plan_is_still_better(limit_planning):
    limit_planning(thin_cells=100)
    schema = cube(12, 3)
    workload = qs.all_kway(schema, 1, "prefix") + pairs(schema, qs.affine)
    found = search_centres(workload, COST)
    assert len(found.centres) == 4
    assert not found.is_proven
    uniform = qs.plan(workload, COST, centering="uniform")
    assert qs.plan(workload, COST, centering="optimized").weighted_loss < 0.99 * uniform.weighted_loss


def test_large_joint_blocks_of_full_rank_are_taken_as_constants(limit_planning):
    """The estimate stays just below the exact value, its gradient is its own, and the search still gains."""
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.random_queries(schema, ("a", "b"), 60) + 50 * qs.all_kway(schema, 1, "prefix")
    roles = find_roles(workload)
    even = [Centre.uniform(n) for n in roles.sizes]
    exact = CentreModel(roles, (1, 1)).at(even).value
    uniform, best = (qs.plan(workload, COST, centering=c).weighted_loss for c in ("uniform", "optimized"))
    limit_planning(joint_cells=20)
    model = CentreModel(roles, (1, 1))
    estimate = model.at(even)
    assert not estimate.is_exact
    assert (
        0.998 * exact < estimate.value <= exact
    )  # the value of one design, where the exact one is the largest
    assert_gradient(model, centres_near_uniform(roles.sizes, np.random.default_rng(1)))
    found = qs.plan(workload, COST, centering="optimized").weighted_loss
    assert uniform - found > 0.8 * (uniform - best) > 0.01 * uniform


@st.composite
def single_terms(draw):
    """Classes with one term each, on four role families of one axis."""
    numbers = st.lists(st.integers(0, 3), max_size=3)
    products = st.lists(st.builds(Coefficient, st.floats(0.1, 9), numbers.map(tuple)), min_size=1, max_size=3)
    uses = numbers.map(lambda own: tuple(Use(n, (0,), (axis,)) for axis, n in enumerate(own)))
    term = st.builds(RoleTerm, uses, products.map(tuple))
    terms = draw(st.lists(term, min_size=1, max_size=5))
    return [SetClass((0,), 1, (term,)) for term in terms]


@given(
    single_terms(),
    st.lists(st.floats(0.1, 9), min_size=5, max_size=5),
    st.lists(st.floats(0.1, 9), min_size=4, max_size=4),
    st.lists(st.floats(0.1, 9), min_size=3, max_size=3),
)
def test_products_are_summed_term_by_term_with_their_derivatives(classes, factors, squares, known):
    """The fourth part is nothing: classes that use it cost nothing."""
    factors = factors[: len(classes)]
    made = Products(classes, factors, 4)

    def total(squares, known):
        roots = [*known, 0.0]
        result = 0.0
        for one, factor in zip(classes, factors, strict=True):
            ((uses, products),) = one.terms
            coefficient = sum(w * math.prod(squares[n] for n in dropped) for w, dropped in products)
            result += factor * math.sqrt(coefficient) * math.prod(roots[n] for n, _, _ in uses)
        return result

    value, by_squares, by_roots = made.at(squares, {(n, (0,)): root for n, root in enumerate(known)})
    assert value == pytest.approx(total(squares, known))
    by_part = dict(zip(made.parts, by_roots, strict=True))
    for place in range(4):
        slope = _slope(
            lambda x, place=place: total([*squares[:place], x, *squares[place + 1 :]], known), squares[place]
        )
        assert by_squares[place] == pytest.approx(slope, rel=1e-6, abs=1e-7 * abs(value))
    for place in range(3):
        slope = _slope(
            lambda x, place=place: total(squares, [*known[:place], x, *known[place + 1 :]]), known[place]
        )
        assert by_part.get((place, (0,)), 0.0) == pytest.approx(slope, rel=1e-6, abs=1e-7 * abs(value))


def _slope(function, at):
    step = 1e-4 * at
    return (function(at + step) - function(at - step)) / (2 * step)


def test_what_cannot_move_is_split_and_solved_once(monkeypatch):
    """Marginals among prefixes: no matrix of theirs is made in the search where a closed form will do."""
    from querysmasher.planning.centres import gradient, model

    split, solved = [], []
    split_parts, solve_design = gradient.split_parts, model.solve_design

    def counted_split(queries, *rest):
        split.append(queries.family.name)
        return split_parts(queries, *rest)

    def counted_solve(root, *rest):
        solved.append(root.shape[1])
        return solve_design(root, *rest)

    monkeypatch.setattr(gradient, "split_parts", counted_split)
    monkeypatch.setattr(model, "solve_design", counted_solve)
    schema = qs.Schema([qs.Ordinal("a", range(9)), qs.Cyclic("b", range(7)), qs.Categorical("c", range(5))])
    tables = qs.all_kway(schema, 1, {"b": "identity"}) + qs.queries(schema, {"a": "range"})
    assert not search_centres(tables, COST).centres[-1][0].is_uniform
    assert set(split) == {"prefix", "range"}
    assert set(solved) == {9}
    split.clear()
    search_centres(tables + qs.queries(schema, {"b": "circular"}), COST)
    assert Counter(split)["prefix"] > Counter(split)["identity"] == Counter(split)["circular"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", some_workloads())
def test_roles_that_stay_change_neither_value_nor_gradient_of_the_others(name):
    roles = find_roles(some_workloads()[name])
    centres = centres_near_uniform(roles.sizes, np.random.default_rng(1))
    everything = CentreModel(roles, (1, 1)).at(centres, tight=True)
    for free in range(len(roles.sizes)):
        model = CentreModel(roles, (1, 1), [free])
        moved = list(centres)
        moved[free] = Centre.uniform(roles.sizes[free])
        model.at(moved)
        found = model.at(centres, tight=True)
        assert found.value == pytest.approx(everything.value, rel=1e-7)
        np.testing.assert_allclose(
            found.gradients[free],
            everything.gradients[free],
            atol=1e-4 * np.abs(everything.gradients[free]).max(),
        )


def test_a_search_that_stops_early_says_so(limit_planning, tmp_path):
    schema = cube(6, 2)
    workload = qs.affine(schema, "a0", "a1") + qs.all_kway(schema, 1, "prefix")
    plan = plan_split(workload)
    assert not plan.stopped_early
    assert "stopped early" not in repr(plan)
    limit_planning(search_steps=1)
    assert search_centres(workload, COST).stopped_early
    plan = plan_split(workload)
    assert plan.weighted_loss < qs.plan(workload, COST, centering="uniform").weighted_loss
    assert "the search for better centres stopped early" in repr(plan)
    plan.save(tmp_path / "plan")
    assert qs.Plan.load(tmp_path / "plan").stopped_early


@pytest.mark.parametrize("family", ["identity", "circular"])
def test_symmetric_workloads_keep_uniform_centres_without_a_search(family, monkeypatch):
    from querysmasher.planning.centres import search

    monkeypatch.setattr(search, "few_roles", lambda *_: pytest.fail("searched"))
    workload = qs.all_kway(cube(6, 4), [1, 2], family)
    found = search_centres(workload, COST)
    assert found.is_proven
    (centres,) = found.centres
    assert all(centre.is_uniform for centre in centres)


def test_symmetric_attributes_stay_uniform_among_others():
    plan = qs.plan(qs.all_kway(cps(), [1, 2]), COST, centering="optimized")
    for centre, attribute in zip(plan.centres, plan.workload.schema, strict=True):
        assert centre.is_uniform == (attribute.kind == "categorical")


@pytest.mark.slow
def test_alike_attributes_share_a_role_and_a_centre():
    schema = cube(4, 4)
    workload = qs.all_kway(schema, [1, 2], "prefix") + pairs(schema, qs.affine)
    assert len(find_roles(workload).sizes) == 1
    plan = qs.plan(workload, COST, centering="optimized")
    assert len(set(plan.centres)) == 1


def test_attributes_that_differ_in_weights_only_share_a_centre_where_classes_are_many(limit_planning):

    schema, rng = cube(6, 8), np.random.default_rng(3)
    workload = qs.all_kway(schema, 1, "prefix")
    for a, b in combinations(schema.names, 2):
        workload = workload + qs.queries(schema, {a: "prefix", b: "prefix"}, weight=rng.integers(1, 6))
    assert len(find_roles(workload).sizes) == 8
    assert len(find_roles(workload, coarse=True).sizes) == 1
    uniform, apart = (qs.plan(workload, COST, centering=c) for c in ("uniform", "optimized"))
    limit_planning(many_classes=1)
    together = qs.plan(workload, COST)
    assert len(set(together.centres)) == 1 < len(set(apart.centres))
    assert together.weighted_loss < uniform.weighted_loss
    assert together.weighted_loss == pytest.approx(apart.weighted_loss, rel=1e-3)


def test_classes_count_every_attribute_set_once():
    workload = qs.all_kway(cube(3, 8), [1, 2, 3], "prefix")
    roles = find_roles(workload)
    assert sorted(c.count for c in roles.classes) == [1, 8, 28, 56]


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


@given(st.lists(st.floats(0.2, 5), min_size=2, max_size=40), st.sampled_from([16, 64]))
def test_rounded_centres_are_ratios_of_small_whole_numbers(weights, fineness):
    centre = np.array(weights) / np.sum(weights)
    rounded = Centre.near(centre, fineness).weights
    k = Centre.near(centre, fineness).exact
    assert np.abs(k).max() <= fineness
    assert np.gcd.reduce(k) == 1
    np.testing.assert_allclose(k / k.sum(), rounded, rtol=1e-12)
    assert np.abs(rounded - centre).max() <= centre.max() / fineness


@pytest.mark.slow
def test_the_pipeline_works_with_optimised_centres(tmp_path):
    """Unbiased with the stated variances (400 seeds, z-scores below 5.5: false alarm about 1e-5)."""
    schema = qs.Schema.of(a=6, b=4, c=3)
    counts = random_counts(schema, 3, records=400)
    table = frame(schema, counts)
    workload = (
        qs.all_kway(schema, [1, 2, 3], "prefix") + qs.affine(schema, "a", "b") + qs.where(schema, "a >= 2")
    )
    plan = plan_split(workload, centering="optimized")
    assert not plan.centres[0].is_uniform
    plan.save(tmp_path / "plan")
    plan = qs.Plan.load(tmp_path / "plan")
    truth = (
        qs.measure(
            qs.plan(workload, qs.PrivacyCost(1e14), centering="uniform"), table, seed=0, noise="gaussian"
        )
        .answer(workload)
        .values
    )
    release = qs.measure(plan, table, seed=399)
    answers = release.answer(workload)
    values = [one.answer(workload).values for one in simulations(plan, counts, range(400))]
    np.testing.assert_array_equal(values[-1], answers.values)  # a simulation equals a measurement
    errors = (np.array(values) - truth) / answers.std
    assert np.abs(errors.mean(axis=0)).max() * 20 < 5.5
    assert np.abs((errors**2).mean(axis=0) - 1).max() * np.sqrt(400 / 2) < 6
    np.testing.assert_allclose(answers.std**2, plan.variances(workload), rtol=0.02)
    covariance = release.covariance(workload)
    np.testing.assert_allclose(np.diag(covariance), answers.std**2, rtol=1e-9)
    release.save(tmp_path / "release")
    np.testing.assert_array_equal(
        qs.Release.load(tmp_path / "release").answer(workload).values, answers.values
    )
    total = release.marginal("a", "b", "c").sum()
    assert release.marginal("b").sum() == pytest.approx(total)
