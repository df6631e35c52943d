"""Plans with exact counts of groups of values: how accurate they are, and what they refuse."""

import math

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import BudgetError, PlanError
from querysmasher.planning import candidates
from querysmasher.planning.limits import limited
from tests.builders import COST, classes_of_groups, grouped
from tests.planning.drawn import SEEDS, drawn
from tests.reference import (
    PUBLIC,
    estimates,
    marginal_map,
    mechanism,
    pair_bounds,
    query_rows,
    split_map,
    subsets,
)


def random_exact(seed, schema):
    """Random groups of an attribute of three or more values, by at most one other attribute."""
    random = np.random.default_rng([seed, 3])
    name = max(schema, key=lambda a: (a.size, random.random())).name
    others = [n for n in schema.names if n != name and schema[n].size > 1]
    by = random.permutation(others)[: random.integers(0, 2)].tolist()
    size = schema[name].size
    groups = random.permutation(np.append(random.integers(0, size - 1, size - 2), [0, 1]))
    return grouped(schema, name, groups, *by), name, groups, by


BOUNDED = {
    "whole": {},
    "split, for pairs of cells": {"coupled_gap": 0.0},
    "split, for pairs of values": {"coupled_gap": 0.0, "paired_cells": 5},
}
"""How plans measure queries, and for which pairs their bounds are found."""


def public_rows(classes):
    """What is public, almost without noise."""
    return np.eye(classes.max() + 1)[:, classes] / math.sqrt(PUBLIC)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "how"), list(zip(SEEDS[:18], [*BOUNDED] * 6, strict=True)))
def test_random_plans_are_as_accurate_as_they_say_and_near_the_best_of_their_kind(seed, how, monkeypatch):
    workload, _ = drawn(seed)
    schema = workload.schema
    if max(schema.sizes) < 3:
        return
    if how != "whole":
        monkeypatch.setattr(candidates, "merged_groups", lambda *_: None)
    exact, name, groups, by = random_exact(seed, schema)
    try:
        with limited(**BOUNDED[how]):
            plan = qs.plan(workload, COST, exact=exact)
    except PlanError as error:
        assert "nothing to measure" in str(error)  # noqa: PT017 - one exact table leaves nothing unprotected
        return
    classes = classes_of_groups(schema, name, groups, by)
    rows, (queries, weights) = mechanism(plan), query_rows(workload)
    found = plan.variances(workload)
    expected = (estimates(queries, np.concatenate([rows, public_rows(classes)])) ** 2).sum(axis=1)
    close = 1e-6 * found.max() + 1e3 * PUBLIC * (queries**2).sum(axis=1)
    assert np.all(np.abs(found - expected) <= 1e-5 * expected + close)
    assert weights @ found == pytest.approx(plan.weighted_loss, rel=1e-6)
    means = (classes[:, None] == classes) / np.bincount(classes)[classes]
    follows = np.abs(queries - queries @ means).max(axis=1) < 1e-9 * np.abs(queries).max(axis=1)
    np.testing.assert_array_equal(found[follows], 0.0)
    assert np.all(found[~follows] > 0)
    gram = rows.T @ rows
    squares = np.diagonal(gram)
    costs = squares[:, None] + squares[None, :] - 2 * gram
    assert costs[classes[:, None] == classes].max() <= 1 + 1e-6
    known = plan.budget.unit.known(schema)
    parts, scaled = [], queries * np.sqrt(weights)[:, None]
    for kept in subsets(range(len(schema))):
        if plan.whole or kept in known:
            continue
        part = scaled @ split_map(schema, plan.centres, kept) @ marginal_map(schema, kept)
        if known.partly(kept) is not None:
            part = part - part @ means
        sure = np.linalg.norm(part, axis=1) > 1e-9 * np.linalg.norm(scaled, axis=1)
        parts += [part[sure]] * bool(sure.any())
    low, high = pair_bounds(parts or [scaled], classes=classes)
    assert math.sqrt(plan.certificate.bound) <= high * (1 + 1e-6)
    assert math.sqrt(plan.certificate.value) >= low * (1 - 1e-6)


@pytest.mark.parametrize(
    ("size", "parts", "family", "gap"),
    [
        (60, 15, "identity", 1e-3),
        (60, 4, "identity", 1e-3),
        (320, 40, "identity", 1e-3),
        (305, 5, "prefix", 0.2),
    ],
)
def test_values_of_even_groups_are_measured_as_if_every_group_were_all_there_is(size, parts, family, gap):
    """The optimum over all mechanisms, though certified closely only where values look alike."""
    schema, groups = qs.Schema.of(a=size), np.arange(size) * parts // size
    plan = qs.plan(qs.queries(schema, a=family), COST, exact=grouped(schema, "a", groups))
    one = qs.Schema.of(a=size // parts)
    alone = qs.plan(qs.queries(one, a=family), qs.PrivacyCost(1.0, neighbours="replace_one"))
    assert plan.rmse == pytest.approx(alone.rmse, rel=1e-3 if family == "identity" else 0.1)
    assert plan.gap < gap


def test_small_groups_beside_large_ones_do_not_raise_errors():
    schema, groups = qs.Schema.of(a=120), np.repeat([0, 1, 2], [116, 2, 2])
    plan = qs.plan(qs.marginals(schema, 1), COST, exact=grouped(schema, "a", groups))
    without = qs.plan(qs.marginals(schema, 1), qs.PrivacyCost(1.0, neighbours="replace_one"))
    assert plan.rmse < without.rmse


def test_errors_fall_and_certificates_draw_pairs_of_values_of_one_group():
    """Values drawn independently leave gaps of 6 and 4%, and uniform centres raise the second error."""
    schema = qs.Schema.of(block=60, age=30, sex=2)
    workload = qs.all_kway(schema, [1, 2], {"block": "identity", "age": "prefix", "sex": "identity"})
    without = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one"))
    for exact in (grouped(schema, "block", np.arange(60) // 12), grouped(schema, "age", np.arange(30) // 10)):
        plan = qs.plan(workload, COST, exact=exact)
        assert plan.rmse < without.rmse
        assert plan.gap < 0.03


@pytest.mark.parametrize("centering", ["optimized", "uniform"])
def test_targets_and_largest_errors_with_groups(centering):
    schema = qs.Schema.of(state=3, age=5)
    workload, exact = qs.all_kway(schema, [1, 2], "prefix"), qs.where(schema, "age < 2")
    options = {"exact": exact, "centering": centering}
    worst = qs.plan(workload, COST, objective="worst", **options)
    assert worst.worst <= qs.plan(workload, COST, **options).worst * (1 + 1e-9)
    assert worst.worst == pytest.approx(math.sqrt(worst.variances(workload).max()), rel=1e-6)
    least = qs.least_budget(workload.within(10), **options)
    assert math.sqrt(least.variances(workload).max()) <= 10 * (1 + 1e-6)
    without = qs.least_budget(workload.within(10), neighbours="replace_one", centering=centering)
    assert least.privacy_cost < without.privacy_cost


SCHEMA = qs.Schema.of(state=4, sex=2, age=6)
YOUNG = qs.where(SCHEMA, "age < 2")


@pytest.mark.parametrize(
    ("exact", "options", "message"),
    [
        (
            YOUNG + qs.marginals(SCHEMA, ["age"]),
            {},
            "or their groups in one way.*publish the finer counts only",
        ),
        (YOUNG + qs.where(SCHEMA, "age < 3"), {}, "expected the values of 'age', or their groups in one way"),
        (YOUNG + qs.marginals(SCHEMA, ["state"]), {}, "publish one table of all these"),
        (
            qs.queries(SCHEMA, age=[[1, 1, 0, 0, 0, 0]], sex="identity"),
            {},
            "or that of every group of values",
        ),
        (qs.affine(SCHEMA, "age", "sex") + YOUNG, {}, "or that of every group of values"),
        (YOUNG, {"mechanism": "residual"}, "mechanism: expected 'querysmasher' or 'whole'.*got 'residual'"),
        (
            YOUNG,
            {"purpose": "estimate"},
            "purpose: expected 'answers', as groups of values have exact counts",
        ),
    ],
)
def test_what_is_refused(exact, options, message):
    with pytest.raises((PlanError, BudgetError), match=message):
        qs.plan(qs.marginals(SCHEMA, 2), COST, exact=exact, **options)


def test_a_plan_with_exact_groups_is_saved_and_loaded(tmp_path):
    plan = qs.plan(qs.marginals(SCHEMA, [1, 2]), COST, exact=YOUNG)
    plan.save(tmp_path / "p.plan")
    loaded = qs.Plan.load(tmp_path / "p.plan")
    assert loaded.budget == plan.budget
    assert "the same group of age (age < 2 / not (age < 2))" in loaded.budget.describe()
    np.testing.assert_array_equal(loaded.variances(plan.workload), plan.variances(plan.workload))
