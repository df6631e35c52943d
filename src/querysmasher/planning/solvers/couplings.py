"""Lower bounds where a record is replaced, for mixtures of products: pairs of values drawn jointly.

For any distribution of pairs of cells (u, v), no plan that splits queries around given centres has a root
loss below the sum over attribute sets of tr M^½, M = R E[(e_u - e_v)(e_u - e_v)ᵀ] Rᵀ, with rows R of what is
asked of the set (`design.Differences`). Let pairs be drawn by a mixture of products: with probability q_m,
the values of every attribute i are a pair drawn with the symmetric weights μ_mi, independently of other
attributes. Some attributes agree: their μ is diagonal. With D the marginals of μ, on the diagonal,

    M = 2 Σ_m q_m (⊗A_m - ⊗B_m),  A = RDRᵀ,  B = RμRᵀ on every block of the set.

If the blocks' ranks multiply to a few hundred (those where A and B are multiples of one another aside), M is
decomposed. Otherwise it is a sum of products that are positive semidefinite, as A ± B are,

    ⊗A - ⊗B = 2^{1-k} Σ ⊗(A - B or A + B), over all choices with an odd number of A - B,

and the bound for sums of products in common bases holds (`bounds`).

In these bases M is nearly diagonal, and so V = RᵀM^{-½}R is known. The mean of (e_u - e_v)ᵀV(e_u - e_v) over
the other attributes, for every pair of values of one attribute, is the derivative by μ: all μ and q are
multiplied by a power of it, as in `design`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce

import numpy as np

from querysmasher.arrays import ROUNDING, Array, one_core
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.optimum import block_root
from querysmasher.planning.split import Block, Subworkload, separate

STEPS, POWER = 8, 3.0
"""Number of steps, and the power of the derivative by which each multiplies weights."""


def coupled_bound(sets: Sequence[Subworkload], agreed: Collection[int]) -> float:
    """Return a lower bound on the root loss of all plans of these sets at unit cost; zero if too much work.

    Pairs agree on the attributes in `agreed`.
    """
    most = limits()
    free = {a for s in sets for a in s.attributes}.difference(agreed)
    patterns = [frozenset(agreed), *(frozenset((*agreed, a)) for a in sorted(free) if len(free) > 1)]
    if any(len(c) > most.paired_cells for s in sets for p in s.terms[0].pieces for c in p.part.centres):
        return 0.0
    numbers: dict[Block, int] = {}
    factored = []
    for s in sets:
        scale, blocks = separate(s.terms)
        keys = [
            (tuple(s.attributes[a] for a in axes), numbers.setdefault(b, len(numbers))) for axes, b in blocks
        ]
        factored.append((keys, math.sqrt(scale)))
    if any(block.cells > most.dense_cells for block in numbers):
        return 0.0
    with one_core():
        roots = [block_root(block).reshape(-1, *block.shape) for block in numbers]
        work = sum(math.prod(len(roots[n]) for _, n in keys) for keys, _ in factored)
        if work * len(patterns) > most.coupled_work:
            return 0.0
        mixture = _Mixture.of(sets, patterns)
        for _ in range(STEPS):
            mixture = mixture.improved(_coupled(factored, roots, mixture))
        coupled = _coupled(factored, roots, mixture)
        return math.fsum(scale * _trace_root(blocks, mixture.q) for blocks, scale in coupled)


@dataclass(frozen=True, eq=False)
class _Mixture:
    """The probabilities q of products, and in each the weights μ of pairs of values of every attribute."""

    q: Array
    pairs: Mapping[int, Array]

    @classmethod
    def of(cls, sets: Sequence[Subworkload], patterns: Sequence[Collection[int]]) -> _Mixture:
        """Return one product for every set of attributes that agree; others are never equal."""
        pairs = {}
        for s in sets:
            for piece in s.terms[0].pieces:
                for axis, centre in zip(piece.axes, piece.part.centres, strict=True):
                    w = np.maximum(centre.weights, 1e-3 / len(centre))
                    differ = np.outer(w, w)
                    np.fill_diagonal(differ, 0.0)
                    each = [np.diag(w) if s.attributes[axis] in agree else differ for agree in patterns]
                    pairs[s.attributes[axis]] = np.array([weights / weights.sum() for weights in each])
        return cls(np.full(len(patterns), 1 / len(patterns)), pairs)

    def improved(self, sets: Sequence[tuple[Sequence[_Coupled], float]]) -> _Mixture:
        """Return the mixture after a step."""
        gains = np.zeros(len(self.q))
        slopes = {a: np.zeros_like(weights) for a, weights in self.pairs.items()}
        sums: dict[_Coupled, tuple[Array, Array]] = {}
        for blocks, scale in sets:
            ends, both = [block.a for block in blocks], [block.b for block in blocks]
            spectrum = 2 * (_mean(self.q, ends) - _mean(self.q, both))
            h = scale / np.sqrt(np.maximum(spectrum, ROUNDING * spectrum.max()))
            here = np.zeros(len(self.q))
            for place, block in enumerate(blocks):
                found = _on_axis(h, ends, place), _on_axis(h, both, place)
                here = 2 * ((found[0] * block.a).sum(axis=1) - (found[1] * block.b).sum(axis=1))
                before = sums.get(block, (np.zeros(()), np.zeros(())))
                sums[block] = before[0] + found[0], before[1] + found[1]
            gains += here
            for a in set(slopes).difference(*(block.attributes for block in blocks)):
                slopes[a] += here[:, None, None]
        for block, found in sums.items():
            for a, slope in block.slopes(*found, self):
                slopes[a] += slope
        q = self.q * (gains / (self.q @ gains)) ** POWER
        pairs = {
            a: weights * np.maximum(slopes[a] / gains[:, None, None], ROUNDING) ** POWER
            for a, weights in self.pairs.items()
        }
        return _Mixture(q / q.sum(), {a: w / w.sum(axis=(1, 2), keepdims=True) for a, w in pairs.items()})


class _Coupled:
    """A and B of a block, for every product of a mixture."""

    def __init__(self, attributes: tuple[int, ...], root: Array, mixture: _Mixture) -> None:
        """Find the basis in which they are nearly diagonal."""
        self.attributes, rows = attributes, root.reshape(len(root), -1)
        self.A = (rows * self._ends(attributes, mixture)[:, None, :]) @ rows.T
        both = self._mixed(np.broadcast_to(root, (len(mixture.q), *root.shape)), attributes, mixture)
        self.B = both.reshape(len(mixture.q), *rows.shape) @ rows.T
        self.basis = np.linalg.eigh(np.tensordot(mixture.q, self.A - 0.5 * self.B, 1))[1]
        self.image = (self.basis.T @ rows).reshape(root.shape)
        self.a, self.b = (np.einsum("ia,mia->ma", self.basis, X @ self.basis) for X in (self.A, self.B))

    @staticmethod
    def _ends(attributes: Sequence[int], mixture: _Mixture) -> Array:
        """Return the distribution of one cell of a pair, restricted to some attributes."""
        return _outer(np.ones(len(mixture.q)), (mixture.pairs[a].sum(axis=2) for a in attributes))

    @staticmethod
    def _mixed(tensor: Array, attributes: Sequence[int], mixture: _Mixture) -> Array:
        """Multiply the axes of attributes, from the third on, by their weights of pairs."""
        for axis, a in enumerate(attributes, 2):
            weights = mixture.pairs[a]
            moved = np.moveaxis(tensor, axis, -1)
            weights = weights.reshape(len(weights), *(1,) * (moved.ndim - 3), *weights.shape[1:])
            tensor = np.moveaxis(moved @ weights, -1, axis)
        return tensor

    def slopes(self, ends: Array, both: Array, mixture: _Mixture) -> Iterator[tuple[int, Array]]:
        """Iterate over attributes and the means of (e_u - e_v)ᵀV(e_u - e_v) for all pairs of their values."""
        for axis, a in enumerate(self.attributes):
            others = [other for other in self.attributes if other != a]
            image = np.moveaxis(self.image, 1 + axis, -1)
            count, size, products = len(image), mixture.pairs[a].shape[1], len(ends)
            square = image.reshape(count, -1, size) ** 2
            weights = zip(ends, self._ends(others, mixture), strict=True)
            alone = np.array([end @ np.tensordot(square, weight, (1, 0)) for end, weight in weights])
            mixed = self._mixed(np.broadcast_to(image, (products, *image.shape)), others, mixture)
            scaled = (both[:, :, None] * mixed.reshape(products, count, -1)).reshape(products, -1, size)
            product = np.swapaxes(scaled, 1, 2) @ image.reshape(-1, size)
            yield a, alone[:, :, None] + alone[:, None, :] - product - np.swapaxes(product, 1, 2)

    def is_scalar(self) -> bool:
        """Whether A and B are multiples of the identity."""
        eye = np.eye(len(self.basis))
        return all(
            bool(
                np.abs(X - np.trace(X, axis1=1, axis2=2)[:, None, None] / len(eye) * eye).max()
                <= ROUNDING * self.a.max()
            )
            for X in (self.A, self.B)
        )

    @cached_property
    def roots(self) -> tuple[Array, Array]:
        """The diagonals of (A + B)^½ and (A - B)^½ in the basis."""
        found = []
        for X in (self.A + self.B, self.A - self.B):
            values, vectors = np.linalg.eigh(X)
            found.append((self.basis.T @ vectors) ** 2 @ np.sqrt(np.maximum(values, 0.0))[:, :, None])
        return found[0][:, :, 0], found[1][:, :, 0]


def _coupled(
    factored: Sequence[tuple[Sequence[tuple[tuple[int, ...], int]], float]],
    roots: Sequence[Array],
    mixture: _Mixture,
) -> list[tuple[list[_Coupled], float]]:
    """Return the blocks of all sets, given by their attributes and the numbers of their roots, and scales."""
    made = cache(lambda attributes, number: _Coupled(attributes, roots[number], mixture))
    return [([made(*key) for key in keys], scale) for keys, scale in factored]


def _outer(q: Array, vectors: Iterable[Array]) -> Array:
    """Return q times the outer products of vectors, written in rows, for every product of a mixture."""
    return reduce(lambda x, y: (x[:, :, None] * y[:, None, :]).reshape(len(q), -1), vectors, q[:, None])


def _mean(q: Array, vectors: Sequence[Array]) -> Array:
    """Return the mean outer product of vectors over a mixture."""
    *others, last = vectors
    return (_outer(q, others).T @ last).reshape([v.shape[1] for v in vectors])


def _on_axis(tensor: Array, vectors: Sequence[Array], place: int) -> Array:
    """Return the sums of a tensor times vectors on all axes but one, for every product of a mixture."""
    others = _outer(np.ones(len(vectors[0])), (v for axis, v in enumerate(vectors) if axis != place))
    return np.asarray(others @ np.moveaxis(tensor, place, -1).reshape(-1, tensor.shape[place]))


def _trace_root(blocks: Sequence[_Coupled], q: Array) -> float:
    """Return a lower bound on tr M^½."""
    scalar = [block for block in blocks if block.is_scalar()]
    others = [block for block in blocks if block not in scalar]
    copies = math.prod(len(block.basis) for block in scalar)
    ends, both = (
        2 * q * math.prod(x[:, 0] for x in each) for each in ([b.a for b in scalar], [b.b for b in scalar])
    )
    if not others:
        return copies * math.sqrt(max(float((ends - both).sum()), 0.0))
    if math.prod(len(block.basis) for block in others) <= limits().line_matrix:
        M = np.zeros(())
        for m in range(len(q)):
            M = (
                M
                + ends[m] * reduce(np.kron, (b.A[m] for b in others))
                - both[m] * reduce(np.kron, (b.B[m] for b in others))
            )
        values = np.linalg.eigvalsh(M)
        return copies * float(np.sqrt(values[values > ROUNDING * values[-1]]).sum())
    pairs = [block.roots for block in blocks]
    total = np.zeros(())
    for choice in itertools.product((0, 1), repeat=len(blocks)):
        if sum(choice) % 2:
            squares = [pair[which] ** 2 for pair, which in zip(pairs, choice, strict=True)]
            total = total + _mean(q, squares)
    return float(np.sqrt(2.0 ** (2 - len(blocks)) * total).sum())
