"""The names of the files of a release folder."""

from __future__ import annotations

import re
from collections.abc import Iterable

from querysmasher.formats import endings

RELEASE, PLAN, SUMMARY, DESCRIPTION = "release.qs", "plan.qs", "summary.json", "datapackage.json"
ANSWERS, ESTIMATES, ERRORS, PAGE = "answers", "estimates", "errors.csv", "report.html"
MICRODATA = "microdata"
STATISTIC = "statistic-"
"""What the names of files of statistics begin with."""


def tables(statistics: Iterable[str] = ()) -> list[str]:
    """Return the files of answers, estimates and named statistics that a folder can have, in order."""
    stems = (ANSWERS, ESTIMATES, *(f"{STATISTIC}{name}" for name in statistics))
    return [f"{stem}{ending}" for stem in stems for ending in endings()]


def records() -> list[str]:
    """Return the files of synthetic records that a folder can have."""
    return [f"{MICRODATA}{ending}" for ending, form in endings().items() if form.holds_records]


def beside(file: str) -> str:
    """Return the name of the description of a file that is not described together with others."""
    return f"{file}.{DESCRIPTION}"


def is_statistic(file: str) -> bool:
    """Return whether a file has a name that a file of a statistic can have."""
    ending = "|".join(map(re.escape, endings()))
    return re.fullmatch(rf"{STATISTIC}[A-Za-z0-9_-]{{1,60}}({ending})", file) is not None
