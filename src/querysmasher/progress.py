"""Progress bars, shown on a terminal only."""

from __future__ import annotations

import sys
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress


_OUTER: ContextVar[Bar | None] = ContextVar("_OUTER", default=None)
"""The bar that is on the screen of this thread, if one is."""


class Bar:
    """A progress bar; with `shown=None`, it appears if standard error is a terminal.

    With `steps=None` their number is unknown, or must not be shown: the bar then only moves. Inside another
    bar there is no second one: its title, steps and notes are shown beside the outer bar.
    """

    def __init__(self, title: str, steps: int | None, shown: bool | None = None) -> None:
        """Prepare the bar; it appears when entered."""
        self._bar: Progress | None = None
        self._outer = None if shown is False else _OUTER.get()
        self._token: Token[Bar | None] | None = None
        self._title, self._steps, self._done, self._said = title, steps, 0, ""
        if self._outer is not None or not (sys.stderr.isatty() if shown is None else shown):
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
        """Show the bar, or its title beside the outer one."""
        if self._bar is not None:
            self._bar.start()
            self._token = _OUTER.set(self)
        self._tell_outer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
        if self._token is not None:
            _OUTER.reset(self._token)

    def advance(self, steps: int = 1) -> None:
        """Advance by some steps."""
        self._done += steps
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], steps)
        self._tell_outer()

    def note(self, text: str) -> None:
        """Show a note beside the bar."""
        self._said = text
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], note=text)
        self._tell_outer()

    def _tell_outer(self) -> None:
        """Show title, steps and note beside the outer bar, if there is one."""
        if self._outer is not None:
            steps = "" if self._steps is None else f"{self._done:,}/{self._steps:,}"
            self._outer.note(" ".join(filter(None, (self._title.lower(), steps, self._said))))
