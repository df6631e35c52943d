"""`querysmasher verify`: checks a published release, without data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from querysmasher.cli.exits import ExitCode
from querysmasher.cli.guard import guarded
from querysmasher.cli.output import print_json
from querysmasher.cli.words import AsJson, ReleasePath, examples
from querysmasher.release.published import FAILED


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "verify",
        short_help="Check a published release, without data.",
        epilog=examples("querysmasher verify out", "querysmasher verify out --ledger people.ledger --json"),
    )(verify)


@guarded
def verify(
    release: ReleasePath,
    ledger: Annotated[Path | None, typer.Option(help="The ledger that should have its entry.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a published release: its digests, its exact privacy cost, every file, its entry in a ledger.

    This reads neither data nor a plan, and can be run by anyone who has the folder. It prints a verdict to
    paste into a review. The exit code is 0 if every check passed, 3 if one failed, and 7 if none failed but
    one could not be made.
    """
    from querysmasher.privacy.ledger import Ledger
    from querysmasher.release.verify import verify as look

    verdict = look(release, None if ledger is None else Ledger(ledger))
    if as_json:
        print_json(verdict.to_json())
    else:
        typer.echo(str(verdict))
    if not verdict.ok:
        raise typer.Exit(int(ExitCode.PRIVACY if verdict.outcome == FAILED else ExitCode.NOT_VERIFIED))
