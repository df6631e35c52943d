"""Answers as a file of tidy rows, one attribute set at a time, with its description beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from querysmasher.arrays import one_core
from querysmasher.endings import check_ending
from querysmasher.extras import check_excel
from querysmasher.files import replacing
from querysmasher.formatting import cell
from querysmasher.progress import Bar
from querysmasher.release.description import about, write_description
from querysmasher.release.formats import WRITERS
from querysmasher.release.released import Released
from querysmasher.release.tidy import Tidy
from querysmasher.statistics.reliability import Rules, checked_level
from querysmasher.workload.workload import Group, Workload

ENDINGS = tuple(WRITERS)
"""Allowed endings of file names."""

MAX_QUERIES = 20_000_000
"""Number of rows up to which each states its query as a predicate; beyond, only where columns cannot."""


def write_answers(
    release: Released,
    workload: Workload,
    path: str | os.PathLike[str],
    progress: bool | None,
    level: float = 0.95,
    rules: Rules | None = None,
    adopted: Callable[[Any], Any] | None = None,
) -> None:
    """Write one row per query: what it counts, value, standard error, interval, cv and flag.

    The ending of the name decides the format. In a CSV file, a spreadsheet reads no name as a formula. The
    file appears under its name only when it is complete; `datapackage.json` beside it describes it. `adopted`
    changes the tables before they are written.
    """
    ending = check_ending(path, ENDINGS)
    if ending == ".xlsx":
        check_excel()
    release.estimator.prepare(workload)
    for group in workload:
        release.estimator.check(group)  # before anything is written
    safe = cell if ending.startswith(".csv") else str
    queries = workload.query_count <= MAX_QUERIES
    tidy = Tidy(workload, level, rules, queries=queries, exact=False, safe=safe)
    source = about(release, checked_level(level), tidy.rules)
    with (
        one_core(),
        replacing(path) as temporary,
        WRITERS[ending](temporary, tidy.schema, source) as writer,
        Bar("Writing", len(workload.groups), progress) as bar,
    ):
        for group in workload:
            for table in _tables(release, tidy, group):
                writer.write(table if adopted is None else adopted(table))
            bar.advance()
    write_description(Path(path), tidy, source, writer.sheets)


def _tables(release: Released, tidy: Tidy, group: Group) -> Iterator[Any]:
    """Iterate over tables of the answers to one group."""
    yield from tidy.tables(group, *release.answer_group(group))
