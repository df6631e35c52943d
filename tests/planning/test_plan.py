"""Plans: every figure against the paper's algorithm written out, and against its published tables."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning.centre import Centre
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.mechanisms import CENTERINGS
from querysmasher.report import expectations
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family
from tests.builders import COST, cps, cube, pairs, plan_uniform
from tests.profiles import fewer
from tests.reference import (
    complement,
    is_measured,
    kron,
    loss,
    paper_loss,
    planned_variances,
    privacy_cost,
    query_rows,
    split_variances,
    subworkload_grams,
    variances,
)
from tests.strategies import budgets, full_rank_matrices, schemas, workloads

# --- against the whole mechanism, written out --------------------------------------------------


@fewer(60)
@given(workloads(), budgets, st.sampled_from(["optimal", "optimal", "structured"]))
def test_a_plan_is_the_mechanism_it_says_it_is(workload, budget, solver):
    assume(is_measured(workload, budget))
    plan = plan_uniform(workload, budget, solver=solver)
    found = plan.variances(workload)
    expected = variances(plan, workload)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())
    _, weights = query_rows(workload)
    assert plan.weighted_rmse**2 * len(workload) == pytest.approx(float(weights @ expected), rel=1e-6)
    assert plan.rmse**2 == pytest.approx(float(expected.mean()), rel=1e-6)
    assert plan.privacy_cost <= budget.privacy_cost
    assert plan.privacy_cost >= budget.privacy_cost * (1 - 1e-12)
    assert privacy_cost(plan) <= budget.privacy_cost * (1 + 1e-9)


@settings(max_examples=25)
@given(workloads(schemas(max_attributes=3, max_size=4), max_groups=3), budgets, st.sampled_from(CENTERINGS))
def test_a_plan_around_any_centres_is_the_mechanism_it_says_it_is(workload, budget, centering):
    assume(is_measured(workload, budget))
    plan = qs.plan(workload, budget, centering=centering)
    found = plan.variances(workload)
    expected = planned_variances(plan, workload)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())
    _, weights = query_rows(workload)
    assert plan.weighted_loss == pytest.approx(float(weights @ expected), rel=1e-6)
    assert plan.privacy_cost <= budget.privacy_cost
    assert privacy_cost(plan) <= budget.privacy_cost * (1 + 1e-9)
    assert all(np.sum(w.weights) == pytest.approx(1.0) for w in plan.centres)
    uniform = plan_uniform(workload, budget)
    assert plan.weighted_loss <= uniform.weighted_loss * (1 + 1e-3)


@settings(max_examples=40)
@given(workloads(schemas(max_attributes=3, max_size=4, max_cells=36), max_groups=3))
def test_a_plan_reaches_what_the_algorithm_of_the_paper_reaches(workload):
    assume(is_measured(workload, COST))
    plan = plan_uniform(workload, qs.PrivacyCost(0.7), tolerance=1e-4)
    reference = paper_loss(workload, 0.7)
    assert plan.weighted_loss == pytest.approx(reference, rel=1e-4)
    assert plan.weighted_loss <= reference * (1 + plan.gap) ** 2 * (1 + 1e-5)  # the certificate holds
    assert plan.gap <= 1e-4


@settings(max_examples=40)
@given(workloads(schemas(max_attributes=3, max_size=4, max_cells=36), max_groups=3), st.data())
def test_no_random_mechanism_of_the_kind_does_better(workload, data):
    """Any strategies that respect residual spaces, with any shares of the budget (the paper's theorem)."""
    assume(is_measured(workload, COST))
    plan = plan_uniform(workload, COST)
    centres = [Centre.uniform(n) for n in workload.schema.sizes]
    losses = []
    for kept, gram in subworkload_grams(workload, centres).items():
        inside = kron([complement(centres[p].weights) for p in kept])
        rows = data.draw(full_rank_matrices(len(inside) + 2, len(inside))) @ inside
        losses.append(loss(gram, rows / np.sqrt((rows**2).sum(axis=0).max())))
    best_shares = sum(map(math.sqrt, losses)) ** 2
    shares = np.array([data.draw(st.integers(1, 9)) for _ in losses])
    shares = shares / shares.sum()
    other = sum(value / share for value, share in zip(losses, shares, strict=True))
    assert plan.weighted_loss / (1 + plan.gap) ** 2 <= min(best_shares, other) * (1 + 1e-9)


def test_the_cost_by_definition_is_the_whole_budget_where_every_cell_is_alike():
    schema = qs.Schema.of(a=3, b=4)
    for family in ("identity", "circular"):
        plan = plan_uniform(qs.all_kway(schema, [1, 2], family), qs.PrivacyCost(0.8))
        assert privacy_cost(plan) == pytest.approx(0.8, rel=1e-9)


def test_attributes_of_the_same_size_are_never_mixed_up():
    """A peer keyed strategies by domain size, and spent more than it claimed."""
    schema = qs.Schema.of(a=4, b=4, c=4)
    workload = qs.queries(schema, a=[[1, 0, 0, 0]], b="prefix", c=[[0, 0, 9, 1]]) + qs.queries(
        schema, a="identity", c=[[1, 1, 0, 0]]
    )
    plan = plan_uniform(workload, COST)
    np.testing.assert_allclose(plan.variances(workload), variances(plan, workload), rtol=1e-7)
    assert privacy_cost(plan) <= 1 + 1e-9


def test_nearly_nothing_is_noised_all_the_same():
    """A peer gave zero noise to a subworkload of nearly zero loss, and released exact data."""
    schema = qs.Schema.of(a=3, b=2)
    workload = qs.marginals(schema, 1) + qs.linear(schema, ("a", "b"), 1e-6 * np.eye(6))
    plan = plan_uniform(workload, COST)
    assert all(m.variance >= 1 for m in plan.measured)
    assert plan.variances(workload).min() > 0
    assert privacy_cost(plan) <= 1 + 1e-9
    np.testing.assert_allclose(plan.variances(workload), variances(plan, workload), rtol=1e-6)


def test_light_queries_are_still_answered():
    schema = qs.Schema.of(a=5, b=2)
    workload = qs.linear(schema, "a", np.eye(5)[:2], weights=[1, 1e-8]) + 1e-9 * qs.marginals(schema, 2)
    plan = plan_uniform(workload, COST)
    np.testing.assert_allclose(plan.variances(workload), variances(plan, workload), rtol=1e-5)


# --- simple laws -------------------------------------------------------------------------------


@settings(max_examples=30)
@given(workloads(max_groups=2))
def test_weights_matter_only_relative_to_each_other_and_variances_to_the_budget(workload):
    assume(is_measured(workload, COST))
    plan = plan_uniform(workload, COST)
    base = plan.variances(workload)
    heavier = plan_uniform(8.0 * workload, COST)
    np.testing.assert_allclose(heavier.variances(workload), base, rtol=1e-6, atol=1e-9 * base.max())
    assert heavier.weighted_rmse == pytest.approx(math.sqrt(8) * plan.weighted_rmse, rel=1e-6)
    assert heavier.rmse == pytest.approx(plan.rmse, rel=1e-6)
    poorer = plan_uniform(workload, qs.PrivacyCost(0.25))
    np.testing.assert_allclose(poorer.variances(workload), 4 * base, rtol=1e-6, atol=1e-8 * base.max())


def test_asking_twice_is_asking_with_twice_the_weight():
    schema = qs.Schema.of(a=4, b=3)
    workload = qs.all_kway(schema, 2, "prefix")
    twice = plan_uniform(workload + workload, COST)
    assert twice.rmse == pytest.approx(plan_uniform(workload, COST).rmse, rel=1e-9)
    assert twice.weighted_loss == pytest.approx(2 * plan_uniform(workload, COST).weighted_loss, rel=1e-9)


def test_heavier_queries_get_smaller_errors():
    schema = qs.Schema.of(a=6, b=6)
    one, two = qs.queries(schema, a="prefix"), qs.queries(schema, b="prefix")
    even, skewed = plan_uniform(one + two, COST), plan_uniform(100.0 * one + two, COST)
    assert skewed.variances(one).sum() < even.variances(one).sum() < skewed.variances(two).sum()


def test_persons_with_several_records_need_as_much_more_noise():
    workload = qs.marginals(qs.Schema.of(a=4, b=3), [1, 2])
    one = plan_uniform(workload, COST)
    three = plan_uniform(workload, qs.PrivacyCost(1.0, records_per_person=3))
    np.testing.assert_allclose(three.variances(workload), 9 * one.variances(workload), rtol=1e-9)
    assert three.privacy_cost == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("n", "d"), [(10, 40), (2, 5), (3, 1), (50, 4)])
def test_marginals_have_the_known_closed_form(n, d):
    """√L of an attribute set: the root of its coefficient, times ((n-1)/√n) per attribute."""
    schema = cube(n, d)
    unit = (n - 1) / math.sqrt(n)
    roots = (
        math.sqrt(d / n + math.comb(d, 2) / n**2)
        + d * math.sqrt(1 + (d - 1) / n) * unit
        + math.comb(d, 2) * unit**2
    )
    plan = plan_uniform(qs.marginals(schema, [1, 2] if d > 1 else 1), COST)
    count = d * n + math.comb(d, 2) * n**2
    assert plan.rmse == pytest.approx(roots / math.sqrt(count), rel=1e-9)
    assert plan.gap == pytest.approx(0, abs=1e-9)
    if (n, d) == (10, 40):
        assert f"{plan.rmse:.2f}" == "23.48"  # the paper's Table


# --- certified figures -------------------------------------------------------------------------


TEN, SMALL = cube(10, 40), cube(10, 10)
FIGURES = [
    *((qs.all_kway(cps(), k), figure) for k, figure in ((1, 3.1350), (2, 6.1918), (3, 7.8860))),
    (qs.all_kway(cps(), [1, 2, 3]), 8.1400),
    (qs.all_kway(TEN, [1, 2], "prefix"), 33.6934),
    (qs.all_kway(TEN, [1, 2], "range"), 41.0760),
    (qs.all_kway(TEN, [1, 2], "circular"), 39.7721),
    (qs.all_kway(TEN, 1, "prefix") + pairs(TEN, qs.affine), 28.0097),
    (qs.all_kway(TEN, 1, "prefix") + pairs(TEN, qs.abs_difference), 30.1029),
    (
        qs.all_kway(SMALL, 1, "range") + pairs(SMALL, qs.affine) + qs.all_kway(SMALL, 3, "prefix"),
        20.4104,
    ),
]


@pytest.mark.parametrize(("workload", "figure"), FIGURES)
def test_certified_figures(workload, figure):
    plan = plan_uniform(workload, COST, tolerance=1e-4)
    assert plan.gap <= 1e-4
    assert plan.rmse == pytest.approx(figure, rel=1e-4, abs=6e-5)
    assert plan.rmse / (1 + plan.gap) <= figure + 5e-5


def test_five_billion_queries_are_planned_as_fast_as_ten():
    schema = cube(50, 40)
    plan = plan_uniform(qs.all_kway(schema, [1, 2], "circular"), COST)
    assert f"{plan.rmse:.2f}" == "102.13"  # the paper's Table
    assert len(plan.solutions) == 1  # solved once, for 820 attribute sets
    assert len(plan.measured) == 821


# --- what a plan reports ---------------------------------------------------------------------


def test_a_plan_sums_itself_up(capfd):
    schema = qs.Schema.of(a=4, b=3)
    workload = qs.all_kway(schema, [1, 2], "prefix") + 2.0 * qs.marginals(schema, 0)
    plan = plan_uniform(workload, qs.zCDP(0.5))
    shares = plan.budget_shares()
    assert set(shares) == {(), ("a",), ("b",), ("a", "b")}
    assert sum(shares.values()) == pytest.approx(1.0)
    for m in plan.measured:
        names = tuple(schema.names[a] for a in m.attributes)
        assert shares[names] == pytest.approx(1 / m.variance / plan.privacy_cost)
    assert plan.measurements == 4 * 3  # all there is: 1 + 3 + 2 + 6
    rows = list(plan.summary())
    assert [s.attributes for s in rows] == [("a",), ("b",), ("a", "b"), ()]
    assert sum(s.queries * s.rmse**2 for s in rows) == pytest.approx(plan.rmse**2 * len(workload))
    text = repr(plan)
    assert "20 queries" in text
    assert "12 noisy numbers on 4 attribute sets" in text
    assert "rho = 0.5" in text
    assert f"± {plan.rmse:.3g}" in text
    assert capfd.readouterr() == ("", "")  # not a terminal: no progress bar


def test_a_progress_bar_is_shown_when_asked_for(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if standard error were a terminal
    plan_uniform(qs.marginals(qs.Schema.of(a=4), 1), COST, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Planning" in err
    assert "solving" in err


def test_the_plan_of_a_total_alone_measures_one_number():
    plan = plan_uniform(qs.marginals(qs.Schema.of(a=3), 0), qs.PrivacyCost(4.0))
    assert plan.measurements == 1
    assert plan.rmse == pytest.approx(0.5)
    assert "1 noisy number on 1 attribute set\n" in repr(plan)


def test_a_hierarchy_and_its_predicates_are_planned_together():
    schema = qs.Schema([qs.Categorical("town", list("abcdef")), qs.Ordinal("age", range(4))])
    levels = qs.hierarchy(schema, "town", {t: t in "abc" for t in "abcdef"}, ["all"] * 6)
    workload = qs.queries(schema, town=levels, age="prefix") + 3 * qs.where(schema, "town == 'a' and age > 1")
    plan = plan_uniform(workload, COST)
    np.testing.assert_allclose(plan.variances(workload), variances(plan, workload), rtol=1e-7)


# --- sums of variances need no rows -----------------------------------------------------------


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
def test_sums_of_variances_are_those_of_the_single_queries(centering):
    schema = qs.Schema.of(a=6, b=4, one=1)
    names = list(ONE_ATTRIBUTE)
    workload = 5 * qs.queries(schema, a="range")
    for weight, one, two in zip((1, 3, 0.2, 7), names, names[::-1], strict=True):
        workload += weight * qs.queries(schema, a=one, b=two, one=one)
    plan = qs.plan(workload, COST, centering=centering)
    found = plan.variances(workload)
    assert plan.rmse == pytest.approx(np.sqrt(found.mean()), rel=1e-10)
    np.testing.assert_allclose(found, split_variances(plan, workload), rtol=1e-8)
    start = 0
    for summary in plan.summary():
        own = found[start : start + summary.queries]
        assert summary.rmse == pytest.approx(np.sqrt(own.mean()), rel=1e-10)
        start += summary.queries


@pytest.mark.parametrize("family", ["range", "circular"])
def test_weighted_ranges_are_summed_without_writing_them_out(family, monkeypatch):
    """On 900 values (740 for circular ranges) the rows would not fit in memory: none is written out."""
    schema = qs.Schema.of(a=40)
    workload = qs.all_kway(schema, 1, family) + 3 * qs.marginals(schema, 1)
    plan = plan_uniform(workload, COST)
    expected = np.sqrt(plan.variances(workload).mean())

    def refuse(_):
        msg = "rows are not needed"
        raise AssertionError(msg)

    monkeypatch.setattr(Family, "matrix", refuse)
    monkeypatch.setattr(expectations, "MOST_ENTRIES", 1_000)
    fresh = plan_uniform(workload, COST)
    assert fresh.rmse == pytest.approx(expected, rel=1e-10)
    assert "expected error" in repr(fresh)


# --- queries that are zero, or the number of records ------------------------------------------------

NEVER = ["b < 0 and a < 3", "b < 0", "b < 0 and a < 0", "b < 0 or a < 0", "a < 0 and b == 1 and c == 0"]
ALWAYS = ["b < 9", "b < 9 and a < 9", "a < 9 or b < 0", "a < 9 and b < 9 and c < 9"]
SCHEMA = qs.Schema.of(a=5, b=4, c=3)


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize("predicate", NEVER)
def test_predicates_that_no_record_meets(predicate, centering, refuses):
    nothing = qs.where(SCHEMA, predicate)
    with refuses(PlanError, ValueError, "workload", "all its queries are zero"):
        qs.plan(nothing, COST, centering=centering)
    both = nothing + qs.all_kway(SCHEMA, [1, 2], "prefix")
    plan = qs.plan(both, COST, centering=centering)
    found = plan.variances(both)
    assert found[0] == 0
    assert plan.rmse == pytest.approx(np.sqrt(found.mean()))
    integer_plan(plan, 1.0, 10**8)


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize("predicate", ALWAYS)
def test_predicates_that_every_record_meets_ask_for_their_number(predicate, centering, refuses):
    total = qs.where(SCHEMA, predicate)
    plan = qs.plan(total, COST, centering=centering)
    assert [m.attributes for m in plan.measured] == [()]
    assert plan.variances(total) == pytest.approx(1.0)
    with refuses(PlanError, ValueError, "the number of records, and exact counts"):
        qs.plan(total, qs.PrivacyCost(1.0, neighbours="replace_one"), centering=centering)


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
def test_zero_rows(centering, refuses):
    for rows in ([[0, 0, 0, 0, 0]], [[0.0] * 5, [-0.0] * 5]):
        with refuses(PlanError, ValueError, "all its queries are zero"):
            qs.plan(qs.linear(SCHEMA, ["a"], rows), COST, centering=centering)
    workload = qs.linear(SCHEMA, ["a"], [[0] * 5, [1, 0, 1, 0, 0], [1e-8, 0, 0, 0, 0]])
    plan = qs.plan(workload, COST, centering=centering)
    found = plan.variances(workload)
    assert found[0] == 0
    assert np.all(found[1:] > 0)
    np.testing.assert_allclose(found, planned_variances(plan, workload), rtol=1e-6)


# --- refused workloads ------------------------------------------------------------------------

ASKED = qs.marginals(qs.Schema.of(a=3), 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plan_uniform("a", COST), ["workload", "'a'"]),
        (lambda: plan_uniform([ASKED], COST), ["workload", "list"]),
        (lambda: plan_uniform(ASKED, 1.0), ["budget", "PrivacyCost", "1.0"]),
        (lambda: plan_uniform(ASKED, None), ["budget", "None"]),
        (lambda: plan_uniform(ASKED, qs.PrivacyCost), ["budget"]),
        (
            lambda: plan_uniform(ASKED, COST, solver="best"),
            ["solver", "'best'", "optimal, dense, structured"],
        ),
        (lambda: plan_uniform(ASKED, COST, solver=None), ["solver", "None"]),
        (lambda: qs.plan(ASKED, COST, centering="left"), ["centering", "'left'", "uniform"]),
        (lambda: plan_uniform(ASKED, COST, tolerance=0), ["tolerance", "0"]),
        (lambda: plan_uniform(ASKED, COST, tolerance=1), ["tolerance", "1"]),
        (lambda: plan_uniform(ASKED, COST, tolerance=-1e-3), ["tolerance", "-0.001"]),
        (lambda: plan_uniform(ASKED, COST, tolerance=math.nan), ["tolerance", "nan"]),
        (lambda: plan_uniform(ASKED, COST, tolerance="tight"), ["tolerance", "'tight'"]),
        (lambda: plan_uniform(ASKED, COST, tolerance=True), ["tolerance", "True"]),
        (
            lambda: plan_uniform(
                qs.marginals(ASKED.schema, 0), qs.PrivacyCost(1.0, neighbours="replace_one")
            ),
            ["number of records", "public"],
        ),
        (lambda: plan_uniform(qs.linear(ASKED.schema, "a", [[0, 0, 0]]), COST), ["workload", "zero"]),
        (lambda: plan_uniform(qs.where(ASKED.schema, "a > 5"), COST), ["workload", "zero"]),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(call, words, refuses):
    with refuses(PlanError, ValueError, *words):
        call()


def test_families_on_too_many_values_are_refused_at_once_and_single_queries_are_not():
    schema = qs.Schema.of(zip=50_000, sex=2)
    with pytest.raises(qs.TooLargeError, match=r"'zip' has 50,000 values; its queries \(prefix\)"):
        qs.plan(qs.all_kway(schema, 1, "prefix"), COST, solver="dense")
    with pytest.raises(qs.TooLargeError, match="solver, without exact counts by it, up to 1,000,100"):
        qs.plan(qs.all_kway(schema, 1, "prefix"), COST, mechanism="residual")
    assert qs.plan(qs.where(schema, "zip < 1000 and sex == 1"), COST).rmse > 0
