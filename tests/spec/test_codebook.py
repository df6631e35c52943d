"""Codebooks: the same schema from CSV and JSON, and no word of a file that is something else."""

import json
from datetime import date

import pytest

import querysmasher as qs
from querysmasher.errors import FileError, SpecError
from querysmasher.spec import read_codebook
from tests.spec.files import BUDGET, WORKLOAD, read

SCHEMA = qs.Schema(
    [
        qs.Categorical("sex", ["F", "M"]),
        qs.Ordinal("age", range(100)),
        qs.Binned("income", edges=[0, 10.5, 25]),
        qs.Cyclic("month", ["Jan", "Feb", "Mar"]),
        qs.Categorical("code", ["01", "02"]),
        qs.Categorical("number", ["1", "2"]),
    ]
)
CSV = """\
attribute,kind,values,type
sex,categorical,F; M,
age,ordinal,0..99,
income,binned,0;10.5;25,
month,cyclic,Jan,
month,,Feb,
month,cyclic,Mar,
code,categorical,01;02,
number,categorical,1;2,text
"""
JSON = [
    {"attribute": "sex", "kind": "categorical", "values": ["F", "M"]},
    {"attribute": "age", "kind": "ordinal", "range": [0, 99]},
    {"name": "income", "kind": "binned", "edges": [0, 10.5, 25]},
    {"attribute": "month", "kind": "cyclic", "values": ["Jan", "Feb", "Mar"]},
    {"attribute": "code", "kind": "categorical", "values": ["01", "02"]},
    {"attribute": "number", "kind": "categorical", "values": ["1", "2"]},
]


def test_csv_and_json_say_the_same(tmp_path):
    (tmp_path / "book.csv").write_text(CSV)
    (tmp_path / "book.JSON").write_text(json.dumps(JSON))
    assert read_codebook(tmp_path / "book.csv") == SCHEMA
    assert read_codebook(str(tmp_path / "book.JSON")) == SCHEMA


def test_columns_in_any_order_and_case(tmp_path):
    (tmp_path / "book.csv").write_text("\ufeffNotes,Values, Kind ,ATTRIBUTE\nsome,1..3,Ordinal,a\n")
    assert read_codebook(tmp_path / "book.csv") == qs.Schema([qs.Ordinal("a", [1, 2, 3])])


def test_a_spec_may_name_one(tmp_path):
    (tmp_path / "book.csv").write_text(CSV)
    assert read(tmp_path, 'codebook = "book.csv"\n' + WORKLOAD + BUDGET).schema == SCHEMA
    with pytest.raises(SpecError) as caught:
        read(tmp_path, 'codebook = "none.csv"\n' + WORKLOAD + BUDGET)
    assert str(caught.value).startswith("release.toml, line 1: codebook: codebook none.csv: the file ")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "b.csv",
            "name,age\nAnn Private,33\n",
            "expected a header with the columns attribute, kind and values",
        ),
        ("b.csv", "", "expected a header with the columns attribute, kind and values"),
        ("b.csv", "attribute,kind,values\n", "it has no attribute"),
        ("b.csv", "attribute,kind,values\n,ordinal,1\n", "line 2: attribute: missing"),
        (
            "b.csv",
            "attribute,kind,values\na,fuzzy,1;2\n",
            "[0].kind: expected one of categorical, ordinal, binned, number, cyclic, got 'fuzzy'",
        ),
        (
            "b.csv",
            "attribute,kind,values\na,ordinal,1\na,cyclic,2\n",
            "line 3: kind: 'a' was 'ordinal' before, got 'cyclic'",
        ),
        (
            "b.csv",
            "attribute,kind,values\na,ordinal,1;1\n",
            "[0].values: values of attribute 'a': 1 is given more than once; list every possible value once",
        ),
        (
            "b.csv",
            "attribute,kind,values\na,binned,x;y\n",
            '[0].edges: expected a list of increasing numbers, got ["x", "y"]',
        ),
        (
            "b.json",
            '[{"id": "Ann Private"',
            "expected a list of objects with attribute, kind, and values, range or edges",
        ),
        (
            "b.json",
            '"Ann Private"',
            "expected a list of objects with attribute, kind, and values, range or edges",
        ),
        ("b.txt", "Ann Private", "expected a name that ends in .csv or .json"),
    ],
)
def test_mistakes(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError) as caught:
        read_codebook(tmp_path / name)
    separator = ", " if message.startswith("line ") else ": "
    assert str(caught.value) == f"codebook {name}{separator}{message}"
    assert "Ann" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path, refuses):
    with refuses(FileError, ValueError, "cannot be read"):
        read_codebook(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xff")
    with refuses(FileError, ValueError, "cannot be read"):
        read_codebook(tmp_path / "b.csv")


def test_dates(tmp_path):
    path = tmp_path / "codebook.csv"
    path.write_text(
        "attribute,kind,values,type\n"
        "day,ordinal,2024-02-28..2024-03-01,\nholiday,categorical,2024-01-01;2024-12-25,\n"
        "text,categorical,2024-01-01;2024-12-25,text\nno,categorical,2024-02-30;2024-01-01,\n"
        "mixed,categorical,2024-01-01;unknown,\n"
    )
    schema = read_codebook(path)
    assert schema["day"].values == (date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1))
    assert schema["holiday"].values == (date(2024, 1, 1), date(2024, 12, 25))
    assert schema["text"].values == ("2024-01-01", "2024-12-25")
    assert schema["no"].values == ("2024-02-30", "2024-01-01")
    assert schema["mixed"].values == ("2024-01-01", "unknown")


def test_ranges_of_numbers_and_steps(tmp_path):
    (tmp_path / "b.csv").write_text(
        "attribute,kind,values,step,outside\n"
        "income,number,0..1000,,refuse\n"
        "rent,number,-0.5..10,0.25,\n"
        "days,number,0;10;2,,clamp\n"
        "age,binned,0;18;65,1,\n"
    )
    schema = read_codebook(tmp_path / "b.csv")
    assert schema["income"] == qs.Number("income", 0, 1000, outside="refuse")
    assert schema["rent"] == qs.Number("rent", -0.5, 10, step=0.25)
    assert schema["days"] == qs.Number("days", 0, 10, step=2)
    assert schema["age"] == qs.Binned("age", edges=[0, 18, 65], step=1)


def test_values_beside_the_others_and_open_ended_bins(tmp_path):
    (tmp_path / "b.csv").write_text(
        "attribute,kind,values,missing,other\n"
        "dest,categorical,JFK;LGA,none,other\n"
        "age,ordinal,0..9,-9,\n"
        "zip,categorical,1;2,-9,\n"
        "delay,binned,-inf;0;10;inf,missing,\n"
        "income,number,0;1000;10,missing,\n"
    )
    (tmp_path / "b.json").write_text(
        '[{"attribute": "delay", "kind": "binned", "edges": ["-inf", 0, 10, "inf"], "missing": "missing"}]'
    )
    schema = read_codebook(tmp_path / "b.csv")
    assert schema["dest"] == qs.Categorical("dest", ["JFK", "LGA"], other="other", missing="none")
    assert schema["age"] == qs.Ordinal("age", range(10), missing=-9)
    assert schema["income"] == qs.Number("income", 0, 1000, step=10, missing="missing")
    assert schema["zip"] == qs.Categorical("zip", [1, 2], missing=-9)
    delay = qs.Binned("delay", edges=[float("-inf"), 0, 10, float("inf")], missing="missing")
    assert schema["delay"] == delay
    assert read_codebook(tmp_path / "b.json")["delay"] == delay
