"""Estimates on disk: the releases from which they follow, and the workload asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from querysmasher.fields import items, text
from querysmasher.files import read_value, write_archive
from querysmasher.release.release import Release
from querysmasher.release.storage import release_from_data, release_to_data
from querysmasher.workload.storage import workload_from_data, workload_to_data
from querysmasher.workload.workload import Workload

Parts = tuple[tuple[Release, ...], Workload, dict[str, Any]]


def save_estimate(
    releases: Sequence[Release],
    workload: Workload,
    about: Mapping[str, Any],
    path: str | os.PathLike[str],
) -> None:
    """Write an estimate to a file, all or nothing."""
    payload = {
        "releases": [release_to_data(release) for release in releases],
        "workload": workload_to_data(workload),
        "about": dict(about),
    }
    write_archive(path, "estimate", payload)


def load_estimate(path: str | os.PathLike[str]) -> Parts:
    """Read the parts of an estimate; refuse a damaged, foreign or incomplete file."""
    return read_value(path, "estimate", _from_data)


def _from_data(data: dict[str, Any]) -> Parts:
    releases = tuple(release_from_data(one) for one in items(data["releases"]))
    workload = workload_from_data(data["workload"])
    about = dict(data["about"])
    if not text(about["guarantee"]).isprintable():
        raise ValueError
    if not releases or any(release.plan.schema != workload.schema for release in releases):
        msg = "its parts have different schemas"
        raise ValueError(msg)
    return releases, workload, about
