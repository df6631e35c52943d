"""Releases on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from querysmasher.arrays import Numbers
from querysmasher.errors import FileError, QuerySmasherError
from querysmasher.files import Lazy, read_archive, write_archive
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.factors import factor_from_data
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.release.release import NoiseRecord, Release
from querysmasher.workload.storage import ragged, unragged, workload_from_data, workload_to_data


class LoadedStore:
    """Answers that stay in the file of a saved release and are read one set at a time."""

    def __init__(self, arrays: Sequence[Lazy], sizes: Sequence[int]) -> None:
        """Take the arrays, in the order of the attribute sets, and how many numbers each must have."""
        self._arrays = arrays
        self._sizes = sizes

    def __getitem__(self, number: int) -> Numbers:
        """Return the answers of one attribute set."""
        answers = self._arrays[number].fetch()
        if answers.dtype not in (np.int64, np.float64) or answers.shape != (self._sizes[number],):
            msg = "the release's file does not hold the answers that it says it holds"
            raise FileError(msg)
        return answers


def save_release(release: Release, path: str | os.PathLike[str]) -> None:
    """Write a release to a file, all or nothing."""
    plan = release.plan
    centres = {id(c): c for c in release.centres}
    which = {key: i for i, key in enumerate(centres)}
    write_archive(
        path,
        "release",
        {
            "workload": workload_to_data(release.workload),
            "budget": plan.budget.to_json(),
            "max_records": plan.max_records,
            "public_total": release.public_total,
            "noise": {
                "name": release.noise.name,
                "description": release.noise.description,
                "seeded": release.noise.seeded,
            },
            "centres": list(centres.values()),
            "centre_of": [which[id(c)] for c in release.centres],
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
        },
    )


def load_release(path: str | os.PathLike[str]) -> Release:
    """Read a release back; the answers stay in the file until they are asked for."""
    data = read_archive(path, "release")
    try:
        return _from_data(data)
    except (
        QuerySmasherError,
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        ArithmeticError,
    ) as error:
        msg = f"{str(path)!r} does not hold a whole release ({type(error).__name__})"
        raise FileError(msg) from error


def _from_data(data: dict[str, Any]) -> Release:
    workload = workload_from_data(data["workload"])
    strategies = tuple(
        IntegerStrategy(
            tuple(s["shape"]),
            tuple((tuple(f["axes"]), factor_from_data(f["kind"], f["data"])) for f in s["factors"]),
            s["multipliers"],
        )
        for s in data["strategies"]
    )
    measured = tuple(
        IntegerMeasured(attributes, tuple((tuple(axes), n) for axes, n in blocks), Fraction(variance))
        for attributes, blocks, variance in zip(
            unragged(data["attributes"]), data["blocks"], data["variances"], strict=True
        )
    )
    plan = IntegerPlan(
        workload.schema, Budget.from_json(data["budget"]), strategies, measured, data["max_records"]
    )
    answers = data["answers"]
    if len(answers) != len(measured) or not all(isinstance(one, Lazy) for one in answers):
        msg = "answers are missing"
        raise ValueError(msg)
    return Release(
        plan,
        workload,
        tuple(data["centres"][i] for i in data["centre_of"]),
        NoiseRecord(**data["noise"]),
        LoadedStore(answers, [plan.count(m) for m in measured]),
        data["public_total"],
    )
