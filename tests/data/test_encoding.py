from __future__ import annotations

import decimal
import math

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.attributes import Binned, Categorical, Ordinal
from querysmasher.data.encoding import Encoder
from querysmasher.errors import DataError
from tests.data.mixed_table import position
from tests.profiles import fewer


def places(attribute, column):
    """The codes, with that of `unknown` for every value without a place."""
    return np.minimum(Encoder(attribute).encode(column), attribute.size).tolist()


def codes(attribute, column, dtype=None):
    return places(attribute, pa.array(column, type=dtype))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "dtype"), [(253, "uint8"), (254, "uint16"), (65533, "uint16"), (65534, "uint32")]
)
def test_smallest_type_that_holds_every_code(size, dtype):
    found = Encoder(Ordinal("a", range(size))).encode(pa.array([0, size - 1, size, None]))
    assert found.dtype == dtype
    assert found.tolist() == [0, size - 1, size, size + 1]
    found = Encoder(Ordinal("a", range(size))).encode(np.array(["x", 0], dtype=object))
    assert found.dtype == dtype
    assert found.tolist() == [size + 2, 0]


@pytest.mark.parametrize(
    "dtype",
    [pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()],
)
def test_integers_match_numbers_of_any_width(dtype):
    column = pa.array([3, 1, None, 7], type=pa.int64()).cast(dtype)
    assert places(Ordinal("a", [1, 2, 3]), column) == [2, 0, 3, 3]


SEVERAL = Categorical("a", ["1", 1, False, 2.5])
TEXT = Categorical("a", ["01", "1", "", "é"])
DECIMALS = [decimal.Decimal("3.0"), decimal.Decimal("3.5"), None]
BINS = Binned("a", edges=[0, 10, 25])  # closed on the left, and the last on both sides


@pytest.mark.parametrize(
    ("attribute", "column", "expected"),
    [
        (Ordinal("a", [1, 2, 3]), [3.0, 2.5, math.nan, math.inf, -0.0], [2, 3, 3, 3, 3]),
        (Ordinal("a", [1.0, 2.5]), [1, 2, 3], [0, 2, 2]),
        (Ordinal("a", [0, -1]), [-0.0, -1.0], [0, 1]),
        (Ordinal("a", [0.5]), [1], [1]),
        (Ordinal("a", [3]), DECIMALS, [0, 1, 1]),
        (Binned("a", edges=[3, 3.5, 4]), DECIMALS, [0, 1, 2]),
        (Ordinal("a", [0.1, 0.7]), pa.array([0.7, 0.1, 0.2], pa.float32()), [1, 0, 2]),
        (Ordinal("a", [1.0, 1.0 + 1e-12]), pa.array([1.0], pa.float32()), [0]),  # the same in 32 bits
        (Ordinal("a", [-(2**63), 0, 2**63 - 1]), [2**63 - 1, -(2**63), 1, 0], [2, 0, 3, 1]),
        (Ordinal("a", [-(2**63), -(2**63) + 1]), [-(2**63), 2**63 - 1, 0], [0, 2, 2]),
        (Ordinal("a", [2**63 - 2, 2**63 - 1]), [-(2**63), 2**63 - 1, 0], [2, 1, 2]),
        (Ordinal("a", [-1, 0]), pa.array([2**64 - 1, 0], pa.uint64()), [2, 1]),
        (Ordinal("a", [2**70]), [1], [1]),
        (TEXT, ["1", "01", " 1", "", "é", None, "É"], [1, 0, 4, 2, 3, 4, 4]),
        (TEXT, pa.array(["1", None], pa.large_string()), [1, 4]),
        (TEXT, pa.array(["1", None], pa.string_view()), [1, 4]),
        (Categorical("a", [True, False]), [True, False, None], [0, 1, 2]),
        (Categorical("a", [True]), [True, False], [0, 1]),
        (SEVERAL, ["1", "2"], [0, 4]),
        (SEVERAL, [1, 0], [1, 4]),
        (SEVERAL, [False, True], [2, 4]),
        (SEVERAL, [2.5, 1.0], [3, 1]),
        (BINS, [0.0, 9.999, 10, 25, 25.001, -1e-9, math.nan, None, math.inf], [0, 0, 1, 1, *[2] * 5]),
        (BINS, [0, 10, 25, 26, -1, None], [0, 1, 1, 2, 2, 2]),
        (Categorical("a", ["x"]), [None, None], [1, 1]),
    ],
)
def test_values_and_their_places(attribute, column, expected):
    column = column if isinstance(column, pa.Array) else pa.array(column)
    assert places(attribute, column) == expected


def test_dictionaries():
    column = pa.array(["b", "a", None, "c", "b"]).dictionary_encode()
    assert places(Categorical("a", ["a", "b"]), column) == [1, 0, 2, 2, 1]
    assert places(Categorical("a", ["a", "b"]), column.slice(1, 2)) == [0, 2]
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array([None, 5]))
    assert places(Ordinal("a", [5]), column) == [1, 0, 1, 0]
    full = pa.DictionaryArray.from_arrays(pa.array([255, None], pa.uint8()), pa.array(range(256)))
    assert places(Ordinal("a", [255]), full) == [0, 1]
    enum = pl.Series(["b", None], dtype=pl.Enum(["z", "b"])).to_arrow()
    assert places(Categorical("a", ["b"]), enum) == [0, 1]


def test_wrong_type_names_attribute_and_type_only():
    with pytest.raises(DataError, match=r"'a': expected a column of strings or numbers, got date32"):
        codes(Categorical("a", ["x", 1]), [10**4], pa.date32())


labels = st.one_of(
    st.lists(st.text(max_size=3), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(-20, 20), min_size=1, max_size=6, unique=True),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=6, unique=True),
)


@fewer(50)
@given(labels, st.data())
def test_random_values_against_the_plain_way(values, data):
    attribute = Categorical("a", values)
    other = {str: st.text(max_size=3), int: st.integers(-(2**63), 2**63 - 1), float: st.floats()}[
        type(values[0])
    ]
    column = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(values), other), max_size=20))
    dtype = {str: pa.string(), int: pa.int64(), float: pa.float64()}[type(values[0])]
    expected = [position(attribute, value) for value in column]
    assert codes(attribute, column, dtype) == [len(values) if e is None else e for e in expected]


@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=6, unique=True).map(sorted),
    st.lists(st.one_of(st.none(), st.floats())),
)
def test_random_bins_against_the_plain_way(edges, column):
    attribute = Binned("a", edges=edges)
    expected = [position(attribute, value) for value in [*column, *edges]]
    found = codes(attribute, [*column, *edges], pa.float64())
    assert found == [attribute.size if e is None else e for e in expected]
