"""Plans on so few cells that every pair of neighbouring tables can be tried."""

import numpy as np

import querysmasher as qs
from tests.builders import BEST, UNIFORM
from tests.release.tables import random_counts

SMALL = qs.Schema.of(a=3, b=2, c=2)
"""Twelve cells: few enough to try every change of a table."""

WORKLOADS = {
    "marginals": (qs.marginals(SMALL, [0, 1, 2, 3]), UNIFORM),
    "prefixes": (qs.all_kway(SMALL, [1, 2], "prefix"), UNIFORM),
    "best centres": (qs.all_kway(SMALL, [1, 2], "prefix"), BEST),
    "affine": (qs.affine(SMALL, "a", "b") + qs.marginals(SMALL, 1), UNIFORM),
    "where": (qs.where(SMALL, "a + b <= 1 or c == 1") + qs.where(SMALL, "a > 0 and b == 1"), UNIFORM),
    "structured": (
        qs.all_kway(SMALL, [2, 3], "prefix") + qs.marginals(SMALL, [2, 3]),
        {"solver": "structured", **BEST},
    ),
    "real": (qs.linear(SMALL, ("c", "a"), np.linspace(-1, 1.7, 12).reshape(2, 6) ** 3), UNIFORM),
}

BASE = random_counts(SMALL, seed=5, records=40) + 2
