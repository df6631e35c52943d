"""The pages on which a person describes a table and chooses what to publish."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from querysmasher.studio.document import Document
from querysmasher.studio.pages import (
    CODEBOOKS,
    begin,
    change,
    entries_of,
    get,
    post,
    shown,
    shown_by,
    value_of,
    view,
)
from querysmasher.studio.security import confined
from querysmasher.studio.session import CHANGED, Problems, Session

FIELDS = ("attribute", "kind", "values", "type", "label", "missing", "other", "title", "description", "unit")
"""The columns of a codebook, which are fields of the form of an attribute."""

FOUND = ("share", "delta", "at_most")
"""Its further fields: how values are discovered that nobody has a list of."""

KEYS = {"name": "attribute", "schema": "attribute", "labels": "label"} | dict.fromkeys(
    ("edges", "range", ""), "values"
)
"""Fields whose keys in the spec have other names."""

LISTED = ("all_kway", "marginals", "tables")
"""Kinds of [[workload]] tables that are lists of tables."""

MEASURES = {
    "table": "A table of counts or percentages",
    "mean": "The mean of a number",
    "total": "The total of a number",
    "quantile": "Quantiles of a number",
    "share": "The share of records for which something holds",
    "difference": "The difference of two counts",
    "ratio": "The ratio of two counts",
    "means": "Means of a number by groups",
    "sums": "Sums of a number by groups",
}
"""The kinds of [[statistics]] tables, and of measured numbers, in words."""

PREDICATE = "examples"
"""The list in the page that completes predicates."""

ARGUMENTS: dict[str, tuple[str, str, str | dict[str, str]]] = {
    "attribute": ("t", "of the number", ""),
    "attributes": ("l", "of attributes, separated by commas", "names"),
    "probabilities": ("l", "probabilities, such as 0.25, 0.5", ""),
    "predicate": ("t", "for which this holds", PREDICATE),
    "of": ("t", "among the records with", PREDICATE),
    "a": ("t", "of the records with", PREDICATE),
    "b": ("t", "and those with", PREDICATE),
    "by": ("l", "in every group by", "names"),
    "where": ("t", "only of records with", PREDICATE),
    "percent": ("t", "in percent", {"": "no", "row": "of rows", "column": "of columns", "total": "of all"}),
    "totals": ("b", "with totals", {"": "yes", "false": "no"}),
    "bins": ("t", "quantiles inside a bin by", {"": "interpolation", "midpoints": "midpoints only"}),
    "assume": ("t", "records in a bin lie", {"": "anywhere in it", "midpoint": "in its middle"}),
    "title": ("t", "Title", ""),
}
"""Their arguments: the type of the field, its label, and the list that completes it, or all choices."""

MOST = 24
"""Maximum number of attributes of a grid of chips."""

MOST_TABLES = 5_000
"""Maximum number of tables that a pattern adds."""

TOO_MANY = "one list has more tables than can be changed one by one here; change or remove that list"


# --- describe ---


@view("/describe")
async def described(request: Request, session: Session) -> dict[str, Any]:
    """Return the attributes, and columns of the table that are none yet."""
    document, data = session.document, session.document.get(("data", "path"))
    answer: dict[str, Any] = {}
    if "columns" in request.query_params and data and confined(session.folder, data):
        answer = await session.ask("columns", data=data)
    return {
        "files": session.files(CODEBOOKS),
        "unknown": [name for name in answer.get("columns", ()) if name not in session.names],
        "codebook": document.get(("codebook",)),
        "data": data,
        "missing": {},
        "impossible": entries_of(document, ("impossible",)),
        **({"problems": {"": answer["error"]}} if "error" in answer else {}),
    }


@get("/attribute")
async def attribute(request: Request, session: Session) -> Response:
    """Show the form of an attribute, or of a new one."""
    name = request.query_params.get("name", "")
    form = dict.fromkeys((*FIELDS, "discover", *FOUND), "") | {"attribute": name, "kind": "categorical"}
    if name in session.names:
        form = (await session.ask("form", name=name)).get("form", form)
    return await shown(request, session, "attribute", None, form, before=name)


@post("/attribute")
async def save_attribute(request: Request, session: Session) -> Response:
    """Add an attribute, or replace one."""
    form = await request.form()
    given = {field: str(form.get(field, "")) for field in (*FIELDS, "discover", *FOUND)}
    how = {key: value for key in FOUND if (value := value_of("n", given[key])) is not None}
    text = {field: given[field] for field in (*FIELDS, "discover")}
    before, names = str(form.get("before", "")), session.names
    index = names.index(before) if before in names else len(names)
    answer = await session.reader.ask("attribute", form=text, how=how)
    if "error" in answer:
        error = answer["error"].removeprefix("the form, line 2: ")
        field, _, problem = error.partition(": ")
        problems: Problems = {field: problem} if field in given else {"values": error}
    else:
        table, what = answer["table"], f"attribute {given['attribute']}"
        if session.text is None:
            found = await start(session, [table])
        else:
            found = await session.change(what, lambda document: place(document, index, table))
        keys = {key: key.removeprefix(f"schema[{index}]").lstrip(".").split(".")[0] for key in found}
        problems = {KEYS.get(name, name): found[key] for key, name in keys.items()}
    if problems:
        return await shown(request, session, "attribute", problems, given, before=before)
    return RedirectResponse("/describe", 303)


def place(document: Document, index: int, table: dict[str, Any]) -> None:
    """Put an attribute at its place; what no form states stays."""
    old = document.get(("schema", index))
    if old is None:
        document.add("schema", table)
        return
    kept = {key: old[key] for key in ("outside", "step") if key in old and old["kind"] == table["kind"]}
    document.replace("schema", index, table | kept)


@post("/start")
@post("/codebook")
async def import_codebook(request: Request, session: Session) -> Response:
    """Add the attributes of a codebook that is in the folder, or is uploaded; or begin a spec with them."""
    is_example = request.url.path == "/start"
    answer: dict[str, Any] = {"tables": [], "missing": {}}
    if not is_example:
        answer |= await _codebook(await request.form(), session)
    problems: Problems = {"": answer["error"]} if "error" in answer else {}
    tables = [table for table in answer["tables"] if table["name"] not in session.names]
    if session.text is None and (tables or is_example):
        problems = await start(session, tables)
    elif tables:
        problems = await session.change("attributes of a codebook", lambda d: d.add("schema", *tables))
    if problems or answer["missing"]:
        page = begin if session.text is None else described
        return await page(request, session, problems, missing=answer["missing"])
    return RedirectResponse("/decide" if is_example else "/describe", 303)


async def start(session: Session, tables: list[dict[str, Any]]) -> Problems:
    """Write a first file with these attributes, or that of the example."""
    first = await session.reader.ask("first", codebook="codebook.csv" if tables else None)
    document = Document(first["text"].replace('codebook = "codebook.csv"\n', ""))
    document.add("schema", *tables)
    if len(tables) == 1:  # there are no pairs
        document.set(("workload", 0, "k"), 1)
    return await session.replace(document.text, "a first file")


async def _codebook(form: FormData, session: Session) -> dict[str, Any]:
    """Return what a codebook in a form states."""
    upload, name = form.get("upload"), str(form.get("file", ""))
    if isinstance(upload, UploadFile) and upload.filename:
        suffix = Path(upload.filename).suffix.lower()
        if suffix not in CODEBOOKS:
            return {"error": f"upload: expected a file that ends in {' or '.join(CODEBOOKS)}"}
        with tempfile.TemporaryDirectory(prefix="querysmasher-studio-") as folder:
            path = Path(folder) / f"codebook{suffix}"
            path.write_bytes(await upload.read())
            return await session.reader.ask("codebook", path=str(path))
    path_here = confined(session.folder, name) if name else None
    if path_here is None:
        return {"error": "file: expected the name of a codebook in the folder of the spec"}
    return await session.reader.ask("codebook", path=str(path_here))


@post("/codebook/detach")
async def detach_codebook(request: Request, session: Session) -> Response:
    """Write the attributes of a codebook into the spec, where they can be changed."""
    answer = await session.ask("attributes")

    def edit(document: Document) -> None:
        document.set(("codebook",), None)
        document.add("schema", *answer["tables"])

    problems = {"": answer["error"]} if "error" in answer else await session.change("attributes", edit)
    return await described(request, session, problems) if problems else RedirectResponse("/describe", 303)


# --- choose ---


def where_is(known: dict[str, Any]) -> dict[frozenset[str], int]:
    """Return the first [[workload]] table in which every chosen table is."""
    found: dict[frozenset[str], int] = {}
    for index, entry in enumerate(known["entries"]):
        if entry["kind"] in (*LISTED, "queries"):
            for names in entry["tables"]:
                found.setdefault(frozenset(names), index)
    return found


def in_order(names: Iterable[str], session: Session) -> list[str]:
    """Return names in the order of the attributes."""
    return sorted(names, key=session.names.index)


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that a pattern such as age* matches, or that contain a text.

    >>> matching(["age", "age_group", "sex"], "age*"), matching(["age", "sex"], "e"), matching(["sex"], "")
    (['age', 'age_group'], ['age', 'sex'], ['sex'])
    """
    pattern = pattern.strip().casefold()
    wild = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    return [name for name in names if fnmatchcase(name.casefold(), wild)]


@view("/choose")
async def chosen(request: Request, session: Session) -> dict[str, Any]:
    """Return what can be published, and what is."""
    document, known = session.document, session.known or {"entries": [], "attributes": []}
    query = parse_qs(urlsplit(request.query_params.get("back", f"?{request.url.query}")).query)
    search, found = query.get("search", [""])[0], where_is(known)
    some = matching(session.names, search)
    return {
        "search": search,
        "matched": len(some),
        "grid": some[:MOST],
        "found": found,
        "three": [in_order(names, session) for names in found if len(names) == 3 and names & {*some}][:200],
        "families": _families(document, session.names),
        "entries": list(enumerate(document.plain.get("workload", ()))),
        "statistics": document.plain.get("statistics", []),
        "exact": entries_of(document, ("plan", "exact")),
        "kinds": {attribute["name"]: attribute for attribute in known["attributes"]},
        "names": {name: name for name in session.names},
        "numbers": {each["name"]: each["name"] for each in known["attributes"] if each["is_number"]},
        "measures": MEASURES,
        "arguments": ARGUMENTS,
    }


def _by_name(family: Any, names: list[str]) -> dict[str, Any]:
    """Return the family of every attribute, as one key of a [[workload]] table states it."""
    return family if isinstance(family, dict) else dict.fromkeys(names, family) if family else {}


def _families(document: Document, names: list[str]) -> dict[str, str]:
    """Return the families that the lists of tables state by name; "other" are those with more to them."""
    listed = [entry for entry in document.plain.get("workload", ()) if entry.get("kind") in LISTED]
    stated = [pair for entry in listed for pair in _by_name(entry.get("family"), names).items()]
    return {name: each if isinstance(each, str) else "other" for name, each in stated}


@change("/table", "tables")
def toggle(document: Document, session: Session, form: FormData) -> Problems:
    """Add the table of a chip, or remove it."""
    names = str(form.get("table", "")).splitlines()
    is_known = names and {*names} <= {*session.names}
    return switch(document, session, [tuple(names)], None) if is_known else {}


def switch(document: Document, session: Session, tables: list[tuple[str, ...]], on: bool | None) -> Problems:
    """Add tables, or remove them; without `on`, each changes."""
    known = session.known or {"entries": []}
    if not all(entry["is_listed"] for entry in known["entries"]):
        return {"": TOO_MANY}
    found = where_is(known)
    sets = [tuple(in_order(dict.fromkeys(table), session)) for table in tables]
    gone = {frozenset(s) for s in sets if frozenset(s) in found and on is not True}
    new = [s for s in sets if frozenset(s) not in found and on is not False]
    emptied = []
    for index in sorted({found[each] for each in gone}):
        kept = [t for t in known["entries"][index]["tables"] if frozenset(t) not in gone]
        kind = known["entries"][index]["kind"]
        if not kept:
            emptied.append(index)
        elif kind != "queries":
            document.set(("workload", index, "kind"), "tables")
            document.set(("workload", index, "k"), None)
            document.set(("workload", index, "tables"), kept)
            if kind == "marginals":
                document.set(("workload", index, "family"), "identity")
    if new:
        entries = document.plain.get("workload", [])
        here = next(
            (i for i, e in enumerate(entries) if e.get("kind") == "tables" and i not in emptied), None
        )
        if here is None:
            document.add("workload", {"kind": "tables", "tables": new})
        else:
            document.set(("workload", here, "tables"), [*entries[here]["tables"], *map(list, new)])
    for index in reversed(emptied):
        document.remove("workload", index)
    return {}


@change("/tables", "tables by pattern")
def by_pattern(document: Document, session: Session, form: FormData) -> Problems:
    """Add or remove all tables whose attributes match patterns, one per attribute of a table."""
    given = [str(form.get(f"pattern{number}", "")).strip() for number in (1, 2, 3)]
    each = [matching(session.names, pattern) for pattern in given if pattern]
    tables = {frozenset(names): names for names in itertools.product(*each) if len(set(names)) == len(each)}
    if not each or not tables:
        return {"pattern1": "expected patterns of names, such as age* and *, that some tables match"}
    if len(tables) > MOST_TABLES:
        return {"pattern1": f"expected at most {MOST_TABLES:,} tables at once, got {len(tables):,}"}
    return switch(document, session, list(tables.values()), form.get("action") != "remove")


@change("/family", "what is counted", "levels")
def family(document: Document, session: Session, form: FormData) -> Problems:
    """State what is counted of attributes in all listed tables."""
    seen = shown_by(form, document, session)
    if seen is None:
        return {"": CHANGED}
    stated = dict.fromkeys(session.names, "") | _families(seen, session.names)
    wanted = {name: form.get(f"family:{name}", stated[name]) for name in stated}
    given: dict[str, Any] = {name: each for name, each in wanted.items() if each != stated[name]}
    if levels := str(form.get("levels", "")).strip():
        lengths = levels if levels.endswith(".csv") else value_of("l", levels)
        given = {str(form.get("name", "")): {"hierarchy": lengths}}
    for index, entry in enumerate(document.plain.get("workload", ())):
        if entry.get("kind") in ("all_kway", "tables"):
            after = _by_name(entry.get("family"), session.names) | given
            document.set(("workload", index, "family"), {k: v for k, v in after.items() if v} or None)
    return {}


@get("/predicate")
async def check_predicate(request: Request, session: Session) -> Response:
    """Say at once whether a predicate is valid."""
    words = next(iter(request.query_params.values()), "").strip()
    if not words:
        return HTMLResponse("")
    answer = await session.ask("predicate", words=words)
    return await shown(request, session, "_predicate", answer=answer)
