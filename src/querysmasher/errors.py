"""The errors of this library, as one tree.

::

    QuerySmasherError
    ├── SchemaError              (ValueError)   an invalid attribute or schema
    ├── UnknownAttributeError    (KeyError)     a name that is not in the schema
    ├── UnknownQueryError        (KeyError)     a query that is not among the answers
    ├── WorkloadError            (ValueError)   an invalid workload
    │   ├── PredicateError       (ValueError)   an invalid predicate
    │   └── OutOfRangeError      (IndexError)   an index of a figure or an answer that does not exist
    ├── BudgetError              (ValueError)   an invalid privacy budget
    ├── PlanError                (ValueError)   an invalid option of `plan`
    │   └── TooLargeError        (ValueError)   a workload or a result that is too large
    ├── OutsideMeasuredSpaceError(ValueError)   a query that the plan cannot answer
    ├── DataError                (ValueError)   a table that does not fit the schema
    ├── PrivacyError             (ValueError)   a measurement that would violate the guarantee
    ├── FileError                (ValueError)   a damaged, foreign or incomplete file
    ├── SpecError                (ValueError)   an invalid spec file or codebook
    └── MissingExtraError        (ImportError)  a missing library, which an extra installs

Messages name the argument, what was given and what is allowed. They never contain data or control
characters.

A remedy names an option in two forms: as an argument, for users of the library, and as a key of the spec
file, for users of the command. The error carries both, and each reader sees one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from querysmasher.text import shown


class Remedy(NamedTuple):
    """How to resolve an error, with the names of the library (`python`) and of a spec file (`spec`)."""

    python: str
    spec: str


class QuerySmasherError(Exception):
    """Base class of every error that this library raises on purpose."""

    def __init__(self, problem: str = "", remedy: Remedy | None = None) -> None:
        """State the problem and, with the names of the library, the remedy."""
        super().__init__(problem if remedy is None else f"{problem}; {remedy.python}")
        self.problem = problem
        self.remedy = remedy

    def for_spec(self) -> str:
        """Return the message with its remedy for a spec file."""
        return str(self) if self.remedy is None else shown(f"{self.problem}; {self.remedy.spec}")

    def __str__(self) -> str:
        """Return the message without control characters, which may have come from a file."""
        return shown(super().__str__())


class SchemaError(QuerySmasherError, ValueError):
    """An invalid attribute or schema."""


class UnknownAttributeError(QuerySmasherError, KeyError):
    """A name that is not in the schema."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        """Name the unknown attribute, and the nearest existing names."""
        known = list(known)
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(map(repr, known[:12])) + (", …" if len(known) > 12 else "")
        self.message = f"unknown attribute {name!r}{hint} (the schema has {listed})"
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message itself: KeyError would print its repr."""
        return shown(self.message)


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


class PlanError(QuerySmasherError, ValueError):
    """An invalid option of `plan`."""


class TooLargeError(PlanError):
    """A workload or a result that is too large for every available method."""


class OutsideMeasuredSpaceError(QuerySmasherError, ValueError):
    """A query that the planned measurements cannot answer."""


class DataError(QuerySmasherError, ValueError):
    """A table that does not fit the schema."""


class PrivacyError(QuerySmasherError, ValueError):
    """A measurement that would violate the stated guarantee."""


class FileError(QuerySmasherError, ValueError):
    """A damaged, foreign or incomplete file."""


class SpecError(QuerySmasherError, ValueError):
    """An invalid spec file or codebook."""


class MissingExtraError(QuerySmasherError, ImportError):
    """A missing library; the message names the extra that installs it."""
