"""Estimates as a file of tidy rows, with its description beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from querysmasher.arrays import Array
from querysmasher.endings import check_ending
from querysmasher.estimate.answers import EstimateTidy
from querysmasher.extras import check_excel
from querysmasher.files import replacing
from querysmasher.formatting import cell
from querysmasher.progress import Bar
from querysmasher.release.formats import WRITERS
from querysmasher.release.writing import ENDINGS, MAX_QUERIES, write_description
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
    ending = check_ending(path, ENDINGS)
    if ending == ".xlsx":
        check_excel()
    safe = cell if ending.startswith(".csv") else str
    tidy = EstimateTidy(workload, queries=workload.query_count <= MAX_QUERIES, safe=safe)
    with (
        replacing(path) as temporary,
        WRITERS[ending](temporary, tidy.schema, about) as writer,
        Bar("Writing", len(workload.groups), progress) as bar,
    ):
        for group, values in zip(workload, answers(workload), strict=True):
            for table in tidy.estimates(group, values):
                writer.write(table if adopted is None else adopted(table))
            bar.advance()
    write_description(Path(path), tidy, about, writer.sheets)
