"""Impossible combinations: tied attributes, against dense references over possible cells only."""

import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import DataError, PlanError, PrivacyError
from querysmasher.planning.limits import limited
from querysmasher.planning.plan_file import plan_from_data, plan_to_data
from querysmasher.planning.tying import Tying
from querysmasher.privacy import pairs
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.release import reconstruction
from querysmasher.release.release_file import release_from_data, release_to_data
from tests.builders import COST, SPLIT, grouped
from tests.privacy.brute_force import changes, largest, weighted_grams
from tests.profiles import fewer
from tests.reference import pair_bounds, query_rows, root_bounds
from tests.release.tables import whole
from tests.strategies import NAMES, budgets, workloads

# --- what is asked ---


@st.composite
def conditions(draw, name, size):
    """A condition on one attribute that some value does not satisfy."""
    value = draw(st.integers(0, size - 1))
    kind = draw(st.sampled_from(["==", "!=", "<=", ">", "in"]))
    if kind == "in":
        return f"{name} in [{value}]"
    return f"{name} {kind} {value}"


@st.composite
def schemas(draw, attributes=3, most=4, one_component=False):
    """A schema of ordinal attributes with impossible combinations."""
    names = NAMES[: draw(st.integers(1, attributes))]
    sizes = {name: draw(st.integers(2, most)) for name in names}
    stated = []
    for _ in range(draw(st.integers(1, 3))):
        on = names if one_component else draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        joined = draw(st.sampled_from([" and ", " and ", " or "]))
        stated.append(joined.join(draw(conditions(name, sizes[name])) for name in on))
    schema = qs.Schema.of(sizes)
    assume(possible(schema, stated).any())
    return schema.impossible(*stated)


def possible(schema, predicates):
    """Which cells of the domain satisfy none of the predicates, by Python's own reading of them."""
    cells = [
        dict(zip(schema.names, cell, strict=True)) for cell in itertools.product(*map(range, schema.sizes))
    ]
    return np.array([not any(eval(p, {}, cell) for p in predicates) for cell in cells])  # noqa: S307


def open_cells(workload):
    """Which cells are possible, by the predicates about which a workload asks everything."""
    asked = {name for group in workload for name in group.attributes}
    names = [
        set(re.findall("[a-d]", p.replace("and", "").replace("or", "")))
        for p in workload.schema.impossible_where
    ]
    stated = zip(workload.schema.impossible_where, names, strict=True)
    return possible(workload.schema, [p for p, on in stated if on <= asked])


def possible_rows(workload):
    """All queries over the possible cells, and their weights."""
    rows, weights = query_rows(workload)
    return rows[:, open_cells(workload)], weights


def measured_rows(release):
    """What a release measured as rows over possible cells, each divided by the deviation of its noise."""
    schema, stacked, answers = release.schema, [], []
    for measured in release.to_arrays():
        places = schema.positions(measured.attributes)
        spread = [n if p in places else 1 for p, n in enumerate(schema.sizes)]
        rows = measured.matrix().reshape(-1, *measured.shape)
        rows = rows.transpose(0, *(1 + np.argsort(places))) if places else rows.reshape(-1)
        rows = np.broadcast_to(rows.reshape(-1, *spread), (measured.answers.size, *schema.sizes))
        std = np.sqrt(measured.variances.ravel())
        stacked.append(rows.reshape(len(std), -1)[:, open_cells(release.workload)] / std[:, None])
        answers.append(measured.answers.ravel() / std)
    return np.concatenate(stacked), np.concatenate(answers)


def records(workload, count=200):
    """A table of records in possible cells."""
    cells = np.flatnonzero(open_cells(workload) & possible(workload.schema, workload.schema.impossible_where))
    chosen = np.random.default_rng(1).choice(cells, count)
    columns = np.unravel_index(chosen, workload.schema.sizes)
    return pd.DataFrame(dict(zip(workload.schema.names, columns, strict=True)))


def is_asked(workload, budget):
    rows, _ = possible_rows(workload)
    return (np.ptp(rows, axis=1) if budget.unit.total_is_public else np.abs(rows)).max() > 1e-9


# --- the rewriting ---


@given(workloads(schemas()))
def test_tied_queries_are_the_queries_over_possible_cells(workload):
    tying = Tying.of(workload, COST.unit)
    assume(tying is not None)
    rows, weights = possible_rows(workload)
    start = 0
    for group in workload:
        tied = tying.group(group)
        single = qs.Workload(tying.joint, (tied.group,))
        own_rows, own_weights = query_rows(single)
        columns = columns_of(tying)
        stop = start + group.rows
        np.testing.assert_allclose(own_rows[tied.numbers], rows[start:stop][:, columns], atol=1e-12)
        np.testing.assert_allclose(own_weights[tied.numbers], weights[start:stop])
        for family in tied.group.families:
            W, own = family.matrix(), family.query_weights()
            np.testing.assert_allclose(family.gram(), (W.T * own) @ W, atol=1e-9)
            table = np.arange(1.0, 1 + 2 * W.shape[1]).reshape(*family.shape, 2)
            np.testing.assert_allclose(family.answers(table), W @ table.reshape(-1, 2), atol=1e-9)
        start = stop


def columns_of(tying):
    """For every cell of the joint domain, its number among the possible cells of the schema."""
    values = [np.stack(a.column_indexes, axis=1) for a in tying.joint]
    names = [column.name for a in tying.joint for column in a.columns]
    order = [names.index(name) for name in tying.schema.names]
    cells = [np.concatenate(cell)[order] for cell in itertools.product(*values)]
    flat = [int(np.ravel_multi_index(cell, tying.schema.sizes)) for cell in cells]
    return np.argsort(np.argsort(flat))


def test_only_what_is_asked_together_and_fits_is_tied():
    schema = qs.Schema.of(a=4, b=3, c=5, d=2).impossible("a == 0 and b == 1", "b == 2 and c == 0", "d == 1")
    alone = qs.marginals(schema, 1)
    assert Tying.of(alone, COST.unit).components == (("a", "b", "c"), ("d",))
    assert Tying.of(alone, COST.unit).joint.sizes == (4 * 3 * 5 - 5 - 4, 1)
    assert Tying.of(qs.queries(schema, a="prefix", c="identity"), COST.unit) is None
    both = qs.queries(schema, a="prefix") + qs.queries(schema, b="identity")
    assert Tying.of(both, COST.unit).components == (("a", "b"),)
    with limited(tied_values=12):
        assert Tying.of(alone, COST.unit).components == (("a", "b"), ("d",))
    with limited(tied_values=0):
        assert Tying.of(alone, COST.unit) is None


@pytest.mark.parametrize(
    ("exact", "tied"),
    [
        ([("c", "d")], (("a", "b", "c"), ("d",))),
        ([("a", "d"), ("a", "c")], (("a", "b"), ("d",))),  # two ways of grouping a × b × c
        ([("a",), ("b",)], (("b", "c"), ("d",))),  # two ways of grouping a × b
        ([("a", "c"), ("d",)], (("d",),)),  # b × d is asked, and a × d is unprotected
    ],
)
def test_attributes_with_exact_counts_are_tied_where_these_count_groups_in_one_way(exact, tied):
    schema = qs.Schema.of(a=4, b=3, c=5, d=2).impossible("a == 0 and b == 1", "b == 2 and c == 0", "d == 1")
    workload = qs.marginals(schema, 1) + qs.queries(schema, b="identity", d="identity")
    unit = qs.PrivacyCost(1.0, neighbours="replace_one", exact=exact).unit
    assert Tying.of(workload, unit).components == tied


@pytest.mark.parametrize("components", [(("b", "a"),), (("a", "b"), ("b", "c")), ((),), ()])
def test_impossible_ties_are_refused(components):
    with pytest.raises(PlanError, match="ties"):
        Tying(qs.Schema.of(a=2, b=2, c=2).impossible("a == 0 and b == 0"), components)


# --- plans ---


@pytest.mark.slow
@fewer(60)
@given(workloads(schemas(one_component=True), max_groups=3), budgets)
def test_plans_are_optimal_over_possible_cells(workload, budget):
    assume({name for g in workload for name in g.attributes} == set(workload.schema.names))
    assume(is_asked(workload, budget))
    rows, weights = possible_rows(workload)
    rows = rows * np.sqrt(weights)[:, None]
    replaced = budget.unit.total_is_public
    _, best = pair_bounds([rows], close=1e-5, steps=3000) if replaced else root_bounds(rows)
    plan = qs.plan(workload, budget)
    assert plan.weighted_loss <= 1.005 * best**2 * budget.unit.records_per_person**2 / budget.privacy_cost
    assert plan.gap < 0.01


OPTIONS = [{}, {"centering": "uniform"}, {"mechanism": "whole"}, {"objective": "worst"}]


@pytest.mark.slow
@fewer(60)
@given(workloads(schemas(), max_groups=3), budgets, st.sampled_from(OPTIONS), st.booleans())
def test_releases_are_best_estimates_over_possible_cells(workload, budget, options, split):
    """Variances, answers, zeros and marginals, from nothing but the published arrays."""
    assume(is_asked(workload, budget))
    with limited(**(SPLIT if split and not options else {})):
        plan = qs.plan(workload, budget, **options)
    plan = plan_from_data(plan_to_data(plan))
    data = records(workload)
    release = qs.measure(plan, data, seed=1)
    rows, _ = possible_rows(workload)
    stacked, noisy = measured_rows(release)
    total = np.ones(rows.shape[1])
    if budget.unit.total_is_public:  # known without noise
        stacked, noisy = np.vstack([stacked, 1e7 * total]), np.append(noisy, 1e7 * len(data))
    inverse = np.linalg.pinv(stacked, rcond=1e-13)
    image = rows @ inverse
    answers = release.answer(workload)
    expected = (image**2).sum(axis=1)
    np.testing.assert_allclose(answers.std**2, expected, rtol=1e-4, atol=1e-9 * expected.max() + 1e-12)
    np.testing.assert_allclose(answers.values, image @ noisy, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(plan.variances(workload), answers.std**2, rtol=0.02, atol=1e-9)
    is_zero = ~rows.any(axis=1)
    assert not answers.values[is_zero].any()
    assert not answers.std[is_zero].any()
    assert not plan.variances(workload)[is_zero].any()
    check_tables(release)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconstruction, "KEPT", 0)  # as if tables were too large to write out
        again = qs.measure(plan, data, seed=1).answer(workload)
    scale = np.abs(answers.values).max(initial=1.0)
    np.testing.assert_allclose(again.values, answers.values, rtol=1e-9, atol=1e-9 * scale)
    covariance = release.covariance(workload)
    np.testing.assert_allclose(np.diag(covariance), answers.std**2, rtol=1e-6, atol=1e-9)


def check_tables(release, close=0.0):
    """Marginals agree with each other, and impossible cells are 0."""
    schema = release.schema
    for group in release.workload:
        names = group.attributes
        try:
            table = release.marginal(*names)
        except qs.errors.OutsideMeasuredSpaceError:
            continue
        axes = tuple(p for p in range(len(schema)) if p not in schema.positions(names))
        cells = open_cells(release.workload).reshape(schema.sizes).any(axis=axes)
        ordered = sorted(names, key=schema.position)
        cells = cells.transpose([ordered.index(name) for name in names])
        assert np.abs(np.asarray(table)[~cells]).max(initial=0.0) <= close


@pytest.mark.slow
@fewer(40)
@given(workloads(schemas(most=3), max_groups=3), budgets)
def test_neighbours_change_what_is_measured_by_at_most_its_cost(workload, budget):
    """All changes of a table of possible records, in exact fractions."""
    assume(is_asked(workload, budget))
    plan = qs.plan(workload, budget)
    rounded = whole(plan)
    cells = math.prod(rounded.schema.sizes)
    assume(cells**budget.records_per_person < 700)
    grams, scale = weighted_grams(rounded)
    gram = sum(grams[1:], grams[0])
    assert largest(gram, changes(cells, budget)) <= privacy_cost(rounded) * scale
    assert privacy_cost(rounded) <= budget.privacy_cost * (1 + 1e-12)
    assert cells == open_cells(workload).sum()


@pytest.mark.slow
def test_what_is_known_lowers_the_error():
    sizes = {"age": 30, "sex": 2, "married": 2}
    free = qs.Schema.of(sizes)
    known = free.impossible("age < 8 and married == 1")

    def asked(schema):
        return qs.queries(schema, age="identity", married="identity") + qs.marginals(schema, [1, 2])

    before, after = (qs.plan(asked(schema), COST) for schema in (free, known))
    assert after.rmse < 0.96 * before.rmse
    with limited(**SPLIT):
        split = qs.plan(asked(known), COST)
    shares = split.budget_shares()
    assert shares.keys() == {(), ("age", "married"), ("sex",), ("age", "sex", "married")}
    assert math.fsum(shares.values()) == pytest.approx(1)
    (of_ages,) = {row.budget_share for row in split.summary(qs.marginals(known, ["age"]))}
    assert of_ages == shares["age", "married"]
    (joint,) = {row.budget_share for row in split.summary(qs.queries(known, age="prefix", sex="identity"))}
    assert joint == shares["age", "sex", "married"]


def test_targets_and_the_least_budget():
    schema = qs.Schema.of(age=12, married=2).impossible("age < 4 and married == 1")
    workload = qs.queries(schema, age="prefix", married="identity").within(20) + qs.marginals(schema, 1)
    plan = qs.least_budget(workload)
    free = qs.least_budget(qs.Workload(qs.Schema.of(age=12, married=2), workload.groups))
    assert plan.privacy_cost <= free.privacy_cost
    (worst,) = [extreme for extreme in plan.extremes if extreme.group.target]
    assert worst.ratio <= 1 + 1e-6
    label = worst.query(schema)
    variances = dict(zip(workload.labels(), plan.variances(workload), strict=True))
    assert math.sqrt(variances[label]) == pytest.approx(worst.std)


def test_other_mechanisms_keep_their_rule():
    schema = qs.Schema.of(a=4, b=3).impossible("a == 0 and b == 1")
    plan = qs.plan(qs.marginals(schema, [1, 2]), COST, mechanism="residual")
    assert plan.tying is None
    assert plan.rmse == pytest.approx(
        qs.plan(qs.marginals(qs.Schema.of(a=4, b=3), [1, 2]), COST).rmse, rel=1e-3
    )


@pytest.mark.slow
@fewer(50)
@given(workloads(schemas(most=3), max_groups=3), budgets, st.booleans())
def test_what_a_plan_does_not_use_its_release_does(workload, budget, split):
    """Answers are the best estimates with zeros, from arrays that know nothing of them."""
    workload += qs.marginals(workload.schema, len(workload.schema))
    with limited(tied_values=0, **(SPLIT if split else {})):
        plan = qs.plan(workload, budget)
    assert plan.tying is None
    data = records(workload)
    release = qs.measure(plan, data, seed=1)
    rows, _ = possible_rows(workload)
    stacked, noisy = measured_rows(release)
    if budget.unit.total_is_public:
        stacked, noisy = np.vstack([stacked, 1e5 * np.ones(rows.shape[1])]), np.append(noisy, 1e5 * len(data))
    image = rows @ np.linalg.pinv(stacked, rcond=1e-12)
    answers = release.answer(workload)
    expected = (image**2).sum(axis=1)
    np.testing.assert_allclose(answers.std**2, expected, rtol=1e-4, atol=1e-7 * expected.max() + 1e-9)
    np.testing.assert_allclose(answers.values, image @ noisy, rtol=1e-4, atol=1e-4 * max(1, expected.max()))
    is_zero = ~rows.any(axis=1)
    np.testing.assert_allclose(answers.values[is_zero], 0, atol=1e-6)
    np.testing.assert_allclose(answers.std[is_zero], 0, atol=1e-6 * (1 + expected.max()))
    check_tables(release, 1e-6)
    covariance = release.covariance(workload)
    np.testing.assert_allclose(
        np.diag(covariance), answers.std**2, rtol=1e-5, atol=1e-7 * expected.max() + 1e-9
    )


def test_too_many_zeros_are_zero_and_nothing_more():
    schema = qs.Schema.of(a=30, b=4, c=2).impossible("a < 10 and b > 0")
    workload = qs.queries(schema, a="prefix", b="identity") + qs.marginals(schema, 1)
    with limited(tied_values=0):
        plan = qs.plan(workload, COST)
    data = records(workload)
    fitted = qs.measure(plan, data, seed=1)
    with limited(constrained_cells=29):
        free = qs.measure(plan, data, seed=1)
        std = free.answer().std
    assert (std >= fitted.answer().std).all()
    is_zero = ~possible_rows(workload)[0].any(axis=1)
    assert not std[is_zero].any()
    np.testing.assert_allclose(std[~is_zero] ** 2, plan.variances(workload)[~is_zero], rtol=0.01)
    assert np.mean(fitted.answer().std ** 2) < 0.9 * np.mean(std**2)


# --- exact counts ---


def known(seed, **options):
    """A plan that ties an attribute by which counts are exact, these counts, and the class of every cell.

    Counts are exact by one attribute of impossible combinations, by groups of its values and perhaps another
    attribute, or in two tables.
    """
    random, kind = np.random.default_rng([seed, 9]), seed % 3
    sizes = {"a": int(random.integers(3, 5)), "b": int(random.integers(2, 4)), "c": 2, "d": 2}
    stated = [f"a == {random.integers(sizes['a'])} and b == {random.integers(sizes['b'])}" for _ in range(2)]
    schema = qs.Schema.of(sizes).impossible(*stated)
    asked = []
    for _ in range(3):
        names = random.permutation([["a", "b"], ["a", "c"], ["b", "c"], ["b", "d"]][random.integers(4)])
        families = random.choice(["identity", "prefix"], 2)
        asked.append(qs.queries(schema, dict(zip(names.tolist(), families.tolist(), strict=True))))
    workload = sum(asked, qs.queries(schema, b="prefix") + qs.marginals(schema, 1))
    groups = np.arange(sizes["a"])
    name = "ab"[seed // 3 % 2]
    exact = qs.marginals(schema, [name])
    if kind == 1:
        groups = random.permutation([0, 1, *random.integers(0, 2, sizes["a"] - 2)])
        exact = grouped(schema, "a", groups, *"c"[: seed % 2])
    elif kind == 2:
        exact = qs.marginals(schema, [name, "c"]) + qs.marginals(schema, ["d", name])
    public = sorted({name for group in exact for name in group.attributes})
    plan = qs.plan(workload, qs.PrivacyCost(1.0, **options), exact=exact)
    assert plan.tying.components == (("a", "b"),)

    def classes(schema):
        """The class of every cell of a schema: what a record in it and the one that replaces it share."""
        cells = np.unravel_index(np.arange(math.prod(schema.sizes)), schema.sizes)
        columns = {
            column.name: indexes[cell]
            for a, cell in zip(schema, cells, strict=True)
            for column, indexes in zip(a.columns, a.column_indexes, strict=True)
        }
        columns["a"] = groups[columns["a"]]
        return np.unique([columns[name] for name in public], axis=1, return_inverse=True)[1].ravel()

    return plan, exact, classes


@pytest.mark.slow
@pytest.mark.parametrize("seed", [s for s in range(12) if s % 3 < 2])
def test_plans_with_exact_counts_are_near_the_best_over_possible_pairs_that_agree(seed):
    plan, _, classes = known(seed)
    rows, weights = possible_rows(plan.workload)
    classes = classes(plan.workload.schema)[open_cells(plan.workload)]
    _, best = pair_bounds([rows * np.sqrt(weights)[:, None]], close=1e-4, steps=3000, classes=classes)
    assert plan.weighted_loss <= 1.02 * best**2
    assert plan.gap < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "records"), [*((s, 1) for s in range(9)), (2, 2)])
def test_possible_neighbours_that_agree_on_exact_counts_change_by_at_most_the_cost(seed, records):
    """All changes of a table of possible records, in exact fractions; also if pairs are not written out."""
    plan, _, classes = known(seed, records_per_person=records)
    rounded = whole(plan)
    classes = classes(rounded.schema)
    grams, scale = weighted_grams(rounded)
    every = changes(len(classes), plan.budget, classes)
    worst = Fraction(largest(sum(grams[1:], grams[0]), every), scale)
    assert worst <= privacy_cost(rounded) <= min(worst * (1 + Fraction(1, 2**24)), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "WRITTEN_OUT", -1)
        assert worst <= privacy_cost(rounded)


@pytest.mark.slow
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 5, 12, 15, 16])
def test_releases_are_best_estimates_with_exact_counts(seed, split):
    """The least squares estimate of possible cells, among the tables that have the exact counts."""
    with limited(**(SPLIT if split else {})):
        plan, exact, _ = known(seed)
    workload, plan = plan.workload, plan_from_data(plan_to_data(plan))
    table = records(workload)
    release = qs.measure(plan, table, seed=1)
    cells = np.ravel_multi_index(table.to_numpy().T, workload.schema.sizes)
    counts = np.bincount(cells, minlength=math.prod(workload.schema.sizes))[open_cells(workload)]
    facts, (rows, _) = query_rows(exact)[0][:, open_cells(workload)], possible_rows(workload)
    np.testing.assert_array_equal(release.answer(exact).values, facts @ counts)
    assert not release.answer(exact).std.any()
    assert not plan.variances(exact).any()
    _, values, turned = np.linalg.svd(facts)
    free = turned[np.sum(values > 1e-9 * values[0]) :]  # what the exact counts leave open
    start = np.linalg.pinv(facts) @ (facts @ counts)
    stacked, noisy = measured_rows(release)
    image = rows @ free.T @ np.linalg.pinv(stacked @ free.T, rcond=1e-10)
    answers, variances = release.answer(workload), (image**2).sum(axis=1)
    close = 1e-9 * variances.max()
    np.testing.assert_allclose(answers.std**2, variances, rtol=1e-4, atol=close)
    expected = rows @ start + image @ (noisy - stacked @ start)
    np.testing.assert_allclose(answers.values, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(plan.variances(workload), variances, rtol=0.02, atol=close)
    follows = np.abs(rows @ free.T).max(axis=1) < 1e-9
    np.testing.assert_array_equal(answers.std == 0, follows)
    np.testing.assert_array_equal(plan.variances(workload) == 0, follows)
    np.testing.assert_array_equal(answers.values[follows], (rows @ counts)[follows])
    np.testing.assert_allclose(release.covariance(workload).diagonal(), variances, rtol=1e-4, atol=close)
    check_tables(release)


def test_a_saved_release_has_exact_counts_by_the_columns_of_the_table(tmp_path):
    schema = qs.Schema.of(a=6, b=3, c=4).impossible("a < 3 and b == 1")
    workload = qs.queries(schema, a="prefix", b="identity") + qs.marginals(schema, 2)
    plan = qs.plan(workload, COST, exact=qs.marginals(schema, ["c", "a"]))
    plan.save(tmp_path / "p.plan")
    data = records(workload)
    totals = data.groupby(["a", "c"]).size().rename("count").reset_index()
    release = qs.measure(qs.Plan.load(tmp_path / "p.plan"), data, seed=1, public=totals)
    release.save(tmp_path / "r.release")
    loaded = qs.Release.load(tmp_path / "r.release")
    np.testing.assert_array_equal(loaded.answer().values, release.answer().values)
    np.testing.assert_array_equal(loaded.marginal("a", "c"), pd.crosstab(data["a"], data["c"]))
    assert loaded.tying.components == (("a", "b"),)
    said = loaded.plan.budget.describe()
    assert "one with the same a and c, and so have the same exact counts by a × c" in said
    assert not loaded.answer("a < 2 and b == 1").std.any()
    with pytest.raises(DataError, match="disagrees with the public totals"):
        qs.measure(plan, data, seed=1, public=totals.assign(a=totals["a"].to_numpy()[::-1]))


def test_exact_counts_of_impossible_combinations_are_refused():
    schema = qs.Schema.of(a=3, b=2, c=2).impossible("a == 0 and b == 1")
    plan = qs.plan(qs.marginals(schema, 2), COST, exact=qs.marginals(schema, ["b", "a"]))
    data = release_to_data(qs.measure(plan, records(plan.workload), seed=1))
    (counts,) = data["exact"]
    assert counts[0, 1] == 0 < counts[0, 0]
    counts[0] = counts[0, ::-1]
    with pytest.raises(PrivacyError, match="exact counts contradict the number of records"):
        release_from_data(data)


def test_a_plan_that_ties_nothing_is_better_where_few_queries_ask_about_combinations():
    schema = qs.Schema.of(gq=8, va=2, race=20).impossible("gq == 3 and va == 0")
    workload = qs.marginals(schema, ["va", "race"]) + qs.marginals(schema, ["gq"])
    exact = qs.marginals(schema, ["gq"])
    plan = qs.plan(workload, COST, exact=exact)
    with limited(tied_values=0):
        free = qs.plan(workload, COST, exact=exact)
    assert plan.rmse <= free.rmse * 1.005


# --- records ---


def test_impossible_records_are_unknown_values():
    schema = qs.Schema.of(a=3, b=2, c=2).impossible("a == 0 and b == 1", "c == 1 and b == 0")
    data = pd.DataFrame({"a": [0, 1, 2, 0], "b": [0, 1, 1, 1], "c": [0, 1, 0, 0]})
    plan = qs.plan(qs.queries(schema, a="identity", b="identity"), qs.PrivacyCost(1e8))
    with pytest.raises(DataError, match="impossible: a == 0 and b == 1"):
        qs.measure(plan, data)
    release = qs.measure(plan, data, unknown="drop")
    assert release.marginal("a", "b").round().tolist() == [[1, 0], [0, 1], [0, 1]]
    with limited(tied_values=0):  # not planned for, and yet unknown
        untied = qs.plan(plan.workload, qs.PrivacyCost(1e8))
    assert qs.measure(untied, data, unknown="drop").marginal("a", "b").round().tolist() == [
        [1, 0],
        [0, 1],
        [0, 1],
    ]
    only = qs.plan(qs.queries(schema, a="identity"), qs.PrivacyCost(1e8))
    assert qs.measure(only, data).marginal("a").round().tolist() == [2, 1, 1]  # b is not read


def test_a_file_cannot_untie_what_was_planned():
    schema = qs.Schema.of(a=3, b=2).impossible("a == 0 and b == 1")
    data = plan_to_data(qs.plan(qs.queries(schema, a="identity", b="identity"), COST))
    with pytest.raises(PlanError):
        plan_from_data(data | {"tied": []})


def test_what_is_left_out_is_said_wherever_zeros_are_stated(tmp_path):
    schema = qs.Schema.of(a=3, b=2).impossible("a == 0 and b == 1")
    data = pd.DataFrame({"a": [0, 1, 2, 0], "b": [0, 1, 1, 1]})
    said = "that the schema states to be impossible together"
    for workload in (qs.queries(schema, a="identity", b="identity"), qs.marginals(schema, 1)):
        release = qs.measure(qs.plan(workload, COST), data, unknown="drop")
        release.save(tmp_path / "r.release")
        assert said in release.guarantee
        assert qs.Release.load(tmp_path / "r.release").guarantee == release.guarantee
    alone = qs.measure(qs.plan(qs.queries(schema, a="identity"), COST), data, unknown="drop")
    assert said not in alone.guarantee
    assert said not in qs.measure(qs.plan(workload, COST), data[:3]).guarantee


def test_plans_say_what_they_use_and_what_not():
    schema = qs.Schema.of(a=3, b=2, c=4).impossible("a == 0 and b == 1", "b == 0 and c == 3", "c == 0")
    workload = qs.queries(schema, a="identity", b="identity")
    assert qs.plan(workload, COST).zeros == (("a == 0 and b == 1",), ())
    assert qs.plan(workload, COST, mechanism="residual").zeros == ((), ("a == 0 and b == 1",))
    assert "a == 0 and b == 1. Such cells are 0 without error" in str(qs.plan(workload, COST))
    assert "The plan does not use this" in str(qs.plan(workload, COST, mechanism="residual"))
    with limited(tied_values=6):
        plan = qs.plan(qs.marginals(schema, 1), COST)
    assert plan.zeros == (("a == 0 and b == 1", "c == 0"), ("b == 0 and c == 3",))
    assert "impossible" not in str(qs.plan(qs.marginals(qs.Schema.of(a=3, b=2), 1), COST))
