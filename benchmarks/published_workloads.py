"""The workloads of the result files that HDMM's authors publish, written with this library."""

import math
from itertools import combinations, pairwise

import numpy as np

import querysmasher as qs
from benchmarks.schemas import joined, real

SEXES, ORIGINS, RACES, AGES = 2, 2, 64, 115
"""Persons in the census: the race is any set of six, and the ages end at 115."""

AGE_GROUPS = (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85, AGES)
"""First ages of the groups of table P12."""

SINGLE_AGES = (*range(100), 100, 105, 110, AGES)
"""First ages of the groups of table PCT12."""


def census():
    """Ask tables on persons of Summary File 1 of the 2010 census: P1 to P12I without P2, P6 and P7; PCT12."""
    schema = qs.Schema.of(sex=SEXES, hispanic=ORIGINS, race=RACES, age=AGES)
    count = np.array([value.bit_count() for value in range(RACES)])
    alone = np.eye(RACES)[2 ** np.arange(6)]
    seven = np.vstack([alone, 1 - alone.sum(axis=0)])
    white = alone[:1]
    numbers = np.array([count == k for k in range(1, 7)] + [count >= 2], dtype=float)
    detailed = np.vstack([np.eye(RACES)[1:], numbers])
    adult = np.array([np.arange(AGES) >= 18], dtype=float)
    groups, single = groups_from(AGE_GROUPS), groups_from(SINGLE_AGES)
    both, hispanic, others = np.vstack([np.eye(2), np.ones(2)]), np.eye(2)[:1], np.eye(2)[1:]
    each = "identity"
    tables = [
        {},  # P1
        *({"race": seven}, {}),  # P3
        *({"hispanic": each}, {}),  # P4
        *({"hispanic": each, "race": seven}, {"hispanic": both}),  # P5
        *({"race": detailed}, {}),  # P8
        *({"hispanic": each}, {"hispanic": others, "race": detailed}, {}),  # P9
        *({"race": detailed, "age": adult}, {"age": adult}),  # P10
        *({"hispanic": each, "age": adult}, {"age": adult}),  # P11
        {"hispanic": others, "race": detailed, "age": adult},
    ]
    # P12 and PCT12 ask by sex and age, and by sex. Their series ask this of every race, of Hispanics, and of
    # others by race: P12 only of those who are white.
    for ages, of_others in ((groups, white), (single, seven)):
        for whom in (
            {},
            {"race": seven},
            {"hispanic": hispanic},
            {"hispanic": others, "race": of_others},
        ):
            tables += [{"sex": each, **whom, "age": ages}, {"sex": both, **whom}]
    return joined(qs.queries(schema, table) for table in tables)


def groups_from(firsts):
    """Return rows that count the ages from each of these up to the next."""
    ages = np.arange(AGES)
    return np.array([(first <= ages) & (ages < after) for first, after in pairwise(firsts)], dtype=float)


def adult_marginals():
    """Ask all marginals on up to three attributes of Adult."""
    return qs.marginals(real("adult"), [0, 1, 2, 3])


def adult_pairs():
    """Ask prefixes of numbers and counts of categories on every pair of attributes of Adult."""
    return qs.all_kway(real("adult"), 2)


def cps_marginals():
    """Ask all marginals of CPS."""
    return qs.marginals(real("cps"), range(6))


def cps_prefixes():
    """Ask prefixes of both numbers of CPS in all marginals of its categories."""
    schema = real("cps")
    numbers = {"n0": "prefix", "n1": "prefix"}
    chosen = (own for k in range(4) for own in combinations(("c0", "c1", "c2"), k))
    return joined(qs.queries(schema, {**numbers, **dict.fromkeys(own, "identity")}) for own in chosen)


def loans(kind):
    """Ask all tables of Loans with at most 5,000 cells; `kind` is what they ask of numbers."""
    schema = real("loans")
    chosen = [
        own for k in range(len(schema) + 1) for own in combinations(schema.names, k) if small(schema, own)
    ]
    return joined(
        qs.queries(schema, {name: kind if name.startswith("n") else "identity" for name in own})
        for own in chosen
    )


def small(schema, names):
    return math.prod(schema[name].size for name in names) <= 5_000


def line(size, kind):
    """Ask all prefixes, all ranges, or all ranges of 32 values, of one attribute."""
    schema = qs.Schema.of(a=size)
    if kind != "windows":
        return qs.queries(schema, a=kind)
    first = np.arange(size - 31)
    return qs.queries(schema, a=qs.ranges(schema, "a", first, first + 31))
