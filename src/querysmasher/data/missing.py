"""Which values of a column are missing: null, and NaN, which is how pandas writes null among numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def is_missing(column: Any) -> NDArray[np.bool_]:
    """Return, for each value of an Arrow array, whether it is missing."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        among = np.append(is_missing(column.dictionary), True)
        places = column.indices.cast(pa.int64()).fill_null(len(column.dictionary))
        return among[np.asarray(places)]
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    return np.asarray(pc.is_null(column, nan_is_null=pa.types.is_floating(column.type)), dtype=bool)
