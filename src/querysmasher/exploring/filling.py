"""Water-filling: how precisely to measure each part of the tables, for the least error of the tables.

The expected distance E_k of part k from its estimate decreases with its precision (`fill`). Errors of parts
are independent, so the error of a table on the set A is √Σ_{k⊆A} E_k². We minimise Σ_A w_A √Σ_{k⊆A} E_k²,
which is convex in the precisions: E_k is, and the norm increases in each. At the optimum, the derivative with
respect to E_k is the weight ω_k = Σ_{A⊇k} w_A E_k / √Σ_{l⊆A} E_l². So it is also the optimum of Σ_k ω_k E_k
with these weights held fixed, which water-filling solves. A few rounds of weighting and water-filling find
it. (If tables are mostly noise, E_k is in proportion to b_k^(-1/2), and each round divides the logarithm of
the error of each weight by three.)

Water-filling divides a budget among tables whose cells have prior variances, at the least expected absolute
error. A cell with prior variance v that is measured at precision b (one divided by the variance of the
noise) has the posterior variance v/(1 + v b), and an expected absolute error in proportion to its root. The
precisions b_k >= 0 of tables k minimise Σ_k w_k Σ_c √(v_kc/(1 + v_kc b_k)) at the cost Σ_k c_k b_k <= β. The
problem is convex and separable: with a multiplier λ, the gain of table k at the margin,
g_k(b) = w_k Σ_c v^(3/2) (1 + v b)^(-3/2) / 2, decreases in b, so that either g_k(b_k) = λ c_k, or b_k = 0
where g_k(0) <= λ c_k: a table without enough signal gets nothing. One bisection finds λ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.evidence import AttributeSet
from querysmasher.estimate.fitting import quotient
from querysmasher.estimate.table_model import Model

EXACT = 1e-10
"""Relative accuracy of precisions."""


def fill(variances: Array, counts: Array, weights: Array, costs: Array, budget: float) -> Array:
    """Return the precision of every table, at least zero, whose costs add up to the budget.

    `variances` are those of classes of cells, a row per table, with `counts` cells in each class; `costs` are
    privacy costs of a precision of 1. Without any prior variance, all precisions are zero.
    """
    roots = counts * variances * np.sqrt(variances) * (weights / 2 / costs)[:, None]  # g(0)/c, by class
    start = roots.sum(axis=1)
    precisions = np.zeros(len(start))
    low, high = 0.0, float(start.max())  # the multiplier; at `high` nothing is measured
    for _ in range(100 if high else 0):
        middle = np.sqrt(low * high) if low else high / 1e3
        precisions = _precisions(roots, variances, start, middle, precisions)
        spent = float(precisions @ costs)
        if abs(spent - budget) <= EXACT * budget:
            break
        low, high = (low, middle) if spent < budget else (middle, high)
        if low and high / low - 1 <= EXACT:
            break
    return precisions * (budget / max(float(precisions @ costs), 1e-300))


def _precisions(roots: Array, variances: Array, start: Array, level: float, guess: Array) -> Array:
    """Return b with g(b)/c = level, and zero where g(0)/c is below, by Newton's method from a guess.

    The method solves for g^(-2/3), which is linear in b for one class of cells, and concave for several (a
    CES function of linear ones). So every step ends to the left of the solution, and few are needed.
    """
    b = np.where(start > level, guess, 0.0)
    busy = np.flatnonzero(start > level)
    for _ in range(60):
        if not busy.size:
            break
        factor = 1.0 / (1.0 + variances[busy] * b[busy, None])
        gains = roots[busy] * factor * np.sqrt(factor)
        gain, slope = gains.sum(axis=1), -1.5 * (gains * variances[busy] * factor).sum(axis=1)
        steps = -1.5 * gain * ((gain / level) ** (2 / 3) - 1) / slope
        moved = np.maximum(b[busy] + steps, 0.0)
        still = np.abs(moved - b[busy]) > EXACT * moved
        b[busy] = moved
        busy = busy[still]
    return b


CLASSES, DECADES = 24, 8
"""Cells are classed by their expected counts, from 10^-8 of the largest to the largest."""

MEAN = math.sqrt(2 / math.pi)
"""The expected absolute value of a standard normal number."""


def profile(table: Array) -> Array:
    """Return the number of cells in each class of similar counts, and the mean root of these counts."""
    cells = np.maximum(table.ravel(), 0.0)
    largest = float(cells.max(initial=0.0))
    if not largest:
        return np.zeros((2, CLASSES))
    levels = (np.log10(np.maximum(cells / largest, 1e-300)) + DECADES) * (CLASSES / DECADES)
    classes = np.clip(levels, 0, CLASSES - 1).astype(np.int64)
    counts = np.bincount(classes, minlength=CLASSES).astype(float)
    sums = np.bincount(classes, weights=np.sqrt(cells), minlength=CLASSES)
    return np.stack([counts, sums / np.maximum(counts, 1.0)])


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of tables with prior variances, among which water-filling divides a budget."""

    sets: tuple[AttributeSet, ...]
    variances: Array
    """By part and class of cells."""
    counts: Array

    @classmethod
    def of_distances(cls, sets: Iterable[AttributeSet], distances: Array, profiles: Sequence[Array]) -> Parts:
        """Return parts with the given expected distances; variances are in proportion to expected counts."""
        counts, roots = np.stack(profiles, axis=1)
        scale = quotient(distances, MEAN * (counts * roots).sum(axis=1))
        return cls(tuple(sets), (scale[:, None] * roots) ** 2, counts)

    @classmethod
    def of_noise(cls, singles: Iterable[AttributeSet], model: Model) -> Parts:
        """Return single attributes with the variances of their non-negative estimates.

        These are smaller in small cells than the variance of the noise.
        """
        counts, roots = np.stack([profile(model.single(a)) for (a,) in singles], axis=1)
        residuals = map(model.evidence.noisy, singles)
        std = np.sqrt([0.0 if noisy is None else noisy.variance for noisy in residuals])[:, None]
        return cls(tuple(singles), np.minimum(std**2, std * np.maximum(roots**2, 0.1 * std)), counts)

    @property
    def errors(self) -> Array:
        """The expected distance of each part from its estimate."""
        return np.asarray(MEAN * (self.counts * np.sqrt(self.variances)).sum(axis=-1))

    def __add__(self, other: Parts) -> Parts:
        """Return the parts of both."""
        return Parts(
            self.sets + other.sets,
            np.concatenate([self.variances, other.variances]),
            np.concatenate([self.counts, other.counts]),
        )

    def after(self, precisions: Array) -> Parts:
        """Return the parts with their variances after measurements at these precisions."""
        left = self.variances / (1 + self.variances * precisions[:, None])
        return Parts(self.sets, left, self.counts)


ROUNDS = 5
"""Number of rounds of weighting parts by their contribution to the errors of tables."""


def filled(parts: Parts, tables: Mapping[AttributeSet, float], costs: Array, budget: float) -> Array:
    """Return the precision of every part, whose costs add up to the budget.

    `tables` are the sets of the tables and their weights, and `costs` the privacy costs of a precision of 1.
    """
    number = {subset: i for i, subset in enumerate(parts.sets)}
    inside = [
        (table, number[part])
        for table, subset in enumerate(tables)
        for order in range(1, min(len(subset), 3) + 1)
        for part in combinations(subset, order)
        if part in number
    ]
    which, part = np.array(inside, dtype=np.int64).reshape(-1, 2).T
    importance = np.array(list(tables.values()))[which]
    contributions = np.ones(len(part))
    for _ in range(ROUNDS):
        weights = np.bincount(part, weights=importance * contributions, minlength=len(number))
        precisions = fill(parts.variances, parts.counts, weights.astype(float), costs, budget)
        errors = parts.after(precisions).errors[part]
        whole = np.sqrt(np.bincount(which, weights=errors**2, minlength=len(tables)))[which]
        if not whole.any():
            break
        contributions = quotient(errors, whole)
    return precisions
