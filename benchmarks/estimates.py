"""Estimates of all 3-way tables of real tables, beside unbiased answers: errors and times.

The tables come with packages. Another one, whose values are coded 0, 1, …, may be named by the environment
variable QUERYSMASHER_TABLE, the path of a CSV file.
"""

import os
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Table, console

EPSILONS, DELTA, SEEDS, MOST_VALUES = (0.1, 1.0, 10.0), 1e-9, 3, 24
OWN = "QUERYSMASHER_TABLE"

MOST_RECORDS = 50_000
"""Maximum number of records of a table from whose estimate synthetic records are drawn."""


def estimates(quick):
    """Measure the errors of estimates."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    table = Table(
        "Estimates of sparse tables",
        "All 3-way tables of real tables at δ = 1e-9: the mean over tables of ‖error‖₁/N, and the root mean "
        f"square error per cell, each the mean of {SEEDS} seeds. *unbiased* are the answers of the plan of "
        "least error; *estimate* is `release.estimate()` of the same release; *purpose* is the estimate of a "
        'plan with `purpose="estimate"`, given the number of records. *time* is the processor time of '
        "estimating all tables, after counting.",
        ("table", "records", "ε", "unbiased", "estimate", "purpose", "time"),
        "estimates are never farther than unbiased answers; all tables together take at most 3 s",
    )
    for name, load in _tables().items():
        frame = load()
        schema = qs.Schema.of({column: int(frame[column].max()) + 1 for column in frame})
        workload = qs.marginals(schema, 3)
        truth = _counts(schema, workload, frame)
        for epsilon in EPSILONS[1:2] if quick else EPSILONS:
            found = _errors(qs, workload, frame, truth, epsilon)
            console.log(f"{name} {epsilon}: {found}", highlight=False)
            unbiased, ours, purpose, seconds = found
            table.add(name, f"{len(frame):,}", f"{epsilon:g}", *map(_shown, found[:3]), f"{seconds:.1f} s")
            for own in (ours, purpose):
                table.check(own[0] <= unbiased[0], f"{name}, {epsilon}: {own[0]:.3g}, not {unbiased[0]:.3g}")
            table.check(seconds <= 3, f"{name}, {epsilon}: {seconds:.1f} s")
    return table


def records(quick):
    """Measure what tables lose on the way from an estimate to synthetic records."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    table = Table(
        "Synthetic records",
        "The mean over all 3-way tables of ‖error‖₁/N at δ = 1e-9, one seed: of the estimate of a plan with "
        '`purpose="estimate"`; of as many synthetic records as there are true ones (`estimate.microdata`), '
        "and in brackets that of their tables on two attributes divided by the estimate's; and of a random "
        f"sample, with replacement, of as many true records. Only tables of up to {MOST_RECORDS:,} records. "
        "*time* is the processor time of drawing.",
        ("table", "records", "ε", "estimate", "synthetic records", "true records", "time"),
        "the error of records is at most 1.05 times that of the estimate, or that of true records",
    )
    for name, load in _tables().items():
        frame = load()
        if len(frame) > MOST_RECORDS:
            continue
        schema = qs.Schema.of({column: int(frame[column].max()) + 1 for column in frame})
        workloads = [qs.marginals(schema, k) for k in (2, 3)]
        truths = [_counts(schema, workload, frame) for workload in workloads]
        for epsilon in EPSILONS[1:2] if quick else EPSILONS:
            budget = qs.ApproxDP(epsilon, DELTA)
            plan = qs.plan(workloads[1], budget, purpose="estimate", records=len(frame))
            estimate = qs.measure(plan, frame, seed=0).estimate()
            start = time.process_time()
            drawn = estimate.microdata(len(frame), seed=0).to_frame("pandas")
            seconds = time.process_time() - start
            sample = frame.sample(len(frame), replace=True, random_state=0)
            found = [[], [], []]
            for workload, truth in zip(workloads, truths, strict=True):
                sources = (_counts(schema, workload, each) for each in (drawn, sample))
                for values, kept in zip((estimate.answer(workload).values, *sources), found, strict=True):
                    kept.append(_error(workload, values, truth, len(frame))[0])
            (pairs, ours), (of_pairs, of_records), (_, sampled) = found
            shown = f"{of_records:.3g} ({of_pairs / pairs:.3f})"
            table.add(
                *(name, f"{len(frame):,}", f"{epsilon:g}", f"{ours:.3g}"),
                *(shown, f"{sampled:.3g}", f"{seconds:.0f} s"),
            )
            words = f"{name}, {epsilon}: {of_records:.3g}, not {ours:.3g}"
            table.check(of_records <= max(1.05 * ours, sampled), words)
            console.log(words, shown, f"{seconds:.0f} s", highlight=False)
    return table


def _errors(qs, workload, frame, truth, epsilon):
    """Return L1 and RMSE of unbiased answers, of their estimate, and of that of a plan for estimates."""
    budget = qs.ApproxDP(epsilon, DELTA)
    meant = qs.plan(workload, budget, purpose="estimate", records=len(frame))
    plans = [qs.plan(workload, budget), meant]
    results, slowest = np.zeros((3, 2)), 0.0
    for seed in range(SEEDS):
        releases = [qs.measure(plan, frame, seed=seed) for plan in plans]
        answers = [releases[0].answer(workload).values]
        for release in releases:
            start = time.process_time()
            answers.append(release.estimate().answer(workload).values)
            slowest = max(slowest, time.process_time() - start)
        results += [_error(workload, values, truth, len(frame)) for values in answers]
    return (*(results / SEEDS).tolist(), slowest)


def _error(workload, values, truth, records):
    """Return the mean over tables of ‖error‖₁/N, and the root mean square error per cell."""
    wrong = np.abs(values - truth)
    return wrong.sum() / records / len(workload.groups), float(np.sqrt(np.mean(wrong**2)))


def _counts(schema, workload, frame):
    """Return the true answers."""
    columns = {name: frame[name].to_numpy() for name in schema.names}
    found = []
    for group in workload:
        shape = schema.shape(group.attributes)
        codes = np.ravel_multi_index([columns[name] for name in group.attributes], shape)
        found.append(np.bincount(codes, minlength=group.rows))
    return np.concatenate(found).astype(float)


def _shown(error):
    return f"{error[0]:.3g} / {error[1]:.3g}"


def _tables():
    """Return the tables, each by a function that loads it."""
    import pandas as pd  # noqa: PLC0415

    def mortgages():
        from causaldata import mortgages as data  # noqa: PLC0415

        return _coded(data.load_pandas().data)

    def randhie():
        from statsmodels.datasets import randhie as data  # noqa: PLC0415

        return _coded(data.load_pandas().data)

    found = {"mortgages (causaldata)": mortgages, "health insurance (statsmodels)": randhie}
    if os.environ.get(OWN):
        path = Path(os.environ[OWN])
        found[path.name.split(".")[0]] = lambda: pd.read_csv(path).astype(int)
    return found


def _coded(frame):
    """Return a frame of codes: numbers in at most 24 bins, other values numbered."""
    import pandas as pd  # noqa: PLC0415

    coded = {}
    for name in frame:
        column = frame[name]
        if column.nunique() > MOST_VALUES and column.dtype.kind in "fi":
            low, high = column.quantile([0.001, 0.999])
            scaled = (column.fillna(low) - low) / (high - low + 1e-9) * MOST_VALUES
            coded[name] = np.clip(scaled.astype(int), 0, MOST_VALUES - 1)
        else:
            coded[name] = np.minimum(pd.Categorical(column.astype(str)).codes, MOST_VALUES - 1)
    made = pd.DataFrame({name: np.asarray(codes, dtype=int) for name, codes in coded.items()})
    return made[[name for name in made if (made[name] != made[name].iloc[0]).any()]]
