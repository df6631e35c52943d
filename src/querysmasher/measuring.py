"""From a plan and a table to a release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from querysmasher.arrays import one_core
from querysmasher.data import check_source, open_table
from querysmasher.data.foreign import quietly
from querysmasher.errors import DataError, PlanError, PrivacyError, Remedy
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.plan import Plan
from querysmasher.privacy.accounting import check_budget
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.measurement import measure_table, public_total
from querysmasher.privacy.noise import noise_source
from querysmasher.privacy.persons import Bound
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.release.noise_record import NoiseRecord
from querysmasher.release.release import Release
from querysmasher.release.store import new_store

REFUSE = Remedy(
    "use unknown='refuse', and correct the data or the schema if records are refused",
    'use [measure] unknown = "refuse", and correct the data or the schema if records are refused',
)
WITHOUT = Remedy(
    "simulate without a ledger, on a table that is not private",
    "simulate with a spec without [budget] ledger, on a table that is not private",
)


@scrubbed
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
    progress: bool | None = None,
) -> Release:
    """Measure a table as planned: the only step that reads data, and the one that spends the budget.

    Formal guarantee: without a seed, and with noise "rounded" or "discrete", the returned release, and
    everything computed from it, satisfies the plan's budget for its neighbours and unit of privacy. The
    strategies, the answers and the noise are integers, the cost is recomputed from them exactly, and
    a plan that costs more than its budget is refused before the table is opened.

    The guarantee holds for tables that meet the public conditions: values inside the schema's domain (unless
    dropped) and at most `max_records` records. A refusal reveals that a table does not. Every call spends the
    budget again: a `Ledger` adds up what several calls spend, and refuses what would pass its limit.

    Args:
        plan: what to measure.
        data: a pandas, Polars, PyArrow or PySpark frame, a DuckDB relation, or a path to CSV or Parquet;
            `CSV` states the dialect of a CSV file.
            Columns are matched to the schema by name and value.
        seed: for tests and simulation only: a release with a seed protects nobody, and says so.
        noise: "rounded" (Gaussian rounded to integers: every budget is spent by the exact Gaussian
            formulas), "discrete" (discrete Gaussian, accounted through zCDP), "opendp" (the same from
            OpenDP), or "gaussian" (floating point, for simulation only).
        unknown: "refuse" a table with missing values or values outside the schema, or "drop" such records
            (not with replace-one neighbours: the number of records left would be published).
        max_records: a public cap on the number of records, stated without looking; a larger table is refused.
        budget: the budget you intend to spend. A plan from a file carries its own budget; it is refused if it
            differs.
        ledger: records what this call spends, before the table is opened: if the call fails afterwards, its
            cost counts as spent. Run `check` first. A simulation is refused.
        person: a column that says to whom a record belongs. At most `records_per_person` records of each
            person are counted, chosen at random and independently of everyone else's, so that the guarantee
            for persons is proved instead of assumed. How many were left out is not disclosed. A record
            without a person is treated as one with a missing value. Not with replace-one neighbours.
        progress: show progress bars; by default only on a terminal.
    """
    if not isinstance(plan, Plan):
        msg = f"plan: expected a Plan, got {type(plan).__name__}"
        raise PlanError(msg)
    if budget is not None and plan.budget != budget:
        msg = f"budget: the plan has budget {plan.budget!r}, not the {budget!r} you intend to spend"
        raise PrivacyError(msg)
    check_options(plan.budget, unknown, max_records)
    source = noise_source(noise, seed)
    bound = None if person is None else Bound.drawn(person, plan.budget.unit, seed)
    check_ledger(ledger, plan.budget, seed is None and source.distribution.is_private)
    whole = integer_plan(plan, source.distribution.allowed_cost(plan.budget), max_records)
    check_budget(whole, source.distribution)
    names = plan.workload.schema.names
    used = sorted({a for m in plan.measured for a in m.attributes})
    store = new_store(sum(map(whole.count, whole.measured)))  # a filter's numbers outnumber its rank
    wanted = [names[a] for a in used]
    quietly("looking for the table", check_source, plan.workload.schema, data, wanted, unknown, bound)
    entry = None if ledger is None else ledger.charge(whole, source.distribution, person)
    with noting(entry), one_core():
        arguments = (plan.workload.schema, data, wanted, unknown, None, bound)
        counter = quietly("opening the table", open_table, *arguments)
        for number, answers in measure_table(whole, counter, source, progress):
            store.put(number, answers)
        total = public_total(whole, counter)
    record = NoiseRecord(source.distribution.name, source.description, seed is not None)
    return Release(
        whole, plan.workload, plan.centres, record, store, total, entry=entry, person=person, asked=plan.asked
    )


def check_options(budget: Budget, unknown: str, max_records: int) -> None:
    """Refuse options that do not fit a budget."""
    if isinstance(max_records, bool) or not isinstance(max_records, int) or not 1 <= max_records <= 2**40:
        msg = f"max_records: expected an integer from 1 to 2^40, got {max_records!r}"
        raise DataError(msg)
    if unknown == "drop" and budget.unit.total_is_public:
        msg = (
            "records cannot be dropped: with replace_one neighbours the number of records is published, and "
            "a record replaced by one outside the schema's domain would change it"
        )
        raise PrivacyError(msg, REFUSE)


@contextmanager
def noting(entry: Entry | None) -> Iterator[None]:
    """Add to every error in this context that the ledger counts the measurement as spent."""
    try:
        yield
    except BaseException as error:
        if entry is not None:
            error.add_note(f"The ledger has recorded the cost of this measurement, as entry {entry.number}")
        raise


def check_ledger(ledger: Ledger | None, budget: Budget, is_private: bool) -> None:
    """Refuse a ledger that cannot record this measurement."""
    if ledger is None:
        return
    if type(ledger) is not Ledger:
        msg = f"ledger: expected a Ledger, such as Ledger('people.ledger', limit=zCDP(1)), got {ledger!r}"
        raise PrivacyError(msg)
    if not is_private:
        msg = (
            "ledger: a simulation, with a seed or noise in floating point, protects nobody, so no cost can "
            "be recorded for it"
        )
        raise PrivacyError(msg, WITHOUT)
    ledger.check_unit(budget)
