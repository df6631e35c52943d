"""Explore a table: decide privately where the budget pays, measure there, and publish the error.

Everything here is computed from noisy results. Only `Phases` sees exact counts; it adds up exact costs and
refuses a phase that would exceed the budget. So an error in this file can cost accuracy, not privacy.

1. The number of records (unless it is public), then a first look at every single attribute.
2. The distance of every pair from independence. A pair's prior is scaled to its noisy distance, less one
   standard error; then water-filling (`filling`) divides the budget among pairs and single attributes. A pair
   without visible signal gets little or nothing.
3. If the noise allows it, the distance of every triple from the table of maximum entropy given its pairs;
   then the rest of the budget is divided in the same way among triples, pairs and single attributes.
4. The distance of every table of the workload from its estimate: the error of the estimate.

With very many records, nothing is better than the plan of least error; an exploration then spends a part or
all of its budget as that plan does.

The constants were chosen on real and fictitious tables. Small changes of them hardly change the error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import BudgetError, PlanError, Remedy, TooLargeError, explained
from querysmasher.estimate.evidence import AttributeSet
from querysmasher.estimate.table_model import LARGEST
from querysmasher.exploring.filling import MEAN, Parts, filled, profile
from querysmasher.measuring import LEAST_COST, Access, Journal
from querysmasher.planning.allocation import plan_at
from querysmasher.planning.centre import uniform
from querysmasher.planning.checks import check_arguments
from querysmasher.planning.estimating import cell_cost, check_error_share
from querysmasher.planning.mechanisms import Options
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.release.provenance import PAIRS, request_digest
from querysmasher.release.release import Release
from querysmasher.workload.workload import Workload

TOTAL = 0.02
"""Fraction of the budget for the number of records."""

ROUGH, AGAIN = 0.01, 0.15
"""If the relative error of the number of records exceeds `ROUGH`, it is measured again, with the fraction
`AGAIN` of the next phase."""

PAIR_SCORES, TRIPLE_SCORES = 0.04, 0.02
"""Fractions of the budget for the distances of pairs and of triples from their estimates."""

DENSE, DENSEST = 0.006, 0.003
"""Levels of the ‖error‖₁/N of unbiased tables: below the first, an exploration spends a part of its budget as
the plan of least error does; below the second, all of it."""

FLOOR = 0.25
"""Least distance that is assumed of a pair or triple, in standard errors of the noisy distance."""

VISIBLE, CLEAR = 0.02, 0.001
"""The noise of the distances of triples, as a fraction of the records: below the first they are measured, and
below the second more of the budget is reserved for them."""

LEAST = 1e-5
"""Sets that would get a smaller fraction of a phase are not measured."""

MOST_TRIPLES = 20_000
"""Maximum number of sets of three attributes whose distances are measured."""

PLAN = Remedy("use plan() and measure()", "use `querysmasher release`")


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
    """Measure a table for an estimate, in phases; each phase is planned from earlier noisy results.

    The phases measure single attributes, then the distance of every pair from independence, then the pairs
    with large distances, and finally sets of three attributes with large distances. `release.estimate()`
    answers the workload, and `estimate.error()` returns its error. The release itself gives unbiased answers
    to queries that follow from the measurements. `plan` and `measure` know the errors before any data are
    read; `explore` does not.

    Formal guarantee: without a seed, and with noise "rounded" or "discrete", the returned release, and
    everything computed from it, satisfies the budget for its neighbours and unit of privacy, on the same
    conditions as `measure`. Proof: every phase adds independent noise to integers: linear queries, of which
    `privacy.accounting` computes the exact sensitivity; or distances Σ|a·m - t| of a marginal m from integers
    t, which one record changes by at most a, whatever t is (`privacy.accounting`). A phase depends on the
    table only through the noisy results of earlier phases. Their exact costs are added up, and a phase that
    would exceed the budget is refused before anything of it is counted (`privacy.phases`). Adaptive
    composition of Gaussian mechanisms is exact: the log-likelihood ratio of all phases together is
    distributed as that of one Gaussian mechanism of the same total cost, and costs add in zCDP.

    The table is read once, and its exact counts stay in memory until the last phase. If the counts have more
    than 2^26 cells, every phase reads the table again. This holds for every kind of table, including Spark
    frames.

    Args:
        workload: marginals, on any number of attributes.
        data: the table, as for `measure`.
        budget: what all phases together may spend.
        seed: for tests and simulation only: a release with a seed protects nobody, and says so.
        error_share: fraction of the budget that measures the error of every estimated table; 0 for none.
        noise: as for `measure`, like all arguments below.
        unknown: "refuse" or "drop".
        max_records: a public cap on the number of records.
        ledger: records the whole budget, before the table is opened.
        person: the column that identifies the person of a record.
        report_dropped: also measure how many records were left out, with 1% of the budget.
        progress: show progress bars.
    """
    check_arguments(workload, budget)
    if budget.exact:
        msg = f"budget: expected one without exact counts, got {budget!r}; an exploration does not use them"
        raise BudgetError(msg, PLAN)
    request = Request(workload)
    check_error_share(error_share)
    access = Access(budget, seed, noise, unknown, max_records, ledger, person, report_dropped, progress)
    if access.allowed < LEAST_COST:
        msg = f"budget: expected a privacy cost of at least {LEAST_COST:g} to explore a table, got {budget!r}"
        raise BudgetError(msg)
    options, schema = {"error_share": float(error_share)}, workload.schema
    used = {name for names in request.counted for name in names}

    def charge(ledger: Ledger) -> Entry:
        digest = request_digest(workload, budget, max_records, options, access.dropped)
        return ledger.charge_budget(budget, digest, access.noise, person)

    names = [name for name in schema.names if name in used]
    with access.opened(schema, data, names, charge, request.counted) as (phases, known):
        return Course(request, Journal(workload, phases, access.record, options, progress, **known)).run()


class Request:
    """The tables of a workload, and their parts on one, two and three attributes."""

    def __init__(self, workload: Workload) -> None:
        """Refuse queries other than cells of tables, and tables that are too large."""
        self.workload = workload
        self.schema = schema = workload.schema
        self.weights: dict[AttributeSet, float] = {}
        """The weight of every table, in the workload's order; groups on the same attributes are one table."""
        for group in workload:
            if not group.is_marginal:
                msg = (
                    f"workload: expected marginals only, got {group.describe()}; other queries are answered "
                    "best from an unbiased release"
                )
                raise PlanError(msg, PLAN)
            if group.rows > LARGEST:
                names = ", ".join(group.attributes)
                msg = f"workload: the table on ({names}) has {group.rows:,} cells; at most {LARGEST:,} are"
                raise TooLargeError(f"{msg} allowed")
            subset = tuple(sorted(schema.positions(group.attributes)))
            self.weights[subset] = self.weights.get(subset, 0.0) + group.weight
        self.singles, self.pairs = self._parts(1), self._parts(2)
        if not self.singles:
            msg = "workload: expected tables on attributes with at least two values, got none"
            raise PlanError(msg)
        several = sum(math.comb(len(subset), 3) for subset in self.weights) <= 10 * MOST_TRIPLES
        triples = self._parts(3) if several else []
        self.triples = triples if len(triples) <= MOST_TRIPLES else []
        """The subsets of tables with three attributes; none if there are too many."""
        self.counted = [
            tuple(schema.names[a] for a in subset)
            for subset in (*self.weights, *self.singles, *self.pairs, *self.triples)
        ]
        """The attribute sets, by name, that some phase may count, or whose sums it may count."""

    def _parts(self, order: int) -> list[AttributeSet]:
        """Return the subsets of tables with `order` attributes of at least two values."""
        varying = ([a for a in subset if self.schema.sizes[a] > 1] for subset in self.weights)
        return list(dict.fromkeys(part for subset in varying for part in combinations(subset, order)))


def dense_fraction(expected: float) -> float:
    """Return the fraction of the budget to spend as the plan of least error does.

    `expected` is the mean of ‖error‖₁/N over the unbiased tables of that plan. If it is tiny, all parts of
    all tables are worth measuring, and their distances need not be known.
    """
    return min(max(math.log(DENSE / max(expected, 1e-300)) / math.log(DENSE / DENSEST), 0.0), 1.0)


def by_size(sizes: Mapping[AttributeSet, int], cost: float) -> dict[AttributeSet, float]:
    """Divide a privacy cost among attributes, in proportion to the roots of their numbers of values."""
    roots = {subset: math.sqrt(size) for subset, size in sizes.items()}
    return {subset: cost * root / sum(roots.values()) for subset, root in roots.items()}


SURELY = 10
"""Assumed: the plan of least error is at most this many times better than measuring every table alone."""


@dataclass(frozen=True)
class LeastErrorCosts:
    """The costs of the plan of least error, and the fraction of the budget to spend as it does."""

    weight: float = 0.0
    """That fraction of the budget."""
    costs: Mapping[AttributeSet, float] = field(default_factory=dict)
    """The privacy cost of each set in the plan."""

    @classmethod
    def of(cls, request: Request, budget: Budget, total: float, cost: float) -> LeastErrorCosts:
        """Return costs and fraction for a table of `total` records, at the privacy cost `cost` in all."""
        schema, unit = request.schema, budget.unit
        sizes = [math.prod(schema.sizes[a] for a in subset) for subset in request.weights]
        per_record = MEAN * math.fsum(sizes) / max(total, 1.0)
        if per_record * math.sqrt(unit.change() / (len(sizes) * cost)) > SURELY * DENSE:
            return cls()
        best = plan_at(uniform(schema), request.workload, budget, Options.of(centering="uniform"))
        scale = cost / budget.privacy_cost
        weight = dense_fraction(per_record * best.rmse / len(sizes) / math.sqrt(scale))
        return cls(weight, {m.attributes: scale * m.price / m.variance for m in best.measured})

    def missing(self, spent: Mapping[AttributeSet, float], cost: float) -> dict[AttributeSet, float]:
        """Divide a privacy cost among the sets on which less was spent than the plan spends."""
        missing = {subset: planned - spent.get(subset, 0.0) for subset, planned in self.costs.items()}
        short = {subset: more for subset, more in missing.items() if more > 0 and cost > 0}
        whole = math.fsum(short.values())
        return {subset: more * cost / whole for subset, more in short.items()}


@dataclass(eq=False)
class Course:
    """An exploration in progress: the request, and all noisy results so far."""

    request: Request
    journal: Journal
    _direct: LeastErrorCosts = field(default_factory=LeastErrorCosts)

    def run(self) -> Release:
        """Explore, and return everything that was measured."""
        journal, phases = self.journal, self.journal.phases
        whole, before = float(phases.left), phases.spent
        reserve = journal.options["error_share"] * whole
        budget = whole - reserve
        total = journal.measure_size(TOTAL * budget)
        spare = budget - float(phases.spent - before)
        sizes = {subset: self.request.schema.sizes[subset[0]] for subset in self.request.singles}
        self._direct = LeastErrorCosts.of(self.request, journal.budget, total, budget)
        if self._direct.weight == 1:
            journal.measure("all parts", self._direct.missing(journal.spent, spare))
        elif not self.request.pairs:
            journal.measure("single attributes", by_size(sizes, spare))
        else:
            # the more records per value, relative to the noise, the less is spent on the first look
            signal = max(total, 1.0) * math.sqrt(budget) / sum(sizes.values())
            first = 0.7 * min(max(0.7 - 0.3 * math.log10(signal / 1.4), 0.15), 0.9) * budget
            costs = by_size(sizes, first)
            noise = math.sqrt(journal.budget.unit.change() / (TOTAL * budget))
            if journal.public_total is None and noise > ROUGH * total:
                costs = {subset: (1 - AGAIN) * cost for subset, cost in costs.items()} | {(): AGAIN * first}
            journal.measure("single attributes, a first look", costs)
            self._measure_larger(total, budget, spare - first)
        return journal.ended([subset for subset in self.request.weights if subset], reserve)

    def _measure_larger(self, total: float, budget: float, spare: float) -> None:
        """Measure pairs and triples with large distances, and single attributes again."""
        pairs, triples = self.request.pairs, self.request.triples
        looking = 1 - self._direct.weight
        parts = Parts.of_noise(self.request.singles, self.journal.model())
        distances, sd, profiles = self._compare(PAIRS, pairs, looking * PAIR_SCORES * budget)
        spare -= looking * PAIR_SCORES * budget
        parts += Parts.of_distances(pairs, np.maximum(distances - sd, FLOOR * sd), profiles)
        scores = looking * TRIPLE_SCORES * budget
        noise = math.sqrt(len(triples) * self.journal.budget.unit.change() / scores)
        # the cost to spend after the distances of triples are known: nothing if these would be mostly noise
        later = 0.0 if noise > VISIBLE * total else (0.7 if noise < CLEAR * total else 0.5) * spare
        if not triples or later < 2 * scores:
            self._fill("pairs and single attributes", parts, spare)
            return
        parts = self._fill("pairs and single attributes", parts, spare - later)
        distances, sd, profiles = self._compare("distances of triples", triples, scores)
        errors = dict(zip(parts.sets, parts.errors, strict=True))
        known = [sum(errors.get(pair, 0.0) ** 2 for pair in combinations(t, 2)) for t in triples]
        beyond = np.maximum(distances - sd, 0.0) ** 2 - np.array(known)  # what pairs do not explain
        parts += Parts.of_distances(triples, np.sqrt(np.maximum(beyond, (FLOOR * sd) ** 2)), profiles)
        self._fill("triples, pairs and single attributes", parts, later - scores)

    def _fill(self, name: str, parts: Parts, cost: float) -> Parts:
        """Measure parts by water-filling; return them with their remaining variances."""
        costs = np.array(
            [cell_cost(self.request.schema, subset, self.journal.budget) for subset in parts.sets]
        )
        looking = 1 - self._direct.weight
        precisions = filled(parts, self.request.weights, costs, looking * cost)
        spent = dict(zip(parts.sets, (precisions * costs).tolist(), strict=True))
        for subset, more in self._direct.missing(self.journal.spent, (1 - looking) * cost).items():
            spent[subset] = spent.get(subset, 0.0) + more
        spent = {subset: part for subset, part in spent.items() if part > LEAST * cost}
        if not spent:  # no cell has prior variance: an empty table
            spent = by_size(dict.fromkeys(self.request.singles, 1), cost)
        self.journal.measure(name, spent)
        precise = np.array([spent.get(subset, 0.0) for subset in parts.sets]) / costs
        return parts.after(precise)

    def _compare(
        self, name: str, sets: Sequence[AttributeSet], cost: float
    ) -> tuple[Array, float, list[Array]]:
        """Measure the distances of tables from their estimates.

        Return the distances, their standard error, and the profiles of the estimates.
        """
        profiles = list(map(profile, self.journal.model().tables(sets)))
        done = self.journal.compare(name, sets, cost)
        return done.records, float(done.std(self.journal.noise.distribution)[0]), profiles
