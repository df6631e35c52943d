"""Releases on disk: the same answers, bit for bit, or no release; stores in memory and on disk."""

import gc
import tempfile
import zipfile
from functools import cache

import numpy as np
import pytest

import querysmasher as qs
from querysmasher import files
from querysmasher.errors import FileError
from querysmasher.planning.limits import limited
from querysmasher.release import reconstruction as store_module
from querysmasher.release import release_file
from querysmasher.release.reconstruction import FileStore, MemoryStore, new_store
from tests.builders import BEST, SPLIT, UNIFORM
from tests.release.tables import Untouchable, frame, random_counts, simulate

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "Ü"]), qs.Ordinal("age", range(5)), qs.Cyclic("h", range(3))])


def rich(budget, limits=SPLIT, **options):
    workload = (
        qs.all_kway(SCHEMA, [0, 1, 2])
        + 2.5 * qs.marginals(SCHEMA, 2)
        + qs.affine(SCHEMA, "age", "h")
        + qs.where(SCHEMA, "age >= 3 and sex == 'F' or h == 1")
        + qs.linear(SCHEMA, ("sex", "h"), np.eye(6), weights=np.linspace(1, 2, 6), labels=list("abcdef"))
    )
    with limited(**limits):
        return qs.plan(workload, budget, **options)


RELEASES = {
    "rounded": (lambda: rich(qs.PrivacyCost(1.0), **BEST), "rounded"),
    "whole": (lambda: rich(qs.PrivacyCost(1.0), {}, **BEST), "rounded"),
    "mixture": (
        lambda: rich(qs.PrivacyCost(1.0), {"whole_work": 0, "threaded_cells": -1}, **BEST),
        "rounded",
    ),
    "structured": (
        lambda: rich(qs.zCDP(0.5, records_per_person=2), solver="structured", **UNIFORM),
        "discrete",
    ),
    "public total": (lambda: rich(qs.ApproxDP(1.0, 1e-6, neighbours="replace_one"), **UNIFORM), "rounded"),
    "floats": (lambda: rich(qs.GaussianDP(1.0), **UNIFORM), "gaussian"),
}


@cache
def planned(name):
    make, _ = RELEASES[name]
    return make()


def released(name):
    return simulate(planned(name), random_counts(SCHEMA, 2), 7, RELEASES[name][1])


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "x.release"
    released("rounded").save(path)
    return path


def same(one, two):
    assert two.plan.budget == one.plan.budget
    assert two.plan.max_records == one.plan.max_records
    assert two.plan.measured == one.plan.measured
    assert two.workload == one.workload
    assert two.noise == one.noise
    assert two.guarantee == one.guarantee
    assert two.public_total == one.public_total
    assert repr(two) == repr(one)
    for mine, theirs in zip(one.plan.strategies, two.plan.strategies, strict=True):
        assert mine.shape == theirs.shape
        for (axes, factor), (same_axes, other) in zip(mine.factors, theirs.factors, strict=True):
            assert axes == same_axes
            assert type(factor) is type(other)
            np.testing.assert_array_equal(factor.written_out(), other.written_out())
    for number in range(len(one.plan.measured)):
        assert one.store[number].dtype == two.store[number].dtype
        assert one.store[number].tobytes() == two.store[number].tobytes()
    mine, theirs = one.answer(), two.answer()
    assert mine.values.tobytes() == theirs.values.tobytes()
    assert mine.std.tobytes() == theirs.std.tobytes()
    small = qs.marginals(SCHEMA, 1)
    assert one.covariance(small).tobytes() == two.covariance(small).tobytes()
    assert one.marginal("h", "sex").tobytes() == two.marginal("h", "sex").tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASES)
def test_a_release_comes_back_bit_for_bit(name, tmp_path):
    one = released(name)
    one.save(tmp_path / "x")
    two = qs.Release.load(tmp_path / "x")
    same(one, two)
    two.save(tmp_path / "y")  # from the file, array by array
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    two.save(tmp_path / "x")  # over the very file it reads from
    same(one, qs.Release.load(str(tmp_path / "x")))
    same(one, two)


def test_answers_are_read_when_they_are_needed(saved, monkeypatch):
    read, original = [], zipfile.ZipFile.open

    def noted(archive, member, *options, **more):
        read.append(getattr(member, "filename", member))
        return original(archive, member, *options, **more)

    monkeypatch.setattr(zipfile.ZipFile, "open", noted)
    release = qs.Release.load(saved)
    with zipfile.ZipFile(saved) as archive:
        later = {name for name in archive.namelist() if name.endswith(".npy")} - set(read)
    assert len(later) == len(release.plan.measured), "answers were read on loading"
    for names in ((), ("age",)):  # the total is kept, one set more is read
        read.clear()
        release.marginal(*names)
        assert len(read) == len(later.intersection(read)) == 1


def payload(release, monkeypatch):
    """What `save` writes, as plain data."""
    caught = {}
    with monkeypatch.context() as patch:
        patch.setattr(release_file, "write_archive", lambda path, kind, data: caught.update(data))
        release.save("x")
    return caught


def test_a_file_that_changes_after_loading_is_noticed(tmp_path, refuses):
    """Answers are read late, so they are checked again when they are."""
    schema, saved = qs.Schema.of(a=20_000), tmp_path / "x.release"  # too large for the reader's buffer
    plan = qs.plan(qs.marginals(schema, 1), qs.PrivacyCost(1.0))
    simulate(plan, np.ones(schema.sizes, dtype=np.int64), 1).save(saved)
    release = qs.Release.load(saved)
    whole = bytearray(saved.read_bytes())
    with zipfile.ZipFile(saved) as archive:
        stored = [i for i in archive.infolist() if i.compress_type == zipfile.ZIP_STORED]
    for info in stored:
        header = whole[info.header_offset : info.header_offset + 30]
        extra = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        whole[info.header_offset + 30 + extra + info.file_size - 1] ^= 1  # the last byte of the array
    with saved.open("r+b") as stream:  # in place: the same file under the reader's feet
        stream.write(whole)
    with refuses(FileError, ValueError, "changed"):
        release.answer()


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()]
)
def test_an_interrupted_save_leaves_the_old_file_and_nothing_else(saved, tmp_path, error):
    before = saved.read_bytes()
    release = released("structured")
    kept = release.store
    asked = []

    class Failing:
        def __getitem__(self, number):
            asked.append(number)
            if len(asked) > 3:
                raise error
            return kept[number]

    object.__setattr__(release, "store", Failing())
    for path in (saved, tmp_path / "new"):
        asked.clear()
        with pytest.raises(type(error)):
            release.save(path)
        assert len(asked) == 4
    assert saved.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [saved.name]


@pytest.mark.slow
def test_a_loaded_release_lets_go_of_its_file(saved):
    release = qs.Release.load(saved)
    release.answer()

    def archives():
        """Find open archives; objects of other tests may notice being asked for their class."""
        living = (o for o in gc.get_objects() if issubclass(type(o), zipfile.ZipFile))
        return [archive for archive in living if archive.filename == str(saved)]

    assert archives()
    del release
    gc.collect()
    assert not archives()


@pytest.mark.parametrize("answers", ["text", np.zeros(3), files.Lazy(lambda: np.zeros(2))])
def test_answers_that_are_none_or_too_few_are_refused(saved, tmp_path, answers):
    data = files.read_archive(saved, "release")
    data["answers"] = [answers] * len(data["answers"])
    files.write_archive(tmp_path / "other", "release", data)
    with pytest.raises(FileError, match="does not"):
        qs.Release.load(tmp_path / "other").answer()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.pop("budget"), ""),
        (lambda d: d["answers"].pop(), ""),
        (lambda d: d["variances"].pop(), ""),
        (lambda d: d["variances"].__setitem__(0, "nonsense"), ""),
        (lambda d: d["variances"].__setitem__(0, "1/0"), ""),
        (lambda d: d["strategies"].pop(), ""),
        (lambda d: d["strategies"][0].update(shape=[99]), ""),
        (lambda d: d["strategies"][0]["factors"][0]["data"].update(entries=np.array([[0.5]])), ""),
        (lambda d: d["strategies"][0]["factors"][0]["data"].clear(), ""),
        (lambda d: d["strategies"][0]["factors"][0].update(kind="Filter"), ""),
        (lambda d: d["strategies"][0]["factors"][0].update(axes=[1]), ""),
        (lambda d: d["strategies"][0]["factors"].append(d["strategies"][0]["factors"][0]), ""),
        (lambda d: d["blocks"][1][0].__setitem__(1, 99), ""),
        (lambda d: d["noise"].update(extra=1), ""),
        (lambda d: d["budget"].update(kind="Infinite"), ""),
        (lambda d: d["workload"]["schema"].pop(), ""),
        (lambda d: d["centre_of"].__setitem__(0, 99), ""),
        (lambda d: d.update(centres=[2 * c / c.sum() for c in d["centres"]]), "does not sum to one"),
        (lambda d: d.update(centres=[c * 1e300 for c in d["centres"]]), "does not sum to one"),
        (lambda d: d.update(centres=[np.eye(len(c))[0] for c in d["centres"]]), "residual space"),
        (lambda d: d.update(variances=["1" for _ in d["variances"]]), "more than the"),
        (lambda d: d.update(variances=["1e999999999" for _ in d["variances"]]), "ValueError"),
        (lambda d: d.update(variances=["0" for _ in d["variances"]]), "noise variance"),
        (lambda d: d.update(public_total=5), "the number of records is public"),
        (lambda d: d.update(max_records=2**41), "ValueError"),
        (lambda d: d.update(max_records=True), "ValueError"),
        (lambda d: d["noise"].update(name="none"), "ValueError"),
        (lambda d: d["noise"].update(seeded="no"), "ValueError"),
        (lambda d: d["noise"].update(description="\x1b[2J"), "ValueError"),
        (
            lambda d: d["strategies"][1].update(shape=[float(n) for n in d["strategies"][1]["shape"]]),
            "ValueError",
        ),
        (
            lambda d: d["strategies"][1]["factors"][0]["data"].update(
                entries=0 * d["strategies"][1]["factors"][0]["data"]["entries"]
            ),
            "dependent",
        ),
        (lambda d: d["strategies"][1]["factors"][0].update(kind="filter"), ""),
    ],
)
def test_a_release_whose_parts_do_not_fit_is_refused(change, why, tmp_path, monkeypatch, refuses):
    """Its answers would be far from the truth by its own standard errors, or its guarantee untrue."""
    data = payload(released("rounded"), monkeypatch)
    change(data)
    files.write_archive(tmp_path / "x", "release", data)
    with refuses(FileError, ValueError, "does not contain a complete release", why):
        qs.Release.load(tmp_path / "x")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_float_answers_that_are_no_numbers_are_refused(number, tmp_path, refuses):
    one = released("floats")
    one.store[0][:] = number
    one.save(tmp_path / "x")
    with refuses(FileError, ValueError, "does not contain the answers"):
        qs.Release.load(tmp_path / "x").answer()


SMALL = qs.Schema.of(a=4, b=3, c=2)


@pytest.fixture(scope="module")
def plan():
    workload = qs.all_kway(SMALL, [1, 2, 3], "prefix") + qs.marginals(SMALL, 3)
    return qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM)


@pytest.fixture(scope="module")
def table():
    return frame(SMALL, random_counts(SMALL, 1))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_large_releases_go_to_disk(monkeypatch):
    assert isinstance(new_store(2**26), MemoryStore)
    assert isinstance(new_store(2**26 + 1), FileStore)
    monkeypatch.setattr(store_module, "MEMORY_BYTES", 79)
    assert isinstance(new_store(9), MemoryStore)
    assert isinstance(new_store(10), FileStore)


@pytest.mark.parametrize("noise", ["rounded", "gaussian"])
def test_a_release_on_disk_is_the_same(plan, table, noise, monkeypatch, folder):
    one = qs.measure(plan, table, seed=3, noise=noise)
    monkeypatch.setattr(store_module, "MEMORY_BYTES", 0)
    two = qs.measure(plan, table, seed=3, noise=noise)
    assert isinstance(one.store, MemoryStore)
    assert isinstance(two.store, FileStore)
    assert one.answer().values.tobytes() == two.answer().values.tobytes()
    assert one.marginal("c", "a").tobytes() == two.marginal("c", "a").tobytes()
    one.save(folder / "one")
    two.save(folder / "two")
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()


def test_the_file_goes_with_the_release(plan, table, monkeypatch, folder):
    monkeypatch.setattr(store_module, "MEMORY_BYTES", 0)
    release = qs.measure(plan, table, seed=3)
    stream = release.store._stream
    assert not list(folder.iterdir()), "the file has a name, which would outlive a process that is killed"
    release.answer()
    assert not stream.closed
    del release
    gc.collect()
    assert stream.closed
    assert not list(folder.iterdir())


def test_a_file_cut_short_is_noticed(plan, table, monkeypatch):
    monkeypatch.setattr(store_module, "MEMORY_BYTES", 0)
    release = qs.measure(plan, table, seed=3)
    release.store._stream.truncate(8)
    with pytest.raises(OSError, match="truncated"):
        release.answer()


def test_a_temporary_folder_without_room_is_found_before_the_table_is_opened(monkeypatch, refuses):
    monkeypatch.setattr(store_module, "MEMORY_BYTES", 0)
    monkeypatch.setattr(
        store_module.shutil, "disk_usage", lambda _: store_module.shutil._ntuple_diskusage(100, 90, 10)
    )
    plan = qs.plan(qs.marginals(qs.Schema.of(a=9, b=9), 2), qs.PrivacyCost(1.0), **UNIFORM)
    data = Untouchable()
    with refuses(FileError, ValueError, "TMPDIR", "nothing was measured"):
        qs.measure(plan, data)
    assert not data.touched
