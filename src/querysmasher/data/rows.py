"""From batches of Arrow rows to codes, whatever the rows come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from querysmasher.data.counting import Codes
from querysmasher.data.encoding import Encoder
from querysmasher.data.foreign import quietly
from querysmasher.errors import DataError
from querysmasher.privacy.sets import AttributeSet
from querysmasher.schema import Schema

UNKNOWN = ("refuse", "drop")


@dataclass(frozen=True, repr=False)
class RowEncoder:
    """Turns rows into codes of some attributes, by the schema alone.

    Attributes:
        schema: the domain.
        names: the attributes that are read.
        unknown: what happens to a record with a missing value, or one outside the domain, in any of these
            attributes: "refuse" raises, "drop" leaves the whole record out of every count.
    """

    schema: Schema
    names: tuple[str, ...]
    unknown: str = "refuse"

    def __post_init__(self) -> None:
        """Check the names and the option."""
        if self.unknown not in UNKNOWN:
            msg = f"unknown: expected one of {', '.join(map(repr, UNKNOWN))}, got {self.unknown!r}"
            raise DataError(msg)
        self.schema.positions(self.names)

    @cached_property
    def _encoders(self) -> tuple[Encoder, ...]:
        return tuple(Encoder(self.schema[name]) for name in self.names)

    def encode(self, batch: Any) -> Codes:
        """Return the codes of an Arrow record batch."""
        columns = {}
        strangers = []
        for name, encoder in zip(self.names, self._encoders, strict=True):
            codes = quietly(f"reading attribute {name!r}", encoder.encode, batch.column(name))
            columns[name] = codes
            if len(codes) and codes.max() == encoder.unknown:
                strangers.append(name)
        if not strangers:
            return Codes(columns, batch.num_rows)
        if self.unknown == "refuse":
            msg = (
                f"attribute {strangers[0]!r}: the data hold a missing value, or one outside the schema's "
                "domain; mend the data or the schema, or leave such records out with unknown='drop'"
            )
            raise DataError(msg)
        kept = np.logical_and.reduce([columns[name] < self.schema[name].size for name in strangers])
        return Codes({name: codes[kept] for name, codes in columns.items()}, int(kept.sum()))

    def chunks(self, batches: Iterable[Any], rows: int) -> Iterator[Codes]:
        """Encode batch after batch, and join the codes into chunks of about so many rows."""
        held: list[Codes] = []
        count = 0
        for batch in batches:
            held.append(self.encode(batch))
            count += held[-1].rows
            if count >= rows:
                yield self._joined(held)
                held, count = [], 0
        if held:
            yield self._joined(held)

    def _joined(self, held: list[Codes]) -> Codes:
        if len(held) == 1:
            return held[0]
        columns = {name: np.concatenate([codes.columns[name] for codes in held]) for name in self.names}
        return Codes(columns, sum(codes.rows for codes in held))

    def check_sets(self, sets: Sequence[AttributeSet]) -> list[AttributeSet]:
        """Return the sets as tuples, each of attributes that are read."""
        checked = [(one,) if isinstance(one, str) else tuple(one) for one in sets]
        for one in checked:
            self.schema.positions(one)
            for name in one:
                if name not in self.names:
                    msg = (
                        f"sets: {name!r} is not among the attributes the table was opened for: {self.names!r}"
                    )
                    raise DataError(msg)
        return checked
