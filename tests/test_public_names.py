"""The public names: listed once, seen by type checkers, and each imported on first use only."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import querysmasher

ROOT = Path(querysmasher.__file__).parent


def python(*arguments):
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_every_public_name_is_where_the_list_says():
    assert {"plan", "measure", "Plan", "Release", "zCDP", "WorkloadError"} <= set(querysmasher.__all__)
    assert set(querysmasher.__all__) <= set(dir(querysmasher))
    for name in querysmasher.__all__:
        value = getattr(querysmasher, name)
        assert value.__name__ == name
        assert value is getattr(importlib.import_module(value.__module__), name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = querysmasher.nonsense


def test_the_names_are_listed_once():
    stub = (ROOT / "__init__.pyi").read_text()
    code = (ROOT / "__init__.py").read_text()
    for name in querysmasher.__all__:
        assert stub.count(f"import {name} as {name}\n") == 1
        assert f'"{name}"' not in code


def test_every_error_is_public():
    errors = importlib.import_module("querysmasher.errors")
    kinds = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, Exception)}
    assert kinds <= set(querysmasher.__all__)


@pytest.mark.slow
def test_no_file_has_the_name_of_a_public_function():
    """Importing such a file would put the module in the function's place."""
    files = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert "measuring" in files
    assert not files & set(querysmasher.__all__)
    check = "import querysmasher.measuring, querysmasher as qs\nassert callable(qs.measure)"
    assert python("-c", check).returncode == 0


def test_type_checkers_are_asked_about_the_names():
    """`make check` has mypy read a user's code, in which a name of unknown type is an error."""
    settings = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"]
    assert "tests/typed_user.py" in settings["files"]
