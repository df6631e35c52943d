"""Bounds where a record is replaced: for pairs of cells drawn in the best way found."""

import itertools
import math

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.planning.limits import limited
from tests.reference import marginal_map, pair_bounds, query_rows, split_map, subsets

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


def least_of_pairs(plan):
    """Bounds of the least root loss around the plan's centres, by all pairs of cells."""
    schema = plan.workload.schema
    queries, weights = query_rows(plan.workload)
    queries, parts = queries * np.sqrt(weights)[:, None], []
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
        ((5, 4, 3), [1, 2], ["prefix", "prefix", "identity"], "optimized", 0.05),
        ((6, 2, 2), [2, 3], ["range", "identity", "identity"], "optimized", 0.05),
        ((5, 3), [1, 2], ["prefix", "prefix"], "uniform", 0.08),
        ((4, 3, 2), [1, 2], ["identity", "prefix", "identity"], "uniform", 0.05),
    ],
)
def test_bounds_are_below_the_best_of_all_pairs_and_near_it(sizes, k, kinds, centering, loose):
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    plan = split_plan(ways(schema, k, kinds), centering=centering)
    low, high = least_of_pairs(plan)
    bound = math.sqrt(plan.certificate.bound)
    assert low / (1 + loose) <= bound <= high * (1 + 1e-9)
