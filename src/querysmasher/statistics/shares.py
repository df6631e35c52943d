"""Shares, ratios and differences of counts."""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError
from querysmasher.statistics.figures import Column, Figures
from querysmasher.statistics.groups import ROWS, described, grouped, schema_of
from querysmasher.statistics.moments import By, paired
from querysmasher.statistics.ratios import Parts, Ratios, ratios_of
from querysmasher.statistics.selection import Factor, among, groups_by
from querysmasher.statistics.source import Source
from querysmasher.workload.predicates import where as counting
from querysmasher.workload.workload import Workload


def share(source: Source, predicate: str, of: str | None = None, by: By = None) -> Ratios:
    """Return the share of the records that satisfy a predicate, among those that satisfy `of`, by group."""
    schema = schema_of(source)
    names = groups_by(schema, by)
    tied = among(schema, predicate)
    mask = tied[0]
    for other in tied[1:]:
        mask = mask.times(other)
    ones = np.ones_like(mask.rows)

    def rows(*asked: Array) -> Factor:
        return Factor((ROWS,), mask.places, np.stack(asked))

    answers = grouped(source, rows(mask.rows, ones, mask.rows + ones), names, of)
    basic = grouped(source, rows(mask.rows, ones), names, of)
    title = described(f"Share of {predicate.strip()}", names, of)
    parts = paired(answers.values, answers.variances)
    return ratios_of(title, answers.columns(), parts, basic.covariance)


def ratio(source: Source, a: str | Workload, b: str | Workload) -> Ratios:
    """Return a / b for two predicates, or query by query for two workloads."""
    values, covariance, columns = _pair(source, a, b)
    (N, D), n = np.split(values, 2), len(values) // 2
    variances = np.diagonal(covariance)
    parts = Parts(N, D, variances[:n], variances[n:], np.diagonal(covariance, n))
    return ratios_of("Ratio", columns, parts, lambda: covariance)


def difference(source: Source, a: str | Workload, b: str | Workload) -> Figures:
    """Return a - b for two predicates, or query by query for two workloads."""
    values, covariance, columns = _pair(source, a, b)
    left, right = np.split(values, 2)
    upper, lower = np.split(covariance, 2)
    own = np.subtract(*np.split(upper - lower, 2, axis=1))
    own = (own + own.T) / 2
    std = np.sqrt(np.maximum(np.diagonal(own), 0))
    return Figures("Difference", columns, left - right, std, joint=lambda: own)


def _pair(source: Source, a: str | Workload, b: str | Workload) -> tuple[Array, Array, tuple[Column, ...]]:
    """Return the answers to both, one after the other, with their covariance and their queries."""
    left, right = _asked(source, "a", a), _asked(source, "b", b)
    n, m = len(left), len(right)
    if m not in (1, n):
        msg = f"b: expected {n:,} queries, one per query of a, or a single one, got {m:,}"
        raise WorkloadError(msg)
    both = left + right
    order = np.concatenate([np.arange(n), n + np.arange(m).repeat(n // m)])
    covariance = source.covariance(both)[np.ix_(order, order)]
    values = source.answer(both).values[order]
    texts = [list(w.labels()) for w in (left, right)]
    columns = (
        Column("a", texts[0], tuple(range(n))),
        Column("b", texts[1], tuple((order[n:] - n).tolist())),
    )
    return values, covariance, columns


def _asked(source: Source, name: str, given: str | Workload) -> Workload:
    if isinstance(given, str):
        return counting(schema_of(source), given)
    if not isinstance(given, Workload):
        msg = f"{name}: expected a predicate or a Workload, got {type(given).__name__}"
        raise WorkloadError(msg)
    return given
