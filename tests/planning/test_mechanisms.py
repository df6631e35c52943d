"""The contract of every mechanism: certificate, privacy cost, variances, measurement, reconstruction."""

import math
from functools import cache

import numpy as np
import pytest
from benchmarks.mechanisms import CPS, SYNTHETIC
from benchmarks.schemas import hybrid, one_and_two_way
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.comparison.hdmm import TEMPLATES, hdmm
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms import MECHANISMS as EVERY
from querysmasher.planning.solvers import SOLVERS as METHODS
from querysmasher.planning.strategies import FourierStrategy
from tests.builders import COST, cube, plan_split
from tests.profiles import fewer
from tests.reference import query_rows
from tests.release.tables import check_simulated, frame, random_counts
from tests.strategies import matrices

MECHANISMS = tuple(name for name, mechanism in EVERY.items() if mechanism.uniform_only and mechanism.choose)
SOLVERS = (*METHODS, *MECHANISMS)
"""The name of a mechanism is also accepted as a solver."""


@st.composite
def workloads(draw):
    """Random workloads on three small attributes: products, comparisons, single predicates, any rows."""
    schema = qs.Schema.of(a=draw(st.integers(2, 6)), b=draw(st.integers(2, 5)), c=draw(st.integers(1, 3)))
    family = st.sampled_from(["identity", "prefix", "range", "circular"])
    workload = qs.all_kway(schema, draw(st.sampled_from([1, 2, [1, 2], [2, 3]])), draw(family))
    if draw(st.booleans()):
        workload = workload + draw(st.integers(1, 5)) * qs.affine(schema, "b", "a")
    if draw(st.booleans()):
        workload = workload + qs.queries(schema, a=draw(family), c=draw(family), weight=2.5)
    if draw(st.booleans()):
        workload = workload + qs.queries(schema, a=draw(matrices(4, schema.sizes[0])))
    return workload


def information(strategy):
    """V, written out from the strategy's variances of single cells."""
    cells = math.prod(strategy.shape)
    dual = strategy.transform(np.eye(cells).reshape(cells, *strategy.shape))
    return np.linalg.pinv(dual @ dual.T, rcond=1e-9, hermitian=True)


@cache  # the same workloads recur for every solver
def best_plan(workload, centering):
    return qs.plan(workload, COST, solver="dense", centering=centering, tolerance=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@fewer(12)
@given(workload=workloads())
def test_the_contract(solver, workload):
    centering = "uniform" if solver in MECHANISMS else "optimized"
    plan = plan_split(workload, solver=solver, tolerance=1e-6)
    assert plan.centering == centering
    # privacy: every strategy has unit cost, and the shares add up to the budget
    for solution in plan.solutions:
        if solution.strategy.rank:
            assert np.diagonal(information(solution.strategy)).max() == pytest.approx(1.0, abs=1e-6)
    assert plan.privacy_cost == pytest.approx(1.0)
    # certificate: the bound is below what any solver reaches
    assert plan.gap >= 0
    best = best_plan(workload, centering)
    assert plan.weighted_rmse / (1 + plan.gap) <= best.weighted_rmse * (1 + 1e-6)
    assert best.weighted_rmse <= plan.weighted_rmse * (1 + 1e-6)
    # variances: those predicted query by query equal the planned ones
    weights = np.concatenate([np.full(g.rows, g.weight) for g in workload])
    variances = plan.variances(workload)
    assert weights @ variances == pytest.approx(plan.weighted_loss, rel=1e-6)
    assert plan.worst_std == pytest.approx(math.sqrt(variances.max()))


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@fewer(5)
@given(workload=workloads())
def test_releases_are_exact_up_to_their_noise(solver, workload, tmp_path_factory):
    plan = qs.plan(workload, qs.PrivacyCost(1e4), solver=solver)
    counts = random_counts(workload.schema, 7, records=300)
    release = qs.measure(plan, frame(workload.schema, counts), seed=1)
    answers = release.answer(workload)
    truth = query_rows(workload)[0] @ counts.ravel()
    assert np.all(np.abs(answers.values - truth) <= 7 * answers.std)
    assert np.sqrt((answers.std**2).mean()) == pytest.approx(plan.rmse, rel=0.02)
    assert np.allclose(np.diagonal(release.covariance(workload)), answers.std**2)
    folder = tmp_path_factory.mktemp("release")
    plan.save(folder / "plan")
    assert np.array_equal(qs.Plan.load(folder / "plan").variances(workload), plan.variances(workload))
    release.save(folder / "release")
    loaded = qs.Release.load(folder / "release").answer(workload)
    assert np.array_equal(loaded.values, answers.values)
    assert np.array_equal(loaded.std, answers.std)


@pytest.mark.slow
@pytest.mark.parametrize("solver", MECHANISMS)
def test_releases_have_the_planned_mean_and_variance(solver):
    schema = qs.Schema.of(a=5, b=4)
    workload = qs.all_kway(schema, [1, 2], "prefix") + qs.affine(schema, "a", "b")
    plan = qs.plan(workload, COST, solver=solver)
    check_simulated(plan, workload, random_counts(schema, 7, records=300), 400)


@pytest.mark.slow
@fewer(25)
@given(workload=workloads())
def test_optimal_dominates_every_mechanism(workload):
    uniform = qs.plan(workload, COST, centering="uniform", tolerance=1e-6)
    assert qs.plan(workload, COST, centering="optimized").weighted_rmse <= uniform.weighted_rmse * (1 + 1e-3)
    for solver in MECHANISMS:
        other = qs.plan(workload, COST, solver=solver)
        assert uniform.weighted_rmse <= other.weighted_rmse * (1 + 1e-6), solver
        assert uniform.weighted_rmse >= other.weighted_rmse / (1 + other.gap) * (1 - 1e-6), solver


@pytest.mark.slow
@fewer(15)
@given(data=st.data())
def test_optimal_dominates_hdmm(data):
    # its products have centres of their own, which ours are rounded from: hence the 0.1 %
    family = st.sampled_from(["identity", "prefix", "range", "circular"])
    schema = qs.Schema.of(a=data.draw(st.integers(2, 6)), b=data.draw(st.integers(2, 5)), c=3)
    workload = qs.all_kway(schema, data.draw(st.sampled_from([1, 2, 3, [1, 2], [2, 3]])), data.draw(family))
    if data.draw(st.booleans()):
        workload = workload + qs.queries(schema, a=data.draw(family), c=data.draw(family), weight=2.5)
    ours = qs.plan(workload, COST, tolerance=1e-6).weighted_loss
    for template in TEMPLATES:
        assert math.sqrt(ours / hdmm(workload, template).weighted_loss) <= 1 + 1e-3, template


@pytest.mark.parametrize("solver", MECHANISMS)
@pytest.mark.parametrize("n", [2, 5, 8])
def test_marginals_are_optimal_under_every_mechanism(solver, n):
    workload = qs.marginals(cube(n, 4), [1, 2])
    assert qs.plan(workload, COST, solver=solver).rmse == pytest.approx(qs.plan(workload, COST).rmse)


def test_circular_ranges_are_optimal_under_fourier():
    workload = qs.all_kway(cube(7, 3), [1, 2], "circular")
    assert qs.plan(workload, COST, solver="fourier").rmse == pytest.approx(qs.plan(workload, COST).rmse)


FIGURES = [case for case in SYNTHETIC if case[2] in MECHANISMS]


@pytest.mark.parametrize(("n", "family", "solver", "rmse"), FIGURES)
def test_published_figures(n, family, solver, rmse):
    plan = qs.plan(one_and_two_way(n, family), COST, solver=solver)
    assert plan.rmse == pytest.approx(rmse, rel=2e-3)


@pytest.mark.parametrize(("ways", "solver", "rmse"), [case for case in CPS if case[1] in MECHANISMS])
def test_published_figures_on_cps(ways, solver, rmse):
    assert qs.plan(hybrid("cps", ways), COST, solver=solver).rmse == pytest.approx(rmse, rel=2e-3)


class TestBases:
    """Bases that a user gives."""

    schema = qs.Schema.of(a=8, b=3)
    workload = qs.all_kway(schema, [1, 2], "prefix")

    def plan(self, **bases):
        return qs.plan(self.workload, COST, solver="basis", bases=bases)

    def test_naming_the_familys_own_basis_changes_nothing(self):
        assert self.plan(a="prefix", b="prefix").rmse == self.plan().rmse

    def test_identity_is_residual_planner(self):
        residual = qs.plan(self.workload, COST, solver="residual")
        assert self.plan(a="identity", b="identity").rmse == pytest.approx(residual.rmse)

    def test_rows_are_taken_as_they_are_up_to_scale(self):
        assert self.plan(a=np.eye(8), b=5 * np.eye(3)).rmse == pytest.approx(
            self.plan(a="identity", b="identity").rmse
        )

    def test_haar_wavelets_against_their_gram_written_out(self):
        plan = self.plan(a="haar")
        rows = [[1, -1, 0, 0], [0, 0, 1, -1], [1, 1, -1, -1]]
        waves = np.kron(np.array([[1, 0], [0, 1]]), rows)
        waves = np.concatenate([waves, [[1] * 4 + [-1] * 4]])
        assert plan.rmse == pytest.approx(self.plan(a=waves).rmse)
        assert plan.rmse != self.plan().rmse

    @pytest.mark.parametrize(
        ("bases", "message"),
        [
            ({"x": "prefix"}, "bases: expected attributes of .*, got 'x'"),
            ({"a": "wavelet"}, "expected one of identity, prefix, range, circular, haar, or rows"),
            ({"b": "haar"}, r"expected 2\^k values for the basis 'haar', got 3"),
            ({"a": np.ones((2, 8))}, "whose rows distinguish values"),
            ({"a": np.ones((2, 7))}, "with 8 columns"),
            ({"a": [["x"] * 8]}, "matrix of finite numbers"),
            ({"a": np.eye(8)[:3]}, "rows span the queries"),
            ({"a": np.eye(8), "b": np.eye(8)}, r"bases\['b'\]: expected a matrix.* with 3 columns"),
            ({"a": [[1, 2], [3]]}, r"bases\['a'\]: expected a matrix"),
            ({"a": [[0.1] * 8]}, r"bases\['a'\]: expected a matrix"),
            ({"a": [[0] * 8]}, r"bases\['a'\]: expected a matrix"),
        ],
    )
    def test_bad_bases_are_refused(self, bases, message):
        with pytest.raises(qs.PlanError, match=message):
            self.plan(**bases)

    def test_bases_need_their_solver(self):
        with pytest.raises(qs.PlanError, match="mechanism='basis', got mechanism='querysmasher'"):
            qs.plan(self.workload, COST, bases={"a": "haar"})


@pytest.mark.parametrize("solver", MECHANISMS)
def test_mechanisms_refuse_optimised_centres_and_other_solvers(solver):
    workload = qs.marginals(cube(3, 2), 1)
    with pytest.raises(qs.PlanError, match="'uniform' centres only"):
        qs.plan(workload, COST, solver=solver, centering="optimized")
    with pytest.raises(qs.PlanError, match=r"solver: expected 'optimal', .* has its own method, got 'dense'"):
        qs.plan(workload, COST, mechanism=solver, solver="dense")
    named, plain = qs.plan(workload, COST, mechanism=solver), qs.plan(workload, COST, solver=solver)
    assert (named.mechanism, named.solver) == (plain.mechanism, plain.solver) == (solver, "optimal")


def test_an_unknown_mechanism_is_refused_with_those_there_are():
    with pytest.raises(qs.PlanError, match=r"mechanism: expected one of querysmasher, basis, .* got 'hdmm'"):
        qs.plan(qs.marginals(cube(3, 2), 1), COST, mechanism="hdmm")


def test_a_plan_says_for_every_block_which_method_was_chosen_and_why(limit_planning):
    schema = qs.Schema.of(a=10, b=10, c=3)
    workload = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    limit_planning(dense_cells=50)
    plan = qs.plan(workload, COST, centering="uniform")
    by_sizes = {block.sizes: block for block in plan.methods}
    assert list(by_sizes) == [(10, 10), (10, 3), (10,), (3,)]
    assert {sizes: block.method for sizes, block in by_sizes.items()} == {
        (10, 10): "structured",
        (10, 3): "dense",
        (10,): "dense",
        (3,): "dense",
    }
    assert by_sizes[10, 10].attribute_sets == 1
    assert by_sizes[10, 3].attribute_sets == by_sizes[10,].attribute_sets == 2
    assert by_sizes[10, 10].measurements == 81
    assert "too many cells" in str(by_sizes[10, 10])
    assert all(block.reason in str(block) for block in plan.methods)
    marginals = qs.plan(qs.marginals(schema, 1), COST)
    assert {block.method for block in marginals.methods} == {"circulant"}
    assert "closed form" in marginals.methods[0].reason
    fourier = qs.plan(workload, COST, mechanism="fourier")
    assert fourier.methods[0].reason != ""
    residual = qs.plan(workload, COST, mechanism="residual")
    assert residual.methods[0].reason == "you chose the mechanism residual"


def test_later_queries_outside_a_fourier_plan_are_refused():
    schema = qs.Schema.of(a=6, b=4)
    plan = qs.plan(qs.queries(schema, a=[[1, -1, 1, -1, 1, -1]]), COST, solver="fourier")
    assert isinstance(plan.solutions[-1].strategy, FourierStrategy)
    with pytest.raises(qs.OutsideMeasuredSpaceError):
        plan.variances(qs.queries(schema, a="prefix"))


def test_what_is_too_large_falls_back_and_says_so(monkeypatch, limit_planning):
    from querysmasher.planning import solvers

    limit_planning(dense_cells=50)
    monkeypatch.setattr(solvers, "is_thin", lambda *_: False)
    schema = qs.Schema.of(a=10, b=10)
    workload = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2) + qs.affine(schema, "a", "b")
    plan = qs.plan(workload, COST, centering="uniform")
    ((method, (count, gap)),) = plan.fallbacks.items()
    assert (method, count) == ("structured", 1)
    assert gap > 0
    assert "1 attribute set is too large to find the optimum quickly: structured strategies" in repr(plan)
    for solver in ("structured", *MECHANISMS):
        other = qs.plan(workload, COST, solver=solver, centering="uniform")
        assert plan.weighted_rmse <= other.weighted_rmse * (1 + 1e-9)


def test_queries_that_look_alike_from_every_cell_fall_back_to_fourier(monkeypatch, limit_planning):
    """A stencil moved around a torus is not a product: of two fallbacks, only Fourier is optimal there."""
    from querysmasher.planning import solvers

    schema = qs.Schema.of(a=10, b=10)
    stencil = np.zeros((10, 10))
    stencil[0, :3] = stencil[1, 0] = 1
    rows = [np.roll(stencil, (i, j), (0, 1)).ravel() for i in range(10) for j in range(10)]
    around = qs.linear(schema, ("a", "b"), np.array(rows))
    dense = qs.plan(around, COST, centering="uniform")
    assert dense.fallbacks == {}
    limit_planning(dense_cells=50, joint_dense_cells=50)
    monkeypatch.setattr(solvers, "is_thin", lambda *_: False)
    plan = qs.plan(around, COST, centering="uniform")
    ((method, (count, gap)),) = plan.fallbacks.items()
    assert (method, count) == ("fourier", 1)
    assert gap < 1e-9
    assert plan.rmse == pytest.approx(dense.rmse, rel=1e-3)
    assert plan.rmse < 0.999 * qs.plan(around, COST, solver="structured", centering="uniform").rmse


@pytest.mark.slow
def test_a_comparison_with_products_on_more_cells_than_dense_strategies_take_is_planned():
    schema = qs.Schema.of(a=80, b=80)
    assert limits().dense_cells < 80 * 80
    workload = qs.all_kway(schema, [1, 2], "prefix") + qs.affine(schema, "a", "b") + qs.marginals(schema, 2)
    plan = qs.plan(workload, COST, centering="uniform")
    assert plan.fallbacks
    assert plan.gap < 0.2


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_the_scale_of_a_basis_does_not_matter(scale):
    workload = qs.all_kway(cube(4, 2), [1, 2], "prefix")
    basis = [[scale, 0, 0, 0], [0, scale, 0, 0], [0, 0, scale, 0]]
    plan = qs.plan(workload, COST, solver="basis", bases={"a0": basis})
    same = qs.plan(workload, COST, solver="basis", bases={"a0": np.eye(4)[:3]})
    assert plan.rmse == pytest.approx(same.rmse)


@pytest.mark.parametrize("rows", [[[1, 1, 1]], [[0, 0, 0]], [[2, 2, 2], [1, 1, 1]]])
@pytest.mark.parametrize("solver", SOLVERS)
def test_queries_that_tell_no_values_apart(rows, solver):
    schema = cube(3, 2)
    workload = qs.queries(schema, a0=rows) + qs.marginals(schema, 0) + qs.queries(schema, a1="prefix")
    plan = qs.plan(workload, COST, solver=solver)
    assert plan.gap < 0.1


def test_a_chosen_basis_serves_queries_that_tie_the_attribute_to_another():
    schema = cube(4, 2)
    workload = qs.queries(schema, a0=[[1, 0, 0, 0]]) + qs.affine(schema, "a0", "a1")
    plan = qs.plan(workload, COST, solver="basis")
    assert plan.rmse >= qs.plan(workload, COST, centering="uniform").rmse * (1 - 1e-3)
