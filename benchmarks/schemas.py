"""The schemas and workloads of the paper's experiments. `WORKLOADS` names each for `--cell`."""

from itertools import combinations

import querysmasher as qs
from benchmarks.draw import drawn_weights
from querysmasher.workload.joint import AbsDifference, Affine, RandomQueries

# sizes of the categorical and of the numeric attributes
REAL = {
    "adult": ((42, 16, 15, 9, 7, 6, 5, 2, 2), (100, 100, 100, 99, 85)),
    "cps": ((7, 4, 2), (50, 100)),
    "loans": ((51, 36, 15, 8, 6, 5, 4, 3), (101, 101, 101, 101)),
}

PRODUCT_CELLS = 6_000
"""The paper's own limit is somewhere between 5,151 and 8,415: see `comparisons`."""

FAMILIES = {"marginal": "identity", "prefix": "prefix", "range": "range", "circular": "circular"}


def real(name):
    categorical, numeric = REAL[name]
    return qs.Schema(
        [qs.Categorical(f"c{i}", range(n)) for i, n in enumerate(categorical)]
        + [qs.Ordinal(f"n{i}", range(n)) for i, n in enumerate(numeric)]
    )


def cube(n, d):
    return qs.Schema.of({f"x{i}": n for i in range(d)})


def ways(text):
    """Read "3" as 3-way only, "<=3" as 1-, 2- and 3-way."""
    return list(range(1, int(text[2:]) + 1)) if text.startswith("<=") else int(text)


def joined(workloads):
    """Join many workloads at once: adding them one by one copies all groups every time."""
    workloads = list(workloads)
    return qs.Workload(workloads[0].schema, tuple(g for w in workloads for g in w))


def pairs(schema, ask):
    return joined(ask(schema, a, b) for a, b in combinations(schema.names, 2))


def hybrid(name, k):
    return qs.all_kway(real(name), ways(k))


def comparisons(name, kind):
    """Ask the workload behind the paper's table of affine and abs queries on real schemas.

    The paper calls it all 2-way queries, but its query counts (and its WFF column, to the last digit)
    are those of: the 1-way hybrid queries, and the comparisons on every pair of attributes except pairs
    of large numeric ones, on which prefix products are asked.
    """
    schema = real(name)

    def ask(schema, a, b):
        if schema[a].size * schema[b].size > PRODUCT_CELLS:
            return qs.queries(schema, {a: "prefix", b: "prefix"})
        return COMPARE[kind](schema, a, b)

    return qs.all_kway(schema, 1) + pairs(schema, ask)


def every_pair(name, kind):
    """Ask what the paper's text says: comparisons on all pairs, and nothing else."""
    return pairs(real(name), COMPARE[kind])


def one_and_two_way(n, kind, d=40):
    schema = cube(n, d)
    if kind in FAMILIES:
        return qs.all_kway(schema, [1, 2], FAMILIES[kind])
    if kind == "random":  # one matrix per shape: the same seed for all sets of one shape
        return joined(
            qs.random_queries(schema, chosen, 3 * n**k, p=0.3, seed=k)
            for k in (1, 2)
            for chosen in combinations(schema.names, k)
        )
    return qs.all_kway(schema, 1, "prefix") + pairs(schema, COMPARE[kind])


def weighted(n, kind, seed, d=40):
    workload = one_and_two_way(n, kind, d)
    parts = (qs.Workload(workload.schema, (group,)) for group in workload)
    return joined(float(w) * part for w, part in zip(drawn_weights(seed, d), parts, strict=True))


def mixed(n, d):
    schema = cube(n, d)
    return qs.all_kway(schema, 1, "range") + pairs(schema, qs.affine) + qs.all_kway(schema, 3, "prefix")


def prefix(n, d, k):
    return qs.all_kway(cube(n, d), ways(k), "prefix")


def marginals_and_hybrid(name):
    """All 3-way marginals, and on one and two attributes the hybrid queries."""
    schema = real(name)
    return qs.marginals(schema, 3) + qs.all_kway(schema, [1, 2])


def marginals_and_prefix(n):
    schema = cube(n, 3)
    return qs.marginals(schema, 3) + qs.all_kway(schema, [1, 2], "prefix")


def tolerance(workload):
    """1e-4, but 1e-3 where a subworkload that is no product has over 1,000 cells."""
    joint = [f for g in workload for f in g.families if isinstance(f, Affine | AbsDifference | RandomQueries)]
    return 1e-3 if max((f.cells for f in joint), default=0) > 1_000 else 1e-4


COMPARE = {"affine": qs.affine, "abs": qs.abs_difference}
WORKLOADS = {
    f.__name__: f
    for f in (
        hybrid,
        comparisons,
        every_pair,
        one_and_two_way,
        weighted,
        mixed,
        prefix,
        marginals_and_hybrid,
        marginals_and_prefix,
    )
}
