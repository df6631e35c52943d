"""Which attributes are too large to be written out, and what a group asks about them."""

from __future__ import annotations

import math
from collections import defaultdict

from querysmasher.errors import TooLargeError
from querysmasher.planning.limits import limits
from querysmasher.planning.split import is_few
from querysmasher.planning.trees.nested import is_nested
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Workload


def large_attributes(workload: Workload, *, mean: bool = True) -> tuple[int, ...]:
    """Return the indexes of attributes that are planned as lines or trees, with centres of their own.

    Several families on one attribute are at fewer values quicker and better so than with one centre for all
    sets, if the mean error counts. Attributes whose queries all look the same from every value have closed
    forms, up to a larger size. Queries that tie attributes, and few single ones, are planned in other ways.
    """
    sizes = workload.schema.sizes
    if max(sizes) <= min(limits().dense_values, limits().mixed_values):
        return ()
    asked: defaultdict[int, dict[object, Family]] = defaultdict(dict)
    tied: set[int] = set()
    for group in workload:
        for names, family in group.parts():
            places = workload.schema.positions(names)
            if len(places) > 1:
                tied.update(places)
            else:
                asked[places[0]][family.key] = family
    return tuple(
        place
        for place, families in sorted(asked.items())
        if place not in tied and _is_large(list(families.values()), sizes[place], mean=mean)
    )


def check_searchable(workload: Workload) -> None:
    """Refuse groups with more queries than are searched for the largest error."""
    for group in workload:
        if group.rows > limits().large_worst_queries:
            msg = (
                f"workload: targets and objective='worst' are limited to {limits().large_worst_queries:,} "
                f"queries per group where attributes have very many values, got {group.rows:,} on "
                f"({', '.join(group.attributes)}). Remedies: chosen ranges (`ranges`), coarser values, or "
                "objective='mean' without targets"
            )
            raise TooLargeError(msg)


def searched_without_matrices(workload: Workload, large: tuple[int, ...]) -> tuple[int, ...]:
    """Return the large attributes, or none if the largest errors must, and can, be searched with matrices."""
    try:
        check_searchable(workload)
    except TooLargeError:
        if all(workload.schema.sizes[place] <= limits().axis_values for place in large):
            return ()
        raise
    return large


def _is_large(families: list[Family], size: int, *, mean: bool) -> bool:
    several = mean and len(families) > 1
    if size <= (limits().mixed_values if several else limits().dense_values) or size > limits().most_values:
        return False
    if all(family.closed_form and family.looks_alike for family in families):
        return size > limits().closed_form_values
    rows = sum(family.rows for family in families if not is_implicit(family))
    if any(family.is_tree for family in families):
        return _is_large_tree(families, size, rows)
    if not any(map(is_implicit, families)):
        return False  # few single queries, or dense ones
    return rows == 0 or (size > limits().axis_values and is_few(rows, size, 1))


def _is_large_tree(families: list[Family], size: int, rows: int) -> bool:
    """Return whether a hierarchy, with single values and few other queries, is planned on its nodes."""
    implicit = [family for family in families if is_implicit(family)]
    if all(map(is_nested, implicit)) and 2 * rows <= size:
        return True
    if size <= limits().axis_values:
        return False  # planned with matrices
    few = rows == 0 or is_few(rows, size, 1)
    if few and all(family.spans() is not None for family in implicit if family.is_tree):
        return True  # its groups are ranges
    msg = (
        f"workload: a hierarchy of {size:,} values, in which some group is not a range of values, can be "
        "planned with single values and few other queries about the same attribute, not with prefixes or "
        "ranges. Remedies: one of them only; coarser values; an order of values in which groups are ranges"
    )
    raise TooLargeError(msg)


def is_implicit(family: Family) -> bool:
    """Return whether the queries of a family on one attribute need not be written out."""
    return len(family.shape) == 1 and (family.closed_form or family.is_consecutive or family.is_tree)


def check_cells(workload: Workload, large: tuple[int, ...]) -> None:
    """Refuse groups whose table would not fit in memory."""
    sizes, most = workload.schema.sizes, limits().structured_cells
    for group in workload:
        places = workload.schema.positions(group.attributes)
        cells = math.prod(sizes[p] for p in places)
        if cells > most and set(places) & set(large):
            msg = (
                f"workload: the table on ({', '.join(group.attributes)}) has {cells:,} cells, more than the "
                f"{most:,} that are counted and measured at once. Remedies: coarser values or bins, or fewer "
                "attributes at a time"
            )
            raise TooLargeError(msg)
