"""Functions that touch data fail without showing any: frames are cleared before an error leaves them.

Reporters of errors (pytest, rich, Sentry, a debugger) print the local variables of every frame that an
error went through, and the errors it came from. Here these variables are records and exact counts.
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
    """Let errors out of `function` only when nothing of the data hangs on them.

    Formal guarantee: no frame of an error that leaves the function, from its arguments down, holds a
    variable, and no error that came up inside hangs on it as cause or context: foreign libraries quote
    records in their messages. A `MemoryError` is replaced by one without details, which may tell the number
    of records. Messages of other errors are left as they are.
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
            del arguments, options  # this frame is shown, too
        msg = "data: there is not enough memory to measure the table"
        raise MemoryError(msg)  # raised out here so that the first one is not even its context

    return guarded


def scrub(error: BaseException, before: BaseException | None = None) -> None:
    """Clear all frames behind an error, and cut off what it came from, back to the error `before`."""
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is None or one is before or any(one is other for other in seen):
            continue
        seen.append(one)
        traceback.clear_frames(one.__traceback__)
        queue += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            queue += one.exceptions
    for one in seen:
        one.__cause__ = None
        one.__context__ = None
    error.__context__ = before
    error.__suppress_context__ = False
