"""From a plan and a table to a release, in one phase or in several.

A `Journal` holds the noisy results so far, from which later phases are planned. Only `Phases` reads exact
counts. It adds up exact costs, and refuses a phase that would exceed the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from querysmasher.arrays import one_core
from querysmasher.data.foreign import quietly
from querysmasher.data.sources import check_source, open_table
from querysmasher.data.totals import read_totals
from querysmasher.errors import (
    BudgetError,
    PlanError,
    PrivacyError,
    Remedy,
    TooLargeError,
    as_given,
    explained,
)
from querysmasher.estimate.evidence import Evidence
from querysmasher.estimate.table_model import LARGEST, Model
from querysmasher.guarantees import ALL, Counted, LeftOut, check_options, check_reported
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimating import (
    check_error_share,
    joined,
    residual_plan,
    size_share,
    sized_costs,
    tables,
)
from querysmasher.planning.estimator.estimator import AttributeSet, subsets
from querysmasher.planning.integer import integer_plan, rounded_up
from querysmasher.planning.plan import Plan
from querysmasher.privacy.accounting import SHARE, Distance, Distances, Dropped, check_budget, rest
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.budget import Budget, rounded
from querysmasher.privacy.counts import CountedOnce, Counts
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.factors import Integers
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.noise import noise_source
from querysmasher.privacy.phases import Phases
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.release.provenance import (
    ERRORS,
    PLANNED,
    ComparedPhase,
    Exploration,
    MeasuredPhase,
    NoiseRecord,
    Phase,
    planned_digest,
    request_digest,
)
from querysmasher.release.reconstruction import MemoryStore, new_store
from querysmasher.release.release import Release
from querysmasher.schema import Schema
from querysmasher.workload.workload import Workload

WITHOUT = Remedy(
    "simulate without a ledger, on a table that is not private",
    "simulate with a spec without [budget] ledger, on a table that is not private",
)

LEAST_COST = 1e-12
"""Minimum privacy cost of a phase: below, the noise of its smallest part might be too large to draw."""

EXAMPLE = "qs.measure(qs.plan(workload, qs.zCDP(rho=0.5)), data)"


@scrubbed
@explained(EXAMPLE)
def measure(
    plan: Plan,
    data: Any,
    *,
    seed: int | None = None,
    noise: str = "rounded",
    unknown: str = "refuse",
    max_records: int = 100_000_000,
    budget: Budget | None = None,
    ledger: Ledger | None = None,
    person: str | None = None,
    report_dropped: bool = False,
    error_share: float = 0.0,
    public: Any = None,
    progress: bool | None = None,
) -> Release:
    """Measure a table as planned: the only step that reads data, and the one that spends the budget.

    Formal guarantee: without a seed, and with noise "rounded" or "discrete", the returned release, and
    everything computed from it, satisfies the plan's budget for its neighbours and unit of privacy. The
    strategies, the answers and the noise are integers, the cost is recomputed from them exactly, and
    a plan that costs more than its budget is refused before the table is opened.

    The guarantee holds for tables that meet the public conditions: values inside the schema's domain (unless
    dropped) and at most `max_records` records. A refusal reveals that a table does not meet them. Every call
    spends the budget again: a `Ledger` adds up what several calls spend, and refuses a call that would exceed
    its limit.

    A plan for estimates without a number of records (`Plan.sizes_first`) is measured in two phases: first the
    number of records, then the best measurements for a table of this size. With `error_share`, a last phase
    measures the distance of the table from every estimated table, and the plan gets the rest of the budget.
    All phases together cost at most the budget (`privacy.phases`).

    Args:
        plan: what to measure.
        data: a pandas, Polars, PyArrow or PySpark frame, a DuckDB relation, or a path to CSV or Parquet;
            `CSV` states the dialect of a CSV file.
            Columns are matched to the schema by name and value.
        seed: for tests and simulation only: a release with a seed protects nobody, and says so.
        noise: "rounded" (Gaussian rounded to integers: every budget is spent by the exact Gaussian
            formulas), "discrete" (discrete Gaussian, accounted through zCDP), "opendp" (the same from
            OpenDP), or "gaussian" (floating point, for simulation only).
        unknown: "refuse" a table with missing values or values outside the schema, or "drop" such records:
            all answers then describe the remaining records, and the release says so (not with replace-one
            neighbours, which would publish the number of remaining records).
        max_records: a public cap on the number of records, chosen without data; a larger table is refused.
        budget: the budget you intend to spend. A plan with a different budget, for example from a file, is
            refused.
        ledger: records what this call spends, before the table is opened: if the call fails afterwards, its
            cost counts as spent. Run `check` first. A simulation is refused.
        person: the column that identifies the person of a record. At most `records_per_person` records of
            each person are counted, chosen at random and independently of all other persons, so that the
            guarantee for persons is proved instead of assumed. All answers describe the counted records, and
            the release says so. A record without a person is treated like one with a missing value. Not
            available with replace-one neighbours.
        report_dropped: also measure how many records `person` or unknown="drop" left out, with 1% of the
            budget; `release.left_out` has the result. By default this number is not disclosed.
        error_share: fraction of the budget that measures the error of every table of `release.estimate()`, as
            in `explore`; by default 0. The remaining measurements have more noise accordingly.
        public: tables of the plan's exact counts that everybody knows already: a path to a CSV or Parquet
            file, a dataframe, or a list of these, one for each set of attributes, with a column for each of
            its attributes and a column "count". The exact counts are then taken from there, not from the
            data. A table that disagrees with them is refused, without saying where.
        progress: show progress bars; by default only on a terminal.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"plan: expected a Plan as first argument, got {as_given(plan)}; write {EXAMPLE}")
    if budget is not None and plan.budget != budget:
        stated = repr(budget) if isinstance(budget, Budget) else as_given(budget)
        msg = f"budget: the plan has budget {plan.budget!r}, not the {stated} you intend to spend"
        raise PrivacyError(f"{msg}; plan again with yours: qs.plan(workload, budget)")
    access = Access(plan.budget, seed, noise, unknown, max_records, ledger, person, report_dropped, progress)
    check_reported(report_dropped, access.counted, plan.workload.has_targets)
    compared = _compared(plan, error_share, access.allowed)
    totals = None if public is None else read_totals(plan.workload.schema, plan.budget.exact, public)
    options = {"error_share": float(error_share)}
    if plan.sizes_first:
        if access.allowed < LEAST_COST:
            raise BudgetError(
                f"plan: expected a privacy cost of at least {LEAST_COST:g} to measure the number of records "
                f"first, got {plan.budget!r}; state a rough number of records when planning"
            )
        options["size_share"] = size_share(plan.budget)
    whole = integer_plan(plan, access.allowed * (1 - error_share), max_records)
    check_budget(whole, access.noise)
    schema, workload = whole.schema, plan.asked or plan.workload
    agreed = [table.attributes for table in plan.budget.unit.tables(schema)]
    used = sorted({a for m in plan.measured for a in m.attributes}.union(*agreed, *compared))
    store = new_store(sum(map(whole.count, whole.measured)))  # a filter's numbers outnumber its rank
    sets = [tuple(schema.names[a] for a in attributes) for attributes in compared]
    again = [*map(whole.names, whole.measured), *sets] if plan.sizes_first or compared or agreed else []
    again += [tuple(schema.names[a] for a in attributes) for attributes in agreed]

    def charge(ledger: Ledger) -> Entry:
        """Record what is to be measured; the whole budget if the plan has several phases."""
        if plan.sizes_first:
            request = request_digest(workload, plan.budget, max_records, options, access.dropped)
        elif error_share or access.dropped is not None:
            request = planned_digest(whole, options, access.dropped)
        else:
            return ledger.charge(whole, access.noise, person)
        return ledger.charge_budget(plan.budget, request, access.noise, person)

    with access.opened(schema, data, [schema.names[a] for a in used], charge, again) as (phases, known):
        if plan.sizes_first:
            journal = Journal(workload, phases, access.record, options, progress, totals, **known)
            return measure_sized(journal, compared)
        known |= {"asked": plan.asked, "tying": plan.tying}
        release = Release(whole, plan.workload, plan.centres, access.record, store, **known)
        for number, answers in phases.answers(whole, progress):
            store.put(number, answers)
        release = replace(release, public_total=phases.public_total(), exact=phases.exact(totals, progress))
        if not compared:
            return release
        model = release.estimate().model  # how far the table is from it is measured with what is left
        done = compare(ERRORS, compared, float(phases.left) * (1 - 2**-30), model, phases, progress)
        planned = MeasuredPhase(PLANNED, 0, len(whole.measured))
        return replace(release, exploration=Exploration(options, (planned, done))).remembering(model)


class Access:
    """How a table is measured, whatever is measured: the arguments that `measure` and `explore` share."""

    def __init__(
        self,
        budget: Budget,
        seed: int | None,
        noise: str,
        unknown: str,
        max_records: int,
        ledger: Ledger | None,
        person: str | None,
        report_dropped: bool,
        progress: bool | None,
    ) -> None:
        """Check the arguments."""
        check_options(budget, unknown, max_records)
        self.budget, self.max_records, self.progress = budget, max_records, progress
        self.unknown, self.ledger = unknown, ledger
        self.source = noise_source(noise, seed)
        self.noise = self.source.distribution
        self.record = NoiseRecord(self.noise.name, self.source.description, seed is not None)
        self.bound = None if person is None else Bound.drawn(person, budget.unit, seed)
        self.counted = Counted(person, budget.records_per_person, unknown)
        self.dropped: Dropped | None = None
        allowed = self.noise.allowed_cost(budget)
        check_reported(report_dropped, self.counted, has_targets=False)
        if report_dropped:
            self.dropped = Dropped.at_cost(budget.unit, person is not None, SHARE * allowed)
        self.allowed = rest(allowed, self.dropped)
        if ledger is not None:
            check_ledger(ledger, budget, seed is None and self.noise.is_private)

    @contextmanager
    def opened(
        self,
        schema: Schema,
        data: Any,
        names: Sequence[str],
        charge: Callable[[Ledger], Entry],
        again: Sequence[tuple[str, ...]],
    ) -> Iterator[tuple[Phases, dict[str, Any]]]:
        """Record the cost, then open the table: its phases, and what the release says about its records.

        Several phases may ask for the attribute sets `again`. Every error in this context says that the
        ledger counts the measurement as spent.
        """
        arguments = (schema, data, names, self.unknown)
        quietly("looking for the table", check_source, *arguments, self.bound)
        entry = None if self.ledger is None else charge(self.ledger)
        with spending(entry), one_core():
            counter = quietly("opening the table", open_table, *arguments, None, self.bound)
            counter = CountedOnce(schema, counter, again) if again else counter
            phases = Phases(schema, self.budget, counter, self.source, self.max_records)
            counted = replace(self.counted, has_zeros=bool(schema.zeros_of(names)))
            if self.dropped is not None:
                numbers = phases.dropped(self.dropped, self.progress)
                counted = replace(counted, left_out=LeftOut(self.dropped, numbers, self.noise))
            yield phases, {"entry": entry, "counted": counted}


def check_ledger(ledger: Ledger, budget: Budget, is_private: bool) -> None:
    """Refuse what is no ledger, a simulation, and a budget for another unit of privacy."""
    if type(ledger) is not Ledger:
        example = "such as qs.Ledger('people.ledger', limit=qs.zCDP(1))"
        raise PrivacyError(f"ledger: expected a Ledger, {example}, got {as_given(ledger)}")
    if not is_private:
        raise PrivacyError(
            "ledger: a simulation, with a seed or noise in floating point, protects nobody, so no cost "
            "can be recorded for it",
            WITHOUT,
        )
    ledger.check_unit(budget)


@contextmanager
def spending(entry: Entry | None) -> Iterator[None]:
    """Say in every error of this context that a ledger counts the measurement as spent."""
    try:
        yield
    except BaseException as error:
        if entry is not None:
            error.add_note(f"The ledger has recorded the cost of this measurement, as entry {entry.number}")
        raise


def _compared(plan: Plan, error_share: float, cost: float) -> list[AttributeSet]:
    """Return the attribute sets of the tables whose errors are measured; refuse what cannot be measured."""
    check_error_share(error_share)
    if not error_share:
        return []
    if plan.workload.has_targets:
        msg = "error_share: expected 0 for a plan with accuracy targets, which larger noise would miss"
        raise PlanError(msg)
    if plan.tying is not None:
        raise PlanError(
            "error_share: expected 0 for a plan that uses impossible combinations; plan with "
            "purpose='estimate', or explore, to measure the errors of estimates"
        )
    workload = plan.asked or plan.workload
    schema = workload.schema
    sets = dict.fromkeys(tuple(sorted(schema.positions(g.attributes))) for g in workload if g.attributes)
    for attributes in sets:
        cells = math.prod(schema.sizes[a] for a in attributes)
        if cells > LARGEST:
            names = ", ".join(schema.names[a] for a in attributes)
            raise TooLargeError(
                f"error_share: the table on ({names}) has {cells:,} cells; errors are measured of tables of "
                f"at most {LARGEST:,}"
            )
    if not sets:
        raise PlanError("error_share: expected 0, because the workload has no table on attributes")
    if error_share * cost < LEAST_COST:
        msg = f"error_share: expected 0, or a fraction with a privacy cost of at least {LEAST_COST:g}"
        raise BudgetError(msg)
    return list(sets)


MULTIPLE = 2**10
"""Distances are measured from tables rounded to multiples of 1/1024 of a record."""


def compare(
    name: str,
    sets: Sequence[AttributeSet],
    cost: float,
    model: Model,
    phases: Phases,
    progress: bool | None = None,
) -> ComparedPhase:
    """Measure how far the table is from the estimates of some sets, at a privacy cost."""
    schema, budget = phases.schema, phases.budget
    change = budget.unit.change()
    variance = rounded_up(MULTIPLE**2 * change * len(sets) / cost * (1 + 2**-40))
    queries = tuple(Distance(attributes, MULTIPLE, variance) for attributes in sets)
    distances = Distances(schema, budget, queries, phases.max_records)
    targets = new_store(sum(math.prod(schema.sizes[a] for a in attributes) for attributes in sets))
    for number, table in enumerate(model.tables(sets)):
        targets.put(number, np.rint(table * MULTIPLE).astype(np.int64))

    def target(number: int) -> Integers:
        shape = [schema.sizes[a] for a in sets[number]]
        return targets[number].astype(np.int64, copy=False).reshape(shape)

    return ComparedPhase(name, distances, phases.distances(distances, target, progress))


@dataclass(eq=False)
class Journal:
    """The workload, and the results of all phases so far."""

    workload: Workload
    phases: Phases
    noise: NoiseRecord
    options: Mapping[str, float]
    progress: bool | None = None
    totals: tuple[Counts, ...] | None = None
    """Public tables of the exact counts, if these are not taken from the data."""
    entry: Entry | None = None
    counted: Counted = ALL
    public_total: int | None = None
    exact: tuple[Counts, ...] = ()
    spent: dict[AttributeSet, float] = field(default_factory=dict)
    """The privacy cost spent on each set."""
    _plans: list[IntegerPlan] = field(default_factory=list)
    _store: MemoryStore = field(default_factory=MemoryStore)
    _done: list[Phase] = field(default_factory=list)
    _known: Model | None = None
    """The estimate from all noisy results so far, if it was asked for."""

    @property
    def budget(self) -> Budget:
        """The budget of all phases together."""
        return self.phases.budget

    def measure_size(self, cost: float) -> float:
        """Return the number of records: public, or measured at this privacy cost."""
        self.public_total = self.phases.public_total()
        self.exact = self.phases.exact(self.totals, self.progress)
        if self.public_total is not None:
            return float(self.public_total)
        self.measure("number of records", {(): cost})
        return self.model().total

    def measure(self, name: str, costs: Mapping[AttributeSet, float]) -> None:
        """Measure the residuals of some sets, each at its privacy cost."""
        plan = residual_plan(self.workload.schema, self.budget, costs, self.phases.max_records)
        for attributes, cost in costs.items():
            self.spent[attributes] = self.spent.get(attributes, 0.0) + cost
        start = sum(len(done.measured) for done in self._plans)
        for number, answers in self.phases.measure(plan, self.progress).items():
            self._store.put(start + number, answers)
        self._plans.append(plan)
        self._known = None
        self._done.append(MeasuredPhase(name, start, start + len(plan.measured)))

    def compare(self, name: str, sets: Sequence[AttributeSet], cost: float) -> ComparedPhase:
        """Measure how far tables are from their estimates."""
        done = compare(name, sets, cost, self.model(), self.phases, self.progress)
        self._done.append(done)
        self._known = None
        return done

    def ended(self, sets: Sequence[AttributeSet], cost: float) -> Release:
        """Measure the errors of some tables, unless `cost` is 0; return everything that was measured."""
        if not cost:
            return self.release()
        self._known = model = self.release().estimate().model  # measured errors do not change it
        self.compare(ERRORS, sets, cost)
        return self.release().remembering(model)

    def model(self) -> Model:
        """Return the estimate of every table from what was measured so far."""
        if self._known is None:
            nothing = Evidence(self.workload.schema, lambda _: None)
            self._known = Model(Evidence.of_release(self.release()) if self._plans else nothing)
        return self._known

    def release(self) -> Release:
        """Return what was measured so far."""
        plan = joined(self._plans, self.budget)
        measured = dict.fromkeys(m.attributes for m in plan.measured if m.attributes)
        known = plan.budget.unit.known(plan.schema)
        answerable = [
            s for s in measured if all(part in measured or part in known for part in subsets(s) if part)
        ]
        return Release(
            plan,
            tables(plan.schema, answerable or [()]),
            uniform(self.workload.schema),
            self.noise,
            self._store,
            self.public_total,
            self.exact,
            entry=self.entry,
            counted=self.counted,
            asked=self.workload,
            exploration=Exploration(self.options, tuple(self._done)),
        )


PARTS = "parts of tables"
"""The name of the phase that follows the number of records."""


def measure_sized(journal: Journal, compared: Sequence[AttributeSet]) -> Release:
    """Measure the number of records, then what is best for such a table, then errors of the estimate.

    Formal guarantee: that of `privacy.phases`. The number of records is measured with noise at its share of
    the budget, or it is public. What is measured then depends on the table only through this noisy number.
    The exact costs of both phases, and of the errors of the estimate if they are measured, add up, and no
    phase may exceed the budget. The same noisy number gives the same second phase, so `verify` can plan it
    again.
    """
    whole, before = rounded(journal.phases.left, up=False), journal.phases.spent
    reserve = journal.options["error_share"] * whole
    budget = whole - reserve
    size = journal.measure_size(journal.options["size_share"] * budget)
    spare = budget - float(journal.phases.spent - before)
    journal.measure(PARTS, sized_costs(journal.workload, journal.budget, size, spare))
    return journal.ended(compared, reserve)
