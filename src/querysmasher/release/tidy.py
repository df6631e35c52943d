"""Answers as tidy rows: one column per attribute with its value, then the answer and how reliable it is.

A row says what it counts in the columns `table` (the attributes), `kind` (the families of queries) and
those of each attribute (columns.py): its value, null where all values count. `query` states the same as a
predicate that `where` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.formatting import one_line
from querysmasher.release.columns import WORD, AttributeColumns, nulls
from querysmasher.release.frame import NUMBERS, column_names
from querysmasher.statistics.reliability import Rules, coefficients, pointwise
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

ABOUT = ("table", "kind", "query")
"""Columns that say what a row counts, before those of the attributes."""

BATCH = 2_000_000
"""Number of rows converted at a time."""


WORDS = ("flag", "note")
"""The last columns that hold words."""


class Tidy:
    """Makes tidy rows of the answers to a workload, one group at a time."""

    numbers: ClassVar[tuple[str, ...]] = NUMBERS
    """The last columns."""

    meanings: ClassVar[Mapping[str, str]] = {}
    """What the last columns mean, where it differs from the answers of a release."""

    def __init__(
        self,
        workload: Workload,
        level: float = 0.95,
        rules: Rules | None = None,
        *,
        queries: bool = True,
        exact: bool = True,
        safe: Callable[[str], str] = str,
    ) -> None:
        """Take the queries, the level of intervals and the rules of reliability.

        Without `queries`, the column `query` is null where the other columns state the query. Unless
        `exact`, the ends of intervals are rounded outwards and coefficients of variation to three digits, so
        that they compress well. `safe` is applied to every string.
        """
        self.workload = workload
        self.reach = pointwise(level)
        self.rules = rules or Rules()
        self.queries = queries
        self.exact = exact
        self.safe = safe
        self.columns = _columns(workload, safe, (*ABOUT, *self.numbers))
        self.schema = pa.schema(
            [
                *((name, WORD) for name in ABOUT[:-1]),
                (ABOUT[-1], pa.string()),
                *(field for own in self.columns for field in own.fields()),
                *((name, WORD if name in WORDS else pa.float64()) for name in self.numbers),
            ]
        )

    def tables(self, group: Group, values: Array, std: Array) -> Iterator[Any]:
        """Iterate over Arrow tables of the answers to a group."""
        flat_values, flat_std = values.ravel(), std.ravel()
        return self.rows(group, lambda own: self._numbers(flat_values[own], flat_std[own]))

    def rows(self, group: Group, numbers: Callable[[slice], Iterable[Any]]) -> Iterator[Any]:
        """Iterate over Arrow tables of what a group asks; `numbers` returns the last columns of some rows."""
        words = [
            self._texts(family.predicates([self.workload.schema[n] for n in names]))
            for names, family in group.parts()
        ]
        for start in range(0, group.rows, BATCH):
            rows = np.arange(start, min(group.rows, start + BATCH))
            places = np.unravel_index(rows, group.shape) if group.shape else ()
            own = slice(start, start + len(rows))
            yield pa.table(
                [
                    *self._about(group, places, words, len(rows)),
                    *numbers(own),
                ],
                schema=self.schema,
            )

    def _about(
        self, group: Group, places: Sequence[NDArray[np.intp]], words: Sequence[Any], size: int
    ) -> Iterator[Any]:
        table = " × ".join(group.attributes) or "total"
        yield self._same(table, size)
        yield self._same(group.kind, size)
        asked = {
            name: (family, place)
            for (names, family), place in zip(group.parts(), places, strict=True)
            for name in names
        }
        stated = all(_is_stated(family) for _, family in group.parts())
        yield self._query(words, places, size) if self.queries or not stated else nulls(size, pa.string())
        for own in self.columns:
            family, place = asked.get(own.attribute.name, (None, None))
            yield from own.arrays(family, place, size)

    def _query(self, words: Sequence[Any], places: Sequence[NDArray[np.intp]], size: int) -> Any:
        """Return the predicates: those of all families, joined."""
        said = [w.take(pa.array(p)) for w, p in zip(words, places, strict=True) if set(w.to_pylist()) != {""}]
        if not said:
            return self._texts(["total"]).take(pa.array(np.zeros(size, dtype=np.int32)))
        return said[0] if len(said) == 1 else pc.binary_join_element_wise(*said, " and ")

    def _numbers(self, values: Array, std: Array) -> Iterator[Any]:
        cv = coefficients(values, std)
        hidden = self.rules.hidden(cv)
        low, high = values - self.reach * std, values + self.reach * std
        if not self.exact:
            low, high = outwards(low, high, std)
        for column in (values, std, low, high):
            yield masked(column, hidden)
        yield masked(cv if self.exact else _short(cv), hidden | ~np.isfinite(cv))
        flags = (*self.rules.words, "suppressed")
        place = np.searchsorted(np.array(self.rules.thresholds), cv, side="left")
        place = np.where(hidden, len(flags) - 1, place).astype(np.int32)
        yield pa.DictionaryArray.from_arrays(pa.array(place), pa.array(flags, pa.string()))

    def _same(self, text: str, size: int) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int32)), self._texts([text]))

    def _texts(self, texts: Any) -> Any:
        return pa.array([self.safe(one_line(text)) for text in texts], pa.string())


def _columns(
    workload: Workload, safe: Callable[[str], str], reserved: Sequence[str]
) -> list[AttributeColumns]:
    """Return the columns of all attributes that are asked about, each with a name of its own."""
    families: dict[str, dict[int, Family]] = {}
    for group in workload:
        for names, family in group.parts():
            for name in names:
                families.setdefault(name, {})[id(family)] = family
    taken = list(reserved)
    used = [a for a in workload.schema if a.name in families]
    stems = column_names([safe(one_line(a.name)) for a in used], taken)
    made = []
    for attribute, stem in zip(used, stems, strict=True):
        own = AttributeColumns(attribute, families[attribute.name].values(), stem, safe)
        while set(own.names[1:]) & {*taken, *stems}:
            own.suffixes += "_"
        taken += own.names
        made.append(own)
    return made


def masked(numbers: Array, missing: NDArray[np.bool_]) -> Any:
    """Return an Arrow array, of which no file keeps what is missing."""
    if not missing.any():
        return pa.array(np.ascontiguousarray(numbers))
    return pa.array(np.where(missing, 0.0, numbers), mask=missing)


def outwards(low: Array, high: Array, std: Array) -> tuple[Array, Array]:
    """Return the ends of intervals, each moved outwards by less than std / 1,000, to a coarser grid.

    The grid is a power of two, so that their last bits are zero.
    """
    _, exponent = np.frexp(std)
    step = np.ldexp(1.0, exponent - 11)  # above std / 2,048, at most std / 1,024
    known = (std > 0) & np.isfinite(std)
    step = np.where(known, step, 1.0)
    return (
        np.where(known, np.floor(low / step) * step, low),
        np.where(known, np.ceil(high / step) * step, high),
    )


def _short(numbers: Array) -> Array:
    """Return numbers with a relative error below 1 / 2,000, whose last bits are zero."""
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.round(mantissa * 2048) / 2048, exponent)


def _is_stated(family: Family) -> bool:
    """Return whether the columns of its attribute say exactly what each query of a family counts."""
    spans = family.ends() if len(family.shape) == 1 else None
    return spans is not None and bool((spans >= 0).all())


def plain(table: Any) -> Any:
    """Return a table with plain strings instead of dictionaries."""
    fields = [(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
