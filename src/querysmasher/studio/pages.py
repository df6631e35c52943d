"""What the addresses of Studio show and do: a page for every step, and the changes that its forms make."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from querysmasher.studio.document import Document, Location, location_of
from querysmasher.studio.session import PATIENCE, Problems, Session

STEPS = {
    "/describe": "Describe",
    "/choose": "Choose",
    "/decide": "Decide",
    "/see": "See",
    "/publish": "Publish",
    "/text": "Text",
}
"""The pages in the order of the work."""

BUDGETS = {
    "epsilon": ("ε, with δ", 0.01, 100.0),
    "rho": ("ρ (zero-concentrated)", 0.0001, 10.0),
    "mu": ("μ (Gaussian)", 0.01, 10.0),
    "cost": ("privacy cost", 0.0001, 100.0),
}
"""The definitions of a budget: their names, and the ends of their sliders."""

SLIDES = 200
"""Number of positions of a slider."""

DEFAULTS = {
    "weight": 1,
    "objective": "mean",
    "insufficient": "refuse",
    "folder": "out",
    "answers": "parquet",
    "unknown": "refuse",
    "neighbours": "add_remove",
    "records_per_person": 1,
}
"""What forms show for keys that are not stated; that alone is no reason to state them."""


def templates() -> Environment:
    """Return the templates; everything that they insert is escaped."""
    return Environment(
        loader=PackageLoader("querysmasher.studio"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


TEMPLATES = templates()


def handler(method: Callable[[Request, Session], Awaitable[Response]]) -> Callable[[Request], Any]:
    """Give a function the session, after a look at the file."""

    @wraps(method)
    async def answer(request: Request) -> Response:
        session: Session = request.app.state.session
        await session.look()
        return await method(request, session)

    return answer


async def shown(
    request: Request,
    session: Session,
    name: str,
    problems: Problems | None = None,
    given: FormData | None = None,
    **more: Any,
) -> Response:
    """Return a page; with problems, the form that has them keeps what was given."""
    figures = await session.soon() if session.known else None
    document = session.document if session.text and session.known else None
    defined = "least" if document is None else definition(document)
    amount = None if document is None else document.get(("budget", defined))
    context = {
        "steps": STEPS,
        "budgets": BUDGETS,
        "slides": SLIDES,
        "defined": defined,
        "amount": amount,
        "position": position_of(defined, amount),
        "here": request.url.path,
        "session": session,
        "known": session.known,
        "document": document,
        "figures": figures,
        "latest": session.latest,
        "problems": problems or {},
        "given": {name: value for name, value in (given or {}).items() if isinstance(value, str)},
        **more,
    }
    html = TEMPLATES.get_template(f"{name}.html").render(context)
    # with problems, the address remains that of the page on which the form is
    return HTMLResponse(html, 422, {"HX-Push-Url": "false"}) if problems else HTMLResponse(html)


def problem_of(problems: Problems, key: str) -> str | None:
    """Return what is wrong with a key, or with what is in it."""
    found = (p for name, p in problems.items() if name == key or name.startswith((f"{key}.", f"{key}[")))
    return next(found, None)


def beside(key: str, given: dict[str, str]) -> bool:
    """Return whether a form has a field beside which the problem of a key is shown."""
    names = (name.partition(":")[2] for name in given if ":" in name)
    return any(key == name or key.startswith((f"{name}.", f"{name}[")) for name in names)


TEMPLATES.globals |= {"problem_of": problem_of, "beside": beside, "frozenset": frozenset}


def value_of(kind: str, text: str) -> Any:
    """Return what a field of a form states, in the type of its key; text that does not fit stays text.

    >>> value_of("n", "1,000"), value_of("n", "0.5"), value_of("n", "many"), value_of("l", "1, 2")
    (1000, 0.5, 'many', [1, 2])
    """
    text = text.strip()
    if kind == "l":
        return [value_of("n", part) for part in text.split(",") if part.strip()] or None
    if kind == "b":
        return text == "true" if text else None
    if kind == "n":
        plain = text.replace(",", "").replace("_", "")
        for read in (int, float):
            try:
                return read(plain)
            except ValueError:
                continue
    return text or None


def stated(form: FormData) -> dict[Location, Any]:
    """Return the keys of the spec that a form states: its fields are named like n:workload[0].target."""
    fields = ((name.split(":", 1), text) for name, text in form.multi_items() if ":" in name)
    return {location_of(name): value_of(kind, text) for (kind, name), text in fields if isinstance(text, str)}


def back(request: Request, default: str = "/decide") -> Response:
    """Return to the page that a form is on, which its field `back` names."""
    where = request.query_params.get("back", default)
    local = where.startswith("/") and not where.startswith("//")
    return RedirectResponse(where if local else default, 303)


# --- pages ---


@handler
async def home(request: Request, session: Session) -> Response:
    """Show where to start, or what is wrong with the file, or the errors."""
    if session.text is None:
        return await shown(request, session, "start", files=session.files((".csv", ".json")))
    return RedirectResponse("/text" if session.problems else "/decide", 303)


@handler
async def start(request: Request, session: Session) -> Response:
    """Write a first spec file."""
    if session.text is None:
        form = await request.form()
        answer = await session.reader.ask("template")
        problems = {"": answer["error"]} if "error" in answer else {}
        problems = problems or await session.replace(answer["text"], "a first file")
        if problems:
            return await shown(request, session, "start", problems, form, files=[])
    return RedirectResponse("/decide", 303)


def page(show: Callable[..., Awaitable[Response]]) -> Callable[[Request], Any]:
    """Return a page that needs a valid spec; without one, it leads to what is wrong."""

    @handler
    async def answer(request: Request, session: Session) -> Response:
        if session.known is None:
            return RedirectResponse("/" if session.text is None else "/text", 303)
        return await show(request, session)

    return answer


@handler
async def text(request: Request, session: Session) -> Response:
    """Show the spec file itself, with what is wrong in it."""
    if session.text is None:
        return RedirectResponse("/", 303)
    return await shown(request, session, "text", wrong=session.problems)


@handler
async def figures(request: Request, session: Session) -> Response:
    """Return the panel of figures; if it waits for them, once there is something new."""
    waits = "wait" in request.query_params and session.known is not None
    if waits and not await session.soon(PATIENCE) and session.cancelled != session.digest:
        return Response(status_code=204)
    return await shown(request, session, "figures")


@handler
async def progress(request: Request, session: Session) -> Response:  # noqa: ARG001
    """Say how far planning is."""
    return PlainTextResponse(session.said or "Planning")


# --- changes ---


def change(what: str, page: str, edit: Callable[[Document, FormData], None]) -> Callable[[Request], Any]:
    """Return a handler that changes the spec as a form states, or shows the form with its problems."""

    @handler
    async def apply(request: Request, session: Session) -> Response:
        form = await request.form()
        problems = await session.change(what, lambda document: edit(document, form))
        if problems:
            return await shown(request, session, page, problems, form)
        return back(request, f"/{page}")

    return apply


def set_keys(document: Document, form: FormData) -> None:
    """Set every key that a form states; an empty field removes its key."""
    for location, value in stated(form).items():
        before = document.get(location)
        if before != value and not (before is None and value == DEFAULTS.get(str(location[-1]))):
            document.set(location, value)


def definition(document: Document) -> str:
    """Return the key under which a spec states its budget."""
    return next((name for name in BUDGETS if document.get(("budget", name)) is not None), "least")


def amount_at(name: str, position: float) -> float:
    """Return the amount at a position of a slider, in two significant digits.

    >>> amount_at("epsilon", 0), amount_at("epsilon", 100), amount_at("epsilon", 103)
    (0.01, 1.0, 1.1)
    """
    _, low, high = BUDGETS[name]
    return float(f"{low * (high / low) ** (position / SLIDES):.2g}")


def position_of(name: str, amount: Any) -> int:
    """Return the position of a slider that is nearest to an amount.

    >>> position_of("epsilon", 1.0), position_of("epsilon", 1e9)
    (100, 200)
    """
    if name not in BUDGETS or not isinstance(amount, int | float):
        return 0
    _, low, high = BUDGETS[name]
    return round(SLIDES * min(max(math.log(amount / low) / math.log(high / low), 0), 1))


def slide(document: Document, form: FormData) -> None:
    """Set the budget to a position of its slider."""
    name = definition(document)
    position = value_of("n", str(form.get("position", "")))
    if name in BUDGETS and isinstance(position, int | float) and 0 <= position <= SLIDES:
        document.set(("budget", name), amount_at(name, position))


def define(document: Document, known: dict[str, Any], name: str) -> None:
    """State the budget in another definition, at least as large."""
    for key in (*BUDGETS, "delta", "least"):
        if key != name and not (key == "delta" and name == "epsilon"):
            document.set(("budget", key), None)
    if name == "least":
        document.set(("budget", "least"), True)
    elif name in BUDGETS:
        document.set(("budget", name), known["amounts"][name])
        if name == "epsilon" and document.get(("budget", "delta")) is None:
            document.set(("budget", "delta"), known["amounts"]["delta"])


@handler
async def redefine(request: Request, session: Session) -> Response:
    """State the budget in another definition of privacy."""
    form, known = await request.form(), session.known or {}
    name = str(form.get("definition", ""))
    best = session.latest if known.get("least") and session.latest else known
    problems = await session.change("definition", lambda document: define(document, best, name))
    return await shown(request, session, "decide", problems, form) if problems else back(request)


@handler
async def retext(request: Request, session: Session) -> Response:
    """Replace the text of the spec file."""
    form = await request.form()
    given = str(form.get("text", "")).replace("\r\n", "\n")
    problems = await session.replace(given, "text")
    if problems:
        return await shown(request, session, "text", problems, form, wrong=problems)
    return RedirectResponse("/text", 303)


@handler
async def step(request: Request, session: Session) -> Response:
    """Undo the last change, or do it again."""
    problems = await session.step(1 if request.url.path == "/redo" else -1)
    return await shown(request, session, "decide", problems) if problems else back(request)


@handler
async def cancel(request: Request, session: Session) -> Response:
    """Stop planning, or plan again."""
    if request.url.path == "/cancel":
        session.cancel(for_good=True)
    else:
        session.resume()
    return await shown(request, session, "figures")


def get(path: str, endpoint: Callable[[Request], Any]) -> Route:
    """Return a route for reading."""
    return Route(path, endpoint, methods=["GET"])


def post(path: str, endpoint: Callable[[Request], Any]) -> Route:
    """Return a route for a change."""
    return Route(path, endpoint, methods=["POST"])


ROUTES = [
    get("/", home),
    post("/start", start),
    get("/decide", page(partial(shown, name="decide"))),
    get("/text", text),
    get("/figures", figures),
    get("/progress", progress),
    post("/set", change("", "decide", set_keys)),
    post("/slide", change("the budget", "decide", slide)),
    post("/definition", redefine),
    post("/text", retext),
    post("/undo", step),
    post("/redo", step),
    post("/cancel", cancel),
    post("/resume", cancel),
]
"""Every address, and what answers there."""
