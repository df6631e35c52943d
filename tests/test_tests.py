"""The tests themselves: they follow the tree, build what they share in one place, and load what they use."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from tests import builders
from tests.conftest import few_examples

FOLDER = Path(__file__).parent
SOURCES = Path(qs.__file__).parent
HEAVY = {"opendp", "pyspark", "sphinx"}
"""Libraries of which each takes half a second or more to load, and which few tests need."""


@cache
def files():
    """Every file of the tests by its path, parsed."""
    return {path.relative_to(FOLDER).as_posix(): ast.parse(path.read_text()) for path in FOLDER.rglob("*.py")}


def defined(module):
    """The functions, classes and constants of a file, each with its name."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))


def test_what_is_shared_is_built_in_one_place():
    shared = {name for name, _ in defined(files()["builders.py"])}
    assert shared <= set(vars(builders))
    again = {
        (name, path)
        for path, module in files().items()
        for name, _ in defined(module)
        if name in shared and path != "builders.py"
    }
    assert not again


def test_no_helper_stands_in_two_files():
    places = defaultdict(list)
    for path, module in files().items():
        for name, node in defined(module):
            body = node.body[ast.get_docstring(node) is not None :] if hasattr(node, "body") else []
            if len(body) > 1:
                places[ast.dump(ast.Module(body, []))].append(f"{path}: {name}")
    assert len(places) > 1000
    assert [same for same in places.values() if len(same) > 1] == []


def imported(module):
    """The modules that a file imports from, wherever in it the import stands."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_test(name):
    """Whether a module is a file of tests."""
    return (
        name.startswith("tests.")
        and name.replace(".", "/").removeprefix("tests/") + ".py" in files_of_tests()
    )


def files_of_tests():
    """The files of tests, without those from which they build."""
    return {path for path in files() if Path(path).name.startswith("test_")}


def test_no_test_imports_another():
    found = {(path, name) for path, module in files().items() for name in imported(module)}
    assert ("planning/test_plan.py", "tests.builders.COST") in found
    assert is_test("tests.planning.test_plan")
    assert [(path, name) for path, name in found if is_test(name)] == []


def test_tests_follow_the_tree():
    """Each file has a name of its own; one that names a source file stands where that stands."""
    sources = {path.stem: path.parent.relative_to(SOURCES) for path in SOURCES.rglob("*.py")}
    folders = {path.parent.relative_to(SOURCES) for path in SOURCES.rglob("*.py")} | {Path("documentation")}
    assert {Path(path).parent for path in files_of_tests()} <= folders
    places = {Path(path).name: Path(path).parent for path in files_of_tests()}
    assert len(places) == len(files_of_tests())
    stems = {name.removeprefix("test_").removesuffix(".py"): place for name, place in places.items()}
    assert stems["bounds"] == Path("planning/solvers")
    assert {stem: place for stem, place in stems.items() if sources.get(stem, place) != place} == {}


def loaded(module):
    """The libraries that importing a file loads."""
    for node in module.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_heavy_libraries_load_where_they_are_used():
    found = {(path, name) for path, module in files().items() for name in loaded(module)}
    assert ("reference.py", "numpy") in found
    assert not {(path, name) for path, name in found if name in HEAVY}


@pytest.mark.parametrize(("asked", "run"), [(3, 3), (40, 10)])
def test_the_quick_profile_holds_where_a_test_asks_for_more_examples(asked, run):
    seen = []

    @settings(max_examples=asked, database=None)
    @given(st.integers())
    def test(number):
        seen.append(number)

    few_examples(test, settings.get_profile("quick"))
    test()
    assert len(seen) == run
