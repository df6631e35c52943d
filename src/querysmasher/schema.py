"""The public domain: the attributes and the values of each.

The user states the schema. It is never read from data, because a domain learnt from a table reveals
something about the people in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from querysmasher.attributes import Attribute, Ordinal, attribute_from_json
from querysmasher.conditions import Mask, any_possible, conditions
from querysmasher.errors import (
    Explained,
    Remedy,
    SchemaError,
    UnknownAttributeError,
    as_given,
    explained,
)
from querysmasher.fields import items, text
from querysmasher.formatting import count, preview
from querysmasher.html import element, notebook, table

EXAMPLE = "qs.Schema([qs.Categorical('sex', ['F', 'M']), qs.Ordinal('age', range(100))])"
SIZES = "qs.Schema.of(age=100, sex=2)"

MOST = 8
"""Maximum number of attributes that a representation lists."""


@explained(EXAMPLE)
@dataclass(frozen=True, repr=False)
class Schema(Explained):
    """The attributes of a table, in order.

    >>> from querysmasher import Categorical, Ordinal
    >>> schema = Schema([Categorical("sex", ["F", "M"]), Ordinal("age", range(100))])
    >>> schema
    Schema(sex: 2 categorical values, age: 100 ordinal values)
    >>> schema["age"].size
    100
    """

    attributes: Sequence[Attribute]
    impossible_where: tuple[str, ...] = ()
    """Predicates that no record satisfies, as `impossible` stated them."""

    _instead: ClassVar[Mapping[str, str]] = {
        "": "an attribute is schema['age']",
        "+": "list all attributes in one schema",
    }

    def __post_init__(self) -> None:
        """Check that there are attributes and that their names differ."""
        given = self.attributes
        attributes = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
        if not attributes:
            msg = "attributes: a schema needs at least one attribute"
            raise SchemaError(msg, Remedy(f"write {EXAMPLE}", "state [[schema]] tables"))
        wrong = [attribute for attribute in attributes if not isinstance(attribute, Attribute)]
        if wrong or isinstance(given, Attribute):
            got = f"a list with {as_given(wrong[0])}" if isinstance(given, list | tuple) else as_given(given)
            kinds = "Categorical, Ordinal, Binned, Number and Cyclic"
            msg = f"attributes: expected a list of {kinds}, got {got}; write "
            raise SchemaError(f"{msg}{EXAMPLE}; the values are public knowledge, never read from a table")
        names = [a.name for a in attributes]
        if len(set(names)) != len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            raise SchemaError(f"attributes: the name {twice!r} is used more than once")
        object.__setattr__(self, "attributes", attributes)
        object.__setattr__(self, "impossible_where", tuple(self.impossible_where))
        for predicate in self.impossible_where:
            if all(mask.all() for _, mask in conditions(self.columns, predicate)):
                raise SchemaError(f"impossible: {predicate!r} leaves no record possible")
        if len(self.impossible_where) > 1 and not any_possible(self.columns, self.impossible_where):
            msg = f"impossible: the {len(self.impossible_where)} predicates together leave no record possible"
            raise SchemaError(msg)

    @classmethod
    def of(cls, sizes: Mapping[str, int] | None = None, /, **more: int) -> Schema:
        """Build ordinal attributes with values 0 .. size - 1, from names and sizes.

        Use a mapping for names that are not Python identifiers.

        >>> Schema.of({"hours per week": 99}, age=100)
        Schema(hours per week: 99 ordinal values, age: 100 ordinal values)
        """
        if sizes is not None and not isinstance(sizes, Mapping):
            msg = f"sizes: expected a mapping of names to sizes, got {as_given(sizes)}; write {SIZES}"
            raise SchemaError(msg)
        merged = {**(sizes or {}), **more}
        for name, size in merged.items():
            if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
                msg = f"size of attribute {name!r}: expected an integer of at least 1, got {as_given(size)}"
                raise SchemaError(f"{msg}; write {SIZES}, or list values with {EXAMPLE}")
        return cls([Ordinal(name, range(size)) for name, size in merged.items()])

    def impossible(self, *predicates: str) -> Schema:
        """Return the schema with structural zeros: combinations of values that no record can have.

        Structural zeros must be public knowledge: for example, nobody below 15 is married. Plans measure
        only what they leave open, so that errors fall, and impossible cells are 0 without error in answers,
        estimates and synthetic records. A record with an impossible combination counts as one with a value
        outside the schema: `measure` refuses or drops it. State them before building workloads.

        >>> Schema.of(age=100, children=10).impossible("age < 12 and children > 0").impossible_where
        ('age < 12 and children > 0',)
        """
        return replace(self, impossible_where=(*self.impossible_where, *predicates))

    @cached_property
    def columns(self) -> tuple[Attribute, ...]:
        """The attributes whose columns a table has: the attributes, or those that they combine."""
        return tuple(column for attribute in self.attributes for column in attribute.columns)

    def zeros(self, names: Iterable[str]) -> list[tuple[str, list[Mask]]]:
        """Return the predicates of `impossible` whose attributes are all among the names, with their masks.

        The indexes of the masks' attributes are those of `columns`.
        """
        names = set(names)
        among = {index for index, column in enumerate(self.columns) if column.name in names}
        read = ((predicate, conditions(self.columns, predicate)) for predicate in self.impossible_where)
        return [
            (predicate, masks) for predicate, masks in read if all(among.issuperset(on) for on, _ in masks)
        ]

    def zeros_of(self, names: Iterable[str]) -> list[tuple[str, list[Mask]]]:
        """Return what `zeros` does for the columns of attributes."""
        return self.zeros(column.name for name in names for column in self[name].columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The attributes' names, in order."""
        return tuple(a.name for a in self.attributes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The attributes' domain sizes, in order."""
        return tuple(a.size for a in self.attributes)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def position(self, name: str) -> int:
        """Return the index of the attribute called `name`."""
        try:
            return self._positions[name]
        except (KeyError, TypeError):
            one_by_one = isinstance(name, list | tuple) and not set(map(str, name)) - set(self.names)
            remedy = f"; give names one by one: {', '.join(map(repr, name))}" if one_by_one else ""
            raise UnknownAttributeError(name, self.names, remedy) from None

    def positions(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the indexes of several attributes, each named once, in the order given."""
        names = (names,) if isinstance(names, str) else tuple(names)
        try:
            positions = tuple([self._positions[name] for name in names])  # quicker than one by one
        except (KeyError, TypeError):
            positions = tuple(map(self.position, names))  # says which is unknown
        if len(set(positions)) != len(positions):
            twice = next(p for i, p in enumerate(positions) if p in positions[:i])
            raise SchemaError(f"attribute {self.names[twice]!r} is named more than once")
        return positions

    def shape(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the shape of the marginal on `names`, in the order given."""
        return tuple(self.sizes[p] for p in self.positions(names))

    def __getitem__(self, name: str) -> Attribute:
        """Return the attribute called `name`."""
        return self.attributes[self.position(name)]

    def __contains__(self, name: object) -> bool:
        """Return whether there is an attribute called `name`."""
        return name in self._positions

    def __iter__(self) -> Iterator[Attribute]:
        """Iterate over the attributes in order."""
        return iter(self.attributes)

    def __len__(self) -> int:
        """Count the attributes."""
        return len(self.attributes)

    def __repr__(self) -> str:
        """List the attributes with kind and size."""
        shown = [f"{preview([a.name])}: {count(a.size, f'{a.kind} value')}" for a in self.attributes[:MOST]]
        more = len(self) - len(shown)
        return f"Schema({', '.join(shown)}{f', … {more:,} more' if more else ''})"

    def _repr_html_(self) -> str:
        """Show the attributes in a notebook."""
        rows = [(a.name, a.kind, f"{a.size:,}", preview(a.shown)) for a in self.attributes[:MOST]]
        listed = table(["attribute", "kind", "values", "examples"], rows, numbers=[2])
        more = len(self) - len(rows)
        rest = element("p", f"… {count(more, 'more attribute')}") if more else None
        return notebook(f"Schema of {count(len(self), 'attribute')}", listed, rest)

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data from which `Schema.from_json` rebuilds this schema."""
        stated = [{"impossible": list(self.impossible_where)}] if self.impossible_where else []
        return [*(a.to_json() for a in self.attributes), *stated]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> Schema:
        """Rebuild a schema from what `Schema.to_json` returned."""
        given = list(data)
        stated: list[str] = []
        if given and isinstance(given[-1], Mapping) and "impossible" in given[-1]:
            stated = [text(predicate) for predicate in items(given.pop()["impossible"])]
        return cls([attribute_from_json(d) for d in given], tuple(stated))
