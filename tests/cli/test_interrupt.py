"""A real Ctrl-C, at every stage: exit code 130, and not a file more or less than before.

Once the table is measured, the release is kept, and the command says so.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow  # every case starts a process of its own

STAGES = {
    "planning": "querysmasher.planning.mechanisms.mechanism:solve_blocks",
    "counting": "querysmasher.data.scan:ScanCounter.records",
    "measuring": "querysmasher.privacy.measurement:exact_answers",
    "saving": "querysmasher.planning.storage:save_plan",
    "writing": "querysmasher.release.writing:_tables",
}
SCRIPT = """
import importlib, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
module, _, path = sys.argv.pop(1).partition(":")
marker = pathlib.Path(sys.argv.pop(1))
holder = importlib.import_module(module)
*way, name = path.split(".")
for step in way:
    holder = getattr(holder, step)

def waiting(*arguments, **options):
    marker.touch()
    time.sleep(60)

setattr(holder, name, waiting)
from querysmasher.cli import main
main()
"""


def everything(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_left_behind(run, folder, tmp_path_factory, stage, signal_number):
    if signal_number == signal.SIGTERM and stage != "writing":
        pytest.skip("ending differs from interrupting only in its name")
    run("release", "--seed", "1")
    (folder / "keep.txt").write_text("precious")
    before = everything(folder)
    marker = tmp_path_factory.mktemp("marker") / "here"
    process = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-c", SCRIPT, STAGES[stage], str(marker), "release", "--force"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        for _ in range(1_200):  # two minutes, for machines with much else to do
            if marker.exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        time.sleep(0.2)
        process.send_signal(signal_number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert marker.exists(), err
    message = "error: interrupted; no partial output is left."
    assert (process.returncode, out) == (130, "")
    kept = [p for p in folder.iterdir() if "unfinished" in p.name]
    if stage == "writing":
        assert err.startswith(f"{message} The table was measured, and the budget is spent.")
        assert f"--resume {kept[0].name}`" in err
        assert sorted(p.name for p in kept[0].iterdir()) == ["plan.qs", "release.qs"]
        shutil.rmtree(kept[0])
    else:
        assert err == f"{message}\n"
        assert not kept
    assert everything(folder) == before
    assert sorted(p.name for p in folder.iterdir()) == ["keep.txt", "out", "people.csv", "release.toml"]
