"""The unit of privacy: which tables must be hard to distinguish, and how far their answers differ."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import BudgetError, as_given, suggestion
from querysmasher.schema import Schema

NEIGHBOURS = ("add_remove", "replace_one")


@dataclass(frozen=True)
class Groups:
    """Groups of the values of an attribute, of which a record's group is public, and not its value."""

    attribute: str
    name: str
    """What distinguishes the groups, in words."""
    labels: tuple[str, ...]
    """The name of every group."""
    of: tuple[int, ...]
    """The number of the group of every value."""

    def __post_init__(self) -> None:
        """Refuse what does not put every value into one of the groups, none of which is empty."""
        words = (self.attribute, self.name, *self.labels)
        numbers = all(type(number) is int for number in self.of)
        each = numbers and set(self.of) == set(range(len(self.labels))) and len(self.labels) > 1
        if not each or not all(type(word) is str and 0 < len(word) <= 1000 for word in words):
            raise BudgetError("exact: expected groups that every value of an attribute is in one of")

    def __str__(self) -> str:
        """Return what distinguishes the groups."""
        return self.name

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `of_json` rebuilds these groups."""
        return {**asdict(self), "labels": list(self.labels), "of": list(self.of)}

    @classmethod
    def of_json(cls, data: Any) -> Any:
        """Rebuild groups from their fields; leave the name of an attribute as it is."""
        if not isinstance(data, Mapping):
            return data
        if data.keys() != {"attribute", "name", "labels", "of"}:
            raise BudgetError("exact: expected an attribute, a name, labels and the group of every value")
        return cls(data["attribute"], data["name"], tuple(data["labels"]), tuple(data["of"]))


Names = tuple[str | Groups, ...]
"""A set of attributes, by name; of some, only groups of values are meant."""

AttributeSets = tuple[Names, ...]
"""Sets of attributes."""


def attributes_of(names: Iterable[str | Groups]) -> tuple[str, ...]:
    """Return the names of the attributes of a set."""
    return tuple(name.attribute if isinstance(name, Groups) else name for name in names)


def sizes_of(schema: Schema, names: Names) -> tuple[int, ...]:
    """Return the shape of a table of counts on a set: of values, or of groups of values."""
    return tuple(len(n.labels) if isinstance(n, Groups) else schema[n].size for n in names)


@dataclass(frozen=True, eq=False)
class ExactTable:
    """A table of exact counts on a set, by attributes of a schema of which some combine several.

    A value of such an attribute stands for one of every attribute that it combines. So it says in which cell
    of the table a record counts, as far as the set is about these.
    """

    attributes: tuple[int, ...]
    """The attributes of the schema that are, or combine, some of the set."""
    axes: tuple[tuple[int, ...], ...]
    """The axes of the table that each of them is about."""
    cells: tuple[NDArray[np.int64], ...]
    """The cell on these axes, in row-major order, in which a record with each of its values counts."""
    shape: tuple[int, ...]
    """The number of values, or groups of values, of each axis."""

    @classmethod
    def of(cls, schema: Schema, names: Names) -> ExactTable:
        """Return the table on a set of attributes of a schema, or of what its attributes combine."""
        place = {column.name: (a, i) for a, x in enumerate(schema) for i, column in enumerate(x.columns)}
        axes: dict[int, list[int]] = {}
        values, shape = list[NDArray[np.int64]](), list[int]()
        for axis, (each, name) in enumerate(zip(names, attributes_of(names), strict=True)):
            a, i = place[name] if name in place else (schema.position(name), 0)
            attribute = schema.attributes[a]
            of = np.arange(size := attribute.columns[i].size)
            if isinstance(each, Groups):
                of = np.array(each.of, dtype=np.int64)
                if len(of) != size or attributes_of(names).count(name) > 1:
                    raise _two_ways(name)
                size = len(each.labels)
            axes.setdefault(a, []).append(axis)
            values.append(of[attribute.column_indexes[i]])
            shape.append(size)
        cells = [
            np.ravel_multi_index([values[i] for i in on], [shape[i] for i in on]) for on in axes.values()
        ]
        return cls(tuple(axes), tuple(map(tuple, axes.values())), tuple(cells), tuple(shape))

    @property
    def classes(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Each attribute, and a number per value: equal where records count in the same cell."""
        for a, cells in zip(self.attributes, self.cells, strict=True):
            distinct, numbers = np.unique(cells, return_inverse=True)
            yield a, np.arange(len(cells)) if len(distinct) == len(cells) else numbers.ravel()

    def counted(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the table, from counts on the attributes of the schema."""
        order, sizes = self._joined
        table = np.zeros([self.shape[i] for i in order], dtype=np.int64)
        np.add.at(table.reshape(sizes), np.ix_(*self.cells), counts)
        return np.ascontiguousarray(table.transpose(np.argsort(order)))

    def by_class(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the table by the classes of values of the schema: without cells that no value counts in."""
        order, sizes = self._joined
        distinct = [np.unique(cells) for cells in self.cells]
        kept = [c if len(c) == len(d) else d for c, d in zip(self.cells, distinct, strict=True)]
        return table.transpose(order).reshape(sizes)[np.ix_(*kept)]

    @property
    def _joined(self) -> tuple[list[int], list[int]]:
        """The axes, those of each attribute side by side, and the number of cells on these."""
        return [i for on in self.axes for i in on], [math.prod(self.shape[i] for i in on) for on in self.axes]


def sets_to_json(sets: AttributeSets) -> list[list[Any]]:
    """Return plain data for sets of attributes."""
    return [[name.to_json() if isinstance(name, Groups) else name for name in names] for names in sets]


@dataclass(frozen=True)
class Known:
    """The attribute sets whose counts are the same in all neighbours, and public; none contains another.

    The empty set stands for the number of records. If it is not public, nothing is. Of the attributes in
    `groups`, only the group of a value is the same, and only counts of groups are public.
    """

    sets: tuple[frozenset[int], ...] = ()
    groups: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    """The number of the group of every value, by attribute."""

    def __contains__(self, attributes: Collection[int]) -> bool:
        """Return whether the counts on some attributes are public."""
        return self.groups.keys().isdisjoint(attributes) and self.covers(attributes)

    def covers(self, attributes: Collection[int]) -> bool:
        """Return whether counts on some attributes are public, of values or of groups of values."""
        return any(known.issuperset(attributes) for known in self.sets)

    def partly(self, attributes: Collection[int]) -> int | None:
        """Return the attribute of a set on which counts by its groups are public; None if there is none."""
        grouped = self.groups.keys() & set(attributes)
        return min(grouped) if grouped and self.covers(attributes) else None

    @property
    def agreed(self) -> frozenset[int]:
        """The attributes of which a record and the one that replaces it have the same values."""
        return frozenset[int]().union(*self.sets).difference(self.groups)

    def unprotected(self, attributes: Collection[int]) -> bool:
        """Return whether the counts on some attributes are the same in all neighbours, public or not."""
        return bool(self.sets) and self.agreed.issuperset(attributes)


@dataclass(frozen=True)
class Unit:
    """Which tables are neighbours.

    With exact counts, a record is replaced by one that has the same values of all attributes in `exact`, and
    so both tables have the same counts on every set in `exact`. Of two tables that agree on these counts and
    differ in one replaced record, nothing else can hold: the counts on a set change by e_v - e_u, which is
    zero only if u and v agree on it. Where `exact` has groups of the values of an attribute, the same holds
    of the group that a value is in: a record may be replaced by one with another value of the same group.
    The records of one person are replaced in this way one by one: two records that exchange what is public
    make no neighbours, although the counts stay the same.

    Args:
        neighbours: "add_remove" (one table has additional records) or "replace_one" (records differ; their
            number is the same, and public).
        records_per_person: maximum number of records of one person, all of which may differ.
        exact: attribute sets, by name or with `Groups` of values of an attribute, whose counts are public and
            the same in neighbours ("replace_one").
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
        """Return the attribute sets of a schema whose counts are public.

        Attributes of the schema may combine several, of which those in exact sets make groups of its values:
        records with values of one group have the same values of these. Refuse what is not in one way.
        """
        tables, ways = self.tables(schema), dict[int, NDArray[np.int64]]()
        groups: dict[int, NDArray[np.int64]] = {}
        for table in tables:
            grouped = 0
            for a, classes in table.classes:
                count = int(classes.max()) + 1
                if count < len(classes):
                    groups[a], grouped = classes, grouped + 1
                same = np.array_equal(ways.setdefault(a, classes), classes)
                if not same or grouped > 1 or count == 1 < len(classes):
                    raise _two_ways(schema.names[a])
        sets = tuple(frozenset(table.attributes) for table in tables) or (frozenset[int](),)
        return Known(sets if self.total_is_public else (), groups)

    def tables(self, schema: Schema) -> list[ExactTable]:
        """Return the tables of exact counts, by attributes of a schema."""
        return [ExactTable.of(schema, names) for names in self.exact]

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
        return _listed([f"by {' × '.join(map(str, names))}" for names in self.exact])

    @property
    def agreed_words(self) -> str:
        """The attributes of which a replaced record keeps the value, in words."""
        return _listed(sorted({str(name) for names in self.exact for name in names}))

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


def _two_ways(attribute: str) -> BudgetError:
    return BudgetError(
        f"exact: expected the values of {attribute!r}, or their groups in one way, and groups of one "
        "attribute per table; publish the finer counts only"
    )


def _listed(words: Sequence[str]) -> str:
    """Join words by commas, the last by "and"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _maximal(sets: Iterable[Sequence[Any]]) -> AttributeSets:
    """Return the sets that no other contains, in one order; the number of records needs no mention."""
    given = list(sets) if isinstance(sets, list | tuple) else [sets]
    listed = all(isinstance(names, list | tuple) for names in given)
    read: list[list[Any]] = [[*map(Groups.of_json, names)] for names in given] if listed else [[None]]
    if not all(isinstance(name, str | Groups) for names in read for name in names):
        raise BudgetError(f"exact: expected tuples of names of attributes, got {as_given(sets)}")
    distinct = {frozenset(names) for names in read}
    kept = [names for names in distinct if names and not any(names < other for other in distinct)]
    ordered = (tuple(sorted(names, key=_place)) for names in kept)
    return tuple(sorted(ordered, key=lambda names: [*map(_place, names)]))


def _place(name: str | Groups) -> tuple[str, ...]:
    """Return what names are sorted by: attributes first."""
    return (name.attribute, name.name) if isinstance(name, Groups) else (name,)
