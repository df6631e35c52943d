"""Strategies that are diagonal in a product basis, for blocks that are too large to write out.

V is restricted to (⊗Bᵢ)ᵀ diag(h) (⊗Bᵢ) with one basis Bᵢ per attribute. With g the diagonal of the
block's Gram in that basis and S = ⊗(Bᵢ∘Bᵢ), the best h solves  min Σ g/h  s.t. Sᵀh ≤ 1, whose dual is
max over p of Σ √(g·Sp), h = √(g/Sp): it needs products along axes only. Kronecker strategies are the
case h = 1, and Fourier strategies the case of Fourier bases.

For Bᵢ, take the optimal strategy of a blend of the axis's Grams and rotate its rows so that one of the
Grams becomes diagonal. Several blends and rotations are tried and the best is kept.

Weighted Fourier Factorizations: in the Fourier basis, with g the energy of the queries at each frequency, the
best diagonal is ∝ √g and reaches √L = Σ √(g/N), in closed form. It is the optimum of the queries averaged
over all shifts, hence optimal where shifts change nothing (marginals, circular ranges; `dense`) and the
more wasteful the more they do. Centres must be uniform: only then does the residual space shift into itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array, along_axes, pseudo_inverse
from querysmasher.planning.centre import Centre
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.bounds import lower_bound
from querysmasher.planning.solvers.design import Iterate, Progress, fixed_point
from querysmasher.planning.solvers.optimum import solve_dense
from querysmasher.planning.strategies import DiagonalStrategy, FourierStrategy
from querysmasher.planning.subworkload import Block, Part, Piece, Term

FLOOR = 1e-12
"""Minimum energy of a basis row, as a fraction of the largest, so that no row is unmeasured."""

NOTHING = 1e-13
"""Energies below this fraction of the largest are rounding error."""

CHUNK = 20_000_000
"""Maximum number of entries transformed at a time."""

BLENDS = (0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
"""Shares of the strongest term's Gram that are tried in the blend of an axis."""


def solve_structured(block: Block, tolerance: float, progress: Progress | None = None) -> Solution:
    """Return the best strategy found that is diagonal in a Kronecker basis, with a certified gap."""
    terms = sorted(block.terms, key=lambda term: -term.energy)
    forms = [_axis_forms(terms, axis) for axis in range(len(block.shape))]
    start = np.full(block.cells, 1.0)
    best: _DiagonalDesign | None = None
    most = max(map(len, forms))
    for blend in BLENDS if most > 1 else (1.0,):
        axes = [_optimum(_blended(own, blend), w) for own, w in zip(forms, block.centres, strict=True)]
        for turn in range(min(most, 3)):
            turned = [
                _rotated(*axis, own[min(turn, len(own) - 1)]) for axis, own in zip(axes, forms, strict=True)
            ]
            problem = _DiagonalProblem([basis for basis, _ in turned], _energies(terms, turned))
            found = fixed_point(problem.at, start, 1e-3, 8)
            best = found if best is None or found.upper < best.upper else best
    assert best is not None  # noqa: S101 - there is at least one candidate
    problem = best.problem
    found = fixed_point(problem.at, best.weights, tolerance / 4, 120, progress)
    weights = found.h / found.leverages.max()
    # rows at the floor add no loss
    reached = math.sqrt(float((problem.energies / weights).sum()))
    return Solution(
        DiagonalStrategy(tuple(problem.bases), weights), reached, lower_bound(block), "structured"
    )


@dataclass(frozen=True, eq=False)
class _DiagonalProblem:
    """Minimise Σ g/h subject to Sᵀh ≤ 1."""

    bases: list[Array]
    energies: Array

    @cached_property
    def g(self) -> Array:
        """The energies, with a floor so that no row is unmeasured."""
        return np.maximum(self.energies, FLOOR * self.energies.max())

    @cached_property
    def squares(self) -> list[Array]:
        return [b**2 for b in self.bases]

    def at(self, weights: Array) -> _DiagonalDesign:
        p = weights.reshape([s.shape[1] for s in self.squares])
        Sp = along_axes(p, 0, [s.T for s in self.squares])
        h = np.sqrt(self.g / Sp)
        leverages = along_axes(h, 0, self.squares).ravel()
        return _DiagonalDesign(weights, leverages, float(np.sqrt(self.g * Sp).sum()), self, h)


@dataclass(frozen=True, eq=False)
class _DiagonalDesign(Iterate):
    """Weights of the cells and the resulting h, with the bounds of the restricted problem."""

    problem: _DiagonalProblem
    h: Array


def _axis_forms(terms: Sequence[Term], axis: int) -> list[Array]:
    """Return the distinct Grams on one axis, strongest term first, scaled to unit trace.

    A joint part contributes its partial trace over the other axes.
    """
    forms: dict[Part, Array] = {}
    for piece in (piece for term in terms for piece in term.pieces):
        if axis in piece.axes and piece.part not in forms:
            form = piece.part.partial_trace(piece.axes.index(axis))
            forms[piece.part] = form / np.trace(form)
    return list(forms.values())


def _blended(forms: list[Array], share: float) -> Array:
    if len(forms) == 1:
        return forms[0]
    return share * forms[0] + (1 - share) * sum(forms[1:], np.zeros(())) / (len(forms) - 1)


def _optimum(gram: Array, centre: Centre) -> tuple[Array, Array]:
    """Return the optimal strategy's rows for one axis, inside its residual space, and their dual basis."""
    block = Block.of(Part((len(gram),), (centre,), gram))
    basis = solve_dense(block, 1e-2).strategy.written_out()
    return basis, pseudo_inverse(basis)


def _rotated(basis: Array, dual: Array, form: Array) -> tuple[Array, Array]:
    """Rotate rows so that `form` becomes diagonal in their dual basis, and this with them."""
    _, turn = np.linalg.eigh(dual.T @ form @ dual)
    return turn.T @ basis, dual @ turn


def _energies(terms: Sequence[Term], turned: Sequence[tuple[Array, Array]]) -> Array:
    """Return the diagonal of the block's Gram in the dual of the Kronecker basis."""
    return _outer_sum(terms, lambda piece: piece.part.energies([turned[a][1] for a in piece.axes]))


def _outer_sum(terms: Sequence[Term], tensor: Callable[[Piece], Array]) -> Array:
    """Return the sum over terms of the outer products of their pieces' tensors, with axes in order."""
    total: Array = np.zeros(())
    for term in terms:
        product = np.full((), term.coefficient)
        order: list[int] = []
        for piece in term.pieces:
            product = np.multiply.outer(product, tensor(piece))
            order.extend(piece.axes)
        total = total + product.transpose(np.argsort(order))
    return total


def solve_fourier(block: Block, tolerance: float = 0.0, progress: Progress | None = None) -> Solution:  # noqa: ARG001
    """Return the best strategy diagonal in the Fourier basis: a closed form, whatever the tolerance."""
    energy = _outer_sum(block.terms, lambda piece: fourier_energies(piece.part))
    for axis in range(energy.ndim):  # only rounding errors: residuals have no constant
        np.moveaxis(energy, axis, 0)[0] = 0.0
    energy[energy < NOTHING * energy.max()] = 0.0
    roots = np.sqrt(energy)
    reached = float(roots.sum()) / math.sqrt(block.cells)
    strategy = FourierStrategy(roots * (block.cells / roots.sum()))
    return Solution(strategy, reached, min(reached, lower_bound(block)), "fourier")


def fourier_energies(part: Part) -> Array:
    """Return the energies of a part's queries at every frequency: they sum to its trace."""
    axes = tuple(range(len(part.shape)))
    total = np.zeros(part.shape)
    if part.thin:
        step = max(1, CHUNK // part.cells)
        for start in range(0, len(part.content), step):
            rows = part.content[start : start + step].reshape(-1, *part.shape)
            total += (np.abs(np.fft.fftn(rows, axes=[1 + a for a in axes])) ** 2).sum(axis=0)
        return total / part.cells
    for cell, row in zip(np.ndindex(part.shape), part.content, strict=True):  # averaged over all shifts
        total += np.roll(row.reshape(part.shape), [-c for c in cell], axes)
    return np.maximum(np.fft.fftn(total).real / part.cells, 0.0)
