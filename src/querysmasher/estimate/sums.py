"""Unbiased answers shrunk around the estimate, in the space of what was measured.

Sums of many cells, such as prefixes and ranges, are measured far better than their cells. A release measures
y = Bx + noise of equal variance σ² on each attribute set. Let ŷ = B·target, where the target is the table as
other sets predict it. With B = USVᵀ, and M the Gram matrix of the queries to answer, an error e in
the basis U has the squared error eᵀS⁻¹VᵀMVS⁻¹e in the answers. In the basis of the eigenvectors of this
matrix the noise is still white, and its eigenvalues l are what each direction weighs. (Where B is best for
the queries, these are the squared singular values of B, which serve if M is no product over attributes.)
Directions whose weights l differ by less than a factor of two form a block. With e the part of y − ŷ in
a block, the rule of James and Stein,

    ê = max(0, 1 − cσ²/‖e‖²) · e,      c = Σ l / max l − 2  if positive, else 0,

has an expected squared error, weighted by l, smaller than that of e on every table, provided that the noise
of the target is independent of that of y (Bock 1975). Answers are then reconstructed as a release
reconstructs them. Queries that are measured whole, not split, have noise in common with the tables that a
target would be made of: they are not shrunk.

Finally, answers move to the nearest ones that counts can have: non-negative, and non-decreasing along
prefixes. Every step is a projection onto a convex set that contains the true answers, so that none increases
the distance to them. The last step only removes what the projections along several axes leave, which is tiny.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.estimate.evidence import AttributeSet
from querysmasher.estimate.fitting import Axes, arranged, fitted, quotient
from querysmasher.estimate.table_model import Model
from querysmasher.planning.estimator.whole import summed
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerStrategy
from querysmasher.release.reconstruction import MemoryStore, Reconstruction
from querysmasher.release.release import Release
from querysmasher.workload.families import Identity, Prefix
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.workload import Group, Workload

LARGEST = 4_000_000
"""Maximum number of cells of a set that is shrunk, and of entries of a matrix written out for it."""

SWEEPS = 3
"""Number of rounds that give a target the margins of shrunk tables on one attribute."""

ROUNDS = 5
"""Number of projections along each axis, if there are several."""

IN_ORDER = {Structure.VALUES, Structure.LINE, Structure.RANGES, Structure.CIRCLE}
"""Families whose sums are of values that follow each other."""

FAINT = 1e-9
"""Squared singular values below this fraction of the largest are rounding errors."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """A strategy in a basis in which directions have weights, one basis per factor."""

    axes: tuple[Axes, ...]
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


def rotation_of(
    measured: IntegerMeasured, strategies: list[IntegerStrategy], grams: Mapping[int, Array] | None = None
) -> Rotation:
    """Return the bases of a set's strategies.

    `grams` are the Gram matrices of the queries to answer, by axis, as these act on residuals.
    """
    axes, matrices, bases, weights, multiples = [], [], [], np.ones(()), np.ones(())
    for (on, _), strategy in zip(measured.blocks, strategies, strict=True):
        squares = np.ones(())
        for inner, factor in strategy.factors:
            matrix = factor.written_out()
            if strategy.multipliers is None:
                gram = None if len(inner) > 1 else (grams or {}).get(on[inner[0]])
                basis, lengths = _directions(matrix, gram)
            else:  # rows with different noise are not rotated
                basis, lengths = np.eye(len(matrix)), (matrix**2).sum(axis=1)
            axes.append(tuple(on[a] for a in inner))
            matrices.append(matrix)
            bases.append(basis)
            squares = np.multiply.outer(squares, lengths)
        noise = np.ones(squares.shape) if strategy.multipliers is None else strategy.multipliers.astype(float)
        weights = np.multiply.outer(weights, squares / noise)
        multiples = np.multiply.outer(multiples, noise)
    return Rotation(tuple(axes), tuple(matrices), tuple(bases), weights, multiples)


def _directions(matrix: Array, gram: Array | None) -> tuple[Array, Array]:
    """Return orthonormal vectors that span what a matrix answers, and their weights."""
    basis, values, rows = np.linalg.svd(matrix, full_matrices=False)
    sure = values**2 > FAINT * values[0] ** 2
    basis, values, rows = basis[:, sure], values[sure], rows[sure]
    if gram is not None:
        weights, rotation = np.linalg.eigh(rows @ gram @ rows.T / np.multiply.outer(values, values))
        if weights[-1] > 0:
            return basis @ rotation, np.maximum(weights, FAINT * weights[-1])
    return basis, values**2


def shrink(change: Array, weights: Array, noise: Array) -> Array:
    """Return coordinates shrunk towards zero, block by block of similar weights."""
    levels = np.floor(np.log2(weights / weights.max()) + 1e-9).astype(np.int64)
    block: NDArray[np.int64] = (-levels).ravel()
    count = int(block.max()) + 1
    flat = weights.ravel()
    energy = np.bincount(block, (change**2 / noise).ravel(), count).astype(float)
    heaviest = np.zeros(count)
    np.maximum.at(heaviest, block, flat)
    sums = np.bincount(block, flat, count).astype(float)
    spare = np.maximum(quotient(sums, heaviest) - 2, 0.0)
    kept = np.maximum(0.0, 1.0 - quotient(spare, energy))
    return change * kept[block].reshape(change.shape)


class ShrunkStore(MemoryStore):
    """The answers of a release, shrunk around the estimate when they are read."""

    def __init__(self, release: Release, model: Model, families: Mapping[int, Family | None]) -> None:
        """Take the noisy answers, the estimate, and the families of the queries by attribute, if known."""
        self._release = release
        self._model = model
        self._families = families
        self._rotations: dict[object, Rotation] = {}
        self._single = cache(self._shrunk_single)

    @cached_property
    def reconstruction(self) -> Reconstruction:
        """Marginals from the shrunk answers."""
        release = self._release
        return Reconstruction(release.plan, self, release.public, release.estimator)

    def __missing__(self, number: int) -> Array:
        """Return the shrunk answers of one attribute set."""
        plan = self._release.plan
        measured = plan.measured[number]
        answers = self._release.store[number].astype(float)
        strategies = [plan.strategies[n] for _, n in measured.blocks]
        cells = math.prod(plan.schema.sizes[a] for a in measured.attributes)
        entries = [factor.rows * factor.cells for s in strategies for _, factor in s.factors]
        if not measured.attributes or max(cells, *entries) > LARGEST:
            return answers
        known = {i: family for i, a in enumerate(measured.attributes) if (family := self._families.get(a))}
        centres = [self._release.centres[a] for a in measured.attributes]
        key = (measured.blocks, *((axis, family.key, centres[axis]) for axis, family in known.items()))
        if key not in self._rotations:
            grams = {}
            for axis, family in known.items():  # as queries act on residuals around a centre
                around = np.eye(family.cells) - centres[axis].weights[:, None]
                grams[axis] = around.T @ family.gram() @ around
            self._rotations[key] = rotation_of(measured, strategies, grams)
        rotation = self._rotations[key]
        predicted = rotation.predicted(self._target(measured.attributes))
        change = along_axes(answers.reshape(predicted.shape) - predicted, 0, rotation.bases)
        variance, extra = plan.noise(measured, self._release.noise.distribution)
        kept = shrink(change, rotation.weights, variance * rotation.multiples + extra)
        return (predicted + along_axes(kept, 0, [basis.T for basis in rotation.bases])).ravel()

    def _target(self, subset: AttributeSet) -> Array:
        """Return a table as other sets predict it, with the margins of shrunk tables on one attribute."""
        target = self._model.target(subset)
        if len(subset) == 1:
            return target
        singles: dict[Axes, Array] = {(axis,): self._single(a)[None] for axis, a in enumerate(subset)}
        return fitted(target[None].copy(), singles, SWEEPS)[0]

    def _shrunk_single(self, attribute: int) -> Array:
        """Return the shrunk table on one attribute, made non-negative through its prefix sums."""
        if [m.attributes for m in self._release.plan.measured].count((attribute,)) != 1:
            return self._model.single(attribute)
        values = self.reconstruction.marginal((attribute,), complete=False)
        sums = np.minimum(plausible(np.cumsum(values), [0]), self._model.total)
        sums[-1] = self._model.total
        return np.diff(sums, prepend=0.0)


class Sums:
    """Answers to the queries that a release measured, shrunk around the estimate."""

    def __init__(self, release: Release, model: Model) -> None:
        """Take the noisy answers and the estimate."""
        self._release = release
        self._model = model
        self._known: list[tuple[dict[int, Family | None], Reconstruction]] = []

    def answers(self, group: Group) -> Array | None:
        """Return the answers to a group, with an axis per family, or None if it was not measured."""
        try:
            self._release.estimator.check(group)
        except OutsideMeasuredSpaceError:
            return None
        return self._possible(group, _answered(self._release, self._reconstruction(group), group))

    def tables(self, workload: Workload) -> dict[AttributeSet, Array]:
        """Return tables of the sets of which a workload asks for prefixes or ranges.

        They follow from prefix sums along every attribute of which values are added up.
        """
        schema, tables = workload.schema, dict[AttributeSet, Array]()
        for group in workload:
            places = tuple(sorted(schema.positions(group.attributes)))
            shape, names = [schema.sizes[a] for a in places], tuple(schema.names[a] for a in places)
            kinds = {on[0]: family.structure for on, family in group.parts()}
            if math.prod(shape) > LARGEST or group.is_marginal or not {*kinds.values()} <= IN_ORDER:
                continue
            added = [kinds[name] is not Structure.VALUES for name in names]
            families = [(Prefix if sums else Identity)((n,)) for sums, n in zip(added, shape, strict=True)]
            values = self.answers(Group(names, tuple(families)))
            if values is not None:
                *others, last = np.flatnonzero(added).tolist()
                for axis in others:
                    values = np.diff(values, axis=axis, prepend=0.0)
                tables[places] = np.diff(plausible(values, [last]), axis=last, prepend=0.0)
        return tables

    def _reconstruction(self, group: Group) -> Reconstruction:
        """Return the reconstruction that answers a group, shared by groups with the same families."""
        release = self._release
        if not release.estimator.is_split:
            return release.reconstruction
        wanted: dict[int, Family | None] = {}
        for names, family in group.parts():
            is_small = len(names) == 1 and max(family.rows, family.cells) * family.cells <= LARGEST
            for a in release.schema.positions(names):
                wanted[a] = family if is_small else None
        for families, made in self._known:
            if all(_key(family) == _key(families.get(a, family)) for a, family in wanted.items()):
                families.update(wanted)
                return made
        made = ShrunkStore(release, self._model, wanted).reconstruction
        self._known.append((wanted, made))
        return made

    def _possible(self, group: Group, answers: Array) -> Array:
        """Return the nearest answers that counts can be; zero if all cells of a query are impossible."""
        families = group.families
        if all(family.closed_form or family.matrix().min(initial=0.0) >= 0 for family in families):
            answers = plausible(answers, [i for i, family in enumerate(families) if family.is_growing])
        public_total = self._release.public_total
        if public_total is not None and all(map(_counts, families)):
            answers = np.minimum(answers, float(public_total))
        positions = self._release.schema.positions(group.attributes)
        mask = self._model.zeros.possible(tuple(sorted(positions)))
        return answers if mask is None else answers * (of_cells(group, positions, mask.astype(float)) != 0)


def _key(family: Family | None) -> object:
    return None if family is None else family.key


def _answered(release: Release, reconstruction: Reconstruction, group: Group) -> Array:
    """Return the answers to a group that was measured."""
    positions = release.schema.positions(group.attributes)
    return summed(group, reconstruction.marginal(positions, complete=False))


def largest_count(release: Release) -> float:
    """Return the largest unbiased answer to a planned query, which counts at most all records."""
    counts = [
        _answered(release, release.reconstruction, group).max()
        for group in release.workload
        if group.rows <= LARGEST and all(map(_counts, group.families))
    ]
    return float(max(counts, default=0.0))


def of_cells(group: Group, positions: AttributeSet, values: Array) -> Array:
    """Return answers as sums of the cells of a table on increasing attributes."""
    return summed(group, arranged(values, positions))


def with_total(group: Group, answers: Array, total: float) -> Array:
    """Return the answers, with those about all records replaced by the public number of records."""
    often = reduce(np.multiply.outer, map(_often, group.families))
    return np.where(np.isnan(often), answers, often * total)


def _counts(family: Family) -> bool:
    """Return whether every query counts some cells once, and no other."""
    return family.closed_form or bool(np.isin(family.matrix(), (0, 1)).all())


def _often(family: Family) -> Array:
    """Return how often each query counts every cell; not a number if it does not count all equally often."""
    if family.closed_form:
        return np.where(family.answers(np.ones(family.shape)) == family.cells, 1.0, np.nan)
    matrix = family.matrix()
    return np.where(matrix.min(axis=1) == matrix.max(axis=1), matrix.max(axis=1), np.nan)


def plausible(answers: Array, axes: Sequence[int]) -> Array:
    """Return answers that are non-negative and non-decreasing along some axes, near to the given ones."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - it would be most of a command's start

    for _ in range(ROUNDS if len(axes) > 1 else 1):
        for axis in axes:
            answers = np.apply_along_axis(lambda line: isotonic_regression(line).x, axis, answers)
    answers = np.maximum(answers, 0.0)
    for axis in axes:
        answers = np.maximum.accumulate(answers, axis=axis)
    return answers
