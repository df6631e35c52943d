"""Multipliers: how much every query matters to the largest error, or to its target.

The weights of queries must keep the product structure of the workload, or attribute sets stop being Kronecker
products. A query of group g, with row qᵢ in its i-th family, has the multiplier λ_g Π u_i(q_i). Each u
belongs to a *scope*: the uses of one family on alike attributes. Where all queries about an attribute look
the same from every value, single values stay uniform.

Joining groups or families gives more queries separate multipliers, in two ways.

A query q with target t and weight w is as far from its target as (s/t)·q is from s, and w·Var(q) is
w·(t/s)²·Var((s/t)·q). So queries on the same attributes with different targets are rows of one family with
the target s. A family has a multiplier for every row, and one Gram matrix however many rows it has.

Families of one group, merged into one, have a multiplier for every query. That closes gaps which products of
multipliers leave, at the price of the product structure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from querysmasher.arrays import Array, kronecker
from querysmasher.planning.centring import attribute_roles
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.variances import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Certificate, Measured
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group, Target, Workload

MOST_STEP = 3.0
"""Maximum change of the logarithm of a multiplier in one step."""

FIRST_RATE, MOST_RATE = 3.0, 8.0
"""Exponent of the ratio by which a multiplier grows, at first and at most: 2 is exact for a query that is
measured by itself."""


@dataclass(frozen=True)
class Scope:
    """The uses of one family that share their multipliers; if `fixed`, these stay uniform."""

    family: Family
    fixed: bool


@dataclass(frozen=True, eq=False)
class Scopes:
    """The scopes of a workload, and the scope of every family of every group."""

    scopes: tuple[Scope, ...]
    of_group: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, workload: Workload, *, added: bool = False) -> Scopes:
        """Return the scopes: the uses of a family for one target; on single attributes, also of one role.

        If multipliers are `added` to weights, large groups with several families that vary stay uniform: the
        sum of two products is no product.
        """
        parts = [part for group in workload for part in group.parts()]
        differ = {a for names, family in parts for a in names if len(names) > 1 or not family.looks_alike}
        schema, roles = workload.schema, attribute_roles(workload)
        scopes: dict[Hashable, tuple[int, Scope]] = {}
        of_group = []
        for group in workload:
            kinds = []
            for names, family in group.parts():
                same = len(names) == 1 and names[0] not in differ  # as seen from every value
                kinds.append(family.rows == 1 or (same and family.structure is Structure.VALUES))
            several = sum(not fixed for fixed in kinds) > 1
            large = added and several and prod(f.cells for f in group.families) > limits().threaded_cells
            numbers = []
            for (names, family), uniform in zip(group.parts(), kinds, strict=True):
                fixed = uniform or large
                role = roles[schema.position(names[0])] if len(names) == 1 else None
                key = family.key, role, fixed, group.target
                numbers.append(scopes.setdefault(key, (len(scopes), Scope(family, fixed)))[0])
            of_group.append(tuple(numbers))
        return cls(tuple(scope for _, scope in scopes.values()), tuple(of_group))


@dataclass(frozen=True, eq=False)
class Multipliers:
    """λ of every group and u of every scope, which sums to one."""

    workload: Workload
    scopes: Scopes
    groups: Array
    rows: tuple[Array, ...]
    rates: tuple[Array, ...]
    """Exponents of the ratios by which each λ, each u, and at last the sum of all λ, grows."""
    last: tuple[Array, ...]
    """The logarithms of the ratios by which they grew."""

    @classmethod
    def even(cls, workload: Workload, scopes: Scopes, groups: Array) -> Multipliers:
        """Return the multipliers that weigh all queries of a group alike."""
        counts = [scope.family.rows for scope in scopes.scopes]
        rows = tuple(np.full(n, 1.0 / n) for n in counts)
        rates, last = (
            tuple(np.full(n, value) for n in (len(groups), *counts, 1)) for value in (FIRST_RATE, 0.0)
        )
        return cls(workload, scopes, groups, rows, rates, last)

    def weighted(self, squares: Array, *, added: bool) -> Workload:
        """Return the workload in which every query has its multiplier / target² as weight.

        If `added`, this adds to its own weight, in the same group if weights differ along one family. Any
        other group is repeated at the end, with the multipliers as weights: the sum of two products need not
        be a product.
        """
        families = [
            scope.family
            if scope.fixed and scope.family.weights is None
            else scope.family.reweighted(u * len(u))
            for scope, u in zip(self.scopes.scopes, self.rows, strict=True)
        ]
        scopes, given, further = self.scopes.scopes, [], []
        for group, numbers, total in zip(
            self.workload, self.scopes.of_group, (self.groups / squares).tolist(), strict=True
        ):
            weight, parts = total / prod(len(self.rows[s]) for s in numbers), list(group.families)
            varying = [
                i
                for i, (family, s) in enumerate(zip(parts, numbers, strict=True))
                if not scopes[s].fixed or family.weights is not None
            ]
            if weight > 0 and added and len(varying) <= 1:
                for i in varying:
                    u = self.rows[numbers[i]]
                    rows = parts[i].query_weights() + weight / group.weight * u * len(u)
                    parts[i], weight = parts[i].reweighted(rows), 0.0
                given.append(Group(group.attributes, tuple(parts), group.weight + weight))
                continue
            if added:
                given.append(Group(group.attributes, group.families, group.weight))
            if weight > 0 or not added:
                further.append(Group(group.attributes, tuple(families[s] for s in numbers), weight))
        return Workload(self.workload.schema, (*given, *further))

    def row_slopes(self, table: VarianceTable, slopes: Array) -> list[Array]:
        """Return the derivatives of a total by the rows' multipliers, given those by expectations."""
        sums = [np.zeros(len(u)) for u in self.rows]
        for slope, column, kind in zip(slopes.tolist(), table.columns, table.kinds, strict=True):
            tensor = column.reshape([len(self.rows[s]) for s in kind])
            for axis, scope in enumerate(kind if slope > 0 else ()):
                if not self.scopes.scopes[scope].fixed:
                    others = kronecker(self.rows[s] for i, s in enumerate(kind) if i != axis)
                    sums[scope] += slope * np.moveaxis(tensor, axis, 0).reshape(-1, len(others)) @ others
        return sums

    def stepped(
        self,
        by_group: Array,
        by_row: Sequence[Array],
        floor: float,
        *,
        slowly: bool = False,
        steep: float = 1.0,
    ) -> Multipliers:
        """Return multipliers that grow with ratios of variance to target², of groups and of scopes' rows.

        Ratios of rows are relative to their mean, weighted by the cubes of standard errors: small errors
        hardly count. `floor` is the least multiplier, as a fraction of the average. If `slowly`, the powers
        of ratios do not exceed the first ones. Otherwise, the largest ones grow with the root of `steep`; if
        that exceeds one, what misses gets at least that excess of the average, unless its multiplier was too
        large just before: from hardly any multiplier, powers would take many steps.
        """
        most = FIRST_RATE if slowly else MOST_RATE * math.sqrt(steep)
        moved, rate, logs = _grown(self.groups, by_group, self.rates[0], self.last[0], most)
        least = np.maximum(floor, _excess(by_group, self.last[0]) if steep > 1 else 0.0)
        groups = np.where(self.groups > 0, np.maximum(moved, least * moved.mean()), 0.0)
        rows, rates, last = list(self.rows), [rate, *self.rates[1:]], [logs, *self.last[1:]]
        for n, (scope, u, values) in enumerate(zip(self.scopes.scopes, self.rows, by_row, strict=True), 1):
            if not scope.fixed and values.any():
                mean = np.average(values, weights=u * values**1.5)
                least = np.maximum(floor, _excess(values / mean, last[n]) if steep > 1 else 0.0)
                moved, rates[n], last[n] = _grown(u, values / mean, rates[n], last[n], most)
                moved = np.maximum(moved / moved.sum(), least / len(u))
                rows[n - 1] = moved / moved.sum()
        return replace(self, groups=groups, rows=tuple(rows), rates=tuple(rates), last=tuple(last))

    def summed(self, total: float, ratio: float) -> Multipliers:
        """Return multipliers whose sum grows from a total with a ratio, by any power."""
        moved, rate, logs = _grown(
            np.array([total]), np.array([ratio]), self.rates[-1], self.last[-1], math.inf
        )
        groups = self.groups * (moved / self.groups.sum())
        return replace(self, groups=groups, rates=(*self.rates[:-1], rate), last=(*self.last[:-1], logs))

    def slower(self) -> Multipliers:
        """Return the multipliers, whose next steps are half as large."""
        return replace(self, rates=tuple(rates / 2 for rates in self.rates))

    def halfway(self, other: Multipliers) -> Multipliers:
        """Return the multipliers half of the way to others, in logarithms."""
        rows = (np.sqrt(u * v) for u, v in zip(self.rows, other.rows, strict=True))
        return replace(
            self, groups=np.sqrt(self.groups * other.groups), rows=tuple(u / u.sum() for u in rows)
        )


def _excess(ratios: Array, last: Array) -> Array:
    """Return by how much ratios exceed one, up to one; nothing where they were below one in the last step."""
    return np.where(last < 0, 0.0, np.clip(ratios - 1, 0.0, 1.0))


def _grown(u: Array, ratios: Array, rates: Array, last: Array, most: float) -> tuple[Array, Array, Array]:
    """Return multipliers that grow by powers of ratios; these powers; the logarithms of the ratios.

    If a logarithm falls in proportion to the power, its fall in the last step tells the power that would have
    made it zero. The next power is that one, but at least half of the last one and at most twice, and `most`.
    """
    logs = np.log(np.maximum(ratios, 1e-300))
    left = np.divide(logs, last, out=np.zeros_like(logs), where=last != 0)
    rates = np.minimum(rates / np.clip(1 - left, 0.5, 2.0), most)
    return u * np.exp(np.clip(rates * logs, -MOST_STEP, MOST_STEP)), rates, logs


def expectations(table: VarianceTable, rows: Sequence[Array]) -> Array:
    """Return the sum of every column of a table, weighed by the rows of its scopes."""
    weights = {kind: kronecker(rows[scope] for scope in kind) for kind in set(table.kinds)}
    return np.array([weights[kind] @ column for column, kind in zip(table.columns, table.kinds, strict=True)])


def class_losses(workload: Workload, table: VarianceTable, scopes: Scopes) -> Array:
    """Return Σ weight × variance over all queries, at σ² = 1 on the sets of one class, for every class."""
    weights = np.bincount(table.entry_of, [group.weight for group in workload])
    rows = [scope.family.query_weights() for scope in scopes.scopes]
    return np.asarray(weights @ table.coefficients(expectations(table, rows)))


def targets_of(groups: Iterable[Group], default: float = 1.0) -> Array:
    """Return the target of every group, and a default where there is none."""
    return np.array([default if group.target is None else group.target.std for group in groups])


@dataclass(frozen=True, eq=False)
class Joined:
    """A workload with groups joined, and the groups that each of its groups stands for.

    Its largest weight is one, and weights keep 34 bits: a multiple of all weights leads to the same plan. Of
    rounding errors, one in some 100,000 straddles two such numbers.
    """

    original: Workload
    workload: Workload
    members: tuple[tuple[int, ...], ...]
    factor: float
    """Restores the weights."""

    @classmethod
    def of(cls, workload: Workload) -> Joined:
        """Join the groups that consist of rows on the same attributes."""
        factor = max(group.weight for group in workload)
        weights = [_rounded(group.weight / factor) for group in workload]
        given = [g if g.weight == w else g.weighted(w) for g, w in zip(workload, weights, strict=True)]
        alike: defaultdict[Hashable, list[list[int]]] = defaultdict(list)
        for index, group in enumerate(given):
            bins = alike[_key(group, index)]
            if not bins or sum(given[i].rows for i in (*bins[-1], index)) > limits().merged_rows:
                bins.append([])
            bins[-1].append(index)
        members = tuple(sorted(tuple(indexes) for bins in alike.values() for indexes in bins))
        groups = tuple(_joined([given[index] for index in indexes]) for indexes in members)
        joined = workload if groups == workload.groups else Workload(workload.schema, groups)
        return cls(workload, joined, members, factor)

    def restored(self, plan: Plan) -> Plan:
        """Return a plan of the joined workload as one of the original workload."""
        factor, root, certificate = self.factor, math.sqrt(self.factor), plan.certificate
        measured = tuple(
            Measured(m.attributes, m.blocks, m.variance, m.root_loss * root, whole, m.price)
            for m in plan.measured
            for whole in [tuple(sorted(index for joined in m.whole for index in self.members[joined]))]
        )
        solutions = tuple(
            replace(s, reached=s.reached * root, bound=s.bound * root) if s.strategy.whole else s
            for s in plan.solutions
        )
        if certificate.of == "mean":  # the others do not depend on weights
            certificate = Certificate(certificate.value * factor, certificate.bound * factor)
        return replace(
            plan,
            workload=self.original,
            measured=measured,
            solutions=solutions,
            weighted_loss=plan.weighted_loss * factor,
            certificate=certificate,
        )


def _key(group: Group, index: int) -> Hashable:
    """Return a key that groups share if they can be joined; a group that cannot has its index."""
    if len(group.families) != 1 or group.families[0].structure is not Structure.ROWS:
        return index
    return group.attributes, group.target is not None


def _rounded(weight: float) -> float:
    mantissa, exponent = math.frexp(weight)
    return math.ldexp(round(math.ldexp(mantissa, 34)), exponent - 34)


def _joined(groups: list[Group]) -> Group:
    """Return the rows of all groups as one group."""
    if len(groups) == 1:
        return groups[0]
    first, aims = groups[0], targets_of(groups)
    scales = aims[0] / aims
    rows = np.concatenate([scale * g.families[0].matrix() for g, scale in zip(groups, scales, strict=True)])
    weights = np.concatenate([g.query_weights() / scale**2 for g, scale in zip(groups, scales, strict=True)])
    target = first.target and Target(first.target.std)
    return Group(first.attributes, (Rows(first.families[0].shape, rows, weights),), 1.0, target)


def merged(workload: Workload, *, aimed: bool = False) -> Workload:
    """Merge the small families of each group whose multipliers vary, if that is little work.

    With `aimed`, merge those of groups with targets only.
    """
    scopes, most = Scopes.of(workload), limits()
    together: dict[tuple[int, ...], Rows] = {}
    groups = []
    for group, numbers in zip(workload, scopes.of_group, strict=True):
        fixed = [scopes.scopes[s].fixed for s in numbers]
        free, rest = ([p for p, f in zip(group.parts(), fixed, strict=True) if f == kind] for kind in (0, 1))
        rows, cells = (prod(getattr(family, name) for _, family in free) for name in ("rows", "cells"))
        small = cells <= most.merged_values and rows * cells <= most.merged_numbers
        if len(free) < 2 or not small or (aimed and group.target is None):
            groups.append(group)
            continue
        if numbers not in together:
            shape = tuple(n for _, family in free for n in family.shape)
            matrix = kronecker(family.matrix() for _, family in free)
            weights = kronecker(family.query_weights() for _, family in free)
            together[numbers] = Rows(shape, matrix, weights)
        names = tuple(name for attributes, _ in (*free, *rest) for name in attributes)
        families = (together[numbers], *(family for _, family in rest))
        groups.append(replace(group, attributes=names, families=families))
    little = sum(family.cells**3 for family in together.values()) <= most.merged_work
    return Workload(workload.schema, tuple(groups)) if together and little else workload


def spread(known: Multipliers, even: Multipliers) -> Multipliers:
    """Carry known multipliers over to the workload of `even`, which merges families or has more groups."""
    every = len(known.groups) == len(even.groups)
    indexes = [i for i, group in enumerate(even.workload) if every or group.target is not None]
    groups, rows = np.zeros(len(even.groups)), list(even.rows)
    groups[indexes] = known.groups
    for index, group, numbers in zip(indexes, known.workload, known.scopes.of_group, strict=True):
        by_names = {names: known.rows[s] for (names, _), s in zip(group.parts(), numbers, strict=True)}
        parts = even.workload.groups[index].parts()
        for (names, family), s in zip(parts, even.scopes.of_group[index], strict=True):
            u = kronecker(u for part, u in by_names.items() if set(part) <= set(names))
            if len(u) == family.rows and not even.scopes.scopes[s].fixed:
                rows[s] = u
    return replace(even, groups=groups, rows=tuple(rows))
