"""An estimate: the best guess of every table that a release allows, and its answers as users read them."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError, WorkloadError, as_given, explained
from querysmasher.estimate.estimate_errors import EstimateError, EstimateErrors, errors_of
from querysmasher.estimate.evidence import AttributeSet, Evidence
from querysmasher.estimate.fitting import arranged
from querysmasher.estimate.integers import IntegerModel
from querysmasher.estimate.risk import settled
from querysmasher.estimate.sums import Sums, largest_count, of_cells, with_total
from querysmasher.estimate.table_model import LARGEST, Model
from querysmasher.formatting import count, one_line, preview
from querysmasher.html import notebook, table
from querysmasher.release.answers import LabelledAnswers
from querysmasher.release.release import Release
from querysmasher.release.tidy import Tidy, column_names, frame_of, repeated
from querysmasher.schema import Schema
from querysmasher.statistics.figures import Marginal
from querysmasher.statistics.tables import OF, LabelledTable, Percent, check_table, denominators
from querysmasher.workload.builders import as_workload, check_workload
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group, Workload

if TYPE_CHECKING:
    from querysmasher.estimate.microdata import Microdata

NOTE = "estimate: non-negative, shrunk where that is safe, not unbiased"
"""What every output says."""

MAX_ANSWERS = 500_000_000


class EstimateTidy(Tidy):
    """Makes tidy rows of estimates: what each counts, its value and the note."""

    numbers: ClassVar[tuple[str, ...]] = ("value", "note")

    meanings: ClassVar[Mapping[str, str]] = {
        "value": "Estimated number of records{counted}: non-negative, shrunk where that is safe, not "
        "unbiased, not rounded.",
        "note": "What kind of number the value is.",
    }

    def last(self, *numbers: Array) -> Iterator[Any]:
        (values,) = numbers
        yield from (pa.array(np.ascontiguousarray(values)), repeated(NOTE, len(values)))


@dataclass(frozen=True)
class EstimatedAnswer:
    """One estimate: the query in words and its value."""

    query: str
    value: float
    note: str = NOTE

    def __float__(self) -> float:
        """Return the value."""
        return self.value


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedAnswers(LabelledAnswers[EstimatedAnswer]):
    """Estimates, in the workload's order. They are biased, so they have no standard errors."""

    note: str = NOTE

    source: ClassVar[str] = "estimate"
    _title: ClassVar[str] = f"Estimates of {{}} ({NOTE})"

    def _entry(self, label: str, index: int) -> EstimatedAnswer:
        return EstimatedAnswer(label, float(self.values[index]))

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return one tidy row per query: what it counts, its value and the note.

        The columns before `value` are those of `Answers.to_frame`.
        """
        return self._frame(EstimateTidy(self.workload), backend, self.values)


class EstimatedTable(Marginal):
    """An array of estimated counts with an axis per attribute; `to_frame()` adds labels.

    What is computed from it, such as a slice or a sum, has no labels.
    """

    note: ClassVar[str] = NOTE


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedCrossTable(LabelledTable):
    """Estimates by one attribute or several; the last one forms the columns, "Total" stands for all values.

    Totals are sums of the cells shown. There are no standard errors: an estimate is biased.
    """

    note: str

    def to_frame(self, backend: Any = "pyarrow", *, wide: bool = False) -> Any:
        """Return a data frame: long, one row per cell (null = total), or wide, one row per row of the table.

        A long frame has a column with the note. A percentage of nothing is null.
        """
        names = column_names([one_line(a.name) for a in self.attributes])
        made = {name: column.to_arrow() for name, column in zip(names, self._columns, strict=True)}
        flat = np.ascontiguousarray(self.values).ravel()
        made["value"] = pa.array(flat, mask=np.isnan(flat))
        if wide:
            return self._wide(pa.table(made), "value", backend)
        made["note"] = repeated(self.note, len(flat))
        return frame_of(pa.table(made), backend)

    def __getitem__(self, key: Any) -> float:
        """Return a cell by the value of each attribute; None stands for all values."""
        return float(self.values.ravel()[self._index(key)])

    def _strings(self, part: slice) -> Iterable[str]:
        unit = "%" if self.percent else ""
        return ("·" if math.isnan(v) else f"{v:,.1f}{unit}" for v in self.values.ravel()[part].tolist())


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Tables: non-negative, consistent and, on sparse data, far closer to the truth than unbiased ones.

    An estimate is post-processing of a release: it does not read the table again and has no privacy cost. It
    is biased, so it has no standard errors. It answers queries on any attributes of the schema, measured or
    not.
    """

    release: Release
    """What was measured."""
    seed: int | None = field(default=None, kw_only=True)
    """With a seed, all counts are integers, rounded at random."""

    @property
    def workload(self) -> Workload:
        """The workload that is answered by default."""
        return self.release.asked or self.release.workload

    @cached_property
    def about(self) -> dict[str, Any]:
        """Where the figures come from and what is guaranteed, as plain data."""
        from querysmasher.release.writing import about  # noqa: PLC0415 - a view

        return about(self.release)

    @property
    def note(self) -> str:
        """What kind of numbers these are."""
        return NOTE if self.seed is None else f"{NOTE}, rounded to integers at random"

    @property
    def schema(self) -> Schema:
        """The schema."""
        return self.workload.schema

    @property
    def guarantee(self) -> str:
        """The privacy guarantee of the release, which holds for the estimate as well."""
        return self.release.guarantee

    @cached_property
    def _shrunk(self) -> Model:
        """Computes tables, however far they are from the unbiased ones."""
        evidence = Evidence.of_release(self.release)
        if evidence.noisy(()) is not None:
            return Model(evidence)
        return Model(evidence, largest_count(self.release))  # a few queries, not the total

    @cached_property
    def model(self) -> Model:
        """Computes tables."""
        with one_core():
            return settled(self._shrunk, self._sets)

    @property
    def _sets(self) -> list[AttributeSet]:
        """The attribute sets of the workload."""
        return [tuple(sorted(self.schema.positions(group.attributes))) for group in self.workload]

    def computed_by(self, model: Model) -> Self:
        """Return the estimate with a model that is already fitted to the same release."""
        self.__dict__["model"] = model
        return self

    @cached_property
    def tables(self) -> Model | IntegerModel:
        """Computes the tables of this estimate: those of the model, or integers."""
        return self.model if self.seed is None else IntegerModel(self.model, self.seed)

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return self.tables.total

    @property
    def weights(self) -> dict[int, float]:
        """How far tables are moved from the unbiased ones (0) to those of the model (1), on average.

        The keys are numbers of attributes. It is empty if the tables were not measured, or are so large that
        the tables of the model are used unchanged.
        """
        return dict(self.model.weights)

    @property
    def fallback(self) -> str:
        """Which tables fall back towards the unbiased ones, and why; empty if none does."""
        short = {order: weight for order, weight in self.weights.items() if weight < 1}
        if not short:
            return ""
        moved = ", ".join(
            f"{min(weight, 0.99):.0%} for {count(order, 'attribute')}"
            for order, weight in sorted(short.items())
        )
        return (
            "Here the model alone could have larger errors than the unbiased tables. So every estimated "
            "table lies between the unbiased table, made non-negative, and that of the model. On average, "
            f"the part of the way to the model is {moved}."
        )

    def marginal(self, *attributes: str) -> EstimatedTable:
        """Return the table on any attributes, in the order given, measured or not.

        The result is an array; its `to_frame()` adds labels.
        """
        positions = self.schema.positions(attributes)
        with one_core():
            values = arranged(self.tables.table(tuple(sorted(positions))), positions)

        def labelled() -> EstimatedAnswers:
            group = Group(attributes, tuple(Identity((size,)) for size in values.shape))
            return EstimatedAnswers(Workload(self.schema, (group,)), values.ravel())

        return EstimatedTable.of(values if self.seed is None else values.astype(np.int64), labelled)

    def table(self, *attributes: str, totals: bool = True, percent: Percent = None) -> EstimatedCrossTable:
        """Return the cross-table of one attribute or several; the last one forms the columns.

        Args:
            attributes: names of attributes, measured or not.
            totals: whether to add totals, the last entry of each axis: sums of the cells shown.
            percent: None for counts; "row", "column" or "total" for percentages of those.
        """
        check_table(self.schema, attributes, totals, percent)
        values = np.asarray(self.marginal(*attributes), dtype=float)
        for axis in range(values.ndim):
            values = np.concatenate([values, values.sum(axis=axis, keepdims=True)], axis=axis)
        last = (-1,) * values.ndim
        if math.isclose(values[last], self.total, rel_tol=1e-9):  # but for rounding errors
            values[last] = self.total
        if percent is not None:
            below = denominators(values, percent)
            values = np.divide(100 * values, below, out=np.full(values.shape, np.nan), where=below > 0)
        if not totals:
            values = values[(slice(-1),) * values.ndim]
        shown = tuple(self.schema[name] for name in attributes)
        what = f"Percent {OF[percent]}" if percent else "Count"
        title = f"{what} by {', '.join(map(one_line, attributes))} ({self.note})"
        return EstimatedCrossTable(shown, values, percent, title, self.note)

    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> EstimatedAnswers:
        """Answer a workload (by default the one of the release), a predicate or several.

        Counts of single cells come from the estimated tables. Prefixes, ranges and other sums come from the
        unbiased answers, if these were measured, and are shrunk towards the estimate.
        """
        wanted = self._checked(workload)
        if wanted.query_count > MAX_ANSWERS:
            msg = f"workload: {wanted.query_count:,} answers do not fit in memory; use write(workload, path)"
            raise TooLargeError(msg)
        values = np.empty(wanted.query_count)
        start = 0
        for answers in self.answers(wanted):
            values[start : start + answers.size] = answers.ravel()
            start += answers.size
        return EstimatedAnswers(wanted, values)

    def answers(self, workload: Workload) -> Iterator[Array]:
        """Iterate over the answers to each group, with an axis per family."""
        groups = list(workload)
        positions = [self.schema.positions(group.attributes) for group in groups]
        sums = [self.sums.answers(g) if self.seed is None and not g.is_marginal else None for g in groups]
        rest = [tuple(sorted(p)) for p, known in zip(positions, sums, strict=True) if known is None]
        public_total = self.release.public_total
        with one_core():
            tables = self.tables.tables(rest) if rest else iter(())
            for group, order, known in zip(groups, positions, sums, strict=True):
                values = of_cells(group, order, next(tables)) if known is None else known
                if public_total is not None and not group.is_marginal:
                    values = with_total(group, values, float(public_total))
                yield values

    @cached_property
    def sums(self) -> Sums:
        """Computes answers to sums of cells."""
        return Sums(self.release, self._shrunk)

    def to_frame(
        self, workload: Workload | str | Sequence[str] | None = None, backend: Any = "pyarrow"
    ) -> Any:
        """Return the answers to a workload as tidy rows: what each counts, its value and the note."""
        return self.answer(workload).to_frame(backend)

    def write(self, workload: Workload, path: str | os.PathLike[str], progress: bool | None = None) -> None:
        """Write the answers to a file, one attribute set at a time.

        The ending of the name states the format, such as .parquet, .csv or .xlsx (with the extra `excel`).
        The columns are those of `to_frame`. A `datapackage.json` beside the file describes it.
        """
        from querysmasher.estimate.estimate_files import write_estimates  # noqa: PLC0415 - a view

        write_estimates(self, self._checked(workload), path, progress)

    def error(self, *attributes: str) -> EstimateError:
        """Return the error of an estimated table, in records; without attributes, the mean over the workload.

        The error has an interval if a part of the budget measured it for this table. Otherwise it is
        model-based, and says so. See `estimate.errors`.
        """
        return self.errors([attributes] if attributes else None).mean

    def errors(self, tables: Sequence[Sequence[str]] | None = None) -> EstimateErrors:
        """Return the error of each table, by default of those in the workload that are not too large."""
        if self.seed is not None:
            msg = (
                "errors: the errors are those of the estimate before rounding; use errors() of that estimate"
            )
            raise OutsideMeasuredSpaceError(msg)
        if tables is None:
            every = [group.attributes for group in self.workload if group.attributes]
            tables = [names for names in every if math.prod(self.schema.shape(names)) <= LARGEST]
        sets = [tuple(sorted(self.schema.positions(names))) for names in tables]
        with one_core():
            return errors_of(self.release, self.model, self._sets, list(dict.fromkeys(sets)) or [()])

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write a page of tables, one HTML file, and return its path.

        A switch also shows the unbiased values of measured tables.
        """
        from querysmasher.estimate.estimate_files import write_estimate_report  # noqa: PLC0415 - a view

        return write_estimate_report(self, path, title)

    @explained("estimate.integers()")
    def integers(self, *, seed: int | None = None) -> Estimate:
        """Return the estimate in non-negative integers that add up.

        Tables on one attribute sum to the total, and tables on two attributes to those on one. Larger tables
        sum to the total, and to the table on their first two attributes in the schema's order. The
        expectation of every integer is the estimate: rounding adds noise of less than one count per cell, and
        no information. `seed` makes the result reproducible.
        """
        return replace(self, seed=drawn_seed(seed)).computed_by(self.model)

    @explained("estimate.microdata(1000)")
    def microdata(self, n: int | None = None, *, seed: int | None = None, weights: bool = False) -> Microdata:
        """Return `n` synthetic records (by default the estimated total) that follow the estimate.

        Their tables follow those that were measured or are in the workload, and those on one and two
        attributes; all other tables follow from the dependences in these. The records do not describe real
        people. They have the guarantee of the release, and contain no more information than the estimate. Do
        not compute standard errors from them. `seed` makes them reproducible. Records of an estimate in
        integers follow these integers. With `weights`, they have another column, `weight`, of which the sum
        is the estimated total, and sums of weights are closer to the estimated tables than numbers of
        records.
        """
        from querysmasher.estimate.microdata import MOST, WEIGHT, Microdata  # noqa: PLC0415 - a view

        records = round(self.total) if n is None else n
        if isinstance(records, bool) or not isinstance(records, int) or not 0 <= records <= MOST:
            msg = f"n: expected a number of records from 0 to {MOST:,}, or None, got {as_given(n)}"
            raise WorkloadError(msg)
        taken = [name for name in self.schema.names if name.strip().lower() == WEIGHT]
        if weights and taken:
            msg = (
                f"weights: expected no attribute called {WEIGHT!r}, the name of the column of weights, got "
                f"{taken[0]!r}; draw records without weights, or call the attribute otherwise when planning"
            )
            raise WorkloadError(msg)
        return Microdata(self, records, drawn_seed(seed), weights)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimate to a file, from which `Estimate.load` returns the same answers."""
        from querysmasher.estimate.estimate_files import save_estimate  # noqa: PLC0415 - a view

        save_estimate(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Estimate:
        """Read an estimate from a file; refuse a damaged, foreign or incomplete one."""
        from querysmasher.estimate.estimate_files import estimate_from_data  # noqa: PLC0415 - a view
        from querysmasher.files import read_value  # noqa: PLC0415 - a view

        return read_value(path, "estimate", estimate_from_data)

    def _checked(self, workload: Workload | str | Sequence[str] | None) -> Workload:
        wanted = self.workload if workload is None else as_workload(self.schema, workload, self.workload)
        check_workload(wanted, self.schema, "estimate")
        return wanted

    def __repr__(self) -> str:
        """Show what the estimate is and the guarantee."""
        return (
            f"Estimate of {self.workload.size_in_words}\n"
            f"  attributes  {preview(self.schema.names, 12)}\n"
            f"  note        {self.note}\n"
            f"  guarantee   {self.guarantee}"
        )

    def _repr_html_(self) -> str:
        """Show the estimate in a notebook."""
        rows = [
            ("note", self.note),
            ("records", f"about {self.total:,.0f}"),
            ("attributes", preview(self.schema.names, 12)),
            *([("tables", self.fallback)] if self.fallback else []),
            ("guarantee", self.guarantee),
        ]
        return notebook("Estimate", table(["", ""], rows))


def drawn_seed(seed: int | None) -> int:
    """Return the seed, or one drawn at random if there is none."""
    if seed is None:
        return secrets.randbits(62)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**62:
        msg = f"seed: expected an integer from 0 to 2^62 - 1, or None, got {as_given(seed)}"
        raise WorkloadError(msg)
    return seed
