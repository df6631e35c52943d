"""Small integer plans, whose exact cost is known, and ledgers to charge them to."""

import sqlite3
from fractions import Fraction

import numpy as np

import querysmasher as qs
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy

TENTH = Fraction(1, 8)  # exact in binary, so that eight of them are the limit
ROUNDED, DISCRETE = DISTRIBUTIONS["rounded"], DISTRIBUTIONS["discrete"]


def costing(cost, budget=None, **unit):
    """An integer plan of exactly this privacy cost: one count of each of two values."""
    cost = Fraction(cost)
    budget = budget or qs.PrivacyCost(max(float(cost) * 2, 1e-9), **unit)
    strategy = IntegerStrategy((2,), (((0,), Matrix(np.eye(2, dtype=np.int64))),))
    variance = budget.unit.change() / cost
    measured = IntegerMeasured((0,), (((0,), 0),), variance)
    return IntegerPlan(qs.Schema.of(a=2), budget, (strategy,), (measured,), 1000)


def rows(path):
    """The entries in the file of a ledger."""
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT number, content, digest FROM entries ORDER BY number").fetchall()
    connection.close()
    return found


def edit(path, *statements):
    """Change the file as somebody would who knows SQLite."""
    connection = sqlite3.connect(path)
    for name in ("unchanged", "kept"):
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    for statement, *values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()
