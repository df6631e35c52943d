"""Hierarchies: levels in every form, trees that cannot be, and answers without rows written out."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import FileError, WorkloadError
from querysmasher.workload.hierarchy import Hierarchy
from querysmasher.workload.registry import family_from_json, workload_from_data, workload_to_data
from tests.strategies import trees

TRACTS = ["0101", "0102", "0203", "1101", "1102", "1203"]
SCHEMA = qs.Schema([qs.Categorical("tract", TRACTS), qs.Ordinal("age", range(3))])
STATES = {t: t[0] for t in TRACTS}
COUNTIES = {"01": ["0101", "0102"], "02": ["0203"], "11": ["1101", "1102"], "12": ["1203"]}


def test_every_form_of_a_level_gives_the_same_queries():
    expected = qs.hierarchy(SCHEMA, "tract", STATES, [t[:2] for t in TRACTS])
    for first, second in [
        (1, 2),
        (STATES, COUNTIES),
        (list("000111"), np.array([t[:2] for t in TRACTS])),
        (np.array(list("000111"), dtype=object), {t: t[:2] for t in TRACTS}),
    ]:
        assert qs.hierarchy(SCHEMA, "tract", first, second) == expected
    named = qs.hierarchy(SCHEMA, "tract", state=1, county=2)
    assert named.key == expected.key
    assert named.titles == ("state", "county")
    np.testing.assert_array_equal(named.matrix(), expected.matrix())
    assert expected.rows == 2 + 4 + 6
    assert expected.sizes == (2, 4, 6)


def test_levels_of_a_codebook_and_of_a_crosswalk(tmp_path):
    expected = qs.hierarchy(SCHEMA, "tract", STATES, COUNTIES)
    (tmp_path / "codebook.csv").write_text(
        "attribute,kind,values,State,county\n"
        "tract,categorical,0101;0102,0,01\ntract,,0203,0,02\n"
        "tract,,1101; 1102,1,11\ntract,,1203,1,12\nage,ordinal,0..2,,\n"
    )
    (tmp_path / "crosswalk.csv").write_text(
        "State,tract,county\n" + "".join(f"{t[0]},{t},{t[:2]}\n" for t in reversed(TRACTS))
    )
    for name in ("codebook.csv", "crosswalk.csv"):
        found = qs.hierarchy(SCHEMA, "tract", "State", "county", codebook=tmp_path / name)
        assert found == expected
    ages = tmp_path / "ages.csv"
    ages.write_text("attribute,values,stage\nage,0..1,young\nage,2,old\n")
    assert qs.hierarchy(SCHEMA, "age", "stage", codebook=ages).names == (("young", "old"),)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("tract,state\n0101,0\n", "county", ["no column 'county'"]),
        ("tract,state\n0101,0\n", "state", ["no line for value '0102'"]),
        ("tract,state\n0101,0\n0101,1\n", "state", ["line 3", "'0101'", "two groups"]),
        ("tract,state\n0101,\n", "state", ["line 2", "no group"]),
        ("tract,state\nsecret,0\n", "state", ["line 2", "not one of attribute 'tract'"]),
        ("x,state\nsecret,0\n", "state", ["no column 'tract'"]),
        ("attribute,values,state\ntract,0101..0102,0\n", "state", ["line 2", "not one of"]),
        ("attribute,values,state\ntract,1..999999999999,0\n", "state", ["line 2", "not one of"]),
        ("", "state", ["no column"]),
    ],
)
def test_mistakes_in_a_codebook_are_refused_without_quoting_it(tmp_path, text, column, words, refuses):
    path = tmp_path / "levels.csv"
    path.write_text(text)
    with refuses(WorkloadError, ValueError, *words):
        qs.hierarchy(SCHEMA, "tract", column, codebook=path)
    with pytest.raises(WorkloadError) as caught:
        qs.hierarchy(SCHEMA, "tract", column, codebook=path)
    assert "secret" not in str(caught.value)


def test_a_missing_codebook(tmp_path, refuses):
    with refuses(FileError, ValueError, "nowhere.csv"):
        qs.hierarchy(SCHEMA, "tract", "state", codebook=tmp_path / "nowhere.csv")
    with refuses(WorkloadError, ValueError, "level 1", "codebook"):
        qs.hierarchy(SCHEMA, "tract", "state")


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        (([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]), ["level 1 does not nest in level 2"]),
        (([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]), ["level 2 does not nest in level 1"]),
        (({"n": TRACTS[:4], "s": TRACTS[3:]},), ["level 1", "'1101'", "two groups"]),
        (({"n": TRACTS[:4]},), ["level 1", "'1102'"]),
        (({"n": TRACTS, "s": ["0999"]},), ["level 1", "'0999'"]),
        (({t: None if t == "1203" else t for t in TRACTS[:5]},), ["level 1", "'1203'"]),
        (([0, 0, 0, 1, 1, float("nan")],), ["level 1", "NaN"]),
        ((4,), ["level 1", "0 to 3", "got 4"]),
        ((-1,), ["level 1", "got -1"]),
        ((True,), ["level 1"]),
        ((2.5,), ["level 1"]),
        (([[1]] * 6,), ["level 1", "groups"]),
        ((["a"] * 6, ["a", "b"]), ["level 2", "expected 6 groups, one per value, got 2"]),
    ],
)
def test_trees_that_cannot_be_are_refused(levels, words, refuses):
    with refuses(WorkloadError, ValueError, *words):
        qs.hierarchy(SCHEMA, "tract", *levels)


def test_prefixes_of_numbers_need_as_many_digits(refuses):
    zip_codes = qs.Schema([qs.Categorical("zip", [1001, 90210])])
    with refuses(WorkloadError, ValueError, "level 1", "leading zeros"):
        qs.hierarchy(zip_codes, "zip", 2)
    same = qs.Schema([qs.Categorical("zip", [10010, 90210, 90211])])
    assert qs.hierarchy(same, "zip", 1).names == (("1", "9"),)


@pytest.mark.parametrize("weights", [[1, 2], [1, 2, 3, 4], [1, 0, 1], [1, -1, 1], "abc", 3, [1, None, 1]])
def test_weights_that_cannot_be_are_refused(weights, refuses):
    with refuses(WorkloadError, ValueError, "weight"):
        qs.hierarchy(SCHEMA, "tract", 1, 2, weights=weights)


def test_weights_are_those_of_levels():
    tree = qs.hierarchy(SCHEMA, "tract", 1, 2, weights=[6, 3, 1])
    np.testing.assert_array_equal(tree.weights, [6] * 2 + [3] * 4 + [1] * 6)
    assert qs.hierarchy(SCHEMA, "tract", 1, weights=[1, 1]).weights is None
    assert tree != qs.hierarchy(SCHEMA, "tract", 1, 2)
    assert qs.hierarchy(SCHEMA, "tract", 1, leaves=False, weights=[2]).weights.tolist() == [2, 2]


@given(trees(), st.integers(1, 3))
def test_answers_are_sums_over_groups(tree, columns):
    table = np.arange(tree.cells * columns, dtype=float).reshape(tree.cells, columns) ** 1.5
    np.testing.assert_allclose(tree.answers(table), tree.matrix() @ table)
    np.testing.assert_allclose(tree.answers(table[:, 0]), tree.matrix() @ table[:, 0])


@given(trees())
def test_equal_content_is_equal_and_comes_back(tree):
    again = family_from_json(tree.to_json())
    assert again == tree
    assert hash(again) == hash(tree)
    assert again.key == tree.key
    workload = qs.queries(qs.Schema.of(x=tree.cells), x=tree).within(5)
    back = workload_from_data(workload_to_data(workload))
    assert back == workload


def test_labels_and_predicates():
    tree = qs.hierarchy(SCHEMA, "tract", 1, COUNTIES)
    a = SCHEMA["tract"]
    assert tree.labels([a])[:3] == ["tract in '0'", "tract in '1'", "tract in '01'"]
    assert tree.labels([a])[-1] == "tract == '1203'"
    predicates = tree.predicates([a])
    assert predicates[2] == "tract in ['0101', '0102']"
    assert predicates[3] == "tract == '0203'"
    for predicate, row in zip(predicates, tree.matrix(), strict=True):
        np.testing.assert_array_equal(qs.where(SCHEMA, predicate).groups[0].families[0].matrix()[0], row)
    dates = qs.hierarchy(SCHEMA, "age", [dt.date(2024, 1, 1)] * 2 + [dt.date(2025, 1, 1)])
    assert dates.names == (("2024-01-01", "2025-01-01"),)


def test_large_groups_are_named_and_not_listed():
    schema = qs.Schema.of(x=2_500)
    tree = qs.hierarchy(schema, "x", np.arange(2_500) // 1_250)
    assert tree.row_labels is None
    assert tree.predicates([schema["x"]])[:3] == ["x in 0", "x in 1", "x == 0"]
    labels = tree.labels([schema["x"]])
    assert labels[:3] == ["x in 0", "x in 1", "x == 0"]
    assert [tree.label_of([schema["x"]], row) for row in (0, 1, 2, 2_501)] == [*labels[:3], labels[-1]]


@pytest.mark.parametrize(
    "change",
    [
        {"groups": [np.array([0, 2, 1])]},
        {"groups": [np.array([0, 0, 1]), np.array([0, 1, 0])], "names": [["a", "b"], ["c", "d"]]},
        {"groups": [np.array([0, 0, 1.0])]},
        {"groups": [np.array([0, 0, -1])]},
        {"groups": [np.array([0, 0])]},
        {"names": [["a"]]},
        {"names": [["a", ["b"]]]},
        {"leaves": 1},
        {"level_weights": [1.0]},
        {"level_weights": [1.0, float("inf")]},
        {"shape": [3, 1]},
        {"titles": [3]},
    ],
)
def test_foreign_data_is_refused(change):
    tree = qs.hierarchy(qs.Schema.of(x=3), "x", ["a", "a", "b"])
    with pytest.raises((ValueError, KeyError, TypeError)):
        family_from_json(tree.to_json() | change)


def test_a_tree_is_frozen():
    groups = np.array([0, 0, 1])
    tree = Hierarchy((3,), (groups,), (("a", "b"),))
    groups[0] = 1
    assert tree.groups[0].tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="read-only"):
        tree.groups[0][0] = 1


def test_a_hierarchy_counts_every_group_of_every_level_and_every_leaf():
    schema = qs.Schema([qs.Categorical("town", ["a", "b", "c", "d"])])
    counties = {"a": "north", "b": "south", "c": "north", "d": "south"}
    family = qs.hierarchy(schema, "town", ["all"] * 4, counties)
    np.testing.assert_array_equal(
        family.matrix(), [[1, 1, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], *np.eye(4).tolist()]
    )
    assert family.labels([schema["town"]])[1:4] == [
        "town in 'north'",
        "town in 'south'",
        "town == 'a'",
    ]
    assert str(family) == "hierarchy"
    assert qs.hierarchy(schema, "town", counties, leaves=False).rows == 2
    assert qs.hierarchy(schema, "town").rows == 4


def test_a_hierarchy_of_no_level_is_refused(refuses):
    with refuses(WorkloadError, ValueError, "at least one level"):
        qs.hierarchy(SCHEMA, "tract", leaves=False)
