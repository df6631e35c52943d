"""A workload: a schema and weighted groups of queries on it, some with a target for their accuracy."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from querysmasher.arrays import Array, kronecker
from querysmasher.errors import Explained, Remedy, WorkloadError, as_given, as_ratio, explained, suggestion
from querysmasher.formatting import count, error, one_line
from querysmasher.html import element, notebook, table
from querysmasher.schema import Schema
from querysmasher.workload.family import Family, Structure, check_weights

SMALLEST, LARGEST = 1e-12, 1e30
"""Bounds on a target: the squares of all ratios between targets and counts stay finite."""


@dataclass(frozen=True)
class Target:
    """The largest allowed standard error or, with a `level`, the largest half-width of an interval."""

    amount: float
    level: float | None = None

    def __post_init__(self) -> None:
        """Refuse amounts that are not positive numbers, and levels outside (0, 1)."""
        amount, level = _number(self.amount), None if self.level is None else _number(self.level)
        if not SMALLEST <= amount <= LARGEST:
            allowed = f"a positive number from {SMALLEST:g} to {LARGEST:g}"
            msg = f"within: expected {allowed}, the largest standard error, got {as_given(self.amount)}"
            raise WorkloadError(msg, Remedy("write within(50)", "write target = 50"))
        if level is not None and not 0 < level < 1:
            raise WorkloadError(
                f"level: expected a number between 0 and 1, got {as_given(self.level)}{as_ratio(self.level)}"
            )
        object.__setattr__(self, "amount", amount)
        object.__setattr__(self, "level", level)
        if level is not None and not SMALLEST * _reach(level) <= amount <= LARGEST * _reach(level):
            raise WorkloadError(
                f"within: expected a half-width that allows a standard error from {SMALLEST:g} to "
                f"{LARGEST:g}, got {amount:g} at level {level:g}"
            )

    @cached_property
    def std(self) -> float:
        """The largest allowed standard error."""
        return self.amount if self.level is None else self.amount / _reach(self.level)

    def __str__(self) -> str:
        """Return the target in words."""
        if self.level is None:
            return error(self.amount)
        return f"{error(self.amount)} at {100 * self.level:g}%"


def _reach(level: float) -> float:
    """Return how many standard errors an interval reaches to either side: the quantile of a normal error."""
    return -NormalDist().inv_cdf((1 - level) / 2)


def _number(given: object) -> float:
    """Return a number as a float; NaN for anything else."""
    is_number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    try:
        return float(given) if is_number else math.nan  # type: ignore[arg-type]
    except OverflowError:  # an integer
        return math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """The product of `families`, which cover `attributes` in order, with a weight and a target, if any.

    `age <= c and sex == d` for all c and d is the product of two families on one attribute each;
    `a + b <= c` is a single family on two. The queries are never written out: a query is a choice of
    one row per family, with the last family's row varying fastest.
    """

    attributes: tuple[str, ...]
    families: tuple[Family, ...]
    weight: float = 1.0
    target: Target | None = None

    @property
    def rows(self) -> int:
        """Number of queries in the group."""
        return math.prod([f.rows for f in self.families])

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of queries in each family."""
        return tuple(f.rows for f in self.families)

    @property
    def is_marginal(self) -> bool:
        """Whether the queries are the cells of a table, or the total."""
        return all(family.structure is Structure.VALUES for family in self.families)

    @property
    def inner_weight(self) -> float:
        """The sum of the weights inside the families: the number of queries, unless rows have weights."""
        return math.prod(f.units for f in self.families)

    def weighted(self, weight: float) -> Group:
        """Return the group with another weight."""
        return Group(self.attributes, self.families, weight, self.target)

    def parts(self) -> Iterator[tuple[tuple[str, ...], Family]]:
        """Iterate over the families, each with the attributes it covers."""
        start = 0
        for family in self.families:
            stop = start + len(family.shape)
            yield self.attributes[start:stop], family
            start = stop

    def query_weights(self) -> Array:
        """Return the weight of every query, in order."""
        return kronecker([np.full(1, self.weight), *(family.query_weights() for family in self.families)])

    def describe(self) -> str:
        """Return a short description."""
        if not self.attributes:
            return "total"
        return one_line(" × ".join(f"{', '.join(names)} ({family})" for names, family in self.parts()))

    def labels(self, schema: Schema) -> Iterator[str]:
        """Return every query in words, in order."""
        return _joined(family.labels([schema[n] for n in names]) for names, family in self.parts())

    def predicates(self, schema: Schema) -> Iterator[str]:
        """Return every query as a predicate, in order; in words where no predicate states it."""
        return _joined(family.predicates([schema[n] for n in names]) for names, family in self.parts())

    @property
    def kind(self) -> str:
        """The families, named once if all are the same.

        >>> from querysmasher.workload.families import Identity, Prefix
        >>> Group(("a", "b"), (Identity((2,)), Prefix((3,)))).kind
        'identity × prefix'
        """
        names = [str(family) for family in self.families]
        return " × ".join(names if len(set(names)) > 1 else names[:1]) or "total"


def _joined(families: Iterable[list[str]]) -> Iterator[str]:
    """Join the words of every choice of one query per family."""
    each = [list(map(one_line, words)) for words in families]
    return (" and ".join(filter(None, words)) or "total" for words in itertools.product(*each))


WEIGHINGS = ("tables", "queries")
"""What `weighing` gives equal weights: groups of queries, or queries."""

MOST_SHOWN = 12
"""Maximum number of groups shown in a notebook."""


@dataclass(frozen=True, repr=False)
class Workload(Explained):
    """Linear queries, each answerable from the marginal on a few attributes.

    Workloads are built by `marginals`, `all_kway`, `queries`, `affine`, `abs_difference`,
    `random_queries`, `linear` and `where`; `+` joins two, and `number * workload` scales the weights.
    `weighing` gives every table or every query the same weight, and `within` states how accurate the answers
    must be.
    """

    schema: Schema
    groups: tuple[Group, ...]

    __array_ufunc__ = None  # numpy leaves products with its numbers to `__mul__`
    _instead: ClassVar[Mapping[str, str]] = {
        "+": "join workloads on the same schema: qs.marginals(schema, 1) + qs.where(schema, 'age >= 18')",
        "*": "multiply by a number, as in 2 * workload; join workloads with +",
        "plan": "write qs.plan(workload, budget)",
        "measure": "write qs.measure(qs.plan(workload, budget), data)",
        "answer": "write qs.measure(qs.plan(workload, budget), data).answer(workload)",
    }

    def __post_init__(self) -> None:
        """Check that there is a query and that every group fits the schema."""
        if not self.groups:
            raise WorkloadError("workload: expected at least one query")
        sizes = dict(zip(self.schema.names, self.schema.sizes, strict=True))
        for group in self.groups:
            shape = tuple([n for f in group.families for n in f.shape])
            if shape != tuple([sizes.get(name) for name in group.attributes]):
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
            self._refuse("+", other)
        if other.schema != self.schema:
            msg = f"+: the workloads are on different schemas, {self.schema} and {other.schema}"
            raise WorkloadError(f"{msg}; build both on the same schema")
        return Workload(self.schema, self.groups + other.groups)

    def __radd__(self, other: object) -> Workload:
        """Support `sum` over a list of workloads."""
        if type(other) is not int or other != 0:
            self._refuse("+", other)
        return self

    def __mul__(self, factor: object) -> Workload:
        """Multiply every weight by a positive number."""
        if (
            isinstance(factor, str | bool)
            or not hasattr(factor, "__float__")
            or getattr(factor, "shape", False)
        ):
            self._refuse("*", factor)
        check_weights("weight", float(factor))
        return Workload(self.schema, tuple(g.weighted(g.weight * float(factor)) for g in self.groups))

    __rmul__ = __mul__

    @explained("workload.weighing('tables')")
    def weighing(self, what: str) -> Workload:
        """Return the workload with equal weights for all groups ("tables") or for all queries ("queries").

        "queries" is the default of all builders: a large table outweighs small ones, and a plan spends most
        of the budget on its cells. With "tables", each query in a group of n queries gets the weight 1/n.
        Totals and small tables become more accurate, and the cells of large tables less accurate.

        >>> schema = Schema.of(a=3, b=4)
        >>> from querysmasher.workload.builders import marginals
        >>> [round(group.weight, 3) for group in marginals(schema, [0, 1, 2]).weighing("tables")]
        [1.0, 0.333, 0.25, 0.083]
        """
        if what not in WEIGHINGS:
            raise WorkloadError(
                f"weighing: expected 'tables' or 'queries', got {as_given(what)}{suggestion(what, WEIGHINGS)}"
            )
        weights = (1.0 if what == "queries" else 1.0 / g.inner_weight for g in self.groups)
        return Workload(self.schema, tuple(g.weighted(w) for g, w in zip(self.groups, weights, strict=True)))

    @explained("workload.within(50), or workload.within(50, level=0.95)")
    def within(self, target: float, *, level: float | None = None) -> Workload:
        """Return the workload with an accuracy target for each of its queries.

        `target` is the largest standard error or, with a `level`, the largest half-width of the confidence
        interval at that level. State targets on parts of a workload before you join them with `+`.
        `least_budget` finds the least budget that meets all targets, `plan` meets them within a budget.
        """
        stated = Target(target, level)
        return Workload(self.schema, tuple(replace(g, target=stated) for g in self.groups))

    @cached_property
    def has_targets(self) -> bool:
        """Whether some queries have a target."""
        return any(g.target is not None for g in self.groups)

    def labels(self) -> Iterator[str]:
        """Return every query in words, in order."""
        for group in self.groups:
            yield from group.labels(self.schema)

    def predicates(self) -> Iterator[str]:
        """Return every query as a predicate that `where` accepts, or in words if no predicate states it."""
        for group in self.groups:
            yield from group.predicates(self.schema)

    def __repr__(self) -> str:
        """Count the queries and the groups, by number of attributes."""
        ways = Counter(len(g.attributes) for g in self.groups)
        sets = ", ".join(
            f"{groups:,} on {count(way, 'attribute') if way else 'no attribute'}"
            for way, groups in sorted(ways.items())
        )
        aimed = sum(g.target is not None for g in self.groups)
        sets += f"; {aimed:,} with {'a target' if aimed == 1 else 'targets'}" if aimed else ""
        return f"Workload({self.size_in_words}: {sets})"

    @property
    def size_in_words(self) -> str:
        """The number of queries and of groups, in words."""
        queries = count(self.query_count, "query", "queries")
        return f"{queries} in {count(len(self.groups), 'group')}"

    def _repr_html_(self) -> str:
        """Show the first groups in a notebook."""
        named = ["group", "queries", "weight", *["target"] * self.has_targets]
        rows = [
            (g.describe(), f"{g.rows:,}", f"{g.weight:g}", str(g.target or ""))[: len(named)]
            for g in self.groups[:MOST_SHOWN]
        ]
        more = len(self.groups) - MOST_SHOWN
        return notebook(
            f"Workload of {self.size_in_words}",
            table(named, rows, numbers=[1, 2]),
            element("p", f"… {count(more, 'more group')}") if more > 0 else None,
        )
