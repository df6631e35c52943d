"""The server of Studio: it opens a spec for one person on this machine, and ends with the command.

`run` serves until it is interrupted. The state is the spec file (`session.py`), addresses are states, and
every form works without scripts as well; htmx only exchanges the part of a page that changes.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from querysmasher.errors import FileError
from querysmasher.studio import describing, pages, publishing, seeing  # noqa: F401 - they add addresses
from querysmasher.studio.security import HOST, Guard
from querysmasher.studio.session import Session
from querysmasher.studio.worker import Worker

LOCK = ".querysmasher-studio.lock"
"""The file that keeps a second Studio out of a folder."""

FILES = {"styles.css": "report"} | dict.fromkeys(("studio.css", "studio.js", "htmx.min.js"), "studio/static")
"""The files that pages load, and their folders: no path leads to any other."""


async def static(request: Request) -> Response:
    """Return a file that is part of the package."""
    name = request.path_params["name"]
    if name not in FILES:
        return PlainTextResponse("No such page\n", 404)
    return FileResponse(Path(__file__).parents[1] / FILES[name] / name)


def application(session: Session) -> Starlette:
    """Return the application, without its guard."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        warming = asyncio.create_task(session.look())  # the first page finds it read and planned
        yield
        warming.cancel()
        session.close()

    app = Starlette(routes=[*pages.ROUTES, Route("/static/{name}", static)], lifespan=lifespan)
    app.state.session = session
    app.state.run = app.state.kept = app.state.asked = None
    app.state.token = ""
    return app


def run(spec: Path, port: int, opened: Callable[[str], None]) -> None:
    """Serve until interrupted; `opened` is called with the secret address once it can be opened."""
    path = spec.absolute()
    if not path.parent.is_dir():
        raise FileError(f"the folder {str(path.parent)!r} does not exist; create it first")
    lock = FileLock(path.parent / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        msg = f"another Studio has {str(path.parent)!r} open; close that one first"
        raise FileError(msg) from None
    try:
        with socket.socket() as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                bound.bind((HOST, port))
            except OSError as error:
                raise FileError(f"--port: port {port} is taken ({error.strerror})") from None
            token, own = secrets.token_urlsafe(32), bound.getsockname()[1]
            guarded = Guard(application(Session(path, Worker(), Worker())), own, token)
            server = uvicorn.Server(
                uvicorn.Config(
                    guarded,
                    log_level="warning",
                    access_log=False,
                    server_header=False,
                    proxy_headers=False,
                    ws="none",
                    lifespan="on",
                    timeout_graceful_shutdown=2,
                )
            )
            bound.listen()
            opened(f"http://{HOST}:{own}/open?token={token}")
            with suppress(KeyboardInterrupt):
                server.run(sockets=[bound])
    finally:
        (path.parent / LOCK).unlink(missing_ok=True)  # while it is held: who waits for it begins anew
        lock.release()
