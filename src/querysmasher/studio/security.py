"""Who may ask: only the browser that was opened with the token, only from Studio's own pages.

The server listens on this machine alone. That is not enough: every page that this browser shows can send
requests to it, and a hostile name server can make a foreign name point here. So every request states the
right host, comes from no other origin, and carries the cookie that the secret address has set.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"

MOST_BYTES = 4_000_000
"""Maximum size of a request: a codebook of a hundred thousand values."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What the pages may load: files of Studio, and nothing written into a page."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

OPENED = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Studio</title>
<link rel="icon" href="data:,">
<meta http-equiv="refresh" content="0; url=/"></head><body><a href="/">Open Studio</a></body></html>"""


class Guard:
    """Refuses every request that does not come from Studio's own pages, before anything looks at it."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        """Guard an application that is reached at a port with a secret token."""
        self._app, self._token = app, token
        self._host = f"{HOST}:{port}"
        self._cookie = f"querysmasher-studio-{port}"  # a browser does not tell ports apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._answer(scope)
            await (self._app if answer is None else answer)(scope, receive, _with_headers(send))

    def _answer(self, scope: Scope) -> Response | None:
        """Return why a request is refused, or the cookie for the token; None for a request to pass on."""

        def values(name: str) -> list[str]:
            return [value.decode("latin-1") for key, value in scope["headers"] if key == name.encode()]

        if values("host") != [self._host]:
            return _refusal(421, "this server answers to its own address only")
        changes = scope["method"] not in ("GET", "HEAD")
        origins = values("origin")
        if any(origin != f"http://{self._host}" for origin in origins) or (changes and len(origins) != 1):
            return _refusal(403, "the request comes from another page")
        if scope["path"] == "/open" and not changes:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
            if len(given) == 1 and secrets.compare_digest(given[0].encode(), self._token.encode()):
                cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
                return HTMLResponse(OPENED, headers={"Set-Cookie": cookie})
            return _refusal(403, "wrong token; open the address that the command printed")
        if any(site not in ("same-origin", "none") for site in values("sec-fetch-site")):
            return _refusal(403, "the request comes from another page")
        cookies = re.findall(rf"(?:^|; ){self._cookie}=([^;]*)", "; ".join(values("cookie")))
        if not any(secrets.compare_digest(given.encode(), self._token.encode()) for given in cookies):
            return _refusal(403, "no token; open the address that the command printed")
        length = values("content-length")
        if changes and (len(length) != 1 or not length[0].isdigit()):
            return _refusal(411, "the size of the request is missing")
        if length and (not length[0].isdigit() or int(length[0]) > MOST_BYTES):
            return _refusal(413, f"the request is larger than {MOST_BYTES:,} bytes")
        return None


def _refusal(status: int, why: str) -> Response:
    return PlainTextResponse(f"Refused: {why}\n", status)


def _with_headers(send: Send) -> Send:
    """Add the headers of every answer; an answer may state a policy of its own."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {key.lower() for key, _ in message["headers"]}
            more = ((key.lower().encode(), value.encode()) for key, value in HEADERS.items())
            message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in given)]
        await send(message)

    return sending


def confined(folder: Path, name: str) -> Path | None:
    """Return a path in a folder, where links lead as well; None for any other path."""
    try:
        real = (folder / name).resolve()
    except (OSError, ValueError, RuntimeError):  # a null character, or links in a circle
        return None
    return folder / name if real.is_relative_to(folder.resolve()) else None
