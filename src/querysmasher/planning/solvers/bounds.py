"""Lower bounds on the loss of every strategy for rows, blocks, lines, trees and whole workloads.

All are of one quantity. For queries with weighted rows W and any weights p ≥ 0 of the cells, Σp = 1, no
strategy of unit cost has a root loss below the nuclear norm of W P^½, the sum of its singular values
(`design`). With the Gram matrix G = WᵀW it is tr M^½, M = P^½GP^½.

*One square root.* ‖WP^½‖_* ≥ tr UᵀWP^½ for every U of norm one at most. With the polar factor W = US that is
Σ_j s_j √p_j, s the diagonal of S = G^½, and p ∝ s² is best: ‖s‖.

*One integral.* tr M^½ = (2/π) ∫ tr M(M + t²)⁻¹ dt, t from 0 to ∞. In log t, the integrand of each eigenvalue
is a hyperbolic secant, for which the trapezium rule of step h errs by a factor of at most 1 ± ε, ε = 2 Σ_k
sech(kπ²/h) (Poisson's summation formula). All terms are positive, so leaving some out gives a bound.

A strategy's loss on a sum of Grams is the sum of its losses on each, so the optimum of a block is at least
the sum of the terms' own optima, and those are known or bounded. In addition:

*Exchangeable values.* Values of an axis are exchangeable if exchanging any two of them changes no term's Gram
matrix. The value of a design is concave in its weights p, so some best weights are equal on all cells that
exchanges turn into each other: one number for every combination of classes of values. With such weights
P^½GP^½ commutes with all exchanges, so an orthogonal basis makes it block diagonal. On every axis the basis
has one vector per class that is constant on it, and for each class of k values k − 1 others, which vanish
outside it and sum to zero. Vectors of the first sort stay together. Each of the others gives the same matrix,
which is decomposed once. So no matrix is larger than the number of kinds of cells, and the optimum is found:
steps p ← p·v² / Σ with the leverages v never lower the value. For the polar factor U of RP^½ and any weights
q it is at least tr(UᵀRQ^½) = Σ_j v_j √(p_j q_j), which is (Σpv²)^½ ≥ Σpv = tr M^½ at the next weights.

*Sums of Kronecker products.* For a Gram matrix G = Σ_k c_k ⊗_i G_ki + TᵀT and weights p = ⊗p_i, two bounds on
tr M^½, M = P^½GP^½, need only matrices over one axis.

With common bases: tr M^½ is the sum of the singular values of the stacked roots X_k of M's terms, hence at
least Σ tr(Y_kᵀX_k) for all Y_k with ΣY_kᵀY_k ≤ I. With the polar decompositions X_k = U_kS_k take
Y_k = U_k Q diag(θ_k) Qᵀ, where Q = ⊗Q_i is orthogonal and Σθ_k² = 1 at every column of Q. The best θ gives

    tr M^½ ≥ Σ_j (Σ_k s_kj²)^½,  s_k = diag(QᵀS_kQ),

which is exact if Q diagonalises all terms, and never below the root of the sum of the terms' squared traces.

With one product and few rows: in the product's eigenbasis M = D + UᵀU, D diagonal and U as many rows as T:

    tr M^½ = tr D^½ + (2/π) ∫ t² tr[EUᵀ(I + UEUᵀ)⁻¹UE] dt,  E = (D + t²)⁻¹,

the difference of the integrals for M and for D: its terms are positive too. Of several products one is
treated so, and the squared bound of the others is added: (tr (A + B)^½)² ≥ (tr A^½)² + (tr B^½)².

*Lines.* If queries are a filter in some basis (`lines.filters`), ‖s‖ takes a few transforms. Ranges of given
lengths at all positions, reflected where they pass an end, are a filter with the root F² (`lines.gram`), and
so are single values and the total. Let W have the rows that lie inside, and E those that pass an end. The
polar factor U of all, restricted to the rows of W, has norm one at most: tr UᵀWP^½ = Σ_j (F⁻²WᵀW)_jj √p_j,
and the best p gives Σ_j (F² − F⁻²EᵀE)_jj². Only E's first cells matter.

Otherwise the integral takes a recurrence. The inverse T of the Gram matrix G₀ of weighted prefixes is the
Laplacian of a path: conductance 1/ω_j between values j and j+1, and 1/ω_{n−1} from the last value to the
ground. Single values add a diagonal μ. With G = G₀ + μ, E = μ + t²P⁻¹ (diagonal) and R = (T + E⁻¹)⁻¹,

    tr M(M + t²)⁻¹ = Σ_j [μ_j/E_j + (t²/p_j) R_jj/E_j²].

T + E⁻¹ is tridiagonal: the diagonal of R follows from the pivots in both directions. All ranges, all circular
ranges, and a few other rows add QJQᵀ of low rank to G₀ (`lines.gram`), and t²P^{-½}YCYᵀP^{-½} to M(M + t²)⁻¹,
with Y = (G₀ + E)⁻¹Q = E⁻¹R(TQ) and C = (I + JQᵀY)⁻¹J. p ← p·v with v_j = (M^½)_jj/p_j increases the bound.

*Trees.* M(M + t²)⁻¹ has the trace of G(G + t²P⁻¹)⁻¹: the loss of the strategy that measures the nodes with
their weights as precisions, and leaves with t²/p more (`lines.trees`). p ∝ the slopes of the best strategy at
the leaves is nearly the best, and p_j ← p_j · ∂(tr M^½)/∂p_j raises it.

*Workloads.* Let p be a product of distributions p_a of the attributes, and U_a an orthogonal matrix whose
first column is √p_a. In the basis ⊗U_a, a query that ignores a has the first coordinate only. So M becomes a
matrix X over as many coordinates as numbers are measured, not over as many as the domain has cells: a sum
over groups of Kronecker products of U_aᵀ P_a^½ G_a P_a^½ U_a. A change δ of p_a multiplies X from both sides
by U_aᵀ diag(δ/2p_a) U_a, besides turning the basis, so that

    d tr X^½ = ½ v_a · δ,  v_a(j) = (U_a T_a U_aᵀ)_jj / p_a(j),

with T_a the trace of X^½ over all other attributes. As in `design`, p_a ← p_a · v_a² / Σ finds the best
distributions. Where X would be too large, the Gram over all cells is a sum of Kronecker products, one per
group whose families each ask about one attribute, and of a few rows.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import reduce
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, ROUNDING, Array, along_axes, one_core, square_root
from querysmasher.planning.estimator.estimator import subsets
from querysmasher.planning.lattice import RANK, Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.crossed import WeightedCrossing, overlapping
from querysmasher.planning.lines.gram import LineGram, is_implicit, length_spectrum
from querysmasher.planning.lines.trees import WeightedTree, nested
from querysmasher.planning.solvers.design import Design, Iterate, fixed_point
from querysmasher.planning.solvers.optimum import (
    axis_weights,
    block_root,
    is_circulant,
    is_thin,
    root_diagonal,
    solve_circulant,
    solve_dense,
    term_gram,
    terms_rows,
)
from querysmasher.planning.split import Block, Part, Piece, Term, query_tensor, schema_order
from querysmasher.privacy.factors import Reflection
from querysmasher.workload.family import Structure
from querysmasher.workload.workload import Workload

STEP = 0.6
"""h, the step of the trapezium rule: its relative error is at most 3e-7."""

SMALL = 1e-7
"""The trapezium rule ends at terms below this fraction of the sum."""

POINTS = 8
"""Maximum number of terms that are computed at a time."""

GAIN = 1e-4
"""An iteration ends when it gains less than this fraction."""


def least_root(root: Array) -> float:
    """Return a lower bound of the root loss at unit cost: zero if one square root gives none."""
    diagonal = root_diagonal(root)
    return 0.0 if diagonal is None else float(np.linalg.norm(diagonal))


# --- blocks ---

_known: WeakKeyDictionary[Part, float] = WeakKeyDictionary()
"""Bounds of parts that are still in use: a few parts recur in many blocks."""


def lower_bound(block: Block) -> float:
    """Return a lower bound on √L of the block."""
    several = len(block.terms) > 1
    optimum = exchangeable_bound(block) if several else None
    if optimum is not None:
        return optimum
    terms = ((term.coefficient, *(_part_bound(piece.part) for piece in term.pieces)) for term in block.terms)
    bound = math.sqrt(sum(map(math.prod, terms)))
    if several and block.cells <= limits().bounded_cells:
        bound = max(bound, _uniform_bound(block_root(block)))
    elif several:
        bound = max(bound, trace_root_bound(*product_sum(block), axis_weights(block)))
    return bound


def centre_value(block: Block) -> float:
    """Return a lower bound on tr M^½ at the weights w of the block's centres, less the length of Rw.

    Where centres have negative weights, w is their positive part. As t₁t₂ − m₁m₂ ≥ (t₁−m₁)(t₂−m₂) for t ≥ m,
    these values may be multiplied over the blocks of a set.
    """
    if is_circulant(block):
        return solve_circulant(block).bound
    weights = [np.maximum(centre.weights, 0.0) for centre in block.centres]
    weights = [w / w.sum() for w in weights]
    joint = reduce(np.multiply.outer, weights).ravel()
    if block.cells <= limits().dense_cells or is_thin(block):
        return weighed_value(block_root(block), joint)
    products, rows = product_sum(block)
    square = float(np.square(rows @ joint).sum())
    for c, grams in products:
        square += c * math.prod(float(w @ g @ w) for w, g in zip(weights, grams, strict=True))
    return max(0.0, trace_root_bound(products, rows, weights) - math.sqrt(max(square, 0.0)))


def weighed_value(root: Array, q: Array) -> float:
    """Return tr (R diag(q) Rᵀ)^½ − ‖Rq‖, or zero if that is negative.

    Let both cells of a pair be drawn independently with probabilities q. Then M = 2(R diag(q) Rᵀ − Rq qᵀRᵀ),
    and as tr (A + B)^½ ≤ tr A^½ + tr B^½, its trace root is at least √2 times this.
    """
    return max(0.0, _nuclear_norm(root * np.sqrt(q)) - float(np.linalg.norm(root @ q)))


def _part_bound(part: Part) -> float:
    """Return a lower bound on the loss of every strategy on one part."""
    if part not in _known:
        block = Block.of(part)
        if is_circulant(block):
            root = solve_circulant(block).bound
        elif len(part.shape) == 1:
            root = solve_dense(block, 1e-2).bound
        elif part.thin:
            root = _uniform_bound(part.content)
        else:
            root = math.sqrt(part.trace / block.cells)  # tr M^½ ≥ (tr M)^½
        _known[part] = root**2
    return _known[part]


def _uniform_bound(rows: Array) -> float:
    """Return tr M^½ for uniform weights: a valid and cheap lower bound on √L."""
    return _nuclear_norm(rows) / math.sqrt(rows.shape[1])


def _nuclear_norm(rows: Array) -> float:
    rows = rows if len(rows) <= rows.shape[1] else rows.T
    eigenvalues = np.linalg.eigvalsh(rows @ rows.T)
    sure = eigenvalues > ROUNDING * eigenvalues[-1]  # the root of a rounding error is not small
    return float(np.sqrt(eigenvalues[sure]).sum())


# --- exchangeable values ---


def exchangeable_bound(block: Block) -> float | None:
    """Return a lower bound on √L of a block, hardly below the optimum.

    Return None if the block has too many kinds of cells, or queries that tie axes together.
    """
    if any(len(piece.axes) > 1 for piece in block.pieces):
        return None
    labels: list[Integers] = []
    for axis in range(len(block.shape)):
        parts = {piece.part: None for piece in block.pieces if piece.axes == (axis,)}
        labels.append(_classes([part.gram for part in parts]))
        if math.prod(int(classes.max()) + 1 for classes in labels) > limits().bounded_cells:
            return None
    counts = reduce(np.multiply.outer, map(np.bincount, labels))
    cells = counts.ravel().astype(float)
    matrices = list(_diagonal_matrices(block, labels, np.arange(cells.size).reshape(counts.shape)))

    def at(weights: Array) -> Iterate:
        leverages, value = np.zeros(len(cells)), 0.0
        for root, kinds, copies in matrices:
            design = Design.at(root, (weights / cells)[kinds])
            leverages[kinds] += copies * design.leverages
            value += copies * design.trace_root
        return Iterate(weights, leverages / cells, value)

    design, before = at(cells / cells.sum()), 0.0
    while design.value > (1 + 1e-5) * before:
        before = design.value
        following = np.maximum(design.weights * design.leverages**2, np.finfo(float).tiny)
        design = at(following / following.sum())
    return max(before, design.value)


def _diagonal_matrices(
    block: Block, labels: Sequence[Integers], kinds: NDArray[np.intp]
) -> Iterator[tuple[Array, NDArray[np.intp], int]]:
    """Iterate over the matrices on the diagonal of the Gram matrix that are not zero.

    Each is given by rows with this Gram matrix, its kinds of cells, and how often it occurs.
    """
    matrices = []
    for spaces in itertools.product(*map(list, map(_spaces, labels))):
        maps = [basis.T for basis, *_ in spaces]
        gram = reduce(np.add, (term_gram(term, maps) for term in block.terms))
        on = kinds[tuple(classes for _, classes, _ in spaces)].ravel()
        matrices.append((gram, on, math.prod(copies for *_, copies in spaces)))
    largest = max(float(np.trace(gram)) for gram, *_ in matrices)
    for gram, on, copies in matrices:
        if np.trace(gram) > RANK * largest:
            yield square_root(gram, RANK), on, copies


def _spaces(labels: Integers) -> Iterator[tuple[Array, slice, int]]:
    """Iterate over spaces of vectors of an axis: a basis, the classes of its values, the number of copies.

    First come the vectors constant on every class. For each class, those within it are copies of one.
    """
    counts = np.bincount(labels)
    yield (labels == np.arange(len(counts))[:, None]) / np.sqrt(counts)[:, None], slice(None), 1
    for label, count in enumerate(counts.tolist()):
        if count > 1:
            vector = np.zeros((1, len(labels)))
            vector[0, np.flatnonzero(labels == label)[:2]] = math.sqrt(0.5), -math.sqrt(0.5)
            yield vector, slice(label, label + 1), count - 1


def _classes(grams: Sequence[Array]) -> Integers:
    """Return the class of every value: values of a class can be exchanged in all Gram matrices."""
    scaled = np.array([gram / np.abs(gram).max() for gram in grams])
    features = np.concatenate([np.diagonal(scaled, axis1=1, axis2=2), scaled.sum(axis=2)])
    labels = np.arange(scaled.shape[1])
    similar: defaultdict[bytes, list[int]] = defaultdict(list)
    for value, feature in enumerate(np.round(features.T, 7) + 0.0):
        firsts = similar[feature.tobytes()]
        labels[value] = next((first for first in firsts if _are_exchangeable(scaled, first, value)), value)
        if labels[value] == value:
            firsts.append(value)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _are_exchangeable(grams: Array, first: int, second: int) -> bool:
    """Return whether exchanging two values changes Gram matrices, of entries up to 1, by rounding only."""
    difference = np.abs(grams[:, first] - grams[:, second])
    change = np.abs(grams[:, first, first] - grams[:, second, second])
    difference[:, [first, second]] = change[:, None]
    return bool(difference.max() <= ROUNDING)


# --- sums of Kronecker products ---


Products = Sequence[tuple[float, Sequence[Array]]]
"""The coefficient of each product, and its Gram matrix on every axis."""


def product_sum(block: Block) -> tuple[Products, Array]:
    """Return the block as products over single axes and a few rows T over its cells.

    Queries that tie axes together are rows. Those that would take too much work are left out, which only
    lowers a bound.
    """
    products, rows = [], np.zeros((0, block.cells))
    for term in block.terms:
        tied = [piece.part for piece in term.pieces if len(piece.axes) > 1]
        if not tied:
            grams = {piece.axes[0]: piece.part.gram for piece in term.pieces}
            products.append((term.coefficient, [grams[axis] for axis in range(len(block.shape))]))
        elif all(part.thin for part in tied):
            count = len(rows) + math.prod(min(len(p.part.content), p.part.cells) for p in term.pieces)
            if block.cells * count**2 <= limits().product_work:
                rows = np.concatenate([rows, terms_rows([term])])
    return products, rows


def trace_root_bound(products: Products, rows: Array, weights: Sequence[Array]) -> float:
    """Return a lower bound on tr (P^½GP^½)^½ for weights p that are a product over the axes."""
    shape, roots = tuple(map(len, weights)), [np.sqrt(p / p.sum()) for p in weights]
    rows = rows * reduce(np.multiply.outer, roots).ravel()
    if not products:
        return _nuclear_norm(rows) if len(rows) else 0.0
    spectra = [
        (c, [np.linalg.eigh(g * np.outer(r, r)) for g, r in zip(grams, roots, strict=True)])
        for c, grams in products
    ]
    bases = [[vectors for _, vectors in factors] for _, factors in spectra]
    best = max(_in_common_bases(spectra, rows, basis, shape) for basis in bases)
    if len(rows):
        alone = [
            c * math.prod(np.sqrt(np.maximum(v, 0.0)).sum() for v, _ in axis) ** 2 for c, axis in spectra
        ]
        strongest = alone.index(max(alone))
        rest = spectra[:strongest] + spectra[strongest + 1 :]
        others = max(_in_common_bases(rest, rows[:0], basis, shape) for basis in bases)
        best = max(best, math.hypot(_product_and_rows(*spectra[strongest], rows, shape), others))
    return best


Spectrum = Sequence[tuple[Array, Array]]
"""The eigenvalues and eigenvectors of a product's Gram matrix on every axis."""


def _in_common_bases(
    spectra: Sequence[tuple[float, Spectrum]], rows: Array, bases: Sequence[Array], shape: tuple[int, ...]
) -> float:
    """Return Σ_j (Σ_k s_kj²)^½ for the bases Q."""
    total = np.zeros(shape)
    for coefficient, factors in spectra:
        diagonals = [
            (basis.T @ vectors) ** 2 @ np.sqrt(np.maximum(values, 0.0))
            for (values, vectors), basis in zip(factors, bases, strict=True)
        ]
        total += coefficient * reduce(np.multiply.outer, diagonals) ** 2
    if len(rows):
        values, turn = np.linalg.eigh(rows @ rows.T)
        sure = values > ROUNDING * values[-1]
        # S = Σ σ v vᵀ with σv = turned rows: its diagonal is the sum of their squares over σ
        turned = (turn[:, sure] / values[sure] ** 0.25).T @ rows
        image = along_axes(turned.reshape(-1, *shape), 1, bases)
        total += np.einsum("r...,r...->...", image, image) ** 2
    return float(np.sqrt(total).sum())


def _product_and_rows(coefficient: float, factors: Spectrum, rows: Array, shape: tuple[int, ...]) -> float:
    """Return tr (D + UᵀU)^½, slightly underestimated."""
    kept = [values > ROUNDING * values[-1] for values, _ in factors]
    D = coefficient * reduce(np.multiply.outer, [v[sure] for (v, _), sure in zip(factors, kept, strict=True)])
    D = D.ravel()
    # what rows ask of directions outside the product's space is left out, which only lowers the bound
    bases = [vectors[:, sure] for (_, vectors), sure in zip(factors, kept, strict=True)]
    U = along_axes(rows.reshape(-1, *shape), 1, bases).reshape(len(rows), -1)
    ends = 0.5 * math.log(D.min()) - 4, 0.5 * math.log(D.max() + np.square(U).sum()) + 8
    total = 0.0
    for t in np.exp(np.arange(*ends, STEP)).tolist():
        scaled = U / (D + t * t)
        total += t**3 * float(np.trace(np.linalg.solve(np.eye(len(U)) + scaled @ U.T, scaled @ scaled.T)))
    error = 4.1 * math.exp(-(math.pi**2) / STEP)
    return ((1 - error) * float(np.sqrt(D).sum()) + 2 / math.pi * STEP * total) / (1 + error)


# --- lines and trees ---


def _trace_bound(
    terms: Callable[[Array, Array], tuple[Array, Array]],
    p: Array,
    middle: float,
    enough: float = 0.0,
    *,
    points: int = POINTS,
    small: float | None = None,
) -> float:
    """Return a lower bound on the largest tr M^½ of any distribution p; stop above `enough`: zero keeps p.

    For a distribution and several t, `terms` returns tr M(M + t²)⁻¹ and, up to a factor, its derivatives by
    p, with a column for every t. The largest terms are near t = e^middle.
    """
    best, many = 0.0, max(1, min(points, CHUNK // p.size))
    for _ in range(12):
        p = p / p.sum()
        total, gains = 0.0, np.zeros(p.size)
        for sign in (1, -1):
            for start in range(sign < 0, 2_000, many):
                t = np.exp(middle + sign * np.arange(start, start + many) * STEP)
                each, gain = terms(p, t)
                total += float(t @ each)
                gains += gain @ t
                if t[-1] * each[-1] <= (small or SMALL) * total:
                    break
        value = 2 / math.pi * STEP * total / (1 + 4.1 * math.exp(-(math.pi**2) / STEP))
        done = value <= best * (1 + GAIN)
        best, p = max(best, value), p * gains**1.5
        if done or best >= enough:
            break
    return best


def trace_integral(term: Callable[[float], float], middle: float) -> float:
    """Return a lower bound on tr M^½, given tr M(M + t²)⁻¹ as a function of t; it peaks near t = e^middle."""

    def terms(p: Array, t: Array) -> tuple[Array, Array]:
        return np.array([term(float(t[0]))]), p[:, None]

    return _trace_bound(terms, np.ones(1), middle, points=1)


def line_value(gram: LineGram, q: Array) -> float:
    """Return a lower bound on tr (P^½GP^½)^½ at the weights q of the values, without the total."""
    if (classes := gram.classes)[-1] < gram.size - 1:
        return line_value(gram.on_classes(classes), np.bincount(classes, q).astype(float))
    families = [family for family, _ in gram.families]
    groups = nested(families, [weight for _, weight in gram.families])
    if groups is not None:
        tree = WeightedTree(groups.nodes, np.ones(len(groups.nodes)), groups.weights)
        p = np.bincount(groups.leaf_of, q).astype(float)
        return _trace_bound(_tree_terms(tree), p, 0.5 * math.log(float(groups.weights.mean()) / len(p)))
    if gram.size > limits().line_matrix and all(family.levels() is not None for family in families):
        crossing = overlapping(families, [weight for _, weight in gram.families])
        model, node_of = WeightedCrossing.merged(crossing.nodes, crossing.weights)
        leaf_of = node_of[crossing.nodes.leaves][crossing.leaf_of] - model.nodes.leaves[0]
        return crossed_bound(model, np.bincount(leaf_of, q).astype(float))
    if gram.size <= limits().line_matrix:
        whole = reduce(np.add, (weight * family.gram() for family, weight in gram.families))
        return float(np.sqrt(np.maximum(np.linalg.eigvalsh(whole * np.sqrt(np.outer(q, q))), 0.0)).sum())
    values = [float(even_diagonal(gram, ends) @ np.sqrt(q)) for ends in even_bases(gram)]
    if (gram.path[0].any() or len(gram.few)) and q.min() > 0:
        values.append(math.sqrt(path_bound(gram, q)))
    return max(values, default=0.0)


def pair_value(gram: LineGram, q: Array) -> float:
    """Return a lower bound on √L of what queries leave around any centre, for cells drawn independently.

    With RᵀR = G and a centre w, the values have the second moments R(I − w1ᵀ)P(I − 1wᵀ)Rᵀ, which are at least
    R(P − qqᵀ)Rᵀ. Since tr (A + bbᵀ)^½ ≤ tr A^½ + ‖b‖, its trace root is at least that of RPRᵀ less ‖Rq‖.
    Beside hierarchies, queries written as rows are left out, which only lowers it.
    """
    if any(family.structure is Structure.TREE for family, _ in gram.families):
        kept = [(f, weight) for f, weight in gram.families if is_implicit(f)]
        gram = LineGram.of(gram.size, kept)
    mean = float(gram.times(q[None])[0] @ q)
    return max(0.0, line_value(gram, q) - math.sqrt(max(mean, 0.0)))


def even_bases(gram: LineGram) -> list[str]:
    """Return the bases in which some of the queries are a filter."""
    prefixes = bool(gram.prefixes.any())
    closed = {
        "prefix": prefixes and np.ptp(gram.prefixes[:-1]) <= 1e-9 * gram.prefixes[0],
        "range": gram.ranges,
        "circular": gram.circular and not gram.others,
        "cosine": gram.windows[0].size or not gram.boundaries.any(),
    }
    return [ends for ends, some in closed.items() if some]


def path_bound(gram: LineGram, start: Array, enough: float = 0.0) -> float:
    """Return a lower bound on the loss; for families with a closed form, stop above `enough`.

    Without it, the weights of the values stay those given. Prefixes of too little weight get more. That adds
    at most the root of the least loss of what is added, as tr (A + B)^½ ≤ tr A^½ + tr B^½, and all prefixes
    can be answered with variances of at most (1 + log(n)/π)².
    """
    path, rows, middle = gram.path
    weights, values, has_path = np.append(path[:-1], path[-1] + gram.total), gram.values, path.any()
    if not has_path:
        rows = gram.few_and_total
        squares, turned = np.linalg.eigh(rows @ rows.T)  # what depends on other rows is left out
        rows = turned.T[squares > ROUNDING * squares.max(initial=0.0)] @ rows
        middle = np.eye(len(rows))
    if not (weights.any() or len(rows)):
        return float(values.sum()) + _bound_on_others(gram)
    from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

    least = RANK * weights.max() if has_path else 0.0
    surplus = math.sqrt(float(np.maximum(least - weights, 0.0).sum())) * (1 + math.log(gram.size) / math.pi)
    if has_path:
        weights = np.maximum(weights, least)
        image = np.diff(-np.diff(rows, append=0.0) / weights, prepend=0.0)  # TQ
        laplacian, beside = 1 / weights, -1 / weights[:-1]  # T
        laplacian[1:] -= beside

    def term(p: Array, t: float) -> Array:
        inverse = p / (t**2 + values * p)  # E⁻¹
        result, solved = values * inverse, inverse * rows  # Yᵀ, without prefixes
        if has_path:
            diagonal = laplacian + inverse
            ahead, ratios, _ = lapack.dpttrf(diagonal, beside)
            back = lapack.dpttrf(diagonal[::-1], beside[::-1])[0][::-1]
            result += t**2 * inverse**2 / (ahead + back - diagonal) / p
            solved = inverse * lapack.dpttrs(ahead, ratios, image.T)[0].T if len(rows) else rows
        if len(rows):
            inside = np.linalg.solve(np.eye(len(rows)) + middle @ (solved @ rows.T), middle)  # C
            result += t**2 * np.einsum("aj,ab,bj->j", solved, inside, solved) / p
        return np.asarray(result)

    def terms(p: Array, points: Array) -> tuple[Array, Array]:
        each = np.stack([term(p, t) for t in points.tolist()], axis=1)
        return each.sum(axis=0), each / p[:, None]

    root = math.sqrt(enough)
    trace = float((weights + values + np.square(gram.few).sum(axis=0)).sum())
    peak = math.log((root or math.sqrt(trace)) / gram.size)
    bound = max(0.0, _trace_bound(terms, start, peak, root) - surplus) ** 2
    return bound + _bound_on_others(gram)


def even_bound(gram: LineGram, ends: str) -> float:
    """Return a lower bound on the loss: Σ_j S_jj² for a filter of at most G, plus bounds for the rest."""
    rest = float((gram.values - gram.values.min()).sum())
    rest += float(np.square(gram.few).max(axis=1, initial=0.0).sum())
    diagonal = even_diagonal(gram, ends)
    if ends in {"prefix", "range"}:
        rest += gram.total
    others = 0.0 if ends == "cosine" else _bound_on_others(gram)
    return float(diagonal @ diagonal) + rest + others


def even_diagonal(gram: LineGram, ends: str) -> Array:
    """Return the diagonal of the root S of a filter of at most G: tr (P^½GP^½)^½ ≥ Σ_j S_jj √p_j."""
    n, least = gram.size, float(gram.values.min())
    if ends == "cosine":
        return window_diagonal(gram)
    reflection = Reflection(ends, n)
    even = {"prefix": gram.prefixes.min(), "range": (n + 1) * gram.ranges, "circular": 2 * n * gram.circular}
    square = reflection.second_differences
    eigenvalues = least + even[ends] / np.where(square > 0, square, 1.0)
    if ends == "circular":
        eigenvalues[0] = least + gram.circular * (n**2 + n * (n - 1) * (2 * n - 1) / 6) + n * gram.total
    return np.asarray(reflection.diagonal(reflection.kernel(np.sqrt(eigenvalues))))


def _bound_on_others(gram: LineGram) -> float:
    """Return the sum of lower bounds for each query without a closed form."""
    bound = 0.0
    for family, coefficient in gram.others:
        if family.spans() is not None:
            bound += coefficient * float(family.query_weights().sum())
        elif family.fits_memory:  # leaving the others out only lowers the bound
            bound += coefficient * float(family.query_weights() @ np.abs(family.matrix()).max(axis=1) ** 2)
    return bound


def window_diagonal(gram: LineGram) -> Array:
    """Return a lower bound on the diagonal of S for ranges of given lengths, single values and the total.

    Ranges of one length count with their least weight, if there are queries at all positions. Ranges too
    long for a matrix are left out.
    """
    size, (first, lengths, weights) = gram.size, gram.windows
    by_length = np.zeros(2 * size)
    for length, count in zip(*np.unique(lengths, return_counts=True), strict=True):
        if length <= min(limits().dense_values, size // 2) and count > size - length:
            chosen = lengths == length
            by_length[length] = np.bincount(first[chosen], weights[chosen], size - length + 1).min()
    reflection = Reflection("cosine", size)
    eigenvalues = gram.values.min() + length_spectrum(by_length)
    eigenvalues[0] += size * gram.total
    seen = eigenvalues > ROUNDING * eigenvalues.max()
    roots = np.where(seen, np.sqrt(eigenvalues), 0.0)
    squares = reflection.diagonal(reflection.kernel(roots))
    inverse = reflection.lags(reflection.kernel(np.where(seen, 1 / np.where(seen, roots, 1.0), 0.0)))
    for length in np.flatnonzero(by_length).tolist():
        cell = np.arange(length)
        corner = inverse[np.abs(np.subtract.outer(cell, cell))] + inverse[np.add.outer(cell, cell) + 1]
        before = np.arange(1, length // 2 + 1)[:, None]  # ranges that pass the first value, reflected there
        rows = (cell < length - before) + 1.0 * (cell < before)
        if length % 2 == 0:
            rows[-1] /= np.sqrt(2)  # the range around the end itself, half of which belongs to either side
        lost = by_length[length] * np.einsum("ij,ij->j", rows, rows @ corner)
        squares[:length] -= lost
        squares[size - length :] -= lost[::-1]
    return np.maximum(squares, 0.0)


def tree_bound(tree: WeightedTree, slopes: Array, enough: float) -> float:
    """Return a lower bound on the root of the loss of any strategy; stop above `enough`."""
    counts = tree.counts[tree.nodes.is_leaf]
    middle = math.log(enough / float(counts.sum()))
    return _trace_bound(_tree_terms(tree), slopes[tree.nodes.is_leaf], middle, enough)


def crossed_bound(model: WeightedCrossing, p: Array) -> float:
    """Return a lower bound on the root of the loss of any strategy, from one distribution on the leaves.

    Groups without queries count as a little noise, which only lowers the terms.
    """
    leaves = model.nodes.leaves
    p = np.maximum(p, ROUNDING * p.max())

    def terms(p: Array, t: Array) -> tuple[Array, Array]:
        precisions = np.maximum(model.weights, ROUNDING)
        precisions[leaves] = model.weights[leaves] + t[0] ** 2 * model.counts[leaves] / p
        return np.array([model.loss(precisions)]), np.zeros((p.size, 1))

    middle = 0.5 * math.log(float(model.weights.mean()) / float(model.counts[leaves].sum()))
    return _trace_bound(terms, p, middle, points=1, small=1e-4)


def _tree_terms(tree: WeightedTree) -> Callable[[Array, Array], tuple[Array, Array]]:
    leaf = tree.nodes.is_leaf
    counts = tree.counts[leaf]

    def terms(p: Array, t: Array) -> tuple[Array, Array]:
        precisions = np.repeat(tree.weights[:, None], t.size, axis=1)
        noise = t**2 * (counts / p)[:, None]
        precisions[leaf] += noise
        value, g = tree.slopes(precisions)
        return value, g[leaf] * noise / p[:, None]

    return terms


# --- workloads ---


def dimension(workload: Workload) -> int:
    """Return the number of coordinates of X."""
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
