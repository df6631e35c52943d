"""The noisy residuals of a release, whatever it measured.

With uniform centres, and all directions of a residual space measured, they are what the release stores.
Otherwise they are taken from its consistent marginals. Their noise is then not equally strong in all
directions; we take its mean, which follows from the expected squared errors of marginals: these are Σ_{B⊆A}
e_B / n_{A∖B}, with e_B that of residual B and n_{A∖B} the number of cells of the other attributes.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.estimate.evidence import Noisy, Place
from querysmasher.estimate.nonnegative import centred
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.release.release import Release
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group


class ReleasedResiduals:
    """A source of noisy residuals: a release."""

    def __init__(self, release: Release) -> None:
        """Take the release."""
        self.release = release
        self._schema = release.plan.schema
        self._traces: dict[int, float] = {}
        self._errors: dict[Place, float] = {}
        self._outside: set[Place] = set()
        self._even = [centre.is_uniform for centre in release.centres]

    def noisy(self, attributes: Place) -> Noisy | None:
        """Return the noisy residual of a set, or None if it is not measured in all directions."""
        if not attributes and self.release.public_total is not None:
            return Noisy((), np.array(float(self.release.public_total)), 0.0)
        directions = math.prod(self._schema.sizes[a] - 1 for a in attributes)
        if not directions:
            return None
        residual = self.release.reconstruction.residual(attributes) if self._is_stored(attributes) else None
        if residual is not None:
            shaped = residual.reshape([self._schema.sizes[a] for a in attributes])
            return Noisy(attributes, shaped, self._stored_error(attributes) / directions)
        marginal = self._marginal(attributes)
        if marginal is None:
            return None
        return Noisy(attributes, centred(marginal[None])[0], max(self._error(attributes), 0.0) / directions)

    def distance(self, attributes: Place) -> float | None:
        """Return the noisy distance of a pair from independence, in records; None if it is not known."""
        return self._distances.get(attributes)

    @cached_property
    def _distances(self) -> dict[Place, float]:
        explored = self.release.exploration
        found = None if explored is None else explored.independence
        if found is None:
            return {}
        places = [one.attributes for one in found.distances.asked]
        return dict(zip(places, found.records.tolist(), strict=True))

    def _is_stored(self, attributes: Place) -> bool:
        """Return whether the release stores the whole residual around uniform centres."""
        even = all(self._even[a] for a in attributes)
        return even and self.release.estimator.is_split and self.release.reconstruction.is_whole(attributes)

    def _stored_error(self, attributes: Place) -> float:
        """Return the expected squared error of a stored residual."""
        return math.fsum(
            m.variance * math.prod(self._trace(number) for _, number in m.blocks)
            for m in self.release.estimator.measured[attributes]
        )

    def _trace(self, number: int) -> float:
        """Return the expected squared error that a strategy leaves at unit variance."""
        if number not in self._traces:
            strategy = self.release.estimator.strategies[number]
            centring = [((axis,), np.eye(n) - 1 / n) for axis, n in enumerate(strategy.shape)]
            self._traces[number] = float(strategy.variances(centring).sum())
        return self._traces[number]

    def _marginal(self, attributes: Place) -> Array | None:
        """Return the unbiased marginal, or None if there is none."""
        reconstruction = self.release.reconstruction
        if self.release.estimator.is_split and not reconstruction.is_whole(attributes):
            return None  # at once: most sets were not measured
        if attributes in self._outside:
            return None
        try:
            return reconstruction.marginal(attributes)
        except OutsideMeasuredSpaceError:
            self._outside.add(attributes)
            return None

    def _error(self, attributes: Place) -> float:
        """Return the expected squared error of the residual of a marginal."""
        if attributes not in self._errors:
            sizes = self._schema.sizes
            names = tuple(self._schema.names[a] for a in attributes)
            group = Group(names, tuple(Identity.of(sizes[a]) for a in attributes))
            below = math.fsum(
                self._error(some) / math.prod(sizes[a] for a in attributes if a not in some)
                for some in subsets(attributes)
                if some != attributes
            )
            self._errors[attributes] = self.release.estimator.total(group) - below
        return self._errors[attributes]
