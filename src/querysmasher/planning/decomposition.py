"""Split a workload over attribute sets (the paper's Equation vecdecomp, for any centres)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from querysmasher.planning.centre import Centres
from querysmasher.planning.split import PlacedFamily, split_parts
from querysmasher.planning.subworkload import Part, Piece, Subworkload, Term
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group


class Option(NamedTuple):
    """The attributes that queries keep, the pieces they leave on them, and a coefficient."""

    kept: tuple[int, ...]
    pieces: tuple[Piece, ...]
    coefficient: float

    def renamed(self, name: Mapping[int, int]) -> Option:
        """Return the option on other attributes."""
        pieces = tuple(piece.moved(name) for piece in self.pieces)
        return Option(tuple(name[p] for p in self.kept), pieces, self.coefficient)


Left = tuple[tuple[int, ...], tuple[Piece, ...], float]
"""The same as a plain tuple, which is quicker to make: for what a product of families leaves."""


class Decomposer:
    """Splits groups over attribute sets around given centres, and numbers the distinct parts."""

    def __init__(self, schema: Schema, centres: Centres) -> None:
        """Start with no parts."""
        self.schema = schema
        self.centres = centres
        self.parts: dict[str, Part] = {}
        """The distinct parts by digest, in order of appearance."""
        self._next = 0
        self._placed: dict[tuple[tuple[int, ...], Part], Piece] = {}
        self._options: dict[Hashable, list[Option]] = {}
        self._alike: dict[Hashable, tuple[tuple[int, ...], list[Option]]] = {}

    def _expand(self, group: Group) -> list[Left]:
        """Return what the group leaves on each attribute set, with the group's weight.

        Attribute sets on which it leaves nothing are absent.
        """
        expansion: list[Left] = [((), (), group.weight)]
        for names, family in group.parts():
            options = self._options_on(names, family)
            expansion = [
                (kept + own, pieces + own_pieces, coefficient * factor)
                for kept, pieces, coefficient in expansion
                for own, own_pieces, factor in options
            ]
        return expansion

    def decompose(self, groups: Iterable[Group]) -> list[Subworkload]:
        """Return the non-empty subworkloads, smaller attribute sets first, in schema order."""
        table: defaultdict[tuple[int, ...], dict[tuple[Piece, ...], float]] = defaultdict(dict)
        for group in groups:
            for found, pieces, coefficient in self._expand(group):
                kept = tuple(sorted(found))
                own = pieces if kept == found else tuple(sorted(pieces, key=attrgetter("axes")))
                terms = table[kept]
                terms[own] = terms.get(own, 0.0) + coefficient
        result = []
        for attributes in sorted(table, key=lambda kept: (len(kept), kept)):
            axis = {attribute: place for place, attribute in enumerate(attributes)}
            terms = table[attributes]
            placed = [
                Term(coefficient, tuple([self._place(piece, axis) for piece in pieces]))
                for pieces, coefficient in terms.items()
            ]
            result.append(Subworkload(attributes, tuple(placed)))
        return result

    def _place(self, piece: Piece, axis: Mapping[int, int]) -> Piece:
        """Return the piece on axes instead of attributes; equal pieces are one object, for speed."""
        axes = tuple(axis[a] for a in piece.axes)
        key = (axes, piece.part)
        if key not in self._placed:
            self._placed[key] = Piece(axes, piece.part)
        return self._placed[key]

    def _options_on(self, names: tuple[str, ...], family: Family) -> list[Option]:
        """Return the options of a family, split once for all attributes with the same centres."""
        key = (names, family.key)
        if key not in self._options:
            places = self.schema.positions(names)
            order = sorted(places)
            alike = (tuple(self.centres[p] for p in places), tuple(map(places.index, order)), family.key)
            if alike not in self._alike:
                self._alike[alike] = (places, self._split(places, family))
            others, options = self._alike[alike]
            rename = dict(zip(sorted(others), order, strict=True))
            self._options[key] = [option.renamed(rename) for option in options]
        return self._options[key]

    def _split(self, places: tuple[int, ...], family: Family) -> list[Option]:
        order = sorted(places)
        queries, centres = PlacedFamily.on(places, family), [self.centres[p] for p in order]
        square, parts = split_parts(queries, centres, self._next)
        self._next += len(parts)
        if family.is_symmetric and len(set(centres)) == 1:  # parts are equal, not only up to rounding error
            first = {len(kept): part for kept, part in reversed(parts.items())}
            parts = {kept: first[len(kept)] for kept in parts}
        options = [Option((), (), square)] if square else []
        return options + [self._part(tuple(order[a] for a in kept), part) for kept, part in parts.items()]

    def _part(self, kept: tuple[int, ...], part: Part) -> Option:
        """Store the part, or reuse an equal one."""
        if part.digest not in self.parts:
            self.parts[part.digest] = part
        return Option(kept, (Piece(kept, self.parts[part.digest]),), 1.0)
