"""`verify`: files of answers, in every format, follow from the noisy numbers, and say so of themselves."""

import json
import zipfile

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.release.comparing import difference
from querysmasher.release.formats import WRITERS
from querysmasher.release.verify import FAILED, OK
from querysmasher.release.workbook import read_workbook
from tests.release.folders import TABLE, planned, published, statuses, text, with_digests


@pytest.fixture(scope="module")
def plan():
    return planned()


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
