"""Spec files for tests: a small one, and a way to change it."""

from querysmasher.spec import read_spec

SEX = """\
[[schema]]
name = "sex"
kind = "categorical"
values = ["F", "M"]
"""
AGE = """
[[schema]]
name = "age"
kind = "ordinal"
range = [0, 9]
"""
HEAD = f"""{SEX}{AGE}
[[schema]]
name = "hour"
kind = "cyclic"
values = [0, 6, 12, 18]

[[schema]]
name = "income"
kind = "binned"
edges = [0, 10, 25.5]
"""
WORKLOAD = """
[[workload]]
kind = "all_kway"
k = [1, 2]
"""
BUDGET = """
[budget]
rho = 0.5
"""
SMALL = HEAD + WORKLOAD + BUDGET


def write(folder, text, name="release.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(folder, text):
    return read_spec(write(folder, text))
