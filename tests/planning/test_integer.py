"""Plans in integers: exactly in the residual space, spanning all planned queries, at little cost."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.strategies.dense import round_rows
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.release import Release
from tests.builders import BEST, COST, UNIFORM, plan_split
from tests.planning.test_lattice import exact_part, exact_rank
from tests.profiles import fewer
from tests.reference import group_rows
from tests.release.tables import CLASSES, whole

# --- exactly in the residual space, and spanning what was planned ----------------------------------


def whole_rows(plan, measured):
    """The rows measured on a set, in Python's integers, over the set's marginal."""
    shape = [plan.schema.sizes[a] for a in measured.attributes]
    tensor, order = np.array(1, dtype=object), []
    for axes, number in measured.blocks:
        for own, factor in plan.strategies[number].factors:
            on = [axes[a] for a in own]
            rows = np.array(factor.entries.tolist(), dtype=object).reshape(
                factor.rows, *(shape[a] for a in on)
            )
            tensor = np.multiply.outer(tensor, rows)
            order += [-1, *on]
    lead = [i for i, a in enumerate(order) if a < 0]
    tensor = tensor.transpose(lead + [order.index(a) for a in range(len(shape))])
    return tensor.reshape(-1, *shape)


def check_space(planned, integers):
    """Every measured row lies in its residual space, and every planned query in the measured one: exactly."""
    schema = planned.workload.schema
    centres = [c.exact for c in planned.centres]
    rows_of = {}
    for m in integers.measured:
        rows = rows_of[m.attributes] = whole_rows(integers, m)
        for axis, attribute in enumerate(m.attributes, start=1):
            k = np.array(centres[attribute].tolist(), dtype=object)
            assert not np.any(np.tensordot(rows, k, axes=(axis, 0)))
    queries = np.unique(np.concatenate([group_rows(g, schema)[0] for g in planned.workload]), axis=0)
    for bits in range(2 ** len(schema)):
        kept = tuple(a for a in range(len(schema)) if bits >> a & 1)
        left = [list(row) for row in {tuple(r) for r in exact_part(queries, schema.sizes, centres, kept)}]
        if kept not in rows_of:
            assert not any(map(any, left)), f"a query has a part on {kept}, which is not measured"
            continue
        rows = rows_of[kept].reshape(len(rows_of[kept]), -1).tolist()
        rank = exact_rank(rows)
        assert rank == len(rows), "the rows are dependent"
        assert exact_rank([*rows, *left]) == rank, f"a query is not in the span of what is measured on {kept}"


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_rows_are_exactly_where_they_should_be(name):
    workload, options = CLASSES[name]
    planned = plan_split(workload, **options)
    check_space(planned, whole(planned))
    coarse = whole(planned, max_records=2**33)
    if any(a.bits != b.bits for a, b in zip(coarse.strategies, whole(planned).strategies, strict=False)):
        check_space(planned, coarse)


DEFICIENT = qs.Schema.of(a=5, b=3, c=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [
        [[1, 0, 0, 0, 0]],
        [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0]],
        [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]],
        [[1, 1, 1, 1, 1]],
        [[0.3, math.pi, -1, 0, 2]],
        [[0.3, math.pi, -1, 0, 2], [1, 0, 0, 0, 0]],
        [[1, 2, 3, 4, 5], [1, 4, 9, 16, 25], [1, 1, 1, 1, 1]],
    ],
    ids=str,
)
@pytest.mark.parametrize("solver", ["optimal", "structured"])
@pytest.mark.parametrize("centering", ["uniform", "optimized"])
def test_few_rows_on_an_axis(rows, solver, centering):
    """Rank-deficient axes: rounding must not leave the few directions that are measured."""
    workload = qs.queries(DEFICIENT, a=rows, b="prefix") + qs.queries(DEFICIENT, a=rows[:1], b="identity")
    planned = plan_split(workload, solver=solver, centering=centering)
    check_space(planned, whole(planned))


@fewer(15)
@given(st.integers(0, 10**6), st.sampled_from(["optimal", "structured"]))
def test_random_rows_on_two_attributes(seed, solver):
    generator = np.random.default_rng(seed)
    schema = qs.Schema.of(a=4, b=3)
    count = int(generator.integers(1, 4))
    matrix = generator.integers(-2, 3, (count, 12)).astype(float)
    matrix[0, 0] += not matrix[0].any()
    if generator.random() < 0.3:
        matrix = matrix * generator.normal(size=(count, 1))  # rows without a common denominator
    pieces = [generator.integers(0, 2, (2, n)) + np.eye(2, n, dtype=int) for n in (4, 3)]
    workload = qs.linear(schema, ("a", "b"), matrix) + qs.queries(schema, a=pieces[0], b=pieces[1])
    planned = qs.plan(workload, COST, solver=solver, **UNIFORM)
    check_space(planned, whole(planned))


centres = st.lists(st.integers(-2, 7), min_size=2, max_size=7).filter(
    lambda k: sum(k) != 0 and math.gcd(*k) == 1
)


@example([1, 0], 8, 102009)
@given(centres, st.integers(4, 14), st.integers(0, 10**6))
def test_rows_rounded_around_any_centre(k, bits, seed):
    """Integers with Σ k_j b_j = 0, and close: no entry moves by more than a few units."""
    k = np.array(k)
    rows = np.random.default_rng(seed).normal(size=(3, len(k)))
    rows -= np.outer(rows @ k / (k @ k), k)
    if np.abs(rows).max() < 1e-6:
        return
    found = round_rows(rows, [k], bits)
    assert found.dtype == np.int64
    assert not (found @ k).any()
    largest = int(np.abs(found).max())
    if largest:
        scale = (2**bits - 1) / np.abs(rows).max()
        nearest = float((found * rows).sum() * scale / (found**2).sum())  # rows may be enlarged by less
        divisors = [
            d for d in (*range(1, 40), nearest) if np.abs(found * d - rows * scale).max() <= 2 * len(k) * 7
        ]
        assert divisors, "no multiple of the rounded rows is near"


def repaired(row):
    """The nearest integers, then the sum repaired unit by unit, each where it costs least."""
    found = np.round(row)
    while total := found.sum():
        found[np.argmin(np.sign(total) * (row - found))] -= np.sign(total)
    return found


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=12), st.integers(4, 9))
def test_rows_rounded_around_the_uniform_centre_move_as_little_as_they_can(steps, bits):
    row = np.array(steps) - np.mean(steps)
    if not row.any():
        return
    rows = np.stack([row, row[::-1] / 2])
    found = round_rows(rows, [np.ones(len(row), dtype=np.int64)], bits)
    expected = np.stack([repaired(r) for r in rows * ((2**bits - 1) / np.abs(row).max())])
    whole = expected / np.gcd.reduce(expected.astype(np.int64), axis=None)
    doubled = whole * 2.0 ** max(0, bits - int(np.abs(whole).max()).bit_length())
    np.testing.assert_array_equal(found, doubled)


# --- at little cost --------------------------------------------------------------------------------


def loss(planned, max_records=10**8, noise="discrete"):
    """The relative excess of the RMSE of the integer plan, with or without the rounding of noise."""
    integers = whole(planned, max_records=max_records)
    release = Release(integers, planned.workload, planned.centres, NoiseRecord(noise, "", seeded=False), {})
    total = sum(float(release.estimator.total(g)) for g in planned.workload)
    return math.sqrt(total / len(planned.workload)) / planned.rmse - 1


SCHEMA = qs.Schema.of(a=12, b=8, c=5)
JOINT = qs.affine(SCHEMA, "a", "b") + qs.abs_difference(SCHEMA, "b", "c")
MIXED = qs.all_kway(SCHEMA, [1, 2, 3], "prefix") + qs.marginals(SCHEMA, [1, 2, 3])
CHEAP = {
    "marginals": (qs.marginals(SCHEMA, [1, 2, 3]), UNIFORM),
    "prefix": (qs.all_kway(SCHEMA, [1, 2, 3], "prefix"), UNIFORM),
    "prefix, best centres": (qs.all_kway(SCHEMA, [1, 2, 3], "prefix"), BEST),
    "long prefix": (qs.all_kway(qs.Schema.of(a=100), 1, "prefix"), BEST),
    "range": (qs.all_kway(SCHEMA, [1, 2, 3], "range"), UNIFORM),
    "range, best centres": (qs.all_kway(SCHEMA, [1, 2, 3], "range"), BEST),
    "circular": (qs.all_kway(SCHEMA, [1, 2, 3], "circular"), UNIFORM),
    "mixed": (MIXED + JOINT, UNIFORM),
    "mixed, best centres": (
        qs.all_kway(SCHEMA, [1, 2], "prefix") + qs.marginals(SCHEMA, 2) + qs.affine(SCHEMA, "a", "b"),
        BEST,
    ),
    "affine": (qs.affine(SCHEMA, "a", "b"), UNIFORM),
    "affine, best centres": (qs.affine(SCHEMA, "a", "b"), BEST),
    "absolute": (qs.abs_difference(SCHEMA, "a", "b"), UNIFORM),
    "joint": (JOINT, BEST),
    "structured": (MIXED, {"solver": "structured", **UNIFORM}),
    "structured joint": (JOINT, {"solver": "structured", **UNIFORM}),
    "structured joint, best centres": (JOINT, {"solver": "structured", **BEST}),
    "structured thin": (
        qs.where(SCHEMA, "a >= 3 and b < 6") + qs.where(SCHEMA, "a in [2, 3, 9] and b > 2"),
        {"solver": "structured", **UNIFORM},
    ),
    "where": (qs.where(SCHEMA, "a <= 2 and b > 1 or c == 0") + qs.where(SCHEMA, "a + b <= 4"), UNIFORM),
    "real": (qs.linear(SCHEMA, ("b", "c"), np.random.default_rng(0).normal(size=(5, 40))), UNIFORM),
}


@cache
def cheap(name, cost):
    workload, options = CHEAP[name]
    return qs.plan(workload, qs.PrivacyCost(cost), **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_whole_numbers_cost_at_most_a_fifth_of_a_percent(name):
    assert -0.001 < loss(cheap(name, 1.0)) < 0.002


@pytest.mark.parametrize("family", ["identity", "prefix", "range"])
@pytest.mark.parametrize("ways", [6, 8])
def test_many_attributes_leave_few_bits_which_cost_little(ways, family):
    schema = qs.Schema.of({f"x{i}": 3 for i in range(ways)})
    workload = qs.queries(schema, dict.fromkeys(schema.names, family))
    assert -0.001 < loss(qs.plan(workload, COST, **UNIFORM)) < 0.003


@pytest.mark.parametrize("budget", [qs.PrivacyCost(0.01), qs.zCDP(2.0, records_per_person=3)], ids=repr)
def test_the_cost_does_not_depend_on_the_budget(budget):
    assert loss(qs.plan(MIXED, budget, **UNIFORM)) < 0.002


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["rounded", "discrete"])
@pytest.mark.parametrize("cost", [1e-3, 1.0, 100.0, 1e4, 2e6])
@pytest.mark.parametrize("name", ["prefix", "affine", "where", "marginals", "structured joint"])
def test_noise_in_whole_numbers_costs_nothing_even_where_there_is_little(name, cost, noise):
    """A plan keeps its promised error for every budget, even if its noise is smaller than a unit."""
    assert -0.001 < loss(cheap(name, cost), noise=noise) < 0.002
    total = qs.plan(qs.marginals(SCHEMA, 0), qs.PrivacyCost(cost), **UNIFORM)
    assert loss(total, noise=noise) < 0.002
