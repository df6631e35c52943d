"""The steps from a codebook to a publication: describe, choose, see, compare, publish."""

import datetime as dt
import json
import re
import signal
import time
import tomllib
from pathlib import Path

import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.release.verify import verify
from querysmasher.spec import read_spec
from querysmasher.statistics.statistic import KINDS
from querysmasher.studio.describing import MEASURES
from tests.builders import PRIVATE
from tests.cli.conftest import names
from tests.studio.conftest import SPEC, error_of

pytestmark = pytest.mark.slow


def stated(studio):
    return tomllib.loads(studio.spec)


def tables(studio):
    workload = read_spec(studio.folder / "release.toml").workload
    return {frozenset(group.attributes) for group in workload.groups}


@pytest.mark.parametrize(
    "path",
    [
        "/describe",
        "/attribute",
        "/attribute?name=age",
        "/choose",
        "/see",
        "/compare",
        "/price",
        "/publish",
        "/release",
        "/text",
    ],
)
def test_every_page_is_shown(studio, path):
    studio.planned()
    text = studio.get(path)
    assert 'aria-current="page"' in text or path.split("?")[0] not in (
        "/describe",
        "/choose",
        "/see",
        "/publish",
        "/text",
    )
    assert re.findall(r"<script(?![^>]* src=)[^>]*>|<style|\sstyle=|\son\w+=", text) == []
    assert " object at 0x" not in text
    inputs = re.findall(r'<(?:input|select|textarea)(?![^>]*type="hidden")[^>]*>', text)
    for field in inputs:
        ident = re.search(r'id="([^"]*)"', field)
        labelled = (
            "aria-label" in field
            or (ident and f'for="{ident[1]}"' in text)
            or re.search(r"<label>[^<]*" + re.escape(field), text)
        )
        assert labelled, field
    idents = re.findall(r'\sid="([^"]*)"', text)
    assert len(idents) == len(set(idents)), "every id once"


FORM = dict.fromkeys(("before", "type", "label", "missing", "other", "title", "unit", "description"), "")


def test_an_attribute_is_added_changed_and_removed(fresh):
    studio = fresh
    new = FORM | {
        "attribute": "region",
        "kind": "categorical",
        "values": "N; S; 01",
        "label": "north; south; one",
    }
    studio.post("/attribute", **new)
    (region,) = (table for table in stated(studio)["schema"] if table["name"] == "region")
    assert region == {
        "name": "region",
        "kind": "categorical",
        "values": ["N", "S", "01"],
        "labels": {"N": "north", "S": "south", "01": "one"},
    }
    assert 'value="N; S; 01"' in studio.get("/attribute?name=region")
    assert 'value="north; south; one"' in studio.get("/attribute?name=region")
    changed = FORM | {
        "before": "age",
        "attribute": "age",
        "kind": "ordinal",
        "values": "0..19",
        "missing": "unknown",
    }
    studio.post("/attribute", **changed)
    schema = read_spec(studio.folder / "release.toml").schema
    assert schema.names == ("sex", "age", "hour", "income", "region")
    assert schema["age"].size == 21
    studio.drop("/describe", "schema[4]")
    assert "region" not in studio.spec
    assert "# The tables of the yearbook." in studio.spec
    before = studio.spec
    stale = studio.post("/set?back=/describe", 422, drop="schema[2]@0123456789ab")
    assert "look at it again" in stale, "another entry may be at this place now"
    assert studio.spec == before
    text = studio.drop("/describe", "schema[1]", 422)
    assert "unknown attribute &#39;age&#39;" in text, "the predicate needs it"
    assert frozenset({"age"}) in tables(studio)


@pytest.mark.parametrize(
    ("form", "field", "words"),
    [
        ({"attribute": "sex"}, "attribute", "the name &#39;sex&#39; is used more than once"),
        ({"attribute": ""}, "attribute", "missing"),
        ({"share": "0.2"}, "share", "allowed only for values to be discovered"),
        ({"values": "a; a"}, "values", "is given more than once"),
        ({"kind": "binned", "values": "3; 1"}, "values", "increasing"),
        ({"kind": "ordinal", "values": "a; b", "other": "x"}, "other", "expected a categorical attribute"),
        ({"kind": "wrong"}, "kind", "expected one of categorical"),
        ({"label": "one"}, "label", "expected 2, one per value, got 1"),
    ],
)
def test_errors_of_an_attribute_stand_beside_their_field(studio, form, field, words):
    before = studio.spec
    text = studio.post(
        "/attribute", 422, **FORM | {"attribute": "zone", "kind": "categorical", "values": "a; b"} | form
    )
    assert words in beside(text, field)
    for value in form.values():
        assert value in text
    assert studio.spec == before


def beside(text, field):
    """The problem beside a field, which no closed part of the page hides."""
    shown = re.sub(r"(?s)<details><summary>.*?</details>", "", text)
    return re.search(rf'id="{field}-problem" role="alert">(.*?)</p>', shown, re.DOTALL)[1]


@pytest.mark.parametrize(
    ("path", "form", "field", "words"),
    [
        ("/family?back=/choose", {"name": "sex", "levels": "2, 5"}, "levels", "level 1 of the hierarchy"),
        ("/family?back=/choose", {"name": "sex", "levels": "no.csv"}, "levels", "cannot be read"),
        (
            "/set?back=/choose",
            {"t:workload[2].kind": "sums", "t:workload[2].attribute": "ages", "l:workload[2].by": ""},
            "sums-attribute",
            "unknown attribute",
        ),
        (
            "/set?back=/choose",
            {"t:workload[2].kind": "sums", "t:workload[2].attribute": "age", "l:workload[2].by": "sexes"},
            "sums-by",
            "unknown attribute",
        ),
        (
            "/set?back=/decide",
            {"t:budget.neighbours": "add_remove", "n:budget.records_per_person": "0"},
            "budget-records_per_person",
            "expected an integer",
        ),
    ],
)
def test_errors_of_other_forms_stand_beside_their_field_in_sight(studio, path, form, field, words):
    before = studio.spec
    assert words in beside(studio.post(path, 422, **form), field)
    assert studio.spec == before


CODEBOOK = "attribute,kind,values\nzone,categorical,A;B\nsex,categorical,X\n"
FRICTIONLESS = {
    "resources": [
        {
            "schema": {
                "fields": [
                    {"name": "zone", "title": "Zone", "constraints": {"enum": ["A", "B"]}},
                    {"name": "grade", "type": "integer", "constraints": {"minimum": 1, "maximum": 6}},
                    {
                        "name": "code",
                        "type": "string",
                        "categories": [{"value": 1, "label": "one"}, {"value": 2, "label": "two"}],
                    },
                    {"name": "wage", "type": "number"},
                    {"name": "married", "type": "boolean"},
                ]
            }
        }
    ]
}
CSVW = {
    "tableSchema": {
        "columns": [
            {"name": "zone", "titles": "Zone", "datatype": {"base": "string", "format": "A|B"}},
            {"name": "grade", "datatype": {"base": "integer", "minimum": "1", "maximum": "6"}},
            {"name": "wage", "datatype": "decimal"},
        ]
    }
}


@pytest.mark.parametrize(
    ("name", "content", "sizes", "missing"),
    [
        ("codebook.csv", CODEBOOK, {"zone": 2}, []),
        (
            "package.json",
            json.dumps(FRICTIONLESS),
            {"zone": 2, "grade": 6, "code": 2, "married": 2},
            ["wage"],
        ),
        ("meta.json", json.dumps(CSVW), {"zone": 2, "grade": 6}, ["wage"]),
    ],
)
@pytest.mark.parametrize("uploaded", [False, True])
def test_attributes_come_from_codebooks(studio, name, content, sizes, missing, uploaded):
    (studio.folder / "release.toml").write_text(SPEC)
    if uploaded:
        mark = "frontier"
        head = f'Content-Disposition: form-data; name="upload"; filename="{name}"'
        body = f"--{mark}\r\n{head}\r\n\r\n{content}\r\n--{mark}--\r\n"
        about = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        status, _, text = studio.ask("POST", "/codebook", body=body.encode(), **about)
    else:
        (studio.folder / name).write_text(content)
        assert name in studio.get("/describe")
        status, _, text = studio.ask("POST", "/codebook", {"file": name})
    assert status == (200 if missing else 303), text
    schema = read_spec(studio.folder / "release.toml").schema
    assert {a.name: a.size for a in schema if a.name not in ("sex", "age", "hour", "income")} == sizes
    assert schema["sex"].values == ("F", "M"), "what is described already stays"
    for lacking in missing:
        assert f'href="/attribute?name={lacking}"' in text


def test_dates(fresh):
    studio = fresh
    studio.post(
        "/attribute", **FORM | {"attribute": "day", "kind": "ordinal", "values": "2024-02-28..2024-03-01"}
    )
    days = [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1)]
    assert stated(studio)["schema"][-1]["values"] == days
    assert 'value="2024-02-28; 2024-02-29; 2024-03-01"' in studio.get("/attribute?name=day")
    (studio.folder / "book.csv").write_text("attribute,kind,values\nwhen,categorical,2024-01-01;2024-05-01\n")
    studio.post("/codebook", file="book.csv")
    assert stated(studio)["schema"][-1]["values"] == [dt.date(2024, 1, 1), dt.date(2024, 5, 1)]
    assert error_of(studio.planned()) > 0


def write_por(table, path, column_labels, variable_value_labels):
    """Write a portable file of SPSS; the package writes no labels of values there."""
    pyreadstat = pytest.importorskip("pyreadstat")
    pyreadstat.write_por(table, path, column_labels=column_labels)
    text = Path(path).read_bytes().replace(b"\r\n", b"").rstrip(b"Z")
    records = text.index(b"GradeF") + len("Grade")
    labels = b""
    for name, said in variable_value_labels.items():
        each = "".join(f"{value}/{len(label)}/{label}" for value, label in said.items())
        labels += f"D1/{len(name)}/{name}{len(said)}/{each}".encode()
    text = text[:records] + labels + text[records:]
    text += b"Z" * (80 - len(text) % 80)
    Path(path).write_bytes(b"".join(text[at : at + 80] + b"\r\n" for at in range(0, len(text), 80)))


@pytest.mark.parametrize("ending", ["sav", "dta", "por"])
def test_labels_of_spss_and_stata_are_read_and_no_record(fresh, ending):
    pyreadstat = pytest.importorskip("pyreadstat")
    zone, wage, grade = [name.upper() if ending == "por" else name for name in ("zone", "wage", "grade")]
    table = pd.DataFrame({zone: [1.0, 2.0], wage: [51_234.5, 1.0], grade: [1.0, 3.0]})
    about = {
        "column_labels": {zone: "Where they live", wage: "Wage", grade: "Grade"},
        "variable_value_labels": {zone: {1: "north", 2: "south"}, grade: {1: "low", 2: "mid", 3: "high"}},
    }
    write = {"sav": pyreadstat.write_sav, "dta": pyreadstat.write_dta, "por": write_por}[ending]
    measures = {"variable_measure": {grade: "ordinal", zone: "nominal"}} if ending == "sav" else {}
    write(table, str(fresh.folder / f"survey.{ending}"), **about, **measures)
    text = fresh.post("/codebook", 200, file=f"survey.{ending}")
    assert f"survey.{ending} labels none of its values" in text
    assert "51" not in text.replace("51 </", "").partition("survey")[2]
    schema = read_spec(fresh.folder / "release.toml").schema
    assert schema[zone].values == (1, 2)
    assert schema[zone].shown == ("north", "south")
    assert schema[zone].heading == "Where they live"
    assert schema[grade].ordered == (ending == "sav")
    (fresh.folder / f"wrong.{ending}").write_text("no such file")
    assert f"wrong.{ending} is not a file of SPSS or Stata" in fresh.post(
        "/codebook", 422, file=f"wrong.{ending}"
    )


def test_a_codebook_that_another_program_changes_is_read_again(fresh):
    studio = fresh
    head = 'codebook = "book.csv"\n\n[[workload]]\nkind = "marginals"\nk = 1\n\n[budget]\nrho = 0.5\n'
    (studio.folder / "release.toml").write_text(head)
    book = studio.folder / "book.csv"
    book.write_text("attribute,kind,values\nage,ordinal,0..9\n")
    before = error_of(studio.planned())
    book.write_text("attribute,kind,values\nage,ordinal,0..9\nsex,categorical,F;M\n")
    assert "<td>sex</td>" in studio.get("/describe")
    assert error_of(studio.planned()) > before


def test_combinations_that_no_record_has(fresh):
    studio = fresh
    before = error_of(studio.planned())
    studio.post("/set?back=/describe", **{"t:impossible[0]": "age < 8 and sex == 'F'"})
    assert stated(studio)["impossible"] == ["age < 8 and sex == 'F'"]
    assert error_of(studio.planned()) < before
    text = studio.post("/set?back=/describe", 422, **{"t:impossible[1]": "agee < 8"})
    assert re.search(r'id="predicate-problem" role="alert">[^<]*did you mean &#39;age&#39;', text)
    assert "No record has" in text, "the same page"
    studio.drop("/describe", "impossible[0]")
    assert studio.spec == SPEC


def test_counts_that_are_public(fresh):
    studio = fresh
    studio.post("/set?back=/choose", **{"c:plan.exact[0]": "sex"})
    studio.post("/set?back=/choose", **{"c:plan.exact[1]": "sex, hour"})
    assert stated(studio)["plan"]["exact"] == ["sex", ["sex", "hour"]]
    panel = studio.planned()
    assert "the same exact counts by hour × sex" in panel
    text = studio.post("/set?back=/choose", 422, **{"c:plan.exact[2]": "sexx"})
    assert re.search(r'id="exact-problem" role="alert">[^<]*did you mean &#39;sex&#39;', text)
    assert "File with the counts that are public" in studio.get("/publish")
    assert "outside the folder" not in studio.post(
        "/set?back=/publish", 422, **{"t:measure.public": "../x.csv"}
    )
    studio.drop("/choose", "plan.exact[1]")
    studio.drop("/choose", "plan.exact[0]")
    assert "exact" not in stated(studio)["plan"]
    assert "File with the counts that are public" not in studio.get("/publish")


def test_sums_and_means_by_groups(fresh):
    studio = fresh
    at = "workload[2]"
    studio.post(
        "/set?back=/choose",
        **{f"t:{at}.kind": "means", f"t:{at}.attribute": "age", f"l:{at}.by": "sex, hour"},
    )
    assert stated(studio)["workload"][2] == {"kind": "means", "attribute": "age", "by": ["sex", "hour"]}
    assert "Expected error" in studio.planned()
    text = studio.post(
        "/set?back=/choose",
        422,
        **{"t:workload[3].kind": "sums", "t:workload[3].attribute": "sex", "l:workload[3].by": ""},
    )
    assert re.search(r'id="sums-attribute-problem" role="alert">[^<]*sex', text)


def test_values_that_nobody_has_a_list_of(fresh):
    studio = fresh
    form = FORM | {
        "attribute": "dest",
        "kind": "categorical",
        "values": "",
        "discover": "yes",
        "share": "0.2",
    }
    form |= {"at_most": "", "delta": ""}
    studio.post("/attribute", **form)
    assert stated(studio)["schema"][-1] == {
        "name": "dest",
        "kind": "categorical",
        "values": "discover",
        "share": 0.2,
    }
    panel = studio.planned()
    assert "errors here suppose 20 of each attribute" in panel
    assert "together satisfy differential privacy with epsilon = 1.0 and delta = 1e-06" in panel
    shown = studio.get("/attribute?name=dest")
    assert 'name="discover" value="yes" checked' in shown
    assert 'name="share" value="0.2"' in shown
    for wrong, field in (
        ({"share": "2"}, "share"),
        ({"values": "a;b"}, "values"),
        ({"at_most": "x"}, "at_most"),
    ):
        text = studio.post("/attribute", 422, **form | {"before": "dest"} | wrong)
        assert f'id="{field}-problem" role="alert"' in text
    people = (studio.folder / "people.csv").read_text().splitlines()
    more = [f"{line},{'dest' if not n else 'AB'[n % 2]}" for n, line in enumerate(people)]
    (studio.folder / "people.csv").write_text("\n".join(more))
    studio.post(
        "/set?back=/publish", **LEDGER | {"n:budget.ledger.rho": "5", "n:budget.ledger.delta": "1e-5"}
    )
    release(studio)
    text = finished(studio)
    assert "Released: out may be published" in text
    assert "dest" in (studio.folder / "out" / "summary.json").read_text()


def test_a_codebook_is_refused_that_is_elsewhere_or_none(studio):
    (studio.folder / "release.toml").write_text(SPEC)
    (studio.folder.parent / "other.csv").write_text(CODEBOOK)
    assert "in the folder of the spec" in studio.post("/codebook", 422, file="../other.csv")
    text = studio.post("/codebook", 422, file="people.csv")
    assert "expected a header with the columns attribute, kind and values" in text
    assert "F,0" not in text
    (studio.folder / "wrong.json").write_text("{")
    assert "expected a list of objects" in studio.post("/codebook", 422, file="wrong.json")


def test_a_first_spec_is_made_from_a_codebook(opened):
    studio = opened(None)
    (studio.folder / "codebook.csv").write_text(CODEBOOK)
    studio.post("/codebook", file="codebook.csv")
    assert read_spec(studio.folder / "release.toml").schema.names == ("zone", "sex")
    assert error_of(studio.planned()) > 0


def test_a_codebook_that_the_spec_names_can_be_written_into_it(opened):
    studio = opened(
        'codebook = "book.csv"  # ours\n\n[[workload]]\nkind = "marginals"\nk = 1\n\n[budget]\nrho = 0.5\n'
    )
    (studio.folder / "book.csv").write_text(
        "attribute,kind,values\nage,ordinal,0..99\nwage,number,0;1000;10\nsex,categorical,F;M\n"
    )
    studio.get("/describe")
    before = read_spec(studio.folder / "release.toml").schema
    studio.post("/codebook/detach")
    assert read_spec(studio.folder / "release.toml").schema == before
    assert "codebook" not in stated(studio)
    assert "# ours" in studio.spec


def test_names_of_columns_are_looked_up_and_nothing_else(fresh):
    studio = fresh
    rows = f"sex,age,hour,income,zone\nF,1,6,3,{PRIVATE}\n"
    (studio.folder / "people.csv").write_text(rows)
    assert "zone" not in studio.get("/describe"), "only when asked"
    text = studio.get("/describe?columns=yes")
    assert 'href="/attribute?name=zone"' in text
    assert PRIVATE not in text
    (studio.folder / "people.csv").write_text(f"F,1,6,3,{PRIVATE}\nM,2,6,3,{PRIVATE}\n")
    text = studio.ask("GET", "/describe?columns=yes")[2]
    assert "expected a header of names" in text
    assert PRIVATE not in text


def test_chips_add_and_remove_tables(fresh):
    studio = fresh
    everything = tables(studio)
    studio.post("/table?back=/choose", table="hour\nsex")
    assert tables(studio) == everything - {frozenset({"sex", "hour"})}
    assert stated(studio)["workload"][0]["kind"] == "tables"
    assert "# all of them" in studio.spec
    assert 'id="chip-sex-hour" aria-pressed="false"' in studio.get("/choose")
    studio.post("/table?back=/choose", table="sex\nhour")
    studio.post("/table?back=/choose", table="age\nsex\nhour")
    assert tables(studio) == everything | {frozenset({"sex", "age", "hour"})}
    assert 'id="chip-sex-hour" aria-pressed="true"' in studio.get("/choose")
    assert error_of(studio.planned()) > 0


def test_a_list_too_long_for_chips_is_refused_and_stays(fresh):
    names = [f"a{number}" for number in range(111)]  # 6,105 pairs
    schema = "".join(f'[[schema]]\nname = "{name}"\nkind = "ordinal"\nrange = [0, 1]\n' for name in names)
    spec = f'{schema}[[workload]]\nkind = "all_kway"\nk = 2\n[budget]\nrho = 1.0\n'
    (fresh.folder / "release.toml").write_text(spec)
    for chips in ("a0", "a0\na1"):
        assert "one list has more tables than can be changed" in fresh.post("/table", 422, table=chips)
    pattern = {"pattern1": "a0", "pattern2": "a1", "action": "remove"}
    assert "one list has more tables than can be changed" in fresh.post("/tables", 422, **pattern)
    assert fresh.spec == spec


def test_tables_by_pattern(fresh):
    studio = fresh
    everything = tables(studio)
    studio.post("/tables?back=/choose", pattern1="*", pattern2="h*", pattern3="inc", action="add")
    assert tables(studio) == everything | {
        frozenset(t) for t in (("sex", "hour", "income"), ("age", "hour", "income"))
    }
    studio.post("/tables?back=/choose", pattern1="*", pattern2="*", action="remove")
    assert {len(t) for t in tables(studio)} == {1, 2, 3}, "the predicate is on two attributes"
    studio.post("/tables?back=/choose", pattern1="*", action="remove")
    studio.post("/tables?back=/choose", pattern1="*", pattern2="*", pattern3="*", action="remove")
    assert [entry["kind"] for entry in stated(studio)["workload"]] == ["where"]
    text = studio.get("/choose?search=e")
    assert ">hour<" not in text.partition('id="names"')[0]


def test_what_is_counted_of_an_attribute(fresh):
    studio = fresh
    studio.post("/family?back=/choose", **{"family:age": "range"})
    assert stated(studio)["workload"][0]["family"] == {"age": "range"}
    studio.post("/family?back=/choose", **{"family:sex": "identity"})
    assert stated(studio)["workload"][0]["family"] == {"age": "range", "sex": "identity"}
    studio.post("/family?back=/choose", **{"family:age": ""})
    studio.post("/family?back=/choose", **{"family:sex": ""})
    assert "family" not in stated(studio)["workload"][0]
    (studio.folder / "levels.csv").write_text("sex,all\nF,x\nM,x\n")
    studio.post("/family?back=/choose", name="sex", levels="levels.csv")
    assert stated(studio)["workload"][0]["family"] == {"sex": {"hierarchy": "levels.csv"}}
    before = studio.spec
    assert "in the folder of the spec" in studio.post(
        "/family?back=/choose", 422, name="sex", levels="../x.csv"
    )
    assert studio.spec == before


def test_predicates_are_checked_while_they_are_written(fresh):
    studio = fresh
    assert "Valid: one count on sex, age" in studio.get(
        "/predicate?t%3Apredicate=age+%3E+3+and+sex+%3D%3D+%27F%27"
    )
    assert "did you mean" in studio.get("/predicate?t%3Apredicate=agee+%3E+3")
    text = studio.post("/set?back=/choose", 422, **{"t:workload[1].predicate[1]": "agee > 3"})
    assert (
        "did you mean &#39;age&#39;"
        in re.search(r'id="predicate-problem" role="alert">(.*?)</p>', text, re.DOTALL)[1]
    )
    assert 'value="agee &gt; 3"' in text
    studio.post("/set?back=/choose", **{"t:workload[1].predicate[1]": "age > 3"})
    assert stated(studio)["workload"][1]["predicate"] == ["age >= 5 and sex == 'F'", "age > 3"]
    studio.drop("/choose", "workload[1].predicate[0]")
    assert stated(studio)["workload"][1]["predicate"] == ["age > 3"]
    studio.drop("/choose", "workload[1].predicate[0]")
    assert len(stated(studio)["workload"]) == 1
    assert "# Single counts that the press asks for." in studio.spec


def test_statistics(fresh):
    studio = fresh
    at = "statistics[0]"
    text = studio.post("/set?back=/choose", 422, **{f"t:{at}.kind": "mean", f"t:{at}.attribute": "agee"})
    assert re.search(r'id="mean-attribute-problem" role="alert">[^<]*did you mean', text)
    studio.post(
        "/set?back=/choose",
        **{f"t:{at}.kind": "mean", f"t:{at}.attribute": "age", f"l:{at}.by": "sex", f"t:{at}.where": ""},
    )
    assert stated(studio)["statistics"] == [{"kind": "mean", "attribute": "age", "by": ["sex"]}]
    studio.drop("/choose", "statistics[0]")
    assert "statistics" not in stated(studio)


FORMS = {
    "table": ({"l:attributes": "sex, age", "t:percent": "row", "b:totals": "false"}, "attributes"),
    "mean": ({"t:attribute": "age", "l:by": "sex", "t:where": "hour < 6", "t:assume": ""}, "where"),
    "total": ({"t:attribute": "age", "l:by": "sex"}, "by"),
    "quantile": ({"t:attribute": "age", "l:probabilities": "0.25, 0.5"}, "probabilities"),
    "share": ({"t:predicate": "age > 3", "t:of": "sex == 'F'", "l:by": ""}, "of"),
    "difference": ({"t:a": "age > 3", "t:b": "age < 3", "l:by": "sex"}, "b"),
    "ratio": ({"t:a": "age > 3", "t:b": "age < 3", "t:title": "Old by young"}, "a"),
}


@pytest.mark.parametrize("kind", FORMS)
def test_every_statistic_has_a_form_of_its_own_arguments(fresh, kind):
    given, wrong = FORMS[kind]
    form = {f"{name[:2]}statistics[0].{name[2:]}": text for name, text in given.items()}
    start = fresh.get("/choose").split(f'kind" value="{kind}"')[1].partition("</form>")[0]
    needed, more = KINDS[kind]
    assert re.findall(r'name="\w:statistics\[0\]\.(\w+)"', start) == [*needed, *more, "title"]
    assert all(f'name="{name}"' in start for name in form)
    named = {name: text for name, text in form.items() if name.endswith("." + wrong)}
    broken = form | {"t:statistics[0].kind": kind} | dict.fromkeys(named, "wrong")
    text = fresh.post("/set?back=/choose", 422, **broken)
    assert re.search(rf'id="{kind}-{wrong}-problem" role="alert">[^<]*wrong', text)
    assert text.count('class="problem"') == 1, "in no other form"
    assert f"<details open><summary>{MEASURES[kind]}" in text, "what was typed stays"
    fresh.post("/set?back=/choose", **form | {"t:statistics[0].kind": kind})
    (table,) = stated(fresh)["statistics"]
    assert read_spec(fresh.folder / "release.toml").statistics
    assert set(table) == {"kind", *(name.split(".")[1] for name, text in form.items() if text)}
    fresh.drop("/choose", "statistics[0]")
    assert fresh.spec == SPEC


def test_made_up_tables_are_marked_and_have_the_errors_of_the_plan(fresh):
    studio = fresh
    studio.planned()
    text = studio.get("/see?first=sex&records=5000")
    assert text.count("made-up") >= 2
    spec = read_spec(studio.folder / "release.toml")
    plan = spec.plan()
    std = plan.variances(qs.queries(spec.schema, sex="identity")) ** 0.5
    shown = [float(said) for said in re.findall(r"± ([\d.]+)</td>", text[text.index("made-up count") :])][:2]
    assert shown == pytest.approx(std.tolist(), rel=6e-3)
    assert "expected an integer from 1" in studio.ask("GET", "/see?first=sex&records=-1")[2]
    assert "polyline" in text
    assert "<meter" in text


def test_two_settings_are_compared(fresh):
    studio = fresh
    first = error_of(studio.planned())
    studio.post("/keep")
    studio.post("/slide", position=130)
    second = error_of(studio.planned())
    text = studio.get("/compare")
    figures = re.findall(
        r'Expected error</th><td class="n">± ([\d.]+)</td><td class="n">± ([\d.]+)</td>', text
    )
    assert [tuple(map(float, pair)) for pair in figures] == [(first, second)]
    options = re.findall(r'<option value="(\w+)"', text)
    *_, before, after = options[: len(options) // 2]
    turned = studio.get(f"/compare?a={after}&b={before}")
    assert f"± {second:g}" in turned
    assert "epsilon = 4.0" in turned


def test_what_an_accuracy_costs(fresh):
    studio = fresh
    (studio.folder / "release.toml").write_text(SPEC.replace("k = [1, 2]", "k = 1"))
    text = studio.get("/price?target=10&level=")
    found = float(re.search(r"ε = ([\d.]+)", text)[1])
    assert "certified" in text
    before = studio.spec
    studio.post("/set", **{"n:budget.epsilon": str(found), "n:budget.delta": "1e-6"})
    assert stated(studio)["budget"]["epsilon"] == found
    assert before.count("#") == studio.spec.count("#")
    studio.post("/set", **{"n:workload[0].target": "10", "n:workload[1].target": "10"})
    panel = studio.planned()
    assert panel.count('class="met"') == 2, "the budget suffices for what was asked"
    assert "expected a positive number" in studio.ask("GET", "/price?target=-1&level=")[2]
    assert "allowed only together with target" in studio.ask("GET", "/price?target=&level=0.9")[2]


LEDGER = {
    "t:budget.ledger.path": "people.ledger",
    "n:budget.ledger.rho": "0.2",
    "t:budget.ledger.label": "members",
}


def finished(studio):
    deadline = time.monotonic() + 120
    while True:
        text = studio.get("/run")
        if 'hx-trigger="load delay:400ms"' not in text:
            return text
        assert time.monotonic() < deadline
        time.sleep(0.1)


def release(studio):
    studio.planned()
    assert "Release?" in studio.get("/release")
    text = studio.get("/release/again")
    token = re.search(r'name="token" value="([^"]+)"', text)[1]
    studio.post("/release", token=token)
    return token, text


def test_a_release_is_asked_twice_recorded_once_and_verified(fresh):
    studio = fresh
    studio.post("/set?back=/publish", **LEDGER | {"t:output.answers": "csv", "t:about.title": "Members"})
    token, asked = release(studio)
    for words in ("zCDP with rho = ", "epsilon = 1.0", "people.csv", "new, with the limit"):
        assert words in asked or words in studio.get("/release")
    text = finished(studio)
    assert "Released: out may be published" in text
    assert names(studio.folder / "out") == [
        "answers.csv",
        "datapackage.json",
        "plan.qs",
        "release.qs",
        "summary.json",
    ]
    studio.post("/release", token=token)
    finished(studio)
    ledger = qs.Ledger(studio.folder / "people.ledger")
    assert len(ledger.entries) == 1, "a form that is sent again spends nothing"
    studio.post("/verify")
    assert "Verified: out" in finished(studio)
    assert verify(studio.folder / "out", ledger).ok
    studio.post("/microdata")
    text = finished(studio)
    assert "Written: out/microdata.parquet" in text
    assert "synthetic records, seed" in text
    (studio.folder / "out" / "report.html").write_text("a page with scripts")
    _, headers, page = studio.ask("GET", "/files/report.html")
    assert headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in headers["content-security-policy"]
    assert page == "a page with scripts"
    _, headers, answers = studio.ask("GET", "/files/answers.csv")
    assert headers["content-disposition"].startswith("attachment")
    assert answers.startswith('"table","kind","query"')


@pytest.mark.parametrize(
    "name",
    [
        "people.csv",
        "../people.csv",
        "..%2fpeople.csv",
        "%2fetc%2fpasswd",
        "notes.txt",
        "link.csv",
        "answers.csv",
    ],
)
def test_only_files_of_a_release_are_sent(fresh, name):
    studio = fresh
    out = studio.folder / "out"
    out.mkdir()
    (out / "release.qs").write_text("x")
    (out / "notes.txt").write_text(PRIVATE)
    (out / "people.csv").write_text(PRIVATE)
    (out / "answers.csv").symlink_to(studio.folder.parent / "secret")
    (studio.folder.parent / "secret").write_text(PRIVATE)
    status, _, text = studio.ask("GET", f"/files/{name}")
    assert status == 404
    assert PRIVATE not in text


def test_no_release_without_both_questions_or_after_a_change(fresh):
    studio = fresh
    studio.post("/release")
    studio.post("/release", token=studio.origin)
    studio.planned()
    token = re.search(r'name="token" value="([^"]+)"', studio.get("/release/again"))[1]
    studio.post("/slide", position=150)
    assert "was changed in the meantime" in studio.post("/release", 422, token=token)
    assert not (studio.folder / "out").exists()
    qs.Ledger(studio.folder / "people.ledger", limit=qs.zCDP(1), label="members")
    studio.post("/set?back=/publish", **{"t:budget.ledger.path": "people.ledger"})
    studio.planned()
    token = re.search(r'name="token" value="([^"]+)"', studio.get("/release/again"))[1]
    people = qs.Schema.of(sex=2)
    plan = qs.plan(qs.marginals(people, 1), qs.zCDP(0.5))
    qs.measure(plan, pd.DataFrame({"sex": [0, 1]}), ledger=qs.Ledger(studio.folder / "people.ledger"))
    assert "was changed in the meantime" in studio.post("/release", 422, token=token), "less is left now"


def test_only_check_shows_records_and_says_so(fresh):
    studio = fresh
    people = (studio.folder / "people.csv").read_text()
    (studio.folder / "people.csv").write_text(people + f"{PRIVATE},3,6,3\n")
    studio.post("/check")
    text = finished(studio)
    assert PRIVATE in text
    assert text.index("For the custodian only") < text.index(PRIVATE)
    release(studio)
    text = finished(studio)
    assert 'class="warning"' in text
    assert PRIVATE not in text
    for path in ("/decide", "/publish", "/describe?columns=yes", "/see", "/choose"):
        assert PRIVATE not in studio.ask("GET", path)[2]


def test_a_release_goes_on_if_studio_is_killed_and_is_spent_once(opened):
    studio = opened()
    studio.post("/set?back=/publish", **LEDGER)
    release(studio)
    studio.process.send_signal(signal.SIGKILL)
    studio.process.wait()
    deadline = time.monotonic() + 120
    while not (studio.folder / "out" / "release.qs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    again = opened()
    assert len(qs.Ledger(studio.folder / "people.ledger").entries) == 1
    assert "What is published in out" in again.get("/publish")
    release(again)
    assert "already has a release" in finished(again)
    assert len(qs.Ledger(studio.folder / "people.ledger").entries) == 1


def test_what_was_measured_is_completed_without_spending_again(fresh):
    studio = fresh
    studio.post("/set?back=/publish", **LEDGER)
    release(studio)
    finished(studio)
    (studio.folder / "out").rename(studio.folder / "out.unfinished-3fa2b1")
    text = studio.get("/publish")
    assert "but did not finish" in text
    studio.post("/complete", draft="out.unfinished-3fa2b1")
    assert "Released: out may be published" in finished(studio)
    assert len(qs.Ledger(studio.folder / "people.ledger").entries) == 1
    studio.post("/complete", 200, draft="../elsewhere")
