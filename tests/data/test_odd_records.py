"""With unknown="drop", no single record decides whether a table is measured, whatever it holds.

Each test compares a table with its neighbour that has one odd record more: both are measured, and the counts
differ by that record at most.
"""

from __future__ import annotations

import decimal
import math
import uuid
from datetime import date, datetime, timedelta

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from querysmasher.attributes import Binned, Categorical, Number, Ordinal
from querysmasher.data.check import check
from querysmasher.data.counting import Limits
from querysmasher.data.framing import CSV
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.privacy.bound import Bound
from querysmasher.schema import Schema

ATTRIBUTES = {
    "integers": (Ordinal("a", [1, 2, 3]), ["1", "2", "2"]),
    "numbers": (Ordinal("a", [0.5, 1, 2]), ["0.5", "2", "1.0"]),
    "bins": (Binned("a", edges=[0, 1.5, 10]), ["1", "2.5", "0"]),
    "booleans": (Categorical("a", [True, False]), ["true", "false", "true"]),
    "dates": (Ordinal("a", [date(2024, 2, 28), date(2024, 2, 29)]), ["2024-02-28", "2024-02-29"]),
    "texts": (Categorical("a", ["x", "é"]), ["x", "é"]),
}
ODD_TEXTS = [
    *("abc", "12x", "1e400", "-1e400", "1e-400", "nan", "nan(1)", "inf", "NULL", "None", "NaT", "-", "?"),
    *(
        "1,5",
        "1_000",
        "0x1F",
        "1" * 30,
        "1" * 5000,
        "9" * 19,
        "-9223372036854775809",
        "0.5",
        " 2",
        "2 ",
        "  ",
    ),
    *("2024-13-45", "2024-02-30", "9999-12-31", "10000-01-01", "2024-02-28 12:00", "29.02.2024", "\0", "٣"),
    *("True", "yes", "t", "1", "2", "x", "é", "\N{REPLACEMENT CHARACTER}", "{}", "[1]", "1+2j", "# 1", "'1'"),
]


def counts(attribute, data, bound=None, limits=None):
    counter = open_table(Schema([attribute]), data, ["a"], "drop", limits, bound)
    (table,) = counter.marginals([("a",)])
    assert counter.records() == table.sum()
    return table


def assert_one_more(attribute, before, data, limits=None):
    """Assert that a table is measured, and has at most one record more than the counts, in one cell."""
    found = counts(attribute, data, limits=limits)
    change = found - before
    assert change.min() >= 0
    assert change.sum() <= 1
    return found


def file(folder, texts, name):
    """Write a CSV file; a second column so that an empty field is a record."""
    quoted = ['"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text for text in texts]
    path = folder / f"{name}.csv"
    path.write_text("a,b\n" + "".join(f"{text},{1}\n" for text in quoted), encoding="utf-8")
    return path


def through_arrow(path):
    return pa.csv.read_csv(path)


def through_parquet(path):
    pq.write_table(through_arrow(path), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def through_duckdb(path):
    found = duckdb.read_csv(str(path), sample_size=-1)
    found.fetchall()  # it may refuse what it took for dates
    return found


READERS = {
    "csv": lambda path: path,
    "pandas": pd.read_csv,
    "pandas on arrow": lambda path: pd.read_csv(path, dtype_backend="pyarrow"),
    "pandas nullable": lambda path: pd.read_csv(path, dtype_backend="numpy_nullable"),
    "polars": lambda path: pl.read_csv(path, infer_schema_length=None),
    "polars lazy": lambda path: pl.read_csv(path, infer_schema_length=None).lazy(),
    "arrow": through_arrow,
    "parquet": through_parquet,
    "duckdb": through_duckdb,
    "duckdb texts": lambda path: duckdb.read_csv(str(path), all_varchar=True),
}
"""Most of these infer the types of columns, so that one record turns all numbers to strings."""


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", [kind for kind in ATTRIBUTES if kind != "texts"])
def test_a_text_that_changes_the_inferred_type(reader, kind, tmp_path):
    attribute, good = ATTRIBUTES[kind]
    read = READERS[reader]
    before = counts(attribute, read(file(tmp_path, good * 3, "less")))
    for number, odd in enumerate(ODD_TEXTS):
        path = file(tmp_path, [*good * 3, odd], f"{number}")
        try:
            table = read(path)
        except Exception:  # noqa: BLE001, S112 - the reader refuses the file, before we see a table
            continue
        assert_one_more(attribute, before, table)
        assert_one_more(attribute, before, table, Limits(read_rows=2))


ODD_OBJECTS = [
    *(
        "abc",
        "1",
        "",
        "\ud800",
        b"F",
        b"\xff",
        1,
        0,
        -1,
        2**53,
        2**63,
        2**64,
        10**400,
        0.5,
        1.0,
        1e308,
        math.inf,
    ),
    *(
        None,
        math.nan,
        pd.NA,
        pd.NaT,
        True,
        False,
        1j,
        1 + 0j,
        [1],
        {"a": 1},
        (1,),
        {1},
        object(),
        int,
        uuid.UUID(int=1),
    ),
    *(decimal.Decimal(2), decimal.Decimal("0.5"), decimal.Decimal("NaN"), decimal.Decimal("sNaN")),
    *(decimal.Decimal("1e9999"), decimal.Decimal("Infinity"), decimal.Decimal("1e-99999")),
    *(date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 28), datetime(1, 1, 1), datetime(2024, 2, 28, 12)),  # noqa: DTZ001
    *(pd.Timestamp("2024-02-29"), pd.Timestamp("2024-02-29", tz="Europe/Berlin"), timedelta(days=10**9 - 1)),
    *(
        pd.Timedelta(1),
        pd.Period("2024-02"),
        pd.Interval(0, 1),
        np.datetime64("2024-02-28"),
        np.datetime64("NaT"),
    ),
    *(
        np.int8(1),
        np.uint64(2**63),
        np.float16(1),
        np.float32(0.1),
        np.bool_(1),
        np.str_("1"),
        np.complex64(1),
    ),
    *(np.array([1, 2]), np.datetime64(2**62, "s"), np.timedelta64(1, "D"), np.void(b"1"), np.longdouble(1)),
]
OBJECTS = {
    "integers": [1, 2, 2],
    "numbers": [0.5, 2.0, 1],
    "bins": [1, 2.5, 0],
    "booleans": [True, False, True],
    "dates": [date(2024, 2, 28), pd.Timestamp("2024-02-29")],
    "texts": ["x", "é", "é"],
}


def objects(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def inferred(values):
    """A column as pandas makes it from a list, with the type that it infers."""
    return pd.DataFrame({"a": pd.Series(values, dtype=None if len(values) else object)})


FRAMES = {
    "pandas": inferred,
    "pandas objects": lambda values: pd.DataFrame({"a": pd.Series(values, dtype=object)}),
    "pandas nullable": lambda values: pd.DataFrame({"a": pd.Series(values, dtype=object)}).convert_dtypes(),
    "pandas categories": lambda values: pd.DataFrame({"a": pd.Categorical(values)}),
    "polars objects": lambda values: pl.DataFrame({"a": pl.Series(values, dtype=pl.Object)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_an_object_of_any_kind(frame, kind):
    """Also beside no other record, or beside itself only: then pandas infers its type."""
    attribute, make = ATTRIBUTES[kind][0], FRAMES[frame]
    good = OBJECTS[kind] * 2
    before = counts(attribute, make(good))
    for odd in ODD_OBJECTS:
        try:
            alone, twice, first, last = make([odd]), make([odd, odd]), make([odd, *good]), make([*good, odd])
        except Exception:  # noqa: BLE001, S112 - the library makes no frame of it
            continue
        once = assert_one_more(attribute, np.zeros_like(before), alone)
        assert_one_more(attribute, once, twice)
        assert_one_more(attribute, before, last)
        if "categories" not in frame:  # where 1 after True is True
            assert_one_more(attribute, before, first, Limits(read_rows=2))


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_a_type_is_refused_without_records_too(kind, tmp_path):
    """Where types of columns are stated, they are public; then no record decides, not even the first."""
    attribute = ATTRIBUTES[kind][0]
    good = [
        pa.string(),
        *({"booleans": [pa.bool_()], "dates": [pa.date32()], "texts": []}.get(kind, [pa.int8()])),
    ]
    every = [
        pa.string(),
        pa.bool_(),
        pa.int8(),
        pa.date32(),
        pa.binary(),
        pa.list_(pa.int8()),
        pa.duration("s"),
    ]
    for type_ in [*every, pa.timestamp("s", "Nowhere/Else"), pa.float32()]:
        for rows in (0, 1):
            table = pa.table({"a": pa.nulls(rows, type_)})
            pq.write_table(table, tmp_path / "x.parquet")
            zone = "Nowhere" in str(type_)
            refused = type_ not in good and not (
                kind in ("integers", "numbers", "bins") and type_ == pa.float32()
            )
            for data in (
                table,
                tmp_path / "x.parquet",
                *([] if zone else [pl.from_arrow(table), duckdb.from_arrow(table)]),
            ):
                if refused:
                    with pytest.raises(DataError, match="attribute 'a'"):
                        counts(attribute, data)
                else:
                    assert counts(attribute, data).sum() == 0


def test_a_record_of_a_file_with_too_many_or_too_few_fields(tmp_path):
    attribute = Ordinal("a", [1, 2])
    whole = "a,b\n1,x\n2,y\n" + "1,x\n" * 5
    for odd in (
        b"2\n",
        b"2,y,z\n",
        b'"2"\n',
        b"2,y,\n",
        b"2\ry\n",
        b"\n",
        b" \n",
        b"2,\xff\n",
        b"\xff,y\n",
        b"\xc3,1\n",
    ):
        for number, data in enumerate((whole.encode() + odd, b"a,b\n" + odd + whole[4:].encode())):
            (tmp_path / f"{number}.csv").write_bytes(data)
            assert_one_more(attribute, np.array([6, 1]), tmp_path / f"{number}.csv")
            found = check(Schema([attribute]), tmp_path / f"{number}.csv")
            assert found.records - found.bad_records == counts(attribute, tmp_path / f"{number}.csv").sum()
    (tmp_path / "x.csv").write_text("a,b\n1\n")
    with pytest.raises(DataError, match="line 2: a record of 1 field; the header has 2"):
        open_table(Schema([attribute]), tmp_path / "x.csv", ["a"]).records()


@pytest.mark.parametrize(
    ("encoding", "odd"), [("utf-16-le", b"\x00\xd8,\x00\n\x00"), ("cp1252", b"\x81,1\n")]
)
def test_a_character_that_another_encoding_does_not_have(tmp_path, encoding, odd):
    whole = "a,b\n1,x\n2,y\n".encode(encoding)
    (tmp_path / "less.csv").write_bytes(whole)
    (tmp_path / "more.csv").write_bytes(whole + odd + "1,x\n".encode(encoding))
    less, more = (CSV(tmp_path / f"{name}.csv", encoding=encoding) for name in ("less", "more"))
    assert counts(Ordinal("a", [1, 2]), less).tolist() == [1, 1]
    assert counts(Ordinal("a", [1, 2]), more).tolist() == [2, 1]
    with pytest.raises(DataError, match=f"not {encoding}"):
        open_table(Schema.of(a=3), more, ["a"]).records()


def test_a_string_that_is_not_utf_8_in_a_column_of_strings(tmp_path):
    bad = pa.array([b"1", b"\xff", b"2"]).view(pa.string())
    pq.write_table(pa.table({"a": bad}), tmp_path / "x.parquet")
    for attribute in (Ordinal("a", [1, 2]), Binned("a", edges=[0, 1.5, 3]), Categorical("a", ["1", "2"])):
        for data in (pa.table({"a": bad}), tmp_path / "x.parquet"):
            assert counts(attribute, data).tolist() == [1, 1]
            assert counts(attribute, data, Bound("a", 1, bytes(16))).tolist() == [1, 1]


def test_integers_beyond_64_bits(tmp_path):
    attribute = Ordinal("a", [1, 2])
    for kind in ("HUGEINT", "UHUGEINT", "BIGNUM"):
        values = ", ".join(f"(CAST({text} AS {kind}))" for text in ("'1'", "'2'", f"'1{'0' * 38}'", "NULL"))
        relation = duckdb.sql(f"SELECT * FROM (VALUES {values}) t(a)")  # noqa: S608 - our own text
        assert counts(attribute, relation).tolist() == [1, 1]
        assert counts(attribute, relation, Bound("a", 1, bytes(16))).tolist() == [1, 1]
    for kind in (pl.Int128, pl.UInt128):
        frame = pl.DataFrame({"a": pl.Series([1, 2, 10**30, None], dtype=kind)})
        assert counts(attribute, frame).tolist() == [1, 1]
        assert counts(attribute, frame, Bound("a", 1, bytes(16))).tolist() == [1, 1]


CENTS = [f"{n / 100:.2f}" for n in range(501)]


@pytest.mark.parametrize(
    "attribute",
    [
        Binned("a", edges=[*map(float, CENTS)]),
        Number("a", 0, 5, step=0.1),
        Ordinal("a", [*map(float, CENTS)]),
    ],
)
def test_decimals_are_the_numbers_that_they_state(attribute):
    expected = counts(attribute, pa.table({"a": CENTS})).tolist()
    assert counts(attribute, pa.table({"a": [*map(float, CENTS)]})).tolist() == expected
    for kind in (pa.decimal64(10, 2), pa.decimal128(5, 2), pa.decimal128(30, 9), pa.decimal256(50, 20)):
        table = pa.table({"a": pa.array([*map(decimal.Decimal, CENTS)], kind)})
        assert counts(attribute, table).tolist() == expected, kind


def test_narrow_decimals():
    values = [decimal.Decimal(1), decimal.Decimal("0.5"), None]
    for kind in (pa.decimal32(5, 2), pa.decimal64(10, 1), pa.decimal128(38, 10), pa.decimal256(76, 1)):
        table = pa.table({"a": pa.array(values, kind)})
        assert counts(Ordinal("a", [1, 2]), table).tolist() == [1, 0]
        assert counts(Ordinal("a", [1, 2]), table, Bound("a", 1, bytes(16))).tolist() == [1, 0]
        assert counts(Binned("a", edges=[0, 1, 2]), table).tolist() == [1, 1]


def test_pandas_types_for_labels_that_floats_cannot_distinguish():
    """Whether one value is missing, or a text, must not decide; so every inferred type is refused."""
    attribute = Ordinal("a", [2**53, 2**53 + 1, 5])
    for values in ([5, 2**53], [5, None], [5, "x"], [5, 2**70], [None], [], ["x", None, 5]):
        frame = pd.DataFrame({"a": pd.Series(values, dtype=None if values else object)})
        for unknown in ("drop", "refuse"):
            with pytest.raises(DataError, match=r"cannot represent its large integers exactly .*Int64"):
                open_table(Schema([attribute]), frame, ["a"], unknown).records()
    for values, kind in (([5, 2**53 + 1, None], "Int64"), (["5", str(2**53 + 1), None, "x"], "str")):
        assert counts(attribute, pd.DataFrame({"a": pd.Series(values, dtype=kind)})).tolist() == [0, 1, 1]


LOST = {
    "4.611686018427388e+18": True,
    "4.61169E+18": True,
    "4.611686018427388E18": True,
    "4,61e+18": True,
    "1e+18": True,
    "-4.6e+18": True,
    "9007199254740993.0": True,
    "46116860184273880.0": True,
    "M\N{REPLACEMENT CHARACTER}ller": True,
    "4611686018427387904": False,
    "7E12": False,
    "7e12": False,
    "17.0": False,
    "1234567890123456": False,
    "id 4.6e+18": False,
    "a.b@e+1": False,
    "": False,
}


def with_person(column):
    """A table of two records of each person."""
    repeated = np.repeat(column, 2) if isinstance(column, np.ndarray) else pa.concat_arrays([column, column])
    return (pd.DataFrame if isinstance(column, np.ndarray) else pa.table)(
        {"id": repeated, "a": [1] * len(repeated)}
    )


def persons_counted(data, unknown):
    return open_table(Schema.of(a=3), data, ["a"], unknown, None, Bound("id", 1, bytes(16))).records()


@pytest.mark.parametrize("text", LOST)
def test_a_person_whose_text_has_lost_digits(text, tmp_path):
    pd.DataFrame({"id": ["x", "x", text, text], "a": 1}).to_csv(tmp_path / "x.csv", index=False)
    table = with_person(pa.array(["x", text]))
    pq.write_table(table, tmp_path / "x.parquet")
    frames = [
        table,
        pl.from_arrow(table),
        duckdb.from_arrow(table),
        table.to_pandas(),
        tmp_path / "x.parquet",
    ]
    frames += [with_person(objects(["x", text])), with_person(pa.array(["x", text]).dictionary_encode())]
    for data in [*frames, *([tmp_path / "x.csv"] if text else [])]:
        if LOST[text]:
            with pytest.raises(DataError, match=r"person: .* strings that have lost digits or characters"):
                persons_counted(data, "refuse")
        else:
            assert persons_counted(data, "refuse") == 2
        assert persons_counted(data, "drop") == 2 - LOST[text]


@pytest.mark.parametrize(("kind", "exact"), [("float16", 2**11), ("float32", 2**24), ("float64", 2**53)])
def test_a_person_whose_float_has_lost_digits(kind, exact):
    for number, fits in ((exact, False), (exact - 1, True), (-exact, False), (0.5, False), (math.inf, False)):
        values = np.array([1, number], kind)
        tables = [with_person(pa.array(values)), with_person(values), with_person(objects(list(values)))]
        for data in [*tables, pl.from_arrow(tables[0])]:
            if fits:
                assert persons_counted(data, "refuse") == 2
            else:
                with pytest.raises(
                    DataError, match=rf"integers below 2\^{exact.bit_length() - 1}; floats lose dig"
                ):
                    persons_counted(data, "refuse")
            assert persons_counted(data, "drop") == 1 + fits


def test_a_person_of_any_kind():
    """Whether a person is known, and which, does not depend on other records."""
    known = {1, 0, -1, 2**53, 2**63, 2**64, "abc", "1", "", "\ud800", b"F", b"\xff"}
    for odd in ODD_OBJECTS:
        for rest in ([], ["abc", "x"], [5, 6], [b"x"]):
            columns = [pd.Series([*rest, *[odd] * times], dtype=object) for times in (0, 1, 3)]
            if type(odd) is not str or odd != "\ud800":  # which pandas does not store as a text
                columns = [column.infer_objects() for column in columns]
            frames = [pd.DataFrame({"id": column, "a": 1}) for column in columns]
            found = [persons_counted(frame, "drop") for frame in frames]
            assert found[0] == len(rest)
            assert found[1] == found[2]
            assert found[1] - found[0] <= 1
            if type(odd) in (int, str, bytes, float) and odd in known and rest and odd not in rest:
                assert found[1] == len(rest) + 1


def test_a_person_is_the_same_as_a_number_and_as_a_text():
    """pandas reads a long file in parts, and makes numbers of some and texts of others."""
    column = objects([7, "7", b"7", 7.0, np.int8(7), decimal.Decimal(7), "07"])
    for limits in (None, Limits(read_rows=1)):
        data = pd.DataFrame({"id": column, "a": 1})
        assert (
            open_table(Schema.of(a=3), data, ["a"], "drop", limits, Bound("id", 1, bytes(16))).records() == 2
        )


def test_files_whose_persons_are_of_several_kinds(tmp_path):
    """Their types are public, so they are refused without records too."""
    pq.write_table(pa.table({"id": [1, 2], "a": [1, 1]}), tmp_path / "0.parquet")
    for kind, refused in ((pa.string(), True), (pa.int8(), False), (pa.null(), False)):
        for rows in (0, 1):
            table = pa.table(
                {"id": pa.array(["3"] * rows).cast(kind) if kind != pa.null() else pa.nulls(rows)}
            )
            pq.write_table(table.append_column("a", pa.array([1] * rows, pa.int64())), tmp_path / "1.parquet")
            if refused:
                with pytest.raises(DataError, match="both integers and"):
                    persons_counted(tmp_path, "drop")
            else:
                assert persons_counted(tmp_path, "drop") == 2 + rows * (kind != pa.null())
