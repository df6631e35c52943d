"""Releases on disk: writing, reading, and checks of what was read.

The noise of a release must be large enough for its guarantee, and its parts must be consistent. Answers are
unbiased only if every strategy lies in the residual space around the centres, and their standard errors are
right only if its rows are independent.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from querysmasher.errors import PrivacyError
from querysmasher.fields import fraction, integers, items, text, whole, wholes, word
from querysmasher.files import Lazy, write_archive
from querysmasher.guarantees import counted_from_data
from querysmasher.planning.lattice import Integers
from querysmasher.planning.plan_file import (
    blocks_from_data,
    centres_from_data,
    centres_to_data,
    check_centres,
    check_kinds,
    tied_from_data,
    tied_to_data,
)
from querysmasher.planning.strategies import is_line, strategy_of_integers
from querysmasher.privacy.accounting import check_budget, privacy_cost
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.entries import Entry, plan_digest
from querysmasher.privacy.factors import factor_from_data
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.privacy.unit import Names, sizes_of
from querysmasher.release.provenance import (
    NoiseRecord,
    Provenance,
    exploration_from_data,
    planned_digest,
    request_digest,
    spent,
)
from querysmasher.release.reconstruction import LoadedStore, PublicCounts, repeats
from querysmasher.release.release import Release
from querysmasher.schema import Schema
from querysmasher.statistics.statistic import read_statistics
from querysmasher.workload.registry import ragged, unragged, workload_from_data, workload_to_data

LARGEST_VARIANCE = 2**101


def save_release(release: Release, path: str | os.PathLike[str]) -> None:
    """Write a release to a file, all or nothing."""
    try:
        write_archive(path, "release", release_to_data(release))
    except OSError as error:
        error.add_note(
            "The release is still in memory: save it elsewhere. Measuring again would spend the budget again."
        )
        raise


def release_to_data(release: Release) -> dict[str, Any]:
    """Return plain data, with arrays in it, from which `release_from_data` rebuilds the release."""
    plan = release.plan
    return {
        "workload": workload_to_data(release.workload),
        "budget": plan.budget.to_json(),
        "max_records": plan.max_records,
        "public_total": release.public_total,
        "exact": list(release.exact),
        "provenance": release.provenance.to_json(),
        "asked": None if release.asked is None else workload_to_data(release.asked),
        "noise": asdict(release.noise),
        "statistics": [statistic.to_json() for statistic in release.statistics],
        "person": release.person,
        "counted": release.counted.to_data(),
        "exploration": None if release.exploration is None else release.exploration.to_data(),
        "ledger": None if release.entry is None else [release.entry.previous, release.entry.to_json()],
        **centres_to_data(release.centres),
        "tied": tied_to_data(release.tying),
        "strategies": [
            {
                "shape": list(s.shape),
                "factors": [
                    {"axes": list(axes), "kind": factor.kind, "data": factor.to_data()}
                    for axes, factor in s.factors
                ],
                "multipliers": s.multipliers,
            }
            for s in plan.strategies
        ],
        "attributes": ragged(m.attributes for m in plan.measured),
        "blocks": [[[list(axes), number] for axes, number in m.blocks] for m in plan.measured],
        "variances": [str(m.variance) for m in plan.measured],
        "answers": [Lazy(partial(release.store.__getitem__, i)) for i in range(len(plan.measured))],
    }


def release_from_data(data: dict[str, Any]) -> Release:
    """Rebuild a release from the result of `release_to_data`, and check it; answers stay in the file."""
    workload = workload_from_data(data["workload"])
    measured = tuple(
        IntegerMeasured(attributes, blocks_from_data(blocks), fraction(variance))
        for attributes, blocks, variance in zip(
            unragged(data["attributes"]), items(data["blocks"]), items(data["variances"]), strict=True
        )
    )
    tying = tied_from_data(data, workload.schema)
    plan = IntegerPlan(
        workload.schema if tying is None else tying.joint,
        Budget.from_json(data["budget"]),
        tuple(map(_strategy_from_data, items(data["strategies"]))),
        measured,
        whole(data["max_records"], 1, 2**40),
    )
    if type(data["noise"]["seeded"]) is not bool or set(data["noise"]) != {"name", "description", "seeded"}:
        raise ValueError
    name = text(data["noise"]["name"], tuple(DISTRIBUTIONS))
    noise = NoiseRecord(name, word(data["noise"]["description"]), data["noise"]["seeded"])
    answers = items(data["answers"])
    if len(answers) != len(measured) or not all(isinstance(array, Lazy) for array in answers):
        raise ValueError("answers are missing")
    store = LoadedStore(answers, [plan.count(m) for m in measured], np.dtype(noise.distribution.dtype))
    total = None if data["public_total"] is None else whole(data["public_total"], 0, plan.max_records)
    person = data.get("person")
    if person is not None and not text(person):
        raise ValueError
    entry = None
    if data.get("ledger") is not None:
        previous, content = items(data["ledger"])
        entry = Entry.from_json(content, previous)
    estimated = None if data.get("asked") is None else workload_from_data(data["asked"])
    if estimated is not None and estimated.schema != workload.schema:
        raise ValueError
    release = Release(
        plan,
        workload,
        centres_from_data(data),
        noise,
        store,
        total,
        tuple(
            _table(workload.schema, names, a)
            for names, a in zip(plan.budget.exact, items(data.get("exact", [])), strict=True)
        ),
        entry=entry,
        counted=counted_from_data(
            data.get("counted"),
            person,
            plan.budget.unit,
            noise.distribution,
            has_zeros=bool(plan.schema.zeros_of({name for m in measured for name in plan.names(m)})),
        ),
        provenance=Provenance.from_json(data.get("provenance", {})),
        asked=estimated,
        statistics=read_statistics(items(data.get("statistics", []))),
        exploration=exploration_from_data(data.get("exploration"), plan, noise.distribution),
        tying=tying,
    )
    check_release(release)
    return release


def _table(schema: Schema, names: Names, data: Any) -> Integers:
    """Return a table of exact counts."""
    counts = integers(data, len(names))
    if counts.shape != sizes_of(schema, names) or counts.min() < 0:
        raise ValueError("an exact table does not fit its attributes")
    return counts


def _strategy_from_data(data: dict[str, Any]) -> IntegerStrategy:
    multipliers = None if data["multipliers"] is None else integers(data["multipliers"])
    factors = tuple(
        (wholes(factor["axes"]), factor_from_data(factor["kind"], factor["data"]))
        for factor in items(data["factors"])
    )
    return IntegerStrategy(wholes(data["shape"]), factors, multipliers)


def check_release(release: Release) -> None:
    """Refuse a release with inconsistent parts, or with too little noise for its budget."""
    plan, counted, explored = release.plan, release.counted, release.exploration
    unit, noise = plan.budget.unit, release.noise.distribution
    check_centres(plan.schema, release.centres)
    strategies = [strategy_of_integers(strategy) for strategy in plan.strategies]
    public, variances = unit.total_is_public, [m.variance for m in plan.measured]
    silent = counted.is_whole or counted.unknown is None
    totals = [m for m in plan.measured if not m.attributes]
    known = unit.known(plan.schema)
    overlaps = itertools.combinations(release.public.tables.items(), 2)
    wrong = {
        "whether the number of records is public contradicts its neighbours": public
        != (release.public_total is not None),
        "persons are distinguished with replace_one neighbours": public and release.person is not None,
        "records are left out with replace_one neighbours": public and counted.unknown != "refuse",
        "attributes are tied together in several phases": release.tying is not None and explored is not None,
        "it says how many records were left out, but not which": counted.dropped is not None and silent,
        "a strategy is zero, or has dependent rows": not all(s.is_sound() for s in strategies),
        "a noise variance is zero, or too large": not all(0 < v <= LARGEST_VARIANCE for v in variances),
        "what is public is measured": any(m.attributes in known for m in plan.measured),
        "its exact counts contradict the number of records": any(
            int(counts.sum()) != release.public_total
            for counts in (*release.exact, *release.public.tables.values())
        ),
        "its exact counts contradict each other": not all(map(_agree, overlaps)),
        "the number of records is not measured exactly once": any(len(m.blocks) != 1 for m in totals),
    }
    for why, is_wrong in wrong.items():
        _refuse_if(is_wrong, why)
    check_kinds([plan.measured[numbers[0]] for numbers in repeats(plan)], strategies)
    blocks = {
        (number, tuple(release.centres[m.attributes[a]] for a in axes))
        for m in plan.measured
        for axes, number in m.blocks
        if not (strategies[number].whole or is_line(strategies[number]))
    }
    outside = any(not strategies[number].stands_on(centres) for number, centres in blocks)
    _refuse_if(outside, "a strategy is not inside its residual space")
    check_budget(plan, noise)
    allowed = Fraction(noise.allowed_cost(plan.budget))
    _refuse_if(spent(plan, explored, counted.dropped) > allowed, "its phases cost more than its budget")
    entry = release.entry
    if entry is None:
        return
    if explored is not None and not explored.is_planned:
        requested = release.asked or release.workload
        options = explored.options
        what = request_digest(requested, plan.budget, plan.max_records, options, counted.dropped)
    elif explored is not None or counted.dropped is not None:
        options = {"error_share": 0.0} if explored is None else explored.options
        what = planned_digest(plan, options, counted.dropped)
    else:
        what, allowed = plan_digest(plan), privacy_cost(plan)
    _refuse_if(
        (entry.plan, entry.cost, entry.noise, entry.unit, entry.person)
        != (what, allowed, release.noise.name, unit, release.person),
        "its entry of a ledger is about another measurement",
    )


def _agree(tables: Sequence[tuple[tuple[int, ...], Integers]]) -> bool:
    """Return whether two tables of exact counts agree on their common attributes."""
    (first, one), (second, other) = tables
    common = tuple(a for a in first if a in second)
    left, right = (PublicCounts({on: table}).on(common) for on, table in ((first, one), (second, other)))
    return bool(np.array_equal(left, right))  # type: ignore[arg-type]


def _refuse_if(is_wrong: bool, why: str) -> None:
    if is_wrong:
        raise PrivacyError(f"release: {why}")
