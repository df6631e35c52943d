"""One record moves one count by one, whatever it holds and whatever engine reads the table."""

from __future__ import annotations

import csv
from datetime import date, datetime
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from querysmasher.attributes import Binned, Categorical, Ordinal
from querysmasher.data.check import check
from querysmasher.data.counting import Limits
from querysmasher.data.encoding import Encoder
from querysmasher.data.framing import CSV
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.privacy.bound import Bound
from querysmasher.schema import Schema
from tests.builders import python
from tests.data import mixed_table, neighbours
from tests.data.neighbours import CSV_WRITERS, FRAMES, SCHEMA, SPARK_TYPES, TYPES, as_text, excesses
from tests.profiles import fewer

tables = st.lists(neighbours.records, min_size=1, max_size=8)
counts = partial(mixed_table.counts, unknown="drop")


@pytest.mark.slow
@pytest.mark.parametrize("writer", CSV_WRITERS)
@fewer(15)
@given(tables, neighbours.names)
def test_csv(tmp_path_factory, writer, rows, names):
    path = tmp_path_factory.mktemp("neighbours") / "people.csv"
    found = excesses(rows, range(len(rows)), lambda some: CSV_WRITERS[writer](some, path), names, as_text)
    assert set(found) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("frame", FRAMES)
@fewer(20)
@given(tables, neighbours.names)
def test_frames(frame, rows, names):
    refused = "pandas" in frame and "big number" in names  # floats would lose digits: never or always
    found = excesses(rows, range(len(rows)), FRAMES[frame], names)
    assert set(found) == ({None} if refused else {0})


@fewer(40)
@given(tables, neighbours.names)
def test_parquet(tmp_path_factory, rows, names):
    path = tmp_path_factory.mktemp("neighbours") / "people.parquet"
    found = excesses(rows, range(len(rows)), lambda some: neighbours.parquet(some, path), names)
    assert set(found) == {0}


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])  # one Spark for all
@given(tables)
def test_spark(spark, rows):
    assert excesses(rows, [0], lambda some: neighbours.spark_frame(some, spark), SCHEMA.names[:3]) == [0]


PAIRS = 1000
VALUES = {
    "label": [*SCHEMA["label"].values, "B", None],
    "big number": [*SCHEMA["big number"].values, 2**53 + 2, 3, -1, None],
    "score": [0.1, 1.0, 2.5, 7.0, 0.2, 3.0, float("nan"), float("inf"), None],
    "yes;no": [True, False, None],
    "income": [0.0, 0.1, 9.5, 1e15, -1.0, float("nan"), None],
    "day": [*SCHEMA["day"].values, date(2024, 3, 1), date(1, 1, 1), date(9999, 12, 31), None],
    "free text": ["", "x", None],
}
TEXTS = ["abc", "12x", "1e400", "nan", "", " 1", "1,5", "2.5", "9007199254740993", "true", "2024-02-30", None]


def many_tables(generator, as_texts):
    """Records of many small tables, each with the number of its table and of its person."""
    rows = []
    for table in range(PAIRS):
        for _ in range(generator.integers(1, 6)):
            row = {name: values[generator.integers(len(values))] for name, values in VALUES.items()}
            if as_texts:
                row = {n: None if v is None else str(v) for n, v in row.items()}
                odd = list(VALUES)[generator.integers(6)]
                row[odd] = TEXTS[generator.integers(len(TEXTS))]
            person = [7, 8, 9, None][generator.integers(4)]
            rows.append({"table": table, "person": person and f"{table} {person}"} | row)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("names", [("score", "yes;no"), ("big number", "income"), ("day", "label")])
@pytest.mark.parametrize("as_texts", [False, True])
def test_spark_on_many_pairs(spark, names, as_texts):
    """A thousand tables, and each without one of its records, in two frames that tell them apart."""
    generator = np.random.default_rng(27)
    rows = many_tables(generator, as_texts)
    numbers = np.array([row["table"] for row in rows])
    left_out = {int(generator.choice(np.flatnonzero(numbers == table))) for table in range(PAIRS)}
    schema = Schema([Ordinal("table", range(PAIRS)), *(SCHEMA[name] for name in names)])
    kinds = dict.fromkeys(TYPES.names, "string") if as_texts else SPARK_TYPES
    types = "table int, person string, " + ", ".join(f"`{n}` {k}" for n, k in kinds.items())
    arrow = pa.schema([("table", pa.int32()), ("person", pa.string())])
    for field in TYPES:
        arrow = arrow.append(pa.field(field.name, pa.string()) if as_texts else field)

    def counted(frame, bound):
        (table,) = open_table(schema, frame, schema.names, "drop", None, bound).marginals([schema.names])
        return table.reshape(PAIRS, -1)

    others = [row for place, row in enumerate(rows) if place not in left_out]
    frames = [spark.createDataFrame([tuple(row.values()) for row in some], types) for some in (rows, others)]
    for bound in (None, Bound("person", 1, bytes(16))):
        whole, less = (counted(one, bound) for one in frames)
        assert np.array_equal(whole, counted(pa.Table.from_pylist(rows, schema=arrow), bound))
        change = np.abs(whole - less).sum(axis=1)
        if bound is None:
            assert change.max() <= 1
        else:  # another record of the same person may take the place of the one that is missing
            assert change.max() <= 2
        assert change.sum() > PAIRS / 20


@pytest.mark.slow
@fewer(4)
@given(st.lists(neighbours.records, min_size=1, max_size=3), st.sampled_from(["csv", "csv with line feeds"]))
def test_csv_of_more_rows_than_a_reader_would_sample(tmp_path_factory, rows, writer):
    """Plain records first, and then those with quotation marks, line breaks and the rest."""
    path = tmp_path_factory.mktemp("neighbours") / "people.csv"
    plain = dict.fromkeys(TYPES.names) | {"label": "A", "free text": "nothing"}
    rows = [plain] * 21_000 + rows
    places = [0, len(rows) - 1]
    found = excesses(rows, places, lambda some: CSV_WRITERS[writer](some, path), ("label",), as_text)
    assert found == [0, 0]


def test_a_late_field_of_many_line_breaks_is_one_record(tmp_path):
    rows = [("A", "x")] * 30_000
    path = tmp_path / "people.csv"
    for extra in ([], [("A", "line\n" * 10_000)]):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("label", "note"), *rows, *extra])
        assert counts(Schema([Categorical("label", ["A"])]), path, "label") == [30_000 + len(extra)]


@pytest.mark.parametrize("last", ["'A'", "# end", '"A"', "A;B;C", "A|B\tC"])
def test_one_record_does_not_change_how_others_are_read(tmp_path, last):
    schema = Schema([Categorical("label", ["A", "'A'", "#A"])])
    rows = [["label", "note"]] + [["'A'", "x;y"]] * 100 + [["#A", "z"]] * 108
    path = tmp_path / "people.csv"
    before = None
    for extra in ([], [[last, last]]):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows + extra)
        found = np.array(counts(schema, path, "label"))
        assert before is None or np.abs(found - before).sum() <= 1
        before = found


@pytest.mark.parametrize("labels", [[2**53, 2**53 + 1], [2**60 + 1], [-(2**55) - 1, 5]])
def test_one_missing_value_among_large_integers(labels):
    schema = Schema([Ordinal("a", labels)])
    for whole in ([*labels * 9, None], labels * 9):
        nullable = pd.DataFrame({"a": pd.Series(whole, dtype="Int64")})
        assert counts(schema, nullable, "a") == [9] * len(labels)
        for own in (pd.DataFrame({"a": whole}), nullable.astype(object)):
            with pytest.raises(DataError, match=r"attribute 'a': .*cannot represent its large int.*Int64"):
                counts(schema, own, "a")
    floats = pa.table({"a": [*map(float, labels), None]})
    with pytest.raises(DataError, match=r"a column of type double cannot represent its large int.*Int64"):
        counts(schema, floats, "a")


def test_narrow_floats():
    with pytest.raises(DataError, match="a column of type float cannot represent its large integers exactly"):
        counts(Schema([Ordinal("a", [2**24 + 1])]), pa.table({"a": np.float32([1])}), "a")
    schema = Schema([Ordinal("a", [0.1, 0.25, 2**20])])
    narrow = pd.DataFrame({"a": np.float32([0.1, 0.25, 2**20])})
    assert counts(schema, narrow, "a") == [1, 1, 1]
    # one wide value makes pandas widen the column
    wide = pd.concat([narrow, pd.DataFrame({"a": [0.7]})])
    assert wide["a"].dtype == np.float64
    assert counts(schema, wide, "a") == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "stranger",
    ["x", b"F", 1, 2.5, None, True, [1], {"a": 1}, pd.NA, pd.Timestamp(0), 10**30, np.datetime64(0, "D")],
)
@pytest.mark.parametrize(
    ("attribute", "good"),
    [
        (Categorical("a", ["F", "M"]), "F"),
        (Ordinal("a", [2, 3]), 2),
        (Ordinal("a", [0.5, 3]), 0.5),
        (Categorical("a", [True, False]), False),
        (Binned("a", edges=[5, 6, 7]), 6),
    ],
)
def test_one_value_of_another_type_in_a_column_of_objects(attribute, good, stranger):
    frame = pd.DataFrame({"a": pd.Series([good] * 20 + [stranger], dtype=object)})
    found = np.array(counts(Schema([attribute]), frame, "a"))
    place = 1 if isinstance(attribute, Binned) else list(attribute.values).index(good)
    assert found[place] == 20
    assert found.sum() <= 21
    for rows in (1, 7):  # also in steps that hold objects of one kind only
        (again,) = open_table(Schema([attribute]), frame, ["a"], "drop", Limits(read_rows=rows)).marginals(
            [("a",)]
        )
        assert np.array_equal(found, again)


@pytest.mark.parametrize("label", [1 - 1e-12, 1e-300, 2**23 + 0.1])
@pytest.mark.parametrize("extra", [[], [None], [0.5]])
def test_an_integer_matches_no_label_that_is_one_as_a_narrow_float(label, extra):
    """One missing value makes pandas store integers as floats."""
    frame = pd.DataFrame({"a": [round(label)] * 100 + extra})
    assert counts(Schema([Ordinal("a", [label, 0.5])]), frame, "a") == [0, extra.count(0.5)]


@pytest.mark.parametrize("extra", [[], ["x"], [2.5], [None]])
def test_booleans_of_numpy_are_no_numbers_whatever_stands_beside_them(extra):
    """Arrow takes them for 0 and 1 if all the others are integers."""
    frame = pd.DataFrame({"a": pd.Series([0] + [np.True_] * 100 + extra, dtype=object)})
    assert counts(Schema.of(a=2), frame, "a") == [1, 0]


SCALARS = """
import numpy as np, pandas as pd, querysmasher as qs
from querysmasher.data.sources import open_table
for first in (np.datetime64(0, "D"), np.timedelta64(1, "s")):
    column = pd.Series([first, np.int8(1), np.int8(1)], dtype=object)
    counter = open_table(qs.Schema.of(a=2), pd.DataFrame({"a": column}), ["a"], "drop")
    print(type(first).__name__, next(counter.marginals([("a",)])).tolist(), flush=True)
"""


@pytest.mark.slow
def test_scalars_of_numpy_do_not_crash():
    """Arrow 26 ends the process at a day of NumPy that another scalar of NumPy follows."""
    done = python("-c", SCALARS)
    assert done.stdout.splitlines() == ["datetime64 [0, 2]", "timedelta64 [0, 2]"], done.stderr
    assert done.returncode == 0


def test_categories_of_several_kinds():
    frame = pd.DataFrame({"a": pd.Categorical(["F", 1, None, "F"])})
    assert counts(Schema([Categorical("a", ["F", "M"])]), frame, "a") == [2, 0]


DAYS = Ordinal("a", [date(2024, 2, 28), date(2024, 2, 29)])


@pytest.mark.parametrize("kind", [datetime.fromisoformat, pd.Timestamp])
def test_equal_moments_are_read_each_by_its_own_clock(kind):
    """One at midnight does not make those equal to it, which show another hour, match its day."""
    evening, midnight = kind("2024-02-28T23:00:00+00:00"), kind("2024-02-29T00:00:00+01:00")
    assert evening == midnight
    for extra in ([], [midnight]):
        frame = pd.DataFrame({"a": pd.Series([*extra] + [evening] * 100, dtype=object)})
        assert counts(Schema([DAYS]), frame, "a") == [0, len(extra)]


@pytest.mark.parametrize("others", [[], [date(2024, 2, 28)], ["x"], [b"x"], [3]])
def test_a_category_of_another_kind_does_not_convert_the_others(others):
    """A date among categories that are moments made Arrow cut off the hours of all of them."""
    noon = pd.Timestamp("2024-02-29 12:00")
    frame = pd.DataFrame({"a": pd.Categorical([*others] + [noon] * 100)})
    assert counts(Schema([DAYS]), frame, "a") == [int(isinstance(o, date)) for o in others[:1] or [0]] + [0]


@pytest.mark.parametrize("other", ["5", "x", "nan", "", " 5"])
@pytest.mark.parametrize("text", ["nan(ind)", "nan()"])
def test_a_number_is_read_alike_beside_any_text(tmp_path, other, text):
    """Whether a field is a number does not depend on whether all the others are."""
    schema = Schema([Binned("a", edges=[0, 1, 2], missing="[1, 2]")])
    path = tmp_path / "people.csv"
    path.write_text("a,b\n0.5,\n" + f"{text},\n" * 100 + f"{other},\n")
    assert counts(schema, path, "a") == [1, int(other in ("", "nan"))]


objects = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, 2, 2**53, 2**53 + 1, 0.1, float(np.float32(0.1)), 1.0, float(2**53), "1", "x"]),
    st.floats(),
    st.text(max_size=2),
    st.decimals(allow_nan=True),
    st.binary(max_size=2),
    st.integers(0, 3).map(np.int8),
    st.floats(width=32).map(np.float32),
    st.booleans().map(np.bool_),
    st.sampled_from(["2024-02-28T23:00+00:00", "2024-02-29T00:00+01:00", "2024-02-29T00:00"]).map(
        datetime.fromisoformat
    ),
    st.dates(date(2024, 2, 27), date(2024, 3, 1)),
)
attributes = st.sampled_from(
    [
        Categorical("a", ["1", "x", ""]),
        Ordinal("a", [0, 1, 2]),
        Ordinal("a", [0.1, 1, 2.0**53]),
        Ordinal("a", [2**53, 2**53 + 1]),
        Categorical("a", [True, False]),
        Categorical("a", ["1", 1.5, False]),
        Binned("a", edges=[0, 0.1, 1, 2**53]),
        DAYS,
    ]
)


@fewer(200)
@given(attributes, st.lists(objects, min_size=1, max_size=12))
def test_objects_are_read_one_at_a_time(attribute, values):
    """The code of a value does not depend on its neighbours in the column."""
    encoder = Encoder(attribute)

    def column(some):
        array = np.empty(len(some), dtype=object)
        array[:] = some
        return array

    together = encoder.encode(column(values)).tolist()
    assert together == [encoder.encode(column([value]))[0] for value in values]
    assert together == [encoder.code(value) for value in values]


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_column_that_cannot_match_by_form(tmp_path, decimal):
    """One value that can match must not decide, so records are dropped; `check` says what may be wrong."""
    path = tmp_path / "people.csv"
    other = {".": ",", ",": "."}[decimal]
    path.write_text("a;b\n" + f"1{other}5;x\n;x\n2{other}5;x\n")
    for attribute in (Ordinal("a", [1.5, 2.5]), Binned("a", edges=[0, 2, 4])):
        schema = Schema([attribute])
        with pytest.raises(DataError, match="attribute 'a': the data has a value of another kind"):
            counts(schema, CSV(path, decimal=decimal), "a", unknown="refuse")
        assert counts(schema, CSV(path, decimal=decimal), "a") == [0, 0]
        found = check(schema, CSV(path, decimal=decimal))
        assert found.readable
        assert "expected a column of numbers, but none of its values is one; is it the wrong" in repr(found)
        assert counts(schema, CSV(path, decimal=other), "a") == [1, 1]


def test_an_existing_file_is_read_as_itself(tmp_path):
    schema = Schema.of(a=3)
    for value, name in enumerate(("people1", "people[1]", "people*")):
        (tmp_path / f"{name}.csv").write_text(f"a\n{value}\n")
        pa.parquet.write_table(pa.table({"a": [value]}), tmp_path / f"{name}.parquet")
    for ending in (".csv", ".parquet"):
        assert counts(schema, tmp_path / f"people[1]{ending}", "a") == [0, 1, 0]
        assert counts(schema, tmp_path / f"people*{ending}", "a") == [0, 0, 1]
        assert counts(schema, tmp_path / f"p*[1-9]{ending}", "a") == [1, 0, 0]
