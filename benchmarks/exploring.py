"""Exploring all 3-way tables of real tables: errors, and how often published ones cover the truth."""

import math
import time

import numpy as np

from benchmarks.estimates import DELTA, EPSILONS, SEEDS, _counts, _error, _shown, _tables
from benchmarks.report import Table, console


def exploring(quick):
    """Measure the errors of explored estimates, and how often published intervals cover them."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    table = Table(
        "Exploring sparse tables",
        'As above, with `qs.explore` beside a plan with `purpose="estimate"`. *published* is the mean error '
        "that the release publishes with 2% of the budget, and *true* the error it is about (‖error‖₁/N, "
        "first seed). *covered* is the share of tables and seeds whose 95% interval contains the true error. "
        "*time* is the processor time of `explore`, with counting.",
        ("table", "ε", "purpose", "explore", "published", "true", "covered", "time"),
        "exploring is at most 4% worse than a plan for estimates; intervals cover the errors as often as "
        "they say",
    )
    for name, load in _tables().items():
        frame = load()
        schema = qs.Schema.of({column: int(frame[column].max()) + 1 for column in frame})
        workload = qs.marginals(schema, 3)
        truth = _counts(schema, workload, frame)
        covered = []
        for epsilon in EPSILONS[1:2] if quick else EPSILONS:
            found = _explored(qs, workload, frame, truth, qs.ApproxDP(epsilon, DELTA))
            console.log(f"{name} {epsilon}: {found[:4]}", highlight=False)
            purpose, ours, published, true, inside, seconds = found
            covered += inside
            table.add(
                name,
                f"{epsilon:g}",
                _shown(purpose),
                _shown(ours),
                published,
                f"{true:.3g}",
                f"{np.mean(inside):.0%}",
                f"{seconds:.1f} s",
            )
            table.check(ours[0] <= 1.04 * purpose[0], f"{name}, {epsilon}: {ours[0]:.3g}, {purpose[0]:.3g}")
        slack = 4 * math.sqrt(0.05 * 0.95 / len(covered))
        table.check(abs(np.mean(covered) - 0.95) <= slack, f"{name}: intervals cover {np.mean(covered):.1%}")
    return table


def _explored(qs, workload, frame, truth, budget):
    """Return errors of both, the published and true mean error, which intervals cover, and the time."""
    plan = qs.plan(workload, budget, purpose="estimate", records=len(frame))
    records, inside, slowest = len(frame), [], 0.0
    results = np.zeros((2, 2))
    ends = np.cumsum([group.rows for group in workload])[:-1]
    published, true = "", 0.0
    first = round(1000 * budget.epsilon)  # or every ε would have the same noise, but for its scale
    for seed in range(first, first + SEEDS):
        start = time.process_time()
        release = qs.explore(workload, frame, budget, seed=seed)
        slowest = max(slowest, time.process_time() - start)
        estimate = release.estimate()
        values = estimate.answer().values
        other = qs.measure(plan, frame, seed=seed).estimate().answer(workload).values
        results += [_error(workload, one, truth, records) for one in (other, values)]
        errors = [float(np.abs(own).sum()) for own in np.split(values - truth, ends)]
        for one, exact in zip(estimate.errors().each, errors, strict=True):
            low, high = one.interval()
            inside.append(low <= exact <= high)
        if seed == first:
            mean = estimate.error()
            published = f"{mean.records / records:.3g} ± {1.96 * mean.std / records:.2g}"
            true = float(np.mean(errors)) / records
    return (*(results / SEEDS).tolist(), published, true, inside, slowest)
