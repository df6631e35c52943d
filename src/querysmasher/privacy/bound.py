"""At most k records of each person: the guarantee for persons is proved, not assumed.

`Bound.kept` decides which records of some persons are counted. Write S(T) for the records it keeps of a table
T, as a multiset of rows of codes, for one fixed key.

1. S works person by person: what is kept of a person depends on the key, on that person's own name and on the
   multiset of that person's own rows, and on nothing else: neither on other persons, nor on the order of the
   records, nor on how the table is cut into parts. (The priority of a record is a keyed hash of the person's
   name, of the row, and of its number j = 0, 1, … among the person's identical rows. Which of two identical
   rows has which number does not matter, since only rows are counted. Equal priorities are ordered by row.)
2. S keeps at most k records of each person.

Formal guarantee. Let T and T' differ by all records of one person, however many. By 1, S keeps the same
records of everyone else in both, and by 2, S(T) and S(T') differ by at most k records. So what is measured
on S(T) satisfies the budget for neighbours that add or remove at most k = `records_per_person` records, for
every key. A key drawn independently of the table changes nothing: its distribution is the same for T and T',
and the divergence of a mixture is at most that of its parts. The hash needs no property at all for this: a
poor one would only make the choice less random. Persons are compared by name, exactly, not by hash.

Values instead of records (`ValueBound`). Here T is first reduced to the pairs of a person and a value that
occur in it, each once; then S keeps at most k pairs of each person, as above, with the priority of a keyed
hash of the person's name and of a keyed hash of the value. Values of equal hashes are ordered by the values
themselves. So 1 and 2 hold for pairs: which values of a person are counted does not depend on how often
anyone has them.

Nothing but S(T) is counted, so that how many records were left out is not disclosed, unless it is measured,
too, at a cost of its own (`accounting.Dropped`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import DataError, PrivacyError, Remedy, as_given
from querysmasher.privacy.accounting import BINS, ends
from querysmasher.privacy.unit import Unit

Words = NDArray[np.uint64]

ADD_REMOVE = Remedy("use a budget with neighbours='add_remove'", 'use [budget] neighbours = "add_remove"')


@dataclass(frozen=True)
class Bound:
    """How many records of each person are counted, and the key by which they are chosen.

    Args:
        column: the column that says to whom a record belongs.
        most: the number k of records of one person that are counted.
        key: 16 to 64 random bytes, drawn for one release and kept nowhere.
    """

    column: str
    most: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Check the types; a key that is too short is refused."""
        if type(self.column) is not str or not self.column:
            raise DataError(f"person: expected the name of a column, got {as_given(self.column)}")
        if type(self.most) is not int or self.most < 1 or type(self.key) is not bytes:
            raise PrivacyError("person: expected a positive integer and a key of bytes")
        if not 16 <= len(self.key) <= 64:
            raise PrivacyError(f"person: expected a key of 16 to 64 bytes, got {len(self.key)}")

    @classmethod
    def drawn(cls, column: str, unit: Unit, seed: int | None = None) -> Bound:
        """Return a bound with a new key; a seed makes it a simulation.

        With replace-one neighbours the number of records is public, but the number of counted ones would
        depend on how the records are distributed among persons: that is refused.
        """
        if unit.total_is_public:
            raise PrivacyError(
                "person: with replace_one neighbours the number of counted records is published, which "
                "depends on how many records each person has",
                ADD_REMOVE,
            )
        key = secrets.token_bytes(32) if seed is None else hashlib.sha256(f"person {seed}".encode()).digest()
        return cls(column, unit.records_per_person, key)

    def kept(
        self, persons: NDArray[np.int64], name: Callable[[int], bytes], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_]:
        """Return which records are counted.

        Args:
            persons: for each record, the number of its person: 0, 1, …; all records of these persons.
            name: maps the number of a person to the person's name; different persons have different names.
            columns: for each record, its row of codes: unsigned integers, an array per attribute.
        """
        crowded = np.bincount(persons) > self.most
        kept = ~crowded[persons]
        some = np.flatnonzero(~kept)
        if some.size:
            kept[some[self._first(persons[some], name, _words([column[some] for column in columns]))]] = True
        return kept

    def binned(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of persons in each bin of `Dropped`.

        Args:
            left: for each person, the number of records that are not counted, of all that the person has.
        """
        bins = np.searchsorted(np.array(ends(self.most)), left[left > 0])
        return np.bincount(bins, minlength=BINS)

    def _first(self, persons: NDArray[np.int64], name: Callable[[int], bytes], words: Sequence[Words]) -> Any:
        """Return the indexes of the `most` records of each person that have the smallest priority."""
        order = np.lexsort((*words[::-1], persons))
        persons, words = persons[order], [word[order] for word in words]
        numbers, inverse = np.unique(persons, return_inverse=True)
        seeds = np.array([self.number(name(person)) for person in numbers.tolist()], dtype=np.uint64)
        priority = seeds[inverse]
        for word in (*words, _runs(persons, *words).astype(np.uint64)):
            priority = _mixed(priority ^ word)
        best = np.lexsort((priority, persons))  # stable: equal priorities stay in the order of rows
        return order[best[_runs(persons) < self.most]]

    def number(self, name: bytes) -> int:
        """Return a keyed hash of a person's name: 64 bits."""
        return int.from_bytes(hashlib.blake2b(name, key=self.key, digest_size=8).digest(), "little")


@dataclass(frozen=True, eq=False)
class ValueBound(Bound):
    """How many different values of each person are counted, once each.

    Args:
        words: for each value, by its code, a keyed hash. Codes are in an order of all values that is fixed.
    """

    words: Words = field(repr=False, kw_only=True)

    def kept(
        self, persons: NDArray[np.int64], name: Callable[[int], bytes], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_]:
        """Return which records are counted, of one column of codes: one of each pair that is counted."""
        (codes,) = columns
        order = np.lexsort((codes, persons))
        first = order[_runs(persons[order], codes[order]) == 0]  # in the order of persons, then of values
        kept = np.zeros(len(persons), dtype=bool)
        kept[first] = super().kept(persons[first], name, [self.words[codes[first]]])
        return kept


def _words(columns: Sequence[NDArray[Any]]) -> list[Words]:
    """Pack codes into 64-bit words: rows are equal if and only if their words are."""
    rows = len(columns[0]) if columns else 0
    size = sum(column.itemsize for column in columns)
    packed = np.zeros((rows, -(-size // 8) * 8), dtype=np.uint8)
    start = 0
    for column in columns:
        stop = start + column.itemsize
        packed[:, start:stop] = np.ascontiguousarray(column).view(np.uint8).reshape(rows, column.itemsize)
        start = stop
    return list(np.ascontiguousarray(packed.view("<u8").T).astype(np.uint64))


def _runs(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position of each record within its run of equal keys, from 0."""
    records = np.arange(len(keys[0]))
    starts = np.zeros(len(records), dtype=np.int64)
    changed = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    starts[1:][changed] = records[1:][changed]
    return records - np.maximum.accumulate(starts)


def _mixed(values: Words) -> Words:
    """Return a well-distributed word for each: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
