"""A release seen at a level of a hierarchy: an attribute whose values are groups of the original values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.release.answers import Answers
from querysmasher.release.covariance import covariance
from querysmasher.release.pruned import Pruned, prune
from querysmasher.release.reconstruction import Reconstruction
from querysmasher.statistics.figures import Marginal
from querysmasher.statistics.verbs import Statistical
from querysmasher.workload.builders import asked, queries
from querysmasher.workload.hierarchy import Coarsening
from querysmasher.workload.workload import Workload


class Answering(Protocol):
    """What a release offers to its views."""

    @property
    def estimator(self) -> Estimator: ...
    @property
    def reconstruction(self) -> Reconstruction: ...
    def answer(self, workload: Workload) -> Answers: ...
    def covariance(self, workload: Workload, other: Workload | None = None) -> Array: ...


@dataclass(frozen=True, eq=False, repr=False)
class CoarseRelease(Statistical):
    """Answers and statistics of a release at one level: `table("state", "sex")`, `mean("age", by="state")`.

    Everything follows from the release, at no further privacy cost, and agrees with its other answers.
    """

    release: Answering
    coarsening: Coarsening

    @property
    def workload(self) -> Workload:  # type: ignore[override]
        """The groups of the level, one query each."""
        return queries(self.coarsening.schema, {self.coarsening.name: "identity"})

    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> Answers:
        """Answer a workload on the coarser schema (by default all groups), a predicate or several."""
        given = self.workload if workload is None else asked(self.coarsening.schema, workload)
        if self._pruned is not None:
            pruned, coarsening = self._pruned
            return Answers(given, *pruned.answer(coarsening.fine(given)))
        found = self.release.answer(self.coarsening.fine(given))
        return Answers(given, found.values, found.std)

    @cached_property
    def _pruned(self) -> tuple[Pruned, Coarsening] | None:
        """The release over nodes of a tree, if the attribute is large; else None."""
        return prune(self.release.estimator, self.release.reconstruction, self.coarsening)

    def covariance(self, workload: Workload, other: Workload | None = None) -> Array:
        """Return the covariances of answers on the coarser schema; see `Release.covariance`."""
        if self._pruned is not None:
            pruned, coarsening = self._pruned
            both = coarsening.fine(workload), None if other is None else coarsening.fine(other)
            return covariance(pruned.estimator, *both)
        fine = self.coarsening.fine
        return self.release.covariance(fine(workload), None if other is None else fine(other))

    def marginal(self, *attributes: str) -> Marginal:
        """Return the marginal on the attributes, one of which may be the level; see `Release.marginal`."""
        if not attributes:
            msg = "attributes: expected at least one attribute"
            raise WorkloadError(msg)
        schema = self.coarsening.schema
        values = self.answer(queries(schema, dict.fromkeys(attributes, "identity"))).values
        shaped = values.reshape(schema.shape(attributes))
        return Marginal.of(shaped, lambda: self.table(*attributes, totals=False).figures)

    def __repr__(self) -> str:
        """Name the level."""
        return f"Release at the level {self.coarsening.name!r}, over {self.coarsening.schema}"
