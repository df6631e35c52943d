"""The workloads of the section on cliffs, and a bound on them that shares no code with the planner."""

import math
import time

import numpy as np

import querysmasher as qs
from benchmarks.schemas import hybrid, joined

DENSE = 3_000
"""Maximum number of distinct cells, and of queries, of an independent dense solve."""


def wheres(schema, predicates):
    return joined(qs.where(schema, one) for one in predicates)


def boxes(count):
    rng, schema, words = np.random.default_rng(0), qs.Schema.of(a=50, b=30, d=4), []
    for _ in range(count):
        low, high = sorted(rng.integers(0, 50, 2).tolist())
        words.append(f"{low} <= a <= {high} and b < {rng.integers(1, 30)} and d == {rng.integers(4)}")
    return wheres(schema, words)


def mixed(count):
    sizes = {"a": 50, "b": 30, "c": 10, "d": 4, "e": 2}
    rng, words = np.random.default_rng(0), []

    def condition(name):
        n = sizes[name]
        if n <= 4:
            return f"{name} == {rng.integers(n)}"
        if rng.random() < 0.5:
            return f"{name} < {rng.integers(1, n)}"
        low, high = sorted(rng.integers(0, n, 2).tolist())
        return f"{low} <= {name} <= {high}"

    for _ in range(count):
        names = rng.choice(list(sizes), rng.integers(2, 5), replace=False)
        words.append(" and ".join(map(condition, names)))
    return wheres(qs.Schema.of(sizes), words)


def disjunctions(count):
    rng, words = np.random.default_rng(0), []
    for number in range(count):
        if number % 2:
            a, b, c = rng.integers(1, 50), rng.integers(1, 30), rng.integers(10)
            words.append(f"a < {a} or b >= {b} and c == {c}")
        else:
            words.append(f"a + b < {rng.integers(5, 70)}")
    return wheres(qs.Schema.of(a=50, b=30, c=10), words)


def tables(count):
    """CPS tables, and predicates on three attributes that together weigh as much."""
    asked = hybrid("cps", "<=2")
    if not count:
        return asked
    rng, words = np.random.default_rng(0), []
    for _ in range(count):
        low, high = sorted(rng.integers(0, 50, 2).tolist())
        words.append(f"{low} <= n0 <= {high} and n1 < {rng.integers(1, 100)} and c0 == {rng.integers(7)}")
    return asked + asked.query_count / count * wheres(asked.schema, words)


def scattered(count):
    """Predicates on one to four of eleven attributes, which together distinguish 10^8 combinations."""
    sizes = (30, 15, 5, 5, 2, 2, 2, 3, 100, 30, 500)
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate(sizes)})
    return _on_random_sets(schema, count, lambda rng: rng.integers(1, 5))


def adult(count):
    """Adult tables, and predicates on three of its attributes each that together weigh as much."""
    asked = hybrid("adult", "<=2")
    return asked + asked.query_count / count * _on_random_sets(asked.schema, count, lambda _: 3)


def _on_random_sets(schema, count, width):
    rng, words = np.random.default_rng(0), []
    for _ in range(count):
        names = rng.choice(schema.names, width(rng), replace=False)
        words.append(" and ".join(_condition(rng, schema[name]) for name in names))
    return wheres(schema, words)


def _condition(rng, attribute):
    low, high = sorted(rng.integers(0, attribute.size, 2).tolist())
    if attribute.kind == "categorical":
        return f"{attribute.name} == {attribute.literals[low]}"
    return f"{low} <= {attribute.name} <= {high}"


def one(words):
    return qs.where(qs.Schema.of(a=10, b=10, c=10, d=10), words)


def random(n, count):
    return qs.random_queries(qs.Schema.of(a=n, b=n), ("a", "b"), count)


def million(m, n, count):
    """Ask rows of a million or nothing, and all tables."""
    rows = 1e6 * np.random.default_rng(0).integers(0, 2, (count, m * n))
    schema = qs.Schema.of(a=m, b=n)
    return qs.linear(schema, ("a", "b"), rows) + qs.marginals(schema, 2)


def joint(kind, n):
    ask = qs.affine if kind == "affine" else qs.abs_difference
    return ask(qs.Schema.of(a=n, b=n), "a", "b")


def sums(kinds, n):
    schema = qs.Schema.of(a=n, b=n)
    families = {"i": "identity", "p": "prefix", "r": "range"}
    asked = [qs.all_kway(schema, 2, families[kind]) for kind in kinds if kind in families]
    asked += [joint("affine", n)] if "a" in kinds else []
    asked += [joint("abs", n)] if kinds.count("a") > 1 else []
    return joined(asked)


def census(most):
    schema = qs.Schema(
        [
            qs.Ordinal("age", range(116)),
            qs.Categorical("sex", range(2)),
            qs.Categorical("race", range(63)),
            qs.Categorical("county", range(3143)),
            qs.Categorical("hispanic", range(2)),
            qs.Categorical("relationship", range(42)),
        ]
    )
    return qs.all_kway(schema, list(range(1, most + 1)))


def mixture(number):
    """Ask several families of the same attributes of hundreds of values, beside small ones."""
    if number == 0:
        schema = qs.Schema.of(a=600, sex=2, region=4)
        asked = [{"a": "prefix"}, {"a": "range", "sex": "identity"}, {"a": "identity", "region": "identity"}]
        return joined(qs.queries(schema, families) for families in asked)
    if number == 1:
        schema = qs.Schema.of(a=600, b=300, sex=2, region=4)
        first = qs.queries(schema, a="prefix", sex="identity")
        return first + qs.queries(schema, b="range", region="identity") + qs.marginals(schema, 1)
    if number == 3:
        schema = qs.Schema.of(sex=2, age=100, region=4, hour=24)
        asked = qs.marginals(schema, [1, 2]) + qs.all_kway(schema, [1, 2], "prefix")
        return asked + 2 * qs.where(schema, "age >= 18 or sex == 1")
    schema = qs.Schema.of(age=100, sex=2, region=4, income=300)
    ranges = qs.queries(schema, age="range", sex="identity")
    return qs.all_kway(schema, [1, 2]) + ranges + qs.marginals(schema, 1)


def windows(n, *lengths):
    """Ask all ranges of each length."""
    schema = qs.Schema.of(a=n)
    firsts = [(np.arange(n - length + 1), length) for length in lengths]
    return joined(qs.queries(schema, a=qs.ranges(schema, "a", f, f + k - 1)) for f, k in firsts)


def prefix(n):
    return qs.all_kway(qs.Schema.of(a=n), 1, "prefix")


def many():
    sizes = [(2, 3, 5, 10, 20, 50, 100)[i % 7] for i in range(100)]
    schema = qs.Schema(
        [(qs.Ordinal if n >= 10 else qs.Categorical)(f"x{i}", range(n)) for i, n in enumerate(sizes)]
    )
    return qs.all_kway(schema, [1, 2])


def eigh_seconds(size):
    matrix = np.random.default_rng(0).standard_normal((size, size))
    matrix = matrix + matrix.T
    start = time.process_time()
    np.linalg.eigh(matrix)
    return time.process_time() - start


def lower_bound(workload):
    """The least weighted RMSE of any mechanism at privacy cost 1, or None if the workload is too large.

    The queries are written out, equal cells are merged, and p ← p·v² is iterated from equal weights.
    """
    places = sorted({p for group in workload for p in workload.schema.positions(group.attributes)})
    shape = [workload.schema.sizes[p] for p in places]
    if workload.query_count > DENSE or workload.query_count * math.prod(shape) > 2e7:
        return None
    rows = np.concatenate([_rows(workload, group, places, shape) for group in workload])
    columns = np.unique(rows, axis=1)
    if columns.shape[1] > DENSE or len(columns) * columns.shape[1] > 1e6:
        return None
    p = np.full(columns.shape[1], 1.0 / columns.shape[1])
    best = 0.0
    for _ in range(300):
        _, s, right = np.linalg.svd(columns * np.sqrt(p), full_matrices=False)
        best = max(best, float(s.sum()))
        used = s > 1e-12 * s[0]
        v = (s[used, None] * right[used] ** 2).sum(axis=0) / p
        p = p * v**2
        p = np.maximum(p, 1e-12 * p.max())
        p /= p.sum()
    return best / math.sqrt(workload.query_count)


def _rows(workload, group, places, shape):
    tensor, order = np.full(1, math.sqrt(group.weight)), []
    for names, family in group.parts():
        own = (
            family.matrix() if family.weights is None else family.matrix() * np.sqrt(family.weights)[:, None]
        )
        tensor = np.multiply.outer(tensor, own.reshape(-1, *family.shape))
        tensor = np.moveaxis(tensor, 1 + len(order), 1)
        tensor = tensor.reshape(-1, *tensor.shape[2:])
        order += workload.schema.positions(names)
    tensor = tensor.transpose(0, *(1 + np.argsort(order)))
    spread = [n if place in order else 1 for place, n in zip(places, shape, strict=True)]
    every = np.broadcast_to(tensor.reshape(-1, *spread), (len(tensor), *shape))
    return every.reshape(len(tensor), -1)
