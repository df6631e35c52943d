"""The exit codes, defined in this file only."""

from __future__ import annotations

from enum import IntEnum

from querysmasher.errors import (
    DataError,
    FileError,
    PrivacyError,
    QuerySmasherError,
    TooLargeError,
)


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    BUG = 1
    INPUT = 2
    PRIVACY = 3
    FILES = 4
    DATA = 5
    TOO_LARGE = 6
    NOT_VERIFIED = 7
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.BUG: "a bug in querysmasher: please report it",
    ExitCode.INPUT: "invalid input: an option, the spec, a codebook, or a query that cannot be answered",
    ExitCode.PRIVACY: "refused: the privacy guarantee would not hold, or a check of `verify` failed",
    ExitCode.FILES: "a file is missing or damaged, exists already, or cannot be written",
    ExitCode.DATA: "the table does not fit the schema",
    ExitCode.TOO_LARGE: "too large for every available method, or for the memory of this machine",
    ExitCode.NOT_VERIFIED: "not verified: no check of `verify` failed, but one could not be made",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; no partial output is left",
}

_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (PrivacyError, ExitCode.PRIVACY),
    (FileError, ExitCode.FILES),
    (DataError, ExitCode.DATA),
    (TooLargeError, ExitCode.TOO_LARGE),
    (QuerySmasherError, ExitCode.INPUT),
    (MemoryError, ExitCode.TOO_LARGE),
    (OSError, ExitCode.FILES),
    (ImportError, ExitCode.INPUT),  # an option needs a package that is not installed
)
"""Error types with their exit codes; the first match counts."""


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.BUG)


def listing() -> str:
    """Return the codes and their meanings, one per line."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
