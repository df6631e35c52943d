"""What commands print: tables for people, JSON for machines, notes on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from querysmasher.text import escaped, shown

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from querysmasher.spec.spec import Spec

WIDTH = 110
"""Width of tables that are not printed to a terminal."""


def print_json(data: Any) -> None:
    """Print plain data as JSON, the only output on standard output."""
    typer.echo(escaped(json.dumps(data, ensure_ascii=False, indent=2)))


def say(text: str) -> None:
    """Print a line on standard output."""
    typer.echo(shown(text))


def note(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(shown(text), err=True)


def opened(path: Path) -> Spec:
    """Read a spec file, and print its remarks on standard error."""
    from querysmasher.spec import read_spec

    read = read_spec(path)
    for remark in read.remarks:
        note(f"Remark: {remark}.")
    return read


def complain(message: str) -> None:
    """Print an error message on standard error."""
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    note(message)


def console() -> Console:
    """Return a console for standard output that does not interpret markup."""
    from rich.console import Console

    on_terminal = sys.stdout.isatty()
    return Console(markup=False, highlight=False, emoji=False, width=None if on_terminal else WIDTH)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and strings in two columns."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in pairs:
        table.add_row(shown(name), shown(text))
    console().print(table)


LABEL = 40
"""Labels of rows of up to this length are not broken where other columns can be."""


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True, text: Collection[str] = ()
) -> None:
    """Print a table; with `numbers`, all columns but the first and those named in `text` are numeric."""
    from rich.table import Table

    table, shown_rows = Table(), [[shown(cell) for cell in row] for row in rows]
    first = max((len(row[0]) for row in shown_rows), default=0)
    for place, name in enumerate(header):
        table.add_column(
            name,
            justify="right" if place and numbers and name not in text else "left",
            overflow="fold",
            min_width=None if place else min(first, LABEL),
        )
    for row in shown_rows:
        table.add_row(*row)
    console().print(table)
