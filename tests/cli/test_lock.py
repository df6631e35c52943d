"""Locks on folders: other processes see them, and they end with the process, on every system."""

import signal
import subprocess
import sys
import time

import pytest

from querysmasher.cli.folder import held, is_held
from tests.cli.conftest import names

HOLD = """
import sys, time, warnings
from pathlib import Path
{system}
from querysmasher.cli.folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""
LOOK = """
import sys, warnings
from pathlib import Path
{system}
from querysmasher.cli.folder import is_held
print(is_held(Path(sys.argv[1])))
"""
SYSTEMS = {
    "this": "",
    "one without fcntl": "sys.modules['fcntl'] = None; warnings.simplefilter('ignore')",
}


def started(program, system, *arguments):
    command = [sys.executable, "-c", program.format(system=SYSTEMS[system]), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_lock_is_seen_by_others_and_ends_with_its_process(system, tmp_path):
    folder = tmp_path / "out.unfinished-1"
    folder.mkdir()

    def seen():
        return started(LOOK, system, folder).communicate()[0].strip()

    assert seen() == "False"
    holder = started(HOLD, system, folder, 600)
    assert holder.stdout.readline() == "held\n"
    assert seen() == "True"
    holder.kill()
    assert holder.wait() == -signal.SIGKILL
    assert seen() == "False"
    again = started(HOLD, system, folder, 0)  # what a killed process left behind is no lock
    assert again.communicate()[0] == "held\n"
    assert names(tmp_path) == [folder.name]


def test_a_folder_may_be_locked_before_it_exists(tmp_path):
    draft = tmp_path / "out"
    with held(draft):
        draft.mkdir()
        assert is_held(draft)
        assert not is_held(tmp_path / "other")
    assert not is_held(draft)
    assert names(tmp_path) == ["out"]


def test_whoever_only_looks_does_not_keep_others_from_locking(tmp_path):
    (tmp_path / "out").mkdir()
    with held(tmp_path / "out"):
        pass
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        assert not is_held(tmp_path / "out")
    with held(tmp_path / "out"):
        assert is_held(tmp_path / "out")
