"""Share the privacy budget among what is measured: the one place that makes a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.planning.centre import Centres
from querysmasher.planning.mechanisms import DEFAULT
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Certificate, Measured, Solution
from querysmasher.privacy.budget import Budget
from querysmasher.workload.workload import Workload


def allocate(root_losses: Sequence[float], sensitivities: Sequence[int], privacy_cost: float) -> Array:
    """Return the noise variances σ² that minimise Σ σ²·L subject to Σ c/σ² = privacy cost.

    `root_losses` are √L at unit cost and `sensitivities` the factors c of each subworkload. The optimum
    is σ² = √(c/L) · Σ√(cL) / cost (the paper's Section 5.4, with c for other neighbours).
    """
    r = np.asarray(root_losses, dtype=float)
    c = np.sqrt(np.asarray(sensitivities, dtype=float))
    if not (np.all(np.isfinite(r)) and np.all(r > 0) and np.all(c > 0)):
        msg = "allocation: expected positive losses and sensitivities; a zero would leave no noise"
        raise PlanError(msg)
    variances: Array = c / r * float(c @ r) / privacy_cost
    while (spent := math.fsum(c**2 / variances)) > privacy_cost:  # by rounding error
        variances *= max(spent / privacy_cost, 1 + 1e-15)
    return variances


def allocated(
    workload: Workload,
    budget: Budget,
    centres: Centres,
    solutions: Sequence[Solution],
    measured: Sequence[Measured],
    bound: float,
    *,
    centering: str,
    tolerance: float,
    mechanism: str = DEFAULT,
    solver: str = "optimal",
) -> Plan:
    """Return the plan of least loss with these strategies, whatever noise `measured` has.

    `bound` is a lower bound on the sum of the root losses at unit cost, each times the root of its
    sensitivity. The other arguments are the options that the plan states.
    """
    factors = [budget.unit.change(m.attributes) for m in measured]
    variances = allocate([m.root_loss for m in measured], factors, budget.privacy_cost).tolist()
    noisy = tuple(replace(m, variance=v) for m, v in zip(measured, variances, strict=True))
    loss = math.fsum(m.variance * m.root_loss**2 for m in noisy)
    certificate = Certificate(loss, bound**2 / budget.privacy_cost)
    options = mechanism, solver, centering, tolerance
    return Plan(workload, budget, centres, tuple(solutions), noisy, loss, certificate, *options)
