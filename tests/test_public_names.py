"""The public names: one table, seen by type checkers, each imported on first use only, and how they show."""

import ast
import importlib
import pydoc
import re
import tomllib
from pathlib import Path

import pytest

import querysmasher
from tests.builders import python

ROOT = Path(querysmasher.__file__).parent


def test_every_public_name_is_where_the_list_says():
    assert {"plan", "measure", "Plan", "Release", "zCDP", "WorkloadError"} <= set(querysmasher.__all__)
    assert set(querysmasher.__all__) <= set(dir(querysmasher))
    for name in querysmasher.__all__:
        value = getattr(querysmasher, name)
        assert value.__name__ == name
        assert value is getattr(importlib.import_module(value.__module__), name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = querysmasher.nonsense


def test_type_checkers_see_the_same_names():
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    homes = {a.name: n.module for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert sorted(homes) == querysmasher.__all__
    assert all(getattr(querysmasher, name).__module__ == module for name, module in homes.items())


def test_help_begins_with_what_a_newcomer_needs():
    shown = pydoc.plain(pydoc.render_doc(querysmasher))
    assert shown.index("answers = release.answer(workload)") < 1_200
    named = set(re.findall(r"`(\w+)`", querysmasher.__doc__))
    assert named <= set(querysmasher.__all__)
    errors = {name for name in querysmasher.__all__ if name.endswith(("Error", "Warning"))}
    assert set(querysmasher.__all__) - errors <= named


def test_dir_shows_the_public_names_only():
    assert dir(querysmasher) == querysmasher.__all__


def test_reprs_are_short():
    qs = querysmasher
    sex = qs.Categorical("sex", ["F", "M"], missing="M")
    assert repr(sex) == "Categorical('sex', ['F', 'M'], missing='M')"
    assert repr(qs.Ordinal("age", range(10**6))) == "Ordinal('age', [0, 1, 2, …, 999999])"
    assert repr(qs.Binned("x", edges=[0, 1.5, 3])) == "Binned('x', edges=[0, 1.5, 3])"
    many = qs.ranges(qs.Schema.of(a=10**5), "a", 0, range(10**5))
    assert repr(many) == "Intervals(100,000 queries over 100,000 cells)"
    assert repr(qs.zCDP(0.5)) == "zCDP(rho=0.5)"
    other = qs.ApproxDP(1, 1e-6, neighbours="replace_one", records_per_person=3)
    amounts, unit = "epsilon=1.0, delta=1e-06", "neighbours='replace_one', records_per_person=3"
    assert repr(other) == f"ApproxDP({amounts}, {unit})"


def test_attributes_and_budgets_show_themselves_in_notebooks():
    sex = querysmasher.Categorical("sex", ["<b>", "M"], title="Sex & more", missing="M")
    assert "&lt;b&gt;, M" in sex._repr_html_()
    assert "Sex &amp; more" in sex._repr_html_()
    assert "<b>" not in sex._repr_html_()
    assert "zero-concentrated differential privacy with rho = 0.5" in querysmasher.zCDP(0.5)._repr_html_()


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
