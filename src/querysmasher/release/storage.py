"""Releases on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from querysmasher.arrays import Numbers
from querysmasher.errors import FileError
from querysmasher.fields import fraction, integers, items, text, whole, wholes, word
from querysmasher.files import Lazy, read_value, write_archive
from querysmasher.planning.storage import blocks_from_data, centres_from_data, centres_to_data
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.factors import factor_from_data
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.release.checking import check_release
from querysmasher.release.exploration import exploration_from_data, exploration_to_data
from querysmasher.release.noise_record import NoiseRecord
from querysmasher.release.provenance import Provenance
from querysmasher.release.released import Measured
from querysmasher.report.left_out import counted_from_data
from querysmasher.workload.storage import ragged, unragged, workload_from_data, workload_to_data
from querysmasher.workload.workload import Workload

R = TypeVar("R", bound=Measured)


class LoadedStore:
    """Answers in the file of a saved release, read one set at a time."""

    def __init__(self, arrays: Sequence[Lazy], sizes: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Take the arrays, in the order of the attribute sets, and their expected sizes."""
        self._arrays = arrays
        self._sizes = sizes
        self._dtype = dtype

    def __getitem__(self, number: int) -> Numbers:
        """Return the answers of one attribute set."""
        answers = self._arrays[number].fetch()
        fits = answers.dtype == self._dtype and answers.shape == (self._sizes[number],)
        if not fits or not np.isfinite(answers).all():
            msg = "the file of the release does not contain the answers it declares"
            raise FileError(msg)
        return answers


def save_release(release: Measured, path: str | os.PathLike[str]) -> None:
    """Write a release to a file, all or nothing."""
    try:
        write_archive(path, "release", release_to_data(release))
    except OSError as error:
        error.add_note(
            "The release is still in memory: save it elsewhere. Measuring again would spend the budget again."
        )
        raise


def release_to_data(release: Measured) -> dict[str, Any]:
    """Return plain data, with arrays in it, from which `release_from_data` rebuilds the release."""
    plan = release.plan
    return {
        "workload": workload_to_data(release.workload),
        "budget": plan.budget.to_json(),
        "max_records": plan.max_records,
        "public_total": release.public_total,
        "provenance": release.provenance.to_json(),
        "asked": None if release.asked is None else workload_to_data(release.asked),
        "noise": {
            "name": release.noise.name,
            "description": release.noise.description,
            "seeded": release.noise.seeded,
        },
        "person": release.person,
        "counted": release.counted.to_data(),
        "exploration": exploration_to_data(release.exploration),
        "ledger": None if release.entry is None else [release.entry.previous, release.entry.to_json()],
        **centres_to_data(release.centres),
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


def load_release(make: Callable[..., R], path: str | os.PathLike[str]) -> R:
    """Read a release; `make` builds it from its fields. The answers stay in the file until needed."""
    return read_value(path, "release", lambda data: release_from_data(make, data))


def release_from_data(make: Callable[..., R], data: dict[str, Any]) -> R:
    """Rebuild a release from the result of `release_to_data`, and check that it is consistent."""
    workload = workload_from_data(data["workload"])
    measured = tuple(
        IntegerMeasured(attributes, blocks_from_data(blocks), fraction(variance))
        for attributes, blocks, variance in zip(
            unragged(data["attributes"]), items(data["blocks"]), items(data["variances"]), strict=True
        )
    )
    plan = IntegerPlan(
        workload.schema,
        Budget.from_json(data["budget"]),
        tuple(map(_strategy_from_data, items(data["strategies"]))),
        measured,
        whole(data["max_records"], 1, 2**40),
    )
    record = _noise_from_data(data["noise"])
    answers = items(data["answers"])
    if len(answers) != len(measured) or not all(isinstance(one, Lazy) for one in answers):
        msg = "answers are missing"
        raise ValueError(msg)
    dtype = np.dtype(record.distribution.dtype)
    store = LoadedStore(answers, [plan.count(m) for m in measured], dtype)
    total = None if data["public_total"] is None else whole(data["public_total"], 0, plan.max_records)
    more: dict[str, Any] = {
        "entry": _entry_from_data(data),
        "counted": counted_from_data(
            data.get("counted"), _person_from_data(data), plan.budget.unit, record.distribution
        ),
        "provenance": Provenance.from_json(data.get("provenance", {})),
        "asked": _asked_from_data(data, workload),
        "exploration": exploration_from_data(data.get("exploration"), plan, record.distribution),
    }
    release = make(plan, workload, centres_from_data(data), record, store, total, **more)
    check_release(release)
    return release


def _asked_from_data(data: dict[str, Any], workload: Workload) -> Workload | None:
    """Return the workload to estimate, if there is one."""
    if data.get("asked") is None:
        return None
    asked = workload_from_data(data["asked"])
    if asked.schema != workload.schema:
        raise ValueError
    return asked


def _noise_from_data(data: dict[str, Any]) -> NoiseRecord:
    if type(data["seeded"]) is not bool or set(data) != {"name", "description", "seeded"}:
        raise ValueError
    return NoiseRecord(text(data["name"], tuple(DISTRIBUTIONS)), word(data["description"]), data["seeded"])


def _entry_from_data(data: dict[str, Any]) -> Entry | None:
    """Return the entry of the ledger; a release written before there were ledgers has none."""
    if data.get("ledger") is None:
        return None
    previous, content = items(data["ledger"])
    return Entry.from_json(content, previous)


def _person_from_data(data: dict[str, Any]) -> str | None:
    person = data.get("person")
    if person is not None and not text(person):
        raise ValueError
    return person


def _strategy_from_data(data: dict[str, Any]) -> IntegerStrategy:
    multipliers = None if data["multipliers"] is None else integers(data["multipliers"])
    factors = tuple(
        (wholes(one["axes"]), factor_from_data(one["kind"], one["data"])) for one in items(data["factors"])
    )
    return IntegerStrategy(wholes(data["shape"]), factors, multipliers)
