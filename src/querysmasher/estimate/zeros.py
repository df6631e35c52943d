"""Structural zeros: cells of tables that no record can be in, by public knowledge."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from querysmasher.conditions import conditions
from querysmasher.estimate.evidence import Place
from querysmasher.schema import Schema

Mask = NDArray[np.bool_]


class Zeros:
    """The possible cells of every table of a schema."""

    def __init__(self, schema: Schema) -> None:
        """Read the predicates of the schema."""
        self._sizes = schema.sizes
        self._stated = [conditions(schema, predicate) for predicate in schema.impossible_where]
        self._known: dict[Place, Mask | None] = {}

    def possible(self, place: Place) -> Mask | None:
        """Return which cells of the table on increasing attributes are possible, or None if all are.

        A cell is impossible if every record in it satisfies one of the predicates.
        """
        if place not in self._known:
            found = [one for masks in self._stated if (one := self._impossible(masks, place)) is not None]
            self._known[place] = ~reduce(np.logical_or, found) if found else None
        return self._known[place]

    def _impossible(self, masks: list[tuple[Place, Mask]], place: Place) -> Mask | None:
        """Return the cells of which all records satisfy conditions on disjoint attributes."""
        result = np.ones([self._sizes[a] for a in place], dtype=bool)
        for on, mask in masks:
            dropped = tuple(axis for axis, a in enumerate(on) if a not in place)
            kept = mask.all(axis=dropped)
            result &= kept.reshape([self._sizes[a] if a in on else 1 for a in place])
        return result if result.any() else None

    def allowed(self, columns: NDArray[np.int64]) -> Mask:
        """Return which records, given by the index of the value of each attribute, are possible."""
        result = np.ones(len(columns), dtype=bool)
        for masks in self._stated:
            hit = np.ones(len(columns), dtype=bool)
            for on, mask in masks:
                hit &= mask[tuple(columns[:, a] for a in on)]
            result &= ~hit
        return result
