"""Near-optimal strategies for prefixes, ranges and the like on one attribute of very many values.

With S the root of the Gram matrix G and D = diag(S_jj^(-1/2)), V = DSD has unit diagonal, and

    Σ_j S_jj²  ≤  the least loss of any strategy  ≤  tr(G V⁻¹).

(‖W P^½‖_* ≥ tr UᵀWP^½ for every orthogonal U; with the polar factor W = US it is Σ_j S_jj √p_j, and p ∝
S_jj² is best.) If all prefixes, or all ranges, have equal weights, S is a filter, and the two sides differ
by 0.2% at most.

Other queries whose ends are spread over the attribute (weighted prefixes, prefixes and ranges, a total that
counts more) differ from these in low frequencies only. With Φ the k lowest frequencies of a basis, S = F² +
Φᵀ(M − μI)Φ, where the filter F² keeps high frequencies and is flat (μ) below. For given D, and weights p of
the values, the best block is the geometric mean of Y = ΦD⁻¹GD⁻¹Φᵀ and Z⁻¹, Z = ΦDPDΦᵀ: it minimises
tr(M⁻¹Y) + tr(MZ). High frequencies demand d_j⁴p_j ∝ the weight of the ends of queries at j, and unit
diagonal determines D: a few rounds converge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.large.balance import balanced
from querysmasher.planning.large.gram import LineGram
from querysmasher.planning.large.path import best_weights
from querysmasher.planning.large.rough import Modes
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies import MirroredStrategy, UnsplitStrategy
from querysmasher.privacy.factors import Reflection

FAINT = 1e-3
"""The eigenvalue of constants, relative to the next, where others measure the total."""


@dataclass(frozen=True, eq=False)
class LineSolution:
    """A strategy on one attribute, with its loss at unit cost and a lower bound on that of every strategy."""

    strategy: UnsplitStrategy
    loss: float
    bound: float
    start: Array | None = None
    """Weights of the values that suit the strategy, for other bounds."""
    rest: float = 0.0
    """A lower bound on √loss of what the queries ask beside the total, if known."""


def solve_line(gram: LineGram, *, fine: bool = False) -> LineSolution:
    """Return the best strategy found, with a certificate.

    A filter is enough if its loss is near the bound, unless `fine`: it may answer a few queries less well.
    """
    rough = _rough(gram, 0.0 if fine else limits().rough_change)
    if rough is not None and rough.loss <= limits().line_enough * rough.bound:
        return rough
    found = [
        (strategy, gram.loss(strategy), bound)
        for strategy, bound in map(partial(_closed, gram), _closed_forms(gram))
    ]
    bound = max((bound for *_, bound in found), default=0.0)
    best = min(found, key=itemgetter(1), default=None)
    if best is not None and best[1] <= limits().line_enough * bound:
        return LineSolution(best[0], best[1], min(bound, best[1]), value_weights(gram, best[0]))
    found += [(own, gram.loss(own), 0.0) for own in (adapted(gram, ends) for ends in _bases(gram))]
    best = min(found, key=itemgetter(1))
    start = value_weights(gram, best[0])
    bound = max(bound, lower_bound(gram, start, limits().path_steps))
    if rough is None and best[1] > limits().line_enough * bound:
        rough = _rough(gram, 0.0)
    if rough is not None:
        bound = max(bound, rough.bound)
        if rough.loss < best[1]:
            return replace(rough, bound=min(bound, rough.loss))
    return LineSolution(best[0], best[1], min(bound, best[1]), start)


def _rough(gram: LineGram, least: float) -> LineSolution | None:
    """Return the strategy that follows the weight of every prefix, if neighbours differ enough."""
    path = gram.path(merged=False)
    if gram.others or path is None or not gram.size <= limits().triangle_values:
        return None
    weights = path.prefixes
    if weights.size < 2 or np.abs(np.diff(weights[:-1])).sum() < least * weights.sum():
        return None
    found = balanced(path, np.sqrt(weights), limits().balance_steps)
    try:
        strategy = Modes.of(path, found.best).triangle()
    except np.linalg.LinAlgError:  # beyond double precision
        return None
    bound = lower_bound(gram, found.proof, 1)
    loss = gram.loss(strategy)
    return LineSolution(strategy, loss, min(bound, loss), found.proof)


def _closed_forms(gram: LineGram) -> list[str]:
    """Return the bases in which a closed form may be good: those of families with equal weights."""
    found = []
    if gram.prefixes is not None and np.ptp(gram.prefixes[:-1]) <= 1e-9 * gram.prefixes[0]:
        found.append("prefix")
    if gram.ranges:
        found.append("range")
    if gram.circular or not (found or gram.others or gram.prefixes is not None):
        found.append("circular")
    return found


def _bases(gram: LineGram) -> list[str]:
    """Return the bases in which low frequencies are adapted."""
    found = ["prefix"] if gram.prefixes is not None or gram.others else []
    if gram.ranges or gram.others:
        found.append("range")
    if gram.prefixes is not None or gram.total or gram.circular or not found:
        found.append("cosine")
    return found


def _spectrum(gram: LineGram, ends: str) -> Array:
    """Return the eigenvalues of G in a basis, approximately unless it is diagonal there."""
    weight, square = float(gram.boundaries.mean()), Reflection(ends, gram.size).second_differences
    own = 0.0 if gram.values is None else float(gram.values.mean())
    n = gram.size
    if ends == "circular":
        result = np.empty(square.size)
        result[1:] = weight / square[1:] + own
        ones = np.ones((1, n))
        result[0] = float((gram.times(ones) @ ones.T)[0, 0]) / n
        return result
    if ends == "cosine":
        square = square.copy()
        square[0] = square[min(1, n - 1)] or 1.0
    return np.asarray(weight / square + own)


def _closed(gram: LineGram, ends: str) -> tuple[MirroredStrategy, float]:
    """Return the closed form in a basis, and a lower bound on the loss, zero if G is not diagonal there."""
    n = gram.size
    reflection = Reflection(ends, n)
    pure = {"prefix": gram.prefixes is not None, "range": gram.ranges > 0, "circular": True}[ends]
    rest = LineGram(
        n,
        (),
        0.0 if ends == "circular" else gram.total,
        None if ends == "prefix" else gram.prefixes,
        None
        if gram.values is None or np.ptp(gram.values) <= 1e-9 * gram.values[0]
        else gram.values - gram.values.min(),
        0.0 if ends == "range" else gram.ranges,
        0.0 if ends == "circular" else gram.circular,
        gram.others,
    )
    roots = np.sqrt(_spectrum(gram, ends))
    strategy = MirroredStrategy.normalised(ends, roots, np.zeros((0, n)))
    if not pure:
        return strategy, 0.0
    exact = np.sqrt(_exact_spectrum(gram, ends))
    squares = reflection.diagonal(reflection.kernel(exact))
    return strategy, float(squares @ squares) + _simple_bound(rest)


def _exact_spectrum(gram: LineGram, ends: str) -> Array:
    """Return the eigenvalues of what is diagonal in a basis: a Gram matrix that is not larger than G."""
    n, square = gram.size, Reflection(ends, gram.size).second_differences
    own = 0.0 if gram.values is None else float(gram.values.min())
    if ends == "prefix" and gram.prefixes is not None:
        return np.asarray(float(gram.prefixes.min()) / square + own)
    if ends == "range":
        return np.asarray(gram.ranges * (n + 1) / square + own)
    place = np.arange(n)
    kernel: Array = np.asarray(gram.circular * (place**2.0 - n * place + n * (n + 1) / 2)[: n // 2 + 1])
    result = Reflection("circular", n).eigenvalues(kernel) + own
    result[0] += gram.total * n
    return np.maximum(result, 1e-12 * float(result.max()))


def _simple_bound(gram: LineGram) -> float:
    """Return the sum of lower bounds for each family alone: the least loss of a sum is at least that."""
    bound = gram.total
    if gram.values is not None:
        bound += float(gram.values.sum())
    for family, coefficient in gram.others:
        weights = np.ones(family.rows) if family.weights is None else family.weights
        spans = family.spans()
        largest = np.ones(family.rows) if spans is not None else np.abs(family.matrix()).max(axis=1)
        bound += coefficient * float(weights @ largest**2)
    for ends, there in (
        ("prefix", gram.prefixes is not None),
        ("range", gram.ranges),
        ("circular", gram.circular),
    ):
        if there:
            alone = LineGram(gram.size, (), 0.0, gram.prefixes, None, gram.ranges, gram.circular)
            reflection = Reflection(ends, gram.size)
            squares = reflection.diagonal(reflection.kernel(np.sqrt(_exact_spectrum(alone, ends))))
            bound += float(squares @ squares)
    return bound


def lower_bound(gram: LineGram, start: Array, steps: int) -> float:
    """Return a lower bound on the loss of every strategy at unit cost, from weights of the values."""
    simple, path = _simple_bound(gram), gram.path()
    if path is None:
        return simple
    alone = max(0.0, best_weights(path, path.shared(start), steps)[1]) ** 2
    return max(simple, alone + _simple_bound(LineGram(gram.size, (), others=gram.others)))


def value_weights(gram: LineGram, strategy: MirroredStrategy) -> Array:
    """Return the weights of values that high frequencies demand for this diagonal."""
    local = gram.boundaries
    return np.asarray((local if local.any() else np.ones(gram.size)) / strategy.diagonal**4)


def adapted(gram: LineGram, ends: str, *, beside_total: bool = False) -> MirroredStrategy:
    """Return a filter with adapted low frequencies; with `beside_total`, it hardly measures a constant."""
    n = gram.size
    count = max(1, min(limits().waves, n // 4, int(limits().wave_entries // n)))
    spectrum = np.sqrt(_spectrum(gram, ends))
    spectrum[:count] = spectrum[min(count, n - 1)]
    if beside_total:
        spectrum[:count] *= FAINT
    reflection = Reflection(ends, n)
    low = np.stack([reflection.waves(k)[0] for k in range(count)])
    plain = reflection.diagonal(reflection.kernel(spectrum))
    local = gram.boundaries
    local = local / local.mean() if local.any() else np.ones(n)
    diagonal, extra = 1 / np.sqrt(plain), np.zeros((0, n))
    for _ in range(limits().line_rounds):
        p = local / diagonal**4
        scale = float(p.sum())
        p /= scale
        scaled = low / diagonal
        block = _geometric_mean((low * (diagonal * p * diagonal)) @ low.T, scaled @ gram.times(scaled).T)
        values, more_of = np.linalg.eigh(block / np.sqrt(scale) - np.diag(spectrum[:count]))
        more = np.maximum(values, 0.0)
        extra = (np.sqrt(more)[:, None] * more_of.T)[more > 1e-9 * spectrum[count - 1]] @ low
        diagonal = 1 / np.sqrt(plain + np.square(extra).sum(axis=0))
    return MirroredStrategy(ends, spectrum, diagonal, np.ascontiguousarray(extra))


def _geometric_mean(z: Array, y: Array) -> Array:
    """Return M with MZM = Y, which minimises tr(M⁻¹Y) + tr(MZ)."""
    values, vectors = np.linalg.eigh(z)
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    values, vectors = np.linalg.eigh(root @ y @ root)
    return np.asarray(inverse @ (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T @ inverse)
