"""Blocks of workloads to solve, and all that a solution of one claims about itself."""

import math

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.planning.centre import uniform
from querysmasher.planning.split import Block, Decomposer, separate
from tests.reference import loss, strategy_rows, terms_gram


def problems(workload, centres=None):
    """The blocks of every subworkload, each with its attributes."""
    schema = workload.schema
    decomposer = Decomposer(schema, centres or uniform(schema))
    found = []
    for s in decomposer.decompose(workload.groups):
        _, blocks = separate(s.terms)
        found += [(block, [s.attributes[a] for a in axes]) for axes, block in blocks]
    return found


def last_block(workload, centres=None):
    """The block of the largest attribute set."""
    return problems(workload, centres)[-1][0]


def kronecker_sum(n, *terms):
    """A block on two attributes of n values: coefficient × family ⊗ family, summed; never split."""
    schema = qs.Schema.of(a=n, b=n)
    decomposer = Decomposer(schema, uniform(schema))
    subworkloads = decomposer.decompose(
        tuple(g for c, f in terms for g in (c * qs.queries(schema, a=f, b=f)).groups)
    )
    return Block((n, n), subworkloads[-1].terms)


def check_solution(solution, block):
    """Check everything a solution claims about itself, and return the Gram matrix of the block."""
    gram = terms_gram(block.shape, block.terms)
    rows = strategy_rows(solution.strategy)
    assert solution.strategy.shape == block.shape
    assert (rows**2).sum(axis=0).max() == pytest.approx(1.0, abs=1e-9)
    projector = np.linalg.pinv(rows, rcond=1e-9) @ rows
    np.testing.assert_allclose(projector @ gram, gram, atol=1e-6 * np.abs(gram).max())
    assert math.sqrt(loss(gram, rows)) == pytest.approx(solution.reached, rel=1e-6)
    assert solution.bound <= solution.reached * (1 + 1e-12)
    assert solution.gap == pytest.approx(solution.reached / solution.bound - 1)
    return gram
