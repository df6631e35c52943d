"""`microdata`: records with a description, which `verify` draws again."""

import json

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.estimate.microdata import USES, WEIGHTED

pytestmark = pytest.mark.usefixtures("rehearsed_once")


def test_records_of_a_release_are_described_and_drawn_again(folder, run):
    run("release")
    out = run("microdata", "out", "--records", 40, "--seed", 3).out
    assert "Synthetic records, which do not describe real people" in " ".join(out.split())
    records = pq.read_table(folder / "out" / "microdata.parquet")
    again = qs.Release.load(folder / "out" / "release.qs").estimate().microdata(40, seed=3)
    assert records.to_pylist() == again.to_frame().to_pylist()
    described = json.loads((folder / "out" / "microdata.parquet.datapackage.json").read_text())
    (resource,) = described["resources"]
    assert [field["name"] for field in resource["schema"]["fields"]] == records.column_names
    assert resource["description"] == USES
    assert (described["querysmasher"]["records"], described["querysmasher"]["seed"]) == (40, 3)
    assert described["querysmasher"]["error"] == str(again.error())
    verdict = qs.verify(folder / "out")
    assert verdict.ok
    assert "40 synthetic records follow from the noisy numbers" in str(verdict)


def test_weights_are_written_described_and_fitted_again(folder, run):
    run("release")
    out = run("microdata", "out", "--records", 40, "--seed", 3, "--weights").out
    assert "not survey weights" in " ".join(out.split())
    records = pq.read_table(folder / "out" / "microdata.parquet")
    again = qs.Release.load(folder / "out" / "release.qs").estimate().microdata(40, seed=3, weights=True)
    assert records.to_pylist() == again.to_frame().to_pylist()
    assert records.column_names[-1] == "weight"
    described = json.loads((folder / "out" / "microdata.parquet.datapackage.json").read_text())
    last = described["resources"][0]["schema"]["fields"][-1]
    assert (last["name"], last["type"], last["description"]) == ("weight", "number", WEIGHTED)
    assert described["querysmasher"]["weights"] is True
    assert described["querysmasher"]["error"] == str(again.error())
    assert qs.verify(folder / "out").ok


def test_other_records_are_not_verified(folder, run):
    run("release")
    run("microdata", "out", "--records", 40, "--seed", 3, "--out", "out/microdata.csv")
    file = folder / "out" / "microdata.csv"
    assert len(pyarrow.csv.read_csv(file)) == 40
    assert qs.verify(folder / "out").ok
    text = file.read_text().splitlines()
    file.write_text("\n".join([*text[:-1], text[1]]) + "\n")
    verdict = qs.verify(folder / "out")
    assert verdict.outcome == "not verified"
    assert "draws or writes other records from its seed here" in str(verdict)
    (folder / "out" / "microdata.csv.datapackage.json").unlink()
    assert qs.verify(folder / "out").outcome == "FAILED"


def test_files_are_not_replaced_and_formats_are_known(folder, run):
    run("release")
    first = run("microdata", "out", "--json").json
    assert first["written"] == "out/microdata.parquet"
    assert first["error"].startswith("error of the synthetic records")
    assert "already exists" in run("microdata", "out", code=4).err
    run("microdata", "out", "--records", 5, "--force")
    assert "records.doc" in run("microdata", "out", "--out", "records.doc", code=4).err
    assert (
        "n: expected a number of records" in run("microdata", "out", "--records", -1, "--force", code=2).err
    )
    run("release", "--force")  # what a folder may have is replaced with it
    assert not (folder / "out" / "microdata.parquet").exists()
