"""To whom records belong: the names of persons, and streams from which at most k records of each are kept.

A name is an integer, a text or bytes, of one kind in the whole table, and is compared exactly. An integer is
the same in every width, also as a float or a decimal without a fraction. A record without a name (null, NaN,
an empty field of a CSV file) belongs to nobody, so no bound could hold for whoever it is about: the table is
refused, or the record is dropped, like one with a missing value.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.data.counter import Limits
from querysmasher.data.counting import Codes
from querysmasher.data.texts import Texts
from querysmasher.data.values import EXACT_FLOATS, MISSING_TYPES
from querysmasher.errors import DataError
from querysmasher.privacy.counter import Counts
from querysmasher.privacy.persons import Bound

WORK_BYTES = 40
"""Memory per record for choosing, besides its codes and the name of its person."""

KINDS = {
    pa.int64(): "integers",
    pa.uint64(): "unsigned 64-bit integers",
    pa.large_string(): "texts",
    pa.large_binary(): "bytes",
}
"""The kinds of names, by the Arrow type that holds them."""


def names_of(column: Any, title: str) -> Any:
    """Return a column as an Arrow array of one of `KINDS`; a missing name is null."""
    if isinstance(column, Texts):
        return pc.if_else(pc.equal(column.column, ""), pa.scalar(None, pa.large_string()), column.column)
    if isinstance(column, np.ndarray):
        return _objects(column, title)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    types, kind = pa.types, column.type
    if isinstance(kind, pa.BaseExtensionType):  # a UUID, for example
        return names_of(column.storage, title)
    if types.is_dictionary(kind):
        return names_of(column.dictionary_decode(), title)
    if types.is_null(kind):
        return column.cast(pa.int64())
    if kind == pa.uint64() or kind in KINDS:
        return column
    if types.is_integer(kind):
        return column.cast(pa.int64())
    if types.is_string(kind) or kind == pa.string_view():
        return column.cast(pa.large_string())
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    if types.is_floating(kind) or types.is_decimal(kind):
        return _integers(column, title)
    raise _refused(title, str(kind).split("[")[0].split("(")[0].split("<")[0])


def _integers(column: Any, title: str) -> Any:
    """Return floats or decimals that are integers as integers."""
    if pa.types.is_floating(column.type):
        values = np.asarray(column.cast(pa.float64()).fill_null(np.nan), dtype=np.float64)
        missing = np.isnan(values)
        whole = np.where(missing, 0.0, values)
        if not (np.abs(whole) < EXACT_FLOATS).all() or (whole != np.floor(whole)).any():
            raise _refused(title, "numbers that are not integers below 2^53")
        return pa.array(whole.astype(np.int64), mask=missing)
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:  # which quotes the number
        pass
    raise _refused(title, "decimals that are not 64-bit integers")


def _objects(column: NDArray[np.object_], title: str) -> Any:
    """Return Python objects of one kind."""
    values = [value.item() if isinstance(value, np.generic) else value for value in column]
    plain = [None if value is None or _is_missing(value) else value for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if kinds <= {int, float}:
        if any(isinstance(v, float) and not (v.is_integer() and abs(v) < EXACT_FLOATS) for v in plain):
            raise _refused(title, "numbers that are not integers below 2^53")
        whole = [None if value is None else int(value) for value in plain]
        if all(value is None or -(2**63) <= value < 2**63 for value in whole):
            return pa.array(whole, pa.int64())
        raise _refused(title, "integers beyond 64 bits")
    if kinds == {uuid.UUID}:
        return pa.array([None if value is None else str(value) for value in plain], pa.large_string())
    for kind, arrow in ((str, pa.large_string()), (bytes, pa.large_binary())):
        if kinds == {kind}:
            return pa.array(plain, arrow)
    raise _refused(title, "values of another kind, or of several kinds")


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in MISSING_TYPES or (isinstance(value, float) and value != value)  # noqa: PLR0124 - NaN


def _refused(title: str, found: str) -> DataError:
    return DataError(f"person: expected a column of integers, texts or bytes in {title!r}, got {found}")


class OneKind:
    """Refuses names of a second kind: a person would have two of them."""

    def __init__(self, title: str) -> None:
        """Start with no kind."""
        self._title = title
        self._kind: Any = None

    def note(self, names: Any) -> None:
        """Check the kind of some names."""
        if names.null_count == len(names):
            return
        if self._kind is None:
            self._kind = names.type
        if names.type != self._kind:
            raise _refused(self._title, f"both {KINDS[self._kind]} and {KINDS[names.type]}")


def chosen(bound: Bound, codes: Codes) -> Codes:
    """Return the records that are counted, of all records of some persons, and how many are left out."""
    if not codes.rows:
        return Codes(codes.columns, 0)
    encoded = pc.dictionary_encode(codes.names)
    persons = np.asarray(encoded.indices).astype(np.int64)
    names = encoded.dictionary
    known = slice(None) if codes.unknown is None else np.flatnonzero(~codes.unknown)
    columns = [column[known] for column in codes.columns.values()]
    kept = np.zeros(codes.rows, dtype=bool)
    kept[known] = bound.kept(persons[known], lambda place: _bytes(names[place].as_py()), columns)
    out = bound.binned(np.bincount(persons[~kept], minlength=len(names)))
    return Codes({name: column[kept] for name, column in codes.columns.items()}, int(kept.sum()), out=out)


def _bytes(name: str | bytes | int) -> bytes:
    return name if isinstance(name, bytes) else str(name).encode("utf-8", "surrogatepass")


def bounded(bound: Bound, read: Callable[[], Generator[Codes]], limits: Limits) -> Generator[Codes]:
    """Yield the records that are counted, from a table that `read` yields in chunks, the same each time.

    Memory: about `limits.people_bytes`, and the records of one person. A table that does not fit is read once
    more for each share of the persons.
    """
    shares = 0
    held, size = _held(read, limits.people_bytes)
    if held is None:
        shares = -(-3 * size // (2 * limits.people_bytes))  # with room, because no two are of the same size
    elif held:
        yield from _cut(chosen(bound, joined(held)), limits.chunk_rows)
    del held
    for share in range(shares):
        with closing(read()) as chunks:
            parts = [_of_share(chunk, shares, share) for chunk in chunks]
        if parts:
            yield from _cut(chosen(bound, joined(parts)), limits.chunk_rows)


def _held(read: Callable[[], Generator[Codes]], room: int) -> tuple[list[Codes] | None, int]:
    """Return all chunks, or None if they take more than `room` bytes, and how much they take."""
    held: list[Codes] = []
    size = 0
    with closing(read()) as chunks:
        for chunk in chunks:
            size += chunk.size + WORK_BYTES * chunk.rows + (chunk.names.nbytes if chunk.rows else 0)
            if size <= room:
                held.append(chunk)
            else:
                held.clear()
    return (held if size <= room else None), size


def _of_share(codes: Codes, shares: int, share: int) -> Codes:
    """Return the records of every person of one share; any function of the name will do."""
    if not codes.rows:
        return codes
    encoded = pc.dictionary_encode(codes.names)
    own = np.array([hash(name) % shares == share for name in encoded.dictionary.to_pylist()])
    return codes.where(own[np.asarray(encoded.indices)])


def _cut(codes: Codes, rows: int) -> Iterator[Codes]:
    for start in range(0, max(codes.rows, 1), rows):
        size = min(rows, codes.rows - start)
        columns = {name: column[start : start + size] for name, column in codes.columns.items()}
        yield Codes(columns, size, out=None if start else codes.out)


def bounded_in_order(bound: Bound, chunks: Iterable[Codes]) -> Iterator[Codes]:
    """Yield the records that are counted, from chunks that are sorted by name.

    Memory: one chunk and the records of one person. Refuse chunks that are not sorted: a person's records
    must be together.
    """
    rest: Codes | None = None
    for chunk in chunks:
        if not chunk.rows:
            continue
        codes = chunk if rest is None else joined([rest, chunk])
        names = codes.names
        if not pc.all(pc.greater_equal(names[1:], names[:-1]), min_count=0).as_py():
            msg = "data: the engine did not sort the records by person"
            raise DataError(msg)
        last = np.asarray(pc.equal(names, names[-1]))
        yield chosen(bound, codes.where(~last))
        rest = codes.where(last)
    if rest is not None:
        yield chosen(bound, rest)


def joined(held: list[Codes]) -> Codes:
    """Return several chunks as one."""
    if len(held) == 1:
        return held[0]
    columns = {name: np.concatenate([codes.columns[name] for codes in held]) for name in held[0].columns}
    parts = [codes.names for codes in held if codes.rows and codes.names is not None]
    names = pa.concat_arrays(parts) if parts else None
    unknown = None
    if any(codes.unknown is not None for codes in held):
        masks = (np.zeros(c.rows, dtype=bool) if c.unknown is None else c.unknown for c in held)
        unknown = np.concatenate([*masks])
    return Codes(columns, sum(codes.rows for codes in held), names, unknown, summed(held))


def summed(held: Iterable[Codes]) -> Counts | None:
    """Return how many were left out of several chunks, or None for nothing."""
    outs = [codes.out for codes in held if codes.out is not None]
    return np.sum(outs, axis=0, dtype=np.int64) if outs else None
