"""What was measured is not lost, nor spent silently: full disks, two runs at a time, Ctrl-C, kill -9."""

import os
import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher import measuring
from querysmasher.cli import folder as folder_module
from querysmasher.release import release as release_module
from querysmasher.release import writing
from querysmasher.spec import spec as spec_module
from tests.cli.conftest import FULL, SPEC, SPENT, draft_of, fail, names


@pytest.fixture
def cut_short(run, folder, monkeypatch):
    """A run whose disk was full when it wrote the answers."""
    with monkeypatch.context() as patch:
        patch.setattr(writing.Tidy, "tables", fail(FULL))
        ran = run("release", code=4)
    return ran, draft_of(folder)


def test_a_full_disk_while_writing_answers_keeps_the_release(cut_short, folder):
    ran, draft = cut_short
    command = f"`querysmasher release --resume {draft.name}` completes the folder at no further privacy cost."
    ran.fails(4, f"No space left on device. {SPENT}{draft.name!r}: {command}")
    assert names(draft) == ["plan.qs", "release.qs"]
    assert qs.Release.load(draft / "release.qs").noise.is_private
    assert names(folder) == [draft.name, "people.csv", "release.toml"]


def test_the_next_run_offers_what_is_left_and_does_not_measure(cut_short, run, folder, monkeypatch):
    _, draft = cut_short
    monkeypatch.setattr(measuring, "measure", None)
    ran = run("release", code=4)
    assert f"`querysmasher release --resume {draft.name}`" in ran.err
    assert "spent the budget, but did not finish" in ran.err
    assert "spends the budget again" in ran.err
    assert run("release", "--json", code=4).json["error"]["code"] == 4
    (draft / "plan.qs").unlink()  # then it is planned again, and the release is the same
    for _ in range(2):
        before = (draft / "release.qs").read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(writing.Tidy, "tables", fail(FULL))
            assert SPENT in run("release", "--resume", draft, code=4).err
        assert (draft / "release.qs").read_bytes() == before
    ran = run("release", "--resume", draft.name)
    assert "Every measurement spends the budget again" in ran.words
    assert (folder / "out" / "release.qs").read_bytes() == before
    assert names(folder / "out") == [
        "answers.parquet",
        "datapackage.json",
        "plan.qs",
        "release.qs",
        "summary.json",
    ]
    assert names(folder) == ["out", "people.csv", "release.toml"]


def test_what_is_left_is_asked_as_it_is(cut_short, run):
    _, draft = cut_short
    assert run("answer", draft, "age >= 3", "--json").json["answers"][0]["std"] > 0


def test_force_measures_again_and_says_what_is_left(cut_short, run, folder):
    _, draft = cut_short
    ran = run("release", "--force")
    assert ran.err == f"Left unchanged: '{draft.name}', the release of an earlier run that did not finish.\n"
    assert names(folder) == ["out", draft.name, "people.csv", "release.toml"]


@pytest.mark.parametrize("file", ["plan.qs", "release.qs"])
def test_a_copy_of_what_is_left_is_whole_or_not_there(cut_short, run, folder, monkeypatch, file):
    """Finished for another folder on a full disk, half a release would be taken for a whole one."""
    _, draft = cut_short
    copy = shutil.copyfile

    def half(source, target):
        copy(source, target)
        if Path(target).name == file:
            os.truncate(target, 100)
            raise FULL

    monkeypatch.setattr(shutil, "copyfile", half)
    before = names(folder)
    assert "No space left on device" in run("release", "--out", "b", "--resume", draft, code=4).err
    assert sorted(p.name for p in folder.iterdir()) == before
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("release", "--out", "b", "--resume", draft).err == ""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("k = [1, 2]", "k = 1", "workload"),
        ("rho = 0.5", "rho = 0.6", "budget"),
        ("[data]", '[measure]\nnoise = "discrete"\n[data]', "noise"),
    ],
)
def test_what_another_spec_left_is_not_taken(cut_short, run, folder, old, new, what):
    _, draft = cut_short
    (folder / "release.toml").write_text(SPEC.replace(old, new))
    ran = run("release", "--resume", draft.name, code=2)
    ran.fails(2, f"--resume: '{draft.name}' was measured with a different {what} than release.toml")
    assert (draft / "release.qs").is_file()


def test_nothing_to_resume(run, folder):
    run("release", "--resume", "none", code=4)
    run("release", "--resume", "people.csv", code=4)
    run("release")
    assert "already has a release" in run("release", "--resume", "out", code=4).err
    assert names(folder) == ["out", "people.csv", "release.toml"]


def test_a_release_that_cannot_be_saved_is_kept_elsewhere(run, folder, tmp_path_factory, monkeypatch):
    save, spare = release_module.Release.save, tmp_path_factory.mktemp("spare")

    def failing(self, path):
        if Path(path).absolute().is_relative_to(folder):
            raise FULL
        save(self, path)

    monkeypatch.setattr(folder_module.tempfile, "tempdir", str(spare))
    with monkeypatch.context() as patch:
        patch.setattr(release_module.Release, "save", failing)
        ran = run("release", "--json", code=4)
    (kept,) = spare.iterdir()
    assert ran.json["error"]["measured"] is True
    assert ran.json["error"]["kept"] == str(kept)
    assert SPENT + repr(str(kept)) in ran.err
    assert names(folder) == ["people.csv", "release.toml"]
    run("release", "--resume", kept)
    assert (folder / "out" / "release.qs").read_bytes() == (kept / "release.qs").read_bytes()
    assert names(folder) == ["out", "people.csv", "release.toml"]


def test_a_release_that_is_lost_says_that_the_budget_is_spent(run, folder, monkeypatch):
    monkeypatch.setattr(folder_module.tempfile, "tempdir", str(folder))
    monkeypatch.setattr(release_module.Release, "save", fail(FULL))
    ran = run("release", "--json", code=4)
    assert ran.err == (
        "error: No space left on device. The table was measured, but its release is lost: count the "
        "budget as spent.\n"
    )
    assert ran.json["error"]["kept"] is None
    assert names(folder) == ["people.csv", "release.toml"]


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), ValueError("a bug")])
def test_whatever_fails_after_measuring_keeps_the_release(run, folder, monkeypatch, error):
    monkeypatch.setattr(writing.Tidy, "tables", fail(error))
    code = {MemoryError: 6, KeyboardInterrupt: 130, ValueError: 1}[type(error)]
    assert SPENT in run("release", code=code).err
    assert (draft_of(folder) / "release.qs").is_file()


def test_what_fails_before_measuring_says_nothing_of_the_budget(run, folder, monkeypatch):
    (folder / "people.csv").write_text("sex,age\nF,1\n")
    ran = run("release", code=5)
    assert "budget" not in ran.err
    assert names(folder) == ["people.csv", "release.toml"]


def test_in_python_a_release_that_cannot_be_saved_is_still_there(tmp_path, monkeypatch):
    schema = qs.Schema.of(a=2)
    plan = qs.plan(qs.marginals(schema, 1), qs.zCDP(1.0))
    release = qs.measure(plan, pa.table({"a": [0, 1]}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail(FULL))
        with pytest.raises(OSError, match="No space") as caught:
            release.save(tmp_path / "x")
    assert "still in memory" in caught.value.__notes__[0]
    release.save(tmp_path / "x")


# --- the place is tried first ------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can write")
def test_an_unwritable_place_is_found_before_anything_is_planned_or_measured(run, folder, monkeypatch):
    monkeypatch.setattr(spec_module, "plan", None)
    monkeypatch.setattr(measuring, "measure", None)
    ran = run("release", "--out", "/proc/out", code=4)
    assert "cannot write in '/proc'" in ran.err
    assert "nothing was measured" in ran.err


def test_a_disk_without_room_is_found_before_anything_is_measured(run, folder, monkeypatch):
    monkeypatch.setattr(measuring, "measure", None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))
    assert "MB left; nothing was measured" in run("release", code=4).err
    assert names(folder) == ["people.csv", "release.toml"]


# --- real processes ------------------------------------------------------------------------------------

WIDE = """
[[schema]]
name = "age"
kind = "ordinal"
range = [0, 119]
[[workload]]
kind = "queries"
families = {age = "range"}
[budget]
rho = 0.5
[data]
path = "people.csv"
[output]
answers = "csv"
"""


@pytest.mark.slow
def test_a_real_limit_on_what_can_be_written(run, processes, folder):
    """The answers are the largest file; the operating system lets it grow so far and no further."""
    (folder / "release.toml").write_text(WIDE)
    process = processes.start(folder, "release", limit=190_000)
    _, err = process.communicate()
    assert process.returncode == 4, err
    draft = draft_of(folder)
    assert err.startswith("error: ")
    assert SPENT + repr(draft.name) in err
    before = (draft / "release.qs").read_bytes()
    run("release", "--resume", draft.name)
    assert (folder / "out" / "answers.csv").stat().st_size > 190_000
    assert (folder / "out" / "release.qs").read_bytes() == before


STAGES = {
    "planning": "querysmasher.planning.mechanisms:solve_blocks",
    "counting": "querysmasher.data.rows:ScanCounter.records",
    "measuring": "querysmasher.privacy.measurement:exact_answers",
    "saving": "querysmasher.planning.plan_file:save_plan",
    "writing": "querysmasher.release.tidy:Tidy.tables",
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["measuring", "writing"])
def test_after_kill_9_the_next_run_says_so(run, processes, folder, tmp_path_factory, monkeypatch, stage):
    marker = tmp_path_factory.mktemp("marker") / "here"
    process = processes.start(folder, "release", stage=STAGES[stage], marker=marker)
    process.wait_for(marker)
    process.kill()
    process.communicate()
    draft = draft_of(folder)
    if stage == "measuring":
        assert not (draft / "release.qs").exists()
        ran = run("release")
        assert "was killed before it saved its release" in ran.err
        assert "count its budget as spent" in ran.err
        assert run("release", "--out", "b").err == ""
        return
    before = (draft / "release.qs").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "measure", None)
        assert f"--resume {draft.name}" in run("release", code=4).err
        run("release", "--resume", draft.name)
    assert (folder / "out" / "release.qs").read_bytes() == before
    assert names(folder) == ["out", "people.csv", "release.toml"]


@pytest.mark.slow
def test_a_second_run_into_the_same_folder_is_refused_while_the_first_is_at_work(
    run, processes, folder, tmp_path_factory, monkeypatch
):
    marker = tmp_path_factory.mktemp("marker") / "here"
    process = processes.start(folder, "release", stage=STAGES["writing"], marker=marker)
    try:
        process.wait_for(marker)
        with monkeypatch.context() as patch:
            patch.setattr(measuring, "measure", None)
            for force in ([], ["--force"]):
                ran = run("release", *force, code=4)
                ran.fails(
                    4,
                    "another run is writing 'out' right now; wait for it, or choose another folder",
                )
            assert "another run is writing" in run("release", "--resume", draft_of(folder), code=4).err
        run("release", "--out", "elsewhere")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_of_two_runs_at_once_one_wins_and_the_other_keeps_its_release_or_measured_nothing(processes, folder):
    started = [processes.start(folder, "release") for _ in range(2)]
    ended = [(p.communicate(), p.returncode) for p in started]
    codes = sorted(code for _, code in ended)
    assert codes in ([0, 4], [4, 4])
    for (_, err), code in ended:
        if code == 4 and "another run is writing" not in err and "already has a release" not in err:
            assert "written by another run in the meantime" in err
            assert SPENT in err
            assert (draft_of(folder) / "release.qs").is_file()
    if codes[0] == 0:
        assert qs.Release.load(folder / "out" / "release.qs")


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_loser_of_two_runs_says_that_it_measured_and_keeps_its_release(run, folder, monkeypatch, force):
    """The other run replaces what was there; this one was asked to replace that, and not the other's."""
    if force:
        run("release", "--seed", "1")
    measure = measuring.measure

    def slowly(*arguments, **options):
        shutil.rmtree(folder / "out", ignore_errors=True)
        (folder / "out").mkdir()
        (folder / "out" / "release.qs").write_text("another run's")
        return measure(*arguments, **options)

    monkeypatch.setattr(measuring, "measure", slowly)
    ran = run("release", *force, code=4)
    draft = draft_of(folder)
    assert "'out' was written by another run in the meantime and is left unchanged." in ran.err
    assert SPENT + repr(draft.name) in ran.err
    assert (folder / "out" / "release.qs").read_text() == "another run's"
    assert names(folder) == ["out", draft.name, "people.csv", "release.toml"]
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    run("release", "--out", "third", "--resume", draft)
    assert (folder / "third" / "release.qs").is_file()


def everything(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_run_leaves_nothing_behind(
    run, processes, folder, tmp_path_factory, stage, signal_number
):
    """Ctrl-C at any stage: not a file more or less, but the release once the table is measured."""
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
    if stage == "writing":
        kept = draft_of(folder)
        assert err.startswith(f"{message} {SPENT}")
        assert f"--resume {kept.name}`" in err
        assert names(kept) == ["plan.qs", "release.qs"]
        shutil.rmtree(kept)
    else:
        assert err == f"{message}\n"
    assert everything(folder) == before
    assert names(folder) == ["keep.txt", "out", "people.csv", "release.toml"]
