"""`querysmasher check` and `ledger`, for custodians: what does not fit in a table, and what was spent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from querysmasher.cli.command import Action, ExitCode
from querysmasher.cli.output import print_json, print_pairs, print_table, say, tell
from querysmasher.cli.specs import opened
from querysmasher.data.check import HEAD, NOTICE
from querysmasher.data.check import check as check_table
from querysmasher.errors import BudgetError, FileError
from querysmasher.formatting import count
from querysmasher.guarantees import total_words
from querysmasher.privacy.budget import number, readable
from querysmasher.privacy.entries import DELTA, Chain
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.unit import attributes_of, sets_to_json
from querysmasher.spec.spec import AMOUNTS, stated_budget


def check(spec: Path, data: Path | None, as_json: bool) -> None:
    """Show what in the table does not fit the schema."""
    read = opened(spec)
    exact = map(attributes_of, read.budget.exact)
    counted = (*(group.attributes for group in read.workload.groups), *exact)
    used = {name for attributes in counted for name in attributes}
    names = [name for name in read.schema.names if name in used]
    measuring, budget = read.measuring, read.budget
    read.check()
    problems = check_table(
        read.schema,
        read.table(data).open(),
        names,
        max_records=measuring.max_records,
        unknown=measuring.unknown,
        person=measuring.person,
        records_per_person=budget.records_per_person,
        exact=budget.exact,
        public=read.public,
    )
    verdict = problems.verdict('[measure] unknown = "drop"')
    if as_json:
        print_json({**problems.to_json(), "verdict": verdict})
    else:
        tell(NOTICE)
        for one in read.discoveries:
            where = f"The values of {one.column!r} are discovered by `querysmasher release`"
            tell(f"{where}; here, all are unlisted.")
        print_table(HEAD, [column.cells() for column in problems], numbers=False)
        tell(verdict)
    if not problems.ok:
        raise typer.Exit(int(ExitCode.DATA))


def ledger(
    file: Path,
    action: Action,
    head: str | None,
    at_delta: float | None,
    neighbours: str,
    records_per_person: int,
    label: str | None,
    as_json: bool,
    **amounts: float | None,
) -> None:
    """Show, check or create a ledger; the amounts are those of its limit."""
    given = {name: value for name in AMOUNTS if (value := amounts[name]) is not None}
    if action is Action.create:
        if file.exists():
            raise FileError(f"{str(file)!r} already exists; a ledger is never replaced")
        delta = (
            given.pop("delta") if "delta" in given and len(given) == 2 and "epsilon" not in given else None
        )
        limit = stated_budget(given, neighbours, records_per_person, dashes="--")
        book = Ledger(file, limit=limit, delta=delta, label=label)
    elif given:
        msg = (
            f"--{next(iter(given))}: the limit is stated only with `create`; an existing limit never changes"
        )
        raise BudgetError(msg)
    else:
        book = Ledger(file, label=label)
    chain = book.verify(head)
    at = book.limit.stated_delta or DELTA if at_delta is None else number("delta", at_delta)
    if as_json:
        print_json({**_json(book, chain, at), "action": action.value})
    elif action is Action.verify:
        noted = "the digest given is in the chain; " if head is not None else ""
        say(
            f"OK: {count(len(chain.entries), 'entry', 'entries')} about {book.label!r}, none changed since "
            f"it was written; {noted}the exact sum is within the limit. Head: {chain.head}"
        )
    else:
        _show(book, chain, at)


def _show(book: Ledger, chain: Chain, delta: float) -> None:
    print_pairs(
        [
            ("Data", book.label),
            ("Limit", book.limit.describe().removeprefix("The release satisfies ")),
            *([("Beside it", f"delta = {book.delta!r} for discovered values")] if book.delta else []),
            ("Spent", total_words(chain.total, delta)),
            ("Left", chain.total.left_words(book.limit, delta)),
            *_exact(chain),
            ("Note", "rho adds up over releases. Epsilon does not: it follows from the sum of rho."),
            ("Chain head", chain.head),
        ]
    )
    has_delta = bool(chain.total.delta)  # of discovered values
    print_table(
        ("entry", "time (UTC)", "rho", *(["delta"] if has_delta else []), "noise", "plan", "digest"),
        (
            (
                str(e.number),
                e.time[:19].replace("T", " "),
                f"{readable(float(e.cost) / 2):.6g}",
                *([f"{readable(float(e.delta)):.6g}"] if has_delta else []),
                e.noise,
                e.plan[:12],
                e.digest[:12],
            )
            for e in chain.entries
        ),
        text=("time (UTC)", "noise", "plan", "digest"),
    )


def _exact(chain: Chain) -> Iterator[tuple[str, str]]:
    """Say which exact counts some entry publishes, and whom the sum is then about."""
    unit = replace(chain.opening.limit.unit, exact=chain.exact)
    if unit.exact:
        said = f"exact counts {unit.exact_words}: the sum is for tables that agree on them, where a replaced "
        yield "Published", f"{said}record keeps its {unit.agreed_words}"


def _json(book: Ledger, chain: Chain, delta: float) -> dict[str, Any]:
    total = chain.total
    return {
        "label": book.label,
        "limit": book.limit.to_json(),
        **({"limit_delta": book.delta} if book.delta else {}),
        "ledger": book.identity,
        "spent": {
            "cost": str(total.cost),
            "rho": float(total.rho),
            "mu": total.mu,
            "epsilon": epsilon if math.isfinite(epsilon := total.epsilon_at(delta)) else None,
            "delta": delta,
            "delta_of_values": str(total.delta),
        },
        "left": {
            "cost": str(total.left(book.limit)),
            "rho": float(total.left(book.limit) / 2),
            "epsilon": total.epsilon_left(book.limit, delta),
            "delta": delta,
        },
        "exact": sets_to_json(chain.exact),
        "head": chain.head,
        "entries": [e.to_data() for e in chain.entries],
    }
