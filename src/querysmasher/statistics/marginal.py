"""A marginal as an array that knows its labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError
from querysmasher.statistics.figures import Figures


class Marginal(np.ndarray[Any, np.dtype[np.float64]]):
    """An array of counts with an axis per attribute; `to_frame()` adds labels and standard errors.

    What is computed from it, such as a slice or a sum, has no labels.
    """

    _figures: Callable[[], Figures] | None

    @classmethod
    def of(cls, values: Array, figures: Callable[[], Figures]) -> Self:
        """Return the array with its labels; `figures` computes them when they are asked for."""
        made = np.asarray(values, dtype=float).view(cls)
        made._figures = figures  # noqa: SLF001 - of the same class
        return made

    def __array_finalize__(self, made_from: Any) -> None:
        """Drop the labels of what is made from a marginal."""
        self._figures = None

    def to_frame(self, backend: Any = "pyarrow", level: float = 0.95, **options: Any) -> Any:
        """Return one row per cell: the value of each attribute, then value, std, low, high, cv and flag.

        `options` are those of `Figures.to_frame`.
        """
        if self._figures is None:
            msg = "to_frame: only the marginal itself has labels, not what is computed from it"
            raise WorkloadError(msg)
        return self._figures().to_frame(backend, level, **options)
