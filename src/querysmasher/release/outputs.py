"""The names of the files of a release folder."""

from __future__ import annotations

from querysmasher.formats import endings

RELEASE, PLAN, SUMMARY, DESCRIPTION = "release.qs", "plan.qs", "summary.json", "datapackage.json"
ANSWERS, ESTIMATES, ERRORS, PAGE = "answers", "estimates", "errors.csv", "report.html"


def tables() -> list[str]:
    """Return the files of answers and estimates that a folder can have, in order."""
    return [f"{stem}{ending}" for stem in (ANSWERS, ESTIMATES) for ending in endings()]
