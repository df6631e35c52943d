"""Every name in the last column of the glossary is one of the code."""

import importlib
import inspect
import pkgutil
import re

import pytest

import querysmasher
from tests.documentation.pages import DOCS

LINES = (DOCS / "notation.md").read_text().replace("\\|", "").splitlines()
COLUMN = [line.split("|")[4] for line in LINES if line.startswith("| ")]
NAMES = sorted({name for cell in COLUMN for name in re.findall(r"`([A-Za-z_][\w.]*\.\w+)(?:\(\))?`", cell)})


@pytest.fixture(scope="module")
def classes():
    """All classes of the package by name."""
    paths = [module.name for module in pkgutil.walk_packages(querysmasher.__path__, "querysmasher.")]
    modules = [importlib.import_module(path) for path in paths if "__" not in path]
    members = [kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)]
    return {kind.__name__: kind for kind in members if kind.__module__.startswith("querysmasher")}


def resolves(name, classes):
    """Whether a dotted name leads to a module, a name in one, or something that instances of a class have."""
    first, *rest = name.removeprefix("qs.").split(".")
    if first in classes and len(rest) == 1:
        fields = {field for base in classes[first].__mro__ for field in getattr(base, "__annotations__", ())}
        return hasattr(classes[first], rest[0]) or rest[0] in fields
    thing = querysmasher
    for part in (first, *rest):
        try:
            thing = importlib.import_module(f"{thing.__name__}.{part}")
        except (ImportError, AttributeError):
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
    return True


def test_there_are_names():
    assert len(NAMES) > 50


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_of_the_code(name, classes):
    assert resolves(name, classes)


@pytest.mark.parametrize("name", ["planning.nowhere", "Plan.nothing", "workload.family.Nobody"])
def test_another_name_is_found_out(name, classes):
    assert not resolves(name, classes)
