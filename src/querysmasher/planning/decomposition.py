"""Split a workload over attribute sets (the paper's Equation vecdecomp, for any centres)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centering import Centres, split_axis, split_gram
from querysmasher.planning.grading import are_far_apart, lengths
from querysmasher.planning.lattice import lattice_rows
from querysmasher.planning.subworkload import Part, Piece, Subworkload, Term
from querysmasher.schema import Schema
from querysmasher.workload.families import Family
from querysmasher.workload.groups import Group

NULL = 1e-12
"""What is left of a row and shorter than this fraction of it is rounding error, that is, nothing."""

SMALL = 256
"""Up to this many values, an attribute's Gram matrix is taken even where its queries are fewer."""


class Option(NamedTuple):
    """The attributes that queries keep, the pieces they leave on them, and a coefficient."""

    kept: tuple[int, ...]
    pieces: tuple[Piece, ...]
    coefficient: float

    def times(self, other: Option) -> Option:
        """Return the product of queries on different attributes."""
        return Option(
            self.kept + other.kept, self.pieces + other.pieces, self.coefficient * other.coefficient
        )

    def renamed(self, name: Mapping[int, int]) -> Option:
        """Return the same on other attributes."""
        pieces = tuple(piece.moved(name) for piece in self.pieces)
        return Option(tuple(name[p] for p in self.kept), pieces, self.coefficient)


def split_family(
    family: Family, places: tuple[int, ...], centres: Centres, *, weighted: bool
) -> dict[tuple[int, ...], Array]:
    """Return the rows that `family`, asked on the attributes `places`, leaves on each set it keeps.

    Sets are in increasing order and rows are over their cells in that order; sets on which nothing is
    left are absent. With `weighted`, rows carry the square roots of the family's own weights.
    """
    order = np.argsort(places)
    rows = family.matrix()
    if weighted and family.weights is not None:
        rows = rows * np.sqrt(family.weights)[:, None]
    left: dict[tuple[int, ...], Array] = {(): rows.reshape(-1, *family.shape).transpose(0, *(1 + order))}
    least = NULL * lengths(rows)
    for place in sorted(places, reverse=True):
        # axes are taken from the last to the first, so kept ones gather at the end
        left = {
            kept: part
            for already, tensor in left.items()
            for kept, part in (
                (already, split_axis(tensor, centres[place], tensor.ndim - 1 - len(already), keep=False)),
                (
                    (place, *already),
                    split_axis(tensor, centres[place], tensor.ndim - 1 - len(already), keep=True),
                ),
            )
        }
    cleared = {kept: without_nothing(part.reshape(family.rows, -1), least) for kept, part in left.items()}
    return {kept: rows for kept, rows in cleared.items() if rows is not None}


def without_nothing(rows: Array, least: Array) -> Array | None:
    """Set rows shorter than `least` to zero; None if nothing is left.

    Each is compared with the row it comes from: next to a long row a short one is not nothing.
    """
    something = lengths(rows) > least
    if not something.any():
        return None
    return np.ascontiguousarray(rows if something.all() else np.where(something[:, None], rows, 0.0))


def _rows_on(family: Family, places: tuple[int, ...], kept: tuple[int, ...], centres: Centres) -> Array:
    """Return the weighted rows that a family leaves on one of the sets it keeps."""
    return split_family(family, places, centres, weighted=True)[kept]


def is_few(rows: int, cells: int, axes: int) -> bool:
    """Tell whether queries are so few that they are kept as rows rather than as a Gram matrix."""
    return rows <= cells if axes > 1 else 2 * rows <= cells and cells > SMALL


def are_kept(rows: Array, axes: int) -> bool:
    """Tell whether queries are kept as rows: few ones, and those of which a Gram matrix would lose some."""
    return is_few(len(rows), rows.shape[1], axes) or are_far_apart(rows)


class Decomposer:
    """Splits groups over attribute sets around given centres, and numbers the distinct parts."""

    def __init__(self, schema: Schema, centres: Centres) -> None:
        """Start with no parts."""
        self.schema = schema
        self.centres = centres
        self.parts: dict[str, Part] = {}
        """The distinct parts by digest, in order of appearance."""
        self._placed: dict[tuple[tuple[int, ...], Part], Piece] = {}
        self._options: dict[Hashable, list[Option]] = {}
        self._alike: dict[Hashable, tuple[tuple[int, ...], list[Option]]] = {}

    def expand(self, group: Group) -> list[Option]:
        """Return what the group leaves on each attribute set, with the group's weight.

        Attribute sets on which it leaves nothing are absent.
        """
        expansion = [Option((), (), group.weight)]
        for names, family in group.parts():
            options = self._options_on(self.schema.positions(names), family)
            expansion = [one.times(option) for one in expansion for option in options]
        return expansion

    def decompose(self, groups: Iterable[Group]) -> list[Subworkload]:
        """Return the non-empty subworkloads, smaller attribute sets first, in schema order."""
        table: defaultdict[tuple[int, ...], dict[tuple[Piece, ...], float]] = defaultdict(dict)
        for group in groups:
            for option in self.expand(group):
                kept, pieces = tuple(sorted(option.kept)), option.pieces
                if kept != option.kept:
                    pieces = tuple(sorted(pieces, key=attrgetter("axes")))
                terms = table[kept]
                terms[pieces] = terms.get(pieces, 0.0) + option.coefficient
        result = []
        for attributes in sorted(table, key=lambda kept: (len(kept), kept)):
            axis = {attribute: place for place, attribute in enumerate(attributes)}
            terms = table[attributes]
            own = (
                Term(coefficient, tuple(self._place(piece, axis) for piece in pieces))
                for pieces, coefficient in terms.items()
            )
            result.append(Subworkload(attributes, tuple(own)))
        return result

    def _place(self, piece: Piece, axis: Mapping[int, int]) -> Piece:
        """Return the piece on axes instead of attributes; equal ones are one object, quick to compare."""
        axes = tuple(axis[a] for a in piece.axes)
        key = (axes, piece.part)
        if key not in self._placed:
            self._placed[key] = Piece(axes, piece.part)
        return self._placed[key]

    def _options_on(self, places: tuple[int, ...], family: Family) -> list[Option]:
        """Return the options of a family: those on any attributes with the same centres, renamed."""
        key = (places, family.key)
        if key not in self._options:
            order = sorted(places)
            alike = (tuple(id(self.centres[p]) for p in places), tuple(map(places.index, order)), family.key)
            if alike not in self._alike:
                self._alike[alike] = (places, self._split(places, family))
            others, options = self._alike[alike]
            rename = dict(zip(sorted(others), order, strict=True))
            self._options[key] = [option.renamed(rename) for option in options]
        return self._options[key]

    def _split(self, places: tuple[int, ...], family: Family) -> list[Option]:
        if family.closed_form:
            (place,) = places
            centre = self.centres[place]
            square, centred = split_gram(family.gram(), centre)
            options = [Option((), (), square)]
            if centred is not None:
                part = Part(family.shape, (centre,), centred, number=len(self.parts))
                options.append(self._part(places, part))
            return options
        options = []
        for kept, rows in split_family(family, places, self.centres, weighted=True).items():
            if not kept:
                options.append(Option((), (), float(np.vdot(rows, rows))))
                continue
            shape = tuple(self.schema.sizes[p] for p in kept)
            centres = tuple(self.centres[p] for p in kept)
            thin = are_kept(rows, len(kept))
            spanning = partial(lattice_rows, family, places, kept, self.centres)
            known = spanning if thin or len(kept) == 1 else None
            source = None if thin else partial(_rows_on, family, places, kept, self.centres)
            content = rows if thin else rows.T @ rows
            part = Part(shape, centres, content, thin, known, source, number=len(self.parts))
            options.append(self._part(kept, part))
        return options

    def _part(self, kept: tuple[int, ...], part: Part) -> Option:
        """Keep the part, or its equal that is known already."""
        if part.digest not in self.parts:
            self.parts[part.digest] = part
        return Option(kept, (Piece(kept, self.parts[part.digest]),), 1.0)
