"""The factors of integer strategies. A new kind needs one file and a name in `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import WORD, Factor, Integers
from querysmasher.privacy.factors.filter import Filter, Mirrored
from querysmasher.privacy.factors.matrix import Coarse, Few, Matrix, Merged, Partition
from querysmasher.privacy.factors.reflection import Reflection
from querysmasher.privacy.factors.tree import Crossed, Crossing, Nodes, Tree

KINDS: dict[str, type[Factor]] = {
    kind.kind: kind for kind in (Matrix, Filter, Merged, Mirrored, Tree, Crossed, Coarse, Few)
}
"""The kinds by name, as files store them. The accountant trusts these classes and no others."""

__all__ = [
    "KINDS",
    "WORD",
    "Coarse",
    "Crossed",
    "Crossing",
    "Factor",
    "Few",
    "Filter",
    "Integers",
    "Matrix",
    "Merged",
    "Mirrored",
    "Nodes",
    "Partition",
    "Reflection",
    "Tree",
    "factor_from_data",
    "is_factor",
]


def is_factor(given: object) -> bool:
    """Return whether this is a factor of a known kind; a subclass might answer inconsistently."""
    return type(given) in KINDS.values()


def factor_from_data(kind: object, data: Mapping[str, Any]) -> Factor:
    """Rebuild a factor of the named kind from what its `to_data` returned."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise PrivacyError(f"factor: expected one of the kinds {', '.join(KINDS)}")
    if not data.keys() >= KINDS[kind].stored.keys():
        raise PrivacyError(f"another version of querysmasher wrote its {kind} factor: read it with that one")
    return KINDS[kind].from_data(data)
