"""The privacy cost, against its definition: every pair of neighbouring tables, in exact fractions.

What is compared is what measuring really hands out, not what the accountant believes: `released` runs
the measuring code itself on both tables.
"""

import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.privacy import accounting, pairs
from querysmasher.privacy.accounting import privacy_cost
from tests.planning.drawn import SEEDS, drawn
from tests.privacy.brute_force import changes, largest, weighted_grams
from tests.privacy.small import BASE, SMALL, WORKLOADS
from tests.profiles import fewer
from tests.release.tables import CLASSES, random_counts, released, squared_change, units, whole


def integers(name, budget=None, max_records=10**6):
    workload, options = WORKLOADS[name]
    return whole(qs.plan(workload, budget or qs.PrivacyCost(1.0), **options), max_records=max_records)


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


def test_the_cost_of_replaced_records_is_attained():
    """With two values the columns are b and -b, and the change is 2b: four times the square."""
    schema = qs.Schema.of(a=2)
    plan = whole(qs.plan(qs.marginals(schema, 1), qs.PrivacyCost(1.0, neighbours="replace_one")))
    one, two = (released(plan, table) for table in ([5, 0], [4, 1]))
    assert (
        squared_change(one, two) <= privacy_cost(plan) <= squared_change(one, two) * (1 + Fraction(1, 2**26))
    )


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:25])
def test_random_plans_cost_what_the_worst_pair_of_cells_costs(seed, monkeypatch):
    """Exactly where cells are few; where they are treated as many, no less."""
    workload, _ = drawn(seed)
    few = math.prod(workload.schema.sizes) <= 12
    budget = qs.PrivacyCost(1.0, neighbours="replace_one", records_per_person=1 + seed % 2 if few else 1)
    try:
        plan = whole(qs.plan(workload, budget))
    except PlanError as error:
        assert "nothing to measure" in str(error)  # noqa: PT017 - only if all follows from the public total
        return
    grams, scale = weighted_grams(plan)
    exact = Fraction(largest(sum(grams), changes(len(grams[0]), budget)), scale)
    assert exact <= privacy_cost(plan) <= min(1, exact * (1 + Fraction(1, 2**24)))
    monkeypatch.setattr(pairs, "WRITTEN_OUT", -1)
    assert exact <= privacy_cost(plan)
