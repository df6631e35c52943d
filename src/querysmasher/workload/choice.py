"""The family that a user chooses for an attribute."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family
from querysmasher.workload.rows import Rows


def family_for(attribute: Attribute, family: str | ArrayLike | Family | None) -> Family:
    """Return the family for one attribute: a name, rows or a family; None takes the default of its kind."""
    if family is None:
        family = attribute.natural_family
    if isinstance(family, str):
        if family not in ONE_ATTRIBUTE:
            msg = (
                f"family of attribute {attribute.name!r}: expected one of {', '.join(ONE_ATTRIBUTE)}, "
                f"or a matrix of rows, got {family!r}"
            )
            raise WorkloadError(msg)
        return ONE_ATTRIBUTE[family].of(attribute.size)
    if isinstance(family, Family):
        if family.shape != (attribute.size,):
            msg = (
                f"family of attribute {attribute.name!r}: made for shape {family.shape}, but the attribute "
                f"has {attribute.size} values"
            )
            raise WorkloadError(msg)
        return family
    return Rows((attribute.size,), cast("Array", family))  # which checks the matrix
