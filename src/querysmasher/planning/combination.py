"""Whole measurements beside residual ones, combined by generalised least squares.

A *whole* measurement asks rows R over one attribute set as they are, not split over residual spaces. Split
around the plan's centres, its rows and a query q have coordinates on every attribute set A. Residual
measurements know some of these coordinates, each with covariance σ²_A V_A†, and nothing of the others. Every
linear unbiased estimate of q is  a·y + Σ_A (q_A − a R_A) ẑ_A  with y the noisy whole answers, ẑ_A the
estimates of the known coordinates, and a any coefficients with  a R_u = q_u  on the unknown ones. Its
variance is

    Var = q C qᵀ − 2 a·c + a K aᵀ,   c = q C Rᵀ,   K = R C Rᵀ + Σ

with C the covariance of the known coordinates and Σ that of the whole answers' noise. The best coefficients
are a = a₀ + t N, where a₀ = q_u R_u† and the rows N span the left null space of R_u, with
t = (c − a₀K) Nᵀ (N K Nᵀ)⁻¹. They are linear in q, so that answers stay consistent with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import Centre
from querysmasher.planning.known import KnownPredictor
from querysmasher.planning.lattice import Integers
from querysmasher.planning.least_squares import Weights, eliminated, is_outside
from querysmasher.planning.lifting import centred, lifted
from querysmasher.planning.measured import Measured
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.split import split_rows
from querysmasher.planning.whole_rows import Place, Whole, answer_gram, answered, on_values
from querysmasher.workload.groups import Group

CHUNK = 20_000_000
"""Maximum number of entries of the tables that are answered at once."""


class CombinedPredictor(Predictor):
    """Predicts variances from residual and whole measurements together, and corrects residual answers."""

    def __init__(self, residual: Predictor, wholes: Sequence[Whole]) -> None:
        """Take a predictor of what the residual measurements know, and the whole measurements."""
        super().__init__(
            residual.schema, residual.centres, residual.strategies, residual.measured, residual.public_total
        )
        self.residual = KnownPredictor(
            residual.schema, residual.centres, residual.strategies, residual.measured, residual.public_total
        )
        self.wholes = wholes
        self.count = sum(len(whole.rows) for whole in wholes)
        self.noise = np.concatenate([np.full(len(whole.rows), whole.variance) for whole in wholes])
        self.rows: dict[Place, Array] = {}
        """What all whole rows leave on sets that residual measurements know, on their cells."""
        self.known: dict[Place, Array] = {}
        """Their covariances with what is known: C Rᵀ, as residuals."""
        self._unmeasured: dict[Place, Array] = {}
        self._classes: dict[Place, tuple[Array, Sequence[Integers]]] = {}
        self.spread = np.zeros((self.count, self.count))
        """R C Rᵀ."""
        self.gram = np.zeros((self.count, self.count))
        """R_u R_uᵀ."""
        self._squares = np.zeros(self.count)
        for whole, start in zip(wholes, self._starts, strict=True):
            self._split_rows(whole, start)
        for attributes, rows in self.rows.items():
            self._add(attributes, rows)

    @property
    def _starts(self) -> list[int]:
        """The number of the first row of every whole measurement."""
        lengths = [len(whole.rows) for whole in self.wholes]
        return [sum(lengths[:place]) for place in range(len(lengths))]

    def _split_rows(self, whole: Whole, start: int) -> None:
        """Split the rows of a whole measurement over attribute sets."""
        centres = [
            Centre(np.bincount(own, weights=self.centres[a].weights).astype(float))
            for a, own in zip(whole.attributes, whole.maps, strict=True)
        ]
        every = slice(start, start + len(whole.rows))
        for kept, rows in split_rows(whole.rows, centres).items():
            attributes = tuple(whole.attributes[axis] for axis in kept)
            maps = [whole.maps[axis] for axis in kept]
            tensor = rows.reshape(-1, *(len(centres[axis]) for axis in kept))
            if len(self.wholes) == 1 and attributes not in self.residual.measured and attributes:
                self._add_classes(attributes, tensor, maps)
                continue
            tensor = on_values(tensor, maps)
            if attributes not in self.rows:
                self.rows[attributes] = np.zeros((self.count, *tensor.shape[1:]))
            self.rows[attributes][every] = tensor

    def _add_classes(self, attributes: Place, rows: Array, maps: Sequence[Integers]) -> None:
        """Add what the only whole rows leave on a set that is not measured, without writing values out."""
        sizes: Array = np.ones(())
        for own in maps:
            sizes = np.multiply.outer(sizes, np.bincount(own))
        left = (rows * np.sqrt(sizes)).reshape(self.count, -1)
        gram = left @ left.T
        self._squares += np.diagonal(gram)
        self.gram += gram
        self._classes[attributes] = (rows, maps)

    def _add(self, attributes: Place, rows: Array) -> None:
        """Add what the rows leave on one set to what is known, and to what is not."""
        if not attributes and self.public_total:
            return  # exactly known
        flat = rows.reshape(self.count, -1)
        self._squares += (flat**2).sum(axis=1)
        unknown: Array | None = rows
        if attributes in self.residual.measured:
            known = self.residual.covary(attributes, rows)
            self.known[attributes] = self._centred(attributes, known)
            self.spread += flat @ known.reshape(self.count, -1).T
            unknown = self.residual.outside(attributes, rows)
        if unknown is not None:
            left = unknown.reshape(self.count, -1)
            self.gram += left @ left.T
            self._unmeasured[attributes] = unknown

    def _centred(self, attributes: Place, rows: Array) -> Array:
        return centred(rows, [self.centres[a] for a in attributes], first=1)

    @cached_property
    def _unknown(self) -> dict[Place, Array]:
        """What the whole rows leave on sets that residual measurements do not know, as residuals."""
        written = {place: on_values(rows, maps) for place, (rows, maps) in self._classes.items()}
        return {place: self._centred(place, rows) for place, rows in (self._unmeasured | written).items()}

    @cached_property
    def _eliminated(self) -> tuple[Array, Array]:
        """The inverse of R_u's Gram matrix on its range, and the rows N."""
        return eliminated(self.gram, self._squares)

    def weights(self, residual: float = 1.0, whole: float = 1.0) -> Weights:
        """Return the best weights if the residual and the whole noise variances were multiples of theirs."""
        inverse, null = self._eliminated
        return Weights.of(inverse, null, residual * self.spread + np.diag(whole * self.noise))

    @cached_property
    def _weights(self) -> Weights:
        return self.weights()

    @cached_property
    def _gains(self) -> dict[Place, Array]:
        """The known parts, combined so that each by itself lowers the variance of a query that is known."""
        root = self._weights.root
        return {place: np.tensordot(root.T, known, axes=1) for place, known in self.known.items()}

    def correction(self, differences: Array) -> Callable[[Place], Array | None]:
        """Return what to add to the residual of any set, given the differences on the whole rows."""
        known, unknown = self._weights.corrections(differences)

        def on(attributes: Place) -> Array | None:
            parts = [
                np.tensordot(own, parts[attributes], axes=1)
                for own, parts in ((known, self.known), (unknown, self._unknown))
                if attributes in parts
            ]
            return sum(parts[1:], parts[0]) if parts else None

        return on

    def covariances(self, group: Group) -> tuple[Array, Array | None]:
        """Return c and u for every query of the group: the last axis runs over the whole rows.

        u is None if everything is known of all queries.
        """
        known = self._answers(group, self.known, self.count)
        return known, None if self.residual.knows(group) else self._answers(group, self._unknown, self.count)

    def variances(self, group: Group) -> Array:
        """Return the variance of every query of the group, with an axis per family."""
        base = self.residual.known_variances(group)
        if self.residual.knows(group):
            for tables in self._tables(group, self._gains):
                own = answered(group, tables)
                base -= np.einsum("...r,...r->...", own, own)
            return np.maximum(base, 0.0)
        known, unknown = self.covariances(group)
        self._check_inside(group, self._weights.coefficients(known, unknown), unknown)
        return np.maximum(base + self._weights.change(known, unknown), 0.0)

    def _check_inside(self, group: Group, a: Array, unknown: Array | None) -> None:
        """Refuse queries of which something is left that nobody measures."""
        if unknown is None:
            return
        left, length = self.residual.unknown_squares(group)
        if is_outside(a, unknown, self.gram, left, length):
            msg = (
                f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan does not "
                "measure them, nor what they follow from. Add these queries to the planned workload"
            )
            raise OutsideMeasuredSpaceError(msg)

    def check(self, group: Group) -> None:
        """Refuse a group that has queries outside what is measured."""
        if not self.residual.knows(group):
            known, unknown = self.covariances(group)
            self._check_inside(group, self._weights.coefficients(known, unknown), unknown)

    def largest(self, group: Group) -> float:
        """Return the largest variance of the group's queries."""
        return float(self.variances(group).max())

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries, not written out if all is known."""
        if not self.residual.knows(group):
            return float(self.variances(group).sum())
        gains = (
            np.trace(answer_gram(group, own, weighted=False)) for own in self._tables(group, self._gains)
        )
        return self.residual.total(group) - float(sum(gains))

    def known_gram(self, group: Group) -> Array:
        """Return the sum of weight × (c outer c) over the group's queries, of which all is known."""
        (tables,) = self._tables(group, self.known, most=self.count)
        return answer_gram(group, tables, weighted=True)

    def images(
        self,
        group: Group,
        only: Collection[Place] | None = None,  # noqa: ARG002 - any answer may depend on all noises
    ) -> Iterator[tuple[Measured, Array]]:
        """Iterate over the measurements, with the coefficients of their answers for every query, as rows."""
        known, unknown = self.covariances(group)
        a = self._weights.coefficients(known, unknown)
        self._check_inside(group, a, unknown)
        a = a.reshape(group.rows, self.count)
        own = {id(measured): image for measured, image in self.residual.images(group)}
        for attributes, noises in self.residual.measured.items():
            for measured in noises:
                image = own.get(id(measured))
                if attributes in self.rows:
                    taken = a @ self._image_of_rows(attributes, measured, group)
                    image = -taken if image is None else image - taken
                if image is not None:
                    yield measured, image
        for whole, start in zip(self.wholes, self._starts, strict=True):
            for measured in whole.noises:
                yield measured, a[:, start : start + len(whole.rows)]

    def _image_of_rows(self, attributes: Place, measured: Measured, group: Group) -> Array:
        """Return R B† on one set."""
        factors = [(tuple(range(len(attributes))), self.rows[attributes].reshape(self.count, -1))]
        return self._image(factors, measured.blocks, group, strict=False).reshape(self.count, -1)

    def _answers(self, group: Group, parts: Mapping[Place, Array], count: int) -> Array:
        (tables,) = self._tables(group, parts, most=count)
        return answered(group, tables)

    def _tables(self, group: Group, parts: Mapping[Place, Array], most: int = 0) -> Iterator[Array]:
        """Iterate over tables on the group's attributes made of the parts, some numbers of them at a time."""
        places = self.schema.positions(group.attributes)
        count = max((len(part) for part in parts.values()), default=0) or most
        cells = int(np.prod([self.schema.sizes[a] for a in places], dtype=float))
        step = max(most, 1, CHUNK // max(cells, group.rows))
        for start in range(0, count, step):
            some = slice(start, min(start + step, count))
            own = {place: part[some] for place, part in parts.items() if set(place) <= set(places)}
            yield lifted(own.get, places, self.centres, (some.stop - start,))
