"""Functions that read data fail without showing it: their frames are cleared before an error leaves them.

Error reporters (pytest, rich, Sentry, a debugger) print the local variables of every frame of an error, and
the errors that caused it. Here these variables are records and exact counts.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def scrubbed(function: Callable[P, T]) -> Callable[P, T]:
    """Remove data from the errors that leave `function`.

    Formal guarantee: no frame of an error that leaves the function, from its arguments down, keeps a
    variable, and no inner error remains as its cause or context: foreign libraries quote records in their
    messages. A `MemoryError` is replaced by one without details, which may reveal the number of records.
    Messages of other errors are unchanged.
    """

    @functools.wraps(function)
    def guarded(*arguments: P.args, **options: P.kwargs) -> T:
        before = sys.exception()
        try:
            return function(*arguments, **options)
        except MemoryError as error:
            scrub(error, before)
        except BaseException as error:
            scrub(error, before)
            raise
        finally:
            del arguments, options  # this frame is shown as well
        msg = "data: not enough memory to measure the table"
        raise MemoryError(msg)  # raised here so that the first one is not its context

    return guarded


def scrub(error: BaseException, before: BaseException | None = None) -> None:
    """Clear all frames of an error, and remove its causes, back to the error `before`."""
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        inner = queue.pop()
        if inner is None or inner is before or any(inner is other for other in seen):
            continue
        seen.append(inner)
        traceback.clear_frames(inner.__traceback__)
        queue += [inner.__cause__, inner.__context__]
        if isinstance(inner, BaseExceptionGroup):
            queue += inner.exceptions
    for inner in seen:
        inner.__cause__ = None
        inner.__context__ = None
    error.__context__ = before
    error.__suppress_context__ = False
