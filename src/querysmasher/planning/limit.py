"""A lower bound on the error of every matrix mechanism, whatever it measures.

For any distribution p on the full domain, the loss of every matrix mechanism of privacy cost β on a
workload with Gram G is at least (tr X^½)² / β, X = P^½ G P^½, with P = diag(p). Let p be a product of
distributions p_a of the attributes, and U_a an orthogonal matrix whose first column is √p_a. In the basis
⊗U_a, a query that ignores a has the first coordinate only. So X is a matrix over as many coordinates as
numbers are measured, not over as many as the domain has cells: a sum over groups of Kronecker products of
U_aᵀ P_a^½ G_a P_a^½ U_a.

A change δ of p_a multiplies X from both sides by U_aᵀ diag(δ/2p_a) U_a, besides turning the basis, so that

    d tr X^½ = ½ v_a · δ,  v_a(j) = (U_a T_a U_aᵀ)_jj / p_a(j),

with T_a the trace of X^½ over all other attributes. As in `solvers.design`, p_a ← p_a · v_a² / Σ finds the
best distributions.

Where that matrix would be too large, the Gram over the cells of all attributes is a sum of Kronecker
products, one per group whose families each ask about one attribute, and of a few rows. Its trace root at
weights that are a product over the attributes is bounded by matrices over one attribute
(`solvers.bounds`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes, one_core
from querysmasher.planning.estimator.estimator import subsets
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.bounds import product_sum, trace_root_bound
from querysmasher.planning.solvers.design import Iterate, fixed_point
from querysmasher.planning.solvers.optimum import axis_weights
from querysmasher.planning.split import Block, Part, Piece, Term, query_tensor, schema_order
from querysmasher.workload.workload import Workload


@dataclass(frozen=True)
class Limit:
    """A lower bound on the weighted RMSE of every matrix mechanism, and how far a plan is above it.

    `rmse` and `excess` are None if the limit was not computed; `reason` then says why.
    """

    rmse: float | None
    excess: float | None
    reason: str = ""

    def __str__(self) -> str:
        """Return the limit in words."""
        if self.rmse is None or self.excess is None:
            return f"limit not computed: {self.reason}"
        return (
            f"no matrix mechanism has a weighted RMSE below {self.rmse:.4g}: the plan is at most "
            f"{max(self.excess, 0.0):.2%} above the best possible"
        )


def dimension(workload: Workload) -> int:
    """Return the number of coordinates of the limit's matrix."""
    sizes = workload.schema.sizes
    return sum(math.prod(sizes[a] - 1 for a in s) for s in _reached(workload))


def _reached(workload: Workload) -> list[tuple[int, ...]]:
    """Return the attribute sets on which the workload may leave something, smaller ones first."""
    sets = {s for group in workload for s in subsets(sorted(workload.schema.positions(group.attributes)))}
    return sorted(sets, key=lambda s: (len(s), s))


def root_loss_bound(workload: Workload) -> float:
    """Return a lower bound on √(loss) at privacy cost 1, at the best product distribution found."""
    sizes, trace_root = workload.schema.sizes, TraceRoot(workload)

    def at(weights: Array) -> Iterate:
        distributions = [part / part.sum() for part in np.split(weights, np.cumsum(sizes)[:-1])]
        bound, slopes = trace_root.at(distributions)
        return Iterate(np.concatenate(distributions) / len(sizes), np.concatenate(slopes), bound)

    start = np.concatenate([np.full(n, 1 / n) for n in sizes])
    return fixed_point(at, start, 1e-4, 60).trace_root


class TraceRoot:
    """tr (P^½ G P^½)^½ of a workload for distributions that are products over the attributes."""

    def __init__(self, workload: Workload) -> None:
        """Number the coordinates of all reached sets."""
        self.sizes = workload.schema.sizes
        self.numbers: dict[tuple[int, ...], NDArray[np.intp]] = {}
        self.dimension = 0
        for attributes in _reached(workload):
            shape = [self.sizes[a] - 1 for a in attributes]
            count = math.prod(shape)
            self.numbers[attributes] = np.arange(self.dimension, self.dimension + count).reshape(shape)
            self.dimension += count
        self.groups = []
        for group in workload:
            parts = [(workload.schema.positions(names), family) for names, family in group.parts()]
            order = [a for axes, _ in parts for a in axes]
            where = np.empty([self.sizes[a] for a in sorted(order)], dtype=np.intp)
            for s in subsets(sorted(order)):
                where[tuple(slice(1, None) if a in s else 0 for a in sorted(order))] = self.numbers[s]
            where = where.transpose([sorted(order).index(a) for a in order])
            self.groups.append((group.weight, parts, where.ravel()))
        self.grams = {family.key: family.gram() for _, parts, _ in self.groups for _, family in parts}

    def at(self, distributions: Sequence[Array]) -> tuple[float, list[Array]]:
        """Return the trace root, and v of every attribute: twice its derivative by the distribution."""
        roots = [np.sqrt(p) for p in distributions]
        bases = [np.linalg.qr(r[:, None], mode="complete")[0] for r in roots]
        bases = [basis * np.sign(basis[0, 0]) for basis in bases]
        X = np.zeros((self.dimension, self.dimension))
        for weight, parts, where in self.groups:
            gram: Array = np.full((1, 1), weight)
            for axes, family in parts:
                maps = [roots[a][:, None] * bases[a] for a in axes] * 2
                tensor = self.grams[family.key].reshape([len(m) for m in maps])
                turned = along_axes(tensor, 0, maps).reshape(family.cells, -1)
                gram = np.asarray(np.kron(gram, turned), dtype=float)
            X[np.ix_(where, where)] += gram
        values, vectors = np.linalg.eigh(X)
        half = vectors * np.maximum(values, 0.0) ** 0.25
        root = half @ half.T
        bound = float(np.trace(root))
        return bound, [
            np.einsum("ij,ij->i", basis @ self._traced(root, a), basis) / p
            for a, (basis, p) in enumerate(zip(bases, distributions, strict=True))
        ]

    def _traced(self, root: Array, attribute: int) -> Array:
        """Return the trace of a matrix over all attributes but one."""
        total = np.zeros((self.sizes[attribute],) * 2)
        for attributes, numbers in self.numbers.items():
            if attribute in attributes:
                axis = attributes.index(attribute)
                without = self.numbers[attributes[:axis] + attributes[axis + 1 :]]
                lines = np.concatenate([without[..., None], np.moveaxis(numbers, axis, -1)], axis=-1)
                lines = lines.reshape(-1, lines.shape[-1])
                total += root[lines[:, :, None], lines[:, None, :]].sum(axis=0)
        total[0, 0] += np.trace(root) - np.trace(total)  # sets that are reached without the attribute only
        return total


def product_bound(workload: Workload) -> float | None:
    """Return a lower bound on √(loss) at privacy cost 1, or None if the workload is too large for it."""
    schema = workload.schema
    attributes = sorted({a for group in workload for a in schema.positions(group.attributes)})
    shape = tuple(schema.sizes[a] for a in attributes)
    cells = math.prod(shape)
    if not attributes or cells > limits().product_cells or max(shape) > limits().dense_values:
        return None
    parts: dict[Hashable, Part] = {n: Part((n,), (), np.ones((1, n)), thin=True) for n in shape}
    sums: defaultdict[tuple[Piece, ...], float] = defaultdict(float)
    for group in workload:
        pieces = []
        for names, family in group.parts():
            positions = schema.positions(names)
            key = (family.key, schema_order(positions))
            if key not in parts:
                tied = len(positions) > 1
                content = query_tensor(family, key[1]).reshape(-1, family.cells) if tied else family.gram()
                sizes = tuple(schema.sizes[a] for a in sorted(positions))
                parts[key] = Part(sizes, (), content, thin=tied)
            pieces.append(Piece(tuple(attributes.index(a) for a in sorted(positions)), parts[key]))
        absent = set(range(len(shape))).difference(a for piece in pieces for a in piece.axes)
        pieces += [Piece((axis,), parts[shape[axis]]) for axis in sorted(absent)]
        sums[tuple(pieces)] += group.weight
    if cells * len(sums) ** 2 > limits().product_work:
        return None
    with one_core():
        block = Block(shape, tuple(Term(weight, pieces) for pieces, weight in sums.items()))
        return trace_root_bound(*product_sum(block), axis_weights(block))
