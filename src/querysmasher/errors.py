"""Everything that can go wrong, as one tree.

::

    QuerySmasherError
    ├── SchemaError              (ValueError)   an attribute or a schema that cannot be
    ├── UnknownAttributeError    (KeyError)     a name the schema does not have
    ├── WorkloadError            (ValueError)   queries that cannot be stated
    │   └── PredicateError       (ValueError)   a `where` text that cannot be read
    ├── BudgetError              (ValueError)   a privacy budget that cannot be
    ├── PlanError                (ValueError)   an option of `plan` that cannot be
    │   └── TooLargeError        (ValueError)   a subworkload beyond every solver's reach
    ├── OutsideMeasuredSpaceError(ValueError)   a query the plan cannot answer
    ├── DataError                (ValueError)   a table that does not fit the schema
    ├── PrivacyError             (ValueError)   a measurement that would break the guarantee
    ├── FileError                (ValueError)   a damaged, foreign or half-written file
    ├── SpecError                (ValueError)   a spec file, or a codebook, that cannot be
    └── MissingExtraError        (ImportError)  a library that an extra installs

Messages name the argument, what was given and what is allowed. They never contain data, nor
signs that act on a terminal.

A remedy that names an option names it twice: as an argument, for those who call the library, and as a key
of the spec file, for those who run the command. The error carries both, and each reader sees one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from querysmasher.text import shown


class Remedy(NamedTuple):
    """What to do about an error, in the words of the library (`python`) and of a spec file (`spec`)."""

    python: str
    spec: str


class QuerySmasherError(Exception):
    """Root of every error this library raises on purpose."""

    def __init__(self, problem: str = "", remedy: Remedy | None = None) -> None:
        """Say what is wrong and, in the words of the library, what to do about it."""
        super().__init__(problem if remedy is None else f"{problem}; {remedy.python}")
        self.problem = problem
        self.remedy = remedy

    def for_spec(self) -> str:
        """Return the message with its remedy in the words of a spec file."""
        return str(self) if self.remedy is None else shown(f"{self.problem}; {self.remedy.spec}")

    def __str__(self) -> str:
        """Return the message without control signs, which may have come from a file."""
        return shown(super().__str__())


class SchemaError(QuerySmasherError, ValueError):
    """An attribute or a schema that cannot be."""


class UnknownAttributeError(QuerySmasherError, KeyError):
    """A name the schema does not have."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        """Name the stranger, and the nearest names that exist."""
        known = list(known)
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(map(repr, known[:12])) + (", …" if len(known) > 12 else "")
        self.message = f"unknown attribute {name!r}{hint} (the schema has {listed})"
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message itself: KeyError would print its repr."""
        return shown(self.message)


class WorkloadError(QuerySmasherError, ValueError):
    """Queries that cannot be stated."""


class PredicateError(WorkloadError):
    """A `where` text that cannot be read."""


class BudgetError(QuerySmasherError, ValueError):
    """A privacy budget that cannot be."""


class PlanError(QuerySmasherError, ValueError):
    """An option of `plan` that cannot be."""


class TooLargeError(PlanError):
    """A subworkload, or a result, beyond what any method here can hold."""


class OutsideMeasuredSpaceError(QuerySmasherError, ValueError):
    """A query that the planned measurements cannot answer."""


class DataError(QuerySmasherError, ValueError):
    """A table that does not fit the schema."""


class PrivacyError(QuerySmasherError, ValueError):
    """A measurement that would break the stated guarantee."""


class FileError(QuerySmasherError, ValueError):
    """A damaged, foreign or half-written file."""


class SpecError(QuerySmasherError, ValueError):
    """A spec file, or a codebook, that cannot be."""


class MissingExtraError(QuerySmasherError, ImportError):
    """A library that is not installed; the message names the extra that installs it."""
