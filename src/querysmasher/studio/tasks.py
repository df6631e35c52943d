"""What the processes of Studio do with the library: read a spec, plan it, convert its budget.

A task takes and returns plain data. Only this file of Studio loads the library, and it reads no table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.attributes import Attribute
from querysmasher.cli.command import message_of
from querysmasher.cli.specs import Expectations
from querysmasher.errors import TooLargeError
from querysmasher.formatting import count, figure, number, preview, shortened, written_name
from querysmasher.guarantees import delta_of
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import ApproxDP, Budget, readable
from querysmasher.progress import LISTENERS
from querysmasher.report.expectations import expected_table, is_met, together
from querysmasher.report.plan_report import shares, tenths
from querysmasher.report.words import KINDS, group_words
from querysmasher.spec import Spec, read_spec, template
from querysmasher.spec.spec import Source
from querysmasher.spec.workloads import SpecEntry
from querysmasher.statistics.statistic import KINDS as STATISTICS
from querysmasher.studio.codebooks import attribute, codebook, form_of, table_of
from querysmasher.workload.builders import queries, where

MOST_TABLES = 6_000
"""Maximum number of tables of an entry that are listed one by one."""

KEPT = 3
"""Maximum number of plans that a process keeps."""

MOST_CELLS = 200
"""Maximum number of cells of a made-up table."""

MOST_SHARES = 12
"""Maximum number of attribute sets whose shares of the budget are shown."""

EPSILONS = [digits * 10.0**power for power in (-2, -1, 0, 1) for digits in (1, 1.4, 2, 3, 5, 7)] + [100.0]
"""The values of ε at which the curve of errors has points."""

CERTAIN = 0.9
"""Probability of a right guess above which the words about a budget become a warning."""


def perform(task: str, arguments: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Return what a task answers, or its error with the keys that are wrong; `say` is told of progress."""
    LISTENERS.append(say)
    try:
        if "text" in arguments:
            path, text, seen, *_ = [arguments.pop(key, None) for key in ("path", "text", "seen")]
            spec = _spec(path, text, seen)
            arguments["spec"] = spec.supposed(text) if task in ("plan", "made_up") else spec
        return TASKS[task](**arguments)
    except MemoryError as error:
        much = f"this takes more memory than Studio may use, half of this machine's ({error})"
        return {"error": much, "problems": []}
    except Exception as error:  # noqa: BLE001 - an error is an answer, in the words of the command
        problems = getattr(error, "problems", ())
        return {"error": message_of(error), "problems": [list(each) for each in problems]}
    finally:
        LISTENERS.pop()


_READ: dict[tuple[str, str, str | None], Spec] = {}
"""The spec that was read last: the next task is mostly about it."""


def _spec(path: str, text: str, seen: str | None) -> Spec:
    """Return the spec that a text states; `seen` says in which state it saw the files that it names."""
    key = (path, text, seen)
    if seen is None or key not in _READ:
        spec = read_spec(Path(path), text)
        _READ.clear()
        _READ[key] = spec
    return _READ[key]


def read(spec: Spec) -> dict[str, Any]:
    """Describe a spec."""
    ledger = None if spec.ledger is None else spec.ledger.left()
    return {
        "attributes": [
            {
                "name": attribute.name,
                "heading": attribute.heading,
                "kind": KINDS[attribute.kind],
                "size": attribute.size,
                "values": preview(attribute.shown),
                "rules": "; ".join(attribute.rules),
                "family": attribute.natural_family,
                "is_number": attribute.kind in ("ordinal", "binned", "number"),
                "examples": _examples(attribute),
            }
            for attribute in spec.schema
        ],
        "entries": [_entry(entry) for entry in spec.entries],
        "amounts": _amounts(spec.budget, delta_of(spec.budget)),
        "statistics": {kind: [*needed, *more] for kind, (needed, more) in STATISTICS.items()},
        "least": spec.least,
        "learn": "" if spec.least else _learn(spec.budget),
        "ledger": None if ledger is None else ledger[1],
    }


def _examples(attribute: Attribute) -> list[str]:
    """Return predicates about an attribute, as a person could begin one."""
    name, middle = written_name(attribute.name), attribute.listed // 2
    ordered = [attribute.up_to(name, middle)] if attribute.ordered and attribute.listed > 1 else []
    return [*ordered, *(attribute.exactly(name, index) for index in range(min(attribute.size, 3)))]


def _entry(entry: SpecEntry) -> dict[str, Any]:
    """Describe a [[workload]] table."""
    groups = entry.workload.groups
    tables = [list(group.attributes) for group in groups[:MOST_TABLES]]
    return _titled(entry) | {"kind": entry.kind, "tables": tables, "is_listed": len(tables) == len(groups)}


def _titled(entry: SpecEntry) -> dict[str, Any]:
    """Return what a [[workload]] table asks about, in words, and its target."""
    groups = entry.workload.groups
    ways = Counter(len(group.attributes) for group in groups)
    what = "count" if entry.kind == "where" else "table"
    parts = [f"{count(some, what)} on {count(way, 'attribute')}" for way, some in sorted(ways.items())]
    said = "; ".join(map(group_words, groups)) if len(groups) <= 2 else ", ".join(parts)
    return {"words": said, "target": None if groups[0].target is None else str(groups[0].target)}


def _amounts(budget: Budget, delta: float) -> dict[str, float]:
    """Return the budget in every definition, rounded up so that each is at least as much."""
    cost = budget.privacy_cost
    exact = {"epsilon": budget.epsilon_at(delta), "rho": cost / 2, "mu": math.sqrt(cost), "cost": cost}
    return {**{name: readable(amount, digits=4) for name, amount in exact.items()}, "delta": delta}


def _learn(budget: Budget) -> str:
    """Return in words what a reader could learn about one person, at most."""
    guess = (1 + budget.delta_at(0.0)) / 2
    whose = "the record" if budget.records_per_person == 1 else "the person"
    certain = "; this protects weakly" if guess > CERTAIN else ""
    return (
        f"A reader who guesses whether {whose} of somebody is in the table, knowing all other records, is "
        f"right with probability {min(math.ceil(1000 * guess) / 10, 100):g}% at most, instead of "
        f"50%{certain}."
    )


def plan(spec: Spec) -> dict[str, Any]:
    """Plan what a spec states, and say what to expect."""
    expected = _expected(spec)
    planned = expected.plan
    largest = planned.worst_std  # first: what it finds serves the rows
    header, *cells = expected_table(expected.rows(every=False), planned.workload.schema)
    by_set = shares(planned, MOST_SHARES)
    rmse = planned.rmse * expected.factor
    amounts = _amounts(expected.budget, delta_of(expected.budget))
    return {
        "facts": expected.facts(),
        "rmse": number(rmse),
        "largest": None if largest is None else number(largest * expected.factor),
        "gap": planned.gap,
        "header": header,
        "rows": cells,
        "entries": _reached(spec, planned, expected),
        "shares": [
            {"label": label, "share": shortened(part, 6), "said": said}
            for (label, part), said in zip(by_set, tenths([part for _, part in by_set]), strict=True)
        ],
        "curve": None if spec.discovered else _curve(expected.budget, rmse, amounts),
        "amounts": amounts,
        "learn": _learn(expected.budget),
    }


_LATEST: list[Expectations] = []
"""What was planned last, each with its spec."""


def _expected(spec: Spec) -> Expectations:
    """Return the plan of what a spec states, made once for all amounts of a budget."""
    for place, before in enumerate(_LATEST):
        made = before if before.spec == spec else at_budget(before, spec)
        if made is not None:
            del _LATEST[place]
            break
    else:
        made = Expectations(spec.plan(), spec)
    _LATEST[KEPT - 1 :] = []
    _LATEST.insert(0, made)
    return made


def at_budget(before: Expectations, spec: Spec) -> Expectations | None:
    """Return expectations of the same plan at the budget of a spec, if planning again returns this plan.

    For the mean error without targets, the best strategies and shares do not depend on the amount.
    """
    planned = before.plan
    is_mean = planned.objective == "mean" and not planned.workload.has_targets and planned.asked is None
    alike = is_mean and not spec.least and planned.budget.unit == spec.budget.unit
    if not alike or before.spec != replace(spec, budget=before.spec.budget):
        return None
    made = Expectations(planned, spec)
    factor = made.factor / before.factor
    vars(made)["groups"] = [row.scaled(factor) for row in before.groups]
    return made


def _curve(budget: Budget, rmse: float, amounts: dict[str, float]) -> dict[str, Any]:
    """Return errors at values of ε, with all noise of a plan scaled, and the logarithms of both."""
    here = min(max(amounts["epsilon"], EPSILONS[0]), EPSILONS[-1])
    errors = {
        e: rmse * math.sqrt(budget.privacy_cost / _cost(e, amounts["delta"])) for e in (*EPSILONS, here)
    }
    logs = {e: [round(math.log10(e), 4), round(math.log10(error), 4)] for e, error in errors.items()}
    table = [(f"{e:g}", number(errors[e])) for e in EPSILONS if f"{e:e}"[:3] in ("1.0", "2.0", "5.0")]
    return {"points": [logs[e] for e in EPSILONS], "here": logs[here], "table": table}


@cache
def _cost(epsilon: float, delta: float) -> float:
    return ApproxDP(epsilon, delta).privacy_cost


def _reached(spec: Spec, planned: Plan, expected: Expectations) -> list[dict[str, Any]]:
    """Return the errors of every [[workload]] table, with its words and beside its target."""
    groups = expected.groups
    if planned.asked is not None:  # the groups that are measured are not those of the spec
        return []
    reached, start = [], 0
    for entry in spec.entries:
        stop = start + len(entry.workload.groups)
        row = together("", groups[start:stop])
        ratios = [
            row.extreme.ratio * expected.factor
            for row in groups[start:stop]
            if row.extreme is not None and row.extreme.group.target is not None
        ]
        reached.append(
            _titled(entry)
            | {
                "rmse": None if row.rmse is None else number(row.rmse),
                "largest": None if row.largest is None else number(row.largest),
                "query": None if row.extreme is None else row.extreme.query(planned.workload.schema),
                "met": all(map(is_met, ratios)) if ratios else None,
                "used": f"{max(ratios):.0%}" if ratios else None,
            }
        )
        start = stop
    return reached


def first(codebook: str | None = None) -> dict[str, Any]:
    """Return the text of a first spec file."""
    return {"text": template(codebook)}


def attributes(spec: Spec) -> dict[str, Any]:
    """Return the attributes of a spec as [[schema]] tables, wherever it has them from."""
    return {"tables": [table_of(attribute) for attribute in spec.schema]}


def form(spec: Spec, name: str) -> dict[str, Any]:
    """Return an attribute as the texts of a form."""
    return {"form": form_of(spec.schema, name, spec.discoveries)}


def columns(spec: Spec, data: str) -> dict[str, Any]:
    """Return the names of the columns of a table, without reading a record."""
    style = spec.source.style if spec.source else {}
    return {"columns": Source(spec.path.parent / data, style=style).columns()}


def predicate(spec: Spec, words: str) -> dict[str, Any]:
    """Return the attributes that a predicate is on; an error if it is none."""
    return {"attributes": list(where(spec.schema, words).groups[0].attributes)}


def made_up(spec: Spec, names: list[str], records: int) -> dict[str, Any]:
    """Return a table of made-up counts with the errors to expect: nobody's data, whatever is planned."""
    expected = _expected(spec)
    planned, schema = expected.plan, spec.schema
    group = queries(schema, dict.fromkeys(names, "identity"))
    cells = group.query_count
    if cells > MOST_CELLS:
        msg = f"table: expected at most {MOST_CELLS} cells, got {cells:,}; choose other attributes"
        raise TooLargeError(msg)
    stds = np.sqrt(planned.variances(group)) * expected.factor
    shares = np.ones(1)
    for name in names:  # shapes that nobody has measured: a hill on ordered values, a slope on others
        places = np.arange(schema[name].size) / schema[name].size
        shape = np.exp(-(((places - 0.45) / 0.3) ** 2)) if schema[name].ordered else 1 / (1.0 + 2 * places)
        shares = np.multiply.outer(shares, shape / shape.sum()).ravel()
    counts = records * shares
    return {
        "rows": [
            {
                "label": label,
                "count": amount,
                "low": max(amount - 1.96 * std, 0.0),
                "high": amount + 1.96 * std,
                "said": f"{figure(amount, std)} ± {number(std)}",
                "cv": "" if not amount else f"{min(std / amount, 9.99):.0%}",
            }
            for label, amount, std in zip(group.labels(), counts.tolist(), stds.tolist(), strict=True)
        ]
    }


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    task.__name__: task
    for task in (read, plan, first, codebook, attributes, form, attribute, columns, predicate, made_up)
}
"""Every task by its name."""
