"""A lower bound on the error of every matrix mechanism, whatever it measures.

For any distribution p on the full domain, the loss of every matrix mechanism of privacy cost β on a
workload with Gram G is at least (tr (P^½ G P^½)^½)² / β, with P = diag(p). Write every query in functions of
the values, q = Σ c·ψ, where ψ runs over products of one function per attribute of a set A: as many as
numbers are measured, not as many as the domain has cells. With C = RᵀR the Gram of the coefficients and E(p)
the functions' second moments under p, the trace root is tr (R E(p) Rᵀ)^½, and it is concave in p.

Distributions tried: independent attributes, and mixtures in which one attribute at a time follows another
distribution than the rest. Both have moments that are products over attributes, and exact derivatives.

Where that matrix would be too large, the Gram over the cells of all attributes is a sum of Kronecker
products, one per group whose families each ask about one attribute, and of a few rows. Its trace root at
weights that are a product over the attributes is bounded by matrices over one attribute
(`solvers.bounds`).

The distributions are found by a limited-memory quasi-Newton method (L-BFGS; Nocedal and Wright, Numerical
Optimization: algorithms 7.4 and 7.5 for the direction, 3.5 and 3.6 for a step that meets the strong Wolfe
conditions). Loading `scipy.optimize` for it would take longer than a small plan.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes, one_core, square_root
from querysmasher.planning.centre import Centre
from querysmasher.planning.centring import attribute_roles
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.bounds import ProductSum, axis_weights, trace_root_bound
from querysmasher.planning.split import PlacedFamily, split_rows
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

Objective = Callable[[Array], tuple[float, Array]]
"""Maps a point to the value and the gradient there."""

MEMORY = 10
"""Number of past steps from which the curvature is estimated."""

DECREASE, CURVATURE = 1e-3, 0.9
"""The Wolfe conditions: minimum decrease and maximum final slope, as fractions of the slope at the start."""

LITTLE = 20
"""A stuck search has converged if the estimated curvature promises at most this many times `gain`."""

STRETCH = 4.0
"""Factor by which the search extends a step that still descends steeply."""

NARROW = 0.1
"""Width of an interval, relative to its end, at which the search accepts its low point."""

MARGIN = 0.1
"""Minimum distance of a trial from the ends of its interval, as a fraction of the interval."""


@dataclass(frozen=True)
class Minimum:
    """The result of a search."""

    x: Array
    value: float
    """The value at `x`."""
    success: bool
    """Whether the search converged, rather than ran out of steps or got stuck."""
    steps: int


@dataclass(frozen=True)
class _Point:
    """A point on a line: how far along, value, slope, and the point itself with its gradient."""

    step: float
    value: float
    slope: float
    x: Array
    gradient: Array


def minimize(
    objective: Objective, start: Array, *, steps: int, gain: float, gradient: float = 1e-5
) -> Minimum:
    """Search for a minimum, downhill from `start`.

    The search ends when a step gains less than `gain`, relative to the value or to 1, whichever is larger, or
    when no entry of the gradient exceeds `gradient`. It fails after `steps` steps, or if it
    is stuck far from the minimum.
    The first trial lies at distance one from `start`.
    """
    x = np.array(start, dtype=float)
    value, slope = objective(x)
    past: deque[tuple[Array, Array]] = deque(maxlen=MEMORY)
    for done in range(steps):
        if np.abs(slope).max(initial=0.0) <= gradient:
            return Minimum(x, value, True, done)
        found = _next(objective, x, value, slope, past)
        if found is None and past:
            promised = float(slope @ _inverse_hessian_times(slope, past)) / 2
            if promised <= LITTLE * gain * max(abs(value), 1.0):
                return Minimum(x, value, True, done)
            past.clear()  # the estimated curvature misleads
            found = _next(objective, x, value, slope, past)
        if found is None:
            return Minimum(x, value, False, done)
        move, bend = found.x - x, found.gradient - slope
        if move @ bend > np.finfo(float).eps * float(bend @ bend) > 0:
            past.append((move, bend))
        before, x, value, slope = value, found.x, found.value, found.gradient
        if before - value <= gain * max(abs(before), abs(value), 1.0):
            return Minimum(x, value, True, done + 1)
    return Minimum(x, value, bool(np.abs(slope).max(initial=0.0) <= gradient), steps)


def _next(
    objective: Objective, x: Array, value: float, gradient: Array, past: deque[tuple[Array, Array]]
) -> _Point | None:
    """Return a lower point in the direction that the curvature of past steps suggests, or None."""
    direction = -_inverse_hessian_times(gradient, past)
    slope = float(direction @ gradient)
    if not slope < 0:  # also if its square is zero in double precision
        return None
    step = 1.0 if past else 1 / float(np.linalg.norm(direction))
    return _search_line(objective, _Point(0.0, value, slope, x, gradient), direction, step)


def _inverse_hessian_times(vector: Array, past: deque[tuple[Array, Array]]) -> Array:
    """Return the product of an estimate of the inverse Hessian with a vector, by the two-loop recursion."""
    result = vector.copy()
    parts = []
    for move, bend in reversed(past):
        part = float(move @ result) / float(move @ bend)
        result -= part * bend
        parts.append(part)
    if past:
        move, bend = past[-1]
        result *= float(move @ bend) / float(bend @ bend)
    for (move, bend), part in zip(past, reversed(parts), strict=True):
        result += (part - float(bend @ result) / float(move @ bend)) * move
    return result


def _search_line(objective: Objective, start: _Point, direction: Array, step: float) -> _Point | None:
    """Return a point that meets the strong Wolfe conditions; after too many trials, a lower one or None."""

    def at(step: float) -> _Point:
        x = start.x + step * direction
        value, gradient = objective(x)
        return _Point(step, value, float(gradient @ direction), x, gradient)

    def is_low(point: _Point) -> bool:
        return point.value <= start.value + DECREASE * point.step * start.slope

    low, high = start, None
    for _ in range(limits().line_trials):
        point = at(step)
        if not (is_low(point) and point.value <= low.value):  # also if the value is NaN
            high = point
        elif abs(point.slope) <= CURVATURE * -start.slope:
            return point
        else:
            if point.slope * (point.step - low.step if high is None else high.step - low.step) >= 0:
                high = low
            low = point
        if high is None:
            step = low.step * STRETCH
        elif abs(high.step - low.step) <= NARROW * max(high.step, low.step):
            break
        else:
            step = _between(low, high, was_low=point is low)
    return low if low.value < start.value else None


def _between(low: _Point, high: _Point, *, was_low: bool) -> float:
    """Return a trial step between two others, away from both.

    It is the minimum of the cubic through both values and slopes, or a simpler guess. After a high point, the
    guess is halfway from this minimum to that of the parabola without the high point's slope, if it is nearer
    to the low point. After a low point, it is the zero of the line through both slopes, if it is farther.
    """
    width = high.step - low.step
    guess = low.step + width / 2
    if math.isfinite(high.value) and math.isfinite(high.slope):
        rise = (high.value - low.value) / width
        mean = low.slope + high.slope - 3 * rise
        under = mean * mean - low.slope * high.slope
        if under >= 0:
            root = math.copysign(math.sqrt(under), width)
            below = high.slope - low.slope + 2 * root
            if below != 0:
                guess = high.step - width * (high.slope + root - mean) / below
        if was_low and low.slope * high.slope < 0:
            other = low.step + low.slope / (low.slope - high.slope) * width
            guess = max(guess, other, key=lambda step: abs(step - low.step))
        elif not was_low and rise != low.slope:
            other = low.step + low.slope / (low.slope - rise) * width / 2
            guess = min(guess, (guess + other) / 2, key=lambda step: abs(step - low.step))
    nearest, farthest = sorted((low.step + MARGIN * width, high.step - MARGIN * width))
    return min(max(guess, nearest), farthest)


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
    """Return the number of functions in the limit's matrix."""
    sizes = workload.schema.sizes
    return sum(math.prod(sizes[a] - 1 for a in s) for s in _reached(workload))


def root_loss_bound(workload: Workload) -> float:
    """Return a lower bound on √(loss) at privacy cost 1: the best over the distributions tried."""
    role_of = attribute_roles(workload, coarse=False)
    size_of = dict(zip(role_of, workload.schema.sizes, strict=True))
    sizes = [size_of[role] for role in range(len(size_of))]
    moments = _Moments(workload)
    large = moments.dimension > limits().large_limit_dimension
    ends = np.cumsum(sizes)
    used = sorted({a for s in moments.start for a in s})

    def softmax(x: Array) -> list[Array]:
        return [np.exp(y - y.max()) / np.exp(y - y.max()).sum() for y in np.split(x, ends[:-1])]

    def objective(x: Array) -> tuple[float, Array]:
        """Return minus the logarithm of the bound; x holds the common distributions, then others if mixed."""
        common = softmax(x[: ends[-1]])
        other = softmax(x[ends[-1] :]) if len(x) > ends[-1] else None
        base = [common[r] for r in role_of]
        components = [base]
        if other is not None:
            components = [[other[role_of[a]] if a == odd else p for a, p in enumerate(base)] for odd in used]
        bound, slopes = moments.trace_root(components)
        gradient = np.zeros_like(x)
        for place, own in enumerate(slopes):
            for a, slope in enumerate(own):
                is_odd = other is not None and a == used[place]
                p = other[role_of[a]] if is_odd and other is not None else base[a]
                start = int(ends[role_of[a]]) - len(p) + (int(ends[-1]) if is_odd else 0)
                gradient[start : start + len(p)] += p * (slope - slope @ p)
        return -math.log(bound), -gradient / bound

    steps, gain = limits().large_limit_steps if large else limits().limit_steps, limits().limit_gain
    found = minimize(objective, np.zeros(int(ends[-1])), steps=steps, gain=gain)
    best = found.value
    if not large and len(used) > 1:
        tilt = np.concatenate([np.linspace(-0.5, 0.5, n) for n in sizes])
        start = np.concatenate([found.x - tilt / len(used), found.x + tilt])
        mixed = minimize(objective, start, steps=steps, gain=gain)
        best = min(best, mixed.value)
    return math.exp(-best)


def _reached(workload: Workload) -> list[tuple[int, ...]]:
    """Return the attribute sets on which the workload may leave something, smaller ones first."""
    tops = {tuple(sorted(workload.schema.positions(g.attributes))) for g in workload}
    sets = {s for top in tops for way in range(len(top) + 1) for s in combinations(top, way)}
    return sorted(sets, key=lambda s: (len(s), s))


def _functions(n: int) -> Array:
    """Return n functions of a value: the constant 1, and n - 1 that are orthogonal under uniform weights."""
    Q, _ = np.linalg.qr(np.ones((n, 1)), mode="complete")
    return np.concatenate([np.ones((n, 1)), Q[:, 1:] * math.sqrt(n)], axis=1)


class _Moments:
    """The functions of all reached sets, the workload's coefficients on them, and their moments."""

    def __init__(self, workload: Workload) -> None:
        self.sizes = workload.schema.sizes
        self.functions = [_functions(n) for n in self.sizes]
        self.start: dict[tuple[int, ...], int] = {}
        self.dimension = 0
        for attributes in _reached(workload):
            self.start[attributes] = self.dimension
            self.dimension += math.prod(self.sizes[a] - 1 for a in attributes)
        self.root = square_root(self._coefficient_gram(workload), 1e-13)

    def trace_root(self, components: list[list[Array]]) -> tuple[float, list[list[Array]]]:
        """Return the bound at an equal mixture of products, and its derivatives by the distributions."""
        E = np.zeros((self.dimension, self.dimension))
        seconds = [[(f.T * p) @ f for f, p in zip(self.functions, own, strict=True)] for own in components]
        for own in seconds:
            for S, T in combinations_with_replacement(self.start, 2):
                block = self._block(S, T, own, None) / len(components)
                E[self._slice(S), self._slice(T)] += block
                if S != T:
                    E[self._slice(T), self._slice(S)] += block.T
        values, vectors = np.linalg.eigh(self.root @ E @ self.root.T)
        roots = np.sqrt(np.maximum(values, values[-1] * 1e-26))
        half = (self.root.T @ vectors) / np.sqrt(2 * len(components) * roots)
        slope = half @ half.T
        gradients = []
        for own in seconds:
            by_second = [np.zeros((n, n)) for n in self.sizes]
            for S, T in combinations_with_replacement(self.start, 2):
                part = slope[self._slice(S), self._slice(T)]
                if S != T:
                    part = 2 * part  # both are symmetric
                for a in {*S, *T} if part.size else ():  # empty for an attribute of one value
                    rest = self._block(S, T, own, a)
                    rows = slice(1, None) if a in S else 0
                    columns = slice(1, None) if a in T else 0
                    by_second[a][rows, columns] += self._without(part, S, T, a, rest)
            gradients.append(
                [np.einsum("ai,ij,aj->a", f, m, f) for f, m in zip(self.functions, by_second, strict=True)]
            )
        return float(roots.sum()), gradients

    def _slice(self, attributes: tuple[int, ...]) -> slice:
        size = math.prod(self.sizes[a] - 1 for a in attributes)
        return slice(self.start[attributes], self.start[attributes] + size)

    def _block(self, S: tuple[int, ...], T: tuple[int, ...], seconds: list[Array], skip: int | None) -> Array:
        """Return E[ψ_S ψ_Tᵀ] as a matrix, without the attribute `skip` if there is one."""
        result: Array = np.ones((1, 1))
        for a in sorted({*S, *T} - {skip}):
            rows, columns = (slice(1, None) if a in own else slice(0, 1) for own in (S, T))
            own = seconds[a][rows, columns]
            shape = (len(result) * len(own), result.shape[1] * own.shape[1])
            # the Kronecker product; `np.kron` takes several times as long for such small matrices
            result = (result[:, None, :, None] * own[None, :, None, :]).reshape(shape)
        return result

    def _without(self, part: Array, S: tuple[int, ...], T: tuple[int, ...], a: int, rest: Array) -> Array:
        """Contract a block of the derivative with the moments of all attributes but `a`."""
        tensor = part.reshape([self.sizes[b] - 1 for b in (*S, *T)])
        own = ([S.index(a)] if a in S else []) + ([len(S) + T.index(a)] if a in T else [])
        others = [i for i in range(tensor.ndim) if i not in own]
        moved = tensor.transpose(own + others)
        flat = moved.reshape(*moved.shape[: len(own)], -1)
        return np.asarray(flat @ rest.ravel())

    def _coefficient_gram(self, workload: Workload) -> Array:
        result = np.zeros((self.dimension, self.dimension))
        cache: dict[object, Array] = {}
        for group in workload:
            order: list[int] = []
            gram: Array = np.full((1, 1), group.weight)
            for names, family in group.parts():
                places = workload.schema.positions(names)
                if family.key not in cache:
                    cache[family.key] = _coefficients(family, [self.functions[p] for p in places])
                gram = np.asarray(np.kron(gram, cache[family.key]), dtype=float)
                order += places
            where = self._coordinates(tuple(order)).ravel()
            result[np.ix_(where, where)] += gram
        return result

    def _coordinates(self, attributes: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the index of every product of functions; the first function of an attribute is constant."""
        ordered = tuple(sorted(attributes))
        table = np.empty([self.sizes[a] for a in ordered], dtype=np.int64)
        for way in range(len(ordered) + 1):
            for kept in combinations(ordered, way):
                shape = [self.sizes[a] - 1 for a in kept]
                numbers = self.start[kept] + np.arange(math.prod(shape)).reshape(shape)
                table[tuple(slice(1, None) if a in kept else 0 for a in ordered)] = numbers
        return table.transpose([ordered.index(a) for a in attributes])


def _coefficients(family: Family, functions: list[Array]) -> Array:
    """Return the Gram of the family's coefficients: with ψ the functions, q = c ψᵀ and ψᵀψ = n I.

    What a query leaves on the axes it keeps, around uniform centres, has coefficients on the products of
    nonconstant functions of these axes.
    """
    tensor = square_root(family.gram(), 0.0) if family.closed_form else PlacedFamily.own(family).weighted
    image = np.zeros((len(tensor), *family.shape))
    for kept, rows in split_rows(tensor, [Centre.uniform(n) for n in family.shape]).items():
        maps = [functions[a][:, 1:] / len(functions[a]) for a in kept]
        own = along_axes(rows.reshape(-1, *(family.shape[a] for a in kept)), 1, maps)
        where = (slice(1, None) if a in kept else 0 for a in range(len(family.shape)))
        image[(slice(None), *where)] = own
    flat = image.reshape(len(image), -1)
    return flat.T @ flat


def product_bound(workload: Workload) -> float | None:
    """Return a lower bound on √(loss) at privacy cost 1, or None if the workload is too large for it."""
    gram = _product_sum(workload)
    if gram is None:
        return None
    with one_core():
        return trace_root_bound(gram, axis_weights(gram))


def _product_sum(workload: Workload) -> ProductSum | None:
    schema = workload.schema
    asked = sorted({place for group in workload for place in schema.positions(group.attributes)})
    shape = tuple(schema.sizes[place] for place in asked)
    products = [group for group in workload if all(len(f.shape) == 1 for f in group.families)]
    joint = [group for group in workload if any(len(f.shape) > 1 for f in group.families)]
    cells, count = math.prod(shape), sum(group.rows for group in joint)
    most = limits()
    if not asked or cells > most.product_cells or max(shape) > most.limit_dimension:
        return None
    if cells * count**2 > most.product_work or count * cells > most.merged_entries:
        return None
    if len(products) > most.product_terms:
        return None
    terms: dict[tuple[object, ...], tuple[float, tuple[Array, ...]]] = {}
    for group in products:
        families = dict(zip(schema.positions(group.attributes), group.families, strict=True))
        key = tuple(families[place].key if place in families else None for place in asked)
        grams = (
            terms[key][1]
            if key in terms
            else tuple(
                families[place].gram() if place in families else np.ones((n, n))
                for place, n in zip(asked, shape, strict=True)
            )
        )
        terms[key] = (terms.get(key, (0.0, grams))[0] + group.weight, grams)
    rows = [_weighted_rows(workload, group, asked, shape) for group in joint]
    return ProductSum(tuple(terms.values()), np.concatenate([np.zeros((0, cells)), *rows]), shape)


def _weighted_rows(workload: Workload, group: Group, asked: list[int], shape: tuple[int, ...]) -> Array:
    """Return a group's queries over all cells, times the roots of their weights."""
    tensor = np.full((1,), math.sqrt(group.weight))
    order: list[int] = []
    for names, family in group.parts():
        own = PlacedFamily.own(family).weighted
        tensor = np.multiply.outer(tensor, own)
        tensor = np.moveaxis(tensor, 1 + len(order), 1)
        tensor = tensor.reshape(-1, *tensor.shape[2:])
        order += workload.schema.positions(names)
    tensor = tensor.transpose(0, *(1 + np.argsort(order)))
    spread = [n if place in order else 1 for place, n in zip(asked, shape, strict=True)]
    every = np.broadcast_to(tensor.reshape(-1, *spread), (len(tensor), *shape))
    return every.reshape(len(tensor), -1)
