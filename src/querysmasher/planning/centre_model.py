"""The total error of a workload as a function of its attributes' centres, with its exact gradient.

The total is F(w) = Σ_A √(c_A L_A(w)), which the budget's optimal shares turn into the error. For a block
with Gram G and optimal weights p, √L = tr(D^½ G D^½)^½ with D = diag(p), and by the envelope theorem
d√L = ½ tr(Ξ dG) with Ξ = D^½ (D^½ G D^½)^{†½} D^½ while p stays put. Everything else is the chain rule
through coefficients, Kronecker products and q ↦ q·⊗(C or w).

Blocks too large to solve again and again are only estimated, as a guide for the search: mixed ones by the
sum of their terms' own optima, thin ones at the weights p that were best for uniform centres, and joint
full-rank ones as constants. `exact` says whether the value is the true one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre_block import Optimum, contract, optimum_of
from querysmasher.planning.centre_split import RoleSplit
from querysmasher.planning.roles import Kept, Roles, SetClass
from querysmasher.planning.solvers.design import Design
from querysmasher.planning.solvers.optimize import solve_design
from querysmasher.planning.solvers.roots import block_root, is_thin
from querysmasher.planning.subworkload import Block, Part, Term, split

JOINT_CELLS = 400
"""Blocks on several attributes are solved exactly up to this many cells."""

THIN_CELLS = 6_000
"""Thin ones up to this many: beyond, their weights are not optimised again when centres move."""

HEAVY_CELLS = 1_000
"""A block over this many makes an evaluation take seconds: the search must do with few of them."""

GAP, TIGHT_GAP, HEAVY_GAP = 1e-5, 1e-8, 1e-4
"""How exactly blocks are solved. The value, being a maximum, is then far more exact, but derivatives are not:
small blocks, where it costs nothing, and a search that gets stuck are solved more tightly."""

TIGHT_CELLS = 64

PartKey = tuple[int, Kept]


@dataclass(eq=False)
class _Slopes:
    """Derivatives of F by what centres determine: contents of parts, and factors of coefficients."""

    parts: dict[tuple[PartKey, int], tuple[float, Array]] = field(default_factory=dict)
    """By part and derivative: a weight w and rows U, which stand for w·UᵀU."""
    squares: dict[int, float] = field(default_factory=dict)

    def add_part(self, key: PartKey, weight: float, derivative: Array) -> None:
        """Add weight × UᵀU to the derivative with respect to a part's Gram."""
        known, _ = self.parts.get((key, id(derivative)), (0.0, derivative))
        self.parts[key, id(derivative)] = (known + weight, derivative)

    def of_part(self, key: PartKey, part: Part) -> Array | None:
        """Return the derivative with respect to a part's rows (thin) or Gram."""
        total = None
        for (own, _), (weight, U) in self.parts.items():
            if own == key:
                change = 2 * weight * (part.content @ U.T) @ U if part.thin else weight * U.T @ U
                total = change if total is None else total + change
        return total


class CentreModel:
    """F and its gradient for given centres, one per role."""

    def __init__(self, roles: Roles, sensitivities: tuple[int, int]) -> None:
        """Take the classes of a workload, and the budget's factors for the total and for other sets."""
        self.roles = roles
        self.sensitivities = sensitivities
        self.exact = True
        self.tight = False
        self.heavy = False
        self._starts: dict[object, Array] = {}
        self._solved: dict[object, Optimum] = {}
        self._fresh: dict[object, Optimum] = {}
        self._constants: dict[object, float] = {}
        self._families = [RoleSplit(f) for f in roles.families]

    def value_and_gradient(self, centres: list[Array]) -> tuple[float, list[Array]]:
        """Return F and its derivative with respect to every role's centre."""
        self.exact = True
        self._fresh = {}
        parts: dict[int, Part] = {}
        numbers: dict[PartKey, int] = {}
        squares: list[float] = []
        for number, split_ in enumerate(self._families):
            square, own = split_.at(centres)
            squares.append(square)
            for kept, part in own.items():
                numbers[number, kept] = len(numbers)
                parts[numbers[number, kept]] = part
        keys = {n: key for key, n in numbers.items()}
        optima: dict[Block, Optimum | None] = {}
        slopes = _Slopes()
        total = 0.0
        for one in self.roles.classes:
            factor = math.sqrt(self.sensitivities[bool(one.roles)]) * one.count
            if factor:
                total += self._add_class(one, factor, squares, numbers, keys, parts, optima, slopes)
        gradients = [np.zeros(n) for n in self.roles.sizes]
        by_part = {key: slopes.of_part(key, parts[n]) for key, n in numbers.items()}
        for number, split_ in enumerate(self._families):
            moved = {kept: slope for (n, kept), slope in by_part.items() if n == number and slope is not None}
            split_.add_gradient(slopes.squares.get(number, 0.0), moved, centres, gradients)
        self._solved = self._fresh
        return total, gradients

    def _add_class(
        self,
        one: SetClass,
        factor: float,
        squares: list[float],
        numbers: dict[PartKey, int],
        keys: dict[int, PartKey],
        parts: dict[int, Part],
        optima: dict[Block, Optimum | None],
        slopes: _Slopes,
    ) -> float:
        """Return factor × √L of a class of sets, and add its derivatives to `slopes`."""
        terms: list[Term] = []
        sources = []
        for uses, products in one.terms:
            coefficient = sum(w * math.prod(squares[n] for n in dropped) for w, dropped in products)
            known = all((n, kept) in numbers for n, kept, _ in uses)
            if known and coefficient > 0:
                terms.append((coefficient, tuple((on, numbers[n, kept]) for n, kept, on in uses)))
                sources.append(products)
        if not terms:
            return 0.0
        shape = tuple(self.roles.sizes[r] for r in one.roles)
        scale, blocks = split(shape, tuple(terms))
        solved = [(axes, block, self._optimum(block, parts, optima)) for axes, block in blocks]
        if any(optimum is None for _, _, optimum in solved):
            self.exact = False
            return self._add_surrogate(terms, sources, factor, squares, keys, parts, optima, slopes, shape)
        value = factor * math.sqrt(scale) * math.prod(o.root_loss for _, _, o in solved if o)
        # tr(Ξ_block · ⊗ pieces) of every term and block; their products make the derivative
        for (coefficient, pieces), products in zip(terms, sources, strict=True):
            shares = [contract(o, axes, block.shape, pieces, parts) for axes, block, o in solved if o]
            slope = factor / 2 * math.prod(s.value for s in shares) / math.sqrt(scale)
            _add_coefficient(slope, products, squares, slopes)
            for place, share in enumerate(shares):
                others = math.prod(s.value for i, s in enumerate(shares) if i != place)
                weight = factor / 2 * coefficient * others / math.sqrt(scale)
                for number, derivative in share.derivatives:
                    slopes.add_part(keys[number], weight, derivative)
        return value

    def _add_surrogate(
        self,
        terms: list[Term],
        sources: list[tuple[tuple[float, tuple[int, ...]], ...]],
        factor: float,
        squares: list[float],
        keys: dict[int, PartKey],
        parts: dict[int, Part],
        optima: dict[Block, Optimum | None],
        slopes: _Slopes,
        shape: tuple[int, ...],
    ) -> float:
        """Use L ≈ Σ_terms c · Π L(piece), the sum of the terms' own optima."""
        losses = []
        for coefficient, pieces in terms:
            own = []
            for axes, number in pieces:
                block = Block(tuple(shape[a] for a in axes), ((1.0, ((tuple(range(len(axes))), number),)),))
                optimum = self._optimum(block, parts, optima, single=True)
                assert optimum is not None  # noqa: S101 - single pieces are always solved
                own.append(optimum)
            losses.append((coefficient, own))
        total = math.sqrt(sum(c * math.prod(o.root_loss**2 for o in own) for c, own in losses))
        for (coefficient, pieces), (_, own), products in zip(terms, losses, sources, strict=True):
            square = math.prod(o.root_loss**2 for o in own)
            _add_coefficient(factor / (2 * total) * square, products, squares, slopes)
            for (_, number), optimum in zip(pieces, own, strict=True):
                if optimum.constant:
                    continue
                weight = factor / (2 * total) * coefficient * square / optimum.root_loss
                slopes.add_part(keys[number], weight, optimum.root)
        return factor * total

    def _optimum(
        self,
        block: Block,
        parts: dict[int, Part],
        optima: dict[Block, Optimum | None],
        *,
        single: bool = False,
    ) -> Optimum | None:
        """Return a block's optimum, from the last weights on, or None if it is too large."""
        mixed = any(len(pieces) > 1 for _, pieces in block.terms)
        if mixed and block.cells > JOINT_CELLS and not single:
            return None
        if block not in optima:
            optima[block] = self._solve(block, parts)
        return optima[block]

    def _solve(self, block: Block, parts: dict[int, Part]) -> Optimum:
        same = (block, tuple(parts[n].digest for _, pieces in block.terms for _, n in pieces))
        if same in self._solved:  # nothing it depends on has moved
            self._fresh[same] = self._solved[same]
            return self._solved[same]
        key = (block.shape, tuple(pieces for _, pieces in block.terms))
        largest = THIN_CELLS if is_thin(block, parts) else JOINT_CELLS
        if block.cells > largest and len(block.shape) > 1:
            self.exact = False
            self._fresh[same] = self._estimate(block, parts, key)
            return self._fresh[same]
        start = self._starts.get(key, np.full(block.cells, 1.0 / block.cells))
        gap = TIGHT_GAP if self.tight or block.cells <= TIGHT_CELLS else GAP
        if block.cells > HEAVY_CELLS:
            self.heavy = True
            gap, start = (
                HEAVY_GAP,
                0.99 * start + 0.01 * start.mean(),
            )  # weights on the edge are slow to leave it
        design = solve_design(
            block_root(block, parts, strict=False), np.maximum(start, 1e-9 * start.max()), gap
        )
        self._starts[key] = design.weights / design.weights.sum()
        self._fresh[same] = optimum_of(design)
        return self._fresh[same]

    def _estimate(self, block: Block, parts: dict[int, Part], key: object) -> Optimum:
        if not is_thin(block, parts):
            if key not in self._constants:
                root = block_root(block, parts, strict=False)
                self._constants[key] = Design.at(root, np.full(block.cells, 1.0 / block.cells)).value
            return Optimum(self._constants[key], np.zeros((0, block.cells)), constant=True)
        if key not in self._starts:
            uniform = np.full(block.cells, 1.0 / block.cells)
            weights = solve_design(block_root(block, parts, strict=False), uniform, 1e-3).weights
            self._starts[key] = weights / weights.sum()
        p = self._starts[key]
        rows = np.concatenate([math.sqrt(c) * parts[n].content for c, ((_, n),) in block.terms])
        squares, Q = np.linalg.eigh((rows * p) @ rows.T)
        keep = squares > 1e-12 * squares[-1]
        s = np.sqrt(squares[keep])
        return Optimum(float(s.sum()), (Q[:, keep].T @ rows) * p / s[:, None] ** 1.5)


def _add_coefficient(
    slope: float,
    products: tuple[tuple[float, tuple[int, ...]], ...],
    squares: list[float],
    slopes: _Slopes,
) -> None:
    """Pass the derivative with respect to a coefficient on to the squares it is made of."""
    for weight, dropped in products:
        for place, number in enumerate(dropped):
            others = math.prod(squares[n] for i, n in enumerate(dropped) if i != place)
            slopes.squares[number] = slopes.squares.get(number, 0.0) + slope * weight * others
