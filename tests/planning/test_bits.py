"""How many bits a plan in integers has, and how much noise."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning import integer
from querysmasher.planning.integer import integer_plan, refusal
from querysmasher.planning.limits import limited, limits
from querysmasher.planning.strategies import DenseStrategy, DiagonalStrategy
from querysmasher.planning.strategies.diagonal import GRAIN
from querysmasher.privacy.accounting import privacy_cost, squared_sensitivity
from querysmasher.privacy.noise import LARGEST_VARIANCE
from querysmasher.workload.families import Prefix
from querysmasher.workload.joint import Affine
from querysmasher.workload.workload import Group
from tests.builders import BEST, COST, UNIFORM, plan_split
from tests.planning.test_integer import MIXED, SCHEMA, check_space, loss
from tests.planning.test_lattice import exact_rank
from tests.release.tables import CLASSES, whole


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


def test_queries_lost_in_few_bits_are_noticed(refuses):
    """With weights of 1 and 10^12, four bits would round the light queries away."""
    schema = qs.Schema.of({"a": 16, **{f"x{i}": 3 for i in range(3)}})
    heavy = np.random.default_rng(3).integers(0, 2, (1, 16))
    others = dict.fromkeys(schema.names[1:], "identity")
    workload = qs.queries(schema, {"a": "prefix", **others}) + 1e12 * qs.queries(
        schema, {"a": heavy, **others}
    )
    planned = qs.plan(workload, COST, **UNIFORM)
    check_rank(whole(planned, max_records=1000))
    with refuses(PlanError, ValueError, "max_records", "lost"):
        whole(planned, max_records=2**40)


def check_rank(integers):
    for strategy in integers.strategies:
        for _, factor in strategy.factors:
            assert np.linalg.matrix_rank(factor.written_out()) == factor.rows


def test_faint_rows_do_not_vanish_unnoticed(refuses):
    schema = qs.Schema.of({"a": 6, **{f"x{i}": 3 for i in range(4)}})
    real = np.random.default_rng(0).normal(size=(2, 6))
    workload = qs.queries(schema, {"a": real, **dict.fromkeys(schema.names[1:], "identity")})
    planned = qs.plan(workload, COST, **UNIFORM)
    check_rank(whole(planned, max_records=1000))
    with refuses(PlanError, ValueError, "max_records"):
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


def test_multipliers_follow_the_planned_weights():
    planned = qs.plan(MIXED, COST, solver="structured", **UNIFORM)
    diagonal = [s.strategy for s in planned.solutions if isinstance(s.strategy, DiagonalStrategy)]
    assert diagonal
    for strategy in diagonal:
        ones = [np.ones(n, dtype=np.int64) for n in strategy.shape]
        found = strategy.rounded(ones, 14)
        # the noise of a row of unit length: as planned and as it is, in proportion
        share = strategy.weights * found.multipliers
        for axis, (basis, (_, matrix)) in enumerate(zip(strategy.bases, found.factors, strict=True)):
            spread = [-1 if a == axis else 1 for a in range(share.ndim)]
            share = share * ((basis**2).sum(axis=1) / (matrix.written_out() ** 2).sum(axis=1)).reshape(spread)
        assert share.max() / share.min() < 2 ** (1 / GRAIN) * 1.01
        assert found.multipliers.min() >= 2**9


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


@pytest.mark.parametrize(("bits", "sizes"), list(itertools.product([4, 9, 14], [(4, 4), (2, 3, 2)])))
def test_rounding_several_axes_at_once(bits, sizes):
    generator = np.random.default_rng(bits)
    inside = np.ones((1, 1))
    for n in sizes:
        inside = np.kron(inside, np.linalg.qr(np.ones((n, 1)), mode="complete")[0][:, 1:].T)
    rows = generator.normal(size=(len(inside), len(inside))) @ inside
    ones = [np.ones(n, dtype=np.int64) for n in sizes]
    found = DenseStrategy(sizes, rows).rounded(ones, bits)
    ((axes, factor),) = found.factors
    matrix = factor.entries
    assert axes == tuple(range(len(sizes)))
    tensor = matrix.reshape(-1, *sizes)
    for axis in range(1, tensor.ndim):
        assert not tensor.sum(axis=axis).any()
    assert exact_rank(matrix.tolist()) == len(rows)


def test_what_the_limits_on_bits_gain(refuses):
    """More bits are more accurate, and blocks that lose most get those that are left."""
    planned = qs.plan(qs.all_kway(SCHEMA, [1, 2, 3], "prefix"), COST, **UNIFORM)
    usual = loss(planned, max_records=1000)
    with limited(most_bits=6):
        assert loss(planned, max_records=1000) > 10 * usual
    with limited(most_bits=18):
        assert abs(loss(planned, max_records=1000) - usual) < 1e-4
    schema = qs.Schema.of({"a": 16, **{f"x{i}": 3 for i in range(3)}})
    heavy = np.random.default_rng(3).integers(0, 2, (1, 16))
    others = dict.fromkeys(schema.names[1:], "identity")
    apart = qs.queries(schema, {"a": "prefix", **others}) + 1e8 * qs.queries(schema, {"a": heavy, **others})
    planned = qs.plan(apart, COST, **UNIFORM)
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
