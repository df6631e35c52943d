"""Progress bars, by default shown on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress


LISTENERS: list[Callable[[str], None]] = []
"""What is told of progress where there is no terminal, the last one only."""

_OUTER: ContextVar[Bar | None] = ContextVar("_OUTER", default=None)
"""The bar that is on the screen of this thread, if one is."""


class Bar:
    """A progress bar; with `shown=None`, it appears if standard error is a terminal.

    With `steps=None` their number is unknown, or must not be shown: the bar then only moves. Inside another
    bar there is no second one: its title, steps and notes are shown beside the outer bar.
    """

    def __init__(self, title: str, steps: int | None, shown: bool | None = None) -> None:
        """Prepare the bar; it appears when entered."""
        self._title, self._steps, self._done, self._said = title, steps, 0, ""
        self._outer = None if shown is False else _OUTER.get()
        self._bar: Progress | None = None
        self._token: Token[Bar | None] | None = None
        self._heard = LISTENERS[-1] if LISTENERS and self._outer is None and shown is not False else None
        if self._outer is None and not LISTENERS and (sys.stderr.isatty() if shown is None else shown):
            self._bar = self._drawn()

    def _drawn(self) -> Progress:
        from rich import progress  # noqa: PLC0415 - only a visible bar needs it
        from rich.console import Console  # noqa: PLC0415 - only a visible bar needs it

        bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            *(() if self._steps is None else (progress.MofNCompleteColumn(),)),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        bar.add_task(self._title, total=self._steps, note="")
        return bar

    def __enter__(self) -> Self:
        """Show the bar, or its title beside the outer one."""
        if self._bar is not None:
            self._bar.start()
        if self._bar is not None or self._heard is not None:
            self._token = _OUTER.set(self)
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
        if self._token is not None:
            _OUTER.reset(self._token)
            self._token = None

    def advance(self, steps: int = 1) -> None:
        """Advance by some steps."""
        self._done += steps
        self._show()

    def note(self, text: str) -> None:
        """Show a note beside the bar."""
        self._said = text
        self._show()

    def _show(self) -> None:
        """Show steps and note, or title, steps and note to a listener or beside the outer bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, note=self._said)
        steps = "" if self._steps is None else f"{self._done:,}/{self._steps:,}"
        if self._heard is not None:
            self._heard(" ".join(filter(None, (self._title, steps, self._said))))
        if self._outer is not None:
            self._outer.note(" ".join(filter(None, (self._title.lower(), steps, self._said))))
