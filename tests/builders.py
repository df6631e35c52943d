"""What tests of every layer build again and again: schemas, workloads, options of planning, traps."""

import math
import subprocess
import sys
import unicodedata
from functools import partial
from itertools import combinations

import numpy as np

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
ROWS_WHOLE = {"whole_work": 0, "threaded_cells": -1}
"""Limits under which queries given by rows are measured whole, beside the others."""
UNITS = [{}, {"neighbours": "replace_one"}, {"records_per_person": 3}]
"""Units of privacy: one record added or removed, one replaced, three of a person added or removed."""


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


LINE_SCHEMA = qs.Schema.of(a=7, b=2, c=3, d=6)
"""A schema of which `plan_lines` plans a and d as lines."""


def plan_lines(workload, budget=COST, axis_values=6_000, **options):
    """Plan with attributes of more than five values as lines, without matrices above some number."""
    with as_lines(5, axis_values=axis_values), limited(**SPLIT):
        return qs.plan(workload, budget, **options)


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


def moving(schema, lengths, weights=None):
    """All ranges of some lengths."""
    size = schema["a"].size
    first = np.concatenate([np.arange(size - length + 1) for length in lengths])
    last = first + np.repeat(lengths, [size - length + 1 for length in lengths]) - 1
    return qs.queries(schema, a=qs.ranges(schema, "a", first, last, weights=weights))


def boxes(count, sizes=(50, 30, 4), seed=0):
    """Boxes on three attributes: an interval, a prefix and one value."""
    rng = np.random.default_rng(seed)
    schema = qs.Schema.of(a=sizes[0], b=sizes[1], d=sizes[2])
    workload = None
    for _ in range(count):
        low, high = sorted(rng.integers(0, sizes[0], 2).tolist())
        words = f"{low} <= a <= {high} and b < {rng.integers(1, sizes[1])} and d == {rng.integers(sizes[2])}"
        one = qs.where(schema, words)
        workload = one if workload is None else workload + one
    return workload


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


BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def acts(sign):
    """Whether a sign does something to a terminal, or cannot be printed."""
    return unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or sign in BIDI


def grouped(schema, name, groups, *others):
    """Every count of groups of an attribute's values, by other attributes."""
    level = qs.hierarchy(schema, name, part=[f"g{g}" for g in groups], leaves=False)
    return qs.queries(schema, {name: level} | dict.fromkeys(others, "identity"))


def classes_of_groups(schema, name, groups, by):
    """For every cell, the combination of the group and the other attributes."""
    cells = np.unravel_index(np.arange(math.prod(schema.sizes)), schema.sizes)
    first = groups[cells[schema.position(name)]]
    return np.unique(sum((cells[schema.position(n)] * 100 for n in by), first), return_inverse=True)[1]
