"""Explore a table: decide privately where the budget pays, measure there, and publish the error."""

from __future__ import annotations

from typing import Any

from querysmasher.arrays import one_core
from querysmasher.data.foreign import quietly
from querysmasher.data.sources import check_source, open_table
from querysmasher.errors import BudgetError, explained
from querysmasher.exploring.asked import Asked
from querysmasher.exploring.course import Course
from querysmasher.journal import Journal, check_error_share
from querysmasher.measuring import asked_dropped, check_ledger, check_options, noting, with_left_out
from querysmasher.planning.asking import check_asked
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.counts import CountedOnce
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.noise import noise_source
from querysmasher.privacy.persons import Bound
from querysmasher.privacy.phases import Phases
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.release.exploration import request_digest
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.release import Release
from querysmasher.report.left_out import Counted
from querysmasher.workload.workload import Workload

LEAST_COST = 1e-12
"""Minimum privacy cost: the noise of its smallest shares can be drawn."""


@scrubbed
@explained("qs.explore(workload, data, qs.zCDP(rho=0.5))")
def explore(
    workload: Workload,
    data: Any,
    budget: Budget,
    *,
    seed: int | None = None,
    error_share: float = 0.02,
    noise: str = "rounded",
    unknown: str = "refuse",
    max_records: int = 100_000_000,
    ledger: Ledger | None = None,
    person: str | None = None,
    report_dropped: bool = False,
    progress: bool | None = None,
) -> Release:
    """Measure a table in phases, each planned from the noisy results of those before it, for an estimate.

    The phases look at single attributes, at how far pairs are from independence, at the pairs where that is
    far, and at sets of three attributes where their distances ask for them. `release.estimate()` answers the
    workload, and has its error by `estimate.error()`. The release itself answers, without bias, what was
    measured. A plan fixed in advance (`plan` and `measure`) has errors known before any data are read; this
    has not.

    Formal guarantee: without a seed, and with noise "rounded" or "discrete", the returned release, and
    everything computed from it, satisfies the budget for its neighbours and unit of privacy, on the same
    conditions as `measure`. Proof: every phase adds independent noise to integers: linear queries, of which
    `privacy.accounting` computes the exact sensitivity; or distances Σ|a·m - t| of a marginal m from integers
    t, which one record changes by at most a, whatever t is (`privacy.accounting`). A phase depends on the
    table only through the noisy results of earlier phases. Their exact costs are added up, and a phase that
    would exceed the budget is refused before anything of it is counted (`privacy.phases`). Adaptive
    composition of Gaussian mechanisms is exact: the log-likelihood ratio of all phases together is
    distributed as that of one Gaussian mechanism of the same total cost, and costs add in zCDP.

    The table is counted once, and its exact counts stay in memory until the last phase; if these take more
    than 2^26 cells, every phase counts it again. Both hold for every kind of table, including Spark frames.

    Args:
        workload: marginals, on as many attributes as you like.
        data: the table, as for `measure`.
        budget: what all phases together may spend.
        seed: for tests and simulation only: a release with a seed protects nobody, and says so.
        error_share: share of the budget that measures the error of the estimate, table by table; 0 for none.
        noise: as for `measure`, like all arguments below.
        unknown: "refuse" or "drop".
        max_records: a public cap on the number of records.
        ledger: records the whole budget, before the table is opened.
        person: a column that says to whom a record belongs.
        report_dropped: measure, too, how many records were left out, with 1% of the budget.
        progress: show progress bars.
    """
    check_asked(workload, budget)
    asked = Asked(workload)
    check_options(budget, unknown, max_records)
    check_error_share(error_share)
    source = noise_source(noise, seed)
    allowed = source.distribution.allowed_cost(budget)
    if allowed < LEAST_COST:
        msg = f"budget: expected a privacy cost of at least {LEAST_COST:g} to explore a table, got {budget!r}"
        raise BudgetError(msg)
    bound = None if person is None else Bound.drawn(person, budget.unit, seed)
    counted = Counted(person, budget.records_per_person, unknown)
    dropped = asked_dropped(report_dropped, counted, budget, allowed)
    check_ledger(ledger, budget, seed is None and source.distribution.is_private)
    options = {"error_share": float(error_share)}
    schema = workload.schema
    used = {name for names in asked.counted for name in names}
    wanted = [name for name in schema.names if name in used]
    quietly("looking for the table", check_source, schema, data, wanted, unknown, bound)
    entry = None
    if ledger is not None:
        request = request_digest(workload, budget, max_records, options, dropped)
        entry = ledger.charge_budget(budget, request, source.distribution, person)
    with noting(entry), one_core():
        counter = quietly("opening the table", open_table, schema, data, wanted, unknown, None, bound)
        once = CountedOnce(schema, counter, asked.counted)
        phases = Phases(schema, budget, once, source, max_records)
        record = NoiseRecord(source.distribution.name, source.description, seed is not None)
        counted = with_left_out(counted, dropped, phases, source, progress)
        journal = Journal(workload, budget, phases, record, max_records, options, progress, entry, counted)
        return Course(asked, journal).run()
