"""What the addresses of Studio show and do: a page for every step, and the changes that its forms make."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from querysmasher.studio.document import Document, Location, location_of, written
from querysmasher.studio.session import CHANGED, PATIENCE, SLID, Problems, Session

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
    "epsilon": ("ε, with δ", "ε", 0.01, 100.0),
    "rho": ("ρ (zero-concentrated)", "ρ", 0.0001, 10.0),
    "mu": ("μ (Gaussian)", "μ", 0.01, 10.0),
    "cost": ("privacy cost", "privacy cost", 0.0001, 100.0),
}
"""The definitions of a budget: their names, long and short, and the ends of their sliders."""

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

CODEBOOKS = (".csv", ".json", ".sav", ".zsav", ".por", ".dta")

Page = Callable[..., Awaitable[Response]]
Context = Callable[[Request, Session], Awaitable[dict[str, Any]]]
"""What a page shows, by the names in its template; perhaps `problems`, and the fields that have them."""

Edit = Callable[[Document, Session, FormData], str | Problems | None]
"""A change of the spec that a form states; it returns what it has changed, or what is wrong with the form."""

ROUTES: list[Route] = []
"""Every address, and what answers there."""

VIEWS: dict[str, Page] = {}
"""The pages that need a valid spec, by their addresses."""


def route(method: str, path: str) -> Callable[[Page], Page]:
    """Give a function an address, and the session after a look at the file."""

    def register(page: Page) -> Page:
        @wraps(page)
        async def answer(request: Request) -> Response:
            session: Session = request.app.state.session
            await session.look()
            return await page(request, session)

        ROUTES.append(Route(path, answer, methods=[method]))
        return page

    return register


get, post = partial(route, "GET"), partial(route, "POST")


def view(path: str, name: str = "") -> Callable[[Context], Page]:
    """Give a page its address, and what it shows; without a valid spec, that leads to what is wrong."""

    def register(context: Context) -> Page:
        async def page(
            request: Request,
            session: Session,
            problems: Problems | None = None,
            given: FormData | None = None,
            **more: Any,
        ) -> Response:
            if session.known is None:
                return RedirectResponse("/" if session.text is None else "/text", 303)
            about = await context(request, session) | more
            about |= {"problems": problems, "given": given} if problems else {}
            return await shown(request, session, name or path[1:], **about)

        VIEWS[path] = get(path)(page)
        return page

    return register


def change(path: str, what: str = "", field: str = "") -> Callable[[Edit], Edit]:
    """Give a change its address: it leads back to the page of its form, or shows that with the problems.

    Problems of a form that has the `field` stand beside it, unless they are about all of the file.
    """

    def register(edit: Edit) -> Edit:
        async def apply(request: Request, session: Session) -> Response:
            form, where = await request.form(), request.query_params.get("back", "/decide")
            if session.known is None:
                return RedirectResponse("/", 303)
            problems = await session.change(what, lambda document: edit(document, session, form))
            parts = urlsplit(where)
            page = None if parts.scheme or parts.netloc else VIEWS.get(parts.path)  # of no other site
            if problems:
                problems = {field if key and field in form else key: problems[key] for key in problems}
                given = own(form, session) if problems == {"": CHANGED} else form
                return await (page or VIEWS["/decide"])(request, session, problems, given)
            return RedirectResponse(where if page else "/decide", 303)

        post(path)(apply)
        return edit

    return register


def concerns(problem: str, key: str) -> bool:
    """Return whether the key of a problem is a key, or in it; a further entry of a list is all of it.

    >>> concerns("impossible[2]", "impossible[3]"), concerns("plan", "plan.exact")
    (True, False)
    """
    key = re.sub(r"\[\d+\]$", "", key)
    return problem == key or problem.startswith((f"{key}.", f"{key}["))


def problem_of(problems: Problems, key: str) -> str | None:
    """Return what is wrong with a key, or with what is in it."""
    return next((said for name, said in problems.items() if concerns(name, key)), None)


def beside(problem: str, given: dict[str, str]) -> bool:
    """Return whether a form has a field beside which a problem is shown."""
    return any(concerns(problem, name.rpartition(":")[2]) for name in given)


TEMPLATES = Environment(
    loader=PackageLoader("querysmasher.studio"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
"""The templates; everything that they insert is escaped."""


def stated(document: Document | None, key: str) -> Any:
    """Return what a field shows for a key of the spec."""
    location = location_of(key)
    found = None if document is None else document.get(location)
    found = DEFAULTS.get(str(location[-1]), "") if found is None else found
    return ", ".join(map(str, found)) if isinstance(found, list) else found


TEMPLATES.globals |= {
    "problem_of": problem_of,
    "beside": beside,
    "stated": stated,
    "steps": STEPS,
    "frozenset": frozenset,
}


async def shown(
    request: Request,
    session: Session,
    name: str,
    problems: Problems | None = None,
    given: FormData | dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a page; with problems, the form that has them keeps what was given."""
    context = {
        "here": urlsplit(request.query_params.get("back", "")).path or request.url.path,
        "session": session,
        "known": session.known,
        "document": session.document if session.text and session.known else None,
        "figures": await session.soon() if session.known else None,
        "latest": session.latest,
        "problems": problems or {},
        "given": {name: value for name, value in (given or {}).items() if isinstance(value, str)},
        **more,
    }
    html = TEMPLATES.get_template(f"{name}.html").render(context)
    # with problems, the address remains that of the page on which the form is
    return HTMLResponse(html, 422, {"HX-Push-Url": "false"}) if problems else HTMLResponse(html)


def value_of(kind: str, text: str) -> Any:
    """Return what a field of a form states, in the type of its key; text that does not fit stays text.

    >>> value_of("n", "1,000"), value_of("n", "0.5"), value_of("n", "many"), value_of("l", "1, 2")
    (1000, 0.5, 'many', [1, 2])
    >>> value_of("c", "state"), value_of("c", "sex, race")
    ('state', ['sex', 'race'])
    """
    text = text.strip()
    if kind == "l":
        return [value_of("n", part) for part in text.split(",") if part.strip()] or None
    if kind == "c" and "," in text:
        return [part.strip() for part in text.split(",")]
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


# --- pages ---


async def begin(request: Request, session: Session, problems: Problems | None = None, **_: Any) -> Response:
    """Show where to start."""
    return await shown(request, session, "start", problems, files=session.files(CODEBOOKS))


@get("/")
async def home(request: Request, session: Session) -> Response:
    """Show where to start, or what is wrong with the file, or the errors."""
    if session.text is None:
        return await begin(request, session)
    return RedirectResponse("/text" if session.problems else "/decide", 303)


@view("/decide")
async def decide(_: Request, session: Session) -> dict[str, Any]:
    """Return the budget, and how it is stated."""
    name = definition(session.document)
    amount = session.document.get(("budget", name))
    about = {"defined": name, "amount": amount, "position": position_of(name, amount), "slides": SLIDES}
    return {"budgets": BUDGETS, **about}


@get("/text")
async def text(request: Request, session: Session) -> Response:
    """Show the spec file itself, with what is wrong in it."""
    if session.text is None:
        return RedirectResponse("/", 303)
    return await shown(request, session, "text", wrong=session.problems)


@get("/figures")
async def figures(request: Request, session: Session) -> Response:
    """Return the panel of figures; if it waits for them, once there is something new."""
    waits = "wait" in request.query_params and session.known is not None
    if waits and not await session.soon(PATIENCE) and session.cancelled != session.digest:
        return Response(status_code=204)
    return await shown(request, session, "figures")


@get("/progress")
async def progress(request: Request, session: Session) -> Response:  # noqa: ARG001
    """Say how far planning is."""
    return PlainTextResponse(session.said or "Planning")


# --- changes ---


@change("/set")
def set_keys(document: Document, session: Session, form: FormData) -> str | Problems:
    """Set the keys that a form states with fields like n:workload[0].target, or remove what it drops.

    An empty field removes its key. The place after the last entry of a list is a further entry. What another
    page has changed since stays, unless it is at such a place.
    """
    if "drop" in form:
        place, _, seen = str(form["drop"]).partition("@")
        if seen != session.digest:
            return {"": CHANGED}
        drop(document, location := location_of(place))
        return f"without {written(location)}"
    shown, now = shown_by(form, document, session), document.plain
    if shown is None:
        return {"": CHANGED}
    changed: list[str] = []
    further: dict[str, dict[str, Any]] = {}
    for name, given in form.multi_items():
        kind, _, key = name.partition(":")
        location, value = location_of(key), value_of(kind, str(given))
        before = shown.get(location)
        if not key or before == value or (before is None and value == DEFAULTS.get(str(location[-1]))):
            continue
        section = str(location[0])
        if "[" in key and shown is not document and shown.get((section,)) != now.get(section):
            return {"": CHANGED}
        changed.append(key)
        if len(location) == 3 and isinstance(location[1], int) and document.get(location[:2]) is None:
            further.setdefault(str(location[0]), {})[str(location[2])] = value
        elif isinstance(location[-1], int):
            document.set(location[:-1], [*entries_of(document, location[:-1]), value])
        else:
            document.set(location, value)
    for section, table in further.items():
        document.add(section, table)
    for key in BUDGETS:  # what is stated now replaces what was stated
        if f"budget.{key}" in changed:
            define(document, {}, key)
    ledger = document.get(("budget", "ledger"))
    if isinstance(ledger, dict) and "path" not in ledger:
        document.set(("budget", "ledger"), None)
    return ", ".join(changed)


def shown_by(form: FormData, document: Document, session: Session) -> Document | None:
    """Return what the page of a form has shown, as far as it is known, or None if that is too long ago."""
    seen = str(form.get("seen", session.digest))
    text = session.text_of(seen)
    return document if seen == session.digest else None if text is None else Document(text)


def own(form: FormData, session: Session) -> dict[str, Any]:
    """Return the fields of a form that a person has changed: the others show what the file states now."""
    seen = Document(session.text_of(str(form.get("seen"))) or "")
    pairs = ((name, name.partition(":")[2], value) for name, value in form.multi_items())
    return {name: value for name, key, value in pairs if not key or str(stated(seen, key)) != value}


def entries_of(document: Document, location: Location) -> list[Any]:
    """Return the entries of a list, which may be missing, or a single one."""
    found = document.get(location)
    return found if isinstance(found, list) else [] if found is None else [found]


def drop(document: Document, location: Location) -> None:
    """Remove a table of a section, or an entry of a list; the last entry is removed with its key."""
    *path, place = location
    before = entries_of(document, tuple(path))
    if not isinstance(place, int) or place >= len(before):
        return
    kept = [entry for number, entry in enumerate(before) if number != place]
    if isinstance(before[place], dict):
        document.remove(str(path[0]), place)
    elif not kept and path[-1] == "predicate":
        document.remove(str(path[0]), int(path[1]))
    else:
        document.set(tuple(path), kept or None)


def definition(document: Document) -> str:
    """Return the key under which a spec states its budget."""
    return next((name for name in BUDGETS if document.get(("budget", name)) is not None), "least")


def amount_at(name: str, position: float) -> float:
    """Return the amount at a position of a slider, in two significant digits.

    >>> amount_at("epsilon", 0), amount_at("epsilon", 100), amount_at("epsilon", 103)
    (0.01, 1.0, 1.1)
    """
    *_, low, high = BUDGETS[name]
    return float(f"{low * (high / low) ** (position / SLIDES):.2g}")


def position_of(name: str, amount: Any) -> int:
    """Return the position of a slider that is nearest to an amount.

    >>> position_of("epsilon", 1.0), position_of("epsilon", 1e9)
    (100, 200)
    """
    if name not in BUDGETS or not isinstance(amount, int | float):
        return 0
    *_, low, high = BUDGETS[name]
    return round(SLIDES * min(max(math.log(amount / low) / math.log(high / low), 0), 1))


@change("/slide", SLID)
def slide(document: Document, _: Session, form: FormData) -> None:
    """Set the budget to a position of its slider."""
    name = definition(document)
    position = value_of("n", str(form.get("position", "")))
    if name in BUDGETS and isinstance(position, int | float) and 0 <= position <= SLIDES:
        document.set(("budget", name), amount_at(name, position))


@change("/definition", "definition of the budget")
def redefine(document: Document, session: Session, form: FormData) -> None:
    """State the budget in another definition of privacy."""
    known = session.known or {}
    best = session.latest if known.get("least") and session.latest else known
    define(document, best["amounts"], str(form.get("definition", "")))


def define(document: Document, amounts: dict[str, Any], name: str) -> None:
    """State the budget in one definition alone, at least as large as the amounts are."""
    for key in (*BUDGETS, "delta", "least"):
        if key != name and not (key == "delta" and name == "epsilon"):
            document.set(("budget", key), None)
    if name == "least":
        document.set(("budget", "least"), True)
    elif name in amounts:
        document.set(("budget", name), amounts[name])
        if name == "epsilon" and document.get(("budget", "delta")) is None:
            document.set(("budget", "delta"), amounts["delta"])


@post("/text")
async def retext(request: Request, session: Session) -> Response:
    """Replace the text of the spec file."""
    form = await request.form()
    given = str(form.get("text", "")).replace("\r\n", "\n")
    is_new = form.get("seen", session.digest) == session.digest
    problems = await session.replace(given, "text") if is_new else {"": CHANGED}
    if problems:
        return await shown(request, session, "text", problems, form, wrong=problems)
    return RedirectResponse("/text", 303)


async def step(request: Request, session: Session) -> Response:
    """Undo the last change, or do it again."""
    problems = await session.step(1 if request.url.path == "/redo" else -1)
    where = request.query_params.get("back", "")
    where = where if where in (*VIEWS, "/text") else "/decide"
    return await VIEWS["/decide"](request, session, problems) if problems else RedirectResponse(where, 303)


async def cancel(request: Request, session: Session) -> Response:
    """Stop planning, or plan again."""
    if request.url.path == "/cancel":
        session.cancel(for_good=True)
    else:
        session.resume()
    return await shown(request, session, "figures")


for path, answer in {"/undo": step, "/redo": step, "/cancel": cancel, "/resume": cancel}.items():
    post(path)(answer)
