"""`verify`: a correct folder passes, and every change of it is found, whoever recomputed the checksums."""

import hashlib
import io
import json
import math
import os
import zipfile
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.errors import FileError
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.release.reconstruction import MemoryStore
from querysmasher.release.verify import BEYOND, FAILED, NOT_CHECKED, OK, OPEN, digests
from querysmasher.release.writing import document
from tests.builders import UNIFORM, python
from tests.ledgers import edit
from tests.release.folders import (
    SCHEMA,
    TABLE,
    archive_again,
    planned,
    published,
    statuses,
    text,
    with_digests,
)


@pytest.fixture(scope="module")
def plan():
    return planned()


@pytest.fixture
def ledger(tmp_path):
    return qs.Ledger(tmp_path / "people.ledger", limit=qs.zCDP(5))


@pytest.fixture
def folder(plan, ledger, tmp_path):
    return published(tmp_path / "out", qs.measure(plan, TABLE, ledger=ledger))


def test_a_correct_folder(folder, ledger, plan):
    verdict = qs.verify(folder, ledger)
    assert verdict.ok
    assert set(statuses(verdict).values()) == {OK}
    assert verdict.outcome == OK
    release = qs.Release.load(folder / "release.qs")
    assert str(privacy_cost(release.plan)) in text(verdict, "privacy cost")
    said = str(verdict)
    assert said.startswith(f"VERIFIED: {folder}\n")
    assert verdict.digest == digests(folder)["release.qs"]
    for words in (verdict.digest, release.guarantee, release.entry.digest, BEYOND):
        assert words in said
    assert verdict.to_json()["verified"] is True


def test_without_a_ledger_the_entry_is_not_looked_up(folder):
    verdict = qs.verify(folder)
    assert verdict.ok
    assert statuses(verdict)["ledger"] == NOT_CHECKED


def test_a_file_alone_can_be_verified(folder, ledger):
    assert set(statuses(qs.verify(folder / "release.qs", ledger)).values()) == {OK}


def test_nothing_there(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileError, match="no file"):
            qs.verify(path)


@pytest.mark.parametrize("name", ["release.qs", "answers.parquet", "summary.json"])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    if name == "release.qs":
        with pytest.raises(FileError, match="no file"):
            qs.verify(folder)
        return
    verdict = qs.verify(folder)
    assert not verdict.ok
    failed = "files" if name.startswith("answers") else "summary.json"
    assert statuses(verdict)[failed] == FAILED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("guarantee", "perfect privacy"),
        ("private", False),
        ("budget", qs.zCDP(0.1).to_json()),
        ("queries", 7),
        ("integer_plan_digest", "0" * 64),
        ("record", "Recorded."),
        ("ledger", None),
        ("schema", []),
    ],
)
def test_a_summary_that_says_something_else(plan, ledger, tmp_path, key, value):
    release = qs.measure(plan, TABLE, ledger=ledger)
    verdict = qs.verify(published(tmp_path / "x", release, **{key: value}), ledger)
    assert text(verdict, "summary.json") == f"says something else about {key}"
    assert not verdict.ok


def test_the_summary_of_another_version_is_right_as_far_as_it_goes(folder):
    """It may state more or less than this version would; that is not verified, and neither is the folder."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    less = {k: v for k, v in summary.items() if k not in ("digests", "record")} | {"epsilon": 0.01}
    path.write_bytes(document(less))
    assert text(qs.verify(folder), "summary.json") == ("it also states epsilon; it does not state record")
    assert qs.verify(folder).outcome == FAILED
    path.write_bytes(document(less | {"querysmasher": "0.0.1"}))
    verdict = qs.verify(folder)
    assert verdict.outcome == OPEN
    assert statuses(verdict)["files"] == statuses(verdict)["summary.json"] == OPEN
    assert "version 0.0.1 wrote it" in text(verdict, "summary.json")
    path.write_bytes(document(less | {"querysmasher": "0.0.1", "queries": 1}))
    assert text(qs.verify(folder), "summary.json") == "says something else about queries"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"private": true', '"private": false,\n  "private": true'),
        lambda text: text.replace('"private": true', '"private": true,\n  "epsilon": 0.01'),
        lambda text: text.replace('"private": true', '"private": 1'),
        lambda text: text.replace('"private"', '"priv\\u0061te"'),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text + "\n",
        lambda text: "[]",
    ],
)
def test_another_text_of_a_summary_is_found(folder, change):
    path = folder / "summary.json"
    before = path.read_bytes().decode()
    path.write_bytes(change(before).encode())
    assert change(before) != before
    assert statuses(qs.verify(folder))["summary.json"] == FAILED


def test_everything_in_a_folder_is_named(folder):
    """Files that do not follow from the release, in folders and behind links, and under other names."""
    for add, said in (
        (lambda path: path.write_text("-"), "remarks.txt"),
        (lambda path: path.mkdir(), "remarks.txt (a folder)"),
        (lambda path: path.symlink_to(folder / "answers.parquet"), "remarks.txt (a link)"),
        (os.mkfifo, "remarks.txt (not a file)"),
    ):
        path = folder / "remarks.txt"
        add(path)
        verdict = qs.verify(folder)
        assert verdict.outcome == OPEN
        assert not verdict.ok
        assert text(verdict, "other files") == f"these do not follow from the release: {said}"
        path.rmdir() if path.is_dir() else path.unlink()
    assert qs.verify(folder).ok
    (folder / "answers.parquet").rename(folder / "Answers.parquet")
    assert statuses(qs.verify(folder))["files"] == FAILED
    assert "Answers.parquet" in text(qs.verify(folder), "other files")


def test_a_link_in_the_place_of_a_file_is_found(folder, tmp_path):
    (folder / "answers.parquet").rename(tmp_path / "kept")
    (folder / "answers.parquet").symlink_to(tmp_path / "kept")
    assert "answers.parquet (a link)" in text(qs.verify(folder), "other files")
    assert not qs.verify(folder).ok


def test_a_file_that_the_summary_does_not_name_is_named(folder):
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    del summary["digests"]["answers.parquet"]
    path.write_bytes(document(summary))
    verdict = qs.verify(folder)
    assert verdict.outcome == OPEN
    assert text(verdict, "other files") == "summary.json states no digest of answers.parquet"


def test_the_last_line_says_what_was_not_verified(folder):
    (folder / "remarks.txt").write_text("-")
    said = str(qs.verify(folder))
    assert said.startswith("NOT VERIFIED: ")
    assert said.endswith("\nNOT VERIFIED: 7 checks passed, 1 could not be made (other files)")
    (folder / "summary.json").write_text("{}")
    said = str(qs.verify(folder))
    assert said.startswith("FAILED: ")
    assert "1 failed (summary.json)" in said.splitlines()[-1]


@pytest.mark.parametrize("name", ["release.qs", "plan.qs"])
def test_what_an_archive_contains_beyond_a_release_is_found(plan, tmp_path, name):
    """Another member, key or order, or bytes around them, with right checksums."""
    release = qs.measure(plan, TABLE)
    made = published(tmp_path / "out", release, plan=plan)
    assert qs.verify(made).ok
    path = made / name
    original = path.read_bytes()

    def payload(change):
        return lambda members: [(n, change(data) if n == "payload.json" else data) for n, data in members]

    changes = {
        "another member": lambda members: [*members, ("secret.txt", b"epsilon = 0.001")],
        "another order": lambda members: members[::-1],
        "another key": payload(lambda data: data[:-1] + b', "epsilon": 0.001}'),
        "a key twice": payload(lambda data: b'{"gap": 1, "gap": 0, ' + data[1:]),
        "more space": payload(lambda data: data + b" "),
    }
    for what, change in changes.items():
        archive_again(path, change)
        if name == "plan.qs":  # else the release names another plan
            release.save(made / "release.qs")
        verdict = with_digests(made)
        assert not verdict.ok, what
        assert statuses(verdict)[name] in (OPEN, FAILED), what
        path.write_bytes(original)
    for data in (b"#" + original[:-64], original[:-64] + b"#"):
        path.write_bytes(data + hashlib.sha256(data).hexdigest().encode())
        assert not with_digests(made).ok


def test_an_archive_that_another_library_has_compressed_is_the_same(folder, monkeypatch):
    """On another machine zlib may compress otherwise; the members are the same."""
    path = folder / "release.qs"
    release, before = qs.Release.load(path), path.read_bytes()
    level = zipfile._get_compressor
    monkeypatch.setattr(zipfile, "_get_compressor", lambda kind, _=None: level(kind, 1))
    release.save(path)
    monkeypatch.undo()
    assert path.read_bytes() != before
    assert with_digests(folder).ok


def test_bad_arguments(folder, ledger, refuses):
    with refuses(FileError, ValueError, "folder: expected the path", "got 3"):
        qs.verify(3)
    with refuses(FileError, ValueError, "path: expected the path of a ledger"):
        qs.verify(folder, 3)
    assert statuses(qs.verify(folder, str(ledger.path)))["ledger"] == OK


def with_plan(release, **changes):
    return replace(release, entry=None, plan=replace(release.plan, **changes))


def test_too_little_noise_is_found(plan, tmp_path):
    """A release that costs more than it claims, with right checksums everywhere."""
    release = qs.measure(plan, TABLE)
    quiet = tuple(replace(m, variance=m.variance / 2) for m in release.plan.measured)
    made = published(tmp_path / "x", with_plan(release, measured=quiet))
    verdict = qs.verify(made)
    assert not verdict.ok
    assert "more than" in text(verdict, "release.qs")


def test_a_simulation_is_not_verified(plan, tmp_path):
    verdict = qs.verify(published(tmp_path / "x", qs.measure(plan, TABLE, seed=1)))
    assert not verdict.ok
    assert "protects nobody" in text(verdict, "noise")


def test_the_wrong_number_of_noisy_numbers(plan, tmp_path):
    release = qs.measure(plan, TABLE)
    store = MemoryStore({i: release.store[i] for i in range(len(release.plan.measured))})
    store[0] = np.append(store[0], 0)
    made = tmp_path / "x.qs"
    replace(release, store=store).save(made)
    assert statuses(qs.verify(made))["noise"] == FAILED


def test_an_entry_that_the_ledger_does_not_have(plan, folder, ledger, tmp_path):
    other = qs.Ledger(tmp_path / "other", limit=qs.zCDP(5))
    verdict = qs.verify(folder, other)
    assert "does not have the entry" in text(verdict, "ledger")
    assert not verdict.ok
    unrecorded = published(tmp_path / "y", qs.measure(plan, TABLE))
    assert qs.verify(unrecorded).ok
    verdict = qs.verify(unrecorded, ledger)
    assert statuses(verdict)["ledger"] == FAILED
    assert "Not recorded" in text(verdict, "ledger")


def test_a_ledger_that_was_cut_or_edited(folder, ledger):
    edit(ledger.path, ["DELETE FROM entries WHERE number = 1"])
    assert "does not have the entry" in text(qs.verify(folder, ledger), "ledger")
    edit(ledger.path, ["DELETE FROM entries"])
    assert statuses(qs.verify(folder, ledger))["ledger"] == FAILED


def written_out(factor, read):
    """The matrix of a stored factor, in the plainest way, from the documentation alone."""
    data = factor["data"]
    if factor["kind"] == "filter":
        kernel = read(data["kernel"])
        return kernel.reshape(-1, 1)
    return read(data["matrix" if factor["kind"] == "merged" else "entries"])


WORKLOADS = {
    "tables": lambda: qs.all_kway(SCHEMA, [1, 2]),
    "weighted": lambda: qs.queries(SCHEMA, age="range", sex="identity") + 3 * qs.marginals(SCHEMA, 2),
    "circle": lambda: qs.all_kway(qs.Schema([qs.Cyclic("h", range(300))]), 1),
    "few": lambda: qs.where(SCHEMA, "age < 2 or sex == 'F'") + qs.where(SCHEMA, "age >= 4"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("unit", [{}, {"records_per_person": 3}, {"neighbours": "replace_one"}], ids=str)
def test_the_cost_from_the_file_alone(tmp_path, name, unit):
    """As the documentation says: zip, JSON and arrays, without this library."""
    asked = WORKLOADS[name]()
    plan = qs.plan(asked, qs.zCDP(0.3, **unit), **UNIFORM)
    values = {a.name: [a.values[i % a.size] for i in range(50)] for a in asked.schema}
    release = qs.measure(plan, pd.DataFrame(values))
    release.save(tmp_path / "x.qs")
    archive = zipfile.ZipFile(tmp_path / "x.qs")
    payload = json.loads(archive.read("payload.json"))

    def read(reference):
        return np.load(io.BytesIO(archive.read(reference["$array"])))

    squares = []
    for strategy in payload["strategies"]:
        B = np.ones((1, 1), dtype=object)
        for factor in strategy["factors"]:
            B = np.kron(B, written_out(factor, read).astype(object))
        given = strategy["multipliers"]
        multipliers = [1] * len(B) if given is None else read(given).ravel().tolist()
        squares.append(
            max(sum(Fraction(int(b) ** 2, m) for b, m in zip(c, multipliers, strict=True)) for c in B.T)
        )
    lengths = read(payload["attributes"]["lengths"])
    total = Fraction(0)
    for length, blocks, variance in zip(lengths, payload["blocks"], payload["variances"], strict=True):
        change = unit.get("records_per_person", 1) ** 2
        if unit.get("neighbours") == "replace_one":
            change = 4 if length else 0
        total += change * math.prod(squares[number] for _, number in blocks) / Fraction(variance)
    cost = privacy_cost(release.plan)
    if unit.get("neighbours") == "replace_one":  # two columns differ by at most twice the longest
        assert total / 4 <= cost <= total * (1 + Fraction(1, 2**24))
    else:
        assert total <= cost <= total * (1 + Fraction(1, 2**28))
    assert cost <= Fraction(0.6)


ALONE = """
import sys
import querysmasher as qs
from querysmasher.planning import mechanisms
mechanisms.solve_blocks = None  # nothing is planned
assert qs.verify(sys.argv[1]).ok
loaded = [name for name in sys.modules if name.startswith("querysmasher")]
print([n for n in loaded if n.startswith(("querysmasher.data", "querysmasher.measuring"))])
print([n for n in loaded if n == "querysmasher.planning.planner"])
"""


@pytest.mark.slow
def test_it_needs_neither_data_nor_a_planner(plan, tmp_path):
    made = published(tmp_path / "out", qs.measure(plan, TABLE), plan=plan)
    ran = python("-c", ALONE, made, check=True)
    assert ran.stdout.split("\n")[:2] == ["[]", "[]"]
    assert statuses(qs.verify(made))["plan.qs"] == OK
