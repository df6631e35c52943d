"""Rows that are measured unsplit, and the group's queries on tables made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.lattice import Integers
from querysmasher.planning.measured import Measured
from querysmasher.planning.strategies import Strategy
from querysmasher.workload.groups import Group

Place = tuple[int, ...]
"""An attribute set: increasing indexes in the schema."""


@dataclass(frozen=True, eq=False)
class Whole:
    """Rows that are measured unsplit, on one attribute set."""

    attributes: Place
    maps: tuple[Integers, ...]
    """For every attribute, the class of each value: the rows do not distinguish values of one class."""
    rows: Array
    """One axis for the rows, then one axis of classes per attribute."""
    noises: tuple[Measured, ...]
    """Independent noises on the answers to the rows, whose variances add up."""

    @classmethod
    def of(cls, noises: tuple[Measured, ...], strategies: Sequence[Strategy]) -> Whole:
        """Return the rows of a measurement that is not split."""
        ((_, number),) = noises[0].blocks
        return cls(noises[0].attributes, *strategies[number].on_classes(), noises)

    @property
    def variance(self) -> float:
        """The variance of the noise on the answer to every row."""
        return sum(noise.variance for noise in self.noises)


def on_values(rows: Array, maps: Sequence[Integers]) -> Array:
    """Return rows over classes on the values of these classes."""
    for place, own in enumerate(maps, start=1):
        rows = rows.take(own, axis=place)
    return rows


def answered(group: Group, tables: Array) -> Array:
    """Answer the group's queries on tables, whose first axis numbers them; it becomes the last."""
    result = np.moveaxis(tables, 0, -1)
    for _, family in group.parts():  # each answers the first axes, and its queries go to the end
        result = np.moveaxis(family.answers(result), 0, -1)
    return np.moveaxis(result, 0, -1)


def answer_gram(group: Group, tables: Array, *, weighted: bool) -> Array:
    """Return Σ_q (q·T) outer (q·T) over the group's queries, for tables T along the first axis."""
    left = right = np.moveaxis(tables, 0, -1)
    for _, family in group.parts():
        axes = len(family.shape)
        if family.closed_form:
            flat = right.reshape(family.cells, -1)
            right = (family.gram() @ flat).reshape(right.shape)
        else:
            roots = np.sqrt(family.weights) if weighted and family.weights is not None else None
            left, right = (
                own if roots is None else own * roots.reshape(-1, *[1] * (own.ndim - 1))
                for own in (family.answers(left), family.answers(right))
            )
            axes = 1
        ends = range(left.ndim - axes, left.ndim)
        left, right = (np.moveaxis(own, range(axes), ends) for own in (left, right))
    left, right = (own.reshape(own.shape[0], -1) for own in (left, right))
    return (group.weight if weighted else 1.0) * (left @ right.T)
