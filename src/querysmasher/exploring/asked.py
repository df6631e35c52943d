"""What a workload asks of an exploration: tables, their parts, and how much each part matters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from querysmasher.errors import PlanError, Remedy, TooLargeError
from querysmasher.planning.estimating import Place, directions
from querysmasher.schema import Schema
from querysmasher.workload.workload import Workload

LARGEST = 50_000_000
"""Maximum number of cells of a table."""

MOST_TRIPLES = 20_000
"""Maximum number of sets of three attributes that are looked at."""

PLAN = Remedy("use plan() and measure()", "use `querysmasher release`")


@dataclass(frozen=True, eq=False)
class Asked:
    """The tables of a workload, and their parts on one, two and three attributes."""

    workload: Workload

    def __post_init__(self) -> None:
        """Refuse queries other than cells of tables, and tables that are too large."""
        for group in self.workload:
            if not group.is_marginal:
                msg = (
                    f"workload: expected marginals only, got {group.describe()}; other queries are answered "
                    "best from an unbiased release"
                )
                raise PlanError(msg, PLAN)
        for place in self.sets:
            cells = math.prod(self.schema.sizes[a] for a in place)
            if cells > LARGEST:
                names = ", ".join(self.schema.names[a] for a in place)
                msg = f"workload: the table on ({names}) has {cells:,} cells; at most {LARGEST:,} are allowed"
                raise TooLargeError(msg)
        if not self.singles:
            msg = "workload: expected tables on attributes with at least two values, got none"
            raise PlanError(msg)

    @property
    def schema(self) -> Schema:
        """The domain."""
        return self.workload.schema

    @cached_property
    def weights(self) -> dict[Place, float]:
        """The weight of every table, of groups on the same attributes together."""
        found: dict[Place, float] = {}
        for group in self.workload:
            place = tuple(sorted(self.schema.positions(group.attributes)))
            found[place] = found.get(place, 0.0) + group.weight
        return found

    @property
    def sets(self) -> list[Place]:
        """The attribute sets of the tables, in the order of the workload."""
        return list(self.weights)

    @cached_property
    def singles(self) -> dict[Place, float]:
        """The attributes that tables consist of, and the weight of all tables with each."""
        return self._parts(1)

    @cached_property
    def pairs(self) -> dict[Place, float]:
        """The pairs of attributes that tables consist of, and the weight of all tables with each."""
        return self._parts(2)

    @cached_property
    def triples(self) -> dict[Place, float]:
        """The sets of three attributes that tables consist of: empty if there are too many."""
        most = sum(math.comb(len(place), 3) for place in self.sets)
        return self._parts(3) if most <= MOST_TRIPLES * 10 else {}

    def _parts(self, order: int) -> dict[Place, float]:
        found: dict[Place, float] = {}
        for place, weight in self.weights.items():
            for part in combinations(self._several(place), order):
                found[part] = found.get(part, 0.0) + weight
        return found if order < 3 or len(found) <= MOST_TRIPLES else {}

    def _several(self, place: Place) -> Iterator[int]:
        """Iterate over the attributes of a set that have several values: others carry nothing."""
        return (a for a in place if directions(self.schema, (a,)))

    @property
    def counted(self) -> list[tuple[str, ...]]:
        """The attribute sets, by name, that some phase may count: all others follow from them."""
        sets = [*self.sets, *self.singles, *self.pairs, *self.triples]
        return [tuple(self.schema.names[a] for a in place) for place in sets]
