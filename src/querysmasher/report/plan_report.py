"""The page about a plan: the guarantee, expected errors, the cost of targets, the certificate.

Memory does not grow with the number of queries: errors are summed without writing queries out, and for a
large group their spread is estimated from a sample.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.arrays import Array, in_order, one_core
from querysmasher.errors import PlanError, TooLargeError, as_given
from querysmasher.formatting import count, error, number, percentage, settled, shortened
from querysmasher.guarantees import delta_of, epsilon_words, scientific
from querysmasher.html import Html, element, join, scrolling, table
from querysmasher.planning.estimator.estimator import Estimator, subsets
from querysmasher.planning.objectives.objective import OBJECTIVES
from querysmasher.planning.plan import Plan
from querysmasher.planning.solvers.bounds import dimension
from querysmasher.privacy.budget import ApproxDP, Budget, PrivacyCost
from querysmasher.report.charts import CONFIG, budget_bars, cost_curve, error_curve, error_spread
from querysmasher.report.expectations import (
    Expectation,
    by_kind,
    expect,
    is_met,
    largest_errors,
    optimum,
    overall,
    persons,
    purpose,
    with_targets,
    worst_of,
    zeros,
)
from querysmasher.report.page import checked_path, figures, guarantee, markup, page, paragraph, write_page
from querysmasher.report.words import family_words, group_words, schema_table, workload_table
from querysmasher.schema import Schema
from querysmasher.workload.family import Structure
from querysmasher.workload.joint import Rows
from querysmasher.workload.sum import units_of
from querysmasher.workload.workload import Group, Target

SETS, LISTED = 15, 200
"""Maximum number of attribute sets in the budget's chart, where more are combined by their number of
attributes, and in the list of shares."""

QUICK = 100
"""Maximum dimension for which `plan.limit()` takes about a second and is computed by default."""

GROUPS, KINDS = 2_000, 24
"""Maximum number of groups on a page, those with the largest errors; and of kinds in the chart of errors."""

MAX_ENTRIES = 3_000_000
"""Maximum number of values (24 MB) when rows of a family or queries over tied attributes are written out."""

WHOLE = 300_000
"""Maximum number of queries of a group that is not sampled, if its attributes are measured separately."""

SAMPLE, PER_KIND = 20_000, 12
"""Size of a sample of queries, and number of groups from which the spread of a kind is estimated."""

SPREAD_GROUPS = 300
"""Maximum number of groups for which the page shows the spread of each."""

DIGITS = 5
"""Significant digits of errors, enough for the page."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STEPS = 160

MULTIPLES = (4.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.25)
"""The targets in the table of costs, as multiples of the stated ones."""

ROUNDING = 0.006
"""Fraction by which rounding to integers may change a cost: it multiplies errors by up to about 1.003."""

Curve = tuple[float, list[float], list[float]]
"""The plan's ε, a grid of ε around it, and the factor of the errors at each."""


def write_plan_report(
    plan: Plan, path: str | os.PathLike[str], limit: bool | None = None, title: str | None = None
) -> Path:
    """Write the page about a plan and return its path."""
    target = checked_path(path)
    if limit not in (None, True, False):
        raise PlanError(f"limit: expected True, False or None (only if it is quick), got {as_given(limit)}")
    return write_page(target, plan_page(plan, limit, title or "Privacy plan"))


def plan_page(plan: Plan, limit: bool | None, title: str) -> str:
    """Return the page as text."""
    groups, kinds = error_rows(plan)
    known = overall(groups)
    rmse = shortened(plan.rmse if known is None else known, 9)
    curve, ratio = epsilon_curve(plan.budget), closest(plan)
    weights = {g.weight for g in plan.workload}
    queries = markup(
        "asked",
        schema=schema_table(plan.workload.schema),
        families="".join(
            f" “{k.capitalize()}”: {words}." for k, words in family_words(plan.workload).items()
        ),
        weights=" Some queries have more weight than others." if len(weights) > 1 else None,
        workload=workload_table(plan.workload.groups),
    )
    sections = [
        ("guarantee", "The guarantee", guarantee(plan.budget)),
        ("asked", "Attributes and queries", queries),
        ("error", "Expected error", _error_section(plan, len(groups), with_curve=curve is not None)),
        ("budget", "Where the budget goes", _budget(plan)),
        ("optimal", "How good is this plan", _optimal(plan, limit)),
    ]
    if ratio is not None:
        costs = target_section(plan, ratio, with_curve=curve is not None)
        sections.insert(3, ("targets", "What the targets cost", costs))
    errors, charts = error_data(plan, groups, kinds, rmse, curve)
    charts["shares"] = budget_bars(_share_rows(plan))
    data = {"config": CONFIG, "charts": charts, **errors}
    if curve is not None and ratio is not None:
        data["targets"], charts["costs"] = _target_data(plan, ratio, curve)
    return page("plan", title, _summary(plan, rmse), sections, data)


def _summary(plan: Plan, rmse: float) -> Html:
    figure, remark = epsilon_words(plan.budget)
    if plan.budget.stated_delta is None:
        delta = delta_of(plan.budget)
        epsilon = f"ε = {number(plan.budget.epsilon_at(delta))}"
        if plan.least_cost is None:
            remark += f"; {epsilon} at δ = {scientific(delta)}"
        else:  # nobody chose its digits
            figure, remark = epsilon, f"at δ = {scientific(delta)}, the least that meets the targets"
    workload = plan.workload
    lead = (
        f"{count(workload.query_count, 'figure')} about {count(len(workload.schema), 'attribute')}, to be "
        "published under differential privacy. No data has been read: everything below is known in "
        f"advance{', for 30,000 records' if plan.sizes_first else ''}."
    )
    key_figures = figures(
        ("Budget", figure, remark),
        ("Queries", f"{workload.query_count:,}", f"in {count(len(workload.groups), 'group')}"),
        ("Expected error", f"± {number(rmse)}", f"root mean square{_units(plan)}"),
        *_largest(plan),
        ("Above the best plan", f"≤ {percentage(plan.gap)}", "certified; see below"),
        (
            "Measured",
            f"{plan.measurements:,}",
            f"noisy numbers on {count(len(plan.measured), 'attribute set')}",
        ),
    )
    remarks = (
        element("p", element("strong", f"{name.capitalize()}: "), text)
        for name, text in (*purpose(plan), *persons(plan), *zeros(plan))
    )
    return join([element("p", lead, class_="lead"), *remarks, key_figures])


def _units(plan: Plan) -> str:
    return units_of(plan.workload) or ", in records"


def _largest(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Return the largest error and whether the targets are met, as key figures."""
    extremes = largest_errors(plan)
    if extremes is None:
        return
    worst = worst_of(extremes)
    yield "Largest error", f"± {number(worst.std)}", f"of {worst.query(plan.workload.schema)}"
    aimed = with_targets(extremes)
    if aimed:
        ratio = settled(max(extreme.ratio for extreme in aimed))
        missed = sum(not is_met(extreme.ratio) for extreme in aimed)
        said = f"in {missed:,} of {count(len(aimed), 'group')}, by a factor of {ratio:.4g}"
        yield ("Targets", "missed", said) if missed else ("Targets", "met", f"the closest at {ratio:.1%}")


def _optimal(plan: Plan, limit: bool | None) -> Html:
    objective = OBJECTIVES.get(plan.objective, OBJECTIVES["worst"])  # a least cost keeps the largest error
    relative = ", relative to its target," if objective.largest and plan.workload.has_targets else ""
    what = f"{objective.title} of this plan{relative}"
    certified = f"{what} is certified to be within {percentage(plan.gap)} of {optimum(plan)}."
    bound = "The certificate is a lower bound, by duality, on the error of every such plan."
    limit_words = "The limit of all matrix mechanisms was not computed for this page."
    if dimension(plan.workload) <= QUICK if limit is None else limit:
        said = str(plan.limit())
        limit_words = f"{said[0].upper()}{said[1:]}."
    return join([element("p", f"{certified} {bound}"), element("p", limit_words)])


# --- where the budget goes ---


def shares(plan: Plan, most: int) -> list[tuple[str, float]]:
    """Return every attribute set and its share of the budget, the largest first, the smallest combined."""
    by_set = list(plan.budget_shares().items())
    largest_first = (by_set[index] for index in in_order([-part for _, part in by_set]))
    named = [(" × ".join(names) or "total", part) for names, part in largest_first]
    if len(named) <= most + 1:
        return named
    rest = math.fsum(part for _, part in named[most:])
    return [*named[:most], (f"{len(named) - most:,} other attribute sets together", rest)]


def shares_by_way(plan: Plan) -> list[tuple[str, float]]:
    """Return the share of the budget of all sets of as many attributes."""
    by_way: dict[int, list[float]] = {}
    for names, part in plan.budget_shares().items():
        by_way.setdefault(len(names), []).append(part)
    return [
        (
            "total" if way == 0 else f"{count(way, 'attribute')} ({count(len(parts), 'attribute set')})",
            math.fsum(parts),
        )
        for way, parts in sorted(by_way.items())
    ]


def tenths(parts: Sequence[float]) -> list[str]:
    """Return shares as percentages with one decimal that add up to the rounded sum, by largest remainders.

    >>> tenths([1 / 3, 1 / 3, 1 / 3])
    ['33.4%', '33.3%', '33.3%']
    """
    exact = [1000 * part for part in parts]
    floors = [math.floor(part + 1e-9) for part in exact]
    left = round(math.fsum(exact)) - sum(floors)
    order = sorted(range(len(parts)), key=lambda i: round(floors[i] - exact[i], 6))  # equals stay in order
    for index in order[: max(left, 0)]:
        floors[index] += 1
    return [f"{floor / 10:.1f}%" for floor in floors]


def _budget(plan: Plan) -> Html:
    if len(plan.measured) <= SETS:
        return markup("budget", caption=None, listed=None)
    labels, parts = zip(*shares(plan, LISTED), strict=True)
    rows = zip(labels, tenths(parts), strict=True)
    some = f", {LISTED:,} of {len(plan.measured):,}" if len(plan.measured) > LISTED + 1 else ""
    summary = f"The attribute sets one by one{some}"
    listed = scrolling(table(["Attribute set", "Budget share"], rows, numbers=[1]))
    return markup(
        "budget",
        caption=element("figcaption", "By number of attributes at a time."),
        listed=element("details", element("summary", summary), listed),
    )


def _share_rows(plan: Plan) -> list[dict[str, Any]]:
    rows = shares(plan, SETS) if len(plan.measured) <= SETS else shares_by_way(plan)
    written = tenths([part for _, part in rows])
    return [
        {"row": row, "label": label, "share": shortened(100 * part, 9), "said": said}
        for row, ((label, part), said) in enumerate(zip(rows, written, strict=True))
    ]


# --- expected errors ---


def error_rows(plan: Plan) -> tuple[list[Expectation], list[Expectation]]:
    """Return the errors of every group, in the workload's order, and of every kind."""
    with one_core():
        rows = list(expect(plan, max_entries=MAX_ENTRIES))
        samples: dict[int, Array] = {}
        if len(rows) <= SPREAD_GROUPS:
            rows = [replace(row, spread=_spread(plan, row.groups, samples)) for row in rows]
        kinds = []
        for kind in by_kind(rows):
            chosen = kind.groups[:: max(1, math.ceil(len(kind.groups) / PER_KIND))]
            kinds.append(replace(kind, spread=_spread(plan, chosen, samples)))
        return rows, kinds


def _spread(plan: Plan, groups: Sequence[Group], samples: dict[int, Array]) -> tuple[float, ...] | None:
    """Return the quantiles of the errors of groups; `samples` has those drawn so far."""
    for group in groups:
        if id(group) not in samples:
            errors = np.sort(_sample(plan.estimator, group))
            samples[id(group)] = errors[:: max(1, errors.size // SAMPLE)]
    known = [(samples[id(group)], group.rows) for group in groups if samples[id(group)].size]
    if not known:
        return None
    values = np.concatenate([sample for sample, _ in known])
    weights = np.concatenate([np.full(sample.size, rows / sample.size) for sample, rows in known])
    order = np.argsort(values)
    heights = np.cumsum(weights[order])
    indexes = np.searchsorted(heights, np.array(QUANTILES) * heights[-1] * (1 - 1e-12))
    return tuple(values[order][np.minimum(indexes, values.size - 1)].tolist())


def _sample(estimator: Estimator, group: Group) -> Array:
    """Return the standard errors of a group's queries, or of a sample; none if that is too large."""
    families = group.families
    small = all(f.rows * f.cells <= MAX_ENTRIES for f in families)
    sets = subsets(sorted(estimator.schema.positions(group.attributes)))
    measured = [m for s in sets for m in estimator.measured.get(s, ())]
    # every attribute is measured separately, so that variances are sums of products
    apart = small and all(len(f.shape) == 1 for f in families)
    apart = apart and bool(measured) and all(len(axes) <= 1 for m in measured for axes, _ in m.blocks)
    cells = 1 if apart else math.prod(f.cells for f in families)
    with suppress(TooLargeError):
        if not apart or group.rows > WHOLE:
            group = _sampled(group, min(SAMPLE, MAX_ENTRIES // cells))
        return np.sqrt(estimator.variances(group).ravel())
    return np.empty(0)


def _sampled(group: Group, most: int) -> Group:
    """Return a group of about `most` of a group's queries: rows of every family, drawn with a fixed seed."""
    if most < 8:
        raise TooLargeError
    left, families = float(most), list(group.families)
    order = sorted(range(len(families)), key=lambda i: families[i].rows)
    for done, index in enumerate(order):  # small families first: they leave more to the others
        family, generator = families[index], np.random.default_rng(index)
        size = max(min(family.rows, int(left ** (1 / (len(order) - done)))), 1)
        written_out = family.structure is Structure.ROWS or family.rows * family.cells <= MAX_ENTRIES
        if not written_out:
            size = min(size, MAX_ENTRIES // family.cells)
        chosen = np.sort(generator.choice(family.rows, size=size, replace=False))
        rows = family.matrix()[chosen] if written_out else family.drawn(generator, chosen)
        if rows is None:
            raise TooLargeError
        left /= len(rows)
        families[index] = Rows(family.shape, rows)
    return replace(group, families=tuple(families))


def epsilon_curve(budget: Budget) -> Curve | None:
    """Return how errors depend on ε at constant δ; None if the budget is too small or large for an ε.

    Errors are proportional to 1/√(privacy cost).
    """
    delta = delta_of(budget)
    start = budget.epsilon_at(delta)
    if not 1e-3 <= start <= 1e4:
        return None
    grid = np.geomspace(min(0.1, start / 10), max(10.0, start * 5), STEPS)
    epsilons = sorted({*grid.tolist(), start})
    costs = [budget.privacy_cost if e == start else ApproxDP(e, delta).privacy_cost for e in epsilons]
    factors = [math.sqrt(budget.privacy_cost / cost) for cost in costs]
    return shortened(start, 9), [shortened(e, 9) for e in epsilons], [shortened(f, 9) for f in factors]


def _error_section(plan: Plan, groups: int, *, with_curve: bool) -> Html:
    """Explain and show errors against ε, by kind and by group."""
    without = element("p", "This budget is too far from common values of ε to draw error against ε.")
    searched, left_out = largest_errors(plan) is not None, groups - GROUPS
    aimed = searched and plan.workload.has_targets
    note = f"Not on this page: {count(left_out, 'group')} with the smallest errors."
    return markup(
        "errors",
        units=_units(plan),
        curve=markup("curve", delta=scientific(delta_of(plan.budget))) if with_curve else without,
        largest="Under each group is a query with the largest error of the group. " if searched else None,
        aimed="Below each target is the largest error as a fraction of the target. " if aimed else None,
        left_out=paragraph(note, "note") if left_out > 0 else None,
    )


def error_data(
    plan: Plan, groups: list[Expectation], kinds: list[Expectation], rmse: float, curve: Curve | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the section for the page's script, and its charts."""
    by_error = in_order([-(row.rmse or 0.0) for row in groups])
    listed = [groups[index] for index in by_error] if len(groups) > GROUPS else groups
    charts: dict[str, Any] = {}
    spreads = [(row, row.spread) for row in kinds if row.spread and row.rmse][:KINDS]
    if spreads:
        lowest = min(spread[0] for _, spread in spreads)
        highest = max(spread[-1] for _, spread in spreads)
        charts["spread"] = error_spread(
            [_spread_row(i, row, spread) for i, (row, spread) in enumerate(spreads)],
            log=lowest > 0 and highest > 30 * lowest,
        )
    data: dict[str, Any] = {
        "rmse": rmse,
        "groups": [_group_row(row, plan.workload.schema) for row in listed[:GROUPS]],
        "all_groups": len(groups),
    }
    if curve is not None:
        start, grid, factors = curve
        data["curve"] = {"start": start, "grid": grid, "factors": factors}
        known = [row.rmse for row in groups if row.rmse] or [rmse]
        drawn = {"error": rmse, "low": min(known), "high": max(known)}
        points = [
            {"epsilon": epsilon, **{name: shortened(value * factor, DIGITS) for name, value in drawn.items()}}
            for epsilon, factor in zip(grid, factors, strict=True)
        ]
        charts["curve"] = error_curve(points, start, rmse)
    return data, charts


def _group_row(row: Expectation, schema: Schema) -> dict[str, Any]:
    """Return a group with its mean error, its largest, the query that has that, and its target."""
    data: dict[str, Any] = {
        "label": group_words(row.group),
        "ways": len(row.attributes),
        "queries": row.queries,
        "rmse": None if row.rmse is None else shortened(row.rmse, DIGITS),
        "spread": [shortened(q, DIGITS) for q in row.spread] if row.spread else None,
    }
    extreme = row.extreme
    if extreme is not None:
        data["largest"] = shortened(extreme.std, DIGITS)
        data["query"] = extreme.query(schema)
        if extreme.group.target is not None:  # in nine digits: a target is met to a fraction of 1e-6
            data["target"], data["ratio"] = str(extreme.group.target), shortened(extreme.ratio, 9)
    return data


def _spread_row(index: int, row: Expectation, spread: Iterable[float]) -> dict[str, Any]:
    where = f"{count(len(row.groups), 'group')}, {count(row.queries, 'query', 'queries')}"
    kind, rmse = row.label.replace("|", "¦"), shortened(row.rmse or 0.0, DIGITS)
    errors = {f"q{i}": shortened(q, DIGITS) for i, q in enumerate(spread)}
    return {"key": f"{index}|{kind}|{where}", "label": f"{row.label} ({where})", "rmse": rmse, **errors}


# --- what targets cost ---


def closest(plan: Plan) -> float | None:
    """Return the largest error relative to its target; None if there are no targets or it is not known.

    It is 1 for a plan of least cost: its small reserve for rounding is part of what the targets cost.
    """
    extremes = largest_errors(plan) or ()
    if extremes and plan.least_cost is not None:
        return 1.0
    return max((extreme.ratio for extreme in with_targets(extremes)), default=None)


def cost_of(plan: Plan, ratio: float, multiple: float) -> Budget:
    """Return what the plan costs with its noise scaled until it meets `multiple` times its targets.

    Variances are inversely proportional to the cost.
    """
    return PrivacyCost(plan.budget.privacy_cost * (ratio / multiple) ** 2)


def target_section(plan: Plan, ratio: float, *, with_curve: bool) -> Html:
    """Show the cost of looser and tighter targets."""
    delta, (target, level) = delta_of(plan.budget), _common(plan)
    rows = []
    for multiple in MULTIPLES:
        budget = cost_of(plan, ratio, multiple)
        name = f"× {multiple:g}" if target is None else f"{error(multiple * target.amount)}{level}"
        amounts = budget.epsilon_at(delta), budget.rho, budget.mu, budget.privacy_cost
        rows.append((name + (" (as stated)" if multiple == 1 else ""), *map(number, amounts)))
    header = ["Targets", f"ε at δ = {scientific(delta)}", "ρ", "μ", "Privacy cost"]
    label = "targets ×" if target is None else "target ±"
    follow = " Move the targets, and ε and every error under “Expected error” follow."
    certified = (
        "These are costs of this plan with its noise scaled as a whole. A plan made for other targets may "
        "cost less."
        if plan.least_cost is None
        else "Certified: every plan of this kind that meets the stated targets has a privacy cost of at "
        f"least {number(plan.least_cost)}."
    )
    return markup(
        "targets",
        rounding=f"{ROUNDING:.1%}",
        follow=follow if with_curve else None,
        explorer=markup("target-explorer", label=label, delta=scientific(delta)) if with_curve else None,
        costs=table(header, rows, numbers=[1, 2, 3, 4], class_="costs"),
        certified=certified,
    )


def _target_data(plan: Plan, ratio: float, curve: Curve) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the section for the page's script, and its chart."""
    start, grid, factors = curve
    target, level = _common(plan)
    unit = 1.0 if target is None else target.amount
    title = "targets, as multiples of the stated targets" if target is None else f"target: ±{level}"
    ratio = shortened(ratio, 9)
    targets = [shortened(unit * ratio * factor, 6) for factor in factors]
    points = [{"target": t, "epsilon": e} for t, e in zip(targets, grid, strict=True)]
    data = {"ratio": ratio, "unit": unit, "cost": plan.budget.privacy_cost}
    return data, cost_curve(points, unit * ratio, start, title, unit)


def _common(plan: Plan) -> tuple[Target | None, str]:
    """Return the target of all groups that have one, or None if they differ; and its level in words."""
    targets = {group.target for group in plan.workload if group.target is not None}
    target = targets.pop() if len(targets) == 1 else None
    return target, "" if target is None or target.level is None else f" at {100 * target.level:g}%"
