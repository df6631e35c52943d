"""A real Ctrl-C, at every stage: exit code 130, and not a file more or less than before.

Once the table is measured, the release is kept, and the command says so.
"""

import shutil
import signal

import pytest

pytestmark = pytest.mark.slow  # every case starts a process of its own

STAGES = {
    "planning": "querysmasher.planning.mechanisms:solve_blocks",
    "counting": "querysmasher.data.rows:ScanCounter.records",
    "measuring": "querysmasher.privacy.measurement:exact_answers",
    "saving": "querysmasher.planning.plan_file:save_plan",
    "writing": "querysmasher.release.tidy:Tidy.tables",
}


def everything(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_left_behind(run, processes, folder, tmp_path_factory, stage, signal_number):
    if signal_number == signal.SIGTERM and stage != "writing":
        pytest.skip("ending differs from interrupting only in its name")
    run("release", "--seed", "1")
    (folder / "keep.txt").write_text("precious")
    before = everything(folder)
    marker = tmp_path_factory.mktemp("marker") / "here"
    process = processes.start(
        folder, "release", "--force", stage=STAGES[stage], marker=marker, TMPDIR=str(folder)
    )
    try:
        process.wait_for(marker)
        process.send_signal(signal_number)
        out, err = process.communicate()
    finally:
        process.kill()
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
