"""Dates as values, the value that stands for missing ones, and words for readers: titles, units, labels."""

import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.attributes import attribute_from_json
from querysmasher.errors import SchemaError, SpecError
from querysmasher.spec import read_codebook, read_spec
from tests.builders import UNIFORM
from tests.release.tables import random_counts, simulate

DAYS = [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)]


@pytest.mark.parametrize(
    "given_days",
    [
        DAYS,
        [datetime(2024, 2, 28), datetime(2024, 2, 29), datetime(2024, 3, 1)],  # noqa: DTZ001
        pd.date_range("2024-02-28", "2024-03-01"),
        np.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]"),
        np.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]").astype("datetime64[ns]"),
    ],
)
def test_dates_are_values_however_they_are_given(given_days):
    attribute = qs.Ordinal("day", given_days)
    assert attribute.values == tuple(DAYS)
    assert {type(v) for v in attribute.values} == {date}
    assert attribute.labels == ("2024-02-28", "2024-02-29", "2024-03-01")
    assert attribute.literals == ("'2024-02-28'", "'2024-02-29'", "'2024-03-01'")
    assert attribute.position(date(2024, 3, 1)) == 2


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2024, 3, 1, 12),  # noqa: DTZ001
        datetime(2024, 3, 1, tzinfo=UTC),
        pd.Timestamp("2024-03-01 00:00:00.000000001"),
        pd.Timestamp("2024-03-01", tz="Europe/Paris"),
        pd.NaT,
        np.datetime64("NaT"),
        np.datetime64("2024-03-01T00:00:00.000000001"),
    ],
)
def test_moments_that_are_no_dates_are_refused(moment, refuses):
    with refuses(SchemaError, ValueError, "'day'", "without time or time zone"):
        qs.Ordinal("day", [moment])


def test_a_date_and_its_text_are_one_value(refuses):
    with refuses(SchemaError, ValueError, "'2024-03-01' is given both as a date and as a string"):
        qs.Ordinal("day", [date(2024, 3, 1), "2024-03-01"])
    with refuses(SchemaError, ValueError, "'2024-03-01' is given more than once"):
        qs.Ordinal("day", [date(2024, 3, 1), datetime(2024, 3, 1)])  # noqa: DTZ001
    with refuses(SchemaError, ValueError, "has no value '2024-03-02'"):
        qs.Ordinal("day", DAYS).position(date(2024, 3, 2))
    with refuses(SchemaError, ValueError, "finite numbers"):
        qs.Binned("day", edges=DAYS)


@pytest.mark.parametrize(
    ("attribute", "missing"),
    [
        (qs.Categorical("race", ["A", "B", "unknown"], missing="unknown"), "unknown"),
        (qs.Ordinal("age", [0, 1, 2, -1], missing=-1.0), -1),
        (qs.Cyclic("hour", range(24), missing=np.int64(3)), 3),
        (qs.Ordinal("day", [*DAYS, "unknown"], missing="unknown"), "unknown"),
        (qs.Ordinal("day", DAYS, missing=pd.Timestamp("2024-03-01")), DAYS[2]),
        (qs.Binned("income", edges=[0, 10, 20], missing="[0, 10)"), "[0, 10)"),
    ],
)
def test_a_declared_value_stands_for_missing_ones(attribute, missing):
    assert attribute.missing == missing
    assert type(attribute.missing) is type(missing)
    assert attribute_from_json(json.loads(json.dumps(attribute.to_json()))) == attribute


@pytest.mark.parametrize("missing", ["", 7, float("nan"), [1], date(2024, 3, 1), True])
def test_a_stand_in_that_is_no_value_is_refused(missing, refuses):
    with refuses(SchemaError, ValueError, "missing of attribute 'race'", "'A', 'B'", "got"):
        qs.Categorical("race", ["A", "B"], missing=missing)


BESIDE = [
    (qs.Categorical("x", ["A", "B"], other="other", missing="none"), ("A", "B", "other", "none")),
    (qs.Categorical("x", ["A", "B"], other="rest", missing="rest"), ("A", "B", "rest")),
    (qs.Categorical("x", ["A", "B"], other="B", missing="none"), ("A", "B", "none")),
    (qs.Ordinal("x", range(3), missing="missing"), (0, 1, 2, "missing")),
    (qs.Ordinal("x", range(3), missing=-9), (0, 1, 2, -9)),
    (qs.Ordinal("x", DAYS, missing="missing"), (*DAYS, "missing")),
    (qs.Cyclic("x", range(3), missing="missing"), (0, 1, 2, "missing")),
    (qs.Binned("x", edges=[0, 10, math.inf], missing="missing"), ("[0, 10)", "[10, inf]", "missing")),
]


STEPPED = [
    qs.Binned("x", edges=[0, 10, 25], step=1),
    qs.Binned("x", edges=[-math.inf, 0.3, 0.4, 0.7, math.inf], step=0.1, missing="m"),
    qs.Binned("x", edges=[-5, -2.5, 0], step=2.5),
]


@pytest.mark.parametrize("attribute", STEPPED)
def test_numbers_in_bins_are_rounded_to_the_step(attribute):
    """Each multiple of the step is in the bin that has it, also if it is given as a float nearby."""
    finite = [Fraction(repr(edge)) for edge in attribute.edges if math.isfinite(edge)]
    step = Fraction(repr(attribute.step))
    for k in range(-3, int((finite[-1] - finite[0]) / step) + 4):
        exact = finite[0] + k * step
        bins = [i for i, (a, b) in enumerate(pairwise(attribute.edges)) if a <= float(exact) < b]
        expected = bins[0] if bins else len(attribute.edges) - 2 if exact == finite[-1] else -1
        near = [float(exact + part * step) for part in (Fraction(-49, 100), 0, Fraction(49, 100))]
        assert attribute.indexes(np.array(near)).tolist() == [expected] * 3
        low, high = attribute.ends
        assert expected < 0 or low[expected] - 1e-12 <= float(exact) <= high[expected] + 1e-12
    assert attribute_from_json(json.loads(json.dumps(attribute.to_json()))) == attribute
    assert f"step={attribute.step}" in repr(attribute)
    assert attribute.rules[0].startswith(f"numbers are rounded to multiples of {attribute.step} from ")
    assert attribute != qs.Binned("x", edges=attribute.edges, missing=attribute.missing)


@pytest.mark.parametrize("edges", [[0, math.nan, 9], [0, None, 9], [0, "9"], [False, 9], [0, 1e301]])
def test_edges_that_are_no_numbers_are_refused(edges, refuses):
    with refuses(SchemaError, ValueError, "edges of attribute 'x'", "expected finite numbers", repr(edges)):
        qs.Binned("x", edges=iter(edges))


def test_edges_between_two_steps_are_refused(refuses):
    with refuses(SchemaError, ValueError, "edges of attribute 'x'", "0 plus a multiple of step = 2", "got 5"):
        qs.Binned("x", edges=[0, 4, 5], step=2)
    for step in (0, -1, "1", True, math.inf, [1]):
        with refuses(SchemaError, ValueError, "'x'"):
            qs.Binned("x", edges=[0, 4, 5], step=step)


@pytest.mark.parametrize(
    ("attribute", "values"),
    [
        (qs.Number("x", 0, 3), (0, 1, 2, 3)),
        (qs.Number("x", -1.0, 1), (-1, 0, 1)),
        (qs.Number("x", 0, 0.3, step=0.1, missing="m"), (0.0, 0.1, 0.2, 0.3, "m")),
        (qs.Number("x", 10, 20, step=5, outside="refuse"), (10, 15, 20)),
    ],
)
def test_numbers_are_on_their_grid(attribute, values):
    assert attribute.values == values
    assert len({type(v) for v in values[:3]}) == 1
    assert attribute_from_json(json.loads(json.dumps(attribute.to_json()))) == attribute
    assert replace(attribute, title="Title") == attribute
    assert eval(repr(attribute), {"Number": qs.Number}) == attribute  # noqa: S307


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["low of attribute 'x'", "got nothing", "qs.Number("]),
        ({"low": 0}, ["high of attribute 'x'", "got nothing"]),
        ({"low": 0, "high": "9"}, ["high of attribute 'x'", "got '9'"]),
        ({"low": True, "high": 9}, ["low of attribute 'x'", "got True"]),
        ({"low": 0, "high": math.inf}, ["high of attribute 'x'", "got inf"]),
        ({"low": 5, "high": 5}, ["high of attribute 'x'", "above low = 5", "got 5"]),
        ({"low": 0, "high": float("nan")}, ["high of attribute 'x'", "got nothing"]),
        ({"low": [0, 9]}, ["low of attribute 'x'", "got a list"]),
        ({"low": 0, "high": 9, "step": 0}, ["step of attribute 'x'", "above 0"]),
        ({"low": 0, "high": 9, "step": None}, ["step of attribute 'x'", "got None"]),
        ({"low": 0, "high": 9, "step": 2}, ["high of attribute 'x'", "a multiple of step = 2", "write 10"]),
        (
            {"low": 0, "high": 1_000_001},
            ["step of attribute 'x'", "at most 1,000,000 steps", "1,000,001", "step=2 and a multiple"],
        ),
        ({"low": 0, "high": 3_000_000}, ["at most 1,000,000 steps", "3,000,000 of 1; write step=5"]),
        ({"low": 0, "high": 20_000, "step": 0.01}, ["2,000,000 of 0.01; write step=0.02"]),
        ({"low": 0, "high": 9, "outside": "drop"}, ["outside of attribute 'x'", "clamp, refuse", "'drop'"]),
        ({"low": 0, "high": 9, "missing": -1}, ["missing of attribute 'x'", "or a string", "got -1"]),
    ],
)
def test_what_is_no_grid_is_refused(arguments, words, refuses):
    with refuses(SchemaError, ValueError, *words):
        qs.Number("x", **arguments)


def test_pages_and_files_say_how_numbers_are_clamped(tmp_path):
    schema = qs.Schema([qs.Number("income", 0, 2000, step=100, missing="none")])
    plan = qs.plan(qs.all_kway(schema, 1), qs.zCDP(1.0))
    release = qs.measure(plan, pd.DataFrame({"income": [-5.0, 149.0, 150.0, 9999.0, None]}))
    clamped = "numbers below 0 count as 0, and above 2,000 as 2,000"
    rounded = "numbers are rounded to the nearest of 0, 100, …, 2,000"
    page = release.report(tmp_path / "page.html").read_text()
    release.write(plan.workload, path := tmp_path / "answers.csv")
    described = (path.parent / "datapackage.json").read_text()
    for text in (page, described, release.mean("income").note, release.quantile("income", 0.5).note):
        assert f"{clamped}; {rounded}" in text


@pytest.mark.parametrize(("attribute", "values"), BESIDE)
def test_values_beside_the_others_come_last_and_stay_there(attribute, values):
    assert attribute.values == values
    assert attribute.size == len(values) == attribute.listed + len(attribute.beside)
    assert [attribute.position(v) for v in values] == list(range(len(values)))
    again = attribute_from_json(json.loads(json.dumps(attribute.to_json(), allow_nan=False)))
    assert again == attribute
    assert again.beside == attribute.beside
    named = replace(attribute, title="Title")
    assert (named, named.values) == (attribute, values)
    without = replace(attribute, missing=None)
    assert without.values == values[: len(values) - (attribute.missing not in without.values)]


def test_a_listed_value_is_not_one_beside_the_others():
    listed, beside = qs.Ordinal("x", [1, 2, "m"], missing="m"), qs.Ordinal("x", [1, 2], missing="m")
    assert listed.values == beside.values
    assert (listed.beside, beside.beside) == ((), ("m",))
    assert listed != beside
    assert repr(beside) == "Ordinal('x', [1, 2], missing='m')"
    assert repr(BESIDE[0][0]) == "Categorical('x', ['A', 'B'], other='other', missing='none')"


def test_labels_of_values_beside_the_others():
    for labels in (["one", "two"], ["one", "two", "unknown"], {1: "one", 2: "two", "m": "unknown"}):
        attribute = qs.Ordinal("x", [1, 2], missing="m", value_labels=labels)
        assert attribute.shown == ("one", "two", "m" if len(labels) == 2 else "unknown")


def test_what_is_no_value_for_others_is_refused(refuses):
    with refuses(SchemaError, ValueError, "other of attribute 'x'", "'A', or a string", "got 3"):
        qs.Categorical("x", ["A"], other=3)
    with pytest.raises(TypeError, match="other"):
        qs.Ordinal("x", range(3), other="other")


def test_a_schema_without_a_stand_in_is_stored_as_before():
    assert qs.Ordinal("a", [1, 2]).to_json() == {"kind": "ordinal", "name": "a", "values": [1, 2]}
    assert qs.Ordinal("a", [1, 2]) != qs.Ordinal("a", [1, 2], missing=1)


@pytest.mark.parametrize("odd", [{"date": "2024-13-01"}, {"date": 3}, {"day": "2024-01-01"}])
def test_a_damaged_date_is_refused(odd, refuses):
    with refuses(SchemaError, ValueError):
        attribute_from_json({"kind": "ordinal", "name": "a", "values": [odd]})


labels = st.one_of(st.text(max_size=3), st.integers(-5, 5), st.booleans(), st.dates())


@given(st.lists(labels, min_size=1, max_size=6, unique_by=lambda v: (isinstance(v, date), str(v))), st.data())
def test_attributes_come_back_from_json(values, data):
    values = list(dict.fromkeys(values))  # True is 1
    missing = data.draw(st.sampled_from([None, *values]))
    attribute = qs.Ordinal("a", values, missing=missing)
    again = attribute_from_json(json.loads(json.dumps(attribute.to_json())))
    assert again == attribute
    assert [type(v) for v in again.values] == [type(v) for v in attribute.values]


def test_plans_and_releases_keep_dates_and_stand_ins(tmp_path):
    schema = qs.Schema(
        [qs.Ordinal("day", [*DAYS, "unknown"], missing="unknown"), qs.Categorical("s", ["F", "M"])]
    )
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.zCDP(1.0))
    plan.save(tmp_path / "plan")
    assert qs.Plan.load(tmp_path / "plan").workload == plan.workload
    release = qs.measure(plan, pd.DataFrame({"day": [*DAYS, None], "s": list("FMFM")}))
    release.save(tmp_path / "release")
    again = qs.Release.load(tmp_path / "release")
    assert again.plan.schema == schema
    assert next(iter(release.answer().workload.labels())) == "day <= '2024-02-28'"
    page = release.report(tmp_path / "page.html").read_text()
    assert "2024-02-29" in page
    assert "missing values count as unknown" in page


SEX = qs.Categorical(
    "sex", [1, 2], title="Sex", description="As registered.", value_labels={1: "Male", 2: "Female"}
)
INCOME = qs.Binned("income", edges=[0, 10, 20], unit="€", value_labels=["low", "high"])
SCHEMA = qs.Schema([SEX, INCOME])


def test_what_readers_see():
    assert SEX.shown == ("Male", "Female")
    assert SEX.labels == ("1", "2"), "the values as text remain"
    assert (SEX.heading, INCOME.heading) == ("Sex", "income (€)")
    assert INCOME.shown == ("low", "high")
    assert qs.Ordinal("a", [1, 2], value_labels={2: "two"}).shown == ("1", "two")
    assert qs.Ordinal("a", [1, 2]).heading == "a"
    assert "Male" in SCHEMA._repr_html_()


def test_words_change_nothing_else():
    plain = qs.Categorical("sex", [1, 2])
    assert plain == SEX
    assert hash(plain) == hash(SEX)
    assert plain.to_json() == {"kind": "categorical", "name": "sex", "values": [1, 2]}


def test_words_are_stored(tmp_path):
    again = qs.Schema.from_json(SCHEMA.to_json())
    assert again.to_json() == SCHEMA.to_json()
    assert again["sex"].title == "Sex"
    assert again["income"].value_labels == ("low", "high")
    release = simulate(
        qs.plan(qs.marginals(SCHEMA, [1, 2]), qs.zCDP(1), **UNIFORM), random_counts(SCHEMA, 1), 3
    )
    release.save(tmp_path / "x.release")
    loaded = qs.Release.load(tmp_path / "x.release")
    assert loaded.plan.schema["sex"].shown == ("Male", "Female")
    shown = repr(loaded.table("sex", "income"))
    assert "Sex \\ income (€)" in shown
    assert "Female" in shown
    assert loaded.table("sex").to_frame()["sex"].to_pylist() == [1, 2, None], "files keep the code"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"title": ""}, "title"),
        ({"unit": 3}, "unit"),
        ({"description": " "}, "description"),
        ({"value_labels": ["one"]}, "value_labels"),
        ({"value_labels": "ab"}, "value_labels"),
        ({"value_labels": {7: "seven"}}, "no value 7"),
        ({"value_labels": {1: ""}}, "value_labels"),
        ({"value_labels": 5}, "value_labels"),
    ],
)
def test_words_that_cannot_be(options, word, refuses):
    with refuses(SchemaError, ValueError, word):
        qs.Categorical("sex", [1, 2], **options)


def test_a_label_in_a_predicate_is_pointed_out():
    schema = qs.Schema([qs.Categorical("sex", [1, 2], value_labels={1: "Male"})])
    with pytest.raises(qs.QuerySmasherError, match=r"no value 'Male', which is the label of 1$"):
        qs.where(schema, "sex == 'Male'")
    with pytest.raises(qs.QuerySmasherError, match=r"no value 'Female' \(it has 1, 2\)$"):
        qs.where(schema, "sex == 'Female'")


def test_a_codebook_with_labels(tmp_path):
    path = tmp_path / "book.csv"
    path.write_text(
        "attribute,kind,values,label,title,description,unit\n"
        "sex,categorical,1,Male,Sex,,\n"
        "sex,,2,Female,,As registered.,\n"
        "age,ordinal,0..9,,Age,,years\n"
        "level,ordinal,0.50;1.5,half;,,,\n"
        "income,binned,0;10;20,low;high,,,€\n"
        "month,cyclic,1..3,Jan;Feb;Mar,,,\n"
        "day,ordinal,2024-01-01..2024-01-02,Mon;Tue,,,\n"
        "day,ordinal,2024-01-03,,,,\n"
    )
    schema = read_codebook(path)
    assert schema["month"].shown == ("Jan", "Feb", "Mar")
    assert schema["day"].shown == ("Mon", "Tue", "2024-01-03")
    assert schema["sex"].shown == ("Male", "Female")
    assert schema["sex"].description == "As registered."
    assert schema["age"].heading == "Age (years)"
    assert schema["level"].shown == ("half", "1.5")
    assert schema["income"].shown == ("low", "high")
    for text, word in (
        ("a,ordinal,0..3;7,x;y,,,", "label: expected 5, one per value, got 2"),
        ("a,ordinal,0..3;b,w;x;y;z;b,,,", "label: expected 2"),
        ("a,ordinal,0..3,w;x;y;z,,,\na,ordinal,b,b,,,", "write its values one by one"),
        ("a,ordinal,1;2;3;4,x;y;z,,,", "label: expected 4"),
        ("a,ordinal,1,x,t,,\na,,2,y,u,,", "title"),
    ):
        path.write_text(f"attribute,kind,values,label,title,description,unit\n{text}\n")
        with pytest.raises(SpecError, match=word):
            read_codebook(path)


def test_a_spec_with_labels(tmp_path):
    path = tmp_path / "s.toml"
    text = (
        '[[schema]]\nname = "sex"\nkind = "categorical"\nvalues = [1, 2]\ntitle = "Sex"\n'
        'labels = {{{labels}}}\n[[schema]]\nname = "income"\nkind = "binned"\nedges = [0, 10, 20]\n'
        'unit = "€"\n'
        'labels = ["low", "high"]\n[[workload]]\nkind = "marginals"\nk = 1\n[budget]\nrho = 1.0\n'
    )
    path.write_text(text.format(labels='1 = "Male", 2 = "Female"'))
    schema = read_spec(path).schema
    assert schema["sex"].shown == ("Male", "Female")
    assert schema["income"].heading == "income (€)"
    path.write_text(text.format(labels='3 = "Male"'))
    with pytest.raises(SpecError, match="no value '3'"):
        read_spec(path)


def test_the_page_shows_labels(tmp_path):
    release = simulate(
        qs.plan(qs.marginals(SCHEMA, [1, 2]), qs.zCDP(1), **UNIFORM), random_counts(SCHEMA, 1), 3
    )
    page = release.report(tmp_path / "x.html").read_text(encoding="utf-8")
    assert '"Female"' in page
    assert np.isfinite(release.mean("income", by="sex").values).all()


@pytest.mark.slow
def test_the_plan_page_shows_titles_beside_names(tmp_path):
    plan = qs.plan(qs.marginals(SCHEMA, 1), qs.zCDP(0.5), **UNIFORM)
    page = plan.report(tmp_path / "plan.html").read_text(encoding="utf-8")
    listed = page[page.index('class="schema"') :]
    assert [cell in listed[:1500] for cell in ("Title", ">Sex<", "income (€)", "Male")] == [True] * 4
    bare = qs.plan(qs.marginals(qs.Schema.of(a=3), 1), qs.zCDP(0.5), **UNIFORM)
    page = bare.report(tmp_path / "bare.html").read_text(encoding="utf-8")
    assert "Title" not in page[page.index('class="schema"') :][:300]
