"""The pages that show what a setting means: made-up tables, curves, shares, another setting, a price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from querysmasher.studio.document import Document
from querysmasher.studio.pages import BUDGETS, back, define, get, handler, page, post, shown, value_of
from querysmasher.studio.session import Session, digest

WIDTH, HEIGHT = 640, 240
"""The size of a drawing, of which the browser shows as much as fits."""

MOST_BARS = 40
"""Maximum number of cells that are drawn; the table beside the drawing has them all."""


def bars(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return where the bars and the intervals of a made-up table stand in a drawing."""
    some = rows[:MOST_BARS]
    top = max((row["count"] + 2 * row["std"] for row in some), default=1.0) or 1.0
    step = WIDTH / max(len(some), 1)

    def height(count: float) -> float:
        return round(HEIGHT * (1 - max(count, 0.0) / top), 1)

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "bars": [
            {
                "x": round(step * (number + 0.15), 1),
                "middle": round(step * (number + 0.5), 1),
                "width": round(step * 0.7, 1),
                "y": height(row["count"]),
                "high": height(row["count"] + 1.96 * row["std"]),
                "low": height(row["count"] - 1.96 * row["std"]),
                "said": f"{row['label']}: {row['said']}",
            }
            for number, row in enumerate(some)
        ],
    }


def curve(points: Sequence[Sequence[float]], epsilon: float) -> dict[str, Any]:
    """Return a curve of errors against ε on logarithmic axes, and the place of the plan."""
    logs = [(math.log(at), math.log(error)) for at, error in points]
    (left, high), (right, low) = logs[0], logs[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        return round(WIDTH * (x - left) / (right - left), 1), round(HEIGHT * (high - y) / (high - low), 1)

    here = min(max(math.log(epsilon), left), right)
    before, after = next(pair for pair in pairwise(logs) if here <= pair[1][0])
    between = before[1] + (after[1] - before[1]) * (here - before[0]) / (after[0] - before[0])
    shown = [(at, error) for at, error in points if f"{at:e}"[:3] in ("1.0", "2.0", "5.0")]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "line": " ".join("{},{}".format(*place(x, y)) for x, y in logs),
        "here": place(here, between),
        "ticks": [{"x": place(math.log(at), 0.0)[0], "said": f"{at:g}"} for at, _ in shown],
        "table": [(f"{at:g}", f"{error:.3g}") for at, error in shown],
    }


async def see(request: Request, session: Session) -> Response:
    """Show a made-up table with its errors, error against ε, and where the budget goes."""
    names = {attribute["name"]: attribute["size"] for attribute in (session.known or {})["attributes"]}
    query = request.query_params
    first = query.get("first") or min(names, key=lambda name: abs(names[name] - 8))
    wanted = [name for name in dict.fromkeys((first, query.get("second", ""))) if name in names]
    records = value_of("n", query.get("records", "1000"))
    problems, made = {}, None
    if not (type(records) is int and 1 <= records <= 10**12):
        problems["records"] = "expected an integer from 1 to 10^12"
    figures = await session.soon()
    if figures and "error" not in figures and not problems:
        made = await session.planner.ask(
            "made_up", path=str(session.path), text=session.text, names=wanted, records=records
        )
        if "error" in made:
            problems, made = {"first": made["error"]}, None
    ready = bool(figures and figures.get("curve"))
    return await shown(
        request,
        session,
        "see",
        problems,
        names=names,
        wanted=wanted,
        records=query.get("records", "1000"),
        made=made,
        drawing=bars(made["rows"]) if made else None,
        line=curve(figures["curve"], figures["amounts"]["epsilon"]) if figures and ready else None,
    )


async def compare(request: Request, session: Session) -> Response:
    """Show two settings side by side."""
    names = [digest(text) for _, text in session.settings]
    kept = getattr(request.app.state, "kept", None)
    sides = []
    for key, default in (("a", kept or (names[-2] if len(names) > 1 else names[-1])), ("b", session.digest)):
        name = request.query_params.get(key, default)
        text = session.text_of(name)
        sides.append(await _side(session, name, text))
    return await shown(request, session, "compare", sides=sides, settings=_settings(session), all_names=names)


def _settings(session: Session) -> dict[str, str]:
    """Return the settings so far, each by its name and the change that made it."""
    return {digest(text): f"{number}. {what}" for number, (what, text) in enumerate(session.settings, 1)}


async def _side(session: Session, name: str, text: str | None) -> dict[str, Any]:
    """Return what is known about a setting, planned now if it was not before."""
    if text is None:
        return {"name": name, "error": "this setting is not remembered any more"}
    known, problems = (session.known, {}) if name == session.digest else await session.check(text)
    if known is None:
        return {"name": name, "error": "; ".join(problems.values())}
    if name not in session.plans and name != session.digest:
        session.plans[name] = await session.planner.ask("plan", path=str(session.path), text=text)
    figures = await session.soon() if name == session.digest else session.plans[name]
    if figures is None:
        return {"name": name, "error": "the plan is not finished yet"}
    if "error" in figures:
        return {"name": name, "error": figures["error"]}
    document = Document(text)
    budget = next(
        ((key, document.get(("budget", key))) for key in BUDGETS if document.get(("budget", key))), None
    )
    stated = f"{budget[0]} = {budget[1]}" if budget else "the least that meets all targets"
    return {"name": name, "known": known, "figures": figures, "budget": stated}


@handler
async def keep(request: Request, session: Session) -> Response:
    """Keep the current setting as the one that others are compared with."""
    request.app.state.kept = session.digest
    return back(request)


def least_text(text: str, target: float | None, level: float | None) -> str:
    """Return a spec that asks for the least budget: for its own targets, or for one for all queries."""
    document = Document(text)
    define(document, {}, "least")
    document.set(("plan", "objective"), None)
    document.set(("plan", "insufficient"), None)
    for index in range(len(document.plain.get("workload", ())) if target is not None else 0):
        document.set(("workload", index, "target"), target)
        document.set(("workload", index, "level"), level)
    return document.text


async def price(request: Request, session: Session) -> Response:
    """Say what an accuracy would cost, certified."""
    query = request.query_params
    target, level = (value_of("n", query.get(key, "")) for key in ("target", "level"))
    answer = None
    problems: dict[str, str] = {}
    if target is None and level is not None:
        problems["level"] = "allowed only together with target"
    elif "target" in query:
        text = least_text(session.text or "", target, level)
        known, found = await session.check(text)
        problems = {key.rpartition(".")[2]: problem for key, problem in found.items()}
        if known is not None:
            answer = await session.planner.ask("least", path=str(session.path), text=text)
        if answer and "error" in answer:
            problems, answer = {"": answer["error"]}, None
    return await shown(
        request,
        session,
        "price",
        problems,
        answer=answer,
        target=query.get("target", ""),
        level=query.get("level", ""),
    )


@handler
async def take(request: Request, session: Session) -> Response:
    """Take over a budget that was found."""
    form = await request.form()
    amount, delta = (value_of("n", str(form.get(key, ""))) for key in ("epsilon", "delta"))
    amounts = {"amounts": {"epsilon": amount, "delta": delta}}

    def edit(document: Document) -> None:
        define(document, amounts, "epsilon")
        document.set(("budget", "delta"), delta)

    problems = await session.change("the price of a target", edit)
    return await shown(request, session, "decide", problems) if problems else back(request)


ROUTES = [
    get("/see", page(see)),
    get("/compare", page(compare)),
    post("/keep", keep),
    get("/price", page(price)),
    post("/take", take),
]
"""The addresses of these pages, and what answers there."""
