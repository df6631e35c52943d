"""The pages on which a person describes a table and chooses what to publish."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from querysmasher.studio.document import Document, Location
from querysmasher.studio.pages import back, get, handler, page, post, shown, stated, value_of
from querysmasher.studio.security import confined
from querysmasher.studio.session import Problems, Session

FIELDS = ("attribute", "kind", "values", "type", "label", "missing", "other", "title", "description", "unit")
"""The columns of a codebook, which are fields of the form of an attribute."""

FOUND = ("discover", "share", "delta", "at_most")
"""Its further fields: whether the values are discovered, and how."""

KEYS = {"attribute": "name", "label": "labels"}
"""Fields whose keys in the spec have other names."""

LISTED = ("all_kway", "marginals", "tables")
"""Kinds of [[workload]] tables that are lists of tables."""

MOST = 24
"""Maximum number of attributes of a grid of chips."""

MOST_TABLES = 5_000
"""Maximum number of tables that a pattern adds."""

CODEBOOKS = (".csv", ".json", ".sav", ".zsav", ".por", ".dta")


def attributes(known: dict[str, Any]) -> list[str]:
    """Return the names of the attributes."""
    return [attribute["name"] for attribute in known["attributes"]]


# --- describe ---


async def described(
    request: Request, session: Session, problems: Problems | None = None, **more: Any
) -> Response:
    """Return the page of attributes."""
    document, known = session.document, session.known or {"attributes": []}
    data = document.get(("data", "path"))
    unknown: list[str] = []
    if "columns" in request.query_params and data and confined(session.folder, data):
        answer = await session.ask("columns", data=data)
        problems = problems or ({"": answer["error"]} if "error" in answer else None)
        unknown = [name for name in answer.get("columns", ()) if name not in attributes(known)]
    context = {"unknown": unknown, "codebook": document.get(("codebook",)), "data": data, "missing": {}}
    context |= {"impossible": document.get(("impossible",)) or [], "examples": _examples(known)}
    return await shown(
        request, session, "describe", problems, files=session.files(CODEBOOKS), **(context | more)
    )


@handler
async def attribute(request: Request, session: Session) -> Response:
    """Show the form of an attribute, or of a new one."""
    name = request.query_params.get("name", "")
    form = dict.fromkeys((*FIELDS, *FOUND), "") | {"attribute": name, "kind": "categorical"}
    if session.known and name in attributes(session.known):
        form = (await session.ask("attribute_form", name=name)).get("form", form)
    return await shown(request, session, "attribute", before=name, form=form)


@handler
async def save_attribute(request: Request, session: Session) -> Response:
    """Add an attribute, or replace one."""
    form = await request.form()
    given = {field: str(form.get(field, "")) for field in (*FIELDS, *FOUND)}
    before = str(form.get("before", ""))
    answer = await session.reader.ask("attribute", form=given)
    problems: Problems = {}
    if "error" in answer:
        problems = {"values": answer["error"].partition(": ")[2] or answer["error"]}
    else:
        names = attributes(session.known) if session.known else []
        index = names.index(before) if before in names else len(names)
        found = await session.change(f"attribute {given['attribute']}", _placing(index, answer["table"]))
        here = f"schema[{index}]"
        problems = {key.removeprefix(f"{here}.") if key != here else "values": p for key, p in found.items()}
    if problems:
        fields = {key: field for field, key in KEYS.items()} | {"edges": "values", "range": "values"}
        problems = {fields.get(key.split(".")[0], key): problem for key, problem in problems.items()}
        return await shown(request, session, "attribute", problems, form=given, before=before)
    return RedirectResponse("/describe", 303)


def _placing(index: int, table: dict[str, Any]) -> Callable[[Document], None]:
    """Return the change that puts an attribute at its place; what no form states stays."""

    def edit(document: Document) -> None:
        old = document.get(("schema", index))
        if old is None:
            document.add("schema", table)
            return
        kept = {key: old[key] for key in ("outside", "step") if key in old and old["kind"] == table["kind"]}
        document.replace("schema", index, table | kept)

    return edit


@handler
async def drop_attribute(request: Request, session: Session) -> Response:
    """Remove an attribute."""
    name = str((await request.form()).get("name", ""))
    names = attributes(session.known) if session.known else []
    if name not in names:
        return RedirectResponse("/describe", 303)
    problems = await session.change(f"without {name}", lambda d: d.remove("schema", names.index(name)))
    return await described(request, session, problems) if problems else RedirectResponse("/describe", 303)


@handler
async def import_codebook(request: Request, session: Session) -> Response:
    """Add the attributes of a codebook that is in the folder, or is uploaded; or begin a spec with them."""
    form = await request.form()
    answer = await _codebook(form, session)
    if "error" in answer:
        return await _imported(request, session, {"": answer["error"]})
    known = attributes(session.known) if session.known else []
    tables = [table for table in answer["tables"] if table["name"] not in known]

    def edit(document: Document) -> None:
        document.add("schema", *tables)

    problems: Problems = {}
    if session.text is None and tables:
        first = await session.reader.ask("template", codebook="codebook.csv")
        start = Document(first["text"].replace('codebook = "codebook.csv"\n', ""))
        edit(start)
        problems = await session.replace(start.text, "a first file")
    elif tables:
        problems = await session.change("attributes of a codebook", edit)
    if problems or answer["missing"]:
        return await _imported(request, session, problems, missing=answer["missing"])
    return RedirectResponse("/describe", 303)


async def _imported(request: Request, session: Session, problems: Problems, **more: Any) -> Response:
    if session.text is None:
        return await shown(request, session, "start", problems, files=session.files(CODEBOOKS))
    return await described(request, session, problems, **more)


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


@handler
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


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that a pattern such as age* matches, or that contain a text.

    >>> matching(["age", "age_group", "sex"], "age*"), matching(["age", "sex"], "e"), matching(["sex"], "")
    (['age', 'age_group'], ['age', 'sex'], ['sex'])
    """
    pattern = pattern.strip().casefold()
    wild = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    return [name for name in names if fnmatchcase(name.casefold(), wild)]


async def chosen(
    request: Request, session: Session, problems: Problems | None = None, given: FormData | None = None
) -> Response:
    """Return the page of choices."""
    document, known = session.document, session.known or {"entries": [], "attributes": []}
    names, found = attributes(known), where_is(known)
    search = request.query_params.get("search", "")
    some = matching(names, search)
    families: dict[str, str] = {}
    for entry in document.plain.get("workload", ()):
        stated_family = entry.get("family") if entry.get("kind") in LISTED else None
        if isinstance(stated_family, dict):
            families |= {k: v if isinstance(v, str) else "other" for k, v in stated_family.items()}
        elif isinstance(stated_family, str):
            families |= dict.fromkeys(names, stated_family)
    three = [names for names in map(sorted, found) if len(names) == 3 and set(names) & set(some)]
    return await shown(
        request,
        session,
        "choose",
        problems,
        given,
        search=search,
        matched=len(some),
        grid=some[:MOST],
        found=found,
        three=three[:200],
        families=families,
        entries=list(enumerate(document.plain.get("workload", ()))),
        statistics=document.plain.get("statistics", []),
        exact=document.get(("plan", "exact")) or [],
        numbers=[attribute["name"] for attribute in known["attributes"] if attribute["is_number"]],
        kinds={attribute["name"]: attribute for attribute in known["attributes"]},
        examples=_examples(known),
    )


def _examples(known: dict[str, Any]) -> list[str]:
    """Return beginnings of predicates, which the browser completes."""
    some = known["attributes"][:100]
    return [example for attribute in some for example in attribute["examples"]]


def switch(document: Document, known: dict[str, Any], tables: list[tuple[str, ...]], on: bool | None) -> None:
    """Add tables, or remove them; without `on`, each changes."""
    found = where_is(known)
    names = attributes(known)
    sets = [tuple(sorted(dict.fromkeys(table), key=names.index)) for table in tables]
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


def _known_names(form: FormData, known: dict[str, Any]) -> tuple[str, ...]:
    names = set(attributes(known))
    given = (str(name) for name in form.getlist("name"))
    return tuple(dict.fromkeys(name for name in given if name in names))


def choice(
    what: str,
    edit: Callable[[Document, dict[str, Any], FormData], None],
    show: Callable[..., Awaitable[Response]] = chosen,
) -> Callable[[Request], Any]:
    """Return a handler that changes what is published, or shows the page with the problems."""

    @handler
    async def apply(request: Request, session: Session) -> Response:
        form, known = await request.form(), session.known
        if known is None:
            return RedirectResponse("/", 303)
        problems = await session.change(what, lambda document: edit(document, known, form))
        if "t:predicate" in form:
            here = ("workload", "impossible")
            problems = {"predicate" if key.startswith(here) else key: p for key, p in problems.items()}
        return await show(request, session, problems, given=form) if problems else back(request, "/choose")

    return apply


def toggle(document: Document, known: dict[str, Any], form: FormData) -> None:
    """Add the table of a chip, or remove it."""
    if names := _known_names(form, known):
        switch(document, known, [names], None)


def by_pattern(document: Document, known: dict[str, Any], form: FormData) -> None:
    """Add or remove all tables whose attributes match patterns, one per attribute of a table."""
    given = [str(form.get(f"pattern{number}", "")).strip() for number in (1, 2, 3)]
    each = [matching(attributes(known), pattern) for pattern in given if pattern]
    tables = {frozenset(names): names for names in itertools.product(*each) if len(set(names)) == len(each)}
    if each and tables and len(tables) <= MOST_TABLES:
        switch(document, known, list(tables.values()), form.get("action") != "remove")


def family(document: Document, known: dict[str, Any], form: FormData) -> None:
    """State what is counted of an attribute in all listed tables."""
    name, wanted = str(form.get("name", "")), str(form.get("family", ""))
    levels = str(form.get("levels", "")).strip()
    if name not in attributes(known) or wanted == "other":
        return
    chosen_family: Any = wanted or None
    if wanted == "hierarchy":
        numbers = value_of("l", levels)
        chosen_family = {"hierarchy": levels if levels.endswith(".csv") else numbers}
    for index, entry in enumerate(document.plain.get("workload", ())):
        if entry.get("kind") not in ("all_kway", "tables"):
            continue
        before = entry.get("family") or {}
        if isinstance(before, str):
            before = dict.fromkeys(attributes(known), before)
        after = {key: value for key, value in (before | {name: chosen_family}).items() if value is not None}
        document.set(("workload", index, "family"), after or None)


def add_predicate(document: Document, _: dict[str, Any], form: FormData) -> None:
    """Add a predicate to the first table of them."""
    words = str(form.get("t:predicate", "")).strip()
    for index, entry in enumerate(document.plain.get("workload", ())):
        if entry.get("kind") == "where":
            before = entry["predicate"]
            listed = [before] if isinstance(before, str) else before
            document.set(("workload", index, "predicate"), [*listed, words])
            return
    document.add("workload", {"kind": "where", "predicate": [words]})


def drop_predicate(document: Document, _: dict[str, Any], form: FormData) -> None:
    """Remove a predicate."""
    index, place = (value_of("n", str(form.get(key, ""))) for key in ("entry", "place"))
    before = document.get(("workload", index, "predicate")) if isinstance(index, int) else None
    listed = [before] if isinstance(before, str) else before or []
    if isinstance(place, int) and 0 <= place < len(listed):
        kept = [words for number, words in enumerate(listed) if number != place]
        if kept:
            document.set(("workload", index, "predicate"), kept)
        else:
            document.remove("workload", index)


def listing(location: Location, field: str, read: Callable[[str], Any]) -> Callable[..., None]:
    """Return a change of a list: it removes the entry at a place, or else adds what a field states."""

    def edit(document: Document, _: dict[str, Any], form: FormData) -> None:
        place, before = value_of("n", str(form.get("place", ""))), document.get(location) or []
        kept = [entry for number, entry in enumerate(before) if number != place]
        new = [] if isinstance(place, int) else [read(str(form.get(field, "")).strip())]
        document.set(location, [*kept, *new] or None)

    return edit


def combined(names: str) -> str | list[str]:
    """Return the attributes that a text lists: one name, or several.

    >>> combined("state"), combined("sex, race")
    ('state', ['sex', 'race'])
    """
    listed = [name.strip() for name in names.split(",")]
    return listed if len(listed) > 1 else names


def add(document: Document, _: dict[str, Any], form: FormData) -> None:
    """Add a table to a section of several, with the keys that a form states: a statistic, or sums."""
    found = stated(form)
    given = {str(location[-1]): value for location, value in found.items() if value is not None}
    document.add(str(next(iter(found))[0]), given)


def drop_entry(document: Document, _: dict[str, Any], form: FormData) -> None:
    """Remove a [[workload]] table or a statistic."""
    section, index = str(form.get("section", "")), value_of("n", str(form.get("entry", "")))
    if section in ("workload", "statistics") and document.get((section, index)) is not None:
        document.remove(section, index)


@handler
async def check_predicate(request: Request, session: Session) -> Response:
    """Say at once whether a predicate is valid."""
    words = request.query_params.get("t:predicate", "").strip()
    if not words:
        return HTMLResponse("")
    answer = await session.ask("predicate", words=words)
    return await shown(request, session, "_predicate", answer=answer)


ROUTES = [
    get("/describe", page(described)),
    get("/attribute", attribute),
    post("/attribute", save_attribute),
    post("/attribute/remove", drop_attribute),
    post("/codebook", import_codebook),
    post("/codebook/detach", detach_codebook),
    get("/choose", page(chosen)),
    post("/table", choice("tables", toggle)),
    post("/tables", choice("tables by pattern", by_pattern)),
    post("/family", choice("what is counted", family)),
    get("/predicate", check_predicate),
    post("/predicate", choice("a predicate", add_predicate)),
    post("/predicate/remove", choice("without a predicate", drop_predicate)),
    post("/entry/remove", choice("without a part", drop_entry)),
    post("/statistic", choice("a statistic", add)),
    post("/sums", choice("sums", add)),
    post("/exact", choice("public counts", listing(("plan", "exact"), "t:plan.exact", combined))),
    post("/impossible", choice("impossible", listing(("impossible",), "t:predicate", str), described)),
]
"""The addresses of these pages, and what answers there."""
