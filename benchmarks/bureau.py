"""The Census Bureau's allocation for the 2020 redistricting file, with the best linear unbiased estimate.

At every unit of every level the Bureau measures tables of group quarters, voting age, Hispanic origin and
race, each with independent noise of one variance. Write z for a coordinate of the table's residual on a set A
of the last three attributes, in an orthonormal basis: a vector over the values of group quarters. A table on
S ⊇ A measures z with the precision Π_{i∉S} n_i · G / σ², where G is the Gram matrix of its queries on group
quarters; other tables say nothing of it. So all coordinates are independent, and alike: with Λ the sum of
precisions at a level, the estimate is a regression on the tree, with matrices over the values of group
quarters. P is the covariance of a unit's z given what is measured at it and below, and σ that given all:

    P_v = (Λ + U_v⁻¹)⁻¹,  U_v = Σ_c P_c;   σ_c = P_c − P_c U_v⁻¹ P_c + P_c U_v⁻¹ σ_v U_v⁻¹ P_c.

Where nursing facilities hold no minors, the 15 possible combinations of group quarters and voting age take
the place of the values of group quarters. An exact total of the state is measured with next to no noise.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tree:
    """For each level below the first, the parent of every unit."""

    parents: tuple

    @classmethod
    def of_levels(cls, levels):
        """Return the tree of levels that have for every leaf its unit, the last level being the leaves."""
        firsts = [np.unique(below, return_index=True)[1] for below in levels[1:]]
        return cls(tuple(above[first] for above, first in zip(levels[:-1], firsts, strict=True)))

    @property
    def sizes(self):
        return (1 + int(self.parents[0].max()), *map(len, self.parents))


@dataclass(frozen=True)
class Allocation:
    """What every level measures. A table is a name in `quarters` and a set of attributes."""

    sizes: dict
    """The sizes of the attributes beside group quarters."""
    quarters: dict
    """The rows over the values of group quarters, by name."""
    precisions: tuple
    """For each level, 1 / σ² of every table."""

    def errors(self, tree, tables):
        """Return the largest standard error of each table's queries at every unit, by table and level."""
        result = {table: [0.0] * len(tree.sizes) for table in tables}
        attributes = list(self.sizes)
        every = itertools.chain.from_iterable(
            itertools.combinations(attributes, k) for k in range(1 + len(attributes))
        )
        for kept in map(frozenset, every):
            asking = [table for table in tables if kept <= table[1]]
            covariances = self.covariances(tree, kept) if asking else ()
            for quarters, asked in asking:
                scale = math.prod(
                    (1 - 1 / n) if a in kept else 1 / n if a in asked else n for a, n in self.sizes.items()
                )
                rows = self.quarters[quarters]
                for level, covariance in enumerate(covariances):
                    variances = np.einsum("qi,vij,qj->vq", rows, covariance, rows, optimize=True)
                    result[quarters, asked][level] = result[quarters, asked][level] + scale * variances
        return {table: [np.sqrt(each.max(axis=1)) for each in levels] for table, levels in result.items()}

    def covariances(self, tree, kept):
        """Return σ for one coordinate of the residual on `kept`, at all units of every level."""
        information = [self.information(level, kept) for level in range(len(tree.sizes))]
        alone, below = [np.linalg.inv(information[-1])[None].repeat(tree.sizes[-1], axis=0)], []
        for known, parents in zip(information[-2::-1], reversed(tree.parents), strict=True):
            sums = np.zeros((1 + int(parents.max()), *known.shape))
            np.add.at(sums, parents, alone[-1])
            below.append(sums)
            alone.append(np.linalg.inv(known + np.linalg.inv(sums)))
        result = [alone[-1]]
        for P, U, parents in zip(alone[-2::-1], reversed(below), tree.parents, strict=True):
            share = P @ np.linalg.inv(U)[parents]
            result.append(P - share @ (U - result[-1])[parents] @ share.transpose(0, 2, 1))
        return result

    def information(self, level, kept):
        """Return Λ: the precision of one coordinate at a unit of a level."""
        values = next(iter(self.quarters.values())).shape[1]
        result = np.zeros((values, values))
        for (quarters, asked), precision in self.precisions[level].items():
            if kept <= asked:
                rows = self.quarters[quarters]
                merged = math.prod(n for a, n in self.sizes.items() if a not in asked)
                result += precision * merged * (rows.T @ rows)
        return result


# --- the public production settings ---

SIZES = {"voting_age": 2, "hispanic": 2, "race": 63}
QUARTERS = {
    "total": np.ones((1, 8)),
    "groups": np.repeat(np.eye(3), (1, 4, 3), axis=1),  # households, institutions, other group quarters
    "types": np.eye(8),
}
TABLES = [
    (quarters, frozenset(names.split()))
    for quarters, names in (
        ("total", ""),
        ("total", "race"),
        ("total", "hispanic"),
        ("total", "voting_age"),
        ("groups", ""),
        ("types", ""),
        ("total", "hispanic race"),
        ("total", "voting_age race"),
        ("total", "voting_age hispanic"),
        ("total", "voting_age hispanic race"),
        ("types", "voting_age hispanic race"),
    )
]
RHO = 2.556
"""(542/339)², for zero-concentrated differential privacy."""
EVERY_SHARE = 4099
LEVELS = {  # the share of a level, of 4099, and those of its tables
    "state": (1440, (3773, 6, 6, 6, 6, 6, 12, 12, 6, 34, 230)),
    "county": (447, (3126, 10, 10, 10, 10, 10, 28, 28, 10, 101, 754)),
    "tract": (687, (1567, 8, 5, 5, 5, 5, 1933, 20, 5, 67, 482)),
    "block group": (1256, (1705, 3, 3, 3, 3, 3, 1055, 9, 3, 24, 1288)),
    "block": (165, (5, 9, 5, 5, 5, 5, 21, 21, 5, 71, 3945)),
}
COST = 2 * RHO * sum(share for share, _ in LEVELS.values()) / EVERY_SHARE
"""The privacy cost of the levels from state to block, if one record is added or removed."""

TOTAL = TABLES[0]
PUBLIC_COST = COST - 2 * RHO * LEVELS["state"][0] / EVERY_SHARE * LEVELS["state"][1][0] / sum(
    LEVELS["state"][1]
)
"""The same without what the state's total takes, which costs nothing if it is exact."""
NURSING = 2
"""The position of nursing facilities, which have no minors, among the types of group quarters."""
NEXT_TO_NO_NOISE = 1e7
"""The precision of a total that is exact."""


def published():
    """Return the Bureau's allocation, where one record is added or removed."""
    levels = []
    for share, tables in LEVELS.values():
        cost = 2 * RHO * share / EVERY_SHARE
        levels.append({t: cost * part / sum(tables) for t, part in zip(TABLES, tables, strict=True)})
    return Allocation(SIZES, QUARTERS, tuple(levels))


def with_public_facts():
    """Return the allocation at the same cost where one record is replaced, the state's total is exact, and
    nursing facilities have no minors. Replacing a record changes every table by two: precisions are halved.
    """
    quarters, minors = np.delete(np.indices((8, 2)).reshape(2, -1), 2 * NURSING, axis=1)
    rows = {name: matrix[:, quarters] for name, matrix in QUARTERS.items()}
    rows |= {"total voting_age": np.eye(2)[:, minors], "types voting_age": np.eye(15)}
    levels = [
        {combined(table): precision / 2 for table, precision in level.items()}
        for level in published().precisions
    ]
    levels[0][TOTAL] = NEXT_TO_NO_NOISE
    sizes = {name: size for name, size in SIZES.items() if name != "voting_age"}
    return Allocation(sizes, rows, tuple(levels))


def combined(table):
    """Return a table's name where group quarters and voting age are one attribute."""
    quarters, asked = table
    return (f"{quarters} voting_age", asked - {"voting_age"}) if "voting_age" in asked else table
