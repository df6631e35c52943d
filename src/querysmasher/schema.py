"""The public domain: which attributes there are and which values each can take.

A schema is stated by the user and never read from data, because a domain learnt from a table says
something about the people in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from querysmasher.errors import SchemaError, UnknownAttributeError
from querysmasher.report.html import count, notebook, preview, table

Label = str | int | float | bool
"""What a value of an attribute may be."""


@dataclass(frozen=True)
class Attribute:
    """A discrete attribute: a name and its possible values, in order.

    Use one of the four kinds: `Categorical`, `Ordinal`, `Binned`, `Cyclic`.
    """

    name: str
    values: Sequence[Label]

    kind: ClassVar[str] = ""
    ordered: ClassVar[bool] = False
    natural_family: ClassVar[str] = "identity"

    def __post_init__(self) -> None:
        """Check the name and the values, and freeze the values."""
        if type(self) is Attribute:
            msg = "Attribute itself cannot be built: use Categorical, Ordinal, Binned or Cyclic"
            raise SchemaError(msg)
        if not isinstance(self.name, str) or not self.name:
            msg = f"name: expected a non-empty text, got {self.name!r}"
            raise SchemaError(msg)
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            msg = f"values of attribute {self.name!r}: expected a list of values, got {self.values!r}"
            raise SchemaError(msg)
        object.__setattr__(self, "values", tuple(_label(self.name, v) for v in self.values))
        if not self.values:
            msg = f"values of attribute {self.name!r}: the domain is empty; give at least one value"
            raise SchemaError(msg)
        if len(set(self.values)) != len(self.values):
            twice = next(v for i, v in enumerate(self.values) if self._positions[v] != i)
            msg = f"values of attribute {self.name!r}: {twice!r} is given more than once"
            raise SchemaError(msg)

    @property
    def size(self) -> int:
        """How many values the attribute can take."""
        return len(self.values)

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as text, for tables and charts."""
        return tuple(map(str, self.values))

    @cached_property
    def _positions(self) -> dict[Label, int]:
        return {value: position for position, value in enumerate(self.values)}

    def position(self, value: object) -> int:
        """Return the place of `value` among the values, or raise `SchemaError`."""
        try:
            return self._positions[value]  # type: ignore[index]
        except (KeyError, TypeError):
            msg = f"attribute {self.name!r} has no value {value!r}"
            raise SchemaError(msg) from None

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `attribute_from_json` rebuilds this attribute."""
        return {"kind": self.kind, "name": self.name, "values": list(self.values)}


@dataclass(frozen=True)
class Categorical(Attribute):
    """Values without an order: sex, region, occupation."""

    kind: ClassVar[str] = "categorical"


@dataclass(frozen=True)
class Ordinal(Attribute):
    """Values with an order: age in years, level of education."""

    kind: ClassVar[str] = "ordinal"
    ordered: ClassVar[bool] = True
    natural_family: ClassVar[str] = "prefix"


@dataclass(frozen=True)
class Cyclic(Attribute):
    """Values on a circle, where the last is next to the first: hour of day, month of birth."""

    kind: ClassVar[str] = "cyclic"
    ordered: ClassVar[bool] = True
    natural_family: ClassVar[str] = "circular"


@dataclass(frozen=True)
class Binned(Attribute):
    """A number cut into ordered bins: k increasing edges make k - 1 bins.

    A bin holds its left edge and not its right one, except the last, which holds both.

    >>> Binned("income", edges=[0, 10, 25]).labels
    ('[0, 10)', '[10, 25]')
    """

    values: Sequence[Label] = field(init=False, default=())
    edges: Sequence[float] = ()

    kind: ClassVar[str] = "binned"
    ordered: ClassVar[bool] = True
    natural_family: ClassVar[str] = "prefix"

    def __post_init__(self) -> None:
        """Check the edges and name the bins after them."""
        if isinstance(self.edges, str) or not isinstance(self.edges, Iterable):
            msg = f"edges of attribute {self.name!r}: expected a list of numbers, got {self.edges!r}"
            raise SchemaError(msg)
        edges = tuple(_label(self.name, e) for e in self.edges)
        if any(isinstance(e, str | bool) or abs(e) > 1e300 for e in edges):
            msg = f"edges of attribute {self.name!r}: expected finite numbers, got {list(edges)!r}"
            raise SchemaError(msg)
        if len(edges) < 2:
            msg = f"edges of attribute {self.name!r}: the domain is empty; give at least two edges"
            raise SchemaError(msg)
        if any(a >= b for a, b in pairwise(edges)):  # type: ignore[operator]
            msg = f"edges of attribute {self.name!r}: expected increasing numbers, got {list(edges)!r}"
            raise SchemaError(msg)
        closing = ")" * (len(edges) - 2) + "]"
        bins = [f"[{a}, {b}{end}" for a, b, end in zip(edges, edges[1:], closing, strict=False)]
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "values", bins)
        super().__post_init__()

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `attribute_from_json` rebuilds this attribute."""
        return {"kind": self.kind, "name": self.name, "edges": list(self.edges)}


KINDS: dict[str, type[Attribute]] = {cls.kind: cls for cls in (Categorical, Ordinal, Binned, Cyclic)}


def attribute_from_json(data: Mapping[str, Any]) -> Attribute:
    """Rebuild an attribute from what `Attribute.to_json` returned."""
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        msg = f"kind: expected one of {sorted(KINDS)}, got {kind!r}"
        raise SchemaError(msg)
    return KINDS[kind](**fields)


@dataclass(frozen=True, repr=False)
class Schema:
    """The attributes of a table, in order.

    >>> schema = Schema([Categorical("sex", ["F", "M"]), Ordinal("age", range(100))])
    >>> schema
    Schema(sex: categorical 2, age: ordinal 100)
    >>> schema["age"].size
    100
    """

    attributes: Sequence[Attribute]

    def __post_init__(self) -> None:
        """Check that there are attributes and that their names differ."""
        given = self.attributes
        if isinstance(given, Attribute | str) or not isinstance(given, Iterable):
            msg = f"attributes: expected a list of attributes, got {given!r}"
            raise SchemaError(msg)
        attributes = tuple(given)
        if not attributes:
            msg = "attributes: a schema needs at least one attribute"
            raise SchemaError(msg)
        for attribute in attributes:
            if not isinstance(attribute, Attribute):
                msg = f"attributes: expected Categorical, Ordinal, Binned or Cyclic, got {attribute!r}"
                raise SchemaError(msg)
        names = [a.name for a in attributes]
        if len(set(names)) != len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            msg = f"attributes: the name {twice!r} is used more than once"
            raise SchemaError(msg)
        object.__setattr__(self, "attributes", attributes)

    @classmethod
    def of(cls, sizes: Mapping[str, int] | None = None, /, **more: int) -> Schema:
        """Build ordinal attributes with values 0 .. size - 1, from names and sizes.

        A mapping serves names that are no Python identifiers.

        >>> Schema.of({"hours per week": 99}, age=100)
        Schema(hours per week: ordinal 99, age: ordinal 100)
        """
        if sizes is not None and not isinstance(sizes, Mapping):
            msg = f"sizes: expected a mapping of names to sizes, got {sizes!r}"
            raise SchemaError(msg)
        merged = {**(sizes or {}), **more}
        for name, size in merged.items():
            if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
                msg = f"size of attribute {name!r}: expected a whole number of at least 1, got {size!r}"
                raise SchemaError(msg)
        return cls([Ordinal(name, range(size)) for name, size in merged.items()])

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
        """Return the place of the attribute called `name`."""
        try:
            return self._positions[name]
        except (KeyError, TypeError):
            raise UnknownAttributeError(name, self.names) from None

    def positions(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the places of several attributes, each named once, in the order given."""
        if isinstance(names, str):
            names = (names,)
        places = tuple(map(self.position, names))
        if len(set(places)) != len(places):
            twice = next(p for i, p in enumerate(places) if p in places[:i])
            msg = f"attribute {self.names[twice]!r} is named more than once"
            raise SchemaError(msg)
        return places

    def shape(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the shape of the marginal on `names`, in the order given."""
        return tuple(self.sizes[p] for p in self.positions(names))

    def __getitem__(self, name: str) -> Attribute:
        """Return the attribute called `name`."""
        return self.attributes[self.position(name)]

    def __contains__(self, name: object) -> bool:
        """Tell whether there is an attribute called `name`."""
        return name in self._positions

    def __iter__(self) -> Iterator[Attribute]:
        """Go through the attributes in order."""
        return iter(self.attributes)

    def __len__(self) -> int:
        """Count the attributes."""
        return len(self.attributes)

    def __repr__(self) -> str:
        """List the attributes with kind and size."""
        shown = [f"{a.name}: {a.kind} {a.size}" for a in self.attributes[:12]]
        if len(self) > 12:
            shown.append(f"… {len(self)} attributes")
        return f"Schema({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """Show the attributes in a notebook."""
        rows = [(a.name, a.kind, f"{a.size:,}", preview(a.labels)) for a in self]
        listed = table(["attribute", "kind", "values", "such as"], rows, numbers=[2])
        return notebook(f"Schema of {count(len(self), 'attribute')}", listed)

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data from which `Schema.from_json` rebuilds this schema."""
        return [a.to_json() for a in self.attributes]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> Schema:
        """Rebuild a schema from what `Schema.to_json` returned."""
        return cls([attribute_from_json(d) for d in data])


def _label(name: str, value: Any) -> Label:
    """Return `value` as a plain Python label, or refuse it."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar
    if not isinstance(value, str | int | float | bool):
        msg = f"values of attribute {name!r}: expected texts or numbers, got {value!r}"
        raise SchemaError(msg)
    if isinstance(value, float) and math.isnan(value):
        msg = f"values of attribute {name!r}: NaN cannot be a value"
        raise SchemaError(msg)
    return value
