"""Schemas and workloads in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from querysmasher.formatting import count, one_line, preview
from querysmasher.html import Html, element, join, scrolling, table
from querysmasher.schema import Schema
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.workload import Group

KINDS = {
    "categorical": "unordered values",
    "ordinal": "ordered values",
    "binned": "number in ordered bins",
    "number": "number on a grid",
    "cyclic": "values on a circle",
}
LETTERS = "xyzuvwst"

WHERE = "where"
"""The kind of a predicate, of which a group may have one factor per attribute."""

LEVELS = 60
"""Maximum number of groups of a level of a hierarchy, or of labels of rows, that are listed."""

MOST = 30
"""Maximum number of attributes listed on a page; the others are collapsed."""


def group_words(group: Group) -> str:
    """Return what a group asks, with a letter for every variable value.

    >>> import querysmasher as qs
    >>> group_words(qs.queries(qs.Schema.of(age=9, sex=2), age="prefix", sex="identity").groups[0])
    'age ≤ x and sex = y'
    """
    said = []
    for index, (names, family) in enumerate(group.parts()):
        letter = LETTERS[index] if index < len(LETTERS) else "·"
        words = family.pattern and family.pattern.format(a=names[0], b=names[-1], x=letter)
        said.append(words or _in_full(names, family))
    return " and ".join(filter(None, said)) or "total"


def _in_full(names: Sequence[str], family: Family) -> str:
    """Return a predicate, or the levels of a hierarchy, in full; other rows by their title."""
    labels: Sequence[str] | None = family.row_labels
    if family.structure is Structure.TREE:
        labels = _levels(family)
    elif labels is None or len(labels) > LEVELS:
        more = "" if labels is None else f", {len(labels):,} groups"
        return f"{', '.join(names)} ({family}{more})" if names else ""
    elif len(labels) == 1:
        return one_line(labels[0])
    return one_line(f"{', '.join(names)} ({family}: {'; '.join(labels)})")


def _levels(family: Family) -> list[str]:
    """Return the groups of each level; those of a large level are counted."""
    levels = [
        (f"{title} " if title else "")
        + (", ".join(map(str, names)) if len(names) <= LEVELS else f"{len(names):,} groups")
        for title, names in family.level_names()
    ]
    has_values = any(groups is None for groups, _ in family.levels() or ())
    return [*levels, "each value"] if has_values else levels


def kind_words(group: Group) -> str:
    """Name the families of a group, whatever attributes they are on."""
    if not group.attributes:
        return "total"
    kinds = sorted(map(str, group.families))
    return one_line(kinds[0] if set(kinds) == {WHERE} else " × ".join(kinds))


def family_words(groups: Iterable[Group]) -> dict[str, str]:
    """Return what the families of groups count, by name, where the name does not say it."""
    families = (family for group in groups for family in group.families)
    return {str(family): family.counts for family in families if family.counts}


def schema_table(schema: Schema) -> Html:
    """List the attributes; those beyond `MOST` are collapsed."""
    header = ["Attribute", "Kind", "Values", "Examples"]
    rows = [[a.name, KINDS[a.kind], f"{a.size:,}", preview(a.shown)] for a in schema]
    for row, attribute in zip(rows, schema, strict=True):
        row[-1] += f" ({'; '.join(attribute.rules)})" if attribute.rules else ""
    if any(a.heading != a.name for a in schema):
        header.insert(1, "Title")
        for row, attribute in zip(rows, schema, strict=True):
            row.insert(1, "" if attribute.heading == attribute.name else attribute.heading)
    numbers = [header.index("Values")]
    parts = (table(header, part, numbers=numbers, class_="schema") for part in (rows[:MOST], rows[MOST:]))
    first, rest = map(scrolling, parts)
    summary = element("summary", count(len(rows) - MOST, "more attribute"))
    return first if len(rows) <= MOST else join([first, element("details", summary, rest)])


def workload_table(groups: Iterable[Group]) -> Html:
    """List the kinds of queries asked: attributes at a time, families, groups, queries, an example."""
    kinds: dict[tuple[int, str], list[Group]] = {}
    for group in groups:
        kinds.setdefault((len(group.attributes), kind_words(group)), []).append(group)
    rows = [
        (
            str(ways),
            element("span", kind, class_="kind"),
            f"{len(alike):,}",
            f"{sum(group.rows for group in alike):,}",
            element("span", group_words(alike[0]), class_="query"),
        )
        for (ways, kind), alike in kinds.items()
    ]
    header = ["Attributes", "Kind", "Groups", "Queries", "For example"]
    return scrolling(table(header, rows[:60], numbers=[2, 3]))
