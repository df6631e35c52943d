"""Tables of exact counts that are public: read from a file or a frame, and never from the private table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from querysmasher.attributes import Attribute, Categorical
from querysmasher.data.encoding import Encoder, Strings
from querysmasher.data.foreign import quietly
from querysmasher.endings import TABLES
from querysmasher.errors import DataError, as_given
from querysmasher.formatting import preview
from querysmasher.privacy.counts import Counts
from querysmasher.privacy.unit import AttributeSets, Groups, Names, attributes_of, sizes_of
from querysmasher.schema import Schema

COUNT = "count"
"""The column with the number of records of a combination of values."""


def read_totals(schema: Schema, sets: AttributeSets, given: Any) -> tuple[Counts, ...]:
    """Return the tables of counts on the sets, in their order; combinations that are not listed count 0.

    `given` is a path to a CSV or Parquet file, a dataframe, or a list of these: one for each set. Where
    groups of an attribute's values are counted, its column has their names.
    """
    tables = [_table(item) for item in (given if isinstance(given, list | tuple) else [given])]
    found = [tuple(sorted(set(table.column_names) - {COUNT})) for table in tables]
    complete = all(len(table.column_names) == len(on) + 1 for table, on in zip(tables, found, strict=True))
    asked = [tuple(sorted(attributes_of(names))) for names in sets]
    if not sets or not complete or sorted(found) != sorted(asked):
        wanted = "; ".join(", ".join([*names, COUNT]) for names in asked)
        got = "; ".join(", ".join(table.column_names) for table in tables)
        expected = (
            f"expected tables with the columns {wanted}" if sets else "expected a plan with exact counts"
        )
        raise DataError(f"public: {expected}, got the columns {got}")
    return tuple(
        _counts(schema, names, tables[found.index(on)]) for names, on in zip(sets, asked, strict=True)
    )


def _table(given: Any) -> Any:
    """Return an Arrow table; the fields of a CSV file are strings."""
    if not isinstance(given, str | os.PathLike):
        frame: Any = quietly("opening public", nw.from_native, given, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise DataError(f"public: expected a path, a dataframe or a list of them, got {as_given(given)}")
        return quietly("reading public", lambda: pa.table({n: frame[n].to_arrow() for n in frame.columns}))
    path = Path(given)
    if not path.is_file():
        raise DataError(f"public: there is no file {str(path)!r}")
    if path.suffix.lower() in TABLES["Parquet"]:
        return quietly("reading public", pa.parquet.read_table, path)
    with quietly("reading public", pa.csv.open_csv, path) as reader:
        kinds = dict.fromkeys(reader.schema.names, pa.string())
    options = pa.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
    return quietly("reading public", lambda: pa.csv.read_csv(path, convert_options=options))


def _counts(schema: Schema, names: Names, table: Any) -> Counts:
    """Return the counts that a table lists."""
    codes = []
    for name, known in zip(attributes_of(names), names, strict=True):
        attribute: Attribute = schema[name]
        if isinstance(known, Groups):
            attribute = Categorical(name, known.labels)
        encoder, column = Encoder(attribute), table[name].combine_chunks()
        kept = encoder.encode(Strings(column) if pa.types.is_string(column.type) else column)
        if np.any(kept >= attribute.size):
            which = "from the schema" if known == name else f"that name a group, {preview(attribute.labels)}"
            raise DataError(f"public: expected values of {name!r} {which}, got others")
        codes.append(kept.astype(np.intp))
    try:
        numbers = np.asarray(table[COUNT].cast(pa.int64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        numbers = np.array([-1])
    if numbers.dtype != np.int64 or np.any(numbers < 0):
        raise DataError(f"public: expected non-negative integers in the column {COUNT!r}, got others")
    counts = np.full(sizes_of(schema, names), -1, dtype=np.int64)
    if len(set(zip(*(code.tolist() for code in codes), strict=True))) < len(numbers):
        every = ", ".join(attributes_of(names))
        raise DataError(f"public: expected every combination of {every} once, got some repeated")
    counts[tuple(codes)] = numbers
    return np.maximum(counts, 0)
