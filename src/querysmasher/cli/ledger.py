"""`querysmasher ledger`: shows, checks or creates a ledger of what was spent."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import print_json, print_pairs, print_table, say
from querysmasher.cli.words import AsJson, examples
from querysmasher.errors import BudgetError, FileError
from querysmasher.formatting import count

if TYPE_CHECKING:
    from querysmasher.privacy.entries import Chain
    from querysmasher.privacy.ledger import Ledger

AMOUNTS = ("rho", "mu", "epsilon", "delta", "cost")

Number = Annotated[float | None, typer.Option(help="With `create`: the limit.")]


class Action(enum.StrEnum):
    """What to do with a ledger."""

    show = "show"
    verify = "verify"
    create = "create"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "ledger",
        short_help="Show or check a ledger of what was spent.",
        epilog=examples(
            "querysmasher ledger people.ledger create --rho 1 --label 'people, 2024'",
            "querysmasher ledger people.ledger",
            "querysmasher ledger people.ledger --at-delta 1e-9 --json",
            "querysmasher ledger people.ledger verify",
        ),
    )(ledger)


@guarded
def ledger(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.show,
    head: Annotated[
        str | None,
        typer.Option(help="With `verify`: a digest noted earlier, which must still be in the chain."),
    ] = None,
    at_delta: Annotated[
        float | None,
        typer.Option(help="The delta at which epsilon is shown; by default that of the limit, or 1e-6."),
    ] = None,
    rho: Number = None,
    mu: Number = None,
    epsilon: Number = None,
    delta: Number = None,
    cost: Number = None,
    neighbours: Annotated[str, typer.Option(help="With `create`: add_remove or replace_one.")] = "add_remove",
    records_per_person: Annotated[int, typer.Option(help="With `create`: the unit of privacy.")] = 1,
    label: Annotated[str | None, typer.Option(help="With `create`: which data it is about.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent and what is left, check that no entry was changed, or create a ledger.

    A ledger records the exact cost of every measurement before the table is opened, and refuses one that
    would pass the limit. This command reads no data and spends no budget.
    """
    from querysmasher.privacy.entries import DELTA
    from querysmasher.privacy.ledger import Ledger
    from querysmasher.privacy.rates import number

    given = {
        name: value
        for name, value in zip(AMOUNTS, (rho, mu, epsilon, delta, cost), strict=True)
        if value is not None
    }
    if action is Action.create:
        if file.exists():
            msg = f"{str(file)!r} already exists; a ledger is never replaced"
            raise FileError(msg)
        limit = _limit(given, neighbours, records_per_person)
        opened = Ledger(file, limit=limit, label=label)
    elif given:
        msg = f"--{next(iter(given))}: the limit is stated only with `create`; an existing one never changes"
        raise BudgetError(msg)
    else:
        opened = Ledger(file, label=label)
    chain = opened.verify(head)
    at = opened.limit.stated_delta or DELTA if at_delta is None else number("delta", at_delta)
    if as_json:
        print_json({**_json(opened, chain, at), "action": action.value})
    elif action is Action.verify:
        say(_verdict(opened, chain, head))
    else:
        _show(opened, chain, at)


def _limit(given: dict[str, float], neighbours: str, records_per_person: int) -> Any:
    """Return the limit that the options state."""
    from querysmasher.privacy.budget import ApproxDP, GaussianDP, PrivacyCost, zCDP

    kinds = {("rho",): zCDP, ("mu",): GaussianDP, ("epsilon", "delta"): ApproxDP, ("cost",): PrivacyCost}
    if tuple(given) not in kinds:
        got = " and ".join(f"--{name}" for name in given) or "none of them"
        msg = f"expected --rho, or --mu, or --cost, or --epsilon and --delta, got {got}"
        raise BudgetError(msg)
    return kinds[tuple(given)](**given, neighbours=neighbours, records_per_person=records_per_person)


def _show(opened: Ledger, chain: Chain, delta: float) -> None:
    from querysmasher.privacy.rates import readable
    from querysmasher.report.guarantees import total_words

    print_pairs(
        [
            ("Data", opened.label),
            ("Limit", opened.limit.describe().removeprefix("The release satisfies ")),
            ("Spent", total_words(chain.total, delta)),
            ("Left", chain.total.left_words(opened.limit, delta)),
            ("Note", "rho adds up over releases. Epsilon does not: it follows from the sum of rho."),
            ("Head", chain.head),
        ]
    )
    print_table(
        ("entry", "time (UTC)", "rho", "noise", "plan", "digest"),
        (
            (
                str(e.number),
                e.time[:19].replace("T", " "),
                f"{readable(float(e.cost) / 2):.6g}",
                e.noise,
                e.plan[:12],
                e.digest[:12],
            )
            for e in chain.entries
        ),
        text=("time (UTC)", "noise", "plan", "digest"),
    )


def _verdict(opened: Ledger, chain: Chain, head: str | None) -> str:
    noted = "the digest given is in the chain; " if head is not None else ""
    return (
        f"OK: {count(len(chain.entries), 'entry', 'entries')} about {opened.label!r}, none changed since it "
        f"was written; {noted}"
        f"the exact sum is within the limit. Head: {chain.head}"
    )


def _json(opened: Ledger, chain: Chain, delta: float) -> dict[str, Any]:
    total = chain.total
    return {
        "label": opened.label,
        "limit": opened.limit.to_json(),
        "ledger": opened.identity,
        "spent": {
            "cost": str(total.cost),
            "rho": float(total.rho),
            "mu": total.mu,
            "epsilon": total.epsilon_at(delta),
            "delta": delta,
        },
        "left": {
            "cost": str(total.left(opened.limit)),
            "rho": float(total.left(opened.limit) / 2),
            "epsilon": total.epsilon_left(opened.limit, delta),
            "delta": delta,
        },
        "head": chain.head,
        "entries": [e.to_data() for e in chain.entries],
    }
