"""How far estimated tables may be from the unbiased ones: as far as an estimate of their risk allows.

A small table without structure has nothing that shrinkage could use, and what the model assumes then costs
more than it gains. Let z be the noisy residuals of some sets, in orthonormal coordinates with noise of
variance s², and b those of the model's tables. Errors of sets add up: an error in a coordinate of set B
weighs w = Σ 1/n_{A∖B}, over the tables A ⊇ B asked for. With g = z − b, ‖g‖² = Σ wg² and
λ = Σ wg²·ws²/‖g‖², the mean of ws² in the direction of g, the residuals

    v = z − a·g,      a the largest number of at most 1 with  a²‖g‖² − 2a(Σ ws² ∂g/∂z − 2λ) ≤ 0.02 Σ ws²,

have an expected weighted squared error of at most 1.02 times that of z, as docs/concepts/estimates.md shows
by Stein's identity. Where the model is any good, a is 1, and its tables remain unchanged; where its estimated
risk exceeds that of the unbiased tables, a is as large as this risk allows. The derivatives are estimated by
moving all residuals a little, at random. Sets of the same number of attributes have one a in common, as do
all below the smallest tables asked for. So that no set pays for the others, each moves at most as far as
its separate a allows or, if that is farther, by the root of 0.003 of its noise (limited translation, Efron
and Morris 1972). This adds at most as much to its risk, and less than 5% if the model of a set jumps once.

If any a is below 1, v is moved to the nearest residuals of which all tables are non-negative, and the total.
The true ones are among these, and the projection onto a convex set never increases the distance to any of its
points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import combinations, groupby

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes
from querysmasher.estimate.evidence import AttributeSet, Evidence, Noisy
from querysmasher.estimate.fitting import Axes, batches, filled, fitted, with_margins
from querysmasher.estimate.table_model import Model
from querysmasher.planning.estimator.estimator import subsets

LARGEST = 100_000
"""Maximum number of cells of the tables whose risk is estimated: those of the fewest attributes first."""

TOLERATED = 0.02
"""Fraction by which the estimated risk may exceed the unbiased one; without it, tiny moves are undone."""

ALONE = 0.003
"""Square of how far a set may always move, as a fraction of its noise."""

DIRECTIONS = 10
"""Minimum number of directions that are moved together: of d directions, only d - 2 can gain."""

PROBES, MANY, STEP = 4, 1_000, 0.3
"""Number of random moves of the residuals that estimate derivatives; the number of coordinates from which on
one suffices; and the size of a move in standard errors."""

ROUNDS, CLOSE = 200, 1e-3
"""Maximum number of rounds of Dykstra's algorithm, and the error in standard errors at which it ends."""

Indexes = NDArray[np.int64]


def settled(model: Model, wanted: Iterable[AttributeSet]) -> Model:
    """Return a model whose tables are no farther from the unbiased ones than their estimated risk allows.

    `wanted` are the sets whose tables are asked for.
    """
    sets = _small(model.schema.sizes, set(wanted))
    tables = _measured(model, sets)
    if not tables:
        return model
    smallest = min(len(subset) for subset in (*tables, *sets) if subset)
    space = Space(model.evidence, tables, smallest)
    moves, coordinates = _moved(model, space)
    weights = space.means(moves)
    if (moves == 1).all():
        model.weights = weights
        return model
    space = Space(model.evidence, sorted({(), *tables}))  # the total counts as a table, too
    known = space.tables(space.nearest(coordinates, model), model)
    return Model(model.evidence, model.least, known, weights)


def _small(sizes: Sequence[int], sets: set[AttributeSet]) -> set[AttributeSet]:
    """Return the sets of the fewest attributes, as long as their tables are not too large together."""
    cells, small = 0, set[AttributeSet]()
    for _, alike in groupby(sorted(sets, key=len), key=len):
        level = set(alike)
        cells += sum(math.prod(sizes[a] for a in subset) for subset in level)
        if cells > LARGEST:
            break
        small |= level
    return small


def _measured(model: Model, sets: set[AttributeSet]) -> list[AttributeSet]:
    """Return the sets asked for of which all parts were measured, and the largest such sets below others."""
    sizes = model.schema.sizes

    @cache
    def follows(subset: AttributeSet) -> bool:
        if subset and not all(map(follows, combinations(subset, len(subset) - 1))):
            return False
        return model.evidence.noisy(subset) is not None or not math.prod(sizes[a] - 1 for a in subset)

    known = {part for subset in sets for part in subsets(subset) if follows(part)}
    inside = {part for subset in known for part in subsets(subset) if part != subset}
    largest = known - inside - {()}
    return sorted(largest | (known & sets)) if largest else []


def _moved(model: Model, space: Space) -> tuple[Array, Array]:
    """Return how far coordinates may move towards the model's (fractions of the way), and where they end."""
    noisy = space.coordinates([space.noisy[subset].values for subset in space.sets])
    std = np.sqrt(space.variances)
    away = noisy - space.coordinates(model.tables(space.sets))
    slopes = np.zeros_like(away)
    rng = np.random.default_rng(0)
    probes = PROBES if len(away) < MANY else 1
    for _ in range(probes):
        signs = rng.choice([-1.0, 1.0], len(away))
        step = STEP * std * signs

        def changed(known: Noisy, changes: Mapping[AttributeSet, Array] = space.residuals(step)) -> Array:
            return known.values + changes.get(known.attributes, 0.0)

        moved = Model(model.evidence.replaced(changed), model.least)
        further = noisy + step - space.coordinates(moved.tables(space.sets))
        slopes += std * signs * (further - away) / (STEP * probes)
    squares, noise = space.weights * away**2, space.weights * space.variances
    gains = space.weights * slopes

    def reach(chosen: NDArray[np.bool_] | slice) -> float:
        length, most = float(squares[chosen].sum()), float(noise[chosen].sum())
        gain = min(float(gains[chosen].sum()), most)  # derivatives are at most 1, and estimates are rough
        spare = gain - 2 * float(squares[chosen] @ noise[chosen]) / max(length, 1e-300)
        return _reach(length, spare, TOLERATED * most)

    moves = np.ones_like(away)
    for orders in space.blocks:
        block = np.isin(space.orders, orders)
        moves[block] = reach(block)
    for alone in space.slices.values():
        length = max(float(squares[alone].sum()), 1e-300)
        limit = max(reach(alone), math.sqrt(ALONE * float(noise[alone].sum()) / length))
        moves[alone] = np.minimum(moves[alone], limit)
    return moves, noisy - moves * away


def _reach(length: float, spare: float, allowed: float) -> float:
    """Return the largest number a of at most 1 with a² · length - 2a · spare of at most `allowed`."""
    if not length or length - 2 * spare <= allowed:
        return 1.0
    return (spare + math.sqrt(spare**2 + length * allowed)) / length


class Space:
    """Some tables as coordinates: the residuals of all sets below them, in orthonormal bases."""

    def __init__(self, evidence: Evidence, tables: Sequence[AttributeSet], smallest: int = 1) -> None:
        """Take the evidence, tables whose parts were all measured, and the size of the smallest wanted."""
        self._sizes = evidence.schema.sizes
        self._tables = tables
        self._smallest = smallest
        above: dict[AttributeSet, float] = {}
        for table in tables:
            for part in subsets(table):
                others = math.prod(self._sizes[a] for a in table if a not in part)
                above[part] = above.get(part, 0.0) + 1 / others
        self.sets = sorted(above, key=lambda subset: (len(subset), subset))
        nothing = (Noisy(subset, np.zeros(self._shape(subset)), 0.0) for subset in self.sets)
        self.noisy = {none.attributes: evidence.noisy(none.attributes) or none for none in nothing}
        counts = [math.prod(self._shape(subset, 1)) for subset in self.sets]
        ends = np.cumsum(counts).tolist()
        self.slices = {s: slice(end - n, end) for s, end, n in zip(self.sets, ends, counts, strict=True)}
        """The coordinates of each set."""
        self.variances = np.repeat([self.noisy[subset].variance for subset in self.sets], counts)
        self.orders = np.repeat([max(len(subset), 1) for subset in self.sets], counts)
        self.weights = np.repeat([above[subset] for subset in self.sets], counts)
        """What a squared error in each coordinate weighs, over all tables."""

    def _shape(self, subset: AttributeSet, less: int = 0) -> list[int]:
        return [self._sizes[a] - less for a in subset]

    def means(self, moves: Array) -> dict[int, float]:
        """Return the means of numbers per coordinate, weighted by the noise, by the number of attributes."""
        noise, orders = (self.weights * self.variances)[1:], self.orders[1:]
        return {
            order: float(np.average(moves[1:][orders == order], weights=noise[orders == order]))
            for order in np.unique(orders[noise > 0]).tolist()
        }

    @property
    def blocks(self) -> list[list[int]]:
        """Numbers of attributes whose sets are moved together.

        Each has many directions, if possible. The smallest tables asked for consist of sets of their size
        and of all smaller ones, so that these are moved together.
        """
        blocks: list[list[int]] = []
        count = 0
        orders = self.orders[self.variances > 0]
        for order in np.unique(orders).tolist():
            if not blocks or (count >= DIRECTIONS and order > self._smallest):
                blocks.append([])
                count = 0
            blocks[-1].append(order)
            count += int((orders == order).sum())
        if len(blocks) > 1 and count < DIRECTIONS:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
        return blocks

    def coordinates(self, tables: Iterable[Array]) -> Array:
        """Return the coordinates of tables, one per set."""
        pairs = zip(self.sets, tables, strict=True)
        parts = [along_axes(table, 0, [_basis(n) for n in self._shape(subset)]) for subset, table in pairs]
        return np.concatenate([part.ravel() for part in parts])

    def residuals(self, coordinates: Array) -> dict[AttributeSet, Array]:
        """Return the residuals with given coordinates."""
        return {
            subset: along_axes(
                coordinates[chosen].reshape(self._shape(subset, 1)),
                0,
                [_basis(n).T for n in self._shape(subset)],
            )
            for subset, chosen in self.slices.items()
        }

    @cached_property
    def _stacks(self) -> list[tuple[list[AttributeSet], Indexes]]:
        """Tables of one shape, with the coordinate of each element; the first of an axis is a sum."""
        return [(batch, self._indexes(batch)) for batch in batches(self._tables, self._sizes)]

    def _indexes(self, tables: Sequence[AttributeSet]) -> Indexes:
        """Return which coordinate belongs to each element of tables of one shape in their bases."""
        result = np.zeros([len(tables), *self._shape(tables[0])], dtype=np.int64)
        for number, table in enumerate(tables):
            for part in subsets(table):
                at = tuple(slice(1, None) if a in part else 0 for a in table)
                chosen = self.slices[part]
                result[(number, *at)] = np.arange(chosen.start, chosen.stop).reshape(self._shape(part, 1))
        return result

    def _lifted(self, values: Array, table: AttributeSet) -> Array:
        """Return the cells of tables of one shape from their elements in the bases."""
        return along_axes(values, 1, [_lifting(n).T for n in self._shape(table)])

    def cells(self, coordinates: Array) -> list[Array]:
        """Return the cells of the tables asked for, in stacks of one shape."""
        return [self._lifted(coordinates[indexes], tables[0]) for tables, indexes in self._stacks]

    def _fitted(self, stacks: Sequence[Array]) -> Array:
        """Return the coordinates of the consistent tables nearest to given ones."""
        sums = np.zeros(len(self.weights))
        for (tables, indexes), cells in zip(self._stacks, stacks, strict=True):
            values = along_axes(cells, 1, [_lifting(n) for n in self._shape(tables[0])])
            sums += np.bincount(indexes.ravel(), values.ravel(), len(sums))
        return sums / self.weights

    def nearest(self, coordinates: Array, model: Model) -> Array:
        """Return the nearest coordinates of which all tables are non-negative, with structural zeros."""
        masks = [np.stack(list(map(model.zeros.mask, tables))) for tables, _ in self._stacks]
        public = self.variances == 0
        close = CLOSE * math.sqrt(float(self.variances @ self.weights) / sum(mask.size for mask in masks))
        stacks = self.cells(coordinates)
        excess = [np.zeros_like(stack) for stack in stacks]
        for _ in range(ROUNDS):  # Dykstra's algorithm: only the cone needs a correction
            before = [stack + more for stack, more in zip(stacks, excess, strict=True)]
            kept = [np.maximum(stack, 0.0) * mask for stack, mask in zip(before, masks, strict=True)]
            excess = [stack - after for stack, after in zip(before, kept, strict=True)]
            coordinates = np.where(public, coordinates, self._fitted(kept))
            stacks = self.cells(coordinates)
            if all(float(np.abs(a - b).max()) <= close for a, b in zip(stacks, kept, strict=True)):
                break
        return coordinates

    def tables(self, coordinates: Array, model: Model) -> dict[AttributeSet, Array]:
        """Return the table of every set: non-negative, with the margins of the others."""
        known: dict[AttributeSet, Array] = {(): np.array(max(coordinates[0], 0.0))}
        for batch in batches([subset for subset in self.sets if subset], self._sizes):
            order = len(batch[0])
            masks = np.stack(list(map(model.zeros.mask, batch)))
            tables = np.maximum(self._lifted(coordinates[self._indexes(batch)], batch[0]), 0.0) * masks
            margins: dict[Axes, Array] = {
                axes: np.stack([known[tuple(subset[a] for a in axes)] for subset in batch])
                for axes in combinations(range(order), order - 1)
            }
            tables = fitted(tables, margins)
            if order == 2 and masks.all():
                tables = with_margins(tables, margins[0,], margins[1,])
            elif order > 1:
                singles = [np.stack([known[subset[axis],] for subset in batch]) for axis in range(order)]
                tables = filled(tables, singles, masks)
            tables.flags.writeable = False
            known.update(zip(batch, tables, strict=True))
        return known


@cache
def _basis(size: int) -> Array:
    """Return orthonormal vectors that sum to zero, as columns."""
    steps = np.tril(np.ones((size, size)), -1)[1:] - np.diag(np.arange(1.0, size), 1)[:-1]
    return np.asarray((steps / np.sqrt(np.arange(1, size) * np.arange(2, size + 1))[:, None]).T)


@cache
def _lifting(size: int) -> Array:
    """Return the matrix that turns a sum, and coordinates in the basis, into cells."""
    return np.column_stack([np.full(size, 1 / size), _basis(size)])
