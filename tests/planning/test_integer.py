"""Plans in integers: exactly in the residual space, spanning all queries, at little cost, in few bits."""

import inspect
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning import integer
from querysmasher.planning.integer import MAX_RECORDS, integer_plan, refusal
from querysmasher.planning.limits import limited, limits
from querysmasher.planning.objectives import replan
from querysmasher.planning.strategies import DenseStrategy
from querysmasher.planning.strategies.dense import round_rows
from querysmasher.privacy.accounting import privacy_cost, squared_sensitivity
from querysmasher.privacy.noise import LARGEST_VARIANCE
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.release import Release
from querysmasher.workload.families import Prefix
from querysmasher.workload.joint import Affine
from querysmasher.workload.workload import Group
from tests.builders import BEST, COST, UNIFORM, plan_split
from tests.planning.exact import exact_part, exact_rank
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


@pytest.mark.parametrize(("size", "ways", "most"), [(10, 6, 0.0125), (7, 7, 0.02), (4, 8, 0.014)])
def test_with_few_bits_rows_are_rounded_at_the_scale_that_loses_least(size, ways, most):
    """At the scale that turns rows least, they lost 1.9 to 3.6%."""
    schema = qs.Schema.of({f"x{i}": size for i in range(ways)})
    assert -0.001 < loss(qs.plan(qs.all_kway(schema, ways, "prefix"), COST)) < most


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["rounded", "discrete"])
@pytest.mark.parametrize("cost", [1e-3, 1.0, 100.0, 1e4, 2e6])
@pytest.mark.parametrize("name", ["prefix", "affine", "where", "marginals", "structured joint"])
def test_noise_in_whole_numbers_costs_nothing_even_where_there_is_little(name, cost, noise):
    """A plan keeps its promised error for every budget, even if its noise is smaller than a unit."""
    assert -0.001 < loss(cheap(name, cost), noise=noise) < 0.002
    total = qs.plan(qs.marginals(SCHEMA, 0), qs.PrivacyCost(cost), **UNIFORM)
    assert loss(total, noise=noise) < 0.002


# --- bits ------------------------------------------------------------------------------------------


def bits_of(planned, max_records):
    """The number of bits of every strategy on the largest set."""
    integers = whole(planned, max_records=max_records)
    largest = max(integers.measured, key=lambda m: len(m.attributes))
    return [integers.strategies[n].bits for _, n in largest.blocks]


def test_more_records_leave_fewer_bits_and_at_last_none(refuses):
    planned = qs.plan(qs.all_kway(SCHEMA, [1, 2, 3], "prefix"), COST, **UNIFORM)
    before = math.inf
    for power in (4, 12, 20, 27, 34, 40):
        bits = bits_of(planned, 2**power)
        assert sum(bits) <= before
        assert sum(bits) + (2**power).bit_length() <= 62
        before = sum(bits)
    assert bits_of(planned, 10)[0] == limits().most_bits
    with refuses(PlanError, ValueError, "max_records", "a, b, c"):
        integer_plan(planned, 1.0, 2**52)


@cache
def many_ways(ways):
    """A plan of prefixes of so many attributes, and of one row that no few bits represent."""
    schema = qs.Schema.of({f"x{i}": 3 + i % 2 for i in range(ways)})
    workload = qs.queries(schema, dict.fromkeys(schema.names, "prefix"))
    workload += qs.queries(schema, x0=[[1, 0.31, 0]])
    return qs.plan(workload, COST, max_records=1, **UNIFORM)


@pytest.mark.slow
@pytest.mark.parametrize("power", [4, 20, 27, 34, 40])
def test_what_is_accepted_when_planned_is_what_can_be_measured(power):
    """Planning tries few bits first, measuring many: they accept the same plans."""
    answers = set()
    for ways in range(1, 9):
        accepted = refusal(many_ways(ways), 2**power) is None
        assert accepted == accepts(whole, many_ways(ways), 2**power)
        answers.add(accepted)
    assert answers == ({True} if power < 28 else {True, False})


def accepts(check, planned, max_records):
    try:
        check(planned, max_records=max_records)
    except PlanError:
        return False
    return True


def test_too_many_attributes_for_the_cap(refuses):
    schema = qs.Schema.of({f"x{i}": 3 for i in range(9)})
    workload = qs.queries(schema, dict.fromkeys(schema.names, "prefix"))
    with refuses(PlanError, ValueError, "max_records", "x0, x1", "lower max_records"):
        qs.plan(workload, COST, **UNIFORM)
    planned = qs.plan(workload, COST, max_records=1000, **UNIFORM)
    whole(planned, max_records=1000)
    with refuses(PlanError, ValueError, "max_records", "x0, x1", "lower max_records"):
        whole(planned, max_records=2**40)


LIGHT = qs.Schema.of({"a": 16, **{f"x{i}": 3 for i in range(3)}})
FAINT = qs.Schema.of({"a": 6, **{f"x{i}": 3 for i in range(4)}})


def crossed(schema, rows):
    """Rows on the first attribute, for every combination of values of the others."""
    return qs.queries(schema, {"a": rows, **dict.fromkeys(schema.names[1:], "identity")})


def light_beside(weight):
    """Prefixes beside one query of great weight."""
    return crossed(LIGHT, "prefix") + weight * crossed(
        LIGHT, np.random.default_rng(3).integers(0, 2, (1, 16))
    )


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (light_beside(1e12), ("max_records", "lost")),  # four bits would round the light queries away
        (crossed(FAINT, np.random.default_rng(0).normal(size=(2, 6))), ("max_records",)),
    ],
    ids=["light", "faint"],
)
def test_queries_lost_in_few_bits_are_noticed(workload, words, refuses):
    planned = qs.plan(workload, COST, **UNIFORM)
    for strategy in whole(planned, max_records=1000).strategies:
        for _, factor in strategy.factors:
            assert np.linalg.matrix_rank(factor.written_out()) == factor.rows
    with refuses(PlanError, ValueError, *words):
        whole(planned, max_records=2**40)


def test_real_queries_on_too_many_cells_are_refused_with_a_remedy(refuses):
    schema = qs.Schema.of(a=60, b=60)
    real = np.random.default_rng(0).normal(size=(1, 3600))
    with refuses(PlanError, ValueError, "integers"):
        qs.plan(qs.linear(schema, ("a", "b"), real), COST, **UNIFORM)
    planned = qs.plan(qs.linear(schema, ("a", "b"), np.round(real, 2)), COST, **UNIFORM)
    assert loss(planned) < 0.002


@pytest.mark.slow
def test_two_predicates_on_a_large_set_can_be_answered():
    """More than 3,000 cells take the structured solver, whose rows on each axis are few."""
    schema = qs.Schema.of(age=100, income=50)
    for texts in (
        ("age >= 18 and income < 10", "age >= 65 and income > 40"),
        ("age >= 18 and income < 10", "age in [20, 30, 70] and income > 5"),
    ):
        planned = qs.plan(
            sum((qs.where(schema, t) for t in texts[1:]), qs.where(schema, texts[0])), COST, **UNIFORM
        )
        assert any(s.method == "structured" for s in planned.solutions)
        assert loss(planned) < 0.002


@pytest.mark.slow
def test_little_budget_leaves_fewer_bits_and_at_last_none(refuses):
    """Noise is drawn up to a variance of 2^100: large noise makes rows smaller."""
    for cost in (1e-4, 1e-9, 1e-12):
        for solver in ("optimal", "structured"):
            planned = qs.plan(MIXED, qs.PrivacyCost(cost), solver=solver, **UNIFORM)
            integers = whole(planned, max_records=1000)
            most = [
                math.prod(
                    int(integers.strategies[n].multipliers.max())
                    for _, n in m.blocks
                    if integers.strategies[n].multipliers is not None
                )
                * m.variance
                for m in integers.measured
            ]
            assert max(most) <= LARGEST_VARIANCE == integer.LARGEST_VARIANCE
            assert loss(planned, max_records=1000) < 0.002
    with refuses(PlanError, ValueError, "budget", "noise"):
        qs.plan(qs.all_kway(SCHEMA, [1, 2, 3], "prefix"), qs.PrivacyCost(1e-29), **UNIFORM)


# --- noise -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("cost", [1e-6, 1.0, 1e8])
def test_noise_is_at_least_one_and_at_least_what_was_planned(name, cost):
    workload, options = CLASSES[name]
    planned = qs.plan(workload, qs.PrivacyCost(cost), **{**options, **UNIFORM})
    integers = whole(planned)
    assert privacy_cost(integers) <= Fraction(cost)
    for before, after in zip(planned.measured, integers.measured, strict=True):
        assert before.attributes == after.attributes
        squared = math.prod(
            (squared_sensitivity(integers.strategies[n]) for _, n in after.blocks), start=Fraction(1)
        )
        assert after.variance >= 1
        assert after.variance >= Fraction(before.variance) * squared
        if after.variance > 2:
            assert after.variance <= Fraction(before.variance) * squared * (1 + Fraction(1, 10**6)) + 1


def test_a_product_of_a_joint_family_and_another_keeps_its_axes_apart():
    schema = qs.Schema.of(c=3, a=4, b=2)
    workload = qs.Workload(schema, (Group(("b", "a", "c"), (Affine((2, 4)), Prefix((3,)))),))
    for options in (UNIFORM, BEST):
        planned = plan_split(workload, **options)
        check_space(planned, whole(planned))


def test_whole_plans_of_a_loaded_plan_are_the_same(tmp_path):
    for name in ("structured", "where", "prefix, best centres"):
        workload, options = CLASSES[name]
        planned = qs.plan(workload, COST, **options)
        planned.save(tmp_path / "x.plan")
        one, two = whole(planned), whole(qs.Plan.load(tmp_path / "x.plan"))
        assert one.measured == two.measured
        for mine, theirs in zip(one.strategies, two.strategies, strict=True):
            for (axes, matrix), (same_axes, same) in zip(mine.factors, theirs.factors, strict=True):
                assert axes == same_axes
                np.testing.assert_array_equal(matrix.entries, same.entries)


@pytest.mark.parametrize("entry", [np.nan, np.inf, 0.0, 1e-320])
def test_what_cannot_be_rounded_is_refused(entry, refuses):
    ones = [np.ones(3, dtype=np.int64)]
    with refuses(PlanError, ValueError, "rounded"):
        DenseStrategy((3,), np.full((2, 3), entry)).rounded(ones, 14)
    nothing = DenseStrategy((3,), np.zeros((1, 3)), lattice=np.array([[1, -1, 0]]))
    with refuses(PlanError, ValueError, "rounded"):
        nothing.rounded(ones, 14)


def test_what_the_limits_on_bits_gain(refuses):
    """More bits are more accurate, and blocks that lose most get those that are left."""
    planned = qs.plan(qs.all_kway(SCHEMA, [1, 2, 3], "prefix"), COST, **UNIFORM)
    usual = loss(planned, max_records=1000)
    with limited(most_bits=6):
        assert loss(planned, max_records=1000) > 10 * usual
    with limited(most_bits=18):
        assert abs(loss(planned, max_records=1000) - usual) < 1e-4
    planned = qs.plan(light_beside(1e8), COST, **UNIFORM)
    usual = loss(planned)
    with limited(good_loss=limits().most_loss):
        assert loss(planned) > usual + 0.003
    nine = qs.Schema.of({f"x{i}": 3 for i in range(9)})
    planned = qs.plan(
        qs.queries(nine, dict.fromkeys(nine.names, "prefix")), COST, max_records=1000, **UNIFORM
    )
    with refuses(PlanError, ValueError, "max_records"):
        whole(planned)
    with limited(least_bits=3):
        assert max(s.bits for s in whole(planned).strategies if s.shape) > 3


def test_the_cap_of_planning_is_the_one_of_measuring(refuses):
    assert inspect.signature(qs.measure).parameters["max_records"].default == MAX_RECORDS
    assert inspect.signature(qs.plan).parameters["max_records"].default == MAX_RECORDS
    for wrong in (0, -1, 2**41, 1.5, True, "many"):
        with refuses(PlanError, ValueError, "max_records", repr(wrong)):
            qs.plan(qs.marginals(SCHEMA, 1), COST, max_records=wrong)


@pytest.mark.slow
def test_fractions_on_many_cells_are_measured_where_they_are_ratios_of_integers(refuses):
    """Sevenths, or tenths of a third, in rows of any size; the planner refuses rows without such ratios."""
    schema = qs.Schema.of(a=70, b=50)
    generator = np.random.default_rng(0)
    whole = generator.integers(-3, 8, (3, 3500))
    for scale in ([[1 / 7], [1e-7 / 3], [0.3]], [[1e5 / 9], [1.0], [np.pi]]):
        workload = qs.linear(schema, ["a", "b"], whole * np.array(scale))
        plan = qs.plan(workload, COST, **UNIFORM)
        integer_plan(plan, 1.0, 10**8)
    with refuses(PlanError, ValueError, "3,500 cells", "integers"):
        qs.plan(qs.linear(schema, ["a", "b"], generator.normal(size=(3, 3500))), COST, **UNIFORM)


def test_centres_that_cannot_be_measured_give_way_to_uniform_ones(monkeypatch):
    """The search may find centres whose rows need too many bits."""
    real = replan.refusal

    def refusal(plan, cap):
        if all(c.is_uniform for c in plan.centres):
            return real(plan, cap)
        return PlanError("max_records: too few bits")

    monkeypatch.setattr(replan, "refusal", refusal)
    plan = qs.plan(qs.all_kway(qs.Schema.of(a=8, b=5), [1, 2], "prefix"), COST)
    assert all(c.is_uniform for c in plan.centres)
