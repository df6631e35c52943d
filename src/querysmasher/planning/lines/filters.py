"""Near-optimal strategies for prefixes, ranges and the like on one attribute of very many values.

With S the root of the Gram matrix G and D = diag(S_jj^(-1/2)), V = DSD has unit diagonal, and

    Σ_j S_jj²  ≤  the least loss of any strategy  ≤  tr(G V⁻¹)

(`solvers.bounds`). If all prefixes, or all ranges, have equal weights, S is a filter, and the two sides
differ by 0.2% at most.

Other queries whose ends are spread over the attribute (weighted prefixes, prefixes and ranges, a total that
counts more) differ from these in low frequencies only. With Φ the k lowest frequencies of a basis,
S = F² + Φᵀ(M − μI)Φ, where the filter F² keeps high frequencies and is flat (μ) below. For given D, and
weights p of the values, the best block is the geometric mean of Y = ΦD⁻¹GD⁻¹Φᵀ and Z⁻¹, Z = ΦDPDΦᵀ: it
minimises tr(M⁻¹Y) + tr(MZ). High frequencies demand d_j⁴p_j ∝ the weight of the ends of queries at j, and
unit diagonal determines D: a few rounds converge. With a few other rows r, such as sums of numbers, Φ
includes r/d, since they can weigh so much that the best strategy measures little else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.lattice import RANK
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import LineGram, length_spectrum
from querysmasher.planning.solvers.bounds import even_bases, even_bound, path_bound
from querysmasher.planning.solvers.design import Levelled, equal_columns, fixed_point
from querysmasher.planning.solvers.optimum import best_rows, independent_root
from querysmasher.planning.strategies import (
    AxisStrategy,
    CoarseStrategy,
    FewStrategy,
    MatrixAxis,
    MirroredStrategy,
)
from querysmasher.planning.strategies.strategy import CLOSE
from querysmasher.privacy.factors import Reflection

FAINT = 0.03
"""Every frequency is measured at least this much, relative to the mean: ranges of one length miss some."""

ROUNDS, STILL = 40, 2e-3
"""Maximum number of rounds for lines with a few other rows, and change of the diagonal that ends them."""

RESERVE = 1e-3
"""Fraction of the sensitivity that a strategy for a few rows leaves for single values, or for the total."""


@dataclass(frozen=True, eq=False)
class LineSolution:
    """A strategy on one attribute, with its loss at unit cost and a lower bound on that of every strategy."""

    strategy: AxisStrategy
    loss: float
    bound: float


def solve_line(gram: LineGram, *, sums: bool = False) -> LineSolution:
    """Return the best filter; if its certificate is not good, adapt its low frequencies.

    Values that no query distinguishes are one: what is best for one value of each class is best for all. With
    `sums`, few rows are measured alone, without single values.
    """
    if (classes := gram.classes)[-1] < gram.size - 1:
        solution = solve_line(gram.on_classes(classes))
        return replace(solution, strategy=CoarseStrategy(classes, solution.strategy))
    if gram.few.any() and not (gram.path[0].any() or gram.values.any() or gram.others):
        return _solved_few(gram, sums)
    if gram.size <= limits().line_matrix:
        return _solved_written_out(gram)
    prefixes, local, bases = bool(gram.prefixes.any()), gram.boundaries, even_bases(gram)
    strategies = [filtered(gram, ends, 0) for ends in bases]
    losses = [strategy.whole_loss(gram) for strategy in strategies]
    bound = max((even_bound(gram, ends) for ends in bases), default=0.0)
    if adapts := min(losses, default=math.inf) > 1.004 * bound:
        waves = max(1, min(limits().waves, gram.size // 4, int(limits().wave_entries // gram.size)))
        few = len(gram.few) > 0  # which do not vanish beyond an end
        bases = ["prefix"] * (prefixes and not few) + ["cosine"] * (gram.total > 0 or few or not prefixes)
        strategies += [filtered(gram, ends, waves) for ends in bases]
        losses += [strategy.whole_loss(gram) for strategy in strategies[-len(bases) :]]
    loss, strategy = min(zip(losses, strategies, strict=True), key=itemgetter(0))
    if adapts:  # from the weights of values that high frequencies demand for this diagonal
        start = (local if local.any() else 1.0) / strategy.diagonal**4
        bound = max(bound, path_bound(gram, start, loss / (1 + 1e-4) ** 2))
    return LineSolution(strategy, loss, min(bound, loss))


def _solved_written_out(gram: LineGram) -> LineSolution:
    """Return a strategy near the optimum by matrices.

    A faint diagonal covers what no query distinguishes, where less than this lets rounding errors stop the
    iteration early, at gaps of up to 2%.
    """
    whole = np.full((gram.size, gram.size), gram.total)
    for family, coefficient in gram.families:
        whole += coefficient * family.gram()
    values, vectors = np.linalg.eigh(whole)
    faint = RANK * float(values.mean())
    faint *= 30 if values[0] < faint else 1
    whole.flat[:: gram.size + 1] += faint
    root = np.square(vectors) @ np.sqrt(np.maximum(values + faint, 0.0))
    design = fixed_point(lambda p: Levelled.of_gram(whole, gram.size, p), root**2, 2e-4, 40)
    strategy = MatrixAxis(np.ascontiguousarray(design.strategy()))
    loss = strategy.whole_loss(gram)
    surplus = math.sqrt(gram.size * faint)  # tr (A + B)^½ ≤ tr A^½ + tr B^½
    return LineSolution(strategy, loss, min(max(0.0, design.value - surplus) ** 2, loss))


def _solved_few(gram: LineGram, sums: bool) -> LineSolution:
    """Return the best strategy for a few rows; the total, or else single values, gets what is left."""
    root = independent_root(gram.few_and_total)
    columns, back = equal_columns(root)
    rows, _, bound = best_rows(root[:, columns], np.ones(len(columns)), 1e-3)
    rows = rows[:, back] * math.sqrt(1 - RESERVE)
    strategy: AxisStrategy | None = None
    if sums:
        queries = np.concatenate([family.matrix() for family, _ in gram.families])
        total = np.full((1, gram.size), math.sqrt(RESERVE))
        strategy = FewStrategy.of(queries, np.concatenate([rows, total]), counted=gram.total > 0)
    if strategy is None:
        diagonal = np.sqrt(1 - np.square(rows).sum(axis=0))
        strategy = MirroredStrategy("cosine", np.ones(gram.size), diagonal, rows / diagonal)
    loss = strategy.whole_loss(gram)
    return LineSolution(strategy, loss, min(bound**2, loss))


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
    diagonal, extra, kernel = 1 / np.sqrt(even.plain), np.zeros((0, n)), reflection.kernel(spectrum)
    for _ in range((ROUNDS if len(gram.few) else 4) if waves else 0):
        p = local / diagonal**4
        scale = float(p.sum())
        p /= scale
        rows = gram.few / diagonal
        _, sizes, beside = np.linalg.svd(rows - rows @ low.T @ low, full_matrices=False)
        beside = beside[sizes > CLOSE * np.linalg.norm(rows)]
        basis, plain = np.concatenate([low, beside]), level * np.eye(len(low) + len(beside))
        plain[len(low) :, len(low) :] = beside @ reflection.apply(kernel, beside).T
        scaled = basis / diagonal
        block = _geometric_mean((basis * (diagonal * p * diagonal)) @ basis.T, scaled @ gram.times(scaled).T)
        values, more_of = np.linalg.eigh(block / np.sqrt(scale) - plain)
        more = np.maximum(values, 0.0)
        extra = (np.sqrt(more)[:, None] * more_of.T)[more > 1e-9 * level] @ basis
        before, diagonal = diagonal, 1 / np.sqrt(even.plain + np.square(extra).sum(axis=0))
        if np.abs(diagonal / before - 1).max() <= STILL:
            break
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
