"""The optimum of a block whose queries treat many values alike, by one weight for all cells of a kind.

Values of an axis are exchangeable if exchanging any two of them leaves the Gram matrix of every term as it
is. The value of a design (see `design`) is concave in its weights p, so some best weights are equal on all
cells that exchanges turn into each other: one number for every combination of classes of values. With such
weights P^½GP^½ commutes with all exchanges, so an orthogonal basis makes it block diagonal. On every axis the
basis has one vector per class that is constant on it, and for each class of k values k − 1 others, which
vanish outside it and sum to zero. Vectors of the first sort stay together. Each of the others gives the same
matrix, which is decomposed once. So no matrix is larger than the number of kinds of cells.

Steps p ← p·v² / Σ with the leverages v never lower the value. For the polar factor U of RP^½ and any weights
q it is at least tr(UᵀRQ^½) = Σ_j v_j √(p_j q_j), which is (Σpv²)^½ ≥ Σpv = tr M^½ at the next weights.

Tables of a census by race and age have 7,360 cells of 200 kinds.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, square_root
from querysmasher.planning.grading import is_graded
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import Design
from querysmasher.planning.solvers.roots import RANK
from querysmasher.planning.subworkload import Block

ALIKE = 1e-12
"""Entries of a Gram matrix that differ by less than this fraction of the largest are equal."""


@dataclass(frozen=True, eq=False)
class _Space:
    """Vectors of an axis: those constant on every class or, each a copy of the first, those within one."""

    basis: Array
    classes: slice
    copies: int = 1


@dataclass(frozen=True, eq=False)
class _Piece:
    """A matrix on the diagonal: rows with this Gram matrix over some kinds of cells, and how often it is."""

    root: Array
    kinds: NDArray[np.intp]
    copies: int
    graded: bool


def exchangeable_bound(block: Block) -> float | None:
    """Return a lower bound on √L of a block, hardly below the optimum.

    Return None if the block has too many kinds of cells, or queries that tie axes together.
    """
    if any(len(piece.axes) > 1 for piece in block.pieces):
        return None
    labels: list[Integers] = []
    for axis in range(len(block.shape)):
        parts = {piece.part: None for piece in block.pieces if piece.axes == (axis,)}
        labels.append(_classes([part.gram for part in parts]))
        if math.prod(int(own.max()) + 1 for own in labels) > limits().bounded_cells:
            return None
    sizes = reduce(np.multiply.outer, map(np.bincount, labels))
    pieces = list(_pieces(block, labels, np.arange(sizes.size).reshape(sizes.shape)))
    cells = sizes.ravel().astype(float)
    shares, value = cells / cells.sum(), 0.0
    for _ in range(limits().final_steps):
        leverages, before, value = np.zeros(len(cells)), value, 0.0
        for piece in pieces:
            design = Design.at(piece.root, (shares / cells)[piece.kinds], piece.graded)
            leverages[piece.kinds] += piece.copies * design.leverages
            value += piece.copies * float(design.roots.sum())
        if value - before <= limits().search_gap * value:
            break
        shares = np.maximum(shares * (leverages / cells / value) ** 2, np.finfo(float).tiny)
        shares /= shares.sum()
    return max(before, value)


def _pieces(block: Block, labels: Sequence[Integers], kinds: NDArray[np.intp]) -> Iterator[_Piece]:
    """Iterate over the matrices on the diagonal of the Gram matrix that are not zero."""
    spaces = [list(_spaces(own)) for own in labels]
    within = {
        piece: [space.basis @ piece.part.gram @ space.basis.T for space in spaces[piece.axes[0]]]
        for piece in set(block.pieces)
    }
    found = []
    for chosen in itertools.product(*map(range, map(len, spaces))):
        gram = np.zeros((1, 1))
        for term in block.terms:
            ordered = sorted(term.pieces, key=lambda piece: piece.axes)
            grams = [within[piece][chosen[axis]] for axis, piece in enumerate(ordered)]
            if all(own.any() for own in grams):
                gram = gram + term.coefficient * reduce(np.kron, grams)
        found.append((gram, [own[place] for own, place in zip(spaces, chosen, strict=True)]))
    largest = max(float(np.trace(gram)) for gram, _ in found)
    for gram, own in found:
        if np.trace(gram) > RANK * largest:
            root = square_root(gram, RANK)
            on = kinds[tuple(space.classes for space in own)].ravel()
            yield _Piece(root, on, math.prod(space.copies for space in own), is_graded(root))


def _spaces(labels: Integers) -> Iterator[_Space]:
    """Iterate over the spaces of vectors of an axis."""
    counts = np.bincount(labels)
    yield _Space((labels == np.arange(len(counts))[:, None]) / np.sqrt(counts)[:, None], slice(None))
    for label, count in enumerate(counts.tolist()):
        if count > 1:
            vector = np.zeros((1, len(labels)))
            vector[0, np.flatnonzero(labels == label)[:2]] = math.sqrt(0.5), -math.sqrt(0.5)
            yield _Space(vector, slice(label, label + 1), count - 1)


def _classes(grams: Sequence[Array]) -> Integers:
    """Return the class of every value: values of a class can be exchanged in all Gram matrices."""
    scaled = np.array([gram / np.abs(gram).max() for gram in grams])
    features = np.concatenate([np.diagonal(scaled, axis1=1, axis2=2), scaled.sum(axis=2)])
    labels = np.arange(scaled.shape[1])
    similar: defaultdict[bytes, list[int]] = defaultdict(list)
    for value, feature in enumerate(np.round(features.T, 7) + 0.0):
        firsts = similar[feature.tobytes()]
        labels[value] = next((own for own in firsts if _are_exchangeable(scaled, own, value)), value)
        if labels[value] == value:
            firsts.append(value)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _are_exchangeable(grams: Array, first: int, second: int) -> bool:
    """Return whether exchanging two values leaves Gram matrices with entries of at most 1 as they are."""
    difference = np.abs(grams[:, first] - grams[:, second])
    change = np.abs(grams[:, first, first] - grams[:, second, second])
    difference[:, [first, second]] = change[:, None]
    return bool(difference.max() <= ALIKE)
