"""Estimates as a file of tidy rows, with its description beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from querysmasher.arrays import Array
from querysmasher.estimate.answers import EstimateTidy
from querysmasher.release.outputs import format_of
from querysmasher.release.writing import MAX_QUERIES, write_tables
from querysmasher.workload.workload import Workload


def write_estimates(
    answers: Callable[[Workload], Iterable[Array]],
    about: Mapping[str, Any],
    workload: Workload,
    path: str | os.PathLike[str],
    progress: bool | None,
    adopted: Callable[[Any], Any] | None = None,
) -> None:
    """Write one row per query: what it counts, its value and the note that it is an estimate.

    `answers` iterates over the answers to the groups, in order. The ending of the name decides the format;
    the file appears under its name only when it is complete. `adopted` changes the tables before they are
    written.
    """
    form = format_of(path)
    form.check()
    tidy = EstimateTidy(workload, queries=workload.query_count <= MAX_QUERIES, safe=form.safe)
    groups = (tidy.estimates(*pair) for pair in zip(workload, answers(workload), strict=True))
    write_tables(Path(path), form, tidy, about, groups, progress, adopted)
