"""The command by itself: it starts quickly, explains itself, and stays silent where nobody watches."""

import json
import os
import sys

import pytest

import querysmasher
from querysmasher.cli.command import ExitCode, exit_code
from querysmasher.errors import BudgetError, DataError, FileError, PrivacyError, SpecError, TooLargeError
from tests.builders import python

HEAVY = {"numpy", "scipy", "pyarrow", "duckdb", "narwhals", "joblib", "pydantic", "rich", "altair"}
COMMANDS = ["init", "plan", "release", "answer", "report", "compare", "demo"]


def loaded_by(statement):
    ran = python("-c", f"import sys\n{statement}\nprint(*sorted(sys.modules))")
    return {name.partition(".")[0] for name in ran.stdout.split()}


def test_nothing_heavy_is_loaded_to_start():
    assert not HEAVY & loaded_by("import querysmasher")
    assert not HEAVY & loaded_by("import querysmasher.cli.app")


def test_help_loads_nothing_heavy():
    ran = python("-X", "importtime", "-m", "querysmasher", "plan", "--help")
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.stderr.splitlines()}
    assert "typer" in loaded
    assert not (HEAVY - {"pydantic"}) & loaded  # which typer itself may want
    assert "querysmasher plan survey.toml --all" in ran.stdout


def test_help_of_everything(run):
    ran = run("--help")
    for code in ExitCode:
        assert f"{code:>3}  {code.meaning}" in ran.out
    for command in COMMANDS:
        assert f"\n  {command} " in ran.out
        text = run(command, "--help").out
        assert "--json" in text
        assert f"\n    querysmasher {command}" in text
    assert "--install-completion" in ran.out
    assert "..." not in ran.out.replace("[ARGS]...", "")  # no short help is cut


def test_version(run):
    assert run("--version").out == f"{querysmasher.__version__}\n"


@pytest.mark.parametrize("arguments", [["plan", "--nonsense"], ["plam"], ["release", "--seed", "-1"]])
def test_usage_errors(run, arguments):
    ran = run(*arguments, code=2)
    assert ran.out == ""
    assert "Usage: " in ran.err


def test_completion():
    words = {"COMP_WORDS": "querysmasher re", "COMP_CWORD": "1"}
    environment = {**os.environ, **words, "_QUERYSMASHER_COMPLETE": "complete_bash"}
    ran = python("-m", "querysmasher", env=environment)
    assert ran.stdout.split() == ["release", "report"]


@pytest.mark.slow
def test_as_a_module_and_silent_without_a_terminal(processes, folder):
    ran = python("-m", "querysmasher", "plan", "--json", cwd=folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["queries"] > 0
    process = processes.start(folder, "release", "--json")
    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    process = processes.start(folder, "release", "--json")
    out, err = process.communicate()
    assert process.returncode == 4
    error = json.loads(out)["error"]
    assert error["code"] == 4
    assert err == f"error: {error['message']}\n"


def test_the_command_names_the_extra_that_is_missing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "altair", None)
    for words in (["report", "nothing.toml"], ["demo", "--made-up"]):
        run(*words, code=2).fails(2, "pages and charts need altair: pip install 'querysmasher[report]'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("x"), ExitCode.INPUT),
        (BudgetError("x"), ExitCode.INPUT),
        (PrivacyError("x"), ExitCode.PRIVACY),
        (FileError("x"), ExitCode.FILES),
        (PermissionError(), ExitCode.FILES),
        (DataError("x"), ExitCode.DATA),
        (TooLargeError("x"), ExitCode.TOO_LARGE),
        (MemoryError(), ExitCode.TOO_LARGE),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ImportError(), ExitCode.INPUT),
        (ZeroDivisionError(), ExitCode.BUG),
    ],
)
def test_exit_codes(error, code):
    assert exit_code(error) is code
