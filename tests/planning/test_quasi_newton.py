"""The quasi-Newton search: minima of known functions, as accurate and as fast as scipy's."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import example, given, settings
from hypothesis import strategies as st

from querysmasher.planning.limit import minimize


def rosenbrock(x):
    return float(scipy.optimize.rosen(x)), scipy.optimize.rosen_der(x)


def theirs(objective, start, steps, gain, gradient):
    options = {"maxiter": steps, "ftol": gain, "gtol": gradient}
    return scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)


class Counted:
    """A function that counts how often it is evaluated."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, x):
        self.calls += 1
        return self.function(x)


@st.composite
def smooth_functions(draw):
    """log Σ exp(a·x - b) + x·D·x/2: smooth and strictly convex, and as curved in one direction as D says."""
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    entries = st.integers(-8, 8).map(lambda k: k / 4)
    A = np.array(draw(st.lists(entries, min_size=m * n, max_size=m * n))).reshape(m, n)
    b = np.array(draw(st.lists(entries, min_size=m, max_size=m)))
    D = 10.0 ** np.array(draw(st.lists(st.integers(-2, 2), min_size=n, max_size=n)))

    def function(x):
        exponents = A @ x - b
        top = exponents.max()
        parts = np.exp(exponents - top)
        value = top + np.log(parts.sum()) + x @ (D * x) / 2
        return float(value), A.T @ (parts / parts.sum()) + D * x

    return function, 3 * np.array(draw(st.lists(entries, min_size=n, max_size=n)))


@settings(max_examples=100)
@given(smooth_functions())
def test_minima_are_scipys(drawn):
    function, start = drawn
    ours, reference = Counted(function), Counted(function)
    found = minimize(ours, start, steps=500, gain=1e-11, gradient=1e-6)
    known = theirs(reference, start, 500, 1e-11, 1e-6)
    assert found.success
    assert found.value == function(found.x)[0]
    assert found.value == pytest.approx(float(known.fun), rel=1e-7, abs=1e-7)
    assert ours.calls <= 2 * reference.calls + 10


@pytest.mark.parametrize("n", [2, 10, 50])
def test_a_curved_valley(n):
    """The standard hard case, with about as many evaluations as scipy needs."""
    ours, reference = Counted(rosenbrock), Counted(rosenbrock)
    found = minimize(ours, np.zeros(n), steps=1000, gain=1e-15, gradient=1e-8)
    assert np.allclose(found.x, 1.0, atol=1e-6)
    theirs(reference, np.zeros(n), 1000, 1e-15, 1e-8)
    assert ours.calls <= 1.3 * reference.calls


@settings(max_examples=50)
@given(st.integers(1, 8), st.lists(st.integers(-6, 6), min_size=1, max_size=5))
@example(1, [0])
def test_it_never_climbs_and_keeps_to_its_steps(steps, start):
    x = np.array(start, dtype=float)
    function = Counted(lambda x: (float(np.sum(np.cosh(x))), np.sinh(x)))
    found = minimize(function, x, steps=steps, gain=0.0, gradient=1e-12)
    assert found.steps <= steps
    assert found.value <= np.sum(np.cosh(x))
    assert found.success == bool(np.abs(np.sinh(found.x)).max() <= 1e-12) or found.value == len(x)


def test_a_search_ends_where_a_step_gains_little():
    function = Counted(rosenbrock)
    rough = minimize(function, np.zeros(10), steps=1000, gain=1e-1)
    assert rough.success
    assert rough.steps < 20
    assert rough.value > 1e-3


def test_a_start_at_the_minimum_stays():
    found = minimize(lambda x: (float(x @ x), 2 * x), np.zeros(3), steps=10, gain=1e-9)
    assert (found.steps, found.success, found.value) == (0, True, 0.0)


def test_values_that_are_no_numbers_are_stepped_back_from():
    """Beyond x = 1 the function has no value; its minimum is just before."""

    def function(x):
        if x[0] >= 1:
            return float("nan"), np.array([np.nan])
        return float(-x[0] - 0.1 * np.log(1 - x[0])), np.array([-1 + 0.1 / (1 - x[0])])

    found = minimize(function, np.array([-5.0]), steps=100, gain=1e-14)
    assert found.x[0] == pytest.approx(0.9, abs=1e-4)


def test_wrong_derivatives_are_reported_as_being_stuck():
    """The search finds no step downhill if the gradient points the wrong way."""
    found = minimize(lambda x: (float(x @ x), -2 * x), np.array([1.0, 2.0]), steps=50, gain=1e-9)
    assert not found.success
    assert found.value == 5.0


@pytest.mark.parametrize("kink", [0.3, 0.0])
def test_a_kink_is_approached(kink):
    """|x - kink| + x²/10 has no derivative at its minimum: the search comes close and ends."""

    def function(x):
        return float(abs(x[0] - kink) + x[0] ** 2 / 10), np.array([np.sign(x[0] - kink) + x[0] / 5])

    found = minimize(function, np.array([2.0]), steps=200, gain=1e-10)
    assert found.steps < 200
    assert found.x[0] == pytest.approx(kink, abs=0.05)


def test_curvature_too_small_for_its_square_is_ignored():
    """Derivatives of about 3e-162, whose squares are the least numbers above zero."""

    def function(x):
        return 3e-162 * float(-x[0] + x[0] ** 2 / 8), 3e-162 * np.array([-1 + x[0] / 4])

    found = minimize(function, np.zeros(1), steps=20, gain=0.0, gradient=0.0)
    assert found.x[0] > 0.5


def test_a_gradient_without_length_is_no_direction():
    found = minimize(lambda x: (0.0, np.full(2, 1e-180)), np.zeros(2), steps=5, gain=0.0, gradient=0.0)
    assert not found.success
