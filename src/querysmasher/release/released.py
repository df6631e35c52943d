"""The interface of a release for files and pages, which `Release` imports to save and show itself."""

from __future__ import annotations

from typing import Protocol

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centres
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.release.exploration import Exploration
from querysmasher.release.noise_record import NoiseRecord
from querysmasher.release.provenance import Provenance
from querysmasher.release.store import Store
from querysmasher.report.left_out import Counted
from querysmasher.workload.workload import Group, Workload


class Measured(Protocol):
    """Read-only measurements; `Measurements` documents every name."""

    @property
    def plan(self) -> IntegerPlan: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def centres(self) -> Centres: ...
    @property
    def noise(self) -> NoiseRecord: ...
    @property
    def store(self) -> Store: ...
    @property
    def public_total(self) -> int | None: ...
    @property
    def entry(self) -> Entry | None: ...
    @property
    def person(self) -> str | None: ...
    @property
    def counted(self) -> Counted: ...
    @property
    def asked(self) -> Workload | None: ...
    @property
    def exploration(self) -> Exploration | None: ...
    @property
    def provenance(self) -> Provenance: ...


class Released(Measured, Protocol):
    """A read-only release; `Release` documents every name."""

    @property
    def guarantee(self) -> str: ...
    @property
    def record(self) -> str: ...
    @property
    def measurements(self) -> int: ...
    @property
    def estimator(self) -> Estimator: ...
    def marginal(self, *attributes: str) -> Array: ...
    def answer_group(self, group: Group) -> tuple[Array, Array]: ...
