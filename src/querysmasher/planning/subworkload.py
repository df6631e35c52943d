"""One attribute set's share of a workload, never written out needlessly.

A `Part` is what one query family leaves on the attributes it keeps. A term of a subworkload is a
coefficient times a Kronecker product of parts, and the subworkload's Gram matrix is the sum of its
terms. `split` separates it into the smallest `Block`s whose Kronecker product it is: the optimum of a
Kronecker product is the Kronecker product of the optima, so each block is solved on its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np

from querysmasher.arrays import Array, along_axes, square_root
from querysmasher.planning.centering import Centres
from querysmasher.planning.lattice import Integers

Piece = tuple[tuple[int, ...], int]
"""A part (its number) and the axes of the block it stands on."""

Term = tuple[float, tuple[Piece, ...]]
"""A coefficient, and pieces that together cover every axis once."""


@dataclass(frozen=True, eq=False)
class Part:
    """Centred queries on a few attributes, as far as a planner needs them.

    `content` is their weighted Gram matrix (cells × cells) or, for `thin` parts with fewer queries
    than cells, the queries themselves with the roots of their weights, whose Gram is contentᵀcontent.
    """

    shape: tuple[int, ...]
    centres: Centres
    content: Array
    thin: bool = False
    spanning: Callable[[], Integers | None] | None = None
    """What works out `lattice`."""
    source: Callable[[], Array] | None = None
    """What works out the rows behind a Gram matrix, where it was made of rows."""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Digest the content, rounded, so that parts equal up to rounding error are one.

        Rows are rounded each in its own scale: short ones are not rounded away next to long ones.
        """
        largest = np.abs(self.content).max(axis=1 if self.thin else None, initial=0.0, keepdims=True)
        largest[largest == 0] = 1.0
        scales = tuple(float(f"{scale:.11e}") for scale in largest.ravel())
        digest = hashlib.sha256(repr((self.shape, self.thin, scales)).encode())
        digest.update((np.round(self.content / largest, 11) + 0.0).tobytes())
        for centre in self.centres:
            digest.update(centre.tobytes())
        object.__setattr__(self, "digest", digest.hexdigest())

    @property
    def cells(self) -> int:
        """How many cells the part's marginal has."""
        return math.prod(self.shape)

    @cached_property
    def lattice(self) -> Integers | None:
        """Whole-number rows spanning the queries, where they leave a part of the residual space out."""
        return None if self.spanning is None else self.spanning()

    @property
    def rows(self) -> Array | None:
        """The queries with the roots of their weights, or None where only their Gram is known."""
        if self.thin:
            return self.content
        return None if self.source is None else self.source()

    @cached_property
    def root(self) -> Array:
        """Rows whose Gram is the part's."""
        return self.content if self.thin else square_root(self.content, 1e-14)

    @cached_property
    def trace(self) -> float:
        """The trace of the Gram matrix: the energy of the queries."""
        return float(np.vdot(self.content, self.content) if self.thin else np.trace(self.content))

    def partial_trace(self, axis: int) -> Array:
        """Return the Gram matrix of one axis, traced over the others."""
        if len(self.shape) == 1 and not self.thin:
            return self.content
        flat = np.moveaxis(self.root.reshape(-1, *self.shape), 1 + axis, -1).reshape(-1, self.shape[axis])
        return flat.T @ flat

    def energies(self, duals: Sequence[Array]) -> Array:
        """Return the diagonal of ⊗Xᵀ · Gram · ⊗X for matrices X, one per axis."""
        if len(self.shape) == 1 and not self.thin:
            return np.einsum("ia,ia->a", duals[0], self.content @ duals[0])
        image = along_axes(self.root.reshape(-1, *self.shape), 1, duals)
        return np.einsum("r...,r...->...", image, image)


@dataclass(frozen=True)
class Block:
    """A sum of terms over axes of the given shape that no Kronecker product separates."""

    shape: tuple[int, ...]
    terms: tuple[Term, ...]

    @property
    def cells(self) -> int:
        """How many cells the block has."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Subworkload:
    """The share of one attribute set (places in the schema, increasing): terms over its axes."""

    attributes: tuple[int, ...]
    terms: tuple[Term, ...]


def split(
    shape: tuple[int, ...], terms: tuple[Term, ...]
) -> tuple[float, list[tuple[tuple[int, ...], Block]]]:
    """Write the sum of terms as scale × ⊗ blocks, each block with the axes it stands on.

    Axes that some part ties together belong together. A set of axes can be split off when the matrix
    of coefficients, (its pieces) × (the other pieces), has rank one.
    """
    if len(terms) == 1:  # nearly always
        coefficient, pieces = terms[0]
        return coefficient, [
            (axes, Block(tuple(shape[a] for a in axes), ((1.0, ((tuple(range(len(axes))), part),)),)))
            for axes, part in pieces
        ]
    scale = 1.0
    blocks = []
    rest = terms
    for axes in _tied_axes(len(shape), terms):
        own = [tuple(p for p in pieces if p[0][0] in axes) for _, pieces in rest]
        others = [tuple(p for p in pieces if p[0][0] not in axes) for _, pieces in rest]
        row_of = {key: i for i, key in enumerate(dict.fromkeys(own))}
        column_of = {key: j for j, key in enumerate(dict.fromkeys(others))}
        matrix = np.zeros((len(row_of), len(column_of)))
        for (coefficient, _), row, column in zip(rest, own, others, strict=True):
            matrix[row_of[row], column_of[column]] += coefficient
        left, right = matrix[:, 0] / matrix[0, 0] if matrix[0, 0] else matrix[:, 0], matrix[0]
        if np.allclose(np.outer(left, right), matrix, rtol=1e-12, atol=0):  # small terms count too
            factor, block = _block(shape, axes, tuple(zip(left.tolist(), row_of, strict=True)))
            scale *= factor
            blocks.append((axes, block))
            rest = tuple(zip(right.tolist(), column_of, strict=True))
    axes = tuple(a for a in range(len(shape)) if not any(a in done for done, _ in blocks))
    factor, block = _block(shape, axes, rest)
    return scale * factor, [*blocks, (axes, block)] if axes else blocks


def _tied_axes(count: int, terms: tuple[Term, ...]) -> list[tuple[int, ...]]:
    """Partition the axes so that no piece of any term crosses two classes."""
    classes = [{axis} for axis in range(count)]
    for _, pieces in terms:
        for axes, _ in pieces:
            touched = [c for c in classes if c & set(axes)]
            if len(touched) > 1:
                classes = [c for c in classes if not c & set(axes)] + [reduce(set.union, touched)]
    return [tuple(sorted(c)) for c in classes]


def _block(shape: tuple[int, ...], axes: tuple[int, ...], terms: tuple[Term, ...]) -> tuple[float, Block]:
    """Renumber the axes, and scale so that the largest coefficient is one: sameness up to scale."""
    place = {axis: i for i, axis in enumerate(axes)}
    scale = max(coefficient for coefficient, _ in terms)
    renumbered = sorted(
        (
            (
                float(f"{coefficient / scale:.11e}"),
                tuple(sorted((tuple(place[a] for a in own), part) for own, part in pieces)),
            )
            for coefficient, pieces in terms
        ),
        key=lambda term: term[1],
    )
    return scale, Block(tuple(shape[a] for a in axes), tuple(renumbered))
