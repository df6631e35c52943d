"""What stands beside a file of answers, and where a release comes from."""

import datetime as dt
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.errors import FileError
from querysmasher.formats import endings as formats_by_ending
from querysmasher.release.provenance import Provenance
from querysmasher.release.writing import SINGLE
from tests.builders import UNIFORM
from tests.release.tables import random_counts, simulate

SCHEMA = qs.Schema(
    [
        qs.Categorical("sex", ["F", "M"], title="Sex", value_labels={"F": "Female", "M": "Male"}),
        qs.Ordinal("age", range(5), unit="years", description="At last birthday."),
        qs.Categorical("day", [dt.date(2024, 3, 1), dt.date(2024, 3, 2)]),
    ]
)
WORDS = {
    "title": "People of Nowhere",
    "organisation": "Office of Nowhere",
    "contact": "counts@nowhere.example",
    "date": "2024-03-01",
    "data": "register 2024",
    "version": "1.1",
}


@pytest.fixture(scope="module")
def release():
    plan = qs.plan(qs.marginals(SCHEMA, [0, 1]), qs.zCDP(0.5), **UNIFORM)
    return simulate(plan, random_counts(SCHEMA, 2), 7).described(**WORDS)


def package(folder):
    return json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))


def test_columns_units_and_guarantee(release, tmp_path):
    release.write(release.workload, tmp_path / "counts.csv")
    found = package(tmp_path)
    assert found["title"] == "People of Nowhere"
    assert found["created"] == "2024-03-01T00:00:00Z"  # the standard wants a time
    assert found["version"] == "1.1"
    assert found["description"] == release.guarantee
    assert found["contributors"] == [
        {"title": "Office of Nowhere", "roles": ["publisher"], "email": "counts@nowhere.example"}
    ]
    (resource,) = found["resources"]
    assert (resource["path"], resource["format"], resource["mediatype"]) == ("counts.csv", "csv", "text/csv")
    assert resource["bytes"] == (tmp_path / "counts.csv").stat().st_size
    fields = {field["name"]: field for field in resource["schema"]["fields"]}
    header = (tmp_path / "counts.csv").read_text().splitlines()[0]
    assert list(fields) == header.replace('"', "").split(",")
    assert fields["sex"]["title"] == "Sex"
    assert fields["sex"]["categories"] == [{"value": "F", "label": "Female"}, {"value": "M", "label": "Male"}]
    assert fields["age"] == {
        "name": "age",
        "type": "integer",
        "description": f"At last birthday. {SINGLE}",
        "unit": "years",
    }
    assert fields["day"]["type"] == "date"
    assert fields["std"]["type"] == "number"
    assert "Standard error" in fields["std"]["description"]
    source = resource["querysmasher"]
    assert source["guarantee"] == release.guarantee
    assert source["private"] is False
    assert source["data"] == "register 2024"
    assert source["level"] == 0.95
    assert source["budget"] == release.plan.budget.to_json()
    assert source["software"] == f"querysmasher {qs.__version__}"


def test_it_follows_the_standard(release, tmp_path):
    """Rules of version 2 that the validator of Frictionless checks, in every format."""
    pytest.importorskip("xlsxwriter")
    for ending in formats_by_ending():
        release.write(release.workload, tmp_path / f"a{ending}")
    found = package(tmp_path)
    assert found["$schema"].endswith("/2.0/datapackage.json")
    dt.datetime.fromisoformat(found["created"])
    names = [resource["name"] for resource in found["resources"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[-a-z0-9._/]+", name) for name in names)
    types = {"string", "integer", "number", "boolean", "date"}
    for resource in found["resources"]:
        assert ("type" in resource) == (resource["format"] != "arrow")
        fields = resource["schema"]["fields"]
        assert {field["type"] for field in fields} <= types
        assert all(field["description"] for field in fields)
        is_parquet = resource["format"] == "parquet"  # its readers show missing numbers as NaN
        assert all(
            ("missingValues" in f) == (is_parquet and f["type"] in ("integer", "number")) for f in fields
        )
    (as_json,) = (r for r in found["resources"] if r["format"] == "json")
    assert as_json["dialect"]["property"] in json.loads((tmp_path / "a.json").read_text())


@pytest.mark.slow
def test_every_sheet_of_a_workbook_is_described(release, tmp_path):
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    release.write(release.workload, tmp_path / "a.xlsx")
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    told = {r["dialect"]["sheetName"]: r["schema"]["fields"] for r in package(tmp_path)["resources"]}
    assert [*told] == [name for name in book.sheetnames if name != "Notes"] == ["total", "sex", "age", "day"]
    for sheet, fields in told.items():
        assert [field["name"] for field in fields] == [cell.value for cell in book[sheet][1]]


def test_categories_are_told_only_of_columns_that_hold_nothing_else(tmp_path):
    """The standard restricts a column with categories to them, and to strings and integers."""
    schema = qs.Schema(
        [
            qs.Cyclic("q", [1, 2], value_labels={1: "first", 2: "second"}),
            qs.Ordinal("x", [0.5, 1.5], value_labels={0.5: "low", 1.5: "high"}),
            qs.Categorical("sex", [1, 2], value_labels={1: "Female", 2: "Male"}),
        ]
    )
    plan = qs.plan(qs.queries(schema, q="circular") + qs.marginals(schema, 1), qs.zCDP(0.5), **UNIFORM)
    made = simulate(plan, random_counts(schema, 2), 7)
    made.write(made.workload, tmp_path / "a.csv")
    fields = {field["name"]: field for field in package(tmp_path)["resources"][0]["schema"]["fields"]}
    assert {name: ("categories" in fields[name], "labels" in fields[name]) for name in ("q", "x", "sex")} == {
        "q": (False, True),  # some rows count a range: 2..1
        "x": (False, True),
        "sex": (True, False),
    }
    assert fields["x"]["labels"] == [{"value": 0.5, "label": "low"}, {"value": 1.5, "label": "high"}]


def test_level_thresholds_and_suppression_are_stated(release, tmp_path):
    release.write(release.workload, tmp_path / "a.csv", level=0.9, thresholds=(0.05,), suppress=0.25)
    (resource,) = package(tmp_path)["resources"]
    told = resource["querysmasher"]
    assert (told["level"], told["thresholds"], told["suppress"]) == (0.9, [0.05], 0.25)
    fields = {field["name"]: field["description"] for field in resource["schema"]["fields"]}
    assert "90% confidence interval" in fields["low"]
    assert "90% confidence interval" in fields["high"]
    assert "above 25%" in fields["flag"]
    chosen = {"level": np.float32(0.5), "thresholds": np.array([0.25]), "suppress": np.float32(0.5)}
    release.write(release.workload, tmp_path / "a.csv", **chosen)
    told = package(tmp_path)["resources"][0]["querysmasher"]
    assert (told["level"], told["thresholds"], told["suppress"]) == (0.5, [0.25], 0.5)


def test_several_files_share_a_description(release, tmp_path):
    release.write(release.workload, tmp_path / "a.csv")
    release.write(release.workload, tmp_path / "b.csv.gz")
    release.write(release.workload, tmp_path / "a.csv")
    assert [r["path"] for r in package(tmp_path)["resources"]] == ["b.csv.gz", "a.csv"]
    (tmp_path / "b.csv.gz").unlink()
    release.write(release.workload, tmp_path / "c.parquet")
    assert [r["path"] for r in package(tmp_path)["resources"]] == ["a.csv", "c.parquet"]


@pytest.mark.parametrize(
    "text", ["{}", "not JSON", '{"resources": []}', '{"querysmasher": {}, "resources": [3]}', "[]"]
)
def test_a_foreign_description_is_not_overwritten(release, tmp_path, text):
    (tmp_path / "datapackage.json").write_text(text)
    release.write(release.workload, tmp_path / "a.csv")
    assert (tmp_path / "datapackage.json").read_text() == text
    assert (tmp_path / "a.csv.datapackage.json").is_file()


def test_provenance_travels_with_files(release, tmp_path):
    release.write(release.workload, tmp_path / "a.parquet")
    stored = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"querysmasher"])
    release.write(release.workload, tmp_path / "a.json")
    for found in (stored, json.loads((tmp_path / "a.json").read_text())["about"]):
        assert found["organisation"] == "Office of Nowhere"
        assert found["guarantee"] == release.guarantee
    release.save(tmp_path / "x.release")
    loaded = qs.Release.load(tmp_path / "x.release")
    assert loaded.provenance == release.provenance
    assert loaded.provenance.date == dt.date(2024, 3, 1)
    assert loaded.described(version="2").provenance.version == "2"
    assert loaded.described(version="2").provenance.title == "People of Nowhere"


def test_long_words_of_several_lines_come_back_from_files(release, tmp_path):
    """They were accepted and saved, and the release could not be loaded."""
    described = release.described(contact="An Office\nof \x1b[2JNowhere", title="long " * 200)
    assert described.provenance.contact == "An Office\nof \ufffd[2JNowhere"
    described.save(tmp_path / "x.release")
    assert qs.Release.load(tmp_path / "x.release").provenance == described.provenance


def test_provenance_is_checked(release, refuses):
    for words, name in (({"title": ""}, "title"), ({"date": "soon"}, "date"), ({"contact": 3}, "contact")):
        with refuses(FileError, ValueError, name):
            release.described(**words)
    with pytest.raises(TypeError):
        release.described(author="me")
    assert Provenance().to_json() == {}
    assert Provenance.from_json(release.provenance.to_json() | {"else": 3}) == release.provenance
