"""Answers as a Parquet or CSV file, one attribute set at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from querysmasher.arrays import Array, one_core
from querysmasher.endings import check_ending
from querysmasher.files import replacing
from querysmasher.progress import Bar
from querysmasher.release.released import Released
from querysmasher.text import cell, one_line
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload

ENDINGS = (".parquet", ".pq", ".csv")
"""Allowed endings of file names."""

BATCH = 2_000_000
"""Number of rows converted at a time."""


def write_answers(
    release: Released, workload: Workload, path: str | os.PathLike[str], progress: bool | None
) -> None:
    """Write one row per query: its attributes, its conditions in words, the value and the standard error.

    A name that ends in .csv gives a CSV file, in which a spreadsheet reads no name as a formula. The file
    appears under its name only when it is complete.
    """
    ending = check_ending(path, ENDINGS)
    for group in workload:
        release.predictor.check(group)  # before anything is written
    conditions = max((len(g.families) for g in workload), default=0)
    word = pa.dictionary(pa.int32(), pa.string())
    fields = [("attributes", word), *((f"condition_{i + 1}", word) for i in range(conditions))]
    schema = pa.schema([*fields, ("value", pa.float64()), ("std", pa.float64())])
    is_csv = ending == ".csv"
    open_writer = _CsvWriter if is_csv else _parquet_writer
    with (
        one_core(),
        replacing(path) as temporary,
        open_writer(temporary, schema) as writer,
        Bar("Writing", len(workload.groups), progress) as bar,
    ):
        for group in workload:
            for table in _tables(release, group, schema, conditions, cell if is_csv else str):
                writer.write_table(table)
            bar.advance()


def _parquet_writer(path: Path, schema: Any) -> Any:
    return pq.ParquetWriter(
        path,
        schema,
        compression={name: "NONE" if name == "value" else "ZSTD" for name in schema.names},
        use_dictionary=[name for name in schema.names if name != "value"],
        write_statistics=False,
    )


class _CsvWriter:
    """Writes dictionary-encoded strings as plain text, because CSV has no dictionaries."""

    def __init__(self, path: Path, schema: Any) -> None:
        plain = [(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in schema]
        self._schema = pa.schema(plain)
        self._writer = pyarrow.csv.CSVWriter(path, self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write_table(self, table: Any) -> None:
        """Append a table."""
        self._writer.write_table(table.cast(self._schema))


def _tables(
    release: Released, group: Group, schema: Any, conditions: int, made_safe: Callable[[str], str]
) -> Iterator[Any]:
    values, std = release.answer_group(group)
    labels = [
        _texts(family.labels([release.plan.schema[n] for n in names]), made_safe)
        for names, family in group.parts()
    ]
    name = _texts([", ".join(group.attributes)], made_safe)
    flat_values, flat_std = values.ravel(), std.ravel()
    for start in range(0, group.rows, BATCH):
        stop = min(group.rows, start + BATCH)
        places = np.unravel_index(np.arange(start, stop), group.shape) if group.shape else ()
        size = stop - start
        columns = [_words(np.zeros(size, dtype=np.int32), name)]
        columns += [_words(place, words) for place, words in zip(places, labels, strict=True)]
        columns += [pa.nulls(size, schema.field(1).type)] * (conditions - len(labels))
        yield pa.table(
            [*columns, _floats(flat_values[start:stop]), _floats(flat_std[start:stop])], schema=schema
        )


def _texts(texts: Iterable[str], made_safe: Callable[[str], str]) -> Any:
    return pa.array([made_safe(one_line(text)) for text in texts], pa.string())


def _words(codes: Any, words: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), words)


def _floats(values: Array) -> Any:
    return pa.array(np.ascontiguousarray(values))
