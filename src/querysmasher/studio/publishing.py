"""The pages that check a table, release it and verify what was written.

Each step runs the command itself, in a process of its own, on the file that the page shows. So a release is
as safe as on the command line: the ledger records before the table is opened, and a draft keeps what was
measured. The process goes on if Studio ends.
"""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response

from querysmasher.studio.pages import get, post, shown, view
from querysmasher.studio.security import confined
from querysmasher.studio.session import Session

TABLES = (".csv", ".csv.gz", ".tsv", ".parquet")

FILE = re.compile(
    r"(release\.qs|plan\.qs|summary\.json|datapackage\.json|errors\.csv|report\.html"
    r"|(answers|estimates|microdata|statistic-[A-Za-z0-9_-]{1,60})(\.[a-z0-9]+){1,2})"
)
"""The files of a release folder, which may be published."""

SANDBOX = "sandbox allow-scripts allow-downloads allow-modals"
"""A page of a release has scripts of its own: they run apart from Studio, which they cannot ask."""

REVIEWS = {"report": "Page", "microdata": "Records", "verify": "Verify"}
"""The commands that read a release, each with its title."""

BUSY = "another run is not finished yet; wait for it, or stop it"
OUTDATED = "the spec, a codebook or the ledger was changed in the meantime; look at it again, then release"


@dataclass
class Run:
    """A command that was started, and what it has said so far."""

    title: str
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    said: IO[bytes]

    @classmethod
    def start(cls, title: str, folder: Path, *arguments: str) -> Run:
        """Start a command in a folder; Ctrl-C in the terminal of Studio does not reach it."""
        out, said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - both outlive this
        command = [sys.executable, "-m", "querysmasher.studio.command", *arguments, "--json"]
        process = subprocess.Popen(  # noqa: S603 - our own words, without a shell
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=said, start_new_session=True
        )
        return cls(title, process, out, said)

    @property
    def is_running(self) -> bool:
        """Whether it is not finished."""
        return self.process.poll() is None

    @property
    def progress(self) -> str:
        """What it said last about its progress."""
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").splitlines()
        marked = [line.removeprefix("progress: ") for line in lines if line.startswith("progress: ")]
        return marked[-1] if marked else "Starting"

    @property
    def result(self) -> dict[str, Any]:
        """What it printed, once it is finished."""
        self.out.seek(0)
        with suppress(ValueError):
            return dict(json.loads(self.out.read()))
        return {"error": {"message": f"the command ended with code {self.process.returncode}"}}


def output(session: Session) -> Path | None:
    """Return the release folder, or None if it is not in the folder of the spec."""
    return confined(session.folder, session.document.get(("output", "folder")) or "out")


def drafts(folder: Path) -> list[Path]:
    """Return what unfinished runs have measured for a release folder."""
    found = folder.parent.glob(f"{folder.name}.unfinished-*")
    return sorted(path for path in found if (path / "release.qs").is_file())


def contents(folder: Path | None) -> list[str]:
    """Return the files of a release folder."""
    if folder is None or not (folder / "release.qs").is_file():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_file() and FILE.fullmatch(path.name))


@view("/publish")
async def published(request: Request, session: Session) -> dict[str, Any]:
    """Return what is read and written, and what was."""
    folder = output(session)
    return {
        "tables": session.files(TABLES),
        "ledgers": session.files((".ledger",)),
        "folder": folder,
        "files": contents(folder),
        "drafts": [] if folder is None else drafts(folder),
        "run": request.app.state.run,
    }


async def ask(request: Request, session: Session) -> dict[str, Any]:
    """Ask whether to release, first and a second time: what is spent, what is left, what is written."""
    figures = await session.soon()
    again = request.url.path == "/release/again"
    if again and figures and "error" not in figures:
        request.app.state.token, request.app.state.asked = secrets.token_urlsafe(16), session.seen
    data = session.document.get(("data", "path")) or session.document.get(("data", "database"))
    return {"token": request.app.state.token, "data": data, "folder": output(session), "again": again}


for path in ("/release", "/release/again"):
    view(path, "release")(ask)


@post("/release")
async def release(request: Request, session: Session) -> Response:
    """Measure the table, once for each time that was asked twice."""
    given, state = str((await request.form()).get("token", "")), request.app.state
    expected, state.token = state.token, ""  # no answer counts twice
    if not expected or not secrets.compare_digest(given.encode(), expected.encode()):
        return RedirectResponse("/run", 303)  # a form that is sent again leads to what it has done
    if state.asked != session.seen:
        return await published(request, session, {"": OUTDATED})
    return await _start(request, session, "Release", "release", session.path.name)


@post("/complete")
async def complete(request: Request, session: Session) -> Response:
    """Complete what an unfinished run has measured; this spends nothing."""
    folder, name = output(session), str((await request.form()).get("draft", ""))
    if folder is None or name not in [path.name for path in drafts(folder)]:
        return await published(request, session)
    draft = (folder.parent / name).relative_to(session.folder)
    return await _start(request, session, "Release", "release", session.path.name, "--resume", str(draft))


@post("/check")
async def inspect(request: Request, session: Session) -> Response:
    """Check the table for its custodian."""
    return await _start(request, session, "Check", "check", session.path.name)


@post("/report")
@post("/microdata")
@post("/verify")
async def review(request: Request, session: Session) -> Response:
    """Write the page of a release, or synthetic records, or verify it."""
    folder, command = output(session), request.url.path[1:]
    if folder is None or not contents(folder):
        return await published(request, session)
    ledger = session.document.get(("budget", "ledger"))
    path = ledger.get("path") if isinstance(ledger, dict) else ledger
    against = ["--ledger", path] if path else []
    more = against if command == "verify" else ["--force"]
    return await _start(
        request, session, REVIEWS[command], command, str(folder.relative_to(session.folder)), *more
    )


async def _start(request: Request, session: Session, title: str, *arguments: str) -> Response:
    """Start a command, unless one is running or the spec is invalid."""
    state = request.app.state
    if session.known is None:
        return RedirectResponse("/", 303)
    if state.run is not None and state.run.is_running:
        return await published(request, session, {"": BUSY})
    state.run = Run.start(title, session.folder, *arguments)
    return RedirectResponse("/run", 303)


@get("/run")
async def running(request: Request, session: Session) -> Response:
    """Show how far a command is, and then what it has said."""
    run = request.app.state.run
    if run is None:
        return RedirectResponse("/publish", 303)
    return await shown(request, session, "run", run=run, files=contents(output(session)))


@post("/stop")
async def stop(request: Request, session: Session) -> Response:  # noqa: ARG001
    """Interrupt a command, as Ctrl-C does."""
    run = request.app.state.run
    if run is not None and run.is_running:
        run.process.send_signal(signal.SIGINT)
    return RedirectResponse("/run", 303)


@get("/files/{name}")
async def file(request: Request, session: Session) -> Response:
    """Return a file of the release folder, which may be published."""
    folder, name = output(session), request.path_params["name"]
    if name not in contents(folder) or folder is None or confined(folder, name) is None:
        return PlainTextResponse("No such file\n", 404)
    if name == "report.html":
        return FileResponse(folder / name, headers={"Content-Security-Policy": SANDBOX})
    about = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return FileResponse(folder / name, media_type="application/octet-stream", headers=about)
