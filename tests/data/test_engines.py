"""One contract for every engine: the same records give the same counts, and errors say nothing of them."""

from __future__ import annotations

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.attributes import Cyclic, Number, Ordinal
from querysmasher.data.counting import Limits
from querysmasher.data.sources import open_table
from querysmasher.errors import (
    DataError,
    TooLargeError,
    UnknownAttributeError,
    as_given,
)
from querysmasher.schema import Schema
from tests.builders import PRIVATE
from tests.data.mixed_table import (
    ARROW,
    LENIENT,
    NUMBERS,
    SCHEMA,
    SETS,
    arrow,
    clean_rows,
    counted,
    duckdb_relation,
    pandas_nullable,
    polars_frame,
    unclean_rows,
    wild_values,
)
from tests.profiles import fewer

TINY = Limits(read_rows=7, chunk_rows=10, keep_bytes=0, batch_cells=50)


def assert_counts(table, expected, sets=SETS, schema=SCHEMA):
    found = list(table.marginals(sets))
    assert len(found) == len(sets)
    for counts, reference, one in zip(found, expected, sets, strict=True):
        assert counts.dtype == np.int64
        assert counts.shape == schema.shape(one)
        assert np.array_equal(counts, reference), one
    assert table.records() == expected[sets.index(())]


def test_clean_table(engine):
    rows = clean_rows()
    expected = counted(SCHEMA, rows, SETS)
    assert expected[0] == len(rows)
    assert_counts(open_table(SCHEMA, engine(rows), SCHEMA.names), expected)


def test_drop(engine):
    rows = unclean_rows()
    expected = counted(SCHEMA, rows, SETS)
    assert 0 < expected[0] < len(rows)
    assert_counts(open_table(SCHEMA, engine(rows), SCHEMA.names, unknown="drop"), expected)


def test_missing_and_unlisted_values_that_have_a_place(engine):
    rows = unclean_rows()
    expected = counted(LENIENT, rows, SETS)
    assert expected[0] == len(rows)
    assert_counts(open_table(LENIENT, engine(rows), LENIENT.names), expected, schema=LENIENT)


def test_numbers_on_a_grid(engine):
    sets = [(), ("age",), ("score", "hour"), ("income",)]
    table = open_table(NUMBERS, engine(unclean_rows()), NUMBERS.names, unknown="drop")
    expected = counted(NUMBERS, unclean_rows(), sets)
    assert 0 < expected[0] < len(unclean_rows())  # one number is refused
    assert_counts(table, expected, sets, NUMBERS)


@given(st.lists(st.one_of(st.none(), st.floats(), st.integers(-(2**70), 2**70)), max_size=8), st.data())
def test_every_number_has_the_nearest_value_of_a_grid(numbers, data):
    low, steps = data.draw(st.integers(-5, 5)), data.draw(st.integers(1, 5))
    step = data.draw(st.sampled_from([1, 2, 0.5, 0.125]))
    outside = data.draw(st.sampled_from(["clamp", "refuse"]))
    attribute = Number("x", low, low + steps * step, step=step, outside=outside, missing="missing")
    schema = Schema([attribute])
    rows = [{"x": number} for number in numbers]
    expected = counted(schema, rows, [("x",), ()])
    doubles = [None if number is None else float(number) for number in numbers]
    for frame in (
        pd.DataFrame({"x": pd.Series(numbers, dtype=object)}),
        pa.table({"x": pa.array(doubles, pa.float64())}),
        pa.table({"x": pa.array([None if n is None else repr(n) for n in doubles], pa.string())}),
    ):
        found = list(open_table(schema, frame, ["x"], unknown="drop").marginals([("x",), ()]))
        assert [table.tolist() for table in found] == [table.tolist() for table in expected]


def test_an_ordered_attribute_with_a_value_for_missing_ones(engine):
    kinds = [Ordinal("age", range(6), missing="missing"), Cyclic("hour", [2, 3, 0, 1], missing="missing")]
    schema, sets = Schema(kinds), [("age", "hour"), ("hour",), ()]
    table = open_table(schema, engine(unclean_rows()), schema.names, unknown="drop")
    assert_counts(table, counted(schema, unclean_rows(), sets), sets, schema)


def test_refuse_names_the_attribute(engine, request):
    data = engine(unclean_rows())
    few = "spark_frame" in request.node.name  # a Spark job takes a second
    for name in SCHEMA.names[:: 3 if few else 1]:
        with pytest.raises(DataError, match=f"attribute '{name}'") as caught:
            list(open_table(SCHEMA, data, [name]).marginals([(name,)]))
        assert caught.value.__context__ is None
    with pytest.raises(DataError, match="attribute 'sex'"):
        open_table(SCHEMA, data, ["sex"]).records()


def test_only_attributes_in_use_decide_what_is_dropped(engine):
    rows = unclean_rows()
    sets = [(), ("sex", "hour"), ("hour",)]
    table = open_table(SCHEMA, engine(rows), ["hour", "sex"], unknown="drop")
    assert_counts(table, counted(SCHEMA, rows, sets, attributes=["hour", "sex"]), sets)


def test_empty_table(engine):
    table = open_table(SCHEMA, engine([]), SCHEMA.names)
    assert table.records() == 0
    assert all(not counts.any() for counts in table.marginals(SETS))


def test_total_alone(engine):
    rows = clean_rows(17)
    table = open_table(SCHEMA, engine(rows), [])
    (total,) = table.marginals([()])
    assert total.shape == ()
    assert total == table.records() == 17
    assert list(table.marginals([])) == []


@pytest.mark.slow
def test_tiny_steps_that_keep_nothing(engine, request):
    """As for a table larger than memory: rows are read anew for each of many batches of marginals."""
    sets = SETS[:12] if "spark_frame" in request.node.name else SETS[::6]
    rows = unclean_rows()
    table = open_table(SCHEMA, engine(rows), SCHEMA.names, unknown="drop", limits=TINY)
    expected = counted(SCHEMA, rows, sets)
    assert_counts(table, expected, sets)


def test_missing_column(engine):
    schema = Schema.of({"Age ": 6})
    with pytest.raises(DataError, match=r"no column 'Age '.*nearest column is 'age'"):
        open_table(schema, engine(clean_rows(3)), ["Age "])


def test_repr_shows_no_count(engine):
    table = open_table(SCHEMA, engine(clean_rows(37)), ["sex", "age"])
    table.records()
    assert repr(table).endswith("Counter(sex, age)")


def test_attribute_that_was_not_opened(engine):
    table = open_table(SCHEMA, engine(clean_rows(3)), ["sex"])
    with pytest.raises(DataError, match="'age' is not among the attributes"):
        table.marginals([("age",)])
    with pytest.raises(UnknownAttributeError):
        table.marginals([("height",)])


def test_marginals_are_lazy_and_owned_by_the_caller():
    table = open_table(SCHEMA, arrow(clean_rows()), SCHEMA.names)
    sets = [("sex", "age"), ("age", "sex"), ("sex", "age")]
    first, turned, again = table.marginals(sets)
    first[...] = -1
    assert np.array_equal(turned.T, again)
    assert (again >= 0).all()
    assert all(t.flags.c_contiguous for t in (first, turned, again))


def test_narwhals_frames_themselves():
    rows = clean_rows()
    expected = counted(SCHEMA, rows, [()])
    for native in (arrow(rows), pl.from_arrow(arrow(rows)).lazy(), duckdb_relation(rows)):
        table = open_table(SCHEMA, nw.from_native(native), ["sex"])
        assert list(table.marginals([()])) == expected


@pytest.mark.parametrize(
    ("limits", "once"),
    [
        (Limits(batch_cells=10), True),
        (Limits(batch_cells=10, keep_bytes=8 * 60), True),
        (Limits(batch_cells=10, keep_bytes=8 * 59), False),
    ],
    ids=["many bytes", "enough", "one record too few"],
)
def test_rows_are_read_once_if_their_codes_fit_into_memory(limits, once):
    """A lazy frame counts how often it is computed: without codes, for every batch of tables."""
    rows, computed = clean_rows(), []
    frame = pl.from_arrow(arrow(rows)).lazy().map_batches(lambda part: computed.append(1) or part)
    table = open_table(SCHEMA, frame, SCHEMA.names, limits=limits)
    for found, expected in zip(table.marginals(SETS), counted(SCHEMA, rows, SETS), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert table.records() == len(rows)
    assert (len(computed) == 1) == once


@fewer(50)
@given(
    st.lists(st.fixed_dictionaries(wild_values), max_size=12),
    st.lists(st.lists(st.sampled_from(list(wild_values)), max_size=4, unique=True).map(tuple), max_size=5),
    st.sampled_from([arrow, polars_frame, pandas_nullable, duckdb_relation]),
    st.sampled_from([Limits(), TINY]),
)
def test_random_tables_against_a_dictionary(rows, sets, make, limits):
    names, sets = list(wild_values), [(), *sets]
    full = [{**dict.fromkeys(ARROW.names), **row} for row in rows]
    table = open_table(SCHEMA, make(full), names, unknown="drop", limits=limits)
    assert_counts(table, counted(SCHEMA, full, sets, attributes=names), sets)


@pytest.mark.parametrize("name", ["sex", "level"])
def test_messages_hold_no_value_and_no_count(engine, name):
    rows = clean_rows(61)
    rows[7][name] = PRIVATE
    data = engine(rows)
    with pytest.raises(DataError) as caught:
        list(open_table(SCHEMA, data, SCHEMA.names).marginals(SETS[:3]))
    assert PRIVATE not in str(caught.value)
    assert not any(character.isdigit() for character in str(caught.value))
    assert caught.value.__context__ is None


def test_mixed_objects_are_refused_without_being_shown():
    frame = pd.DataFrame({"age": [1, PRIVATE, 2.5, None]})
    with pytest.raises(DataError, match="attribute 'age': the data has a value of another kind") as caught:
        open_table(SCHEMA, frame, ["age"]).records()
    assert PRIVATE not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("sex", [1, 2], "strings"),
        ("post code", [1, 2], "strings"),
        ("age", [True, False], "numbers"),
        ("member", [0, 1], "booleans"),
        ("income", [True], "numbers"),
        ("hour", [pd.Timestamp("2020-01-01")], "numbers"),
    ],
)
def test_column_of_the_wrong_type(name, column, expected):
    words = f"attribute '{name}': expected a column of {expected}"
    for make, unknown in ((pd.DataFrame, "refuse"), (pa.table, "refuse"), (pa.table, "drop")):
        with pytest.raises(DataError, match=words):
            open_table(SCHEMA, make({name: column}), [name], unknown).records()
    # pandas infers the type from the records, so none of them is refused for it
    assert open_table(SCHEMA, pd.DataFrame({name: column}), [name], "drop").records() == 0


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("age", ["1", " 2", "3.0"]),
        ("score", ["0.5", "1", "2.25e0"]),
        ("member", ["true", "F", "1"]),
        ("income", ["5", "+1e1", "100"]),
    ],
)
def test_strings_where_numbers_or_booleans_are_expected_are_read_as_in_a_file(name, column):
    """A reader of files that infers types makes strings of all numbers if one of them cannot be read."""
    for make in (pd.DataFrame, pa.table, lambda columns: pd.DataFrame(columns, dtype=object)):
        for dictionary in (pd.Categorical, list):
            data = make({name: dictionary(column) if make is pd.DataFrame else column})
            assert open_table(SCHEMA, data, [name]).records() == 3
        for odd in ("x", "1x", "1,5", ""):
            assert open_table(SCHEMA, make({name: [*column, odd]}), [name], "drop").records() == 3


@pytest.mark.parametrize("data", [None, 3, {"sex": ["F"]}, [["F"]], np.zeros((2, 2)), pd.Series([1])])
def test_unsupported_data(data):
    with pytest.raises(
        DataError,
        match=rf"data: expected the path of a CSV or Parquet file, or a .*got {as_given(data)}; for lists",
    ):
        open_table(SCHEMA, data, ["sex"])


def test_marginal_beyond_memory():
    schema = Schema.of(a=2**11, b=2**11, c=2**11)
    table = open_table(schema, pa.table({"a": [0], "b": [0], "c": [0]}), schema.names)
    with pytest.raises(TooLargeError, match="cells"):
        table.marginals([schema.names])
