"""Attribute sets that several phases measured by the same strategies, each time with noise of its own.

Independent measurements z_i of the same rows, with noise variances v_i, are combined into Σ_i w_i z_i with
weights w_i in proportion to 1/v_i: unbiased, and of the least variance of all unbiased combinations.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from querysmasher.arrays import Array
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.release.store import Store


def repeats(plan: IntegerPlan) -> list[tuple[int, ...]]:
    """Return the indexes of the measurements of each attribute set by the same strategies, in order."""
    found: dict[object, list[int]] = {}
    for number, measured in enumerate(plan.measured):
        found.setdefault((measured.attributes, measured.blocks), []).append(number)
    return [tuple(own) for own in found.values()]


def weights(plan: IntegerPlan, numbers: tuple[int, ...]) -> list[float]:
    """Return the weights of repeated measurements, which sum to one."""
    precisions = [1 / plan.measured[number].variance for number in numbers]
    total = sum(precisions, Fraction(0))
    return [float(one / total) for one in precisions]


def combined_answers(plan: IntegerPlan, store: Store, numbers: tuple[int, ...]) -> Array:
    """Return the best combination of the noisy answers of repeated measurements."""
    if len(numbers) == 1:
        return store[numbers[0]].astype(float)
    own = zip(weights(plan, numbers), numbers, strict=True)
    return np.asarray(sum(weight * store[number].astype(float) for weight, number in own))


def combined_noise(plan: IntegerPlan, noise: Distribution, numbers: tuple[int, ...]) -> tuple[float, float]:
    """Return the noise of the combination, as `IntegerPlan.noise` does for one measurement."""
    noises = [plan.noise(plan.measured[number], noise) for number in numbers]
    if len(noises) == 1:
        return noises[0]
    squares = [weight**2 for weight in weights(plan, numbers)]
    first, second = (
        sum(square * one[k] for square, one in zip(squares, noises, strict=True)) for k in (0, 1)
    )
    return first, second
