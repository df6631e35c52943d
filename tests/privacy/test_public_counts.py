"""Exact counts: who the neighbours are, what they cost, and that nothing else of them is released."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.combinations import Combinations
from querysmasher.errors import BudgetError, PlanError, PrivacyError
from querysmasher.privacy import pairs
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.entries import Chain
from querysmasher.privacy.measurement import exact_counts
from querysmasher.privacy.pairs import Pairs, Products
from querysmasher.privacy.unit import Unit
from tests.planning.drawn import SEEDS, drawn
from tests.privacy.brute_force import changes, largest, weighted_grams
from tests.privacy.drawn_pairs import measurements
from tests.release.tables import TableCounter, random_counts, whole


def classes_of(schema, names):
    """For every cell, the number of the combination of values of some attributes."""
    shape = schema.sizes
    cells = np.unravel_index(np.arange(math.prod(shape)), shape)
    agreed = schema.positions(sorted(names))
    return (
        np.ravel_multi_index([cells[a] for a in agreed], [shape[a] for a in agreed])
        if agreed
        else 0 * cells[0]
    )


def public_marginals(schema, table, sets):
    return [table.sum(axis=tuple(a for a, n in enumerate(schema.names) if n not in names)) for names in sets]


SCHEMA = qs.Schema.of(a=2, b=3, c=2)
SETS = [(), ("a",), ("b",), ("a", "b"), ("b", "c"), ("a", "c")]


@pytest.mark.parametrize("sets", [s for k in (1, 2) for s in itertools.combinations(SETS, k)])
def test_neighbours_are_the_tables_that_agree_on_exact_counts_and_differ_in_one_record(sets):
    """All pairs of cells: a replaced record keeps the exact counts if and only if the unit says so."""
    known = Unit("replace_one", 1, sets).known(SCHEMA)
    cells = np.eye(12).reshape(12, 2, 3, 2)
    values = list(itertools.product(*map(range, SCHEMA.sizes)))
    for u, v in itertools.combinations(range(12), 2):
        before, after = (public_marginals(SCHEMA, cell, sets) for cell in (cells[u], cells[v]))
        same = all(map(np.array_equal, before, after))
        assert same == all(values[u][a] == values[v][a] for a in known.agreed)
    assert all(SCHEMA.positions(names) in known for names in sets)


def drawn_plan(seed, records):
    """A random plan with exact counts on random sets; None if there is nothing to measure."""
    workload, _ = drawn(seed)
    random = np.random.default_rng([seed, 1])
    names = random.permutation(workload.schema.names)[: max(1, len(workload.schema) - 1)]  # one is protected
    sets = [
        random.permutation(names)[: random.integers(1, len(names) + 1)].tolist() for _ in range(1 + seed % 2)
    ]
    exact = sum((qs.marginals(workload.schema, s) for s in sets[1:]), qs.marginals(workload.schema, sets[0]))
    try:
        return whole(qs.plan(workload, qs.PrivacyCost(1.0, records_per_person=records), exact=exact))
    except PlanError as error:
        assert "nothing to measure" in str(error) or "unprotected" in str(error)  # noqa: PT017
        return None


def drawn_groups(seed, records):
    """A random plan with exact counts of random groups of values, and the class of every cell, or None."""
    workload, _ = drawn(seed)
    schema, random = workload.schema, np.random.default_rng([seed, 4])
    name = max(schema, key=lambda a: a.size).name
    size, others = schema[name].size, [n for n in schema.names if n != name]
    by = random.permutation(others)[: random.integers(0, 2)].tolist()
    of = random.integers(0, max(2, size // 2), size)
    level = qs.hierarchy(schema, name, part=[f"g{g}" for g in of], leaves=False)
    apart = [qs.marginals(schema, by)] if by and seed % 3 == 0 else []
    exact = sum(apart, qs.queries(schema, {name: level} | dict.fromkeys([] if apart else by, "identity")))
    classes = classes_of(schema, by) * size + of[classes_of(schema, [name])]
    try:
        plan = qs.plan(workload, qs.PrivacyCost(1.0, records_per_person=records), exact=exact)
        return whole(plan), np.unique(classes, return_inverse=True)[1]
    except PlanError as error:
        assert "nothing to measure" in str(error) or "unprotected" in str(error)  # noqa: PT017
        return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "grouped"), [*((s, False) for s in SEEDS[:60]), *((s, True) for s in SEEDS[:16])]
)
def test_random_plans_cost_what_the_worst_pair_of_neighbours_costs(seed, grouped, monkeypatch):
    """Every pair of cells that agree: exactly the cost where cells are few; treated as many, no less."""
    small = math.prod(drawn(seed)[0].schema.sizes) <= 12
    plan = (drawn_groups if grouped else drawn_plan)(seed, 1 + seed % 2 if small else 1)
    if plan is None:
        return
    if grouped:
        plan, classes = plan
    else:
        classes = classes_of(plan.schema, {n for names in plan.budget.exact for n in names})
    grams, scale = weighted_grams(plan)
    exact = Fraction(largest(sum(grams), changes(len(classes), plan.budget, classes)), scale)
    assert exact <= privacy_cost(plan) <= min(1, exact * (1 + Fraction(1, 2**24)))
    monkeypatch.setattr(pairs, "WRITTEN_OUT", -1)
    assert exact <= privacy_cost(plan)


def test_some_random_plans_measure_something():
    assert sum(drawn_plan(seed, 1) is not None for seed in range(12)) >= 5


@pytest.mark.parametrize("many", [False, True])
@given(case=measurements(even=False, joint=True), data=st.data())
def test_the_maximum_over_pairs_that_agree(many, case, data):
    sizes, measured, weights = case
    agreed = data.draw(st.sets(st.integers(0, len(sizes) - 1)))
    groups = {
        a: np.array(data.draw(st.lists(st.integers(0, 2), min_size=sizes[a], max_size=sizes[a])))
        for a in data.draw(st.sets(st.integers(0, len(sizes) - 1)).map(lambda some: some - agreed))
    }
    cells = np.unravel_index(np.arange(math.prod(sizes)), sizes)
    classes = sum((cells[a] * 10**a for a in agreed), 0 * cells[0])
    classes = sum((each[cells[a]] * 10**a for a, each in groups.items()), classes)
    total = np.zeros((len(classes),) * 2)
    for parts, weight in zip(measured, weights, strict=True):
        product = np.ones_like(total)
        for on, products in parts:
            index = np.ravel_multi_index([cells[a] for a in on], [sizes[a] for a in on])
            product *= products.gram[np.ix_(index, index)]
        total += weight * product
    squares = np.diagonal(total)
    distances = squares[:, None] + squares[None, :] - 2 * total
    exact = float(distances[classes[:, None] == classes].max())
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(pairs, "WRITTEN_OUT", -1)
        value, changed = Pairs(sizes, measured, None, agreed, groups).largest(weights)
    assert value >= exact * (1 - 1e-12)
    if not many:
        assert value <= exact + 1e-7 * weights.sum()
        assert weights @ changed == pytest.approx(exact, abs=1e-9 * weights.sum())


def test_a_strategy_that_ties_a_public_attribute_is_bounded_by_its_worst_value():
    """Two values of a public attribute: the columns of the second are closer together."""
    matrix = np.array([[2.0, -2.0, 1.0, -1.0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "WRITTEN_OUT", -1)
        joint = Pairs([2, 2], [(((0, 1), Products.of(matrix)),)], None, {0})
        assert joint.largest(np.ones(1))[0] == pytest.approx(4)  # (2 + 2)² / 2²
        other = Pairs([2, 2], [(((0, 1), Products.of(matrix)),)], None, {1})
        assert other.largest(np.ones(1))[0] == pytest.approx(1 / 4)


def test_exact_counts_are_those_of_the_table_and_the_same_for_neighbours():
    unit = Unit("replace_one", 1, (("b", "a"), ("c",), ("a",)))
    assert unit.exact == (("a", "b"), ("c",))
    table = random_counts(SCHEMA, 1, 50)
    found = exact_counts(SCHEMA, unit, TableCounter(SCHEMA, table), 100)
    for counts, expected in zip(found, public_marginals(SCHEMA, table, unit.exact), strict=True):
        np.testing.assert_array_equal(counts, expected)
    unit = Unit("replace_one", 1, (("a", "b"),))
    classes = classes_of(SCHEMA, ["a", "b"])
    full = np.flatnonzero(table.ravel())[0]
    for v in np.flatnonzero(classes == classes[full]):
        other = table.copy().ravel()
        other[full] -= 1
        other[v] += 1
        (changed,) = exact_counts(SCHEMA, unit, TableCounter(SCHEMA, other.reshape(table.shape)), 100)
        np.testing.assert_array_equal(changed, found[0])


def test_a_table_above_the_cap_publishes_nothing():
    unit = Unit("replace_one", 1, (("a",),))
    with pytest.raises(qs.DataError, match="more records than max_records = 10"):
        exact_counts(SCHEMA, unit, TableCounter(SCHEMA, random_counts(SCHEMA, 1, 50)), 10)


def test_a_unit_with_exact_counts_says_so():
    said = qs.zCDP(0.5, neighbours="replace_one", exact=(("sex", "race"), ("state",))).describe()
    assert (
        "for any two tables that differ by replacing one record by one with the same race, sex and state"
        in said
    )
    assert "and so have the same exact counts by race × sex and by state. The unit" in said
    assert "What a record says about race, sex and state is not protected." in said
    several = qs.zCDP(0.5, neighbours="replace_one", records_per_person=3, exact=(("state",),)).describe()
    assert (
        "replacing all records of one person, who has at most 3, each by one with the same state, and"
        in several
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exact": (("a",),)}, "exact: expected neighbours='replace_one'"),
        ({"exact": ("a",), "neighbours": "replace_one"}, "exact: expected tuples of names of attributes"),
        ({"exact": 3, "neighbours": "replace_one"}, "exact: expected tuples of names of attributes"),
    ],
)
def test_a_unit_refuses_invalid_exact_counts(options, message):
    with pytest.raises(BudgetError, match=message):
        qs.zCDP(0.5, **options)


def test_budgets_with_exact_counts_are_written_and_read():
    budget = qs.zCDP(0.5, neighbours="replace_one", exact=[["b"], ["c", "a"], ["a"]])
    assert budget.exact == (("a", "c"), ("b",))
    assert qs.zCDP.from_json(budget.to_json()) == budget
    assert "exact" not in qs.zCDP(0.5).to_json()


GROUPS = {"attribute": "b", "name": "part of b", "labels": ["x", "y"], "of": [0, 1, 0]}


def test_groups_of_values_are_written_and_read_everywhere(tmp_path):
    import pandas as pd

    budget = qs.zCDP(0.5, neighbours="replace_one", exact=[["a", GROUPS]])
    assert qs.zCDP.from_json(budget.to_json()) == budget
    assert budget.unit.known(SCHEMA).groups[1].tolist() == [0, 1, 0]
    ledger = qs.Ledger(tmp_path / "l", limit=qs.zCDP(1, neighbours="replace_one"))
    plan = qs.plan(qs.marginals(SCHEMA, [1, 2]), budget)
    qs.measure(plan, pd.DataFrame({"a": [0, 1], "b": [1, 2], "c": [0, 0]}), ledger=ledger)
    assert qs.Ledger(tmp_path / "l").verify().exact == budget.exact


@pytest.mark.parametrize(
    "change", [{"of": [0, 0, 0]}, {"of": [0, 1, 2]}, {"labels": ["x", 3]}, {"of": [0, 1]}, {"more": 1}]
)
def test_forged_groups_are_refused(change):
    with pytest.raises(BudgetError, match="exact: expected"):
        qs.zCDP(0.5, neighbours="replace_one", exact=[[GROUPS | change]]).unit.known(SCHEMA)


def test_exact_counts_of_groups_are_the_same_for_neighbours_only():
    """Every pair of cells: the counts change if and only if the record's group or its other values do."""
    unit = Unit("replace_one", 1, (("a", GROUPS),))
    values = list(itertools.product(*map(range, SCHEMA.sizes)))
    table = random_counts(SCHEMA, 1, 50) + 1
    (before,) = exact_counts(SCHEMA, unit, TableCounter(SCHEMA, table), 100)
    np.testing.assert_array_equal(before[:, 0], table[:, [0, 2]].sum(axis=(1, 2)))
    for u, v in itertools.permutations(values, 2):
        other = table.copy()
        other[u] -= 1
        other[v] += 1
        (after,) = exact_counts(SCHEMA, unit, TableCounter(SCHEMA, other), 100)
        agree = u[0] == v[0] and GROUPS["of"][u[1]] == GROUPS["of"][v[1]]
        assert np.array_equal(before, after) == agree


def test_exact_counts_by_combinations_are_the_same_for_neighbours_only():
    """Every pair of possible cells: counts on b × c change if and only if the record's b or c does."""
    both = Combinations("a × b", SCHEMA.attributes[:2], cells=(0, 2, 3, 5))
    joint, unit = qs.Schema([both, SCHEMA["c"]]), Unit("replace_one", 1, (("b", "c"), ("c",)))
    table = random_counts(joint, 1, 50) + 1
    (before,) = exact_counts(joint, unit, TableCounter(joint, table), 100)
    assert before.tolist() == [(table[0] + table[2]).tolist(), [0, 0], (table[1] + table[3]).tolist()]
    for u, v in itertools.permutations(itertools.product(range(4), range(2)), 2):
        other = table.copy()
        other[u] -= 1
        other[v] += 1
        (after,) = exact_counts(joint, unit, TableCounter(joint, other), 100)
        agree = (both.cells[u[0]] % 3, u[1]) == (both.cells[v[0]] % 3, v[1])
        assert np.array_equal(before, after) == agree
        known = unit.known(joint)
        assert agree == (known.groups[0][u[0]] == known.groups[0][v[0]] and u[1] == v[1])


def test_a_ledger_adds_up_for_tables_that_agree_on_all_exact_counts(tmp_path):
    schema = qs.Schema.of(a=2, b=3)
    workload = qs.marginals(schema, [1, 2])
    path = tmp_path / "l"
    limit = qs.zCDP(1, neighbours="replace_one")
    ledger = qs.Ledger(path, limit=limit)
    data = {"a": [0, 1, 1], "b": [0, 1, 2]}
    import pandas as pd

    for exact in (None, qs.marginals(schema, ["a"]), qs.marginals(schema, ["b"])):
        qs.measure(
            qs.plan(workload, qs.zCDP(0.3, neighbours="replace_one"), exact=exact),
            pd.DataFrame(data),
            ledger=ledger,
        )
    chain = qs.Ledger(path).verify()
    assert [entry.unit.exact for entry in chain.entries] == [(), (("a",),), (("b",),)]
    assert chain.exact == (("a",), ("b",))
    assert isinstance(chain, Chain)
    with pytest.raises(PrivacyError, match="leaves"):
        qs.measure(
            qs.plan(workload, qs.zCDP(0.3, neighbours="replace_one")), pd.DataFrame(data), ledger=ledger
        )
    other = qs.Ledger(tmp_path / "m", limit=qs.zCDP(1))
    plan = qs.plan(workload, qs.zCDP(0.3), exact=qs.marginals(schema, ["a"]))
    with pytest.raises(PrivacyError, match="their costs cannot be added"):
        qs.measure(plan, pd.DataFrame(data), ledger=other)
    with pytest.raises(BudgetError, match="limit: expected a budget without exact counts"):
        qs.Ledger(tmp_path / "n", limit=qs.zCDP(1, neighbours="replace_one", exact=(("a",),)))
