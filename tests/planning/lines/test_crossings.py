"""Hierarchies that do not nest, against dense least squares and the dense optimum over all strategies."""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.planning.limits import limited
from querysmasher.planning.lines.crossed import Eliminated, WeightedCrossing, overlapping
from querysmasher.planning.lines.forest import solve_crossed
from querysmasher.planning.lines.gram import LineGram
from querysmasher.planning.solvers.bounds import pair_value
from querysmasher.planning.solvers.design import solve_design
from querysmasher.workload.families import Identity, Prefix
from querysmasher.workload.hierarchy import Hierarchy
from tests.builders import COST, SPLIT, as_lines
from tests.profiles import fewer
from tests.release.tables import check_simulated, frame, random_counts
from tests.strategies import by_appearance, weights


@st.composite
def crossings(draw, most=9, least=3):
    """Two families of levels over the same values: each has a coarse level above a fine one."""
    n = draw(st.integers(least, most))

    def level(size, most):
        return by_appearance(draw(st.lists(st.integers(0, most), min_size=size, max_size=size)))

    families = []
    for leaves in (draw(st.booleans()), False):
        fine = level(n, max(1, n // 2))
        levels = (fine, level(int(fine.max()) + 1, 1)[fine])
        names = tuple(tuple(range(int(numbers.max()) + 1)) for numbers in levels)
        drawn = tuple(draw(st.lists(weights, min_size=2 + leaves, max_size=2 + leaves)))
        families.append(Hierarchy((n,), levels, names, leaves, drawn))
    return families


def weighted_rows(families, total):
    rows = [f.matrix() * np.sqrt(f.query_weights())[:, None] for f in families]
    return np.concatenate([*rows, np.full((int(total > 0), families[0].cells), math.sqrt(total))])


@fewer(10)
@given(crossings(), st.sampled_from([0.0, 0.0, 2.0]))
def test_the_solution_is_near_the_dense_optimum_and_its_certificate_holds(families, total):
    rows = weighted_rows(families, total)
    found = solve_crossed(overlapping(families, [1.0, 1.0], total))
    columns = np.unique(rows, axis=1)
    _, values, right = np.linalg.svd(columns, full_matrices=False)
    keep = values > 1e-10 * values[0]
    best = solve_design(values[keep, None] * right[keep], np.full(columns.shape[1], 1.0), 1e-6)
    own = found.strategy
    assert found.loss == pytest.approx(np.einsum("ij,ij->", rows, own.covary_whole(rows)), rel=1e-7)
    assert own.leverage + 1 / own.total_variance == pytest.approx(1, rel=1e-9)
    np.testing.assert_allclose(own.squares, 1, rtol=1e-9)
    assert math.sqrt(found.bound) <= best.upper * (1 + 1e-7)
    assert (
        best.value * (1 - 1e-7) <= math.sqrt(found.loss) <= best.upper * 1.1
    )  # the fewest values are the worst
    assert own.is_sound()


@fewer(40)
@given(crossings(), st.data())
def test_variances_and_their_derivatives_against_matrices(families, data):
    """Also where leaves are merged."""
    asked = overlapping(families, [1.0, 1.0])
    drawn = data.draw(st.lists(st.floats(0.2, 3), min_size=len(asked.weights), max_size=len(asked.weights)))
    model, node_of = WeightedCrossing.merged(asked.nodes, asked.weights)
    precisions = np.array(drawn)[: len(model.nodes)]
    rows, a = asked.nodes.sums(np.eye(asked.nodes.leaves.size)), precisions[node_of]
    inverse = np.linalg.inv((rows.T * a) @ rows)
    image = rows @ inverse
    expected = np.einsum("ij,ij->i", image, rows)
    found = Eliminated(model.nodes, model.counts, precisions)
    np.testing.assert_allclose(found.variances[node_of], expected, rtol=1e-10)
    slopes = (image @ ((rows.T * asked.weights) @ rows) * image).sum(axis=1)
    np.testing.assert_allclose(found.slopes(model.weights)[node_of], slopes, rtol=1e-9)
    loss, summed = model.slopes(precisions)
    assert loss == pytest.approx(asked.weights @ expected)
    np.testing.assert_allclose(summed, np.bincount(node_of, slopes), rtol=1e-9)


@fewer(8)
@given(crossings(), st.data())
def test_the_variances_of_any_groups_and_of_fewer_values(families, data):
    """Groups that are measured or not, against rows written out."""
    families[0] = Hierarchy((families[0].cells,), families[0].groups, families[0].names, leaves=True)
    strategy = solve_crossed(overlapping(families, [1.0, 1.0])).strategy
    n = families[0].cells
    groups = by_appearance(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    other = Hierarchy((n,), (groups,), (tuple(range(int(groups.max()) + 1)),), data.draw(st.booleans()))
    for family in (*families, other, Identity((n,)), Prefix((n,))):
        expected = strategy.variances([((0,), family.matrix())])
        scale = strategy.whole_variances(family).max()
        np.testing.assert_allclose(strategy.query_variances(family), expected, rtol=1e-8, atol=1e-12 * scale)
    parts = strategy.parts(groups)
    assert len({(p, g) for p, g in zip(parts, groups, strict=True)}) == parts.max() + 1
    small = strategy.pruned(parts)
    assert small.is_sound()
    rows = (groups == np.arange(groups.max() + 1)[:, None]).astype(float)
    _, first = np.unique(parts, return_index=True)
    np.testing.assert_allclose(small.of_rows(rows[:, first]), strategy.of_rows(rows), rtol=1e-8)


@fewer(20)
@given(crossings(), st.data())
def test_the_value_for_pairs_of_cells_is_below_that_of_any_centre(families, data):
    """Against the trace root of the moments of residuals around any centre, written out."""
    n, drawn = families[0].cells, st.floats(0.05, 1)
    q, w = (np.array(data.draw(st.lists(drawn, min_size=n, max_size=n))) for _ in range(2))
    q, w = q / q.sum(), w / w.sum()
    rows = weighted_rows(families, 0.0)
    centred = rows - (rows @ w)[:, None]
    exact = np.linalg.svd(centred * np.sqrt(q), compute_uv=False).sum()
    for most in (400, 1):
        with limited(line_matrix=most):
            value = pair_value(LineGram.of(n, [(family, 1.0) for family in families]), q)
        assert value <= exact * (1 + 1e-7) + 1e-9


# --- plans and releases ----------------------------------------------------------------------------------


COUNTY = [0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3]
DISTRICT = [0, 0, 1, 1, 1, 2, 2, 3, 3, 0, 4, 4]
SMALL = qs.Schema([qs.Ordinal("age", range(6)), qs.Ordinal("town", range(12))])
ONE = qs.hierarchy(SMALL, "town", state=[g // 2 for g in COUNTY], county=COUNTY)
TWO = qs.hierarchy(SMALL, "town", district=DISTRICT, leaves=False)
BOTH = qs.queries(SMALL, town=ONE) + qs.queries(SMALL, town=TWO)
COARSE = qs.queries(SMALL, town=qs.hierarchy(SMALL, "town", county=COUNTY, leaves=False)) + qs.queries(
    SMALL, town=TWO
)
DIVIDED = COARSE + qs.where(SMALL, "town in [0, 8]")
TABLES = BOTH + qs.queries(SMALL, town=TWO, age="prefix") + qs.queries(SMALL, town=ONE, age="identity")


@cache
def planned(workload, budget=COST):
    with as_lines(10, line_matrix=10, light_cells=5), limited(**SPLIT):
        return qs.plan(workload, budget)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload", [BOTH, TABLES, COARSE, DIVIDED], ids=["both", "tables", "coarse", "divided"]
)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_the_switch_is_seamless_in_accuracy(workload, neighbours):
    """The same workload with matrices and on groups: the error differs by little."""
    budget = qs.PrivacyCost(1.0, neighbours=neighbours)
    plan, dense = planned(workload, budget), qs.plan(workload, budget)
    assert {m.method for m in plan.methods} & {"crossed"}
    assert not {m.method for m in dense.methods} & {"crossed"}
    if workload is not TABLES:  # measured whole: the optimum
        assert plan.weighted_rmse / (1 + plan.gap) <= dense.weighted_rmse * (1 + 1e-6)
    most = 1.06 if workload is DIVIDED else 1.02  # the planner measures groups only, and no differences
    assert plan.weighted_rmse <= dense.weighted_rmse * (most if neighbours == "add_remove" else 1.1)


def test_coarse_groups_that_cross_where_a_record_is_replaced():
    """What is left of values without queries is a rounding error, which was negative: nothing was planned."""
    schema, random = qs.Schema.of(town=2_000), np.random.default_rng(0)
    groups = np.arange(2_000) // 100, random.integers(0, 30, 2_000)
    one, two = (qs.hierarchy(schema, "town", each, leaves=False) for each in groups)
    workload = qs.queries(schema, town=one) + qs.queries(schema, town=two)
    plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one"))
    assert plan.gap < 0.05
    assert plan.rmse == pytest.approx(math.sqrt(plan.variances(workload).mean()))


DATA = frame(SMALL, random_counts(SMALL, 0, records=3_000))


@pytest.mark.slow
def test_answers_are_unbiased_and_standard_errors_right_in_simulation():
    check_simulated(planned(TABLES), TABLES, random_counts(SMALL, 0, records=3_000), 60)


@pytest.mark.slow
def test_answers_are_those_of_dense_least_squares():
    """From all noisy numbers; the planned estimate leaves out the little that groups say about the total."""
    plan = planned(BOTH)
    release = qs.measure(plan, DATA, seed=3)
    rows, noisy, variances = [], [], []
    for position, measured in enumerate(release.plan.measured):
        ((_, number),) = measured.blocks
        ((_, factor),) = release.plan.strategies[number].factors
        own = factor.written_out()
        rows.append(own if measured.attributes else np.tile(own, (1, 12)))
        noisy.append(release.store[position].ravel().astype(float))
        variances.append(np.full(len(own), float(measured.variance)))
    root = 1 / np.sqrt(np.concatenate(variances))
    counts = np.linalg.lstsq(np.concatenate(rows) * root[:, None], np.concatenate(noisy) * root, rcond=None)[
        0
    ]
    matrix = np.concatenate([ONE.matrix(), TWO.matrix()])
    answers = release.answer()
    assert (np.abs(answers.values - matrix @ counts) < 1e-3 * answers.std).all()


@pytest.mark.slow
def test_answers_agree_at_every_level_and_come_back_from_files(tmp_path):
    release = qs.measure(planned(TABLES), DATA, seed=6)
    towns = np.asarray(release.marginal("town", "age"))
    for family, name in ((ONE, "county"), (TWO, "district")):
        groups = family.groups[family.titles.index(name)]
        tables = [towns[groups == group].sum(axis=0) for group in range(groups.max() + 1)]
        np.testing.assert_allclose(release.at(name).marginal(name, "age"), tables)
        coarse = release.at(name).answer(qs.queries(release.at(name).coarsening.schema, **{name: "identity"}))
        rows = (groups == np.arange(groups.max() + 1)[:, None]).astype(float)
        np.testing.assert_allclose(coarse.std, release.answer(qs.queries(SMALL, town=rows)).std)
    release.save(tmp_path / "x.release")
    planned(TABLES).save(tmp_path / "x.plan")
    loaded = qs.Release.load(tmp_path / "x.release")
    assert loaded.answer().values.tobytes() == release.answer().values.tobytes()
    assert loaded.answer().std.tobytes() == release.answer().std.tobytes()
    again = qs.Plan.load(tmp_path / "x.plan")
    assert again.variances(TABLES).tobytes() == planned(TABLES).variances(TABLES).tobytes()


@pytest.mark.slow
def test_thousands_of_values_in_counties_and_districts(refuses):
    n = 8_000
    schema = qs.Schema.of(block=n, sex=2)
    rng = np.random.default_rng(0)
    county = np.sort(rng.integers(0, 60, n))
    district = np.searchsorted(np.sort(rng.choice(n, 150, replace=False)), np.arange(n))
    first = qs.hierarchy(schema, "block", county=county)
    second = qs.hierarchy(schema, "block", district=district, leaves=False)
    tables = qs.queries(schema, block=first, sex="identity") + qs.queries(
        schema, block=second, sex="identity"
    )
    plan = qs.plan(tables, COST)
    assert plan.gap < 0.01
    assert qs.plan(tables, qs.PrivacyCost(1.0, neighbours="replace_one")).gap < 0.02
    rest = (
        qs.queries(schema, block=first) + qs.queries(schema, block=second) + qs.where(schema, "block < 100")
    )
    assert qs.plan(rest, qs.PrivacyCost(1.0, neighbours="replace_one")).gap < 0.02
    table = pd.DataFrame({"block": rng.integers(0, n, 40_000), "sex": rng.integers(0, 2, 40_000)})
    answers = qs.measure(plan, table, seed=1).answer()
    counts = pd.crosstab(table["block"], table["sex"]).reindex(range(n), fill_value=0).to_numpy()
    truth = np.concatenate([family.answers(counts).ravel() for family in (first, second)])
    errors = (answers.values - truth) / answers.std
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(1, abs=0.05)
    coarse = qs.hierarchy(schema, "block", county=county, leaves=False)
    asked = qs.queries(schema, block=coarse) + qs.queries(schema, block=second)
    assert qs.plan(asked, COST).gap < 0.05
    with refuses(OutsideMeasuredSpaceError, ValueError):
        qs.plan(asked, COST).variances(qs.queries(schema, block="identity"))
    with limited(crossed_entries=1_000), refuses(TooLargeError, ValueError, "do not nest", "second finest"):
        qs.plan(asked, COST)
