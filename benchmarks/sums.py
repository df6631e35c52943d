"""Sums of many cells from estimates, beside unbiased answers: prefixes, ranges, trees, predicates."""

import time
from itertools import combinations

import numpy as np

from benchmarks.estimates import DELTA, EPSILONS, _tables
from benchmarks.report import Table, console

SEEDS, MOST_ATTRIBUTES = 6, 3
LARGEST_RATIO = 1.01
QUICKLY = {"tolerance": 1e-2}


def sums(quick):
    """Measure errors of sums from estimates relative to those of unbiased answers."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    table = Table(
        "Estimates of prefixes, ranges and other sums",
        f"The three attributes with most values of each table, and a made-up sparse one, at δ = {DELTA:g}: "
        "the root mean square error of `release.answer()`, and the ratio of that of `release.estimate()` to "
        f"it, over all queries and {SEEDS} seeds. Workloads ask for sets of one and two attributes. Checks "
        "leave room for two standard errors of the ratio.",
        ("table", "workload", *(f"ε = {e:g}" for e in EPSILONS)),
        f"estimates are at most {LARGEST_RATIO - 1:.0%} above unbiased answers, and below them at ε = 0.1",
    )
    start = time.process_time()
    for name, load in {**_tables(), "sparse (made up)": _sparse}.items():
        frame = load()
        sizes = {column: int(frame[column].max()) + 1 for column in frame}
        widest = sorted(sizes, key=sizes.get, reverse=True)[:MOST_ATTRIBUTES]
        schema = qs.Schema.of({column: sizes[column] for column in widest})
        for kind, workload in _workloads(qs, schema).items():
            truth = _truth(workload, frame)
            cells = []
            for epsilon in EPSILONS[:1] if quick else EPSILONS:
                plan = qs.plan(workload, qs.ApproxDP(epsilon, DELTA), progress=False, **QUICKLY)
                unbiased, ratio, chance = _ratio(qs, plan, frame[widest], truth)
                cells.append(f"{unbiased:.3g}, × {ratio:.3f}")
                most = LARGEST_RATIO if epsilon > EPSILONS[0] else 1
                said = f"{name}, {kind}, {epsilon:g}: {ratio:.4f} ± {chance:.4f} of the unbiased error"
                table.check(ratio <= most + 2 * chance, said)
            table.add(name, kind, *cells, *[""] * (len(EPSILONS) - len(cells)))
            spent = time.process_time() - start
            console.log(f"{name} {kind}: {cells} ({spent:.0f} s)", highlight=False)
    return table


def _workloads(qs, schema):
    """Return workloads of sums by name."""
    from querysmasher.conditions import written_name  # noqa: PLC0415

    names, sizes = schema.names, dict(zip(schema.names, schema.sizes, strict=True))
    pairs = list(combinations(names, 2))

    def tree(name):
        return qs.hierarchy(schema, name, {code: f"{code // 4}" for code in range(sizes[name])})

    thresholds = [
        f"{written_name(a)} >= {sizes[a] * i // 5} and {written_name(b)} < {sizes[b] * j // 5}"
        for a, b in pairs
        for i in range(1, 5)
        for j in range(1, 5)
        if sizes[b] * j // 5
    ]
    first, *rest = thresholds
    return {
        "prefixes": qs.all_kway(schema, [1, 2], "prefix"),
        "ranges": qs.all_kway(schema, [1, 2], "range"),
        "ranges of one": qs.all_kway(schema, 1, "range"),
        "circular ranges": qs.all_kway(schema, [1, 2], "circular"),
        "prefixes by value": qs.queries(schema, {names[0]: "prefix", names[1]: "identity"}),
        "sums below (affine)": qs.affine(schema, *names[1:3]),
        "absolute differences": qs.abs_difference(schema, *names[1:3]),
        "hierarchies": qs.queries(schema, {names[0]: tree(names[0])})
        + qs.queries(schema, {names[1]: tree(names[1])}),
        "predicates": sum((qs.where(schema, one) for one in rest), qs.where(schema, first)),
    }


def _ratio(qs, plan, frame, truth):
    """Return the error of unbiased answers, that of estimates relative to it, and its standard error."""
    squares = np.zeros((SEEDS, 2))
    for seed in range(SEEDS):
        release = qs.measure(plan, frame, seed=seed)
        found = (release.answer().values, release.estimate().answer().values)
        squares[seed] = [np.mean((values - truth) ** 2) for values in found]
    unbiased, ours = np.sqrt(squares.mean(axis=0))
    ratio = ours / unbiased
    wrong = squares[:, 1] - ratio**2 * squares[:, 0]  # of mean zero
    return unbiased, ratio, wrong.std() / (2 * ratio * unbiased**2 * np.sqrt(SEEDS))


def _truth(workload, frame):
    """Return the true answers."""
    found = []
    for group in workload:
        shape = workload.schema.shape(group.attributes)
        codes = np.ravel_multi_index([frame[name].to_numpy() for name in group.attributes], shape)
        answers = np.bincount(codes, minlength=int(np.prod(shape))).reshape(shape).astype(float)
        for _, family in group.parts():
            answers = np.moveaxis(family.answers(answers), 0, -1)
        found.append(answers.ravel())
    return np.concatenate(found)


def _sparse():
    """Return 2,000 records over three attributes of 32 values, of which few are common."""
    import pandas as pd  # noqa: PLC0415

    rng = np.random.default_rng(0)
    first = rng.geometric(0.15, 2000).clip(max=32) - 1
    second = (first // 2 + rng.geometric(0.3, 2000)).clip(max=31)
    third = np.where(rng.random(2000) < 0.8, 0, rng.integers(0, 32, 2000))
    return pd.DataFrame({"first": first, "second": second, "third": third})
