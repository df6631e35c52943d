"""The optimum of blocks whose queries treat many values alike, against dense optima of all cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.centring import search_centres
from querysmasher.planning.limits import limited
from querysmasher.planning.solvers.bounds import exchangeable_bound, lower_bound
from querysmasher.planning.solvers.optimum import solve_dense
from querysmasher.planning.solvers.structured import solve_structured
from tests.builders import COST
from tests.planning.solvers.test_optimum import last_block, problems
from tests.profiles import fewer


def groups_of(sizes):
    """Rows that count groups of so many values each."""
    return np.repeat(np.eye(len(sizes)), sizes, axis=1)


@st.composite
def tables(draw):
    """Products of counts of single values and of groups of values, on two or three attributes."""
    attributes = draw(st.integers(2, 3))
    sizes = [draw(st.lists(st.integers(1, 3), min_size=2, max_size=3)) for _ in range(attributes)]
    schema = qs.Schema.of(**{f"a{i}": sum(own) for i, own in enumerate(sizes)})
    options = [["identity", groups_of(own), groups_of(own)[:1]] for own in sizes]
    workload = None
    for _ in range(draw(st.integers(1, 4))):
        chosen = [own[draw(st.integers(0, 2))] for own in options]
        weight = draw(st.sampled_from([0.1, 1.0, 5.0]))
        product = weight * qs.queries(schema, dict(zip(schema.names, chosen, strict=True)))
        workload = product if workload is None else workload + product
    return workload


@fewer(40)
@given(tables())
def test_the_optimum_is_that_of_all_cells(workload):
    for block, _ in problems(workload):
        bound = exchangeable_bound(block)
        optimum = solve_dense(block, 1e-4)
        assert bound <= optimum.reached * (1 + 1e-7)
        assert bound >= optimum.bound * (1 - 0.005)


def census_block():
    """Ten races, of which seven are counted in detail only among adults, by thirty ages."""
    schema = qs.Schema.of(race=10, age=30)
    adults = np.arange(30)[None] >= 12
    races, ages = groups_of([1, 1, 1, 7]), groups_of([4, 4, 4, 6, 6, 6])
    return last_block(
        qs.queries(schema, race=races, age="identity")
        + qs.queries(schema, race=races, age=ages)
        + qs.queries(schema, race="identity", age=adults.astype(float))
    )


def test_the_optimum_of_a_census_table_is_found_on_few_kinds_of_cells():
    block = census_block()
    optimum = solve_dense(block, 1e-4)
    with limited(bounded_cells=2 * 6):
        assert exchangeable_bound(block) == pytest.approx(optimum.bound, rel=1e-4)
        assert lower_bound(block) == exchangeable_bound(block)
        assert solve_structured(block, 1e-3).gap < 0.01
    with limited(bounded_cells=2 * 6 - 1):
        assert exchangeable_bound(block) is None


def test_queries_that_tie_attributes_have_no_such_optimum():
    schema = qs.Schema.of(a=4, b=4)
    assert (
        exchangeable_bound(last_block(qs.affine(schema, "a", "b") + qs.all_kway(schema, 2, "prefix"))) is None
    )


def test_values_that_no_query_distinguishes_get_the_same_share_of_a_centre():
    schema = qs.Schema.of(age=40, race=12)
    ages = groups_of([1] * 20 + [10, 10])
    workload = qs.queries(schema, age=ages, race=groups_of([1, 1, 10])) + qs.queries(schema, race="identity")
    workload += qs.queries(schema, age=groups_of([5] * 8))
    centre = search_centres(workload, COST.unit).at(1.0)[0].integers
    assert np.ptp(centre[20:30]) == np.ptp(centre[30:]) == 0
    assert centre[0] > centre[20]
