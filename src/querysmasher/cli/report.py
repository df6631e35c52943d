"""`querysmasher report`: writes a page about a plan or a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import opened, print_json, say
from querysmasher.cli.words import AsJson, Force, examples

if TYPE_CHECKING:
    from querysmasher.planning.plan import Plan
    from querysmasher.release.release import Release


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "report",
        short_help="Write a page about a plan or a release.",
        epilog=examples(
            "querysmasher report out",
            "querysmasher report release.toml --out plan.html",
            "querysmasher report survey.plan --out plan.html",
        ),
    )(report)


@guarded
def report(
    what: Annotated[Path, typer.Argument(help="A release folder, a saved plan, or a spec file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write.",
            show_default="report.html, in the release folder if WHAT is one",
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a page about a release or a plan: errors, shares of the budget, the guarantee.

    For a spec file, this plans first. It reads no data and spends no budget.
    """
    from querysmasher.cli.folder import check_free
    from querysmasher.release.outputs import PAGE
    from querysmasher.report.page import checked_path

    if out is None:
        out = what / PAGE if what.is_dir() else Path(PAGE)
    checked_path(out)
    check_free(out, force)
    subject: Any = _subject(what)
    subject.report(out)
    if as_json:
        print_json({"written": str(out)})
    else:
        say(f"Written: {out}")


def _subject(what: Path) -> Plan | Release:
    from querysmasher.cli.folder import load_any

    return opened(what).plan() if what.suffix == ".toml" else load_any(what)
