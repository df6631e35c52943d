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
from dataclasses import replace
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import Centre
from querysmasher.planning.known import KnownPredictor
from querysmasher.planning.least_squares import Weights, eliminated, is_outside
from querysmasher.planning.lifting import centred, lifted
from querysmasher.planning.measured import Measured
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.split import split_rows
from querysmasher.planning.whole import QueryByQuery
from querysmasher.planning.whole_parts import Part, inner_products, written_out
from querysmasher.planning.whole_rows import Place, Whole, answer_gram, answered
from querysmasher.workload.groups import Group

CHUNK = 20_000_000
"""Maximum number of entries of the tables that are answered at once."""


class CombinedPredictor(QueryByQuery):
    """Predicts variances from residual and whole measurements together, and corrects residual answers."""

    kind = "combined"

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
        self._left: dict[Place, list[Part]] = {}
        """What all whole rows leave on every set, over classes."""
        self.rows: dict[Place, list[Part]] = {}
        """The same on sets that residual measurements know, over values."""
        self.known: dict[Place, list[Part]] = {}
        """Their covariances with what is known: C Rᵀ, as residuals."""
        self._unknown: dict[Place, list[Part]] = {}
        """What they leave that residual measurements do not know."""
        self.spread = np.zeros((self.count, self.count))
        """R C Rᵀ."""
        self.gram = np.zeros((self.count, self.count))
        """R_u R_uᵀ."""
        self._squares = np.zeros(self.count)
        for whole, start in zip(wholes, self._starts, strict=True):
            self._split_rows(whole, start)
        for attributes, parts in self._left.items():
            self._add(attributes, parts)

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
            tensor = rows.reshape(-1, *(len(centres[axis]) for axis in kept))
            part = Part(every, attributes, tensor, tuple(whole.maps[axis] for axis in kept))
            self._left.setdefault(attributes, []).append(part)

    def _add(self, attributes: Place, parts: list[Part]) -> None:
        """Add what the rows leave on one set to what is known, and to what is not."""
        if not attributes and self.public_total:
            self.rows[attributes] = parts
            return  # exactly known
        for part in parts:
            self._squares[part.at] += part.squares()
        unknown = parts
        if attributes in self.residual.measured:
            unknown = []
            own = self.rows[attributes] = [replace(part, rows=part.on_values(), maps=None) for part in parts]
            covaried = [replace(part, rows=self.residual.covary(attributes, part.rows)) for part in own]
            self.spread += inner_products(own, covaried, self.count)
            self.known[attributes] = [self._centred(part) for part in covaried]
            for part in own:
                outside = self.residual.outside(attributes, part.rows)
                if outside is not None:
                    unknown.append(replace(part, rows=outside))
        if unknown:
            self.gram += inner_products(unknown, unknown, self.count)
            self._unknown[attributes] = unknown

    def _centred(self, part: Part) -> Part:
        return replace(part, rows=centred(part.rows, [self.centres[a] for a in part.place], first=1))

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

    @property
    def corrects_known(self) -> bool:
        """Whether the whole answers say anything about what residual measurements know."""
        return len(self._eliminated[1]) > 0

    @cached_property
    def _gains(self) -> dict[Place, Array]:
        """The known parts, combined so that each by itself lowers the variance of a query that is known."""
        if not self.corrects_known:
            return {}
        root = self._weights.root
        return {
            place: np.tensordot(root.T, written_out(parts, self.count), axes=1)
            for place, parts in self.known.items()
        }

    def known_answers(self, residual: Callable[[Place], Array | None]) -> Array:
        """Return what given residuals say of the whole rows."""
        answers = np.zeros(self.count)
        for attributes, parts in self.rows.items():
            own = residual(attributes)
            if own is not None:
                for part in parts:
                    answers[part.at] += part.rows.reshape(len(part.rows), -1) @ own.ravel()
        return answers

    def correction(self, differences: Array) -> Callable[[Place], Array | None]:
        """Return what to add to the residual of any set, given the differences on the whole rows."""
        known, unknown = self._weights.corrections(differences)

        def on(attributes: Place) -> Array | None:
            centres = [self.centres[a] for a in attributes]
            parts = [part.combined(known) for part in self.known.get(attributes, ())]
            parts += [centred(part.combined(unknown), centres) for part in self._unknown.get(attributes, ())]
            return sum(parts[1:], parts[0]) if parts else None

        return on

    def covariances(self, group: Group) -> tuple[Array, Array | None]:
        """Return c and u for every query of the group: the last axis runs over the whole rows.

        u is None if everything is known of all queries.
        """
        known, unknown = np.zeros((*group.shape, self.count)), np.zeros((*group.shape, self.count))
        for attributes, shares in self.residual.all_shares(group, summed=False):
            for result, found in ((known, self.known), (unknown, self._unknown)):
                for part in found.get(attributes, ()):
                    result[..., part.at] += part.with_shares(shares)
        return known, None if self.residual.knows(group) else unknown

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

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries, not written out if all is known."""
        if not self.residual.knows(group):
            return super().total(group)
        gains = (
            np.trace(answer_gram(group, own, weighted=False)) for own in self._tables(group, self._gains)
        )
        return self.residual.total(group) - float(sum(gains))

    def known_gram(self, group: Group) -> Array:
        """Return the sum of weight × (c outer c) over the group's queries, of which all is known."""
        places = set(self.schema.positions(group.attributes))
        known = {own: written_out(p, self.count) for own, p in self.known.items() if set(own) <= places}
        (tables,) = self._tables(group, known, most=self.count)
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
        rows = written_out(self.rows[attributes], self.count).reshape(self.count, -1)
        factors = [(tuple(range(len(attributes))), rows)]
        return self._image(factors, measured.blocks, group, strict=False).reshape(self.count, -1)

    def _tables(self, group: Group, parts: Mapping[Place, Array], most: int = 0) -> Iterator[Array]:
        """Iterate over tables on the group's attributes made of the parts, some numbers of them at a time."""
        places = self.schema.positions(group.attributes)
        count = max((len(part) for part in parts.values()), default=0) or most
        cells = int(np.prod([self.schema.sizes[a] for a in places], dtype=float))
        step = max(most, 1, CHUNK // max(cells, group.rows))
        for start in range(0, count, step):
            some = slice(start, min(start + step, count))
            own = {place: part[some] for place, part in parts.items() if set(place) <= set(places)}
            yield lifted(own.get, places, self.schema.sizes, self.centre, (some.stop - start,))
