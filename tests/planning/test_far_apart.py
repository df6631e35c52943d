"""Queries that are far apart in weight or size: all of them are measured, and the certificate is true.

The reference computes in fractions, hence without rounding error, from the planned strategies alone.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning.centre import Centre
from querysmasher.planning.estimator.whole import estimator_of
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.solution import Measured
from querysmasher.planning.split import Part, Piece, Term, separate
from querysmasher.planning.strategies import strategy_of_integers
from querysmasher.privacy.accounting import check_budget, squared_sensitivity
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.unit import Known
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.joint import Affine, Rows
from querysmasher.workload.workload import Group
from tests import reference
from tests.builders import COST, UNIFORM
from tests.profiles import fewer

# --- the reference, without rounding error -------------------------------------------------------


def exact(matrix):
    return [[Fraction(float(x)) for x in row] for row in matrix]


def solve(matrix, right):
    """Solve matrix · X = right by elimination, in fractions."""
    rows = [[*a, *b] for a, b in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(k for k in range(i, len(rows)) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k, row in enumerate(rows):
            if k != i and row[i]:
                rows[k] = [x - row[i] * y for x, y in zip(row, rows[i], strict=True)]
    return [row[len(rows) :] for row in rows]


def product(a, b):
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a]


def exact_variances(plan):
    """The variance of every planned query: of y·(noise) with y B the query's part, by least squares."""
    rows, weights = reference.query_rows(plan.workload)
    total = [Fraction(0)] * len(rows)
    measured = {m.attributes: m for m in plan.measured}
    whole = any(solution.strategy.whole for solution in plan.solutions)
    for kept in measured if whole else reference.subsets(range(len(plan.workload.schema))):
        part = exact(rows)
        if not whole:
            part = product(part, exact(reference.split_map(plan.workload.schema, plan.centres, kept)))
        if kept not in measured:
            for own, row in zip(part, exact(rows), strict=True):
                assert max(map(abs, own)) <= max(map(abs, row)) * Fraction(1e-11), "not measured"
            continue
        own = reference.measured_rows(plan, measured[kept])
        strategy = exact(own @ reference.marginal_map(plan.workload.schema, kept) if whole else own)
        across = [list(column) for column in zip(*strategy, strict=True)]
        y = solve(product(strategy, across), product(strategy, [list(c) for c in zip(*part, strict=True)]))
        y = [list(column) for column in zip(*y, strict=True)]
        for place, (own, answer) in enumerate(zip(part, product(y, strategy), strict=True)):
            off = max(abs(a - b) for a, b in zip(own, answer, strict=True))
            assert off <= max(map(abs, exact(rows)[place])) * Fraction(1e-6), "a query is not measured"
            total[place] += Fraction(measured[kept].variance) * sum(x * x for x in y[place])
    return np.array([float(v) for v in total]), weights


def check_plan(plan):
    """Whatever a plan says about its own workload is true."""
    variances, weights = exact_variances(plan)
    np.testing.assert_allclose(plan.variances(plan.workload), variances, rtol=1e-6)
    assert plan.weighted_loss == pytest.approx(math.fsum(weights * variances), rel=1e-8)
    assert plan.rmse == pytest.approx(math.sqrt(math.fsum(variances) / len(variances)), rel=1e-6)
    assert reference.privacy_cost(plan) <= 1 + 1e-9


def check_certificate(plan):
    """With uniform centres the optimum is known independently, by a semidefinite program."""
    optimum = reference.paper_loss(plan.workload, 1.0)
    assert plan.weighted_loss / (1 + plan.gap) ** 2 <= optimum * (1 + 1e-5)
    assert optimum <= plan.weighted_loss * (1 + 1e-5)
    assert plan.gap < 1e-3


# --- past failures ---------------------------------------------------------------------------------


def income():
    schema = qs.Schema.of(income=7)
    cents = 100.0 * (1_000_000 * np.arange(7) + 500_000)
    return qs.linear(schema, ["income"], np.vstack([np.eye(7), cents]))


def differences(n, weight):
    rows = np.zeros((n - 1, n))
    rows[:-1] = np.eye(n - 2, n) - np.eye(n - 2, n, 1)
    rows[-1, 0] = 1
    return qs.linear(qs.Schema.of(x=n), ["x"], rows, weights=[1.0] * (n - 2) + [weight])


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
def test_bins_beside_their_total_in_cents_are_all_measured(centering):
    plan = qs.plan(income(), COST, centering=centering)
    check_plan(plan)
    if centering == "uniform":
        check_certificate(plan)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1e9, 1e16])
def test_differences_beside_a_count_of_great_weight(weight):
    for n, check in ((12, check_plan), (200, lambda plan: None)):
        plan = qs.plan(differences(n, weight), COST, **UNIFORM)
        check(plan)
        variances = plan.variances(plan.workload)
        weights = np.array([1.0] * (n - 2) + [weight])
        assert plan.weighted_loss == pytest.approx(math.fsum(weights * variances), rel=1e-12)
        # no mechanism of cost 1 answers the count with a variance below 1
        assert 1 - 1e-9 <= variances[-1] <= 1 + 1e-4
        assert plan.weighted_loss / (1 + plan.gap) ** 2 <= math.fsum(weights * variances)
        assert np.all(variances[:-1] < 100)


def test_small_terms_are_not_split_off():
    """Two products with coefficients 1 and 1e-14 are not a product, however small the second is."""
    parts = [Part((n,), (Centre.uniform(n),), np.eye(n) + i) for i, n in enumerate((3, 4, 3, 4))]
    a, b, c, d = (Piece((i % 2,), part) for i, part in enumerate(parts))
    _, blocks = separate((Term(1.0, (a, b)), Term(1e-14, (c, d))))
    assert len(blocks) == 1
    assert len(blocks[0][1].terms) == 2


def test_parts_that_differ_in_short_rows_only_are_two():
    long = np.array([[1e9, -1e9, 0.0]])
    centre = Centre.uniform(3)
    one, two = (
        Part((3,), (centre,), np.vstack([long, short]), thin=True)
        for short in ([[1e-6, 0, -1e-6]], [[0, 1e-6, -1e-6]])
    )
    assert one.digest != two.digest
    assert one.digest == Part((3,), (centre,), one.content * (1 + 1e-15), thin=True).digest


FOUR, THREE, FIVE = qs.Schema.of(a=4), qs.Schema.of(a=3, b=3), qs.Schema.of(a=5, b=5)
LONG, SHORT = np.zeros((2, 25))
LONG[:5], SHORT[:2], SHORT[7] = 1e9, 1e-4, -1e-4


@pytest.mark.parametrize(
    "workload",
    [
        1e8 * qs.queries(THREE, a=[[1, 0, 1]], b=[[0, 1, 1]])
        + 1e-8 * qs.queries(THREE, a=[[1, 1, 0]], b=[[1, 0, 0]]),
        qs.linear(FOUR, ["a"], [[1e9] * 4, [1e-6, -1e-6, 0, 0]]),  # a short row beside a long constant one
        qs.linear(FIVE, ["a", "b"], [LONG, SHORT]),  # cells that only short rows tell apart
        *(
            qs.linear(FOUR, ["a"], [[1, 1, 0, 0], [1, 1 + apart, 0, 0], [0, 0, 1, 0]])
            for apart in (1e-3, 1e-5, 5e-6, 1e-7, 1e-9)  # nearly dependent
        ),
    ],
)
def test_no_query_is_lost_beside_others(workload):
    plan = qs.plan(workload, COST, **UNIFORM)
    check_plan(plan)
    if workload.schema is THREE:
        check_certificate(plan)


def test_own_variances_on_very_many_values():
    workload = qs.where(qs.Schema.of(zip=50_000, sex=2), "zip < 1000 and sex == 1")
    assert qs.plan(workload, COST).variances(workload) == pytest.approx(1.0)


def test_light_queries_use_what_heavy_ones_leave():
    """Cells 4 to 7 matter to light queries only, which get all the accuracy that costs nothing."""
    schema = qs.Schema.of(a=8)
    workload = qs.linear(schema, ["a"], np.eye(8), weights=[1e8] * 4 + [1e-8] * 4)
    plan = qs.plan(workload, COST, **UNIFORM)
    check_plan(plan)
    contrast = qs.linear(schema, ["a"], [[0, 0, 0, 0, 1, -1, 0, 0]])
    assert plan.variances(contrast)[0] < 2.1


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["residual", "basis", "structured", "dense"])
def test_other_solvers_measure_all_queries_too(solver):
    schema = qs.Schema.of(a=4, b=3)
    rows = np.array([[1e8, 0, 1e8, 0], [1, -1, 0, 0], [0, 1e-6, -1e-6, 0]])
    workload = qs.queries(schema, a=rows, b="prefix") + 1e-6 * qs.marginals(schema, [1, 2])
    check_plan(qs.plan(workload, COST, solver=solver, **UNIFORM))


def test_no_solver_accepts_what_it_does_not_measure():
    for workload in (income(), differences(12, 1e16)):
        for solver in ("residual", "basis", "fourier", "structured", "dense"):
            try:
                plan = qs.plan(workload, COST, solver=solver, **UNIFORM)
            except PlanError as error:
                assert solver == "fourier", solver
                assert "double precision" in str(error)  # noqa: PT017 - only some solvers refuse
            else:
                assert plan.variances(workload) @ _weights(workload) == pytest.approx(
                    plan.weighted_loss, rel=1e-6
                )


def _weights(workload):
    return reference.query_rows(workload)[1]


# --- limits of double precision -------------------------------------------------------------------


@pytest.mark.parametrize(("row", "weight"), [(1e90, 1e100), (1e-90, 1e-100)])
def test_squares_that_overflow_or_vanish_are_refused(row, weight, refuses):
    schema = qs.Schema.of(a=3)
    workload = qs.linear(schema, ["a"], [[row, 0, 0], [0, row, 0]], weights=[weight, 1.0])
    for centering in ("uniform", "optimized"):
        with refuses(PlanError, ValueError, "weight × (length of a query)²", "double precision"):
            qs.plan(workload, COST, centering=centering)


def test_rows_too_far_apart_for_exact_answers_are_refused_when_planned(refuses):
    schema = qs.Schema.of(a=5)
    rows = np.random.default_rng(0).normal(size=(6, 5))
    rows[:3] *= 1e30
    with refuses(PlanError, ValueError, "max_records", "differ too much in weight or size"):
        qs.plan(qs.linear(schema, ["a"], rows), COST, **UNIFORM)


# --- properties ------------------------------------------------------------------------------------


@st.composite
def far_rows(draw, shape):
    """Rows of small integers, or not, of sizes 1e-6 to 1e9 and weights 1e-8 to 1e8."""
    count, cells = draw(st.integers(1, 6)), math.prod(shape)
    entries = st.integers(-2, 3) if draw(st.booleans()) else st.sampled_from([0, 1, 0.37, 1 / 3, -0.9, 2.5])
    rows = draw(st.lists(st.lists(entries, min_size=cells, max_size=cells), min_size=count, max_size=count))
    sizes = draw(st.lists(st.integers(-6, 9), min_size=count, max_size=count))
    weights = draw(st.none() | st.lists(st.integers(-8, 8), min_size=count, max_size=count))
    array = np.array(rows, dtype=float)
    array[0, 0] += not array.any()
    array *= 10.0 ** np.array(sizes)[:, None]
    return Rows(shape, array, None if weights is None else 10.0 ** np.array(weights))


@st.composite
def far_workloads(draw):
    """Groups on up to two attributes, with weights 1e-8 to 1e8."""
    sizes = draw(st.sampled_from([(4,), (6,), (3, 3), (2, 4)]))
    schema = qs.Schema.of(dict(zip("ab", sizes, strict=False)))
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.permutations(schema.names))[: draw(st.integers(1, len(sizes)))]
        shape = tuple(schema[n].size for n in names)
        kind = draw(st.sampled_from(["rows", "rows", "closed", "affine"]))
        if kind == "affine" and len(shape) == 2:
            chosen = (Affine(shape),)
        elif kind == "rows":
            chosen = (draw(far_rows(shape)),)
        else:
            named = st.sampled_from(sorted(ONE_ATTRIBUTE))
            chosen = tuple(
                ONE_ATTRIBUTE[draw(named)]((n,)) if draw(st.booleans()) else draw(far_rows((n,)))
                for n in shape
            )
        groups.append(Group(tuple(names), chosen, 10.0 ** draw(st.integers(-8, 8))))
    return qs.Workload(schema, tuple(groups))


def planned(workload, **options):
    """A plan, or None if it is refused for an allowed reason."""
    try:
        return qs.plan(workload, COST, **options)
    except PlanError as error:
        reasons = ("differ too much", "all its queries are zero")
        event(next(r for r in reasons if r in str(error)))
        return None


@pytest.mark.slow
@fewer(20)
@given(far_workloads())
def test_plans_of_queries_far_apart_are_true(workload):
    plan = planned(workload, **UNIFORM)
    if plan is not None:
        check_plan(plan)
        check_certificate(plan)


@fewer(25)
@given(far_workloads(), st.sampled_from(["uniform", "optimized"]))
def test_what_is_planned_can_be_measured_as_planned(workload, centering):
    plan = planned(workload, centering=centering)
    if plan is None:
        return
    integers = integer_plan(plan, 1.0, 10**8)
    check_budget(integers, DISTRIBUTIONS["rounded"])
    variances = rounded_estimator(plan, integers)
    weights = _weights(workload)
    after = np.concatenate([variances.variances(group).ravel() for group in workload])
    assert weights @ after <= 1.3 * plan.weighted_loss
    assert np.all(after <= 4.5 * plan.variances(workload) * (1 + 1e-9) + 1e-300)


def rounded_estimator(plan, integers):
    measured = []
    for m in integers.measured:
        total = [n for axes, n in m.blocks if not axes]
        variance = m.variance / (squared_sensitivity(integers.strategies[total[0]]) if total else 1)
        blocks = tuple(b for b in m.blocks if b[0])
        measured.append((Measured(m.attributes, blocks, float(variance), 0.0),))
    strategies = [strategy_of_integers(s) for s in integers.strategies]
    return estimator_of(plan.workload.schema, plan.centres, strategies, measured, Known())
