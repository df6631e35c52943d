"""Answers as Parquet: the same as `answer`, in order, in words, all or nothing."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.errors import FileError, OutsideMeasuredSpaceError
from querysmasher.release import release as release_module
from querysmasher.release import writing
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


def conditions(row):
    return [v for k, v in row.items() if k.startswith("condition_") and v is not None]


@pytest.mark.parametrize("batch", [2_000_000, 7, 1])
def test_what_is_written_is_what_is_answered(release, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(writing, "BATCH", batch)
    path = tmp_path / "x.parquet"
    release.write(WORKLOAD, path)
    table = pq.read_table(path)
    answers = release.answer(WORKLOAD)
    assert table.column_names == ["attributes", "condition_1", "condition_2", "condition_3", "value", "std"]
    np.testing.assert_array_equal(table["value"].to_numpy(), answers.values)
    np.testing.assert_array_equal(table["std"].to_numpy(), answers.std)
    rows = table.to_pylist()
    for row, label in zip(rows, WORKLOAD.labels(), strict=True):
        assert " and ".join(conditions(row)) == ("" if label == "total" else label)
    names = [", ".join(g.attributes) for g in WORKLOAD for _ in range(g.rows)]
    assert [row["attributes"] for row in rows] == names
    assert "age <= 3" in [row["condition_1"] for row in rows]
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


@pytest.mark.parametrize("batch", [2_000_000, 7])
def test_a_name_that_ends_in_csv_makes_a_csv_file(release, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(writing, "BATCH", batch)
    release.write(WORKLOAD, tmp_path / "x.parquet")
    release.write(WORKLOAD, tmp_path / "x.CSV")
    with (tmp_path / "x.CSV").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    table = pq.read_table(tmp_path / "x.parquet")
    assert header == table.column_names
    assert len(rows) == table.num_rows
    for row, expected in zip(rows, table.to_pylist(), strict=True):
        assert row[:-2] == ["" if word is None else word for word in list(expected.values())[:-2]]
        assert [float(number) for number in row[-2:]] == [expected["value"], expected["std"]]


def test_a_file_is_replaced(release, tmp_path):
    path = tmp_path / "x.parquet"
    path.write_text("old")
    release.write(qs.marginals(SCHEMA, 1), str(path), progress=False)
    assert pq.read_table(path).num_rows == 10


def test_only_the_total(release, tmp_path):
    release.write(qs.marginals(SCHEMA, 0), tmp_path / "x.pq")
    table = pq.read_table(tmp_path / "x.pq")
    assert table.column_names == ["attributes", "value", "std"]
    assert table["value"].to_pylist() == release.answer(qs.marginals(SCHEMA, 0)).values.tolist()


def test_nothing_is_written_for_queries_outside(tmp_path, refuses):
    workload = qs.marginals(SCHEMA, 1) + qs.queries(SCHEMA, h=[[1, 0, 0]], sex="identity")
    plan = qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM)
    release = simulate(plan, random_counts(SCHEMA, 2), 7)
    old = tmp_path / "old.csv"
    old.write_text("old")
    for path in (tmp_path / "x.parquet", old):
        with refuses(OutsideMeasuredSpaceError, ValueError, "{sex, age}"):
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


@pytest.mark.parametrize("name", ["x.xlsx", "x", "x.csv.gz", "x.json", "csv", "x.parquet.bak", "", None, 3])
def test_names_of_other_files_are_refused_before_any_work(release, tmp_path, monkeypatch, name, refuses):
    monkeypatch.setattr(writing, "_tables", None)
    monkeypatch.setattr(release_module.Release, "predictor", None)
    path = str(tmp_path / name) if name and isinstance(name, str) else name
    words = [".parquet", ".pq", ".csv"] if isinstance(path, str) and path else ["path"]
    with refuses(FileError, ValueError, *words):
        release.write(WORKLOAD, path)
    assert not list(tmp_path.iterdir())


FORMULAS = ["=1+1", "+1", "-2", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1+1", "-1\x1b[2J"]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_name_is_a_formula_of_a_spreadsheet(name, tmp_path):
    """Names, values and labels from elsewhere begin no cell of a CSV file as formulas do."""
    schema = qs.Schema([qs.Ordinal(name, [-2, -1, 0]), qs.Categorical("b", ["=2+5", "@x"])])
    workload = (
        qs.all_kway(schema, [1, 2], "range")
        + qs.linear(schema, ["b"], np.eye(2), labels=["=HYPERLINK(1)", name])
        + qs.queries(schema, b=qs.hierarchy(schema, "b", {"=2+5": name, "@x": name}))
    )
    release = simulate(qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM), random_counts(schema, 2), 7)
    for file in ("x.csv", "x.parquet"):
        release.write(workload, tmp_path / file)
    with (tmp_path / "x.csv").open(newline="") as stream:
        _, *rows = csv.reader(stream)
    table = pq.read_table(tmp_path / "x.parquet").to_pylist()
    marked = 0
    for row, expected in zip(rows, table, strict=True):
        for cell, words in zip(row[:-2], list(expected.values())[:-2], strict=True):
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
