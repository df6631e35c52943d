"""Unbiased answers shrunk around the estimate, in the space of what was measured.

Sums of many cells, such as prefixes and ranges, are measured far better than their cells. A release measures
y = Bx + noise of equal variance σ² on each attribute set. Let ŷ = B·target, where the target is what the
other sets say about this one. With B = USVᵀ, and M the Gram matrix of the queries asked for, an error e in
the basis U has the squared error eᵀS⁻¹VᵀMVS⁻¹e in the answers. In the basis of the eigenvectors of this
matrix the noise is still white, and its eigenvalues l are what each direction weighs. (Where B is best for
the queries, these are the squared singular values of B; they are taken if M is no product over attributes.)
Directions whose weights l differ by less than a factor of two form a block. With e the part of y − ŷ in
a block, the rule of James and Stein,

    ê = max(0, 1 − cσ²/‖e‖²) · e,      c = Σ l / max l − 2  if positive, else 0,

has an expected squared error, weighted by l, smaller than that of e on every table, provided that the noise
of the target is independent of that of y (Bock 1975). Answers are then reconstructed as a release
reconstructs them. Queries that are measured as they are, not split, share their noise with the tables that a
target would be made of: they are not shrunk.

Then the nearest answers that counts can be are taken: non-negative, and non-decreasing along prefixes. Every
step is a projection onto a convex set that contains the true answers, so that none increases the
distance to them. The last step only removes what the projections along several axes leave, which is tiny.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.estimate.evidence import Place, Zeros
from querysmasher.estimate.fitting import Axes, arranged, fitted
from querysmasher.estimate.model import Model
from querysmasher.planning.centre import Centre
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerStrategy
from querysmasher.release.reconstruction import Reconstruction, summed
from querysmasher.release.release import Release
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

LARGEST = 4_000_000
"""Maximum number of cells of a set that is shrunk, and of entries of a matrix written out for it."""

SWEEPS = 3
"""Number of rounds that give a target the margins of shrunk tables on one attribute."""

FAINT = 1e-9
"""Squared singular values below this fraction of the largest are rounding errors."""


@dataclass(frozen=True, eq=False)
class Turned:
    """A strategy in a basis in which directions have weights, one basis per factor."""

    axes: tuple[tuple[int, ...], ...]
    """The axes of the attribute set on which each factor stands."""
    matrices: tuple[Array, ...]
    """The factors B."""
    bases: tuple[Array, ...]
    """Orthonormal vectors that span the answers of each, as columns."""
    weights: Array
    """What each direction weighs, over the multiples of the noise, with an axis per factor."""
    multiples: Array
    """The multiples of the noise."""

    def predicted(self, table: Array) -> Array:
        """Return B·x, with an axis per factor."""
        left = list(range(table.ndim))
        for axes, matrix in zip(self.axes, self.matrices, strict=True):
            at = [left.index(a) for a in axes]
            shaped = matrix.reshape(len(matrix), *(table.shape[i] for i in at))
            table = np.tensordot(table, shaped, axes=(at, list(range(1, shaped.ndim))))
            left = [*(a for a in left if a not in axes), -1]
        return table

    def turned(self, change: Array) -> Array:
        """Return answers in the bases."""
        for basis in self.bases:
            change = np.tensordot(change, basis, axes=(0, 0))
        return change

    def turned_back(self, change: Array) -> Array:
        """Return answers from their coordinates in the bases."""
        for basis in self.bases:
            change = np.tensordot(change, basis, axes=(0, 1))
        return change


def turn(
    measured: IntegerMeasured, strategies: list[IntegerStrategy], grams: Mapping[int, Array] | None = None
) -> Turned:
    """Return the bases of a set's strategies.

    `grams` are the Gram matrices of the queries asked for, by axis, as they act on residuals.
    """
    axes, matrices, bases, weights, multiples = [], [], [], np.ones(()), np.ones(())
    for (on, _), strategy in zip(measured.blocks, strategies, strict=True):
        own = np.ones(())
        for inner, factor in strategy.factors:
            matrix = factor.written_out()
            if strategy.multipliers is None:
                basis, squares = _directions(
                    matrix, None if len(inner) > 1 else (grams or {}).get(on[inner[0]])
                )
            else:  # rows with different noise stay as they are
                basis, squares = np.eye(len(matrix)), (matrix**2).sum(axis=1)
            axes.append(tuple(on[a] for a in inner))
            matrices.append(matrix)
            bases.append(basis)
            own = np.multiply.outer(own, squares)
        noise = np.ones(own.shape) if strategy.multipliers is None else strategy.multipliers.astype(float)
        weights = np.multiply.outer(weights, own / noise)
        multiples = np.multiply.outer(multiples, noise)
    return Turned(tuple(axes), tuple(matrices), tuple(bases), weights, multiples)


def _directions(matrix: Array, gram: Array | None) -> tuple[Array, Array]:
    """Return orthonormal vectors that span what a matrix answers, and their weights."""
    basis, values, rows = np.linalg.svd(matrix, full_matrices=False)
    sure = values**2 > FAINT * values[0] ** 2
    basis, values, rows = basis[:, sure], values[sure], rows[sure]
    if gram is not None:
        weights, turned = np.linalg.eigh(rows @ gram @ rows.T / np.multiply.outer(values, values))
        if weights[-1] > 0:
            return basis @ turned, np.maximum(weights, FAINT * weights[-1])
    return basis, values**2


def shrink(change: Array, weights: Array, noise: Array) -> Array:
    """Return coordinates shrunk towards zero, block by block of similar weights."""
    levels = np.floor(np.log2(weights / weights.max()) + 1e-9).astype(np.int64)
    block: NDArray[np.int64] = (-levels).ravel()
    count = int(block.max()) + 1
    flat = weights.ravel()
    energy = np.bincount(block, weights=(change**2 / noise).ravel(), minlength=count)
    heaviest = np.zeros(count)
    np.maximum.at(heaviest, block, flat)
    sums = np.bincount(block, weights=flat, minlength=count)
    spare = np.maximum(np.divide(sums, heaviest, out=np.zeros(count), where=heaviest > 0) - 2, 0.0)
    kept = np.maximum(0.0, 1.0 - np.divide(spare, energy, out=np.zeros(count), where=energy > 0))
    return change * kept[block].reshape(change.shape)


class ShrunkStore:
    """The answers of a release, shrunk around the estimate when they are asked for."""

    def __init__(
        self, release: Release, model: Model, asked: Mapping[int, Family | None] | None = None
    ) -> None:
        """Take the noisy answers, the estimate, and the queries asked for on each attribute, if known."""
        self._release = release
        self._model = model
        self._asked = asked or {}
        self._grams: dict[object, Array] = {}
        self._turned: dict[object, Turned] = {}
        self._singles: dict[int, Array] = {}

    def __getitem__(self, number: int) -> Array:
        """Return the shrunk answers of one attribute set."""
        plan = self._release.plan
        measured = plan.measured[number]
        answers = self._release.store[number].astype(float)
        strategies = [plan.strategies[n] for _, n in measured.blocks]
        cells = math.prod(plan.schema.sizes[a] for a in measured.attributes)
        entries = [factor.rows * factor.cells for s in strategies for _, factor in s.factors]
        if not measured.attributes or max(cells, *entries) > LARGEST:
            return answers
        known = {axis: own for axis, a in enumerate(measured.attributes) if (own := self._asked.get(a))}
        centres = [self._release.centres[a] for a in measured.attributes]
        key = (measured.blocks, *((axis, own.key, centres[axis]) for axis, own in known.items()))
        if key not in self._turned:
            grams = {axis: self._gram(own, centres[axis]) for axis, own in known.items()}
            self._turned[key] = turn(measured, strategies, grams)
        turned = self._turned[key]
        predicted = turned.predicted(self._target(measured.attributes))
        change = turned.turned(answers.reshape(predicted.shape) - predicted)
        variance, extra = plan.noise(measured, self._release.noise.distribution)
        kept = shrink(change, turned.weights, variance * turned.multiples + extra)
        return (predicted + turned.turned_back(kept)).ravel()

    def _gram(self, family: Family, centre: Centre) -> Array:
        """Return the Gram matrix of queries, as they act on residuals around a centre."""
        key = (family.key, centre)
        if key not in self._grams:
            around = np.eye(family.cells) - centre.weights[:, None]
            self._grams[key] = around.T @ family.gram() @ around
        return self._grams[key]

    def _target(self, place: Place) -> Array:
        """Return what other sets say about one, with the margins of shrunk tables on one attribute."""
        target = self._model.target(place)
        if len(place) == 1:
            return target
        singles: dict[Axes, Array] = {(axis,): self._single(a)[None] for axis, a in enumerate(place)}
        return fitted(target[None].copy(), singles, SWEEPS)[0]

    def _single(self, attribute: int) -> Array:
        """Return the shrunk table on one attribute, made non-negative through its prefix sums."""
        if attribute not in self._singles:
            release, single = self._release, self._model.single(attribute)
            numbers = [i for i, m in enumerate(release.plan.measured) if m.attributes == (attribute,)]
            if len(numbers) == 1:
                reconstruction = Reconstruction(
                    release.plan, release.centres, self, release.public_total, release.estimator
                )
                values = reconstruction.marginal((attribute,), complete=False)
                sums = np.minimum(plausible(np.cumsum(values), [0]), self._model.total)
                sums[-1] = self._model.total
                single = np.diff(sums, prepend=0.0)
            self._singles[attribute] = single
        return self._singles[attribute]


class Shrunken:
    """Answers the queries of a release from its shrunk measurements."""

    def __init__(self, release: Release, model: Model) -> None:
        """Take the noisy answers and the estimate."""
        self._release = release
        self._model = model
        self._known: list[tuple[dict[int, Family | None], Reconstruction]] = []

    def _reconstruction(self, group: Group) -> Reconstruction:
        """Return what answers a group; groups that ask for the same of each attribute share it."""
        release = self._release
        if not release.estimator.is_split:
            return release.reconstruction
        wanted = self._wanted(group)
        for asked, found in self._known:
            if all(_key(own) == _key(asked.get(a, own)) for a, own in wanted.items()):
                asked.update(wanted)
                return found
        store = ShrunkStore(release, self._model, wanted)
        made = Reconstruction(release.plan, release.centres, store, release.public_total, release.estimator)
        self._known.append((wanted, made))
        return made

    def _wanted(self, group: Group) -> dict[int, Family | None]:
        """Return the family of each attribute of a group, or None where it is not to be written out."""
        found: dict[int, Family | None] = {}
        for names, family in group.parts():
            small = len(names) == 1 and max(family.rows, family.cells) * family.cells <= LARGEST
            for a in self._release.plan.schema.positions(names):
                found[a] = family if small else None
        return found

    def answer(self, group: Group) -> Array | None:
        """Return the answers to a group, with an axis per family, or None if it was not measured."""
        try:
            self._release.estimator.check(group)
        except OutsideMeasuredSpaceError:
            return None
        return _answered(self._release, self._reconstruction(group), group)


def _key(family: Family | None) -> object:
    return None if family is None else family.key


def _answered(release: Release, reconstruction: Reconstruction, group: Group) -> Array:
    """Return the answers to a group that was measured."""
    places = release.plan.schema.positions(group.attributes)
    return summed(group, reconstruction.marginal(places, complete=False))


def largest_count(release: Release) -> float:
    """Return the largest unbiased answer to a planned query, which counts at most all records."""
    found = [0.0]
    for group in release.workload:
        matrices = [f.matrix() for f in group.families if f.rows * f.cells <= LARGEST]
        counts = len(matrices) == len(group.families) and all(np.isin(m, (0, 1)).all() for m in matrices)
        if counts and group.rows <= LARGEST:
            found.append(float(_answered(release, release.reconstruction, group).max()))
    return max(found)


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


ROUNDS = 5
"""Number of rounds through the axes, if there are several."""

SQUARES = 4_000_000
"""Maximum number of means of intervals computed at a time."""


def plausible(answers: Array, axes: Sequence[int]) -> Array:
    """Return answers that are non-negative and non-decreasing along some axes, near to the given ones."""
    for _ in range(ROUNDS if len(axes) > 1 else 1):
        for axis in axes:
            moved = np.moveaxis(answers, axis, -1)
            lines = np.ascontiguousarray(moved).reshape(-1, moved.shape[-1])
            answers = np.moveaxis(_non_decreasing(lines).reshape(moved.shape), -1, axis)
    answers = np.maximum(answers, 0.0)
    for axis in axes if len(axes) > 1 else ():
        answers = np.maximum.accumulate(answers, axis=axis)
    return answers


def _non_decreasing(lines: Array) -> Array:
    """Return the nearest non-decreasing lines."""
    count, length = lines.shape
    if length * length > SQUARES or count < 8:
        from scipy.optimize import isotonic_regression  # noqa: PLC0415 - it would be most of a command's start

        return np.stack([isotonic_regression(line).x for line in lines]) if count else lines
    step = max(1, SQUARES // (length * length))
    return np.concatenate([_min_max(lines[i : i + step]) for i in range(0, count, step)])


def _min_max(lines: Array) -> Array:
    """Return max over a ≤ i of min over b ≥ i of the mean from a to b, for all lines at once."""
    length = lines.shape[1]
    sums = np.concatenate([np.zeros((len(lines), 1)), np.cumsum(lines, axis=1)], axis=1)
    first, last = np.arange(length)[:, None], np.arange(1, length + 1)[None]
    widths = np.where(last > first, last - first, 1)
    means = np.where(last > first, (sums[:, None, 1:] - sums[:, :-1, None]) / widths, np.inf)
    least = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]  # over b ≥ i
    least[:, ~(last > first)] = -np.inf
    return np.asarray(np.max(least, axis=1))
