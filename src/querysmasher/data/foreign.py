"""Calls of other libraries, whose error messages may quote the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from querysmasher.errors import DataError, QuerySmasherError, Remedy

P = ParamSpec("P")
T = TypeVar("T")

_noted: ContextVar[list[str] | None] = ContextVar("noted", default=None)


def quietly(doing: str, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of `call`; replace its error by a `DataError` that does not quote data."""
    try:
        return call(*arguments, **options)
    except (QuerySmasherError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a foreign library raises may quote a record
        cause = type(error).__name__
    # Raised here, outside the handler, so that the foreign error is not the context of this one.
    msg = f"data: {doing} failed with {cause}, whose message is withheld because it may quote the data"
    raise DataError(msg)


def quiet_iterator(doing: str, items: Iterable[T]) -> Iterator[T]:
    """Iterate over `items`; replace errors as `quietly` does."""
    iterator = quietly(doing, iter, items)
    while (item := quietly(doing, lambda: next(iterator, None))) is not None:
        yield item


MISSING = Remedy(
    "rename the column, or state what the table has; `qs.check(schema, data)` shows the custodian near names",
    "rename the column, or state what the table has; `querysmasher check` shows the custodian near names",
)


def check_columns(
    names: Sequence[str],
    columns: Sequence[object],
    source: str = "",
    hint: str = "",
    person: str | None = None,
) -> None:
    """Refuse data in which a needed column is missing or repeated.

    The error quotes a column only if it is a spelling variant of the attribute's name, because the first line
    of a file without a header is a record. If there is none, the error ends with `hint`. `source` names one
    of several files.
    """
    where = f" in {source}" if source else ""
    if (noted := _noted.get()) is not None:
        noted[:] = map(str, columns)
    for name in names:
        if columns.count(name) > 1:
            raise DataError(f"data: the column {name!r} occurs more than once{where}")
        if name not in columns:
            alike = [str(c) for c in columns if plain_name(str(c)) == plain_name(name) != ""]
            near = f"; the nearest column is {alike[0]!r}: rename it, or the attribute" if alike else hint
            of_person = "that says to whom a record belongs"
            what = of_person if name == person else "for the attribute of that name"
            raise DataError(f"data: no column {name!r} {what}{where}{near}", None if near else MISSING)


@contextmanager
def noting_columns() -> Iterator[list[str]]:
    """Provide the list of the columns of the table last opened in this context, for `check` only.

    Errors do not contain it, because it may be a record.
    """
    columns: list[str] = []
    token = _noted.set(columns)
    try:
        yield columns
    finally:
        _noted.reset(token)


def plain_name(name: str) -> str:
    """Return a name in lower case, with letters and digits only."""
    return "".join(filter(str.isalnum, name.casefold()))
