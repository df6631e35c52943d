"""`where`: one counting query, stated as a predicate over values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import cast

from querysmasher.conditions import conditions
from querysmasher.errors import OutsideMeasuredSpaceError, as_given, explained
from querysmasher.schema import Schema
from querysmasher.workload.checks import check_schema, checked_weight
from querysmasher.workload.groups import Group
from querysmasher.workload.rows import Rows
from querysmasher.workload.workload import Workload


@explained("qs.where(schema, \"age >= 18 and sex == 'F'\")")
def where(schema: Schema, predicate: str, weight: float = 1.0) -> Workload:
    """Return the query that counts the records that satisfy a predicate.

    Predicates compare attributes with values (`age >= 18`, `sex == 'F'`, `region in ['N', 'S']`,
    `18 <= age < 65`) or numeric attributes with each other (`hours + travel <= 10`), joined by
    `and`, `or`, `not`. Strings and dates (`day < '2024-03-01'`) need quotes. Names that are not
    identifiers need brackets, which shells preserve (`[hours-per-week] >= 40`), or backticks. Conditions on
    different attributes joined by `and` remain a product, so they may span many attributes at no cost.
    `total` counts all records.

    >>> schema = Schema.of({"hours-per-week": 99}, sex=2)
    >>> where(schema, "[hours-per-week] >= 40 and sex == 1").groups[0].attributes
    ('hours-per-week', 'sex')
    """
    check_schema(schema)
    masks = conditions(schema, predicate)
    attributes = tuple(schema.names[p] for places, _ in masks for p in places)
    families = tuple(
        Rows(mask.shape, mask.reshape(1, -1).astype(float), row_labels=(text,), title="where")
        for (_, mask), text in zip(masks, [predicate.strip()] + [""] * len(masks), strict=False)
    )
    return Workload(schema, (Group(attributes, families, checked_weight(weight)),))


def check_workload(given: object, schema: Schema, owner: str) -> None:
    """Refuse what is not a workload on the schema of a plan, a release or an estimate."""
    if not isinstance(given, Workload):
        msg = f"workload: expected a Workload such as qs.where(schema, 'age >= 18'), got {as_given(given)}"
        raise OutsideMeasuredSpaceError(msg)
    if given.schema != schema:
        msg = f"workload: its schema {given.schema} differs from that of the {owner}, {schema}"
        raise OutsideMeasuredSpaceError(f"{msg}; build it on the schema of the {owner}")


def asked(schema: Schema, given: Workload | str | Sequence[str]) -> Workload:
    """Return a workload: the one given, or that of a predicate or of several."""
    if isinstance(given, str):
        return where(schema, given)
    if isinstance(given, list | tuple) and given:
        return reduce(operator.add, (where(schema, one) for one in given))
    return cast("Workload", given)  # its user checks that it is one
