"""The tuning constants of planning stand in one place, and tests change them there."""

import ast
import importlib
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest

from querysmasher.planning.limits import PlanningLimits, limited, limits
from tests.test_layers import module_name, nodes, package_sources, parsed
from tests.test_tests import files

BESIDE = {"CHUNK", "KINDS"}
"""Constants that tests may change in their module: the size of an intermediate array, and a registry."""


ROUNDING = """
    asking LEAST_SQUARE MOST_SQUARE
    cells LARGEST
    checking LARGEST_CENTRE LARGEST_GAP
    estimator/least_squares UNKNOWN OUTSIDE
    grading FAR GRADED NOTHING SAFE LOST
    lines/line SLIGHT
    lines/path SURE EASY
    lattice EXACT SURELY_DEPENDENT SURELY_INDEPENDENT RANK
    mechanisms/basis RANK OUTSIDE
    objectives/capping MOST_WEIGHT
    objectives/insufficient MET PRINTED
    objectives/rounded MET PROMISED
    objectives/targets MET
    solvers/bounds SURE
    solvers/design FAINT ROUGH
    solvers/fixed_point LEAST
    solvers/fourier NOTHING
    solvers/roots RANK
    solvers/structured FLOOR
    solvers/trace_root NOTHING
    solvers/wide RANK
    split NULL
    strategies/dense ROUNDING
    strategies/merged FAR_BELOW
    strategies/rounding DEPENDENT
    strategies/strategy OUTSIDE CLOSE FAINTEST LARGEST DEPENDENT
    trees/solving FAINTEST SMALL
    water_filling EXACT
"""
"""What floating-point arithmetic can distinguish: what counts as zero, equal, met, safe to square."""

INTEGERS = """
    candidates GRID
    integer TOTAL_BITS WORD_BITS MAX_RECORDS SAFETY MOST_VARIANCE
    lattice LARGEST MOST_DENOMINATOR
    strategies/diagonal GRAIN
    strategies/rounding FAINT LATTICE_BITS LARGEST_LATTICE
"""
"""What exact integers and exact noise allow, and the default of a public argument."""

FORMULAS = """
    cells MULTIPLIERS SHIFTS
    trees/merging OF_CHILDREN
    lines/path STEP REACH
    objectives/insufficient MOST_NAMED
    solvers/trace_root NODES RATIO FINE
    strategies/cuts LOWEST RATIO SAMPLES
    strategies/dense SCALES
    strategies/halving SMALL
    trees/solving STEP
"""
"""Parts of a formula: a hash, a quadrature, a fit, a recursion, a sentence."""

ITERATIONS = """
    around WAYS
    centring HEAVIEST CLOSE SWEEPS ENTRIES
    lines/gram SLIGHT ROUGH
    lines/splitting PASSES PUBLIC
    large/multipliers LEAST FIRST_RATE LEAST_RATE MOST_RATE FASTER SLOWER
    large/within FIRST MOST
    objectives/ascent SPREAD
    objectives/capping FIRST_POWER POWER_GROWTH LAST_POWER MISSED HEAVIER MOST_GROWTH LONGEST
    objectives/multipliers FLOOR MOST_STEP
    objectives/paces RANGE_HASTE CIRCULAR_HASTE MOST
    objectives/rounded WEIGHT
    objectives/sharing LONGEST FIRST LATER WINDOW
    objectives/targets RATE RATE_GROWTH MOST_RATE FIRST_SHARE MOST_CHANGE MOST_WEIGHT
    objectives/worst FIRST_RATE RATE_GROWTH MOST_RATE LEAST_RATE GROUP_RATE FIRST_FLOOR MOST_FLOOR FAR
    objectives/worst FLOOR_GROWTH LEFT CLOSER
    quasi_newton MEMORY DECREASE CURVATURE LITTLE STRETCH NARROW MARGIN
    solvers/fixed_point DEPTH
"""
"""How one step of an iteration is taken: rates, damping, floors, the range of a variable."""


def beside():
    """The numbers that stand beside their algorithms, as `path: NAME`."""
    for reason in (ROUNDING, INTEGERS, FORMULAS, ITERATIONS):
        for line in reason.split("\n"):
            path, *names = line.split() or [""]
            yield from (f"planning/{path}: {name}" for name in names)


def is_number(value):
    if isinstance(value, tuple):
        return bool(value) and all(map(is_number, value))
    return isinstance(value, int | float | Fraction | np.generic)


def assigned(source):
    """The names in capitals that a file assigns outside of functions and classes."""
    for node in parsed(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = (leaf for target in targets if target is not None for leaf in ast.walk(target))
        yield from (leaf.id for leaf in names if isinstance(leaf, ast.Name) and leaf.id.isupper())


def numbers():
    """The numbers that files of planning define for themselves, less the sizes of intermediate arrays."""
    for path, source in package_sources().items():
        if path.startswith("planning/") and not path.startswith("planning/limits/"):
            module = importlib.import_module("querysmasher." + module_name(path))
            own = [name for name in assigned(source) if name != "CHUNK"]
            yield from (f"{path}: {name}" for name in own if is_number(getattr(module, name)))


@pytest.mark.slow
def test_what_is_tuned_stands_in_the_limits():
    """A new number in planning belongs to the limits, or to one of the four reasons above."""
    assert sorted(numbers()) == sorted(beside())


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
    assert ("planning/test_strategies.py", "CHUNK") in found
    assert {(path, name) for path, name in found if name.isupper() and name not in BESIDE} == set()


def test_limits_are_frozen_and_changed_for_a_while_only():
    with limited(close_cells=3) as inside:
        assert limits() is inside
        assert limits().close_cells == 3
    assert limits() == PlanningLimits()
    with pytest.raises(FrozenInstanceError):
        limits().close_cells = 3
    with pytest.raises(TypeError, match="nonsense"), limited(nonsense=3):
        pass
