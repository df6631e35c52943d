"""Splitting queries around centres: q⇒A = q · ⊗(Cᵢ for kept axes i, wᵢ for the others).

The planner, the search for centres, the estimator and the limit all split families of queries here. The
`Decomposer` splits a workload over attribute sets (the paper's Equation vecdecomp, for any centres).

A `Part` is what one query family leaves on the attributes it keeps. A term of a subworkload is a coefficient
times a Kronecker product of parts, and the subworkload's Gram matrix is the sum of its terms. `separate`
writes it as a Kronecker product of the smallest possible `Block`s: the optimum of a Kronecker product is the
Kronecker product of the optima, so each block is solved separately.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from querysmasher.arrays import ROUNDING, Array, along_axes, less_means, square_root
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.grading import are_far_apart, lengths
from querysmasher.planning.lattice import RANK, Integers, lattice_rows
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies import Strategy
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group


@dataclass(frozen=True, eq=False)
class Part:
    """Centred queries on a few attributes, in the form that a planner needs.

    `content` is their weighted Gram matrix (cells × cells) or, for `thin` parts with fewer queries
    than cells, the queries themselves with the roots of their weights, whose Gram is contentᵀcontent.
    Parts are equal if their digests are.
    """

    shape: tuple[int, ...]
    centres: Centres
    content: Array
    thin: bool = False
    spanning: Callable[[], Integers | None] | None = None
    """Computes `lattice`."""
    source: Callable[[], Array] | None = None
    """Computes the rows of a Gram matrix, if it was made from rows."""
    groups: Integers | None = None
    """The group of every value, if a replaced record keeps it, so that only pairs within groups matter."""

    @cached_property
    def digest(self) -> str:
        """A digest of the rounded content, so that parts that differ by rounding error are equal.

        Each row is rounded relative to its largest entry, so that short rows survive beside long ones.
        """
        largest = np.abs(self.content).max(axis=1 if self.thin else None, initial=0.0, keepdims=True)
        largest[largest == 0] = 1.0
        scales = tuple(float(f"{scale:.11e}") for scale in largest.ravel())
        digest = hashlib.sha256(repr((self.shape, self.thin, scales)).encode())
        digest.update((np.round(self.content / largest, 11) + 0.0).tobytes())
        for centre in self.centres:
            digest.update(centre.weights.tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        """Return whether the other part has the same content and centres."""
        return isinstance(other, Part) and self.digest == other.digest

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

    def within(self, axis: int, groups: Integers) -> Part | None:
        """Return what is left if sums over groups of values of an axis are known; None if nothing is."""
        if self.thin:
            rows = less_means(self.content.reshape(-1, *self.shape), 1 + axis, groups)
            content = rows.reshape(len(rows), -1)
        else:
            gram = self.content.reshape(*self.shape, *self.shape)
            for both in (axis, len(self.shape) + axis):
                gram = less_means(gram, both, groups)
            gram = gram.reshape(self.cells, self.cells)
            trace = float(np.trace(gram))
            if trace <= RANK * self.trace:
                return None
            content = square_root(gram, 1e-12 + 1e-14 * self.trace / trace)
        if not content.any():
            return None
        single = len(self.shape) == 1
        made = Part(self.shape, self.centres, content, thin=True, groups=groups if single else None)
        return replace(made, spanning=partial(_differences, groups, len(content))) if single else made

    @property
    def rows(self) -> Array:
        """The queries with the roots of their weights or, if only their Gram is known, a root of it."""
        return self.root if self.source is None else self.source()

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


def _differences(groups: Integers, rank: int) -> Integers | None:
    """Return differences of neighbouring values of each group, if these are not more than so many rows."""
    order = np.argsort(groups, kind="stable")
    pairs = np.flatnonzero(np.diff(groups[order]) == 0)
    if rank < len(pairs):
        return None
    rows = np.zeros((len(pairs), len(groups)), dtype=np.int64)
    rows[np.arange(len(pairs)), order[pairs]], rows[np.arange(len(pairs)), order[pairs + 1]] = 1, -1
    return rows


class Piece(NamedTuple):
    """A part and its axes, in increasing order."""

    axes: tuple[int, ...]
    part: Part


class Term(NamedTuple):
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
        pieces = self.terms[0].pieces
        pairs = (pair for piece in pieces for pair in zip(piece.axes, piece.part.centres, strict=True))
        return tuple(centre for _, centre in sorted(pairs, key=itemgetter(0)))


@dataclass(frozen=True, eq=False)
class Subworkload:
    """What a workload leaves on one attribute set: terms, and strategies on lines and trees beside them."""

    attributes: tuple[int, ...]
    """Increasing indexes in the schema: the axes of the terms."""
    terms: tuple[Term, ...]
    strategies: Mapping[int, Strategy] = field(default_factory=dict)
    """The strategies of the set's lines and trees, by attribute."""
    quality: float = 1.0
    """√(lower bound / loss) of these strategies together."""

    def within(self, attribute: int, groups: Integers) -> Subworkload:
        """Return what is left if counts are known by groups of an attribute's values."""
        axis, terms = self.attributes.index(attribute), []
        for term in self.terms:
            (piece,) = (piece for piece in term.pieces if axis in piece.axes)
            if (part := piece.part.within(piece.axes.index(axis), groups)) is not None:
                left = tuple(Piece(p.axes, part) if p is piece else p for p in term.pieces)
                terms.append(Term(term.coefficient, left))
        return replace(self, terms=tuple(terms))

    @property
    def every_attribute(self) -> tuple[int, ...]:
        """All attributes of the set."""
        return tuple(sorted((*self.attributes, *self.strategies))) if self.strategies else self.attributes


def separate(terms: tuple[Term, ...]) -> tuple[float, tuple[tuple[tuple[int, ...], Block], ...]]:
    """Write the sum of terms as scale × ⊗ blocks, each block with its axes.

    Axes that a part ties together belong together. A set of axes can be split off if the matrix
    of coefficients, (its pieces) × (the other pieces), has rank one.
    """
    if len(terms) == 1:  # nearly always
        (term,) = terms
        return term.coefficient, tuple((p.axes, Block.of(p.part)) for p in term.pieces)
    scale = 1.0
    blocks = []
    rest = terms
    left = set(range(len(terms[0].shape)))
    for axes in connected(piece.axes for term in terms for piece in term.pieces):
        inside = [tuple(p for p in term.pieces if p.axes[0] in axes) for term in rest]
        others = [tuple(p for p in term.pieces if p.axes[0] not in axes) for term in rest]
        row_of = {key: i for i, key in enumerate(dict.fromkeys(inside))}
        column_of = {key: j for j, key in enumerate(dict.fromkeys(others))}
        matrix = np.zeros((len(row_of), len(column_of)))
        for term, row, column in zip(rest, inside, others, strict=True):
            matrix[row_of[row], column_of[column]] += term.coefficient
        column_factor = matrix[:, 0] / matrix[0, 0] if matrix[0, 0] else matrix[:, 0]
        if np.allclose(np.outer(column_factor, matrix[0]), matrix, rtol=1e-12, atol=0):  # small terms matter
            factor, block = _block(axes, tuple(map(Term, column_factor.tolist(), row_of)))
            scale *= factor
            blocks.append((axes, block))
            rest = tuple(map(Term, matrix[0].tolist(), column_of))
            left.difference_update(axes)
    axes = tuple(sorted(left))
    if not axes:
        return scale * max(term.coefficient for term in rest), tuple(blocks)
    factor, block = _block(axes, rest)
    return scale * factor, (*blocks, (axes, block))


def connected(ties: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
    """Return the finest partition of all members with every tie in one class; classes are sorted."""
    sets = list(map(set, ties))
    classes: list[set[int]] = []
    for tie in sets:
        if len(tie) > 1:
            touching = [c for c in classes if not c.isdisjoint(tie)]
            classes = [c for c in classes if c.isdisjoint(tie)] + [tie.union(*touching)]
    alone = set().union(*sets).difference(*classes)
    return sorted([*(tuple(sorted(c)) for c in classes), *((member,) for member in alone)])


def _block(axes: tuple[int, ...], terms: tuple[Term, ...]) -> tuple[float, Block]:
    """Renumber the axes, and scale the largest coefficient to one: blocks are equal up to scale."""
    scale = max(term.coefficient for term in terms)
    renumbered = []
    for term in terms:
        pieces = [Piece(tuple(map(axes.index, piece.axes)), piece.part) for piece in term.pieces]
        pieces.sort(key=attrgetter("axes"))
        renumbered.append(Term(float(f"{term.coefficient / scale:.11e}"), tuple(pieces)))
    renumbered.sort(key=lambda term: [(piece.axes, piece.part.digest) for piece in term.pieces])
    return scale, Block(renumbered[0].shape, tuple(renumbered))


Kept = tuple[int, ...]
"""The axes that a remainder keeps, in increasing order."""


def schema_order(positions: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of a family on the attributes at these positions, in the schema's order."""
    return tuple(sorted(range(len(positions)), key=positions.__getitem__))


def query_tensor(family: Family, order: Sequence[int], *, weighted: bool = True) -> Array:
    """Return the queries with their axes in an order, times the roots of their weights if `weighted`."""
    rows = family.matrix()
    if weighted and family.weights is not None:
        rows = rows * np.sqrt(family.weights)[:, None]
    return rows.reshape(-1, *family.shape).transpose(0, *(1 + a for a in order))


def split_gram(gram: Array, centre: Centre) -> tuple[float, Array | None]:
    """Return what a Gram matrix leaves on no attribute, and on its attribute (None if that has one value)."""
    on_centre = gram @ centre.weights
    square = float(on_centre @ centre.weights)
    if len(gram) == 1:
        return square, None
    return square, gram - on_centre[:, None] - on_centre[None, :] + square


def split_rows(tensor: Array, centres: Sequence[Centre | None]) -> dict[Kept, Array]:
    """Return the rows that queries, with an axis per centre, leave on each set of kept axes.

    Sets on which nothing is left are absent. An axis without a centre is not split, and kept.
    """
    left: dict[Kept, Array] = {(): tensor}
    for axis in reversed(range(len(centres))):  # so that kept axes gather at the end
        centre = centres[axis]
        if centre is None:
            left = {(axis, *already): rows for already, rows in left.items()}
            continue
        # the plain mean is exact for counts, so that equivalent attributes get bitwise equal parts
        weights = None if centre.is_uniform else centre.weights
        means = {
            already: rows.mean(axis + 1) if weights is None else np.tensordot(rows, weights, (axis + 1, 0))
            for already, rows in left.items()
        }
        rest = {
            (axis, *already): rows - np.expand_dims(means[already], axis + 1)
            for already, rows in left.items()
        }
        left = means | rest
    # relative to each query, so that short ones survive beside long ones
    least = ROUNDING * lengths(tensor.reshape(len(tensor), -1))
    flat = {kept: rows.reshape(len(rows), -1) for kept, rows in left.items()}
    sure = {kept: lengths(rows) > least for kept, rows in flat.items()}
    return {
        kept: np.ascontiguousarray(rows if sure[kept].all() else np.where(sure[kept][:, None], rows, 0.0))
        for kept, rows in flat.items()
        if sure[kept].any()
    }


def split_parts(
    family: Family, order: Sequence[int], centres: Sequence[Centre]
) -> tuple[float, dict[Kept, Part]]:
    """Return the squared weighted length of what is left on no axis, and the parts on other sets of axes."""
    if family.closed_form:
        square, centred = split_gram(family.gram(), centres[0])
        return square, {} if centred is None else {(0,): Part(family.shape, (centres[0],), centred)}

    def source(kept: Kept) -> Array:
        return split_rows(query_tensor(family, order), centres)[kept]

    left = split_rows(query_tensor(family, order), centres)
    dropped = left.pop((), np.zeros(0))
    parts: dict[Kept, Part] = {}
    for kept, rows in left.items():
        # as rows, if they are few, or if a Gram matrix would lose some
        thin = is_few(len(rows), rows.shape[1], len(kept)) or are_far_apart(rows)
        spans = partial(lattice_rows, family, order, kept, centres)
        parts[kept] = Part(
            tuple(len(centres[a]) for a in kept),
            tuple(centres[a] for a in kept),
            rows if thin else rows.T @ rows,
            thin,
            spanning=spans if thin or len(kept) == 1 else None,
            source=None if thin else partial(source, kept),
        )
    if family.is_symmetric and len(set(centres)) == 1:  # parts are equal, not only up to rounding error
        first = {len(kept): part for kept, part in reversed(parts.items())}
        parts = {kept: first[len(kept)] for kept in parts}
    return float(np.vdot(dropped, dropped)), parts


def is_few(rows: int, cells: int, axes: int) -> bool:
    """Return whether queries are few enough to be stored as rows rather than as a Gram matrix."""
    return rows <= cells if axes > 1 else 2 * rows <= cells and cells > limits().light_cells


Left = tuple[tuple[int, ...], tuple[Piece, ...], float]
"""The attributes that queries keep, the pieces they leave on them, and a coefficient."""


class Decomposer:
    """Splits groups over attribute sets around given centres."""

    def __init__(self, schema: Schema, centres: Centres) -> None:
        """Start with no parts."""
        self.schema = schema
        self.centres = centres
        self._piece = cache(Piece)  # equal pieces are one object, for speed
        self._left_by = cache(self._leaves)  # families recur on the same attributes
        self._split = cache(split_parts)

    def decompose(self, groups: Iterable[Group]) -> list[Subworkload]:
        """Return the non-empty subworkloads, smaller attribute sets first, in schema order."""
        table: defaultdict[tuple[int, ...], dict[tuple[Piece, ...], float]] = defaultdict(dict)
        for group in groups:
            expansion: list[Left] = [((), (), group.weight)]
            for names, family in group.parts():
                leaves = self._left_by(names, family)
                expansion = [
                    (kept + more, pieces + others, coefficient * factor)
                    for kept, pieces, coefficient in expansion
                    for more, others, factor in leaves
                ]
            for kept, pieces, coefficient in expansion:
                attributes = tuple(sorted(kept))
                key = pieces if attributes == kept else tuple(sorted(pieces, key=attrgetter("axes")))
                terms = table[attributes]
                terms[key] = terms.get(key, 0.0) + coefficient
        result = []
        for attributes in sorted(table, key=lambda kept: (len(kept), kept)):
            axis_of = {attribute: axis for axis, attribute in enumerate(attributes)}
            placed = tuple(
                Term(c, tuple([self._piece(tuple(axis_of[a] for a in p.axes), p.part) for p in pieces]))
                for pieces, c in table[attributes].items()
            )
            result.append(Subworkload(attributes, placed))
        return result

    def _leaves(self, names: tuple[str, ...], family: Family) -> list[Left]:
        """Return what a family leaves, split once for all attributes with the same centres."""
        positions = self.schema.positions(names)
        attributes = sorted(positions)
        centres = tuple(self.centres[a] for a in attributes)
        square, parts = self._split(family, schema_order(positions), centres)
        leaves: list[Left] = [((), (), square)] if square else []
        for axes, part in parts.items():
            kept = tuple(attributes[a] for a in axes)
            leaves.append((kept, (self._piece(kept, part),), 1.0))
        return leaves
