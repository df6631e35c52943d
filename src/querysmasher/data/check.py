"""`check`: what in a table does not fit a schema, for the custodian only.

This is the only file that shows records on purpose; it is not differentially private. No code that plans,
measures, releases or reports imports it (`tests/test_layers.py`). It writes nothing, and its result cannot be
pickled.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, NoReturn

import narwhals as nw
import numpy as np
import pyarrow as pa

from querysmasher.attributes import Attribute, literal
from querysmasher.data.encoding import Code, Encoder, Strings, kinds_in_words
from querysmasher.data.foreign import noting_columns, plain_name, quietly
from querysmasher.data.people import names_of
from querysmasher.data.rows import RowEncoder
from querysmasher.data.sources import open_table
from querysmasher.data.totals import read_totals
from querysmasher.errors import DataError, as_given, explained
from querysmasher.formatting import columns, count, written_name
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.counts import Counts
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.privacy.unit import AttributeSets, ExactTable, Groups, attributes_of
from querysmasher.schema import Schema

NOTICE = "For the custodian only: this shows values of single records. Do not publish it."
HEAD = ("attribute", "type", "missing", "outside the schema", "problem")
FORMLESS = (
    "expected a column of {}, but none of its values is one; is it the wrong column, or does it use another "
    "decimal separator?"
)
MOST_VALUES = 10_000
"""Maximum number of distinct values listed per column."""
LONGEST = 40
"""Maximum number of characters shown of a value."""
MOST_SHOWN = 5
"""Maximum number of values shown per column."""


@dataclass(frozen=True)
class ColumnCheck:
    """How the values of a column fit their attribute."""

    name: str
    type: str
    """The type of the column; empty if there is no column or no record."""
    problem: str
    """Why this column makes `measure` refuse the table, whatever its records; empty if it does not."""
    hint: str
    """What may be wrong with a column none of whose values is of the right kind; empty for others."""
    missing: int
    stand_in: str
    """The value that missing ones count as, if the schema declares one."""
    unmatched: int
    """Number of values outside the domain."""
    values: tuple[tuple[str, int], ...]
    """The most frequent values outside the domain, with their frequencies."""
    more_values: int
    """Number of further distinct values outside the domain."""
    other: str = ""
    """The value that those outside the domain count as, if the schema declares one."""

    @property
    def ok(self) -> bool:
        """Whether every value fits."""
        fits = not (self.missing and not self.stand_in) and not (self.unmatched and not self.other)
        return not self.problem and fits

    def cells(self) -> tuple[str, ...]:
        """Return the column as strings, under `HEAD`."""
        shown = [f"{value} × {times:,}" for value, times in self.values]
        more = [count(self.more_values, "other value")] if self.more_values else []
        missing = f"{self.missing:,}" + (f" as {self.stand_in}" if self.missing and self.stand_in else "")
        unmatched = f"{self.unmatched:,}" + (f" as {self.other}" if self.unmatched and self.other else "")
        wrong = "; ".join(filter(None, [self.problem, self.hint, ", ".join(shown + more)]))
        return (self.name, self.type or "-", missing, unmatched, wrong)


@dataclass(frozen=True, repr=False)
class Check:
    """What in a table does not fit a schema; `ok` if everything does."""

    columns: tuple[ColumnCheck, ...]
    records: int
    bad_records: int
    """Number of records with a missing value, or one outside the domain, in any of the columns, with values
    that are impossible together, or without a person."""
    max_records: int
    problem: str
    """Why the table cannot be read; empty if it can."""
    unknown: str = "refuse"
    """What `measure` does with such records: "refuse" the table, or "drop" them."""
    person: str | None = None
    nameless: int = 0
    """Number of records without a person."""
    records_per_person: int | None = None
    """How many records of each person are counted; None if all are."""
    crowded: int = 0
    """Number of records that fit but are left out, because only some of each person are counted."""
    impossible: tuple[tuple[str, int], ...] = ()
    """The predicates of `Schema.impossible`, each with the number of records that satisfy it."""
    disagreeing: tuple[tuple[str, int, int], ...] = ()
    """Where the table disagrees with the public totals: a predicate, its records, and what is public."""
    more_disagreeing: int = 0
    """Number of further public totals with which the table disagrees."""

    @property
    def ok(self) -> bool:
        """Whether `measure` would accept the table."""
        return self.readable and not (self.bad_records and self.unknown == "refuse")

    @property
    def readable(self) -> bool:
        """Whether `measure` would accept the table with unknown="drop"."""
        fits = not self.problem and not self.disagreeing and self.counted <= self.max_records
        return fits and not any(column.problem for column in self.columns)

    @property
    def counted(self) -> int:
        """Number of records that `measure` would count, if it accepts the table."""
        return self.records - self.bad_records - self.crowded

    def verdict(self, drop: str = "unknown='drop'") -> str:
        """Return in words what `measure` would do; `drop` is the option that drops records."""
        if self.problem:
            return f"The table is refused: {self.problem}" + ("" if self.problem.endswith("?") else ".")
        if any(column.problem for column in self.columns):
            names = ", ".join(repr(column.name) for column in self.columns if column.problem)
            return f"The table is refused, even if single records are dropped: see {names}."
        if self.counted > self.max_records:
            return f"The table is refused: it has more records than max_records = {self.max_records:,}."
        if self.disagreeing:
            several = count(len(self.disagreeing) + self.more_disagreeing, "public total")
            shown = [
                f"{predicate}: {count(n, 'record')}, public {m:,}" for predicate, n, m in self.disagreeing
            ]
            shown += [f"{self.more_disagreeing:,} more"] if self.more_disagreeing else []
            return f"The table is refused: it disagrees with {several} ({'; '.join(shown)})."
        verb = "does" if self.bad_records == 1 else "do"
        some = f"{self.bad_records:,} of {count(self.records, 'record')} {verb} not fit"
        if self.nameless:
            some += f", {self.nameless:,} of them without a value in {self.person!r}"
        for predicate, records in self.impossible:
            some += f", {records:,} of them because {predicate} is impossible" if records else ""
        if not self.ok:
            unless = "unless neighbours replace a record"
            return f"{some}: the table is refused; {unless}, such records are dropped with {drop}."
        said = f"{some}: with {drop} such records are dropped." if self.bad_records else ""
        said = said or f"All {count(self.records, 'record')} fit."
        if self.crowded:
            most = self.records_per_person or 1
            kept = count(most, "record of each person is", "records of each person are")
            said += f" At most {kept} counted. {count(self.crowded, 'other is', 'others are')} left out."
        return f"{said} Counted: {self.counted:,}." if self.bad_records or self.crowded else said

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return a table of the columns; `backend` is any eager backend of narwhals that is installed."""
        rows = [{**asdict(c), "values": ", ".join(f"{v} × {n}" for v, n in c.values)} for c in self.columns]
        columns = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
        return nw.from_dict(columns, backend=backend).to_native()

    def to_json(self) -> dict[str, Any]:
        """Return plain data, including the notice."""
        return {"notice": NOTICE, "ok": self.ok, **asdict(self)}

    def __iter__(self) -> Iterator[ColumnCheck]:
        """Iterate over the columns."""
        return iter(self.columns)

    def __getitem__(self, name: str) -> ColumnCheck:
        """Return the findings about the column called `name`."""
        columns = {column.name: column for column in self.columns}
        if name not in columns:
            raise DataError(f"name: expected one of {', '.join(map(repr, columns))}, got {as_given(name)}")
        return columns[name]

    def __repr__(self) -> str:
        """Show the notice, then every column."""
        lines = columns([HEAD, *(column.cells() for column in self.columns)], words=len(HEAD))
        return "\n".join([NOTICE, self.verdict(), *lines])

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a check shows records and must not be stored."""
        raise DataError("a check shows records of the table and cannot be written to a file")


@scrubbed
@explained("qs.check(schema, data)")
def check(
    schema: Schema,
    data: Any,
    attributes: Sequence[str] | None = None,
    *,
    max_records: int = 100_000_000,
    unknown: str = "refuse",
    person: str | None = None,
    records_per_person: int | None = None,
    exact: AttributeSets = (),
    public: Any = None,
) -> Check:
    """Show the custodian what in a table does not fit a schema, in all columns at once.

    The result shows values of single records. It is only for people who may see the table, is not private and
    must not be published. This function writes nothing and spends no budget. It applies the rules of
    `measure`: the result lists missing and repeated columns, types that do not fit, the number of missing
    values, the values outside the domain, and the number of records concerned.

    Args:
        schema: the domain. Correct it from public knowledge only: a domain read from this table would reveal
            something about the people in it.
        data: anything that `measure` accepts.
        attributes: the attributes to inspect; by default all. `measure` reads only those it measures.
        max_records: the public cap on the number of records, as for `measure`.
        unknown: "refuse" or "drop": what `measure` would do with records that do not fit.
        person: the column that identifies the person of a record, as for `measure`.
        records_per_person: with `person`, how many records of each person are counted, as in the budget; by
            default all.
        exact: the sets of exact counts of a plan, `plan.budget.exact`.
        public: the tables of these counts that are public, as for `measure`: the result says where a table
            that fits otherwise disagrees with them.

    >>> import pyarrow
    >>> schema = Schema.of(age=3, sex=2)
    >>> found = check(schema, pyarrow.table({"age": [0, 7, 7, None], "Sex": [0, 1, 1, 0]}))
    >>> found.ok, found["age"].values, found["sex"].problem
    (False, (('7', 2),), "no such column; the nearest is 'Sex'")
    """
    if not isinstance(schema, Schema):
        msg = f"schema: expected a Schema as first argument, got {as_given(schema)}"
        raise DataError(f"{msg}; write qs.check(schema, data)")
    given = schema.names if attributes is None else attributes
    names = (given,) if isinstance(given, str) else tuple(given)
    schema.positions(names)
    open_table(schema, data, [], unknown)  # refuses what is not a table
    problems = {name: problem for name in names if (problem := _problem(schema, data, name))}
    readable = [name for name in names if name not in problems]
    bound = None if person is None else Bound(person, records_per_person or max_records, bytes(32))
    unclear = "" if bound is None else _refusal(schema, data, [], bound)[0]  # why persons are unclear
    known = None if unclear else bound
    counter: Any = open_table(schema, data, readable, "drop", bound=known)
    parts, problem = [], ""
    try:
        parts = counter.inspect(look)
    except DataError as error:
        problem = str(error)
    findings = _joined(parts)
    refusal, there = _refusal(schema, data, names)
    headless = "" if set(names) & set(there) else refusal  # a file without a header, for example
    checks = tuple(_column(schema[name], findings[name], problems.get(name, "")) for name in names)
    table = findings[TABLE]["numbers"]
    crowded = 0
    if records_per_person is not None and known is not None and not any(c.problem for c in checks):
        counted = open_table(schema, data, names, "drop", bound=known).records()
        crowded = table["records"] - table["bad"] - counted
    found = Check(
        checks,
        table["records"],
        table["bad"],
        max_records,
        problem or headless or unclear,
        unknown=unknown,
        person=person,
        nameless=table["nameless"],
        records_per_person=records_per_person if person is not None else None,
        crowded=crowded,
        impossible=tuple((p, findings[TABLE]["impossible"][p]) for p, _ in schema.zeros(names)),
    )
    if public is None or not found.ok:
        return found
    wrong = list(_disagreeing(schema, data, exact, read_totals(schema, exact, public)))
    shown, rest = tuple(wrong[:MOST_SHOWN]), max(0, len(wrong) - MOST_SHOWN)
    return replace(found, disagreeing=shown, more_disagreeing=rest)


def _disagreeing(
    schema: Schema, data: Any, sets: AttributeSets, public: Sequence[Counts]
) -> Iterator[tuple[str, int, int]]:
    """Yield where the counts of a table differ from public ones: a predicate, and both."""
    names = [attributes_of(each) for each in sets]
    used = [name for name in schema.names if any(name in each for each in names)]
    counted = open_table(schema, data, used).marginals(names)
    for each, known, counts in zip(sets, public, counted, strict=True):
        exact = ExactTable.of(schema, each).counted(counts)
        for cell in np.argwhere(exact != known):
            words = (
                f"{name.attribute} in {name.labels[i]!r}"
                if isinstance(name, Groups)
                else schema[name].exactly(written_name(name), i)
                for name, i in zip(each, cell.tolist(), strict=True)
            )
            yield " and ".join(words), int(exact[tuple(cell)]), int(known[tuple(cell)])


def _refusal(
    schema: Schema, data: Any, names: Sequence[str], bound: Bound | None = None
) -> tuple[str, list[str]]:
    """Return why a table is refused even if records are dropped (empty if it is not), and its columns."""
    with noting_columns() as columns:
        try:
            counter = open_table(schema, data, names, "drop", bound=bound)
            if bound is not None:
                counter.records()
        except DataError as error:
            return str(error), columns
    return "", columns


def _problem(schema: Schema, data: Any, name: str) -> str:
    """Return why the column of an attribute cannot be read; empty if it can."""
    problem, columns = _refusal(schema, data, [name])
    if columns.count(name) > 1:
        return f"{columns.count(name)} columns have this name"
    if not problem or not columns or name in columns:
        return problem
    near = [c for c in columns if plain_name(c) == plain_name(name)]
    near += difflib.get_close_matches(name, [c for c in columns if c not in near], n=3)
    hint = f"; the nearest {'is' if len(near) == 1 else 'are'} {', '.join(map(repr, near))}" if near else ""
    return f"no such column{hint}"


def _column(attribute: Attribute, tally: Tally, problem: str) -> ColumnCheck:
    numbers = tally["numbers"]
    formless = numbers["malformed"] and not numbers["formed"]
    frequent = sorted(tally["values"].items(), key=lambda pair: (-pair[1], pair[0]))
    return ColumnCheck(
        attribute.name,
        next(iter(tally["types"]), ""),
        problem or next(iter(tally["problems"]), ""),
        FORMLESS.format(kinds_in_words(Encoder(attribute))) if formless else "",
        numbers["missing"],
        "" if attribute.missing is None else literal(attribute.missing),
        numbers["unmatched"],
        tuple(frequent[:MOST_SHOWN]),
        max(0, len(frequent) - MOST_SHOWN),
        "" if attribute.other is None else literal(attribute.other),
    )


Tally = defaultdict[str, Counter[str]]
"""Findings about a column with their frequencies: types, problems, numbers, values outside the domain."""
TABLE = ""
"""The key, instead of a column, for numbers of records: all, bad ones, and those without a person."""


def _joined(parts: Iterable[bytes]) -> defaultdict[str, Tally]:
    """Add up what `look` returned for several parts of a table."""
    total = _nothing()
    for part in map(json.loads, parts):
        for name, tally in part.items():
            for what, counted in tally.items():
                _add(total[name][what], counted)
    return total


def _nothing() -> defaultdict[str, Tally]:
    return defaultdict(lambda: defaultdict(Counter))


def _add(total: Counter[str], counted: Mapping[str, int]) -> None:
    for key, times in counted.items():
        if key in total or len(total) < MOST_VALUES:
            total[key] += int(times)


def look(rows: RowEncoder, batches: Iterable[Any]) -> bytes:
    """Return the findings about batches of rows as JSON, which Spark's partitions can send.

    Every verdict comes from the encoder that `measure` uses, so the two always agree.
    """
    findings = _nothing()
    for batch in batches:
        bad, columns = np.zeros(batch.num_rows, dtype=bool), dict[str, Code]()
        for name, encoder in rows.encoders.items():
            codes = _inspect(encoder, batch.column(name), findings[name])
            bad |= (codes >= encoder.unknown) & ~np.isin(codes, list(encoder.stand_ins))
            columns[name] = codes
            for code, index in encoder.stand_ins.items():
                columns[name] = np.where(codes == code, index, columns[name])
        for predicate, satisfied in rows.impossible(columns, bad):
            _add(findings[TABLE]["impossible"], {predicate: satisfied.sum()})
            bad |= satisfied
        nobody = np.zeros_like(bad)
        if rows.person is not None:
            names = quietly("reading the persons", names_of, batch.column(rows.person), rows.person)
            nobody = np.asarray(names.is_null(nan_is_null=True))
        numbers = {"records": batch.num_rows, "bad": (bad | nobody).sum(), "nameless": nobody.sum()}
        _add(findings[TABLE]["numbers"], numbers)
    return json.dumps(findings).encode()


def _inspect(encoder: Encoder, column: Any, tally: Tally) -> Code:
    """Add the findings about a column of a batch, and return the codes of its values."""
    kind = "text" if isinstance(column, Strings) else str(getattr(column, "type", "object"))
    _add(tally["types"], {kind: 1})
    values = column.column if isinstance(column, Strings) else column
    try:
        codes = quietly("reading it", encoder.codes, column)
    except DataError as error:
        _add(tally["problems"], {str(error): 1})
        codes = np.full(len(values), encoder.unknown, encoder.dtype)
        codes[np.asarray(values.is_null())] = encoder.missing
    missing = codes == encoder.missing
    strange = (codes >= encoder.unknown) & ~missing
    numbers = {"missing": missing.sum(), "unmatched": strange.sum()}
    numbers |= {"formed": (codes <= encoder.unknown).sum(), "malformed": (codes == encoder.malformed).sum()}
    _add(tally["numbers"], numbers)
    if strange.any():
        shown = values[strange] if isinstance(values, np.ndarray) else values.filter(pa.array(strange))
        _add(tally["values"], _counted(shown))
    return codes


def _counted(values: Any) -> Counter[str]:
    """Count values by their shown form."""
    try:
        pairs = [(pair["values"], pair["counts"]) for pair in values.value_counts().to_pylist()]
    except (AttributeError, pa.ArrowException, TypeError):  # Python objects; lists and the like
        pairs = [(value, 1) for value in values.tolist()]
    counted: Counter[str] = Counter()
    for value, times in pairs:
        counted[_shown(value)] += times
    return counted


def _shown(value: object) -> str:
    """Return a value as the schema would write it, without control characters, and shortened."""
    text = repr(value.isoformat(" ")) if isinstance(value, datetime) else literal(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
