"""The distribution of the values at which the best strategy is known.

At the distribution p that maximises tr (P^½GP^½)^½, the best strategy is V = P^{-½}(P^½GP^½)^½P^{-½}, and all
of its V_jj are equal, but for values with p_j = 0. At any other, with v_j = V_jj, the loss of V / max v is
max v times the trace: so the spread of v is a certificate. A multiplicative step p ← p·v^rate with one rate
for all values converges slowly where some are hardly distinguished: their v barely depends on how they share
what they have together. So every value has a rate of its own, which grows while v stays on the same side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.large.path import Path
from querysmasher.planning.limits import limits

COARSE, NEAR = 1.2, 4.0
"""Step and reach of a quadrature that is wrong by 3e-4: strategies need no more, as errors are squared."""

FIRST, LEAST, MOST = 1.5, 0.5, 40.0
"""The rate at first, at least and at most."""

FASTER, SLOWER = 1.35, 0.55
"""What multiplies it."""

FAINT = 1e-9
"""Minimum of p, relative to its mean."""


@dataclass
class _Steps:
    """Multiplicative steps of a distribution, with a rate for every value."""

    p: Array
    rates: Array
    last: Array

    @classmethod
    def start(cls, weights: Array) -> _Steps:
        return cls(weights / weights.sum(), np.full(weights.size, FIRST), np.zeros(weights.size))

    def step(self, v: Array) -> None:
        """Increase p where v is above its mean."""
        now = np.log(v / float(self.p @ v))
        same = now * self.last
        factor = np.where(same > 0, FASTER, np.where(same < 0, SLOWER, 1.0))
        self.rates, self.last = np.clip(self.rates * factor, LEAST, MOST), now
        p = self.p * np.exp(np.clip(self.rates * now, -3.0, 3.0))
        p = np.maximum(p, FAINT * p.mean())
        self.p = p / p.sum()


@dataclass(frozen=True, eq=False)
class Balanced:
    """Two distributions: one whose strategy has the least loss, and one that proves the best bound."""

    best: Array
    proof: Array
    ratio: float
    """Loss relative to the bound."""


def balanced(path: Path, start: Array, steps: int) -> Balanced:
    """Return the distributions found in a number of steps."""
    own = _Steps.start(start)
    best = proof = own.p
    least, most = math.inf, 0.0
    for _ in range(steps):
        p = own.p
        root = path.root_diagonal(p, COARSE, NEAR)
        trace, v = float(root.sum()), root / p
        loss = float(v.max()) * trace
        if trace > most:
            most, proof = trace, p
        if loss < least:
            least, best = loss, p
        if least <= limits().balance_gap * most**2:
            break
        own.step(v)
    return Balanced(best, proof, least / most**2)


def fair_weights(n: int) -> Array:
    """Return the weights of n prefixes, with mean one, at which the best strategy answers all equally well.

    The weights λ of the prefixes and the distribution p of the values both maximise tr (P^½GP^½)^½, the
    nuclear norm of Λ^½LP^½. Reversing rows and columns transposes L, so that λ is p reversed.
    """
    own, best, least = _Steps.start(np.ones(n)), np.ones(n), math.inf
    for _ in range(limits().fair_steps):
        root = Path(own.p[::-1].copy()).root_diagonal(own.p, COARSE, NEAR)
        v = root / own.p
        spread = float(v.max()) / float(root.sum())
        if spread < least:
            least, best = spread, own.p[::-1] * n
        if least <= limits().fair_gap:
            break
        own.step(v)
    return best
