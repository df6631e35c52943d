"""To whom records belong: the names of persons, and streams from which at most k records of each are kept.

Names are integers, strings or bytes. All names of a table are of one kind, and are compared exactly. An
integer is the same in every width, and as a float or a decimal without a fraction.

A record without a name (null, NaN, an empty field of a CSV file) cannot be attributed to a person, so no
bound could hold for that person: the table is refused, or the record is dropped, like one with a missing
value. A name that has lost digits or characters counts as missing, because several persons may have what is
left of it: a float of at least 2^53, or 2^24 in 32 bits, where floats do not distinguish all integers; a
string that was written from such a float ("4.611686018427388e+18"); a string with the replacement character.

If records are dropped, one record must not decide whether the table is refused. Each Python object is then
named by itself, and names that are written alike are the same: 7, "7" and b"7" are one person.
"""

from __future__ import annotations

import decimal
import math
import re
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.data.counting import Codes, Limits
from querysmasher.data.encoding import (
    EXACT,
    EXACT_FLOATS,
    INT64,
    MISSING_TYPES,
    Strings,
    kind_of,
    plain_number,
)
from querysmasher.errors import DataError
from querysmasher.privacy.bound import Bound

WORK_BYTES = 40
"""Bytes per record for choosing which ones are counted, besides its codes and the name of its person."""

LOST = (
    r"^[+-]?(?:[0-9]+(?:[.,][0-9]+)?[eE]\+[0-9]+|[0-9]+[.,][0-9]+[eE][0-9]+|(?:9[0-9]{15}|[0-9]{17,})[.,]0+)$"
    "|\N{REPLACEMENT CHARACTER}"
)
"""Strings that have lost digits or characters; "7E12" may be a name, "7E+12" and "7.0E12" are floats."""

AMBIGUOUS = "so several persons may share a name; store names as integers or strings from the start"

KINDS = {
    pa.int64(): "integers",
    pa.uint64(): "unsigned 64-bit integers",
    pa.large_string(): "strings",
    pa.large_binary(): "bytes",
}
"""The kinds of names, by the Arrow type that holds them."""


def can_name(kind: Any) -> bool:
    """Return whether a column of this Arrow type can hold names of persons."""
    if isinstance(kind, pa.BaseExtensionType):  # a UUID, for example
        return can_name(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return can_name(kind.value_type)
    return kind_of(kind) in (str, float) or pa.types.is_null(kind) or _is_bytes(kind)


def names_of(column: Any, title: str, drop: bool = False) -> Any:
    """Return a column called `title` as an Arrow array of one of `KINDS`; a missing name is null.

    An unsuitable name is null with `drop`; otherwise the table is refused.
    """
    if isinstance(column, Strings):
        names = column.column
        return _strings(pc.if_else(pc.equal(names, ""), pa.scalar(None, names.type), names), title, drop)
    if isinstance(column, np.ndarray):
        return pa.array(map(_name, column), pa.large_binary()) if drop else _objects(column, title)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    types, kind = pa.types, column.type
    if not can_name(kind):
        raise _refused(title, re.split(r"[<(\[]", str(kind))[0])
    if isinstance(kind, pa.BaseExtensionType):
        return names_of(column.storage, title, drop)
    if types.is_dictionary(kind):
        return names_of(column.dictionary_decode(), title, drop)
    if kind_of(kind) is str:
        return _strings(column.cast(pa.large_string()), title, drop)
    if types.is_floating(kind) or types.is_decimal(kind):
        return (_floats if types.is_floating(kind) else _decimals)(column, title, drop)
    if kind == pa.uint64():
        return column
    return column.cast(pa.large_binary() if _is_bytes(kind) else pa.int64())


def _is_bytes(kind: Any) -> bool:
    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _strings(names: Any, title: str, drop: bool) -> Any:
    """Return strings that have lost no digits, as bytes if records are dropped: some may not be UTF-8."""
    lost = pc.match_substring_regex(names, pattern=LOST).fill_null(False)
    if pc.any(lost, min_count=0).as_py() and not drop:
        raise _refused(title, f"strings that have lost digits or characters, {AMBIGUOUS}")
    names = names.cast(pa.large_binary()) if drop else names
    return pc.if_else(lost, pa.scalar(None, names.type), names)


def _floats(column: Any, title: str, drop: bool) -> Any:
    """Return floats that are integers as integers."""
    values = np.asarray(column.cast(pa.float64()).fill_null(np.nan), dtype=np.float64)
    limit = EXACT[str(column.type)]
    whole = (np.abs(values) < limit) & (values == np.floor(values))  # not NaN, which is missing
    if not drop and not (whole | np.isnan(values)).all():
        raise _refused(title, _not_integers(limit))
    return pa.array(np.where(whole, values, 0.0).astype(np.int64), mask=~whole)


def _decimals(column: Any, title: str, drop: bool) -> Any:
    """Return decimals that are integers as integers."""
    try:
        return column.cast(pa.decimal256(76, column.type.scale)).cast(pa.int64())  # narrow ones have no cast
    except pa.ArrowInvalid:  # its message quotes the number
        pass
    values = [None if value is None else plain_number(value) for value in column.to_pylist()]
    names = [value if type(value) is int and value in INT64 else None for value in values]
    if names.count(None) > column.null_count and not drop:
        raise _refused(title, "decimals that are not 64-bit integers")
    return pa.array(names, pa.int64())


def _objects(column: NDArray[np.object_], title: str) -> Any:
    """Return Python objects of one kind."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in column]
    plain = [None if _is_missing(value) else value for value in plain]
    kinds = {type(value) for value in plain if value is not None}
    if kinds <= {int, float}:
        numbers = [None if name is None else int(name) for name in map(_name, column)]
        if numbers.count(None) > plain.count(None):
            raise _refused(title, _not_integers(min(map(_exact, column))))
        if not all(number is None or number in INT64 for number in numbers):
            raise _refused(title, "integers beyond 64 bits")
        return pa.array(numbers, pa.int64())
    if kinds in ({uuid.UUID}, {str}):
        strings = [None if value is None else str(value) for value in plain]
        return _strings(pa.array(strings, pa.large_string()), title, drop=False)
    if kinds == {bytes}:
        return pa.array(plain, pa.large_binary())
    raise _refused(title, "values of another kind, or of several kinds")


def _name(value: Any) -> bytes | None:
    """Return the name that a Python object states, or None if it states none."""
    exact = _exact(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, decimal.Decimal):
        value = plain_number(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < exact:
        value = int(value)
    if isinstance(value, str):
        return None if re.search(LOST, value) else _bytes(value)
    named = isinstance(value, int | bytes | uuid.UUID) and not isinstance(value, bool)
    return _bytes(value) if named else None


def _exact(value: Any) -> int:
    """Return the integer from which on floats of this width do not distinguish all integers."""
    narrow = {np.float16: EXACT["halffloat"], np.float32: EXACT["float"]}
    return narrow.get(type(value), EXACT_FLOATS)


def _not_integers(exact: int) -> str:
    power = exact.bit_length() - 1
    return f"numbers that are not integers below 2^{power}; floats lose digits from there on, {AMBIGUOUS}"


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in MISSING_TYPES


def _refused(title: str, got: str) -> DataError:
    return DataError(f"person: expected a column of integers, strings or bytes in {title!r}, got {got}")


def check_kind(kinds: list[str], names: Any, title: str, is_stated: bool) -> None:
    """Note the kind of names, and refuse a second kind in the table: one person would have two names.

    Names that are all missing have a kind only if the type of the column states it.
    """
    kind = KINDS[names.type]
    if kind not in kinds and (is_stated or names.null_count < len(names)):
        kinds.append(kind)
    if len(kinds) > 1:
        raise _refused(title, f"both {kinds[0]} and {kinds[1]}")


def chosen(bound: Bound, codes: Codes) -> Codes:
    """Choose the records that are counted, from all records of some persons; note how many are left out."""
    if not codes.rows:
        return Codes(codes.columns, 0)
    encoded = pc.dictionary_encode(codes.names)
    persons = np.asarray(encoded.indices).astype(np.int64)
    names = encoded.dictionary
    known = np.flatnonzero(~np.asarray(codes.unknown))
    columns = [column[known] for column in codes.columns.values()]
    kept = np.zeros(codes.rows, dtype=bool)
    kept[known] = bound.kept(persons[known], lambda person: _bytes(names[person].as_py()), columns)
    out = bound.binned(np.bincount(persons[~kept], minlength=len(names)))
    return Codes({name: column[kept] for name, column in codes.columns.items()}, int(kept.sum()), out=out)


def _bytes(name: str | bytes | int | uuid.UUID) -> bytes:
    return name if isinstance(name, bytes) else str(name).encode("utf-8", "surrogatepass")


def bounded(bound: Bound, read: Callable[[], Generator[Codes]], limits: Limits) -> Generator[Codes]:
    """Yield the records that are counted, from a table that each call of `read` yields in the same chunks.

    Memory: about `limits.people_bytes`, and the records of one person. For a table that does not fit, the
    persons are divided into parts, and the table is read once more for each part.
    """
    held: list[Codes] = []
    size = 0
    with closing(read()) as chunks:
        for chunk in chunks:
            size += chunk.size + WORK_BYTES * chunk.rows + (chunk.names.nbytes if chunk.rows else 0)
            held = [*held, chunk] if size <= limits.people_bytes else []
    # More parts than needed, because they are not of the same size.
    parts = 1 if size <= limits.people_bytes else -(-3 * size // (2 * limits.people_bytes))
    for part in range(parts):
        if parts > 1:
            with closing(read()) as chunks:
                held = [_of_part(chunk, parts, part) for chunk in chunks]
        if held:
            yield from cut(chosen(bound, joined(held)), limits.chunk_rows)


def _of_part(codes: Codes, parts: int, part: int) -> Codes:
    """Return the records of one part of the persons, chosen by a hash of the name."""
    if not codes.rows:
        return codes
    encoded = pc.dictionary_encode(codes.names)
    is_in = np.array([hash(name) % parts == part for name in encoded.dictionary.to_pylist()])
    return codes.where(is_in[np.asarray(encoded.indices)])


def cut(codes: Codes, rows: int) -> Iterator[Codes]:
    """Yield the records in chunks of at most `rows`. The first, perhaps empty, says what was left out."""
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
            raise DataError("data: the engine did not sort the records by person")
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
    masks = [codes.unknown for codes in held if codes.unknown is not None]
    unknown = np.concatenate(masks) if masks else None
    outs = [codes.out for codes in held if codes.out is not None]
    out = np.add.reduce(outs) if outs else None
    return Codes(columns, sum(codes.rows for codes in held), names, unknown, out)
