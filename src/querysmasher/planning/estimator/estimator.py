"""The best linear unbiased estimate of any query, from everything that a plan or a release measures.

Residual measurements are independent of each other, so that their part is a sum (`residual`). Rows that are
measured whole are one Schur complement on top (`whole`). One measurement of whole rows by itself answers what
lies in its span (`single`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from querysmasher.arrays import CHUNK, Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.cells import height
from querysmasher.planning.centre import Centres
from querysmasher.planning.estimator.lifting import centred, lifted
from querysmasher.planning.estimator.residual import Residuals
from querysmasher.planning.estimator.whole import (
    Place,
    Whole,
    WholeRows,
    answer_squares,
    answered,
    class_centres,
    is_outside,
)
from querysmasher.planning.solution import Measured
from querysmasher.planning.split import PlacedFamily
from querysmasher.planning.strategies import AxisRows, Strategy
from querysmasher.schema import Schema
from querysmasher.workload.workload import Group


class Estimator:
    """Variances, covariances and tables under given measurements."""

    def __init__(
        self,
        residual: Residuals,
        wholes: Sequence[Whole] = (),
        single: tuple[Measured, ...] | None = None,
    ) -> None:
        """Take residual measurements and those of whole rows; or a `single` one, given by its noises."""
        if wholes and not any(residual.measured):  # nothing but the total: any centres will do
            residual = replace(residual, centres=class_centres(residual.schema, wholes))
        self.residual, self.single = residual, single
        self.schema, self.centres, self.strategies = residual.schema, residual.centres, residual.strategies
        self.measured, self.public_total = residual.measured, residual.public_total
        self.whole = WholeRows(residual, wholes) if wholes else None
        self._known: dict[Hashable, Array] = {}

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
        split: dict[Place, tuple[Measured, ...]] = {}
        wholes: list[tuple[Measured, ...]] = []
        for noises in measured:
            if any(strategies[number].whole for _, number in noises[0].blocks):
                wholes.append(noises)
            else:
                split[noises[0].attributes] = noises
        residual = Residuals(schema, centres, strategies, split, public_total)
        if len(wholes) == 1 and not split:
            return cls(residual, single=wholes[0])
        return cls(residual, [Whole.of(noises, strategies) for noises in wholes])

    @property
    def is_split(self) -> bool:
        """Whether everything is measured as residuals."""
        return self.whole is None and self.single is None

    @property
    def whole_rows(self) -> WholeRows:
        """The rows that are measured whole, where there are some beside others."""
        assert self.whole is not None  # noqa: S101 - callers know
        return self.whole

    # --- variances ---

    def prepare(self, groups: Iterable[Group]) -> None:
        """Compute what is quicker to compute for several groups together, before they are asked for."""
        if self.single is None:
            return
        new = {
            _key(group): group
            for group in groups
            if group.rows <= self._strategy.rank and all(height(f) == f.rows for f in group.families)
        }
        new = {key: group for key, group in new.items() if key not in self._known and self._covers(group)}
        every = self._strategy.variances_if_contained(self._axis_rows(group) for group in new.values())
        self._known |= {
            key: variances for key, variances in zip(new, every, strict=True) if variances is not None
        }

    def variances(self, group: Group) -> Array:
        """Return the variance of every query, with an axis per family; refuse what is not measured."""
        if self.single is not None:
            noise = math.fsum(m.variance for m in self.single)
            known = self._known.get(_key(group))
            variances = self._strategy.variances(self._factors(group)) if known is None else known
            return noise * variances.reshape(group.shape)
        if self.whole is None:
            return self.residual.variances(group)
        base = self.residual.variances(group, known=True)
        if self.residual.knows(group):
            for tables in self._tables(group):
                gains = answered(group, tables)
                base -= np.einsum("...r,...r->...", gains, gains)
            return np.maximum(base, 0.0)
        known, unknown = self._checked(group)
        return np.maximum(base + self.whole_rows.weights.change(known, unknown), 0.0)

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries, not written out if all is known."""
        if self.is_split:
            return self.residual.total(group)
        if self.whole is None or not self.residual.knows(group):
            return float(self.variances(group).sum())
        return max(self.residual.total(group) - self.gain(group, weighted=False), 0.0)

    def gain(self, group: Group, *, weighted: bool) -> float:
        """Return by how much rows measured whole lower the loss of a group of which residuals know all."""
        return math.fsum(answer_squares(group, tables, weighted=weighted) for tables in self._tables(group))

    def check(self, group: Group) -> None:
        """Refuse a group that has queries outside what is measured."""
        if self.single is not None:
            self._factors(group)
        elif self.whole is None:
            for _ in self.residual.shares(group):
                break
        elif not self.residual.knows(group):
            self._checked(group)

    def images(self, group: Group, only: Collection[Place] | None = None) -> Iterator[tuple[Measured, Array]]:
        """Iterate over the measurements, with the coefficients of their answers for every query, as rows.

        With `only`, residual measurements of other attribute sets may be left out.
        """
        if self.single is not None:
            image = self.residual.image(self._factors(group), self.single[0].blocks, group)
            for measured in self.single:
                yield measured, image.reshape(group.rows, -1)
            return
        if self.whole is None:
            yield from self.residual.images(group, only)
            return
        known, unknown = self._checked(group)
        a = self.whole_rows.weights.coefficients(known, unknown).reshape(group.rows, -1)
        images = {id(measured): image for measured, image in self.residual.images(group, known=True)}
        for subset, noises in self.residual.measured.items():
            for measured in noises:
                split = images.get(id(measured))
                if subset in self.whole_rows.parts:
                    part = self.whole_rows.parts[subset]
                    factors = [(tuple(range(len(subset))), part.rows.reshape(len(part.rows), -1))]
                    taken = self.residual.image(factors, measured.blocks, group, strict=False)
                    taken = a[:, part.at] @ taken.reshape(len(part.rows), -1)
                    yield measured, -taken if split is None else split - taken
                elif split is not None:
                    yield measured, split
        for whole, at in zip(self.whole_rows.wholes, self.whole_rows.slices, strict=True):
            for measured in whole.noises:
                yield measured, a[:, at]

    # --- whole rows beside residuals ---

    def _checked(self, group: Group) -> tuple[Array, Array | None]:
        """Return c and ⟨q_u, R_u⟩ of every query; refuse queries of which something is left."""
        known = self.whole_rows.known(group)
        if self.residual.knows(group):
            return known, None
        unknown, left, lengths = self.whole_rows.unknown(group)
        a = self.whole_rows.weights.coefficients(known, unknown)
        if is_outside(a, unknown, self.whole_rows.gram, left, lengths):
            msg = (
                f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan does not "
                "measure them, nor what they follow from. Add these queries to the planned workload"
            )
            raise OutsideMeasuredSpaceError(msg)
        return known, unknown

    @cached_property
    def _gains(self) -> dict[Place, Array]:
        """The known parts, combined so that each by itself lowers the variance of a query that is known."""
        if not self.whole_rows.corrects_known:
            return {}
        root = self.whole_rows.weights.root
        gains = {}
        for subset, part in self.whole_rows.parts.items():
            residual = centred(part.covaried, self._centres(subset), first=1)
            gains[subset] = np.tensordot(root[part.at].T, residual, axes=1)
        return gains

    def _centres(self, subset: Place) -> Centres:
        return tuple(self.centres[attribute] for attribute in subset)

    def _tables(self, group: Group) -> Iterator[Array]:
        """Iterate over tables on the group's attributes made of the gains, some numbers of them at a time."""
        places = self.schema.positions(group.attributes)
        count = max(map(len, self._gains.values()), default=0)
        cells = math.prod(self.schema.sizes[a] for a in places)
        step = max(1, CHUNK // max(cells, group.rows))
        for start in range(0, count, step):
            some = slice(start, min(start + step, count))
            inside = {
                subset: part[some] for subset, part in self._gains.items() if set(subset) <= set(places)
            }
            yield lifted(inside.get, places, self.schema.sizes, self.residual.centre, (some.stop - start,))

    # --- tables ---

    def table(
        self,
        attributes: Place,
        residual: Callable[[Place], Array | None],
        answers: Callable[[], Array],
    ) -> Array:
        """Return a marginal on attributes in any order, right for every query that can be answered.

        `residual` returns the estimated residual of a set, or None; `answers` those to all whole rows.
        """
        if self.whole is None:
            return lifted(residual, attributes, self.schema.sizes, self.residual.centre)
        rows = self.whole_rows
        known, unknown = rows.weights.corrections(answers() - rows.known_answers(residual))

        def corrected(subset: Place) -> Array | None:
            noisy = residual(subset)
            change = rows.correction(subset, known, unknown)
            if change is None:
                return noisy
            change = centred(change, self._centres(subset))
            return change if noisy is None else noisy + change

        table = lifted(corrected, attributes, self.schema.sizes, self.residual.centre)
        ordered = tuple(sorted(attributes))
        rest = rows.unknown_table(ordered, unknown)
        return np.asarray(table + rest.transpose([ordered.index(a) for a in attributes]))

    # --- one measurement of whole rows ---

    @property
    def _strategy(self) -> Strategy:
        """The strategy of the single measurement."""
        assert self.single is not None  # noqa: S101 - callers know
        ((_, number),) = self.single[0].blocks
        return self.strategies[number]

    def _covers(self, group: Group) -> bool:
        assert self.single is not None  # noqa: S101 - callers know
        return set(self.schema.positions(group.attributes)) <= set(self.single[0].attributes)

    def _factors(self, group: Group) -> list[AxisRows]:
        """Return the group's families on the axes of the measured set, if it can be answered."""
        covers = self._covers(group)
        factors = self._axis_rows(group) if covers else []
        if _key(group) in self._known:
            return factors
        spanning = [
            (axes, np.eye(family.cells)) if height(family) < family.rows else (axes, rows)
            for (axes, rows), family in zip(factors, group.families, strict=False)
        ]
        if not covers or not self._strategy.contains(spanning + factors[len(spanning) :]):
            msg = (
                f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan measures other "
                "queries, from which they do not follow. Add these queries to the planned workload"
            )
            raise OutsideMeasuredSpaceError(msg)
        return factors

    def _axis_rows(self, group: Group) -> list[AxisRows]:
        """Return the group's families on the axes of the measured set, and ones on the others."""
        assert self.single is not None  # noqa: S101 - callers know
        axis_of = {attribute: axis for axis, attribute in enumerate(self.single[0].attributes)}
        factors: list[AxisRows] = []
        for names, family in group.parts():
            places = self.schema.positions(names)
            rows = PlacedFamily.on(places, family).tensor(weighted=False).reshape(family.rows, -1)
            factors.append((tuple(axis_of[p] for p in sorted(places)), np.ascontiguousarray(rows)))
        rest = sorted(set(axis_of.values()) - {a for axes, _ in factors for a in axes})
        if rest:
            cells = math.prod(self._strategy.shape[a] for a in rest)
            factors.append((tuple(rest), np.ones((1, cells))))
        return factors


def _key(group: Group) -> Hashable:
    return group.attributes, tuple(family.key for family in group.families)
