"""Which noise a release carries."""

from __future__ import annotations

from dataclasses import dataclass

from querysmasher.privacy.distributions import Distribution, distribution_of


@dataclass(frozen=True)
class NoiseRecord:
    """Which noise a release carries."""

    name: str
    description: str
    seeded: bool

    def __post_init__(self) -> None:
        """Check that the noise is known: what is said of a release depends on it."""
        distribution_of(self.name)

    @property
    def distribution(self) -> Distribution:
        """What the noise was drawn from."""
        return distribution_of(self.name)

    @property
    def is_private(self) -> bool:
        """Whether the noise protects anyone: not if it can be recomputed or is a float simulation."""
        return not self.seeded and self.distribution.is_private
