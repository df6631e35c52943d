"""File formats of answers: Parquet, CSV, Arrow and JSON.

A format writes Arrow tables to a file, one after the other, and reads the columns of a file back.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from querysmasher.formatting import cell, read_json

About = Mapping[str, Any]
"""Where the figures come from, as plain data."""

Write = tuple[Callable[[Any], None], Mapping[str, Sequence[str]]]
"""Appends a table to an open file; and the columns of each sheet, by its title, if a format has sheets."""

Content = tuple[dict[str, Any], dict[str, Any]]
"""The values of each column of a file, as an Arrow array or a list, and what the file says about itself."""


@dataclass(frozen=True)
class Format:
    """A file format of answers."""

    endings: tuple[str, ...]
    """The endings of names of files; the first, without its dot, is the name of the format."""
    kind: str
    """Its name in the Frictionless standard."""
    media_type: str
    write: Callable[[Path, Any, About], AbstractContextManager[Write]]
    """Opens a file for tables of an Arrow schema."""
    read: Callable[[Path], Content]
    safe: Callable[[str], str] = str
    """Makes a string safe to read for programs that open such files."""
    check: Callable[[], None] = lambda: None
    """Refuses to write if a library is not installed."""
    holds_records: bool = True
    """Whether it holds tables of any columns, as synthetic records are."""
    is_table: bool = True
    """Whether the tools of the standard read it as a table."""
    states_size: bool = True
    """Whether these tools count its bytes."""
    has_nan: bool = False
    """Whether these tools read missing numbers as NaN."""
    compression: str | None = None
    dialect: Mapping[str, Any] | None = None
    """How the tools of the standard find the rows, if not at once."""

    @property
    def name(self) -> str:
        """The name in the spec and in the command."""
        return self.endings[0][1:]


def plain(table: Any) -> Any:
    """Return an Arrow table with plain strings instead of dictionaries."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and the command lists formats

    fields = [(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))


def plain_rows(table: Any) -> Iterator[dict[str, Any]]:
    """Iterate over rows of values that JSON and Excel hold: no NaN, no infinity, dates as text."""
    for row in plain(table).to_pylist():
        yield {
            name: None
            if isinstance(value, float) and not abs(value) < float("inf")
            else str(value)
            if isinstance(value, date)
            else value
            for name, value in row.items()
        }


@contextmanager
def _write_parquet(path: Path, schema: Any, about: About) -> Iterator[Write]:
    """Open a Parquet file, with the provenance in its metadata."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to load

    noisy = ["value", "low", "high", "cv"]  # their first bytes repeat; so do the last, except those of value
    stated = schema.with_metadata({"querysmasher": json.dumps(about)})
    with pq.ParquetWriter(
        path,
        stated,
        compression="ZSTD",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name not in (*noisy, "query")],
        use_byte_stream_split=noisy,
        write_statistics=False,
    ) as file:
        yield lambda table: file.write_table(table.replace_schema_metadata(stated.metadata)), {}


@contextmanager
def _write_csv(path: Path, schema: Any, _about: About, compression: str | None = None) -> Iterator[Write]:
    """Open a CSV file; the description beside it says where it comes from."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load
    from pyarrow import csv  # noqa: PLC0415 - slow to load

    with (
        pa.output_stream(str(path), compression=compression) as stream,
        csv.CSVWriter(stream, plain(schema.empty_table()).schema) as file,
    ):
        yield lambda table: file.write_table(plain(table)), {}


def read_csv(path: Path) -> Content:
    """Return the columns of a CSV file as strings, with null where nothing is written."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load
    from pyarrow import csv  # noqa: PLC0415 - slow to load

    data = path.read_bytes()
    if path.suffix == ".gz":
        data = expanded(data, 31, int.from_bytes(data[-4:], "little"))
    names = csv.open_csv(pa.BufferReader(data)).schema.names
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return _arrow_content(csv.read_csv(pa.BufferReader(data), convert_options=options))[0], {}


def expanded(data: bytes, form: int, size: int) -> bytes:
    """Return compressed data of a stated size; refuse what is followed by something else."""
    expanding = zlib.decompressobj(form)
    content = expanding.decompress(data, size + 1)
    if not expanding.eof or expanding.unused_data or len(content) != size:
        raise ValueError
    return content


@contextmanager
def _write_arrow(path: Path, schema: Any, about: About) -> Iterator[Write]:
    """Open a file in Arrow's file format, also called Feather."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    stated = plain(schema.empty_table()).schema.with_metadata({"querysmasher": json.dumps(about)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, stated, options=options) as file:
        yield lambda table: file.write_table(plain(table).replace_schema_metadata(stated.metadata)), {}


def _read_arrow(path: Path) -> Content:
    from pyarrow import feather, parquet  # noqa: PLC0415 - slow to load

    return _arrow_content((parquet if path.suffix in PARQUET.endings else feather).read_table(path))


def _arrow_content(table: Any) -> Content:
    stated = {key.decode(): value for key, value in (table.schema.metadata or {}).items()}
    about = dict(read_json(stated.pop("querysmasher", b"{}")))
    if len({*table.column_names}) < table.num_columns:
        raise ValueError
    types = {f"type of {field.name}": (field.type, field.metadata) for field in table.schema}
    return dict(zip(table.column_names, plain(table).columns, strict=True)), {**about, **stated, **types}


@contextmanager
def _write_json(path: Path, _schema: Any, about: About) -> Iterator[Write]:
    """Open an object with the provenance under `about` and a list of rows under `answers`."""
    between = "\n"

    def write(table: Any) -> None:
        nonlocal between
        for row in plain_rows(table):
            stream.write(between + json.dumps(row, allow_nan=False))
            between = ",\n"

    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(f'{{"about": {json.dumps(about)},\n"answers": [')
        yield write, {}
        stream.write("\n]}\n")


def _read_json(path: Path) -> Content:
    stated = read_json(path.read_bytes())
    rows = stated["answers"]
    if any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError
    more = {key: value for key, value in stated.items() if key not in ("about", "answers")}
    return {name: [row[name] for row in rows] for name in rows[0]}, {**stated["about"], **more}


PARQUET = Format(
    (".parquet", ".pq"),
    "parquet",
    "application/vnd.apache.parquet",
    _write_parquet,
    _read_arrow,
    states_size=False,
    has_nan=True,
)
CSV = Format((".csv",), "csv", "text/csv", _write_csv, read_csv, safe=cell)
GZIP = replace(
    CSV,
    endings=(".csv.gz",),
    write=partial(_write_csv, compression="gzip"),
    compression="gz",
)
ARROW = Format(
    (".arrow",), "arrow", "application/vnd.apache.arrow.file", _write_arrow, _read_arrow, is_table=False
)
FEATHER = replace(ARROW, endings=(".feather",))
JSON = Format(
    (".json",),
    "json",
    "application/json",
    _write_json,
    _read_json,
    holds_records=False,
    states_size=False,
    dialect={"property": "answers", "json": {"property": "answers", "keyed": True}},
)
