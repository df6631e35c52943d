"""How far estimated tables may be from the unbiased ones: as far as an estimate of their risk allows.

A small table without structure has nothing that shrinkage could use, and what the model assumes then costs
more than it gains. Let z be the noisy residuals of some sets, in orthonormal coordinates with noise of
variance s², and b those of the model's tables. Errors of sets add up: an error in a coordinate of set B
weighs w = Σ 1/n_{A∖B}, over the tables A ⊇ B asked for. With g = z − b, ‖g‖² = Σ wg² and
λ = Σ wg²·ws²/‖g‖², the mean of ws² in the direction of g, the residuals

    v = z − a·g,      a the largest number of at most 1 with  a²‖g‖² − 2a(Σ ws² ∂g/∂z − 2λ) ≤ 0.02 Σ ws²,

have an expected weighted squared error of at most 1.02 times that of z, as docs/concepts/estimates.md shows
by Stein's identity. Where the model is any good, a is 1, and its tables are taken as they are; where its
estimated risk exceeds that of the unbiased tables, a is as large as this risk allows. The derivatives are
estimated by moving all residuals a little, at random. Sets of the same number of attributes share one a, as
do all below the smallest tables asked for. So that no set pays for the others, each moves at most as far as
its own a allows or, if that is farther, by the root of 0.003 of its noise (limited translation, Efron and
Morris 1972). This adds at most as much to its risk, and less than 5% if the model of a set jumps once.

If any a is below 1, v is moved to the nearest residuals of which all tables are non-negative, and the total.
The true ones are among these, and the projection onto a convex set never increases the distance to any of its
points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import combinations, groupby

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes
from querysmasher.estimate.evidence import Evidence, Noisy, Place
from querysmasher.estimate.fitting import Axes, batches, filled, fitted, with_margins
from querysmasher.estimate.table_model import Model
from querysmasher.planning.estimator.lifting import subsets

LARGEST = 100_000
"""Maximum number of cells of the tables whose risk is estimated: those of the fewest attributes first."""

TOLERATED = 0.02
"""Share of the unbiased risk by which the estimated risk may exceed it: else tiny moves would be undone."""

ALONE = 0.003
"""Square of how far a set may always move, as a share of its noise."""

DIRECTIONS = 10
"""Minimum number of directions that are moved alone: of d directions, d - 2 can gain."""

PROBES, MANY, STEP = 4, 1_000, 0.3
"""How often residuals are moved to estimate derivatives, once if there are many, and by how many standard
errors."""

ROUNDS, CLOSE = 200, 1e-3
"""Maximum number of rounds of Dykstra's algorithm, and the error in standard errors at which it ends."""

Indexes = NDArray[np.int64]


def settled(model: Model, asked: Iterable[Place]) -> Model:
    """Return a model whose tables are no farther from the unbiased ones than their estimated risk allows.

    `asked` are the sets whose tables are asked for.
    """
    places = _small(model.schema.sizes, set(asked))
    tables = _measured(model, places)
    if not tables:
        return model
    smallest = min(len(place) for place in (*tables, *places) if place)
    space = Space(model.evidence, tables, smallest)
    moves, coordinates = _moved(model, space)
    weights = space.means(moves)
    if (moves == 1).all():
        model.weights = weights
        return model
    space = Space(model.evidence, sorted({(), *tables}))  # the total counts as a table of its own
    known = space.tables(space.nearest(coordinates, model), model)
    return Model(model.evidence, model.least, known, weights)


def _small(sizes: Sequence[int], places: set[Place]) -> set[Place]:
    """Return the sets of the fewest attributes, as long as their tables are not too large together."""
    cells, found = 0, set[Place]()
    for _, own in groupby(sorted(places, key=len), key=len):
        some = set(own)
        cells += sum(math.prod(sizes[a] for a in place) for place in some)
        if cells > LARGEST:
            break
        found |= some
    return found


def _measured(model: Model, places: set[Place]) -> list[Place]:
    """Return the sets asked for of which all parts were measured, and the largest such sets below others."""
    sizes = model.schema.sizes

    @cache
    def follows(place: Place) -> bool:
        is_known = model.evidence.noisy(place) is not None or not math.prod(sizes[a] - 1 for a in place)
        return is_known and all(map(follows, combinations(place, len(place) - 1 if place else 1)))

    found: set[Place] = set()
    for place in places:
        level: list[Place] = [()] if follows(()) else []
        while level:  # up from the empty set, as far as measured sets go
            larger = {(*some, a) for some in level for a in place if a > max(some, default=-1)}
            found |= set(level)
            level = list(filter(follows, larger))
    inside = {some for place in found for some in subsets(place) if some != place}
    largest = found - inside - {()}
    return sorted(largest | (found & places)) if largest else []


def _moved(model: Model, space: Space) -> tuple[Array, Array]:
    """Return how far coordinates may move towards the model's, as parts of the way, and where they end."""
    noisy = space.coordinates([space.noisy[place].values for place in space.sets])
    std = np.sqrt(space.variances)
    away = noisy - space.coordinates(model.tables(space.sets))
    slopes = np.zeros_like(away)
    rng = np.random.default_rng(0)
    probes = PROBES if len(away) < MANY else 1
    for _ in range(probes):
        signs = rng.choice([-1.0, 1.0], len(away))
        step = STEP * std * signs
        again = Model(_changed(model.evidence, space.residuals(step)), model.least)
        further = noisy + step - space.coordinates(again.tables(space.sets))
        slopes += std * signs * (further - away) / (STEP * probes)
    squares, noise = space.weights * away**2, space.weights * space.variances
    gains = space.weights * slopes

    def reach(own: NDArray[np.bool_] | slice) -> float:
        length, most = float(squares[own].sum()), float(noise[own].sum())
        gain = min(float(gains[own].sum()), most)  # derivatives are at most 1, and estimates of few are rough
        spare = gain - 2 * float(squares[own] @ noise[own]) / max(length, 1e-300)
        return _reach(length, spare, TOLERATED * most)

    moves = np.ones_like(away)
    for orders in space.blocks:
        own = np.isin(space.orders, orders)
        moves[own] = reach(own)
    for alone in space.slices.values():
        length = max(float(squares[alone].sum()), 1e-300)
        limit = max(reach(alone), math.sqrt(ALONE * float(noise[alone].sum()) / length))
        moves[alone] = np.minimum(moves[alone], limit)
    return moves, noisy - moves * away


def _changed(evidence: Evidence, changes: Mapping[Place, Array]) -> Evidence:
    """Return evidence whose residuals of some sets differ by given numbers."""

    def noisy(place: Place) -> Noisy | None:
        known = evidence.noisy(place)
        if known is None or place not in changes:
            return known
        return replace(known, values=known.values + changes[place])

    return Evidence(evidence.schema, noisy, evidence.distances)


def _reach(length: float, spare: float, allowed: float) -> float:
    """Return the largest number a of at most 1 with a² · length - 2a · spare of at most `allowed`."""
    if not length or length - 2 * spare <= allowed:
        return 1.0
    return (spare + math.sqrt(spare**2 + length * allowed)) / length


class Space:
    """Some tables as coordinates: the residuals of all sets below them, in orthonormal bases."""

    def __init__(self, evidence: Evidence, tables: Sequence[Place], smallest: int = 1) -> None:
        """Take what was measured, tables of which all parts were, and the least size of those asked for."""
        self._sizes = evidence.schema.sizes
        self._asked = tables
        self._smallest = smallest
        found = {some for place in tables for some in subsets(place)}
        self.sets = sorted(found, key=lambda place: (len(place), place))
        nothing = {p: Noisy(p, np.zeros([self._sizes[a] for a in p]), 0.0) for p in self.sets}
        self.noisy = {place: evidence.noisy(place) or nothing[place] for place in self.sets}
        counts = [math.prod(self._sizes[a] - 1 for a in place) for place in self.sets]
        self.variances = np.repeat([self.noisy[place].variance for place in self.sets], counts)
        ends = np.cumsum(counts).tolist()
        self.slices = {p: slice(end - n, end) for p, end, n in zip(self.sets, ends, counts, strict=True)}
        """The coordinates of each set."""
        self.orders = np.repeat([max(len(place), 1) for place in self.sets], counts)
        above = dict.fromkeys(self.sets, 0.0)
        for table in tables:
            for place in subsets(table):
                above[place] += 1 / math.prod(self._sizes[a] for a in table if a not in place)
        self.weights = np.repeat([above[place] for place in self.sets], counts)
        """What a squared error in each coordinate weighs, over all tables."""

    def means(self, moves: Array) -> dict[int, float]:
        """Return the means of numbers per coordinate, weighted by the noise, by the number of attributes."""
        noise, rest = self.weights[1:] * self.variances[1:], 1.0 - moves[1:]
        orders = self.orders[1:]
        return {
            order: 1.0 - float(rest[own] @ noise[own] / noise[own].sum())
            for order in np.unique(orders[noise > 0]).tolist()
            if (own := orders == order).any()
        }

    @property
    def blocks(self) -> list[list[int]]:
        """Numbers of attributes whose sets are moved together.

        Each has many directions, if possible. The smallest tables asked for consist of sets of their own size
        and of all smaller ones, so that these are moved together.
        """
        found: list[list[int]] = []
        count = 0
        orders = self.orders[self.variances > 0]
        for order in np.unique(orders).tolist():
            if not found or (count >= DIRECTIONS and order > self._smallest):
                found.append([])
                count = 0
            found[-1].append(order)
            count += int((orders == order).sum())
        if len(found) > 1 and count < DIRECTIONS:
            found[-2:] = [found[-2] + found[-1]]
        return found

    def coordinates(self, tables: Iterable[Array]) -> Array:
        """Return the coordinates of tables, one per set."""
        pairs = zip(self.sets, tables, strict=True)
        parts = [along_axes(table, 0, [_basis(self._sizes[a]) for a in place]) for place, table in pairs]
        return np.concatenate([part.ravel() for part in parts])

    def residuals(self, coordinates: Array) -> dict[Place, Array]:
        """Return the residuals with given coordinates."""
        found = {}
        for place, own in self.slices.items():
            shaped = coordinates[own].reshape([self._sizes[a] - 1 for a in place])
            found[place] = along_axes(shaped, 0, [_basis(self._sizes[a]).T for a in place])
        return found

    @cached_property
    def _stacks(self) -> list[tuple[list[Place], Indexes]]:
        """Tables of one shape, with the indexes of the coordinates of each; the first stands for a mean."""
        found: dict[tuple[int, ...], list[Place]] = {}
        for table in self._asked:
            found.setdefault(tuple(self._sizes[a] for a in table), []).append(table)
        return [(own, np.stack(list(map(self._indexes, own)))) for own in found.values()]

    def _indexes(self, table: Place) -> Indexes:
        """Return which coordinate belongs to each element of a table in its bases."""
        result = np.zeros([self._sizes[a] for a in table], dtype=np.int64)
        for place in subsets(table):
            own = self.slices[place]
            at = tuple(slice(1, None) if a in place else 0 for a in table)
            result[at] = np.arange(own.start, own.stop).reshape([self._sizes[a] - 1 for a in place])
        return result

    def _lifted(self, values: Array, table: Place) -> Array:
        """Return the cells of tables of one shape from their elements in the bases."""
        return along_axes(values, 1, [_lifting(self._sizes[a]).T for a in table])

    def cells(self, coordinates: Array) -> list[Array]:
        """Return the cells of the tables asked for, in stacks of one shape."""
        return [self._lifted(coordinates[indexes], own[0]) for own, indexes in self._stacks]

    def _fitted(self, stacks: Sequence[Array]) -> Array:
        """Return the coordinates of the consistent tables nearest to given ones."""
        sums = np.zeros(len(self.weights))
        for (own, indexes), cells in zip(self._stacks, stacks, strict=True):
            values = along_axes(cells, 1, [_lifting(self._sizes[a]) for a in own[0]])
            sums += np.bincount(indexes.ravel(), values.ravel(), len(sums))
        return sums / self.weights

    def nearest(self, coordinates: Array, model: Model) -> Array:
        """Return the nearest coordinates of which all tables are non-negative, with structural zeros."""
        masks = [np.stack([_mask(model, place) for place in own]) for own, _ in self._stacks]
        public = self.variances == 0
        close = CLOSE * math.sqrt(float(self.variances @ self.weights) / sum(mask.size for mask in masks))
        stacks = self.cells(coordinates)
        excess = [np.zeros_like(own) for own in stacks]
        for _ in range(ROUNDS):  # Dykstra's algorithm: only the cone needs a correction
            before = [own + more for own, more in zip(stacks, excess, strict=True)]
            kept = [np.maximum(own, 0.0) * mask for own, mask in zip(before, masks, strict=True)]
            excess = [own - after for own, after in zip(before, kept, strict=True)]
            coordinates = np.where(public, coordinates, self._fitted(kept))
            stacks = self.cells(coordinates)
            if all(float(np.abs(a - b).max()) <= close for a, b in zip(stacks, kept, strict=True)):
                break
        return coordinates

    def tables(self, coordinates: Array, model: Model) -> dict[Place, Array]:
        """Return the table of every set: non-negative, with the margins of the others."""
        found: dict[Place, Array] = {(): np.array(max(coordinates[0], 0.0))}
        for order in range(1, len(self.sets[-1]) + 1):
            for some in batches([place for place in self.sets if len(place) == order], self._sizes):
                masks = np.stack([_mask(model, place) for place in some])
                indexes = np.stack(list(map(self._indexes, some)))
                tables = np.maximum(self._lifted(coordinates[indexes], some[0]), 0.0) * masks
                margins: dict[Axes, Array] = {
                    axes: np.stack([found[tuple(place[a] for a in axes)] for place in some])
                    for axes in combinations(range(order), order - 1)
                }
                tables = fitted(tables, margins)
                if order == 2 and masks.all():
                    tables = with_margins(tables, margins[0,], margins[1,])
                elif order > 1:
                    singles = [np.stack([found[place[axis],] for place in some]) for axis in range(order)]
                    tables = filled(tables, singles, masks)
                tables.flags.writeable = False
                found.update(zip(some, tables, strict=True))
        return found


def _mask(model: Model, place: Place) -> Array:
    """Return ones in possible cells and zeros in others."""
    possible = model.zeros.possible(place)
    shape = [model.schema.sizes[a] for a in place]
    return np.ones(shape) if possible is None else possible.astype(float)


@cache
def _basis(size: int) -> Array:
    """Return orthonormal vectors that sum to zero, as columns."""
    steps = np.tril(np.ones((size, size)), -1)[1:] - np.diag(np.arange(1.0, size), 1)[:-1]
    return np.asarray((steps / np.sqrt(np.arange(1, size) * np.arange(2, size + 1))[:, None]).T)


@cache
def _lifting(size: int) -> Array:
    """Return what turns a sum, and coordinates in the basis, into cells."""
    return np.column_stack([np.full(size, 1 / size), _basis(size)])
