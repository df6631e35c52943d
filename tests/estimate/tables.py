"""Made-up tables and noisy residuals of them, for tests of estimates."""

import itertools
import math
from functools import cache

import numpy as np
import pandas as pd

import querysmasher as qs
from querysmasher.estimate.evidence import Evidence, Noisy, Zeros

BUDGET = qs.ApproxDP(1.0, 1e-6)


def people(records=4000, seed=0):
    """Records over five attributes of which some depend on each other, in chains, sparsely."""
    rng = np.random.default_rng(seed)
    a = np.minimum(rng.geometric(0.3, records) - 1, 7)
    b = np.clip(a + rng.integers(-1, 2, records), 0, 7)
    c = np.where(rng.random(records) < 0.8, b // 2, rng.integers(0, 4, records))
    d = np.minimum(rng.poisson(1 + 2 * (c == 3)), 5)
    e = rng.integers(0, 3, records)
    return qs.Schema.of(a=8, b=8, c=4, d=6, e=3), np.stack([a, b, c, d, e], axis=1)


def frame(schema, records):
    """Records of codes as a table."""
    return pd.DataFrame({name: records[:, i] for i, name in enumerate(schema.names)})


@cache
def estimated(records, budget, stated=(), seed=0):
    """The estimate of a release of all pairs, where some cells are stated to be impossible."""
    schema, rows = people(records)
    schema = schema.impossible(*stated)
    rows = rows[Zeros(schema).allowed(rows)]
    return qs.measure(qs.plan(qs.marginals(schema, 2), budget), frame(schema, rows), seed=seed).estimate()


def counted(schema, records, place):
    """The exact table on some attributes."""
    shape = [schema.sizes[p] for p in place]
    if not shape:
        return np.array(float(len(records)))
    index = np.ravel_multi_index([records[:, p] for p in place], shape)
    return np.bincount(index, minlength=math.prod(shape)).reshape(shape).astype(float)


def residual(table):
    """What is left after the means along every axis are taken off."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def noisy(schema, records, place, variance, rng):
    """A noisy residual."""
    exact = counted(schema, records, place)
    noise = rng.standard_normal(exact.shape) * math.sqrt(variance)
    return Noisy(tuple(place), residual(exact) + residual(noise), variance)


def told(schema, residuals, distances=None):
    """What noisy residuals of different sets say, and distances of pairs."""
    return Evidence(schema, {one.attributes: one for one in residuals}.get, distances)


def evidence(schema, records, order, variance, seed=0):
    """Noisy residuals of all sets of up to `order` attributes."""
    rng = np.random.default_rng(seed)
    places = [p for k in range(order + 1) for p in itertools.combinations(range(len(schema)), k)]
    return told(schema, [noisy(schema, records, place, variance, rng) for place in places])


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


def random_table(shape, records, concentration, seed):
    """A table without structure: the shares of cells have a Dirichlet distribution."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(math.prod(shape), concentration))
    schema = qs.Schema.of({f"x{i}": size for i, size in enumerate(shape)})
    return schema, rng.multinomial(records, shares).reshape(shape)
