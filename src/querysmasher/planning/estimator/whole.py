"""Rows that are measured whole, not split, beside residual measurements: one Schur complement on top.

Let residual measurements give some coordinates of a query q, with covariance C, and let y be the answers to
rows R that were measured whole, with noise Σ. Every linear unbiased estimate of q is a·y + (q − aR)·ẑ
on what is known, with ẑ the estimates of the known coordinates and a any coefficients with aR_u = q_u on the
unknown ones. Its variance is

    Var = q C qᵀ − 2 a·c + a K aᵀ,   c = q C Rᵀ,   K = R C Rᵀ + Σ,

and the best coefficients are linear in q, so that answers are consistent with each other.

Rows and queries are functions on the whole domain, and split over attribute sets alike. With ν the product of
the attributes' centres, what a function leaves on different sets is orthogonal in ⟨f, g⟩ = E_ν[fg]. So the
inner products of unknown parts are those of the rows, less those of their parts on measured sets. Of a set
that is measured in part, what its strategies leave out counts as well, as a plain mean of products over its
cells. On any set, rows are means over all other attributes, and constant on classes of values: nothing is
written out over all attributes. Where nothing is known but the total, any centres will do: those that give
all classes of an attribute the same weight (`class_centres`) keep rare combinations of values visible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations_with_replacement
from operator import attrgetter
from typing import cast

import numpy as np

from querysmasher.arrays import CHUNK, Array, square_root
from querysmasher.planning.centre import Centre, Centres, complement
from querysmasher.planning.estimator.estimator import (
    AttributeSet,
    Estimator,
    QueryPart,
    reduced,
    subsets,
    unanswerable,
)
from querysmasher.planning.lattice import RANK, Integers
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies import DenseStrategy, MergedStrategy, Strategy
from querysmasher.planning.strategies.strategy import squared_lengths
from querysmasher.privacy.unit import Known
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group


@dataclass(frozen=True, eq=False)
class Whole:
    """Rows that are measured whole on one attribute set."""

    attributes: AttributeSet
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
        strategy = cast("MergedStrategy", strategies[number])  # the only kind that is not split
        rows = np.take(strategy.matrix, strategy.labels, axis=1)
        return cls(noises[0].attributes, strategy.maps, rows, noises)

    def classes(self, attribute: int) -> Integers:
        """Return the class of every value of an attribute."""
        return self.maps[self.attributes.index(attribute)]

    def over_values(self, rows: Array, subset: AttributeSet) -> Array:
        """Return rows over the values of some attributes, the last axes, instead of over their classes."""
        for axis, attribute in enumerate(subset, start=rows.ndim - len(subset)):
            rows = rows.take(self.classes(attribute), axis=axis)
        return rows

    @property
    def variance(self) -> float:
        """The variance of the noise on the answer to every row."""
        return sum(noise.variance for noise in self.noises)


@dataclass(frozen=True, eq=False)
class _Part:
    """What rows leave on a known set, over values."""

    at: Integers
    """Indexes of the rows among all."""
    rows: Array
    covaried: Array
    """R_A C."""
    outside: Array | None
    """What the residual strategies leave out of R_A, times `share`; None if that is nothing."""

    @property
    def share(self) -> float:
        """(number of cells)^-½."""
        return math.prod(self.rows.shape[1:]) ** -0.5


def class_centres(schema: Schema, wholes: Sequence[Whole]) -> Centres:
    """Return centres that give equal weights to all classes of values that some rows distinguish."""
    maps: list[list[Integers]] = [[np.zeros(n, dtype=np.int64)] for n in schema.sizes]
    for whole in wholes:
        for attribute, classes in zip(whole.attributes, whole.maps, strict=True):
            maps[attribute].append(classes)
    joint = (np.unique(np.stack(classes), axis=1, return_inverse=True)[1].ravel() for classes in maps)
    return tuple(Centre(1 / (np.bincount(classes)[classes] * (int(classes.max()) + 1))) for classes in joint)


def estimator_of(
    schema: Schema,
    centres: Centres,
    strategies: Sequence[Strategy],
    measured: Iterable[tuple[Measured, ...]],
    known: Known,
) -> Estimator:
    """Return the estimator from measurements, each given by its independent noises, which add up."""
    every = list(measured)
    is_whole = [any(strategies[number].whole for _, number in noises[0].blocks) for noises in every]
    if len(every) == 1 and every[0][0].attributes and not known.sets:
        is_whole = [False]  # an `Estimator` alone handles one set of whole rows
    split = {noises[0].attributes: noises for noises, whole in zip(every, is_whole, strict=True) if not whole}
    wholes = [Whole.of(noises, strategies) for noises, whole in zip(every, is_whole, strict=True) if whole]
    if wholes:
        strategies, split = [*strategies], dict(split)
        for some in {part for known_set in known.sets for part in subsets(sorted(known_set))}:
            if some not in split and (grouped := known.partly(some)) is not None:
                split[some] = (_of_groups(schema, some, grouped, known, strategies),)
    residual = Estimator(schema, centres, strategies, split, known)
    return CombinedEstimator(residual, wholes) if wholes else residual


def _of_groups(
    schema: Schema, some: AttributeSet, grouped: int, known: Known, strategies: list[Strategy]
) -> Measured:
    """Return public counts by groups of an attribute's values as a measurement without noise."""
    blocks = []
    for axis, a in enumerate(some):
        groups = known.groups[a] if a == grouped else np.arange(schema.sizes[a])
        indicators = np.eye(int(groups.max()) + 1)[:, groups]
        rows = complement(indicators @ np.full(schema.sizes[a], 1 / schema.sizes[a])) @ indicators
        blocks.append(((axis,), len(strategies)))
        strategies.append(DenseStrategy((schema.sizes[a],), rows))
    return Measured(some, tuple(blocks), 0.0, 0.0)


class CombinedEstimator(Estimator):
    """The estimator from rows that are measured whole and from residual measurements.

    Inherited methods use the residual measurements alone.
    """

    def __init__(self, residual: Estimator, wholes: Sequence[Whole]) -> None:
        """Take the rows, and the estimator from residual measurements around the centres ν."""
        schema, measured = residual.schema, residual.measured
        centres = residual.centres if any(measured) else class_centres(schema, wholes)
        super().__init__(schema, centres, residual.strategies, measured, residual.known, strict=False)
        self.is_split, self.wholes = False, wholes
        self._averaged: dict[tuple[int, AttributeSet], Array] = {}
        stops = np.cumsum([len(whole.rows) for whole in wholes]).tolist()
        self.slices = [slice(stop - len(whole.rows), stop) for stop, whole in zip(stops, wholes, strict=True)]
        self.count = stops[-1]
        self.noise = np.repeat([w.variance for w in wholes], [len(w.rows) for w in wholes])

    # --- what residual measurements know of the rows ---

    @cached_property
    def _projector(self) -> Estimator:
        """The same sets measured by orthonormal rows, with noise of variance 1."""
        strategies = [strategy.orthonormal() for strategy in self.strategies]
        measured = {some: (replace(noises[0], variance=1.0),) for some, noises in self.measured.items()}
        return Estimator(self.schema, self.centres, strategies, measured, self.known, strict=False)

    # --- what the rows leave on attribute sets ---

    def _masses(self, whole: Whole, attribute: int) -> Array:
        """Return ν of the classes of an attribute."""
        return np.bincount(whole.classes(attribute), weights=self.centres[attribute].weights).astype(float)

    def _averages(self, number: int, subset: AttributeSet) -> Array:
        """Return the means of a measurement's rows under ν over all attributes but those of a set."""
        if (number, subset) not in self._averaged:
            whole = self.wholes[number]
            if subset == whole.attributes:
                return whole.rows
            last = max(set(whole.attributes).difference(subset))
            wider = tuple(sorted((*subset, last)))
            rows, axis = self._averages(number, wider), 1 + wider.index(last)
            folded = rows.reshape(math.prod(rows.shape[:axis]), rows.shape[axis], -1)
            means = np.einsum("ijk,j->ik", folded, self._masses(whole, last))
            self._averaged[number, subset] = means.reshape(rows.shape[:axis] + rows.shape[axis + 1 :])
        return self._averaged[number, subset]

    @cached_property
    def known_parts(self) -> dict[AttributeSet, _Part]:
        """What the rows leave on every known set."""
        public = {part for known in self.known.sets for part in subsets(sorted(known))}
        known = filter(self.measures, dict.fromkeys([*self.measured, (), *sorted(public)]))
        return {subset: self._known_part(subset, on) for subset in known if (on := self._wholes_on(subset))}

    def _known_part(self, subset: AttributeSet, numbers: Sequence[int]) -> _Part:
        at = np.concatenate([np.arange(self.count)[self.slices[n]] for n in numbers])
        every, covaried = [], []
        for n in numbers:
            rows, whole = self._averages(n, subset), self.wholes[n]
            for axis, attribute in enumerate(subset, start=1):
                means = np.tensordot(rows, self._masses(whole, attribute), (axis, 0))
                rows = rows - np.expand_dims(means, axis)
            every.append(whole.over_values(rows, subset))
            covaried.append(self.covary(subset, rows, [whole.classes(a) for a in subset]))
        rows, outside = np.concatenate(every), None
        if not self.is_full(subset):
            maps = [np.arange(n) for n in rows.shape[1:]]
            outside = rows - self._projector.covary(subset, rows, maps)
        part = _Part(at, rows, np.concatenate(covaried), None)
        return part if outside is None else replace(part, outside=part.share * outside)

    def _wholes_on(self, subset: AttributeSet) -> list[int]:
        """Return the numbers of the measurements on all attributes of a set."""
        return [n for n, whole in enumerate(self.wholes) if set(subset) <= set(whole.attributes)]

    def _weighed(self, rows: Array, subset: AttributeSet) -> Array:
        """Return rows over the values of a set times ν."""
        return rows * reduce(np.multiply.outer, (self.centres[a].weights for a in subset), np.ones(()))

    @cached_property
    def spread(self) -> Array:
        """R C Rᵀ."""
        result = np.zeros((self.count, self.count))
        for part in self.known_parts.values():
            covaried, rows = (x.reshape(len(part.at), -1) for x in (part.covaried, part.rows))
            result[np.ix_(part.at, part.at)] += covaried @ rows.T
        return result

    @cached_property
    def _inner(self) -> Array:
        """⟨R, R⟩."""
        result = np.zeros((self.count, self.count))
        for first, second in combinations_with_replacement(range(len(self.wholes)), 2):
            mine, theirs = self.wholes[first], self.wholes[second]
            common = tuple(a for a in mine.attributes if a in theirs.attributes)
            left, right = self._averages(first, common), self._averages(second, common)
            if mine is theirs:
                masses = [self._masses(mine, attribute) for attribute in common]
                left = right = left * np.sqrt(reduce(np.multiply.outer, masses, np.ones(())))
            else:
                for axis, attribute in enumerate(common, start=1):
                    over_values = np.moveaxis(right.take(theirs.classes(attribute), axis=axis), axis, -1)
                    right = np.moveaxis(over_values * self.centres[attribute].weights, -1, axis)
                    right = class_sums(right, mine.classes(attribute), axis)
            left, right = left.reshape(len(left), -1), right.reshape(len(right), -1)
            products = left @ right.T  # a symmetric product takes half the work
            result[self.slices[first], self.slices[second]] = products
            result[self.slices[second], self.slices[first]] = products.T
        return result

    @cached_property
    def gram(self) -> Array:
        """⟨R_u, R_u⟩: all inner products, less those of the known parts, with what these leave out."""
        result = self._inner.copy()
        for subset, part in self.known_parts.items():
            weighed = self._weighed(part.rows, subset).reshape(len(part.at), -1)
            result[np.ix_(part.at, part.at)] -= weighed @ part.rows.reshape(weighed.shape).T
            if part.outside is not None:
                outside = part.outside.reshape(len(part.at), -1)
                result[np.ix_(part.at, part.at)] += outside @ outside.T
        return result

    @cached_property
    def _eliminated(self) -> tuple[Array, Array]:
        """The inverse of R_u's Gram matrix on its range, and the rows N that span its null space."""
        lengths = np.sqrt(np.maximum(np.diagonal(self._inner), np.diagonal(self.gram)))
        lengths[lengths == 0] = 1.0
        values, vectors = np.linalg.eigh(self.gram / np.multiply.outer(lengths, lengths))
        sure, scaled = values > RANK, vectors / lengths[:, None]
        return (scaled[:, sure] / values[sure]) @ scaled[:, sure].T, scaled[:, ~sure].T

    @cached_property
    def _covariance(self) -> Array:
        """K."""
        return self.spread + np.diag(self.noise)

    @cached_property
    def root(self) -> Array:
        """H, with H Hᵀ = Nᵀ (N K Nᵀ)⁻¹ N: it has no columns if the whole answers cannot improve residuals."""
        null = self._eliminated[1]
        return np.linalg.solve(np.linalg.cholesky(null @ self._covariance @ null.T), null).T

    # --- how much the whole answers count: with c and u of a query, a = u·P + c·H·Hᵀ ---

    def coefficients(self, known: Array, unknown: Array | None) -> Array:
        """Return a for queries with these c and u."""
        if unknown is None:
            return (known @ self.root) @ self.root.T
        first = unknown @ self._eliminated[0]
        return first + ((known - first @ self._covariance) @ self.root) @ self.root.T

    def change(self, known: Array, unknown: Array | None) -> Array:
        """Return the change of the variances from those of the residual measurements alone."""
        a = self.coefficients(known, unknown)
        return np.asarray(np.einsum("...r,...r->...", a, a @ self._covariance - 2 * known))

    # --- queries ---

    def covariances(self, group: Group) -> Array:
        """Return c for every query of the group: the last axis runs over the rows."""
        result = np.zeros((*group.shape, self.count))
        for subset, parts in self.parts(group):
            if (part := self.known_parts.get(subset)) is not None:
                result[..., part.at] += _contracted(part.covaried, subset, self._tensors(parts))
        return result

    def unknown(self, group: Group) -> tuple[Array, Array, Array]:
        """Return ⟨q_u, R_u⟩ of every query, and the squared lengths of q_u and of q."""
        products = np.zeros((*group.shape, self.count))
        left, lengths = np.zeros(group.shape), np.zeros(group.shape)
        for subset, parts in self.parts(group):
            measured = self.measures(subset)
            if not measured and self.lines.intersection(subset):
                left += np.inf  # rows measured whole do not cover lines
                continue
            tensors = list(self._tensors(parts))
            terms = ((self._weighed(rows, on) * rows).reshape(len(rows), -1) for on, rows in tensors)
            squares = reduce(np.multiply.outer, (term.sum(axis=1) for term in terms), np.ones(()))
            lengths += squares
            if not measured:
                left += squares
                for number in self._wholes_on(subset):
                    folded = self._folded(tensors, self.wholes[number])
                    rows = self._averages(number, subset)
                    products[..., self.slices[number]] += _contracted(rows, subset, folded)
            elif not self.is_full(subset):
                (noise,) = self._projector.measured[subset]
                inside = math.prod(self._projector.factors(noise, parts, group))
                every = squared_lengths([((), part.rows) for part in parts])
                cells = math.prod(self.schema.shape(self.schema.names[a] for a in subset))
                left += np.where(inside < (1 - RANK) * every, every - inside, 0.0) / cells
                if (part := self.known_parts.get(subset)) is not None and part.outside is not None:
                    products[..., part.at] += part.share * _contracted(part.outside, subset, tensors)
        products[left == 0] = 0.0
        return products, left, lengths

    def _tensors(self, parts: Sequence[QueryPart]) -> Iterator[tuple[AttributeSet, Array]]:
        """Iterate over what families leave on a set: the attributes, and rows with an axis for each."""
        for part in parts:
            sizes = (self.schema.sizes[a] for a in part.kept)
            yield part.kept, part.rows.reshape(len(part.rows), *sizes)

    def _folded(
        self, tensors: Iterable[tuple[AttributeSet, Array]], whole: Whole
    ) -> Iterator[tuple[AttributeSet, Array]]:
        """Iterate over rows times ν, summed over the classes of values that a measurement distinguishes."""
        for subset, rows in tensors:
            folded = self._weighed(rows, subset)
            for axis, attribute in enumerate(subset, start=1):
                folded = class_sums(folded, whole.classes(attribute), axis)
            yield subset, folded

    # --- variances ---

    def variances(self, group: Group) -> Array:
        """Return the variance of every query, with an axis per family; refuse those not measured."""
        base = super().variances(group)
        if self.knows(group):
            for tables in self._tables(group):
                base -= (summed(group, tables) ** 2).sum(axis=0)
            return np.maximum(base, 0.0)
        return np.maximum(base + self.change(*self._checked(group)), 0.0)

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries, without writing them out."""
        if not self.knows(group, summed=True):
            few = tuple(f if f.rows <= f.cells else Rows(f.shape, _root(f)) for f in group.families)
            return float(self.variances(replace(group, families=few)).sum())
        return max(super().total(group) - self.gain(group, weighted=False), 0.0)

    def gain(self, group: Group, *, weighted: bool) -> float:
        """Return by how much rows measured whole lower the loss of a group that residuals determine."""
        squares = 0.0
        for tables in self._tables(group):
            left = right = tables
            for _, family in group.parts():
                if family.closed_form and family.rows > family.cells:  # as all ranges
                    gram = (family if weighted else family.reweighted(None)).gram()
                    right = np.tensordot(gram, right, axes=1)
                else:
                    left, right = family.answers(left), family.answers(right)
                    if weighted and family.weights is not None:
                        right = (right.T * family.weights).T
                left, right = np.moveaxis(left, 0, -1), np.moveaxis(right, 0, -1)
            squares += float(np.vdot(left, right))
        return (group.weight if weighted else 1.0) * squares

    def check(self, group: Group) -> None:
        self._checked(group)

    def images(
        self,
        group: Group,
        only: Collection[AttributeSet] | None = None,  # noqa: ARG002
    ) -> Iterator[tuple[Measured, Array]]:
        a = self.coefficients(*self._checked(group)).reshape(group.rows, -1)
        images = {id(measured): image for measured, image in super().images(group)}
        for subset, noises in self.measured.items():
            for measured in filter(attrgetter("variance"), noises):  # the others have no noise
                split = images.get(id(measured), np.zeros(()))
                if (part := self.known_parts.get(subset)) is not None:
                    factors = [(tuple(range(len(subset))), part.rows.reshape(len(part.rows), -1))]
                    taken = self.image(factors, measured.blocks, group)
                    split = split - a[:, part.at] @ taken.reshape(len(part.rows), -1)
                if split.ndim:
                    yield measured, split
        for whole, at in zip(self.wholes, self.slices, strict=True):
            for measured in whole.noises:
                yield measured, a[:, at]

    def _checked(self, group: Group) -> tuple[Array, Array | None]:
        """Return c and ⟨q_u, R_u⟩ of every query; refuse queries that are not fully determined."""
        known = self.covariances(group)
        if self.knows(group):
            return known, None
        unknown, left, lengths = self.unknown(group)
        a = unknown @ self._eliminated[0]  # what the null space adds may be long, and would hide the rest
        left = left + np.einsum("...r,...r->...", a, a @ self.gram - 2 * unknown)
        if np.any(left > RANK * lengths):
            raise unanswerable(group, "they do not follow from what the plan measures")
        return known, unknown

    @cached_property
    def _gains(self) -> dict[AttributeSet, Array]:
        """Combinations of the known parts: each lowers a known query's variance by its squared answer."""
        gains = {}
        for subset, part in self.known_parts.items():
            residual = self.centred(part.covaried, subset)
            gains[subset] = np.tensordot(self.root[part.at].T, residual, axes=1)
        return gains

    def _tables(self, group: Group) -> Iterator[Array]:
        """Iterate over tables of the gains on the group's attributes; the last axis runs over some gains."""
        attributes, count = self.schema.positions(group.attributes), self.root.shape[1]
        cells = math.prod(self.schema.sizes[a] for a in attributes)
        step = max(1, CHUNK // max(cells, group.rows))
        for start in range(0, count, step):
            lead = (min(step, count - start),)
            gains = {subset: part[start : start + step] for subset, part in self._gains.items()}
            yield np.moveaxis(self.lifted(gains.get, attributes, lead), 0, -1)

    # --- tables ---

    def table(
        self,
        attributes: AttributeSet,
        residual: Callable[[AttributeSet], Array | None],
        answers: Callable[[], Array],
    ) -> Array:
        differences = answers().astype(float)  # less the residuals' estimates of the same rows
        for subset, part in self.known_parts.items():
            if (noisy := residual(subset)) is not None:
                differences[part.at] -= part.rows.reshape(len(part.rows), -1) @ noisy.ravel()
        known = self.root @ (self.root.T @ differences)
        unknown = self._eliminated[0] @ (differences - self._covariance @ known)

        def corrected(subset: AttributeSet) -> Array | None:
            noisy = residual(subset)
            if (part := self.known_parts.get(subset)) is not None:
                changes = [np.tensordot(known[part.at], part.covaried, axes=1)]
                if part.outside is not None:
                    changes.append(part.share * np.tensordot(unknown[part.at], part.outside, axes=1))
            else:
                changes = []
                for n in self._wholes_on(subset):
                    table = np.tensordot(unknown[self.slices[n]], self._averages(n, subset), axes=1)
                    changes.append(self._weighed(self.wholes[n].over_values(table, subset), subset))
            if not changes:
                return noisy
            change = self.centred(np.asarray(sum(changes)), subset)
            return change if noisy is None else noisy + change

        return self.lifted(corrected, attributes)


def _root(family: Family) -> Array:
    """Return at most as many rows as cells with the same Gram matrix as the queries."""
    if family.closed_form:
        return square_root(family.reweighted(None).gram(), RANK)
    return reduced(family.matrix())


def _contracted(rows: Array, subset: AttributeSet, tensors: Iterable[tuple[AttributeSet, Array]]) -> Array:
    """Return the inner products of rows on a set with products of other rows; the axis of `rows` is last."""
    left = list(subset)
    for kept, tensor in tensors:  # each takes its axes away, and puts its rows at the end
        axes = [1 + left.index(a) for a in kept]
        rows = np.tensordot(rows, tensor, axes=(axes, list(range(1, tensor.ndim))))
        left = [a for a in left if a not in kept]
    return np.moveaxis(rows, 0, -1)


def class_sums(rows: Array, classes: Integers, axis: int) -> Array:
    """Return the sums over the members of every class along an axis."""
    counts = np.bincount(classes)
    ordered = np.take(rows, np.argsort(classes, kind="stable"), axis=axis)
    return np.asarray(np.add.reduceat(ordered, np.cumsum(counts) - counts, axis=axis))


def summed(group: Group, table: Array) -> Array:
    """Return the sums of cells that a group asks for, with an axis per family, after any further axes."""
    for _, family in group.parts():  # each answers the first axes, and its queries go to the end
        table = np.moveaxis(family.answers(table), 0, -1)
    return table
