"""Opens a table: CSV and Parquet files, dataframes that narwhals can open, DuckDB relations, Spark frames.

Files are streamed: they need not fit in memory.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from querysmasher.data.counting import Limits
from querysmasher.data.csv import open_csv
from querysmasher.data.encoding import Strings, sure_array
from querysmasher.data.foreign import check_columns, quiet_iterator, quietly
from querysmasher.data.framing import CSV
from querysmasher.data.people import can_name
from querysmasher.data.rows import Batch, RowEncoder, ScanCounter, no_records
from querysmasher.data.spark import open_spark
from querysmasher.endings import TABLES, starting
from querysmasher.errors import DataError, as_given
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.counts import Counter
from querysmasher.schema import Schema

OBJECTS = ("object", "Object", "Int128", "UInt128")
"""Types of pandas and Polars that Arrow does not have: their values are read as Python objects."""


def open_frame(rows: RowEncoder, data: object) -> ScanCounter | None:
    """Return a counter of a frame; reading a lazy one collects only the needed columns."""
    native = _without_doubles(data, rows.columns)
    frame: Any = quietly("opening the frame", nw.from_native, native, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return None
    lazy = isinstance(frame, nw.LazyFrame)
    columns = quietly(
        "reading the columns", lambda: frame.collect_schema().names() if lazy else frame.columns
    )
    check_columns(rows.columns, columns, person=rows.person)
    chosen = list(rows.columns or columns[:1])  # one column at least, to know the number of rows
    pandas_like = frame.implementation.is_pandas_like()
    if pandas_like:
        _check_labels(rows, frame)
    inferring = rows if pandas_like and rows.unknown == "drop" else None
    return ScanCounter(rows, partial(_batches, frame, chosen, rows.limits.read_rows, inferring))


def _batches(frame: Any, names: list[str], size: int, inferring: RowEncoder | None) -> Generator[Batch]:
    frame = quietly("reading the frame", frame.select, names)
    if isinstance(frame, nw.LazyFrame):
        frame = quietly("collecting the lazy frame", frame.collect)
    for start in range(0, max(1, len(frame)), size):  # once at least: types are refused without records too
        part = frame[start : start + size]
        columns = {n: quietly(f"reading column {n!r}", _column, part[n], n, inferring) for n in names}
        yield Batch(columns, len(part))


def _fits(rows: RowEncoder, name: str, kind: Any) -> bool:
    """Return whether a pandas column of this type can be read without conversion, if records are dropped.

    One record can change the type that pandas infers: a string among integers makes objects, a missing value
    makes floats. So no type is refused: a column of a type that does not fit is read as Python objects.
    """
    encoder = rows.encoders.get(name)
    named = name != rows.person or can_name(kind)
    return named and (encoder is None or (encoder.accepts(kind) and not encoder.loses_digits(kind)))


def _check_labels(rows: RowEncoder, frame: Any) -> None:
    """Refuse pandas' own types if floats merge labels: one missing value would turn integers into floats."""
    for name, encoder in rows.encoders.items():
        inferred = isinstance(getattr(frame[name].to_native(), "dtype", None), np.dtype)
        if inferred and encoder.loses_digits(pa.float64()):
            raise DataError(
                f"attribute {name!r}: a column of pandas' own types cannot represent its large integers "
                "exactly as soon as one value is missing; pass a column of type Int64 or of strings"
            )


def _column(series: Any, name: str, inferring: RowEncoder | None) -> Any:
    """Return a column as one Arrow array, or as its Python objects."""
    native = series.to_native()
    kind = getattr(native, "dtype", None)
    categories = getattr(kind, "categories", None)  # Arrow might convert some of them because of others
    unsure = str(getattr(categories, "dtype", "")) == "object" and sure_array(categories) is None
    if str(kind) in OBJECTS or unsure:  # the type that the frame states; narwhals infers one from the values
        return np.asarray(native if str(kind) == "object" or unsure else native.to_list(), dtype=object)
    try:
        column = series.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeError):
        return np.asarray(native, dtype=object)  # categories of several kinds; surrogates
    if inferring is not None and not _fits(inferring, name, column.type):
        return np.asarray(native, dtype=object)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _without_doubles(native: Any, names: Sequence[str]) -> Any:
    """Return a pandas or Arrow frame without repeated columns; refuse one that repeats a needed column."""
    if isinstance(native, pa.Table):
        columns = native.column_names
    elif type(native).__module__.split(".")[0] == "pandas" and hasattr(native, "columns"):
        columns = list(native.columns)
    else:
        return native
    if len(set(columns)) == len(columns):
        return native
    check_columns(names, columns)
    indexes = [columns.index(name) for name in names] or [0]  # one at least, to know the number of rows
    return native.select(indexes) if isinstance(native, pa.Table) else native.iloc[:, indexes]


WIDE = ("HUGEINT", "UHUGEINT", "BIGNUM")
"""DuckDB's integers that do not fit Arrow's types: they are read as strings of digits."""


def open_relation(rows: RowEncoder, data: Any) -> ScanCounter | None:
    """Return a counter of a DuckDB relation, which is evaluated when it is read."""
    duckdb = sys.modules.get("duckdb")  # whoever has a relation has loaded it
    if duckdb is None or not isinstance(data, duckdb.DuckDBPyRelation):
        return None
    columns = data.columns
    check_columns(rows.columns, columns, person=rows.person)
    chosen = rows.columns or columns[:1]  # one column at least, to know the number of rows
    types = dict(zip(columns, map(str, data.types), strict=True))
    wide = [name for name in chosen if types[name] in WIDE and rows.reads_strings(name)]
    casts = {name: f"CAST({_quoted(name)} AS VARCHAR) AS {_quoted(name)}" for name in wide}
    selection = ", ".join(casts.get(name, _quoted(name)) for name in chosen)
    return ScanCounter(rows, partial(_relation_batches, data, selection, rows.limits.read_rows))


def _relation_batches(relation: Any, selection: str, rows: int) -> Generator[Any]:
    selected = quietly("reading the table", relation.project, selection)
    # DuckDB before 1.4 has the reader under its older name.
    read = getattr(selected, "to_arrow_reader", None) or selected.fetch_arrow_reader
    with closing(quietly("reading the table", read, rows)) as reader:
        yield no_records(reader.schema)
        yield from quiet_iterator("reading the table", reader)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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
                _ = encoder.labels  # refuses two labels that are the same string
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
        kind = kind or next((k for k, known in TABLES.items() if path.lower().endswith(known)), None)
        files = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))  # noqa: PTH207
        files = [file for file in files if Path(file).is_file()]
    if kind is None:
        endings = ", ".join(chain(*TABLES.values()))
        raise DataError(f"data: unknown kind of file {path!r}; expected a name ending in {endings}")
    if not files:
        folder = Path(path).is_dir()
        msg = f"data: no Parquet file in the folder {path!r}; name one file, or a glob such as '*.csv'"
        raise DataError(msg if folder else f"data: no file at {path!r}{starting(path)}")
    return path, files, kind


NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def _open_parquet(path: str, root: Path, rows: RowEncoder) -> Callable[[], Generator[Batch]]:
    """Return a reader of a file; folders below `root` (`year=2024/`) may state columns that it lacks."""
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
                strings = {n: pa.array([v] * part.num_rows, pa.large_string()) for n, v in given.items()}
                arrays = {name: part.column(name) for name in chosen}
                yield Batch(arrays | {n: Strings(column) for n, column in strings.items()}, part.num_rows)

    return batches


Opener = Callable[[RowEncoder, object], Counter | None]
"""Returns a counter of a table, or None if the data is of another kind."""

OPENERS: dict[str, Opener] = {
    f"the path of a {' or '.join(TABLES)} file": open_path,
    "a DuckDB relation": open_relation,
    "a PySpark frame": open_spark,
    "a pandas, Polars or PyArrow frame": open_frame,
}
"""One opener per kind of table, by the words for it. A new kind needs a file and a line here."""


def check_source(
    schema: Schema, data: object, attributes: Sequence[str], unknown: str, bound: Bound | None = None
) -> None:
    """Refuse options and paths that `open_table` would refuse, without opening the table."""
    RowEncoder(schema, tuple(attributes), unknown, bound)
    if issubclass(type(data), str | os.PathLike | CSV):  # by its type: nothing of a table is evaluated
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
    return counter_of(RowEncoder(schema, names, unknown, bound, limits or Limits()), data)


def counter_of(rows: RowEncoder, data: object) -> Any:
    """Return a counter of a table as `rows` encodes it."""
    native = nw.to_native(data, pass_through=True)
    for opener in OPENERS.values():
        counter = opener(rows, native)
        if counter is not None:
            return counter
    raise DataError(
        f"data: expected {', or '.join(OPENERS)}, got {as_given(data)}; for lists, arrays and columns write "
        "pandas.DataFrame({'sex': ['F', 'M'], 'age': [30, 40]})"
    )
