"""`querysmasher demo`: every step, on a table that ships with a package or on fictitious people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import print_json
from querysmasher.cli.words import AsJson, examples


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo",
        short_help="Run every step on a public table.",
        epilog=examples("querysmasher demo", "querysmasher demo --made-up --json"),
    )(demo)


@guarded
def demo(
    folder: Annotated[Path, typer.Option(help="Where to write the pages.")] = Path("demo-output"),
    made_up: Annotated[
        bool, typer.Option("--made-up", help="Use fictitious people, even if the real table is installed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a workload without data; then plan, measure and answer a table, and compare with the truth.

    The demo writes two pages: one about the plan, one about the release.

    The table is public and part of the optional package causaldata; without it, the people are fictitious.
    """
    from querysmasher.demo import run_demo

    result = run_demo(folder, made_up=made_up, quiet=as_json)
    if as_json:
        print_json(result)
