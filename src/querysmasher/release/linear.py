"""The noisy measurements themselves, as plain arrays for other methods, such as graphical models.

Each says y = (⊗ B_f)·x + noise: x the marginal on some attributes, B_f a matrix on some of them, and the
noise independent, with a stated variance per answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.release.measurements import Measurements


@dataclass(frozen=True, eq=False)
class LinearMeasurement:
    """Noisy answers to linear queries on one marginal."""

    attributes: tuple[str, ...]
    """The attributes of the marginal; none if the answer is the number of records."""
    shape: tuple[int, ...]
    """The number of values of each."""
    factors: tuple[tuple[tuple[str, ...], Array], ...]
    """Matrices on disjoint attributes; their columns run over the values in row-major order."""
    answers: Array
    """Noisy answers, with an axis per factor."""
    variances: Array
    """The variance of the noise of each answer. Noises are independent."""

    def matrix(self) -> Array:
        """Return the queries as one matrix over the cells of the marginal, a row per answer."""
        tensor: Array = np.ones(())
        order: list[str] = []
        size = dict(zip(self.attributes, self.shape, strict=True))
        for names, matrix in self.factors:
            tensor = np.multiply.outer(tensor, matrix.reshape(len(matrix), *(size[n] for n in names)))
            order += ["", *names]
        rows = [i for i, name in enumerate(order) if not name]
        tensor = tensor.transpose(rows + [order.index(name) for name in self.attributes])
        return tensor.reshape(self.answers.size, -1)


def linear_measurements(release: Measurements) -> Iterator[LinearMeasurement]:
    """Iterate over the measurements of a release."""
    plan = release.plan
    for number, measured in enumerate(plan.measured):
        names = plan.names(measured)
        factors, multiples = [], np.ones(())
        for axes, which in measured.blocks:
            strategy = plan.strategies[which]
            for own, factor in strategy.factors:
                factors.append((tuple(names[axes[a]] for a in own), factor.written_out()))
            kept = np.ones(strategy.rows) if strategy.multipliers is None else strategy.multipliers
            multiples = np.multiply.outer(multiples, kept)
        answers = release.store[number].astype(float).reshape(multiples.shape)
        variance, extra = plan.noise(measured, release.noise.distribution)
        variances = variance * multiples + extra
        if not names:  # the number of records is measured as a multiple
            answers = answers / factors[0][1].reshape(-1)[0]
            factors = [((), np.ones((1, 1)))]
        yield LinearMeasurement(names, plan.schema.shape(names), tuple(factors), answers, variances)
