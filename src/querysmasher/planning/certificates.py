"""The closest lower bounds known on the loss of plans, where a record is replaced.

They take longer than many plans, so they are found once, for a plan that is far from the bound it was made
with. Over few cells, pairs of them are weighed for all measurements at once (`design.value_of_pairs`). Over
many, the values of every attribute are drawn as a pair (`couplings`), if all queries are split.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from querysmasher.arrays import less_means, one_core
from querysmasher.planning.allocation import unknown
from querysmasher.planning.candidates import merged_groups
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.splitting import split_sets
from querysmasher.planning.plan import Plan
from querysmasher.planning.solvers.couplings import Groups, coupled_bound
from querysmasher.planning.solvers.design import value_of_pairs
from querysmasher.planning.solvers.optimum import independent_root, terms_rows
from querysmasher.planning.split import Subworkload
from querysmasher.workload.workload import Workload


def closely_bounded(plan: Plan, lines: tuple[int, ...], close: float) -> Plan:
    """Return a plan with the closest bound known, if its gap is above `close`."""
    unit, workload = plan.budget.unit, plan.workload
    known = unit.known(workload.schema)
    if not unit.total_is_public or lines or plan.certificate.gap <= close:
        return plan
    whole = set(plan.whole)
    split = tuple(group for i, group in enumerate(workload) if i not in whole)
    every = split_sets(Workload(workload.schema, split), plan.centres, (), public_total=True) if split else []
    sets = list(unknown(every, known))
    attributes = sorted({a for m in plan.measured for a in m.attributes})
    groups = {a: np.arange(workload.schema.sizes[a]) for a in known.agreed} | dict(known.groups)
    if math.prod(workload.schema.sizes[a] for a in attributes) <= limits().paired_cells:
        root = _paired_bound(plan, sets, attributes, groups)
    else:
        root = 0.0 if whole else coupled_bound(sets, groups)
    bound = (unit.records_per_person * root) ** 2 / plan.budget.privacy_cost
    best = max(bound, plan.certificate.bound)
    return replace(plan, certificate=replace(plan.certificate, bound=best))


def _paired_bound(
    plan: Plan, sets: Iterable[Subworkload], attributes: Sequence[int], groups: Groups
) -> float:
    """Return a lower bound on the root loss at unit cost of all plans that split and keep whole the same."""
    sizes, queries = plan.workload.schema.sizes, [(s.attributes, terms_rows(s.terms)) for s in sets]
    for whole in (m.whole for m in plan.measured if m.whole):
        merged = merged_groups(plan.workload, whole, plan.budget.unit, math.inf)
        assert merged is not None  # noqa: S101 - it was measured
        rows = merged.rows * np.sqrt(merged.weights)[:, None]
        queries.append((merged.attributes, rows[:, merged.labels[np.ix_(*merged.maps)]]))
    shape = [sizes[a] for a in attributes]
    cells = np.indices(shape).reshape(len(shape), -1)
    public = [groups[a][cells[i]] for i, a in enumerate(attributes) if a in groups]
    classes = np.unique(np.array([np.zeros_like(cells[0]), *public]), axis=1, return_inverse=True)[1].ravel()
    roots = []
    for on, rows in queries:
        own = [sizes[a] if a in on else 1 for a in attributes]
        every = np.broadcast_to(rows.reshape([-1, *own]), (len(rows), *shape))
        roots.append(independent_root(less_means(every.reshape(len(rows), -1), 1, classes)))
    with one_core():
        return value_of_pairs(roots, classes)
