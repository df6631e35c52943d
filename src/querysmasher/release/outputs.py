"""What a release is published as: the formats of its answers, and the files of its folder.

A new format needs a file with its `Format`, and its name in `FORMATS`: files, the spec, the
command, the description beside a file and `verify` look there.
"""

from __future__ import annotations

from querysmasher.endings import check_ending
from querysmasher.release.formats import ARROW, CSV, FEATHER, GZIP, JSON, PARQUET, Format
from querysmasher.release.workbook import WORKBOOK

FORMATS: tuple[Format, ...] = (PARQUET, CSV, GZIP, ARROW, FEATHER, JSON, WORKBOOK)

RELEASE, PLAN, SUMMARY, DESCRIPTION = "release.qs", "plan.qs", "summary.json", "datapackage.json"
ANSWERS, ESTIMATES, ERRORS, PAGE = "answers", "estimates", "errors.csv", "report.html"


def endings() -> dict[str, Format]:
    """Return the format of each ending of the name of a file."""
    return {ending: form for form in FORMATS for ending in form.endings}


def format_of(path: object) -> Format:
    """Return the format that the name of a file states; refuse another name."""
    known = endings()
    return known[check_ending(path, tuple(known))]


def tables() -> list[str]:
    """Return the files of answers and estimates that a folder can have, in order."""
    return [f"{stem}{ending}" for stem in (ANSWERS, ESTIMATES) for ending in endings()]
