"""What commands print: tables and notes for people, JSON for machines."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from querysmasher.errors import FileError
from querysmasher.formatting import escaped, shown

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 110
"""Width of paragraphs in tables that are not printed to a terminal."""


def print_json(data: Any) -> None:
    """Print plain data as JSON; the command then prints nothing else on standard output."""
    typer.echo(escaped(json.dumps(data, ensure_ascii=False, indent=2)))


def say(text: str) -> None:
    """Print a line on standard output."""
    typer.echo(shown(text))


def note(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(shown(text), err=True)


def complain(message: str) -> None:
    """Print an error message on standard error."""
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    note(message)


def check_free(path: Path, force: bool) -> None:
    """Refuse a path that exists already, or whose folder does not exist."""
    if not path.absolute().parent.is_dir():
        raise FileError(f"the folder {str(path.absolute().parent)!r} does not exist; create it first")
    if path.exists() and not force:
        raise FileError(f"{str(path)!r} already exists; --force replaces it")


def check_file(path: Path, force: bool) -> None:
    """Refuse what `check_free` does, and a folder that may not be written, before anything is computed."""
    check_free(path, force)
    if not os.access(path.absolute().parent, os.W_OK):
        raise FileError(f"the folder {str(path.absolute().parent)!r} may not be written")


def tell(text: str) -> None:
    """Print a paragraph on standard output, broken between words on a terminal."""
    width = _width()
    say(text if width is None else textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False))


def _width() -> int | None:
    """Return the width of the terminal in characters; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _print(table: Table, width: int) -> None:
    """Print a table in this width, without trailing spaces; markup in it is not interpreted."""
    from rich.console import Console  # noqa: PLC0415 - loads slowly, and help needs no table

    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with console.capture() as drawn:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in drawn.get().rstrip("\n").split("\n")))


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and strings in two columns."""
    from rich.table import Table  # noqa: PLC0415 - see above

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs:
        table.add_row(shown(name), shown(text))
    _print(table, _width() or WIDTH)


READABLE, NARROWEST = 16, 8
"""Columns of words get at least the first width if possible, and always at least the second."""


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True, text: Collection[str] = ()
) -> None:
    """Print a table; with `numbers`, all columns but the first and those named in `text` are numeric.

    Nothing is cut off: on a narrow terminal, headings are broken between words, then cells of words. If that
    does not suffice, every row becomes a paragraph. In a file or a pipe, tables are as wide as necessary.
    """
    from rich.table import Table  # noqa: PLC0415 - see above

    cells = [[shown(cell) for cell in row] for row in rows]
    numeric = [bool(i) and numbers and name not in text for i, name in enumerate(header)]
    frame = 3 * len(header) + 1
    widths = _fitted(list(zip(header, *cells, strict=True)), numeric, (_width() or math.inf) - frame)
    if widths is None:
        for row in cells:
            say(f"{header[0]}: {row[0]}")
            print_pairs([(f"  {name}", cell) for name, cell in zip(header[1:], row[1:], strict=True) if cell])
        return
    table = Table()
    for name, is_number, width in zip(header, numeric, widths, strict=True):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", width=width)
    for row in cells:
        table.add_row(*row)
    _print(table, sum(widths) + frame)


def _fitted(columns: Sequence[Sequence[str]], numeric: Sequence[bool], room: float) -> list[int] | None:
    """Return widths of the columns whose sum is at most `room`, or None if there are none.

    Headings of numbers are broken first, then the columns of words from the last to the first.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - see above

    widths = [max(map(cell_len, column)) for column in columns]
    order = sorted(range(len(columns)), key=lambda i: (not numeric[i], -i))
    for narrowest, i in itertools.product((READABLE, NARROWEST), order):
        heading, *numbers = columns[i]
        least = max(map(cell_len, [*heading.split(), *numbers])) if numeric[i] else min(widths[i], narrowest)
        widths[i] = max(least, min(widths[i], widths[i] - int(max(sum(widths) - room, 0))))
    return widths if sum(widths) <= room else None
