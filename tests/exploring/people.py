"""Tables to explore: made-up people, and every way to hand a table over."""

import numpy as np
import pandas as pd

import querysmasher as qs
from tests.estimate.tables import counted

BUDGET = qs.ApproxDP(1.0, 1e-6)


def frame(schema, records):
    """Records of codes as a frame."""
    return pd.DataFrame({name: records[:, i] for i, name in enumerate(schema.names)})


def sums(records=3000, seed=0):
    """Four independent attributes, and one that is the sum of two modulo 4, mostly: a triple to be found."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 4, (records, 5))
    known = rng.random(records) < 0.9
    drawn[known, 4] = (drawn[known, 0] + drawn[known, 1]) % 4
    return qs.Schema.of(a=4, b=4, c=4, d=4, e=4), drawn


def true_error(estimate, records, names):
    """The sum of the absolute errors of an estimated table."""
    schema = estimate.schema
    exact = counted(schema, records, schema.positions(names))
    return float(np.abs(np.asarray(estimate.marginal(*names)) - exact).sum())
