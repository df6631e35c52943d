"""Stores: the same numbers from memory and from disk, and nothing left behind."""

import gc
import tempfile

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import FileError
from querysmasher.release import reconstruction as store_module
from querysmasher.release.reconstruction import FileStore, MemoryStore, new_store
from tests.builders import UNIFORM
from tests.release.tables import Untouchable, frame, random_counts

SCHEMA = qs.Schema.of(a=4, b=3, c=2)


@pytest.fixture(scope="module")
def plan():
    workload = qs.all_kway(SCHEMA, [1, 2, 3], "prefix") + qs.marginals(SCHEMA, 3)
    return qs.plan(workload, qs.PrivacyCost(1.0), **UNIFORM)


@pytest.fixture(scope="module")
def table():
    return frame(SCHEMA, random_counts(SCHEMA, 1))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("store", [MemoryStore, FileStore])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_what_is_put_comes_back_flat_in_any_order(store, dtype):
    kept = store()
    given = {n: (np.arange(n * 6).reshape(2, 3, n) - 7).astype(dtype) for n in (3, 1, 2)}
    given[9] = np.asfortranarray(np.arange(12).reshape(3, 4)).astype(dtype)
    given[5] = np.array(-(2**62) if dtype is np.int64 else 0.1, dtype=dtype)
    for number, answers in given.items():
        kept.put(number, answers)
    assert sorted(kept) == [1, 2, 3, 5, 9]
    for number in (2, 9, 1, 5, 3, 2):
        assert kept[number].dtype == dtype
        np.testing.assert_array_equal(kept[number], given[number].ravel())
    with pytest.raises(KeyError):
        kept[4]


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
