"""Numbers and texts that no one means: each is a mistake of the file, never an error of querysmasher."""

import pytest

import querysmasher as qs
from querysmasher.errors import QuerySmasherError, SpecError
from querysmasher.spec import read_codebook
from tests.spec.files import BUDGET, HEAD, SMALL, WORKLOAD, read, write

LONG = "9" * 5_000
LARGE = "9" * 400


@pytest.mark.parametrize(
    "given",
    [
        "[0, nan]",
        "[0, inf]",
        "[-inf, 0]",
        "[0, 9, nan]",
        "[0, 1, 1e-308]",
        f"[0, {LARGE}]",
        f"[{LARGE}, {LARGE}]",
    ],
)
def test_ranges(tmp_path, given):
    with pytest.raises(SpecError, match=r"schema\[1\]\.range"):
        read(tmp_path, SMALL.replace("[0, 9]", given))


@pytest.mark.parametrize(
    "workload",
    [
        f'kind = "random_queries"\nattributes = ["sex"]\ncount = {LARGE}',
        'kind = "linear"\nattributes = ["sex"]\nrows = [[1e308, 1e308]]',
        'kind = "queries"\nfamilies = {sex = {rows = "a\\u0000b"}}',
        'kind = "linear"\nattributes = ["sex"]\nfile = "a\\u0000b"',
    ],
)
def test_workloads(tmp_path, workload):
    with pytest.raises(SpecError, match=r"workload\[0\]"):
        read(tmp_path, f"{HEAD}[[workload]]\n{workload}\n{BUDGET}")


@pytest.mark.parametrize(
    "text",
    [
        f"{SMALL}records_per_person = {LARGE}\n",
        f'{SMALL}[output]\nfolder = "a\\u0000b"\n',
        f'{SMALL}[data]\npath = "a\\u0000b"\n',
        f'codebook = "a\\u0000b.csv"\n{WORKLOAD}{BUDGET}',
        f"{SMALL}[measure]\nmax_records = {LONG}\n",
        f"deep = {'[' * 3_000}{']' * 3_000}\n{SMALL}",
    ],
)
def test_the_rest(tmp_path, text):
    with pytest.raises(SpecError):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", f"attribute,kind,values\na,ordinal,1..{LONG}\nb,binned,1;2;{LONG}\n"),
        ("a.csv", f"attribute,kind,values\na,categorical,{'x' * 200_000}\n"),
        ("a.json", "[" * 100_000),
    ],
)
def test_codebooks(tmp_path, name, text):
    with pytest.raises(QuerySmasherError):
        read_codebook(write(tmp_path, text, name))


@pytest.mark.slow
def test_a_value_given_twice_among_a_million_is_found_at_once():
    with pytest.raises(qs.SchemaError, match="999999 is given more than once"):
        qs.Ordinal("a", [*range(1_000_000), 999_999])
