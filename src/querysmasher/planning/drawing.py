"""How pairs of cells are drawn for the bound on every plan, if a record is replaced.

For any distribution of pairs of cells, no plan around given centres has a root loss below the sum over
attribute sets A of tr M_A^½, M_A = R_A E[(e_u - e_v)(e_u - e_v)ᵀ] R_Aᵀ, with rows R_A of its queries
(`solvers.design`). If both cells are drawn independently with the weights w of the centres, which R_A
maps to zero, M_A is 2 R_A diag(w) R_Aᵀ: it has product form, and is known for every block.

Other draws multiply it. Some attributes agree in both cells, and have the weights w. The others are drawn
independently, but equal values less often: with probabilities (1 + c) w_a w_b - c w_a [a = b], which are
not negative for c up to the least w_a/(1 - w_a). So with ρ = 1 where an attribute agrees and -c where
not, M_A is multiplied by 1 - Π ρ over A, and the bound by its root. (If R_A does not map w to zero, as where
centres have negative weights, the bound of a block is that for independent values, and c is zero.)

A mixture of such draws multiplies M_A by the mean of these factors. Pairs of equal cells change nothing,
and are left out. The best mixture is the same problem as the best noise (`prices`): its dual, in fact, and
for marginals of attributes that are drawn evenly the two meet. The draws that matter join one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.prices import prices_of_pairs
from querysmasher.planning.split import Subworkload

WRITTEN_OUT = 1_000_000
"""Maximum number of factors, draws × sets, that are written out."""

NEAR = 1e-3
"""Another draw may have a larger sum of factors by this fraction: half of it in the bound."""


def raised(
    bounds: Sequence[float],
    sets: Sequence[Subworkload],
    agreed: Collection[int],
    independent: Collection[int],
) -> list[float]:
    """Return the bounds of attribute sets where pairs are drawn in the best way found.

    Given are those for independent draws, attributes on which all pairs agree, and attributes that are
    always drawn independently where they do not agree.
    """
    kept = [i for i, bound in enumerate(bounds) if bound * sets[i].quality > 0]
    if not kept:
        return list(bounds)
    r = np.array([bounds[i] * sets[i].quality for i in kept])
    draws = _Draws.of([sets[i] for i in kept], sets, agreed, independent)
    roots = np.sqrt(prices_of_pairs(draws, r, draws.independent, NEAR))
    result = list(bounds)
    for i, root in zip(kept, roots.tolist(), strict=True):
        result[i] *= root
    return result


class _Draws:
    """The draws in which every attribute agrees or not, and the factors by which they multiply the M_A."""

    def __init__(self, sets: Sequence[Sequence[int]], least: Array, squares: Array) -> None:
        """Take, for every attribute, -c and Σw²: both are one if all pairs agree on it."""
        self.least, self.squares = least, squares
        by_size: defaultdict[int, list[int]] = defaultdict(list)
        for i, attributes in enumerate(sets):
            by_size[len(attributes)].append(i)
        self.by_size: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = [
            (np.array(rows), np.array([sets[i] for i in rows]).reshape(len(rows), size))
            for size, rows in by_size.items()
        ]
        self.count = len(sets)

    @classmethod
    def of(
        cls,
        sets: Sequence[Subworkload],
        every: Sequence[Subworkload],
        agreed: Collection[int],
        independent: Collection[int],
    ) -> _Draws:
        """Return the draws around the centres of attribute sets."""
        weights: Mapping[int, Array] = {
            s.attributes[axis]: centre.weights
            for s in every
            for piece in s.terms[0].pieces
            for axis, centre in zip(piece.axes, piece.part.centres, strict=True)
        }
        places = {a: n for n, a in enumerate(sorted({a for s in every for a in s.every_attribute}))}
        least, squares = np.zeros(len(places)), np.zeros(len(places))
        for a, place in places.items():
            if a in agreed:
                least[place] = squares[place] = 1.0
            elif a in weights and a not in independent:
                w = np.maximum(weights[a], 0.0)
                w /= w.sum()
                squares[place] = w @ w
                some = w[w > 0]
                if some.size == len(w) > 1 and np.all(weights[a] > 0):
                    least[place] = -float((some / (1 - some)).min())
        return cls([[places[a] for a in s.every_attribute] for s in sets], least, squares)

    def largest(self, weights: Array) -> tuple[float, Array]:
        """Return a large sum of weights × factors, and the factors of the draw that has it."""
        if self.written_out is None:
            tried = self._factors(self._climbed(self.least.copy(), weights)[None])
        else:
            tried = self.written_out
        values = tried @ weights
        best = int(np.argmax(values))
        return float(values[best]), tried[best]

    @cached_property
    def written_out(self) -> Array | None:
        """The factors of all draws in which some attributes agree, or none; None if they are many."""
        free = np.flatnonzero(self.least < 1)
        if len(free) > 20 or self.count << len(free) > WRITTEN_OUT:
            return None
        agree = (np.arange((1 << len(free)) - 1)[:, None] >> np.arange(len(free))) & 1
        draws = np.ones((len(agree), len(self.least)))
        draws[:, free] = np.where(agree, 1.0, self.least[free])
        return self._factors(draws)

    @property
    def independent(self) -> Array:
        """The factors where all values are independent: pairs then differ everywhere."""
        return self._factors(np.where(self.least < 1, 0.0, 1.0)[None])[0]

    def _factors(self, draws: Array) -> Array:
        """Return 1 - Π ρ for every draw and set, where pairs of equal cells are left out."""
        equal = np.prod(draws + (1 - draws) * self.squares, axis=1)
        result = np.empty((len(draws), self.count))
        for rows, members in self.by_size:
            result[:, rows] = 1 - draws[:, members].prod(axis=2)
        return result / (1 - equal)[:, None]

    def _climbed(self, rho: Array, weights: Array) -> Array:
        """Return a draw that no change of one attribute makes better, equal cells aside."""
        for _ in range(4 * len(rho)):
            slopes = np.zeros(len(rho))
            for rows, members in self.by_size:
                values = rho[members]
                for place in range(members.shape[1]):
                    others = np.delete(values, place, axis=1).prod(axis=1)
                    slopes -= np.bincount(members[:, place], weights[rows] * others, len(rho))
            gains = slopes * (np.where(rho == self.least, 1.0, self.least) - rho)
            one = int(np.argmax(gains))
            if gains[one] <= 1e-9 * float(weights.sum()):
                break
            rho[one] = 1.0 if rho[one] == self.least[one] else self.least[one]
        return rho
