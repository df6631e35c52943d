"""`querysmasher answer`: query a release."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from querysmasher.attributes import Attribute
from querysmasher.cli.command import exit_code
from querysmasher.cli.folder import load_release
from querysmasher.cli.output import complain, note, print_json, print_pairs, print_table, tell
from querysmasher.errors import PredicateError, QuerySmasherError
from querysmasher.formatting import decimal, written_name
from querysmasher.release.release import Release

MOST_SETS = 40
"""Maximum number of attribute sets listed."""


def answer(release: Path, predicates: list[str] | None, level: float, as_json: bool) -> None:
    """Estimate how many records satisfy each predicate; without one, print which queries are possible."""
    stored = load_release(release)
    if not predicates:
        _describe(stored, as_json)
        return
    answers: list[dict[str, Any]] = []
    codes = []
    for text in predicates:
        try:
            answered = stored.answer(text)
        except QuerySmasherError as error:
            if len(predicates) == 1:
                raise
            said = error.for_spec() if isinstance(error, PredicateError) else f"{text!r}: {error.for_spec()}"
            codes.append(exit_code(error))
            answers.append({"query": text, "error": {"code": int(codes[-1]), "message": said}})
        else:
            numbers = answered.values, answered.std, *answered.interval(level)
            named = zip(("value", "std", "low", "high"), numbers, strict=True)
            answers.append({"query": text, **{name: float(array[0]) for name, array in named}})
    if not stored.noise.is_private:
        note(f"Guarantee: {stored.guarantee}")
    elif not stored.counted.is_whole:
        note(stored.counted.words())
    if as_json:
        print_json({"level": level, "guarantee": stored.guarantee, "answers": answers})
    elif len(codes) < len(answers):
        print_table(
            ("query", "value", "standard error", f"{100 * level:.10g}% interval"),
            (
                (
                    a["query"],
                    decimal(a["value"], 1),
                    f"± {decimal(a['std'], 1)}",
                    f"{decimal(a['low'], 1)} to {decimal(a['high'], 1)}",
                )
                for a in answers
                if "error" not in a
            ),
        )
    for failure in (a["error"] for a in answers if "error" in a):
        complain(failure["message"])
    if codes:
        raise typer.Exit(int(codes[0]))


def _describe(stored: Release, as_json: bool) -> None:
    """Print which queries the release can answer."""
    schema = stored.plan.schema
    sets = list(dict.fromkeys(" × ".join(g.attributes) or "total" for g in stored.workload.groups))
    if as_json:
        print_json({"guarantee": stored.guarantee, "schema": schema.to_json(), "attribute_sets": sets})
        return
    more = f" and {len(sets) - MOST_SETS:,} more" if len(sets) > MOST_SETS else ""
    print_pairs([("Guarantee", stored.guarantee), ("Attribute sets", "; ".join(sets[:MOST_SETS]) + more)])
    print_table(
        ("attribute", "kind", "values"), ((a.name, a.kind, _values(a)) for a in schema), numbers=False
    )
    example = example_for(stored)
    such = "" if example is None else f', such as "{example}"'
    tell(
        f"Write predicates on these attribute sets{such}. A query that does not follow from the measured "
        'ones is refused. Names with spaces or special characters need brackets: "[hours-per-week] >= 40".'
    )


def example_for(stored: Release) -> str | None:
    """Return a predicate that the release can answer, or None if it answers none of the first groups."""
    for group in stored.workload.groups[:MOST_SETS]:
        first = [stored.plan.schema[name] for name in group.attributes[:1]]
        tried = [f"{written_name(a.name)} == {a.literals[0]}" for a in first]
        for predicate in [*tried, next(group.labels(stored.plan.schema))]:
            with suppress(QuerySmasherError):
                stored.answer(predicate)
                return predicate
    return None


def _values(attribute: Attribute) -> str:
    strings = list(attribute.literals if attribute.edges is None else attribute.labels)
    if attribute.value_labels is not None:
        strings = [f"{text} ({label})" for text, label in zip(strings, attribute.shown, strict=True)]
    return ", ".join(strings if len(strings) <= 8 else [*strings[:4], "…", strings[-1]])
