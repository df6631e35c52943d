"""One spec file in one folder: what it states, how it became so, and what its plan promises."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from querysmasher.studio.document import Document, Location, paths, strays, written
from querysmasher.studio.security import confined
from querysmasher.studio.worker import Worker

Problems = dict[str, str]
"""What is wrong with a form, by the key of the spec; "" is about all of it."""

SOON = 0.25
"""Seconds to wait for a plan before an answer goes out without it."""

PATIENCE = 2.0
"""Seconds that a panel of figures waits for a plan until it asks again: a browser has few connections."""

KEPT = 200
"""Maximum number of settings that can be undone, and of plans that are remembered."""

SLID = "the budget, moved"
"""The change that is undone as a whole, however many positions of the slider it went through."""

CHANGED = "the file was changed in the meantime; look at it again, then repeat your change"


def digest(text: str) -> str:
    """Return a short name of a text, as part of addresses."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Session:
    """The state of Studio is a file: every change is checked, then written at once, all or nothing."""

    def __init__(self, path: Path, reader: Worker, planner: Worker) -> None:
        """Work on a spec file with two processes: one plans, the other answers meanwhile."""
        self.path, self.folder = path, path.parent
        self.reader, self.planner = reader, planner
        self.text: str | None = None
        """The text of the file when it was last looked at; None without a file."""
        self.known: dict[str, Any] | None = None
        """What a valid spec states."""
        self.problems: Problems = {}
        """What is wrong with an invalid spec."""
        self.settings: list[tuple[str, str]] = []
        """The texts that the file has had, each with the change that made it."""
        self.position = -1
        """The setting that the file has now."""
        self.plans: dict[str, dict[str, Any]] = {}
        """What plans promise, by the digest of the text."""
        self.latest: dict[str, Any] | None = None
        """The plan that was finished last, perhaps of another setting."""
        self.said = ""
        """How far planning is."""
        self.cancelled = ""
        """The digest of the text whose planning was cancelled."""
        self._named: list[Path] = []
        """The files, other than tables and releases, that the text names."""
        self._stamps: list[Any] = []
        """When these were changed last."""
        self._parsed: tuple[str, Document] | None = None
        self._job: asyncio.Task[None] | None = None
        self._aside: asyncio.Task[dict[str, Any]] | None = None
        self._planning = ""
        self._changing = asyncio.Lock()

    @property
    def digest(self) -> str:
        """The name of the setting that the file has now."""
        return digest(self.text or "")

    @property
    def document(self) -> Document:
        """What the file states, key by key; it must be TOML."""
        if self._parsed is None or self._parsed[0] != self.text:
            self._parsed = (self.text or "", Document(self.text or ""))
        return self._parsed[1]

    @property
    def names(self) -> list[str]:
        """The names of the attributes."""
        return [attribute["name"] for attribute in self.known["attributes"]] if self.known else []

    @property
    def seen(self) -> tuple[str, list[Any]]:
        """What pages show now: the setting, and the state of the files that it names."""
        return self.digest, self._stamps

    async def look(self) -> None:
        """Read the file again if another program changed it, a codebook that it names, or its ledger."""
        async with self._changing:
            text = self._on_disk()
            if text != self.text or self._stamps != [_stamp(path) for path in self._named]:
                self.cancel()
                self.plans = {}
                is_new, self.text = text != self.text, text
                self.known, self.problems = None, {}
                if text is not None:
                    self.known, self.problems = await self.check(text)
                    self._note(text)
                if text is not None and is_new:
                    self._remember(text, "the file" if not self.settings else "changed outside Studio")
        self.plan()

    def _note(self, text: str) -> None:
        """Remember which files a text names, and how they are now."""
        self._named = []
        with suppress(ValueError, RecursionError):
            self._named = self._files_of(paths(text))
        self._stamps = list(map(_stamp, self._named))

    def _files_of(self, named: Iterable[tuple[Location, str]]) -> list[Path]:
        """Return the files among the paths that a text states, other than tables and releases."""
        names = [name for location, name in named if location[0] not in ("data", "output")]
        return [path for name in names if (path := confined(self.folder, name))]

    def _on_disk(self) -> str | None:
        try:
            return self.path.read_bytes().decode("utf-8-sig")
        except FileNotFoundError:
            return None

    async def check(self, text: str) -> tuple[dict[str, Any] | None, Problems]:
        """Return what a text states, or its problems."""
        try:
            named = paths(text)
            outside = [(written(location), problem) for location, problem in strays(named, self.folder)]
        except (ValueError, RecursionError) as error:
            return None, {"": f"{self.path.name} is not valid TOML: {error}"}
        if outside:
            return None, dict(outside)
        seen = str([*map(_stamp, self._files_of(named))])
        answer = await self.free.ask("read", path=str(self.path), text=text, seen=seen)
        if "error" in answer:
            problems: Problems = {}
            for key, problem in answer["problems"]:
                problems.setdefault(key, problem)
            return None, problems or {"": answer["error"]}
        return answer, {}

    async def ask(self, task: str, **more: Any) -> dict[str, Any]:
        """Return what a task answers about the spec, at once."""
        return await self.free.ask(task, **self.about, **more)

    @property
    def free(self) -> Worker:
        """The process that plans, which has read the spec before, or the other one if it plans now."""
        return self.planner if self.planner.is_free else self.reader

    @property
    def about(self) -> dict[str, Any]:
        """What a task is told about the spec."""
        return {"path": str(self.path), "text": self.text, "seen": str(self._stamps)}

    def files(self, endings: tuple[str, ...]) -> list[str]:
        """Return the names of the files beside the spec, and no others, that have one of the endings."""
        found = (path.name for path in self.folder.iterdir() if path.name.lower().endswith(endings))
        return sorted(name for name in found if name[0] != "." and confined(self.folder, name))[:KEPT]

    async def change(self, what: str, edit: Callable[[Document], str | Problems | None]) -> Problems:
        """Change the file, if what it becomes is valid; return its problems otherwise.

        The edit may return what it has changed, in words, or why it has not.
        """
        async with self._changing:
            document, self._parsed = self.document, None
            try:
                found, text = edit(document), document.text
            except (LookupError, TypeError, ValueError, AttributeError):  # the file has no such place
                return {"": CHANGED}
            said = found if isinstance(found, str) else what
            problems = (isinstance(found, dict) and found) or await self._write(text, said)
            if not problems:
                self._parsed = (text, document)
            return problems

    async def replace(self, text: str, what: str) -> Problems:
        """Give the file another text, if it is valid."""
        async with self._changing:
            return await self._write(text, what)

    async def _write(self, text: str, what: str | None) -> Problems:
        if self._on_disk() != self.text:
            return {"": CHANGED}
        if text == self.text:
            return {}
        known, problems = await self.check(text)
        if problems:
            return problems
        write(self.path, text)
        self.text, self.known, self.problems = text, known, {}
        self._note(text)
        if what is not None:
            self._remember(text, what)
        self.plan()
        return {}

    def _remember(self, text: str, what: str) -> None:
        """Add a setting; a slider that moves is undone as a whole."""
        del self.settings[self.position + 1 :]
        if what == SLID and len(self.settings) > 1 and self.settings[-1][0] == SLID:
            self.settings.pop()
        self.settings = [*self.settings, (what, text)][-KEPT:]
        self.position = len(self.settings) - 1

    async def step(self, by: int) -> Problems:
        """Undo a change, or do it again."""
        async with self._changing:
            if not 0 <= self.position + by < len(self.settings):
                return {}
            problems = await self._write(self.settings[self.position + by][1], None)
            self.position += 0 if problems else by
            return problems

    def text_of(self, name: str) -> str | None:
        """Return the text of a setting by its digest."""
        return next((text for _, text in reversed(self.settings) if digest(text) == name), None)

    def plan(self) -> None:
        """Plan what the file states now, instead of what is being planned, unless that is known."""
        if self.known is None or self.digest in (self.cancelled, self._planning):
            return
        if self._planning or self.digest not in self.plans:
            self.cancel()
        self.cancelled = ""
        if self.digest in self.plans:
            if "error" not in self.plans[self.digest]:
                self.latest = self.plans[self.digest]
        else:
            self._planning = self.digest
            self._job = asyncio.create_task(self._plan(self.about, self.digest))

    async def _plan(self, about: dict[str, Any], name: str) -> None:
        self.said = ""
        answer = await self.planner.ask("plan", partial(setattr, self, "said"), **about)
        self.plans = dict([*self.plans.items(), (name, answer)][-KEPT:])
        self._planning = ""
        if "error" not in answer:
            self.latest = answer

    def cancel(self, for_good: bool = False) -> None:
        """End the planning; `for_good`, it starts again only when it is asked for, or after a change."""
        if for_good:
            self.cancelled = self._planning
        for job in (self._job, self._aside):
            if job is not None:
                job.cancel()
        self._job, self._aside, self._planning = None, None, ""

    async def aside(self, text: str) -> tuple[dict[str, Any], Problems]:
        """Return what the plan of another text promises, or its problems; it ends if the file changes."""
        known, problems = await self.check(text)
        if known is None:
            return {}, problems
        self._aside = job = asyncio.create_task(self.planner.ask("plan", path=str(self.path), text=text))
        await asyncio.wait({job})
        answer = {"error": "this was cancelled; ask again"} if job.cancelled() else job.result()
        return answer, {"": answer["error"]} if "error" in answer else {}

    def resume(self) -> None:
        """Plan again what was cancelled."""
        self.cancelled = ""
        self.plan()

    async def soon(self, seconds: float = SOON) -> dict[str, Any] | None:
        """Return what the plan of the current setting promises, if it is known or soon will be."""
        if self._job is not None and self.digest not in self.plans:
            await asyncio.wait({self._job}, timeout=seconds)
        return self.plans.get(self.digest)

    def close(self) -> None:
        """End all processes."""
        self.cancel()
        self.reader.stop()
        self.planner.stop()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return when a file was changed last, and its size; None without one."""
    with suppress(OSError):
        about = path.stat()
        return about.st_mtime_ns, about.st_size
    return None


def write(path: Path, text: str) -> None:
    """Write a text file, all or nothing, with the permissions that it has."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        temporary.replace(path.resolve())  # a link stays one
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
