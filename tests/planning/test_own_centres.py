"""Centres found through the design of G + κ11ᵀ: optimal, bounded, and compared with uniform ones."""

import operator
from functools import reduce

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning import around
from querysmasher.planning.centre import Centre, uniform
from querysmasher.planning.centres import search
from querysmasher.planning.centres.model import CentreModel
from querysmasher.planning.centres.own import own_centres
from querysmasher.planning.roles import find_roles
from querysmasher.planning.centres.search import Candidates, search_centres
from querysmasher.workload.families import ONE_ATTRIBUTE
from tests.builders import COST, cube, plan_split
from tests.profiles import fewer
from tests.reference import optimal_loss


@st.composite
def one_way_of_asking(draw):
    """Workloads that ask about every attribute in one way, in products of any width, with any weights."""
    sizes = draw(st.lists(st.integers(2, 7), min_size=1, max_size=4))
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    kinds = {name: draw(st.sampled_from(["prefix", "range", "identity"])) for name in schema.names}
    asked = [
        qs.queries(schema, {name: kinds[name] for name in sorted(names)}, weight=draw(st.floats(1e-3, 1e3)))
        for names in draw(
            st.lists(st.sets(st.sampled_from(schema.names), min_size=1), min_size=1, max_size=4)
        )
    ]
    return reduce(operator.add, asked)


def model_of(workload):
    roles = find_roles(workload)
    free = [r for r in range(len(roles.sizes)) if not search._is_symmetric(roles, r)]
    return CentreModel(roles, (1, 1), free), [Centre.uniform(n) for n in roles.sizes]


@pytest.mark.slow
@fewer(30)
@given(one_way_of_asking())
@example(qs.all_kway(cube(10, 40), [1, 2], "prefix"))
def test_own_centres_are_as_good_as_a_search_on_derivatives_finds(workload):
    model, even = model_of(workload)
    assume(model.free)
    own = own_centres(model, even)
    assume(own is not None)
    first = model.at(even, tight=True)
    assert own.uniform_bound <= first.value * (1 + 1e-9)
    way = search._Way(even, sorted(model.free))
    searched = model.at(way.at(search._minimise(model, way, first).x), tight=True).value
    assert model.at(own.centres, tight=True).value <= searched * (1 + 2e-5)


@pytest.mark.parametrize("family", ["prefix", "range"])
def test_on_one_attribute_own_centres_reach_the_optimum_of_all_mechanisms(family):
    model, even = model_of(qs.all_kway(cube(9, 1), 1, family))
    found = model.at(own_centres(model, even).centres, tight=True).value
    gram = ONE_ATTRIBUTE[family].of(9).gram()
    assert found == pytest.approx(np.sqrt(optimal_loss(gram, np.eye(9))), rel=2e-5)


@pytest.mark.parametrize(
    "workload",
    [
        qs.all_kway(cube(5, 2), [1, 2], "prefix") + qs.all_kway(cube(5, 2), 1, "range"),
        qs.affine(cube(5, 2), "a0", "a1"),
        qs.queries(cube(5, 1), {"a0": [[1, 1, 0, 0, 0]]}),
    ],
    ids=["two families", "joint", "rows"],
)
def test_other_ways_of_asking_are_left_to_the_search(workload):
    assert own_centres(*model_of(workload)) is None


def test_a_total_that_is_not_measured_is_left_to_the_search():
    roles = find_roles(qs.all_kway(cube(6, 1), 1, "prefix"))
    assert own_centres(CentreModel(roles, (0, 1)), [Centre.uniform(6)]) is None


@pytest.mark.parametrize(("share", "is_uniform"), [(2.0, False), (0.5, True)])
def test_a_plan_above_the_bound_is_compared_with_the_uniform_one(share, is_uniform, monkeypatch):
    """Centres far off the mark: they are kept only if the bound says that uniform ones are worse."""
    workload = qs.all_kway(cube(6, 1), 1, "prefix")
    bad = Centre.ratio(np.array([30, 1, 1, 1, 1, 1]))
    bound = share * np.sqrt(qs.plan(workload, COST, centering="uniform").weighted_loss)
    found = Candidates((uniform(workload.schema), (bad,)), is_proven=False, uniform_bound=bound)
    monkeypatch.setattr(around, "search_centres", lambda *_, **__: found)
    assert plan_split(workload).centres[0].is_uniform == is_uniform


def test_plans_start_from_the_weights_that_the_search_found(limit_planning):
    limit_planning(light_cells=0)  # as on many values
    (centre,) = search_centres(qs.all_kway(cube(40, 1), 1, "prefix"), COST).centres[-1]
    assert centre.start is not None
    assert centre.integers is not None
    assert centre == Centre(centre.weights)
    told = []
    block = _block(centre)
    solve = planner_solve(block, told)
    assert solve.gap <= 2.5e-6
    plain = []
    planner_solve(_block(Centre.ratio(centre.integers)), plain)
    assert len(told) < len(plain)


def _block(centre):
    from querysmasher.planning.split import split_gram
    from querysmasher.planning.subworkload import Block, Part

    n = len(centre)
    return Block.of(Part((n,), (centre,), split_gram(ONE_ATTRIBUTE["prefix"].of(n).gram(), centre)[1]))


def planner_solve(block, told):
    from querysmasher.planning.solvers.dense import solve_dense

    return solve_dense(block, 1e-4, told.append)
