"""Groups of several partitions, each with a precision: the strategy of hierarchies that do not nest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from querysmasher.arrays import Array
from querysmasher.fields import floats, integers
from querysmasher.planning.cells import numbered_columns
from querysmasher.planning.lattice import Integers
from querysmasher.planning.lines.crossed import Eliminated, WeightedCrossing
from querysmasher.planning.strategies.nodes import NodesStrategy, TreeStrategy
from querysmasher.privacy.factors import Crossed
from querysmasher.privacy.factors.tree import OnCrossing
from querysmasher.privacy.pairs import MOST_CELLS, Products


@dataclass(frozen=True, eq=False)
class CrossedStrategy(OnCrossing, NodesStrategy):
    """The groups of several partitions."""

    kind = "crossed"
    factor = Crossed
    least = 1
    stored: ClassVar = {
        "classes": partial(integers, ndim=1),
        "groups": partial(integers, ndim=2),
        "precisions": partial(floats, ndim=1),
    }

    classes: Integers
    groups: Integers
    precisions: Array
    moved: Array | None = None

    @cached_property
    def node_variances(self) -> Array:
        merged, node_of = WeightedCrossing.merged(self.nodes, self.precisions)
        return Eliminated(merged.nodes, merged.counts, merged.weights).variances[node_of]

    @cached_property
    def _solved(self) -> Eliminated:
        return Eliminated(self.nodes, np.ones(len(self.nodes)), self.precisions)

    def covary_whole(self, rows: Array) -> Array:
        of_leaves = self.means(rows).reshape(-1, self.nodes.leaves.size).T
        return self.spread(self._solved.covary(of_leaves).T).reshape(rows.shape)

    def orthonormal(self) -> TreeStrategy:
        return TreeStrategy(self.classes, np.full(self.rank + 1, -1), 1 / self.partition.sizes)

    def _as_nodes(self, of_leaves: Integers, size: int) -> Integers:
        """Compare with the groups of every partition, and with the leaves."""
        nodes, as_nodes = self.nodes, np.full(size, -1)
        counts = np.bincount(of_leaves, minlength=size)
        for path in (*nodes.paths, nodes.leaves):
            within = np.unique(np.stack([of_leaves, path]), axis=1)
            alone = np.bincount(within[0], minlength=size) == 1
            same = alone[within[0]] & (np.bincount(path)[within[1]] == counts[within[0]])
            as_nodes[within[0][same]] = within[1][same]
        return as_nodes

    # --- fewer values ---

    def parts(self, groups: Integers) -> Integers:
        """Return the number of every value's part: leaves in the same groups of everything."""
        of_leaves = self._of_leaves(groups)
        if of_leaves is None:
            return np.arange(self.shape[0])
        return numbered_columns(np.vstack([self.groups, of_leaves]))[0][self.classes]

    def pruned(self, parts: Integers) -> CrossedStrategy:
        """Return the strategy over parts of the values, each a leaf: the sum of its leaves, each measured."""
        of_leaves = self._of_leaves(parts)
        assert of_leaves is not None  # noqa: S101 - each part consists of leaves
        numbers, first = np.unique(of_leaves, return_index=True)
        leaves = self.nodes.leaves
        sums = 1 / np.bincount(of_leaves, 1 / self.precisions[leaves])
        moved = None if self.moved is None else np.bincount(parts, weights=self.moved).astype(float)
        precisions = np.append(self.precisions[: leaves[0]], sums)
        return CrossedStrategy(numbers, np.ascontiguousarray(self.groups[:, first]), precisions, moved)

    def _column_products(self) -> Products:
        if self.classes.size <= MOST_CELLS:
            return super()._column_products()
        common = float(self.precisions[self.nodes.whole].sum())
        least = (common - 1 / self.total_variance) / self.leverage
        return Products(None, None, least, 2 * (float(self.squares.max()) - common) / self.leverage)

    def _is_sound(self) -> bool:
        uneven = 1e12 * self.precisions.min() < self.precisions.max()  # rounding errors would decide
        return super()._is_sound() and not uneven
