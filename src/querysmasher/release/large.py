"""Marginals from measurements in which attributes of very many values are not split.

Every block of large attributes also measures the total on its set of other attributes. All of these are
combined into one total, and each block is corrected to it (`planning.large.predictor`), so that marginals
agree wherever they overlap.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.large.block import Places
from querysmasher.planning.large.predictor import NOWHERE, LargePredictor
from querysmasher.planning.lifting import centred, lifted, subsets
from querysmasher.release.reconstruction import Reconstruction


class LargeReconstruction(Reconstruction):
    """Reconstructs marginals where some attributes are not split."""

    predictor: LargePredictor

    def marginal(self, attributes: tuple[int, ...], *, complete: bool = True) -> Array:
        """Return the marginal on attributes in any order."""
        if complete:
            self._check_complete(attributes)
        large = tuple(a for a in sorted(attributes) if a in self.predictor.large)
        small = tuple(a for a in sorted(attributes) if a not in large)
        sizes = tuple(self.plan.schema.sizes[a] for a in large)
        table = lifted(lambda kept: self._table(kept, large), small, self.centres, sizes)
        order = [*large, *small]
        return table.transpose([order.index(a) for a in attributes])

    def _table(self, kept: Places, asked: Places) -> Array | None:
        """Return the residual on a set of other attributes, with the asked large attributes as first axes."""
        if not kept and not asked and self.public_total is not None:
            return np.array(float(self.public_total))
        home = self.predictor.home(kept, asked)
        if home == NOWHERE:
            return None
        blocks, weights = self.predictor.layers[kept], self.predictor.weights(kept)
        if home is None:
            return sum(
                (
                    weight * self._block(kept, block.places, ())
                    for block, weight in zip(blocks, weights, strict=True)
                ),
                start=np.zeros(()),
            )
        block = blocks[home]
        table = self._block(kept, block.places, asked)
        if weights[home] != 1:
            total = self._table(kept, ())
            change = np.asarray(total) - self._block(kept, block.places, ())
            centre = np.ones(())
            for attribute in asked:
                strategy = block.strategies[attribute]
                centre = np.multiply.outer(centre, strategy.inverse_ones / strategy.total_variance)
            table = table + np.multiply.outer(centre, change)
        return table

    def _block(self, kept: Places, places: Places, asked: Places) -> Array:
        """Return what one block measured, with asked large attributes first, summed over the others."""
        attributes = tuple(sorted((*kept, *places)))
        own = np.asarray(self.residual(attributes)).sum(
            axis=tuple(axis for axis, a in enumerate(attributes) if a in places and a not in asked)
        )
        left = [a for a in attributes if a in kept or a in asked]
        return own.transpose([left.index(a) for a in (*asked, *kept)])

    def _centred(self, residual: Array, attributes: tuple[int, ...]) -> Array:
        for axis, attribute in enumerate(attributes):
            if attribute not in self.predictor.large and not self.centres[attribute].is_uniform:
                moved = np.moveaxis(residual, axis, 0)
                flat = centred(moved.reshape(len(moved), -1), [self.centres[attribute]])
                residual = np.moveaxis(flat.reshape(moved.shape), 0, axis)
        return residual

    def _check_complete(self, attributes: tuple[int, ...]) -> None:
        """Refuse a marginal of which some cells cannot be estimated."""
        asked = tuple(a for a in sorted(attributes) if a in self.predictor.large)
        missing = []
        for kept in subsets([a for a in sorted(attributes) if a not in asked]):
            if not kept and not asked and self.public_total is not None:
                continue
            if self.predictor.home(kept, asked) == NOWHERE or not self._is_full(kept, asked):
                missing.append(tuple(sorted((*kept, *asked))))
        self._refuse_unless_measured(missing)

    def _is_full(self, kept: Places, asked: Places) -> bool:
        """Return whether all values of large attributes, and the residual space of others, are measured."""
        known = (
            s for block in self.predictor.layers[kept] for a, s in block.strategies.items() if a in asked
        )
        if any(strategy.rank < strategy.shape[0] for strategy in known):
            return False
        noise = self.predictor.layers[kept][0].small[0]
        ranks = [self.predictor.strategies[number].rank for _, number in noise.blocks]
        return int(np.prod(ranks, dtype=float)) == int(
            np.prod([self.plan.schema.sizes[a] - 1 for a in kept], dtype=float)
        )
