"""What tests of every layer build again and again: schemas, workloads, options of planning, traps."""

import subprocess
import sys
from functools import partial
from itertools import combinations

import querysmasher as qs
from querysmasher.planning.limits import limited
from querysmasher.planning.strategies import AxisStrategy

COST = qs.PrivacyCost(1.0)
"""The budget at which the paper's figures stand."""
UNIFORM = {"centering": "uniform"}  # the paper's method, and fast to plan
BEST = {"centering": "optimized"}
plan_uniform = partial(qs.plan, **UNIFORM)
SPLIT = {"whole_work": 0, "beside_work": 0}
"""Limits under which no query is measured whole."""


def plan_split(workload, budget=None, **options):
    """Plan with all queries split, around the best centres."""
    with limited(**SPLIT):
        return qs.plan(workload, COST if budget is None else budget, **options)


def as_lines(values=5, **changes):
    """Plan attributes of more values than these as lines or trees, with centres of their own."""
    few = {"dense_values": values, "mixed_values": values, "closed_form_values": values}
    return limited(**(few | changes))


def has_lines(plan):
    """Return whether a plan measures lines or trees."""
    return any(isinstance(solution.strategy, AxisStrategy) for solution in plan.solutions)


ALARM = 1e-7
"""How often a statistical test may fail though nothing is wrong, over all seeds that it could have had."""

PRIVATE = "Zebra77123"
"""A value of a record, which must not be found in any message, file or repr."""


def cube(n, d):
    """Attributes a0, a1, … of one size."""
    return qs.Schema.of({f"a{i}": n for i in range(d)})


def cps():
    """The paper's schema of the Current Population Survey, each attribute named by its size."""
    return qs.Schema(
        [qs.Categorical(f"c{n}", range(n)) for n in (7, 4, 2)]
        + [qs.Ordinal(f"n{n}", range(n)) for n in (50, 100)]
    )


def pairs(schema, asked):
    """A two-attribute workload on every pair of attributes."""
    groups = [g for a, b in combinations(schema.names, 2) for g in asked(schema, a, b).groups]
    return qs.Workload(schema, tuple(groups))


def python(*arguments, check=False, **options):
    """Run a fresh Python to its end."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(  # noqa: S603 - our own words
        command, capture_output=True, text=True, check=check, timeout=120, **options
    )


class Trap:
    """Sprung by unpickling."""

    sprung = False

    def __reduce__(self):
        return (setattr, (Trap, "sprung", True))
