"""Integer columns that Spark sends eight at a time: what arrives is what was sent."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.attributes import Categorical, Ordinal
from querysmasher.data.sources import open_table
from querysmasher.data.spark_tasks import Packing
from querysmasher.schema import Schema

labels = st.one_of(
    st.lists(st.integers(-300, 300), min_size=1, max_size=9, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from([0, 1.5, "x", True]), min_size=1, max_size=3, unique=True),
)
values = st.one_of(st.none(), st.integers(-310, 310), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(labels, min_size=1, max_size=12), st.data())
def test_packed_columns_match_the_labels_that_plain_ones_match(domains, data):
    """The long is put together as Spark is told to, by the words of the selection."""
    schema = Schema([Categorical(f"x{i}", own) for i, own in enumerate(domains)])
    kinds = data.draw(
        st.lists(st.sampled_from(["int", "bigint", "double"]), min_size=len(domains), max_size=len(domains))
    )
    packing = Packing.of(schema, schema.names, kinds)
    for name, low, kind in zip(schema.names, packing.lows, kinds, strict=True):
        own = schema[name].values
        few = all(type(label) is int and abs(label) < 2**62 for label in own) and max(own) - min(own) < 255
        assert (low is not None) == (few and kind != "double")
    rows = data.draw(st.lists(st.tuples(*[values for _ in domains]), max_size=6))
    selected = [spark_words(packing.selection(schema.names), row, schema.names) for row in rows]
    sent = range(len(packing.selection(schema.names)))
    part = pa.RecordBatch.from_pydict(
        {f"c{i}": pa.array([row[i] for row in selected], pa.int64()) for i in sent}
    )
    unpacked = packing.unpack(part)
    assert unpacked.schema.names == list(schema.names)
    for place, name in enumerate(schema.names):
        known = [label for label in schema[name].values if type(label) is int]
        for given_, found in zip(
            [row[place] for row in rows], unpacked.column(place).to_pylist(), strict=True
        ):
            assert found == given_ if given_ in known or packing.lows[place] is None else found not in known


def spark_words(selection, row, names):
    """Compute the expressions of a selection for one row, with Python in the place of Spark."""
    columns = dict(zip(names, row, strict=True))

    def distance(match):
        name, low, high, span = match.group(1), int(match.group(2)), int(match.group(3)), int(match.group(4))
        value = columns[name]
        return str(value - low if value is not None and low <= value <= high else span)

    case = r"\(CASE WHEN (\w+) BETWEEN (-?\d+)L AND (-?\d+)L THEN \1 - \(\2L\) ELSE (\d+)L END\)"
    found = []
    for words in selection:
        body = words[: words.rindex(" AS c")]
        if body in columns:
            found.append(columns[body])
            continue
        body = re.sub(case, distance, body)
        while "shiftleft" in body:
            body = re.sub(
                r"\(shiftleft\((\d+), 8\) \| (\d+)\)", lambda m: str(int(m[1]) << 8 | int(m[2])), body
            )
        found.append((int(body) + 2**63) % 2**64 - 2**63)  # as a long
    return found


def test_packing_in_spark_itself(spark):
    """Integers of every width, missing ones, and the extremes of each type, beside Arrow."""
    schema = Schema(
        [
            Ordinal(f"x{i}", range(low, low + 9))
            for i, low in enumerate((-4, -128, 119, 0, -9, 2, 7, 250, 248, -3))
        ]
    )
    kinds = (
        "tinyint",
        "tinyint",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "bigint",
        "int",
        "smallint",
        "string",
    )
    ends = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63, "string": 5}
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(400):
        row = [int(generator.choice(schema[f"x{i}"].values)) for i in range(9)] + ["y"]
        if generator.random() < 0.4:
            place = int(generator.integers(9))
            end = ends[kinds[place]]
            row[place] = [None, end - 1, -end, 0, -1, schema[f"x{place}"].values[-1] + 1][
                int(generator.integers(6))
            ]
            row[place] = row[place] if row[place] is None or row[place] < end else None
        rows.append(tuple(row))
    words = ", ".join(f"x{i} {kind}" for i, kind in enumerate(kinds))
    frame = spark.createDataFrame(rows, words)
    names = schema.names[:9]
    table = open_table(schema, frame, names, "drop")
    assert [low is not None for low in table._packing.lows] == [True] * 9
    plain = open_table(
        schema,
        pa.table({f"x{i}": pa.array([r[i] for r in rows], pa.int64()) for i in range(9)}),
        names,
        "drop",
    )
    assert 200 < plain.records() < 400
    sets = [*((name,) for name in names), ("x8", "x0"), ("x7", "x3", "x1")]
    for found, expected in zip(table.marginals(sets), plain.marginals(sets), strict=True):
        assert np.array_equal(found, expected)
