"""What the pages say of the code is so: folders, names, mechanisms, commands, specs."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import querysmasher
from querysmasher.cli.command import ExitCode
from querysmasher.planning.mechanisms import DEFAULT, MECHANISMS
from querysmasher.planning.solvers import METHODS
from querysmasher.spec import read_codebook, read_spec
from querysmasher.spec.schemas import ATTRIBUTES
from querysmasher.spec.sections import SECTIONS
from querysmasher.spec.workloads import WORKLOADS
from querysmasher.statistics.statistic import KINDS
from tests.documentation.pages import DOCS, blocks, run_commands

ROOT = Path(querysmasher.__file__).parent
ARCHITECTURE = (DOCS / "architecture.md").read_text()


def test_every_folder_is_named():
    folders = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")} - {"."}
    named = {folder for folder in folders if f"`{folder}/`" in ARCHITECTURE}
    assert {folder for folder in folders - named if folder.count("/") == 0} == set()
    assert {folder for folder in folders - named if folder.startswith("planning/")} == set()


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE))
    files = {path.relative_to(ROOT.parent.parent).as_posix() for path in ROOT.parent.parent.rglob("*.py")}
    assert len(named) > 10
    assert [one for one in named if not any(f"/{file}".endswith(f"/{one}") for file in files)] == []


LINES = (DOCS / "notation.md").read_text().replace("\\|", "").splitlines()
COLUMN = [line.split("|")[4] for line in LINES if line.startswith("| ")]
NAMES = sorted({name for cell in COLUMN for name in re.findall(r"`([A-Za-z_][\w.]*\.\w+)(?:\(\))?`", cell)})


def test_every_class_and_function_that_is_named_is_there(classes):
    named = set(re.findall(r"`([A-Z]\w+|qs\.\w+)\b", ARCHITECTURE)) - {"CONTRIBUTING"}
    assert {"Family", "Structure", "Strategy", "Plan", "Estimator", "qs.plan", "qs.check"} <= named
    assert [name for name in named if name not in classes and not resolves(name, classes)] == []
    (kinds,) = re.findall(r"\*\*`Structure`\*\* \(([\w, ]+)\)", ARCHITECTURE)
    assert set(kinds.split(", ")) == {member.name.lower() for member in classes["Structure"]}


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


METHODS_PAGE = (DOCS / "mechanisms.md").read_text(encoding="utf-8")


def test_the_table_lists_every_mechanism_in_the_words_of_the_registry():
    for name, mechanism in MECHANISMS.items():
        default = " (default)" if name == DEFAULT else ""
        row = f'| `"{name}"`{default} | {mechanism.title} | {mechanism.measures} | {mechanism.suits} |'
        assert row in METHODS_PAGE


def test_the_page_names_every_method():
    assert all(f"`{method}`" in METHODS_PAGE for method in METHODS)


COMMANDS = (DOCS / "commands.md").read_text()
QUARTERS = "month,quarter\n" + "".join(
    f"{month},Q{1 + place // 3}\n"
    for place, month in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    )
)


@pytest.mark.slow
def test_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = "".join(blocks(COMMANDS, "console"))
    assert len(commands.splitlines()) >= 8
    run_commands(commands)
    assert (tmp_path / "out" / "answers.parquet").is_file()
    assert (tmp_path / "published" / "answers.csv").is_file()


@pytest.mark.parametrize("text", blocks(COMMANDS, "toml"))
def test_every_spec_is_valid(tmp_path, text):
    (tmp_path / "codebook.csv").write_text(blocks(COMMANDS, "csv")[0])
    (tmp_path / "quarters.csv").write_text(QUARTERS)
    (tmp_path / "release.toml").write_text(text)
    assert len(read_spec(tmp_path / "release.toml").workload) > 0


def test_the_codebook_is_valid(tmp_path):
    (tmp_path / "codebook.csv").write_text(blocks(COMMANDS, "csv")[0])
    assert read_codebook(tmp_path / "codebook.csv").sizes == (2, 100, 4, 12)


def test_nothing_is_left_out():
    for code, meaning in ((code, code.meaning) for code in ExitCode):
        assert f"| {code} | {meaning} |" in COMMANDS
    for word in [*WORKLOADS, *ATTRIBUTES]:
        assert f"`{word}`" in COMMANDS
    for model in WORKLOADS.values():
        for key in model.model_fields:
            assert f"`{key}`" in COMMANDS
    for kind, keys in KINDS.items():
        for word in (kind, *(key for listed in keys for key in listed)):
            assert f"`{word}`" in COMMANDS
    for name, section in SECTIONS.items():
        for key in section.model_fields:
            assert f"`{key}`" in COMMANDS if name == "budget" else f"`{name}.{key}`" in COMMANDS
