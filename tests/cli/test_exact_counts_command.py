"""What commands say about exact counts, and public totals on the command line."""

import json

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


def test_a_release_with_public_totals_is_published_and_verified(tmp_path, run):
    text = TEXT.replace("rho = 0.05", 'rho = 0.05\nledger = {path = "p.ledger", rho = 1}')
    path = tmp_path / "release.toml"
    path.write_text(text + '\n[measure]\npublic = "totals.csv"\n\n[data]\npath = "people.csv"\n')
    spec = read_spec(path)
    sexes, age = [str(v) for v in spec.schema["sex"].values], spec.schema["age"].values[0]
    (tmp_path / "people.csv").write_text("sex,age\n" + f"{sexes[0]},{age}\n" * 7 + f"{sexes[1]},{age}\n" * 5)
    (tmp_path / "totals.csv").write_text(f"sex,count\n{sexes[0]},7\n{sexes[1]},5\n")
    run("check", path)
    run("release", path)
    shown = run("verify", tmp_path / "out", "--ledger", tmp_path / "p.ledger")
    assert "Published without noise: counts by sex." in " ".join(shown.out.split())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "What a record says about sex is not protected." in summary["guarantee"]
    book = " ".join(run("ledger", tmp_path / "p.ledger").out.split())
    assert "exact counts by sex: the sum is for tables that agree on them" in book
    assert json.loads(run("ledger", tmp_path / "p.ledger", "--json").out)["exact"] == [["sex"]]
