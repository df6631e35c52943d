"""The ledger of a spec file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from querysmasher.privacy.budget import Budget
from querysmasher.privacy.ledger import Ledger


@dataclass(frozen=True)
class LedgerPlace:
    """Where the ledger is, and the limit with which it is created if it does not exist."""

    path: Path
    limit: Budget | None = None
    label: str | None = None

    def left(self) -> float | None:
        """Return the privacy cost that is left, or None if the ledger does not exist yet."""
        return float(Ledger(self.path).left) if self.path.exists() else None

    def left_words(self) -> str:
        """Return what is left of an existing ledger, in words."""
        ledger = Ledger(self.path)
        return ledger.total.left_words(ledger.limit)

    def open(self) -> Ledger:
        """Open the ledger, or create it if its limit is stated."""
        return Ledger(self.path, limit=self.limit, label=self.label)
