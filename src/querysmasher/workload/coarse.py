"""A schema with groups of values in place of one attribute, and its queries on the original schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from querysmasher.attributes import Categorical
from querysmasher.errors import WorkloadError, as_given
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.levels import read_level
from querysmasher.workload.rows import Rows
from querysmasher.workload.tree import Hierarchy, Integers, Name
from querysmasher.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Coarsening:
    """Groups of the values of one attribute, as an attribute of another schema."""

    original: Schema
    attribute: str
    """The name of the attribute in the original schema."""
    groups: Integers
    """The number of every value's group."""
    schema: Schema
    """The same schema, with groups as the values of the attribute."""
    name: str
    """The name of the attribute there."""

    @classmethod
    def of(
        cls, schema: Schema, attribute: str, groups: Integers, names: Sequence[Name], title: str
    ) -> Coarsening:
        """Replace an attribute by groups of its values."""
        if len(set(map(str, names))) < len(names):
            names = [f"{number}: {name}" for number, name in enumerate(names, start=1)]
        coarse = Categorical(
            title, list(names), title=schema[attribute].title if title == attribute else None
        )
        attributes = [coarse if a.name == attribute else a for a in schema]
        return cls(schema, attribute, groups, Schema(attributes), title)

    @classmethod
    def read(cls, workload: Workload, name: str, groups: Any = None) -> Coarsening:
        """Return a named level of a workload's hierarchies, or `groups` of the values of an attribute."""
        schema = workload.schema
        if groups is not None:
            numbers, names = read_level(schema[name], 1, groups)
            return cls.of(schema, name, numbers, names, name)
        titles: list[str] = []
        for group in workload:
            for names_of, family in group.parts():
                for (title, groups_of), (own, _) in zip(
                    family.level_names(), family.levels() or (), strict=False
                ):
                    titles += [title] if title else []
                    if title == name and own is not None:
                        return cls.of(schema, names_of[0], own, groups_of, name)
        known = ", ".join(map(repr, dict.fromkeys(titles))) or "none"
        raise WorkloadError(
            f"level: expected the name of a level of the workload's hierarchies ({known}), or an attribute "
            f"and groups of its values, got {as_given(name)}"
        )

    def fine(self, workload: Workload) -> Workload:
        """Return the same queries on the original schema."""
        if not isinstance(workload, Workload) or workload.schema != self.schema:
            raise WorkloadError(f"workload: expected queries on the schema {self.schema}")
        return Workload(self.original, tuple(map(self._fine_group, workload)))

    def _fine_group(self, group: Group) -> Group:
        names = tuple(self.attribute if name == self.name else name for name in group.attributes)
        families = tuple(self._fine_family(own, family) for own, family in group.parts())
        return replace(group, attributes=names, families=families)

    def _fine_family(self, names: tuple[str, ...], family: Family) -> Family:
        """Return a family on the original attributes."""
        if self.name not in names:
            return family
        if len(names) == 1 and np.array_equal(self.groups, np.arange(self.groups.size)):
            return family
        if family.counts_values:
            return Hierarchy(self.groups.shape, (self.groups,), (tuple(range(family.rows)),), leaves=False)
        axis = names.index(self.name)
        shape = tuple(self.groups.size if i == axis else n for i, n in enumerate(family.shape))
        tensor = family.matrix().reshape(-1, *family.shape)
        rows = np.take(tensor, self.groups, axis=1 + axis).reshape(len(tensor), -1)
        return Rows(shape, rows, family.weights)
