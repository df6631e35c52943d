"""Multipliers: how much every query matters to the largest error.

The weights of queries must keep the product structure of the workload, or attribute sets stop being Kronecker
products. A query of group g, with row qᵢ in its i-th family, has the multiplier λ_g Π u_i(q_i). Each u
belongs to a *scope*: the uses of one family on alike attributes. Families that look the same from every
value, on attributes that are asked nothing else, stay uniform; circular ranges are weighed by their length.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.roles import attribute_roles
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.weighted import by_length, weighted
from querysmasher.workload.workload import Workload

FLOOR = 1e-3
"""Multipliers are at least this fraction of the average: a plan says little about weightless queries."""

MOST_STEP = 3.0
"""Maximum change of the logarithm of a multiplier in one step."""


@dataclass(frozen=True)
class Scope:
    """The uses of one family that share their multipliers.

    If every value looks the same, `fixed` ones stay uniform, and those of circular ranges vary `by_length`.
    """

    family: Family
    fixed: bool
    by_length: bool


Rate = Callable[[int, Scope, Array, Array], float]
"""Returns by which power of their ratios the multipliers of a scope grow, given its number, the scope, its
multipliers, and the logarithms of their ratios."""


@dataclass(frozen=True, eq=False)
class Scopes:
    """The scopes of a workload, and the scope of every family of every group."""

    scopes: tuple[Scope, ...]
    of_group: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, workload: Workload, *, own: bool, single: bool = False) -> Scopes:
        """Find the scopes; with `own`, some groups have scopes of their own.

        These are groups with a single family to weigh, as row weights on one axis just add up, and groups of
        which no other has two attributes: they cost no product structure, but more solving. With `single`,
        groups with several families to weigh stay uniform: their weights add to others of the same product
        structure.
        """
        found = cls._found(workload, own=own, single=single, coarse=False)
        if len(found.scopes) > limits().most_scopes:
            return cls._found(workload, own=own, single=single, coarse=True)
        return found

    @classmethod
    def _found(cls, workload: Workload, *, own: bool, single: bool, coarse: bool) -> Scopes:
        """Find the scopes, with attributes alike that are asked the same, or only nearly if `coarse`.

        Then all attributes are alike to families on several of them, whose blocks are the heavy ones.
        """
        alone = _alone(workload) if own and len(workload.groups) <= limits().own_groups else set()
        alike = _alike_attributes(workload)
        aims = [g.target.std if g.target is not None else 1.0 for g in workload]
        plain = tuple(replace(g, weight=aim) for g, aim in zip(workload, aims, strict=True))
        roles = attribute_roles(Workload(workload.schema, plain), coarse=coarse)
        position = workload.schema.position
        numbers: dict[Hashable, int] = {}
        scopes: list[Scope] = []
        of_group = []
        for index, (group, aim) in enumerate(zip(workload, aims, strict=True)):
            keys: list[Hashable] = [
                (family.key, () if coarse and len(names) > 1 else tuple(roles[position(n)] for n in names))
                for names, family in group.parts()
            ]
            even = [len(names) == 1 and names[0] in alike for names, _ in group.parts()]
            fixed = [
                family.rows == 1 or (same and not family.has_lengths)
                for family, same in zip(group.families, even, strict=True)
            ]
            if (
                single
                and fixed.count(False) > 1
                and prod(f.cells for f in group.families) > limits().tied_cells
            ):
                fixed = [True] * len(fixed)
            if own and (fixed.count(False) == 1 or index in alone):
                keys = [(key, aim, tuple(sorted(map(repr, keys)))) for key in keys]
            found = []
            for key, family, still, same in zip(keys, group.families, fixed, even, strict=True):
                if (key, still, same) not in numbers:
                    numbers[key, still, same] = len(scopes)
                    scopes.append(Scope(family, still, same and not still))
                found.append(numbers[key, still, same])
            of_group.append(tuple(found))
        return cls(tuple(scopes), tuple(of_group))


def _alone(workload: Workload) -> set[int]:
    """Return the indices of the groups of which no other group has two attributes."""
    pairs = [{frozenset(pair) for pair in combinations(group.attributes, 2)} for group in workload]
    asked = Counter(pair for own in pairs for pair in own)
    return {index for index, own in enumerate(pairs) if all(asked[pair] == 1 for pair in own)}


def _alike_attributes(workload: Workload) -> set[str]:
    """Return the attributes whose queries all look the same from every value."""
    asked: defaultdict[str, bool] = defaultdict(lambda: True)
    for group in workload:
        for names, family in group.parts():
            for name in names:
                asked[name] &= family.looks_alike and len(names) == 1
    return {name for name, alike in asked.items() if alike}


@dataclass(frozen=True, eq=False)
class Multipliers:
    """λ of every group and u of every scope, each with the sum one."""

    workload: Workload
    scopes: Scopes
    groups: Array
    rows: tuple[Array, ...]

    @classmethod
    def even(cls, workload: Workload, scopes: Scopes) -> Multipliers:
        """Return the multipliers that weigh all groups alike, and all queries of a group."""
        groups = np.full(len(workload.groups), 1.0 / len(workload.groups))
        rows = tuple(np.full(s.family.rows, 1.0 / s.family.rows) for s in scopes.scopes)
        return cls(workload, scopes, groups, rows)

    def weighted(self, aims: Array) -> Workload:
        """Return the workload in which every query has its multiplier / target² as weight, if that is any."""
        amounts = (self.groups / aims**2).tolist()
        groups = tuple(
            self._repeated(group, own, weight)
            for group, own, weight in zip(self.workload, self.scopes.of_group, amounts, strict=True)
            if weight > 0
        )
        return Workload(self.workload.schema, groups)

    @cached_property
    def _families(self) -> list[Family]:
        """The family of every scope with its multipliers as weights."""
        return [
            scope.family
            if scope.fixed and scope.family.weights is None
            else weighted(scope.family, u * len(u))
            for scope, u in zip(self.scopes.scopes, self.rows, strict=True)
        ]

    def _repeated(self, group: Group, own: tuple[int, ...], weight: float) -> Group:
        """Return a group with its multipliers, which sum to `weight`, as weights."""
        families = tuple(self._families[s] for s in own)
        return replace(group, families=families, weight=weight / group.rows, target=None)

    def added(self, aims: Array) -> Workload:
        """Return the workload in which every query has its own weight plus its multiplier / target².

        Both are products over the families. Their sum is one again where the multipliers vary along one
        family and the weights of the others are even; otherwise the group is repeated at the end, with the
        multipliers as weights.
        """
        groups, further = [], []
        for group, own, weight in zip(
            self.workload, self.scopes.of_group, (self.groups / aims**2).tolist(), strict=True
        ):
            free = [place for place, s in enumerate(own) if not self.scopes.scopes[s].fixed]
            uneven = [place for place, family in enumerate(group.families) if family.weights is not None]
            if weight <= 0:
                groups.append(replace(group, target=None))
            elif not free and not uneven:
                groups.append(replace(group, weight=group.weight + weight / group.rows, target=None))
            elif len(along := {*free, *uneven}) == 1:
                place = along.pop()
                family, u = group.families[place], self.rows[own[place]]
                plain = np.ones(len(u)) if family.weights is None else family.weights
                total = plain + weight / group.weight / group.rows * u * len(u)
                families = list(group.families)
                families[place] = weighted(family, total)
                groups.append(replace(group, families=tuple(families), target=None))
            else:
                groups.append(replace(group, target=None))
                further.append(self._repeated(group, own, weight))
        return Workload(self.workload.schema, (*groups, *further))

    def floored(self, floor: float = FLOOR) -> Multipliers:
        """Return the multipliers of rows with a floor under them, as a fraction of the average."""
        return replace(self, rows=tuple(_moved(u, np.zeros(len(u)), floor) for u in self.rows))

    def by_column(self, table: VarianceTable) -> Array:
        """Return the expectation of every column of a table under these multipliers."""
        known: dict[tuple[int, ...], Array] = {}
        result = np.empty(len(table.columns))
        for number, (column, kind) in enumerate(zip(table.columns, table.kinds, strict=True)):
            if kind not in known:
                known[kind] = self._joint(kind)
            result[number] = known[kind] @ column
        return result

    def _joint(self, kind: tuple[int, ...]) -> Array:
        """Return the product of multipliers of several scopes, for all combinations of their rows."""
        result = np.ones(1)
        for scope in kind:
            result = np.multiply.outer(result, self.rows[scope]).ravel()
        return result

    def stepped(
        self,
        by_group: Array,
        table: VarianceTable,
        slopes: Array,
        rate: Rate,
        group_rate: float,
        floor: float = FLOOR,
        group_floor: float = FLOOR,
    ) -> Multipliers:
        """Return multipliers that weigh more where variances are large.

        `by_group` is the variance that each group is judged by, relative to its target², `slopes` the
        derivative of the total with respect to the expectation of every column, `rate` says by which power of
        the ratio the multipliers of rows grow, and `floor` is their least, as a fraction of the average;
        `group_floor` is that of groups.
        """
        groups = _moved(self.groups, group_rate * _relative(self.groups, by_group), group_floor)
        rows = tuple(
            u if scope.fixed or not total.any() else _stepped(number, scope, u, total, rate, floor)
            for number, (u, total, scope) in enumerate(
                zip(self.rows, self.row_slopes(table, slopes), self.scopes.scopes, strict=True)
            )
        )
        return replace(self, groups=groups, rows=rows)

    def row_slopes(self, table: VarianceTable, slopes: Array) -> list[Array]:
        """Return the derivative of the total with respect to the multipliers of every scope's rows."""
        sums = [np.zeros(len(u)) for u in self.rows]
        for slope, column, kind in zip(slopes.tolist(), table.columns, table.kinds, strict=True):
            if slope > 0:
                self._add_marginals(slope, column, kind, sums)
        return sums

    def _add_marginals(self, slope: float, column: Array, kind: tuple[int, ...], sums: list[Array]) -> None:
        """Add a column's share to the derivative with respect to the multipliers of each of its scopes."""
        if len(kind) == 1:
            sums[kind[0]] += slope * column
            return
        tensor = column.reshape([len(self.rows[s]) for s in kind])
        for axis, scope in enumerate(kind):
            if not self.scopes.scopes[scope].fixed:
                own = np.moveaxis(tensor, axis, 0)
                for other in (s for i, s in reversed(list(enumerate(kind))) if i != axis):
                    own = own @ self.rows[other]
                sums[scope] += slope * own


def _stepped(number: int, scope: Scope, u: Array, values: Array, rate: Rate, floor: float) -> Array:
    """Return the next multipliers of the rows of a scope."""
    logs = _relative(u, values)
    moved = _moved(u, rate(number, scope, u, logs) * logs, floor)
    if scope.by_length:
        moved = by_length(moved)
    return np.asarray(moved / moved.sum())


def _relative(u: Array, values: Array) -> Array:
    """Return the logarithms of values relative to their mean."""
    return np.asarray(np.log(np.maximum(values, 1e-300) / float(u @ values)))


def _moved(u: Array, steps: Array, floor: float = FLOOR) -> Array:
    """Change the logarithms by steps, and keep a floor under the result."""
    moved = u * np.exp(np.clip(steps, -MOST_STEP, MOST_STEP))
    moved = np.maximum(moved / moved.sum(), floor / len(u))
    return np.asarray(moved / moved.sum())
