"""Prefixes whose weights differ wildly: near the optimum, by triangles, against dense references."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.large.gram import LineGram
from querysmasher.planning.large.line import solve_line
from querysmasher.planning.large.path import Path
from querysmasher.planning.limits import limited
from querysmasher.planning.objectives.rounded import as_measured
from querysmasher.planning.strategies import TriangleStrategy
from querysmasher.workload.families import Circular, Identity, Prefix, Range
from querysmasher.workload.weighted import weighted
from tests.builders import COST


def weights(kind, n, seed=0):
    """Weights of prefixes, independent of each other."""
    rng = np.random.default_rng(seed)
    return {
        "lognormal": lambda: np.exp(2 * rng.standard_normal(n)),
        "half": lambda: np.where(rng.random(n) < 0.5, 100.0, 1.0),
        "few": lambda: np.where(rng.random(n) < 0.03, 1000.0, 1.0),
        "absent": lambda: np.where(rng.random(n) < 0.3, 1.0, 0.0) + (np.arange(n) == 0),
        "pareto": lambda: rng.pareto(1.0, n) + 0.01,
    }[kind]()


KINDS = ("lognormal", "half", "few", "absent", "pareto")


def optimum(dense, steps=150):
    """Return a lower bound on the least loss, which it approaches, by eigenvalue decompositions."""
    n = len(dense)
    p, best = np.full(n, 1 / n), 0.0
    for _ in range(steps):
        values, vectors = np.linalg.eigh(np.sqrt(np.outer(p, p)) * dense)
        root = vectors**2 @ np.sqrt(np.maximum(values, 0.0))
        best = max(best, float(root.sum()))
        p = root / root.sum()
    return best**2


@settings(max_examples=15, deadline=None)
@given(
    st.integers(2, 40),
    st.sampled_from(KINDS),
    st.sampled_from([None, "identity", "range", "circular"]),
    st.sampled_from([0.0, 30.0]),
    st.integers(0, 3),
)
def test_rough_weights_are_planned_near_the_optimum_and_certified(n, kind, beside, total, seed):
    """The loss is that of the rows written out, the bound is below the optimum, and both are close to it."""
    asked = [(weighted(Prefix((n,)), weights(kind, n, seed)), 1.0)]
    if beside:
        other = {"identity": Identity, "range": Range, "circular": Circular}[beside]((n,))
        asked.append((other, 1.0 if beside == "identity" else 5 / n))
    dense = sum(c * f.gram() for f, c in asked) + total
    found = solve_line(LineGram.of(n, asked, total))
    rows = found.strategy.written_out()
    gram = rows.T @ rows
    assert np.diag(gram).max() == pytest.approx(1.0, rel=1e-9)
    assert found.loss == pytest.approx(np.trace(dense @ np.linalg.inv(gram)), rel=1e-6)
    least = optimum(dense)
    assert found.bound <= least * 1.004  # the reference is a lower bound, too, within less than this
    assert math.sqrt(found.loss / least) - 1 <= 0.006
    assert math.sqrt(found.loss / found.bound) - 1 <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rough_weights_of_thousands_of_values_as_measured(kind):
    """A single filter is 2 to 6% above the optimum; a triangle is not, in integers as well."""
    n = 2_500
    schema = qs.Schema.of(a=n)
    weigh = weights(kind, n)
    asked = np.flatnonzero(weigh)
    workload = qs.queries(schema, a=qs.ranges(schema, "a", 0, asked, weigh[asked]))
    plan = qs.plan(workload, COST)
    assert [method.method for method in plan.methods] == ["triangle"]
    assert plan.gap < 0.005
    measured = weigh[asked] @ as_measured(plan, 10**8).variances(workload)
    assert math.sqrt(measured / plan.weighted_loss) - 1 < 0.003


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 60), st.data())
def test_variances_of_ranges_under_a_triangle(n, data):
    strategy = _random(n, data)
    rows = strategy.written_out()
    inverse = np.linalg.inv(rows.T @ rows)
    first = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)))
    last = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=len(first), max_size=len(first))))
    for start, end in (
        (np.minimum(first, last), np.maximum(first, last)),
        (first, last),
    ):  # or around the end
        queries = np.zeros((len(start), n))
        for row, a, b in zip(queries, start, end, strict=True):
            if a <= b:
                row[a : b + 1] = 1
            else:
                row[a:] = row[: b + 1] = 1
        expected = np.einsum("ij,jk,ik->i", queries, inverse, queries)
        np.testing.assert_allclose(strategy.of_line.of_spans(start, end), expected, rtol=1e-8)
    for family in (Prefix((n,)), Identity((n,)), Range((n,)), Circular((n,))):
        expected = np.trace(family.gram() @ inverse)
        assert strategy.loss(family) == pytest.approx(expected, rel=1e-8)


def _random(n, data):
    width = data.draw(st.integers(1, n))
    levels = max(0, (-(-n // width) - 1).bit_length())
    width = -(-n // (1 << levels))
    ranks = tuple(data.draw(st.lists(st.integers(0, 3), min_size=levels, max_size=levels)))
    rng = np.random.default_rng(n)
    near, place = 0.3 * rng.standard_normal((n, width)), np.arange(n)
    near[place[:, None] % width < np.arange(width)] = 0.0
    near[place, place % width] = 1 + rng.random(n)
    return TriangleStrategy(near, 0.2 * rng.standard_normal((n, sum(ranks))), ranks)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_bounds_hold_where_weights_are_too_small_for_recurrences(share):
    """Weights are raised for the recurrences; what this adds to a bound is subtracted."""
    n = 40
    rng = np.random.default_rng(1)
    weigh = np.where(rng.random(n) < share, 1.0, 1e-14) + (np.arange(n) == 7)
    values = np.full(n, 1e-3)
    gram = LineGram.of(n, [(weighted(Prefix((n,)), weigh), 1.0), (weighted(Identity((n,)), values), 1.0)])
    path = gram.path()
    assert isinstance(path, Path)
    assert path.added > 0
    dense = Prefix((n,)).matrix().T @ (weigh[:, None] * Prefix((n,)).matrix()) + np.diag(values)
    p = np.full(n, 1 / n)
    root = np.sqrt(np.maximum(np.linalg.eigvalsh(dense / n), 0.0)).sum()
    assert path.root_diagonal(p).sum() - path.surplus <= root * (1 + 1e-9)
    assert path.root_diagonal(p).sum() - path.surplus >= 0.98 * root


@pytest.mark.slow
def test_a_triangle_is_measured_saved_and_answered(tmp_path):
    """Errors in standard errors, of disjoint ranges: false alarms once in a thousand seeds."""
    n = 6_000
    schema = qs.Schema([qs.Ordinal("a", range(n)), qs.Categorical("sex", ["F", "M"])])
    family = qs.ranges(schema, "a", 0, np.arange(n), weights("half", n))
    workload = qs.queries(schema, {"a": family, "sex": "identity"}) + qs.queries(schema, a=family)
    plan = qs.plan(workload, COST)
    assert "triangle" in [method.method for method in plan.methods]
    plan.save(tmp_path / "x.plan")
    plan = qs.Plan.load(tmp_path / "x.plan")
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"a": rng.integers(0, n, 20_000), "sex": rng.choice(["F", "M"], 20_000)})
    qs.measure(plan, frame, seed=7).save(tmp_path / "x.release")
    release = qs.Release.load(tmp_path / "x.release")
    ends = np.arange(0, n, 10)
    asked = qs.ranges(schema, "a", ends[:-1] + 1, ends[1:])
    answers = release.answer(qs.queries(schema, {"a": asked, "sex": "identity"}))
    counts = np.stack([np.bincount(frame.a[frame.sex == sex], minlength=n) for sex in "FM"])
    truth = np.diff(counts.cumsum(axis=1)[:, ends], axis=1).T.ravel()
    white = (answers.values - truth) / answers.std
    assert abs((white**2).mean() - 1) < 3.3 * np.sqrt(2 * 2 / white.size)  # some are correlated
    predicted = plan.variances(qs.queries(schema, {"a": asked, "sex": "identity"}))
    np.testing.assert_allclose(answers.std, np.sqrt(predicted), rtol=0.02)


def test_very_many_values_keep_to_filters():
    with limited(triangle_values=3_000):
        schema = qs.Schema.of(a=3_001)
        plan = qs.plan(
            qs.queries(schema, a=qs.ranges(schema, "a", 0, np.arange(3_001), weights("half", 3_001))), COST
        )
    assert [method.method for method in plan.methods] == ["mirrored"]
