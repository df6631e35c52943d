"""Hierarchies on one attribute, such as tracts, counties and states."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, as_given, explained
from querysmasher.schema import Schema
from querysmasher.workload.checks import check_schema
from querysmasher.workload.levels import Level, read_level
from querysmasher.workload.tree import LABELLED, Hierarchy


@explained("qs.hierarchy(schema, 'tract', state=2, county=5)")
def hierarchy(
    schema: Schema,
    attribute: str,
    *levels: Level,
    leaves: bool = True,
    weights: Sequence[float] | None = None,
    codebook: str | os.PathLike[str] | None = None,
    **named: Level,
) -> Hierarchy:
    """Return the queries of a hierarchy: one per group of each level, and one per value (`leaves`).

    Use the result as the family of that attribute. Groups of one level must lie within those of another.

    Args:
        schema: the schema.
        attribute: the name of the attribute whose values are the leaves.
        levels: each a mapping from every value to its group, or from every group to its values; a list of
            groups in the order of the values; the number of characters of a code that name the group (2 and 5
            for the states and counties of census tracts); or the name of a column of `codebook`.
        leaves: whether to ask for the single values too.
        weights: a weight for the queries of each level, and last for those of the values.
        codebook: a CSV file: a codebook with more columns, or one line per value in a column called as the
            attribute.
        named: more levels, with names: `state=2, county=5`.

    >>> schema = Schema.of(county=4)
    >>> print(hierarchy(schema, "county", {0: "north", 1: "north", 2: "south", 3: "south"}).rows)
    6
    >>> print(hierarchy(schema, "county", {"north": [0, 1], "south": [2, 3]}, leaves=False).rows)
    2
    """
    check_schema(schema)
    given = [*((None, level) for level in levels), *named.items()]
    return titled_hierarchy(schema[attribute], given, leaves=leaves, weights=weights, codebook=codebook)


def titled_hierarchy(
    attribute: Attribute,
    levels: Sequence[tuple[str | None, Any]],
    *,
    leaves: bool = True,
    weights: Sequence[float] | None = None,
    codebook: str | os.PathLike[str] | None = None,
) -> Hierarchy:
    """Return a hierarchy of levels, each with its name or None."""
    if not isinstance(leaves, bool):
        raise WorkloadError(f"leaves: expected True or False, got {as_given(leaves)}")
    if weights is not None and (isinstance(weights, str | Mapping) or not isinstance(weights, Sequence)):
        raise WorkloadError(f"weights: expected one number per level, got {as_given(weights)}")
    read = [read_level(attribute, number, own, codebook) for number, (_, own) in enumerate(levels, start=1)]
    titles = tuple(title or f"level {number}" for number, (title, _) in enumerate(levels, start=1))
    tree = Hierarchy(
        (attribute.size,),
        tuple(numbers for numbers, _ in read),
        tuple(names for _, names in read),
        leaves,
        None if weights is None else tuple(weights),
        titles if any(title for title, _ in levels) else None,
    )
    return tree if tree.rows > LABELLED else replace(tree, row_labels=tuple(tree.labels([attribute])))
