"""The result of one check of a published release."""

from __future__ import annotations

from dataclasses import dataclass

OK, FAILED, OPEN = "ok", "FAILED", "not checked"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    status: str
    """`OK`, `FAILED` or `OPEN`."""
    text: str
