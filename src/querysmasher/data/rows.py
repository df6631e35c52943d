"""Encodes batches of rows from any source, and counts tables that this process reads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.data.counting import Adder, Codes, Limits, Tally, batches, check_cells
from querysmasher.data.encoding import Code, Encoder
from querysmasher.data.foreign import quietly
from querysmasher.data.people import bounded, check_kind, joined, names_of
from querysmasher.errors import DataError, Remedy, not_one_of
from querysmasher.privacy.accounting import BINS
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.counts import AttributeSet, Counts, Sums
from querysmasher.schema import Schema

Look = Callable[["RowEncoder", Iterable[Any]], bytes]
"""A function that looks through batches of rows and returns its findings."""

Different = Callable[["RowEncoder", Any], Any]
"""A function that returns the different strings of a batch of rows, as an Arrow array without nulls."""

UNKNOWN = ("refuse", "drop")
STRANGERS = (
    "a value outside the schema's domain",
    "a missing value",
    "a value of another kind than the schema's",
)
"""Values outside the domain, by the offset of their code from `Encoder.unknown`."""
MENDING = Remedy(
    "correct the data or the schema (an attribute's `missing` is the value that missing ones count as, and "
    "`other` that of unlisted ones), or drop such records with unknown='drop' (not if neighbours replace a "
    "record); `qs.check` shows the custodian which they are",
    "correct the data or the schema ([[schema]] missing is the value that missing ones count as, and other "
    'that of unlisted ones), or drop such records with [measure] unknown = "drop" (not if neighbours replace '
    "a record); `querysmasher check` shows the custodian which they are",
)
NAMELESS = Remedy(
    "correct the data, or drop such records with unknown='drop'",
    'correct the data, or drop such records with [measure] unknown = "drop"',
)


@dataclass(frozen=True, repr=False)
class Batch:
    """Rows of a table whose columns are not all Arrow arrays: the interface of a batch for `RowEncoder`."""

    columns: Mapping[str, Any]
    num_rows: int

    def column(self, name: str) -> Any:
        """Return the column of that name, in a form that `Encoder.encode` accepts."""
        return self.columns[name]


def no_records(schema: Any) -> Any:
    """Return an empty Arrow batch to start a table with, so that types are checked without records too."""
    return pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema)


@dataclass(frozen=True, repr=False)
class RowEncoder:
    """Encodes rows as codes of some attributes, from the schema alone.

    Attributes:
        schema: the domain.
        names: the attributes to read.
        unknown: how to treat a record with a missing value, or one outside the domain, in any of these
            attributes, or with an impossible combination of their values: "refuse" raises an error, "drop"
            omits the whole record from every count.
        bound: how many records of each person are counted, if persons are distinguished.
        limits: how much is held in memory at a time.
    """

    schema: Schema
    names: tuple[str, ...]
    unknown: str = "refuse"
    bound: Bound | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Check the names and the option."""
        if self.unknown not in UNKNOWN:
            raise DataError(f"unknown: {not_one_of(UNKNOWN, self.unknown)}")
        self.schema.positions(self.names)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read: those of the attributes, and that of the persons."""
        names, person = tuple(self.encoders), self.person
        return names if person is None or person in names else (*names, person)

    @property
    def person(self) -> str | None:
        """The column that says to whom a record belongs, if persons are distinguished."""
        return None if self.bound is None else self.bound.column

    @property
    def nothing_left_out(self) -> Counts:
        """What `Counter.left_out` returns if every record is counted."""
        return np.zeros(1 if self.bound is None else BINS, np.int64)

    def reads_strings(self, name: str) -> bool:
        """Return whether numbers of a column may come as strings."""
        return name == self.person or (name in self.encoders and self.encoders[name].reads_strings)

    @cached_property
    def encoders(self) -> dict[str, Encoder]:
        """The encoder of each column of the attributes that are read."""
        columns = (column for name in self.names for column in self.schema[name].columns)
        return {column.name: Encoder(column) for column in columns}

    @cached_property
    def _zeros(self) -> list[tuple[str, list[tuple[list[str], NDArray[np.bool_]]]]]:
        """The predicates that no record satisfies, each with masks on columns whose conjunction it is."""
        columns = self.schema.columns
        return [
            (predicate, [([columns[a].name for a in on], mask) for on, mask in masks])
            for predicate, masks in self.schema.zeros_of(self.names)
        ]

    def encode(self, batch: Any, kinds: list[str]) -> Codes:
        """Return the codes of a batch, Arrow's or a `Batch`; `kinds` collects the kinds of persons' names."""
        columns = {
            name: quietly(f"reading attribute {name!r}", encoder.encode, batch.column(name))
            for name, encoder in self.encoders.items()
        }
        names = None if self.person is None else self._names(batch.column(self.person), self.person, kinds)
        unknown = np.zeros(batch.num_rows, dtype=bool)
        for name, encoder in self.encoders.items():
            largest = columns[name].max(initial=0)
            if largest < encoder.unknown:
                continue
            if self.unknown == "refuse":
                stranger = STRANGERS[largest - encoder.unknown]
                raise DataError(f"attribute {name!r}: the data has {stranger}", MENDING)
            unknown |= columns[name] >= encoder.unknown
        for predicate, is_one in self.impossible(columns, unknown):
            if self.unknown == "refuse" and is_one.any():
                msg = f"data: a record has values that the schema states to be impossible: {predicate}"
                raise DataError(msg, MENDING)
            unknown |= is_one
        columns = self._combined(columns, unknown)
        if names is not None:  # how many unknown records each person has is counted later
            named = np.asarray(names.is_valid())
            return Codes(columns, batch.num_rows, names, unknown).where(named)
        dropped = np.array([unknown.sum()], np.int64)
        return replace(Codes(columns, batch.num_rows).where(~unknown), out=dropped)

    def impossible(
        self, columns: Mapping[str, Code], unknown: NDArray[np.bool_]
    ) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Iterate over the predicates that no record satisfies, and which records of known values do."""
        for predicate, masks in self._zeros:
            satisfied = ~unknown
            for on, mask in masks:
                codes = (np.minimum(columns[name], n - 1) for name, n in zip(on, mask.shape, strict=True))
                satisfied &= mask[tuple(codes)]
            yield predicate, satisfied

    def _combined(self, columns: Mapping[str, Code], unknown: NDArray[np.bool_]) -> dict[str, Code]:
        """Return the codes of the attributes from those of their columns; mark further unknown records."""
        codes = {}
        for name in self.names:
            attribute = self.schema[name]
            codes[name] = attribute.combined([columns[column.name] for column in attribute.columns])
            outside = (codes[name] >= attribute.size) & ~unknown
            if self.unknown == "refuse" and outside.any():
                raise DataError(f"attribute {name!r}: the data has {STRANGERS[0]}", MENDING)
            unknown |= outside
        return codes

    def _names(self, column: Any, title: str, kinds: list[str]) -> Any:
        """Return the names of the persons, or null for a record that belongs to nobody."""
        drop = self.unknown == "drop"
        names = quietly("reading the persons", names_of, column, title, drop)
        is_stated = drop and getattr(column, "type", None) != pa.null()  # otherwise one record would decide
        check_kind(kinds, names, title, is_stated)
        if names.null_count and not drop:
            msg = f"person: a record has no value in {title!r}, so its person is unknown"
            raise DataError(msg, NAMELESS)
        return names

    def chunks(self, batches: Iterable[Any], rows: int) -> Iterator[Codes]:
        """Encode batches, and join the codes into chunks of at least `rows` rows."""
        held: list[Codes] = []
        count = 0
        kinds: list[str] = []
        for batch in batches:
            held.append(self.encode(batch, kinds))
            count += held[-1].rows
            if count >= rows:
                yield joined(held)
                held, count = [], 0
        if held:
            yield joined(held)


class TableCounter:
    """What all engines have in common: exact counts of the records that `rows` encodes."""

    def __init__(self, rows: RowEncoder) -> None:
        """Count nothing yet."""
        self.rows = rows
        self._records: int | None = None
        self._out = rows.nothing_left_out

    def __repr__(self) -> str:
        """Name the attributes without showing records."""
        return f"{type(self).__name__}({', '.join(self.rows.names)})"

    def marginals(self, sets: Sequence[AttributeSet]) -> Iterator[Counts]:
        """Yield the exact counts of each attribute set, in order; reading starts with the first."""
        checked = [(names,) if isinstance(names, str) else tuple(names) for names in sets]
        cells = check_cells(self.rows.schema, checked)
        for name in {name for names in checked for name in names} - set(self.rows.names):
            msg = f"sets: {name!r} is not among the attributes the table was opened for: {self.rows.names!r}"
            raise DataError(msg)
        parts = batches(checked, cells, self.rows.limits.batch_cells)
        return (table for part in parts for table in self._tables(partial(Tally, self.rows.schema, part)))

    def sums(self, asked: Sequence[Sums]) -> Iterator[Counts]:
        """Yield exact sums over the records in each cell, in order; reading starts with the first."""
        check_cells(self.rows.schema, [sums.by for sums in asked])
        return self._tables(partial(Adder, self.rows.schema, asked))

    def records(self) -> int:
        """Return the exact number of records that are counted."""
        if self._records is None:
            self._records, self._out = self._scanned()
        return self._records

    def left_out(self) -> Counts:
        """Return exactly how many were left out, as `Counter.left_out` defines it."""
        self.records()
        return self._out

    def _scanned(self) -> tuple[int, Counts]:
        """Return the number of records, and how many were left out."""
        raise NotImplementedError

    def _tables(self, tally: Callable[[], Tally | Adder]) -> Iterator[Counts]:
        """Count or add up in one pass, into new tallies of this kind."""
        raise NotImplementedError


class ScanCounter(TableCounter):
    """Counts batches of rows, reading them once if their codes fit in memory."""

    def __init__(self, rows: RowEncoder, read: Callable[[], Generator[Any]]) -> None:
        """Count what `read` yields: Arrow record batches, the same rows at each call."""
        super().__init__(rows)
        self._read = read
        self._kept: list[Codes] | None = None

    def inspect(self, look: Look) -> list[bytes]:
        """Return what `look` finds in each part of the table: for `check`, which shows records."""
        with closing(self._read()) as rows:
            return [look(self.rows, rows)]

    def different(self, of: Different) -> Iterator[Any]:
        """Yield arrays of what `of` finds in batches of rows, as private as records: for `values`."""
        with closing(self._read()) as read:
            for batch in read:
                yield of(self.rows, batch)

    def _scanned(self) -> tuple[int, Counts]:
        rows, out = 0, self.rows.nothing_left_out
        for codes in self._chunks():
            rows += codes.rows
            out = out if codes.out is None else out + codes.out
        return rows, out

    def _tables(self, tally: Callable[[], Tally | Adder]) -> Iterator[Counts]:
        into = tally()
        with closing(self._chunks()) as chunks:
            for codes in chunks:
                into.add(codes)
        yield from into.tables()

    def _encoded(self) -> Generator[Codes]:
        """Iterate over all records."""
        with closing(self._read()) as read:  # otherwise a refused scan would keep its source open
            yield from self.rows.chunks(read, self.rows.limits.chunk_rows)

    def _chunks(self) -> Generator[Codes]:
        """Iterate over the records that are counted, and keep their codes if they fit in memory.

        These are all records, or at most some of each person. A failed scan keeps nothing.
        """
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Codes] = []
        size, bound = 0, self.rows.bound
        counted = self._encoded() if bound is None else bounded(bound, self._encoded, self.rows.limits)
        with closing(counted) as read:
            for codes in read:
                size += codes.size
                if size <= self.rows.limits.keep_bytes:
                    kept.append(codes)
                else:
                    kept.clear()
                yield codes
        if size <= self.rows.limits.keep_bytes:
            self._kept = kept
