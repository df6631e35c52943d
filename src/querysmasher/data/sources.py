"""Opens a table, wherever it lives. CSV and Parquet files are streamed: they need not fit in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet

from querysmasher.data.counting import Limits
from querysmasher.data.csv import open_csv
from querysmasher.data.encoding import Texts
from querysmasher.data.foreign import check_columns, quiet_iterator, quietly
from querysmasher.data.frames import open_frame, open_relation
from querysmasher.data.framing import CSV
from querysmasher.data.rows import Batch, RowEncoder, ScanCounter, no_records
from querysmasher.data.spark import open_spark
from querysmasher.endings import starting
from querysmasher.errors import DataError, as_given
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.counts import Counter
from querysmasher.schema import Schema

SUFFIXES = {"CSV": (".csv", ".csv.gz", ".tsv", ".tsv.gz"), "Parquet": (".parquet", ".pq")}


def open_path(rows: RowEncoder, data: object) -> ScanCounter | None:
    """Return a counter of a CSV or Parquet file, of a glob, or of a directory of Parquet files."""
    if not isinstance(data, str | os.PathLike | CSV):
        return None
    path, paths, kind = _locate(data)
    files: list[Callable[[], Generator[Batch]]]
    if kind == "Parquet":
        root = Path(path)
        while not root.is_dir():  # the folder above a file, or above the first pattern of a glob
            root = root.parent
        files = [_open_parquet(file, root, rows) for file in paths]
    else:
        for encoder in rows.encoders.values():
            if len(encoder.kinds) > 1:
                _ = encoder.labels  # which refuses those that are the same string
        dialect, drop = data if isinstance(data, CSV) else CSV(data), rows.unknown == "drop"
        files = [open_csv(file, dialect, rows.columns, rows.person, drop).batches for file in paths]
    return ScanCounter(rows, partial(_chained, files))


def _chained(files: Iterable[Callable[[], Generator[Batch]]]) -> Generator[Batch]:
    for batches in files:
        yield from batches()


def _locate(data: str | os.PathLike[str] | CSV) -> tuple[str, list[str], str]:
    """Return a path, its files, and their kind. An existing file is never read as a glob."""
    kind = "CSV" if isinstance(data, CSV) else None
    path = os.fspath(data.path if isinstance(data, CSV) else data)
    if Path(path).is_dir():
        files = sorted(map(str, Path(path).rglob("*.parquet")))
        kind = kind or "Parquet"
    else:
        kind = kind or next((k for k, known in SUFFIXES.items() if path.lower().endswith(known)), None)
        files = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))  # noqa: PTH207
        files = [file for file in files if Path(file).is_file()]
    if kind is None:
        endings = ", ".join(chain(*SUFFIXES.values()))
        raise DataError(f"data: unknown kind of file {path!r}; expected a name ending in {endings}")
    if not files:
        folder = Path(path).is_dir()
        msg = f"data: no Parquet file in the folder {path!r}; name one file, or a glob such as '*.csv'"
        raise DataError(msg if folder else f"data: no file at {path!r}{starting(path)}")
    return path, files, kind


NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def _open_parquet(path: str, root: Path, rows: RowEncoder) -> Callable[[], Generator[Batch]]:
    """Return a reader of a file; folders (`year=2024/`) below `root` may give columns that it lacks."""
    columns = quietly(f"opening {path!r}", lambda: pa.parquet.read_schema(path).names)
    folders = Path(path).parent.parts[len(root.parts) :]
    stated = {key: unquote(value) for key, sign, value in (f.partition("=") for f in folders) if sign}
    stated = {key: "" if value == NO_PARTITION else value for key, value in stated.items()}
    given = {name: stated[name] for name in rows.columns if name in stated and name not in columns}
    needed = [name for name in rows.columns if name not in given]
    check_columns(needed, columns, source=f"file {Path(path).name!r}", person=rows.person)
    chosen = needed or columns[:1]  # one, to know the number of rows
    size = rows.limits.read_rows

    def batches() -> Generator[Batch]:
        with quietly("reading the table", pa.parquet.ParquetFile, path) as file:
            parts = quietly("reading the table", file.iter_batches, batch_size=size, columns=chosen)
            first = no_records(file.schema_arrow)
            for part in chain([first], quiet_iterator("reading the table", parts)):
                texts = {n: pa.array([v] * part.num_rows, pa.large_string()) for n, v in given.items()}
                arrays = {name: part.column(name) for name in chosen}
                yield Batch(arrays | {n: Texts(column) for n, column in texts.items()}, part.num_rows)

    return batches


Opener = Callable[[RowEncoder, object], Counter | None]
"""Returns a counter of a table, or None if the data is of another kind."""

OPENERS: tuple[Opener, ...] = (open_path, open_relation, open_spark, open_frame)
"""All kinds of tables. A new one needs a file of its own and a name here."""


def check_source(
    schema: Schema, data: object, attributes: Sequence[str], unknown: str, bound: Bound | None = None
) -> None:
    """Refuse options and paths that `open_table` would refuse, without opening the table."""
    RowEncoder(schema, tuple(attributes), unknown, bound)
    if issubclass(type(data), str | os.PathLike | CSV):  # asks the type, and leaves the data alone
        _locate(cast("str | os.PathLike[str] | CSV", data))


def open_table(
    schema: Schema,
    data: object,
    attributes: Sequence[str],
    unknown: str = "refuse",
    limits: Limits | None = None,
    bound: Bound | None = None,
) -> Counter:
    """Return a counter of a table: exact counts, for `privacy/measurement` only.

    Columns are matched to attributes by name, and values by the rule in `encoding`. Nothing about the domain
    is read from the data. Columns other than `attributes` are not read. `RowEncoder` explains `unknown` and
    `bound`; without one, all records of each person are counted.

    >>> import pyarrow
    >>> table = pyarrow.table({"a": [0, 1, 1], "other": ["x", "y", "z"]})
    >>> open_table(Schema.of(a=2, b=3), table, ["a"])
    ScanCounter(a)
    """
    names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
    rows = RowEncoder(schema, names, unknown, bound, limits or Limits())
    native = nw.to_native(data, pass_through=True)
    for opener in OPENERS:
        counter = opener(rows, native)
        if counter is not None:
            return counter
    raise DataError(
        "data: expected a pandas, Polars, PyArrow or PySpark frame, a DuckDB relation, or the path of a CSV "
        f"or Parquet file, got {as_given(data)}; for lists, arrays and columns write "
        "pandas.DataFrame({'sex': ['F', 'M'], 'age': [30, 40]})"
    )
