"""The Census Bureau's allocation as a tree regression, against least squares with all rows written out."""

import math

import numpy as np
import pytest
from benchmarks import bureau
from benchmarks.bureau import COST, LEVELS, TABLES, Allocation, Tree, published
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import fewer
from tests.reference import kron

QUARTERS = {"total": np.ones((1, 3)), "groups": np.array([[1.0, 0, 0], [0, 1, 1]]), "types": np.eye(3)}
SIZES = {"a": 2, "b": 3}
ASKED = [
    ("total", frozenset()),
    ("total", frozenset({"a"})),
    ("groups", frozenset({"b"})),
    ("types", frozenset()),
    ("types", frozenset(SIZES)),
]


def rows_of(table):
    """The queries of a table over group quarters × a × b."""
    quarters, asked = table
    return kron(
        [QUARTERS[quarters], *(np.eye(n) if a in asked else np.ones((1, n)) for a, n in SIZES.items())]
    )


@st.composite
def unit_levels(draw):
    """For every level the unit of every leaf: each unit has one to three parts."""
    levels = [np.zeros(1, dtype=np.int64)]
    for _ in range(2):
        parts = draw(st.lists(st.integers(1, 3), min_size=len(levels[-1]), max_size=len(levels[-1])))
        levels = [np.repeat(level, parts) for level in levels]
        levels.append(np.arange(sum(parts)))
    return levels


@fewer(25)
@given(unit_levels(), st.data())
def test_the_regression_on_the_tree_is_least_squares(levels, data):
    precision = st.floats(0.1, 10)
    measured = [
        {table: data.draw(precision) for table in ASKED if table[0] == "types" or data.draw(st.booleans())}
        for _ in levels
    ]
    tree = Tree.of_levels(levels)
    units = [np.eye(1 + int(level.max()))[level].T for level in levels]
    rows = [
        math.sqrt(precision) * np.kron(unit, rows_of(table))
        for unit, tables in zip(units, measured, strict=True)
        for table, precision in tables.items()
    ]
    stacked = np.concatenate(rows)
    covariance = np.linalg.inv(stacked.T @ stacked)
    found = Allocation(SIZES, QUARTERS, tuple(measured)).errors(tree, ASKED)
    for table in ASKED:
        for unit, errors in zip(units, found[table], strict=True):
            asked = np.kron(unit, rows_of(table))
            variances = np.einsum("ij,jk,ik->i", asked, covariance, asked).reshape(len(unit), -1)
            np.testing.assert_allclose(errors, np.sqrt(variances.max(axis=1)), rtol=1e-9)


def test_the_shares_are_those_of_the_levels():
    spent = [sum(tables.values()) for tables in published().precisions]
    assert sum(spent) == pytest.approx(COST)
    assert all(list(tables) == TABLES for tables in published().precisions)
    assert spent[0] / spent[-1] == pytest.approx(LEVELS["state"][0] / LEVELS["block"][0])


def test_with_public_facts_it_is_least_squares_over_possible_cells(monkeypatch):
    monkeypatch.setitem(bureau.SIZES, "race", 3)
    levels = [np.zeros(4, int), np.array([0, 0, 1, 1]), np.arange(4), np.arange(4), np.arange(4)]
    units = [np.eye(1 + int(level.max()))[level].T for level in levels]
    possible = np.ones((8, 2, 2, 3), bool)
    possible[bureau.NURSING, 0] = False

    def rows(table):
        quarters, asked = table
        others = (np.eye(n) if a in asked else np.ones((1, n)) for a, n in bureau.SIZES.items())
        return kron([bureau.QUARTERS[quarters], *others])[:, possible.ravel()]

    information = 0.0
    for unit, tables in zip(units, published().precisions, strict=True):
        for table, precision in tables.items():
            exact = table == bureau.TOTAL and len(unit) == 1
            factor = bureau.NEXT_TO_NO_NOISE if exact else precision / 2
            information += factor * np.kron(unit.T @ unit, rows(table).T @ rows(table))
    covariance = np.linalg.inv(information)
    found = bureau.with_public_facts().errors(Tree.of_levels(levels), list(map(bureau.combined, TABLES)))
    for table in TABLES:
        for unit, errors in zip(units, found[bureau.combined(table)], strict=True):
            asked = np.kron(unit, rows(table))
            variances = np.einsum("ij,jk,ik->i", asked, covariance, asked).reshape(len(unit), -1)
            np.testing.assert_allclose(errors, np.sqrt(variances.max(axis=1)), rtol=1e-6, atol=1e-3)


def test_what_the_total_takes_is_left_out_of_the_cost_where_it_is_exact():
    state = published().precisions[0]
    assert pytest.approx(COST - state[bureau.TOTAL]) == bureau.PUBLIC_COST
