"""The privacy cost, against its definition: every pair of neighbouring tables, in exact fractions.

What is compared is what measuring really hands out, not what the accountant believes: `released` runs
the measuring code itself on both tables.
"""

import dataclasses
import functools
import importlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import BEST, UNIFORM
from tests.profiles import fewer
from tests.release.tables import (
    CLASSES,
    Untouchable,
    frame,
    random_counts,
    released,
    squared_change,
    units,
    whole,
)
from tests.strategies import integer_arrays

import querysmasher as qs
from querysmasher.errors import BudgetError, FileError, PlanError, PrivacyError
from querysmasher.files import write_archive
from querysmasher.planning.storage import plan_to_data
from querysmasher.privacy import accounting
from querysmasher.privacy.accounting import check_budget, privacy_cost, squared_sensitivity
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.privacy.rates import delta, zcdp_delta

SMALL = qs.Schema.of(a=3, b=2, c=2)
"""Twelve cells: few enough to try every change of a table."""

WORKLOADS = {
    "marginals": (qs.marginals(SMALL, [0, 1, 2, 3]), UNIFORM),
    "prefixes": (qs.all_kway(SMALL, [1, 2], "prefix"), UNIFORM),
    "best centres": (qs.all_kway(SMALL, [1, 2], "prefix"), BEST),
    "affine": (qs.affine(SMALL, "a", "b") + qs.marginals(SMALL, 1), UNIFORM),
    "where": (qs.where(SMALL, "a + b <= 1 or c == 1") + qs.where(SMALL, "a > 0 and b == 1"), UNIFORM),
    "structured": (
        qs.all_kway(SMALL, [2, 3], "prefix") + qs.marginals(SMALL, [2, 3]),
        {"solver": "structured", **BEST},
    ),
    "real": (qs.linear(SMALL, ("c", "a"), np.linspace(-1, 1.7, 12).reshape(2, 6) ** 3), UNIFORM),
}

BASE = random_counts(SMALL, seed=5, records=40) + 2


def planned_prefixes(budget):
    workload, options = WORKLOADS["prefixes"]
    return qs.plan(workload, budget, **options)


def integers(name, budget=None, max_records=10**6):
    workload, options = WORKLOADS[name]
    return whole(qs.plan(workload, budget or qs.PrivacyCost(1.0), **options), max_records=max_records)


# --- every pair of neighbours --------------------------------------------------------------------


def largest_change(plan, changes):
    """The largest squared change over noise variance, over all the changes of one table."""
    here = released(plan, BASE)
    return max(squared_change(here, released(plan, BASE + change)) for change in changes)


def alone(plan, number):
    """The same plan with one attribute set only."""
    return dataclasses.replace(plan, measured=(plan.measured[number],))


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_adding_or_removing_a_record_costs_at_most_what_is_said(name):
    plan = integers(name)
    found = largest_change(plan, [s * u for u in units(SMALL) for s in (1, -1)])
    assert found <= privacy_cost(plan) <= Fraction(1)
    # and set by set that is no more than needed: some record costs exactly this
    for number in range(len(plan.measured)):
        one = alone(plan, number)
        said = privacy_cost(one)
        attained = largest_change(one, units(SMALL))
        with_multipliers = any(
            plan.strategies[n].multipliers is not None for _, n in plan.measured[number].blocks
        )
        slack = Fraction(1, 10**6) if with_multipliers else Fraction(2, accounting.GRAIN)
        assert attained <= said <= attained + slack * max(1, attained)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_replacing_a_record_costs_at_most_what_is_said(name):
    plan = integers(name, qs.PrivacyCost(1.0, neighbours="replace_one"))
    each = list(units(SMALL))
    found = largest_change(plan, [a - b for a, b in itertools.combinations(each, 2)])
    assert found <= privacy_cost(plan) <= Fraction(1)
    assert all(m.attributes for m in plan.measured), "the number of records is public, not measured"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["marginals", "best centres", "structured", "where"])
def test_two_records_of_one_person(name):
    plan = integers(name, qs.PrivacyCost(1.0, records_per_person=2))
    each = list(units(SMALL))
    pairs = [a + b for a, b in itertools.combinations_with_replacement(each, 2)]
    found = largest_change(plan, [*each, *pairs, *(-p for p in pairs)])
    assert found <= privacy_cost(plan) <= Fraction(1)
    # two equal records are the worst case of one set: four times a single one
    one = alone(plan, len(plan.measured) - 1)
    exact = largest_change(one, [2 * u for u in each])
    assert exact == 4 * largest_change(one, each)
    assert privacy_cost(one) <= exact * (1 + Fraction(1, 10**6)) + Fraction(2, accounting.GRAIN)


def test_replacing_two_records_of_one_person():
    schema = qs.Schema.of(a=2, b=2)
    workload = qs.marginals(schema, [1, 2])
    budget = qs.PrivacyCost(1.0, neighbours="replace_one", records_per_person=2)
    plan = whole(qs.plan(workload, budget))
    table = np.array([[4, 3], [2, 5]])
    here = released(plan, table)
    each = list(units(schema))
    changes = [a + b - c - d for a, b, c, d in itertools.product(each, repeat=4)]
    found = max(squared_change(here, released(plan, table + change)) for change in changes)
    assert found <= privacy_cost(plan) <= Fraction(1)


def test_the_bound_for_replaced_records_is_attained():
    """With two values the columns are b and -b, and the change is 2b: four times the square."""
    schema = qs.Schema.of(a=2)
    plan = whole(qs.plan(qs.marginals(schema, 1), qs.PrivacyCost(1.0, neighbours="replace_one")))
    one, two = (released(plan, table) for table in ([5, 0], [4, 1]))
    assert squared_change(one, two) <= privacy_cost(plan) <= squared_change(one, two) + Fraction(1, 2**150)


@functools.cache
def class_plan(name, neighbours, r):
    workload, options = CLASSES[name]
    budget = qs.zCDP(0.7, neighbours=neighbours, records_per_person=r)
    return whole(qs.plan(workload, budget, **options), max_records=10**5)


@pytest.mark.slow
@fewer(25)
@given(
    st.sampled_from(sorted(CLASSES)),
    st.sampled_from(["add_remove", "replace_one"]),
    st.integers(1, 3),
    st.integers(0, 10**6),
)
def test_random_neighbours_of_every_class_of_queries(name, neighbours, r, seed):
    plan = class_plan(name, neighbours, r)
    generator = np.random.default_rng(seed)
    table = random_counts(plan.schema, seed, records=500)
    other = table.copy()
    for _ in range(r):
        cells = generator.integers(0, table.size, 2)
        other.reshape(-1)[cells[0]] += 1
        if neighbours == "replace_one":
            full = np.flatnonzero(table.ravel())
            other.reshape(-1)[full[cells[1] % len(full)]] -= 1
    other = np.maximum(other, 0)
    found = squared_change(released(plan, table), released(plan, other))
    assert found <= privacy_cost(plan) <= Fraction(plan.budget.privacy_cost)


# --- the sensitivity -----------------------------------------------------------------------------


def brute_sensitivity(strategy):
    """max over cells of Σ over rows of (entry)² / multiplier, entry by entry."""
    matrices = [factor.entries for _, factor in strategy.factors]
    sizes = [m.shape[1] for m in matrices]
    best = Fraction(0)
    for cell in itertools.product(*map(range, sizes)):
        total = Fraction(0)
        for row in itertools.product(*map(range, strategy.rows)):
            entry = math.prod(int(m[k, j]) for m, k, j in zip(matrices, row, cell, strict=True))
            share = 1 if strategy.multipliers is None else int(strategy.multipliers[row])
            total += Fraction(entry**2, share)
        best = max(best, total)
    return best


@st.composite
def strategies(draw, factors, bits):
    shape = tuple(draw(st.integers(1, 4)) for _ in range(factors))
    largest = 2 ** draw(st.integers(1, bits)) - 1
    rows = [draw(st.integers(1, 4)) for _ in range(factors)]
    matrices = [
        ((i,), Matrix(draw(integer_arrays((r, n), -largest, largest))))
        for i, (r, n) in enumerate(zip(rows, shape, strict=True))
    ]
    multipliers = None
    if draw(st.booleans()):
        multipliers = draw(integer_arrays(rows, 1, 2 ** draw(st.integers(1, 50)) - 1))
    return IntegerStrategy(shape, tuple(matrices), multipliers)


@fewer(50)
@given(strategies(1, 61))
def test_the_sensitivity_of_one_factor_is_exact(strategy):
    if strategy.multipliers is not None:
        strategy = dataclasses.replace(strategy, multipliers=None)
    assert squared_sensitivity(strategy) == brute_sensitivity(strategy)


@given(st.one_of(strategies(1, 26), strategies(2, 26), strategies(3, 20)))
def test_the_sensitivity_of_several_factors_is_a_tight_upper_bound(strategy):
    exact = brute_sensitivity(strategy)
    found = squared_sensitivity(strategy)
    assert exact <= found <= exact * (1 + Fraction(1, 10**6))


def test_many_rows_with_many_small_shares_still_bound_from_above():
    """Where rounding errors pile up: sums of thousands of fractions like 1/3."""
    rows = np.full((5000, 1), 2**25 + 1, dtype=np.int64)
    multipliers = np.full((5000, 3), 3**20, dtype=np.int64)
    factors = (((0,), Matrix(rows)), ((1,), Matrix(np.array([[3], [5], [7]]))))
    strategy = IntegerStrategy((1, 1), factors, multipliers)
    exact = Fraction(5000 * (2**25 + 1) ** 2 * (9 + 25 + 49), 3**20)
    assert exact <= squared_sensitivity(strategy) <= exact * (1 + Fraction(1, 10**8))


def test_factors_too_large_for_the_bound_are_refused(refuses):
    big = np.array([[2**26, 0]])
    for matrix in (big, -big):
        factors = (((0,), Matrix(matrix)), ((1,), Matrix(np.array([[1, -1]]))))
        strategy = IntegerStrategy((2, 2), factors, np.array([[1]]))
        with refuses(PrivacyError, ValueError, "too large"):
            squared_sensitivity(strategy)


@pytest.mark.parametrize("entry", [-(2**63), 2**63 - 1, 2**62, -(2**62)])
def test_entries_at_the_end_of_a_word_cannot_hide(entry, refuses):
    """|-2^63| is -2^63 in a word, and its square is 0: such a row would seem to cost nothing."""
    with refuses(PrivacyError, ValueError, "integer"):
        Matrix(np.array([[entry, 1]], dtype=np.int64))


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[1.0, -1.0]]),
        np.array([[1, -1]], dtype=np.int32),
        np.array([[1, 1]], dtype=np.uint64),
        np.array([[1, -1]], dtype=object),
        np.array([[1, -1]], dtype=">i8"),
        np.array([1, -1]),
        np.zeros((0, 2), dtype=np.int64),
        np.array([[1, -1, 0]]),
        np.ma.array([[1, -1]], mask=[[True, False]]),  # its sums leave entries out
        np.array([[1, -1]]).view(type("Odd", (np.ndarray,), {})),  # whose squares and sums could be anything
    ],
    ids=lambda m: f"{type(m).__name__} {m.dtype} {m.shape}",
)
def test_what_is_no_matrix_of_whole_numbers_is_refused(matrix, refuses):
    with refuses(PrivacyError, ValueError, "integer"):
        IntegerStrategy((2,), (((0,), Matrix(matrix)),))


@pytest.mark.parametrize(
    "multipliers",
    [
        np.array([0, 1]),
        np.array([-1, 1]),
        np.array([1]),
        np.array([1.0, 1.0]),
        np.array([[1, 1]]),
        np.ma.array([1, 1], mask=[True, False]),
    ],
    ids=repr,
)
def test_multipliers_are_positive_whole_numbers(multipliers, refuses):
    with refuses(PrivacyError, ValueError, "multipliers"):
        IntegerStrategy((2,), (((0,), Matrix(np.array([[1, -1], [2, -2]]))),), multipliers)


# --- what a plan may not be ----------------------------------------------------------------------

PAIR = qs.Schema.of(a=2, b=2)
DIFFERENCE = IntegerStrategy((2,), (((0,), Matrix(np.array([[1, -1]]))),))
JOINT = IntegerStrategy((2, 2), (((0, 1), Matrix(np.array([[1, -1, -1, 1]]))),))


def planned(*measured, strategies=(DIFFERENCE, JOINT), budget=None, schema=PAIR):
    sets = tuple(IntegerMeasured(a, b, Fraction(v)) for a, b, v in measured)
    return IntegerPlan(schema, budget or qs.PrivacyCost(10.0), strategies, sets, 1000)


def test_the_cost_of_a_plan_is_the_sum_of_its_sets():
    plan = planned(((), (), 3), ((0,), (((0,), 0),), 7), ((0, 1), (((0,), 0), ((1,), 0)), 11))
    exact = Fraction(1, 3) + Fraction(1, 7) + Fraction(1, 11)
    assert exact <= privacy_cost(plan) <= exact + Fraction(3, accounting.GRAIN)


@pytest.mark.parametrize("variance", [0, -1, Fraction(-1, 10**30)])
def test_a_measurement_without_noise_is_refused(variance, refuses):
    plan = planned(((0,), (((0,), 0),), variance))
    with refuses(PrivacyError, ValueError, "no noise"):
        privacy_cost(plan)
    with refuses(PrivacyError, ValueError, "no noise"):
        check_budget(plan, DISTRIBUTIONS["rounded"])


def test_too_little_noise_is_refused_and_a_hair_more_is_not(refuses):
    budget = qs.PrivacyCost(0.5)
    check_budget(planned(((0,), (((0,), 0),), 2), budget=budget), DISTRIBUTIONS["rounded"])
    with refuses(PrivacyError, ValueError, "more than", "nothing was measured"):
        check_budget(
            planned(((0,), (((0,), 0),), 2 - Fraction(1, 10**20)), budget=budget), DISTRIBUTIONS["rounded"]
        )


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ([((0, 1), (((0, 1), 1),), 5), ((1, 0), (((0, 1), 1),), 5)], "increasing"),
        ([((0, 0), (((0, 1), 1),), 5)], "increasing"),
        ([((-1,), (((0,), 0),), 5)], "increasing"),
        ([((2,), (((0,), 0),), 5)], "increasing"),
        ([((0, 1), (((0,), 0),), 5)], "cover"),
        ([((0, 1), (((0,), 0), ((0,), 0)), 5)], "cover"),
        ([((0, 1), (((0, 1), 1), ((1,), 0)), 5)], "cover"),
        ([((0,), (((0,), 0), ((1,), 0)), 5)], "cover"),
        ([((0,), (((0,), 1),), 5)], "fit"),
        ([((0, 1), (((0, 1), 0),), 5)], "fit"),
        ([((0,), (((0,), 9),), 5)], "fit"),
        ([((0,), (((0,), -1),), 5)], "fit"),
    ],
)
def test_a_plan_that_does_not_fit_its_attributes_is_refused(measured, words, refuses):
    with refuses(PrivacyError, ValueError, words):
        planned(*measured)


def test_a_strategy_for_another_size_is_refused(refuses):
    with refuses(PrivacyError, ValueError, "fit"):
        planned(((0,), (((0,), 0),), 5), schema=qs.Schema.of(a=3, b=2))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 2), [(0,), (0,)]), ((2, 2), [(0,)]), ((2,), [(0,), (1,)]), ((2, 2), [(0,), (2,)])],
)
def test_factors_must_cover_every_axis_once(shape, axes, refuses):
    with refuses(PrivacyError, ValueError, "cover every axis once"):
        IntegerStrategy(shape, tuple((a, Matrix(np.array([[1, -1]]))) for a in axes))


def test_multipliers_that_overflow_together_are_refused(refuses):
    """2^32 times 2^32 + 1 is 2^32 in a word: the noise would be smaller than the cost assumes."""
    one, two = (
        IntegerStrategy((2,), (((0,), Matrix(np.array([[1, -1]]))),), np.array([m]))
        for m in (2**32, 2**32 + 1)
    )
    with refuses(PrivacyError, ValueError, "multipliers"):
        planned(((0, 1), (((0,), 0), ((1,), 1)), 1), strategies=(one, two))


# --- refused before the data are touched -----------------------------------------------------------


def refused_untouched(plan, refuses, error, *words, builtin=ValueError, **options):
    data = Untouchable()
    with refuses(error, builtin, *words):
        qs.measure(plan, data, **options)
    assert not data.touched


@pytest.fixture
def plan():
    return planned_prefixes(qs.PrivacyCost(1.0))


@pytest.fixture
def opened(monkeypatch):
    """Every opening of a table."""
    calls = []
    module = importlib.import_module("querysmasher.measuring")
    original = module.open_table
    monkeypatch.setattr(module, "open_table", lambda *a, **k: calls.append(a) or original(*a, **k))
    return calls


def with_variance(plan, place, change):
    measured = list(plan.measured)
    measured[place] = dataclasses.replace(measured[place], variance=change(measured[place].variance))
    return dataclasses.replace(plan, measured=tuple(measured))


@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("factor", [0.999, 0.5, 1e-6])
def test_a_plan_with_less_noise_is_refused(plan, place, factor, refuses, opened):
    refused_untouched(with_variance(plan, place, lambda v: v * factor), refuses, PrivacyError, "more than")
    assert not opened


@pytest.mark.parametrize("variance", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, -1])
def test_a_plan_without_noise_is_refused(plan, place, variance, refuses, opened):
    planted = with_variance(plan, place, lambda _: variance)
    refused_untouched(planted, refuses, PlanError, "noise variance")
    assert not opened


def test_a_set_planned_twice_costs_twice(plan, refuses, opened):
    planted = dataclasses.replace(plan, measured=(*plan.measured, plan.measured[1]))
    refused_untouched(planted, refuses, PrivacyError, "more than the 1 its budget allows")
    assert not opened


def with_solution(plan, number, **changes):
    solutions = list(plan.solutions)
    strategy = dataclasses.replace(solutions[number].strategy, **changes)
    solutions[number] = dataclasses.replace(solutions[number], strategy=strategy)
    return dataclasses.replace(plan, solutions=tuple(solutions))


def test_a_larger_strategy_gets_larger_noise(plan):
    """A planned matrix that claims unit sensitivity and has another is not believed."""
    matrix = plan.solutions[0].strategy.matrix
    for factor in (2.0, 1e-3, 1e6):
        assert privacy_cost(whole(with_solution(plan, 0, matrix=factor * matrix))) <= 1


def test_a_larger_integer_strategy_is_refused(plan, refuses):
    honest = whole(plan)
    check_budget(honest, DISTRIBUTIONS["rounded"])
    strategies = list(honest.strategies)
    ((axes, matrix),) = strategies[0].factors
    strategies[0] = dataclasses.replace(strategies[0], factors=((axes, Matrix(2 * matrix.entries)),))
    with refuses(PrivacyError, ValueError, "more than"):
        check_budget(dataclasses.replace(honest, strategies=tuple(strategies)), DISTRIBUTIONS["rounded"])


@pytest.mark.parametrize("entry", [math.nan, math.inf, 1e308])
def test_a_strategy_that_cannot_be_rounded_is_refused(plan, entry, refuses, opened):
    matrix = plan.solutions[0].strategy.matrix.copy()
    matrix[0, 0] = entry
    refused_untouched(with_solution(plan, 0, matrix=matrix), refuses, PlanError)
    assert not opened


def test_a_strategy_on_the_wrong_attributes_is_refused(refuses, opened):
    schema = qs.Schema.of(a=3, b=4)
    plan = qs.plan(qs.all_kway(schema, 1, "prefix"), qs.PrivacyCost(1.0), **UNIFORM)
    swapped = [dataclasses.replace(m, attributes=tuple(1 - a for a in m.attributes)) for m in plan.measured]
    planted = dataclasses.replace(plan, measured=tuple(swapped))
    refused_untouched(planted, refuses, PlanError, "fit")
    overlapping = dataclasses.replace(
        plan, measured=(dataclasses.replace(plan.measured[1], blocks=(((0,), 0), ((0,), 0))),)
    )
    refused_untouched(overlapping, refuses, PlanError, "fit")
    assert not opened


def test_an_edited_plan_file_is_refused(plan, tmp_path, refuses, opened):
    path = tmp_path / "x.plan"
    data = plan_to_data(plan)
    data["variances"] = data["variances"] * 0.9
    write_archive(path, "plan", data)  # whole in every other respect, checksum and all
    refused_untouched(qs.Plan.load(path), refuses, PrivacyError, "more than")
    data = plan_to_data(plan)
    data["pattern_of"] = data["pattern_of"][::-1].copy()
    write_archive(path, "plan", data)
    with refuses(FileError, ValueError, "cover"):
        qs.Plan.load(path)
    data = plan_to_data(plan)
    data["budget"] = {**data["budget"], "records_per_person": -1}
    write_archive(path, "plan", data)
    with refuses(FileError, ValueError):
        qs.Plan.load(path)
    assert not opened


def test_replaced_records_cannot_be_dropped(refuses, opened):
    """Replacing a record by one outside the domain changes how many are counted, which would be published."""
    plan = planned_prefixes(qs.PrivacyCost(1.0, neighbours="replace_one"))
    refused_untouched(plan, refuses, PrivacyError, "cannot be dropped", "replace_one", unknown="drop")
    assert not opened


def test_attributes_of_equal_size_are_measured_by_their_own_strategies():
    schema = qs.Schema.of(a=4, b=4)
    first, last = [[1, 0, 0, 0]], [[0, 0, 1, 1]]
    workload = qs.queries(schema, a=first) + qs.queries(schema, b=last)
    plan = whole(qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM))
    for attribute, row in enumerate((first, last)):
        (measured,) = [m for m in plan.measured if m.attributes == (attribute,)]
        ((_, number),) = measured.blocks
        ((_, matrix),) = plan.strategies[number].factors
        centred = np.array(row) - np.mean(row)
        assert np.linalg.matrix_rank(np.concatenate([matrix.entries, centred])) == 1
    table = np.zeros((4, 4), dtype=np.int64)
    table[0, 3] = 1
    assert squared_change(released(plan, table), released(plan, 0 * table)) <= privacy_cost(plan) <= 1


# --- budgets and noises ----------------------------------------------------------------------------

BUDGETS = [
    kind(*amounts, neighbours=neighbours, records_per_person=r)
    for kind, *amounts in [
        (qs.PrivacyCost, 0.37),
        (qs.zCDP, 0.05),
        (qs.GaussianDP, 0.8),
        (qs.ApproxDP, 1.0, 1e-6),
        (qs.ApproxDP, 0.1, 1e-12),
    ]
    for neighbours in ("add_remove", "replace_one")
    for r in (1, 3)
]


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["rounded", "discrete", "opendp", "gaussian"])
@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_every_noise_spends_at_most_its_budget_and_little_less(budget, noise, refuses):
    plan = planned_prefixes(budget)
    if isinstance(budget, qs.GaussianDP) and noise in ("discrete", "opendp"):
        refused_untouched(plan, refuses, BudgetError, "zCDP", noise=noise)
        return
    exact = whole(plan, noise)
    check_budget(exact, DISTRIBUTIONS[noise])
    spent, allowed = privacy_cost(exact), Fraction(DISTRIBUTIONS[noise].allowed_cost(budget))
    assert allowed * (1 - Fraction(1, 10**5)) < spent <= allowed
    discrete = noise in ("discrete", "opendp")
    if isinstance(budget, qs.ApproxDP):
        given = (
            zcdp_delta(float(spent) / 2, budget.epsilon) if discrete else delta(float(spent), budget.epsilon)
        )
        assert given <= budget.delta
        assert allowed == Fraction(2 * budget.rho_for_discrete if discrete else budget.privacy_cost)
    elif isinstance(budget, qs.zCDP):
        assert spent <= 2 * Fraction(budget.rho)
    elif isinstance(budget, qs.GaussianDP):
        assert spent <= Fraction(budget.mu) ** 2
    else:
        assert spent <= Fraction(budget.cost)


def test_discrete_noise_is_larger_where_zcdp_costs_more():
    plan = planned_prefixes(qs.ApproxDP(1.0, 1e-6))
    rounded, discrete = whole(plan, "rounded"), whole(plan, "discrete")
    for one, two in zip(rounded.measured, discrete.measured, strict=True):
        assert two.variance > 1.05 * one.variance
    check_budget(discrete, DISTRIBUTIONS["rounded"])  # more noise than needed is no harm
    with pytest.raises(PrivacyError):
        check_budget(rounded, DISTRIBUTIONS["discrete"])


def test_a_release_spends_what_was_checked():
    plan = planned_prefixes(qs.ApproxDP(1.0, 1e-6))
    table = frame(SMALL, BASE)
    for noise in ("rounded", "discrete"):
        release = qs.measure(plan, table, noise=noise)
        assert privacy_cost(release.plan) <= Fraction(DISTRIBUTIONS[noise].allowed_cost(plan.budget))
        assert release.noise.is_private
