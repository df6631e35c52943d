"""The best linear unbiased estimate of any query, from everything that a plan or a release measures.

Residual measurements are independent of each other, so that their part is a sum (`residual`). Rows that are
measured whole are one Schur complement on top (`whole`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from querysmasher.arrays import CHUNK, Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import Centres
from querysmasher.planning.estimator.lifting import centred, lifted
from querysmasher.planning.estimator.residual import AttributeSet, Residuals
from querysmasher.planning.estimator.whole import Whole, WholeRows, answer_squares, class_centres, summed
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies import Strategy
from querysmasher.schema import Schema
from querysmasher.workload.workload import Group


class Estimator:
    """Variances, covariances and tables under given measurements."""

    def __init__(self, residual: Residuals, wholes: Sequence[Whole] = ()) -> None:
        """Take residual measurements and those of whole rows beside them."""
        if wholes and not any(residual.measured):  # nothing but the total: any centres will do
            residual = replace(residual, centres=class_centres(residual.schema, wholes))
        self.residual = residual
        self.schema, self.centres, self.strategies = residual.schema, residual.centres, residual.strategies
        self.measured, self.public_total = residual.measured, residual.public_total
        self.whole = WholeRows(residual, wholes) if wholes else None

    @classmethod
    def of(
        cls,
        schema: Schema,
        centres: Centres,
        strategies: Sequence[Strategy],
        measured: Iterable[tuple[Measured, ...]],
        *,
        public_total: bool,
    ) -> Estimator:
        """Return the estimator from measurements, each given by its independent noises, which add up."""
        split: dict[AttributeSet, tuple[Measured, ...]] = {}
        wholes: list[tuple[Measured, ...]] = []
        for noises in measured:
            if any(strategies[number].whole for _, number in noises[0].blocks):
                wholes.append(noises)
            else:
                split[noises[0].attributes] = noises
        if len(wholes) == 1 and not split and wholes[0][0].attributes:
            (noises,) = wholes
            split, wholes = {noises[0].attributes: noises}, []
        residual = Residuals(schema, centres, strategies, split, public_total)
        return cls(residual, [Whole.of(noises, strategies) for noises in wholes])

    @property
    def is_single(self) -> bool:
        """Whether there is one measurement, of whole rows."""
        return self.residual.whole_set is not None

    @property
    def is_split(self) -> bool:
        """Whether everything is measured as residuals."""
        return self.whole is None and not self.is_single

    @property
    def whole_rows(self) -> WholeRows:
        """The rows that are measured whole, where there are some beside others."""
        assert self.whole is not None  # noqa: S101 - callers know
        return self.whole

    # --- variances ---

    def variances(self, group: Group) -> Array:
        """Return the variance of every query, with an axis per family; refuse what is not measured."""
        if self.whole is None:
            return self.residual.variances(group)
        base = self.residual.variances(group, known=True)
        if self.residual.knows(group):
            for tables in self._tables(group):
                gains = summed(group, tables)
                base -= np.einsum("r...,r...->...", gains, gains)
            return np.maximum(base, 0.0)
        return np.maximum(base + self.whole.change(*self._checked(group)), 0.0)

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries, not written out if all is known."""
        if self.whole is None:
            return self.residual.total(group)
        if not self.residual.knows(group):
            return float(self.variances(group).sum())
        return max(self.residual.total(group) - self.gain(group, weighted=False), 0.0)

    def gain(self, group: Group, *, weighted: bool) -> float:
        """Return by how much rows measured whole lower the loss of a group of which residuals know all."""
        return math.fsum(answer_squares(group, tables, weighted=weighted) for tables in self._tables(group))

    def check(self, group: Group) -> None:
        """Refuse a group that has queries outside what is measured."""
        if self.whole is not None:
            self._checked(group)
        elif self.is_single:
            self.variances(group)
        else:
            next(self.residual.measured_parts(group), None)

    def images(
        self, group: Group, only: Collection[AttributeSet] | None = None
    ) -> Iterator[tuple[Measured, Array]]:
        """Iterate over the measurements, with the coefficients of their answers for every query, as rows.

        With `only`, residual measurements of other attribute sets may be left out.
        """
        if self.whole is None:
            yield from self.residual.images(group, only)
            return
        rows = self.whole
        a = rows.coefficients(*self._checked(group)).reshape(group.rows, -1)
        images = {id(measured): image for measured, image in self.residual.images(group, known=True)}
        for subset, noises in self.residual.measured.items():
            for measured in noises:
                split = images.get(id(measured))
                if subset in rows.parts:
                    part = rows.parts[subset]
                    factors = [(tuple(range(len(subset))), part.rows.reshape(len(part.rows), -1))]
                    taken = self.residual.image(factors, measured.blocks, group, strict=False)
                    taken = a[:, part.at] @ taken.reshape(len(part.rows), -1)
                    split = -taken if split is None else split - taken
                if split is not None:
                    yield measured, split
        for whole, at in zip(rows.wholes, rows.slices, strict=True):
            for measured in whole.noises:
                yield measured, a[:, at]

    # --- whole rows beside residuals ---

    def _checked(self, group: Group) -> tuple[Array, Array | None]:
        """Return c and ⟨q_u, R_u⟩ of every query; refuse queries of which something is left."""
        known = self.whole_rows.known(group)
        if self.residual.knows(group):
            return known, None
        unknown, left, lengths = self.whole_rows.unknown(group)
        if self.whole_rows.leaves_out(known, unknown, left, lengths):
            msg = (
                f"the queries on ({', '.join(group.attributes)}) cannot be answered: they do not "
                "follow from what the plan measures. Add these queries to the planned workload"
            )
            raise OutsideMeasuredSpaceError(msg)
        return known, unknown

    @cached_property
    def _gains(self) -> dict[AttributeSet, Array]:
        """The known parts, combined so that each by itself lowers the variance of a query that is known."""
        gains = {}
        for subset, part in self.whole_rows.parts.items():
            residual = centred(part.covaried, self._centres(subset), first=1)
            gains[subset] = np.tensordot(self.whole_rows.root[part.at].T, residual, axes=1)
        return gains

    def _centres(self, subset: AttributeSet) -> Centres:
        return tuple(self.centres[attribute] for attribute in subset)

    def _tables(self, group: Group) -> Iterator[Array]:
        """Iterate over tables on the group's attributes made of the gains, some at a time: the last axis."""
        attributes, count = self.schema.positions(group.attributes), self.whole_rows.root.shape[1]
        cells = math.prod(self.schema.sizes[a] for a in attributes)
        step = max(1, CHUNK // max(cells, group.rows))
        for start in range(0, count, step):
            lead = (min(step, count - start),)
            gains = {subset: part[start : start + step] for subset, part in self._gains.items()}
            tables = lifted(gains.get, attributes, self.schema.sizes, self.residual.centre, lead)
            yield np.moveaxis(tables, 0, -1)

    # --- tables ---

    def table(
        self,
        attributes: AttributeSet,
        residual: Callable[[AttributeSet], Array | None],
        answers: Callable[[], Array],
    ) -> Array:
        """Return a marginal on attributes in any order, right for every query that can be answered.

        `residual` returns the estimated residual of a set, or None; `answers` those to all whole rows.
        """
        if self.whole is None:
            return lifted(residual, attributes, self.schema.sizes, self.residual.centre)
        rows = self.whole
        known, unknown = rows.corrections(answers() - rows.known_answers(residual))

        def corrected(subset: AttributeSet) -> Array | None:
            noisy = residual(subset)
            change = rows.correction(subset, known, unknown)
            if change is None:
                return noisy
            change = centred(change, self._centres(subset))
            return change if noisy is None else noisy + change

        return lifted(corrected, attributes, self.schema.sizes, self.residual.centre)
