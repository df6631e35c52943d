"""The exit codes: the only place where they are given out."""

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
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "all went well",
    ExitCode.BUG: "an error of querysmasher itself: please report it",
    ExitCode.INPUT: "bad input: an option, the spec, a codebook, or a query that cannot be answered",
    ExitCode.PRIVACY: "refused, because the promised privacy would not be kept",
    ExitCode.FILES: "a file is missing, damaged, there already, or cannot be written",
    ExitCode.DATA: "the table does not fit the schema",
    ExitCode.TOO_LARGE: "too large for any method here, or for the memory of this machine",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; nothing is left half-written",
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
    (ImportError, ExitCode.INPUT),  # an option asks for a package that is not installed
)
"""The first kind that fits decides."""


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.BUG)


def listing() -> str:
    """Return the codes and their meanings, a line each."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
