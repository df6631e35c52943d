"""Errors of quantiles: what the distribution function of each group errs at its quantile.

To first order, a quantile x errs by -e / f, where e is the error of g(x) = F(x) - p D and f the density at x.
Here f is what makes the variance of the quantile the square of its standard error, which comes from the band
of the distribution function. Correlations do not depend on f.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.statistics.groups import ROWS, schema_of
from querysmasher.statistics.linear import Linear
from querysmasher.statistics.selection import Factor, among, select
from querysmasher.statistics.source import Source

MAX_ENTRIES = 50_000_000
"""Maximum number of coefficients of the queries of all quantiles together."""


def errors_at(
    source: Source, attribute: str, by: Sequence[str], where: str | None, rows: Array, std: Array
) -> Linear:
    """Return the errors of quantiles; `rows` has an axis of groups, one of probabilities and one of values.

    Each row is g over the values of the attribute, at the estimated quantile of its group.
    """
    schema = schema_of(source)
    groups, probabilities, size = rows.shape
    sizes = schema.shape(by)
    if rows.size * groups > MAX_ENTRIES:
        msg = f"{groups * probabilities:,} quantiles over {size:,} values are too many to compare"
        raise TooLargeError(msg)
    spread = np.zeros((groups, probabilities, size, groups))
    own = np.arange(groups)
    spread[own, :, :, own] = rows
    names = (attribute, *by)
    order = sorted(range(len(names)), key=lambda i: schema.position(names[i]))
    tensor = spread.reshape(math.prod(rows.shape[:2]), size, *sizes).transpose(0, *(1 + i for i in order))
    factor = Factor((ROWS,), tuple(schema.position(names[i]) for i in order), tensor)
    asked = select(schema, [factor, *among(schema, where)], (ROWS,))
    found = source.answer(asked.workload).std[asked.order]
    scale = np.divide(std.ravel(), found, out=np.zeros(found.shape), where=found > 0)
    return Linear.of(source, asked.workload, (asked.order, -scale))
