"""Budgets: neighbours, units, words, files, bad input; conversions exact, or on the safe side and tight."""

import itertools
import json
import math
import re
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import BudgetError
from querysmasher.privacy import budget as module
from querysmasher.privacy.budget import (
    ApproxDP,
    Budget,
    GaussianDP,
    PrivacyCost,
    delta,
    epsilon,
    zCDP,
    zcdp_delta,
    zcdp_epsilon,
)
from querysmasher.privacy.unit import Unit

EXAMPLES = [PrivacyCost(0.7), zCDP(0.3), GaussianDP(1.1), ApproxDP(1.0, 1e-6)]


# --- neighbours --------------------------------------------------------------------------------


def test_sensitivity_bounds_every_pair_of_neighbours():
    """Against brute force: every change that a person can make, on random strategies."""
    generator = np.random.default_rng(5)
    for records in (1, 2, 3):
        add = replace(zCDP(1.0), records_per_person=records)
        swap = replace(add, neighbours="replace_one")
        assert (add.unit.change(()), add.unit.change()) == (records**2,) * 2
        assert (swap.unit.change(()), swap.unit.change()) == (0, 4 * records**2)
        B = generator.integers(-4, 5, size=(3, 4))
        B[:, 1] = -B[:, 0]  # two columns that are opposite make the bound for replacing sharp
        B[:, :2] *= 5
        unit = int(np.max(np.sum(B**2, axis=0)))
        changes = [np.bincount(p, minlength=4) for p in itertools.product(range(4), repeat=records)]
        added = max(int(np.sum((B @ x) ** 2)) for x in changes)
        swapped = max(int(np.sum((B @ (x - y)) ** 2)) for x in changes for y in changes)
        assert added == add.unit.change() * unit
        assert swapped == swap.unit.change() * unit
        assert all((x - y).sum() == 0 for x in changes for y in changes)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("records", [1, 2, 7])
def test_the_unit_stands_apart_from_the_amount(neighbours, records):
    unit = Unit(neighbours, records)
    budgets = [
        kind(*amounts, neighbours=neighbours, records_per_person=records)
        for kind, *amounts in [(PrivacyCost, 2.0), (zCDP, 1.0), (GaussianDP, 1.0), (ApproxDP, 1.0, 1e-6)]
    ]
    assert {b.unit for b in budgets} == {unit}
    assert all(b.neighbours == neighbours and b.records_per_person == records for b in budgets)
    assert all(b.describe().endswith(unit.describe()) for b in budgets)
    assert unit.total_is_public == (neighbours == "replace_one")
    assert unit.change() == (4 if unit.total_is_public else 1) * records**2
    assert unit.change(()) == (0 if unit.total_is_public else records**2)


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("b", EXAMPLES, ids=repr)
@pytest.mark.parametrize("options", [{}, {"neighbours": "replace_one", "records_per_person": 3}])
def test_json_round_trip(b, options):
    b = replace(b, **options)
    again = Budget.from_json(json.loads(json.dumps(b.to_json())))
    assert again == b
    assert hash(again) == hash(b)
    assert again.privacy_cost == b.privacy_cost


def test_numbers_become_plain():
    b = zCDP(np.float32(0.5), records_per_person=np.int64(2))
    assert type(b.rho) is float
    assert type(b.records_per_person) is int
    assert PrivacyCost(1) == PrivacyCost(1.0)


def test_frozen():
    with pytest.raises(FrozenInstanceError):
        zCDP(1.0).rho = 2.0


def test_describe():
    text = zCDP(0.5).describe()
    assert "zero-concentrated differential privacy with rho = 0.5" in text
    assert "adding or removing one record" in text
    assert "unit of privacy is the record" in text
    text = ApproxDP(1.0, 1e-6, neighbours="replace_one", records_per_person=3).describe()
    assert "epsilon = 1.0 and delta = 1e-06" in text
    assert "replacing all records of one person, who has at most 3" in text
    assert "with the same, public number of records" in text
    assert "unit of privacy is the person" in text
    assert "mu = 1.1" in GaussianDP(1.1).describe()
    assert "rho = 0.35" in PrivacyCost(0.7).describe()


def test_every_class_states_its_guarantee():
    assert all("Formal guarantee" in kind.__doc__ for kind in module.KINDS.values())


BAD = [0, 0.0, -1.0, math.nan, math.inf, -math.inf, True, np.True_, "1", None, 1j, 10**400]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_bad_amounts(bad):
    for make, name in [
        (PrivacyCost, "cost"),
        (zCDP, "rho"),
        (GaussianDP, "mu"),
        (lambda v: ApproxDP(v, 1e-6), "epsilon"),
        (lambda v: ApproxDP(1.0, v), "delta"),
        (lambda v: delta(v, 1.0), "cost"),
        (lambda v: epsilon(v, 0.1), "cost"),
        (lambda v: epsilon(1.0, v), "delta"),
        (lambda v: PrivacyCost(1.0).renyi(v), "alpha"),
        (lambda v: zcdp_delta(v, 1.0), "rho"),
        (lambda v: zcdp_epsilon(v, 0.1), "rho"),
        (lambda v: zcdp_epsilon(1.0, v), "delta"),
    ]:
        with pytest.raises(BudgetError, match=f"^{name}: expected .* got "):
            make(bad)
    if bad != 0:
        with pytest.raises(BudgetError, match=r"^epsilon: expected 0 or"):
            delta(1.0, bad)


@pytest.mark.parametrize(
    ("make", "problem", "several"),
    [
        (lambda bad: ApproxDP(1.0, bad), "delta: ", [1.0, 1.5, 1e-301]),
        (lambda bad: PrivacyCost(1.0).renyi(bad), "alpha: ", [1.0]),
        (
            lambda bad: zCDP(1.0, neighbours=bad),
            "neighbours: expected 'add_remove' or 'replace_one', got",
            ["", "ADD_REMOVE", "both", None, 1, [], ["add_remove"]],
        ),
        (
            lambda bad: zCDP(1.0, records_per_person=bad),
            "records_per_person: ",
            [0, -1, 1.0, True, "1", None],
        ),
    ],
    ids=["delta", "order", "neighbours", "records"],
)
def test_bad_arguments(make, problem, several):
    for bad in several:
        with pytest.raises(BudgetError, match=f"^{problem}"):
            make(bad)


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        zCDP(1.0, "replace_one")


def test_the_base_cannot_be_built():
    with pytest.raises(BudgetError, match="Budget is abstract"):
        Budget()


@pytest.mark.parametrize("data", [{}, {"kind": "Laplace"}, {"kind": "zCDP"}, {"kind": "zCDP", "mu": 1.0}])
def test_bad_json(data):
    with pytest.raises(BudgetError, match=r"^(kind|data): "):
        Budget.from_json(data)


@given(st.floats(1e-9, 1e9), st.sampled_from(["zCDP", "GaussianDP", "PrivacyCost", "ApproxDP"]))
def test_a_guarantee_is_stated_in_few_digits_that_are_not_too_small(amount, kind):
    budget = qs.ApproxDP(amount, 1e-7 / 3) if kind == "ApproxDP" else getattr(qs, kind)(amount)
    stated = getattr(budget, budget.letter)
    text = re.search(r"(rho|mu|epsilon) = ([^ ,]+)", budget.describe())[2]
    assert stated <= float(text) <= stated * (1 + 1e-5)
    assert len(text.partition("e")[0].replace(".", "").strip("0")) <= 6
    assert "3333" not in budget.describe().replace("3.33334e-08", "")


def test_amounts_as_people_write_them_stay_as_they_are():
    for amount in (1.0, 0.1, 0.3, 2.5, 1e-3, 0.123456):
        assert f"rho = {amount}," in qs.zCDP(amount).describe()
        assert f"epsilon = {amount} and delta = 1e-09," in qs.ApproxDP(amount, 1e-9).describe()


# --- conversions ---------------------------------------------------------------------------------

EPSILONS = [1e-6, 1e-3, 0.1, 1.0, 10.0, 1e4]
DELTAS = [1e-300, 1e-100, 1e-10, 1e-6, 0.01, 0.5, 0.999, 1 - 1e-12, math.nextafter(1.0, 0.0)]

log_epsilons = st.floats(-6, 4).map(lambda e: 10.0**e)
log_deltas = st.one_of(st.floats(-300, -0.001).map(lambda d: 10.0**d), st.floats(0.9, 0.9999999))
costs = st.floats(-12, 5).map(lambda c: 10.0**c)


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(100):
        yield


def exact_delta(cost, epsilon):
    """The exact formula, to a hundred digits less cancellation."""
    mu, e = mpmath.sqrt(mpmath.mpf(cost)), mpmath.mpf(epsilon)
    tail = lambda z: mpmath.erfc(z / mpmath.sqrt(2)) / 2  # noqa: E731
    return tail(e / mu - mu / 2) - mpmath.exp(e) * tail(e / mu + mu / 2)


def exact_log_zcdp_delta(rho, epsilon, log_a):
    """The logarithm of the bound that order 1 + exp(log_a) gives."""
    a = mpmath.exp(log_a)
    alpha = 1 + a
    return a * (alpha * rho - epsilon) - mpmath.log(a) + alpha * mpmath.log(1 - 1 / alpha)


def best_log_zcdp_delta(rho, epsilon):
    """The best such bound, by golden-section search on a convex function."""
    low, high = mpmath.mpf(-60), mpmath.mpf(60)
    for _ in range(160):
        third = (high - low) / 3
        values = [exact_log_zcdp_delta(rho, epsilon, low + i * third) for i in (1, 2)]
        low, high = (low, high - third) if values[0] < values[1] else (low + third, high)
    return exact_log_zcdp_delta(rho, epsilon, low)


# --- exact rates -------------------------------------------------------------------------------


def test_the_four_currencies_agree():
    assert PrivacyCost(0.5).privacy_cost == 0.5
    assert zCDP(0.25).privacy_cost == 0.5
    assert GaussianDP(0.5).privacy_cost == 0.25
    cost = ApproxDP(1.0, 1e-6).privacy_cost
    for b in (PrivacyCost(cost), zCDP(cost / 2), GaussianDP(math.sqrt(cost))):
        assert b.delta_at(1.0) == pytest.approx(1e-6, rel=1e-9)
        assert b.epsilon_at(1e-6) == pytest.approx(1.0, rel=1e-9)
        assert b.rho == pytest.approx(cost / 2)
        assert b.mu == pytest.approx(math.sqrt(cost))
        assert b.renyi(3.0) == pytest.approx(3 * cost / 2)


@pytest.mark.parametrize("cost", [1e-4, 0.03, 1.0, 20.0])
@pytest.mark.parametrize("e", [0.01, 0.5, 3.0])
def test_delta_matches_dp_accounting(cost, e):
    d = delta(cost, e)
    log_d = dp_accounting.gaussian_mechanism._get_log_delta(1 / math.sqrt(cost), e)
    assert math.log(d) == pytest.approx(max(log_d, math.log(1e-300)), rel=1e-9, abs=1e-9)
    if 1e-12 < d < 0.999:
        sigma = 1 / math.sqrt(cost)
        assert epsilon(cost, d) == pytest.approx(dp_accounting.get_epsilon_gaussian(sigma, d), rel=1e-6)


@pytest.mark.parametrize(("e", "d"), list(itertools.product([0.05, 1.0, 8.0], [1e-12, 1e-6, 0.1])))
def test_cost_matches_dp_accounting(e, d):
    sigma = dp_accounting.get_sigma_gaussian(e, d)
    assert ApproxDP(e, d).privacy_cost == pytest.approx(1 / sigma**2, rel=1e-6)


def test_delta_matches_the_pld_accountant():
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(0.5)))
    assert delta(0.5, 1.0) == pytest.approx(accountant.get_delta(1.0), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.01, 0.5, 4.0])
def test_zcdp_matches_the_rdp_accountant(rho):
    orders = 1 + np.geomspace(1e-3, 1e5, 200_001)
    e = rho + 3 * math.sqrt(rho)
    reference, _ = rdp_privacy_accountant.compute_delta(orders, orders * rho, e)
    assert zcdp_delta(rho, e) == pytest.approx(reference, rel=1e-6)
    reference, _ = rdp_privacy_accountant.compute_epsilon(orders, orders * rho, 1e-7)
    assert zcdp_epsilon(rho, 1e-7) == pytest.approx(reference, rel=1e-6)


# --- the safe side -----------------------------------------------------------------------------


@settings(max_examples=150, derandomize=True, deadline=None)
@given(cost=costs, c=st.floats(-8, 36))
def test_delta_is_an_upper_bound_and_tight(cost, c):
    e = (c + math.sqrt(cost) / 2) * math.sqrt(cost)
    if e >= 1e-30:
        exact = exact_delta(cost, e)
        assert exact <= delta(cost, e) <= max(exact * (1 + mpmath.mpf("1e-8")), mpmath.mpf(1e-300))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(e=log_epsilons, d=log_deltas)
def test_cost_is_safe_and_tight(e, d):
    cost = ApproxDP(e, d).privacy_cost
    assert delta(cost, e) <= d
    assert exact_delta(cost, e) <= mpmath.mpf(d)
    assert exact_delta(cost * (1 + 1e-8), e) > mpmath.mpf(d) * (1 - mpmath.mpf("1e-13"))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(cost=costs, d=log_deltas)
def test_epsilon_is_safe_and_tight(cost, d):
    e = epsilon(cost, d)
    assert delta(cost, e) <= d
    assert exact_delta(cost, e) <= mpmath.mpf(d)
    if e > 1e-6:
        assert exact_delta(cost * (1 + 1e-8), e * (1 - 1e-8)) > mpmath.mpf(d) * (1 - mpmath.mpf("1e-13"))


@pytest.mark.parametrize(("e", "d"), list(itertools.product(EPSILONS, DELTAS)))
def test_extreme_budgets(e, d):
    b = ApproxDP(e, d)
    assert 0 < b.privacy_cost < math.inf
    assert delta(b.privacy_cost, e) <= d
    assert 0 < b.discrete_privacy_cost < b.privacy_cost
    assert exact_delta(b.privacy_cost, e) <= mpmath.mpf(d)


@pytest.mark.slow
@pytest.mark.parametrize(("e", "d"), list(itertools.product([1e-3, 1.0, 100.0], [1e-300, 1e-6, 0.5, 0.999])))
def test_rho_for_discrete_is_safe_and_tight(e, d):
    rho = ApproxDP(e, d).rho_for_discrete
    log_d = mpmath.log(mpmath.mpf(d))
    assert best_log_zcdp_delta(rho, e) <= log_d
    assert best_log_zcdp_delta(rho * (1 + 1e-7), e) > log_d
    assert ApproxDP(e, d).discrete_privacy_cost == 2 * rho
    assert zcdp_delta(rho, e) == pytest.approx(d, rel=1e-10)
    assert zcdp_epsilon(rho, d) == pytest.approx(e, rel=1e-10)


@pytest.mark.parametrize(("rho", "e"), list(itertools.product([1e-4, 0.1, 30.0], [0.5, 5.0, 60.0])))
def test_zcdp_delta_is_safe(rho, e):
    exact = best_log_zcdp_delta(rho, e)
    assert exact <= mpmath.log(zcdp_delta(rho, e))
    assert zcdp_delta(rho, e) <= max(mpmath.exp(exact) * (1 + mpmath.mpf("1e-9")), mpmath.mpf(1e-300))


def test_far_ends_do_not_overflow():
    for cost, e in itertools.product([1e-100, 1e-20, 1.0, 1e20, 1e100], [0.0, 1e-30, 1.0, 1e30]):
        assert 0 < delta(cost, e) <= 1
    assert delta(1e-100, 1.0) == 1e-300
    assert delta(1e100, 1.0) == 1.0
    for e, d in itertools.product([1e-30, 1e30], [1e-300, 0.5]):
        assert delta(ApproxDP(e, d).privacy_cost, e) <= d
        assert 0 < ApproxDP(e, d).rho_for_discrete < math.inf
    assert epsilon(1e-20, 0.1) == 0.0
    assert zcdp_epsilon(1e-20, 0.1) == 0.0
    assert zcdp_delta(1e-30, 1e30) == 1e-300
    assert zcdp_delta(1e30, 1e-30) == 1.0


@given(mu=st.floats(1e-20, 1e20))
@settings(derandomize=True)
def test_roots_and_squares_round_to_the_safe_side(mu):
    b = GaussianDP(mu)
    assert Fraction(b.privacy_cost) <= Fraction(mu) ** 2
    assert b.privacy_cost == pytest.approx(mu**2, rel=1e-15)
    assert Fraction(PrivacyCost(mu).mu) ** 2 >= Fraction(mu)
    assert PrivacyCost(4.0).mu == 2.0


def test_monotone():
    assert all(x > y for x, y in itertools.pairwise(delta(1.0, e) for e in np.linspace(0, 8, 50)))
    assert all(x < y for x, y in itertools.pairwise(delta(c, 1.0) for c in np.geomspace(0.01, 50, 50)))
    assert all(x > y for x, y in itertools.pairwise(epsilon(1.0, d) for d in np.geomspace(1e-9, 0.3, 50)))
    for make in (lambda v: ApproxDP(v, 1e-6), lambda v: ApproxDP(1.0, v / 100)):
        grid = [make(v) for v in np.geomspace(1e-3, 50, 30)]
        assert all(x.privacy_cost < y.privacy_cost for x, y in itertools.pairwise(grid))
        assert all(x.discrete_privacy_cost < y.discrete_privacy_cost for x, y in itertools.pairwise(grid))


# --- discrete noise ----------------------------------------------------------------------------


def test_discrete_cost():
    assert PrivacyCost(0.7).discrete_privacy_cost == 0.7
    assert zCDP(0.3).discrete_privacy_cost == 0.6
    with pytest.raises(BudgetError, match=r"no exact Gaussian-DP guarantee.*zCDP\(rho=0.5\)"):
        _ = GaussianDP(1.0).discrete_privacy_cost


def test_discrete_guarantees_are_weaker():
    b = zCDP(0.5)
    assert b.delta_at(3.0, discrete=True) > b.delta_at(3.0)
    assert b.epsilon_at(1e-6, discrete=True) > b.epsilon_at(1e-6)
    assert ApproxDP(1.0, 1e-6).delta_at(1.0, discrete=True) == pytest.approx(1e-6)
    assert ApproxDP(1.0, 1e-6).epsilon_at(1e-6, discrete=True) == pytest.approx(1.0)
