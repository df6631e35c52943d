"""Plans meant for estimates: they measure what shrinkage and maximum entropy can use best.

They measure given residuals at given privacy costs, and so do the phases of an exploration. The residual of
an attribute set is what its marginal has beyond those of its proper subsets. All of it is measured, with the
same noise in every direction: the best strategy for a marginal around uniform centres.

On a sparse table, estimates fill in tables on three and more attributes from pairs, so only the total, single
attributes and pairs are measured. Let u = N√c / Σn: the number of records times the root of the privacy cost,
per value of an attribute. All other tables build on single attributes, so the budget share of these grows as
u falls; a tenth of it goes to the total. What is left goes to pairs. The error of a set that is measured at
precision b, with noise left in n cells, is in proportion to n/√b, and the sum of such errors, with weights ω,
is least if b is in proportion to (ωn)^(2/3). So single attributes, and pairs, share in these proportions. The
weight of a set is that of all tables that contain it, and n the number of its directions; of pairs its root,
as shrinkage leaves noise in so many cells of them.

With many records the noise of the plan of least error is small, and nothing beats measuring the tables
themselves. Its error is known in advance: r = √(2/π) × RMSE × cells of a table / N is the expected ‖error‖₁/N
of an unbiased table. The shares of both plans are mixed, with a weight that grows from 0 at r of about 2 to 1
at r of about 0.01. All this needs only a rough size N, which must be public: the shares change with its
logarithm. A plan is made without data. If nobody states N, `measure` learns it first, for 1% of the budget,
and computes the shares of the rest from the noisy number (`measuring`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations

from querysmasher.errors import BudgetError, PlanError, as_given, as_ratio, not_one_of
from querysmasher.planning.allocation import plan_at
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimator.estimator import AttributeSet
from querysmasher.planning.integer import integer_plan, refusal
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.prices import within
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.privacy.entries import canonical
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group, Workload


def tables(schema: Schema, sets: Sequence[AttributeSet]) -> Workload:
    """Return the workload of all cells of the marginals on some sets."""
    names, sizes = schema.names, schema.sizes
    groups = (
        Group(tuple(names[a] for a in subset), tuple(Identity((sizes[a],)) for a in subset))
        for subset in sets
    )
    return Workload(schema, tuple(groups))


def directions(schema: Schema, subset: AttributeSet) -> int:
    """Return the number of directions of the residual of a set: zero if an attribute has one value."""
    return math.prod(schema.sizes[a] - 1 for a in subset)


def cell_cost(schema: Schema, subset: AttributeSet, budget: Budget) -> float:
    """Return the privacy cost at which the noise on every cell of a residual has variance 1.

    With variance s² in every direction of the residual, it costs Π(1 - 1/n)/s² for each change of a record,
    and a cell has the variance s² Π(1 - 1/n).
    """
    change = budget.unit.change(subset)
    return change * math.prod((1 - 1 / schema.sizes[a]) ** 2 for a in subset)


def residual_plan(
    schema: Schema, budget: Budget, costs: Mapping[AttributeSet, float], max_records: int
) -> IntegerPlan:
    """Return a plan in integers that measures the residual of each set at its privacy cost, or a little less.

    `budget` states the unit of privacy; that of the returned plan is the sum of the costs.
    """
    total = math.fsum(costs.values())
    sizes = [cost * directions(schema, subset) for subset, cost in costs.items()]
    if not sizes or min(sizes) <= 0:
        raise PlanError("costs: expected a positive privacy cost for sets of attributes with several values")
    spent = PrivacyCost(total, **asdict(budget.unit))
    return integer_plan(_at_costs(tables(schema, list(costs)), spent, costs), total, max_records)


def _at_costs(workload: Workload, budget: Budget, costs: Mapping[AttributeSet, float]) -> Plan:
    """Return a plan that measures the residual of each set at its privacy cost."""
    best = plan_at(uniform(workload.schema), workload, budget, Options.of(centering="uniform"))
    change = budget.unit.change()
    shared = [
        replace(m, variance=change / costs[m.attributes], price=change)
        for m in best.measured
        if m.attributes in costs
    ]
    measured = tuple(within(shared, [s.strategy for s in best.solutions], workload.schema, budget))
    loss = math.fsum(m.variance * m.root_loss**2 for m in measured)
    certificate = replace(best.certificate, value=loss)
    return replace(best, measured=measured, weighted_loss=loss, certificate=certificate)


def joined(plans: Sequence[IntegerPlan], budget: Budget) -> IntegerPlan:
    """Return the measurements of several plans, in order, as one plan with the given budget.

    Equal strategies become one, so that repeated measurements of a set are recognised.
    """
    numbers: dict[str, int] = {}
    strategies: list[IntegerStrategy] = []
    measured: list[IntegerMeasured] = []
    for plan in plans:
        renumbered = []
        for strategy in plan.strategies:
            factors = [[axes, factor.kind, factor.to_data()] for axes, factor in strategy.factors]
            key = canonical(
                {"shape": strategy.shape, "factors": factors, "multipliers": strategy.multipliers}
            )
            if key not in numbers:
                numbers[key] = len(strategies)
                strategies.append(strategy)
            renumbered.append(numbers[key])
        measured += [
            IntegerMeasured(m.attributes, tuple((axes, renumbered[n]) for axes, n in m.blocks), m.variance)
            for m in plan.measured
        ]
    first = plans[0]
    return IntegerPlan(first.schema, budget, tuple(strategies), tuple(measured), first.max_records)


PURPOSES = ("answers", "estimate")
"""What a plan may be meant for."""


def check_purpose(purpose: str, records: int | None) -> None:
    """Refuse an unknown purpose, and a number of records that is invalid or that the purpose does not use."""
    if purpose not in PURPOSES:
        raise PlanError(f"purpose: {not_one_of(PURPOSES, purpose)}")
    if records is None:
        return
    if purpose != "estimate":
        raise PlanError(
            "records: allowed only with purpose='estimate'; max_records caps the number of records"
        )
    if isinstance(records, bool) or not isinstance(records, int) or records < 1:
        raise PlanError(
            f"records: expected a rough number of records, at least 1, or None, got {as_given(records)}"
        )


def plan_estimate(workload: Workload, budget: Budget, records: int | None, max_records: int) -> Plan:
    """Plan what to measure for estimates of a workload of marginals.

    Without a number of records, the plan is that for a usual number, and `measure` learns the true one first.
    """
    shares = estimate_shares(workload, budget, records or limits().usual_records)
    sizes_first = records is None and any(subset and directions(workload.schema, subset) for subset in shares)
    learnt = size_share(budget) if sizes_first else 0.0
    shares = {subset: (1 - learnt) * share for subset, share in shares.items()}
    shares[()] += learnt
    costs = _costs(workload.schema, budget, shares, budget.privacy_cost / (1 + 1e-12))
    made = _at_costs(tables(workload.schema, list(shares)), budget, costs)
    if refused := refusal(made, max_records):
        raise refused
    return replace(made, asked=workload, sizes_first=sizes_first)


MOST_SHARE = 0.5
"""Maximum share of the budget for the errors of the estimate."""


def check_error_share(share: float) -> None:
    """Refuse a budget share for errors that is not a number in its range."""
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if not is_number or not 0 <= share <= MOST_SHARE:
        msg = f"error_share: expected a number from 0 to {MOST_SHARE}, got {as_given(share)}{as_ratio(share)}"
        raise BudgetError(msg)


def size_share(budget: Budget) -> float:
    """Return the share of the budget that the number of records costs: nothing where it is public."""
    return 0.0 if budget.unit.total_is_public else limits().size_share


def sized_costs(workload: Workload, budget: Budget, records: float, cost: float) -> dict[AttributeSet, float]:
    """Return the privacy cost of each set for a table of about `records` records.

    The costs add up to `cost`. The number of records is measured again, unless it is public.
    """
    return _costs(workload.schema, budget, estimate_shares(workload, budget, max(records, 1.0)), cost)


def _costs(
    schema: Schema, budget: Budget, shares: Mapping[AttributeSet, float], cost: float
) -> dict[AttributeSet, float]:
    """Return the costs of sets that have something to measure, in proportion to their shares."""
    known = budget.unit.known(schema)
    measured = {
        subset: share
        for subset, share in shares.items()
        if (directions(schema, subset) or not subset) and subset not in known
    }
    total = math.fsum(measured.values())
    return {subset: share / total * cost for subset, share in measured.items()}


def estimate_shares(workload: Workload, budget: Budget, records: float) -> dict[AttributeSet, float]:
    """Return the budget share of each set that is worth measuring, for about `records` records."""
    sets, sizes = _sets(workload), workload.schema.sizes
    u = records * math.sqrt(budget.privacy_cost) / max(1, sum(sizes[s[0]] for s in sets if len(s) == 1))
    has_pairs = any(len(subset) == 2 for subset in sets)
    first = min(0.9, max(0.15, 0.7 - 0.35 * math.log10(u / 1.4))) if has_pairs else 1.0
    levels = (0.1 * first, 0.9 * first, 1 - first)  # of the total, of single attributes and of pairs
    sums = [math.fsum(part for subset, part in sets.items() if len(subset) == order) for order in range(3)]
    shares = {subset: levels[len(subset)] * part / sums[len(subset)] for subset, part in sets.items()}
    best = plan_at(uniform(workload.schema), workload, budget, Options.of(centering="uniform"))
    cells = workload.query_count / len(workload.groups)
    expected = math.sqrt(2 / math.pi) * best.rmse * cells / records
    # the part of the budget spent as in the plan of least error
    kept = min(1.0, 0.15 - 0.45 * math.log10(expected))
    if kept >= limits().table_share:
        shares = {subset: (1 - kept) * share for subset, share in shares.items()}
        for m in best.measured:
            cost = m.price / (m.variance * budget.privacy_cost)
            shares[m.attributes] = shares.get(m.attributes, 0.0) + kept * cost
    return shares


def _sets(workload: Workload) -> dict[AttributeSet, float]:
    """Return sets of up to two attributes to measure, with their parts of the budget for sets of their size.

    Refuse queries other than marginals.
    """
    weights: dict[AttributeSet, float] = {(): 1.0}
    for group in workload:
        if group.target is not None or not group.is_marginal:
            what = "a target" if group.target is not None else f"queries of kind {group.kind}"
            raise PlanError(
                f"workload: purpose='estimate' plans marginals without targets, got {what} on "
                f"({', '.join(group.attributes)}); plan others with purpose='answers', and call estimate() "
                "on the release"
            )
        positions = sorted(workload.schema.positions(group.attributes))
        for subset in (part for order in (1, 2) for part in combinations(positions, order)):
            weights[subset] = weights.get(subset, 0.0) + group.weight
    sizes = {subset: directions(workload.schema, subset) for subset in weights}
    ordered = sorted((subset for subset in weights if sizes[subset]), key=lambda s: (len(s), s))
    return {s: (weights[s] * sizes[s] ** (1 / max(1, len(s)))) ** (2 / 3) for s in ordered}
