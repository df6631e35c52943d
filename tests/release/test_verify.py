"""`verify`: a correct folder passes, and every change of it is found, whoever recomputed the checksums."""

import io
import json
import math
import subprocess
import sys
import zipfile
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.errors import FileError
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.release.comparing import difference
from querysmasher.release.formats import WRITERS
from querysmasher.release.store import MemoryStore
from querysmasher.release.summary import summary_of
from querysmasher.release.verify import BEYOND, FAILED, OK, OPEN, digests
from querysmasher.release.workbook import read_workbook
from tests.builders import UNIFORM

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(6))])
TABLE = pd.DataFrame({"sex": ["F", "M"] * 40, "age": [i % 6 for i in range(80)]})


@pytest.fixture(scope="module")
def plan():
    return qs.plan(qs.all_kway(SCHEMA, [1, 2]), qs.zCDP(0.5), **UNIFORM)


@pytest.fixture
def ledger(tmp_path):
    return qs.Ledger(tmp_path / "people.ledger", limit=qs.zCDP(5))


def published(folder, release, answers="answers.parquet", options=None, **changes):
    """Write a folder as the command does, or with a summary that says something else."""
    folder.mkdir()
    release.save(folder / "release.qs")
    release.write(release.workload, folder / answers, **(options or {}))
    summary = summary_of(release) | {"digests": digests(folder)}
    (folder / "summary.json").write_text(json.dumps(summary | changes))
    return folder


@pytest.fixture
def folder(plan, ledger, tmp_path):
    return published(tmp_path / "out", qs.measure(plan, TABLE, ledger=ledger))


def statuses(verdict):
    return {finding.name: finding.status for finding in verdict.findings}


def text(verdict, name):
    return next(finding.text for finding in verdict.findings if finding.name == name)


def test_a_correct_folder(folder, ledger, plan):
    verdict = qs.verify(folder, ledger)
    assert verdict.ok
    assert set(statuses(verdict).values()) == {OK}
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
    assert statuses(verdict)["ledger"] == OPEN


def test_a_file_alone_can_be_verified(folder, ledger):
    assert set(statuses(qs.verify(folder / "release.qs", ledger)).values()) == {OK}


def test_nothing_there(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileError, match="no file"):
            qs.verify(path)


def test_a_damaged_release(folder):
    path = folder / "release.qs"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    verdict = qs.verify(folder)
    assert not verdict.ok
    assert str(verdict).startswith("NOT VERIFIED")
    assert "damaged" in text(verdict, "release.qs")


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


def test_a_summary_from_before_is_right_as_far_as_it_goes(folder):
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in summary.items() if k not in ("digests", "record")}))
    verdict = qs.verify(folder)
    assert verdict.ok
    assert statuses(verdict)["files"] == OPEN
    assert "does not state record" in text(verdict, "summary.json")


def test_other_files_are_named_and_not_judged(folder):
    (folder / "remarks.txt").write_text("-")
    verdict = qs.verify(folder)
    assert verdict.ok
    assert text(verdict, "other files") == "remarks.txt"


def rewritten(folder, change):
    """Change the answers, and every digest with them."""
    path = next(folder.glob("answers.*"))
    if path.suffix == ".parquet":
        pq.write_table(change(pq.read_table(path)), path)
    else:
        pyarrow.csv.write_csv(change(pyarrow.csv.read_csv(path)), path)
    package = json.loads((folder / "datapackage.json").read_text())
    for resource in package["resources"]:
        resource.update({"bytes": path.stat().st_size} if "bytes" in resource else {})
    (folder / "datapackage.json").write_text(json.dumps(package))
    return with_digests(folder)


def with_digests(folder):
    """Verify a folder after its digests were brought up to date."""
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"digests": digests(folder)}))
    return qs.verify(folder)


def scaled(name, row, factor):
    def change(table):
        values = table[name].to_pylist()
        values[row] = values[row] * factor
        return table.set_column(table.column_names.index(name), name, pa.array(values))

    return change


@pytest.mark.slow
@pytest.mark.parametrize("answers", ["answers.parquet", "answers.csv"])
def test_answers_must_follow_from_the_noisy_numbers(plan, tmp_path, answers):
    made = published(tmp_path / "x", qs.measure(plan, TABLE), answers)
    assert rewritten(made, lambda table: table).ok  # other bytes, the same answers
    assert rewritten(made, scaled("value", 3, 1 + 1e-12)).ok  # rounding
    for name, row, factor in (
        ("value", 3, 1.01),
        ("std", 0, 0.9),
        ("value", -1, -1),
        *((name, row, 1 + 1e-4) for name in ("value", "std", "low", "high", "cv") for row in (0, 5)),
    ):
        verdict = rewritten(made, scaled(name, row, factor))
        assert statuses(verdict)[answers] == FAILED
        assert name in text(verdict, answers)
        rewritten(made, scaled(name, row, 1 / factor))
    assert not rewritten(made, lambda table: table.slice(1)).ok
    assert not rewritten(made, lambda table: table.drop(["std"])).ok


CHOICES = {"level": 0.8, "thresholds": (0.05, 0.5), "suppress": 0.6}


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("options", [{"level": 0.99}, CHOICES])
def test_every_format_at_any_level_with_any_rules(plan, tmp_path, ending, options):
    """Answers are verified with the level, thresholds and suppression that the description states."""
    pytest.importorskip("xlsxwriter")
    release = qs.measure(plan, TABLE).described(title="A title")
    made = published(tmp_path / "x", release, f"answers{ending}", options)
    verdict = qs.verify(made)
    assert statuses(verdict)[f"answers{ending}"] == OK
    assert verdict.ok
    for key, value in (("level", 0.5), ("thresholds", [0.2]), ("suppress", 0.01), ("title", "Other")):
        path = made / "datapackage.json"
        text_before = path.read_text()
        package = json.loads(text_before)
        for resource in package["resources"]:
            resource["querysmasher"][key] = value
        path.write_text(json.dumps(package))
        verdict = with_digests(made)
        assert not verdict.ok, key
        name = "datapackage.json" if key == "title" else f"answers{ending}"
        assert statuses(verdict)[name] == FAILED
        path.write_text(text_before)
    assert with_digests(made).ok


def test_what_a_file_says_about_itself_is_compared(plan, tmp_path):
    """The guarantee inside a file, but not the version of the software that wrote it."""
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")

    def parquet(path, key, value):
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[b"querysmasher"]) | {key: value}
        pq.write_table(table.replace_schema_metadata({"querysmasher": json.dumps(about)}), path)

    def arrow(path, key, value):
        table = pyarrow.feather.read_table(path)
        about = json.loads(table.schema.metadata[b"querysmasher"]) | {key: value}
        pyarrow.feather.write_feather(
            table.replace_schema_metadata({"querysmasher": json.dumps(about)}), path, "uncompressed"
        )

    def as_json(path, key, value):
        found = json.loads(path.read_text())
        path.write_text(json.dumps(found | {"about": found["about"] | {key: value}}))

    def workbook(path, key, value):
        book = openpyxl.load_workbook(path)
        next(row for row in book["Notes"] if row[0].value == key)[1].value = value
        book.save(path)

    release = qs.measure(plan, TABLE)
    for ending, change in (
        (".parquet", parquet),
        (".arrow", arrow),
        (".json", as_json),
        (".xlsx", workbook),
    ):
        given, fresh = (tmp_path / f"{name}{ending}" for name in "ab")
        for path in (given, fresh):
            release.write(release.workload, path)
        change(given, "software", "querysmasher 9.1")
        assert difference(given, fresh) == "", ending
        change(given, "guarantee", "perfect")
        assert "guarantee" in difference(given, fresh), ending


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda resource: resource.update(querysmasher=3), "does not say how"),
        (lambda resource: resource["querysmasher"].update(level="high"), "level: expected a number"),
        (lambda resource: resource["schema"]["fields"].pop(), "about schema of answers.csv"),
        (lambda resource: resource.update(bytes=1), "about bytes of answers.csv"),
    ],
)
def test_a_description_that_says_something_else(plan, tmp_path, change, words):
    made = published(tmp_path / "x", qs.measure(plan, TABLE), "answers.csv")
    package = json.loads((made / "datapackage.json").read_text())
    change(package["resources"][0])
    (made / "datapackage.json").write_text(json.dumps(package))
    verdict = with_digests(made)
    assert not verdict.ok
    assert words in str(verdict)


def test_what_a_description_says_about_the_whole_is_compared(plan, tmp_path):
    made = published(tmp_path / "x", qs.measure(plan, TABLE).described(title="A title"), "answers.csv")
    path = made / "datapackage.json"
    package = json.loads(path.read_text())
    for key, value in (
        ("title", "Other"),
        ("description", "perfect"),
        ("querysmasher", package["querysmasher"] | {"private": False}),
    ):
        path.write_text(json.dumps(package | {key: value}))
        assert text(with_digests(made), "datapackage.json") == f"it says something else about {key}"
    for other in ("gone.csv", "../answers.csv", "", 3):
        path.write_text(json.dumps(package | {"resources": [*package["resources"], {"path": other}]}))
        said = text(with_digests(made), "datapackage.json")
        assert said == f"it describes {other!r}, which is not there"
    path.write_text("{")
    assert text(with_digests(made), "datapackage.json") == "it is not valid"
    path.unlink()
    assert with_digests(made).ok


def test_bad_arguments(folder, ledger, refuses):
    with refuses(FileError, ValueError, "folder: expected the path", "got 3"):
        qs.verify(3)
    with refuses(FileError, ValueError, "path: expected the path of a ledger"):
        qs.verify(folder, 3)
    assert statuses(qs.verify(folder, str(ledger.path)))["ledger"] == OK


def test_a_text_that_was_changed_is_found(plan, tmp_path):
    made = published(tmp_path / "x", qs.measure(plan, TABLE), "answers.csv")
    path = made / "answers.csv"
    other = tmp_path / "answers.csv"
    other.write_text(path.read_text().replace("sex", "six", 1))
    assert difference(path, path) == ""
    assert difference(other, path)
    unknown = tmp_path / "answers.txt"
    unknown.write_bytes(b"1")
    assert difference(unknown, path) is None


@pytest.mark.slow
def test_workbooks_are_verified(plan, tmp_path):
    """Also one that another program has written again; a changed cell, row or note is found."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    made = published(tmp_path / "x", qs.measure(plan, TABLE).described(title="A title"), "answers.xlsx")
    path = made / "answers.xlsx"
    original = path.read_bytes()
    assert statuses(qs.verify(made))["answers.xlsx"] == OK

    def changed(change):
        path.write_bytes(original)
        book = openpyxl.load_workbook(path)
        change(book)
        book.save(path)
        return text(qs.verify(made), "answers.xlsx")

    assert "follow from" in changed(lambda book: None)
    last = openpyxl.load_workbook(path).sheetnames[-1]
    names = [cell.value for cell in openpyxl.load_workbook(path)[last][1]]
    value = names.index("value") + 1

    def scaled(book):
        book[last].cell(2, value).value += 3

    assert "value" in changed(scaled)
    assert changed(lambda book: book[last].delete_rows(3)).endswith("other columns or rows")
    assert changed(lambda book: book[last].cell(2, 40, "more")).endswith("other columns or rows")
    assert "something else about" in changed(lambda book: book["Notes"].cell(2, 2, "private"))
    for broken in (b"1", original[:500]):
        path.write_bytes(broken)
        assert "cannot be read" in text(qs.verify(made), "answers.xlsx")


def test_a_hostile_workbook_is_refused(tmp_path):
    path = tmp_path / "x.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/_rels/workbook.xml.rels", "<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>")
    with pytest.raises(ValueError, match="document type"):
        read_workbook(path)


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
    import sqlite3

    connection = sqlite3.connect(ledger.path)
    connection.execute("DROP TRIGGER kept")
    connection.execute("DELETE FROM entries WHERE number = 1")
    connection.commit()
    assert "does not have the entry" in text(qs.verify(folder, ledger), "ledger")
    connection.execute("DELETE FROM entries")
    connection.commit()
    connection.close()
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
    assert total <= cost <= total * (1 + Fraction(1, 2**28))
    assert cost <= Fraction(0.6)


ALONE = """
import sys
import querysmasher as qs
from querysmasher.planning import solving
from querysmasher.planning.mechanisms import mechanism
solving.solve_blocks = mechanism.solve_blocks = None  # nothing is planned
assert qs.verify(sys.argv[1]).ok
loaded = [name for name in sys.modules if name.startswith("querysmasher")]
print([n for n in loaded if n.startswith(("querysmasher.data", "querysmasher.measuring"))])
print([n for n in loaded if n == "querysmasher.planning.planner"])
"""


@pytest.mark.slow
def test_it_needs_neither_data_nor_a_planner(plan, tmp_path):
    made = published(tmp_path / "out", qs.measure(plan, TABLE))
    plan.save(made / "plan.qs")
    ran = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", ALONE, str(made)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split("\n")[:2] == ["[]", "[]"]
    assert statuses(qs.verify(made))["plan.qs"] == OK
