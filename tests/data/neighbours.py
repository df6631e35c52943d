"""Neighbouring tables in every form that we read."""

from __future__ import annotations

import csv
from datetime import date

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import strategies as st

from querysmasher.attributes import Binned, Categorical, Ordinal
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.schema import Schema
from tests.data.mixed_table import counted

SCHEMA = Schema(
    [
        Categorical(
            "label", ["A", "'A'", '"A"', "A,B", "A;B", "#A", "# end", "A\nB", "A\r\nB", " A", "A\\", ""]
        ),
        Ordinal("big number", [1, 2**53, 2**53 + 1, 2**60 + 1]),
        Ordinal("score", [0.1, 1, 2.5, 7]),
        Categorical("yes;no", [True, False]),
        Binned("income", edges=[0, 0.1, 10, 2**53]),
        Ordinal("day", [date(1969, 12, 31), date(2024, 2, 29)]),
    ]
)
TYPES = pa.schema(
    [
        ("label", pa.string()),
        ("big number", pa.int64()),
        ("score", pa.float64()),
        ("yes;no", pa.bool_()),
        ("income", pa.float64()),
        ("day", pa.date32()),
        ("free text", pa.string()),
    ]
)
signs = st.sampled_from([*'A\'"",,;;##\n\r\t|\\ =né0', "\n\n", '"\n', '","', "\r\n"])
texts = st.lists(signs, max_size=8).map("".join)
names = st.lists(st.sampled_from(SCHEMA.names), max_size=3, unique=True).map(tuple)
records = st.fixed_dictionaries(
    {
        "label": st.one_of(st.sampled_from(SCHEMA["label"].values), texts, st.none()),
        "big number": st.one_of(
            st.sampled_from(SCHEMA["big number"].values), st.sampled_from([2**53 + 2, 3, -1]), st.none()
        ),
        "score": st.one_of(st.sampled_from([0.1, 1.0, 2.5, 7.0]), st.sampled_from([0.2, 3.0]), st.none()),
        "yes;no": st.sampled_from([True, False, None]),
        "income": st.one_of(st.sampled_from([0.0, 0.1, 9.5, 1e15, -1.0]), st.none()),
        "day": st.sampled_from([*SCHEMA["day"].values, date(2024, 3, 1), None]),
        "free text": st.one_of(texts, st.none()),
    }
)


def arrow(rows):
    return pa.Table.from_pylist(rows, schema=TYPES)


def pandas_objects(rows):
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in TYPES.names})


def pandas_inferred(rows):
    """As pandas makes it from plain lists: a missing value turns integers to floats."""
    return pd.DataFrame(rows, columns=TYPES.names)


def polars(rows):
    return pl.from_arrow(arrow(rows))


def relation(rows):
    return duckdb.from_arrow(arrow(rows))


def with_module(rows, path, **style):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **style)
        writer.writerow(TYPES.names)
        writer.writerows([row[name] for name in TYPES.names] for row in rows)
    return path


CSV_WRITERS = {
    "csv": with_module,
    "csv with line feeds": lambda rows, path: with_module(rows, path, lineterminator="\n"),
    "csv quoting all": lambda rows, path: with_module(rows, path, quoting=csv.QUOTE_ALL),
    "csv with semicolons": lambda rows, path: with_module(rows, path, delimiter=";"),
    "csv with tabs": lambda rows, path: with_module(rows, path, delimiter="\t"),
    "pandas": lambda rows, path: pandas_objects(rows).to_csv(path, index=False) or path,
    "polars": lambda rows, path: polars(rows).write_csv(path) or path,
    "arrow": lambda rows, path: pa.csv.write_csv(arrow(rows), path) or path,
    "duckdb": lambda rows, path: relation(rows).write_csv(str(path), quotechar='"', escapechar='"') or path,
}


def parquet(rows, path):
    path = path.with_suffix(".parquet")
    pa.parquet.write_table(arrow(rows), path, row_group_size=3)
    return path


FRAMES = {
    "arrow": arrow,
    "pandas objects": pandas_objects,
    "pandas inferred": pandas_inferred,
    "polars": polars,
    "duckdb": relation,
}


SPARK_TYPES = dict(
    zip(TYPES.names, ("string", "long", "double", "boolean", "double", "date", "string"), strict=True)
)


def spark_frame(rows, session):
    types = ", ".join(f"`{name}` {kind}" for name, kind in SPARK_TYPES.items())
    return session.createDataFrame([tuple(row[n] for n in TYPES.names) for row in rows], schema=types)


def joint(table, names):
    """The exact table over the attributes, or None where it is refused."""
    try:
        (counts,) = open_table(SCHEMA, table, names, "drop").marginals([names])
    except DataError:
        return None
    return counts


def as_text(row):
    """A record as a CSV file tells it: a missing text is an empty one."""
    return row | {"label": row["label"] or ""}


def excesses(rows, places, make, names, read=dict):
    """Return by how much a table, and its neighbours without one record, differ from what they should be.

    None stands for a refusal of either.
    """

    def difference(some):
        """Return the counts as read, and their distance from the truth."""
        found = joint(make(some), names)
        if found is None:
            return None, 0
        expected = counted(SCHEMA, [read(row) for row in some], [names], names)[0]
        return found, int(np.abs(found - expected).sum())

    whole, wrong = difference(list(rows))
    result = []
    for place in places:
        less, wrong_as_well = difference([row for i, row in enumerate(rows) if i != place])
        if whole is None or less is None:
            result.append(None)
        else:
            result.append(wrong + wrong_as_well + max(0, int(np.abs(whole - less).sum()) - 1))
    return result
