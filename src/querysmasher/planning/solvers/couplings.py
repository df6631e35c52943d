"""Lower bounds where a record is replaced: pairs of values of every attribute are drawn jointly.

For any distribution of pairs of cells (u, v), no plan that splits queries around given centres has a root
loss below the sum over attribute sets of tr M^½, M = R E[(e_u - e_v)(e_u - e_v)ᵀ] Rᵀ, with rows R of what is
asked of the set (`design.Differences`). Let the values of every attribute be a pair that is drawn with
symmetric weights μ, independently of other attributes; if all pairs agree on it, μ is diagonal, and if on
groups of its values, μ is zero outside them. With D the marginals of μ, on the diagonal,

    M = 2(⊗A - ⊗B),  A = RDRᵀ,  B = RμRᵀ on every block of the set.

If the blocks' ranks multiply to a few dozen (those where A and B are multiples of the identity aside), M is
decomposed. Otherwise it is a sum of products that are positive semidefinite, as A ± B are,

    ⊗A - ⊗B = 2^{1-k} Σ ⊗(A - B or A + B), over all choices with an odd number of A - B,

and the bound for sums of products in common bases holds (`bounds`). It is a sum of lengths of vectors, which
is at least the length of their sum: neighbours in the basis are nearly parallel, and are added up first.

In these bases M is nearly diagonal, and so V = RᵀM^{-½}R is known. The mean of (e_u - e_v)ᵀV(e_u - e_v) over
the other attributes, for every pair of values of one attribute, is the derivative by μ: each μ is multiplied
by a power of it, as in `design`. Attributes of which the same is asked share one μ. (Mixtures of such draws,
in which some attributes agree, take several times as long. On most tables they come closer by less than 0.1%,
and by 1% where attributes have two values, or are tied.)
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial, reduce

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import ROUNDING, Array, along_axes, kronecker, one_core
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.optimum import block_root
from querysmasher.planning.split import Block, Subworkload, separate

STEPS, POWER = 4, 8.0
"""Number of steps, and the power of the derivative by which each multiplies weights.

It is at most 1.5 above the number of attributes: the steps of few attributes would overshoot.
"""

FEW_STEPS = 40
"""The number of steps where one or two kinds of sets take hardly any time."""

DECOMPOSED = 60
"""Maximum number of rows of a set whose M is decomposed."""

AttributeSet = tuple[int, ...]

Groups = Mapping[int, NDArray[np.int64]]
"""The group of every value, of attributes on whose groups pairs agree: every value its own if on values."""

Pairs = Mapping[int, Array]
"""For every attribute, the weights μ of pairs of its values."""

Kind = tuple[tuple[AttributeSet, int], ...]
"""The attributes and the number of every block of a set; of attributes that are drawn alike, the first."""


def coupled_bound(sets: Sequence[Subworkload], groups: Groups) -> float:
    """Return a lower bound on the root loss of all plans of these sets at unit cost; zero if too much work.

    Both values of a pair are in the same one of `groups`, if an attribute has these. Attributes of which the
    same is asked are drawn alike. The heaviest kinds of sets decide how.
    """
    most = limits()
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
    alike = _alike([keys for keys, _ in factored], groups)
    kinds = defaultdict[Kind, float](float)
    for keys, scale in factored:
        kinds[tuple(sorted((tuple(alike[a] for a in on), n) for on, n in keys))] += scale
    with one_core():
        roots = [block_root(block).reshape(-1, *block.shape) for block in numbers]
        work = sum(roots[n].size * len(roots[n]) for _, n in {key for kind in kinds for key in kind})
        if work > most.coupled_work:
            return 0.0

        def coupled(pairs: Pairs, some: Mapping[Kind, float]) -> Iterator[tuple[list[_Coupled], float]]:
            made = cache(lambda attributes, number: _Coupled(attributes, roots[number], pairs))
            return (([made(*key) for key in kind], scale) for kind, scale in some.items())

        def weight(kind: Kind) -> float:
            rows = [roots[n] for _, n in kind]
            return kinds[kind] * math.prod(math.sqrt(len(R)) * float(np.linalg.norm(R)) for R in rows)

        heavy = {kind: kinds[kind] for kind in sorted(kinds, key=weight, reverse=True)[: most.coupled_sets]}
        pairs: Pairs = {a: w for a, w in _first_pairs(sets, groups).items() if alike[a] == a}
        for _ in range(STEPS if len(heavy) > 2 else FEW_STEPS):
            pairs = _improved(pairs, list(coupled(pairs, heavy)), Counter(alike.values()))
        return math.fsum(scale * _trace_root(blocks) for blocks, scale in coupled(pairs, kinds))


def _alike(sets: Sequence[Sequence[tuple[AttributeSet, int]]], groups: Groups) -> dict[int, int]:
    """Return for every attribute the first one of which the same is asked, up to weights."""
    asked = defaultdict[int, Counter[object]](Counter)
    for keys in sets:
        others = tuple(sorted(number for _, number in keys))
        for on, number in keys:
            for a in on:
                asked[a][number, others] += 1
    first: dict[object, int] = {}
    labels = {a: tuple(each.tolist()) for a, each in groups.items()}
    return {a: first.setdefault((labels.get(a), frozenset(asked[a].items())), a) for a in sorted(asked)}


def _first_pairs(sets: Sequence[Subworkload], groups: Groups) -> Pairs:
    """Return values that are independent within their group, but seldom equal."""
    centres = {
        s.attributes[axis]: centre
        for s in sets
        for piece in s.terms[0].pieces
        for axis, centre in zip(piece.axes, piece.part.centres, strict=True)
    }
    pairs = {}
    for a, centre in centres.items():
        w = np.maximum(centre.weights, 1e-3 / len(centre))
        labels = groups.get(a, np.zeros(len(w), dtype=np.intp))
        weights = np.outer(w, w / np.bincount(labels, w)[labels]) * (labels[:, None] == labels)
        weights.flat[:: len(w) + 1] /= np.bincount(labels)[labels]
        pairs[a] = weights / weights.sum()
    return pairs


def _improved(
    pairs: Pairs, sets: Sequence[tuple[Sequence[_Coupled], float]], members: Mapping[int, int]
) -> Pairs:
    """Return the weights of pairs after a step; so many attributes are drawn alike."""
    slopes = {a: np.zeros_like(weights) for a, weights in pairs.items()}
    ends, both = (defaultdict[_Coupled, Array](partial(np.zeros, ())) for _ in range(2))
    for blocks, scale in sets:
        a, b, counts = zip(*(block.coarse for block in blocks), strict=True)
        spectrum = 2 * (_outer(a) - _outer(b))
        h = scale * _outer(counts) / np.sqrt(np.maximum(spectrum, ROUNDING * _outer(a).max()))
        for place, block in enumerate(blocks):
            ends[block] = ends[block] + _on_axis(h, a, place) / counts[place]
            both[block] = both[block] + _on_axis(h, b, place) / counts[place]
        inside = Counter(a for block in blocks for a in block.attributes)
        total = float((h * spectrum).sum())
        for other in slopes:
            slopes[other] += (members[other] - inside[other]) * total
    for block in ends:
        for attribute, slope in block.slopes(ends[block][block.bins], both[block][block.bins], pairs):
            slopes[attribute] += slope
    power = min(POWER, 1.5 + sum(members.values()))
    stepped = {
        a: weights * np.maximum(slopes[a] / slopes[a].max(), ROUNDING) ** power
        for a, weights in pairs.items()
    }
    return {a: weights / weights.sum() for a, weights in stepped.items()}


class _Coupled:
    """A and B of a block."""

    def __init__(self, attributes: AttributeSet, root: Array, pairs: Pairs) -> None:
        """Find the basis in which they are nearly diagonal."""
        self.attributes, rows = attributes, root.reshape(len(root), -1)
        self.A = (rows * _ends(attributes, pairs)) @ rows.T
        self.B = along_axes(root, 1, [pairs[a] for a in attributes]).reshape(rows.shape) @ rows.T
        self.basis = np.linalg.eigh(self.A - 0.5 * self.B)[1]
        self.image = (self.basis.T @ rows).reshape(root.shape)
        self.a, self.b = (np.einsum("ia,ia->a", self.basis, X @ self.basis) for X in (self.A, self.B))
        finer = (2 * np.log2(len(root) - np.arange(len(root)))).astype(int)
        self.bins = np.unique(finer, return_inverse=True)[1]
        counts = np.bincount(self.bins)
        self.coarse = *(np.bincount(self.bins, x) / counts for x in (self.a, self.b)), counts
        """The means of a and b over 1, 1, 1, 2, 3, 5, … of them, which guide the steps; and these numbers."""

    def slopes(self, ends: Array, both: Array, pairs: Pairs) -> Iterator[tuple[int, Array]]:
        """Iterate over attributes and the means of (e_u - e_v)ᵀV(e_u - e_v) for all pairs of their values."""
        for axis, a in enumerate(self.attributes):
            others = [*self.attributes[:axis], *self.attributes[axis + 1 :]]
            image = np.moveaxis(self.image, 1 + axis, -1)
            flat = image.reshape(len(image), -1, len(pairs[a]))
            alone = ends @ np.tensordot(flat**2, _ends(others, pairs), (1, 0))
            mixed = along_axes(image, 1, [pairs[other] for other in others]).reshape(flat.shape)
            product = np.tensordot(both[:, None, None] * mixed, flat, ((0, 1), (0, 1)))
            yield a, alone[:, None] + alone - product - product.T

    @cached_property
    def is_scalar(self) -> bool:
        """Whether A and B are multiples of the identity."""
        eye = np.eye(len(self.basis))
        apart = (np.abs(X - np.trace(X) / len(eye) * eye).max() for X in (self.A, self.B))
        return bool(max(apart) <= ROUNDING * self.a.max())

    @cached_property
    def roots(self) -> tuple[Array, Array]:
        """The diagonals of (A + B)^½ and (A - B)^½ in the basis, added up over the bins."""
        decomposed = (np.linalg.eigh(X) for X in (self.A + self.B, self.A - self.B))
        plus, minus = ((self.basis.T @ U) ** 2 @ np.sqrt(np.maximum(s, 0.0)) for s, U in decomposed)
        return np.bincount(self.bins, plus).astype(float), np.bincount(self.bins, minus).astype(float)


def _outer(vectors: Iterable[Array]) -> Array:
    product: Callable[[Array, Array], Array] = np.multiply.outer
    return reduce(product, vectors, np.ones(()))


def _ends(attributes: Iterable[int], pairs: Pairs) -> Array:
    """Return the distribution of one cell of a pair, restricted to some attributes."""
    return _outer(pairs[a].sum(axis=1) for a in attributes).ravel()


def _on_axis(tensor: Array, vectors: Sequence[Array], place: int) -> Array:
    """Return the sums of a tensor times vectors on all axes but one."""
    for v in reversed(vectors[place + 1 :]):
        tensor = tensor @ v
    for v in vectors[:place]:
        tensor = v @ tensor.reshape(len(v), -1)
    return tensor.ravel()


def _trace_root(blocks: Sequence[_Coupled]) -> float:
    """Return a lower bound on tr M^½."""
    scalar = [block for block in blocks if block.is_scalar]
    others = [block for block in blocks if block not in scalar]
    copies = math.prod(len(block.basis) for block in scalar)
    ends, both = (
        2 * math.prod(x[0] for x in each) for each in ([b.a for b in scalar], [b.b for b in scalar])
    )
    if math.prod(len(block.basis) for block in others) <= DECOMPOSED:
        A, B = (np.atleast_2d(kronecker(each)) for each in ([b.A for b in others], [b.B for b in others]))
        values = np.linalg.eigvalsh(ends * A - both * B)
        return copies * float(np.sqrt(values[values > ROUNDING * values[-1]]).sum())
    pairs = [block.roots for block in blocks]
    choices = itertools.product((0, 1), repeat=len(blocks))
    total = sum(
        _outer(pair[which] ** 2 for pair, which in zip(pairs, choice, strict=True))
        for choice in choices
        if sum(choice) % 2
    )
    return float(np.sqrt(2.0 ** (2 - len(blocks)) * total).sum())
