"""The files of estimates in a release folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from querysmasher.estimate.estimate import Estimate


def write_estimates(estimate: Estimate, folder: Path, form: str) -> list[str]:
    """Write the estimates of all queries, and the error of every table; return the names of the files."""
    from pyarrow import csv

    from querysmasher.release.outputs import ERRORS, ESTIMATES

    names = []
    if form != "none":
        names.append(f"{ESTIMATES}.{form}")
        estimate.write(estimate.workload, folder / names[0])
    csv.write_csv(estimate.errors().to_frame(), folder / ERRORS)
    return [*names, ERRORS]
