"""Which solver is chosen for which block, and blocks solved in parallel."""

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import TooLargeError
from querysmasher.planning.mechanisms import solve_blocks
from querysmasher.planning.solvers import solve
from tests.builders import COST, plan_split, plan_uniform
from tests.planning.blocks import problems


def methods(plan):
    return {
        len(plan.solutions[n].strategy.shape): plan.solutions[n].method
        for m in plan.measured
        for _, n in m.blocks
    }


@pytest.mark.slow
def test_the_solver_follows_the_table():
    schema = qs.Schema.of(a=70, b=60)
    marginal, prefix = qs.marginals(schema, 2), qs.all_kway(schema, 2, "prefix")
    assert methods(plan_uniform(marginal + qs.all_kway(schema, 2, "circular"), COST)) == {
        1: "circulant",
        2: "circulant",
    }
    assert methods(plan_uniform(prefix, COST)) == {1: "dense"}  # a product: solved attribute by attribute
    assert methods(plan_uniform(qs.abs_difference(schema, "a", "b"), COST)) == {
        1: "dense",
        2: "dense",
    }  # thin
    large = plan_uniform(marginal + prefix, COST)  # 4,200 cells
    assert methods(large) == {1: "dense", 2: "structured"}
    assert large.gap > 0


def test_the_solver_can_be_chosen():
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix")
    default = plan_uniform(workload, COST)
    structured = plan_uniform(workload, COST, solver="structured")
    assert (
        methods(default) == methods(plan_uniform(workload, COST, solver="dense")) == {1: "dense", 2: "dense"}
    )
    assert methods(structured) == {1: "dense", 2: "structured"}
    assert default.rmse <= structured.rmse <= 1.02 * default.rmse
    assert default.rmse >= structured.rmse / (1 + structured.gap)


def test_large_blocks_keep_a_product_basis_that_is_near_enough(limit_planning):
    schema = qs.Schema.of(a=30, b=18)
    workload = qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix")
    quick = plan_uniform(workload, COST)
    assert methods(quick) == {1: "dense", 2: "structured"}
    joint = plan_uniform(qs.affine(schema, "a", "b"), COST)  # no product basis comes near
    assert methods(joint)[2] == "dense"
    assert methods(plan_uniform(workload, COST, tolerance=1e-5)) == {1: "dense", 2: "dense"}
    limit_planning(bounded_cells=540)
    dense = plan_uniform(workload, COST)
    assert methods(dense) == {1: "dense", 2: "dense"}
    assert dense.rmse <= quick.rmse <= 1.004 * dense.rmse


@pytest.mark.parametrize(
    ("limits", "solver", "words"),
    [
        ({"dense_cells": 20, "structured_cells": 29}, "optimal", ["30 cells", "the 29", "solver 'optimal'"]),
        ({"structured_cells": 29}, "structured", ["30 cells", "the 29", "solver 'structured'"]),
        ({"dense_cells_forced": 29}, "dense", ["30 cells", "the 29", "solver 'dense'"]),
    ],
)
def test_what_no_solver_takes_is_refused_with_its_size_and_remedies(
    limits, solver, words, limit_planning, refuses
):
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix")
    limit_planning(**limits)
    with refuses(
        TooLargeError,
        ValueError,
        "sizes (6, 5)",
        "2 families",
        "coarser",
        "fewer attributes",
        "one family",
        *words,
    ):
        plan_uniform(workload, COST, solver=solver)


def test_the_real_limit_of_the_dense_solver_is_twelve_thousand_cells(refuses):
    schema = qs.Schema.of(a=110, b=110)
    workload = qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix")
    with refuses(TooLargeError, ValueError, "12,100 cells", "12,000"):
        plan_uniform(workload, COST, solver="dense")


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize(
    "asked",
    [
        lambda s: qs.queries(s, a="prefix"),
        lambda s: qs.marginals(s, 2) + qs.queries(s, a="range"),
        lambda s: qs.queries(s, a=np.eye(40)[:21], b="identity"),
        lambda s: qs.marginals(s, 1) + qs.queries(s, a=np.eye(40)[:2]),
    ],
)
def test_an_attribute_that_is_too_large_is_refused_before_any_work(
    asked, centering, limit_planning, refuses, monkeypatch
):
    from querysmasher.planning import allocation

    limit_planning(axis_values=39)
    monkeypatch.setattr(allocation, "search_centres", lambda *_, **__: pytest.fail("searched"))
    monkeypatch.setattr(allocation, "plan_at", lambda *_: pytest.fail("planned"))
    workload = asked(qs.Schema.of(a=40, b=3))
    with refuses(TooLargeError, ValueError, "'a' has 40 values", "up to 39", "coarser"):
        qs.plan(workload, COST, centering=centering)


def test_many_values_are_no_obstacle_to_what_looks_alike_from_each_or_is_little(limit_planning, refuses):
    limit_planning(axis_values=300, closed_form_values=400)
    schema = qs.Schema.of(a=400, b=3)
    plan_uniform(qs.marginals(schema, 2) + qs.queries(schema, a="circular"), COST)
    plan_uniform(qs.where(schema, "a < 100 and b == 1") + qs.queries(schema, a=np.eye(400)[:3]), COST)
    larger = qs.marginals(qs.Schema.of(a=401, b=3), 2)
    with refuses(TooLargeError, ValueError, "'a' has 401 values", "up to 400"):
        plan_uniform(larger, COST)


# --- in parallel -------------------------------------------------------------------------------


def test_solutions_come_in_the_order_of_the_blocks_also_in_parallel(limit_planning):
    schema = qs.Schema.of({f"a{n}": n for n in range(2, 9)})
    found = problems(qs.all_kway(schema, 1, "prefix"))
    blocks = [block for block, _ in found]
    for light in (300, 5, 0):
        limit_planning(light_cells=light)
        expected = [solve(block, 1e-3).reached for block in blocks]
        assert len(set(expected)) == 7
        solutions = solve_blocks(blocks, 1e-3, solve)
        assert [s.strategy.shape for s in solutions] == [b.shape for b in blocks]
        assert [s.reached for s in solutions] == pytest.approx(expected)


def test_few_queries_on_many_cells_are_written_out_up_to_an_amount_of_work(limit_planning):
    limit_planning(dense_cells=20, joint_dense_cells=20)
    few = qs.random_queries(qs.Schema.of(a=6, b=5), ("a", "b"), 5, seed=1)
    plan = plan_split(few, centering="uniform")
    assert {block.method for block in plan.methods} == {"dense"}
    limit_planning(thin_work=0)
    other = plan_split(few, centering="uniform")
    assert "dense" not in {block.method for block in other.methods if len(block.sizes) > 1}
    assert plan.weighted_loss < 0.95 * other.weighted_loss


def test_queries_that_all_tie_attributes_are_written_out_beyond_the_usual_limit(limit_planning):
    """No product basis comes near the optimum of random rows."""
    limit_planning(dense_cells=20, joint_dense_cells=30)
    schema = qs.Schema.of(a=6, b=5)
    random = qs.random_queries(schema, ("a", "b"), 20, seed=1)
    plan = plan_split(random)
    assert {block.method for block in plan.methods} == {"dense"}
    assert plan.gap < 1e-3
    assert plan.weighted_loss <= plan_split(random, centering="uniform").weighted_loss * (1 + 1e-9)
    tables = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    assert "structured" in {block.method for block in plan_split(tables).methods}
