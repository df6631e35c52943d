"""What a statistic needs of a release: answers with standard errors, and their joint covariance."""

from __future__ import annotations

from typing import Protocol

from querysmasher.arrays import Array
from querysmasher.release.answers import Answers
from querysmasher.workload.workload import Workload


class Source(Protocol):
    """A release, or anything that answers workloads as one does."""

    @property
    def workload(self) -> Workload: ...
    def answer(self, workload: Workload) -> Answers: ...
    def covariance(self, workload: Workload, other: Workload | None = None) -> Array: ...
