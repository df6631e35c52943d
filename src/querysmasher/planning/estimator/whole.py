"""Rows that are measured whole, not split, beside residual measurements: one Schur complement on top.

Let residual measurements know some coordinates of a query q, with covariance C, and let y be the answers to
rows R that were measured as they are, with noise Σ. Every linear unbiased estimate of q is a·y + (q − aR)·ẑ
on what is known, with ẑ the estimates of the known coordinates and a any coefficients with aR_u = q_u on the
unknown ones. Its variance is

    Var = q C qᵀ − 2 a·c + a K aᵀ,   c = q C Rᵀ,   K = R C Rᵀ + Σ,

and the best coefficients are linear in q, so that answers are consistent with each other.

Nothing is written out over the cells of all attributes. Rows and queries are functions on the whole domain.
With ν the product of the attributes' centres, what a function leaves on different sets is orthogonal in ⟨f,
g⟩ = E_ν[fg]. So the inner products of unknown parts are those of the rows, less those of their parts on known
sets,

    ⟨R_u, R_u⟩ = ⟨R, R⟩ − Σ_A ⟨R_A, R_A⟩,

and likewise for queries. (What residual strategies leave out of a known set is added again, as plain sums of
products over its cells.) Rows are constant on classes of values. Where nothing is known but the total, any
centres will do: those that give all classes of an attribute the same weight (`class_centres`) keep rare
combinations of values visible beside the total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.estimator.lifting import along
from querysmasher.planning.estimator.residual import AttributeSet, Residuals, Share
from querysmasher.planning.lattice import Integers
from querysmasher.planning.solution import Measured
from querysmasher.planning.split import PlacedFamily, split_axis
from querysmasher.planning.strategies import Strategy
from querysmasher.schema import Schema
from querysmasher.workload.workload import Group

UNKNOWN = 1e-11
"""With rows scaled to length one, smaller eigenvalues of R_u R_uᵀ are rounding errors, and so are squares."""


@dataclass(frozen=True, eq=False)
class Whole:
    """Rows that are measured as they are on one attribute set."""

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
        return cls(noises[0].attributes, *strategies[number].on_classes(), noises)

    def classes(self, attribute: int) -> Integers:
        """Return the class of every value of an attribute."""
        return self.maps[self.attributes.index(attribute)]

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
    """What the residual strategies leave out of R_A; None if that is nothing."""


def class_centres(schema: Schema, wholes: Sequence[Whole]) -> Centres:
    """Return centres that weigh all classes of values alike that some rows distinguish."""
    maps: list[list[Integers]] = [[np.zeros(n, dtype=np.int64)] for n in schema.sizes]
    for whole in wholes:
        for attribute, classes in zip(whole.attributes, whole.maps, strict=True):
            maps[attribute].append(classes)
    joint = (np.unique(np.stack(classes), axis=1, return_inverse=True)[1].ravel() for classes in maps)
    return tuple(Centre(1 / (np.bincount(classes)[classes] * (int(classes.max()) + 1))) for classes in joint)


class WholeRows:
    """All rows that are measured whole, and what residual measurements know of them."""

    def __init__(self, residual: Residuals, wholes: Sequence[Whole]) -> None:
        """Take the rows, and what predicts from residual measurements around the centres ν."""
        self.residual, self.wholes = residual, wholes
        stops = np.cumsum([len(whole.rows) for whole in wholes]).tolist()
        self.slices = [slice(stop - len(whole.rows), stop) for stop, whole in zip(stops, wholes, strict=True)]
        self.count = stops[-1]
        self.noise = np.concatenate([np.full(len(whole.rows), whole.variance) for whole in wholes])
        self._means: dict[tuple[int, AttributeSet], Array] = {}

    # --- inner products of rows ---

    def _masses(self, whole: Whole, attribute: int) -> Array:
        """Return the weight of every class of an attribute."""
        weights = self.residual.centres[attribute].weights
        return np.bincount(whole.classes(attribute), weights=weights).astype(float)

    def mean(self, number: int, kept: AttributeSet) -> Array:
        """Return the means of a measurement's rows over all attributes but some of its own, over classes."""
        key = number, kept
        if key not in self._means:
            whole = self.wholes[number]
            rows = whole.rows
            for axis, attribute in reversed(list(enumerate(whole.attributes, start=1))):
                if attribute not in kept:
                    rows = np.tensordot(rows, self._masses(whole, attribute), axes=(axis, 0))
            self._means[key] = rows
        return self._means[key]

    def _products(self, number: int, other: int) -> Array:
        """Return the inner products of all rows of two measurements."""
        first, second = self.wholes[number], self.wholes[other]
        kept = tuple(a for a in first.attributes if a in second.attributes)
        mine, theirs = self.mean(number, kept), self.mean(other, kept)
        for axis, attribute in enumerate(kept, start=1):
            common = np.zeros((mine.shape[axis], theirs.shape[axis]))
            both = first.classes(attribute), second.classes(attribute)
            np.add.at(common, both, self.residual.centres[attribute].weights)
            theirs = np.moveaxis(np.tensordot(theirs, common, axes=(axis, 1)), -1, axis)
        return np.asarray(mine.reshape(len(mine), -1) @ theirs.reshape(len(theirs), -1).T)

    @cached_property
    def _every(self) -> Array:
        """⟨R, R⟩."""
        numbers = range(len(self.wholes))
        return np.block([[self._products(number, other) for other in numbers] for number in numbers])

    @cached_property
    def parts(self) -> dict[AttributeSet, _Part]:
        """What the rows leave on every known set."""
        parts: dict[AttributeSet, _Part] = {}
        residual = self.residual
        if residual.public_total:
            rows = np.concatenate([self._part(i, ()) for i in range(len(self.wholes))])
            parts[()] = _Part(np.arange(self.count), rows, np.zeros_like(rows), None)
        for subset in residual.measured:
            on = [i for i, whole in enumerate(self.wholes) if set(subset) <= set(whole.attributes)]
            if on and subset not in parts:
                at = np.concatenate([np.arange(self.count)[self.slices[i]] for i in on])
                rows = np.concatenate([self._part(i, subset) for i in on])
                parts[subset] = _Part(at, rows, residual.covary(subset, rows), residual.outside(subset, rows))
        return parts

    def _part(self, number: int, subset: AttributeSet) -> Array:
        """Return what a measurement's rows leave on a set, over its values."""
        whole = self.wholes[number]
        rows = self.mean(number, subset)
        for axis, attribute in enumerate(subset, start=1):
            rows = split_axis(rows, Centre(self._masses(whole, attribute)), axis, keep=True)
        for axis, attribute in enumerate(subset, start=1):
            rows = rows.take(whole.classes(attribute), axis=axis)
        return rows

    def _weighed(self, rows: Array, subset: AttributeSet) -> Array:
        """Return rows over the values of a set times ν."""
        for axis, attribute in enumerate(subset, start=rows.ndim - len(subset)):
            rows = rows * along(self.residual.centres[attribute].weights, axis, rows.ndim)
        return rows

    @cached_property
    def _grams(self) -> tuple[Array, Array]:
        """⟨R_u, R_u⟩ and R C Rᵀ."""
        unknown, spread = self._every.copy(), np.zeros((self.count, self.count))
        for subset, part in self.parts.items():
            at, flat = np.ix_(part.at, part.at), part.rows.reshape(len(part.rows), -1)
            unknown[at] -= self._weighed(part.rows, subset).reshape(flat.shape) @ flat.T
            spread[at] += part.covaried.reshape(flat.shape) @ flat.T
            if part.outside is not None:
                left = part.outside.reshape(flat.shape)
                unknown[at] += left @ left.T
        return unknown, spread

    @property
    def gram(self) -> Array:
        """⟨R_u, R_u⟩."""
        return self._grams[0]

    @property
    def spread(self) -> Array:
        """R C Rᵀ."""
        return self._grams[1]

    @cached_property
    def _eliminated(self) -> tuple[Array, Array]:
        """The inverse of R_u's Gram matrix on its range, and the rows N that span its null space."""
        squares = np.maximum(np.diagonal(self._every), np.diagonal(self.gram))
        lengths = np.where(squares > 0, np.sqrt(squares), 1.0)  # zero: exactly known, all of it
        values, vectors = np.linalg.eigh(self.gram / np.multiply.outer(lengths, lengths))
        sure = values > UNKNOWN
        scaled = vectors / lengths[:, None]
        return (scaled[:, sure] / values[sure]) @ scaled[:, sure].T, scaled[:, ~sure].T

    @cached_property
    def _covariance(self) -> Array:
        """K."""
        return self.spread + np.diag(self.noise)

    @cached_property
    def root(self) -> Array:
        """H, with H Hᵀ = Nᵀ (N K Nᵀ)⁻¹ N: no columns if answers say nothing about what residuals know."""
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
        """Return by how much the variances differ from those of what is known alone."""
        change = np.zeros(known.shape[:-1])
        if unknown is not None:
            first = unknown @ self._eliminated[0]
            image = first @ self._covariance
            change, known = np.einsum("...r,...r->...", first, image - 2 * known), known - image
        rooted = known @ self.root
        return change - np.einsum("...r,...r->...", rooted, rooted)

    def corrections(self, differences: Array) -> tuple[Array, Array]:
        """Return weights of the known and the unknown parts of all rows, in what corrects residuals.

        `differences` are those of the whole answers and what the residual answers say of the same rows.
        """
        known = self.root @ (self.root.T @ differences)
        return known, self._eliminated[0] @ (differences - self._covariance @ known)

    def leaves_out(self, known: Array, unknown: Array, left: Array, lengths: Array) -> bool:
        """Return whether combinations of the rows leave something of queries with these c and u.

        `left` are the squared lengths of their unknown parts, `lengths` those of the queries themselves.
        """
        a = self.coefficients(known, unknown)
        outside = left - 2 * np.einsum("...r,...r->...", a, unknown)
        outside = outside + np.einsum("...r,rs,...s->...", a, self.gram, a, optimize=True)
        return bool(np.any(outside > UNKNOWN * lengths))

    # --- queries ---

    def known(self, group: Group) -> Array:
        """Return c for every query of the group: the last axis runs over the rows."""
        result = np.zeros((*group.shape, self.count))
        for subset, shares in self.residual.all_shares(group):
            if subset in self.parts:
                part = self.parts[subset]
                result[..., part.at] += _contracted(part.covaried, subset, self._share_tensors(shares))
        return result

    def unknown(self, group: Group) -> tuple[Array, Array, Array]:
        """Return ⟨q_u, R_u⟩ of every query, and the squared lengths of q_u and of q."""
        products = np.concatenate(
            [self._with_queries(group, number) for number in range(len(self.wholes))], axis=-1
        )
        lengths = self._lengths(self._tensors(group))
        left = lengths.copy()
        for subset, shares in self.residual.all_shares(group):
            exact = not subset and self.residual.public_total
            if subset not in self.residual.measured and not exact:
                continue
            tensors = list(self._share_tensors(shares))
            if subset in self.parts:
                part = self.parts[subset]
                rows = self._weighed(part.rows, subset)
                rows = rows if part.outside is None else rows - part.outside
                products[..., part.at] -= _contracted(rows, subset, tensors)
            left -= self._lengths(tensors)
            if not exact:
                left += self.residual.outside_squares(subset, shares, group)
        return products, np.maximum(left, 0.0), lengths

    def _share_tensors(self, shares: Sequence[Share]) -> Iterator[tuple[AttributeSet, Array]]:
        """Iterate over what families leave on a set: the attributes, and rows with an axis for each."""
        for share in shares:
            sizes = (self.residual.schema.sizes[a] for a in share.kept)
            yield share.kept, share.rows.reshape(len(share.rows), *sizes)

    def _tensors(self, group: Group) -> Iterator[tuple[AttributeSet, Array]]:
        """Iterate over the group's families: their increasing attributes, and rows with an axis for each."""
        for names, family in group.parts():
            positions = self.residual.schema.positions(names)
            yield tuple(sorted(positions)), PlacedFamily.on(positions, family).tensor(weighted=False)

    def _lengths(self, tensors: Iterable[tuple[AttributeSet, Array]]) -> Array:
        """Return ⟨q, q⟩ of every product q of rows."""
        result: Array = np.ones(())
        for subset, rows in tensors:
            squares = (self._weighed(rows, subset) * rows).reshape(len(rows), -1).sum(axis=1)
            result = np.multiply.outer(result, squares)
        return result

    def _with_queries(self, group: Group, number: int) -> Array:
        """Return ⟨q, R⟩ of every query with the rows of one measurement."""
        whole = self.wholes[number]
        kept = tuple(
            sorted(set(whole.attributes).intersection(self.residual.schema.positions(group.attributes)))
        )

        def folded(subset: AttributeSet, rows: Array) -> tuple[AttributeSet, Array]:
            """Return weighted sums of rows over the classes of kept attributes, over all values of others."""
            rows = self._weighed(rows, subset)
            for axis, attribute in reversed(list(enumerate(subset, start=1))):
                keeps = attribute in kept
                rows = class_sums(rows, whole.classes(attribute), axis) if keeps else rows.sum(axis)
            return tuple(a for a in subset if a in kept), rows

        tensors = (folded(subset, rows) for subset, rows in self._tensors(group))
        return _contracted(self.mean(number, kept), kept, tensors)

    # --- tables ---

    def known_answers(self, residual: Callable[[AttributeSet], Array | None]) -> Array:
        """Return what given residuals say of the rows."""
        answers = np.zeros(self.count)
        for subset, part in self.parts.items():
            noisy = residual(subset)
            if noisy is not None:
                answers[part.at] += part.rows.reshape(len(part.rows), -1) @ noisy.ravel()
        return answers

    def correction(self, subset: AttributeSet, known: Array, unknown: Array) -> Array | None:
        """Return what to add to the residual of a known set, given the weights of all rows' parts."""
        part = self.parts.get(subset)
        if part is None:
            return None
        change: Array = np.tensordot(known[part.at], part.covaried, axes=1)
        if part.outside is not None:
            change = change + np.tensordot(unknown[part.at], part.outside, axes=1)
        return change

    def unknown_table(self, attributes: AttributeSet, unknown: Array) -> Array:
        """Return what is not known of a table on increasing attributes, given the weights of all rows."""
        sizes = [self.residual.schema.sizes[a] for a in attributes]
        table = np.zeros(sizes)

        def spread(values: Array, kept: AttributeSet) -> Array:
            return values.reshape([n if a in kept else 1 for a, n in zip(attributes, sizes, strict=True)])

        for number, (whole, at) in enumerate(zip(self.wholes, self.slices, strict=True)):
            kept = tuple(a for a in whole.attributes if a in attributes)
            values = np.tensordot(unknown[at], self.mean(number, kept), axes=1)
            for axis, attribute in enumerate(kept):
                values = values.take(whole.classes(attribute), axis=axis)
            table = table + spread(values, kept)
        for subset, part in self.parts.items():
            if set(subset) <= set(attributes):
                table = table - spread(np.tensordot(unknown[part.at], part.rows, axes=1), subset)
        return self._weighed(table, attributes)


def _contracted(rows: Array, subset: AttributeSet, tensors: Iterable[tuple[AttributeSet, Array]]) -> Array:
    """Return the inner products of rows on a set with products of other rows: the first rows come last."""
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


def answered(group: Group, tables: Array) -> Array:
    """Answer the group's queries on tables, whose first axis numbers them; it becomes the last."""
    result = np.moveaxis(tables, 0, -1)
    for _, family in group.parts():  # each answers the first axes, and its queries go to the end
        result = np.moveaxis(family.answers(result), 0, -1)
    return np.moveaxis(result, 0, -1)


def answer_squares(group: Group, tables: Array, *, weighted: bool) -> float:
    """Return Σ (q·T)² over the group's queries q and the tables T along the first axis."""
    left = right = np.moveaxis(tables, 0, -1)
    for _, family in group.parts():
        axes = len(family.shape)
        if family.closed_form:
            flat = right.reshape(family.cells, -1)
            right = (family.gram() @ flat).reshape(right.shape)
        else:
            roots = np.sqrt(family.weights) if weighted and family.weights is not None else None
            left, right = (
                side if roots is None else side * roots.reshape(-1, *[1] * (side.ndim - 1))
                for side in (family.answers(left), family.answers(right))
            )
            axes = 1
        ends = range(left.ndim - axes, left.ndim)
        left, right = (np.moveaxis(side, range(axes), ends) for side in (left, right))
    return (group.weight if weighted else 1.0) * float(np.vdot(left, right))
