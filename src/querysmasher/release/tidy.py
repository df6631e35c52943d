"""Answers as tidy rows: one column per attribute with its value, then the answer and how reliable it is.

A row says what it counts in the columns `table` (the attributes), `kind` (the families of queries) and those
of each attribute. `query` states the same as a predicate that `where` accepts.

`age` holds the value: null if and only if all values count. If every query on the attribute counts a single
value, or all values up to one (`kind` says so), this is that value, in its own type. If some count several
values, the column is text: `30`, `30..40` for a range, the name of a group of a hierarchy, a list of values,
or `(query)` if it depends on other attributes; and `age_from` and `age_to` hold the first and the last value,
in their own type. If the first comes after the last, the range goes around a circle. Bins have these columns
always; they hold edges, as numbers. Attributes without an order have none. A value beside the others, such as
that of missing ones, has no place in their order: both columns are null where it counts, and so is the open
end of a bin. `age_label` holds what readers see, if values have labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, as_given, suggestion
from querysmasher.formatting import one_line
from querysmasher.statistics.reliability import Rules, coefficients, pointwise
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

ABOUT = ("table", "kind", "query")
"""Columns that say what a row counts, before those of the attributes."""

NUMBERS = ("value", "std", "low", "high", "cv", "flag")
"""Columns of every frame and file of figures, after those that say what each is about."""

WORD = pa.dictionary(pa.int32(), pa.string())

TIED = "(query)"
"""The cell of an attribute that a query ties to others; the column `query` says how."""

VALUE, LABEL, FROM, TO = "value", "label", "from", "to"

BATCH = 2_000_000
"""Number of rows converted at a time."""

BACKENDS = ("pyarrow", "pandas", "polars")


def column_names(names: Sequence[str], reserved: Sequence[str] = NUMBERS) -> list[str]:
    """Return the names of attributes as names of columns; one that is taken gets an underscore.

    >>> column_names(["age", "value"])
    ['age', 'value_']
    """
    columns: list[str] = []
    for name in names:
        free = name
        while free in (*reserved, *columns) or (free != name and free in names):
            free += "_"
        columns.append(free)
    return columns


def frame_of(table: Any, backend: Any) -> Any:
    """Return an Arrow table as a data frame of a library; in pandas, integers with nulls remain integers."""
    try:
        if nw.Implementation.from_backend(backend) is not nw.Implementation.PANDAS:
            return nw.from_arrow(table, backend=backend).to_native()
        pd = nw.Implementation.PANDAS.to_native_namespace()
        nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        made = table.to_pandas()
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count and column.type in nullable:
                made[name] = column.to_pandas(types_mapper=nullable.get)
    except (ImportError, ValueError, TypeError, AttributeError):
        known = ", ".join(map(repr, BACKENDS))
        got = f"{as_given(backend)}{suggestion(backend, BACKENDS)}"
        raise WorkloadError(
            f"backend: expected an installed dataframe library such as {known}, got {got}"
        ) from None
    return made


def value_type(values: Sequence[object]) -> Any:
    """Return the Arrow type that holds values of an attribute: their own, or text if they are mixed."""
    kinds = {type(v) for v in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int} and all(-(2**63) <= v < 2**63 for v in values):  # type: ignore[operator]
        return pa.int64()
    if kinds <= {int, float} and float in kinds:
        return pa.float64()
    return pa.date32() if kinds == {date} else pa.string()


def repeated(text: str, size: int) -> Any:
    """Return a column that repeats a string."""
    return pa.array([text]).dictionary_encode().take(pa.array(np.zeros(size, dtype=np.int32)))


class AttributeColumns:
    """Makes the columns of one attribute."""

    def __init__(
        self, attribute: Attribute, families: Collection[Family], name: str, safe: Callable[[str], str]
    ) -> None:
        """Take all families that ask about the attribute, and the name of its column."""
        self.attribute = attribute
        self.name = name
        self.suffixes = ""
        """Underscores that keep the names of further columns distinct."""
        self._safe = safe
        self.single = all(_single_values(f) is not None for f in families)
        """Whether every query is about a single value, or all values up to one."""
        kind = value_type(attribute.values)
        is_text = kind == pa.string()
        self._values = pa.array(map(safe, attribute.labels) if is_text else attribute.values, kind)
        roles = {VALUE: WORD if is_text or not self.single else kind}
        if attribute.value_labels is not None:
            roles[LABEL] = WORD
        if attribute.edges is not None:
            finite = [edge if math.isfinite(edge) else None for edge in attribute.edges]
            edges = pa.array(finite, value_type([edge for edge in finite if edge is not None]))
            self._first, self._last = edges[:-1], edges[1:]
        elif attribute.beside:
            listed = attribute.values[: attribute.listed]
            first_kind = value_type(listed)
            self._first = self._last = pa.array(
                map(safe, attribute.labels[: attribute.listed]) if first_kind == pa.string() else listed,
                first_kind,
            )
        else:
            self._first = self._last = self._values
        if attribute.edges is not None or (attribute.ordered and not self.single):
            roles |= dict.fromkeys((FROM, TO), WORD if self._first.type == pa.string() else self._first.type)
        self.roles: dict[str, Any] = roles
        """The Arrow type of each column, by what it holds."""
        self._columns: dict[int, list[Any]] = {}

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [self.name if role == VALUE else f"{self.name}_{role}{self.suffixes}" for role in self.roles]

    def arrays(self, family: Family | None, rows: NDArray[np.intp] | None, size: int) -> list[Any]:
        """Return the columns of rows that ask the queries `rows` of a family, or all values."""
        if family is None or rows is None:
            return [pa.nulls(size, kind) for kind in self.roles.values()]
        if id(family) not in self._columns:
            self._columns[id(family)] = [self._of_queries(family, role) for role in self.roles]
        index = pa.array(rows if len(family.shape) == 1 else np.zeros(size, dtype=np.int32))
        return [column.take(index) for column in self._columns[id(family)]]

    def _of_queries(self, family: Family, role: str) -> Any:
        """Return a column with a row per query of a family, or a single row if it ties attributes."""
        kind, spans, values = self.roles[role], family.ends(), _single_values(family)
        if role in (FROM, TO):  # null for a query that does not count a range of values
            if spans is None:
                return pa.nulls(family.rows, kind)
            ends, listed = spans[:, 0 if role == FROM else 1], self.attribute.listed
            without = (spans < 0).any(axis=1) | (spans >= listed).any(axis=1)
            taken = (self._first if role == FROM else self._last).take(
                pa.array(np.clip(ends, 0, listed - 1), mask=without)
            )
            return taken.dictionary_encode() if kind == WORD else taken
        if kind != WORD:
            return self._values.take(pa.array(values))
        words = self.attribute.shown if role == LABEL else self.attribute.labels
        if len(family.shape) > 1:
            said = [TIED]
        elif self.single and values is not None:
            said = [words[value] for value in values]
        else:
            pairs = [(-1, -1)] * family.rows if spans is None else spans.tolist()
            ranges = [words[i] if words[i] == words[j] else f"{words[i]}..{words[j]}" for i, j in pairs]
            said = [
                other if text is None else text
                for text, other in zip(family.counted(self.attribute), ranges, strict=True)
            ]
        return pa.array(map(self._safe, said), pa.string()).dictionary_encode()


def _single_values(family: Family) -> Sequence[int] | None:
    """Return the index of the value that each query is about, if each is about one, or all up to one."""
    spans = family.ends()
    if spans is None:
        return None
    single = (spans[:, 0] == spans[:, 1]) & (spans[:, 0] >= 0)
    return spans[:, 1].tolist() if family.is_growing or single.all() else None


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
        self._safe: Callable[[str], str] = lambda text: safe(one_line(text))
        self.columns = _columns(workload, self._safe, (*ABOUT, *self.numbers))
        self.schema = pa.schema(
            [
                *((name, WORD) for name in ABOUT[:-1]),
                (ABOUT[-1], pa.string()),
                *(  # each names the column that is null if all values count
                    pa.field(name, kind, metadata={VALUE: columns.name})
                    for columns in self.columns
                    for name, kind in zip(columns.names, columns.roles.values(), strict=True)
                ),
                *((name, WORD if name in ("flag", "note") else pa.float64()) for name in self.numbers),
            ]
        )

    def tables(self, group: Group, *numbers: Array) -> Iterator[Any]:
        """Iterate over Arrow tables of what a group asks, with its values and standard errors."""
        parts, flat = list(group.parts()), [column.ravel() for column in numbers]
        spans = [family.ends() for _, family in parts]
        # the columns of attributes may say exactly what each query counts
        stated = not self.queries and all(ends is not None and (ends >= 0).all() for ends in spans)
        words = (family.predicates([self.workload.schema[n] for n in names]) for names, family in parts)
        predicates = [] if stated else [pa.array(map(self._safe, strings), pa.string()) for strings in words]
        for start in range(0, group.rows, BATCH):
            batch = slice(start, min(group.rows, start + BATCH))
            size = batch.stop - start
            rows = np.unravel_index(np.arange(start, batch.stop), group.shape) if group.shape else ()
            said = [
                strings.take(pa.array(queries))
                for strings, queries in zip(predicates, rows, strict=bool(predicates))
                if set(strings.to_pylist()) != {""}
            ]
            if stated:
                query = pa.nulls(size, pa.string())
            elif said:
                query = said[0] if len(said) == 1 else pc.binary_join_element_wise(*said, " and ")
            else:
                query = repeated(self._safe("total"), size).cast(pa.string())
            names = " × ".join(group.attributes) or "total"
            about = [repeated(self._safe(names), size), repeated(self._safe(group.kind), size), query]
            counted = {
                name: (family, queries)
                for (names_of, family), queries in zip(parts, rows, strict=True)
                for name in names_of
            }
            for columns in self.columns:
                family, queries = counted.get(columns.attribute.name, (None, None))
                about += columns.arrays(family, queries, size)
            yield pa.table([*about, *self.last(*(n[batch] for n in flat))], schema=self.schema)

    def last(self, *numbers: Array) -> Iterator[Any]:
        """Iterate over the last columns of some rows."""
        values, std = numbers
        cv = coefficients(values, std)
        hidden = self.rules.hidden(cv)
        low, high = values - self.reach * std, values + self.reach * std
        if not self.exact:
            low, high = outwards(low, high, std)
        for column in (values, std, low, high):
            yield masked(column, hidden)
        mantissa, exponent = np.frexp(cv)  # rounded, the last bits are zero
        short = cv if self.exact else np.ldexp(np.round(mantissa * 2048) / 2048, exponent)
        yield masked(short, hidden | ~np.isfinite(cv))
        flags = (*self.rules.words, "suppressed")
        level = np.searchsorted(np.array(self.rules.thresholds), cv, side="left")
        level = np.where(hidden, len(flags) - 1, level).astype(np.int32)
        yield pa.DictionaryArray.from_arrays(pa.array(level), pa.array(flags, pa.string()))


def _columns(
    workload: Workload, safe: Callable[[str], str], reserved: Sequence[str]
) -> list[AttributeColumns]:
    """Return the columns of all attributes in queries, under distinct names."""
    families: dict[str, dict[int, Family]] = {}
    for group in workload:
        for names, family in group.parts():
            for name in names:
                families.setdefault(name, {})[id(family)] = family
    taken = list(reserved)
    used = [a for a in workload.schema if a.name in families]
    stems = column_names([safe(a.name) for a in used], taken)
    made = []
    for attribute, stem in zip(used, stems, strict=True):
        columns = AttributeColumns(attribute, families[attribute.name].values(), stem, safe)
        while set(columns.names[1:]) & {*taken, *stems}:
            columns.suffixes += "_"
        taken += columns.names
        made.append(columns)
    return made


def masked(numbers: Array, missing: NDArray[np.bool_]) -> Any:
    """Return an Arrow array; missing numbers become 0, so that no file keeps them."""
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
