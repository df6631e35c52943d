"""How much privacy may be spent, in four currencies, and the exact rates between them.

Whatever the currency, a plan spends *privacy cost*: the β of a Gaussian linear mechanism, the largest
diagonal entry of Bᵀ Σ⁻¹ B, where B are the measured queries and Σ is the covariance of their noise.
In terms of β, continuous Gaussian noise is

- μ-Gaussian DP with μ = √β, from which everything else follows;
- ρ-zCDP with ρ = β/2, that is, Rényi DP of ε(α) = α β/2 for every α > 1;
- (ε, δ)-DP with δ = Φ(√β/2 - ε/√β) - e^ε Φ(-√β/2 - ε/√β), and no smaller δ (Balle, Wang 2018).

Discrete Gaussian noise is ρ-zCDP with the same ρ = β/2, and that is all that is claimed for it; ε and δ
follow through zCDP, by the best known rate (Canonne, Kamath, Steinke 2020, Prop. 12).

Every conversion errs on the safe side: rounding can make a guarantee look weaker, never stronger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from querysmasher.errors import BudgetError

Vector = NDArray[np.float64]

LIMITS = {
    "cost": (1e-100, 1e100),
    "rho": (1e-30, 1e30),
    "mu": (1e-30, 1e30),
    "epsilon": (1e-30, 1e30),
    "delta": (1e-300, math.nextafter(1.0, 0.0)),
    "alpha": (math.nextafter(1.0, 2.0), 1e100),
}
"""The least and the largest value of each number: far beyond use, and safe from over- and underflow."""

_SLACK = 1e-14  # relative error granted to erfcx, ndtr and logarithms: dozens of times what they show


@dataclass(frozen=True)
class Budget:
    """A privacy guarantee to be met: use `PrivacyCost`, `zCDP`, `GaussianDP` or `ApproxDP`.

    Args:
        neighbours: which tables must be hard to tell apart: "add_remove" (one has a record more) or
            "replace_one" (one record differs; the number of records is then public).
        records_per_person: how many records one person can have. Above 1 the guarantee is for whole
            persons; at 1 it is for single records.
    """

    neighbours: str = field(default="add_remove", kw_only=True)
    records_per_person: int = field(default=1, kw_only=True)

    _amounts: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check every field and make the numbers plain."""
        if type(self) is Budget:
            raise BudgetError("Budget itself cannot be built: use PrivacyCost, zCDP, GaussianDP or ApproxDP")
        for name in self._amounts:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.neighbours not in ("add_remove", "replace_one"):
            msg = f"neighbours: expected 'add_remove' or 'replace_one', got {self.neighbours!r}"
            raise BudgetError(msg)
        records = self.records_per_person
        whole = isinstance(records, int | np.integer) and not isinstance(records, bool)
        if not whole or not 1 <= records <= 10**9:
            msg = f"records_per_person: expected a whole number of at least 1, up to 10^9, got {records!r}"
            raise BudgetError(msg)
        object.__setattr__(self, "records_per_person", int(records))

    @cached_property
    def privacy_cost(self) -> float:
        """The β that a plan may spend in total."""
        return self._cost()

    @property
    def discrete_privacy_cost(self) -> float:
        """The β that a plan may spend in total when the noise is discrete Gaussian."""
        return self._discrete_cost()

    # `rho` and `mu` are cached, not plain, properties: a field of a subclass can take their place.
    @cached_property
    def rho(self) -> float:
        """The ρ of zCDP that the privacy cost amounts to."""
        return self.privacy_cost / 2

    @cached_property
    def mu(self) -> float:
        """The μ of Gaussian DP that the privacy cost amounts to with continuous noise."""
        root = math.sqrt(self.privacy_cost)
        enough = Fraction(root) ** 2 >= Fraction(self.privacy_cost)
        return root if enough else math.nextafter(root, math.inf)

    def delta_at(self, epsilon: float, *, discrete: bool = False) -> float:
        """Return the δ at this ε of a plan that spends all, with continuous or discrete noise."""
        if discrete:
            return zcdp_delta(self.discrete_privacy_cost / 2, epsilon)
        return delta(self.privacy_cost, epsilon)

    def epsilon_at(self, delta: float, *, discrete: bool = False) -> float:
        """Return the ε at this δ of a plan that spends all, with continuous or discrete noise."""
        if discrete:
            return zcdp_epsilon(self.discrete_privacy_cost / 2, delta)
        return epsilon(self.privacy_cost, delta)

    def renyi(self, alpha: float) -> float:
        """Return the ε of Rényi DP of order `alpha` of a plan that spends all."""
        return renyi(self.privacy_cost, alpha)

    def sensitivity(self, total: bool) -> int:
        """Return what max_j ‖B_j‖² is to be multiplied by to bound ‖B (x - x')‖² over neighbours x, x'.

        B_j is the j-th column of a strategy B; `total` says that B asks only for the number of records.
        Adding or removing r records moves Bx by at most r max_j ‖B_j‖, replacing them by at most twice
        that, and the number of records not at all.
        """
        factor = 1 if self.neighbours == "add_remove" else 0 if total else 4
        return self.records_per_person**2 * factor

    def describe(self) -> str:
        """Say in plain words what is guaranteed, and to whom."""
        change, public = "adding or removing", ""
        if self.neighbours == "replace_one":
            change, public = "replacing", ", the number of records being the same and public"
        whom, unit = "one record", "the record: a person who has several is protected less"
        if self.records_per_person > 1:
            whom = f"all records of one person, who has {self.records_per_person} at most"
            unit = "the person"
        return (
            f"The release satisfies {self._claim()}, for any two tables that differ by {change} "
            f"{whom}{public}. The unit of privacy is {unit}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `Budget.from_json` rebuilds this budget."""
        return {"kind": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Budget:
        """Rebuild a budget from what `to_json` returned."""
        fields = dict(data)
        kind = fields.pop("kind", None)
        if kind not in KINDS:
            msg = f"kind: expected one of {sorted(KINDS)}, got {kind!r}"
            raise BudgetError(msg)
        try:
            return KINDS[kind](**fields)
        except TypeError:
            msg = f"data: a {kind} cannot be made of the fields {sorted(fields)}"
            raise BudgetError(msg) from None

    def _cost(self) -> float:
        raise NotImplementedError

    def _discrete_cost(self) -> float:
        return self.privacy_cost

    def _claim(self) -> str:
        return f"zero-concentrated differential privacy with rho = {self.rho}"


@dataclass(frozen=True)
class PrivacyCost(Budget):
    """The privacy cost β itself.

    Formal guarantee: (β/2)-zCDP, with continuous and with discrete Gaussian noise; with continuous
    noise also √β-Gaussian DP.
    """

    cost: float

    _amounts: ClassVar[tuple[str, ...]] = ("cost",)

    def _cost(self) -> float:
        return self.cost


@dataclass(frozen=True)
class zCDP(Budget):  # noqa: N801  this is how the literature writes it
    """Zero-concentrated differential privacy (Bun, Steinke 2016).

    Formal guarantee: for neighbours x, x' and every α > 1, the Rényi divergence of order α between
    the releases is at most α ρ. Continuous and discrete Gaussian noise both meet it at β = 2ρ.
    """

    rho: float = field()

    _amounts: ClassVar[tuple[str, ...]] = ("rho",)

    def _cost(self) -> float:
        return 2 * self.rho


@dataclass(frozen=True)
class GaussianDP(Budget):
    """Gaussian differential privacy (Dong, Roth, Su 2022).

    Formal guarantee: telling neighbours x, x' apart from the release is at least as hard, for every
    test and level, as telling N(0, 1) from N(μ, 1). Continuous Gaussian noise meets it at β = μ².
    """

    mu: float = field()

    _amounts: ClassVar[tuple[str, ...]] = ("mu",)

    def _cost(self) -> float:
        square = self.mu**2
        return square if Fraction(square) <= Fraction(self.mu) ** 2 else math.nextafter(square, 0)

    def _discrete_cost(self) -> float:
        msg = (
            "mu: discrete Gaussian noise satisfies no exact Gaussian-DP guarantee, so GaussianDP"
            f"(mu={self.mu}) cannot be met with it; ask for zCDP(rho={self.mu**2 / 2}), rho = mu²/2, instead"
        )
        raise BudgetError(msg)

    def _claim(self) -> str:
        return f"Gaussian differential privacy with mu = {self.mu}"


@dataclass(frozen=True)
class ApproxDP(Budget):
    """(ε, δ)-differential privacy.

    Formal guarantee: for neighbours x, x' and every set S of outcomes, P(M(x) ∈ S) <= e^ε P(M(x') ∈ S) + δ.
    Continuous Gaussian noise meets it at the largest β whose exact δ(ε) is at most δ; discrete
    Gaussian noise at β = 2 `rho_for_discrete`.
    """

    epsilon: float
    delta: float

    _amounts: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    @cached_property
    def rho_for_discrete(self) -> float:
        """The largest ρ for which ρ-zCDP implies this (ε, δ), by the rate in `zcdp_delta`."""

        def rho(a: Vector) -> Vector:
            gain, loss = self.epsilon + _bonus(a) / a, -math.log(self.delta) / a
            return (gain - loss - _SLACK * (gain + loss)) / (1 + a)

        return _peak(rho)

    def _cost(self) -> float:
        return _switch(lambda cost: _delta(cost, self.epsilon) <= self.delta)[0]

    def _discrete_cost(self) -> float:
        return 2 * self.rho_for_discrete

    def _claim(self) -> str:
        return f"differential privacy with epsilon = {self.epsilon} and delta = {self.delta}"


KINDS: dict[str, type[Budget]] = {cls.__name__: cls for cls in (PrivacyCost, zCDP, GaussianDP, ApproxDP)}


def delta(cost: float, epsilon: float) -> float:
    """Return the smallest δ such that privacy cost β is (ε, δ)-DP with continuous noise, rounded up."""
    return _delta(_number("cost", cost), _number("epsilon", epsilon, zero=True))


def epsilon(cost: float, delta: float) -> float:
    """Return the smallest ε such that privacy cost β is (ε, δ)-DP with continuous noise, rounded up."""
    cost, delta = _number("cost", cost), _number("delta", delta)
    return 0.0 if _delta(cost, 0.0) <= delta else _switch(lambda e: _delta(cost, e) > delta)[1]


def renyi(cost: float, alpha: float) -> float:
    """Return the ε of Rényi DP of order α > 1 that privacy cost β amounts to: α β/2."""
    return _number("alpha", alpha) * _number("cost", cost) / 2


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the smallest δ such that ρ-zCDP is known to imply (ε, δ)-DP, rounded up.

    Every order α = 1 + a proves δ <= exp(a(αρ - ε)) (1 - 1/α)^α / a (Canonne, Kamath, Steinke 2020,
    Prop. 12). The exponent is convex in a, and whichever a is found, the δ is valid.
    """
    rho, epsilon = _number("rho", rho), _number("epsilon", epsilon, zero=True)

    def gain(a: Vector) -> Vector:
        gain, loss = a * epsilon + _bonus(a), a * (1 + a) * rho
        return gain - loss - _SLACK * (gain + loss)

    return min(max(math.exp(-_peak(gain)) * (1 + _SLACK), LIMITS["delta"][0]), 1.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest ε such that ρ-zCDP is known to imply (ε, δ)-DP, rounded up."""
    rho, delta = _number("rho", rho), _number("delta", delta)

    def gain(a: Vector) -> Vector:
        gain, loss = _bonus(a) / a, (1 + a) * rho - math.log(delta) / a
        return gain - loss - _SLACK * (gain + loss)

    return max(-_peak(gain), 0.0)


def _delta(cost: float, epsilon: float) -> float:
    """Return an upper bound on the exact δ that exceeds it by rounding only.

    With μ = √β, c = ε/μ - μ/2, x = ε/μ + μ/2 and the Mills ratio M = (1 - Φ)/φ the exact formula reads
    δ = φ(c) (M(c) - M(x)), free of huge factors. Where c and x are close, the difference cancels and the
    trapezoidal rule for -M'(z) = 1 - z M(z) takes over, an upper bound because -M' is convex. Last, c is
    wrong by two units in the last place of x at most, and ∂δ/∂c = -φ(c) μ M(x) with x M(x) < 1.
    """
    ulp, mu = 2.0**-52, math.sqrt(cost)
    c, x = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    density = math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
    A = density * _mills(c) if c > 0 else float(ndtr(-c))
    B = density * _mills(x)
    difference = A - B + _SLACK * (A + B)
    trapezoid = mu / 2 * (2 * density - c * A - x * B + _SLACK * (2 * density + abs(c) * A + x * B))
    bound = min(difference, trapezoid) * (1 + (c * c + 8) * ulp) + 4 * ulp * mu * density
    return min(max(bound, LIMITS["delta"][0]), 1.0)


def _mills(z: float) -> float:
    """Return (1 - Φ(z)) / φ(z)."""
    return math.sqrt(math.pi / 2) * float(erfcx(z / math.sqrt(2)))


def _bonus(a: Vector) -> Vector:
    """Return -log((1 - 1/α)^α / a) at α = 1 + a: what the conversion gains over the classical one."""
    gained: Vector = np.log1p(a) + a * np.log1p(1 / a)
    return gained


def _peak(function: Callable[[Vector], Vector]) -> float:
    """Return the largest value found of a function of a > 0 that rises, then falls."""
    grid = np.linspace(-100, 100, 2001)  # of log a
    for _ in range(3):
        top = int(np.clip(np.argmax(function(np.exp(grid))), 1, grid.size - 2))
        grid = np.linspace(grid[top - 1], grid[top + 1], grid.size)
    return float(np.max(function(np.exp(grid))))


def _switch(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return adjacent doubles, the first where `holds` is true and the second where it is false.

    `holds` is true of small positive numbers and false of large ones.
    """
    low = high = 1.0
    while not holds(low):
        low, high = low / 2, low
    while holds(high):
        low, high = high, high * 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _number(name: str, value: object, zero: bool = False) -> float:
    """Return a number within its limits as a plain float, or refuse it."""
    least, most = LIMITS[name]
    if (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and (least <= value <= most or (zero and value == 0))
    ):
        return float(value)
    allowed = f"0 or a number from {least} to {most}" if zero else f"a number from {least} to {most}"
    msg = f"{name}: expected {allowed}, got {value!r}"
    raise BudgetError(msg)
