"""Splitting queries around centres: q⇒A = q · ⊗(Cᵢ for kept axes i, wᵢ for the others).

The planner, the search for centres, the estimator and the limit all split families of queries here. The
`Decomposer` splits a workload over attribute sets (the paper's Equation vecdecomp, for any centres).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from operator import attrgetter

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.grading import NOTHING, are_far_apart, lengths
from querysmasher.planning.lattice import lattice_rows
from querysmasher.planning.limits import limits
from querysmasher.planning.subworkload import Part, Piece, Subworkload, Term
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group

Kept = tuple[int, ...]
"""The axes that a remainder keeps, in increasing order."""


@dataclass(frozen=True, eq=False)
class PlacedFamily:
    """A family of queries, with its axes in the schema's order."""

    family: Family
    order: tuple[int, ...]
    """The family's own axes, in the schema's order."""

    @classmethod
    def on(cls, positions: Sequence[int], family: Family) -> PlacedFamily:
        """Return the family on the attributes at these positions in the schema."""
        return cls(family, tuple(sorted(range(len(positions)), key=positions.__getitem__)))

    def tensor(self, *, weighted: bool) -> Array:
        """Return the queries with an axis per attribute, times the roots of their weights if `weighted`."""
        rows = self.family.matrix()
        if weighted and self.family.weights is not None:
            rows = rows * np.sqrt(self.family.weights)[:, None]
        return rows.reshape(-1, *self.family.shape).transpose(0, *(1 + a for a in self.order))

    @cached_property
    def weighted(self) -> Array:
        """The queries times the roots of their weights, with an axis per attribute."""
        return self.tensor(weighted=True)


def split_axis(rows: Array, centre: Centre, axis: int, *, keep: bool) -> Array:
    """Multiply `rows` along `axis` by C if `keep`, else by the centre, which removes the axis."""
    mean = _mean(rows, centre, axis)
    return rows - np.expand_dims(mean, axis) if keep else mean


def _mean(rows: Array, centre: Centre, axis: int) -> Array:
    # the plain mean is exact for counts, so that equivalent attributes get bitwise equal parts
    uniform = centre.is_uniform
    return np.asarray(rows.mean(axis=axis) if uniform else np.tensordot(rows, centre.weights, axes=(axis, 0)))


def split_gram(gram: Array, centre: Centre) -> tuple[float, Array | None]:
    """Return what a Gram matrix on one attribute leaves on none, and on its own (None for one value)."""
    on_centre = gram @ centre.weights
    square = float(on_centre @ centre.weights)
    if len(gram) == 1:
        return square, None
    return square, gram - on_centre[:, None] - on_centre[None, :] + square


def split_rows(tensor: Array, centres: Sequence[Centre | None]) -> dict[Kept, Array]:
    """Return the rows that queries, with an axis per centre, leave on each set of kept axes.

    Sets on which nothing is left are absent. An axis without a centre is kept as it is.
    """
    left: dict[Kept, Array] = {(): tensor}
    for axis in reversed(range(len(centres))):  # so that kept axes gather at the end
        centre = centres[axis]
        if centre is None:
            left = {(axis, *already): rows for already, rows in left.items()}
            continue
        means = {already: _mean(rows, centre, axis + 1) for already, rows in left.items()}
        rest = {
            (axis, *already): rows - np.expand_dims(means[already], axis + 1)
            for already, rows in left.items()
        }
        left = means | rest
    least = NOTHING * lengths(tensor.reshape(len(tensor), -1))
    cleared = {kept: _without_nothing(rows.reshape(len(rows), -1), least) for kept, rows in left.items()}
    return {kept: rows for kept, rows in cleared.items() if rows is not None}


def _without_nothing(rows: Array, least: Array) -> Array | None:
    """Set rows shorter than `least` to zero; return None if nothing is left.

    `least` is relative to the query that each row comes from, so that short queries survive beside long ones.
    """
    something = lengths(rows) > least
    if not something.any():
        return None
    return np.ascontiguousarray(rows if something.all() else np.where(something[:, None], rows, 0.0))


def split_parts(
    queries: PlacedFamily, centres: Sequence[Centre], number: int
) -> tuple[float, dict[Kept, Part]]:
    """Return the squared weighted length of what is left on no axis, and the parts on other sets of axes.

    The parts are numbered from `number` on.
    """
    family = queries.family
    if family.closed_form:
        square, centred = split_gram(family.gram(), centres[0])
        part = None if centred is None else Part(family.shape, (centres[0],), centred, number=number)
        return square, {} if part is None else {(0,): part}
    square = 0.0
    parts: dict[Kept, Part] = {}
    for kept, rows in split_rows(queries.weighted, centres).items():
        if not kept:
            square = float(np.vdot(rows, rows))
            continue
        thin = are_kept(rows, len(kept))
        spans = partial(lattice_rows, family, queries.order, kept, centres)
        parts[kept] = Part(
            tuple(len(centres[a]) for a in kept),
            tuple(centres[a] for a in kept),
            rows if thin else rows.T @ rows,
            thin,
            spanning=spans if thin or len(kept) == 1 else None,
            source=None if thin else partial(_rows_on, queries, centres, kept),
            number=number + len(parts),
        )
    return square, parts


def _rows_on(queries: PlacedFamily, centres: Sequence[Centre], kept: Kept) -> Array:
    """Return the weighted rows left on the axes `kept`."""
    return split_rows(queries.weighted, centres)[kept]


def is_few(rows: int, cells: int, axes: int) -> bool:
    """Return whether queries are few enough to be stored as rows rather than as a Gram matrix."""
    return rows <= cells if axes > 1 else 2 * rows <= cells and cells > limits().light_cells


def are_kept(rows: Array, axes: int) -> bool:
    """Return whether queries are stored as rows: if they are few, or if a Gram matrix would lose some."""
    return is_few(len(rows), rows.shape[1], axes) or are_far_apart(rows)


Left = tuple[tuple[int, ...], tuple[Piece, ...], float]
"""The attributes that queries keep, the pieces they leave on them, and a coefficient."""


class Decomposer:
    """Splits groups over attribute sets around given centres, and numbers the distinct parts."""

    def __init__(self, schema: Schema, centres: Centres) -> None:
        """Start with no parts."""
        self.schema = schema
        self.centres = centres
        self.parts: dict[str, Part] = {}
        """The distinct parts by digest, in order of appearance."""
        self._next = 0
        self._piece = cache(Piece)  # equal pieces are one object, for speed
        self._leaves: dict[Hashable, list[Left]] = {}
        self._alike: dict[Hashable, tuple[float, dict[Kept, Part]]] = {}

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

    def _left_by(self, names: tuple[str, ...], family: Family) -> list[Left]:
        """Return what a family leaves, split once for all attributes with the same centres."""
        key = (names, family.key)
        if key not in self._leaves:
            positions = self.schema.positions(names)
            attributes = sorted(positions)
            queries, centres = PlacedFamily.on(positions, family), [self.centres[a] for a in attributes]
            alike = (tuple(centres), queries.order, family.key)
            if alike not in self._alike:
                self._alike[alike] = self._split(queries, centres)
            square, parts = self._alike[alike]
            leaves: list[Left] = [((), (), square)] if square else []
            for axes, part in parts.items():
                kept = tuple(attributes[a] for a in axes)
                leaves.append((kept, (Piece(kept, part),), 1.0))
            self._leaves[key] = leaves
        return self._leaves[key]

    def _split(self, queries: PlacedFamily, centres: list[Centre]) -> tuple[float, dict[Kept, Part]]:
        """Return what a family leaves on no axis, and the parts on others; equal parts are one object."""
        square, parts = split_parts(queries, centres, self._next)
        self._next += len(parts)
        if queries.family.is_symmetric and len(set(centres)) == 1:  # equal, not only up to rounding error
            first = {len(kept): part for kept, part in reversed(parts.items())}
            parts = {kept: first[len(kept)] for kept in parts}
        return square, {kept: self.parts.setdefault(part.digest, part) for kept, part in parts.items()}
