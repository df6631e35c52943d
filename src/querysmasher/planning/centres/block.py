"""The optimum of a block and its derivative: √L, and Ξ with d√L = ½ tr(Ξ dG)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.solvers.design import Design
from querysmasher.planning.subworkload import Part, Piece, PlacedBlock, Term


@dataclass(frozen=True, eq=False)
class Optimum:
    """A block's optimum: √L, and rows Z with Ξ = ZᵀZ over its cells."""

    root_loss: float
    root: Array
    constant: bool = False
    contractions: dict[tuple[Piece, ...], Contraction] = field(default_factory=dict)
    """Contractions computed so far, by the pieces of a term."""


def optimum_of(design: Design) -> Optimum:
    """Return the optimum of a solved design."""
    total = design.weights.sum()
    p, s = design.weights / total, design.roots / math.sqrt(total)
    return Optimum(float(s.sum()), design.image * p / s[:, None] ** 1.5)


@dataclass(frozen=True, eq=False)
class Contraction:
    """tr(Ξ · ⊗ pieces) over one block, and rows U with ∂/∂(piece's Gram) = UᵀU for each piece."""

    value: float
    derivatives: list[tuple[Part, Array]]


def contract(optimum: Optimum, placed: PlacedBlock, term: Term) -> Contraction:
    """Contract a block's Ξ with the pieces of a term on its axes, or reuse a known result."""
    if optimum.constant:
        return Contraction(optimum.root_loss, [])
    place = {axis: i for i, axis in enumerate(placed.axes)}
    own = tuple(piece.moved(place) for piece in term.on(place))
    if own in optimum.contractions:
        return optimum.contractions[own]
    shape = placed.block.shape
    derivatives = []
    root = optimum.root
    for piece in own:
        tensor = root.reshape(-1, *shape)
        for other in own:
            if other.axes != piece.axes:  # multiply by the root of the other piece's Gram
                matrix = other.part.root.reshape(-1, *other.part.shape)
                at = [1 + a for a in other.axes]
                tensor = np.tensordot(tensor, matrix, axes=(at, range(1, matrix.ndim)))
                for a in sorted(other.axes):  # keep the other axes where they were
                    tensor = np.expand_dims(tensor, 1 + a)
                tensor = np.moveaxis(tensor, -1, 0).reshape(-1, *tensor.shape[1:-1])
        derivatives.append((piece.part, tensor.reshape(-1, piece.part.cells) if len(own) > 1 else root))
    first, derivative = derivatives[0]
    image = derivative @ first.root.T
    optimum.contractions[own] = Contraction(float(np.vdot(image, image)), derivatives)
    return optimum.contractions[own]
