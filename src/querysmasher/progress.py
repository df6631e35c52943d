"""Progress bars, shown on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """A progress bar; with `shown=None`, it appears if standard error is a terminal.

    With `steps=None` their number is unknown, or must not be shown: the bar then only moves.
    """

    def __init__(self, title: str, steps: int | None, shown: bool | None = None) -> None:
        """Prepare the bar; it appears when entered."""
        if shown is None:
            shown = sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *(() if steps is None else (MofNCompleteColumn(),)),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
            disable=not shown,
        )
        self._task = self._bar.add_task(title, total=steps, note="")

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self._bar.stop()

    def advance(self, steps: int = 1) -> None:
        """Advance by some steps."""
        self._bar.advance(self._task, steps)

    def note(self, text: str) -> None:
        """Show a note beside the bar."""
        self._bar.update(self._task, note=text)
