"""Every mechanism on one workload: its error, its cost in time and memory, and its limitations."""

from __future__ import annotations

import math
import os
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from querysmasher.arrays import in_order
from querysmasher.comparison.chart import comparison_chart
from querysmasher.comparison.hdmm import TEMPLATES, hdmm
from querysmasher.comparison.rehearsal import Rehearsal, refusal, rehearse
from querysmasher.errors import PlanError, QuerySmasherError, as_given, explained, suggestion
from querysmasher.formatting import columns, count, settled
from querysmasher.guarantees import epsilon_words, promise
from querysmasher.html import element, notebook, table
from querysmasher.planning.checks import check_arguments
from querysmasher.planning.limits import limited, limits
from querysmasher.planning.mechanisms import DEFAULT, MECHANISMS
from querysmasher.planning.objectives.objective import INSUFFICIENT, OBJECTIVES, check_objective
from querysmasher.planning.planner import plan
from querysmasher.privacy.budget import Budget
from querysmasher.progress import Bar
from querysmasher.workload.workload import Workload

MEASURED_SECONDS = 30
"""Maximum planning time for which a mechanism is run again to measure its memory."""

COMPARED_WORK = 4e10
"""Maximum of cells × queries² for which whole queries are compared: more takes minutes."""

Result = tuple[float, float | None, str]
"""The RMSE, the largest standard error if known, and a note."""

WEIGHTED = (
    "The weighted RMSE is the root of the mean variance of the queries, with the weights of the workload; "
    "the expected error of a plan is the root of the unweighted mean."
)


@dataclass(frozen=True)
class Compared:
    """A mechanism to compare: its name in the API, its published name, and its limitations in sentences."""

    name: str
    title: str
    cannot: str
    run: Callable[[Workload, Budget, str], Result]


@dataclass(frozen=True)
class Row:
    """The result of one mechanism; None for what it does not support or was not measured."""

    mechanism: str
    title: str
    rmse: float | None
    """The root of (sum of weight × variance / sum of weights), on the scale of a standard error."""
    worst: float | None
    """The largest standard error of a query; relative to its target, if the objective has targets."""
    seconds: float | None
    megabytes: float | None
    """Peak memory, in addition to what was in use before."""
    cannot: str
    note: str


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of several mechanisms, the most accurate first."""

    workload: Workload
    budget: Budget
    rows: tuple[Row, ...]
    objective: str = "mean"
    """What every mechanism minimises, if it can, such as "mean" or "worst"."""
    rehearsed: Rehearsal | None = None
    """The errors of estimates on this kind of data, if a rehearsal table was given."""

    @property
    def head(self) -> tuple[str, ...]:
        """The names of the columns."""
        worst = "largest error / target" if self.workload.has_targets else "largest error"
        mean = "weighted RMSE" if self.is_weighted else "RMSE"
        errors = (worst, "above best", mean) if self.of_largest else (mean, "above best", worst)
        return ("mechanism", *errors, "seconds", "MB", "limitations")

    @property
    def of_largest(self) -> bool:
        """Whether mechanisms are compared by their largest error, not by the mean."""
        return OBJECTIVES[self.objective].largest

    @property
    def is_weighted(self) -> bool:
        """Whether queries have different weights, so that the RMSE is a weighted one."""
        groups = self.workload.groups
        unequal = any(family.weights is not None for group in groups for family in group.families)
        return unequal or len({group.weight for group in groups}) > 1

    def scaled(self, factor: float) -> Comparison:
        """Return the comparison under noise whose standard deviation is `factor` times as large."""
        rows = []
        for row in self.rows:
            rmse, worst = (None if error is None else factor * error for error in (row.rmse, row.worst))
            rows.append(replace(row, rmse=rmse, worst=worst))
        return replace(self, rows=tuple(rows))

    def error(self, row: Row) -> float | None:
        """Return the error by which mechanisms are compared."""
        return row.worst if self.of_largest else row.rmse

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data, one entry per mechanism."""
        return [asdict(row) for row in self.rows]

    def chart(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Return a bar chart of the errors above the best (altair); with `path`, also write it to that file.

        The name ends in .html, .svg, .png, .pdf or .json.
        """
        bars = [(row.title, error) for row in self.rows if (error := self.error(row)) is not None]
        queries = count(self.workload.query_count, "query", "queries")
        title = f"{queries} at {', '.join(epsilon_words(self.budget))}"
        mean = "Weighted RMSE" if self.is_weighted else "RMSE"
        what = "Largest error" if self.of_largest else mean
        return comparison_chart(bars, title, what, path)

    def __repr__(self) -> str:
        """Show the table."""
        lines = [self.head, *(self.cells(row) for row in self.rows)]
        shown = [f"{self.workload}; {promise(self.budget)}", *columns(line[:-1] for line in lines)]
        shown += [WEIGHTED] * self.is_weighted
        shown += [f"{line[0]}: {line[-1]}" for line in lines[1:] if line[-1]]
        shown += [] if self.rehearsed is None else ["", repr(self.rehearsed)]
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        listed = table(self.head, map(self.cells, self.rows), numbers=range(1, len(self.head) - 1))
        said = element("p", WEIGHTED) if self.is_weighted else None
        return notebook(f"{self.workload}; {promise(self.budget)}", listed, said)

    def cells(self, row: Row) -> tuple[str, ...]:
        """Return a row as strings, under `head`."""
        error = self.error(row)
        best = min((e for r in self.rows if (e := self.error(r)) is not None), default=math.nan)

        def number(value: float | None, form: str) -> str:
            return "-" if value is None else format(settled(value), form)

        return (
            row.title,
            number(error, ",.4g"),
            "-" if error is None else _above(error, best),
            number(row.rmse if self.of_largest else row.worst, ",.4g"),
            number(row.seconds, ".2f"),
            number(row.megabytes, ".0f"),
            " ".join(filter(None, (row.cannot, row.note))),
        )


def _above(error: float, best: float) -> str:
    """Return how far an error is above the best; a difference that the table shows is never 0.0%."""
    if looks(error) == looks(best):
        return "best"
    above = settled(error / best) - 1
    return f"{above:.1%}" if above >= 0.0005 else "< 0.1%"


def looks(error: float) -> float:
    """Return an error as the table shows it."""
    return float(f"{settled(error):.4g}")


def _planned(workload: Workload, budget: Budget, objective: str, **options: Any) -> Result:
    is_default = options["mechanism"] == DEFAULT
    with limited(whole_work=limits().whole_work if is_default else min(limits().whole_work, COMPARED_WORK)):
        made = plan(workload, budget, objective=objective, progress=False, **options)
    scale = math.sqrt(workload.query_count / _total_weight(workload))
    return made.weighted_rmse * scale, made.worst, ""


def _total_weight(workload: Workload) -> float:
    return math.fsum(group.weight * group.inner_weight for group in workload)


def _hdmm(workload: Workload, budget: Budget, objective: str) -> Result:
    """Return the result of the best of HDMM's templates; the least mean error is its only objective."""
    results, refused = [], []
    for template in TEMPLATES:
        try:
            results.append((hdmm(workload, template), template))
        except QuerySmasherError as error:
            refused.append(str(error))
    if not results:
        raise PlanError(refused[0])
    errors, template = results[in_order([errors.weighted_loss for errors, _ in results])[0]]
    scale = budget.unit.change() / budget.privacy_cost
    rmse = math.sqrt(scale * errors.weighted_loss / _total_weight(workload))
    worst = None if errors.worst is None else math.sqrt(scale * errors.worst)
    note = f"The errors are those of its {template} template."
    if budget.unit.total_is_public:
        note += " It treats the number of records as secret, and is charged 4 times its longest column."
    if budget.exact:
        note += " It does not use the exact counts."
    if objective != "mean":
        note += " It minimises the mean error only."
    return rmse, None if workload.has_targets else worst, note


_OURS = [
    Compared(m.name, m.title, m.cannot, partial(_planned, mechanism=m.name)) for m in MECHANISMS.values()
]

COMPARED = (
    _OURS[0],
    Compared(
        "uniform",
        f"{MECHANISMS[DEFAULT].title}, uniform centres",
        "It does not optimise centres.",
        partial(_planned, mechanism=DEFAULT, centering="uniform"),
    ),
    *_OURS[1:],
    Compared(
        "hdmm",
        "HDMM",
        "Shown for comparison only; it cannot produce a release. It has no certificate, and accepts only "
        "products of queries on single attributes.",
        _hdmm,
    ),
)
"""The mechanisms that `compare` supports."""


@explained("qs.compare(workload, qs.zCDP(rho=0.5))")
def compare(
    workload: Workload,
    budget: Budget,
    mechanisms: Iterable[str] | None = None,
    *,
    objective: str = "mean",
    rehearsal: Any = None,
    progress: bool | None = None,
) -> Comparison:
    """Plan a workload with every mechanism, without data, and return the comparison.

    Args:
        workload: the queries.
        budget: `PrivacyCost`, `zCDP`, `GaussianDP` or `ApproxDP`.
        mechanisms: some of "querysmasher", "uniform" (the same around uniform centres), "basis", "residual",
            "fourier", "whole", "hdmm"; by default all.
        objective: what every mechanism minimises: "mean", the weighted mean square error, whatever the
            targets; or "worst", the largest standard error, relative to its target if a query has one. The
            noise scales of the other mechanisms are optimised for it too; HDMM supports only the mean.
        rehearsal: a table of the same kind that is not private. Estimates and `explore`, whose errors depend
            on the data, are compared on this table (`Comparison.rehearsed`). Its exact counts are read.
        progress: show a progress bar; by default only on a terminal.

    >>> import querysmasher as qs
    >>> workload = qs.all_kway(qs.Schema.of(a=4, b=3), 2, "prefix")
    >>> [row.title for row in compare(workload, qs.zCDP(0.5), ["residual", "querysmasher"]).rows]
    ['QuerySmasher', 'ResidualPlanner']
    """
    check_arguments(workload, budget)
    check_objective(objective, INSUFFICIENT[0])
    if workload.has_targets and not OBJECTIVES[objective].largest:  # others have no targets
        workload = Workload(workload.schema, tuple(replace(g, target=None) for g in workload))
    known = {m.name: m for m in COMPARED}
    given = known if mechanisms is None else [mechanisms] if isinstance(mechanisms, str) else mechanisms
    chosen: list[str] = list(given) if isinstance(given, Iterable) else [given]
    for index, name in enumerate(chosen):
        if not isinstance(name, str) or name not in known or name in chosen[:index]:
            got = f"{as_given(name)}{suggestion(name, known)}"
            raise PlanError(f"mechanisms: expected some of {', '.join(known)}, each once, got {got}")
    rows = []
    with Bar("Comparing", len(chosen), progress) as bar:
        for name in chosen:
            bar.note(known[name].title)
            rows.append(_row(known[name], workload, budget, objective))
            bar.advance()
    rehearsed = None if rehearsal is None else rehearse(workload, rehearsal, budget)
    comparison = Comparison(workload, budget, tuple(rows), objective, rehearsed)
    errors = map(comparison.error, rows)  # rows that look equal in the table keep their order
    order = in_order([math.inf if error is None else looks(error) for error in errors])
    return replace(comparison, rows=tuple(rows[index] for index in order))


def _row(mechanism: Compared, workload: Workload, budget: Budget, objective: str) -> Row:
    """Run a mechanism to measure its errors and time, and again to measure its memory."""
    row = Row(mechanism.name, mechanism.title, None, None, None, None, mechanism.cannot, "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numerical warnings of libraries are not part of the table
        start = time.perf_counter()
        try:
            rmse, worst, note = mechanism.run(workload, budget, objective)
        except (QuerySmasherError, MemoryError) as error:
            return replace(row, note=refusal(error))
        seconds, megabytes = time.perf_counter() - start, None
        if seconds < MEASURED_SECONDS and not tracemalloc.is_tracing():  # for someone else
            tracemalloc.start()
            try:
                mechanism.run(workload, budget, objective)
                megabytes = tracemalloc.get_traced_memory()[1] / 1e6
            finally:
                tracemalloc.stop()
    return replace(row, rmse=rmse, worst=worst, seconds=seconds, megabytes=megabytes, note=note)
