"""Tying attributes together whose combinations are partly impossible, by public knowledge.

`Schema.impossible` states predicates that no record satisfies. Attributes that share a predicate are tied:
for planning, measuring and reconstruction they become one attribute, whose values are their possible
combinations (`Combinations`). Every group of queries is rewritten onto it. So impossible cells have no
column: they count neither for the sensitivity nor in the loss, and plans are optimal as they always are.

A predicate counts if the workload asks about all of its attributes. Tied attributes may have at most
`limits().tied_values` possible combinations; a predicate that would tie more is not used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.combinations import Combinations
from querysmasher.conditions import MAX_CELLS
from querysmasher.errors import BudgetError, PlanError
from querysmasher.planning.estimator.estimator import AttributeSet, Estimator, subsets
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Measured
from querysmasher.planning.split import connected
from querysmasher.privacy.unit import Unit
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.restricted import Restricted
from querysmasher.workload.workload import Group, Workload

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class TiedGroup:
    """A group over combinations, and how the queries of the original group lie in it."""

    group: Group
    sizes: tuple[int, ...]
    """The number of queries of each original family, in the order in which tied families contain them."""
    order: tuple[int, ...]
    """The index of each original family in this order."""

    def arranged(self, values: NDArray[T]) -> NDArray[T]:
        """Return values with an axis per family of the original group, from those of the tied one."""
        return values.reshape(self.sizes).transpose(self.order)

    def rows(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """Return the row of each original family of the query that is a row of each tied one."""
        number = np.ravel_multi_index(rows, self.group.shape) if rows else 0
        each = np.unravel_index(number, self.sizes) if rows else ()
        return tuple(int(each[index]) for index in self.order)

    @cached_property
    def numbers(self) -> NDArray[np.intp]:
        """For each query of the original group, in order, its index in the tied one."""
        return self.arranged(np.arange(self.group.rows)).ravel()


@dataclass(frozen=True, eq=False)
class Tying:
    """A schema, and which of its attributes are tied together."""

    schema: Schema
    components: tuple[tuple[str, ...], ...]
    """The names of tied attributes, each set in the order of the schema."""
    _families: dict[object, Restricted] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse what does not tie attributes of the schema, each at most once."""
        names = [name for component in self.components for name in component]
        positions = [self.schema.positions(component) for component in self.components]
        if not all(p and p == tuple(sorted(p)) for p in positions) or len(set(names)) < len(names):
            raise PlanError("plan: it ties attributes together twice, or not in the order of the schema")
        if not names or not all(len(_possible(self.schema, component)) for component in self.components):
            raise PlanError("plan: it ties no attributes together, or too many")

    @classmethod
    def of(cls, workload: Workload, unit: Unit) -> Tying | None:
        """Return which attributes to tie for a workload, or None if there are none.

        Exact counts by some of them are counts of groups of their combinations, and must be of groups in one
        way. They must leave no more unprotected of what is asked than without tying.
        """
        schema = workload.schema
        tying: Tying | None = None
        for _, masks in schema.zeros(asked(workload)):
            names = {schema.names[a] for on, _ in masks for a in on}
            components = () if tying is None else tying.components
            touching = [c for c in components if not names.isdisjoint(c)]
            merged = tuple(n for n in schema.names if n in names.union(*touching))
            if 0 < len(_possible(schema, merged)) <= limits().tied_values:
                others = (c for c in components if c not in touching)
                made = cls(schema, tuple(sorted([*others, merged], key=schema.positions)))
                tying = made if made._fits(workload, unit) else tying
        return tying

    def _fits(self, workload: Workload, unit: Unit) -> bool:
        """Return whether exact counts can be told by combinations, and cover what is asked."""
        try:
            known = unit.known(self.joint)
        except BudgetError:
            return False
        public = known.agreed.union(known.groups)
        on = [public.intersection(self.over(group.attributes)) for group in workload]
        return all(known.covers(each) for each in on if not each.isdisjoint(self._is_tied))

    # --- attributes ---

    @cached_property
    def joint(self) -> Schema:
        """The schema in which the first of tied attributes is replaced by their combinations."""
        made = {names[0]: self._combinations(names) for names in self.components}
        others = {name for names in self.components for name in names[1:]}
        attributes = [made.get(a.name, a) for a in self.schema if a.name not in others]
        return Schema(attributes, self.schema.impossible_where)

    def _combinations(self, names: tuple[str, ...]) -> Combinations:
        cells = tuple(_possible(self.schema, names).tolist())
        return Combinations(" × ".join(names), tuple(self.schema[name] for name in names), cells=cells)

    @cached_property
    def _joint_of(self) -> dict[str, int]:
        """For each attribute of the schema, its index in the joint one, or that of its combinations."""
        return {column.name: index for index, a in enumerate(self.joint) for column in a.columns}

    def over(self, names: Iterable[str]) -> AttributeSet:
        """Return the set of the joint schema whose columns include some attributes."""
        return tuple(sorted({self._joint_of[name] for name in names}))

    def columns(self, attributes: AttributeSet) -> tuple[str, ...]:
        """Return the names of all columns of a set of the joint schema, in the order of the schema."""
        names = {column.name for a in attributes for column in self.joint.attributes[a].columns}
        return tuple(name for name in self.schema.names if name in names)

    def sets(self, attributes: AttributeSet) -> Iterator[AttributeSet]:
        """Iterate over the sets of attributes of the schema that a set of the joint one stands for."""
        columns = [self.schema.positions(self.columns((a,))) for a in attributes]
        some = ([subset for subset in subsets(each) if subset] for each in columns)
        yield from (tuple(sorted(sum(chosen, ()))) for chosen in product(*some))

    def _indexes(self, attributes: AttributeSet) -> dict[str, NDArray[np.intp]]:
        """Return the index of the value of every column in each cell of a set of the joint schema."""
        shape = [self.joint.sizes[a] for a in attributes]
        result = {}
        for axis, a in enumerate(attributes):
            attribute = self.joint.attributes[a]
            for column, indexes in zip(attribute.columns, attribute.column_indexes, strict=True):
                spread = [-1 if other == axis else 1 for other in range(len(shape))]
                result[column.name] = np.broadcast_to(indexes.reshape(spread), shape).ravel()
        return result

    # --- queries ---

    def workload(self, workload: Workload) -> Workload:
        """Return a workload over combinations."""
        return Workload(self.joint, tuple(self.group(group).group for group in workload))

    def group(self, group: Group) -> TiedGroup:
        """Return a group over combinations: families that are tied become one."""
        parts = list(group.parts())
        on = [self.over(names) for names, _ in parts]
        classes = [[i for i, a in enumerate(on) if a[0] in together] for together in connected(on)]
        families, names = list[Family](), list[str]()
        for members in classes:
            columns, family = parts[members[0]]
            attributes = tuple(sorted({a for i in members for a in on[i]}))
            if self._is_tied.intersection(attributes):
                columns = tuple(self.joint.names[a] for a in attributes)
                family = self._restricted(attributes, [parts[i] for i in members])
            families.append(family)
            names += columns
        made = Group(tuple(names), tuple(families), group.weight, group.target)
        order = [i for members in classes for i in members]
        sizes = tuple(parts[i][1].rows for i in order)
        return TiedGroup(made, sizes, tuple(map(order.index, range(len(parts)))))

    @cached_property
    def _is_tied(self) -> frozenset[int]:
        """The attributes of the joint schema that are combinations."""
        return frozenset(self._joint_of[names[0]] for names in self.components)

    def _restricted(
        self, attributes: AttributeSet, parts: list[tuple[tuple[str, ...], Family]]
    ) -> Restricted:
        """Return the product of families on a set of the joint schema; equal ones are made once."""
        key = attributes, *((names, family.key) for names, family in parts)
        if key not in self._families:
            indexes = self._indexes(attributes)
            maps = tuple(np.ravel_multi_index([indexes[n] for n in names], f.shape) for names, f in parts)
            shape = tuple(self.joint.sizes[a] for a in attributes)
            self._families[key] = Restricted(shape, tuple(family for _, family in parts), maps)
        return self._families[key]

    # --- tables ---

    def sums(self, names: Collection[str]) -> dict[int, Array]:
        """Return rows that add combinations up to the cells of some attributes, by joint attribute."""
        rows = {}
        for a in self._is_tied.intersection(self.over(names)):
            combinations = self.joint.attributes[a]
            columns = zip(combinations.columns, combinations.column_indexes, strict=True)
            asked = [(column.size, indexes) for column, indexes in columns if column.name in names]
            cells = np.ravel_multi_index([indexes for _, indexes in asked], [size for size, _ in asked])
            rows[a] = np.eye(math.prod(size for size, _ in asked))[:, cells]
        return rows

    def table(self, attributes: AttributeSet, summed: Array) -> Array:
        """Return a table on attributes of the schema, in any order, from `sums` of one on `over` of them."""
        names = [self.schema.names[a] for a in attributes]
        columns = [column for a in self.over(names) for column in self.joint.attributes[a].columns]
        ordered = [column.name for column in columns if column.name in names]
        table = summed.reshape(self.schema.shape(ordered))
        return table.transpose([ordered.index(name) for name in names])

    def rows(self, measured: AttributeSet, rows: Array) -> Array:
        """Return rows over the cells of a set of the joint schema as rows over those of its columns."""
        names = self.columns(measured)
        spread = np.zeros((len(rows), math.prod(self.schema.shape(names))))
        spread[:, self._cells(measured, names)] = rows
        return spread

    def _cells(self, measured: AttributeSet, names: tuple[str, ...]) -> NDArray[np.intp]:
        """Return, for every cell of a set of the joint schema, that of the table on some of its columns."""
        indexes = self._indexes(measured)
        flat = [indexes[name] for name in names]
        return np.ravel_multi_index(flat, self.schema.shape(names)) if names else np.zeros(1, dtype=np.intp)


def asked(workload: Workload) -> set[str]:
    """Return the names of the attributes that a workload asks about."""
    return {name for group in workload for name in group.attributes}


def _possible(schema: Schema, names: tuple[str, ...]) -> NDArray[np.intp]:
    """Return the possible cells of the table on some attributes; none if the table is too large."""
    too_large = math.prod(schema.shape(names)) > MAX_CELLS
    return np.zeros(0, dtype=np.intp) if too_large else np.flatnonzero(is_possible(schema, names))


def is_possible(schema: Schema, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which cells of the table on some attributes, in any order, are possible."""
    shape = schema.shape(names)
    axis_of = {schema.position(name): axis for axis, name in enumerate(names)}
    impossible = np.zeros(shape, dtype=bool)
    for _, masks in schema.zeros(names):
        cells = np.ones_like(impossible)
        for on, mask in masks:
            order = np.argsort([axis_of[a] for a in on])
            spread = [shape[axis] if axis in {axis_of[a] for a in on} else 1 for axis in range(len(shape))]
            cells &= mask.transpose(order).reshape(spread)
        impossible |= cells
    return ~impossible


class TiedEstimator(Estimator):
    """Answers questions about the original attributes by an estimator over their combinations."""

    def __init__(self, inner: Estimator, tying: Tying) -> None:
        """Take the estimator whose schema is the joint one."""
        super().__init__(tying.schema, (), inner.strategies, {}, inner.known)
        self.inner, self.tying, self.is_split = inner, tying, False

    def variances(self, group: Group) -> Array:
        tied = self.tying.group(group)
        return tied.arranged(self.inner.variances(tied.group))

    def total(self, group: Group) -> float:
        return self.inner.total(self.tying.group(group).group)

    def check(self, group: Group) -> None:
        self.inner.check(self.tying.group(group).group)

    def images(
        self, group: Group, only: Collection[AttributeSet] | None = None
    ) -> Iterator[tuple[Measured, Array]]:
        tied = self.tying.group(group)
        for measured, image in self.inner.images(tied.group, only):
            yield measured, image[tied.numbers]
