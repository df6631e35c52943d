"""A small table with every kind of attribute, in every form that we read, and an obvious way to count it."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import strategies as st

from querysmasher.attributes import Binned, Categorical, Cyclic, Number, Ordinal
from querysmasher.data.sources import open_table
from querysmasher.errors import SchemaError
from querysmasher.schema import Schema

SCHEMA = Schema(
    [
        Categorical("sex", ["F", "M"]),
        Categorical("post code", ["01", "1", "2"]),
        Ordinal("age", range(6)),
        Ordinal("score", [0.5, 1.0, 2.25]),
        Categorical("member", [True, False]),
        Binned("income", edges=[0, 10, 25.5, 100]),
        Cyclic("hour", [2, 3, 0, 1]),
        Categorical("level", ["low", "mid", "high"]),
    ]
)
SETS = [tuple(one) for k in range(4) for one in combinations(SCHEMA.names, k)] + [("level", "sex", "age")]

LENIENT = Schema(
    [
        Categorical("sex", ["F", "M"], other="other", missing="missing"),
        Categorical("post code", ["01", "1", "2"], other="2", missing="none"),
        Categorical("age", range(6), other="other", missing=-7),
        Categorical("score", [0.5, 1.0, 2.25], other="odd", missing="odd"),
        Categorical("member", [True, False], missing="missing"),
        Binned("income", edges=[-math.inf, 0, 10, 25.5, math.inf], step=0.5, missing="missing"),
        Categorical("hour", [2, 3, 0, 1], other="other", missing="missing"),
        Categorical("level", ["low", "mid"], other="other", missing="low"),
    ]
)
"""The same columns, where every value has a place."""

NUMBERS = Schema(
    [
        Number("age", 0, 6, step=2, missing="missing"),
        Number("score", 0.5, 2, step=0.25, outside="refuse", missing="missing"),
        Number("income", 0, 30, step=10, missing="missing"),
        Number("hour", 1, 3, missing="missing"),
    ]
)
"""Numbers clamped and rounded to grids."""

ARROW = pa.schema(
    [
        ("sex", pa.string()),
        ("post code", pa.string()),
        ("age", pa.int16()),
        ("score", pa.float64()),
        ("member", pa.bool_()),
        ("income", pa.float64()),
        ("hour", pa.int64()),
        ("level", pa.string()),
        ("note", pa.string()),
    ]
)


def clean_rows(count=60, seed=0):
    """Return records that are all in the domain, edges of bins among them."""
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        row = {a.name: a.values[generator.integers(a.size)] for a in SCHEMA}
        row["income"] = float(generator.choice([0, 9.999, 10, 25, 25.5, 99, 100]))
        row["note"] = str(generator.choice(["x", "y"]))
        rows.append(row)
    return rows


def unclean_rows():
    """Return records of which many have a missing value, or one outside the domain, in each column."""
    rows = clean_rows(90, seed=1)
    strangers = {
        "sex": ["X", None, "f"],
        "post code": ["3", None, "02"],
        "age": [99, None, -1],
        "score": [0.75, None, math.nan],
        "member": [None],
        "income": [-0.5, None, 100.5, math.nan, math.inf],
        "hour": [4, None],
        "level": ["none", None],
    }
    for place, (name, value) in enumerate((n, v) for n, values in strangers.items() for v in values):
        rows[3 * place][name] = value
    return rows


wild_values = {
    "sex": st.sampled_from(["F", "M", "f", "", None]),
    "age": st.one_of(st.none(), st.integers(-2, 8)),
    "score": st.one_of(st.none(), st.sampled_from([0.5, 1.0, 2.25]), st.floats()),
    "member": st.sampled_from([True, False, None]),
    "income": st.one_of(st.none(), st.floats(-1, 101), st.sampled_from([0.0, 10.0, 25.5, 100.0])),
    "hour": st.one_of(st.none(), st.integers(-1, 5)),
}
"""Values that may come in some columns, in the domain or not."""


def position(attribute, value):
    """Return a value's place in the domain, or None, in the slowest and plainest way."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None if attribute.missing is None else attribute.position(attribute.missing)
    if isinstance(attribute, Number):
        listed = attribute.values[: attribute.listed]
        if attribute.outside == "refuse" and not listed[0] <= value <= listed[-1]:
            return None
        clamped = min(max(value, listed[0]), listed[-1])
        return max(range(len(listed)), key=lambda i: (-abs(listed[i] - clamped), i))
    if isinstance(attribute, Binned):
        edges = attribute.edges
        if attribute.step is not None and math.isfinite(value):
            first = next(edge for edge in edges if math.isfinite(edge))
            value = first + attribute.step * math.floor((value - first) / attribute.step + 0.5)
        for place in range(len(edges) - 1):
            if edges[place] <= value < edges[place + 1]:
                return place
        return len(edges) - 2 if value == edges[-1] else None
    try:
        return attribute.position(value)
    except SchemaError:
        return None if attribute.other is None else attribute.position(attribute.other)


def counted(schema, rows, sets, attributes=None):
    """Count with a dictionary, leaving out records unknown in any attribute of the schema."""
    names = list(schema.names if attributes is None else attributes)
    places = [{name: position(schema[name], row[name]) for name in names} for row in rows]
    known = [row for row in places if None not in row.values()]
    tables = []
    for one in sets:
        table = np.zeros(schema.shape(one), dtype=np.int64)
        for cell, count in Counter(tuple(row[name] for name in one) for row in known).items():
            table[cell] = count
        tables.append(table)
    return tables


def counts(schema, data, *names, unknown="refuse"):
    """Return one marginal of a table as we read it."""
    (table,) = open_table(schema, data, names, unknown).marginals([names])
    return table.tolist()


def arrow(rows, schema=ARROW):
    return pa.Table.from_pylist(rows, schema=schema)


def pandas_frame(rows):
    return pd.DataFrame(rows, columns=ARROW.names)


def pandas_categorical(rows):
    frame = pd.DataFrame(rows, columns=ARROW.names)
    return frame.astype({"level": "category", "sex": "category"})


def pandas_nullable(rows):
    return arrow(rows).to_pandas(types_mapper=pd.ArrowDtype)


def polars_frame(rows):
    return pl.from_arrow(arrow(rows))


def polars_categorical(rows):
    return polars_frame(rows).with_columns(
        pl.col("level").cast(pl.Categorical), pl.col("age").cast(pl.Int8), pl.col("income").cast(pl.Float32)
    )


def polars_lazy(rows):
    return polars_frame(rows).lazy()


def arrow_dictionary(rows):
    table = arrow(rows)
    for name in ("level", "age", "post code"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).dictionary_encode())
    return pa.concat_tables([table.slice(0, 7), table.slice(7)])


def duckdb_relation(rows):
    table = arrow(rows)
    connection = duckdb.connect()
    connection.register("mixed", table)
    return connection.sql("SELECT * REPLACE (hour::DECIMAL(4, 1) AS hour) FROM mixed")


IN_MEMORY = {
    make.__name__: make
    for make in (
        pandas_frame,
        pandas_categorical,
        pandas_nullable,
        polars_frame,
        polars_categorical,
        polars_lazy,
        arrow,
        arrow_dictionary,
        duckdb_relation,
    )
}


def csv_file(rows, folder):
    path = folder / "mixed.csv"
    pa.csv.write_csv(arrow(rows), path)
    return path


def parquet_file(rows, folder):
    path = folder / "mixed.parquet"
    pa.parquet.write_table(arrow(rows), path)
    return str(path)


def parquet_glob(rows, folder):
    for place, part in enumerate((rows[:5], rows[5:])):
        pa.parquet.write_table(arrow(part), folder / f"part{place}.parquet")
    return str(folder / "part*.parquet")


def parquet_folder(rows, folder):
    """Parts in folders, with the columns of one in another order."""
    for place, part in enumerate((rows[:5], rows[5:])):
        (folder / "parts" / str(place)).mkdir(parents=True)
        table = arrow(part)
        table = table.select(table.column_names[:: 1 - 2 * place])
        pa.parquet.write_table(table, folder / "parts" / str(place) / "part.parquet")
    return folder / "parts"


ON_DISK = {make.__name__: make for make in (csv_file, parquet_file, parquet_glob, parquet_folder)}

SPARK_TYPES = (
    "sex string, `post code` string, age smallint, score double, member boolean, income double, hour long, "
    "level string, note string"
)


def spark_frame(rows, spark, schema=SPARK_TYPES):
    names = [name for name in ARROW.names if name in schema]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in rows], schema=schema)
