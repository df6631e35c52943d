"""The variance of any query under a plan in which large attributes are not split.

On a set A of other attributes, block i measures large attribute i as it is, times the residual strategy of
A. Around the centre w_i of its strategy it measures the total (on A) with variance τ_i, and the rest
independently. The totals of all blocks are combined with weights α_i ∝ 1/τ_i that sum to one, and each
block is corrected by the difference:

    x̂_i + w_i (t̂ − t_i),   t̂ = Σ_i α_i t_i,   w_i = V_i⁻¹1 / 1ᵀV_i⁻¹1.

A query q about attribute i then has the variance  σ_i²(q V⁻¹qᵀ − (1 − α_i²)(q V⁻¹1)²/1ᵀV⁻¹1) + (q·w_i)²
Σ_{j≠i} α_j²τ_j, whatever the noise, as the weights sum to one. With a single block this is σ²·q V⁻¹qᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.large.asked import Asked
from querysmasher.planning.large.block import LargeBlock, Places
from querysmasher.planning.limits import limits
from querysmasher.planning.measured import Measured
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.strategies import Strategy, UnsplitStrategy, is_unsplit
from querysmasher.planning.tied import Share
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group

NOTHING = 1e-8
"""Variances below this fraction of the largest are rounding errors, if the total is public."""

NOWHERE = -1
"""The number of a block that is not measured."""


class LargePredictor(Predictor):
    """Predicts variances where some attributes are not split."""

    kind = "large"
    is_split = False

    def __init__(
        self,
        schema: Schema,
        centres: Centres,
        strategies: Sequence[Strategy],
        measured: Mapping[Places, Sequence[Measured]],
        public_total: bool,
    ) -> None:
        """Sort the measurements by their sets of other attributes."""
        super().__init__(schema, centres, strategies, measured, public_total)
        self.large = tuple(
            sorted(
                {
                    attributes[axes[0]]
                    for attributes, own in measured.items()
                    for axes, number in own[0].blocks
                    if strategies[number].unsplit
                }
            )
        )
        self.layers: dict[Places, list[LargeBlock]] = {}
        for attributes, own in measured.items():
            kept = tuple(a for a in attributes if a not in self.large)
            self.layers.setdefault(kept, []).append(self._block(attributes, kept, tuple(own)))
        for blocks in self.layers.values():
            asked = [a for block in blocks for a in block.places]
            if len(set(asked)) < len(asked):
                msg = "plan: a large attribute is measured twice on the same set of others"
                raise PlanError(msg)

    def _block(self, attributes: Places, kept: Places, noises: tuple[Measured, ...]) -> LargeBlock:
        own: dict[int, UnsplitStrategy] = {}
        small = []
        for noise in noises:
            blocks = []
            for axes, number in noise.blocks:
                strategy = self.strategies[number]
                if is_unsplit(strategy):
                    own[attributes[axes[0]]] = strategy
                else:
                    blocks.append((tuple(kept.index(attributes[a]) for a in axes), number))
            small.append(Measured(kept, tuple(blocks), noise.variance, 0.0))
        places = tuple(a for a in attributes if a in self.large)
        if set(places) != set(own):
            msg = "plan: an attribute is split on one set, and not on another"
            raise PlanError(msg)
        return LargeBlock(places, {a: own[a] for a in places}, noises, tuple(small))

    def unsplit_strategies(self, attribute: int) -> list[UnsplitStrategy]:
        """Return the strategies on a large attribute, one for each block about it; none on another."""
        blocks = (block for layer in self.layers.values() for block in layer)
        return [block.strategies[attribute] for block in blocks if attribute in block.strategies]

    def weights(self, kept: Places) -> list[float]:
        """Return the weight of each block's total: zero if the total is public."""
        blocks = self.layers[kept]
        if not kept and self.public_total:
            return [0.0] * len(blocks)
        if len(blocks) == 1:
            return [1.0]
        every = math.fsum(block.precision for block in blocks)
        return [block.precision / every for block in blocks]

    def home(self, kept: Places, asked: Places) -> int | None:
        """Return the block on a set that answers queries about some large attributes, or `NOWHERE`.

        None if no large attribute is asked about: all blocks together answer that.
        """
        if not asked and kept in self.layers:
            return None
        for number, block in enumerate(self.layers.get(kept, ())):
            if set(asked) <= set(block.places):
                return number
        return NOWHERE

    def check(self, group: Group) -> None:
        """Refuse a group of which some attribute sets are not measured."""
        for _ in self._layers_of(Asked.of(self.schema, group, self.large), group, summed=False):
            break

    def _layers_of(
        self, asked: Asked, group: Group, *, summed: bool
    ) -> Iterator[tuple[Places, int | None, list[Share]]]:
        """Iterate over the sets of other attributes on which a group leaves something."""
        found, missing = [], []
        for kept, own in self.all_shares(asked.small, summed):
            if not kept and not asked.places and self.public_total:
                continue
            place = self.home(kept, asked.places)
            if place == NOWHERE:
                missing.append(tuple(sorted((*kept, *asked.places))))
            else:
                found.append((kept, place, own))
        self.refuse_unless_measured(group, missing)
        yield from found

    def variances(self, group: Group) -> Array:
        asked = Asked.of(self.schema, group, self.large)
        shape = (*asked.small.shape, *(family.rows for _, family in asked.large))
        if math.prod(shape) > limits().variances // 4:
            msg = (
                f"workload: {math.prod(shape):,} variances on ({', '.join(group.attributes)}) do not fit in "
                "memory; ask for fewer at a time"
            )
            raise TooLargeError(msg)
        result = np.zeros(shape)
        families = dict(asked.large)
        for kept, place, own in self._layers_of(asked, group, summed=False):
            blocks, weights = self.layers[kept], self.weights(kept)
            if place is None:
                for block, weight in zip(blocks, weights, strict=True):
                    factor = np.asarray(weight**2 * block.total_variance)
                    self._add(result, block, own, asked.small, factor)
                continue
            home, weight = blocks[place], weights[place]
            factor = home.variances(families)
            if weight != 1:
                covariances = home.covariances(families)
                factor = factor - (1 - weight**2) / home.total_variance * covariances**2
                share = (covariances / home.total_variance) ** 2
                for other, (block, its) in enumerate(zip(blocks, weights, strict=True)):
                    if other != place and its:
                        self._add(result, block, own, asked.small, its**2 * block.total_variance * share)
            self._add(result, home, own, asked.small, factor)
        if self.public_total:  # it has no variance, except for rounding errors
            result[result < NOTHING * result.max()] = 0.0
        return np.maximum(self._in_order(result, group, asked), 0.0)

    def _add(self, result: Array, block: LargeBlock, own: list[Share], small: Group, factor: Array) -> None:
        """Add the variances of parts on a set, times those of the large attributes."""
        for noise in block.small:
            variances = self.variances_on(noise, own, small, strict=True)
            spread = variances.reshape((*variances.shape, *[1] * factor.ndim))
            result += spread * factor

    def _in_order(self, result: Array, group: Group, asked: Asked) -> Array:
        """Return axes in the order of the group's families."""
        return np.asarray(result.transpose(self._order(group, asked)))

    def _order(self, group: Group, asked: Asked) -> list[int]:
        """Return the axis of each of the group's families: those on large attributes come last."""
        first = iter(range(len(asked.small.families)))
        last = {place: len(asked.small.families) + i for i, place in enumerate(asked.places)}
        order = []
        for names, family in group.parts():
            place = self.schema.position(names[0])
            order.append(last[place] if len(family.shape) == 1 and place in last else next(first))
        return order

    def total(self, group: Group) -> float:
        asked = Asked.of(self.schema, group, self.large)
        families, total = dict(asked.large), 0.0
        for kept, place, own in self._layers_of(asked, group, summed=True):
            blocks, weights = self.layers[kept], self.weights(kept)
            factors = [
                weight**2 * block.total_variance for block, weight in zip(blocks, weights, strict=True)
            ]
            if place is not None:
                home = blocks[place]
                every, square = home.sums(families)
                square /= home.total_variance
                factors = [factor * square / home.total_variance for factor in factors]
                factors[place] = every - (1 - weights[place] ** 2) * square
            for block, factor in zip(blocks, factors, strict=True):
                for noise in block.small:
                    term = noise.variance * factor
                    for _, part in self.components(noise, own, asked.small):
                        term *= float(part.sum())
                    total += term
        return total

    def largest(self, group: Group) -> float:
        return float(self.variances(group).max())

    def images(
        self, group: Group, only: Collection[tuple[int, ...]] | None = None
    ) -> Iterator[tuple[Measured, Array]]:
        """Iterate over the measurements, with the coefficients of their noise in every query of the group."""
        asked = Asked.of(self.schema, group, self.large)
        families = dict(asked.large)
        for kept, place, own in self._layers_of(asked, group, summed=False):
            blocks, weights = self.layers[kept], self.weights(kept)
            for number, (block, weight) in enumerate(zip(blocks, weights, strict=True)):
                if only is not None and block.noises[0].attributes not in only:
                    continue
                count = math.prod(s.rank for s in block.strategies.values())
                if group.rows * count > limits().straddling_entries:
                    msg = (
                        f"queries on ({', '.join(group.attributes)}): covariances of {group.rows:,} queries "
                        f"over {count:,} values would take too much memory; ask for fewer at a time"
                    )
                    raise TooLargeError(msg)
                if number != place and not weight:
                    continue
                large = self._large_image(blocks, weights, place, number, families)
                for noise, whole in zip(block.small, block.noises, strict=True):
                    if only is not None and whole.attributes not in only:
                        continue
                    small = self._small_image(noise, own, asked.small)
                    image = np.multiply.outer(small, large)  # small queries, rows, large queries, rows
                    queries = len(asked.small.families)
                    image = np.moveaxis(image, queries, queries + len(asked.large))
                    lead = image.shape[: queries + len(asked.large)]
                    flat = image.reshape(*lead, -1)
                    order = self._order(group, asked)
                    yield whole, flat.transpose(*order, len(lead)).reshape(-1, flat.shape[-1])

    def _large_image(
        self,
        blocks: Sequence[LargeBlock],
        weights: Sequence[float],
        place: int | None,
        number: int,
        families: Mapping[int, Family],
    ) -> Array:
        """Return the coefficients of one block's noise, with an axis per asked attribute and one of rows."""
        block = blocks[number]
        ones = np.ones(1)
        for strategy in block.strategies.values():
            ones = np.multiply.outer(ones, strategy.transform(np.ones(strategy.shape))).ravel()
        if place is None:
            return np.asarray(weights[number] * ones)
        home = blocks[place]
        share = home.covariances(families) / home.total_variance
        if number != place:
            return np.asarray(weights[number] * np.multiply.outer(share, ones))
        image: Array = np.ones(1)
        for attribute, strategy in block.strategies.items():
            if attribute in families:
                rows = strategy.transform(families[attribute].matrix())
                image = np.einsum("...a,qb->...qab", image, rows).reshape(*image.shape[:-1], len(rows), -1)
            else:
                row = strategy.transform(np.ones(strategy.shape))
                image = np.multiply.outer(image, row).reshape(*image.shape[:-1], -1)
        return np.asarray(image - (1 - weights[number]) * np.multiply.outer(share, ones))

    def _small_image(self, noise: Measured, own: list[Share], small: Group) -> Array:
        """Return the coefficients on a set of other attributes, with an axis per family and one of rows."""
        axis_of = {attribute: axis for axis, attribute in enumerate(noise.attributes)}
        kept = [share for share in own if share.kept]
        factors = [(tuple(axis_of[a] for a in share.kept), share.rows) for share in kept]
        image = self._image(factors, noise.blocks, small) if factors else np.ones(1)
        image = image.reshape(*(len(s.rows) if s.kept else 1 for s in own), image.shape[-1])
        for share in own:
            if not share.kept:
                image = image * share.rows[:, 0].reshape([-1 if s is share else 1 for s in [*own, None]])
        return np.asarray(image)
