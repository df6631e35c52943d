"""What a reader sees is the same on every processor: its last digits and the signs of eigenvectors differ."""

import json
import math
import zlib
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.arrays import first_largest, in_order
from querysmasher.comparison.compare import Row
from querysmasher.comparison.hdmm import Errors
from querysmasher.comparison.rehearsal import Rehearsed, rehearse
from querysmasher.formatting import decimal, figure, number, settled, shortened
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.whole import CombinedEstimator
from querysmasher.planning.limits import limited
from querysmasher.planning.objectives.objective import _listed
from querysmasher.planning.objectives.variances import Extreme, VarianceTable
from querysmasher.planning.strategies import AxisStrategy
from querysmasher.report.plan_report import error_data, shares
from tests.statistics.dense import Dense

PROCESSORS = range(4)
"""Each makes other errors in the last digits."""

NEARLY = (("first", 0.0), ("second", -2e-16), ("third", 4e-16))
"""Names, and by which fraction numbers differ that are equal."""

values = st.lists(st.sampled_from([0.0, 0.25, 1 / 3, 1.0, 1.5, 7e5]), min_size=1, max_size=12)


def altered(values, processor):
    """Return numbers with other last digits, always the same for the same numbers."""
    generator = np.random.default_rng([processor, zlib.crc32(np.ascontiguousarray(values).tobytes())])
    return values * (1 + 1e-14 * generator.uniform(-1, 1, np.shape(values)))


@pytest.fixture
def on(monkeypatch):
    """Return a function that computes from now on as another processor would."""
    largest, eigh = VarianceTable._column, np.linalg.eigh
    own = [
        (kind, name, vars(kind)[name])
        for kind in (Estimator, CombinedEstimator)
        for name in ("variances", "total")
    ]

    def start(processor):
        def eigenvectors(matrix):
            found = eigh(matrix)
            signs = np.random.default_rng(processor).choice([-1.0, 1.0], size=found.eigenvalues.shape[-1])
            return type(found)(altered(found.eigenvalues, processor), found.eigenvectors * signs)

        def column(table, *given):
            known = len(table.columns)
            number = largest(table, *given)
            if number == known:
                table.columns[number] = altered(table.columns[number], processor)
            return number

        monkeypatch.setattr(np.linalg, "eigh", eigenvectors)
        monkeypatch.setattr(VarianceTable, "_column", column)
        for owner, name, method in own:

            def computed(*given, _method=method):
                return altered(_method(*given), processor)

            monkeypatch.setattr(owner, name, computed)

    return start


@given(values, st.integers(0, 99))
def test_ties_are_broken_by_order(given_values, processor):
    exact = np.array(given_values)
    found = altered(exact, processor)
    assert first_largest(found) == int(exact.argmax())
    assert in_order(found).tolist() == np.argsort(exact, kind="stable").tolist()
    assert in_order(-found).tolist() == np.argsort(-exact, kind="stable").tolist()


def test_ties_of_what_is_missing_or_infinite():
    assert first_largest([1.0, math.inf, math.inf]) == 1
    assert in_order([math.inf, 2.0, math.inf, 1.0]).tolist() == [3, 1, 0, 2]
    assert in_order([]).tolist() == []


@pytest.mark.parametrize("exact", [1.15, 2.675, 12345.25, 0.125, 1 / 16, 10.0, 99.95])
def test_numbers_halfway_between_two_results_are_rounded_alike(exact):
    near = [
        exact,
        *(np.nextafter(exact, end) for end in (0.0, 1e9)),
        exact * (1 - 1e-14),
        exact * (1 + 1e-14),
    ]
    for text in (
        number,
        lambda value: decimal(value, 1),
        lambda value: figure(value, 1.0),
        lambda value: figure(12.3456, value),
        lambda value: f"{settled(value):.1%}",
        lambda value: shortened(value, 4),
    ):
        assert len({text(value) for value in near}) == 1
    assert {decimal(value, 1) for value in (0.0, -0.0, 1e-14, -1e-14, -0.04)} == {"0.0"}


def small():
    """A schema of which many queries have equal errors."""
    return qs.Schema(
        [
            qs.Categorical("sex", ["F", "M"]),
            qs.Ordinal("age", range(9)),
            qs.Categorical("region", ["north", "south", "east", "west"]),
            qs.Categorical("kind", ["a", "b", "c", "d"]),
        ]
    )


WORKLOADS = {
    "tables": (lambda schema: qs.all_kway(schema, [1, 2]), {}),
    "marginals": (lambda schema: qs.marginals(schema, [1, 2, 3]), {}),
    "whole": (lambda schema: qs.where(schema, "sex == 'M'") + qs.where(schema, "sex == 'F'"), {}),
    "worst": (lambda schema: qs.marginals(schema, [1, 2]), {"objective": "worst"}),
    "targets": (lambda schema: qs.marginals(schema, 1).within(40) + qs.marginals(schema, 2).within(80), {}),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_reads_the_same(name, on):
    make, options = WORKLOADS[name]
    seen = set()
    for processor in PROCESSORS:
        on(processor)
        plan = qs.plan(make(small()), qs.zCDP(0.02), **options)
        rows = tuple(one.rows for one in plan.extremes)
        seen.add((repr(plan), plan._repr_html_(), rows, tuple(label for label, *_ in shares(plan, 4))))
    assert len(seen) == 1
    if name == "marginals":
        assert set(rows[-1]) == {0}, "of equal errors, that of the first query counts"


def test_the_largest_errors_of_large_attributes_are_named_alike(on):
    schema = qs.Schema.of(a=60, b=3)
    seen = set()
    for processor in PROCESSORS:
        on(processor)
        with limited(dense_values=50):
            plan = qs.plan(qs.queries(schema, a="prefix", b="identity"), qs.zCDP(0.5))
        assert any(isinstance(solution.strategy, AxisStrategy) for solution in plan.solutions)
        seen.add(tuple(one.query(schema) for one in plan.extremes))
    assert seen == {("a <= 59 and b == 0",)}


def test_a_refusal_names_groups_that_miss_alike_in_order():
    names = [name for name, _ in NEARLY]
    workload = sum(qs.queries(qs.Schema.of(dict.fromkeys(names, 2)), {n: "identity"}) for n in names).within(
        2
    )
    missed = [Extreme(g, 5 * (1 + off), (0,)) for g, (_, off) in zip(workload, NEARLY, strict=True)]
    assert [part.partition(" ")[0] for part in _listed(missed).split("; ")] == names


@pytest.mark.slow  # drawing needs a large library
def test_equal_mechanisms_are_both_best_and_stay_in_order():
    best = np.sqrt(1.2345**2)
    rows = [Row(name, name, best * (1 + off), None, None, None, "", "") for name, off in NEARLY]
    made = iter(rows)
    with mock.patch("querysmasher.comparison.compare._row", side_effect=lambda *_: next(made)):
        found = qs.compare(qs.marginals(small(), 1), qs.zCDP(0.02), ["residual", "uniform", "basis"])
    assert [row.mechanism for row in found.rows] == [name for name, _ in NEARLY]
    assert json.dumps(found.chart().to_dict()).count("(best)") == len(rows)


def test_of_templates_that_lose_the_same_the_first_is_named():
    for off in (1e-14, -1e-14):
        errors = {
            "kronecker": Errors(6.0, 1.0),
            "union": Errors(5.0, 1.0),
            "marginals": Errors(5 + 5 * off, 1.0),
        }
        with mock.patch(
            "querysmasher.comparison.compare.hdmm", side_effect=lambda _, name, e=errors: e[name]
        ):
            (row,) = qs.compare(qs.marginals(small(), 1), qs.zCDP(0.02), ["hdmm"]).rows
        assert "union" in row.note


def test_ways_that_are_equally_good_on_a_rehearsal_stay_in_order():
    rows = [Rehearsed(name, name, 0.1 * (1 + off), 1.0) for name, off in NEARLY]
    rows.insert(0, Rehearsed("worse", "worse", 0.2, 1.0))
    table = pa.table({a.name: [a.values[0]] for a in small()})
    with mock.patch("querysmasher.comparison.rehearsal.Rehearsed", side_effect=rows):
        found = rehearse(qs.marginals(small(), 1), table, qs.zCDP(0.02), seeds=1)
    assert [row.name for row in found.rows] == [*(name for name, _ in NEARLY), "worse"]


def test_a_value_with_exactly_the_share_asked_for_is_the_quantile():
    schema = qs.Schema([qs.Ordinal("age", range(4)), qs.Binned("pay", edges=[0, 1, 2])])
    cells = np.array([[10, 20], [5, 15], [25, 5], [10, 10]])
    for processor in PROCESSORS:
        release = Dense(schema, altered(cells, processor), np.eye(8))
        assert release.quantile("age", [0.3, 0.5, 0.8]).values.tolist() == [0, 1, 2]


@pytest.mark.slow  # drawing needs a large library
def test_pages_are_the_same_to_the_letter(on, tmp_path):
    make, budget = WORKLOADS["targets"][0], qs.zCDP(0.02)
    on(0)
    people = pa.table({a.name: [a.values[i % a.size] for i in range(60)] for a in small()})
    qs.measure(qs.plan(make(small()), budget), people, seed=1).save(tmp_path / "people.release")
    seen = set()
    for processor in PROCESSORS[:2]:
        on(processor)
        plan = qs.plan(make(small()), budget).report(tmp_path / "plan.html")
        release = qs.Release.load(tmp_path / "people.release").report(tmp_path / "release.html")
        seen.add((plan.read_text(), release.read_text()))
    assert len(seen) == 1


def test_of_groups_with_equal_errors_the_first_are_on_a_page(monkeypatch):
    monkeypatch.setattr("querysmasher.report.plan_report.GROUPS", 3)
    plan = qs.plan(qs.marginals(qs.Schema.of(dict.fromkeys("abcdef", 4)), 1), qs.zCDP(0.02))
    for processor in PROCESSORS:
        errors = altered(np.full(6, plan.rmse), processor)
        groups = [replace(row, rmse=rmse) for row, rmse in zip(plan.summary(), errors, strict=True)]
        data, _ = error_data(plan, groups, [], plan.rmse, None)
        assert [row["label"] for row in data["groups"]] == ["a = x", "b = x", "c = x"]


def test_of_integers_that_lose_the_same_the_first_are_measured(monkeypatch):
    """So many attributes leave few bits each, in which rows of integers can be rounded in several ways."""
    schema = qs.Schema.of(a=4, b=4, c=4, d=4)
    table = pa.table({name: [0, 1, 1, 3] for name in schema.names})
    plan, solve, seen = qs.plan(qs.marginals(schema, 4), qs.zCDP(0.1)), np.linalg.solve, []
    for processor in PROCESSORS[:2]:
        monkeypatch.setattr(np.linalg, "solve", lambda *given, p=processor: altered(solve(*given), p))
        seen.append(qs.measure(plan, table, seed=1, max_records=2**40).answer().values)
    np.testing.assert_allclose(seen, seen[:1] * len(seen), rtol=1e-6, atol=1e-6)


def test_notes_stand_in_the_order_of_what_they_are_about():
    """And not in that of a set of words, which differs from process to process."""
    plan = qs.plan(qs.queries(qs.Schema.of(a=4, b=5), a="identity", b="identity"), qs.zCDP(0.1))
    (pair,) = (own for own in plan.measured if len(own.blocks) == 2)
    for methods in (("structured", "fourier"), ("fourier", "structured")):
        solutions = list(plan.solutions)
        for (_, place), method in zip(pair.blocks, methods, strict=True):
            solutions[place] = replace(solutions[place], method=method)
        assert tuple(replace(plan, measured=(pair,), solutions=tuple(solutions)).fallbacks) == methods
