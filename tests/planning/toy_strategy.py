"""Toy kinds of strategies: one in a residual space, and one on an attribute that is not split."""

import math
from dataclasses import dataclass

import numpy as np

from querysmasher.planning.strategies import DenseStrategy, Strategy, UnsplitStrategy
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy


@dataclass(frozen=True, eq=False)
class StepStrategy(Strategy):
    """A toy: the differences of consecutive values of one attribute."""

    kind = "steps"

    size: int

    @property
    def shape(self):
        return (self.size,)

    @property
    def _dense(self):
        return DenseStrategy(self.shape, self.written_out())

    @property
    def rank(self):
        return self.size - 1

    spread = 1.0
    leverage = 1.0

    def written_out(self):
        return -np.diff(np.eye(self.size), axis=0) / math.sqrt(min(2, self.size - 1))

    def transform(self, rows):
        return self._dense.transform(rows)

    def covary(self, rows):
        return self._dense.covary(rows)

    def orthonormal(self):
        return self._dense.orthonormal()

    def variances(self, factors):
        return self._dense.variances(factors)

    def contains(self, factors):
        return True

    def rounded(self, centres, bits):
        matrix = -np.diff(np.eye(self.size, dtype=np.int64), axis=0) << bits - 1
        return IntegerStrategy(self.shape, (((0,), Matrix(matrix)),))

    def rounding_loss(self, rounded):
        return 1.0

    @classmethod
    def of_integers(cls, strategy):
        return None  # its rows become dense ones

    def is_sound(self):
        return self.size > 1

    def stands_on(self, centres):
        return all(centre.is_uniform for centre in centres)

    def to_data(self):
        return {"size": self.size}

    @classmethod
    def from_data(cls, data):
        return cls(int(data["size"]))


@dataclass(frozen=True, eq=False)
class CountStrategy(UnsplitStrategy):
    """A toy: `step` times the count of every value of one attribute."""

    kind = "counts"

    size: int
    step: float = 1.0

    spread = 1.0

    @property
    def shape(self):
        return (self.size,)

    @property
    def rank(self):
        return self.size

    @property
    def leverage(self):
        return self.step**2

    @property
    def inverse_ones(self):
        return np.full(self.size, 1 / self.step**2)

    def written_out(self):
        return self.step * np.eye(self.size)

    def transform(self, rows):
        return rows / self.step

    def covary(self, rows):
        return rows / self.step**2

    def orthonormal(self):
        return CountStrategy(self.size)

    def query_variances(self, family):
        return (family.original.matrix() ** 2).sum(axis=1) / self.step**2

    def loss(self, family, *, weighted=True):
        variances = self.query_variances(family)
        return float(
            variances.sum() if family.weights is None or not weighted else family.weights @ variances
        )

    def rounded(self, centres, bits):
        return IntegerStrategy(self.shape, (((0,), Matrix(np.eye(self.size, dtype=np.int64) << bits - 1)),))

    def rounding_loss(self, rounded):
        return 1.0

    @classmethod
    def of_integers(cls, strategy):
        """Accept a multiple of an identity matrix."""
        rows = [factor.entries for _, factor in strategy.factors if factor.kind == Matrix.kind]
        if len(strategy.shape) != 1 or len(rows) != 1 or len(rows[0]) != strategy.shape[0]:
            return None
        step = float(rows[0][0, 0])
        return cls(*strategy.shape, step) if np.array_equal(rows[0], step * np.eye(*strategy.shape)) else None

    def is_sound(self):
        return self.size > 1

    def to_data(self):
        return {"size": self.size, "step": self.step}

    @classmethod
    def from_data(cls, data):
        return cls(data["size"], data["step"])
