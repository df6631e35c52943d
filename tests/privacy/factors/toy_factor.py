"""A toy kind of factor."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors import WORD, Factor
from querysmasher.privacy.factors.factor import given


@dataclass(frozen=True, eq=False)
class Differences(Factor):
    """A toy: `step` times the difference of every two cells that follow each other."""

    kind = "differences"
    stored: ClassVar = {"size": given, "step": given}

    size: int
    step: int

    def __post_init__(self):
        if (
            type(self.size) is not int
            or type(self.step) is not int
            or self.size < 2
            or abs(self.step) >= WORD
        ):
            raise PrivacyError("differences: expected two integers")

    @property
    def rows(self):
        return self.size - 1

    @property
    def cells(self):
        return self.size

    @property
    def largest(self):
        return abs(self.step)

    def squared_column(self):
        return self.step**2 * min(2, self.rows)

    def exact_answers(self, tables, bound):
        return -self.step * np.diff(tables.astype(np.int64), axis=0)

    def transposed(self, answers):
        padded = np.pad(answers, [(1, 1), *[(0, 0)] * (answers.ndim - 1)])
        return self.step * np.diff(padded, axis=0)
