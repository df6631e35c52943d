"""Large attributes that are asked separately share what they measure of the total.

Let block i measure attribute i as it is, with a share β_i of the cost, and let t be the total. Around the
centre of V_i it measures t with precision β_i c_i, c_i = 1/1ᵀV_i⁻¹1, and independently the rest of its
attribute. All blocks together know the total with precision B = Σ β_i c_i, and the loss is

    F(β) = Σ_i R_i/β_i + (κ + Σ_i m_i)/B,   m_i = w_iᵀG_iw_i,   R_i = tr(G_iV_i⁻¹) − m_i/c_i.

With a single block this is tr(G V⁻¹) + κ/c. Measuring the total in one block or in several costs the same,
as 11ᵀ has a constant diagonal; so one block may carry the total for all others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.large.forest import solve_forest
from querysmasher.planning.large.gram import LineGram
from querysmasher.planning.large.line import LineSolution, adapted, solve_line, value_weights
from querysmasher.planning.large.path import joint_bound
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies import UnsplitStrategy
from querysmasher.workload.family import Family


@dataclass(frozen=True, eq=False)
class CentredGram(LineGram):
    """The Gram matrix of what queries leave beside the total, around a centre."""

    centre: Array = None  # type: ignore[assignment]

    def times(self, rows: Array) -> Array:
        left = super().times(rows - rows.sum(axis=-1, keepdims=True) * self.centre)
        return np.asarray(left - (left @ self.centre)[..., None])


@dataclass(frozen=True, eq=False)
class Product:
    """Strategies on the large attributes of one block."""

    strategies: Mapping[int, UnsplitStrategy]

    @cached_property
    def total_variance(self) -> float:
        """The variance of the total."""
        return math.prod(s.total_variance for s in self.strategies.values())

    def loss(self, families: Mapping[int, Family]) -> float:
        """Return the sum of weight × variance of products of queries."""
        return math.prod(
            s.loss(families[a]) if a in families else s.total_variance for a, s in self.strategies.items()
        )

    def total_loss(self, families: Mapping[int, Family]) -> float:
        """Return the sum of weight × (q·w)², the part of the total: Σ (q V⁻¹1)² / (1ᵀV⁻¹1)²."""
        result = 1.0
        for attribute, strategy in self.strategies.items():
            if attribute in families:
                centre = strategy.inverse_ones / strategy.total_variance
                gram = LineGram.of(centre.size, [(families[attribute], 1.0)])
                result *= float(gram.times(centre[None])[0] @ centre)
        return result


def shares(
    rests: Sequence[float], precisions: Sequence[float], total: float | None
) -> tuple[list[float], float]:
    """Return the shares β that minimise F, and the precision B.

    `total` is κ + Σ m, or None if the total is public.
    """
    rest, precision = np.maximum(np.asarray(rests), 1e-300), np.asarray(precisions)
    if total is None:
        beta = np.sqrt(rest)
        return list(beta / beta.sum()), math.inf
    if rest.size == 1:
        return [1.0], float(precision[0])
    beta = np.sqrt(rest) + 1e-9
    beta /= beta.sum()
    for _ in range(400):
        slope = rest / beta**2 + total * precision / float(beta @ precision) ** 2
        beta = beta * np.sqrt(slope)
        beta /= beta.sum()
    return beta.tolist(), float(beta @ precision)


class Lines:
    """Finds strategies for large attributes, each once for queries that are equal up to scale."""

    def __init__(self, *, trees: bool = False, fine: bool = False) -> None:
        """Start with none; with `trees`, single values are nodes of a tree; `fine` as in `solve_line`."""
        self.trees, self.fine = trees, fine
        self._known: dict[Hashable, LineSolution] = {}
        self._joint: dict[Hashable, list[list[LineSolution]]] = {}
        self._bounds: dict[Hashable, float] = {}

    def solve(self, gram: LineGram) -> LineSolution:
        """Return a strategy for one attribute alone."""
        scale, key = gram.scaled_key()
        if key not in self._known:
            own = gram.scaled(1 / scale)
            self._known[key] = solve_forest(own, always=self.trees) or self._with_trees(own)
        found = self._known[key]
        root = math.sqrt(scale)
        return LineSolution(
            found.strategy, found.loss * scale, found.bound * scale, found.start, found.rest * root
        )

    def _with_trees(self, gram: LineGram) -> LineSolution:
        """Return a strategy for prefixes and ranges, perhaps with hierarchies of ranges.

        The least loss of a sum is at least the sum of the least losses.
        """
        found = solve_line(gram, fine=self.fine)
        trees = [(family, weight) for family, weight in gram.asked if family.is_tree]
        rest = [(family, weight) for family, weight in gram.asked if not family.is_tree]
        if not trees:
            return found
        parts = [LineGram.of(gram.size, trees), LineGram.of(gram.size, rest, gram.total)]
        bound = max(found.bound, sum(self.solve(part).bound for part in parts))
        return replace(found, bound=min(bound, found.loss))

    def choices(
        self, grams: Sequence[Sequence[LineGram]], total: float | None
    ) -> Iterator[list[list[LineSolution]]]:
        """Iterate over choices of strategies for blocks of large attributes that share a total.

        Either each block measures the total for itself, or one for all.
        """
        alone = [[self.solve(gram) for gram in some] for some in grams]
        if len(grams) == 1 and total is not None:
            ((one, *more),) = alone
            if more or total * one.strategy.total_variance <= limits().negligible_total * one.loss:
                yield alone
            else:
                yield [[self.solve(replace(grams[0][0], total=grams[0][0].total + total))]]
            return
        yield alone
        trees = any(f.is_tree for some in grams for gram in some for f, _ in gram.asked)
        if trees or any(len(some) > 1 for some in grams):
            return
        flat = [some[0] for some in grams]
        keys = tuple(gram.scaled_key()[1] for gram in flat)
        scales = [gram.scaled_key()[0] for gram in flat]
        key = (
            keys,
            tuple(f"{scale / scales[0]:.6e}" for scale in scales),
            total and f"{total / scales[0]:.6e}",
        )
        if key not in self._joint:
            self._joint[key] = [[own] for own in _carried(flat, [some[0] for some in alone], total, self)]
        yield self._joint[key]

    def bound(self, gram: LineGram, total: float, solution: LineSolution) -> float:
        """Return a lower bound on the loss of one attribute with a total of some weight."""
        own = self.solve(gram)
        if solution.strategy is own.strategy:
            return own.bound + total
        return self.solve(replace(gram, total=gram.total + total)).bound

    def shared(
        self, grams: Sequence[LineGram], solutions: Sequence[LineSolution], total: float | None
    ) -> float:
        """Return a lower bound on the loss of several attributes that share a total."""
        first = grams[0].scaled_key()[0]
        keys = tuple((gram.scaled_key()[1], f"{gram.scaled_key()[0] / first:.9e}") for gram in grams)
        key = (keys, total and f"{total / first:.9e}")
        if key not in self._bounds:
            self._bounds[key] = shared_bound(grams, solutions, total) / first
        return self._bounds[key] * first

    def alone(self, size: int, family: Family) -> float:
        """Return a lower bound on the loss of one family."""
        return self.solve(LineGram.of(size, [(family, 1.0)])).bound


def _carried(
    grams: Sequence[LineGram], alone: Sequence[LineSolution], total: float | None, lines: Lines
) -> list[LineSolution]:
    """Return strategies of which one measures the total for all, and the others hardly at all."""
    found: dict[Hashable, tuple[LineSolution, float]] = {}
    rest, squares = [], []
    for gram, solution in zip(grams, alone, strict=True):
        scale, key = gram.scaled_key()
        if key not in found:
            found[key] = _beside_total(gram.scaled(1 / scale), solution, public=total is None)
        own, square = found[key]
        rest.append(LineSolution(own.strategy, own.loss * scale, own.bound * scale, own.start))
        squares.append(square * scale)
    if total is None:
        return rest
    heaviest = int(np.argmax([s.loss for s in alone]))
    others = total + sum(squares) - squares[heaviest]
    first = lines.solve(replace(grams[heaviest], total=grams[heaviest].total + others))
    return [first if i == heaviest else own for i, own in enumerate(rest)]


def _beside_total(gram: LineGram, alone: LineSolution, *, public: bool) -> tuple[LineSolution, float]:
    """Return a strategy for what queries leave beside the total, and their weight on the total.

    If everyone knows the total, the best centre is the distribution p of the values that proves the bound:
    all columns have the same distance from Σ p_j b_j. Else it is that of the strategy for the queries alone.
    A few rounds adapt the strategy and its centre to each other.
    """
    fields = {name: getattr(gram, name) for name in gram.__dataclass_fields__}
    strategy: UnsplitStrategy = alone.strategy
    start = np.ones(gram.size) if alone.start is None else alone.start
    for _ in range(limits().shared_rounds):
        centre = start / start.sum() if public else strategy.inverse_ones / strategy.total_variance
        found = adapted(CentredGram(**fields, centre=centre), "cosine", beside_total=public)
        strategy, start = found, value_weights(gram, found)
    centre = strategy.inverse_ones / strategy.total_variance
    square = float(gram.times(centre[None])[0] @ centre)
    return LineSolution(strategy, gram.loss(strategy), 0.0, start), square


def shared_bound(grams: Sequence[LineGram], solutions: Sequence[LineSolution], total: float | None) -> float:
    """Return a lower bound on the loss of all attributes together, at unit cost."""
    paths = [gram.path() for gram in grams]
    known = [path for path in paths if path is not None]
    starts = [s.start for s in solutions if s.start is not None]
    same = len(known) == len(starts) == len(grams)
    if same and all(p.size == g.size for p, g in zip(known, grams, strict=True)):
        return max(joint_bound(known, starts, total, steps) for steps in (1, limits().path_steps)) ** 2
    # what is asked beside the total lies in a space of its own for each attribute, so its roots add up
    beside = math.fsum(s.rest for s in solutions) ** 2
    if total is not None:
        return max(beside, max(s.bound for s in solutions) + total)
    # single values: the best residual strategy is even
    least = [
        0.0 if gram.values is None else float(gram.values.min()) * (gram.size - 1) ** 2 / gram.size
        for gram in grams
    ]
    return max(beside, *least)
