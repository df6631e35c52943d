"""Bounds where a record is replaced: for pairs of cells drawn in the best way found."""

import itertools
import math

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.planning.limits import limited
from tests.reference import group_rows, marginal_map, pair_bounds, query_rows, split_map, subsets

REPLACE = qs.PrivacyCost(1.0, neighbours="replace_one")


def split_plan(workload, **options):
    """A plan that splits all queries."""
    with limited(light_work=0):
        plan = qs.plan(workload, REPLACE, **options)
    assert not plan.whole
    return plan


def ways(schema, sizes, kinds):
    """Products of one family per attribute, on all sets of so many attributes."""
    sets = [names for k in sizes for names in itertools.combinations(schema.names, k)]
    parts = [qs.queries(schema, {name: kinds[schema.names.index(name)] for name in names}) for names in sets]
    return sum(parts[1:], parts[0])


def least_of_pairs(plan, split=None, whole=()):
    """Bounds of the least root loss around the plan's centres, by all pairs of cells."""
    schema = plan.workload.schema
    parts = [np.concatenate([np.sqrt(g.weight) * group_rows(g, schema)[0] for g in whole])] if whole else []
    queries, weights = query_rows(plan.workload if split is None else split)
    queries = queries * np.sqrt(weights)[:, None]
    for kept in subsets(range(len(schema))):
        part = queries @ split_map(schema, plan.centres, kept)
        part = part[np.linalg.norm(part, axis=1) > 1e-9 * np.linalg.norm(queries, axis=1)]
        parts += [part @ marginal_map(schema, kept)] if kept and len(part) else []
    return pair_bounds(parts, close=1e-3)


@pytest.mark.parametrize(
    ("sizes", "k", "kind", "gap"),
    [
        ((2,) * 6, [1, 2], "identity", 1e-3),
        ((2,) * 10, [1, 2, 3], "identity", 1e-3),
        ((3, 4, 5, 2), [1, 3], "identity", 1e-3),
        ((10,) * 30, [1, 2], "identity", 1e-3),
        ((7, 6, 8), [1, 2], "circular", 0.03),
    ],
)
def test_plans_of_alike_values_are_certified(sizes, k, kind, gap):
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    assert split_plan(ways(schema, k, [kind] * len(sizes))).gap <= gap


@pytest.mark.parametrize(
    ("sizes", "k", "kinds", "centering", "loose"),
    [
        ((5, 4, 3), [1, 2], ["prefix", "prefix", "identity"], "optimized", 0.02),
        ((6, 2, 2), [2, 3], ["range", "identity", "identity"], "optimized", 0.02),
        ((5, 3), [1, 2], ["prefix", "prefix"], "uniform", 0.02),
        ((4, 3, 2), [1, 2], ["identity", "prefix", "identity"], "uniform", 0.02),
    ],
)
def test_bounds_are_below_the_best_of_all_pairs_and_near_it(sizes, k, kinds, centering, loose):
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    plan = split_plan(ways(schema, k, kinds), centering=centering)
    low, high = least_of_pairs(plan)
    bound = math.sqrt(plan.certificate.bound)
    assert low / (1 + loose) <= bound <= high * (1 + 1e-9)


def test_bounds_hold_beside_queries_that_are_whole():
    schema = qs.Schema.of({f"a{i}": 3 for i in range(4)})
    rows = np.random.default_rng(1).integers(0, 2, (3, 81)).tolist()
    split, few = ways(schema, [1], ["identity"] * 4), qs.linear(schema, schema.names, rows)
    with limited(whole_work=0):
        plan = qs.plan(split + few, REPLACE)
    assert plan.whole == (4,)
    low, high = least_of_pairs(plan, split, few.groups)
    assert low / 1.35 <= math.sqrt(plan.certificate.bound) <= high * (1 + 1e-9)


def test_bounds_hold_for_queries_that_tie_attributes():
    schema = qs.Schema.of(a=4, b=3, c=3)
    tied = qs.affine(schema, "a", "b") + qs.queries(schema, a="identity", c="identity")
    plan = split_plan(tied + qs.queries(schema, b="prefix", c="prefix"), centering="uniform")
    low, high = least_of_pairs(plan)
    assert low / 1.03 <= math.sqrt(plan.certificate.bound) <= high * (1 + 1e-9)
