"""`querysmasher answer`: query a release."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from querysmasher.cli.exits import exit_code
from querysmasher.cli.guard import guarded
from querysmasher.cli.output import complain, note, print_json, print_pairs, print_table, tell
from querysmasher.cli.words import AsJson, ReleasePath, examples
from querysmasher.errors import PredicateError, QuerySmasherError
from querysmasher.formatting import decimal, written_name

if TYPE_CHECKING:
    from querysmasher.attributes import Attribute
    from querysmasher.release.release import Release

NAMES = ("value", "std", "low", "high")
"""The fields of an answer."""

MOST_SETS = 40
"""Maximum number of attribute sets listed."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "answer",
        short_help="Query a release: value, standard error, interval.",
        epilog=examples(
            "querysmasher answer out",
            "querysmasher answer out \"age >= 18 and sex == 'F'\"",
            'querysmasher answer out "age < 18" "18 <= age < 65" "age >= 65" --level 0.9',
            "querysmasher answer out \"sex in ['F', 'M']\" --json",
            'querysmasher answer out "[hours-per-week] >= 40"',
        ),
    )(answer)


@guarded
def answer(
    release: ReleasePath,
    predicates: Annotated[
        list[str] | None,
        typer.Argument(help='What to count: "age >= 18". Without one, list what can be asked.'),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Probability that an interval covers the count without noise.")
    ] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Estimate how many records satisfy a predicate: value, standard error and interval.

    This reads only the release, not the data, and has no privacy cost: ask as often as you like. Predicates
    compare attributes with values and are joined by `and`, `or`, `not`. Strings and dates need quotes, and
    names with spaces or special characters need brackets: "[hours-per-week] >= 40". If one predicate cannot
    be answered, the others still are.
    """
    from querysmasher.cli.folder import load_release

    stored = load_release(release)
    if not predicates:
        _describe(stored, as_json)
        return
    found: list[dict[str, Any]] = []
    codes = []
    for text in predicates:
        try:
            answers = stored.answer(text)
        except QuerySmasherError as error:
            if len(predicates) == 1:
                raise
            said = error.for_spec() if isinstance(error, PredicateError) else f"{text!r}: {error.for_spec()}"
            codes.append(exit_code(error))
            found.append({"query": text, "error": {"code": int(codes[-1]), "message": said}})
        else:
            low, high = answers.interval(level)
            numbers = zip(NAMES, (answers.values, answers.std, low, high), strict=True)
            found.append({"query": text, **{name: float(array[0]) for name, array in numbers}})
    if not stored.noise.is_private:
        note(f"Guarantee: {stored.guarantee}")
    elif not stored.counted.is_whole:
        note(stored.counted.words())
    if as_json:
        print_json({"level": level, "guarantee": stored.guarantee, "answers": found})
    elif len(codes) < len(found):
        print_table(
            ("query", "value", "standard error", f"{100 * level:.10g}% interval"),
            (
                (
                    a["query"],
                    decimal(a["value"], 1),
                    f"± {decimal(a['std'], 1)}",
                    f"{decimal(a['low'], 1)} to {decimal(a['high'], 1)}",
                )
                for a in found
                if "error" not in a
            ),
        )
    for failure in (a["error"] for a in found if "error" in a):
        complain(failure["message"])
    if codes:
        raise typer.Exit(int(codes[0]))


def _describe(stored: Release, as_json: bool) -> None:
    """Print what can be asked."""
    schema, groups = stored.plan.schema, stored.workload.groups
    planned = [" × ".join(g.attributes) or "total" for g in groups]
    sets = list(dict.fromkeys(planned))
    if as_json:
        print_json({"guarantee": stored.guarantee, "schema": schema.to_json(), "asked_about": sets})
        return
    more = f" and {len(sets) - MOST_SETS:,} more" if len(sets) > MOST_SETS else ""
    print_pairs([("Guarantee", stored.guarantee), ("Attributes", "; ".join(sets[:MOST_SETS]) + more)])
    print_table(
        ("attribute", "kind", "values"), ((a.name, a.kind, _values(a)) for a in schema), numbers=False
    )
    example = example_for(stored)
    such = "" if example is None else f', such as "{example}"'
    tell(
        f"Ask predicates on these attribute sets{such}. What does not follow from the measured queries is "
        'refused. Names with spaces or special characters need brackets: "[hours-per-week] >= 40".'
    )


def example_for(stored: Release) -> str | None:
    """Return a predicate that the release can answer, or None if none of the first ones is."""
    for group in stored.workload.groups[:MOST_SETS]:
        first = [stored.plan.schema[name] for name in group.attributes[:1]]
        tried = [f"{written_name(a.name)} == {a.literals[0]}" for a in first]
        for predicate in [*tried, next(group.labels(stored.plan.schema))]:
            with suppress(QuerySmasherError):
                stored.answer(predicate)
                return predicate
    return None


def _values(attribute: Attribute) -> str:
    texts = list(attribute.literals if attribute.edges is None else attribute.labels)
    if attribute.value_labels is not None:
        texts = [f"{text} ({label})" for text, label in zip(texts, attribute.shown, strict=True)]
    return ", ".join(texts if len(texts) <= 8 else [*texts[:4], "…", texts[-1]])
