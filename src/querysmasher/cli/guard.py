"""How commands fail: with one paragraph on standard error and an exit code, without a traceback."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import typer

from querysmasher.cli.exits import ExitCode, exit_code
from querysmasher.cli.output import complain, print_json
from querysmasher.errors import QuerySmasherError

P = ParamSpec("P")


class CutShortError(Exception):
    """An error after the budget was spent, and what became of the release."""

    def __init__(self, error: BaseException, left: str, kept: Path | None) -> None:
        """Take the error, a text about what is left, and the path of the release."""
        super().__init__(left)
        self.error = error
        self.left = left
        self.kept = kept


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Report a command's errors; with its option `as_json`, also as JSON on standard output."""

    @functools.wraps(command)
    def polite(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except (typer.Exit, BrokenPipeError):  # the second: the reader of our output has closed it
            raise
        except CutShortError as error:
            code, message = exit_code(error.error), f"{_sentence(_message(error.error))} {error.left}"
            more = {"measured": True, "kept": None if error.kept is None else str(error.kept)}
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, no traceback
            code, message, more = exit_code(error), _message(error), {}
        else:
            return
        # Here the error is gone, whose frames may contain private data.
        complain(message)
        if options.get("as_json"):
            print_json({"error": {"code": int(code), "message": message, **more}})
        raise typer.Exit(int(code))

    return polite


def _message(error: BaseException) -> str:
    code = exit_code(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; no partial output is left."
    if code is ExitCode.BUG:
        return (
            f"this is a bug in querysmasher, {type(error).__name__} at {_place(error)}. Please "
            "report it. Its message is withheld, because it might quote the data."
        )
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or type(error).__name__}{where}"
    if isinstance(error, QuerySmasherError):
        return ". ".join([error.for_spec(), *getattr(error, "__notes__", ())])
    return str(error) or "not enough memory."


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _place(error: BaseException) -> str:
    """Return the file and line of the error, in this package if possible."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "querysmasher" in Path(frame.filename).parts]
    last = (own or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
