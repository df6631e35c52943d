"""Few queries beside tables: measured whole only where splitting them is not much better."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.limits import limited
from tests.builders import COST, plan_split
from tests.profiles import fewer

LARGE = {"whole_work": 0}
"""Limits under which small workloads are planned as large ones are."""


def comparisons(seed):
    """Tables, and comparisons or conjunctions on most pairs of a few attributes, of any weight."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, rng.integers(3, 5)).tolist()
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate(sizes)})
    tables = qs.all_kway(schema, [1], rng.choice(["prefix", "identity", "range"]))

    def below(schema, a, b):
        return qs.where(schema, f"{a} <= {rng.integers(sizes[int(a[1:])])} and {b} >= 1")

    ask = rng.choice([qs.affine, qs.abs_difference, below])
    names = [(a, b) for a in schema.names for b in schema.names if a < b]
    chosen = rng.permutation(names)[: max(2, len(names) - 1)].tolist()
    return tables + float(10 ** rng.uniform(-1, 1)) * sum(ask(schema, a, b) for a, b in chosen)


def plan_large(workload, budget, **changes):
    with limited(**LARGE, **changes):
        return qs.plan(workload, budget)


@pytest.mark.parametrize("seed", [38, 34, 29])
def test_queries_that_split_well_are_split(seed):
    workload, budget = comparisons(seed), qs.zCDP(0.5, neighbours="replace_one")
    plan = plan_large(workload, budget)
    assert not plan.whole
    whole = plan_large(workload, budget, threaded_cells=-1)
    assert len(whole.whole) == sum(len(group.attributes) == 2 for group in workload)
    assert whole.weighted_loss > 1.3 * plan.weighted_loss


@pytest.mark.slow
@fewer(6)
@given(st.integers(0, 10_000), st.sampled_from(["add_remove", "replace_one"]))
def test_queries_are_whole_only_where_splitting_is_not_much_better(seed, neighbours):
    workload, budget = comparisons(seed), qs.zCDP(0.5, neighbours=neighbours)
    plan = plan_large(workload, budget)
    assert plan.weighted_loss <= 1.2 * plan_split(workload, budget).weighted_loss


def test_the_work_of_combining_queries_with_tables_is_limited():
    schema = qs.Schema.of(a=5, b=4, c=3)
    few = sum(qs.where(schema, f"a + b + c < {i}") for i in (2, 4, 6))
    workload = qs.all_kway(schema, [1, 2]) + 100 * few
    assert len(plan_large(workload, COST).whole) == 3
    assert not plan_large(workload, COST, beside_work=100).whole
