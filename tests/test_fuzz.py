"""`make fuzz` finds what the fixed cases miss, and says how to see it again."""

import os
import shlex
import subprocess
import sys

import pytest

from tests.fuzz import ALONE, ROOT, property_tests

PLANTED = """
from hypothesis import given, strategies as st

@given(st.integers(0, 300))
def test_wrong_for_some(value):
    assert value != 250

def test_no_property():
    raise AssertionError("not for us")
"""


@pytest.mark.slow
def test_a_failure_is_printed_with_the_command_that_repeats_it(tmp_path):
    planted = tmp_path / "test_planted.py"
    planted.write_text(PLANTED)
    environment = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "examples")}
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "5", "--failures", "1", str(planted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)  # noqa: S603
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("1 property tests, 5 minutes")
    assert "test_wrong_for_some(" in done.stdout
    again = next(line for line in done.stdout.splitlines() if line.startswith("  python -m pytest"))
    repeated = subprocess.run(  # noqa: S603 - the command that we printed
        [sys.executable, *shlex.split(again)[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**ALONE, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "none")},
    )
    assert repeated.returncode == 1
    assert "test_wrong_for_some(" in repeated.stdout


@pytest.mark.slow
def test_our_own_property_tests_are_found():
    """Below the root, where the project's own options for pytest hold: a second -q lists no names."""
    assert property_tests(["tests/test_demo.py"]) == [
        "tests/test_demo.py::test_against_the_queries_written_out"
    ]
