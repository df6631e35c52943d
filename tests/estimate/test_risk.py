"""Estimates of small tables without structure: no farther from the unbiased ones than is safe."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import querysmasher as qs
from querysmasher.estimate.estimate import Estimate
from querysmasher.estimate.evidence import Evidence, Noisy
from querysmasher.estimate.risk import ALONE, TOLERATED, Space, _measured, _moved, _reach, settled
from querysmasher.estimate.table_model import Model
from tests.estimate.tables import evidence, people, random_table, residual, told
from tests.release.tables import frame, marginal, simulations

positive = st.floats(1e-3, 1e3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "order", "records", "concentration", "error"),
    [
        ((2, 2, 2), 3, 200_000, 0.5, 1000),
        ((2, 2, 2, 2), 3, 800, 0.3, 4.4),
        ((2, 2), 2, 1000, 6.0, 12),
        ((3, 4), 2, 1600, 0.2, 32),
        ((3, 3, 2), 3, 5000, 0.15, 45),
    ],
)
def test_small_tables_without_structure_are_no_worse_than_unbiased(
    shape, order, records, concentration, error
):
    ours, theirs = [], []
    for seed in range(3):
        schema, counts = random_table(shape, records, concentration, seed)
        workload = qs.marginals(schema, order)
        cost = (qs.plan(workload, qs.PrivacyCost(1)).rmse / error) ** 2
        plan = qs.plan(workload, qs.PrivacyCost(cost))
        exact = np.concatenate([marginal(schema, counts, g.attributes).ravel() for g in workload])
        for release in simulations(plan, counts, range(20)):
            ours.append(np.mean((release.estimate().answer().values - exact) ** 2))
            theirs.append(np.mean((release.answer().values - exact) ** 2))
    assert np.mean(ours) <= 1.05 * np.mean(theirs)  # the seeds are fixed


def test_a_model_that_fits_is_taken_as_it_is():
    rng = np.random.default_rng(0)
    records = np.minimum(rng.geometric(0.3, (3000, 3)) - 1, 19)
    known = evidence(qs.Schema.of(a=20, b=20, c=20), records, 2, 2_500.0)
    pairs = list(itertools.combinations(range(3), 2))
    model, alone = settled(Model(known), pairs), Model(known)
    assert model.weights == {1: 1.0, 2: 1.0}
    for place in [(), (0,), *pairs]:
        assert model.table(place).tolist() == alone.table(place).tolist()


def test_two_cells_are_not_shrunk():
    noisy = [Noisy((), np.array(40.0), 400.0), Noisy((0,), np.array([5.0, -5.0]), 200.0)]
    model = settled(Model(told(qs.Schema.of(a=2), noisy)), [(0,)])
    assert model.weights[1] < 0.05
    assert model.table((0,)) == pytest.approx([25.0, 15.0], abs=0.5)


def noisy_evidence(sizes, places, seed=0, public=False):
    """Noisy residuals of all sets below some tables, and these tables without bias."""
    schema = qs.Schema.of({f"x{i}": size for i, size in enumerate(sizes)})
    rng = np.random.default_rng(seed)
    known = {}
    for place in sorted({s for p in places for k in range(len(p) + 1) for s in itertools.combinations(p, k)}):
        shape = [sizes[a] for a in place]
        variance = 0.0 if public and not place else float(rng.uniform(1, 9))
        values = np.array(20.0) if not place else residual(rng.normal(0, 10, shape))
        known[place] = Noisy(place, values, variance)
    tables = []
    for table in places:
        result = np.zeros([sizes[a] for a in table])
        for order in range(len(table) + 1):
            for place in itertools.combinations(table, order):
                others = math.prod(sizes[a] for a in table if a not in place)
                result += known[place].values.reshape([sizes[a] if a in place else 1 for a in table]) / others
        tables.append(result)
    return told(schema, list(known.values())), tables


PLACES = [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("public", [False, True])
def test_the_nearest_non_negative_tables(public):
    known, _ = noisy_evidence((2, 3, 2), PLACES, public=public)
    space, model = Space(known, PLACES), Model(known)
    noisy = space.coordinates([space.noisy[place].values for place in space.sets])
    found = space.nearest(noisy, model)

    def cells(values):
        return np.concatenate([stack.ravel() for stack in space.cells(values)])

    def distance(values):
        return float(space.weights @ (values - noisy) ** 2)

    assert cells(noisy).min() < -1
    assert cells(found).min() > -0.01
    limits = [(20.0, 20.0) if public and i == 0 else (None, None) for i in range(len(noisy))]
    best = minimize(
        distance,
        found,
        bounds=limits,
        constraints={"type": "ineq", "fun": cells},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert distance(found) == pytest.approx(best.fun, rel=0.01)


def test_tables_that_fall_back_add_up_and_have_their_zeros():
    known, _ = noisy_evidence((2, 3, 2), PLACES, seed=1)
    schema = known.schema.impossible("x0 == 0 and x1 == 2")
    model = settled(Model(Evidence(schema, known.noisy)), PLACES)
    assert min(model.weights.values()) < 1
    assert model.table((0, 1))[0, 2] == 0
    for place in PLACES:
        table = model.table(place)
        assert table.min() >= 0
        for axis in (0, 1):
            assert table.sum(axis=1 - axis) == pytest.approx(model.table((place[axis],)), abs=1e-3)
        assert table.sum() == pytest.approx(model.total)


@given(positive, st.floats(-1e3, 1e3), positive)
def test_the_reach_is_the_largest_that_is_allowed(length, spare, allowed):
    reach = _reach(length, spare, allowed)
    assert 0 <= reach <= 1

    def excess(a):
        return a * a * length - 2 * a * spare - allowed

    assert excess(reach) <= 1e-9 * (length + abs(spare) + allowed)
    assert reach == 1 or excess(min(1.0, reach * 1.01 + 1e-12)) > -1e-9 * (length + abs(spare) + allowed)
    assert TOLERATED <= 0.05


def release_of(shape, records, concentration, cost, order):
    schema, counts = random_table(shape, records, concentration, 0)
    plan = qs.plan(qs.marginals(schema, order), qs.PrivacyCost(cost))
    (release,) = simulations(plan, counts, [0])
    return release


def test_an_estimate_says_where_it_falls_back(tmp_path):
    estimate = release_of((2, 2), 1000, 6.0, 0.01, 2).estimate()
    assert all(weight < 1 for weight in estimate.weights.values())
    assert estimate.fallback.startswith("Here the model alone could have larger errors")
    assert estimate.fallback in estimate._repr_html_()
    assert estimate.fallback in estimate.report(tmp_path / "page.html").read_text(encoding="utf-8")
    sparse = release_of((30, 20), 300, 0.05, 0.01, 2).estimate()
    assert sparse.weights == {1: 1.0, 2: 1.0}
    assert sparse.fallback == ""


def test_the_error_states_that_of_the_unbiased_answers():
    schema, counts = random_table((3, 4), 500, 1.0, 0)
    plan = qs.plan(qs.marginals(schema, 2), qs.PrivacyCost(0.1))
    exact = marginal(schema, counts, schema.names).ravel()
    releases = list(simulations(plan, counts, range(40)))
    found = [np.abs(release.answer().values - exact).sum() for release in releases]
    error = releases[0].estimate().error()
    assert error.unbiased == pytest.approx(np.mean(found), rel=0.1)
    assert f"of the unbiased answers on average: about {error.unbiased:,.1f} records" in str(error)
    assert releases[0].estimate().errors().to_frame()["unbiased"].to_pylist() == [error.unbiased]
    single = qs.plan(qs.marginals(schema, 1), qs.PrivacyCost(0.1))
    (release,) = simulations(single, counts, [0])
    assert release.estimate().error(*schema.names).unbiased is None


def test_an_estimate_is_the_same_whatever_was_asked_before(tmp_path):
    schema, records = people(2000)
    shape = [range(size + 1) for size in schema.sizes]
    counts = np.histogramdd(records, bins=shape)[0].astype(np.int64)
    plan = qs.plan(qs.marginals(schema, 3) + qs.all_kway(schema, 2, "prefix"), qs.zCDP(0.02))
    (release,) = simulations(plan, counts, [0])
    before = release.estimate()
    for names in itertools.combinations(schema.names, 3):
        before.marginal(*names)
    release.save(tmp_path / "x.release")
    before.save(tmp_path / "x.estimate")
    asked = qs.marginals(schema, [1, 2, 3]) + qs.all_kway(schema, 2, "prefix")
    for after in (qs.Release.load(tmp_path / "x.release").estimate(), Estimate.load(tmp_path / "x.estimate")):
        assert after.answer(asked).values.tolist() == before.answer(asked).values.tolist()
        for names in (("a",), ("b", "c"), ("a", "c", "e"), ("a", "b", "c", "d")):
            assert after.marginal(*names).tolist() == before.marginal(*names).tolist()
        whole, same = after.integers(seed=3), before.integers(seed=3)
        assert whole.answer(asked).values.tolist() == same.answer(asked).values.tolist()
        drawn, again = (one.microdata(300, seed=5).to_frame() for one in (after, before))
        assert drawn.equals(again)


def test_an_estimate_whose_error_was_measured_is_the_same_after_loading(tmp_path):
    schema, counts = random_table((3, 4, 2), 500, 1.0, 0)
    plan = qs.plan(qs.marginals(schema, 2), qs.zCDP(0.05))
    release = qs.measure(plan, frame(schema, counts), seed=0, error_share=0.05)
    release.save(tmp_path / "x.release")
    loaded = qs.Release.load(tmp_path / "x.release")
    estimate, again = release.estimate(), loaded.estimate()
    for names in (("x1", "x2"), ("x0", "x1", "x2"), ("x0",), ()):  # not in the order of the workload
        assert again.marginal(*names).tolist() == estimate.marginal(*names).tolist()
    assert again.answer().values.tolist() == estimate.answer().values.tolist()
    assert again.errors().to_frame().equals(estimate.errors().to_frame())


def test_the_risk_of_tables_of_the_fewest_attributes_is_estimated_first(monkeypatch):
    schema, records = people()
    known = evidence(schema, records, 2, 1.0)
    singles, pairs = [(a,) for a in range(5)], list(itertools.combinations(range(5), 2))
    monkeypatch.setattr("querysmasher.estimate.risk.LARGEST", 30)
    assert settled(Model(known), pairs).weights == {}
    assert set(settled(Model(known), singles + pairs).weights) == {1}
    monkeypatch.setattr("querysmasher.estimate.risk.LARGEST", 1000)
    assert set(settled(Model(known), singles + pairs).weights) == {1, 2}


def test_what_is_asked_for_weighs():
    """Making a rough table non-negative adds records to it: less so if its margins are asked for, too."""
    known, _ = noisy_evidence((2, 7), [(0, 1)])
    model = Model(known)

    def added(asked):
        space = Space(known, _measured(model, asked))
        noisy = space.coordinates([known.noisy(place).values for place in space.sets])
        return space.nearest(noisy, model)[0] - noisy[0]

    assert 0 < added({(0,), (1,), (0, 1)}) < 0.5 * added({(0, 1)})


def test_the_total_moves_no_farther_than_is_safe():
    """Also where the sets gain so much that all together may be moved the whole way."""
    rng = np.random.default_rng(0)
    singles = [Noisy((a,), residual(rng.normal(0, 10, 7)), 100.0) for a in range(3)]
    known = told(qs.Schema.of(a=7, b=7, c=7), [Noisy((), np.array(60.0), 400.0), *singles])
    _, moved = _moved(Model(known), Space(known, [(0,), (1,), (2,)]))
    assert Model(known).total < 50
    assert moved[0] == pytest.approx(60 - math.sqrt(ALONE * 400))


@pytest.mark.slow
def test_a_pair_that_is_shrunk_on_one_side_of_a_threshold_is_no_worse_than_unbiased():
    counts = np.array([8, 9, 6, 14, 15, 19, 5, 17, 5, 10, 10, 2, 15, 6, 25, 11]).reshape(2, 2, 2, 2)
    schema = qs.Schema.of(a=2, b=2, c=2, d=2)
    workload = 3.0 * qs.marginals(schema, 1) + qs.marginals(schema, 2)
    exact = counts.sum(axis=(0, 1))
    ours = theirs = 0.0
    for release in simulations(qs.plan(workload, qs.PrivacyCost(12.5)), counts, range(50)):
        ours += float(np.sum((np.asarray(release.estimate().marginal("c", "d")) - exact) ** 2))
        theirs += float(np.sum((np.asarray(release.marginal("c", "d")) - exact) ** 2))
    assert ours <= 1.05 * theirs  # the seeds are fixed


def test_the_total_is_no_worse_where_only_larger_tables_are_asked_for():
    """Making rough tables non-negative adds records: the total has its weight, too."""
    schema, counts = random_table((2, 7), 136, 1.0, 49)
    plan = qs.plan(qs.marginals(schema, 2), qs.PrivacyCost(1e-4), purpose="estimate", records=136)
    ours = theirs = 0.0
    for release in simulations(plan, counts, range(40)):
        ours += (release.estimate().total - 136) ** 2
        theirs += (float(release.marginal()) - 136) ** 2
    assert ours < theirs
