"""What to expect of a plan: the one table that `print(plan)`, the command, the pages and the demo show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from querysmasher.arrays import TIE, first_largest
from querysmasher.errors import TooLargeError
from querysmasher.formatting import columns, count, error, percentage, settled
from querysmasher.guarantees import equivalents, promise
from querysmasher.html import notebook, table
from querysmasher.planning.objectives.objective import OBJECTIVES
from querysmasher.planning.objectives.variances import Extreme
from querysmasher.planning.plan import Plan
from querysmasher.planning.strategies import is_line
from querysmasher.report.words import group_words, kind_words
from querysmasher.schema import Schema
from querysmasher.workload.family import Structure
from querysmasher.workload.sum import units_of
from querysmasher.workload.workload import Group, Workload

MOST_ENTRIES = 20_000_000
"""Maximum number of entries of a family that is written out to search for the largest error."""

MOST_GROUPS = 1_000
"""Maximum number of groups whose errors are predicted or searched just to show the plan."""

MOST_ROWS, LONGEST = 12, 60
"""Maximum number of groups with a row each, where more are shown by kind; and of characters of a query."""

QUERY = "largest error of"
"""The heading of the queries that have the largest errors."""

MUCH_SMALLER, MUCH_WORSE = 50, 2.0
"""Factors by which a table must have fewer queries and larger errors than another to get a remark."""

MET = 1e-6
"""How far an error may exceed its target by rounding, relative to the target."""

HEADER = ("group", "queries", "expected error", "largest error", "budget share")
"""The columns of the table, under which `Expectation.cells` stand."""


@dataclass(frozen=True)
class Expectation:
    """The error to expect of the queries of one group, or of several groups together."""

    schema: Schema
    groups: tuple[Group, ...]
    rmse: float | None
    """Root mean square of the queries' standard errors; None if computing it takes too much memory."""
    budget_share: float
    """The share of the budget that is spent on exactly the attribute sets of the groups, or on the groups
    themselves if they are measured whole."""
    is_whole: bool = False
    """Whether the queries are measured whole, not split."""
    largest: float | None = None
    """The largest standard error of a query; None if it was not computed."""
    spread: tuple[float, ...] | None = None
    """Quantiles of the queries' standard errors, where they were computed."""
    extreme: Extreme | None = None
    """A query that has the largest standard error as planned, where it was searched for."""
    title: str = ""
    """What the groups are together."""

    @cached_property
    def label(self) -> str:
        """The groups in words; a single query in full."""
        return self.title or _label(self.group, self.schema)

    @property
    def group(self) -> Group:
        """The group, or the first of several."""
        return self.groups[0]

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of the group."""
        return self.group.attributes

    @property
    def kind(self) -> str:
        """The families of the group, whatever attributes they are on."""
        return kind_words(self.group)

    @cached_property
    def queries(self) -> int:
        """Number of queries."""
        return sum(group.rows for group in self.groups)

    def scaled(self, factor: float) -> Expectation:
        """Return the expectation under noise whose standard deviation is `factor` times as large."""
        if factor == 1:
            return self
        rmse, largest = (None if e is None else factor * e for e in (self.rmse, self.largest))
        return replace(self, rmse=rmse, largest=largest)

    def cells(self) -> tuple[str, ...]:
        """Return the row as strings, under `HEADER`."""
        errors = error(self.rmse), error(self.largest)
        return self.label, f"{self.queries:,}", *errors, f"{settled(self.budget_share):.1%}"


def expect(
    plan: Plan, workload: Workload | None = None, *, max_entries: float = math.inf
) -> Iterator[Expectation]:
    """Predict the error of every group of the planned (or another) workload, one at a time.

    Errors are summed without writing queries out. Only families without a closed form are written out, up
    to `max_entries` numbers; the error of a group with a larger one is left open.
    """
    workload, estimator = plan.workload if workload is None else workload, plan.estimator
    as_planned = workload is plan.workload
    shares = plan.budget_shares()
    whole_shares: dict[int, float] = {}
    for m in plan.measured if as_planned else ():  # groups measured whole: in proportion to their queries
        rows = {index: workload.groups[index].rows for index in m.whole}
        part = m.price / m.variance / plan.privacy_cost
        whole_shares |= {index: part * count / sum(rows.values()) for index, count in rows.items()}
    quick = [all(f.closed_form or f.rows * f.cells <= max_entries for f in g.families) for g in workload]
    extremes = largest_errors(plan) if as_planned else None
    for index, group in enumerate(workload):
        extreme = None if extremes is None else extremes[index]
        rmse = None if extreme is None or not quick[index] else extreme.rms
        if rmse is None and quick[index]:
            with suppress(TooLargeError):
                rmse = math.sqrt(estimator.total(group) / group.rows)
        attributes = tuple(sorted(group.attributes, key=workload.schema.position))
        if plan.tying is not None:
            attributes = plan.tying.columns(plan.tying.over(attributes))
        part = whole_shares.get(index, shares.get(attributes, 0.0))
        largest = None if extreme is None else extreme.std
        is_whole = index in whole_shares
        yield Expectation(workload.schema, (group,), rmse, part, is_whole, largest, extreme=extreme)


def together(title: str, rows: Iterable[Expectation]) -> Expectation:
    """Return the expectation of several groups together; the share of a set that is split counts once."""
    rows = tuple(rows)
    groups = tuple([row.group for row in rows])
    sets = [i if row.is_whole else frozenset(groups[i].attributes) for i, row in enumerate(rows)]
    shares = dict(zip(sets, (row.budget_share for row in rows), strict=True))
    joint = Expectation(rows[0].schema, groups, overall(rows), math.fsum(shares.values()), title=title)
    if any(row.largest is None for row in rows):
        return joint
    worst = rows[first_largest([row.largest or 0.0 for row in rows])]
    return replace(joint, largest=worst.largest, extreme=worst.extreme)


def overall(rows: Sequence[Expectation]) -> float | None:
    """Return the root mean square error over the queries of all rows, or None if one is unknown."""
    squares = [row.queries * row.rmse**2 for row in rows if row.rmse is not None]
    if len(squares) < len(rows):
        return None
    return math.sqrt(math.fsum(squares) / sum(row.queries for row in rows))


def by_kind(rows: Iterable[Expectation]) -> list[Expectation]:
    """Return one row per kind of group: the same families, on as many attributes."""
    kinds: dict[tuple[int, str], list[Expectation]] = {}
    for row in rows:
        kinds.setdefault((len(row.attributes), row.kind), []).append(row)
    return [together(kind, alike) for (_, kind), alike in kinds.items()]


def facts(plan: Plan, factor: float = 1.0, said: str | None = None) -> list[tuple[str, str]]:
    """Return what holds for the plan as a whole, as names and strings.

    `factor` multiplies the planned noise. `said` is the guarantee if more is known about it than the plan
    states; without it, a least budget is also stated in other definitions of privacy.
    """
    measured = count(len(plan.measured), "attribute set")
    certified = f", within {percentage(plan.gap)} of {optimum(plan)}"
    of_mean = "" if largest_counts(plan) else certified
    over = f"all queries{units_of(plan.workload)}"
    is_least = said is None and plan.least_cost is not None
    return [
        *purpose(plan),
        ("guarantee", said or promise(plan.budget)),
        *persons(plan, is_stated=said is not None),
        *zeros(plan),
        ("expected error", f"{error(factor * plan.rmse)} (root mean square over {over}){of_mean}"),
        *_largest(plan, factor, certified),
        *([("in other words", equivalents(plan.budget))] if is_least else []),
        ("measures", f"{count(plan.measurements, 'noisy number')} on {measured}"),
        *_remarks(plan, factor),
    ]


def persons(plan: Plan, *, is_stated: bool = False) -> Iterator[tuple[str, str]]:
    """Say what a bound on the records of each person costs, and what is counted unless that is stated."""
    most = plan.budget.records_per_person
    if most > 1:
        said = f"for one record per person, all errors could be {most:,} times smaller at the same budget"
        if not is_stated and not plan.budget.unit.total_is_public:
            said += (
                f". If a column of persons is named when the table is measured, at most {most:,} records of "
                "each are counted, and the others are left out"
            )
        yield "persons", said


def zeros(plan: Plan) -> Iterator[tuple[str, str]]:
    """Say which combinations are impossible, and whether the plan uses this knowledge."""
    used, unused = plan.zeros
    if used:
        yield "impossible", f"{'; '.join(used)}. Such cells are 0 without error, and the plan uses this"
    if unused:
        said = "The plan does not use this: answers about such cells are 0, and others at least as accurate"
        if plan.asked is not None:
            said = "The plan and its answers do not use this, and estimates do"
        yield "impossible", f"{'; '.join(unused)}. {said}"


def purpose(plan: Plan) -> Iterator[tuple[str, str]]:
    """Say what the plan is meant for, if not for the answers that it predicts."""
    if plan.asked is not None:
        queries = count(plan.asked.query_count, "query", "queries")
        yield "purpose", f"an estimate of {queries}, biased; the errors shown are of unbiased answers"
    if plan.sizes_first:
        public = plan.budget.unit.total_is_public
        first = "public" if public else "measured first, with 1% of the budget"
        yield (
            "number of records",
            f"{first}; it decides how the budget is divided. Errors are for 30,000 records",
        )


def largest_counts(plan: Plan) -> bool:
    """Return whether the plan minimises its largest error, or the cost at which that is small enough."""
    return plan.least_cost is not None or OBJECTIVES[plan.objective].largest


def largest_errors(plan: Plan) -> Sequence[Extreme] | None:
    """Return the largest standard error of every group, unless searching for them takes long."""
    if "extremes" in vars(plan):  # they are known
        return plan.extremes
    groups = plan.workload.groups
    sizes = (f.rows * f.cells for g in groups for f in g.families if f.structure is not Structure.TREE)
    return plan.extremes if len(groups) <= MOST_GROUPS and max(sizes, default=0) <= MOST_ENTRIES else None


def _largest(plan: Plan, factor: float, certified: str) -> Iterator[tuple[str, str]]:
    """Say which query has the largest error, whether targets are met, and what that costs."""
    extremes = largest_errors(plan)
    if extremes is None:
        return
    worst, aimed = worst_of(extremes), with_targets(extremes)
    certified = certified if largest_counts(plan) and plan.least_cost is None else ""
    bound = "" if plan.workload.has_targets else certified
    yield "largest error", f"{error(factor * worst.std)}, of {worst.query(plan.workload.schema)}{bound}"
    if not aimed:
        return
    closest = aimed[first_largest([extreme.ratio for extreme in aimed])]
    where = f"{closest.query(plan.workload.schema)}, {closest.group.target}"
    ratio = factor * closest.ratio
    if is_met(ratio):
        said = f"all met, the closest at {settled(ratio):.1%} of its target ({where})"
    else:
        missed = sum(not is_met(factor * extreme.ratio) for extreme in aimed)
        said = f"missed in {count(missed, 'group')}, by up to a factor of {settled(ratio):.4g} ({where})"
    yield "targets", said + certified
    if plan.least_cost is not None:
        least = f"every plan of its kind that meets the targets costs at least {plan.least_cost:.4g}"
        yield "cost", f"{plan.privacy_cost:.4g}; certified: {least}"


def worst_of(extremes: Sequence[Extreme]) -> Extreme:
    """Return the first of the largest errors."""
    return extremes[first_largest([extreme.std for extreme in extremes])]


def with_targets(extremes: Sequence[Extreme]) -> list[Extreme]:
    """Return the largest errors of the groups that have a target."""
    return [extreme for extreme in extremes if extreme.group.target is not None]


def is_met(ratio: float) -> bool:
    """Return whether a target is met by an error that is `ratio` times as large."""
    return ratio <= 1 + MET


def _remarks(plan: Plan, factor: float) -> Iterator[tuple[str, str]]:
    """Remark on sets without a quick optimum, and on a small table less accurate than a huge one."""
    for method, (sets, gap) in plan.fallbacks.items():
        too_large = (
            f"{count(sets, 'attribute set is', 'attribute sets are')} too large to find the optimum quickly"
        )
        yield "note", f"{too_large}: {method} strategies instead, at most {percentage(gap)} above the optimum"
    extremes = largest_errors(plan)
    if extremes is None or largest_counts(plan):
        return
    sizes = [extreme.group.rows for extreme in extremes]
    most = max(sizes)
    huge = extremes[sizes.index(most)]
    small = [e for e, size in zip(extremes, sizes, strict=True) if size * MUCH_SMALLER <= most]
    worst = worst_of(small) if small else None
    if worst is not None and worst.std > MUCH_WORSE * huge.std * (1 + TIE):
        name = _label(worst.group, plan.workload.schema)
        said = (
            f"{name} is less accurate ({error(factor * worst.std)}) than the {most:,} queries on "
            f"{huge.group.describe()} (at most {error(factor * huge.std)}), which outweigh it. "
            'weighing("tables") gives tables equal weight; objective="worst" minimises the largest error'
        )
        yield "note", said


def optimum(plan: Plan) -> str:
    """Say what the plan's certificate compares it with."""
    whole = sum(plan.workload.groups[index].rows for index in plan.whole)
    is_whole = whole == plan.workload.query_count and len(plan.measured) == 1
    # the bound of a single line or tree holds for the attribute and its total together
    alone = len(plan.solutions) == 1 and all(len(m.attributes) < 2 for m in plan.measured)
    alone &= any(is_line(solution.strategy) for solution in plan.solutions)
    if is_whole or (alone and not plan.budget.unit.total_is_public):
        return "the best possible matrix mechanism"
    apart = " that answers every group from its own measurement" if plan.whole else ""  # and not combined
    return f"the best possible plan of this kind{apart}"


def _label(group: Group, schema: Schema) -> str:
    """Describe a group; a single query in full."""
    if group.rows == 1:
        return next(group.labels(schema))
    named = any(family.row_labels for family in group.families)
    return group_words(group) if named else group.describe()  # levels of a hierarchy in full


def expected_table(rows: Sequence[Expectation], schema: Schema) -> list[tuple[str, ...]]:
    """Return a header and the rows as strings; targets and queries have a column where there are any."""
    queries = ["" if row.extreme is None else row.extreme.query(schema) for row in rows]
    short = [query if len(query) <= LONGEST else query[: LONGEST - 1] + "…" for query in queries]
    targets = [{group.target for group in row.groups} for row in rows]
    aims = ["several" if len(t) > 1 else "".join(str(a) for a in t if a is not None) for t in targets]
    more = {"target": aims, QUERY: short}
    shown = {name: cells for name, cells in more.items() if any(cells)}
    return [
        (*HEADER, *shown),
        *((*row.cells(), *(cells[i] for cells in shown.values())) for i, row in enumerate(rows)),
    ]


def _lines(rows: Sequence[Expectation], schema: Schema) -> list[str]:
    """Return the table as text; queries stand to the left of their column, numbers to the right."""
    lines = expected_table(rows, schema)
    if lines[0][-1] != QUERY:
        return columns(lines)
    numbers = columns(line[:-1] for line in lines)
    width = max(map(len, numbers))
    return [f"{left:{width}}  {line[-1]}".rstrip() for left, line in zip(numbers, lines, strict=True)]


def plan_text(plan: Plan) -> str:
    """Return the plan as text."""
    named, rows = facts(plan), _rows(plan)
    width = max(len(name) for name, _ in named)
    lines = [f"{name:{width}}  {text}" for name, text in named]
    lines += _lines(rows, plan.workload.schema) if rows else []
    return "\n  ".join([f"Plan for {plan.workload}", *lines])


def plan_notebook(plan: Plan) -> str:
    """Return the plan as HTML for a notebook."""
    rows = _rows(plan)
    header, *cells = expected_table(rows, plan.workload.schema)
    return notebook(
        f"Plan for {plan.workload.size_in_words}",
        table(["", ""], facts(plan)),
        table(header, cells, numbers=[1, 2, 3, 4]) if rows else None,
    )


def _rows(plan: Plan) -> Sequence[Expectation]:
    """Return a row per group or, if these are many, per kind; none if predicting them takes long."""
    if len(plan.workload.groups) > MOST_GROUPS:
        return ()
    rows = list(expect(plan))
    if len(rows) > MOST_ROWS:
        rows = by_kind(rows)
    return rows if len(rows) <= MOST_ROWS else ()
