"""The unit of privacy: which tables must be hard to distinguish, and how far their answers differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.errors import BudgetError, as_given, suggestion
from querysmasher.schema import Schema

NEIGHBOURS = ("add_remove", "replace_one")


AttributeSets = tuple[tuple[str, ...], ...]
"""Sets of attributes, by name."""


@dataclass(frozen=True)
class Known:
    """The attribute sets whose counts are the same in all neighbours, and public; none contains another.

    The empty set stands for the number of records. If it is not public, nothing is.
    """

    sets: tuple[frozenset[int], ...] = ()

    def __contains__(self, attributes: Collection[int]) -> bool:
        """Return whether the counts on some attributes are public."""
        return any(known.issuperset(attributes) for known in self.sets)

    @property
    def agreed(self) -> frozenset[int]:
        """The attributes of which a record and the one that replaces it have the same values."""
        return frozenset[int]().union(*self.sets)

    def unprotected(self, attributes: Collection[int]) -> bool:
        """Return whether the counts on some attributes are the same in all neighbours, public or not."""
        return bool(self.sets) and self.agreed.issuperset(attributes)


@dataclass(frozen=True)
class Unit:
    """Which tables are neighbours.

    With exact counts, a record is replaced by one that has the same values of all attributes in `exact`, and
    so both tables have the same counts on every set in `exact`. Of two tables that agree on these counts and
    differ in one replaced record, nothing else can hold: the counts on a set change by e_v - e_u, which is
    zero only if u and v agree on it. The records of one person are replaced in this way one by one: two
    records that exchange what is public make no neighbours, although the counts stay the same.

    Args:
        neighbours: "add_remove" (one table has additional records) or "replace_one" (records differ; their
            number is the same, and public).
        records_per_person: maximum number of records of one person, all of which may differ.
        exact: attribute sets, by name, whose counts are public and the same in neighbours ("replace_one").
    """

    neighbours: str = "add_remove"
    records_per_person: int = 1
    exact: AttributeSets = ()

    def __post_init__(self) -> None:
        """Check both, and convert the number to a plain integer."""
        if not isinstance(self.neighbours, str) or self.neighbours not in NEIGHBOURS:
            msg = f"neighbours: expected 'add_remove' or 'replace_one', got {as_given(self.neighbours)}"
            msg += suggestion(self.neighbours, NEIGHBOURS)
            raise BudgetError(msg)
        records = self.records_per_person
        whole = isinstance(records, int | np.integer) and not isinstance(records, bool)
        if not whole or not 1 <= records <= 10**9:
            msg = f"records_per_person: expected an integer from 1 to 10^9, got {as_given(records)}"
            raise BudgetError(msg)
        object.__setattr__(self, "neighbours", str(self.neighbours))
        object.__setattr__(self, "records_per_person", int(records))
        object.__setattr__(self, "exact", _maximal(self.exact))
        if self.exact and not self.total_is_public:
            msg = "exact: expected neighbours='replace_one', because exact counts make the number of records "
            raise BudgetError(f"{msg}public, got {self.neighbours!r}")

    @property
    def without_exact(self) -> Unit:
        """The same unit without exact counts: its neighbours include those of this one."""
        return replace(self, exact=())

    def known(self, schema: Schema) -> Known:
        """Return the attribute sets of a schema whose counts are public."""
        sets = [frozenset(schema.positions(names)) for names in self.exact]
        return Known(tuple(sets or [frozenset()]) if self.total_is_public else ())

    @property
    def total_is_public(self) -> bool:
        """Whether neighbours have the same number of records, so that it need not be protected."""
        return self.neighbours == "replace_one"

    def change(self, attributes: Collection[object] | None = None) -> int:
        """Return the factor by which max_j ‖B_j‖² bounds ‖B (x - x')‖² over neighbours x, x'.

        B_j is the j-th column of a strategy B on some attributes; on none, B measures only the number of
        records. Adding or removing r records moves Bx by at most r max_j ‖B_j‖, replacing them by at most
        twice that, and the number of records not at all. For replaced records, `pairs` has closer bounds.
        """
        if not self.total_is_public:
            return self.records_per_person**2
        total = attributes is not None and not attributes
        return 0 if total else 4 * self.records_per_person**2

    @property
    def exact_words(self) -> str:
        """By which attributes counts are exact, in words."""
        return _listed([f"by {' × '.join(names)}" for names in self.exact])

    @property
    def agreed_words(self) -> str:
        """The attributes of which a replaced record keeps the value, in words."""
        return _listed(sorted({name for names in self.exact for name in names}))

    def describe(self, person: str | None = None) -> str:
        """Return in plain words for which tables a guarantee holds, and whom it protects.

        Args:
            person: the column that says to whom a record belongs, if the number of records per person was
                bounded by counting no more of them.
        """
        change, public = "adding or removing", ""
        if self.total_is_public:
            change, public = "replacing", ", with the same, public number of records"
        whom, unit = "one record", "the record. A person with several records is protected less"
        if self.records_per_person > 1:
            whom = f"all records of one person, who has at most {self.records_per_person}"
            unit = "the person"
        if person is not None:
            counted = "1 is" if self.records_per_person == 1 else f"{self.records_per_person} are"
            whom = f"all records of one person (a value of {person!r}), of which at most {counted} counted"
            unit = "the person, however many records a person has"
        said = ""
        if self.exact:
            each = " by one" if self.records_per_person == 1 else ", each by one"
            names, by = self.agreed_words, self.exact_words
            public = f"{each} with the same {names}, and so have the same exact counts {by}"
            said = f" What a record says about {names} is not protected."
        return (
            f"for any two tables that differ by {change} {whom}{public}. The unit of privacy is {unit}.{said}"
        )


def _listed(words: Sequence[str]) -> str:
    """Join words by commas, the last by "and"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _maximal(sets: Iterable[Sequence[str]]) -> AttributeSets:
    """Return the sets that no other contains, in one order; the number of records needs no mention."""
    given = list(sets) if isinstance(sets, list | tuple) else [sets]
    if not all(isinstance(names, list | tuple) and all(type(n) is str for n in names) for names in given):
        raise BudgetError(f"exact: expected tuples of names of attributes, got {as_given(sets)}")
    distinct = {frozenset(names) for names in given}
    kept = [names for names in distinct if names and not any(names < other for other in distinct)]
    return tuple(sorted(tuple(sorted(names)) for names in kept))
