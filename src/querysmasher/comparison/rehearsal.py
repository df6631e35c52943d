"""A rehearsal on a table that is not private: which way of measuring is best on this kind of data.

The errors of unbiased answers are known without data. Those of estimates are not: they depend on the data. So
nothing is claimed about them without a table. A public table of the same kind, last decade's or a made-up one
will do: it is measured in every way, several times, with seeded noise, and the answers are compared with the
true ones. The table is read exactly, and the result describes it: do not pass one that is private.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import in_order
from querysmasher.data.sources import open_table
from querysmasher.errors import QuerySmasherError
from querysmasher.exploring.explore import explore
from querysmasher.formatting import columns
from querysmasher.measuring import measure
from querysmasher.planning.planner import plan
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.workload.builders import linear
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Workload

SEEDS = 3
"""Number of simulations of each way."""

WAYS = {
    "unbiased": "unbiased answers of the best plan",
    "post-processed": "estimates from the same release",
    "estimate": "estimates, purpose='estimate'",
    "explore": "estimates, explore",
}
"""The ways of measuring, by name."""

NOTE = "The rehearsal table is read exactly: this comparison is not private. Errors on other tables differ."


@dataclass(frozen=True)
class Rehearsed:
    """The errors of one way of measuring on the rehearsal table; None if it does not support the workload."""

    name: str
    title: str
    share: float | None
    """The mean over groups of the sum of absolute errors, divided by the number of records."""
    rmse: float | None
    """The root of the mean squared error of an answer."""
    note: str = ""


@dataclass(frozen=True, repr=False)
class Rehearsal:
    """All ways of measuring on the rehearsal table, the most accurate first."""

    rows: tuple[Rehearsed, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data, one entry per way."""
        return [asdict(row) for row in self.rows]

    @property
    def winner(self) -> str:
        """The name of the way with the least absolute errors."""
        return self.rows[0].name

    def __repr__(self) -> str:
        """Show the table."""
        lines = [("on the rehearsal table", "absolute error per record", "RMSE")]
        for row in self.rows:
            known = row.share is not None and row.rmse is not None
            lines.append(
                (row.title, f"{row.share:.4g}" if known else "-", f"{row.rmse:,.4g}" if known else "-")
            )
        return "\n".join([*columns(lines), NOTE])


def rehearse(workload: Workload, table: Any, budget: Budget, seeds: int = SEEDS) -> Rehearsal:
    """Measure a table that is not private in every way, with seeds, and compare with the true answers."""
    schema = workload.schema
    used = next((g.attributes[0] for g in workload if g.attributes), schema.names[0])  # which is read anyway
    total = linear(schema, (used,), np.ones((1, schema[used].size)))
    answers = true_answers(workload + total, table).astype(float)
    exact, records = answers[:-1], max(float(answers[-1]), 1.0)
    ends = np.cumsum([group.rows for group in workload])[:-1]
    rows = []
    for name, title in WAYS.items():
        purpose = "estimate" if name == "estimate" else "answers"
        made = []
        try:
            planned = None if name == "explore" else plan(workload, budget, purpose=purpose, progress=False)
            for seed in range(seeds):
                if planned is None:
                    release = explore(workload, table, budget, seed=seed)
                else:
                    release = measure(planned, table, seed=seed)
                source = release if name == "unbiased" else release.estimate()
                made.append(source.answer(workload).values)
        except QuerySmasherError as error:
            rows.append(Rehearsed(name, title, None, None, refusal(error)))
            continue
        errors = np.stack(made) - exact
        each = [float(np.abs(part).sum()) / seeds / records for part in np.split(errors, ends, axis=1)]
        mean = math.fsum(each) / len(each)
        rows.append(Rehearsed(name, title, mean, float(np.sqrt((errors**2).mean()))))
    order = in_order([math.inf if row.share is None else row.share for row in rows])
    return Rehearsal(tuple(rows[index] for index in order))


def refusal(error: QuerySmasherError | MemoryError) -> str:
    """Say in a sentence why a way of measuring does not support a workload."""
    why = "not enough memory" if isinstance(error, MemoryError) else str(error).removeprefix("workload: ")
    return f"It does not support this workload: {why}."


@scrubbed
def true_answers(workload: Workload, data: Any) -> NDArray[Any]:
    """Return the exact answers, without noise: only for public or fictitious tables.

    Answers of queries that count, or that have integer coefficients, are integers. They are NOT private.

    >>> import pyarrow
    >>> import querysmasher as qs
    >>> workload = qs.queries(qs.Schema.of(age=3), age="prefix")
    >>> true_answers(workload, pyarrow.table({"age": [0, 2, 2]}))
    array([1, 1, 3])
    """
    names = {name for group in workload for name in group.attributes}
    counter = open_table(workload.schema, data, [n for n in workload.schema.names if n in names])
    tables = counter.marginals([group.attributes for group in workload])
    answers = []
    for group, table in zip(workload, tables, strict=True):
        left: NDArray[Any] = table
        for family in group.families:
            # The family's axes come first; its answers' axis goes last, so that the next one's come first.
            left = np.moveaxis(_exact(family, left), 0, -1)
        answers.append(left.ravel())
    return np.concatenate(answers)


def _exact(family: Family, table: NDArray[Any]) -> NDArray[Any]:
    """Return the answers to a family's queries: integers if the table and the coefficients are."""
    answers = family.answers(table)
    if answers.dtype.kind == "i" or table.dtype.kind != "i":
        return answers
    rows = family.matrix()
    if not np.array_equal(rows, np.rint(rows)):
        return answers
    return (rows.astype(np.int64) @ table.reshape(family.cells, -1)).reshape(answers.shape)
