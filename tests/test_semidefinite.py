"""Semidefinite programs, where the optimum is known."""

import numpy as np
import pytest

from tests.semidefinite import Program


@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 1), (3, 5)])
def test_the_least_trace_beside_a_given_matrix(n, m):
    """Of all T with [[X, B], [Bᵀ, T]] positive semidefinite, BᵀX⁻¹B has the least trace."""
    rng = np.random.default_rng(n + m)
    root, sides = rng.standard_normal((n, n + 2)), rng.standard_normal((n, m))
    given = root @ root.T
    program = Program()
    X, T = program.symmetric(n), program.symmetric(m)
    for sign in (1.0, -1.0):
        program.require(X.reshape(-1, 1), sign, -sign * given.ravel())
    program.require_semidefinite(X, sides, T)
    expected = np.trace(sides.T @ np.linalg.solve(given, sides))
    assert program.minimum(np.diagonal(T)) == pytest.approx(expected, rel=1e-6)


def test_linear_inequalities_alone():
    program = Program()
    x = program.variables(3)
    program.require(x, np.eye(3), [-1.0, 2.0, -3.0])  # x >= (1, -2, 3)
    assert program.minimum(x, [1.0, 10.0, 100.0]) == pytest.approx(281)


def test_what_no_matrix_satisfies_is_no_optimum():
    program = Program()
    X, T = program.symmetric(1), program.symmetric(1)
    program.require(X, -1.0, -1.0)  # X <= -1
    program.require_semidefinite(X, np.ones((1, 1)), T)
    with pytest.raises(AssertionError, match="Infeasible"):
        program.minimum(T.ravel())
