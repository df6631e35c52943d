"""Answers as Parquet: the same as `answer`, in order, in words, all or nothing."""

import csv
import gzip
import json
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import querysmasher as qs
from querysmasher.errors import FileError, MissingExtraError, OutsideMeasuredSpaceError
from querysmasher.formats import workbook
from querysmasher.release import release as release_module
from querysmasher.release import tidy, writing
from tests.builders import UNIFORM
from tests.release.tables import random_counts, simulate

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(5)), qs.Cyclic("h", range(3))])
WORKLOAD = (
    qs.all_kway(SCHEMA, [0, 1, 2, 3])
    + qs.affine(SCHEMA, "age", "h")
    + qs.where(SCHEMA, "age >= 3 or sex == 'F'")
    + qs.linear(SCHEMA, ("h", "sex"), np.eye(6), labels=["one", "two", "three", "four", "five", "six"])
)


@pytest.fixture(scope="module")
def release():
    plan = qs.plan(WORKLOAD, qs.PrivacyCost(1.0), **UNIFORM)
    return simulate(plan, random_counts(SCHEMA, 2), 7)


COLUMNS = ["table", "kind", "query", "sex", "age", "age_from", "age_to", "h", "h_from", "h_to"]
COLUMNS += ["value", "std", "low", "high", "cv", "flag"]


def close(rows, expected):
    """The same rows, but for the ends of intervals, which files round outwards, and digits of cv."""
    for row, own in zip(rows, expected, strict=True):
        row, own = dict(row), dict(own)  # noqa: PLW2901
        for end, sign in (("low", -1), ("high", 1)):
            given, exact, std = row.pop(end), own.pop(end), own["std"]
            assert (given is None) == (exact is None)
            assert given is None or 0 <= sign * (given - exact) <= 1e-3 * std, "outwards, by little"
        for name, digits in (("cv", 1e-3), ("value", 1e-14), ("std", 1e-14)):  # Excel holds 16 digits
            given, exact = row.pop(name), own.pop(name)
            assert given == (None if exact is None else pytest.approx(exact, rel=digits))
        assert row == own


@pytest.mark.slow
@pytest.mark.parametrize("batch", [2_000_000, 7, 1])
def test_what_is_written_is_what_is_answered(release, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(tidy, "BATCH", batch)
    path = tmp_path / "x.parquet"
    release.write(WORKLOAD, path, level=0.9, thresholds=[0.02], suppress=0.3)
    table = pq.read_table(path)
    frame = release.answer(WORKLOAD).to_frame(level=0.9, thresholds=[0.02], suppress=0.3)
    assert table.column_names == COLUMNS
    assert frame.column_names == COLUMNS, "the same columns from to_frame"
    close(table.to_pylist(), frame.to_pylist())
    assert [row["query"] for row in table.to_pylist()] == list(WORKLOAD.predicates())
    assert set(table["flag"].to_pylist()) == {"<=2%", ">2%", "suppressed"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["datapackage.json", "x.parquet"]


def test_values_beside_the_others_and_open_ends_have_no_ends(tmp_path):
    schema = qs.Schema(
        [
            qs.Ordinal("age", [3, 4], missing="missing"),
            qs.Binned("income", edges=[-math.inf, 0, math.inf], missing="missing"),
        ]
    )
    workload = qs.queries(schema, age="range") + qs.queries(schema, income="identity")
    plan = qs.plan(workload, qs.zCDP(1.0))
    release = qs.measure(plan, pa.table({"age": [3, None], "income": [1.0, None]}), seed=0)
    for ending in (".parquet", ".csv", ".json"):
        release.write(workload, tmp_path / f"x{ending}")
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    ages = [(row["age"], row["age_from"], row["age_to"]) for row in rows[:6]]
    assert ages[:3] == [("3", 3, 3), ("3..4", 3, 4), ("3..missing", None, None)]
    assert ages[3:] == [("4", 4, 4), ("4..missing", None, None), ("missing", None, None)]
    incomes = [(row["income"], row["income_from"], row["income_to"]) for row in rows[6:]]
    assert incomes == [("[-inf, 0)", None, 0), ("[0, inf]", 0, None), ("missing", None, None)]
    assert "Infinity" not in (tmp_path / "x.json").read_text()


@pytest.mark.slow
def test_rows_are_tidy(release, tmp_path):
    release.write(WORKLOAD, tmp_path / "x.parquet")
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    answers = release.answer(WORKLOAD)
    assert [row["value"] for row in rows] == answers.values.tolist()
    assert [row["std"] for row in rows] == answers.std.tolist()
    total = rows[0]
    assert (total["table"], total["kind"], total["query"]) == ("total", "total", "total"), (
        "a row like any other"
    )
    assert [total[name] for name in ("sex", "age", "h")] == [None] * 3
    women = next(
        row for row in rows if row["sex"] == "F" and row["age"] is None and row["kind"] == "identity"
    )
    assert women["table"] == "sex"
    assert women["value"] == pytest.approx(release.marginal("sex")[0])
    both = [row for row in rows if row["table"] == "sex × age"]
    ages = ["0", *(f"0..{a}" for a in range(1, 5))]
    assert [(row["sex"], row["age"]) for row in both[:10]] == [(s, a) for s in "FM" for a in ages]
    assert [(row["age_from"], row["age_to"]) for row in both[:5]] == [(0, a) for a in range(5)]
    assert both[0]["kind"] == "identity × prefix"
    around = next(row for row in rows if row["table"] == "h" and row["h_from"] == 2 and row["h_to"] == 0)
    assert around["h"] == "2..0"
    for row in rows:
        named = set() if row["table"] == "total" else set(row["table"].split(" × "))
        for name in ("sex", "age", "h"):
            assert (row[name] is None) == (name not in named), "null = all"
        (value,) = release.answer(row["query"]).values
        assert value == pytest.approx(row["value"], abs=1e-6), "predicates are valid predicates"


def test_very_long_files_state_queries_only_where_columns_cannot(release, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MAX_QUERIES", 3)
    release.write(WORKLOAD, tmp_path / "x.parquet")
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    for row, query in zip(rows, WORKLOAD.predicates(), strict=True):
        kinds = set(row["kind"].split(" × "))
        assert row["query"] == (None if kinds <= {"total", "identity", "prefix", "circular"} else query)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [2_000_000, 7])
@pytest.mark.parametrize("name", ["x.CSV", "x.csv.gz", "x.arrow", "x.feather", "x.json"])
def test_formats_by_ending(release, tmp_path, monkeypatch, batch, name):
    monkeypatch.setattr(tidy, "BATCH", batch)
    release.write(WORKLOAD, tmp_path / "x.parquet")
    release.write(WORKLOAD, tmp_path / name)
    expected = pq.read_table(tmp_path / "x.parquet").to_pylist()
    rows = read_back(tmp_path / name)
    assert len(rows) == len(expected)
    for row, own in zip(rows, expected, strict=True):
        assert list(row) == COLUMNS
        if "csv" in name.lower():  # everything is text
            row = {k: None if v == "" else v for k, v in row.items()}  # noqa: PLW2901
            own = {k: v if v is None or isinstance(v, str) else str(v) for k, v in own.items()}  # noqa: PLW2901
            numbers = ("value", "std", "low", "high", "cv")
            for key in numbers:
                assert float(row.pop(key)) == float(own.pop(key))
        assert row == own


def read_back(path):
    if path.suffix == ".json":
        return json.loads(path.read_text())["answers"]
    if path.suffix in (".arrow", ".feather"):
        return feather.read_table(path).to_pylist()
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_excel(release, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    release.write(WORKLOAD, tmp_path / "x.xlsx")
    book = openpyxl.load_workbook(tmp_path / "x.xlsx")
    assert book.sheetnames[:3] == ["Notes", "total", "sex"]
    notes = dict(book["Notes"].iter_rows(values_only=True))
    assert notes["guarantee"] == release.guarantee
    rows = list(book["sex × age"].iter_rows(values_only=True))
    own = [name for name in COLUMNS if not name.startswith("h") or name == "high"]
    assert list(rows[0]) == own, "only the columns of its attributes"
    expected = [r for r in release.answer(WORKLOAD).to_frame().to_pylist() if r["table"] == "sex × age"]
    close([dict(zip(own, r, strict=True)) for r in rows[1:]], [{n: r[n] for n in own} for r in expected])


def test_excel_is_an_extra(release, tmp_path, monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    monkeypatch.setattr(workbook, "find_spec", lambda name: None)
    with refuses(MissingExtraError, ImportError, "querysmasher[excel]"):
        release.write(WORKLOAD, tmp_path / "x.xlsx")
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced(release, tmp_path):
    path = tmp_path / "x.parquet"
    path.write_text("old")
    release.write(qs.marginals(SCHEMA, 1), str(path), progress=False)
    assert pq.read_table(path).num_rows == 10


def test_only_the_total(release, tmp_path):
    release.write(qs.marginals(SCHEMA, 0), tmp_path / "x.pq")
    table = pq.read_table(tmp_path / "x.pq")
    assert table.column_names == [
        name for name in COLUMNS if name[:3] not in ("sex", "age") and name[:2] not in ("h", "h_")
    ]
    assert table["value"].to_pylist() == release.answer(qs.marginals(SCHEMA, 0)).values.tolist()


def test_nothing_is_written_for_queries_outside(tmp_path, refuses):
    workload = qs.marginals(SCHEMA, 1) + qs.queries(SCHEMA, h=[[1, 0, 0]], sex="identity")
    plan = qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM)
    release = simulate(plan, random_counts(SCHEMA, 2), 7)
    old = tmp_path / "old.csv"
    old.write_text("old")
    for path in (tmp_path / "x.parquet", old):
        with refuses(OutsideMeasuredSpaceError, ValueError, "sex and age were not planned together"):
            release.write(qs.marginals(SCHEMA, [1, 2]), path)
        with refuses(OutsideMeasuredSpaceError, ValueError, "only for other queries"):
            release.write(workload + qs.queries(SCHEMA, h=[[0, 1, 0]], sex="identity"), path)
        with refuses(OutsideMeasuredSpaceError, ValueError, "expected a Workload"):
            release.write("everything", path)
        with refuses(OutsideMeasuredSpaceError, ValueError, "differs from that of the release"):
            release.write(qs.marginals(qs.Schema.of(a=2), 1), path)
    assert old.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.csv"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("x")]
)
def test_an_interrupted_file_leaves_nothing(release, tmp_path, monkeypatch, error):
    original, calls = release_module.Release.answer_group, []

    def failing(self, group):
        calls.append(group)
        if len(calls) > 4:
            raise error
        return original(self, group)

    monkeypatch.setattr(release_module.Release, "answer_group", failing)
    old = tmp_path / "old.csv"
    old.write_text("old")
    for path in (tmp_path / "x.parquet", tmp_path / "x.csv", old):
        calls.clear()
        with pytest.raises(type(error)):
            release.write(WORKLOAD, path)
        assert len(calls) == 5
    assert old.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.csv"]


def test_where_nothing_can_be_written(release, tmp_path, refuses):
    with refuses(FileError, ValueError, "folder"):
        release.write(WORKLOAD, tmp_path / "none" / "x.csv")
    (tmp_path / "folder.csv").mkdir()
    with refuses(FileError, ValueError, "folder"):
        release.write(WORKLOAD, tmp_path / "folder.csv")


@pytest.mark.parametrize("name", ["x.xls", "x", "x.gz", "x.jsonl", "csv", "x.parquet.bak", "", None, 3])
def test_names_of_other_files_are_refused_before_any_work(release, tmp_path, monkeypatch, name, refuses):
    monkeypatch.setattr(writing.Tidy, "tables", None)
    monkeypatch.setattr(release_module.Release, "estimator", None)
    path = str(tmp_path / name) if name and isinstance(name, str) else name
    words = [".parquet", ".pq", ".csv"] if isinstance(path, str) and path else ["path"]
    with refuses(FileError, ValueError, *words):
        release.write(WORKLOAD, path)
    assert not list(tmp_path.iterdir())


FORMULAS = ["=1+1", "+1", "-2", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1+1", "-1\x1b[2J"]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_name_is_a_formula_of_a_spreadsheet(name, tmp_path):
    """Names, values and labels from elsewhere begin no cell of a CSV file as formulas do."""
    schema = qs.Schema([qs.Ordinal(name, [-2, -1, 0]), qs.Ordinal("b", ["=2+5", "@x"])])
    workload = (
        qs.all_kway(schema, [1, 2], "range")
        + qs.linear(schema, ["b"], np.eye(2), labels=["=HYPERLINK(1)", name])
        + qs.queries(schema, b=qs.hierarchy(schema, "b", {"=2+5": name, "@x": name}))
    )
    release = simulate(qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM), random_counts(schema, 2), 7)
    for file in ("x.csv", "x.parquet"):
        release.write(workload, tmp_path / file)
    with (tmp_path / "x.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    table = pq.read_table(tmp_path / "x.parquet")
    numbers = [i for i, field in enumerate(table.schema) if field.type in (pa.int64(), pa.float64())]
    marked = 0
    for row, expected in zip(
        [header, *rows], [table.column_names, *map(dict.values, table.to_pylist())], strict=True
    ):
        for place, (cell, words) in enumerate(zip(row, expected, strict=True)):
            if place in numbers and row is not header:
                assert cell == "" or float(cell) == words
                continue
            assert cell.lstrip()[:1] not in set("=+-@＝＋－＠\t\r"), cell
            assert cell in (words or "", f"'{words}"), "nothing else is changed"
            assert "\x1b" not in cell
            marked += cell.startswith("'") and cell != words
    assert marked > 5


def test_statistics_are_not_written(release, tmp_path):
    """They would take time, and repeat the smallest and the largest answer of each group."""
    release.write(WORKLOAD, tmp_path / "x.parquet")
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    assert metadata.num_rows == len(WORKLOAD)
    assert all(
        metadata.row_group(g).column(c).statistics is None
        for g in range(metadata.num_row_groups)
        for c in range(metadata.num_columns)
    )


def test_a_suppressed_number_is_not_in_the_file(release, tmp_path):
    """Not even behind the mark that it is missing, where Arrow has room for it."""
    release.write(WORKLOAD, tmp_path / "x.arrow", suppress=1e-9)
    table = feather.read_table(tmp_path / "x.arrow")
    for name in ("value", "std", "low", "high", "cv"):
        column = pa.concat_arrays(table[name].chunks)
        assert column.null_count == WORKLOAD.query_count
        assert not np.frombuffer(column.buffers()[1], np.float64).any()
