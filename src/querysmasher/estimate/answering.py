"""Answers from estimated tables, or from the sums that were measured, shrunk around the estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.estimate.batches import arranged
from querysmasher.estimate.evidence import Place
from querysmasher.estimate.monotone import plausible
from querysmasher.estimate.strategy_space import Shrunken
from querysmasher.estimate.zeros import Zeros
from querysmasher.release.reconstruction import summed
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload


class Tables(Protocol):
    """What computes tables: a model, or one in integers."""

    @property
    def total(self) -> float: ...
    def table(self, place: Place) -> Array: ...
    def tables(self, places: Sequence[Place]) -> Iterator[Array]: ...


@dataclass(frozen=True, eq=False, slots=True)
class Answering:
    """What answers the groups of a workload.

    Counts of single cells are those of the estimated tables. Other queries are answered by the first release
    that measured them, and by sums of cells if none did.
    """

    schema: Schema
    tables: Callable[[Sequence[Place]], Iterator[Array]]
    """Computes tables."""
    shrunken: tuple[Shrunken, ...] = ()
    """The measured sums of each release, shrunk around the estimate."""
    zeros: Zeros | None = None
    """The possible cells; None if all answers are sums of cells."""
    public_total: int | None = None
    """The number of records, if it is public."""

    def answers(self, workload: Workload) -> Iterator[Array]:
        """Iterate over the answers to each group, with an axis per family."""
        groups = list(workload)
        shrunk = [None if group.is_marginal else self._shrunk(group) for group in groups]
        places = [self.schema.positions(group.attributes) for group in groups]
        rest = [tuple(sorted(p)) for p, own in zip(places, shrunk, strict=True) if own is None]
        with one_core():
            tables = self.tables(rest)
            for group, positions, own in zip(groups, places, shrunk, strict=True):
                found = _summed(group, positions, next(tables)) if own is None else own
                yield found if group.is_marginal else self._known(group, found)

    def _shrunk(self, group: Group) -> Array | None:
        """Return unbiased answers, shrunk around the estimate, if the group was measured."""
        for source in self.shrunken:
            found = source.answer(group)
            if found is not None:
                return self._possible(group, found)
        return None

    def _possible(self, group: Group, answers: Array) -> Array:
        """Return the nearest answers that counts can be; zero if all cells of a query are impossible."""
        families = [family.original for family in group.families]
        if all(family.closed_form or family.matrix().min(initial=0.0) >= 0 for family in families):
            answers = plausible(answers, [i for i, one in enumerate(families) if one.is_growing])
        if self.public_total is not None and all(map(_counts, families)):
            answers = np.minimum(answers, float(self.public_total))
        positions = self.schema.positions(group.attributes)
        mask = None if self.zeros is None else self.zeros.possible(tuple(sorted(positions)))
        if mask is None:
            return answers
        return answers * (_summed(group, positions, mask.astype(float)) != 0)

    def _known(self, group: Group, answers: Array) -> Array:
        """Return answers of which those about all records are exactly the public number."""
        if self.public_total is None:
            return answers
        often = reduce(np.multiply.outer, (_often(family.original) for family in group.families))
        return np.where(np.isnan(often), answers, often * float(self.public_total))


def _summed(group: Group, positions: Place, values: Array) -> Array:
    """Return answers as sums of estimated cells."""
    result = arranged(values, positions)
    return result if all(family.counts_values for family in group.families) else summed(group, result)


def _counts(family: Family) -> bool:
    """Return whether every query counts some cells once, and no other."""
    return family.closed_form or bool(np.isin(family.matrix(), (0, 1)).all())


def _often(family: Family) -> Array:
    """Return how often each query counts every cell; not a number if it does not count all equally often."""
    if family.closed_form:
        return np.where(family.answers(np.ones(family.shape)) == family.cells, 1.0, np.nan)
    matrix = family.matrix()
    return np.where(matrix.min(axis=1) == matrix.max(axis=1), matrix.max(axis=1), np.nan)
