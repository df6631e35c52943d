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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.known import KnownPredictor
from querysmasher.planning.lattice import Integers
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.split import split_rows
from querysmasher.workload.groups import Group

UNKNOWN = 1e-11
"""With rows scaled to length one, smaller eigenvalues of R_u R_uᵀ are rounding errors."""

OUTSIDE = 1e-6
"""A query further than this fraction of its length from what is measured is outside it."""


@dataclass(frozen=True, eq=False)
class Whole:
    """Rows that are measured unsplit, on one attribute set."""

    attributes: tuple[int, ...]
    """Indexes in the schema, increasing."""
    maps: tuple[Integers, ...]
    """For every attribute, the class of each value: the rows do not distinguish values of one class."""
    rows: Array
    """One axis for the rows, then one axis of classes per attribute."""
    variances: Array
    """The noise variance of every row's answer."""


class Combination:
    """Predicts variances from residual and whole measurements together, and corrects residual answers."""

    def __init__(self, residual: Predictor, wholes: Sequence[Whole]) -> None:
        """Take a predictor of what the residual measurements know, and the whole measurements."""
        self.residual = KnownPredictor(
            residual.schema, residual.centres, residual.strategies, residual.measured, residual.public_total
        )
        self.wholes = wholes
        self.count = sum(len(whole.rows) for whole in wholes)
        self._known: dict[tuple[int, ...], Array] = {}
        self._unknown: dict[tuple[int, ...], Array] = {}
        spread = np.concatenate([whole.variances for whole in wholes])
        self._covariance = np.diag(spread)
        self._gram = np.zeros((self.count, self.count))
        self._squares = np.full(self.count, np.finfo(float).tiny)
        for attributes, rows in self._split_wholes():
            self._add(attributes, rows)

    def _split_wholes(self) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Iterate over the attribute sets on which whole rows leave something, with all rows on its cells."""
        parts: dict[tuple[int, ...], Array] = {}
        start = 0
        for whole in self.wholes:
            centres = [
                Centre(np.bincount(own, weights=self.residual.centres[a].weights).astype(float))
                for a, own in zip(whole.attributes, whole.maps, strict=True)
            ]
            stop = start + len(whole.rows)
            for kept, rows in split_rows(whole.rows, centres).items():
                tensor = rows.reshape(-1, *(len(centres[axis]) for axis in kept))
                for place, axis in enumerate(kept, start=1):
                    tensor = tensor.take(whole.maps[axis], axis=place)
                attributes = tuple(whole.attributes[axis] for axis in kept)
                if attributes not in parts:
                    parts[attributes] = np.zeros((self.count, *tensor.shape[1:]))
                parts[attributes][start:stop] = tensor
            start = stop
        yield from parts.items()

    def _add(self, attributes: tuple[int, ...], rows: Array) -> None:
        """Add what the rows leave on one set to what is known, and to what is not."""
        if not attributes and self.residual.public_total:
            return  # exactly known
        flat = rows.reshape(self.count, -1)
        self._squares += (flat**2).sum(axis=1)
        unknown: Array | None = rows
        if attributes in self.residual.measured:
            known = self.residual.covary(attributes, rows)
            self._known[attributes] = known
            self._covariance += flat @ known.reshape(self.count, -1).T
            unknown = self.residual.outside(attributes, rows)
        if unknown is not None:
            self._unknown[attributes] = unknown
            left = unknown.reshape(self.count, -1)
            self._gram += left @ left.T

    @cached_property
    def _eliminated(self) -> tuple[Array, Array, Array]:
        """R_u's inverse Gram matrix, the rows N, and Nᵀ (N K Nᵀ)⁻¹ N."""
        lengths = np.sqrt(self._squares)
        values, vectors = np.linalg.eigh(self._gram / np.multiply.outer(lengths, lengths))
        sure = values > UNKNOWN
        scaled = vectors / lengths[:, None]
        inverse = (scaled[:, sure] / values[sure]) @ scaled[:, sure].T
        null = scaled[:, ~sure].T
        inner = null @ self._covariance @ null.T
        return inverse, null, null.T @ np.linalg.solve(inner, null) if len(null) else self._gram * 0.0

    def coefficients(self, group: Group) -> tuple[Array, Array, Array]:
        """Return a, c and q_u R_uᵀ for every query of the group: the last axis runs over the whole rows."""
        known, unknown = (self._answers(group, parts) for parts in (self._known, self._unknown))
        inverse, _, best = self._eliminated
        first = unknown @ inverse
        return first + (known - first @ self._covariance) @ best, known, unknown

    def variances(self, group: Group) -> Array:
        """Return the variance of every query of the group, with an axis per family."""
        a, known, unknown = self.coefficients(group)
        left, length = self.residual.unknown_squares(group)
        outside = left - 2 * np.einsum("...r,...r->...", a, unknown)
        outside += np.einsum("...r,rs,...s->...", a, self._gram, a, optimize=True)
        if np.any(outside > OUTSIDE**2 * length):
            msg = (
                f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan does not "
                "measure them, nor what they follow from. Add these queries to the planned workload"
            )
            raise OutsideMeasuredSpaceError(msg)
        base = self.residual.known_variances(group)
        gain = 2 * np.einsum("...r,...r->...", a, known)
        return base - gain + np.einsum("...r,rs,...s->...", a, self._covariance, a, optimize=True)

    def _answers(self, group: Group, parts: Mapping[tuple[int, ...], Array]) -> Array:
        """Answer the group's queries on one table per whole row, made of the parts on subsets."""
        places = self.residual.schema.positions(group.attributes)
        table = assembled(parts, places, self.residual.centres, self.count)
        for _, family in group.parts():  # each answers the first axes, and its queries go to the end
            table = np.moveaxis(family.answers(table), 0, -1)
        return np.moveaxis(table, 0, -1)


def assembled(
    parts: Mapping[tuple[int, ...], Array], attributes: tuple[int, ...], centres: Centres, count: int
) -> Array:
    """Return Σ_A (⊗_{i∈A} C_i) ⊗ (⊗_{i∉A} w_i) · r_A as tables over `attributes`, with `count` as last axis.

    `parts` has r_A for attribute sets A, with `count` as first axis; sets that are no subsets are left out.
    """
    ordered = tuple(sorted(attributes))
    sizes = {a: len(centres[a]) for a in ordered}
    result = np.zeros((count, *(sizes[a] for a in ordered)))
    for way in range(len(ordered) + 1):
        for kept in combinations(ordered, way):
            if kept not in parts:
                continue
            share = parts[kept]
            for axis, a in enumerate(kept, start=1):
                spread = [-1 if i == axis else 1 for i in range(share.ndim)]
                share = share - share.sum(axis=axis, keepdims=True) * centres[a].weights.reshape(spread)
            share = share.reshape(count, *(sizes[a] if a in kept else 1 for a in ordered))
            for axis, a in enumerate(ordered, start=1):
                if a not in kept:
                    spread = [-1 if i == axis else 1 for i in range(share.ndim)]
                    share = share * centres[a].weights.reshape(spread)
            result += share
    order = [1 + ordered.index(a) for a in attributes]
    return np.moveaxis(result.transpose([0, *order]), 0, -1)
