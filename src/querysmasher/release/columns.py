"""The columns of one attribute in tidy rows: which of its values a row counts.

`age` holds the value: null if and only if all values count. If every query on the attribute counts a single
value, or all values up to one (`kind` says so), this is that value, in its own type. If some count several
values, the column is text: `30`, `30..40` for a range, the name of a group of a hierarchy, a list of values,
or `(query)` if it depends on other attributes; and `age_from` and `age_to` hold the first and the last value,
in their own type. If the first comes after the last, the range goes around a circle. Bins have these columns
always; they hold edges, as numbers. Attributes without an order have none. `age_label` holds what readers
see, if values have labels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.attributes import Attribute
from querysmasher.formatting import one_line
from querysmasher.release.frame import value_type
from querysmasher.workload.family import Family

WORD = pa.dictionary(pa.int32(), pa.string())

TIED = "(query)"
"""The cell of an attribute that a query ties to others; the column `query` says how."""

VALUE, LABEL, FROM, TO = "value", "label", "from", "to"


class AttributeColumns:
    """Makes the columns of one attribute."""

    def __init__(
        self, attribute: Attribute, families: Collection[Family], name: str, safe: Callable[[str], str]
    ) -> None:
        """Take all families that ask about the attribute, and the name of its column."""
        self.attribute = attribute
        self.name = name
        self.suffixes = ""
        """What distinguishes the names of further columns from others."""
        self._safe = safe
        self.single = all(_values(f) is not None for f in families)
        """Whether every query is about a single value, or all values up to one."""
        own = value_type(attribute.values)
        self._values = (
            self._texts(attribute.labels) if own == pa.string() else pa.array(attribute.values, own)
        )
        roles = {VALUE: WORD if own == pa.string() or not self.single else own}
        if attribute.value_labels is not None:
            roles[LABEL] = WORD
        if attribute.edges is not None:
            edges = pa.array(attribute.edges, value_type(attribute.edges))
            self._first, self._last = edges[:-1], edges[1:]
        else:
            self._first = self._last = self._values
        if attribute.edges is not None or (attribute.ordered and not self.single):
            kind = WORD if self._first.type == pa.string() else self._first.type
            roles |= {FROM: kind, TO: kind}
        self.roles: dict[str, Any] = roles
        """The Arrow type of each column, by what it holds."""
        self._cells: dict[tuple[int, bool], tuple[NDArray[np.int32], Any]] = {}

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [self.name if role == VALUE else f"{self.name}_{role}{self.suffixes}" for role in self.roles]

    def fields(self) -> Iterator[Any]:
        """Iterate over the fields of an Arrow schema; each names the column that is null if all count."""
        for name, kind in zip(self.names, self.roles.values(), strict=True):
            yield pa.field(name, kind, metadata={VALUE: self.name})

    def arrays(self, family: Family | None, place: NDArray[np.intp] | None, size: int) -> Iterator[Any]:
        """Iterate over the columns of rows that ask the queries `place` of a family, or all values."""
        if family is None or place is None:
            yield from (nulls(size, kind) for kind in self.roles.values())
            return
        for role, kind in self.roles.items():
            if role in (FROM, TO):
                yield self._ends(family, place, role)
            elif kind == WORD:
                index, texts = self._words(family, labels=role == LABEL)
                codes = np.zeros(size, dtype=np.int32) if len(family.shape) > 1 else index[place]
                yield pa.DictionaryArray.from_arrays(pa.array(codes), texts)
            else:
                yield self._values.take(pa.array(np.asarray(_values(family))[place]))

    def _ends(self, family: Family, place: NDArray[np.intp], role: str) -> Any:
        """Return the first or the last value of each row; null if it does not count a range of values."""
        values = self._first if role == FROM else self._last
        spans = family.ends() if len(family.shape) == 1 else None
        if spans is None:
            return nulls(len(place), self.roles[role])
        own = spans[place, 0 if role == FROM else 1]
        taken = values.take(pa.array(np.maximum(own, 0), mask=own < 0))
        return taken.dictionary_encode() if self.roles[role] == WORD else taken

    def _words(self, family: Family, *, labels: bool) -> tuple[NDArray[np.int32], Any]:
        """Return the text of each query of a family: distinct texts, and the index of each."""
        key = id(family), labels
        if key not in self._cells:
            words = self._said(family, self.attribute.shown if labels else self.attribute.labels)
            distinct = dict.fromkeys(words)
            number = {text: i for i, text in enumerate(distinct)}
            index = np.array([number[text] for text in words], dtype=np.int32)
            self._cells[key] = index, self._texts(list(distinct))
        return self._cells[key]

    def _said(self, family: Family, words: Sequence[str]) -> list[str]:
        if len(family.shape) > 1:
            return [TIED]
        found = _values(family)
        if self.single and found is not None:
            return [words[place] for place in found]
        spans = family.ends()
        ends = [(-1, -1)] * family.rows if spans is None else spans.tolist()
        return [
            _range(words[first], words[last]) if said is None else said
            for said, (first, last) in zip(family.counted(self.attribute), ends, strict=True)
        ]

    def _texts(self, texts: Sequence[str]) -> Any:
        return pa.array([self._safe(one_line(text)) for text in texts], pa.string())


def _values(family: Family) -> Sequence[int] | None:
    """Return the index of the value that each query is about, if each is about one, or all up to one."""
    if len(family.shape) > 1:
        return None
    found, spans = family.values(), family.ends()
    if found is not None or spans is None:
        return found
    alone = (spans[:, 0] == spans[:, 1]) & (spans[:, 0] >= 0)
    return spans[:, 0].tolist() if alone.all() else None


@lru_cache(maxsize=8)
def nulls(size: int, kind: Any) -> Any:
    """Return a column without values, which many columns of a table may share."""
    return pa.nulls(size, kind)


def _range(first: str, last: str) -> str:
    """Return a range of values.

    >>> _range("3", "3"), _range("3", "7")
    ('3', '3..7')
    """
    return first if first == last else f"{first}..{last}"
