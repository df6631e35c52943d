"""An attribute that combines several: its values are the combinations of theirs that are possible.

Where a schema states which combinations are impossible, planning ties the attributes together
(`planning.tying`). What is planned, measured and accounted is then about such an attribute, so that
impossible cells have no column anywhere: they have no answer, no noise and no part in the sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.attributes import Attribute, Label


@dataclass(frozen=True, repr=False)
class Combinations(Attribute):
    """Some combinations of the values of several attributes.

    >>> from querysmasher import Ordinal
    >>> both = Combinations("a × b", (Ordinal("a", range(2)), Ordinal("b", range(3))), cells=(0, 4, 5))
    >>> both.size, [index.tolist() for index in both.column_indexes]
    (3, [[0, 1, 1], [0, 1, 2]])
    """

    values: Sequence[Label] = field(init=False, default=())
    parts: tuple[Attribute, ...] = ()
    cells: tuple[int, ...] = ()
    """The combinations, as increasing indexes of cells of the table on the parts, in row-major order."""

    def __post_init__(self) -> None:
        """Number the combinations."""
        object.__setattr__(self, "values", range(len(self.cells)))
        super().__post_init__()

    @property
    def columns(self) -> tuple[Attribute, ...]:
        return self.parts

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each part."""
        return tuple(part.size for part in self.parts)

    @property
    def column_indexes(self) -> tuple[NDArray[np.intp], ...]:
        return np.unravel_index(np.array(self.cells, dtype=np.intp), self.shape)

    def combined(self, codes: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the index of the combination of each record, or `size` where it has none."""
        return self._numbers[np.ravel_multi_index([*codes], self.shape, mode="clip")]

    @cached_property
    def _numbers(self) -> NDArray[Any]:
        """The number of the combination in every cell of the table on the parts."""
        numbers = np.full(math.prod(self.shape), self.size, np.min_scalar_type(self.size))
        numbers[list(self.cells)] = np.arange(self.size)
        return numbers

    def _stated(self) -> str:
        return f"{self.size:,} of {math.prod(self.shape):,} combinations"

    def _domain(self) -> dict[str, Any]:
        return {"parts": [part.to_json() for part in self.parts], "cells": [*self.cells]}
