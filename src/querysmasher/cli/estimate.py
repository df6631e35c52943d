"""A rough estimate, in advance, of the time and the memory that a workload takes.

The constants are those of one core of an ordinary machine; only the order of magnitude is meaningful.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from querysmasher.planning.limits import limits
from querysmasher.release.store import MEMORY_BYTES
from querysmasher.workload.workload import Group, Workload

SET_SECONDS = 1e-4
"""Seconds to plan one attribute set."""
DENSE_SECONDS = 1.2e-9
"""Seconds to solve a block of n cells, times n cubed."""
STRUCTURED_SECONDS = 2e-5
"""Seconds to solve a large block, times its cells."""
CLOSED = ("identity", "circular")
"""Families of one attribute that are solved by a formula."""
SEARCH = 40
"""Number of times a block is solved to choose the centres."""
NOISE_SECONDS = 4e-7
"""Seconds to measure one number."""
BASE_BYTES = 200_000_000
"""Bytes for Python and the libraries."""
GRAM_BYTES = 32
"""Bytes for the matrices of an attribute, times its squared number of values."""
BIG_SECONDS, BIG_BYTES = 20.0, 2e9
MOST_SETS = 3_000_000
"""Maximum number of attribute sets considered separately; more are only counted."""


@dataclass(frozen=True)
class Estimate:
    """Time and memory to plan and measure a workload, without reading the table."""

    planning_seconds: float
    measuring_seconds: float
    memory_bytes: float
    measurements: int

    @property
    def is_big(self) -> bool:
        """Whether to warn the user before it starts."""
        return self.planning_seconds + self.measuring_seconds > BIG_SECONDS or self.memory_bytes > BIG_BYTES

    def __str__(self) -> str:
        """Return the estimate in words."""
        return (
            f"planning may take about {_duration(self.planning_seconds)}, measuring about "
            f"{_duration(self.measuring_seconds)} in addition to reading the table, with about "
            f"{self.memory_bytes / 1e9:.1f} GB of memory"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "planning_seconds": round(self.planning_seconds, 1),
            "measuring_seconds": round(self.measuring_seconds, 1),
            "memory_bytes": round(self.memory_bytes),
        }


def estimate(workload: Workload, searches_centres: bool) -> Estimate:
    """Estimate time and memory of planning and measuring from the shape of the workload alone."""
    sizes = dict(zip(workload.schema.names, workload.schema.sizes, strict=True))
    kinds: dict[frozenset[str], set[tuple[bool, object]]] = {}
    for group in workload:
        kinds.setdefault(frozenset(group.attributes), set()).add(_kind(group))
    mixed = {
        (tuple(sorted(sizes[a] for a in one)), frozenset(own))
        for one, own in kinds.items()
        if len(one) > 1 and (len(own) > 1 or any(joint for joint, _ in own))
    }
    solving = math.fsum(_solving(math.prod(shape)) for shape, _ in mixed)
    ordered = {
        sizes[names[0]]
        for group in workload
        for names, family in group.parts()
        if len(names) == 1 and str(family) not in CLOSED
    }
    solving += math.fsum(DENSE_SECONDS * n**3 for n in ordered)
    sets, numbers = _closure(list(kinds), sizes)
    cells = max(math.prod(sizes[a] for a in one) for one in kinds)
    longest = max((sizes[a] for one in kinds for a in one), default=0)
    memory = BASE_BYTES + min(8 * numbers, MEMORY_BYTES) + 40 * cells + 1_000 * sets + GRAM_BYTES * longest**2
    planning = 3 * sets * SET_SECONDS + (SEARCH if searches_centres else 1) * solving
    return Estimate(planning, numbers * NOISE_SECONDS, memory, numbers)


def _kind(group: Group) -> tuple[bool, object]:
    """Return whether the group ties attributes together, and its families."""
    parts = sorted((len(names), str(family)) for names, family in group.parts())
    return any(width > 1 for width, _ in parts), tuple(parts)


def _solving(cells: int) -> float:
    return DENSE_SECONDS * cells**3 if cells <= limits().dense_cells else STRUCTURED_SECONDS * cells


def _closure(sets: list[frozenset[str]], sizes: dict[str, int]) -> tuple[int, int]:
    """Return the number of subsets of the attribute sets, and the number of values measured on them."""
    upper = sum(2 ** len(one) for one in sets)
    if upper > MOST_SETS:
        return upper, sum(math.prod(sizes[a] for a in one) for one in sets)
    below = {
        frozenset(part) for one in sets for way in range(len(one) + 1) for part in combinations(one, way)
    }
    return len(below), sum(math.prod(sizes[a] - 1 for a in one) for one in below)


def _duration(seconds: float) -> str:
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
