"""The errors of this library, as one tree.

Each also is the builtin error that a user would expect: `ValueError`, `KeyError`, …

Messages name the argument, what was given and what is allowed, and show what to write instead. They never
contain data or control characters: `as_given` describes what a user passed without quoting a table.

A remedy names an option in two forms: as an argument, for users of the library, and as a key of the spec
file, for users of the command. The error carries both, and each reader sees one.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, TypeVar, cast

from querysmasher.formatting import shown

C = TypeVar("C", bound=Callable[..., Any])

MOST_COMPARED = 10_000
"""Maximum number of names among which the nearest is looked for: the search takes a second for 100,000."""


class Remedy(NamedTuple):
    """How to resolve an error, with the names of the library (`python`) and of a spec file (`spec`)."""

    python: str
    spec: str


class Worded:
    """A message that states a problem and perhaps a remedy, without control characters."""

    def __init__(self, problem: str = "", remedy: Remedy | None = None) -> None:
        """State the problem and, with the names of the library, the remedy."""
        self.message = problem if remedy is None else f"{problem}; {remedy.python}"
        super().__init__(self.message)  # type: ignore[call-arg]  # of an exception
        self.problem = problem
        self.remedy = remedy

    def for_spec(self) -> str:
        """Return the message with its remedy for a spec file."""
        return str(self) if self.remedy is None else shown(f"{self.problem}; {self.remedy.spec}")

    def __str__(self) -> str:
        """Return the message, not its repr as a KeyError does, without control characters of a file."""
        return shown(self.message)


class QuerySmasherError(Worded, Exception):
    """Base class of every error that this library raises on purpose."""


class QuerySmasherWarning(Worded, UserWarning):
    """Valid input that is probably a mistake."""


class ArgumentError(QuerySmasherError, TypeError):
    """An argument that is missing, unknown or of an invalid type."""


class UnknownNameError(QuerySmasherError, AttributeError):
    """A name that an object or this library does not have."""


class SchemaError(QuerySmasherError, ValueError):
    """An invalid attribute or schema."""


class UnknownAttributeError(QuerySmasherError, KeyError):
    """A name that is not in the schema."""

    def __init__(self, name: object, known: Iterable[str], remedy: str = "") -> None:
        """Name the unknown attribute, and the nearest existing names."""
        listed = list(known)
        problem = f"unknown attribute {as_given(name)}{suggestion(name, listed)}{remedy}"
        if not isinstance(name, str):
            problem = f"attribute: expected a name, got {as_given(name)}{remedy}"
        super().__init__(f"{problem} (the schema has {some(map(repr, listed), 12)})")


class UnknownQueryError(QuerySmasherError, KeyError):
    """A query that is not among the answers."""


class WorkloadError(QuerySmasherError, ValueError):
    """An invalid workload."""


class OutOfRangeError(WorkloadError, IndexError):
    """An index of a figure or an answer that does not exist."""


class PredicateError(WorkloadError):
    """An invalid predicate."""


class BudgetError(QuerySmasherError, ValueError):
    """An invalid privacy budget."""


class BudgetArgumentError(BudgetError, ArgumentError):
    """An argument of a privacy budget that is missing, unknown or of an invalid type."""


class PlanError(QuerySmasherError, ValueError):
    """An invalid option of `plan`, or a plan that cannot be made or measured."""


class TooLargeError(PlanError):
    """A workload or a result that is too large for every available method."""


class OutsideMeasuredSpaceError(QuerySmasherError, ValueError):
    """A query that the planned measurements cannot answer."""


class DataError(QuerySmasherError, ValueError):
    """A table that does not fit the schema or cannot be read, or an invalid option for reading it."""


class PrivacyError(QuerySmasherError, ValueError):
    """A measurement that would violate the stated guarantee."""


class FileError(QuerySmasherError, ValueError):
    """A file that is missing, damaged or foreign, or that cannot be written."""


class SpecError(QuerySmasherError, ValueError):
    """An invalid spec file or codebook."""

    def __init__(self, problem: str, problems: Iterable[tuple[str, str]] = ()) -> None:
        """State the problem; `problems` are its parts, each with the key that it is about, if known."""
        super().__init__(problem)
        self.problems = tuple(problems)


class MissingExtraError(QuerySmasherError, ImportError):
    """A missing library; the message names the extra that installs it."""


def as_given(value: object) -> str:
    """Describe what a user passed: a single value by its repr, anything else by its type: it may be data.

    >>> as_given("0.5"), as_given([1, 2]), as_given(int)
    ("'0.5'", 'a list', 'the class int')
    """
    scalar = value is None or isinstance(value, str | bytes | bool | int | float | date | Fraction)
    if scalar or (type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:76]}…{text[-1]}"
    if isinstance(value, list | tuple | dict | set) and not value:
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return _with_article("function" if callable(value) else type(value).__name__)


def not_one_of(allowed: Collection[str], given: object, written: str | None = None) -> str:
    """State what was expected, what was given (in the form `written`), and the nearest name.

    >>> not_one_of(["mean", "worst"], "wurst")
    "expected one of mean, worst, got 'wurst'; did you mean 'worst'?"
    """
    got = as_given(given) if written is None else written
    return f"expected one of {', '.join(allowed)}, got {got}{suggestion(given, allowed)}"


def suggestion(given: object, allowed: Collection[str]) -> str:
    """Return a hint at the nearest name, or nothing.

    >>> suggestion("agee", ["sex", "age"])
    "; did you mean 'age'?"
    """
    near = nearest(given, allowed)
    return f"; did you mean {near!r}?" if near is not None else ""


def nearest(given: object, allowed: Collection[str]) -> str | None:
    """Return the name nearest to what was given, whatever its case, or None if none is near."""
    if not isinstance(given, str) or len(allowed) > MOST_COMPARED:
        return None
    lower = {name.casefold(): name for name in reversed(list(allowed))}  # the first of those that are alike
    near = difflib.get_close_matches(given.casefold(), list(lower), n=1)
    return lower[near[0]] if near else None


def some(listed: Iterable[str], most: int = 8) -> str:
    """Join strings by commas; of many, the first ones and the last.

    >>> some("abcdefg", 4)
    'a, b, c, …, g'
    """
    words = list(listed)
    return ", ".join(words if len(words) <= most else [*words[: most - 1], "…", words[-1]])


def as_ratio(value: object) -> str:
    """Return how to write a percentage as a number between 0 and 1, if what was given may be one.

    >>> as_ratio(95), as_ratio("95%"), as_ratio(1000)
    ('; write 0.95 for 95%', '; write 0.95 for 95%', '')
    """
    try:
        percentage = float(value.rstrip(" %") if isinstance(value, str) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return ""
    is_one = not isinstance(value, bool) and 2 <= percentage < 100
    return f"; write {percentage / 100:g} for {percentage:g}%" if is_one else ""


def warn(problem: str, remedy: Remedy) -> None:
    """Warn the user at the line that called this library."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("querysmasher."):
        level, frame = level + 1, frame.f_back
    warnings.warn(QuerySmasherWarning(problem, remedy), stacklevel=level)


def explained(example: str, error: type[ArgumentError] = ArgumentError) -> Callable[[C], C]:
    """Decorate a function or a class: a call with wrong arguments raises an error that shows `example`."""

    def decorate(called: C) -> C:
        function: Callable[..., Any] = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]

        @functools.wraps(function)
        def explaining(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except TypeError:
                problem = _misfit(function, arguments, options)
                if not problem:
                    raise  # the arguments fit: the function itself raised it
            raise error(f"{problem}; write {example}")

        if not isinstance(called, type):
            return cast("C", explaining)
        called.__init__ = explaining  # type: ignore[misc]
        return called

    return decorate


class Explained:
    """Base of classes that say what to write instead of an unknown name, of `+` and of `*`."""

    _instead: ClassVar[Mapping[str, str]] = {}
    """What to write, by name; "+" and "*" are names, and "" stands for all others."""

    if not TYPE_CHECKING:  # a type checker would take every name as known

        def __getattr__(self, name: str) -> Any:
            """Raise an error with the nearest name."""
            names = [known for known in dir(self) if not known.startswith("_")]
            if name.startswith("_") or name in names:  # an attribute whose getter failed
                return object.__getattribute__(self, name)
            hint = self._hint(name) or suggestion(name, names) or self._hint("")
            raise UnknownNameError(f"{type(self).__name__} has no {name!r}{hint}")

    def __add__(self, other: object) -> Any:
        """Refuse to add."""
        self._refuse("+", other)

    def __mul__(self, other: object) -> Any:
        """Refuse to multiply."""
        self._refuse("*", other)

    __radd__, __rmul__ = __add__, __mul__

    def _refuse(self, sign: str, other: object) -> NoReturn:
        problem = f"{sign}: not defined for {_with_article(type(self).__name__)} and {as_given(other)}"
        raise ArgumentError(problem + self._hint(sign))

    def _hint(self, name: str) -> str:
        return f"; {self._instead[name]}" if name in self._instead else ""


def _with_article(noun: str) -> str:
    return f"{'an' if noun.lower().startswith(('a', 'e', 'i', 'o', 'ndarray')) else 'a'} {noun}"


def _misfit(function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    """Return in words how arguments do not fit a function, and which ones it has; nothing if they fit."""
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments, **options)
    except TypeError as misfit:
        problem = str(misfit)
    else:
        return ""
    known = [p for name, p in signature.parameters.items() if name not in ("self", "cls")]
    names = [p.name for p in known if p.kind is not p.KEYWORD_ONLY]
    named = [p.name for p in known if p.kind is p.KEYWORD_ONLY]
    if not any(p.kind is p.VAR_KEYWORD for p in known):
        for unknown in [option for option in options if option not in names + named]:
            problem = f"unknown argument {unknown!r}{suggestion(unknown, names + named)}"
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    allowed = "; by name: ".join(", ".join(listed) for listed in (names, named) if listed) or "none"
    return f"{called}: {problem} (arguments: {allowed})"
