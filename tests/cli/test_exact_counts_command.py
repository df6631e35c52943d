"""What commands say about exact counts, and public totals on the command line."""

import json

import pytest

import querysmasher as qs
from querysmasher.spec import read_spec
from tests.spec.files import AGE, SEX

TEXT = f"""{SEX}{AGE}
[[workload]]
kind = "marginals"
k = [1, 2]

[budget]
rho = 0.05

[plan]
exact = ["sex"]
"""


@pytest.mark.parametrize("impossible", ["", "impossible = [\"age < 3 and sex == 'M'\"]\n"])
def test_a_release_with_public_totals_is_published_and_verified(tmp_path, run, impossible):
    text = impossible + TEXT.replace("rho = 0.05", 'rho = 0.05\nledger = {path = "p.ledger", rho = 1}')
    path = tmp_path / "release.toml"
    path.write_text(text + '\n[measure]\npublic = "totals.csv"\n\n[data]\npath = "people.csv"\n')
    spec = read_spec(path)
    sexes, age = [str(v) for v in spec.schema["sex"].values], spec.schema["age"].values[-1]
    (tmp_path / "people.csv").write_text("sex,age\n" + f"{sexes[0]},{age}\n" * 7 + f"{sexes[1]},{age}\n" * 5)
    (tmp_path / "totals.csv").write_text(f"sex,count\n{sexes[0]},7\n{sexes[1]},5\n")
    run("check", path)
    run("release", path)
    shown = run("verify", tmp_path / "out", "--ledger", tmp_path / "p.ledger")
    release = qs.Release.load(tmp_path / "out" / "release.qs")
    assert (release.tying is not None) == bool(impossible)
    assert release.marginal("sex").tolist() == [7, 5]
    assert release.marginal("sex", "age")[1, :3].any() != bool(impossible)
    assert "Published without noise: counts by sex." in " ".join(shown.out.split())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "What a record says about sex is not protected." in summary["guarantee"]
    book = " ".join(run("ledger", tmp_path / "p.ledger").out.split())
    assert "exact counts by sex: the sum is for tables that agree on them" in book
    assert json.loads(run("ledger", tmp_path / "p.ledger", "--json").out)["exact"] == [["sex"]]


@pytest.mark.parametrize(
    ("workload", "exact", "totals", "said"),
    [
        ("", '"sex"', "sex,count\nF,7\nM,4\n", "1 public total (sex == 'M': 5 records, public 4)"),
        (
            '[[workload]]\nkind = "where"\npredicate = "age >= 5"\n',
            '"age >= 5"',
            "age,count\nage >= 5,5\nnot (age >= 5),8\n",
            (
                "2 public totals (age in 'not (age >= 5)': 5 records, public 8; "
                "age in 'age >= 5': 7 records, public 5)"
            ),
        ),
    ],
)
def test_check_says_where_the_table_disagrees_with_public_totals(
    tmp_path, run, workload, exact, totals, said
):
    path = tmp_path / "release.toml"
    text = TEXT.replace('"sex"]', f"{exact}]").replace("[budget]", f"{workload}\n[budget]")
    path.write_text(text + '\n[measure]\npublic = "totals.csv"\n\n[data]\npath = "people.csv"\n')
    (tmp_path / "people.csv").write_text("sex,age\n" + "F,9\n" * 7 + "M,1\n" * 5)
    (tmp_path / "totals.csv").write_text(totals)
    ran = run("check", path, code=5)
    assert ran.words.endswith(f"The table is refused: it disagrees with {said}.")
    assert run("check", path, "--json", code=5).json["disagreeing"]
    assert "disagrees with the public totals" in run("release", path, code=5).err
    assert "public 4" not in run("release", path, code=5).err
