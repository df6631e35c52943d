"""A new output format needs a file of its own and its name in one registry; every list derives from that."""

import json
from pathlib import Path

import numpy as np
import pytest

import querysmasher as qs
from querysmasher import formats
from querysmasher.cli.folder import KNOWN
from querysmasher.errors import FileError
from tests.builders import python
from tests.formats.toy_format import TABS, read_tabs
from tests.release.folders import TABLE, planned, published, statuses, with_digests

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, TABS))
    return published(tmp_path / "x", qs.measure(planned(), TABLE), "answers.tabs")


def test_it_is_written_and_described(folder):
    release = qs.Release.load(folder / "release.qs")
    columns, _ = read_tabs(folder / "answers.tabs")
    np.testing.assert_array_equal(columns["value"], release.answer().values)
    (resource,) = json.loads((folder / "datapackage.json").read_text())["resources"]
    assert (resource["path"], resource["format"]) == ("answers.tabs", "tabs")
    assert resource["mediatype"] == "text/tab-separated-values"
    estimate = folder / "estimates.tabs"
    release.estimate().write(release.workload, estimate)
    assert read_tabs(estimate)[0]["value"] == pytest.approx(release.estimate().answer().values)
    records = release.estimate().microdata(seed=1)
    records.write(folder / "records.tabs")
    assert {len(column) for column in read_tabs(folder / "records.tabs")[0].values()} == {records.count}
    with pytest.raises(FileError, match=r"another kind of file \(.tabs\)"):
        release.save(folder / "release.tabs")


def test_it_is_verified(folder):
    assert statuses(qs.verify(folder))["answers.tabs"] == "passed"
    path = folder / "answers.tabs"
    header, first, *rest = path.read_text().splitlines(keepends=True)
    cells = first.split("\t")
    place = header.split("\t").index("value")
    cells[place] = str(float(cells[place]) + 1)
    path.write_text(header + "\t".join(cells) + "".join(rest))
    assert statuses(with_digests(folder))["answers.tabs"] == "FAILED"


def test_without_the_registry_nobody_knows_it(tmp_path):
    with pytest.raises(FileError, match=r"\.parquet"):
        qs.measure(planned(), TABLE).write(planned().workload, tmp_path / "answers.tabs")
    assert {f"answers.{form.name}" for form in formats.FORMATS} <= KNOWN


@pytest.mark.slow
def test_the_spec_and_the_command_offer_it():
    lines = [
        "from querysmasher import formats",
        "from tests.formats.toy_format import TABS",
        "formats.FORMATS += (TABS,)",
        "from querysmasher.cli.folder import KNOWN",
        "from querysmasher.cli.command import AnswerFormat",
        "from querysmasher.spec.sections import OutputSection",
        "print(AnswerFormat('tabs'), OutputSection(answers='tabs').answers, 'answers.tabs' in KNOWN)",
    ]
    ran = python("-c", "\n".join(lines), check=True)
    assert ran.stdout.split() == ["tabs", "tabs", "True"]


@pytest.mark.parametrize("page", ["howto/files.md", "commands.md"])
def test_the_documentation_names_every_format(page):
    words = (DOCS / page).read_text(encoding="utf-8")
    assert [form.name for form in formats.FORMATS if f"{form.name}`" not in words] == []
