"""Files: what is written comes back, and nothing else is ever read."""

import io
import json
import os
import pickle
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from querysmasher import files
from querysmasher.errors import FileError
from querysmasher.files import read_archive, write_archive
from tests.builders import Trap

PAYLOAD = {
    "numbers": np.linspace(0.1, 0.3, 50),
    "whole": np.arange(6).reshape(2, 3),
    "nested": [{"array": np.array(1.5), "text": "Grüße"}, [None, True, 3, 0.1]],
    "empty": np.zeros((0, 4)),
    "late": files.Lazy(lambda: np.arange(7.0)),
}


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "thing.qs"
    write_archive(path, "thing", PAYLOAD)
    return path


def rewritten(path, **changes):
    """Write the archive again with members replaced, whole in every other respect."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | changes
    with path.open("w+b") as stream:
        files.write_members(stream, {name: data for name, data in members.items() if data is not None})


def test_a_payload_comes_back_bit_for_bit(written):
    again = read_archive(written, "thing")
    assert again["nested"][1] == [None, True, 3, 0.1]
    assert again["nested"][0]["text"] == "Grüße"
    for key in ("numbers", "whole", "empty"):
        assert again[key].dtype == PAYLOAD[key].dtype
        assert again[key].shape == PAYLOAD[key].shape
        assert again[key].tobytes() == PAYLOAD[key].tobytes()
    assert again["nested"][0]["array"].shape == ()
    assert again["nested"][0]["array"] == 1.5
    assert again["late"].fetch().tolist() == list(range(7))


def test_arrays_in_column_order_come_back_with_the_same_entries(tmp_path):
    columns = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    write_archive(tmp_path / "x", "thing", {"a": columns, "b": columns[::2, ::-1]})
    again = read_archive(tmp_path / "x", "thing")
    np.testing.assert_array_equal(again["a"], columns)
    np.testing.assert_array_equal(again["b"], columns[::2, ::-1])


@pytest.mark.slow
def test_a_changed_byte_anywhere_is_noticed(written, refuses):
    whole = written.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        written.write_bytes(damaged)
        with refuses(FileError, ValueError, "damaged"):
            read_archive(written, "thing")


def test_a_missing_end_and_a_longer_end_are_noticed(written, refuses):
    whole = written.read_bytes()
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        written.write_bytes(whole[:length])
        with refuses(FileError, ValueError, "damaged"):
            read_archive(written, "thing")
    written.write_bytes(whole + b"\0")
    with refuses(FileError, ValueError, "damaged"):
        read_archive(written, "thing")


def test_foreign_files_are_refused(tmp_path, refuses):
    foreign = tmp_path / "foreign.zip"
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"kind": "querysmasher thing", "format": files.FORMAT}))
        archive.writestr("payload.json", "{}")
    with refuses(FileError, ValueError, "foreign.zip"):
        read_archive(foreign, "thing")
    for content in (b"", b"hello", b"PK\x03\x04", pickle.dumps({"a": 1}), bytes(1000)):
        foreign.write_bytes(content)
        with refuses(FileError, ValueError, "foreign.zip"):
            read_archive(foreign, "thing")


def test_a_file_of_another_kind_is_refused_by_name(written, refuses):
    with refuses(FileError, ValueError, "'querysmasher thing'", "'querysmasher plan'"):
        read_archive(written, "plan")


def test_a_file_of_a_later_format_is_refused(written, monkeypatch, refuses):
    later = files.FORMAT + 1
    monkeypatch.setattr(files, "FORMAT", later)
    write_archive(written, "thing", PAYLOAD)
    monkeypatch.undo()
    with refuses(FileError, ValueError, f"format {later}", f"reads format {files.FORMAT}"):
        read_archive(written, "thing")


@pytest.mark.parametrize(
    "members",
    [
        {"manifest.json": b"[]"},
        {"manifest.json": b"{}"},
        {"manifest.json": b"\xff"},
        {"manifest.json": None},
        {"payload.json": b"[]"},
        {"payload.json": b"{"},
        {"payload.json": None},
        {"payload.json": b'{"a": {"$array": "no such.npy"}}'},
        {"payload.json": b'{"a": {"$array": ["list"]}}'},
        {"0.npy": b"no array"},
        {"0.npy": b""},
    ],
)
def test_a_forged_file_with_right_checksums_is_refused_all_the_same(written, members, refuses):
    rewritten(written, **members)
    with refuses(FileError, ValueError, "thing.qs"):
        read_archive(written, "thing")


def test_nothing_is_ever_unpickled(written, refuses):
    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], dtype=object), allow_pickle=True)
    rewritten(written, **{"0.npy": stream.getvalue()})
    with refuses(FileError, ValueError, "thing.qs"):
        read_archive(written, "thing")
    assert not Trap.sprung
    np.load(io.BytesIO(stream.getvalue()), allow_pickle=True)
    assert Trap.sprung, "the trap works"
    Trap.sprung = False


@pytest.mark.parametrize("payload", [{"a": {1, 2}}, {"a": object()}, {"a": np.array([Trap()], dtype=object)}])
def test_nothing_is_left_behind_when_the_payload_cannot_be_written(tmp_path, payload):
    with pytest.raises((ValueError, TypeError)):
        write_archive(tmp_path / "x", "thing", payload)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(written, monkeypatch, step):
    before = written.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os if step == "fsync" else Path, step, fail)
        with pytest.raises(OSError, match="No space"):
            write_archive(written, "thing", {"a": 1})
    assert written.read_bytes() == before
    assert list(written.parent.iterdir()) == [written]


def test_an_existing_file_is_replaced_as_a_whole(written):
    write_archive(written, "thing", {"a": 1})
    assert read_archive(written, "thing") == {"a": 1}
    assert list(written.parent.iterdir()) == [written]


def test_a_missing_folder_and_a_missing_file_are_named(tmp_path, refuses):
    with refuses(FileError, ValueError, "nowhere"):
        write_archive(tmp_path / "nowhere" / "x", "thing", {})
    with refuses(FileError, ValueError, "no file", "nowhere.qs"):
        read_archive(tmp_path / "nowhere.qs", "thing")
    with refuses(FileError, ValueError, "no file"):
        read_archive(tmp_path, "thing")


def test_the_archive_is_an_ordinary_zip_of_plain_arrays(written):
    with zipfile.ZipFile(written) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        arrays = [np.load(io.BytesIO(archive.read(n)), allow_pickle=False) for n in names if ".npy" in n]
    assert len(arrays) == 5
    assert {"manifest.json", "payload.json"} < set(names)


def test_a_broken_compressed_stream_is_a_file_error(written, monkeypatch, refuses):
    def broken(*_):
        raise zlib.error("Error -3 while decompressing data")

    monkeypatch.setattr(zipfile.ZipFile, "read", broken)
    with refuses(FileError, ValueError, "damaged"):
        read_archive(written, "thing")


def test_files_get_the_usual_permissions_and_keep_infinite_numbers(tmp_path):
    mask = os.umask(0o022)
    try:
        write_archive(tmp_path / "file", "thing", {"x": float("inf")})
    finally:
        os.umask(mask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    assert read_archive(tmp_path / "file", "thing") == {"x": float("inf")}


def array_bytes(header, data=b""):
    """An array's file with any header."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + data


def any_header(text):
    """An array's file with any text as its header."""
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(400)


HEADER = {"descr": "<f8", "fortran_order": False, "shape": (1,)}


@pytest.mark.parametrize(
    "content",
    [
        array_bytes(HEADER | {"shape": (10**12,)}, bytes(8)),
        array_bytes(HEADER | {"shape": (10**6, 10**6, 10**6)}, bytes(8)),
        array_bytes(HEADER | {"shape": (0, 10**18)}, bytes(8)),
        array_bytes(HEADER | {"shape": (-1,)}, bytes(8)),
        array_bytes(HEADER | {"shape": (-1, -1)}, bytes(8)),
        array_bytes(HEADER | {"shape": (2,)}, bytes(8)),
        array_bytes(HEADER | {"shape": ()}, bytes(9)),
        array_bytes(HEADER | {"descr": "<U0", "shape": (10**15,)}),
        array_bytes(HEADER | {"descr": "|V0", "shape": (10**15,)}),
        array_bytes(HEADER | {"descr": "|O"}, bytes(8)),
        array_bytes(HEADER | {"descr": [("a", "|O")]}, bytes(8)),
        array_bytes(HEADER).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x03") + bytes(8),
        b"\x93NUMPY\x01\x00" + b"\xff\xff" + b"{" * 70_000,
        any_header("{'descr': '<f8', 'shape': (((50,)}"),  # a bracket that is not closed
        any_header("{'descr': '<,f8', 'fortran_order': False, 'shape': (50,)}"),  # no type
        any_header("x\n  y\n z"),
        any_header("(" * 300),
    ],
)
def test_an_array_that_its_file_cannot_hold_is_refused(written, content, refuses):
    rewritten(written, **{"0.npy": content})
    with refuses(FileError, ValueError, "thing.qs"):
        read_archive(written, "thing")


def peak_of_reading(path):
    """The most memory that Python and NumPy take while a file is read and refused, in MB."""
    tracemalloc.start()
    try:
        with pytest.raises(FileError):
            read_archive(path, "thing")
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["array", "many arrays", "one array often", "text", "lists", "manifest", "late"]
)
def test_a_small_file_does_not_fill_the_memory(tmp_path, kind):
    """Half a megabyte that would be hundreds."""
    zeros = array_bytes(HEADER | {"shape": (50_000_000 // 8,)}, bytes(50_000_000))
    manifest = {"kind": "querysmasher thing", "format": files.FORMAT}
    members = {"payload.json": b"{}", "manifest.json": json.dumps(manifest).encode()}
    if kind == "array":
        members |= {
            "payload.json": b'{"a": {"$array": "0.npy"}}',
            "0.npy": array_bytes(HEADER | {"shape": (10**7,)}, bytes(8 * 10**7)),
        }
    elif kind == "many arrays":
        members |= {f"{i}.npy": zeros for i in range(5)}
        members["payload.json"] = json.dumps([{"$array": f"{i}.npy"} for i in range(5)]).encode()
    elif kind == "one array often":  # which is then one array, and the list is no payload
        small = array_bytes(HEADER | {"shape": (10**6,)}, bytes(8 * 10**6))
        members |= {"0.npy": small, "payload.json": b"[" + b'{"$array": "0.npy"},' * 999 + b"1]"}
    elif kind == "text":
        members["payload.json"] = b'{"a": "' + b" " * 60_000_000 + b'"}'
    elif kind == "lists":
        members["payload.json"] = b"[" + b"[]," * 6_000_000 + b"1]"
    elif kind == "manifest":
        members["manifest.json"] = json.dumps({**manifest, "x": " " * 10**7}).encode()
    else:
        members |= {"0.npy": zeros, "payload.json": b'{"a": {"$lazy": "0.npy"}}'}
    path = tmp_path / "bomb"
    with path.open("w+b") as stream:
        files.write_members(stream, members)
    assert path.stat().st_size < 500_000
    assert peak_of_reading(path) < 60


@pytest.mark.slow
def test_what_compresses_too_well_is_written_without(tmp_path):
    """Every file that is written can be read."""
    payload = {"zeros": np.zeros(4_000_000), "text": " " * 9_000_000}
    write_archive(tmp_path / "x", "thing", payload)
    again = read_archive(tmp_path / "x", "thing")
    assert again["text"] == payload["text"]
    assert again["zeros"].tobytes() == payload["zeros"].tobytes()
    write_archive(tmp_path / "y", "thing", {"zeros": np.zeros(1_000_000)})
    assert (tmp_path / "y").stat().st_size < 100_000, "what is small enough is compressed"


def test_a_foreign_kind_is_not_printed_at_length(written, refuses):
    for kind, version in (
        ("x" * 10**5, files.FORMAT),
        ("querysmasher thing", "\x1b[2J"),
        (7, files.FORMAT),
        ("querysmasher thing", float(files.FORMAT)),
    ):
        rewritten(written, **{"manifest.json": json.dumps({"kind": kind, "format": version}).encode()})
        with pytest.raises(FileError) as caught:
            read_archive(written, "thing")
        assert len(str(caught.value)) < 1000
        assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", ["x.csv", "x.xlsx", "x.html", "x.PARQUET", "x.toml", "", None, 5])
def test_no_archive_gets_the_name_of_another_kind_of_file(tmp_path, name, refuses):
    path = tmp_path / name if name and isinstance(name, str) else name
    with refuses(FileError, ValueError, "path"):
        write_archive(path, "thing", {})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_json_takes_its_place_in_memory_once(tmp_path):
    """The worst there is: lists in lists, of which a file of 0.5 MB may expand to 16 MB of JSON."""
    path = tmp_path / "x"
    text = b'{"x":[' + b"[[]]," * 20_000 + b"[]]}"
    manifest = json.dumps({"kind": "querysmasher thing", "format": files.FORMAT}).encode()
    with path.open("w+b") as stream:
        files.write_members(stream, {"payload.json": text, "manifest.json": manifest})
    tracemalloc.start()
    try:
        assert len(read_archive(path, "thing")["x"]) == 20_001
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    worst = files.TEXT_ROOM + files.TEXT_RATIO * 500_000
    assert peak / len(text) * worst < 7e8  # bytes
