"""Answers to a workload, with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError
from querysmasher.formatting import count
from querysmasher.html import element, notebook, table
from querysmasher.workload.workload import Workload

MAX_LABELS = 20_000_000
"""Maximum number of labelled rows of a frame; `Release.write` streams more to a file."""

SHOWN = 8
"""Number of answers shown in a notebook."""


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Unbiased answers, in the workload's order; `std` is the standard error of each."""

    workload: Workload
    values: Array
    std: Array

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return the lower and upper ends of confidence intervals, each with coverage `level`."""
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
            msg = f"level: expected a number between 0 and 1, got {level!r}"
            raise WorkloadError(msg)
        from scipy.special import ndtri  # noqa: PLC0415 - loads slowly, and only intervals need it

        reach = float(ndtri(0.5 + level / 2)) * self.std
        return self.values - reach, self.values + reach

    def to_frame(self, backend: Any = "pyarrow", level: float = 0.95) -> Any:
        """Return a table of query, value, standard error and interval.

        `backend` is any eager backend of narwhals that is installed: "pyarrow", "pandas", "polars", …
        """
        if len(self.values) > MAX_LABELS:
            msg = (
                f"to_frame: {len(self.values):,} labelled rows do not fit in memory; use "
                "release.write(workload, path)"
            )
            raise WorkloadError(msg)
        low, high = self.interval(level)
        columns = {
            "query": list(self.workload.labels()),
            "value": self.values,
            "std": self.std,
            "low": low,
            "high": high,
        }
        try:
            return nw.from_dict(columns, backend=backend).to_native()
        except (ImportError, ValueError, TypeError) as error:
            msg = (
                f"backend: {backend!r} is not an installed dataframe library that narwhals supports ({error})"
            )
            raise WorkloadError(msg) from None

    def __len__(self) -> int:
        """Count the answers."""
        return len(self.values)

    def __repr__(self) -> str:
        """Show the first answers with their standard errors."""
        first = zip(self.workload.labels(), self.values[:5], self.std[:5], strict=False)
        shown = [f"  {label}: {value:,.1f} ± {std:,.1f}" for label, value, std in first]
        more = [f"  … {len(self) - 5:,} more"] if len(self) > 5 else []
        return "\n".join([f"Answers to {len(self):,} queries (value ± standard error)", *shown, *more])

    def _repr_html_(self) -> str:
        """Show the first answers with their intervals in a notebook."""
        low, high = self.interval(0.95)
        rows = [
            (label, f"{self.values[i]:,.1f}", f"{self.std[i]:,.1f}", f"{low[i]:,.1f} … {high[i]:,.1f}")
            for i, label in zip(range(min(SHOWN, len(self))), self.workload.labels(), strict=False)
        ]
        more = f"… {len(self) - SHOWN:,} more; to_frame() returns all" if len(self) > SHOWN else None
        return notebook(
            f"Answers to {count(len(self), 'query', 'queries')}",
            table(["query", "value", "standard error", "95% interval"], rows, numbers=[1, 2, 3]),
            element("p", more) if more else None,
        )
