"""Attributes: what a record can say about one thing, as a fixed and public list of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from querysmasher.errors import SchemaError

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
