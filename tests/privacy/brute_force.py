"""What every change of a table does to an integer plan, by trying them all, in exact fractions."""

import itertools
import math

import numpy as np

from querysmasher.privacy.measurement import exact_answers, measure_table
from tests.release.tables import TableCounter, Telltale, marginal, units


def variances(plan):
    """The noise variances of the numbers of each set, as measuring asks for them."""
    counter = TableCounter(plan.schema, next(units(plan.schema)))
    quiet, telling = Telltale(0), Telltale(1)
    exact, marked = (dict(measure_table(plan, counter, noise)) for noise in (quiet, telling))
    return [
        [telling.variances[place] for place in (marked[number] - exact[number]).ravel().tolist()]
        for number in range(len(plan.measured))
    ]


def weighted_grams(plan):
    """BᵀΣ⁻¹B over the cells of the whole domain for every set, in exact fractions, and their scale."""
    noise = variances(plan)
    scale = math.lcm(*(v.numerator for own in noise for v in own))
    grams = []
    for m, own in zip(plan.measured, noise, strict=True):
        columns = [
            exact_answers(plan, m, marginal(plan.schema, unit, plan.names(m))).ravel().tolist()
            for unit in units(plan.schema)
        ]
        values = np.array(columns, dtype=object)
        grams.append((values * np.array([int(scale / v) for v in own], dtype=object)) @ values.T)
    return grams, scale


def changes(cells, budget, classes=None):
    """All changes of a table by which neighbours differ, a sign apart.

    Replaced records stay in their class of cells, if there are classes.
    """
    if classes is not None:
        single = [
            np.eye(cells, dtype=object)[u] - np.eye(cells, dtype=object)[v]
            for u, v in itertools.product(range(cells), repeat=2)
            if classes[u] == classes[v]
        ]
        chosen = itertools.combinations_with_replacement(single, budget.records_per_person)
        return np.array([sum(several[1:], several[0]) for several in chosen])
    each = np.eye(cells, dtype=object)
    several = [
        sum(chosen[1:], chosen[0])
        for r in range(1, budget.records_per_person + 1)
        for chosen in itertools.combinations_with_replacement(each, r)
    ]
    if budget.neighbours == "add_remove":
        return np.array(several)
    return np.array([a - b for a in several for b in several if sum(a) == sum(b)])


def largest(gram, every):
    """The largest change over all neighbours."""
    return int(((every @ gram) * every).sum(axis=1).max())
