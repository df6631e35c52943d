"""`querysmasher check`: shows the custodian what in the table does not fit the schema."""

from __future__ import annotations

import typer

from querysmasher.cli.exits import ExitCode
from querysmasher.cli.guard import guarded
from querysmasher.cli.output import opened, print_json, print_table, tell
from querysmasher.cli.words import SPEC, AsJson, DataPath, SpecPath, examples


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "check",
        short_help="Show the custodian what in the table does not fit.",
        epilog=examples("querysmasher check", "querysmasher check survey.toml --data people.parquet"),
    )(check)


@guarded
def check(
    spec: SpecPath = SPEC,
    data: DataPath = None,
    as_json: AsJson = False,
) -> None:
    """Show what in the table does not fit the schema. For the custodian only.

    The output shows values of single records. It is for those who may see the table, and must not be
    published. The command inspects all columns that the queries use: missing columns, types, missing values,
    values outside the schema, and records without a person. It says what `release` would do with this spec:
    refuse the table, or drop and leave out how many records. It writes nothing and spends no budget. Correct
    the schema from public knowledge only, never from what is shown here.
    """
    from querysmasher.data.check import HEAD, NOTICE
    from querysmasher.data.check import check as look
    from querysmasher.measuring import check_options
    from querysmasher.privacy.persons import Bound

    read = opened(spec)
    asked = {name for group in read.workload.groups for name in group.attributes}
    names = [name for name in read.schema.names if name in asked]
    measuring, budget = read.measuring, read.budget
    check_options(budget, measuring.unknown, measuring.max_records)
    if measuring.person is not None:
        Bound.drawn(measuring.person, budget.unit)  # refuses what `release` refuses
    found = look(
        read.schema,
        read.table(data).open(),
        names,
        max_records=measuring.max_records,
        unknown=measuring.unknown,
        person=measuring.person,
        records_per_person=budget.records_per_person,
    )
    verdict = found.verdict('[measure] unknown = "drop"')
    if as_json:
        print_json({**found.to_json(), "verdict": verdict})
    else:
        tell(NOTICE)
        print_table(HEAD, [column.cells() for column in found], numbers=False)
        tell(verdict)
    if not found.ok:
        raise typer.Exit(int(ExitCode.DATA))
