"""Roles: attributes that a workload treats alike, and attribute sets that therefore cost the same.

A workload on a hundred attributes asks a few kinds of questions many times. This file finds the kinds: what
is left of the workload if attributes of one role are not distinguished. They are computed once, without any
centre; the search for centres then evaluates only distinct classes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from querysmasher.planning.estimator.lifting import subsets
from querysmasher.planning.split import Kept, PlacedFamily
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Workload


class Use(NamedTuple):
    """A part of a role family in a Kronecker product."""

    family: int
    """The index of the role family."""
    kept: Kept
    """The axes that the part keeps."""
    axes: tuple[int, ...]
    """Their indices in the attribute set."""


class Coefficient(NamedTuple):
    """A product that a coefficient is a sum of."""

    weight: float
    """Weight × multiplicity."""
    dropped: tuple[int, ...]
    """The role families that keep nothing."""


class RoleTerm(NamedTuple):
    """A Kronecker product of parts, and what its coefficient is the sum of."""

    uses: tuple[Use, ...]
    coefficients: tuple[Coefficient, ...]


@dataclass(frozen=True)
class RoleFamily:
    """A family of queries and the roles of its attributes, in the schema's order."""

    roles: tuple[int, ...]
    queries: PlacedFamily

    @property
    def family(self) -> Family:
        """The family of queries."""
        return self.queries.family


@dataclass(frozen=True)
class SetClass:
    """Attribute sets with the same share of the workload."""

    roles: tuple[int, ...]
    count: int
    terms: tuple[RoleTerm, ...]


@dataclass(frozen=True)
class Roles:
    """The roles of a workload's attributes, and its classes of attribute sets."""

    role_of: tuple[int, ...]
    sizes: tuple[int, ...]
    families: tuple[RoleFamily, ...]
    classes: tuple[SetClass, ...]


def few_roles(workload: Workload, most: int) -> Roles:
    """Return the roles of a workload, coarse ones if finer ones make more than `most` classes."""
    role_of = attribute_roles(workload, coarse=False)
    places = (sorted(workload.schema.positions(group.attributes)) for group in workload)
    if len({tuple(role_of[p] for p in own) for own in places}) <= most:  # at least as many classes
        roles = find_roles(workload)
        if len(roles.classes) <= most:
            return roles
    return find_roles(workload, coarse=True)


def find_roles(workload: Workload, *, coarse: bool = False) -> Roles:
    """Find the roles and classes of a workload.

    If `coarse`, attributes of the same size with the same families share a role, whatever the weights and the
    other families of their groups; classes of sets still distinguish these.
    """
    schema = workload.schema
    role_of = attribute_roles(workload, coarse=coarse)
    role_sizes = dict(zip(role_of, schema.sizes, strict=True))
    families: dict[Hashable, tuple[int, RoleFamily]] = {}
    table: defaultdict[tuple[int, ...], Counter[Hashable]] = defaultdict(Counter)
    for group in workload:
        options = []
        for names, family in group.parts():
            given = schema.positions(names)
            ordered = sorted(given)
            roles = tuple(role_of[p] for p in ordered)
            order = tuple(range(len(given)) if family.is_symmetric else map(given.index, ordered))
            number, _ = families.setdefault(
                (roles, order, family.key), (len(families), RoleFamily(roles, PlacedFamily(family, order)))
            )
            options.append(
                [Use(number, kept, tuple(ordered[a] for a in kept)) for kept in subsets(range(len(ordered)))]
            )
        for chosen in product(*options):
            attributes = tuple(sorted(a for use in chosen for a in use.axes))
            axis_of = {a: i for i, a in enumerate(attributes)}
            uses = tuple(
                sorted(use._replace(axes=tuple(axis_of[a] for a in use.axes)) for use in chosen if use.kept)
            )
            dropped = tuple(sorted(use.family for use in chosen if not use.kept))
            table[attributes][uses, dropped, group.weight] += 1
    classes = Counter(
        (tuple(role_of[a] for a in attributes), frozenset(terms.items()))
        for attributes, terms in table.items()
    )
    return Roles(
        role_of,
        tuple(role_sizes[r] for r in range(len(role_sizes))),
        tuple(f for _, f in families.values()),
        tuple(_set_class(roles, terms, count) for (roles, terms), count in classes.items()),
    )


def attribute_roles(workload: Workload, *, coarse: bool) -> tuple[int, ...]:
    """Return the role of every attribute."""
    schema = workload.schema
    numbers: dict[Hashable, int] = {}
    usage: list[Counter[Hashable]] = [Counter() for _ in schema]
    for group in workload:
        parts = [
            (schema.positions(names), family, numbers.setdefault(family.key, len(numbers)))
            for names, family in group.parts()
        ]
        for places, family, number in parts:
            others = tuple(sorted(n for p, _, n in parts if p is not places))
            for axis, place in enumerate(places):
                asked = (number, 0 if family.is_symmetric else axis)
                usage[place][asked if coarse else (*asked, group.weight, others)] += 1
    kinds: dict[Hashable, int] = {}
    return tuple(
        kinds.setdefault((size, frozenset(used if coarse else used.items())), len(kinds))
        for size, used in zip(schema.sizes, usage, strict=True)
    )


def _set_class(roles: tuple[int, ...], terms: Iterable[tuple[Any, int]], count: int) -> SetClass:
    grouped: defaultdict[tuple[Use, ...], list[Coefficient]] = defaultdict(list)
    for (uses, dropped, weight), times in terms:
        grouped[uses].append(Coefficient(weight * times, dropped))
    return SetClass(roles, count, tuple(RoleTerm(uses, tuple(grouped[uses])) for uses in sorted(grouped)))
