"""Answers as tidy rows: one column per attribute with its value, then the answer and how reliable it is.

A row says what it counts in the columns `table` (the attributes), `kind` (the families of queries) and
one column per attribute: the value of an identity query (`age` = 30), the last value of a prefix query, null
where all values count. `query` states the same as a predicate that `where` accepts, and more where no single
value can: for ranges, hierarchies and predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.release.frame import NUMBERS, column_names, value_type
from querysmasher.statistics.critical import pointwise
from querysmasher.statistics.reliability import Rules, coefficients
from querysmasher.text import one_line
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload

ABOUT = ("table", "kind", "query")
"""Columns that say what a row counts, before those of the attributes."""

BATCH = 2_000_000
"""Number of rows converted at a time."""

WORDS = ("flag", "note")
"""The last columns that hold words."""

WORD = pa.dictionary(pa.int32(), pa.string())


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
        safe: Callable[[str], str] = str,
    ) -> None:
        """Take the queries, the level of intervals and the rules of reliability.

        Without `queries`, the column `query` is null where the other columns state the query. `safe` is
        applied to every string.
        """
        self.workload = workload
        self.reach = pointwise(level)
        self.rules = rules or Rules()
        self.queries = queries
        self.safe = safe
        used = {name for group in workload for name in group.attributes}
        self.attributes = [a for a in workload.schema if a.name in used]
        names = column_names([safe(one_line(a.name)) for a in self.attributes], (*ABOUT, *self.numbers))
        self.columns = {a.name: name for a, name in zip(self.attributes, names, strict=True)}
        """The name of each attribute's column."""
        kinds = [value_type(a.values) for a in self.attributes]
        self._values = {
            a.name: self._texts(a.labels) if kind == pa.string() else pa.array(list(a.values), kind)
            for a, kind in zip(self.attributes, kinds, strict=True)
        }
        self.schema = pa.schema(
            [
                *((name, WORD) for name in ABOUT),
                *((n, WORD if k == pa.string() else k) for n, k in zip(names, kinds, strict=True)),
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
        found: dict[str, Any] = {}
        stated = True
        for (names, family), place in zip(group.parts(), places, strict=True):
            index = family.values()
            if index is None:
                stated = False
            else:
                found[names[0]] = self._values[names[0]].take(pa.array(np.array(index)[place]))
        yield self._query(words, places, size) if self.queries or not stated else pa.nulls(size, WORD)
        for attribute in self.attributes:
            column = found.get(attribute.name)
            kind = self.schema.field(self.columns[attribute.name]).type
            if column is None:
                yield pa.nulls(size, kind)
            else:
                yield column.dictionary_encode() if kind == WORD else column

    def _query(self, words: Sequence[Any], places: Sequence[NDArray[np.intp]], size: int) -> Any:
        """Return the predicates: those of all families, joined."""
        said = [w.take(pa.array(p)) for w, p in zip(words, places, strict=True) if set(w.to_pylist()) != {""}]
        if not said:
            return self._same("total", size)
        joined = said[0] if len(said) == 1 else pc.binary_join_element_wise(*said, " and ")
        return joined.dictionary_encode()

    def _numbers(self, values: Array, std: Array) -> Iterator[Any]:
        cv = coefficients(values, std)
        hidden = self.rules.hidden(cv)
        mask = hidden if hidden.any() else None
        for column in (values, std, values - self.reach * std, values + self.reach * std):
            yield pa.array(np.ascontiguousarray(column), mask=mask)
        yield pa.array(cv, mask=hidden | ~np.isfinite(cv))
        flags = (*self.rules.words, "suppressed")
        place = np.searchsorted(np.array(self.rules.thresholds), cv, side="left")
        place = np.where(hidden, len(flags) - 1, place).astype(np.int32)
        yield pa.DictionaryArray.from_arrays(pa.array(place), pa.array(flags, pa.string()))

    def _same(self, text: str, size: int) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int32)), self._texts([text]))

    def _texts(self, texts: Any) -> Any:
        return pa.array([self.safe(one_line(text)) for text in texts], pa.string())


def plain(table: Any) -> Any:
    """Return a table with plain strings instead of dictionaries."""
    fields = [(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
