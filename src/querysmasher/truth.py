"""True answers, for demonstrations on public tables: exact, so without any privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.data.sources import open_table
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

EXACT = 2**53
"""Doubles represent every integer below this in absolute value."""


@scrubbed
def true_answers(workload: Workload, data: Any) -> NDArray[Any]:
    """Return the exact answers, without noise: only for public or fictitious tables.

    Answers of queries that count, or that have integer coefficients, are integers. They are NOT private.

    >>> import pyarrow
    >>> import querysmasher as qs
    >>> workload = qs.queries(qs.Schema.of(age=3), age="prefix")
    >>> true_answers(workload, pyarrow.table({"age": [0, 2, 2]}))
    array([1, 1, 3])
    """
    names = {name for group in workload for name in group.attributes}
    counter = open_table(workload.schema, data, [n for n in workload.schema.names if n in names])
    tables = counter.marginals([group.attributes for group in workload])
    return np.concatenate([_answers(g, table).ravel() for g, table in zip(workload, tables, strict=True)])


def _answers(group: Group, table: NDArray[Any]) -> NDArray[Any]:
    """Return the answers of a group, with an axis per family."""
    left = table
    for family in group.families:
        # The family's axes come first; the axis of its answers goes last, so that the next one's come first.
        left = np.moveaxis(_exact(family, left), 0, -1)
    return left


def _exact(family: Family, table: NDArray[Any]) -> NDArray[Any]:
    """Return the answers to a family's queries: integers if the table and the coefficients are."""
    answers = family.answers(table)
    if answers.dtype.kind == "i" or table.dtype.kind != "i":
        return answers
    matrix = np.ones((1, 1)) if family.closed_form else family.matrix()
    if not np.array_equal(matrix, np.rint(matrix)):
        return answers
    flat = table.reshape(family.cells, -1)
    if np.abs(matrix).max() * np.abs(flat).sum(axis=0).max(initial=0) < EXACT:  # so every sum was exact
        return answers.astype(np.int64)
    exact = family.matrix().astype(np.int64) @ flat
    return exact.reshape(answers.shape)
