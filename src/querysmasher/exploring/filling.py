"""Precisions for the parts of tables: the least expected error of the tables that consist of them.

The expected distance E_k of part k from its estimate falls with its precision (`planning.water_filling`).
Errors of parts are independent, so that those of a table on the set A add up like √Σ_{k⊆A} E_k². We minimise
Σ_A w_A √Σ_{k⊆A} E_k², which is convex in the precisions: E_k is, and the norm increases in each. Where the
optimum is, the derivative with respect to E_k is the weight ω_k = Σ_{A⊇k} w_A E_k / √Σ_{l⊆A} E_l². So it is
also the optimum of Σ_k ω_k E_k with these weights held fixed, which water-filling solves. A few rounds of
both find it. (Where tables are noise alone, E_k is in proportion to b_k^(-1/2), and each round divides the
logarithms of what is wrong by three.)
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.exploring.parts import Parts
from querysmasher.planning.estimating import Place
from querysmasher.planning.water_filling import EXACT, fill

ROUNDS, ROUGHLY = 5, 1e-3
"""Number of rounds, and the relative accuracy of precisions before the last."""


def filled(parts: Parts, tables: Mapping[Place, float], costs: Array, budget: float) -> Array:
    """Return the precision of every part, whose costs add up to the budget.

    `tables` are the sets of the tables and their weights, and `costs` the privacy costs of a precision of 1.
    """
    number = {place: i for i, place in enumerate(parts.places)}
    inside = [
        (table, number[some])
        for table, place in enumerate(tables)
        for order in range(1, min(len(place), 3) + 1)
        for some in combinations(place, order)
        if some in number
    ]
    which, part = np.array(inside, dtype=np.int64).reshape(-1, 2).T
    own = np.array(list(tables.values()))[which]
    shares = np.ones(len(part))
    for left in reversed(range(ROUNDS)):
        weights: Array = np.bincount(part, weights=own * shares, minlength=len(number)).astype(float)
        precisions = fill(parts.variances, parts.counts, weights, costs, budget, ROUGHLY if left else EXACT)
        errors = parts.after(precisions).errors[part]
        whole = np.sqrt(np.bincount(which, weights=errors**2, minlength=len(tables)))[which]
        if not whole.any():
            break
        shares = np.divide(errors, whole, out=np.zeros(len(part)), where=whole > 0)
    return precisions
