"""The accountant against brute force over all neighbours, for integer plans that no planner would make.

A plan is drawn piece by piece: blocks, factors, filters, noise multipliers and the order of every axis. Then
it is spoilt, or not. It must be refused, or cost what is said: what each record changes is asked of the
measuring code, and every change of a table that the unit of privacy allows is tried, in exact fractions.
"""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.errors import PrivacyError
from querysmasher.privacy import accounting
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.integer_plan import IntegerPlan
from tests.privacy.brute_force import changes, largest, weighted_grams
from tests.privacy.hostile import hostile_plans
from tests.profiles import fewer
from tests.release.tables import released, squared_change

SLACK = Fraction(1, 2**29)
"""What the accountant may add where multipliers are summed in floating point."""


def check(build):
    """Say whether a plan was refused; if not, its accounted cost is an upper bound, tight where stated."""
    try:
        plan = build()
        said = privacy_cost(plan)
        grams, scale = weighted_grams(plan)
    except PrivacyError:
        return True
    every = changes(len(grams[0]), plan.budget)
    assert said >= Fraction(largest(sum(grams), every), scale)
    if plan.budget.neighbours == "add_remove":  # set by set no more than needed: some records cost this
        for m, gram in zip(plan.measured, grams, strict=True):
            one = IntegerPlan(plan.schema, plan.budget, plan.strategies, (m,), plan.max_records)
            exact = Fraction(largest(gram, every), scale)
            with_multipliers = any(plan.strategies[n].multipliers is not None for _, n in m.blocks)
            slack = len(m.blocks) * SLACK if with_multipliers else 0
            assert exact <= privacy_cost(one) <= exact * (1 + slack) + Fraction(1, accounting.GRAIN)
    return False


@pytest.mark.slow
def test_a_plan_is_refused_or_costs_what_is_said():
    tried = Counter()

    @settings(max_examples=400)
    @given(hostile_plans())
    def run(case):
        build, ways = case
        tried["spoilt" if ways else "as meant", "refused" if check(build) else "accepted"] += 1

    run()
    # enough of both sorts, or the above is of little worth
    assert tried["as meant", "accepted"] >= 100
    assert tried["spoilt", "refused"] >= 100


@fewer(60)
@given(hostile_plans(), st.data())
def test_what_a_change_does_follows_from_what_each_record_does(case, data):
    """Two neighbouring tables, measured as they stand: the brute force above adds records up."""
    build, _ = case
    try:
        plan = build()
        grams, scale = weighted_grams(plan)
    except PrivacyError:
        return
    cells = len(grams[0])
    change = np.array(data.draw(st.sampled_from(changes(cells, plan.budget).tolist())), dtype=np.int64)
    table = np.array(data.draw(st.lists(st.integers(2, 9), min_size=cells, max_size=cells)))
    one, two = (released(plan, t.reshape(plan.schema.sizes)) for t in (table, table + change))
    wide = change.astype(object)
    assert squared_change(one, two) == Fraction(int(wide @ sum(grams) @ wide), scale)
