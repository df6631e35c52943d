"""Toy kinds of strategies: one around the centres of a plan, and one that brings its own."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from querysmasher.planning.strategies import AxisStrategy, DenseStrategy, Strategy
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy


@dataclass(frozen=True, eq=False)
class StepStrategy(Strategy):
    """A toy: the differences of consecutive values of one attribute."""

    kind = "steps"
    stored: ClassVar = {"size": int}

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

    @classmethod
    def of_integers(cls, rounded):
        raise NotImplementedError  # its rows become dense ones

    def _is_sound(self):
        return self.size > 1

    def stands_on(self, centres):
        return all(centre.is_uniform for centre in centres)


@dataclass(frozen=True, eq=False)
class CountAxis(AxisStrategy):
    """A toy: the count of every value of one attribute, around a centre of its own, V = scale × I."""

    kind = "counts"
    stored: ClassVar = {"size": int, "scale": float}

    size: int
    scale: float = 1.0
    moved = None

    @property
    def shape(self):
        return (self.size,)

    def scaled(self, factor):
        return CountAxis(self.size, self.scale * factor)

    @property
    def squares(self):
        return np.full(self.size, self.scale)

    def answers_whole(self, tables):
        return math.sqrt(self.scale) * tables

    def covary_whole(self, rows):
        return rows / self.scale

    def orthonormal(self):
        return CountAxis(self.size)

    def whole_variances(self, family):
        return (family.matrix() ** 2).sum(axis=1) / self.scale

    def rounded(self, centres, bits):
        matrix = (self.size * np.eye(self.size, dtype=np.int64) - 1) << bits
        return IntegerStrategy(self.shape, (((0,), Matrix(matrix)),))

    @classmethod
    def of_integers(cls, rounded):
        raise NotImplementedError  # its rows become those of a matrix

    def _is_sound(self):
        return self.size > 1
