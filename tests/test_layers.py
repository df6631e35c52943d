"""The pipeline points one way: nothing that plans sees data, nothing after the noise sees data again.

The contracts of import-linter in `pyproject.toml` say which imports are allowed. That `privacy/` imports only
four other modules, and that nobody tests the kind of an object, is checked here: no contract can say it.
"""

import ast
import os
import shutil
from functools import cache

import pytest

from querysmasher.attributes import KINDS as ATTRIBUTES
from querysmasher.attributes import Attribute
from querysmasher.planning.strategies import KINDS as STRATEGIES
from querysmasher.privacy.budget import KINDS as BUDGETS
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.factors import KINDS
from querysmasher.privacy.noise import SOURCES
from querysmasher.workload.family import Family
from querysmasher.workload.registry import FAMILIES
from tests.builders import python
from tests.sources import ROOT, imports, module_name, nodes, package_sources

AUDITED = ("privacy", "errors", "arrays", "schema", "progress")
"""All that the privacy folder stands on: the promise is checked by reading it, and nothing else that acts."""


def within(module, folder):
    return module == folder or module.startswith(folder + ".")


def linted(folder):
    """Return what import-linter says of the package in a folder, under the contracts of `pyproject.toml`."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    arguments = ("--config", ROOT.parents[1] / "pyproject.toml", "--no-cache", "--no-logo")
    words = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    return python("-c", command, *arguments, cwd=folder, env=words)


def test_every_import_points_down_the_pipeline():
    ran = linted(ROOT.parent)
    assert ran.returncode == 0, ran.stdout
    assert "7 kept, 0 broken" in ran.stdout


def test_the_privacy_folder_stands_on_nothing_else():
    sources = package_sources()
    modules = set(map(module_name, sources))
    inside = {path: source for path, source in sources.items() if path.startswith("privacy/")}
    assert len(inside) > 10
    found = {target for path, source in inside.items() for target in imports(source, path, modules)}
    assert {target for target in found if not any(within(target, a) for a in AUDITED)} == set()


def names_asked(node):
    """The classes that an `isinstance` or a comparison of types asks for."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
        asked = [node.args[1]]
    elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
        asked = node.comparators
    else:
        asked = []
    return {leaf.id for own in asked for leaf in ast.walk(own) if isinstance(leaf, ast.Name)}


def noises_compared(node):
    """The names of noises that something is compared with."""
    if isinstance(node, ast.Compare):
        return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)} & set(DISTRIBUTIONS)
    return set()


def kinds_of(base):
    """A class and everything derived from it."""
    return [base, *(kind for own in base.__subclasses__() for kind in kinds_of(own))]


CLOSED = {
    base.__name__
    for kind in (
        *KINDS.values(),
        *STRATEGIES.values(),
        *SOURCES.values(),
        *FAMILIES.values(),
        *kinds_of(Family),
        *BUDGETS.values(),
        *ATTRIBUTES.values(),
    )
    for base in kind.__mro__
    if base.__module__.startswith("querysmasher.") and base not in (Family, Budget, Attribute)
}
"""The names of all kinds of attributes, budgets, families, factors, strategies and noises, and of what they
have in common."""


@cache
def kinds_asked(source):
    """The kinds that a source text asks for, in order; a kind compares itself with its own."""
    own = {node.name for node in nodes(source) if isinstance(node, ast.ClassDef)}
    asked = [names_asked(node) & CLOSED - own | noises_compared(node) for node in nodes(source)]
    return [name for names in asked for name in sorted(names)]


def asked_by_kind(sources):
    """Where the kind of an object is asked for, instead of asking the object itself."""
    return [f"{path}: {name}" for path, source in sorted(sources.items()) for name in kinds_asked(source)]


@pytest.mark.slow
def test_objects_are_asked_and_not_told_apart_by_their_kinds():
    sources = package_sources()
    assert asked_by_kind(sources) == [
        "planning/strategies/__init__: Matrix",  # square ones bring a centre
        "planning/strategies/coarse: Coarse",  # a strategy knows its own counterpart in integers
        "planning/strategies/dense: Merged",
        "planning/strategies/diagonal: Filter",
        "planning/strategies/mirrored: Mirrored",
        "planning/strategies/nodes: CountsOfNodes",
    ]
    sources = {path: "" if kinds_asked(text) else text for path, text in sources.items()}
    sources["release/release"] += (
        "\nif isinstance(x, Filter | DenseStrategy | AxisStrategy): pass\ny = z in ('rounded', 'gaussian')"
        "\nif type(x.y) is TreeStrategy or issubclass(x, Mirrored): pass"
        "\nif isinstance(x.family, Identity | Family): pass"
    )
    assert sorted(asked_by_kind(sources)) == [
        "release/release: AxisStrategy",
        "release/release: DenseStrategy",
        "release/release: Filter",
        "release/release: Identity",
        "release/release: Mirrored",
        "release/release: TreeStrategy",
        "release/release: gaussian",
        "release/release: rounded",
    ]


PLANTED = [
    ("planning/plan", "from querysmasher.data.counting import count", "planning.plan -> data.counting"),
    ("planning/plan", "import querysmasher.privacy.noise", "planning.plan -> privacy.noise"),
    ("workload/joint", "from querysmasher.privacy import noise", "workload.joint -> privacy.noise"),
    (
        "planning/solvers/optimum",
        "from ...release import answers",
        "planning.solvers.optimum -> release.answers",
    ),
    ("planning/plan", "def f():\n    from querysmasher import Release", "planning.plan -> querysmasher"),
    ("errors", "from .schema import Schema", "errors -> schema"),
    ("release/__init__", "from querysmasher.data import sources", "release -> data.sources"),
    ("release/__init__", "if TYPE_CHECKING:\n    import querysmasher.data", "release -> data"),
    ("privacy/measurement", "from ..planning import plan", "privacy.measurement -> planning.plan"),
    ("release/release", "from ..privacy.noise import x", "release.release -> privacy.noise"),
    ("data/counting", "from ..privacy.noise import x", "data.counting -> privacy.noise"),
    ("report/release_data", "from querysmasher.data import x", "report.release_data -> data"),
    ("measuring", "from querysmasher.data import check", "measuring -> data.check"),
    ("spec/spec", "import querysmasher.data.check", "spec.spec -> data.check"),
]


@pytest.mark.slow
def test_planted_wrong_arrows_are_seen(tmp_path):
    shutil.copytree(ROOT, tmp_path / ROOT.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, line, _ in PLANTED:
        with (tmp_path / ROOT.name / f"{path}.py").open("a") as file:
            file.write(f"\n{line}\n")
    seen = linted(tmp_path).stdout.replace("querysmasher.", "")
    assert [arrow for _, _, arrow in PLANTED if f"{arrow} (" not in seen] == []


@pytest.mark.slow
def test_a_module_without_a_layer_is_reported(tmp_path):
    shutil.copytree(ROOT, tmp_path / ROOT.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ROOT.name / "surprise.py").write_text("")
    assert "querysmasher.surprise" in linted(tmp_path).stdout
