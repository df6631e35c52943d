"""`verify`: files of answers, in every format, follow from the noisy numbers, and say so of themselves."""

import gzip
import io
import json
import re
import zipfile
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.estimate.estimate import Estimate
from querysmasher.formats import endings as formats_by_ending
from querysmasher.formats import workbook
from querysmasher.formats.workbook import read_workbook
from querysmasher.release.comparing import close, difference
from querysmasher.release.verify import FAILED, OK, OPEN
from querysmasher.release.writing import document
from tests.release.folders import TABLE, planned, published, statuses, text, with_digests


def rewritten(folder, change):
    """Change the answers, and every digest with them."""
    path = next(folder.glob("answers.*"))
    if path.suffix == ".parquet":
        pq.write_table(change(pq.read_table(path)), path)
    else:
        options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        pyarrow.csv.write_csv(change(pyarrow.csv.read_csv(path, convert_options=options)), path)
    described_again(folder, path)
    return with_digests(folder)


def described_again(folder, path):
    """State the new size of a file."""
    package = json.loads((folder / "datapackage.json").read_text())
    for resource in package["resources"]:
        resource.update({"bytes": path.stat().st_size} if "bytes" in resource else {})
    (folder / "datapackage.json").write_bytes(document(package))


def scaled(name, row, factor):
    def change(table):
        values = table[name].to_pylist()
        values[row] = values[row] * factor
        return table.set_column(table.column_names.index(name), name, pa.array(values))

    return change


@pytest.mark.slow
@pytest.mark.parametrize("answers", ["answers.parquet", "answers.csv"])
def test_answers_must_follow_from_the_noisy_numbers(tmp_path, answers):
    made = published(tmp_path / "x", qs.measure(planned(), TABLE), answers)
    same = rewritten(made, lambda table: table)  # other bytes of Parquet, the same answers
    assert same.outcome == (OPEN if answers.endswith("parquet") else OK)
    assert rewritten(made, scaled("value", 3, 1 + 1e-12)).outcome == same.outcome  # rounding
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
@pytest.mark.parametrize("ending", formats_by_ending())
@pytest.mark.parametrize("options", [{"level": 0.99}, CHOICES])
def test_every_format_at_any_level_with_any_rules(tmp_path, ending, options):
    """Answers are verified with the level, thresholds and suppression that the description states."""
    pytest.importorskip("xlsxwriter")
    release = qs.measure(planned(), TABLE).described(title="A title")
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


def test_what_a_file_says_about_itself_is_compared(tmp_path):
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

    release = qs.measure(planned(), TABLE)
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
def test_a_description_that_says_something_else(tmp_path, change, words):
    made = published(tmp_path / "x", qs.measure(planned(), TABLE), "answers.csv")
    package = json.loads((made / "datapackage.json").read_text())
    change(package["resources"][0])
    (made / "datapackage.json").write_text(json.dumps(package))
    verdict = with_digests(made)
    assert not verdict.ok
    assert words in str(verdict)


def test_what_a_description_says_about_the_whole_is_compared(tmp_path):
    made = published(tmp_path / "x", qs.measure(planned(), TABLE).described(title="A title"), "answers.csv")
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


@pytest.fixture
def another_machine(monkeypatch):
    """Numbers that are rounded otherwise, until the end of the context."""

    @contextmanager
    def rounding():
        exact, estimated = qs.Release.answer_group, Estimate.answers

        def nearly(values):
            return values * (1 + 1e-14 * np.cos(np.arange(values.size)).reshape(values.shape))

        with monkeypatch.context() as patch:
            patch.setattr(qs.Release, "answer_group", lambda *given: tuple(map(nearly, exact(*given))))
            patch.setattr(Estimate, "answers", lambda *given: map(nearly, estimated(*given)))
            yield

    return rounding


@pytest.mark.parametrize(("off", "same"), [(1e-13, True), (2e-9, False), (9e-7, False)])
def test_a_count_of_millions_may_differ_by_rounding_but_by_no_record(tmp_path, off, same):
    count = 330_000_000.0
    given, expected = tmp_path / "given.csv", tmp_path / "expected.csv"
    given.write_text(f"value,std\n{count * (1 + off)!r},10.0\n")
    expected.write_text(f"value,std\n{count!r},10.0\n")
    assert (difference(given, expected) == "") == same
    assert close({"records": [count * (1 + off)]}, {"records": [count]}) == same


@pytest.mark.slow
@pytest.mark.parametrize("ending", formats_by_ending())
@pytest.mark.parametrize("options", [{}, CHOICES])
def test_rounding_on_another_machine_is_accepted_and_nothing_else(tmp_path, another_machine, ending, options):
    """The file is written again with its own numbers: all other bytes must be the same."""
    pytest.importorskip("xlsxwriter")
    release = qs.measure(planned(), TABLE).described(title="A title")
    here, made = tmp_path / f"answers{ending}", tmp_path / "x"
    release.write(release.workload, here, **options)
    with another_machine():
        published(made, release, f"answers{ending}", options)
        release.estimate().write(release.workload, made / f"estimates{ending}")
    assert here.read_bytes() != (made / here.name).read_bytes()
    verdict = with_digests(made)
    assert [statuses(verdict)[f"{stem}{ending}"] for stem in ("answers", "estimates")] == [OK, OK]
    assert verdict.ok


def of_text(change):
    return lambda data: change(data.decode()).encode()


def zipped(change):
    return lambda data: gzip.compress(change(gzip.decompress(data)), mtime=0)


def of_members(change, padded=True, level=None):
    """Change the members of a workbook, and pad it to the size that it had."""

    def changed(data):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for info, content in change(members):
                archive.writestr(info, content, compresslevel=level)
        spare = len(data) - len(stream.getvalue())
        if padded and spare > 0:
            with zipfile.ZipFile(stream, "a") as archive:
                archive.comment = b"#" * spare
        return stream.getvalue()

    return changed


def in_sheets(old, new):
    return of_members(lambda members: [(info, data.replace(old, new)) for info, data in members])


CSV_TEXTS = [
    (lambda text: text.replace("\n", "\r\n"), OPEN),
    (lambda text: "\ufeff" + text, OPEN),
    (lambda text: text + "\n", OPEN),
    (lambda text: text.replace('"F"', "F"), OPEN),
    (lambda text: text.replace(",1,", ",001,", 1), FAILED),
    (lambda text: text.replace(",1,", ",+1,", 1), FAILED),
    (lambda text: text.replace(",1,", ",1.0,", 1), FAILED),
    (lambda text: text.replace(",1,", ", 1,", 1), FAILED),
    (lambda text: text.replace('"age"', '"sex"', 1), FAILED),
    (lambda text: re.sub(r"(\d\.\d+)", r"\g<1>0", text, count=1), OPEN),
]
"""Also labels that mean the same within their type, and digits that change no number."""
JSON_TEXTS = [
    (lambda text: text.replace('"private": true', '"private": false, "private": true', 1), FAILED),
    (lambda text: text.replace('"value"', '"value": 3, "value"', 1), FAILED),
    (lambda text: text.replace("{", '{"epsilon": 0.001, ', 1), FAILED),
    (lambda text: text.replace('"age": 1,', '"age": 1.0,', 1), OPEN),
    (lambda text: text.replace('"age": 1,', '"age": "1",', 1), FAILED),
    (lambda text: text.replace(",\n", ", \n"), OPEN),
    (lambda text: text + " ", OPEN),
]
COMPRESSED = [
    (lambda data: gzip.compress(gzip.decompress(data), 1, mtime=0), OK),
    (lambda data: gzip.compress(gzip.decompress(data), mtime=1), OPEN),  # at another time, which gzip shows
    (lambda data: data + b"#", FAILED),
    (lambda data: data + gzip.compress(b"epsilon = 0.001", mtime=0), FAILED),
]
WORKBOOKS = [
    (of_members(lambda members: members, padded=False, level=1), OK),
    (in_sheets(b"#,##0.0###", b"#,##0.0,,##"), OPEN),  # the same numbers, shown otherwise
    (in_sheets(b"<sheet name", b"<sheet state='hidden' name"), OPEN),
    (in_sheets(b"<dc:creator>", b"<dc:creator>epsilon = 0.001"), OPEN),
    (in_sheets(b"</sheetData>", b"</sheetData><!-- epsilon = 0.001 -->"), OPEN),
    (of_members(lambda members: [*members, ("xl/comments1.xml", b"<comments/>")]), OPEN),
    (of_members(lambda members: members[::-1]), OPEN),
    (in_sheets(b"<v>", b"<v>1"), FAILED),
    (in_sheets(b"Notes", b"Nodes"), FAILED),
    (lambda data: data + b"#", OPEN),
    (lambda data: b"#" + data, OPEN),
    (lambda data: data[:-2] + b"\x01\0#", OPEN),
]


@pytest.mark.parametrize(
    ("name", "change", "status"),
    [
        *(("answers.csv", of_text(change), status) for change, status in CSV_TEXTS),
        *(("answers.csv.gz", zipped(of_text(change)), status) for change, status in CSV_TEXTS),
        *(("answers.csv.gz", *case) for case in COMPRESSED),
        *(("answers.json", of_text(change), status) for change, status in JSON_TEXTS),
        *(("answers.xlsx", *case) for case in WORKBOOKS),
    ],
)
def test_what_a_changed_file_says_beside_its_answers_is_found(tmp_path, name, change, status):
    """With its size and digests put right; only what is compressed otherwise is the same."""
    pytest.importorskip("xlsxwriter")
    made = published(tmp_path / "x", qs.measure(planned(), TABLE), name)
    path = made / name
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before
    described_again(made, path)
    verdict = with_digests(made)
    assert statuses(verdict)[name] == status
    assert verdict.ok == (status == OK)


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_what_an_arrow_file_says_beside_its_answers_is_found(tmp_path, ending):
    """Metadata of the file and of its columns, types, missing numbers, statistics, bytes at the end."""
    made = published(tmp_path / "x", qs.measure(planned(), TABLE), f"answers{ending}")
    path = made / f"answers{ending}"
    original = path.read_bytes()
    parquet = ending == ".parquet"
    table = pq.read_table(path) if parquet else pyarrow.feather.read_table(path)
    about = table.schema.metadata
    place = table.column_names.index("value")
    stated = [f.with_metadata({"unit": "persons"}) if f.name == "value" else f for f in table.schema]
    numbers = table["value"].to_numpy().copy()
    numbers[0] = np.nan

    def write(changed, **options):
        if parquet:
            pq.write_table(changed, path, **options)
        else:
            pyarrow.feather.write_feather(changed, path, "uncompressed")
        return statuses(with_digests(made))[path.name]

    assert write(table) == OPEN
    assert write(table.replace_schema_metadata({**about, "epsilon": "0.001"})) == FAILED
    assert write(table.cast(pa.schema(stated, metadata=about))) == FAILED
    assert write(table.set_column(place, "value", table["value"].cast(pa.float32()))) == FAILED
    assert write(table.set_column(place, "value", pa.array(numbers))) == FAILED
    assert write(table.append_column("more", pa.nulls(len(table)))) == FAILED
    assert write(table.replace_schema_metadata({"querysmasher": b'{"a": 1, "a": 2}'})) == FAILED
    if parquet:
        assert write(table, write_statistics=True) == OPEN
        assert write(table, row_group_size=1) == OPEN
    for data in (original + b"#", original[:8] + b"#" + original[8:]):
        path.write_bytes(data)
        assert statuses(with_digests(made))[path.name] in (OPEN, FAILED)
    path.write_bytes(original)
    assert with_digests(made).ok


@pytest.mark.slow
def test_workbooks_are_verified(tmp_path):
    """Also one that another program has written again; a changed cell, row or note is found."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    made = published(tmp_path / "x", qs.measure(planned(), TABLE).described(title="A title"), "answers.xlsx")
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


def test_a_workbook_that_cannot_be_written_again_is_not_verified(tmp_path, monkeypatch):
    pytest.importorskip("xlsxwriter")
    made = published(tmp_path / "x", qs.measure(planned(), TABLE), "answers.xlsx")
    monkeypatch.setattr(workbook, "find_spec", lambda name: None)
    verdict = qs.verify(made)
    assert verdict.outcome == OPEN
    assert "pip install 'querysmasher[excel]'" in text(verdict, "answers.xlsx")
    assert statuses(verdict)["datapackage.json"] == OPEN


def test_a_hostile_workbook_is_refused(tmp_path):
    path = tmp_path / "x.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/_rels/workbook.xml.rels", "<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>")
    with pytest.raises(ValueError, match="document type"):
        read_workbook(path)
