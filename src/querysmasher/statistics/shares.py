"""Shares of the records."""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PredicateError, as_given
from querysmasher.statistics.groups import ROWS, described, grouped, schema_of
from querysmasher.statistics.moments import By, paired
from querysmasher.statistics.ratios import Ratios, ratios_of
from querysmasher.statistics.selection import Factor, among, groups_by
from querysmasher.statistics.source import Source


def share(source: Source, predicate: str, of: str | None = None, by: By = None) -> Ratios:
    """Return the share of the records that satisfy a predicate, among those that satisfy `of`, by group."""
    schema = schema_of(source)
    names = groups_by(schema, by)
    tied = among(schema, predicate, "predicate")
    if not tied:
        msg = f"predicate: expected a condition such as 'age >= 18', got {as_given(predicate)}"
        raise PredicateError(msg)
    mask = tied[0]
    for other in tied[1:]:
        mask = mask.times(other)
    ones = np.ones_like(mask.rows)

    def rows(*asked: Array) -> Factor:
        return Factor((ROWS,), mask.places, np.stack(asked))

    others = among(schema, of, "of")
    answers = grouped(source, rows(mask.rows, ones, mask.rows + ones), names, others)
    basic = grouped(source, rows(mask.rows, ones), names, others)
    title = described(f"Share of {predicate.strip()}", names, of)
    parts = paired(answers.values, answers.variances)
    return ratios_of(title, answers.columns(), parts, basic.pair)
