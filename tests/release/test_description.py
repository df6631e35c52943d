"""What stands beside a file of answers, and where a release comes from."""

import datetime as dt
import json

import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.errors import FileError
from querysmasher.release.description import SINGLE
from querysmasher.release.provenance import Provenance
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
    assert found["created"] == "2024-03-01"
    assert found["version"] == "1.1"
    assert found["description"] == release.guarantee
    assert found["contributors"] == [
        {"title": "Office of Nowhere", "role": "publisher", "email": "counts@nowhere.example"}
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


def test_provenance_is_checked(release, refuses):
    for words, name in (({"title": ""}, "title"), ({"date": "soon"}, "date"), ({"contact": 3}, "contact")):
        with refuses(FileError, ValueError, name):
            release.described(**words)
    with pytest.raises(TypeError):
        release.described(author="me")
    assert Provenance().to_json() == {}
    assert Provenance.from_json(release.provenance.to_json() | {"else": 3}) == release.provenance
