"""The tests themselves: what several of them build is written once, and heavy libraries load where used."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.conftest import few_examples

FOLDER = Path(__file__).parent
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
