"""Opens a table, wherever it lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import narwhals as nw

from querysmasher.data.counting import Limits
from querysmasher.data.frames import open_frame, open_relation
from querysmasher.data.paths import check_path, open_path
from querysmasher.data.rows import RowEncoder
from querysmasher.data.spark import open_spark
from querysmasher.errors import DataError, as_given
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.counts import Counter
from querysmasher.schema import Schema

Opener = Callable[[RowEncoder, object], Counter | None]
"""Returns a counter of a table, or None if the data is of another kind."""

OPENERS: tuple[Opener, ...] = (open_path, open_relation, open_spark, open_frame)
"""All kinds of tables. A new one needs a file of its own and a name here."""


def check_source(
    schema: Schema, data: object, attributes: Sequence[str], unknown: str, bound: Bound | None = None
) -> None:
    """Refuse options and paths that `open_table` would refuse, without opening the table."""
    RowEncoder(schema, tuple(attributes), unknown, bound)
    check_path(data)


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
