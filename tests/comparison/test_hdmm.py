"""HDMM's templates against strategies over the whole table, written out, and its published figures."""

import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.comparison.hdmm import TEMPLATES, hdmm
from tests.profiles import fewer
from tests.reference import query_rows

FAMILIES = ("identity", "prefix", "range", "circular")


@st.composite
def workloads(draw):
    schema = qs.Schema.of(a=draw(st.integers(1, 4)), b=draw(st.integers(2, 4)), c=2)
    workload = qs.all_kway(
        schema, draw(st.sampled_from([1, [1, 2], [0, 2], 3])), draw(st.sampled_from(FAMILIES))
    )
    if draw(st.booleans()):
        family = draw(st.sampled_from(FAMILIES))
        workload = workload + qs.queries(schema, b=family, c="prefix", weight=draw(st.integers(2, 9)))
    return workload


def errors_of(workload, V):
    """The errors of a strategy over the whole table, once scaled to unit sensitivity."""
    rows, weights = query_rows(workload)
    inverse = np.linalg.pinv(V / np.diagonal(V).max(), rcond=1e-10, hermitian=True)
    variances = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    return float(weights @ variances), float(variances.max())


@pytest.mark.slow
@fewer(20)
@given(workload=workloads())
def test_no_template_beats_the_limit_of_all_mechanisms(workload):
    rows, weights = query_rows(workload)
    gram = (rows.T * weights) @ rows
    cells = len(gram)
    spectrum = np.linalg.eigvalsh(gram / cells)
    roots = np.sqrt(spectrum[spectrum > 1e-12 * spectrum.max()])  # a zero, rounded, has no small root
    for template in TEMPLATES:
        found = hdmm(workload, template)
        assert found.weighted_loss >= roots.sum() ** 2 * (1 - 1e-9)
        assert found.worst * workload.query_count * weights.max() >= found.weighted_loss * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 1000))
def test_kronecker_is_no_worse_than_other_products(workload, seed):
    found = hdmm(workload, "kronecker")
    rng = np.random.default_rng(seed)
    for _ in range(3):
        rows = [rng.normal(size=(n, n)) + 2 * np.eye(n) for n in workload.schema.sizes]
        V = reduce(np.kron, [r.T @ r / (r**2).sum(axis=0).max() for r in rows])
        assert found.weighted_loss <= errors_of(workload, V)[0] * (1 + 1e-6)
    identity = errors_of(workload, np.eye(math.prod(workload.schema.sizes)))
    assert found.weighted_loss <= identity[0] * (1 + 1e-6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 1000))
def test_marginals_are_no_worse_than_other_weights(workload, seed):
    found = hdmm(workload, "marginals")
    rng = np.random.default_rng(seed)
    sizes = workload.schema.sizes
    subsets = [[bits >> a & 1 for a in range(3)] for bits in range(8)]
    for _ in range(5):
        theta = rng.dirichlet(np.full(8, 0.5))
        V = sum(
            t
            * reduce(
                np.kron, [np.eye(n) if kept else np.ones((n, n)) for n, kept in zip(sizes, s, strict=True)]
            )
            for t, s in zip(theta, subsets, strict=True)
        )
        assert found.weighted_loss <= errors_of(workload, V)[0] * (1 + 1e-4)


def test_a_union_of_one_product_is_that_products_optimum():
    schema = qs.Schema.of(a=5, b=4)
    workload = qs.queries(schema, a="prefix", b="range")
    union, kronecker = hdmm(workload, "union"), hdmm(workload, "kronecker")
    assert union.weighted_loss == pytest.approx(kronecker.weighted_loss, rel=1e-5)
    assert union.worst == pytest.approx(kronecker.worst, rel=1e-3)


def test_terms_of_a_union_share_the_budget_by_their_roots():
    schema = qs.Schema.of(a=5, b=4)
    one, two = qs.queries(schema, a="prefix"), qs.queries(schema, b="range", weight=3.0)
    both = hdmm(one + two, "union").weighted_loss
    single = [hdmm(w, "union").weighted_loss for w in (one, two)]
    assert both == pytest.approx((math.sqrt(single[0]) + math.sqrt(single[1])) ** 2)


def rmse(workload, template):
    return math.sqrt(hdmm(workload, template).weighted_loss / workload.query_count)


@pytest.mark.slow
def test_published_figures():
    from benchmarks.schemas import cube, hybrid, one_and_two_way

    assert rmse(one_and_two_way(10, "prefix"), "kronecker") == pytest.approx(52.354, rel=2e-3)
    assert rmse(hybrid("cps", "<=3"), "kronecker") == pytest.approx(8.623, rel=2e-3)
    assert rmse(hybrid("cps", "1"), "union") == pytest.approx(3.347, rel=2e-3)
    assert rmse(hybrid("cps", "2"), "union") == pytest.approx(6.625, rel=2e-3)
    assert rmse(qs.marginals(cube(10, 10), [1, 2, 3]), "marginals") == pytest.approx(9.628, rel=2e-3)
    assert rmse(qs.marginals(cube(10, 10), [1, 2, 3]), "kronecker") == pytest.approx(15.44, rel=2e-3)


@pytest.mark.parametrize(
    ("workload", "template", "message"),
    [
        (qs.affine(qs.Schema.of(a=3, b=3), "a", "b"), "kronecker", "is not one"),
        (qs.marginals(qs.Schema.of(a=3), 1), "tree", "expected one of kronecker, union, marginals"),
        (qs.marginals(qs.Schema.of({f"a{i}": 2 for i in range(15)}), 1), "marginals", "at most 14"),
    ],
)
def test_what_it_cannot_take_is_refused(workload, template, message):
    with pytest.raises(qs.QuerySmasherError, match=message):
        hdmm(workload, template)
