"""Near-optimal strategies for prefixes, ranges and the like on one attribute of very many values.

With S the root of the Gram matrix G and D = diag(S_jj^(-1/2)), V = DSD has unit diagonal, and

    Σ_j S_jj²  ≤  the least loss of any strategy  ≤  tr(G V⁻¹).

(‖W P^½‖_* ≥ tr UᵀWP^½ for every orthogonal U; with the polar factor W = US it is Σ_j S_jj √p_j, and p ∝
S_jj² is best.) If all prefixes, or all ranges, have equal weights, S is a filter, and the two sides differ
by 0.2% at most.

Other queries whose ends are spread over the attribute (weighted prefixes, prefixes and ranges, a total that
counts more) differ from these in low frequencies only. With Φ the k lowest frequencies of a basis,
S = F² + Φᵀ(M − μI)Φ, where the filter F² keeps high frequencies and is flat (μ) below. For given D, and
weights p of the values, the best block is the geometric mean of Y = ΦD⁻¹GD⁻¹Φᵀ and Z⁻¹, Z = ΦDPDΦᵀ: it
minimises tr(M⁻¹Y) + tr(MZ). High frequencies demand d_j⁴p_j ∝ the weight of the ends of queries at j, and
unit diagonal determines D: a few rounds converge.

Ranges of given lengths, as in moving sums, are filters in the cosine basis. Let value j stand at j + ½. In
the cosine basis, a range of length l around x has the coefficients D_l(θ)·cos θx with
D_l(θ) = sin(lθ/2)/sin(θ/2). Cosines at all n positions x are orthogonal. So ranges of length l at all
positions, reflected where they pass an end, have a Gram matrix that is a filter, with eigenvalues D_l².

The bound: let W_c = U F² be these rows, with F² the root of their Gram matrix, and W those that lie inside.
Single values and the total are filters in this basis too, and lie inside.
U restricted to the rows of W has norm one at most, so that ‖WP^½‖_* ≥ tr UᵀWP^½ = Σ_j (F⁻²WᵀW)_jj √p_j, and
the best p gives Σ_j (F² − F⁻²EᵀE)_jj², where E has the rows that pass an end. Only their first cells matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from querysmasher.arrays import ROUNDING, Array
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import EASY, LineGram, path_bound
from querysmasher.planning.solvers.design import Levelled, fixed_point
from querysmasher.planning.strategies import AxisStrategy, CoarseStrategy, MatrixAxis, MirroredStrategy
from querysmasher.privacy.factors import Reflection

FAINT = 0.03
"""Every frequency is measured at least this much, relative to the mean: ranges of one length miss some."""


@dataclass(frozen=True, eq=False)
class LineSolution:
    """A strategy on one attribute, with its loss at unit cost and a lower bound on that of every strategy."""

    strategy: AxisStrategy
    loss: float
    bound: float


def whole_loss(gram: LineGram, strategy: AxisStrategy) -> float:
    """Return the sum of weight × q V⁻¹ qᵀ over all queries, and over the total."""
    loss = math.fsum(coefficient * strategy.whole_loss(family) for family, coefficient in gram.families)
    return loss + (gram.total * strategy.total_variance if gram.total else 0.0)


def solve_line(gram: LineGram) -> LineSolution:
    """Return the best filter; if its certificate is not good, adapt its low frequencies.

    Values that no query distinguishes are one: what is best for one value of each class is best for all.
    """
    if (classes := gram.classes)[-1] < gram.size - 1:
        solution = solve_line(gram.on_classes(classes))
        return replace(solution, strategy=CoarseStrategy(classes, solution.strategy))
    if gram.size <= limits().line_matrix:
        return _solved_written_out(gram)
    prefixes, local = bool(gram.prefixes.any()), gram.boundaries
    closed = {
        "prefix": prefixes and np.ptp(gram.prefixes[:-1]) <= 1e-9 * gram.prefixes[0],
        "range": gram.ranges,
        "circular": gram.circular and not gram.others,
        "cosine": gram.windows[0].size or not local.any(),
    }
    bases = [ends for ends, some in closed.items() if some]
    strategies = [filtered(gram, ends, 0) for ends in bases]
    losses = [whole_loss(gram, strategy) for strategy in strategies]
    bound = max((_even_bound(gram, ends) for ends in bases), default=0.0)
    if adapts := min(losses, default=math.inf) > 1.004 * bound:
        waves = max(1, min(limits().waves, gram.size // 4, int(limits().wave_entries // gram.size)))
        bases = ["prefix"] * prefixes + ["cosine"] * (gram.total > 0 or not prefixes)
        strategies += [filtered(gram, ends, waves) for ends in bases]
        losses += [whole_loss(gram, strategy) for strategy in strategies[-len(bases) :]]
    loss, strategy = min(zip(losses, strategies, strict=True), key=itemgetter(0))
    if adapts:  # from the weights of values that high frequencies demand for this diagonal
        start = (local if local.any() else 1.0) / strategy.diagonal**4
        bound = max(bound, path_bound(gram, start, loss / (1 + 1e-4) ** 2) + _bound_on_others(gram))
    return LineSolution(strategy, loss, min(bound, loss))


def _solved_written_out(gram: LineGram) -> LineSolution:
    """Return a strategy near the optimum by matrices."""
    whole = np.full((gram.size, gram.size), gram.total)
    for family, coefficient in gram.families:
        whole += coefficient * family.gram()
    diagonal = np.diagonal(whole)
    whole.flat[:: gram.size + 1] += EASY * float(diagonal.mean())  # values that no query distinguishes
    values, vectors = np.linalg.eigh(whole)
    root = np.square(vectors) @ np.sqrt(np.maximum(values, 0.0))
    design = fixed_point(lambda p: Levelled.of_gram(whole, gram.size, p), root**2, 2e-4, 40)
    strategy = MatrixAxis(np.ascontiguousarray(design.strategy()))
    loss = whole_loss(gram, strategy)
    surplus = math.sqrt(EASY * float(diagonal.sum()))  # tr (A + B)^½ ≤ tr A^½ + tr B^½
    return LineSolution(strategy, loss, min(max(0.0, design.value - surplus) ** 2, loss))


# --- bounds ---


def _even_bound(gram: LineGram, ends: str) -> float:
    """Return Σ_j S_jj² for what is diagonal in a basis and no larger than G, and bounds for the rest."""
    n, least = gram.size, float(gram.values.min())
    rest = float((gram.values - least).sum())
    if ends == "cosine":
        return window_bound(gram) + rest
    reflection = Reflection(ends, n)
    even = {"prefix": gram.prefixes.min(), "range": (n + 1) * gram.ranges, "circular": 2 * n * gram.circular}
    square = reflection.second_differences
    eigenvalues = least + even[ends] / np.where(square > 0, square, 1.0)
    if ends == "circular":
        eigenvalues[0] = least + gram.circular * (n**2 + n * (n - 1) * (2 * n - 1) / 6) + n * gram.total
    else:
        rest += gram.total
    diagonal = reflection.diagonal(reflection.kernel(np.sqrt(eigenvalues)))
    return float(diagonal @ diagonal) + rest + _bound_on_others(gram)


def _bound_on_others(gram: LineGram) -> float:
    """Return the sum of lower bounds for each query without a closed form."""
    bound = 0.0
    for family, coefficient in gram.others:
        spans = family.spans()
        if spans is None and not family.fits_memory:
            continue  # a bound on the others is one
        largest = np.ones(family.rows) if spans is not None else np.abs(family.matrix()).max(axis=1)
        bound += coefficient * float(family.query_weights() @ largest**2)
    return bound


# --- ranges of given lengths ---


def length_spectrum(by_length: Array) -> Array:
    """Return Σ c_l D_l(θ)² at every frequency, for the weights c_l of lengths below twice the size."""
    size = len(by_length) // 2
    angles = np.arange(1, size) * (np.pi / (2 * size))
    waves = 2 * (by_length.sum() - np.fft.rfft(by_length).real[1:size])  # Σ c_l (2 sin(lθ/2))²
    squares = np.square(np.arange(2 * size))
    return np.append(by_length @ squares, np.maximum(waves, 0.0) / (4 * np.sin(angles) ** 2))


def window_bound(gram: LineGram) -> float:
    """Return a lower bound on the loss of ranges of given lengths, single values and the total, at unit cost.

    Only the least weight of the ranges of a length counts, if they are queries at all positions. Ranges too
    long for a matrix of that size are left out.
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
    return float(np.square(np.maximum(squares, 0.0)).sum())


# --- filters ---


def filtered(gram: LineGram, ends: str, waves: int) -> MirroredStrategy:
    """Return a filter in a basis, near the root of G, with some low frequencies adapted."""
    n, (_, lengths, weights) = gram.size, gram.windows
    reflection, local = Reflection(ends, n), gram.boundaries
    square = reflection.second_differences
    high = max(0.0, float(local.mean() - 2 * weights.sum() / n))  # a range has two ends
    spectrum = high / np.where(square > 0, square, 1.0) + gram.values.mean()
    if weights.size:
        spectrum += length_spectrum(np.bincount(lengths, weights / n, 2 * n).astype(float))
    if square[0] == 0:
        spectrum[0] = gram.times(np.ones((1, n))).mean()
    spectrum = np.sqrt(spectrum)
    spectrum = np.maximum(spectrum, FAINT * float(spectrum.mean()))
    level = spectrum[: waves + 1][-1]
    spectrum[:waves] = level
    low = np.array([wave for k in range(waves) for wave in reflection.waves(k)]).reshape(-1, n)
    even = MirroredStrategy(ends, spectrum, np.ones(n), np.zeros((0, n)))
    local = local / local.mean() if local.any() else np.ones(n)
    diagonal, extra = 1 / np.sqrt(even.plain), np.zeros((0, n))
    for _ in range(4 if waves else 0):
        p = local / diagonal**4
        scale = float(p.sum())
        p /= scale
        scaled = low / diagonal
        block = _geometric_mean((low * (diagonal * p * diagonal)) @ low.T, scaled @ gram.times(scaled).T)
        values, more_of = np.linalg.eigh(block / np.sqrt(scale) - level * np.eye(len(low)))
        more = np.maximum(values, 0.0)
        extra = (np.sqrt(more)[:, None] * more_of.T)[more > 1e-9 * level] @ low
        diagonal = 1 / np.sqrt(even.plain + np.square(extra).sum(axis=0))
    adapted = MirroredStrategy(ends, spectrum, diagonal, np.ascontiguousarray(extra))
    vars(adapted)["plain"] = even.plain
    return adapted


def _geometric_mean(z: Array, y: Array) -> Array:
    """Return M with MZM = Y, which minimises tr(M⁻¹Y) + tr(MZ)."""
    values, vectors = np.linalg.eigh(z)
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    values, vectors = np.linalg.eigh(root @ y @ root)
    return np.asarray(inverse @ (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T @ inverse)
