"""A workload: a schema and weighted groups of queries on it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from querysmasher.errors import WorkloadError
from querysmasher.html import element, notebook, table
from querysmasher.schema import Schema
from querysmasher.workload.checks import check_weights
from querysmasher.workload.groups import Group

MOST_SHOWN = 12
"""Maximum number of groups shown in a notebook."""


@dataclass(frozen=True, repr=False)
class Workload:
    """Linear queries, each answerable from the marginal on a few attributes.

    Workloads are built by `marginals`, `all_kway`, `queries`, `affine`, `abs_difference`,
    `random_queries`, `linear` and `where`; `+` joins two, and `number * workload` scales the weights.
    """

    schema: Schema
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        """Check that there is a query and that every group fits the schema."""
        if not self.groups:
            msg = "workload: expected at least one query"
            raise WorkloadError(msg)
        sizes = dict(zip(self.schema.names, self.schema.sizes, strict=True))
        for group in self.groups:
            shape = tuple(n for f in group.families for n in f.shape)
            if shape != tuple(sizes.get(name) for name in group.attributes):
                self.schema.positions(group.attributes)  # names what is unknown
                msg = f"workload: families of shape {shape} do not fit attributes {group.attributes}"
                raise WorkloadError(msg)
            if len(set(group.attributes)) != len(group.attributes):
                self.schema.positions(group.attributes)  # names what is repeated
            if not (group.weight > 0 and math.isfinite(group.weight)):
                check_weights("weight", group.weight)

    @cached_property
    def query_count(self) -> int:
        """Number of queries (also as `len`)."""
        return sum(g.rows for g in self.groups)

    def __len__(self) -> int:
        """Count the queries."""
        return self.query_count

    def __iter__(self) -> Iterator[Group]:
        """Iterate over the groups."""
        return iter(self.groups)

    def __bool__(self) -> bool:
        """Return True: a workload always has a query."""
        return True

    def __add__(self, other: object) -> Workload:
        """Join two workloads on the same schema."""
        if not isinstance(other, Workload):
            return NotImplemented
        if other.schema != self.schema:
            msg = f"+: the workloads are on different schemas, {self.schema} and {other.schema}"
            raise WorkloadError(msg)
        return Workload(self.schema, self.groups + other.groups)

    def __radd__(self, other: object) -> Workload:
        """Support `sum` over a list of workloads."""
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: object) -> Workload:
        """Multiply every weight by a positive number."""
        if not hasattr(factor, "__float__"):
            return NotImplemented
        check_weights("weight", float(factor))
        return Workload(self.schema, tuple(replace(g, weight=g.weight * float(factor)) for g in self.groups))

    __rmul__ = __mul__

    def labels(self) -> Iterator[str]:
        """Return every query in words, in order."""
        for group in self.groups:
            yield from group.labels(self.schema)

    def predicates(self) -> Iterator[str]:
        """Return every query as a predicate that `where` accepts, or in words if no predicate states it."""
        for group in self.groups:
            yield from group.predicates(self.schema)

    def __repr__(self) -> str:
        """Count the queries and the attribute sets, by number of attributes."""
        ways = Counter(len(g.attributes) for g in self.groups)
        sets = ", ".join(f"{count:,} of {way}" for way, count in sorted(ways.items()))
        return f"Workload({self.query_count:,} queries in {len(self.groups):,} groups: {sets} attributes)"

    def _repr_html_(self) -> str:
        """Show the first groups in a notebook."""
        rows = [(g.describe(), f"{g.rows:,}", f"{g.weight:g}") for g in self.groups[:MOST_SHOWN]]
        more = len(self.groups) - MOST_SHOWN
        return notebook(
            f"Workload of {self.query_count:,} queries in {len(self.groups):,} groups",
            table(["group", "queries", "weight"], rows, numbers=[1, 2]),
            element("p", f"… {more:,} more groups") if more > 0 else None,
        )
