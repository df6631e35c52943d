"""Finds what does not match in a table, column by column, for `check`, which shows it to the custodian.

Every verdict comes from the encoder that `measure` uses, so the two always agree. The findings quote records.
They are plain data, so that Spark's partitions can send them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.attributes import literal
from querysmasher.data.encoding import Code, Encoder, kinds_in_words
from querysmasher.data.foreign import quietly
from querysmasher.data.people import names_of
from querysmasher.data.rows import RowEncoder
from querysmasher.data.values import Texts
from querysmasher.errors import DataError

MOST_VALUES = 10_000
"""Maximum number of distinct values listed per column."""

LONGEST = 40
"""Maximum number of characters shown of a value."""


@dataclass
class ColumnTally:
    """Findings about a column so far."""

    type: str = ""
    problem: str = ""
    """Why the whole column does not fit."""
    hint: str = ""
    """What may be wrong with a column in which no value can match; empty if some can."""
    missing: int = 0
    unmatched: int = 0
    values: dict[str, int] = field(default_factory=dict)
    """The first distinct values without a match, with their frequencies."""

    def count(self, values: Any) -> None:
        """Record values without a match."""
        self.unmatched += len(values)
        for shown, times in _counted(values).items():
            self._add(shown, times)

    def _add(self, shown: str, times: int) -> None:
        if shown in self.values or len(self.values) < MOST_VALUES:
            self.values[shown] = self.values.get(shown, 0) + times

    def __add__(self, other: ColumnTally) -> ColumnTally:
        """Merge the findings about two parts of a table."""
        joined = ColumnTally(
            self.type or other.type,
            self.problem or other.problem,
            self.hint or other.hint,
            self.missing + other.missing,
            self.unmatched + other.unmatched,
            dict(self.values),
        )
        for shown, times in other.values.items():
            joined._add(shown, times)
        return joined


@dataclass
class Inspection:
    """Findings about some columns of a table so far."""

    columns: dict[str, ColumnTally]
    records: int = 0
    bad_records: int = 0
    """Number of records with a value that does not fit in any of the columns, or without a person."""
    nameless: int = 0
    """Number of records without a person, if persons are distinguished."""

    @classmethod
    def of(cls, rows: RowEncoder, batches: Iterable[Any]) -> Inspection:
        """Inspect a table's batches of rows."""
        found = cls({name: ColumnTally() for name in rows.names})
        forms = Forms(rows.encoders)
        for batch in batches:
            bad = np.zeros(batch.num_rows, dtype=bool)
            for name, encoder in rows.encoders.items():
                codes = _inspect(encoder, batch.column(name), found.columns[name])
                forms.note(name, codes)
                stand_in = encoder.places.stand_in is not None
                bad |= (codes >= encoder.unknown) & ~((codes == encoder.places.missing) & stand_in)
            if rows.person is not None:
                names = quietly("reading the persons", names_of, batch.column(rows.person), rows.person)
                nobody = np.asarray(names.is_null(nan_is_null=True))
                found.nameless += int(nobody.sum())
                bad |= nobody
            found.records += batch.num_rows
            found.bad_records += int(bad.sum())
        for name in forms.formless:
            found.columns[name].hint = _formless(rows.encoders[name])
        return found

    def __add__(self, other: Inspection) -> Inspection:
        """Merge the findings about two parts of a table."""
        columns = {name: own + other.columns[name] for name, own in self.columns.items()}
        return Inspection(
            columns,
            self.records + other.records,
            self.bad_records + other.bad_records,
            self.nameless + other.nameless,
        )

    def to_bytes(self) -> bytes:
        """Return plain data from which `joined` restores the findings."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def joined(cls, names: Iterable[str], parts: Iterable[bytes]) -> Inspection:
        """Merge the findings about several parts."""
        nothing = cls({name: ColumnTally() for name in names})
        return reduce(add, map(cls._from_bytes, parts), nothing)

    @classmethod
    def _from_bytes(cls, data: bytes) -> Inspection:
        fields = json.loads(data)
        columns = {name: ColumnTally(**tally) for name, tally in fields.pop("columns").items()}
        return cls(columns, **fields)


class Forms:
    """For each attribute, whether some value has the form of its kind, and whether some has not."""

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        """Start with no values."""
        self._encoders = encoders
        self._formed: set[str] = set()
        self._malformed: set[str] = set()

    def note(self, name: str, codes: Code) -> None:
        """Record the codes of some values."""
        places = self._encoders[name].places
        if codes.max(initial=0) == places.malformed:
            self._malformed.add(name)
        if name not in self._formed and len(codes) and (codes <= places.unknown).any():
            self._formed.add(name)

    @property
    def formless(self) -> list[str]:
        """The attributes with values, none of which has the form of its kind."""
        return sorted(self._malformed - self._formed)


def _formless(encoder: Encoder) -> str:
    """Return the message about a column in which no value can match, whatever the domain."""
    return (
        f"expected a column of {kinds_in_words(encoder.places)}, but none of its values is one; is it the "
        "wrong column, or does it use another decimal separator?"
    )


def _inspect(encoder: Encoder, column: Any, tally: ColumnTally) -> Code:
    """Record a column of a batch, and return the codes of its values."""
    places = encoder.places
    tally.type = "text" if isinstance(column, Texts) else str(getattr(column, "type", "object"))
    values = column.column if isinstance(column, Texts) else column
    try:
        codes = quietly("reading it", encoder.codes, column)
    except DataError as error:
        tally.problem = str(error)
        codes = np.full(len(values), places.unknown, places.dtype)
        codes[np.asarray(values.is_null())] = places.missing
    missing = codes == places.missing
    tally.missing += int(missing.sum())
    strange = (codes >= places.unknown) & ~missing
    if strange.any():
        tally.count(values[strange] if isinstance(values, np.ndarray) else values.filter(pa.array(strange)))
    return codes


def _counted(values: Any) -> Counter[str]:
    """Count values by their shown form."""
    try:
        pairs = [(pair["values"], pair["counts"]) for pair in values.value_counts().to_pylist()]
    except (AttributeError, pa.ArrowException, TypeError):  # Python objects; lists and the like
        pairs = [(value, 1) for value in values.tolist()]
    found: Counter[str] = Counter()
    for value, times in pairs:
        found[_shown(value)] += times
    return found


def _shown(value: object) -> str:
    """Return a value as the schema would write it, without control characters, and shortened."""
    text = repr(value.isoformat(" ")) if isinstance(value, datetime) else literal(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
