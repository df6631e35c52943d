"""Budgets: neighbours, the unit apart from the amount, words, files, and bad input."""

import itertools
import json
import math
import re
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
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


@pytest.mark.parametrize(
    ("neighbours", "records"),
    [
        ("both", 1),
        (None, 1),
        (["add_remove"], 1),
        ("add_remove", 0),
        ("add_remove", True),
        ("add_remove", 1.0),
    ],
)
def test_a_unit_that_is_none_is_refused(neighbours, records, refuses):
    with refuses(BudgetError, ValueError, "expected"):
        Unit(neighbours, records)


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


@pytest.mark.parametrize("bad", [1.0, 1.5, 1e-301])
def test_bad_delta(bad):
    with pytest.raises(BudgetError, match=r"^delta: "):
        ApproxDP(1.0, bad)


def test_bad_order():
    with pytest.raises(BudgetError, match=r"^alpha: "):
        PrivacyCost(1.0).renyi(1.0)


@pytest.mark.parametrize("bad", ["", "ADD_REMOVE", "swap", None, 1, []])
def test_bad_neighbours(bad):
    with pytest.raises(BudgetError, match=r"^neighbours: expected 'add_remove' or 'replace_one', got"):
        zCDP(1.0, neighbours=bad)


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "1", None])
def test_bad_records_per_person(bad):
    with pytest.raises(BudgetError, match=r"^records_per_person: "):
        zCDP(1.0, records_per_person=bad)


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
