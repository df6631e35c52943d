"""The place of a release folder: what is there meanwhile, what only looks free, and locks on every system."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from querysmasher import measuring
from querysmasher.cli.folder import held, is_held
from tests.cli.conftest import names


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_is_no_folder_is_refused_before_the_budget_is_spent(run, folder, monkeypatch, force):
    monkeypatch.setattr(measuring, "measure", None)
    (folder / "out").symlink_to("nowhere")
    ran = run("release", *force, code=4)
    assert "a broken link" in ran.err
    assert (folder / "out").is_symlink()


def test_a_link_to_a_release_is_replaced_and_what_it_points_to_is_kept(run, folder):
    run("release", "--out", "elsewhere")
    (folder / "out").symlink_to("elsewhere")
    before = (folder / "elsewhere" / "release.qs").read_bytes()
    run("release", "--force")
    assert names(folder) == ["elsewhere", "out", "people.csv", "release.toml"]
    assert not (folder / "out").is_symlink()
    assert (folder / "elsewhere" / "release.qs").read_bytes() == before


def test_a_folder_that_cannot_be_moved_keeps_what_was_there(run, folder, monkeypatch):
    run("release", "--seed", "1")
    before = (folder / "out" / "release.qs").read_bytes()
    rename = Path.rename

    def failing(self, target):
        if "unfinished" in self.name and not self.name.startswith("."):
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    ran = run("release", "--force", code=4)
    assert ran.err.startswith("error: Permission denied. The table was measured, and the budget is spent.")
    assert (folder / "out" / "release.qs").read_bytes() == before
    assert len(list(folder.iterdir())) == 4


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
for line in sys.stdin:
    print(is_held(Path(sys.argv[1])), flush=True)
"""
SYSTEMS = {
    "this": "",
    "one without fcntl": "sys.modules['fcntl'] = None; warnings.simplefilter('ignore')",
}


def started(program, system, *arguments):
    command = [sys.executable, "-c", program.format(system=SYSTEMS[system]), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True)  # noqa: S603 - our own program


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_lock_is_seen_by_others_and_ends_with_its_process(system, tmp_path):
    folder = tmp_path / "out.unfinished-1"
    folder.mkdir()

    looker = started(LOOK, system, folder)

    def seen():
        print(file=looker.stdin, flush=True)
        return looker.stdout.readline().strip()

    assert seen() == "False"
    holder = started(HOLD, system, folder, 600)
    assert holder.stdout.readline() == "held\n"
    assert seen() == "True"
    holder.kill()
    assert holder.wait() == -signal.SIGKILL
    assert seen() == "False"
    again = started(HOLD, system, folder, 0)  # what a killed process left behind is no lock
    assert again.communicate()[0] == "held\n"
    assert looker.communicate() == ("", None)
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
