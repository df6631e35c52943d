"""Privacy budgets in four definitions of privacy, and the exact conversions between them.

Under every definition, a plan spends *privacy cost*: the β of a Gaussian linear mechanism, the largest
diagonal entry of Bᵀ Σ⁻¹ B, where B are the measured queries and Σ is the covariance of their noise.
In terms of β, continuous Gaussian noise is

- μ-Gaussian DP with μ = √β, from which everything else follows;
- ρ-zCDP with ρ = β/2, that is, Rényi DP of ε(α) = α β/2 for every α > 1;
- (ε, δ)-DP with δ = Φ(√β/2 - ε/√β) - e^ε Φ(-√β/2 - ε/√β), and no smaller δ (Balle, Wang 2018).

Discrete Gaussian noise is ρ-zCDP with the same ρ = β/2, and nothing more is claimed for it; ε and δ follow
from zCDP, by the best known conversion (Canonne, Kamath, Steinke 2020, Prop. 12).

Every conversion errs on the safe side: rounding can make a guarantee look weaker, never stronger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from html import escape
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import BudgetArgumentError, BudgetError, Explained, Remedy, as_given, explained
from querysmasher.privacy.unit import AttributeSets, Unit, sets_to_json


@dataclass(frozen=True, repr=False)
class Budget(Explained):
    """A privacy guarantee to meet: use `PrivacyCost`, `zCDP`, `GaussianDP` or `ApproxDP`.

    Args:
        neighbours: which tables must be hard to distinguish: "add_remove" (one has one more record) or
            "replace_one" (one record differs; the number of records is then public).
        records_per_person: maximum number of records of one person. Above 1 the guarantee protects persons;
            at 1 it protects single records.
        exact: attribute sets whose counts are published as they are, and are the same in neighbours; `plan`
            takes them as a workload.
    """

    neighbours: str = field(default="add_remove", kw_only=True)
    records_per_person: int = field(default=1, kw_only=True)
    exact: AttributeSets = field(default=(), kw_only=True)

    _amounts: ClassVar[tuple[str, ...]] = ()
    _instead: ClassVar[Mapping[str, str]] = {
        "+": "state one budget for one plan, as in qs.zCDP(rho=0.5); a Ledger adds up what releases spend",
        "*": "state the amount itself, as in qs.zCDP(rho=0.5)",
    }

    def __post_init__(self) -> None:
        """Check every field and convert the numbers to plain ones."""
        if type(self) is Budget:
            raise BudgetError("Budget is abstract: use PrivacyCost, zCDP, GaussianDP or ApproxDP")
        for name in self._amounts:
            object.__setattr__(self, name, number(name, getattr(self, name)))
        object.__setattr__(self, "neighbours", self.unit.neighbours)
        object.__setattr__(self, "records_per_person", self.unit.records_per_person)
        object.__setattr__(self, "exact", self.unit.exact)

    letter: ClassVar[str] = "rho"
    """Which amount states a guarantee of this kind: `rho`, `mu` or `epsilon`."""

    @property
    def stated_delta(self) -> float | None:
        """The δ that the guarantee states, or None if it states none."""
        return None

    def without(self, delta: Fraction) -> Budget:  # noqa: ARG002 - a kind that states a δ has less of it
        """Return what is left after δ was spent: the same, if the guarantee states no δ."""
        return self

    @cached_property
    def unit(self) -> Unit:
        """Whom the guarantee protects, without the amount of the budget."""
        return Unit(self.neighbours, self.records_per_person, self.exact)

    @cached_property
    def privacy_cost(self) -> float:
        """The β that a plan may spend in total."""
        raise NotImplementedError

    @property
    def discrete_privacy_cost(self) -> float:
        """The β that a plan may spend in total when the noise is discrete Gaussian."""
        return self.privacy_cost

    # `rho` and `mu` are cached, not plain, properties, so that a field of a subclass can replace them.
    @cached_property
    def rho(self) -> float:
        """The ρ of zCDP that corresponds to the privacy cost."""
        return self.privacy_cost / 2

    @cached_property
    def mu(self) -> float:
        """The μ of Gaussian DP that corresponds to the privacy cost with continuous noise."""
        return root_up(Fraction(self.privacy_cost))

    def delta_at(self, epsilon: float, *, discrete: bool = False) -> float:
        """Return the δ at this ε of a plan that spends the whole budget with continuous or discrete noise."""
        if discrete:
            return zcdp_delta(self.discrete_privacy_cost / 2, epsilon)
        return delta(self.privacy_cost, epsilon)

    def epsilon_at(self, delta: float, *, discrete: bool = False) -> float:
        """Return the ε at this δ of a plan that spends the whole budget with continuous or discrete noise."""
        if discrete:
            return zcdp_epsilon(self.discrete_privacy_cost / 2, delta)
        return epsilon(self.privacy_cost, delta)

    def renyi(self, alpha: float) -> float:
        """Return the ε of Rényi DP of order `alpha` of a plan that spends the whole budget."""
        return number("alpha", alpha) * self.privacy_cost / 2

    def describe(self, person: str | None = None) -> str:
        """Return in plain words what is guaranteed, and whom it protects; see `Unit.describe`.

        Amounts are rounded up to six digits, so the stated guarantee holds.
        """
        return f"The release satisfies {self.claim()}, {self.unit.describe(person)}"

    def __repr__(self) -> str:
        """Show the amounts, and the unit of privacy where it is not the default."""
        shown = {name: getattr(self, name) for name in self._amounts}
        shown |= {f.name: value for f in fields(Budget) if (value := getattr(self, f.name)) != f.default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _repr_html_(self) -> str:
        """Show in a notebook what the budget guarantees."""
        return f"<p><strong>{escape(repr(self))}</strong></p><p>{escape(self.describe())}</p>"

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `Budget.from_json` rebuilds this budget."""
        data = {"kind": type(self).__name__, **asdict(self), "exact": sets_to_json(self.exact)}
        return data if self.exact else {name: value for name, value in data.items() if name != "exact"}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Budget:
        """Rebuild a budget from what `to_json` returned."""
        amounts = dict(data)
        kind = amounts.pop("kind", None)
        if kind not in KINDS:
            raise BudgetError(f"kind: expected one of {sorted(KINDS)}, got {kind!r}")
        try:
            return KINDS[kind](**amounts)
        except TypeError:
            raise BudgetError(f"data: a {kind} does not have the fields {sorted(amounts)}") from None

    def claim(self) -> str:
        """Return the guarantee in words, rounded up to six digits."""
        return f"zero-concentrated differential privacy with rho = {readable(self.rho)}"


@explained("qs.PrivacyCost(1.0)", BudgetArgumentError)
@dataclass(frozen=True, repr=False)
class PrivacyCost(Budget):
    """The privacy cost β itself.

    Formal guarantee: (β/2)-zCDP, with continuous and with discrete Gaussian noise; with continuous
    noise also √β-Gaussian DP.
    """

    cost: float

    _amounts: ClassVar[tuple[str, ...]] = ("cost",)

    @cached_property
    def privacy_cost(self) -> float:
        return self.cost


@explained("qs.zCDP(rho=0.5), or qs.ApproxDP(epsilon=1.0, delta=1e-6)", BudgetArgumentError)
@dataclass(frozen=True, repr=False)
class zCDP(Budget):  # noqa: N801  this is how the literature writes it
    """Zero-concentrated differential privacy (Bun, Steinke 2016).

    Formal guarantee: for neighbours x, x' and every α > 1, the Rényi divergence of order α between
    the releases is at most α ρ. Continuous and discrete Gaussian noise both meet it at β = 2ρ.
    """

    rho: float = field()

    _amounts: ClassVar[tuple[str, ...]] = ("rho",)

    @cached_property
    def privacy_cost(self) -> float:
        return 2 * self.rho


@explained("qs.GaussianDP(mu=1.0)", BudgetArgumentError)
@dataclass(frozen=True, repr=False)
class GaussianDP(Budget):
    """Gaussian differential privacy (Dong, Roth, Su 2022).

    Formal guarantee: distinguishing neighbours x, x' from the release is at least as hard, for every
    test and level, as distinguishing N(0, 1) from N(μ, 1). Continuous Gaussian noise meets it at β = μ².
    """

    mu: float = field()

    _amounts: ClassVar[tuple[str, ...]] = ("mu",)
    letter: ClassVar[str] = "mu"

    @cached_property
    def privacy_cost(self) -> float:
        square = self.mu**2
        return square if Fraction(square) <= Fraction(self.mu) ** 2 else math.nextafter(square, 0)

    @property
    def discrete_privacy_cost(self) -> float:
        msg = (
            "mu: discrete Gaussian noise satisfies no exact Gaussian-DP guarantee, so Gaussian DP with mu = "
            f"{self.mu} cannot be met with it"
        )
        rho = readable(self.mu**2 / 2, up=False)
        remedy = Remedy(
            f"ask for zCDP(rho={rho}), rho = mu²/2, instead",
            f"ask for [budget] rho = {rho}, which is mu²/2, instead",
        )
        raise BudgetError(msg, remedy)

    def claim(self) -> str:
        return f"Gaussian differential privacy with mu = {readable(self.mu)}"


@explained("qs.ApproxDP(epsilon=1.0, delta=1e-6), or qs.zCDP(rho=0.5)", BudgetArgumentError)
@dataclass(frozen=True, repr=False)
class ApproxDP(Budget):
    """(ε, δ)-differential privacy.

    Formal guarantee: for neighbours x, x' and every set S of outcomes, P(M(x) ∈ S) <= e^ε P(M(x') ∈ S) + δ.
    Continuous Gaussian noise meets it at the largest β whose exact δ(ε) is at most δ; discrete
    Gaussian noise at β = 2 `rho_for_discrete`.
    """

    epsilon: float
    delta: float

    _amounts: ClassVar[tuple[str, ...]] = ("epsilon", "delta")
    letter: ClassVar[str] = "epsilon"

    @property
    def stated_delta(self) -> float:
        return self.delta

    def without(self, delta: Fraction) -> ApproxDP:
        left = rounded(Fraction(self.delta) - delta, up=False)
        if left < SMALLEST_DELTA:
            msg = f"delta: expected less than the delta = {self.delta!r} of the budget, got {float(delta):g}"
            raise BudgetError(msg)
        return replace(self, delta=left)

    @cached_property
    def rho_for_discrete(self) -> float:
        """The largest ρ for which ρ-zCDP implies this (ε, δ), by the conversion in `zcdp_delta`."""

        def rho(a: Vector) -> Vector:
            gain, loss = self.epsilon + bonus(a) / a, -math.log(self.delta) / a
            return (gain - loss - SLACK * (gain + loss)) / (1 + a)

        return peak(rho)

    @cached_property
    def privacy_cost(self) -> float:
        return switch(lambda cost: exact_delta(cost, self.epsilon) <= self.delta)[0]

    @property
    def discrete_privacy_cost(self) -> float:
        return 2 * self.rho_for_discrete

    def claim(self) -> str:
        epsilon, delta = readable(self.epsilon), readable(self.delta)
        return f"differential privacy with epsilon = {epsilon} and delta = {delta}"


KINDS: dict[str, type[Budget]] = {cls.__name__: cls for cls in (PrivacyCost, zCDP, GaussianDP, ApproxDP)}


Vector = NDArray[np.float64]

SMALLEST_DELTA = 1e-300

LIMITS = {
    "cost": (1e-100, 1e100, "1.0"),
    "rho": (1e-30, 1e30, "0.5"),
    "mu": (1e-30, 1e30, "1.0"),
    "epsilon": (1e-30, 1e30, "1.0"),
    "delta": (SMALLEST_DELTA, math.nextafter(1.0, 0.0), "1e-6"),
    "alpha": (math.nextafter(1.0, 2.0), 1e100, "2"),
}
"""The least and the largest value of each parameter, far beyond use and safe from over- and underflow, and a
usual one for messages."""

SLACK = 1e-14  # relative error assumed for erfcx, ndtr and logarithms: dozens of times the observed one


def delta(cost: float, epsilon: float) -> float:
    """Return the smallest δ such that privacy cost β is (ε, δ)-DP with continuous noise, rounded up."""
    return exact_delta(number("cost", cost), number("epsilon", epsilon, zero=True))


def epsilon(cost: float, delta: float) -> float:
    """Return the smallest ε such that privacy cost β is (ε, δ)-DP with continuous noise, rounded up."""
    cost, delta = number("cost", cost), number("delta", delta)
    return 0.0 if exact_delta(cost, 0.0) <= delta else switch(lambda e: exact_delta(cost, e) > delta)[1]


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the smallest δ such that ρ-zCDP is known to imply (ε, δ)-DP, rounded up.

    Every order α = 1 + a proves δ <= exp(a(αρ - ε)) (1 - 1/α)^α / a (Canonne, Kamath, Steinke 2020,
    Prop. 12). The exponent is convex in a, and whichever a is found, the δ is valid.
    """
    rho, epsilon = number("rho", rho), number("epsilon", epsilon, zero=True)

    def gain(a: Vector) -> Vector:
        gain, loss = a * epsilon + bonus(a), a * (1 + a) * rho
        return gain - loss - SLACK * (gain + loss)

    return min(max(math.exp(-peak(gain)) * (1 + SLACK), SMALLEST_DELTA), 1.0)


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
    return min(max(bound, SMALLEST_DELTA), 1.0)


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
    least, most, usual = LIMITS[name]
    if (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and (least <= value <= most or (zero and value == 0))
    ):
        return float(value)
    allowed = f"0 or a number from {least} to {most}" if zero else f"a number from {least} to {most}"
    raise BudgetError(f"{name}: expected {allowed}, such as {usual}, got {as_given(value)}")


def readable(value: float, *, up: bool = True, digits: int = 6) -> float:
    """Round a number up to at most `digits` significant digits, or down with up=False.

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
