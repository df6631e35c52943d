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
        """Check that the noise is known: the guarantee of a release depends on it."""
        distribution_of(self.name)

    @property
    def distribution(self) -> Distribution:
        """The distribution of the noise."""
        return distribution_of(self.name)

    @property
    def is_private(self) -> bool:
        """Whether the noise protects anyone: not if it can be recomputed or is in floating point."""
        return not self.seeded and self.distribution.is_private
