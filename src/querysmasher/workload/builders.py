"""The functions that build a workload."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, as_given, as_share, explained
from querysmasher.schema import Schema
from querysmasher.workload.checks import check_schema, checked_weight
from querysmasher.workload.choice import check_order, family_for
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.joint import AbsDifference, Affine, Random
from querysmasher.workload.rows import Rows
from querysmasher.workload.workload import Workload

FamilyLike = str | Family | ArrayLike | None


@explained("qs.marginals(schema, [1, 2])")
def marginals(schema: Schema, k: int | Iterable[int], weight: float = 1.0) -> Workload:
    """Ask all k-way marginals: how many records have a given value on each of k attributes.

    `k` is one number or several; 0 asks the total.

    >>> len(marginals(Schema.of(a=3, b=4, c=5), 2))
    47
    """
    return all_kway(schema, k, "identity", weight)


@explained("qs.all_kway(schema, [1, 2])")
def all_kway(
    schema: Schema,
    k: int | Iterable[int],
    family: FamilyLike | Mapping[str, FamilyLike] = None,
    weight: float = 1.0,
) -> Workload:
    """Ask products of one family per attribute on all sets of k attributes.

    `family` is "identity", "prefix", "range" or "circular" for all, or a mapping from attributes to
    families, or None: what each attribute's kind suggests (categorical identity, ordinal and binned
    prefix, cyclic circular). Attributes a mapping leaves out get what their kind suggests.
    """
    check_schema(schema)
    ways = _ways(schema, k)
    if isinstance(family, Mapping):
        schema.positions(family)
        chosen = [family_for(a, family.get(a.name)) for a in schema]
    else:
        chosen = [family_for(a, family) for a in schema]
    weight = checked_weight(weight)
    pairs = list(zip(schema.names, chosen, strict=True))
    check_order(schema, pairs if max(ways) else [])
    groups = [
        Group(tuple(name for name, _ in chosen), tuple(f for _, f in chosen), weight)
        for way in ways
        for chosen in itertools.combinations(pairs, way)
    ]
    return Workload(schema, tuple(groups))


@explained("qs.queries(schema, age='prefix', sex='identity')")
def queries(
    schema: Schema,
    families: Mapping[str, FamilyLike] | None = None,
    /,
    *,
    weight: float = 1.0,
    **more: FamilyLike,
) -> Workload:
    """Ask one product group: a family per attribute, by keyword or, for any name, in a mapping.

    A family is a name, a 2-D array of rows over the attribute's values, or what `hierarchy` returns.

    >>> schema = Schema.of(age=5, sex=2)
    >>> list(queries(schema, age=[[0, 0, 1, 1, 1]], sex="identity").labels())
    ['query 0 on age and sex == 0', 'query 0 on age and sex == 1']
    """
    check_schema(schema)
    if families is not None and not isinstance(families, Mapping):
        msg = f"families: expected a mapping of attributes to families, got {as_given(families)}; write "
        raise WorkloadError(msg + "qs.queries(schema, age='prefix', sex='identity')")
    merged = {**(families or {}), **more}
    schema.positions(merged)
    chosen = tuple(family_for(schema[name], family) for name, family in merged.items())
    check_order(schema, zip(merged, chosen, strict=True))
    return Workload(schema, (Group(tuple(merged), chosen, checked_weight(weight)),))


@explained("qs.affine(schema, 'a', 'b')")
def affine(schema: Schema, a: str, b: str, weight: float = 1.0) -> Workload:
    """Ask `a + b <= c` on value indexes, for c = 0 .. n_a + n_b - 2."""
    check_schema(schema)
    return _joint(schema, (a, b), Affine(schema.shape((a, b))), weight)


@explained("qs.abs_difference(schema, 'a', 'b')")
def abs_difference(schema: Schema, a: str, b: str, weight: float = 1.0) -> Workload:
    """Ask `|a - b| <= c` on value indexes, for c = 0 .. max(n_a, n_b) - 1."""
    check_schema(schema)
    return _joint(schema, (a, b), AbsDifference(schema.shape((a, b))), weight)


@explained("qs.random_queries(schema, ('a', 'b'), 100)")
def random_queries(
    schema: Schema,
    attributes: Sequence[str],
    count: int,
    p: float = 0.3,
    *,
    seed: int = 0,
    weight: float = 1.0,
) -> Workload:
    """Ask `count` counting queries, each containing every cell of the marginal with probability `p`."""
    check_schema(schema)
    attributes = _names(attributes)
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise WorkloadError(f"count: expected an integer of at least 1, got {as_given(count)}")
    if isinstance(p, bool) or not isinstance(p, int | float | np.number) or not 0 < p <= 1:
        msg = f"p: expected a probability above 0 and at most 1, got {as_given(p)}{as_share(p)}"
        raise WorkloadError(msg)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise WorkloadError(f"seed: expected an integer of at least 0, got {as_given(seed)}")
    family = Random(schema.shape(attributes), int(count), float(p), int(seed))
    return _joint(schema, attributes, family, weight)


@explained("qs.linear(schema, ('a', 'b'), matrix)")
def linear(
    schema: Schema,
    attributes: Sequence[str],
    matrix: ArrayLike,
    weights: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
) -> Workload:
    """Ask any linear queries: rows over the marginal on `attributes`, in row-major order."""
    check_schema(schema)
    attributes = _names(attributes)
    rows = Rows(
        schema.shape(attributes),
        cast("Array", matrix),  # which checks that it is one
        cast("Array | None", weights),
        None if labels is None else tuple(map(str, labels)),
    )
    return _joint(schema, attributes, rows, 1.0)


def _joint(schema: Schema, attributes: Sequence[str], family: Family, weight: float) -> Workload:
    return Workload(schema, (Group(tuple(attributes), (family,), checked_weight(weight)),))


def _names(attributes: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(attributes, Iterable):
        msg = f"attributes: expected names of attributes such as ('age', 'sex'), got {as_given(attributes)}"
        raise WorkloadError(msg)
    return (attributes,) if isinstance(attributes, str) else tuple(attributes)


def _ways(schema: Schema, k: Any) -> list[int]:
    """Return the numbers of attributes, once each, in order."""
    ways = list(k) if isinstance(k, Iterable) and not isinstance(k, str) else [k]
    if not ways:
        raise WorkloadError("k: expected at least one number of attributes")
    for way in ways:
        if isinstance(way, bool) or not isinstance(way, int | np.integer) or not 0 <= way <= len(schema):
            got = f"{as_given(way)}{_instead(schema, way)}"
            msg = f"k: expected an integer from 0 to {len(schema)}, the number of attributes, got {got}"
            raise WorkloadError(msg)
    return list(dict.fromkeys(int(way) for way in ways))


def _instead(schema: Schema, way: object) -> str:
    """Return what may be meant instead of a number of attributes."""
    if way in schema.names:
        return f"; for chosen attributes, write qs.queries(schema, {{{way!r}: 'identity'}})"
    try:
        number = int(way) if isinstance(way, str | float) else -1
    except (ValueError, OverflowError):
        return ""
    return f"; write {number}" if 0 <= number <= len(schema) else ""
