"""The functions that build a workload: from families by name, rows, predicates or words."""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute, literal
from querysmasher.conditions import conditions
from querysmasher.errors import (
    OutsideMeasuredSpaceError,
    PredicateError,
    Remedy,
    UnknownAttributeError,
    WorkloadError,
    as_given,
    as_ratio,
    explained,
    not_one_of,
    some,
    warn,
)
from querysmasher.formatting import count, written_name
from querysmasher.schema import Schema
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family, Structure, check_schema, checked_weight
from querysmasher.workload.joint import AbsDifference, Affine, RandomQueries, Rows
from querysmasher.workload.sum import Sum, middle, numbers
from querysmasher.workload.workload import Group, Workload

FamilyLike = str | Family | ArrayLike | None

NAMED: Mapping[str, type[Family]] = ChainMap({Sum.name: Sum}, cast("dict[str, type[Family]]", ONE_ATTRIBUTE))
"""The families that users name."""


@explained("qs.marginals(schema, [1, 2])")
def marginals(
    schema: Schema,
    k: int | Iterable[int] | Iterable[str],
    weight: float = 1.0,
    *,
    attributes: Sequence[str] | None = None,
) -> Workload:
    """Return all k-way marginals: how many records have each combination of values of k attributes.

    `k` is one number or several; 0 stands for the total. Names of attributes in a list stand for the one
    marginal on these. With `attributes`, only sets of these attributes are asked about.

    >>> schema = Schema.of(a=3, b=4, c=5)
    >>> len(marginals(schema, 2)), len(marginals(schema, ["a", "c"]))
    (47, 15)
    """
    names = list(k) if isinstance(k, Iterable) and not isinstance(k, str) else []
    if names and all(isinstance(name, str) for name in names):
        if attributes is not None:
            raise WorkloadError("attributes: expected None, because k names the attributes of one marginal")
        return queries(schema, dict.fromkeys(map(str, names), "identity"), weight=weight)
    ways = cast("int | Iterable[int]", names or k)
    return all_kway(schema, ways, "identity", weight, attributes=attributes)


@explained("qs.all_kway(schema, [1, 2])")
def all_kway(
    schema: Schema,
    k: int | Iterable[int],
    family: FamilyLike | Mapping[str, FamilyLike] = None,
    weight: float = 1.0,
    *,
    attributes: Sequence[str] | None = None,
) -> Workload:
    """Return the products of one family per attribute, on all sets of k attributes.

    With `attributes`, only sets of these attributes are asked about: for instance not a number of a million
    values.

    `family` is "identity", "prefix", "range", "circular" or "sum" for all, or a mapping from attributes to
    families, or None: the family then depends on the kind of attribute (identity for categorical, prefix for
    ordinal and binned, circular for cyclic). The same holds for attributes that a mapping leaves out.
    """
    check_schema(schema)
    if isinstance(attributes, str):
        raise WorkloadError(
            f"attributes: expected names in a list, got {attributes!r}; write [{attributes!r}]"
        )
    among = set(schema.names if attributes is None else attributes)
    schema.positions(among)
    ways = _ways(schema, k, len(among))
    by_name = family if isinstance(family, Mapping) else dict.fromkeys(among, family)
    schema.positions(by_name)
    weight = checked_weight(weight)
    pairs = [(a.name, family_for(a, by_name.get(a.name))) for a in schema if a.name in among]
    check_order(schema, pairs if max(ways) else [])
    groups = [
        Group(tuple(name for name, _ in some_pairs), tuple(f for _, f in some_pairs), weight)
        for way in ways
        for some_pairs in itertools.combinations(pairs, way)
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
    """Return one product group: a family per attribute, by keyword or, for any name, in a mapping.

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


@explained("qs.sums(schema, 'income', by=['region'])")
def sums(
    schema: Schema,
    attribute: str,
    by: str | Sequence[str] | None = None,
    *,
    around: float = 0.0,
    weight: float = 1.0,
) -> Workload:
    """Return the sums of a number over the records of every group, each number less `around`.

    With default weights, an error of a sum counts relative to the largest number that a record adds to it, as
    an error of a count counts relative to one record. So neither drowns the other.

    >>> from querysmasher import Number, Ordinal
    >>> schema = Schema([Number("income", 0, 200_000, step=100), Ordinal("region", range(3))])
    >>> list(sums(schema, "income", by="region").labels())[0]
    'sum of income and region == 0'
    """
    check_schema(schema)
    return queries(
        schema, {attribute: Sum.on(schema[attribute], around)} | _groups(schema, attribute, by), weight=weight
    )


MEAN_WEIGHT = 0.25
"""Weight of the counts beside the sums of `means`: as if means were half a range's half from the middle."""


@explained("qs.means(schema, 'income', by=['region'])")
def means(
    schema: Schema,
    attribute: str,
    by: str | Sequence[str] | None = None,
    *,
    around: float | None = None,
    within: float | None = None,
    size: float | None = None,
    weight: float = 1.0,
) -> Workload:
    """Return what makes the means of a number by group accurate: sums around a public number, and counts.

    A sum of numbers less the middle of their range has half the sensitivity of their sum, or less. The mean
    follows from it and the count: `release.mean(attribute, by=by)`.

    Args:
        schema: the schema.
        attribute: the number.
        by: the attributes that form groups.
        around: the public number that is subtracted; by default the middle of the range.
        within: the largest standard error of the means of groups of `size` records. Means at the ends of the
            range err most: so these are subtracted, whatever `around`, and counts are not asked for.
        size: a public number of records. Larger groups have smaller errors, and smaller groups larger ones.
        weight: the weight of the sums; the counts have a quarter of it.

    >>> from querysmasher import Number, Ordinal
    >>> schema = Schema([Number("income", 0, 200_000, step=100), Ordinal("region", range(3))])
    >>> means(schema, "income", by="region")
    Workload(6 queries in 2 groups: 1 on 1 attribute, 1 on 2 attributes)
    """
    check_schema(schema)
    number = schema[attribute]
    family, groups = (
        Sum.on(number, middle(number) if around is None else around),
        _groups(schema, attribute, by),
    )
    if (within is None) != (size is None):
        raise WorkloadError("size: expected a public number of records together with within, or neither")
    if within is not None:
        target = checked_weight(within, "within") * checked_weight(size, "size")
        low, high = (
            queries(schema, {attribute: Sum.on(number, float(end))} | groups, weight=weight).within(target)
            for end in (numbers(number).min(), numbers(number).max())
        )
        return low + high
    beside = [f"{written_name(attribute)} != {literal(value)}" for value in number.beside]
    counts: Mapping[str, FamilyLike] = groups
    if beside:  # of records with a number
        (listed,) = where(schema, " and ".join(beside)).groups[0].families
        counts = {attribute: listed} | groups
    sums_of = queries(schema, {attribute: family} | groups, weight=weight)
    return sums_of + queries(schema, counts, weight=MEAN_WEIGHT * checked_weight(weight))


def _groups(schema: Schema, attribute: str, by: str | Sequence[str] | None) -> dict[str, FamilyLike]:
    """Return the single values of grouping attributes as families; refuse the number itself among them."""
    names = () if by is None else _names(by)
    schema.positions((attribute, *names))
    return dict.fromkeys(names, "identity")


@explained("qs.affine(schema, 'a', 'b')")
def affine(schema: Schema, a: str, b: str, weight: float = 1.0) -> Workload:
    """Return the queries `a + b <= c` on value indexes, for c = 0 .. n_a + n_b - 2."""
    check_schema(schema)
    return _joint(schema, (a, b), Affine(_indexed(schema, a, b)), weight)


@explained("qs.abs_difference(schema, 'a', 'b')")
def abs_difference(schema: Schema, a: str, b: str, weight: float = 1.0) -> Workload:
    """Return the queries `|a - b| <= c` on value indexes, for c = 0 .. max(n_a, n_b) - 1."""
    check_schema(schema)
    return _joint(schema, (a, b), AbsDifference(_indexed(schema, a, b)), weight)


def _indexed(schema: Schema, *names: str) -> tuple[int, ...]:
    """Return the shape of attributes to compare by index; refuse those with values beside the order."""
    for name in names:
        if schema[name].beside:
            value = literal(schema[name].beside[0])
            raise WorkloadError(
                f"attributes: expected attributes whose values are all in order, got {name!r}, whose value "
                f"{value} stands beside the others; write conditions, as in qs.where(schema, 'a + b <= 3')"
            )
    return schema.shape(names)


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
    """Return `count` counting queries, each containing every cell of the marginal with probability `p`."""
    check_schema(schema)
    attributes = _names(attributes)
    if isinstance(p, bool) or not isinstance(p, int | float | np.number) or not 0 < p <= 1:
        msg = f"p: expected a probability above 0 and at most 1, got {as_given(p)}{as_ratio(p)}"
        raise WorkloadError(msg)
    for name, given, least in (("count", count, 1), ("seed", seed, 0)):
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < least:
            raise WorkloadError(f"{name}: expected an integer of at least {least}, got {as_given(given)}")
    family = RandomQueries(schema.shape(attributes), int(count), float(p), int(seed))
    return _joint(schema, attributes, family, weight)


@explained("qs.linear(schema, ('a', 'b'), matrix)")
def linear(
    schema: Schema,
    attributes: Sequence[str],
    matrix: ArrayLike,
    weights: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
) -> Workload:
    """Return any linear queries: rows over the marginal on `attributes`, in row-major order."""
    check_schema(schema)
    attributes = _names(attributes)
    rows = Rows(
        schema.shape(attributes),
        cast("Array", matrix),  # `Rows` checks it
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


def _ways(schema: Schema, k: Any, most: int) -> list[int]:
    """Return the numbers of attributes, at most `most`, once each, in order."""
    ways = list(k) if isinstance(k, Iterable) and not isinstance(k, str) else [k]
    if not ways:
        raise WorkloadError("k: expected at least one number of attributes")
    for way in ways:
        if isinstance(way, bool) or not isinstance(way, int | np.integer) or not 0 <= way <= most:
            got = f"{as_given(way)}{_instead(schema, way)}"
            msg = f"k: expected an integer from 0 to {most}, the number of attributes, got {got}"
            raise WorkloadError(msg)
    return list(dict.fromkeys(int(way) for way in ways))


def _instead(schema: Schema, way: object) -> str:
    """Return a suggestion for an invalid number of attributes, or nothing."""
    if way in schema.names:
        return f"; for chosen attributes, write qs.marginals(schema, [{way!r}])"
    try:
        number = int(way) if isinstance(way, str | float) else -1
    except (ValueError, OverflowError):
        return ""
    return f"; write {number}" if 0 <= number <= len(schema) else ""


def family_for(attribute: Attribute, family: str | ArrayLike | Family | None) -> Family:
    """Return the family for one attribute: a name, rows or a family; None takes the default of its kind."""
    here = f"family of attribute {attribute.name!r}"
    if family is None:
        family = attribute.natural_family
    if isinstance(family, str) and family in NAMED:
        return NAMED[family].on(attribute)
    if isinstance(family, Family):
        if family.shape != (attribute.size,):
            values = count(attribute.size, "value")
            raise WorkloadError(f"{here}: made for shape {family.shape}, but the attribute has {values}")
        return family
    if isinstance(family, str) or not isinstance(family, Iterable):
        msg = f"{here}: {not_one_of([*NAMED, 'or a matrix of rows'], family)}"
        values = count(attribute.size, "value")
        write = f"write {attribute.natural_family!r}, or one list per query, over its {values}"
        raise WorkloadError(msg if isinstance(family, str) else f"{msg}; {write}")
    return Rows((attribute.size,), cast("Array", family))  # `Rows` checks it


def check_order(schema: Schema, families: Iterable[tuple[str, Family]]) -> None:
    """Warn once if queries use the order of values that have none."""
    uses_order = (Structure.LINE, Structure.RANGES, Structure.CIRCLE)
    unordered = {a: f for a, f in families if f.structure in uses_order and not schema[a].ordered}
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
    attributes = tuple(schema.names[axis] for axes, _ in masks for axis in axes)
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


def as_workload(
    schema: Schema, given: Workload | str | Sequence[str], planned: Workload | None = None
) -> Workload:
    """Return a workload: as given, or made of predicates or of the words of planned queries."""
    if isinstance(given, str) or (isinstance(given, list | tuple) and given):
        first, *others = (
            _stated(schema, text, planned) for text in ([given] if isinstance(given, str) else given)
        )
        return sum(others, start=first)
    return cast("Workload", given)  # the caller checks that it is one


MAX_QUERIES = 1_000_000
"""Maximum number of queries of a group that is searched."""


def _stated(schema: Schema, text: str, planned: Workload | None) -> Workload:
    """Return the query of a predicate, or the planned one that a file of answers states in these words."""
    try:
        return where(schema, text)
    except (PredicateError, UnknownAttributeError):
        for group in planned or () if isinstance(text, str) else ():
            words = group.predicates(schema) if group.rows <= MAX_QUERIES else ()
            index = next((i for i, said in enumerate(words) if said == text.strip()), None)
            if index is not None:
                return Workload(schema, (_single(group, index, text.strip()),))
        raise


def _single(group: Group, index: int, text: str) -> Group:
    """Return a group that consists of one query of another group."""
    rows = np.unravel_index(index, group.shape) if group.shape else ()
    families = tuple(
        Rows(family.shape, family.matrix()[row : row + 1], row_labels=(words,))
        for family, row, words in zip(group.families, rows, [text] + [""] * len(rows), strict=False)
    )
    return Group(group.attributes, families)
