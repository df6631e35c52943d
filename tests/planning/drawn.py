"""Random workloads with weights from 1e-8 to 1e8 and rows from 1e-3 to 1e6."""

import math

import numpy as np

import querysmasher as qs

SEEDS = [seed for seed in range(62) if seed not in (4, 13)]
"""Seeds of `drawn`, without two whose many queries take as long as those of twenty others."""


def _power(random, low, high):
    return float(10 ** random.uniform(low, high))


def _rows(random, cells):
    """Some rows over the cells, of any magnitude."""
    count = int(random.integers(1, 4))
    kind = random.choice(["integers", "decimals", "indicators", "near total"])
    if kind == "integers":
        rows = random.integers(-3, 10, (count, cells)).astype(float)
    elif kind == "decimals":
        rows = np.round(random.normal(size=(count, cells)), int(random.integers(1, 4)))
    elif kind == "near total":
        rows = 1000.0 + random.integers(0, 3, (count, cells))
    else:
        rows = (random.random((count, cells)) < 0.4).astype(float)
    rows[0, 0] += not rows[0].any()
    if random.random() < 0.5:
        return rows * 10.0 ** random.integers(-3, 7)
    return np.round(rows * _power(random, -3, 6), 3) + (np.abs(rows).sum(axis=1) == 0)[:, None]


def _part(random, schema):
    names = list(schema.names)
    random.shuffle(names)
    few = names[: int(random.integers(1, min(3, len(names)) + 1))]
    sizes = [schema[n].size for n in few]
    kind = random.choice(
        ["marginals", "product", "product", "linear", "linear", "affine", "difference", "ranges"]
    )
    if kind == "affine" and len(few) > 1:
        return qs.affine(schema, *few[:2])
    if kind == "difference" and len(few) > 1:
        return qs.abs_difference(schema, *few[:2])
    if kind == "linear":
        own = None if random.random() < 0.7 else 1.0
        rows = _rows(random, math.prod(sizes))
        own = None if own is None else [_power(random, -8, 8) for _ in rows]
        return qs.linear(schema, few, rows, weights=own)
    if kind == "ranges":
        low = random.integers(0, sizes[0], 3)
        high = [int(random.integers(start, sizes[0])) for start in low]
        first = qs.ranges(schema, few[0], low.tolist(), high)
        return qs.queries(schema, {few[0]: first, **dict.fromkeys(few[1:], "prefix")})
    if kind == "product":
        kinds = ["identity", "prefix", "range", "circular"]
        return qs.queries(schema, {name: str(random.choice(kinds)) for name in few})
    return qs.marginals(schema, int(random.integers(0, min(3, len(names)) + 1)))


def drawn(seed):
    """A workload and a budget."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 6, int(random.integers(1, 4)))
    schema = qs.Schema.of({f"a{i}": int(n) for i, n in enumerate(sizes)})
    wide = random.random() < 0.6
    workload = None
    for _ in range(int(random.integers(1, 5))):
        part = _part(random, schema) * (_power(random, -8, 8) if wide else 1.0)
        workload = part if workload is None else workload + part
    neighbours = "replace_one" if random.random() < 0.2 else "add_remove"
    return workload, qs.PrivacyCost(1.0, neighbours=neighbours)
