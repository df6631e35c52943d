"""The result of one check of a published release."""

from __future__ import annotations

from dataclasses import dataclass

OK, FAILED, OPEN, NOT_ASKED = "passed", "FAILED", "not verified", "not asked"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    status: str
    """`OK`; `FAILED`: it is wrong; `OPEN`: nobody can say so here; `NOT_ASKED`: the user did not ask."""
    text: str
