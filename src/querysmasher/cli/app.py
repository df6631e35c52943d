"""The command with its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from querysmasher.cli import (
    answer,
    check,
    compare,
    demo,
    explore,
    init,
    ledger,
    plan,
    release,
    report,
    verify,
)
from querysmasher.cli.exits import listing

app = typer.Typer(
    name="querysmasher",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=f"""\b
A first tour, in an empty folder:
  querysmasher init --example            writes a spec file and an example table
  querysmasher plan                      predicts the error of every count, without data
  querysmasher release                   measures the table and writes the folder out/
  querysmasher answer out "age >= 18"    queries the release, as often as you like

\b
Exit codes:
{listing()}
""",
)


def _version(wanted: bool) -> None:
    if wanted:
        from querysmasher import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def querysmasher(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Publish many counts about people under differential privacy, with the error known in advance."""


for module in (init, plan, check, release, explore, answer, report, verify, ledger, compare, demo):
    module.add_to(app)
