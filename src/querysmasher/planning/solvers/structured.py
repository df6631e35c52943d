"""Strategies that are diagonal in a product basis, for blocks that are too large to write out.

V is restricted to (⊗Bᵢ)ᵀ diag(h) (⊗Bᵢ) with one basis Bᵢ per attribute. With g the diagonal of the
block's Gram in that basis and S = ⊗(Bᵢ∘Bᵢ), the best h solves  min Σ g/h  s.t. Sᵀh ≤ 1, whose dual is
max over p of Σ √(g·Sp), h = √(g/Sp): it needs products along axes only. Kronecker strategies are the
case h = 1, and Fourier strategies the case of Fourier bases.

For Bᵢ, take the optimal strategy of a blend of the axis's Grams and rotate its rows so that one of the
Grams becomes diagonal. Several blends and rotations are tried and the best is kept.

Weighted Fourier Factorizations: in the Fourier basis, with g the energy of the queries at each frequency, the
best diagonal is ∝ √g and reaches √L = Σ √(g/N), in closed form. It is the optimum of the queries averaged
over all shifts, hence optimal where shifts change nothing (marginals, circular ranges) and the more
wasteful the more they change. Centres must be uniform: only then does the residual space shift into itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from querysmasher.arrays import CHUNK, ROUNDING, Array, along_axes, pseudo_inverse
from querysmasher.planning.centre import Centre
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.bounds import lower_bound
from querysmasher.planning.solvers.design import Iterate, fixed_point
from querysmasher.planning.solvers.optimum import outer_product, solve_dense
from querysmasher.planning.split import Block, Part, Piece, Term
from querysmasher.planning.strategies import DiagonalStrategy, FourierStrategy

BLENDS = (0.5, 0.97)
"""Fractions of the strongest term's Gram that are tried in the blend of an axis."""


def solve_structured(block: Block, tolerance: float) -> Solution:
    """Return the best strategy found that is diagonal in a Kronecker basis, with a certified gap."""
    best = min(_designs(block), key=lambda design: design.upper)
    best = fixed_point(partial(_design, best.bases, best.energies), best.weights, tolerance / 4, 120)
    weights = best.h / best.leverages.max()
    # without the floor on g, which adds no loss
    reached = math.sqrt(float((best.energies / weights).sum()))
    strategy = DiagonalStrategy(tuple(best.bases), weights)
    return Solution(strategy, reached, lower_bound(block), "structured")


def _designs(block: Block) -> Iterator[_DiagonalDesign]:
    """Iterate over rough designs in the bases tried."""
    terms = sorted(block.terms, key=lambda term: -term.energy)
    forms = [_axis_forms(terms, axis) for axis in range(len(block.shape))]
    most = max(map(len, forms))
    for fraction in BLENDS if most > 1 else (1.0,):
        axes = [_optimum(grams, fraction, w) for grams, w in zip(forms, block.centres, strict=True)]
        for turn in range(min(most, 3)):
            bases, duals = [], []
            for (basis, dual), grams in zip(axes, forms, strict=True):
                # rotate rows so that one of the Grams becomes diagonal in their dual basis
                _, rotation = np.linalg.eigh(dual.T @ grams[min(turn, len(grams) - 1)] @ dual)
                bases.append(rotation.T @ basis)
                duals.append(dual @ rotation)
            energies = _outer_sum(terms, partial(_energies, duals))
            yield fixed_point(partial(_design, bases, energies), np.ones(block.cells), 1e-3, 8)


@dataclass(frozen=True, eq=False)
class _DiagonalDesign(Iterate):
    """Weights of the cells and the resulting h, with the bounds of the restricted problem."""

    h: Array
    bases: Sequence[Array]
    energies: Array
    """The diagonal of the block's Gram in the dual of the Kronecker basis."""


def _design(bases: Sequence[Array], energies: Array, weights: Array) -> _DiagonalDesign:
    """Return the design with h = √(g/Sp) for weights p of the cells."""
    g = np.maximum(energies, ROUNDING * energies.max())  # so that no row is unmeasured
    squares = [basis**2 for basis in bases]
    Sp = along_axes(weights.reshape([basis.shape[1] for basis in bases]), 0, [s.T for s in squares])
    h = np.sqrt(g / Sp)
    leverages = along_axes(h, 0, squares).ravel()
    return _DiagonalDesign(weights, leverages, float(np.sqrt(g * Sp).sum()), h, bases, energies)


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


def _optimum(forms: list[Array], fraction: float, centre: Centre) -> tuple[Array, Array]:
    """Return the optimal rows for a blend of one axis's Grams, and their dual basis."""
    gram = forms[0]
    if len(forms) > 1:
        gram = fraction * gram + (1 - fraction) * np.mean(forms[1:], axis=0)
    block = Block.of(Part((len(gram),), (centre,), gram))
    basis = solve_dense(block, 1e-2).strategy.written_out()
    return basis, pseudo_inverse(basis)


def _energies(duals: Sequence[Array], piece: Piece) -> Array:
    return piece.part.energies([duals[a] for a in piece.axes])


def _outer_sum(terms: Sequence[Term], tensor: Callable[[Piece], Array]) -> Array:
    """Return the sum over terms of the outer products of their pieces' tensors, with axes in order."""
    products = (
        term.coefficient * outer_product((tensor(piece), piece.axes) for piece in term.pieces)
        for term in terms
    )
    return reduce(np.add, products)


def solve_fourier(block: Block, tolerance: float = 0.0) -> Solution:  # noqa: ARG001
    """Return the best strategy diagonal in the Fourier basis: a closed form, whatever the tolerance."""
    energy = _outer_sum(block.terms, lambda piece: fourier_energies(piece.part))
    for axis in range(energy.ndim):  # only rounding errors: residuals have no constant
        np.moveaxis(energy, axis, 0)[0] = 0.0
    energy[energy < ROUNDING * energy.max()] = 0.0
    roots = np.sqrt(energy)
    reached = float(roots.sum()) / math.sqrt(block.cells)
    strategy = FourierStrategy(roots * (block.cells / roots.sum()))
    return Solution(strategy, reached, min(reached, lower_bound(block)), "fourier")


def fourier_energies(part: Part) -> Array:
    """Return the energies of a part's queries at every frequency: they sum to its trace."""
    total = np.zeros(part.shape)
    if part.thin:
        step, axes = max(1, CHUNK // part.cells), range(1, 1 + total.ndim)
        for start in range(0, len(part.content), step):
            rows = part.content[start : start + step].reshape(-1, *part.shape)
            total += (np.abs(np.fft.fftn(rows, axes=axes)) ** 2).sum(axis=0)
        return total / part.cells
    for cell, row in zip(np.ndindex(part.shape), part.content, strict=True):  # averaged over all shifts
        total += np.roll(row.reshape(part.shape), [-c for c in cell], tuple(range(total.ndim)))
    return np.maximum(np.fft.fftn(total).real / part.cells, 0.0)
