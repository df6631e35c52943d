"""Queries on one attribute as predicates, and what a label says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from querysmasher.attributes import Attribute
from querysmasher.names import written_name


def between_in(attribute: Attribute) -> Callable[[int, int], str]:
    """Return what states the predicate of all values from one to another, around the circle if it must."""
    v, name = attribute.literals, written_name(attribute.name)

    def stated(first: int, last: int) -> str:
        if not attribute.ordered:
            inside = v[first : last + 1] if first <= last else v[: last + 1] + v[first:]
            return one_of(attribute, inside)
        if first > last:
            return f"({name} >= {v[first]} or {name} <= {v[last]})"
        return bracketed(attribute.between(name, first, last))

    return stated


def bracketed(predicate: str) -> str:
    """Return a predicate that does not start like a formula of a spreadsheet."""
    return f"({predicate})" if predicate.startswith("-") else predicate


def said_of(name: str, label: str) -> str:
    """Return what a label says about an attribute, without its name.

    >>> said_of("county", "county in 'north'"), said_of("county", "other")
    ('north', 'other')
    """
    for start in (f"{name} in ", f"{name} == "):
        if label.startswith(start):
            said = label[len(start) :]
            quoted = len(said) > 1 and said[0] == said[-1] and said[0] in "'\""
            return said[1:-1] if quoted else said
    return label


def one_of(attribute: Attribute, literals: Sequence[str]) -> str:
    """Return the predicate of some values."""
    return f"{written_name(attribute.name)} in [{', '.join(literals)}]"
