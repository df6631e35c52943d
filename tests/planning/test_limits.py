"""The tuning constants of planning stand in one place, and tests change them there."""

import ast
from dataclasses import FrozenInstanceError

import pytest

from querysmasher.planning.limits import PlanningLimits, limited, limits
from tests.test_layers import nodes, package_sources
from tests.test_tests import files

BESIDE = {"CHUNK", "KINDS"}
"""Constants that tests may change in their module: the size of an intermediate array, and a registry."""


def constants(source):
    """The names in capitals that a file defines or imports."""
    return {
        node.id if isinstance(node, ast.Name) else node.asname or node.name
        for node in nodes(source)
        if isinstance(node, ast.alias) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }


def leaves(body):
    return (leaf for node in body for leaf in ast.walk(node))


def is_refusal(node):
    return isinstance(node, ast.Raise) and "TooLargeError" in ast.unparse(node)


def refusals(source):
    """The constants of a file that decide whether something is too large."""
    for node in nodes(source):
        if isinstance(node, ast.If) and any(map(is_refusal, leaves(node.body))):
            asked = {leaf.id for leaf in ast.walk(node.test) if isinstance(leaf, ast.Name)}
            yield from sorted(name for name in asked & constants(source) if name.isupper())


def refusing(sources):
    return [
        f"{path}: {name}"
        for path, source in sources.items()
        if path.startswith("planning/")
        for name in refusals(source)
    ]


@pytest.mark.slow
def test_what_is_too_large_is_said_by_the_limits():
    sources = package_sources()
    assert refusing(sources) == []
    sources["planning/plan"] += "\nMOST = 5\nif x > MOST:\n    msg = ''\n    raise TooLargeError(msg)\n"
    assert refusing(sources) == ["planning/plan: MOST"]


def is_setattr(function):
    return isinstance(function, ast.Attribute) and function.attr == "setattr"


def replaced(module):
    """The constants of planning that a file of tests replaces in their module."""
    found = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom | ast.Call)]
    planning = {
        alias.asname or alias.name
        for node in found
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("querysmasher.planning")
        for alias in node.names
    }
    for node in found:
        if isinstance(node, ast.Call) and is_setattr(node.func) and len(node.args) > 1:
            where, name = node.args[:2]
            if isinstance(where, ast.Name) and where.id in planning and isinstance(name, ast.Constant):
                yield name.value


@pytest.mark.slow
def test_tests_change_limits_and_not_constants():
    found = {(path, name) for path, module in files().items() for name in replaced(module)}
    assert ("planning/strategies/test_strategies.py", "CHUNK") in found
    assert {(path, name) for path, name in found if name.isupper() and name not in BESIDE} == set()


def test_limits_are_frozen_and_changed_for_a_while_only():
    with limited(light_cells=3) as inside:
        assert limits() is inside
        assert limits().light_cells == 3
    assert limits() == PlanningLimits()
    with pytest.raises(FrozenInstanceError):
        limits().light_cells = 3
    with pytest.raises(TypeError, match="nonsense"), limited(nonsense=3):
        pass
