"""A release: the noisy measurements of a table, what may be published, and every answer that follows.

A release can be seen at a level of a hierarchy, where an attribute has groups of the original values. If the
attribute is large, nodes of its tree take the place of its values: all measurements at a node and below it
amount to one measurement of the node's count. So statistics about states work on a few states, not on all
tracts.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.attributes import Ordinal
from querysmasher.errors import Explained, TooLargeError, WorkloadError, explained
from querysmasher.formatting import count, preview
from querysmasher.guarantees import ALL, Counted, LeftOut, remarks
from querysmasher.html import notebook, table
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.constrained import ConstrainedEstimator, measured_zeros
from querysmasher.planning.estimator.estimator import AttributeSet, Estimator, within_groups
from querysmasher.planning.estimator.whole import class_sums, estimator_of
from querysmasher.planning.lattice import Integers
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies import Strategy, is_line, strategy_of_integers
from querysmasher.planning.tying import TiedEstimator, Tying
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.unit import Known
from querysmasher.release.answers import Answers
from querysmasher.release.provenance import Exploration, NoiseRecord, Provenance
from querysmasher.release.reconstruction import (
    ConstrainedReconstruction,
    PublicCounts,
    Reconstruction,
    Store,
    TiedReconstruction,
    answered,
    combined_noise,
    covariance,
    repeats,
)
from querysmasher.schema import Schema
from querysmasher.statistics.contrasts import Statistical
from querysmasher.statistics.figures import Marginal
from querysmasher.statistics.reliability import THRESHOLDS, Rules
from querysmasher.statistics.statistic import Statistic
from querysmasher.statistics.tables import cells
from querysmasher.workload.builders import as_workload, check_workload, queries
from querysmasher.workload.hierarchy import Coarsening
from querysmasher.workload.workload import Group, Workload

if TYPE_CHECKING:
    from querysmasher.estimate.estimate import Estimate
    from querysmasher.estimate.table_model import Model

MAX_ANSWERS = 500_000_000


@dataclass(frozen=True, eq=False)
class LinearMeasurement:
    """Noisy answers to linear queries on one marginal."""

    attributes: tuple[str, ...]
    """The attributes of the marginal; none if the answer is the number of records."""
    shape: tuple[int, ...]
    """The number of values of each."""
    factors: tuple[tuple[tuple[str, ...], Array], ...]
    """Matrices on disjoint attributes; their columns run over the values in row-major order."""
    answers: Array
    """Noisy answers, with an axis per factor."""
    variances: Array
    """The variance of the noise of each answer. Noises are independent."""

    def matrix(self) -> Array:
        """Return the queries as one matrix over the cells of the marginal, a row per answer."""
        tensor: Array = np.ones(())
        order: list[str] = []
        size = dict(zip(self.attributes, self.shape, strict=True))
        for names, matrix in self.factors:
            tensor = np.multiply.outer(tensor, matrix.reshape(len(matrix), *(size[n] for n in names)))
            order += ["", *names]
        rows = [i for i, name in enumerate(order) if not name]
        tensor = tensor.transpose(rows + [order.index(name) for name in self.attributes])
        return tensor.reshape(self.answers.size, -1)


@dataclass(frozen=True, eq=False, repr=False)
class Release(Statistical, Explained):
    """Noisy measurements of a table, as `measure` returns them. No method reads the table again.

    Answers are unbiased and consistent with each other. They describe the counted records: all records of the
    table, unless `counted` says that some were left out. A release answers any workload in the measured
    space, at any time, at no further privacy cost.
    """

    plan: IntegerPlan
    workload: Workload
    """The workload that was planned."""
    centres: Centres
    noise: NoiseRecord
    store: Store
    public_total: int | None = None
    exact: tuple[Integers, ...] = ()
    """The tables of counts that are published as they are, on the sets `plan.budget.exact`, in that order."""
    entry: Entry | None = None
    """The entry of the ledger that records the cost, or None if it was not recorded."""
    counted: Counted = ALL
    """Which records of the table were counted, and how many were left out, if that was measured."""
    provenance: Provenance = field(default_factory=Provenance)
    """Who publishes the release, when, from which data."""
    asked: Workload | None = None
    """The workload to estimate, if the plan was meant for estimates of more than it measures."""
    statistics: tuple[Statistic, ...] = ()
    """What files and pages show beside the counts."""
    tying: Tying | None = None
    """Which attributes are tied together, because some of their combinations are impossible.

    `plan` and `centres` are then about their combinations.
    """
    exploration: Exploration | None = None
    """The phases of a release by `explore`, or by `measure` in several phases; None if there was one."""
    _model: Model | None = field(default=None, init=False)
    """The model of the estimate, if it was fitted while measuring; a changed release has none."""

    _instead: ClassVar[Mapping[str, str]] = {
        "+": "measure all tables with one plan, and let a Ledger add up what several releases spend",
    }

    @property
    def guarantee(self) -> str:
        """The guarantee of the release, in words."""
        said = [f"NONE: this is a simulation. {self.noise.description}"]
        if self.noise.is_private:
            said = [
                self.plan.budget.describe(self.person),
                f"Noise: {self.noise.description}",
                *remarks(self.plan.budget),
            ]
        return " ".join(filter(None, [*said, self.counted.words(), self.provenance.discovered]))

    @property
    def person(self) -> str | None:
        """The column that identifies persons, or None if persons were not distinguished."""
        return self.counted.person

    @property
    def left_out(self) -> LeftOut | None:
        """How many records were left out, measured with noise, or None if that was not measured."""
        return self.counted.left_out

    @property
    def record(self) -> str:
        """Whether the cost was recorded in a ledger, in words."""
        made = self.entry
        if made is None:
            return "Not recorded in a ledger."
        return f"Recorded in the ledger of {made.label!r} as entry {made.number}, with digest {made.digest}."

    @property
    def measured_sets(self) -> set[AttributeSet]:
        """The attribute sets on which something is measured, perhaps as part of combinations."""
        measured = {m.attributes for m in self.plan.measured}
        return measured if self.tying is None else {s for m in measured for s in self.tying.sets(m)}

    @cached_property
    def measurements(self) -> int:
        """Number of released noisy values."""
        return sum(map(self.plan.count, self.plan.measured))

    @property
    def schema(self) -> Schema:
        """The attributes of the table."""
        return self.workload.schema

    @cached_property
    def estimator(self) -> Estimator:
        """Computes the variance of any query under the noise that was added."""
        return self._free if self._constrained is None else self._constrained

    @cached_property
    def _free(self) -> Estimator:
        """The same without knowledge of impossible combinations that the plan did not use."""
        return self._inner if self.tying is None else TiedEstimator(self._inner, self.tying)

    @cached_property
    def _constrained(self) -> ConstrainedEstimator | None:
        """The same with this knowledge, if there is any."""
        if self.asked is not None or self.exploration is not None:  # for estimates, which use it themselves
            return None
        names = {column for m in self.measured_sets for column in (self.schema.names[a] for a in m)}
        tied = () if self.tying is None else self.tying.components
        used = {predicate for component in tied for predicate, _ in self.schema.zeros(component)}
        if used.issuperset(predicate for predicate, _ in self.schema.zeros(names)):
            return None
        zeros = measured_zeros(self.schema, self._free, self.measured_sets, used)
        return ConstrainedEstimator(self._free, zeros)

    @cached_property
    def _inner(self) -> Estimator:
        """Computes the variance of any query about what was counted: combinations of tied attributes."""
        strategies = [strategy_of_integers(s) for s in self.plan.strategies]
        twins: dict[int, int] = {}  # the same rows, each with noise of the same variance
        for number, strategy in enumerate(self.plan.strategies):
            if strategy.multipliers is not None:
                twins[number] = len(strategies)
                strategies.append(
                    strategy_of_integers(replace(strategy, multipliers=np.ones_like(strategy.multipliers)))
                )
        measured, known = [], self.plan.budget.unit.known(self.plan.schema)
        for numbers in repeats(self.plan):  # σ² × multiplier, and the variance from rounding
            m = self.plan.measured[numbers[0]]
            variance, extra = combined_noise(self.plan, self.noise.distribution, numbers)
            blocks = m.blocks if m.attributes else ()
            if (grouped := known.partly(m.attributes)) is not None:
                blocks = tuple(
                    (axes, self._within(strategies, number, [m.attributes[a] for a in axes], grouped, known))
                    for axes, number in blocks
                )
            even = tuple((axes, twins.get(number, number)) for axes, number in blocks)
            noises = Measured(m.attributes, blocks, variance, 0.0), Measured(m.attributes, even, extra, 0.0)
            measured.append(noises if extra else noises[:1])
        return estimator_of(self.plan.schema, self.centres, strategies, measured, known)

    @staticmethod
    def _within(
        strategies: list[Strategy], number: int, on: Sequence[int], grouped: int, known: Known
    ) -> int:
        """Return the number of a strategy, or of what it measures beside public counts of groups.

        Rows that are measured whole stay as they are.
        """
        if grouped not in on or strategies[number].whole:
            return number
        strategies.append(within_groups(strategies[number], on.index(grouped), known.groups[grouped]))
        return len(strategies) - 1

    @cached_property
    def reconstruction(self) -> Reconstruction:
        """Reconstructs marginals."""
        _, made = self.unfitted
        return made if self._constrained is None else ConstrainedReconstruction(made, self._constrained)

    @cached_property
    def unfitted(self) -> tuple[Estimator, Reconstruction]:
        """What estimates start from: the estimator and reconstruction of what was measured, and of that only.

        They do not know impossible combinations that the plan did not use. Estimates use these themselves.
        """
        if self.tying is None:
            return self._free, Reconstruction(self.plan, self.store, self.public, self._inner)
        tied, public = TiedEstimator(self._inner, self.tying), self.public_on(self.schema)
        return self._free, TiedReconstruction(self.plan, self.store, public, tied, self.public)

    @cached_property
    def public(self) -> PublicCounts:
        """The counts that are published as they are: neighbours agree on them."""
        return self.public_on(self.plan.schema)

    def public_on(self, schema: Schema) -> PublicCounts:
        """Return these counts by the attributes of a schema: what was counted, or the table's."""
        unit = self.plan.budget.unit
        each = zip(unit.tables(schema), self.exact, strict=True)
        tables = {table.attributes: table.by_class(counts) for table, counts in each}
        return PublicCounts(
            tables if tables or self.public_total is None else {(): np.array(self.public_total)},
            unit.known(schema).groups,
        )

    def marginal(self, *attributes: str) -> Marginal:
        """Return the marginal on the attributes, in the order given: consistent, unbiased, not rounded.

        The result is an array; its `to_frame()` adds labels, standard errors and intervals.
        """
        values = self.reconstruction.marginal(self.schema.positions(attributes))
        return Marginal.of(values, lambda: cells(self, attributes))

    def at(self, level: str, groups: Any = None) -> CoarseRelease:
        """Return the release at a level of a hierarchy, for marginals and statistics of groups of values.

        `level` is the name of a level of the planned workload. With `groups`, it is the name of an attribute,
        and `groups` states groups of its values in any form that a level of `hierarchy` can have.
        """
        return CoarseRelease(self, Coarsening.read(self.workload, level, groups))

    @explained("release.answer(\"age >= 18 and sex == 'F'\")")
    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> Answers:
        """Answer a workload (by default the planned one), a predicate or several, with standard errors."""
        wanted = self.workload if workload is None else as_workload(self.schema, workload, self.workload)
        self._check(wanted)
        if wanted.query_count > MAX_ANSWERS:
            raise TooLargeError(
                f"workload: {wanted.query_count:,} answers do not fit in memory; use write(workload, path)"
            )
        with one_core():
            return Answers.of(wanted, self.answer_group)

    def answer_group(self, group: Group) -> tuple[Array, Array]:
        """Return values and standard errors of one group, with an axis per family."""
        std = np.sqrt(self.estimator.variances(group))  # also refuses what cannot be answered
        of_table, table = self.reconstruction.table(group)
        return answered(group, of_table, table, std, self.reconstruction), std

    def variances(self, workload: Workload) -> Array:
        """Return the variance of every answer, in the workload's order."""
        self._check(workload)
        return np.concatenate([self.estimator.variances(group).ravel() for group in workload])

    @explained("release.covariance(workload)")
    def covariance(self, workload: Workload, other: Workload | None = None) -> Array:
        """Return the covariance matrix of the answers to a small workload, or between two workloads."""
        self._check(workload)
        if other is not None:
            self._check(other)
        return covariance(self.estimator, workload, other)

    @explained("release.write(workload, 'answers.csv')")
    def write(
        self,
        workload: Workload,
        path: str | os.PathLike[str],
        progress: bool | None = None,
        *,
        level: float = 0.95,
        thresholds: Sequence[float] = THRESHOLDS,
        suppress: float | None = None,
    ) -> None:
        """Write the answers to a file, one attribute set at a time, in constant memory.

        The ending of the name states the format, such as .parquet, .csv or .xlsx (with the extra `excel`).
        The columns are those of `Answers.to_frame`. A `datapackage.json` beside the file describes it.
        """
        self._check(workload)
        from querysmasher.release.writing import write_answers  # noqa: PLC0415 - a view

        write_answers(self, workload, path, progress, level, Rules(thresholds, suppress))

    def to_arrays(self) -> Iterator[LinearMeasurement]:
        """Iterate over the noisy measurements as plain arrays: attributes, matrices, answers, variances.

        These arrays are all released numbers. Use them to fit another model, such as a graphical model.
        """
        plan = self.plan
        for number, measured in enumerate(plan.measured):
            names = plan.names(measured)
            factors, multiples = [], np.ones(())
            for axes, which in measured.blocks:
                strategy = plan.strategies[which]
                for factor_axes, factor in strategy.factors:
                    on = tuple(measured.attributes[axes[a]] for a in factor_axes)
                    factors.append(self._over_cells(on, factor.written_out()))
                kept = np.ones(strategy.rows) if strategy.multipliers is None else strategy.multipliers
                multiples = np.multiply.outer(multiples, kept)
            answers = self.store[number].astype(float).reshape(multiples.shape)
            variance, extra = plan.noise(measured, self.noise.distribution)
            variances = variance * multiples + extra
            if not names:  # the number of records is measured as a multiple
                answers = answers / factors[0][1].reshape(-1)[0]
                factors = [((), np.ones((1, 1)))]
            if self.tying is not None:
                names = self.tying.columns(measured.attributes)
            yield LinearMeasurement(names, self.schema.shape(names), tuple(factors), answers, variances)

    def _over_cells(self, measured: AttributeSet, rows: Array) -> tuple[tuple[str, ...], Array]:
        """Return the attributes of a measured set, and rows over all their cells: 0 in impossible ones."""
        if self.tying is None:
            return tuple(self.schema.names[a] for a in measured), rows
        names = self.tying.columns(measured)
        return names, self.tying.rows(measured, rows)

    @explained("release.estimate()")
    def estimate(self) -> Estimate:
        """Return estimates: non-negative, biased, and far closer to the truth on sparse tables.

        This is post-processing, at no privacy cost. An estimate also answers queries on attribute sets that
        were not measured. It has no standard errors. It is fitted when it is first asked, and the release
        keeps it.
        """
        return self._estimate

    @cached_property
    def _estimate(self) -> Estimate:
        from querysmasher.estimate.estimate import Estimate  # noqa: PLC0415 - a view

        made = Estimate(self)
        return made if self._model is None else made.computed_by(self._model)

    def remembering(self, model: Model) -> Release:
        """Return the release with the model of its estimate, fitted to the same noisy numbers."""
        made = replace(self)
        object.__setattr__(made, "_model", model)
        return made

    def described(self, **words: Any) -> Release:
        """Return the release with a description of its provenance.

        The description has title, organisation, contact, date, data and version. Files, pages and
        `summary.json` show these words. They are public, and the library does not check them.
        """
        return replace(self, provenance=replace(self.provenance, **words))

    @explained("release.save('my.release')")
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the release to a file, from which `Release.load` returns the same answers."""
        from querysmasher.release.release_file import save_release  # noqa: PLC0415 - a view

        save_release(self, path)

    @explained("release.report('release.html')")
    def report(
        self, path: str | os.PathLike[str], *, title: str | None = None, estimates: bool | None = None
    ) -> Path:
        """Write a page of tables and charts with intervals, one HTML file, and return its path.

        With `estimates` (the default if the release was measured for estimates), the page starts with the
        errors of the estimates, and shows estimates beside the unbiased counts.
        """
        from querysmasher.report.release_report import write_release_report  # noqa: PLC0415 - a view

        wanted = self.asked is not None if estimates is None else estimates
        return write_release_report(self, path, title, self.estimate() if wanted else None)

    def _repr_html_(self) -> str:
        """Show the release in a notebook."""
        return notebook(self._title, table(["", ""], self._facts))

    @classmethod
    @explained("qs.Release.load('my.release')")
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read a release from a file; refuse a damaged, foreign or incomplete one."""
        from querysmasher.files import read_value  # noqa: PLC0415 - a view
        from querysmasher.release.release_file import release_from_data  # noqa: PLC0415 - a view

        return read_value(path, "release", release_from_data)

    def _check(self, workload: Workload) -> None:
        check_workload(workload, self.schema, "release")

    @property
    def _title(self) -> str:
        sets = count(len(self.plan.measured), "attribute set")
        return f"Release of {count(self.measurements, 'noisy number')} on {sets}"

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """What a reader should know first, as names and sentences."""
        return [
            ("attributes", preview(self.schema.names, 12)),
            ("guarantee", self.guarantee),
            *([] if self.left_out is None else [("left out", self.left_out.words())]),
            ("ledger", self.record),
        ]

    def __repr__(self) -> str:
        """Show what was measured and the guarantee."""
        return "\n".join([self._title, *(f"  {name:10}  {words}" for name, words in self._facts)])


@dataclass(frozen=True, eq=False, repr=False)
class CoarseRelease(Statistical):
    """Answers and statistics of a release at one level: `table("state", "sex")`, `mean("age", by="state")`.

    Everything follows from the release, at no further privacy cost, and agrees with its other answers.
    """

    release: Release
    coarsening: Coarsening

    @property
    def workload(self) -> Workload:  # type: ignore[override]
        """The groups of the level, one query each."""
        return queries(self.coarsening.schema, {self.coarsening.name: "identity"})

    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> Answers:
        """Answer a workload on the coarser schema (by default all groups), a predicate or several."""
        given = self.workload if workload is None else as_workload(self.coarsening.schema, workload)
        estimator, coarsening, parts = self._pruned
        axis = estimator.schema.position(coarsening.attribute)

        def answer_group(group: Group) -> tuple[Array, Array]:
            std = np.sqrt(estimator.variances(group))
            attributes = estimator.schema.positions(group.attributes)
            table = self.release.reconstruction.marginal(attributes, complete=False)
            if axis in attributes:
                table = class_sums(table, parts, attributes.index(axis))
            return answered(group, group, table, std, self.release.reconstruction), std

        answers = Answers.of(coarsening.fine(given), answer_group)
        return Answers(given, answers.values, answers.std)

    @cached_property
    def _pruned(self) -> tuple[Estimator, Coarsening, Integers]:
        """The estimator over nodes of a large attribute's tree, their groups, and each value's node."""
        estimator, coarsening = self.release.estimator, self.coarsening
        schema = coarsening.original
        axis = schema.position(coarsening.attribute)
        on_attribute = [s for (attribute, _), s in estimator.line_strategies.items() if attribute == axis]
        noises = estimator.measured.values()
        parts, before = coarsening.groups, 0  # the fewest nodes, in all strategies, of which groups consist
        while int(parts.max()) + 1 > before:
            before = int(parts.max()) + 1
            for strategy in on_attribute:
                parts = strategy.parts(parts)
        _, firsts, numbers = np.unique(parts, return_index=True, return_inverse=True)
        parts = np.argsort(np.argsort(firsts))[numbers]  # by first appearance, as groups are
        size = int(parts.max()) + 1
        if not on_attribute or size == len(parts):
            return estimator, coarsening, np.arange(len(parts))
        known = estimator.strategies
        blocks = [(m.attributes[axes[0]], n) for m in itertools.chain(*noises) for axes, n in m.blocks]
        on_axis = {n for attribute, n in blocks if attribute == axis}
        pruned = [s.pruned(parts) if is_line(s) and n in on_axis else s for n, s in enumerate(known)]

        def over_parts(m: Measured) -> Measured:
            moved = ((axes, n + len(known) if m.attributes[axes[0]] == axis else n) for axes, n in m.blocks)
            return replace(m, blocks=tuple(moved))

        measured = [tuple(map(over_parts, same_set)) for same_set in noises]
        coarse = Ordinal(coarsening.attribute, range(size))
        inner = Schema([coarse if a.name == coarsening.attribute else a for a in schema])
        centres = tuple(Centre.uniform(size) if i == axis else c for i, c in enumerate(estimator.centres))
        over_nodes = estimator_of(inner, centres, [*known, *pruned], measured, estimator.known)
        groups = np.empty(size, dtype=np.int64)
        groups[parts] = coarsening.groups
        return over_nodes, replace(coarsening, original=inner, groups=groups), parts

    def covariance(self, workload: Workload, other: Workload | None = None) -> Array:
        """Return the covariances of answers on the coarser schema; see `Release.covariance`."""
        estimator, coarsening, _ = self._pruned
        return covariance(estimator, *(coarsening.fine(w) for w in (workload, other) if w is not None))

    def marginal(self, *attributes: str) -> Marginal:
        """Return the marginal on the attributes, one of which may be the level; see `Release.marginal`."""
        if not attributes:
            raise WorkloadError("attributes: expected at least one attribute")
        schema = self.coarsening.schema
        values = self.answer(queries(schema, dict.fromkeys(attributes, "identity"))).values
        shaped = values.reshape(schema.shape(attributes))
        return Marginal.of(shaped, lambda: self.table(*attributes, totals=False).figures)

    def __repr__(self) -> str:
        """Name the level."""
        return f"Release at the level {self.coarsening.name!r}: {self.coarsening.schema}"
