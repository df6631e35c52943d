"""The pages that show what a setting means: made-up tables, curves, shares, another setting, a price."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from querysmasher.studio.document import Document
from querysmasher.studio.pages import define, post, value_of, view
from querysmasher.studio.session import Problems, Session, digest


@view("/see")
async def see(request: Request, session: Session) -> dict[str, Any]:
    """Show a made-up table with its errors, error against ε, and where the budget goes."""
    names = {attribute["name"]: attribute["size"] for attribute in (session.known or {})["attributes"]}
    query = request.query_params
    first = query.get("first") or min(names, key=lambda name: abs(names[name] - 8))
    wanted = [name for name in dict.fromkeys((first, query.get("second", ""))) if name in names]
    given = {"first": first, "second": query.get("second", ""), "records": query.get("records", "1000")}
    records, made = value_of("n", given["records"]), None
    problems: Problems = {}
    if not (type(records) is int and 1 <= records <= 10**12):
        problems["records"] = "expected an integer from 1 to 10^12"
    figures = await session.soon()
    if figures and "error" not in figures and not problems:
        made = await session.planner.ask("made_up", **session.about, names=wanted, records=records)
        if "error" in made:
            problems, made = {"first": made["error"]}, None
    return {"problems": problems, "given": given, "names": names, "records": records, "made": made}


@view("/compare")
async def compare(request: Request, session: Session) -> dict[str, Any]:
    """Show two settings side by side."""
    settings = {digest(text): f"{number}. {what}" for number, (what, text) in enumerate(session.settings, 1)}
    before = request.app.state.kept or [digest(text) for _, text in session.settings][-2:][0]
    names = [request.query_params.get("a", before), request.query_params.get("b", session.digest)]
    sides = [_compared(await _figures(session, name)) for name in names]
    rows = dict.fromkeys(words for side in sides for words in side)
    chosen = dict(zip(("a", "b"), names, strict=True))
    return {"sides": sides, "rows": rows, "chosen": chosen, "settings": settings}


def _compared(figures: dict[str, Any]) -> dict[str, str]:
    """Return what is compared of a setting, in words."""
    if "error" in figures:
        return {"Problem": figures["error"]}
    said = {"Guarantee": dict(figures["facts"])["Guarantee"], "Expected error": f"± {figures['rmse']}"}
    said |= {"Largest error": f"± {figures['largest']}"} if figures["largest"] else {}
    for entry in figures["entries"]:
        most = f", at most ± {entry['largest']}" if entry["largest"] else ""
        target = f" (target {entry['target']}{'' if entry['met'] else ' missed'})" if entry["target"] else ""
        said[entry["words"]] = f"± {entry['rmse'] or '?'}{most}{target}"
    return said


async def _figures(session: Session, name: str) -> dict[str, Any]:
    """Return what the plan of a setting promises; it is planned now if it was not before."""
    text = session.text_of(name)
    if text is None:
        return {"error": "this setting is not remembered any more"}
    if name == session.digest:
        return await session.soon() or {"error": "the plan is not finished yet"}
    if name not in session.plans:
        answer, problems = await session.aside(text)
        if problems:
            return {"error": "; ".join(problems.values())}
        session.plans[name] = answer
    return session.plans[name]


@post("/keep")
async def keep(request: Request, session: Session) -> Response:
    """Keep the current setting as the one that others are compared with."""
    request.app.state.kept = session.digest
    return RedirectResponse("/decide", 303)


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


@view("/price")
async def price(request: Request, session: Session) -> dict[str, Any]:
    """Say what an accuracy would cost, certified."""
    given = {key: request.query_params.get(key, "") for key in ("target", "level")}
    target, level = (value_of("n", text) for text in given.values())
    answer, problems = None, Problems()
    if target is None and level is not None:
        problems["level"] = "allowed only together with target"
    elif "target" in request.query_params:
        answer, found = await session.aside(least_text(session.text or "", target, level))
        problems = {key.rpartition(".")[2]: problem for key, problem in found.items()}
    return {"problems": problems, "given": given, "answer": None if problems else answer}
