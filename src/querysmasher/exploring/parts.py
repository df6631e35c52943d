"""Parts of tables with prior variances: what water-filling shares a budget among."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.model import Model
from querysmasher.exploring.shares import Profile, expected
from querysmasher.planning.estimating import Place


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of tables with prior variances: what water-filling shares a budget among."""

    places: tuple[Place, ...]
    variances: Array
    """By part, and class of cells."""
    counts: Array

    @classmethod
    def of_distances(cls, places: Iterable[Place], distances: Array, profiles: Sequence[Profile]) -> Parts:
        """Return parts whose priors have the given expected distances."""
        variances = [own.prior(float(d)) for own, d in zip(profiles, distances, strict=True)]
        return cls._of(places, variances, profiles)

    @classmethod
    def of_noise(cls, places: Iterable[Place], noises: Sequence[float], model: Model) -> Parts:
        """Return single attributes that were measured with noise of these variances."""
        profiles = [Profile.of(model.single(a)) for (a,) in places]
        variances = [own.noise(variance) for own, variance in zip(profiles, noises, strict=True)]
        return cls._of(places, variances, profiles)

    @classmethod
    def _of(cls, places: Iterable[Place], variances: list[Array], profiles: Sequence[Profile]) -> Parts:
        return cls(tuple(places), np.array(variances), np.array([own.counts for own in profiles]))

    @property
    def errors(self) -> Array:
        """The expected distance of each part from its estimate."""
        return expected(self.variances, self.counts)

    def __add__(self, other: Parts) -> Parts:
        """Return both."""
        return Parts(
            self.places + other.places,
            np.concatenate([self.variances, other.variances]),
            np.concatenate([self.counts, other.counts]),
        )

    def after(self, precisions: Array) -> Parts:
        """Return what is left of the variances after parts were measured at these precisions."""
        left = self.variances / (1 + self.variances * precisions[:, None])
        return Parts(self.places, left, self.counts)
