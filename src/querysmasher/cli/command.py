"""How commands are declared and how they end: options, exit codes, and errors without a traceback."""

from __future__ import annotations

import enum
import functools
import inspect
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import typer

from querysmasher.cli.output import complain, print_json
from querysmasher.errors import DataError, FileError, PrivacyError, QuerySmasherError, TooLargeError
from querysmasher.formats import FORMATS

SPEC = Path("release.toml")
"""The default spec file."""

SpecPath = Annotated[Path, typer.Argument(help="The spec file.", show_default=True)]
ReleasePath = Annotated[Path, typer.Argument(help="A folder that `querysmasher release` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
DataPath = Annotated[Path | None, typer.Option(help="The table, instead of the one in the spec.")]
OutPath = Annotated[Path | None, typer.Option(help="The folder, instead of the one in the spec.")]
Resume = Annotated[
    Path | None, typer.Option(help="Complete the draft of an unfinished run, without measuring again.")
]
Seed = Annotated[
    int | None,
    typer.Option(help="For tests only: a release with a seed protects nobody, and says so.", min=0),
]
ErrorShare = Annotated[
    float | None,
    typer.Option(help="Fraction of the budget for the errors of estimates, 0 to 0.5, instead of the spec's."),
]
Number = Annotated[float | None, typer.Option(help="With `create`: the limit.")]


if TYPE_CHECKING:
    AnswerFormat: TypeAlias = str
else:
    AnswerFormat = enum.StrEnum("AnswerFormat", {name: name for name in (*(f.name for f in FORMATS), "none")})


class Action(enum.StrEnum):
    """What to do with a ledger."""

    show = "show"
    verify = "verify"
    create = "create"


class ExitCode(enum.IntEnum):
    """How a command ended, and what that means."""

    OK = 0, "success"
    BUG = 1, "a bug in querysmasher: please report it"
    INPUT = 2, "invalid input: an option, the spec, a codebook, or a query that cannot be answered"
    PRIVACY = 3, "refused: the privacy guarantee would not hold, or a check of `verify` failed"
    FILES = 4, "a file is missing or damaged, exists already, or cannot be written"
    DATA = 5, "the table does not fit the schema"
    TOO_LARGE = 6, "too large for every available method, or for the memory of this machine"
    NOT_VERIFIED = 7, "not verified: no check of `verify` failed, but one could not be made"
    INTERRUPTED = 130, "interrupted by Ctrl-C; no partial output is left"

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Attach the meaning to the code."""
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code


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


class CutShortError(Exception):
    """An error after the budget was spent, and what became of the release."""

    def __init__(self, error: BaseException, left: str, kept: Path | None) -> None:
        """Store the error, a sentence about the release, and the path where the release is kept."""
        super().__init__(left)
        self.error = error
        self.left = left
        self.kept = kept


def command(
    app: typer.Typer, module: str, short_help: str, *examples: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command with the options in a signature; the function of that name in a `cli` module runs it.

    The module is imported when the command runs, so that help starts fast. Every command has the option
    `as_json`. Errors are reported in one paragraph on standard error; with `as_json`, also as JSON on
    standard output.
    """

    def add(declared: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(declared)
        def run(**options: Any) -> None:
            try:
                getattr(import_module(f"querysmasher.cli.{module}"), declared.__name__)(**options)
            except (typer.Exit, BrokenPipeError):  # the second: the reader of our output has closed it
                raise
            except CutShortError as error:
                code = exit_code(error.error)
                message = f"{message_of(error.error).removesuffix('.')}. {error.left}"
                more = {"measured": True, "kept": None if error.kept is None else str(error.kept)}
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a user sees no traceback
                code, message, more = exit_code(error), message_of(error), {}
            else:
                return
            # By now the error is released: its frames may contain private data.
            complain(message)
            if options["as_json"]:
                print_json({"error": {"code": int(code), "message": message, **more}})
            raise typer.Exit(int(code))

        signature = inspect.signature(declared, eval_str=True)
        as_json = inspect.Parameter(
            "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson
        )
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), as_json])  # type: ignore[attr-defined]
        epilog = "\n".join(["\b\nExamples:", *(f"  {line}" for line in examples)])
        return app.command(declared.__name__, short_help=short_help, epilog=epilog)(run)

    return add


def message_of(error: BaseException) -> str:
    """Return what a user is told of an error; a bug's message is withheld, because it might quote data."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; no partial output is left."
    if exit_code(error) is ExitCode.BUG:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "querysmasher" in Path(frame.filename).parts]
        last = (ours or frames)[-1]
        line = f"{Path(last.filename).name}:{last.lineno}"
        return (
            f"this is a bug in querysmasher, {type(error).__name__} at {line}. Please report it. "
            "Its message is withheld, because it might quote the data."
        )
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or type(error).__name__}{where}"
    if isinstance(error, QuerySmasherError):
        return ". ".join([error.for_spec(), *getattr(error, "__notes__", ())])
    return str(error) or "not enough memory."
