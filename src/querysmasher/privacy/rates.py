"""Exact conversions between definitions of privacy: cost, ρ, ε, δ and Rényi ε. See `budget` for the formulas.

Every conversion errs on the safe side: rounding can make a guarantee look weaker, never stronger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import BudgetError, as_given

Vector = NDArray[np.float64]

LIMITS = {
    "cost": (1e-100, 1e100),
    "rho": (1e-30, 1e30),
    "mu": (1e-30, 1e30),
    "epsilon": (1e-30, 1e30),
    "delta": (1e-300, math.nextafter(1.0, 0.0)),
    "alpha": (math.nextafter(1.0, 2.0), 1e100),
}
"""The smallest and the largest value of each parameter: far beyond use, and safe from over- and underflow."""

USUAL = {"cost": "1.0", "rho": "0.5", "mu": "1.0", "epsilon": "1.0", "delta": "1e-6", "alpha": "2"}
"""A usual value of each parameter, for messages."""

SLACK = 1e-14  # relative error assumed for erfcx, ndtr and logarithms: dozens of times the observed one


def delta(cost: float, epsilon: float) -> float:
    """Return the smallest δ such that privacy cost β is (ε, δ)-DP with continuous noise, rounded up."""
    return exact_delta(number("cost", cost), number("epsilon", epsilon, zero=True))


def epsilon(cost: float, delta: float) -> float:
    """Return the smallest ε such that privacy cost β is (ε, δ)-DP with continuous noise, rounded up."""
    cost, delta = number("cost", cost), number("delta", delta)
    return 0.0 if exact_delta(cost, 0.0) <= delta else switch(lambda e: exact_delta(cost, e) > delta)[1]


def renyi(cost: float, alpha: float) -> float:
    """Return the ε of Rényi DP of order α > 1 of privacy cost β: α β/2."""
    return number("alpha", alpha) * number("cost", cost) / 2


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the smallest δ such that ρ-zCDP is known to imply (ε, δ)-DP, rounded up.

    Every order α = 1 + a proves δ <= exp(a(αρ - ε)) (1 - 1/α)^α / a (Canonne, Kamath, Steinke 2020,
    Prop. 12). The exponent is convex in a, and whichever a is found, the δ is valid.
    """
    rho, epsilon = number("rho", rho), number("epsilon", epsilon, zero=True)

    def gain(a: Vector) -> Vector:
        gain, loss = a * epsilon + bonus(a), a * (1 + a) * rho
        return gain - loss - SLACK * (gain + loss)

    return min(max(math.exp(-peak(gain)) * (1 + SLACK), LIMITS["delta"][0]), 1.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest ε such that ρ-zCDP is known to imply (ε, δ)-DP, rounded up."""
    rho, delta = number("rho", rho), number("delta", delta)

    def gain(a: Vector) -> Vector:
        gain, loss = bonus(a) / a, (1 + a) * rho - math.log(delta) / a
        return gain - loss - SLACK * (gain + loss)

    return max(-peak(gain), 0.0)


def exact_delta(cost: float, epsilon: float) -> float:
    """Return an upper bound on the exact δ that exceeds it by rounding only.

    With μ = √β, c = ε/μ - μ/2, x = ε/μ + μ/2 and the Mills ratio M = (1 - Φ)/φ the exact formula reads
    δ = φ(c) (M(c) - M(x)), free of huge factors. Where c and x are close, the difference cancels and the
    trapezoidal rule for -M'(z) = 1 - z M(z) takes over, an upper bound because -M' is convex. Last, c is
    wrong by two units in the last place of x at most, and ∂δ/∂c = -φ(c) μ M(x) with x M(x) < 1.
    """
    from scipy.special import ndtr  # noqa: PLC0415 - loads slowly, and only (ε, δ) needs it

    ulp, mu = 2.0**-52, math.sqrt(cost)
    c, x = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    density = math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
    A = density * _mills(c) if c > 0 else float(ndtr(-c))
    B = density * _mills(x)
    difference = A - B + SLACK * (A + B)
    trapezoid = mu / 2 * (2 * density - c * A - x * B + SLACK * (2 * density + abs(c) * A + x * B))
    bound = min(difference, trapezoid) * (1 + (c * c + 8) * ulp) + 4 * ulp * mu * density
    return min(max(bound, LIMITS["delta"][0]), 1.0)


def _mills(z: float) -> float:
    """Return (1 - Φ(z)) / φ(z)."""
    from scipy.special import erfcx  # noqa: PLC0415 - loads slowly, and only (ε, δ) needs it

    return math.sqrt(math.pi / 2) * float(erfcx(z / math.sqrt(2)))


def bonus(a: Vector) -> Vector:
    """Return -log((1 - 1/α)^α / a) at α = 1 + a: what the conversion gains over the classical one."""
    gained: Vector = np.log1p(a) + a * np.log1p(1 / a)
    return gained


def peak(function: Callable[[Vector], Vector]) -> float:
    """Return the largest value found of a function of a > 0 that rises, then falls."""
    grid = np.linspace(-100, 100, 2001)  # of log a
    for _ in range(3):
        top = int(np.clip(np.argmax(function(np.exp(grid))), 1, grid.size - 2))
        grid = np.linspace(grid[top - 1], grid[top + 1], grid.size)
    return float(np.max(function(np.exp(grid))))


def switch(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return adjacent doubles, the first where `holds` is true and the second where it is false.

    `holds` is true for small positive numbers and false for large ones.
    """
    low = high = 1.0
    while not holds(low):
        low, high = low / 2, low
    while holds(high):
        low, high = high, high * 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def rounded(exact: Fraction, *, up: bool) -> float:
    """Return the nearest float that is not below a fraction, or with up=False not above it."""
    near = float(exact)
    if Fraction(near) == exact or (Fraction(near) > exact) == up:
        return near
    return math.nextafter(near, math.inf if up else -math.inf)


def root_up(square: Fraction) -> float:
    """Return the square root, rounded up."""
    root = math.sqrt(square)
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)


def number(name: str, value: object, zero: bool = False) -> float:
    """Return a number as a plain float; refuse one outside its limits."""
    least, most = LIMITS[name]
    if (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and (least <= value <= most or (zero and value == 0))
    ):
        return float(value)
    allowed = f"0 or a number from {least} to {most}" if zero else f"a number from {least} to {most}"
    raise BudgetError(f"{name}: expected {allowed}, such as {USUAL[name]}, got {as_given(value)}")


def readable(value: float, *, up: bool = True, digits: int = 6) -> float:
    """Return a number of at most so many digits that is no smaller, or with up=False no larger.

    A budget that is rounded up suffices wherever the exact one does, and a guarantee that is rounded up
    holds. What is left is rounded down: it may be spent.

    >>> readable(0.008534985602845095), readable(0.1), readable(2 / 3, up=False)
    (0.00853499, 0.1, 0.666666)
    """
    near = float(f"{value:.{digits}g}")
    if near == value or (near > value) == up:
        return near
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return float(context.create_decimal(Decimal(value)))
