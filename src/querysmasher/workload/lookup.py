"""One query of a workload, found by its words: for queries that no predicate states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from querysmasher.errors import PredicateError, UnknownAttributeError
from querysmasher.workload.groups import Group
from querysmasher.workload.predicates import asked
from querysmasher.workload.rows import Rows
from querysmasher.workload.workload import Workload

MAX_QUERIES = 1_000_000
"""Maximum number of queries of a group that is searched."""


def asked_of(planned: Workload, given: Workload | str | Sequence[str]) -> Workload:
    """Return a workload: the one given, that of predicates, or of planned queries that are called so."""
    try:
        return asked(planned.schema, given)
    except (PredicateError, UnknownAttributeError):
        texts = [given] if isinstance(given, str) else list(cast("Sequence[str]", given))
        if not all(isinstance(text, str) for text in texts):
            raise
        found = [_found(planned, text) for text in texts]
        if all(one is None for one in found):
            raise
        each = [asked(planned.schema, t) if one is None else one for t, one in zip(texts, found, strict=True)]
        return sum(each[1:], each[0])


def _found(workload: Workload, text: str) -> Workload | None:
    """Return the query that a file of answers states in these words."""
    wanted = text.strip()
    for group in workload:
        if group.rows > MAX_QUERIES:
            continue
        for place, words in enumerate(group.predicates(workload.schema)):
            if words == wanted:
                return Workload(workload.schema, (_only(group, place, wanted),))
    return None


def _only(group: Group, place: int, text: str) -> Group:
    """Return the group of one query."""
    rows = np.unravel_index(place, group.shape) if group.shape else ()
    families = tuple(
        Rows(family.shape, family.matrix()[row : row + 1], row_labels=(words,))
        for family, row, words in zip(group.families, rows, [text] + [""] * len(rows), strict=False)
    )
    return Group(group.attributes, families)
