"""kill -9 at any moment, full disks, folders that may not be written: nothing is lost, or spent silently.

With ROUNDS=100 in the environment, these tests kill 100 runs each, and not only a few.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

import querysmasher as qs
from querysmasher.cli.app import app
from querysmasher.errors import FileError
from querysmasher.estimate.estimate import Estimate
from querysmasher.exploring import explore as exploring
from tests.cli.conftest import EXPLORED, FULL, PEOPLE, SPENT, Ran, draft_of, fail, names, planned_once
from tests.ledgers import ROUNDED, costing

pytestmark = pytest.mark.slow  # every case starts a process of its own

ROUNDS = int(os.environ.get("ROUNDS", "4"))
AS_ROOT = sys.platform == "linux" and os.geteuid() == 0
LEDGER = 'ledger = {path = "people.ledger", rho = 50}\n'
OUT = ["answers.parquet", "datapackage.json", "errors.csv", "estimates.parquet", "release.qs", "summary.json"]


def write_spec(folder, ledger=LEDGER, order="[2, 3]"):
    text = EXPLORED.replace("[2, 3]", order)
    (folder / "release.toml").write_text(text.format(budget=ledger, more=""))
    (folder / "people.csv").write_text(PEOPLE)


def charged(folder):
    """The number of entries in the ledger."""
    path = folder / "people.ledger"
    return len(qs.Ledger(path).verify().entries) if path.exists() else 0


def killed_at(process, seconds):
    time.sleep(seconds)
    process.kill()
    process.communicate()


def duration(processes, folder, *arguments):
    start = time.monotonic()
    process = processes.start(folder, *arguments)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return time.monotonic() - start


@pytest.fixture
def explored(run, folder, monkeypatch):
    """A folder in which an exploration was cut short: the name of its draft, and its release."""
    write_spec(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Estimate, "write", fail(FULL))
        run("explore", code=4)
    draft = draft_of(folder)
    return draft.name, (draft / "release.qs").read_bytes()


def test_kill_9_at_any_moment_of_explore(run, processes, folder, monkeypatch):
    write_spec(folder)
    whole = duration(processes, folder, "explore", "--out", "first")
    chance = random.Random(1)  # noqa: S311 - no secret
    for number in range(ROUNDS):
        out, before = f"out{number}", charged(folder)
        killed_at(processes.start(folder, "explore", "--out", out), chance.uniform(0, whole))
        spent = charged(folder) - before
        assert spent in (0, 1)
        left = list(folder.glob(f"{out}.unfinished-*"))
        saved = [draft for draft in left if (draft / "release.qs").is_file()]
        if (folder / out).exists():  # it was done
            assert names(folder / out) == OUT
            assert qs.Release.load(folder / out / "release.qs").entry in qs.Ledger("people.ledger").entries
        elif saved:
            (draft,) = saved
            assert spent == 1
            content = (draft / "release.qs").read_bytes()
            with monkeypatch.context() as patch:
                patch.setattr(exploring, "explore", None)  # nothing is measured again
                assert f"--resume {draft.name}" in run("explore", "--out", out, code=4).err
                run("explore", "--out", out, "--resume", draft.name)
            assert (folder / out / "release.qs").read_bytes() == content
            assert charged(folder) == before + 1
        else:
            ran = run("explore", "--out", out)
            assert ("was killed before it saved its release" in ran.err) == bool(left)
            assert charged(folder) == before + spent + 1
        assert names(folder / out) == OUT
        assert not list(folder.glob(f"*{out}.unfinished-*/"))
    assert run("verify", "first")


def test_parts_of_files_that_a_killed_run_left_are_not_published(run, folder, explored):
    draft, content = explored
    for name in (".estimates.parquet.0123456789abcdef.part", "answers.parquet", "summary.json"):
        (folder / draft / name).write_bytes(b"half")
    run("explore", "--resume", draft)
    assert names(folder / "out") == OUT
    assert (folder / "out" / "release.qs").read_bytes() == content
    run("verify", "out")


def test_kill_9_at_any_moment_of_resume(run, processes, folder, explored, monkeypatch):
    draft, content = explored
    shutil.copytree(folder, folder / "copy")
    whole = duration(processes, folder / "copy", "explore", "--resume", draft)
    chance = random.Random(2)  # noqa: S311 - no secret
    monkeypatch.setattr(exploring, "explore", None)  # nothing is measured again
    for number in range(ROUNDS):
        here = folder / str(number)
        here.mkdir()
        write_spec(here)
        shutil.copy(folder / "people.ledger", here)
        shutil.copytree(folder / draft, here / draft)
        killed_at(processes.start(here, "explore", "--resume", draft), chance.uniform(0, whole))
        monkeypatch.chdir(here)
        if not (here / "out").exists():
            assert (here / draft / "release.qs").read_bytes() == content
            run("explore", "--resume", draft)
        assert names(here / "out") == OUT
        assert (here / "out" / "release.qs").read_bytes() == content
        assert charged(here) == 1
        run("verify", "out")


class FullDisk:
    """Lets some calls that write succeed, and then one fail."""

    def __init__(self, patch, free):
        self.seen, self._free = 0, free
        for holder, called in (
            (os, ("fsync", "replace", "rename", "mkdir", "write")),
            (Path, ("write_text", "write_bytes", "touch")),
        ):
            for name in called:
                patch.setattr(holder, name, self._counting(getattr(holder, name)))

    def _counting(self, real):
        def call(*arguments, **options):
            self.seen += 1
            if self.seen == self._free + 1:
                raise FULL
            return real(*arguments, **options)

        return call


def kept_in(err):
    """Where a message says that the release is."""
    return err.split(SPENT)[1].split("'")[1]


@pytest.mark.parametrize("command", ["release", "explore"])
def test_a_disk_that_is_full_at_any_call(folder, monkeypatch, command):
    """Whatever call fails first: the command says what was spent, and completes what was measured."""
    ends = []
    for free in range(100):
        here = folder / str(free)
        here.mkdir()
        write_spec(here, order="2")  # and no larger tables: every call of a command fails once
        monkeypatch.chdir(here)
        with planned_once(), monkeypatch.context() as patch:
            disk = FullDisk(patch, free)
            ran = Ran(CliRunner().invoke(app, [command]))
        spent = charged(here)
        if ran.code == 0:  # or what failed was of no importance
            ends.append("published")
            assert spent == 1
        elif SPENT in ran.err:
            ends.append("kept")
            assert spent == 1
            with planned_once():
                done = Ran(CliRunner().invoke(app, [command, "--resume", kept_in(ran.err)]))
            assert done.code == 0, done.err
        else:
            ends.append("nothing")
            assert ran.code == 4, ran.err
            assert not spent or "recorded" in ran.err or "count the budget as spent" in ran.err, ran.err
            assert not list(here.glob("out*"))
        if ends[-1] != "nothing":
            assert "release.qs" in names(here / "out")
            assert not list(here.glob("*unfinished*"))
        if disk.seen <= free:
            break
    assert ran.code == 0
    assert {"published", "kept", "nothing"} <= set(ends)


@pytest.fixture
def small_disk():
    """Mounts a disk of some bytes."""
    if not AS_ROOT:
        pytest.skip("only root can mount a disk")
    mounted, before = [], Path.cwd()

    def mount(size):
        place = tempfile.mkdtemp()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place]
        if subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603
            pytest.skip("no disk can be mounted here")
        mounted.append(place)
        return Path(place)

    yield mount
    os.chdir(before)
    for place in mounted:
        subprocess.run(["umount", "-l", place], check=True)  # noqa: S603, S607
        Path(place).rmdir()


def test_a_ledger_on_a_disk_that_fills_up(small_disk):
    """A commit that does not fit is no entry, and the entries before it stay."""
    place = small_disk("256k")
    ledger = qs.Ledger(place / "x.ledger", limit=qs.PrivacyCost(1.0))
    kept = [ledger.charge(costing(Fraction(1, 10_000)), ROUNDED)]
    (place / "filler").write_bytes(bytes(shutil.disk_usage(place).free // 4096 * 4096 - 24 * 4096))

    def fill():
        while len(kept) < 1000:
            kept.append(ledger.charge(costing(Fraction(1, 10_000)), ROUNDED))

    with pytest.raises(FileError, match="nothing was measured"):
        fill()
    assert 1 < len(kept) < 1000
    (place / "filler").unlink()
    assert list(ledger.verify().entries) == kept
    kept.append(ledger.charge(costing(Fraction(1, 10_000)), ROUNDED))
    assert list(qs.Ledger(place / "x.ledger").entries) == kept


@pytest.mark.parametrize("size", ["64k", "96k", "128k", "160k"])
def test_an_exploration_on_a_disk_that_is_too_small(processes, small_disk, size):
    place = small_disk(size)
    write_spec(place)
    process = processes.start(place, "explore", TMPDIR=tempfile.gettempdir())
    _, err = process.communicate()
    if process.returncode == 0:
        assert names(place / "out") == OUT
        return
    assert process.returncode == 4, err
    assert "Traceback" not in err
    subprocess.run(["mount", "-o", "remount,size=8m", place], check=True)  # noqa: S603, S607
    if SPENT in err:
        again = processes.start(place, "explore", "--resume", kept_in(err))
        _, err = again.communicate()
        assert again.returncode == 0, err
        assert names(place / "out") == OUT
    assert charged(place) == int("spent" in err or (place / "out").exists())


@pytest.fixture
def locked(folder):
    """A folder that may only be read, and files that may only be read."""
    if sys.platform != "linux" and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    write_spec(folder)

    def lock(mode=0o555):
        for path in (folder, *folder.iterdir()):
            path.chmod(mode if path.is_dir() else mode & 0o666)
        return folder

    yield lock
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)


def powerless(processes, folder, *arguments):
    process = processes.start(folder, *arguments, powerless=True)
    out, err = process.communicate()
    assert "Traceback" not in err
    return process.returncode, " ".join(out.split()), " ".join(err.split())


def test_folders_that_may_not_be_written(processes, locked, tmp_path_factory):
    """Whoever may only read measures nothing and leaves no trace, but may ask, verify and look."""
    shared = locked()
    files = names(shared)
    for command in ("release", "explore"):
        code, _, err = powerless(processes, shared, command)
        assert code == 4, err
        assert "nothing was measured" in err
        assert names(shared) == files
    locked(0o755)
    process = processes.start(shared, "release")
    assert process.communicate()[1] == ""
    locked()
    files, before = names(shared), charged(shared)
    for command in ("release", "explore"):
        for out in (["--force"], ["--out", "other"]):
            code, _, err = powerless(processes, shared, command, *out)
            assert code == 4, err
            assert "nothing was measured" in err
    for command in (
        ["answer", "out", "sex == 'F'"],
        ["verify", "out"],
        ["ledger", "people.ledger"],
        ["plan"],
    ):
        code, out, err = powerless(processes, shared, *command)
        assert code == 0, err
        assert out
    code, _, err = powerless(processes, shared, "report", "out")
    assert code == 4, err
    elsewhere = tmp_path_factory.mktemp("elsewhere")  # where it may write, but not the ledger
    code, _, err = powerless(processes, shared, "release", "--out", elsewhere / "out")
    assert code == 4, err
    assert "may not be written; nothing was measured" in err
    assert names(elsewhere) == []
    assert names(shared) == files
    assert charged(shared) == before == 1
