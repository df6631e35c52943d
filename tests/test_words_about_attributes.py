"""Titles, descriptions, units and labels: words for readers, which change nothing else."""

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import SchemaError, SpecError
from querysmasher.spec import read_codebook, read_spec
from tests.builders import UNIFORM
from tests.release.tables import random_counts, simulate

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
def test_mistakes(options, word, refuses):
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
