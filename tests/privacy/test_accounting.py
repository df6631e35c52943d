"""The privacy cost of a plan: the sum over its sets, refused above its budget before the table is touched."""

import dataclasses
import importlib
import math
from fractions import Fraction

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import BudgetError, FileError, PlanError, PrivacyError
from querysmasher.files import write_archive
from querysmasher.planning.plan_file import plan_to_data
from querysmasher.privacy import accounting
from querysmasher.privacy.accounting import check_budget, privacy_cost
from querysmasher.privacy.budget import delta, zcdp_delta
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from tests.builders import UNIFORM
from tests.privacy.small import BASE, SMALL, WORKLOADS
from tests.release.tables import Untouchable, frame, released, squared_change, whole


def planned_prefixes(budget):
    workload, options = WORKLOADS["prefixes"]
    return qs.plan(workload, budget, **options)


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
    refused_untouched(planted, refuses, PrivacyError, "more than the 1 that the budget allows")
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
    refused_untouched(planted, refuses, PrivacyError, "fit")
    overlapping = dataclasses.replace(
        plan, measured=(dataclasses.replace(plan.measured[1], blocks=(((0,), 0), ((0,), 0))),)
    )
    refused_untouched(overlapping, refuses, PrivacyError, "cover")
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
