"""The total error of a workload as a function of its attributes' centres, with its exact gradient.

The total is F(w) = Σ_A √(c_A L_A(w)), which the budget's optimal shares turn into the error. For a block
with Gram G and optimal weights p, √L = tr(D^½ G D^½)^½ with D = diag(p), and by the envelope theorem
d√L = ½ tr(Ξ dG) with Ξ = D^½ (D^½ G D^½)^{†½} D^½ and p fixed. Everything else is the chain rule
through coefficients, Kronecker products and q ↦ q·⊗(C or w).

Blocks too large to solve repeatedly are only estimated, as a guide for the search: mixed ones by the sum of
their terms' own optima, thin ones at the weights p that were best for uniform centres, and joint full-rank
ones as constants. `Evaluation.is_exact` says whether the value is exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre
from querysmasher.planning.centres.block import Optimum, contract, optimum_of
from querysmasher.planning.centres.gradient import RoleSplit
from querysmasher.planning.centres.products import PartKey, Products
from querysmasher.planning.centres.roles import Coefficient, Roles, SetClass
from querysmasher.planning.centres.slopes import Slopes
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.circulant import circulant_root_loss, is_circulant
from querysmasher.planning.solvers.design import Design
from querysmasher.planning.solvers.optimize import solve_design
from querysmasher.planning.solvers.roots import block_root, is_thin, stacked_rows
from querysmasher.planning.subworkload import Block, Part, Piece, Term, separate


@dataclass(frozen=True, eq=False)
class Evaluation:
    """F at some centres, with its derivative with respect to every role's centre."""

    value: float
    gradients: list[Array]
    is_exact: bool
    """Whether the value is exact, rather than an estimate."""
    is_heavy: bool
    """Whether it took seconds, so that a search can afford only few."""


@dataclass(frozen=True, eq=False)
class Scalars:
    """All that F depends on where every class is a product: squares σ by family, and √L by part."""

    squares: list[float]
    roots: dict[PartKey, float]


class CentreModel:
    """F and its gradient for given centres, one per role."""

    def __init__(
        self, roles: Roles, sensitivities: tuple[int, int], free: Collection[int] | None = None
    ) -> None:
        """Take the classes of a workload, and the budget's factors for the total and for other sets.

        Only the `free` roles move (by default all): the others keep the centres of the first evaluation, and
        what depends on no other centre is computed once. They have no gradient.
        """
        self.roles = roles
        self.free = frozenset(range(len(roles.sizes)) if free is None else free)
        self._is_exact = True
        self._is_tight = False
        self._is_heavy = False
        self._starts: dict[object, Array] = {}
        self._solved: dict[Block, Optimum] = {}
        self._fresh: dict[Block, Optimum] = {}
        self._settled: dict[Block, Optimum] = {}
        self._settled_roots: dict[int, float] = {}
        self._constants: dict[object, float] = {}
        factors = [math.sqrt(sensitivities[bool(c.roles)]) * c.count for c in roles.classes]
        counted = [(c, f) for c, f in zip(roles.classes, factors, strict=True) if f]
        self._mixed = [(c, f) for c, f in counted if len(c.terms) > 1]
        single = [(c, f) for c, f in counted if len(c.terms) == 1]
        self.products = Products([c for c, _ in single], [f for _, f in single], len(roles.families))
        mixing = {n for c, _ in self._mixed for term in c.terms for n, _, _ in term.uses}
        first = 0
        self.families: list[RoleSplit] = []
        self._moving: set[int] = set()
        """The numbers of parts that some free centre changes."""
        for number, family in enumerate(roles.families):
            moves = not self.free.isdisjoint(family.roles)
            own = RoleSplit(family, first, moves=moves, whole=number in mixing)
            self.families.append(own)
            following = first + 2 ** len(family.roles)
            if moves:
                self._moving.update(range(first, following))
            first = following

    def at(self, centres: Sequence[Centre], *, tight: bool = False) -> Evaluation:
        """Evaluate F; `tight` solves blocks as exactly as derivatives need near the minimum."""
        self._is_exact, self._is_tight = True, tight
        self._fresh = {}
        parts: dict[PartKey, Part] = {}
        squares: list[float] = []
        roots: dict[PartKey, float] = {}
        for number, split_ in enumerate(self.families):
            square, own = split_.at(centres)
            squares.append(square)
            parts |= {(number, kept): part for kept, part in own.items()}
            if split_.closed_root is not None:
                roots[number, (0,)] = split_.closed_root
        slopes = Slopes()
        for key in self.products.parts:
            if key in parts:
                roots[key] = self._root_loss(parts[key])
        total, by_squares, by_roots = self.products.at(squares, roots)
        slopes.squares.update(enumerate(by_squares.tolist()))
        for key, slope in zip(self.products.parts, by_roots.tolist(), strict=True):
            if key in parts and parts[key].number in self._moving:
                optimum = self._solve(Block.of(parts[key]))
                if not optimum.constant:  # d√L = ½ tr(Ξ dG)
                    slopes.add_part(parts[key], slope / 2, optimum.root)
        for one, factor in self._mixed:
            total += self._add_class(one, factor, squares, parts, slopes)
        gradients = [np.zeros(n) for n in self.roles.sizes]
        for number, split_ in enumerate(self.families):
            if split_.moves:
                own = {kept: part for (n, kept), part in parts.items() if n == number}
                by_part = {kept: (part, slopes.of_part(part)) for kept, part in own.items()}
                moved = {kept: (part, slope) for kept, (part, slope) in by_part.items() if slope is not None}
                split_.add_gradient(slopes.squares.get(number, 0.0), moved, centres, gradients)
        for role in set(range(len(gradients))).difference(self.free):
            gradients[role][:] = 0.0
        self._solved = self._fresh
        return Evaluation(total, gradients, self._is_exact, self._is_heavy)

    @property
    def is_all_products(self) -> bool:
        """Whether every class of sets is a single Kronecker product."""
        return not self._mixed

    def scalars(self, centres: Sequence[Centre]) -> Scalars | None:
        """Return what families that stay leave, or None if some of it can only be estimated."""
        self._is_exact = True
        found = Scalars([], {})
        for number, split_ in enumerate(self.families):
            square, own = (0.0, {}) if split_.moves else split_.at(centres)
            found.squares.append(square)
            if split_.closed_root is not None:
                found.roots[number, (0,)] = split_.closed_root
            found.roots.update({(number, kept): self._root_loss(part) for kept, part in own.items()})
        return found if self._is_exact else None

    def _root_loss(self, part: Part) -> float:
        """Return √L of a part alone; one that stays and looks the same from every cell has a closed form."""
        if part.number in self._moving:
            return self._solve(Block.of(part)).root_loss
        if part.number not in self._settled_roots:
            block = Block.of(part)
            closed = is_circulant(block)
            root = circulant_root_loss(block) if closed else self._solve(block).root_loss
            self._settled_roots[part.number] = root
        return self._settled_roots[part.number]

    def _add_class(
        self,
        one: SetClass,
        factor: float,
        squares: list[float],
        parts: dict[PartKey, Part],
        slopes: Slopes,
    ) -> float:
        """Return factor × √L of a class of sets, and add its derivatives to `slopes`."""
        terms: list[Term] = []
        sources = []
        for uses, products in one.terms:
            coefficient = sum(w * math.prod(squares[n] for n in dropped) for w, dropped in products)
            known = all((n, kept) in parts for n, kept, _ in uses)
            if known and coefficient > 0:
                terms.append(Term(coefficient, tuple(Piece(on, parts[n, kept]) for n, kept, on in uses)))
                sources.append(products)
        if not terms:
            return 0.0
        scale, blocks = separate(tuple(terms))
        solved = [(placed, self._optimum(placed.block)) for placed in blocks]
        if any(optimum is None for _, optimum in solved):
            self._is_exact = False
            return self._add_surrogate(terms, sources, factor, squares, slopes)
        value = factor * math.sqrt(scale) * math.prod(o.root_loss for _, o in solved if o)
        # tr(Ξ_block · ⊗ pieces) of every term and block; their products give the derivative
        for term, products in zip(terms, sources, strict=True):
            shares = [contract(optimum, placed, term) for placed, optimum in solved if optimum]
            slope = factor / 2 * math.prod(s.value for s in shares) / math.sqrt(scale)
            _add_coefficient(slope, products, squares, slopes)
            for place, share in enumerate(shares):
                others = math.prod(s.value for i, s in enumerate(shares) if i != place)
                weight = factor / 2 * term.coefficient * others / math.sqrt(scale)
                for part, derivative in share.derivatives:
                    slopes.add_part(part, weight, derivative)
        return value

    def _add_surrogate(
        self,
        terms: list[Term],
        sources: Sequence[Sequence[Coefficient]],
        factor: float,
        squares: list[float],
        slopes: Slopes,
    ) -> float:
        """Use L ≈ Σ_terms c · Π L(piece), the sum of the terms' own optima."""
        optima = [[self._solve(Block.of(piece.part)) for piece in term.pieces] for term in terms]
        losses = [math.prod(o.root_loss**2 for o in own) for own in optima]
        total = math.sqrt(sum(term.coefficient * loss for term, loss in zip(terms, losses, strict=True)))
        for term, own, loss, products in zip(terms, optima, losses, sources, strict=True):
            _add_coefficient(factor / (2 * total) * loss, products, squares, slopes)
            for piece, optimum in zip(term.pieces, own, strict=True):
                if not optimum.constant:
                    weight = factor / (2 * total) * term.coefficient * loss / optimum.root_loss
                    slopes.add_part(piece.part, weight, optimum.root)
        return factor * total

    def _optimum(self, block: Block) -> Optimum | None:
        """Return a block's optimum, or None if it is too large."""
        mixed = any(len(term.pieces) > 1 for term in block.terms)
        return None if mixed and block.cells > limits().joint_cells else self._solve(block)

    def _solve(self, block: Block) -> Optimum:
        """Return a block's optimum, searched from its last weights, or an estimate."""
        if block in self._fresh:
            return self._fresh[block]
        if block in self._settled:
            return self._settled[block]
        if all(piece.part.number not in self._moving for piece in block.pieces):
            self._settled[block] = self._solved_anew(block, tight=block.cells <= limits().light_cells)
            return self._settled[block]
        if block in self._solved:  # nothing it depends on has changed
            self._fresh[block] = self._solved[block]
            return self._solved[block]
        self._fresh[block] = self._solved_anew(block, tight=self._is_tight)
        return self._fresh[block]

    def _solved_anew(self, block: Block, *, tight: bool) -> Optimum:
        key = (block.shape, tuple((piece.axes, piece.part.number) for piece in block.pieces))
        largest = limits().thin_cells if is_thin(block) else limits().joint_cells
        if block.cells > largest and len(block.shape) > 1:
            self._is_exact = False
            return self._estimate(block, key)
        start = self._starts.get(key, np.full(block.cells, 1.0 / block.cells))
        tight = tight or block.cells <= limits().tight_cells
        gap = limits().tight_gap if tight else limits().search_gap
        if block.cells > limits().heavy_cells:
            self._is_heavy = True
            gap = limits().heavy_gap
            start = 0.99 * start + 0.01 * start.mean()  # weights at the boundary leave it slowly
        design = solve_design(block_root(block, strict=False), np.maximum(start, 1e-9 * start.max()), gap)
        self._starts[key] = design.weights / design.weights.sum()
        return optimum_of(design)

    def _estimate(self, block: Block, key: object) -> Optimum:
        if not is_thin(block):
            if key not in self._constants:
                root = block_root(block, strict=False)
                self._constants[key] = Design.at(root, np.full(block.cells, 1.0 / block.cells)).value
            return Optimum(self._constants[key], np.zeros((0, block.cells)), constant=True)
        if key not in self._starts:
            uniform = np.full(block.cells, 1.0 / block.cells)
            weights = solve_design(block_root(block, strict=False), uniform, 1e-3).weights
            self._starts[key] = weights / weights.sum()
        p = self._starts[key]
        rows = stacked_rows(block)
        squares, Q = np.linalg.eigh((rows * p) @ rows.T)
        keep = squares > 1e-12 * squares[-1]
        s = np.sqrt(squares[keep])
        return Optimum(float(s.sum()), (Q[:, keep].T @ rows) * p / s[:, None] ** 1.5)


def _add_coefficient(
    slope: float,
    products: Sequence[Coefficient],
    squares: list[float],
    slopes: Slopes,
) -> None:
    """Propagate the derivative with respect to a coefficient to the squares in it."""
    for weight, dropped in products:
        for place, number in enumerate(dropped):
            others = math.prod(squares[n] for i, n in enumerate(dropped) if i != place)
            slopes.squares[number] = slopes.squares.get(number, 0.0) + slope * weight * others
