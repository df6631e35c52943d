"""Progress bars, shown on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """A progress bar; with `shown=None`, it appears if standard error is a terminal.

    With `steps=None` their number is unknown, or must not be shown: the bar then only moves.
    """

    def __init__(self, title: str, steps: int | None, shown: bool | None = None) -> None:
        """Prepare the bar; it appears when entered."""
        self._bar: Progress | None = None
        if not (sys.stderr.isatty() if shown is None else shown):
            return
        from rich import progress  # noqa: PLC0415 - the same
        from rich.console import Console  # noqa: PLC0415 - only what is shown needs it

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            *(() if steps is None else (progress.MofNCompleteColumn(),)),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task(title, total=steps, note="")

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def advance(self, steps: int = 1) -> None:
        """Advance by some steps."""
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], steps)

    def note(self, text: str) -> None:
        """Show a note beside the bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], note=text)
