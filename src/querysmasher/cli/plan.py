"""`querysmasher plan`: what to expect, without data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import note, opened, print_json, print_pairs, print_table, say, tell
from querysmasher.cli.words import SPEC, AsJson, Force, SpecPath, examples
from querysmasher.endings import check_archive_name
from querysmasher.formatting import count

FAMILIES = {
    "identity": "records with each value",
    "prefix": "records up to each value",
    "range": "records from one value to another, for all pairs",
    "circular": "records from one value to another, for all pairs, wrapping around at the end",
}

KEYS = {
    'weighing("tables")': '[[workload]] weighting = "tables"',
    'objective="worst"': '[plan] objective = "worst"',
}
"""Python's arguments, and the keys of a spec that mean the same."""

if TYPE_CHECKING:
    from querysmasher.cli.expectations import Expectations


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "plan",
        short_help="Predict the error of every count, without data.",
        epilog=examples(
            "querysmasher plan",
            "querysmasher plan survey.toml --all",
            "querysmasher plan survey.toml --save survey.plan",
            "querysmasher plan --json | jq .expected_error",
        ),
    )(plan)


@guarded
def plan(
    spec: SpecPath = SPEC,
    every: Annotated[
        bool, typer.Option("--all", help="Show every group of queries, even if there are many.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Save the plan to this file, for `release --plan`.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Plan without data: show the expected error of every group of queries, and the guarantee in words.

    This measures nothing and spends no budget. Plan as often as you like, and change the spec until the
    errors suit you.
    """
    from querysmasher.cli.estimate import estimate
    from querysmasher.cli.expectations import Expectations

    read = opened(spec)
    if save is not None:
        from querysmasher.cli.folder import check_free

        check_archive_name(save)
        check_free(save, force)
    guess = estimate(read.workload, read.searches_centres)
    if guess.is_big:
        note(f"This is a large task: {guess}.")
    planned = read.plan()
    if save is not None:
        planned.save(save)
    expected = Expectations(planned, read)
    if as_json:
        print_json({**expected.to_json(every), "estimate": guess.to_json()})
        return
    show(expected, every)
    if save is not None:
        say(f"Written: {save}")


def show(expected: Expectations, every: bool) -> None:
    """Print what is planned."""
    from querysmasher.report.expectations import ExpectedTable, facts

    planned, source = expected.plan, expected.spec.source
    workload = planned.workload
    print_pairs(
        [
            (
                "Asked",
                f"{count(len(workload), 'query', 'queries')} in {count(len(workload.groups), 'group')}",
            ),
            *(
                (name.capitalize(), _for_spec(text))
                for name, text in facts(planned, expected.factor, expected.promise)
            ),
            ("In other words", expected.equivalents()),
            *([("Ledger", said)] if (said := expected.ledger()) else []),
            *([("Note", said)] if (said := expected.sparse()) else []),
            ("Data", str(source.path) if source else "none named in the spec; pass `release --data`"),
        ]
    )
    rows = expected.rows(every)
    listed = ExpectedTable(rows, workload.schema)
    print_table(listed.header, listed.cells, text=[ExpectedTable.QUERY])
    tell(
        "The expected error is the root mean square of the standard errors of the queries. The budget share "
        "is what is spent on exactly the attributes of a row: rows on the same attributes show the same "
        "share, unless their queries are measured as they are. Answers also use what is measured on subsets "
        "of these attributes."
    )
    for family, words in FAMILIES.items():
        if any(f"({family})" in row.label for row in rows):
            tell(f"{family + ':':10}{words}")


def _for_spec(text: str) -> str:
    """Return a remark with the keys of a spec instead of Python's arguments."""
    for python, key in KEYS.items():
        text = text.replace(python, key)
    return text
