"""The spec file, edited: what is not changed stays, to the last comment."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.spec import template
from querysmasher.studio.document import Document, location_of, paths, strays, written
from tests.studio.conftest import SPEC

TEXTS = [SPEC, template()]


def comments(text):
    """All comments of a text in order, also those of lines that are commented out."""
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_changes_by_reading(text):
    assert Document(text).text == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_changed_value_changes_its_line_only(text):
    document = Document(text)
    document.set(("budget", "epsilon"), 2.5)
    changed = [
        new for old, new in zip(text.splitlines(), document.text.splitlines(), strict=True) if old != new
    ]
    assert len(changed) == 1
    assert changed[0].startswith("epsilon = 2.5 ")
    assert comments(document.text) == comments(text)
    assert document.get(("budget", "epsilon")) == 2.5


@pytest.mark.parametrize("text", TEXTS)
def test_a_new_key_stands_below_the_others(text):
    document = Document(text)
    document.set(("workload", 0, "target"), 20)
    lines = document.text.splitlines()
    keys = [line.split(" = ")[0] for line in lines[lines.index("[[workload]]") :]]
    last = keys.index("target")
    assert all(" " not in key for key in keys[1 : last + 1])
    assert comments(document.text) == comments(text)


@pytest.mark.parametrize("text", TEXTS)
def test_new_sections_and_tables(text):
    document = Document(text)
    document.set(("plan", "objective"), "worst")
    document.add("workload", {"kind": "where", "predicate": ["age < 3"]})
    document.add("statistics", {"kind": "mean", "attribute": "age"})
    stated = tomllib.loads(document.text)
    assert stated["plan"] == {"objective": "worst"}
    assert stated["workload"][-1] == {"kind": "where", "predicate": ["age < 3"]}
    assert stated["statistics"] == [{"kind": "mean", "attribute": "age"}]
    assert comments(document.text) == comments(text)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("index", [0, 1])
def test_a_removed_table_takes_no_comment_of_others_along(text, index):
    document = Document(text)
    before = tomllib.loads(text)
    document.remove("workload", index)
    stated = tomllib.loads(document.text)
    assert stated == before | {"workload": [before["workload"][1 - index]]}
    gone = [c for c in comments(text) if c not in comments(document.text)]
    lines = text.splitlines()
    start = [i for i, line in enumerate(lines) if line == "[[workload]]"][index]
    own = lines[start : start + 5]
    assert all(any(line.endswith(comment) and not line.startswith("#") for line in own) for comment in gone)


def test_a_removed_key_leaves_its_comment():
    document = Document(SPEC)
    document.set(("budget", "epsilon"), None)
    assert "# decided by the board\n" in document.text
    assert document.get(("budget", "epsilon")) is None
    assert comments(document.text) == comments(SPEC)


def test_a_replaced_table_keeps_the_lines_that_stay():
    document = Document(template())
    document.replace("schema", 1, {"name": "age", "kind": "ordinal", "values": [1, 2]})
    assert document.get(("schema", 1)) == {"name": "age", "kind": "ordinal", "values": [1, 2]}
    assert 'kind = "ordinal"                  # values with an order' in document.text


def test_lists_that_are_no_tables():
    document = Document('workload = [{kind = "where", predicate = "a < 1"}, {kind = "marginals", k = 1}]\n')
    document.set(("workload", 1, "k"), 2)
    document.remove("workload", 0)
    assert tomllib.loads(document.text) == {"workload": [{"kind": "marginals", "k": 2}]}


VALUES = st.recursive(
    st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc-é .", min_size=1, max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
STEPS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(["k", "weight", "new"]), VALUES),
    st.tuples(st.just("forget"), st.sampled_from(["k", "weight", "new"]), st.none()),
    st.tuples(st.just("add"), st.just("x"), VALUES),
    st.tuples(st.just("remove"), st.just(""), st.none()),
)


@given(st.lists(STEPS, max_size=6))
def test_changes_do_what_they_do_to_plain_data(steps):
    """Also in any order: the text is always TOML that states just what a dictionary would."""
    document = Document(
        "# top\n[[workload]]  # first\nk = 1 # one\n# below\n\n[budget] # b\nrho = 1\n# end\n"
    )
    plain = {"workload": [{"k": 1}], "budget": {"rho": 1}}
    for kind, key, value in steps:
        if kind == "add":
            document.add("workload", {key: value})
            plain["workload"].append({key: value})
        elif kind == "remove" and len(plain["workload"]) > 1:
            document.remove("workload", 0)
            del plain["workload"][0]
        elif kind == "set":
            document.set(("workload", 0, key), value)
            plain["workload"][0][key] = value
        elif kind == "forget":
            document.set(("workload", 0, key), None)
            plain["workload"][0].pop(key, None)
    assert tomllib.loads(document.text) == plain
    assert {"# top", "# below", "# end", "# b"} <= set(comments(document.text))


@given(st.lists(st.integers(0, 99) | st.from_regex(r"\A[a-z_-]{1,6}\Z"), max_size=5))
def test_locations_are_written_and_read(steps):
    assert location_of(written(tuple(steps))) == tuple(steps)


def test_all_paths_are_looked_at():
    text = """codebook = "/a"
    workload = [{families = {x = {hierarchy = "/b", codebook = "/c"}, y = {rows = "/d"}}, file = "/e"}]
    budget = {ledger = "/f"}
    data = {database = "/g", table = "t"}
    output = {folder = "/h"}
    measure = {public = ["/k", "in.csv", "/l"]}
    measure2 = {public = "/m"}
    [[workload2]]
    ledger = {path = "/i", label = "/no path"}
    families = {z = {ranges = "/j"}}
    """
    found = {problem.split("'")[1] for _, problem in strays(paths(text), Path("/nowhere"))}
    assert found == {f"/{letter}" for letter in "abcdefghijklm"}
    assert list(strays(paths(SPEC), Path("/nowhere"))) == []
