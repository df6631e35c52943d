"""`querysmasher answer`: ask a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import note, print_json, print_pairs, print_table, say
from querysmasher.cli.words import AsJson, ReleasePath, examples

if TYPE_CHECKING:
    from querysmasher.attributes import Attribute
    from querysmasher.release.release import Release

MOST_SETS = 40
"""More sets of attributes are not listed."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "answer",
        short_help="Ask a release: value, standard error, interval.",
        epilog=examples(
            "querysmasher answer out",
            "querysmasher answer out \"age >= 18 and sex == 'F'\"",
            'querysmasher answer out "age < 18" "18 <= age < 65" "age >= 65" --level 0.9',
            "querysmasher answer out \"sex in ['F', 'M']\" --json",
        ),
    )(answer)


@guarded
def answer(
    release: ReleasePath,
    predicates: Annotated[
        list[str] | None,
        typer.Argument(help='What to count: "age >= 18". Without any: what can be asked.'),
    ] = None,
    level: Annotated[float, typer.Option(help="How often intervals hold the true count.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Tell how many records satisfy a predicate: the answer, its standard error and an interval.

    This reads the release only, not the data, and costs no privacy: ask as often as you like. Predicates
    compare attributes with values and are joined by `and`, `or`, `not`; texts need quotes of their own.
    """
    from querysmasher.cli.folder import load_release
    from querysmasher.workload.predicates import where

    stored = load_release(release)
    if not predicates:
        _describe(stored, as_json)
        return
    asked = [where(stored.plan.schema, text) for text in predicates]
    answers = stored.answer(sum(asked[1:], start=asked[0]))
    low, high = answers.interval(level)
    columns = [array.tolist() for array in (answers.values, answers.std, low, high)]
    rows = list(zip(predicates, *columns, strict=True))
    if not stored.noise.is_private:
        note(f"Guarantee: {stored.guarantee}")
    if as_json:
        names = ("query", "value", "std", "low", "high")
        print_json(
            {
                "level": level,
                "guarantee": stored.guarantee,
                "answers": [dict(zip(names, row, strict=True)) for row in rows],
            }
        )
        return
    print_table(
        ("query", "value", "standard error", f"{100 * level:.10g} % interval"),
        ((query, f"{v:,.1f}", f"± {s:,.1f}", f"{a:,.1f} to {b:,.1f}") for query, v, s, a, b in rows),
    )


def _describe(stored: Release, as_json: bool) -> None:
    """Tell what can be asked."""
    schema, groups = stored.plan.schema, stored.workload.groups
    planned = [" × ".join(g.attributes) or "the number of records" for g in groups]
    sets = list(dict.fromkeys(planned))
    if as_json:
        print_json({"guarantee": stored.guarantee, "schema": schema.to_json(), "asked_about": sets})
        return
    more = f" and {len(sets) - MOST_SETS:,} more" if len(sets) > MOST_SETS else ""
    print_pairs([("Guarantee", stored.guarantee), ("Asked about", "; ".join(sets[:MOST_SETS]) + more)])
    print_table(
        ("attribute", "kind", "values"), ((a.name, a.kind, _values(a)) for a in schema), numbers=False
    )
    say("Ask with predicates on these sets of attributes, such as \"age >= 18 and sex == 'F'\".")


def _values(attribute: Attribute) -> str:
    texts = list(attribute.labels) if attribute.kind == "binned" else list(map(repr, attribute.values))
    return ", ".join(texts if len(texts) <= 8 else [*texts[:4], "…", texts[-1]])
