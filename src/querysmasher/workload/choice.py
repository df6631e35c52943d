"""The family that a user chooses for an attribute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from numpy.typing import ArrayLike

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import Remedy, WorkloadError, not_one_of, some, warn
from querysmasher.schema import Schema
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family
from querysmasher.workload.rows import Rows

ROWS = "or a matrix of rows"


def family_for(attribute: Attribute, family: str | ArrayLike | Family | None) -> Family:
    """Return the family for one attribute: a name, rows or a family; None takes the default of its kind."""
    if family is None:
        family = attribute.natural_family
    if isinstance(family, str):
        if family not in ONE_ATTRIBUTE:
            msg = f"family of attribute {attribute.name!r}: {not_one_of([*ONE_ATTRIBUTE, ROWS], family)}"
            raise WorkloadError(msg)
        return ONE_ATTRIBUTE[family].of(attribute.size)
    if isinstance(family, Family):
        if family.shape != (attribute.size,):
            raise WorkloadError(
                f"family of attribute {attribute.name!r}: made for shape {family.shape}, but the attribute "
                f"has {attribute.size} values"
            )
        return family
    if not isinstance(family, Iterable):
        msg = f"family of attribute {attribute.name!r}: {not_one_of([*ONE_ATTRIBUTE, ROWS], family)}"
        remedy = (
            f"write {attribute.natural_family!r}, or one list per query, over its {attribute.size:,} values"
        )
        raise WorkloadError(f"{msg}; {remedy}")
    return Rows((attribute.size,), cast("Array", family))  # which checks the matrix


def check_order(schema: Schema, asked: Iterable[tuple[str, Family]]) -> None:
    """Warn, once for all, of queries that use the order of values which have none."""
    unordered = {name: family for name, family in asked if family.needs_order and not schema[name].ordered}
    if not unordered:
        return
    first = next(iter(unordered))
    names = some(map(repr, unordered))
    values = some(schema[first].literals, 3)
    warn(
        f"family {unordered[first].name!r} of {names}: the order in which the values are listed is used, but "
        "a categorical attribute has none",
        Remedy(
            f"if this order is meant, declare it with qs.Ordinal({first!r}, [{values}]), which silences "
            "this; otherwise ask for 'identity'",
            f'if this order is meant, declare {first!r} with kind = "ordinal", which silences this; '
            'otherwise ask for "identity"',
        ),
    )
