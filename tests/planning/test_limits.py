"""The tuning constants of planning stand in one place, and tests change them there."""

import ast
import re
from dataclasses import FrozenInstanceError, replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.integer import MAX_RECORDS
from querysmasher.planning.lattice import independent
from querysmasher.planning.limits import PlanningLimits, limited, limits
from querysmasher.planning.lines.splitting import large_attributes
from querysmasher.planning.objectives.objective import as_measured, missed_by
from querysmasher.planning.objectives.reallocation import Reallocation
from querysmasher.planning.objectives.search import Search
from querysmasher.planning.strategies import FewStrategy, MirroredStrategy
from querysmasher.privacy.factors import Reflection
from tests.builders import COST, SPLIT, moving
from tests.planning.drawn import drawn


def test_limits_are_frozen_and_changed_for_a_while_only():
    with limited(light_cells=3) as inside:
        assert limits() is inside
        assert limits().light_cells == 3
    assert limits() == PlanningLimits()
    with pytest.raises(FrozenInstanceError):
        limits().light_cells = 3
    with pytest.raises(TypeError, match="nonsense"), limited(nonsense=3):
        pass


# --- what limits gain --------------------------------------------------------------------------


def plan(workload, limit=None, **options):
    """Return a plan at privacy cost 1, with some other limits."""
    with limited(**(limit or {})):
        return qs.plan(workload, qs.PrivacyCost(1.0), **options)


def test_centres_beside_those_of_sums_keep_groups_countable(monkeypatch):
    schema = qs.Schema([qs.Number("x", 0, 1999, missing="missing"), qs.Categorical("g", range(5))])
    workload = qs.queries(schema, x="prefix") + qs.means(schema, "x", by="g")
    counts = qs.marginals(schema, ["g"])
    aside = plan(workload)
    monkeypatch.setattr("querysmasher.planning.strategies.few.ASIDE", 0.0)
    best = plan(workload)
    assert aside.rmse < 1.002 * best.rmse
    assert aside.variances(counts).max() < 1e-3 * best.variances(counts).max()


def test_attributes_of_too_many_values_are_refused():
    workload = qs.queries(qs.Schema.of(a=7000), a="prefix")
    assert plan(workload).rmse > 0
    with pytest.raises(TooLargeError, match="up to 6,500"):
        plan(workload, {"most_values": 6500})


def test_tied_attributes_bring_the_error_down_by_what_is_known():
    schema = qs.Schema.of(a=20, b=4).impossible("a < 10 and b > 0")
    workload = qs.queries(schema, a="prefix", b="identity")
    assert plan(workload).rmse < 0.75 * plan(workload, {"tied_values": 49}).rmse
    assert plan(workload, {"tied_values": 50}).rmse == plan(workload).rmse


def test_too_many_queries_are_not_searched_for_the_largest_error():
    schema = qs.Schema.of(a=5, b=6)
    mixed = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    with pytest.raises(TooLargeError, match="30 are too many to search"):
        plan(mixed, {"worst_queries": 20}, objective="worst", centering="uniform")
    workload = qs.queries(qs.Schema.of(a=2000, b=2), a="prefix", b="identity")
    assert plan(workload).worst_std > 0
    with limited(large_worst_queries=1500):
        assert plan(workload).worst_std is None


def test_plans_that_rounding_spoils_are_refused():
    workload = qs.queries(qs.Schema.of(a=30), a="prefix")
    assert plan(workload, {"most_bits": 4}).rmse > 0
    with pytest.raises(PlanError, match="some queries are lost"):
        plan(workload, {"most_bits": 4, "most_loss": 1.0})


def test_fine_rounding_leaves_more_for_others_close_to_the_least_budget():
    schema = qs.Schema.of(a=4, b=3)
    aimed = qs.queries(schema, a="prefix").within(3)
    budget = qs.PrivacyCost(1.005 * qs.least_budget(aimed).privacy_cost)
    workload = aimed + qs.queries(schema, a="range", b="prefix")
    assert qs.plan(workload, budget).gap <= 0.01
    with limited(most_bits=14):
        assert qs.plan(workload, budget).gap > 0.02


@pytest.mark.parametrize("limit", ["merged_values", "merged_work", "merged_numbers"])
def test_merged_families_bring_the_largest_error_closer_to_its_bound(limit):
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.queries(schema, a="prefix", b="identity") + qs.queries(schema, a="identity", b="prefix")
    assert plan(workload, objective="worst").gap < 0.005
    assert plan(workload, {limit: 0}, objective="worst").gap > 0.02


def test_the_number_of_records_is_learnt_for_its_share_of_the_budget():
    workload = qs.marginals(qs.Schema.of(a=4, b=5, c=6, d=3), 3)
    few, many = (plan(workload, {"size_share": share}, purpose="estimate") for share in (0.01, 0.2))
    assert few.budget_shares()[()] < 0.05
    assert many.budget_shares()[()] > 0.2


def test_larger_tables_are_measured_for_enough_of_the_budget_only():
    workload = qs.marginals(qs.Schema.of(a=4, b=5, c=6, d=3), 3)
    kept, left = (
        plan(workload, {"table_share": share}, purpose="estimate", records=1000).budget_shares()
        for share in (0.0, 1.01)
    )
    assert ("a", "b", "c") in kept
    assert ("a", "b", "c") not in left
    assert sum(cost for names, cost in kept.items() if len(names) < 3) < 1


def test_errors_of_estimates_are_stated_for_a_usual_number_of_records():
    workload = qs.marginals(qs.Schema.of(a=4, b=5, c=6, d=3), 3)
    few, many = (plan(workload, {"usual_records": n}, purpose="estimate") for n in (100, 100_000))
    assert few.budget_shares()["a",] > many.budget_shares()["a",]


def test_many_whole_queries_are_solved_more_closely_if_that_is_asked():
    rows = np.random.default_rng(0).integers(0, 2, (20, 1600)).tolist()
    workload = qs.linear(qs.Schema.of(a=40, b=40), ("a", "b"), rows)
    near, nearer = (plan(workload, {"interior_work": 0, "whole_nearness": n}).gap for n in (20, 0))
    assert nearer < near <= 0.02


def replaced(limit=None):
    """Return the gap of a plan of prefixes on all pairs of attributes where a record is replaced."""
    workload = qs.all_kway(qs.Schema.of(a=10, b=11, c=12, d=13), [1, 2], "prefix")
    with limited(**(limit or {})):
        return qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one")).gap


@pytest.mark.parametrize("limit", [{"coupled_gap": 0.1}, {"coupled_sets": 1}, {"coupled_work": 100}])
def test_pairs_of_values_are_coupled_for_a_closer_bound(limit):
    assert replaced() < 0.04
    assert replaced(limit) > 0.05


def test_pairs_are_coupled_on_hundreds_of_attribute_sets():
    """The heaviest kinds of sets guide the search: it was left out, and the gap was 5.3%."""
    sizes = (42, 16, 15, 9, 7, 6, 5, 2, 2, 60, 60, 59, 50)
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    families = {
        name: "prefix" if n >= 50 else "identity" for name, n in zip(schema.names, sizes, strict=True)
    }
    assert qs.plan(qs.all_kway(schema, 3, families), REPLACE).gap < 0.01


# --- what constants beside algorithms gain ---------------------------------------------------------

REPLACE = qs.PrivacyCost(1.0, neighbours="replace_one")
LINE = qs.queries(qs.Schema.of(a=1600), a="prefix")


def changed(name, value, monkeypatch):
    """Change a constant of a module of planning."""
    module, constant = name.rsplit(".", 1)
    monkeypatch.setattr(f"querysmasher.planning.{module}.{constant}", value)


def with_public_total(workload):
    return qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one")).rmse


@pytest.mark.parametrize(("name", "value"), [("STEPS", 1), ("POWER", 1.0)])
def test_couplings_take_enough_steps(name, value, monkeypatch):
    before = replaced()
    changed(f"solvers.couplings.{name}", value, monkeypatch)
    assert replaced() > 1.1 * before


def test_small_matrices_of_couplings_are_decomposed(monkeypatch):
    workload = qs.all_kway(qs.Schema.of(a=5, b=6, c=7, d=5), [1, 2, 3], "prefix")
    before = qs.plan(workload, REPLACE).gap
    changed("solvers.couplings.DECOMPOSED", 1, monkeypatch)
    assert qs.plan(workload, REPLACE).gap > 1.02 * before


def test_couplings_of_alike_attributes_take_more_steps(monkeypatch):
    schema = qs.Schema.of({f"a{i}": 6 for i in range(20)})
    ties = [qs.abs_difference(schema, *pair) for pair in combinations(schema.names, 2)]
    workload = sum(ties, qs.all_kway(schema, 1, "prefix"))
    before = qs.plan(workload, REPLACE).gap
    changed("solvers.couplings.FEW_STEPS", 10, monkeypatch)
    assert qs.plan(workload, REPLACE).gap > before + 0.02


def test_pairs_of_cells_are_weighed_closely(monkeypatch):
    before = qs.plan(*drawn(12035188)).gap
    changed("solvers.design.NEAR", 0.5, monkeypatch)
    assert qs.plan(*drawn(12035188)).gap > before + 0.01


@pytest.mark.parametrize(("name", "value"), [("NEAR", 0.2), ("WRITTEN_OUT", 0)])
def test_pairs_are_drawn_in_enough_ways(name, value, monkeypatch):
    workload = qs.marginals(qs.Schema.of({f"a{i}": 2 for i in range(10)}), [1, 2, 3])
    changed(f"drawing.{name}", value, monkeypatch)
    with limited(light_work=0, coupled_gap=1.0):
        assert qs.plan(workload, REPLACE).gap > 0.01
        monkeypatch.undo()
        assert qs.plan(workload, REPLACE).gap < 1e-3


@pytest.mark.parametrize("weight", [0.0, 1e5])
def test_a_public_total_has_a_weight_that_is_neither_small_nor_huge(weight, monkeypatch):
    before = with_public_total(LINE)
    changed("lines.splitting.PUBLIC", weight, monkeypatch)
    assert with_public_total(LINE) > 1.01 * before


def test_all_pairs_of_few_cells_are_weighed_if_a_record_is_replaced():
    workload = qs.queries(qs.Schema.of(a=20), a="prefix")
    with limited(paired_cells=1):
        before = with_public_total(workload)
    assert before > 1.03 * with_public_total(workload)


def test_the_weight_of_a_total_beside_queries_is_not_small(monkeypatch):
    workload = qs.all_kway(qs.Schema.of(a=10, b=10, c=10), [1, 2], "prefix")
    before = with_public_total(workload)
    changed("centring.HEAVIEST", 0.01, monkeypatch)
    assert with_public_total(workload) > 1.005 * before


@pytest.mark.slow
def test_attributes_of_few_values_are_tried_further_from_uniform_centres(monkeypatch):
    schema = qs.Schema.of(a=7, b=4, c=2, d=30, e=60)
    workload = qs.all_kway(schema, 1, "prefix") + qs.queries(schema, d="prefix", e="prefix")
    for pair in combinations(schema.names, 2):
        workload = workload if pair == ("d", "e") else workload + qs.affine(schema, *pair)
    before = qs.plan(workload, COST).weighted_rmse
    changed("centring.FEW", 0, monkeypatch)
    assert qs.plan(workload, COST).weighted_rmse > 1.001 * before


def rounded(seed, **most):
    """Return the largest factor by which whole numbers raise a variance of a random workload."""
    planned = qs.plan(*drawn(seed))
    before = planned.variances(planned.workload)
    with limited(**most):
        after = as_measured(planned, MAX_RECORDS).variances(planned.workload)
    return (after[before > 0] / before[before > 0]).max()


def test_rows_in_whole_numbers_keep_the_planned_errors(monkeypatch):
    before = rounded(17)
    changed("strategies.dense.FAINT", 1.0, monkeypatch)
    assert before < 1.0025
    assert rounded(17) > 1.2


def test_combinations_of_whole_rows_keep_the_planned_errors(monkeypatch):
    on_many_cells = partial(rounded, dense_cells=0)
    before = on_many_cells(115)
    changed("strategies.dense.LATTICE_BITS", 0, monkeypatch)
    assert before < 1.0025
    assert on_many_cells(115) > 1.003
    assert on_many_cells(5126) < 2
    changed("lattice.MOST_DENOMINATOR", 504, monkeypatch)
    with pytest.raises(PlanError, match="fractional coefficients"):
        on_many_cells(5126)


def test_few_bits_are_used_well(monkeypatch):
    schema = qs.Schema.of(a=6)
    workload = qs.queries(schema, a="prefix")

    def largest():
        with limited(most_bits=4, good_loss=4.0):
            planned = qs.plan(workload, qs.PrivacyCost(1.0), centering="uniform")
            return as_measured(planned, MAX_RECORDS).variances(workload).max()

    before = largest()
    changed("strategies.dense.SCALES", [1.0], monkeypatch)
    assert largest() > 1.02 * before


SCHEMA = qs.Schema.of(a=6, b=5, c=4)
FEW = qs.Schema.of(a=5, b=4, c=3)
SEARCHES = {
    "worst": lambda: plan(qs.all_kway(SCHEMA, [1, 2], "prefix") + qs.marginals(SCHEMA, 2), objective="worst"),
    "least": lambda: qs.least_budget(
        qs.all_kway(FEW, 1, "prefix").within(2.0) + qs.marginals(FEW, 2).within(4.0) + qs.marginals(FEW, 3)
    ),
}


@cache
def usual(search):
    """Return the plan of a search with the usual constants."""
    return SEARCHES[search]()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("multipliers.MOST_RATE", 1e9),
        ("multipliers.FIRST_RATE", 0.3),
        ("search.GROWTH", 2.0),
        ("search.PROMISED", 0.1),
    ],
)
def test_the_search_for_the_least_largest_error_ends_closer(name, value, monkeypatch):
    before = usual("worst").gap
    changed(f"objectives.{name}", value, monkeypatch)
    assert SEARCHES["worst"]().gap > 1.2 * before


def test_queries_without_targets_get_a_little_more_than_the_least_cost(monkeypatch):
    before = usual("least").rmse
    changed("objectives.objective.SPARE", 1.0, monkeypatch)
    assert SEARCHES["least"]().rmse > 1.2 * before


@pytest.mark.parametrize(
    ("name", "value", "seed"),
    [
        ("reallocation.PRECISION", 1e-2, 8),
        ("multipliers.MOST_STEP", 1e3, 33),
        ("multipliers.MOST_STEP", 0.3, 88),
        ("search.FLOOR", 100.0, 3),
    ],
)
def test_random_workloads_have_a_least_largest_error_closer_to_its_bound(name, value, seed, monkeypatch):
    before = qs.plan(*drawn(seed), objective="worst").gap
    changed(f"objectives.{name}", value, monkeypatch)
    assert qs.plan(*drawn(seed), objective="worst").gap > 2 * before


def test_queries_of_hardly_any_weight_leave_no_gap():
    assert qs.plan(*drawn(58), objective="worst").gap < 0.001


def reallocated(monkeypatch):
    """Return how often the budget is divided for the queries known yet, in a search for the largest error."""
    solved, solve = [], Reallocation._solved
    workload = qs.all_kway(qs.Schema.of(a=9, b=8, c=7), [2, 3], "prefix")
    with monkeypatch.context() as patch:
        patch.setattr(Reallocation, "_solved", lambda *given: solved.append(1) or solve(*given))
        plan(workload, objective="worst", centering="uniform")
    return len(solved)


def test_several_queries_of_a_group_join_at_once(monkeypatch):
    before = reallocated(monkeypatch)
    changed("objectives.reallocation.MOST", 1, monkeypatch)
    assert reallocated(monkeypatch) > 1.2 * before


def searched(monkeypatch):
    """Return the number of plans that a search tries for targets out of reach."""
    tried, search = [], Search._tried
    workload = qs.queries(qs.Schema.of(a=5), a="prefix").within(0.5) + qs.marginals(qs.Schema.of(a=5), 1)
    with monkeypatch.context() as patch:
        patch.setattr(Search, "_tried", lambda *given: tried.append(1) or search(*given))
        with pytest.raises(PlanError, match="does not suffice"):
            plan(workload)
    return len(tried)


def test_a_search_for_targets_out_of_reach_ends(monkeypatch):
    before = searched(monkeypatch)
    changed("objectives.search.MOST_WEIGHT", 1e12, monkeypatch)
    assert searched(monkeypatch) > 2 * before


def missed_coarsely():
    with limited(most_bits=6, good_loss=4.0):
        return missed_by(as_measured(SEARCHES["least"](), MAX_RECORDS))


@pytest.mark.parametrize(("name", "value"), [("ROUNDS", 0), ("MET", 1.1)])
def test_what_rounding_takes_is_made_up_for(name, value, monkeypatch):
    changed(f"objectives.objective.{name}", value, monkeypatch)
    assert missed_coarsely() > 1.001
    monkeypatch.undo()
    assert missed_coarsely() < 1 + 1e-6


@pytest.mark.parametrize(("name", "value"), [("SMALL", 1e-2), ("STEP", 2.0)])
def test_bounds_are_integrated_finely(name, value, monkeypatch):
    workload = LINE + 0.01 * qs.queries(LINE.schema, a="range")
    before = qs.plan(workload, COST).gap
    changed(f"solvers.bounds.{name}", value, monkeypatch)
    assert qs.plan(workload, COST).gap > 1.3 * before


def affine(schema):
    parts = [qs.affine(schema, *pair) for pair in combinations(schema.names, 2)]
    return sum(parts[1:], parts[0])


@pytest.mark.parametrize(
    ("name", "value", "sizes"), [("centring.GAIN", 0.1, 3), ("allocation.MULTIPLES", (), 12)]
)
def test_centres_of_affine_queries_are_searched(name, value, sizes, monkeypatch):
    workload = affine(qs.Schema.of({f"a{i}": 20 for i in range(sizes)}))
    before = plan(workload, SPLIT).rmse
    changed(name, value, monkeypatch)
    assert plan(workload, SPLIT).rmse > 1.002 * before


def test_filters_are_not_near_enough_for_every_tolerance(monkeypatch):
    workload = qs.queries(qs.Schema.of(a=100), a="prefix")
    assert plan(workload, {"line_matrix": 20}, tolerance=1e-4).gap < 1e-4
    changed("lines.splitting.FILTERS", 0.0, monkeypatch)
    assert plan(workload, {"line_matrix": 20}, tolerance=1e-4).gap > 3e-4


@pytest.mark.parametrize(("blends", "weight"), [((0.5,), 1), ((0.97,), 100)])
def test_several_blends_of_an_axis_are_tried(blends, weight, monkeypatch):
    schema = qs.Schema.of(a=20, b=15)
    workload = qs.all_kway(schema, 2, "range") + qs.queries(schema, a="identity", b="prefix") * weight
    before = plan(workload, solver="structured", centering="uniform").gap
    changed("solvers.structured.BLENDS", blends, monkeypatch)
    assert plan(workload, solver="structured", centering="uniform").gap > 2 * before


def test_values_that_hardly_any_query_distinguishes_are_told_apart(monkeypatch):
    schema = qs.Schema.of(a=1600)
    half = qs.ranges(schema, "a", [0] * 800, list(range(800)))
    workload = qs.queries(schema, a=half) + qs.queries(schema, a="identity") * 0.01
    before = plan(workload).rmse
    changed("lines.gram.ROUGH", 1e-10, monkeypatch)
    assert plan(workload).rmse > 2 * before


@pytest.mark.parametrize(("value", "error"), [(1e-10, "worst_std"), (0.3, "rmse")])
def test_frequencies_that_ranges_of_one_length_miss_are_measured_faintly(value, error, monkeypatch):
    schema = qs.Schema.of(a=1600)
    workload = qs.queries(schema, a=qs.ranges(schema, "a", list(range(1590)), list(range(10, 1600))))
    before = getattr(plan(workload), error)
    changed("lines.filters.FAINT", value, monkeypatch)
    assert getattr(plan(workload), error) > 1.01 * before


@pytest.mark.parametrize(
    ("name", "value", "by"), [("RESERVE", 0.1, 1.05), ("STILL", 10.0, 1.01), ("ROUNDS", 1, 1.01)]
)
def test_sums_beside_lines_are_planned_closely(name, value, by, monkeypatch):
    schema = qs.Schema([qs.Number("a", 0, 1_599), qs.Categorical("b", ["u", "v"])])
    by_group = qs.queries(schema, a="sum", b="identity")
    workload = qs.queries(schema, a="prefix") + (qs.queries(schema, a="sum") + 20 * by_group) * 1e5
    if name == "RESERVE":  # as if the sums were no ratios of integers
        monkeypatch.setattr(FewStrategy, "of", lambda *_, **__: None)
    before = plan(workload).weighted_loss
    changed(f"lines.filters.{name}", value, monkeypatch)
    assert plan(workload).weighted_loss > by * before


@pytest.mark.parametrize(("name", "gap"), [("FEW", 0.01), ("SMOOTH", None)])
def test_few_and_smooth_rows_are_followed(name, gap, monkeypatch):
    schema = qs.Schema([qs.Number("a", 0, 1_599, missing="none")])
    workload = qs.queries(schema, a="prefix") + qs.queries(schema, a="sum") * 1_600
    if gap is None:
        assert large_attributes(workload) == (0,)
    else:
        assert plan(workload).gap < gap
    changed(f"lines.gram.{name}", 0, monkeypatch)
    assert large_attributes(workload) == ()


def fitted():
    """Return the number of poles of a filter, and the error of their fit."""
    frequencies = Reflection("prefix", 700).second_differences
    strategy = MirroredStrategy("prefix", np.sqrt(1 / frequencies + 0.1), np.ones(700), np.zeros((0, 700)))
    poles, *_, misfit = replace(strategy, diagonal=1 / np.sqrt(strategy.squares))._fit
    return len(poles), misfit


def test_few_poles_fit_a_filter(monkeypatch):
    count, misfit = fitted()
    assert misfit < 1e-8
    changed("strategies.mirrored.RATIO", 10.0, monkeypatch)
    assert fitted()[1] > 1e-6
    changed("strategies.mirrored.RATIO", 1.2, monkeypatch)
    assert fitted()[0] > 4 * count
    monkeypatch.undo()
    changed("strategies.mirrored.LOWEST", 1, monkeypatch)
    assert fitted()[0] > 1.3 * count


def test_filters_that_are_not_smooth_are_not_fitted(monkeypatch):
    planned = plan(moving(qs.Schema.of(a=2000), [30]))
    (strategy,) = (s.strategy for s in planned.solutions if s.strategy.kind == "mirrored")
    ends = np.array([5, 900]), np.array([34, 929])
    exact = strategy.of_spans(*ends)
    with limited(exact_range_work=0):
        np.testing.assert_allclose(strategy.of_spans(*ends), exact, rtol=1e-9)
        changed("strategies.mirrored.SMOOTH", 10.0, monkeypatch)
        assert np.abs(strategy.of_spans(*ends) / exact - 1).max() > 0.05


def grained():
    """Return the factor by which rounding a diagonal strategy raises variances, and how many it has."""
    schema = qs.Schema.of(a=12, b=10)
    workload = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    planned = plan(workload, solver="structured", centering="uniform")
    strategy = next(s.strategy for s in planned.solutions if s.strategy.kind == "diagonal")
    rounded_one = strategy.rounded([np.ones(n, dtype=np.int64) for n in strategy.shape], 10)
    return strategy.rounding_loss(rounded_one), np.unique(rounded_one.multipliers).size


def test_noise_variances_of_a_diagonal_strategy_are_few_and_near_the_best(monkeypatch):
    loss, count = grained()
    changed("strategies.diagonal.GRAIN", 4, monkeypatch)
    assert grained()[0] > 1.02 * loss
    changed("strategies.diagonal.GRAIN", 10**6, monkeypatch)
    assert grained()[1] > count


def test_dependent_rows_are_told_from_rounding_errors(monkeypatch):
    rows = np.random.default_rng(0).integers(0, 9, (20, 5)) @ np.random.default_rng(1).integers(0, 9, (5, 30))
    assert len(independent(rows)) == 5
    changed("lattice.RANK", 0.0, monkeypatch)
    assert len(independent(rows)) > 5


# --- every number has a case -----------------------------------------------------------------------

NO_TUNING = {
    "MAX_RECORDS": "what a user may change",
    "MOST_SHARE": "a share of the whole",
    "MOST_NAMED": "the length of a message",
    "PRINTED": "digits of a message",
    "MOST_COST": "beyond it, nothing is private",
    "SAFETY": "a bound on rounding errors",
    "LARGEST": "the range of exact integers",
    "DEPENDENT": "a tolerance of floating-point arithmetic",
    "POINTS": "the size of an array",
    "LOOSE": "a bound, so that the problem has a solution",
    "CLOSE": "a tolerance of floating-point arithmetic",
}


def numbers(path):
    """Return the names of the limits, or of the constants with numbers, of a module."""
    tree = ast.parse(path.read_text())
    if path.name == "limits.py":
        return list(PlanningLimits.__dataclass_fields__)
    pairs = []
    for node in (node for node in tree.body if isinstance(node, ast.Assign)):
        target = node.targets[0]
        pairs += (
            zip(target.elts, node.value.elts, strict=True)
            if isinstance(target, ast.Tuple)
            else [(target, node.value)]
        )
    return [name.id for name, value in pairs if name.id.isupper() and _is_number(value)]


def _is_number(value):
    kinds = {type(node.value) for node in ast.walk(value) if isinstance(node, ast.Constant)}
    return kinds and kinds <= {int, float}


def test_every_tuning_number_has_a_case():
    root = Path(qs.__file__).parents[2]
    text = "".join(p.read_text() for part in ("tests", "benchmarks") for p in (root / part).rglob("*.py"))
    names = {n for path in (root / "src/querysmasher/planning").rglob("*.py") for n in numbers(path)}
    assert set(NO_TUNING) <= names
    changes = {name for name in names if re.search(rf"[.\"]{name}\"|\b{name}=", text)}
    assert names - set(NO_TUNING) - changes == set()
