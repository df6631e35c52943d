"""What statistics refuse, what they are about, and which of them are unreliable."""

import numpy as np
import pyarrow as pa

import querysmasher as qs
from querysmasher.errors import (
    OutOfRangeError,
    PredicateError,
    UnknownAttributeError,
    WorkloadError,
)
from tests.statistics.dense import Dense, exact
from tests.statistics.test_statistics import SCHEMA, SHAPE, SIZE


def test_mistakes(refuses):
    release = exact(SCHEMA, np.ones(SIZE))
    cases = [
        (WorkloadError, "sex", lambda: release.mean("sex")),
        (WorkloadError, "categorical", lambda: release.quantile("sex", 0.5)),
        (WorkloadError, "probabilities", lambda: release.quantile("age", 1)),
        (WorkloadError, "probabilities", lambda: release.quantile("age", [])),
        (WorkloadError, "probabilities", lambda: release.quantile("age", ["a"])),
        (WorkloadError, "bins", lambda: release.quantile("income", 0.5, bins="middle")),
        (WorkloadError, "by", lambda: release.mean("age", by="age")),
        (WorkloadError, "by", lambda: release.mean("age", by=3)),
        (WorkloadError, "percent", lambda: release.table("sex", "age", percent="rows")),
        (WorkloadError, "percent", lambda: release.table("sex", percent="row")),
        (WorkloadError, "attributes", release.table),
        (
            WorkloadError,
            "b: expected",
            lambda: release.ratio(qs.queries(SCHEMA, sex="identity"), qs.queries(SCHEMA, age="identity")),
        ),
        (WorkloadError, "a: expected", lambda: release.difference(3, "age >= 45")),
        (
            WorkloadError,
            "a: expected figures of this release",
            lambda: release.difference(exact(SCHEMA, np.ones(SIZE)).mean("age"), release.mean("age")),
        ),
        (
            WorkloadError,
            "b: expected 2 figures",
            lambda: release.difference(release.mean("age", by="sex"), release.mean("income", by="age")),
        ),
        (WorkloadError, "level", lambda: release.mean("age").interval(2)),
        (WorkloadError, "level", lambda: release.mean("age").interval(2, simultaneous=True)),
        (WorkloadError, "thresholds", lambda: release.table("sex", thresholds=(0.3, 0.2))),
        (WorkloadError, "thresholds", lambda: release.table("sex", thresholds=0.3)),
        (WorkloadError, "suppress", lambda: release.table("sex", suppress=-1)),
        (WorkloadError, "value: there are 2", lambda: float(release.mean("age", by="sex"))),
        (PredicateError, "age", lambda: release.share("age")),
        (PredicateError, "predicate: expected", lambda: release.share(3)),
        (PredicateError, "of: expected", lambda: release.share("age > 20", of=3)),
        (PredicateError, "of: expected", lambda: release.share("age > 20", of="")),
        (PredicateError, "where: expected", lambda: release.mean("age", where=3)),
        (PredicateError, "where: expected", lambda: release.total_of("age", where=" ")),
        (PredicateError, "where: expected", lambda: release.quantile("age", 0.5, where=3)),
        (WorkloadError, "attributes: expected names one by one", lambda: release.table(["sex", "age"])),
        (WorkloadError, "totals: expected True or False", lambda: release.table("sex", totals="yes")),
        (WorkloadError, "expected an integer, got 'sex'", lambda: release.mean("age")["sex"]),
        (OutOfRangeError, "from -1 to 0, got 3", lambda: release.mean("age")[3]),
    ]
    for error, word, call in cases:
        with refuses(error, ValueError, word):
            call()
    with refuses(UnknownAttributeError, KeyError, "sx"):
        release.mean("age", by="sx")
    odd = qs.Schema([qs.Ordinal("o", [3, 1, 2]), qs.Ordinal("t", ["low", "high"]), qs.Cyclic("h", [1, 2])])
    with refuses(WorkloadError, ValueError, "do not increase"):
        exact(odd, np.ones(12)).quantile("o", 0.5)
    with refuses(WorkloadError, ValueError, "not numbers"):
        exact(odd, np.ones(12)).mean("t")
    with refuses(WorkloadError, ValueError, "cyclic"):
        exact(odd, np.ones(12)).mean("h")


def test_what_a_contrast_is_about():
    release = exact(SCHEMA, np.ones(SIZE))
    means = release.mean("age", by="sex")
    same = release.difference(means, release.mean("income", by="sex"))
    assert [c.name for c in same.columns] == ["sex"]
    assert same.title == "Difference: Mean of age by sex - Mean of income by sex"
    assert release.ratio(means, release.mean("age"))[1].about == {"sex": "M"}
    entries = release.difference(means[0], means[1])
    assert entries[0].about == {"a": "sex = F", "b": "sex = M"}
    other = release.difference(means[0], release.mean("age"))
    assert other[0].about == {"sex": "F"}
    assert release.difference("sex == 'F'", "sex == 'M'")[0].about == {"a": "sex == 'F'", "b": "sex == 'M'"}
    assert release.difference(means, "sex == 'F'")[0].about["b"] == "sex == 'F'"
    assert "mid-points" in same.note
    spread = release.ratio(release.quantile("income", 0.9), release.quantile("income", 0.1))
    assert spread[0].about == {"a": "probability = 0.9", "b": "probability = 0.1"}


def test_conditions_that_nobody_meets():
    """No records, without noise: nothing bounds a mean or a quantile, and a total is zero."""
    release = Dense(SCHEMA, np.ones(SIZE), np.eye(SIZE))
    never = "age > 50 and age < 40"
    for found in (
        release.mean("age", where=never),
        release.share("sex == 'F'", of=never),
        release.quantile("age", 0.5, where=never),
        release.quantile("income", 0.5, where=never),
        release.ratio("sex == 'F'", never),
    ):
        assert np.isnan(found.values[0])
        assert np.isnan(found.std[0])
        assert [end[0] for end in found.interval()] == [-np.inf, np.inf]
        assert found.flags().tolist() == ["unreliable"]
        assert "nan" not in repr(found)
    assert release.total_of("age", where=never).value == 0
    assert release.share(never).value == 0


def test_titles_state_units():
    schema = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(3), unit="years")])
    release = exact(schema, np.ones(6))
    for found in (release.mean("age", by="sex"), release.total_of("age"), release.quantile("age", 0.5)):
        assert "of age (years)" in found.title


def test_numbers_of_numpy_are_numbers():
    release = Dense(SCHEMA, np.ones(SIZE), np.eye(SIZE))
    found = release.table("sex", thresholds=np.array([0.1, 0.2]), suppress=np.float32(0.5))
    assert found.rules.thresholds == (0.1, 0.2)
    level = np.float32(0.5)
    np.testing.assert_array_equal(found.interval(level), found.interval(float(level)))


def test_unreliable_where_the_denominator_is_near_zero():
    counts = np.zeros(SHAPE)
    counts[0] = 100
    counts[1, 0, 0] = 20
    release = Dense(SCHEMA, counts, 10 * np.eye(SIZE))  # the men: 20, with a standard error of 11
    for found in (
        release.mean("age", by="sex"),
        release.share("age >= 45", by="sex"),
        release.quantile("age", 0.5, by="sex"),
        release.quantile("income", 0.5, by="sex"),
    ):
        assert found.reliable.tolist() == [True, False]
        assert found.flags().tolist()[1] == "unreliable"
        assert "unreliable" in repr(found)
        assert found.to_frame()["flag"].to_pylist()[1] == "unreliable"
    low, high = release.mean("age", by="sex").interval(0.95)
    assert (low[1], high[1]) == (-np.inf, np.inf)
    assert "?: unreliable" in repr(release.table("sex", "age", percent="row"))
    nobody = exact(SCHEMA, np.zeros(SIZE)).mean("age")
    assert np.isnan(nobody.values[0])
    assert nobody.interval()[0][0] == -np.inf
    assert not nobody.reliable[0]
    assert nobody.to_frame().to_pylist()[0]["value"] is None


def test_figures_from_bins_say_that_intervals_do_not_cover_where_records_lie():
    """Records at the lower ends of their bins: no interval covers their mean, total or median."""
    schema = qs.Schema([qs.Binned("pay", edges=[0, 10, 20, 30]), qs.Ordinal("age", range(3))])
    people = {"pay": [0.0, 10.0, 20.0] * 3000, "age": [0, 1, 2] * 3000}
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.zCDP(0.5))
    release = qs.measure(plan, pa.table(people), seed=1)
    words = (
        "Intervals cover the noise, not this assumption: the figure of the records themselves can lie outside"
    )
    for found, truth in (
        (release.mean("pay"), 10),
        (release.total_of("pay"), 90_000),
        (release.quantile("pay", 0.5), 10),
        (release.quantile("pay", 0.5, bins="midpoints"), 10),
        (release.mean("pay", by="age"), [0, 10, 20]),
    ):
        low, high = found.interval(0.99)
        assert ((low > truth) | (high < truth)).all()
        assert words in found.note
        assert words in repr(found)
    assert words in release.difference(release.mean("pay"), release.quantile("pay", 0.5)).note
    for found, truth in (
        (release.mean("age"), 1),
        (release.quantile("age", 0.5), 1),
        (release.share("age < 1"), 1 / 3),
    ):
        low, high = found.interval(0.999)
        assert (low <= truth) & (truth <= high)
        assert words not in found.note
