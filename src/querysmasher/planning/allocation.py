"""Share the privacy budget among the subworkloads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError


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
