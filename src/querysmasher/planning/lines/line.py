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

Ranges of given lengths, as in moving sums, are filters in the cosine basis. Let value j stand at j + ½. In
the cosine basis, a range of length l around x has the coefficients D_l(θ)·cos θx with
D_l(θ) = sin(lθ/2)/sin(θ/2). Cosines at all n positions x are orthogonal. So ranges of length l at all
positions, reflected where they pass an end, have a Gram matrix that is a filter, with eigenvalues D_l².

The bound: let W_c = U F² be these rows, with F² the root of their Gram matrix, and W those that lie inside.
U restricted to the rows of W has norm one at most, so that ‖WP^½‖_* ≥ tr UᵀWP^½ = Σ_j (F⁻²WᵀW)_jj √p_j, and
the best p gives Σ_j (F² − F⁻²EᵀE)_jj², where E has the rows that pass an end. Only their first cells matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import LineGram, path_bound
from querysmasher.planning.solvers.design import Design, fixed_point
from querysmasher.planning.strategies import AxisStrategy, MatrixAxis, MirroredStrategy
from querysmasher.privacy.factors import Reflection
from querysmasher.workload.family import Family

Asked = tuple[Family, float]

WIDEST = 2_000
"""Maximum length of ranges in a bound: it takes a matrix of that size."""

UNSEEN = 1e-9
"""Frequencies that ranges see less than this, relative to the most, are none of theirs."""


def has_lengths(family: Family) -> bool:
    """Return whether all queries are ranges that do not go around the ends."""
    spans = family.original.spans()
    return spans is not None and bool(np.all(spans[0] <= spans[1]))


def length_spectrum(size: int, asked: Sequence[Asked]) -> Array:
    """Return the eigenvalues of ranges of the same lengths, spread evenly over all positions."""
    by_length = np.zeros(2 * size)
    for family, coefficient in asked:
        first, last = family.original.spans() or (np.zeros(0, int),) * 2
        weights = np.ones(family.rows) if family.weights is None else family.weights
        np.add.at(by_length, last - first + 1, coefficient * weights / size)
    angles = np.arange(size) * (np.pi / (2 * size))
    waves = 2 * (by_length.sum() - np.fft.rfft(by_length).real[:size])  # Σ c_l (2 sin(lθ/2))²
    squares = np.square(np.arange(2 * size))
    return np.append(by_length @ squares, np.maximum(waves[1:], 0.0) / (4 * np.sin(angles[1:]) ** 2))


def window_bound(size: int, asked: Sequence[Asked], even: float) -> float:
    """Return a lower bound on the loss of ranges, and of single values of weight `even`, at unit cost.

    Of every length counts what is asked at all positions.
    """
    reflection = Reflection("cosine", size)
    eigenvalues = np.full(size, even)
    angles = np.arange(size) * (np.pi / (2 * size))
    complete = _complete(size, asked)
    for length, weight in complete.items():
        ratio = np.sin(length * angles[1:]) / np.sin(angles[1:])
        eigenvalues += weight * np.append(length, ratio) ** 2
    seen = eigenvalues > UNSEEN**2 * eigenvalues.max()
    roots = np.where(seen, np.sqrt(eigenvalues), 0.0)
    squares = reflection.diagonal(reflection.kernel(roots))
    inverse = reflection.lags(reflection.kernel(np.where(seen, 1 / np.where(seen, roots, 1.0), 0.0)))
    for length, weight in complete.items():
        place = np.arange(length)
        corner = inverse[np.abs(np.subtract.outer(place, place))] + inverse[np.add.outer(place, place) + 1]
        rows = _past_the_end(length)
        lost = weight * np.einsum("ij,ij->j", rows, rows @ corner)
        squares[:length] -= lost
        squares[size - length :] -= lost[::-1]
    return float(np.square(np.maximum(squares, 0.0)).sum())


def _complete(size: int, asked: Sequence[Asked]) -> dict[int, float]:
    """Return the least weight of ranges of every length that are asked at all positions."""
    found: dict[int, Array] = {}
    for family, coefficient in asked:
        first, last = family.original.spans() or (np.zeros(0, int),) * 2
        weights = np.ones(family.rows) if family.weights is None else family.weights
        lengths, counts = np.unique(last - first + 1, return_counts=True)
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
            if length <= min(WIDEST, size // 2) and count > size - length:
                at = last - first + 1 == length
                every = found.setdefault(length, np.zeros(size - length + 1))
                np.add.at(every, first[at], coefficient * weights[at])
    return {length: float(every.min()) for length, every in found.items() if every.min() > 0}


def _past_the_end(length: int) -> Array:
    """Return the ranges that pass the first value, reflected there, over their first cells."""
    rows = np.zeros((length // 2, length))
    for row, before in enumerate(range(1, length // 2 + 1)):
        rows[row, : length - before] = 1.0
        rows[row, :before] += 1.0
    if length % 2 == 0:
        rows[-1] /= np.sqrt(2)  # the range around the end itself, half of which belongs to either side
    return rows


SLIGHT = 1e-10
"""Weight of every single value, relative to the mean: it makes all values known."""

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
    own = math.fsum(coefficient * strategy.whole_loss(family) for family, coefficient in gram.asked)
    return own + (gram.total * strategy.total_variance if gram.total else 0.0)


def solve_line(gram: LineGram) -> LineSolution:
    """Return the best strategy found, with a certificate."""
    if gram.size <= limits().line_matrix:
        return _solved_written_out(gram)
    found = [
        (strategy, whole_loss(gram, strategy), bound)
        for strategy, bound in map(partial(_closed, gram), _closed_forms(gram))
    ]
    bound = max((bound for *_, bound in found), default=0.0)
    best = min(found, key=itemgetter(1), default=None)
    if best is not None and best[1] <= 1.004 * bound:
        return LineSolution(best[0], best[1], min(bound, best[1]))
    found += [(own, whole_loss(gram, own), 0.0) for own in (adapted(gram, ends) for ends in _bases(gram))]
    best = min(found, key=itemgetter(1))
    bound = max(bound, lower_bound(gram, value_weights(gram, best[0])))
    return LineSolution(best[0], best[1], min(bound, best[1]))


def _solved_written_out(gram: LineGram) -> LineSolution:
    """Return a strategy near the optimum by matrices."""
    whole = np.full((gram.size, gram.size), gram.total)
    for family, coefficient in gram.asked:
        whole += coefficient * family.gram()
    diagonal = np.diagonal(whole)
    whole.flat[:: gram.size + 1] += SLIGHT * float(diagonal.mean())  # values that no query distinguishes
    values, vectors = np.linalg.eigh(whole)
    root = np.square(vectors) @ np.sqrt(np.maximum(values, 0.0))
    design = fixed_point(lambda p: Design.of_gram(whole, gram.size, p), root**2, 2e-4, 40)
    strategy = MatrixAxis(np.ascontiguousarray(design.strategy()))
    loss = whole_loss(gram, strategy)
    surplus = math.sqrt(SLIGHT * float(diagonal.sum()))  # tr (A + B)^½ ≤ tr A^½ + tr B^½
    return LineSolution(strategy, loss, min(max(0.0, design.value - surplus) ** 2, loss))


def _closed_forms(gram: LineGram) -> list[str]:
    """Return the bases in which a closed form may be good: those of families with equal weights."""
    found = []
    if gram.prefixes is not None and np.ptp(gram.prefixes[:-1]) <= 1e-9 * gram.prefixes[0]:
        found.append("prefix")
    if gram.ranges:
        found.append("range")
    if gram.circular or not (found or gram.others or gram.prefixes is not None):
        found.append("circular")
    if any(has_lengths(family) for family, _ in gram.others):
        found.append("cosine")
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
    n, square = gram.size, Reflection(ends, gram.size).second_differences
    own: Array | float = 0.0 if gram.values is None else float(gram.values.mean())
    if ends == "cosine":
        windows = [one for one in gram.others if has_lengths(one[0])]
        gram = replace(gram, others=tuple(one for one in gram.others if not has_lengths(one[0])))
    weight = float(gram.boundaries.mean())
    if ends == "circular":
        result = np.empty(square.size)
        result[1:] = weight / square[1:] + own
        ones = np.ones((1, n))
        result[0] = float((gram.times(ones) @ ones.T)[0, 0]) / n
        return result
    if ends == "cosine":
        square = square.copy()
        square[0] = square[min(1, n - 1)] or 1.0
        own = own + length_spectrum(n, windows)
    return np.asarray(weight / square + own)


def _closed(gram: LineGram, ends: str) -> tuple[MirroredStrategy, float]:
    """Return the closed form in a basis, and a lower bound on the loss, zero if G is not diagonal there."""
    n = gram.size
    reflection = Reflection(ends, n)
    if ends == "cosine":
        windows = [one for one in gram.others if has_lengths(one[0])]
        roots = np.sqrt(_spectrum(gram, ends))
        roots = np.maximum(roots, FAINT * float(roots.mean()))
        strategy = MirroredStrategy.normalised(ends, roots, np.zeros((0, n)))
        return strategy, window_bound(n, windows, 0.0 if gram.values is None else float(gram.values.min()))
    pure = {"prefix": gram.prefixes is not None, "range": gram.ranges > 0, "circular": True}[ends]
    roots = np.sqrt(_spectrum(gram, ends))
    strategy = MirroredStrategy.normalised(ends, roots, np.zeros((0, n)))
    if not pure:
        return strategy, 0.0
    exact = np.sqrt(_exact_spectrum(gram, ends))
    squares = reflection.diagonal(reflection.kernel(exact))
    values = None if gram.values is None else gram.values - gram.values.min()
    rest = replace(gram, asked=(), values=values)
    if ends == "circular":
        rest = replace(rest, circular=0.0, total=0.0)
    else:
        rest = replace(rest, prefixes=None) if ends == "prefix" else replace(rest, ranges=0.0)
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
        if spans is None and not family.fits_memory:
            continue  # a bound on the others is one
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


def lower_bound(gram: LineGram, start: Array) -> float:
    """Return a lower bound on the loss of every strategy at unit cost, from weights of the values."""
    simple, path = _simple_bound(gram), gram.path()
    if path is None:
        return simple
    alone = path_bound(path, path.shared(start)) ** 2
    return max(simple, alone + _simple_bound(LineGram(gram.size, (), others=gram.others)))


def value_weights(gram: LineGram, strategy: MirroredStrategy) -> Array:
    """Return the weights of values that high frequencies demand for this diagonal."""
    local = gram.boundaries
    return np.asarray((local if local.any() else np.ones(gram.size)) / strategy.diagonal**4)


def adapted(gram: LineGram, ends: str) -> MirroredStrategy:
    """Return a filter with adapted low frequencies."""
    n = gram.size
    count = max(1, min(limits().waves, n // 4, int(limits().wave_entries // n)))
    spectrum = np.sqrt(_spectrum(gram, ends))
    spectrum[:count] = spectrum[min(count, n - 1)]
    reflection = Reflection(ends, n)
    low = np.stack([reflection.waves(k)[0] for k in range(count)])
    plain = reflection.diagonal(reflection.kernel(spectrum))
    local = gram.boundaries
    local = local / local.mean() if local.any() else np.ones(n)
    diagonal, extra = 1 / np.sqrt(plain), np.zeros((0, n))
    for _ in range(4):
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
