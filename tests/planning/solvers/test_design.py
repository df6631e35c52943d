"""Weight designs: gradients, Hessians, certificates, and the two iterations."""

import math

import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, example, given
from hypothesis import strategies as st

from querysmasher.planning.limits import limited
from querysmasher.planning.solvers import design as design_module
from querysmasher.planning.solvers.design import (
    Design,
    Levelled,
    fixed_point,
    hessian,
    interior_point,
    solve_design,
)
from querysmasher.workload.families import Prefix, Range
from querysmasher.workload.joint import AbsDifference, Affine
from tests.profiles import fewer
from tests.reference import complement, kron, loss, optimal_loss
from tests.strategies import full_rank_matrices, integer_arrays, seeds


def centred_rows(family):
    """Independent rows R with RᵀR the Gram of a family's part on all its attributes."""
    inside = kron([complement(np.full(n, 1.0 / n)) for n in family.shape])
    _, values, vectors = np.linalg.svd(family.matrix() @ inside.T, full_matrices=False)
    keep = values > 1e-10 * values[0]
    return (values[keep, None] * vectors[keep]) @ inside


def random_design(seed, rank=4, cells=7):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rank, cells)), rng.uniform(0.1, 1.0, cells)


@st.composite
def designs(draw, rank=4, cells=7, least=1):
    """Independent rows, and weights of which some may be zero if `least` is."""
    weights = draw(integer_arrays((cells,), least, 10)) / 10
    return draw(full_rank_matrices(rank, cells)), weights


def trace_root(R, p):
    return float(np.sqrt(np.maximum(np.linalg.eigvalsh((R * p) @ R.T), 0)).sum())


@given(designs())
def test_leverages_are_the_gradient_of_twice_the_trace_root(drawn):
    R, p = drawn
    design = Design.at(R, p)
    step = 1e-5
    for j, unit in enumerate(np.eye(len(p))):
        slope = (trace_root(R, p + step * unit) - trace_root(R, p - step * unit)) / step
        assert design.leverages[j] == pytest.approx(slope, rel=1e-4)


def exact_hessian(s, Y):
    kernel = 1 / (np.multiply.outer(s, s) * np.add.outer(s, s))
    return np.einsum("ai,bi,aj,bj,ab->ij", Y, Y, Y, Y, kernel)


@given(designs())
def test_the_hessian_by_quadrature_is_the_sum_over_eigenvectors(drawn):
    R, p = drawn
    design = Design.at(R, p)
    exact = exact_hessian(design.roots, design.image)
    fine = hessian(design.roots, design.image, spacing=0.2)
    np.testing.assert_allclose(fine, exact, atol=2e-4 * exact.max())
    coarse = hessian(design.roots, design.image)
    np.testing.assert_allclose(coarse, exact, atol=2e-2 * exact.max())


@given(designs())
def test_the_hessian_is_minus_the_slope_of_the_leverages(drawn):
    R, p = drawn
    design = Design.at(R, p)
    step = 1e-5
    slopes = [
        (Design.at(R, p - step * unit).leverages - Design.at(R, p + step * unit).leverages) / (2 * step)
        for unit in np.eye(len(p))
    ]
    exact = exact_hessian(design.roots, design.image)
    np.testing.assert_allclose(np.array(slopes).T, exact, rtol=1e-3, atol=1e-5 * exact.max())


@fewer(40)
@given(designs(rank=3, cells=6, least=0))
def test_any_weights_certify_the_optimum_from_both_sides(drawn):
    R, p = drawn
    assume(np.linalg.matrix_rank(R * p) == 3)
    design = Design.at(R, p)
    optimum = np.sqrt(optimal_loss(R.T @ R, scipy.linalg.orth(R.T).T))
    assert design.value <= optimum * (1 + 1e-6)
    assert optimum <= design.upper * (1 + 1e-6)
    assert design.gap == pytest.approx(design.upper / design.value - 1)


@given(designs(rank=5, cells=8))
def test_the_hessian_in_single_precision_is_nearly_that_in_double(drawn):
    design = Design.at(*drawn)
    exact = hessian(design.roots, design.image)
    rough = hessian(design.roots, design.image, single=True)
    np.testing.assert_allclose(rough, exact, atol=1e-5 * np.abs(exact).max())


def test_the_interior_point_goes_on_in_double_where_single_precision_fails(monkeypatch, limit_planning):
    tried = []

    def fails_at_first(s, Y, *, single):
        tried.append(single)
        H = hessian(s, Y)
        return H - 2 * np.eye(len(H)) * np.abs(H).max() if single else H

    limit_planning(light_cells=10)
    monkeypatch.setattr(design_module, "hessian", fails_at_first)
    R = centred_rows(AbsDifference((5, 5)))
    weights = interior_point(R, np.full(25, 1.0 / 25), 1e-6)
    assert tried[0]
    assert not any(tried[1:])
    assert Design.at(R, weights).gap <= 1e-6


@given(designs())
def test_the_strategy_of_a_design_has_unit_sensitivity_and_the_loss_it_claims(drawn):
    R, p = drawn
    design = Design.at(R, p)
    B = design.strategy()
    assert (B**2).sum(axis=0).max() == pytest.approx(1.0, abs=1e-12)
    assert np.sqrt(loss(R.T @ R, B)) == pytest.approx(design.upper, rel=1e-8)


@given(designs(rank=5, cells=6))
def test_a_design_of_the_gram_matrix_is_that_of_the_rows(drawn):
    R, p = drawn
    one, two = Design.at(R, p), Levelled.of_gram(R.T @ R, len(R), p)
    np.testing.assert_allclose(two.roots, one.roots, rtol=1e-6)
    np.testing.assert_allclose(two.leverages, one.leverages, rtol=1e-6)


@given(full_rank_matrices(5, 5), integer_arrays((5,), 1, 9))
def test_a_levelled_design_states_the_loss_of_its_strategy(R, p):
    design = Levelled.of_gram(R.T @ R, 5, p / p.sum())
    B = design.strategy()
    np.testing.assert_allclose((B**2).sum(axis=0), 1.0)
    assert np.sqrt(loss(R.T @ R, B)) == pytest.approx(design.upper, rel=1e-6)
    np.testing.assert_allclose(design.inverse, np.linalg.inv(B.T @ B), rtol=1e-5, atol=1e-7)


@fewer(40)
@given(full_rank_matrices(5, 5))
def test_one_square_root_bounds_the_optimum_from_both_sides(R):
    """Σs² ≤ L ≤ tr(G V⁻¹) with s = diag G^½ and V = D G^½ D, and one step from uniform weights is p ∝ s²."""
    gram = R.T @ R
    design = Design.at(R, np.ones(5))
    root = np.real(scipy.linalg.sqrtm(gram))
    s = np.diagonal(root)
    np.testing.assert_allclose(design.leverages, s, rtol=1e-6)
    scale = 1 / np.sqrt(s)
    V = root * np.outer(scale, scale)
    optimum = optimal_loss(gram, np.eye(5))
    assert s @ s <= Design.at(R, s**2).value ** 2 * (1 + 1e-9)
    assert Design.at(R, s**2).value ** 2 <= optimum * (1 + 1e-6)
    assert optimum <= np.trace(gram @ np.linalg.inv(V)) * (1 + 1e-6)


def test_weights_need_not_sum_to_one():
    R, p = random_design(0)
    one, two = Design.at(R, p), Design.at(R, 7 * p)
    assert one.value == pytest.approx(two.value)
    assert one.upper == pytest.approx(two.upper)


def test_a_singular_design_is_still_certified_honestly():
    R, p = random_design(1)
    p[1:] = 0.0  # a single cell: M has rank one
    design = Design.at(R, p)
    optimum = np.sqrt(optimal_loss(R.T @ R, scipy.linalg.orth(R.T).T))
    assert design.value <= optimum
    assert np.isfinite(design.value)
    assert design.upper >= optimum


# --- iterations --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Prefix((8,)), Range((9,)), Prefix((40,))], ids=str)
def test_the_fixed_point_is_fast_where_the_optimum_is_dense(family):
    R = centred_rows(family)
    design = fixed_point(lambda p: Design.at(R, p), np.full(R.shape[1], 1.0), 1e-6, 29)
    assert design.gap <= 1e-6
    assert design.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("family", [Affine((6, 6)), AbsDifference((6, 6)), Affine((3, 7))], ids=str)
def test_the_interior_point_reaches_sparse_optima(family):
    R = centred_rows(family)
    weights = interior_point(R, np.full(R.shape[1], 1.0), 1e-7)
    assert weights.sum() == pytest.approx(1.0)
    assert weights.min() > 0
    design = Design.at(R, weights)
    assert design.gap <= 1e-7
    assert np.mean(weights < 1e-4 * weights.max()) > 0.25  # sparse indeed


@pytest.mark.parametrize("family", [Affine((4, 4)), AbsDifference((4, 4)), Affine((2, 5))], ids=str)
def test_sparse_optima_equal_those_of_the_semidefinite_program(family):
    R = centred_rows(family)
    design = solve_design(R, np.full(R.shape[1], 1.0), 1e-7)
    inside = kron([complement(np.full(n, 1.0 / n)) for n in family.shape])
    assert design.value**2 == pytest.approx(optimal_loss(R.T @ R, inside), rel=1e-5)
    assert design.gap <= 1e-7


def test_both_iterations_find_the_same_optimum():
    R = centred_rows(Prefix((7,)))
    start = np.full(7, 1.0)
    one = fixed_point(lambda p: Design.at(R, p), start, 1e-9, 60)
    two = Design.at(R, interior_point(R, start, 1e-9))
    assert one.value == pytest.approx(two.value, rel=1e-8)
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-4)


@example(5915)  # where the interior-point method comes too close to the boundary
@fewer(40)
@given(seeds)
def test_the_active_set_finds_the_optimum_of_all_cells(seed):
    R, _ = random_design(seed, rank=4, cells=90)
    start = np.full(90, 1.0)
    whole = Design.at(R, interior_point(R, start, 1e-6))
    with limited(light_cells=10):
        design = design_module._on_active_cells(
            R, lambda p: Design.at(R, p), Design.at(R, start / 90), 1e-5, True, 8
        )
    assert design.gap <= 1e-5
    assert design.value == pytest.approx(whole.value, rel=2e-5)
    assert np.sum(design.weights > 0) < 60  # most cells never took part


def test_large_thin_problems_take_the_active_set_and_meet_the_tolerance(monkeypatch, limit_planning):
    taken = []
    active_set = design_module._on_active_cells
    monkeypatch.setattr(design_module, "_on_active_cells", lambda *a: taken.append(a) or active_set(*a))
    limit_planning(light_cells=100)
    R = centred_rows(AbsDifference((14, 14)))
    assert 3 * len(R) < R.shape[1]
    design = solve_design(R, np.full(R.shape[1], 1.0), 1e-5)
    assert len(taken) == 1
    assert design.gap <= 1e-5
    monkeypatch.undo()
    assert design.value == pytest.approx(solve_design(R, np.full(R.shape[1], 1.0), 1e-6).value, rel=1e-5)


def test_long_steps_are_not_taken_where_enough_is_reached(monkeypatch, limit_planning):
    R = centred_rows(AbsDifference((14, 14)))
    start = np.full(R.shape[1], 1.0)
    monkeypatch.setattr(design_module, "interior_point", lambda *_: pytest.fail("the long steps were taken"))
    limit_planning(interior_work=1.0)
    design = solve_design(R, start, 1e-9, enough=0.05)
    assert 1e-9 < design.gap <= 0.05
    for work, enough in ((1.0, 0.0), (math.inf, 0.05)):
        limit_planning(interior_work=work)
        with pytest.raises(pytest.fail.Exception):
            solve_design(R, start, 1e-9, enough=enough)


def test_the_best_iterate_is_kept_when_the_tolerance_is_out_of_reach():
    R = centred_rows(Affine((5, 5)))
    start = np.full(25, 1.0)
    first = Design.at(R, start / 25)
    design = fixed_point(lambda p: Design.at(R, p), start, 0.0, 15)
    assert design.gap <= first.gap
    assert solve_design(R, start, 1e-16).gap < 1e-6
