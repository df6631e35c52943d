"""Answers as a person sees them: intervals, tables, words."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

import querysmasher as qs
from querysmasher.errors import WorkloadError
from querysmasher.release import answers as answers_module
from querysmasher.release.answers import Answers

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", [10, 20, 30])])
WORKLOAD = qs.queries(SCHEMA, sex="identity", age="prefix") + qs.where(SCHEMA, "age >= 20 and sex == 'F'")


@pytest.fixture
def answers():
    return Answers(WORKLOAD, np.arange(7.0) * 100, np.arange(7.0) + 1)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99, 1e-6, 1 - 1e-12])
def test_intervals_reach_as_far_as_the_normal_distribution_says(answers, level):
    low, high = answers.interval(level)
    reach = stats.norm.isf((1 - level) / 2) * answers.std
    np.testing.assert_allclose(high - answers.values, reach, rtol=1e-3)
    np.testing.assert_allclose(answers.values - low, reach, rtol=1e-3)


def test_the_usual_interval(answers):
    low, high = answers.interval()
    np.testing.assert_allclose(high - low, 2 * 1.959964 * answers.std, rtol=1e-6)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, 95, True, "0.95", None, float("nan"), float("inf")])
def test_levels_that_cannot_be(answers, level, refuses):
    with refuses(WorkloadError, ValueError, "level"):
        answers.interval(level)
    with refuses(WorkloadError, ValueError, "level"):
        answers.to_frame(level=level)


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table), (None, pa.Table)],
)
def test_frames(answers, backend, kind):
    made = answers.to_frame(level=0.9) if backend is None else answers.to_frame(backend, 0.9)
    assert isinstance(made, kind)
    columns = made.to_pydict() if isinstance(made, pa.Table) else {n: made[n].to_list() for n in made.columns}
    names = ["table", "kind", "query", "sex", "age", "age_from", "age_to"]
    names += ["value", "std", "low", "high", "cv", "flag"]
    assert list(columns) == names
    assert columns["query"][0] == "sex == 'F' and age <= 10"
    assert columns["query"][5] == "sex == 'M' and age <= 30"
    assert columns["query"] == list(WORKLOAD.predicates())
    assert columns["table"] == ["sex × age"] * 7
    assert columns["kind"] == ["identity × prefix"] * 6 + ["where"]
    assert columns["sex"][:6] == ["F"] * 3 + ["M"] * 3
    assert columns["age"][:6] == ["10", "10..20", "10..30"] * 2
    assert columns["age_to"][:6] == [10, 20, 30] * 2
    assert (columns["sex"][6], columns["age"][6], columns["age_from"][6]) == ("F", "20..30", 20)
    assert columns["flag"] == [">30%", *["<=10%"] * 6]
    assert columns["cv"][1] == 0.02
    assert columns["value"] == answers.values.tolist()
    assert columns["std"] == answers.std.tolist()
    low, high = answers.interval(0.9)
    assert columns["low"] == low.tolist()
    assert columns["high"] == high.tolist()


@pytest.mark.parametrize("backend", ["excel", "", 7, None, pd.DataFrame])
def test_backends_that_cannot_be(answers, backend, refuses):
    with refuses(WorkloadError, ValueError, "backend"):
        answers.to_frame(backend)


def test_a_frame_too_large_is_refused_with_a_remedy(answers, monkeypatch, refuses):
    monkeypatch.setattr(answers_module, "MAX_LABELS", 6)
    with refuses(WorkloadError, ValueError, "release.write"):
        answers.to_frame()


def test_words(answers):
    assert len(answers) == 7
    shown = repr(answers).splitlines()
    assert shown[0] == "Answers to 7 queries (value ± standard error)"
    assert shown[2] == "  sex == 'F' and age <= 20: 100.0 ± 2.0"
    assert shown[-1] == "  … 2 more"
    short = Answers(qs.marginals(SCHEMA, 0), np.array([5.0]), np.array([0.0]))
    assert repr(short).splitlines()[1:] == ["  total: 5.0 ± 0.0"]
