"""Several measurements of queries as they are, perhaps beside the total, combined by least squares.

All rows are functions on the whole domain, and so are queries. With ⟨f, g⟩ a mean of f·g over all cells,
G the Gram matrix of the rows R, and g = ⟨q, R⟩, a query q is in their span if and only if some coefficients a
have aG = g and leave nothing of it. Among these the least variance a Σ aᵀ wins (`least_squares`, with nothing
known beforehand), so answers are consistent with each other.

Values that no row distinguishes are a class. In the mean all classes of an attribute count alike, and so do
all values of a class: rare combinations of values stay visible beside the total. Nothing is written out over
the cells of an attribute set, only over its classes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import Centres
from querysmasher.planning.least_squares import OUTSIDE, Weights, eliminated, is_outside
from querysmasher.planning.limits import limits
from querysmasher.planning.measured import Measured
from querysmasher.planning.strategies import Strategy
from querysmasher.planning.value_classes import Classes, QueriesOnClasses, WholeOnClasses
from querysmasher.planning.whole import QueryByQuery
from querysmasher.planning.whole_rows import Place, Whole
from querysmasher.schema import Schema
from querysmasher.workload.groups import Group

ROUNDING = 1e-14
"""Relative error of squared lengths that are not written out."""

FAINT = 1e-8
"""Rows that contribute less than this fraction of a query are left out of what it consists of."""


class WholesPredictor(QueryByQuery):
    """Predicts variances from whole measurements on several attribute sets."""

    kind = "wholes"

    def __init__(
        self,
        schema: Schema,
        centres: Centres,
        strategies: Sequence[Strategy],
        measured: Mapping[Place, Sequence[Measured]],
        public_total: bool,
        wholes: Sequence[Whole],
    ) -> None:
        """Take the whole measurements; `measured` has at most the total."""
        super().__init__(schema, centres, strategies, measured, public_total)
        total = tuple(measured.get((), ()))
        every = [*wholes, Whole((), (), np.ones(1), total)] if total or public_total else wholes
        self.classes = Classes.of(schema.sizes, wholes)
        self.rows = [WholeOnClasses(whole, self.classes) for whole in every]
        """All rows that are known with some noise, or without: a public total."""

    @cached_property
    def _slices(self) -> list[slice]:
        """Where each whole measurement's rows are among all."""
        stops = np.cumsum([len(own) for own in self.rows]).tolist()
        return [slice(stop - len(own), stop) for stop, own in zip(stops, self.rows, strict=True)]

    @cached_property
    def gram(self) -> Array:
        """G: the inner products of all rows."""
        count = self._slices[-1].stop
        gram = np.empty((count, count))
        for one, at in zip(self.rows, self._slices, strict=True):
            for other, there in zip(self.rows, self._slices, strict=True):
                if at.start <= there.start:
                    gram[at, there] = one.products(other)
                    gram[there, at] = gram[at, there].T
        return gram

    @cached_property
    def noise(self) -> Array:
        """The variance of the noise on every row."""
        return np.concatenate([np.full(len(own), own.whole.variance) for own in self.rows])

    @cached_property
    def weights(self) -> Weights:
        """How the answers to the rows count."""
        return Weights.of(*eliminated(self.gram, np.diagonal(self.gram)), np.diag(self.noise))

    def coefficients(self, group: Group) -> Array:
        """Return a for every query of the group, with an axis per family; refuse what does not follow."""
        asked = QueriesOnClasses.of(self.schema, group, self.classes)
        given = np.concatenate([own.with_queries(asked) for own in self.rows], axis=-1)
        a = self.weights.coefficients(np.zeros_like(given), given)
        if not self._follow_from_one(group, asked, given) and self._leave_something(group, asked, a, given):
            msg = (
                f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan measures other "
                "queries, from which they do not follow. Add these queries to the planned workload"
            )
            raise OutsideMeasuredSpaceError(msg)
        return a

    def _follow_from_one(self, group: Group, asked: QueriesOnClasses, given: Array) -> bool:
        """Return whether the queries follow from one measurement and the total: most that are asked do."""
        for whole, at in self._each:
            if set(asked.places) <= set(whole.attributes):
                own = [(whole, at)] + [(one, there) for one, there in self._each if not one.attributes]
                some = np.concatenate([np.arange(there.start, there.stop) for _, there in own])
                gram = self.gram[np.ix_(some, some)]
                a = np.zeros_like(given)
                a[..., some] = given[..., some] @ eliminated(gram, np.diagonal(gram))[0]
                if self._written_out(group, own, a) is False:
                    return True
        return False

    def _leave_something(self, group: Group, asked: QueriesOnClasses, a: Array, given: Array) -> bool:
        """Return whether combinations of the rows leave something of queries, or that cannot be told."""
        parts = np.abs(a) * np.sqrt(np.diagonal(self.gram))
        least = FAINT * np.sqrt(asked.squares())
        sure = np.any(parts.reshape(-1, parts.shape[-1]) > least.reshape(-1, 1), axis=0)
        found = self._written_out(group, [(whole, at) for whole, at in self._each if sure[at].any()], a)
        if found is not None:
            return found
        rounding = ROUNDING * parts.sum(axis=-1) ** 2
        return is_outside(a, given, self.gram, asked.squares() + rounding, asked.squares())

    def _written_out(self, group: Group, involved: Sequence[tuple[Whole, slice]], a: Array) -> bool | None:
        """Return whether some rows leave something, told cell by cell; None if the cells are too many."""
        attributes = self.schema.positions(group.attributes)
        places = sorted({*attributes, *(p for whole, _ in involved for p in whole.attributes)})
        classes = Classes.of(self.schema.sizes, [whole for whole, _ in involved])
        if classes.cells(places) * group.rows > limits().class_entries:
            return None
        asked = QueriesOnClasses.of(self.schema, group, classes)
        rest = asked.on(places)
        for whole, at in involved:
            rest = rest - WholeOnClasses(whole, classes).combined(a[..., at], places)
        left = asked.within() + classes.mean_square(rest, places)
        return bool(np.any(left > OUTSIDE**2 * asked.squares()))

    @property
    def _each(self) -> list[tuple[Whole, slice]]:
        return [(own.whole, at) for own, at in zip(self.rows, self._slices, strict=True)]

    def check(self, group: Group) -> None:
        """Refuse a group that has queries outside the span of what is measured."""
        self.coefficients(group)

    def variances(self, group: Group) -> Array:
        """Return the variance of every query of the group, with an axis per family."""
        return np.asarray(self.coefficients(group) ** 2 @ self.noise)

    def images(
        self,
        group: Group,
        only: Collection[Place] | None = None,  # noqa: ARG002 - any answer may depend on all noises
    ) -> Iterator[tuple[Measured, Array]]:
        """Iterate over the measurements, with the coefficients of their answers for every query, as rows."""
        a = self.coefficients(group).reshape(group.rows, -1)
        for own, at in zip(self.rows, self._slices, strict=True):
            for measured in own.whole.noises:
                yield measured, a[:, at]

    def marginal(self, attributes: Place, answers: Array) -> Array:
        """Return a table on increasing attributes, right for queries that follow, given all rows' answers."""
        _, each = self.weights.corrections(answers)
        table: Array = np.zeros(())
        for own, at in zip(self.rows, self._slices, strict=True):
            table = table + own.combined(each[at], attributes)
        return self.classes.spread(table, attributes)
