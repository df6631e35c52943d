"""Every mechanism on one workload: its error, its cost in time and memory, and its limitations."""

from __future__ import annotations

import math
import os
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from querysmasher.comparison.chart import comparison_chart, write_chart
from querysmasher.comparison.hdmm import TEMPLATES, hdmm
from querysmasher.comparison.rehearsal import Rehearsal, rehearse
from querysmasher.errors import PlanError, QuerySmasherError
from querysmasher.formatting import columns
from querysmasher.html import notebook, table
from querysmasher.planning.asking import check_asked
from querysmasher.planning.mechanisms import DEFAULT, MECHANISMS
from querysmasher.planning.planner import plan
from querysmasher.privacy.budget import Budget
from querysmasher.progress import Bar
from querysmasher.report.guarantees import promise
from querysmasher.workload.workload import Workload

MEASURED_SECONDS = 30
"""Maximum planning time for which a mechanism is run again to measure its memory."""

Result = tuple[float, float | None, str]
"""The weighted RMSE, the largest standard error if known, and a note."""

HEAD = ("mechanism", "RMSE", "above best", "worst query's std", "seconds", "MB", "limitations")


@dataclass(frozen=True)
class Compared:
    """A mechanism to compare: its name in the API, its published name, and its limitations in sentences."""

    name: str
    title: str
    cannot: str
    run: Callable[[Workload, Budget], Result]


@dataclass(frozen=True)
class Row:
    """The result of one mechanism; None for what it does not support or was not measured."""

    mechanism: str
    title: str
    rmse: float | None
    """The root of (sum of weight × variance / number of queries)."""
    worst: float | None
    """The largest standard error of a query."""
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
    rehearsed: Rehearsal | None = None
    """The errors of estimates on this kind of data, if a rehearsal table was given."""

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data, one entry per mechanism."""
        return [asdict(row) for row in self.rows]

    def chart(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Return a bar chart of the errors above the best (altair), or write it to a file.

        The name ends in .html, .svg, .png, .pdf or .json.
        """
        bars = [(row.title, row.rmse) for row in self.rows if row.rmse is not None]
        title = f"{self.workload.query_count:,} queries"
        if path is not None:
            write_chart(bars, title, path)
        return comparison_chart(bars, title)

    def __repr__(self) -> str:
        """Show the table."""
        lines = [HEAD, *(self.cells(row) for row in self.rows)]
        shown = [f"{self.workload}; {promise(self.budget)}", *columns(line[:-1] for line in lines)]
        shown += [f"{line[0]}: {line[-1]}" for line in lines[1:] if line[-1]]
        shown += [] if self.rehearsed is None else ["", repr(self.rehearsed)]
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        listed = table(HEAD, map(self.cells, self.rows), numbers=range(1, len(HEAD) - 1))
        return notebook(f"{self.workload}; {promise(self.budget)}", listed)

    def cells(self, row: Row) -> tuple[str, ...]:
        """Return a row as strings, under `HEAD`."""
        best = min((r.rmse for r in self.rows if r.rmse is not None), default=math.nan)

        def number(value: float | None, form: str) -> str:
            return "-" if value is None else format(value, form)

        return (
            row.title,
            number(row.rmse, ",.4g"),
            "-" if row.rmse is None else f"{row.rmse / best - 1:.1%}",
            number(row.worst, ",.4g"),
            number(row.seconds, ".2f"),
            number(row.megabytes, ".0f"),
            " ".join(filter(None, (row.cannot, row.note))),
        )


def _planned(mechanism: str, centering: str | None = None) -> Callable[[Workload, Budget], Result]:
    def run(workload: Workload, budget: Budget) -> Result:
        made = plan(workload, budget, mechanism=mechanism, centering=centering, progress=False)
        return made.weighted_rmse, made.worst_std, ""

    return run


def _hdmm(workload: Workload, budget: Budget) -> Result:
    """Return the result of the best of HDMM's templates."""
    found, refused = [], []
    for template in TEMPLATES:
        try:
            found.append((hdmm(workload, template), template))
        except QuerySmasherError as error:
            refused.append(str(error))
    if not found:
        raise PlanError(refused[0])
    errors, template = min(found, key=lambda pair: pair[0].weighted_loss)
    scale = budget.unit.squared_change() / budget.privacy_cost
    rmse = math.sqrt(scale * errors.weighted_loss / workload.query_count)
    worst = None if errors.worst is None else math.sqrt(scale * errors.worst)
    secret = " It treats the number of records as secret." if budget.unit.total_is_public else ""
    return rmse, worst, f"These are the errors of its {template} template.{secret}"


def _compared() -> tuple[Compared, ...]:
    """Return the mechanisms to compare: ours also with uniform centres, and HDMM for its errors only."""
    known = [Compared(m.name, m.title, m.cannot, _planned(m.name)) for m in MECHANISMS.values()]
    uniform = Compared(
        "uniform",
        f"{MECHANISMS[DEFAULT].title}, uniform centres",
        "It does not optimise centres.",
        _planned(DEFAULT, "uniform"),
    )
    peer = Compared(
        "hdmm",
        "HDMM",
        "It computes errors here and cannot measure. It has no certificate and accepts only products.",
        _hdmm,
    )
    return (known[0], uniform, *known[1:], peer)


COMPARED = _compared()
"""The mechanisms that `compare` supports."""


def compare(
    workload: Workload,
    budget: Budget,
    mechanisms: Iterable[str] | None = None,
    *,
    rehearsal: Any = None,
    progress: bool | None = None,
) -> Comparison:
    """Plan a workload with every mechanism, without data, and return the comparison.

    Args:
        workload: the queries.
        budget: `PrivacyCost`, `zCDP`, `GaussianDP` or `ApproxDP`.
        mechanisms: some of "querysmasher", "uniform" (the same around uniform centres), "basis", "residual",
            "fourier", "hdmm"; by default all.
        rehearsal: a table of the same kind that is not private. Estimates and `explore`, whose errors depend
            on the data, are compared on it as well (`Comparison.rehearsed`). It is read exactly.
        progress: show a progress bar; by default only on a terminal.

    >>> import querysmasher as qs
    >>> workload = qs.all_kway(qs.Schema.of(a=4, b=3), 2, "prefix")
    >>> [row.title for row in compare(workload, qs.zCDP(0.5), ["residual", "querysmasher"]).rows]
    ['QuerySmasher', 'ResidualPlanner']
    """
    check_asked(workload, budget)
    if workload.has_targets:  # errors without them are compared: others have no targets
        workload = Workload(workload.schema, tuple(replace(g, target=None) for g in workload))
    known = {m.name: m for m in COMPARED}
    given = known if mechanisms is None else [mechanisms] if isinstance(mechanisms, str) else mechanisms
    asked: list[str] = list(given) if isinstance(given, Iterable) else [given]
    for place, name in enumerate(asked):
        if not isinstance(name, str) or name not in known or name in asked[:place]:
            msg = f"mechanisms: expected some of {', '.join(known)}, each once, got {name!r}"
            raise PlanError(msg)
    rows = []
    with Bar("Comparing", len(asked), progress) as bar:
        for name in asked:
            bar.note(known[name].title)
            rows.append(_row(known[name], workload, budget))
            bar.advance()
    rows.sort(key=lambda row: math.inf if row.rmse is None else float(f"{row.rmse:.4g}"))  # as shown
    rehearsed = None if rehearsal is None else rehearse(workload, rehearsal, budget)
    return Comparison(workload, budget, tuple(rows), rehearsed)


def _row(mechanism: Compared, workload: Workload, budget: Budget) -> Row:
    """Run a mechanism to measure its errors and time, and again to measure its memory."""
    head = (mechanism.name, mechanism.title)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numerical warnings of libraries are not part of the table
        start = time.perf_counter()
        try:
            rmse, worst, note = mechanism.run(workload, budget)
        except (QuerySmasherError, MemoryError) as error:
            why = "not enough memory" if isinstance(error, MemoryError) else error
            return Row(
                *head, None, None, None, None, mechanism.cannot, f"It does not support this workload: {why}."
            )
        seconds = time.perf_counter() - start
        megabytes = _megabytes(mechanism, workload, budget) if seconds < MEASURED_SECONDS else None
    return Row(*head, rmse, worst, seconds, megabytes, mechanism.cannot, note)


def _megabytes(mechanism: Compared, workload: Workload, budget: Budget) -> float | None:
    if tracemalloc.is_tracing():  # someone else is tracing memory
        return None
    tracemalloc.start()
    try:
        mechanism.run(workload, budget)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
