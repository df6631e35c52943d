"""The share of one attribute set in a workload, written out only where necessary.

A `Part` is what one query family leaves on the attributes it keeps. A term of a subworkload is a
coefficient times a Kronecker product of parts, and the subworkload's Gram matrix is the sum of its
terms. `separate` writes it as a Kronecker product of the smallest possible `Block`s: the optimum of a
Kronecker product is the Kronecker product of the optima, so each block is solved separately.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import attrgetter

import numpy as np

from querysmasher.arrays import Array, along_axes, square_root
from querysmasher.planning.centre import Centres
from querysmasher.planning.lattice import Integers


@dataclass(frozen=True, eq=False)
class Part:
    """Centred queries on a few attributes, in the form that a planner needs.

    `content` is their weighted Gram matrix (cells × cells) or, for `thin` parts with fewer queries
    than cells, the queries themselves with the roots of their weights, whose Gram is contentᵀcontent.
    Parts are equal if their digests and numbers are.
    """

    shape: tuple[int, ...]
    centres: Centres
    content: Array
    thin: bool = False
    spanning: Callable[[], Integers | None] | None = None
    """Computes `lattice`."""
    source: Callable[[], Array] | None = None
    """Computes the rows of a Gram matrix, if it was made from rows."""
    number: int = 0
    """Its index among the parts of one workload: sums of parts follow this order."""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Digest the rounded content, so that parts that differ by rounding error are equal.

        Each row is rounded in its own scale, so that short rows survive beside long ones.
        """
        largest = np.abs(self.content).max(axis=1 if self.thin else None, initial=0.0, keepdims=True)
        largest[largest == 0] = 1.0
        scales = tuple(float(f"{scale:.11e}") for scale in largest.ravel())
        digest = hashlib.sha256(repr((self.shape, self.thin, scales)).encode())
        digest.update((np.round(self.content / largest, 11) + 0.0).tobytes())
        for centre in self.centres:
            digest.update(centre.weights.tobytes())
        object.__setattr__(self, "digest", digest.hexdigest())

    def __eq__(self, other: object) -> bool:
        """Return whether the other part has the same content, centres and number."""
        return isinstance(other, Part) and self.digest == other.digest and self.number == other.number

    def __hash__(self) -> int:
        """Hash the digest."""
        return hash(self.digest)

    @property
    def cells(self) -> int:
        """Number of cells of the part's marginal."""
        return math.prod(self.shape)

    @cached_property
    def lattice(self) -> Integers | None:
        """Integer rows that span the queries, if these do not span the whole residual space."""
        return None if self.spanning is None else self.spanning()

    @property
    def rows(self) -> Array | None:
        """The queries with the roots of their weights, or None if only their Gram is known."""
        if self.thin:
            return self.content
        return None if self.source is None else self.source()

    @cached_property
    def root(self) -> Array:
        """Rows whose Gram is the part's."""
        return self.content if self.thin else square_root(self.content, 1e-14)

    @property
    def gram(self) -> Array:
        """The Gram matrix."""
        return self.content.T @ self.content if self.thin else self.content

    @cached_property
    def trace(self) -> float:
        """The trace of the Gram matrix: the energy of the queries."""
        return float(np.vdot(self.content, self.content) if self.thin else np.trace(self.content))

    def partial_trace(self, axis: int) -> Array:
        """Return the Gram matrix of one axis, traced over the others."""
        if not self.thin:
            before, size = math.prod(self.shape[:axis]), self.shape[axis]
            folded = self.content.reshape(before, size, -1, before, size, self.cells // (before * size))
            return np.asarray(np.einsum("aibajb->ij", folded))
        flat = np.moveaxis(self.content.reshape(-1, *self.shape), 1 + axis, -1).reshape(-1, self.shape[axis])
        return flat.T @ flat

    def energies(self, duals: Sequence[Array]) -> Array:
        """Return the diagonal of ⊗Xᵀ · Gram · ⊗X for matrices X, one per axis."""
        if len(self.shape) == 1 and not self.thin:
            return np.einsum("ia,ia->a", duals[0], self.content @ duals[0])
        image = along_axes(self.root.reshape(-1, *self.shape), 1, duals)
        return np.einsum("r...,r...->...", image, image)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part and its axes, in increasing order."""

    axes: tuple[int, ...]
    part: Part
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once: decomposing looks up millions of pieces."""
        object.__setattr__(self, "_hash", hash((self.axes, self.part)))

    def __hash__(self) -> int:
        """Return the hash of the axes and the part."""
        return self._hash

    def moved(self, axis_of: Mapping[int, int]) -> Piece:
        """Return the part on other axes: `axis_of` maps each axis to a new one."""
        return Piece(tuple(axis_of[a] for a in self.axes), self.part)


@dataclass(frozen=True, slots=True)
class Term:
    """A coefficient times the Kronecker product of pieces, which together cover every axis once."""

    coefficient: float
    pieces: tuple[Piece, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of all axes."""
        sizes = {a: n for piece in self.pieces for a, n in zip(piece.axes, piece.part.shape, strict=True)}
        return tuple(sizes[axis] for axis in range(len(sizes)))

    @property
    def energy(self) -> float:
        """The trace of the term."""
        return self.coefficient * math.prod(piece.part.trace for piece in self.pieces)

    def on(self, axes: Container[int]) -> tuple[Piece, ...]:
        """Return the pieces on some of the axes; no piece extends beyond these."""
        return tuple(piece for piece in self.pieces if piece.axes[0] in axes)


@dataclass(frozen=True)
class Block:
    """A sum of terms over axes of the given shape that no Kronecker product separates."""

    shape: tuple[int, ...]
    terms: tuple[Term, ...]

    @classmethod
    def of(cls, part: Part) -> Block:
        """Return the block of a single part."""
        return cls(part.shape, (Term(1.0, (Piece(tuple(range(len(part.shape))), part),)),))

    @property
    def cells(self) -> int:
        """Number of cells of the block."""
        return math.prod(self.shape)

    @property
    def pieces(self) -> Iterator[Piece]:
        """The pieces of all terms."""
        return (piece for term in self.terms for piece in term.pieces)

    @property
    def centres(self) -> Centres:
        """The centre of every axis, around which all its parts are split."""
        centre_of = {
            axis: centre
            for piece in self.terms[0].pieces
            for axis, centre in zip(piece.axes, piece.part.centres, strict=True)
        }
        return tuple(centre_of[axis] for axis in range(len(centre_of)))


@dataclass(frozen=True, eq=False)
class Subworkload:
    """The share of one attribute set (increasing indices in the schema): terms over its axes."""

    attributes: tuple[int, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block and its axes."""

    axes: tuple[int, ...]
    block: Block


def separate(terms: tuple[Term, ...]) -> tuple[float, tuple[PlacedBlock, ...]]:
    """Write the sum of terms as scale × ⊗ blocks, each block with its axes.

    Axes that a part ties together belong together. A set of axes can be split off if the matrix
    of coefficients, (its pieces) × (the other pieces), has rank one.
    """
    if len(terms) == 1:  # nearly always
        (term,) = terms
        return term.coefficient, tuple(PlacedBlock(p.axes, Block.of(p.part)) for p in term.pieces)
    scale = 1.0
    blocks = []
    rest = terms
    left = set(range(len(terms[0].shape)))
    for axes in _tied_axes(len(left), terms):
        inside = [term.on(axes) for term in rest]
        others = [term.on(left.difference(axes)) for term in rest]
        row_of = {key: i for i, key in enumerate(dict.fromkeys(inside))}
        column_of = {key: j for j, key in enumerate(dict.fromkeys(others))}
        matrix = np.zeros((len(row_of), len(column_of)))
        for term, row, column in zip(rest, inside, others, strict=True):
            matrix[row_of[row], column_of[column]] += term.coefficient
        column_factor = matrix[:, 0] / matrix[0, 0] if matrix[0, 0] else matrix[:, 0]
        if np.allclose(np.outer(column_factor, matrix[0]), matrix, rtol=1e-12, atol=0):  # small terms matter
            factor, block = _block(axes, tuple(map(Term, column_factor.tolist(), row_of)))
            scale *= factor
            blocks.append(PlacedBlock(axes, block))
            rest = tuple(map(Term, matrix[0].tolist(), column_of))
            left.difference_update(axes)
    axes = tuple(sorted(left))
    if not axes:
        return scale * max(term.coefficient for term in rest), tuple(blocks)
    factor, block = _block(axes, rest)
    return scale * factor, (*blocks, PlacedBlock(axes, block))


def _tied_axes(count: int, terms: tuple[Term, ...]) -> list[tuple[int, ...]]:
    """Partition the axes so that no piece of any term crosses two classes."""
    classes = [{axis} for axis in range(count)]
    for term in terms:
        for piece in term.pieces:
            touched = [c for c in classes if not c.isdisjoint(piece.axes)]
            if len(touched) > 1:
                classes = [c for c in classes if c.isdisjoint(piece.axes)] + [reduce(set.union, touched)]
    return [tuple(sorted(c)) for c in classes]


def _block(axes: tuple[int, ...], terms: tuple[Term, ...]) -> tuple[float, Block]:
    """Renumber the axes, and scale the largest coefficient to one: blocks are equal up to scale."""
    axis_of = {axis: i for i, axis in enumerate(axes)}
    scale = max(term.coefficient for term in terms)
    renumbered = sorted(
        (
            Term(
                float(f"{term.coefficient / scale:.11e}"),
                tuple(sorted((piece.moved(axis_of) for piece in term.pieces), key=attrgetter("axes"))),
            )
            for term in terms
        ),
        key=lambda term: [(piece.axes, piece.part.number) for piece in term.pieces],
    )
    return scale, Block(renumbered[0].shape, tuple(renumbered))
