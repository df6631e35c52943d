"""Plans and releases on disk: one zip file of plain arrays and JSON, checksummed, without pickle.

A payload is nested plain data (dicts, lists, strings, numbers, None) with NumPy arrays and `Lazy`
arrays, which are fetched one at a time when written and read, so that files may be larger than memory. A file
appears under its name only when it is complete. It ends with the checksum of everything before, and is loaded
only if the checksum is right. (`numpy.savez` bounds no sizes, has no checksum, and keeps all in memory.)

A small file cannot fill the memory: the expanded size of its members is limited, and files written here
respect the limit.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from querysmasher.endings import PAGES, TABLES, path_text, starting
from querysmasher.errors import FileError, QuerySmasherError, Remedy, as_given
from querysmasher.fields import text, whole
from querysmasher.formats import endings
from querysmasher.formatting import read_json

T = TypeVar("T")

FORMAT = 2

FOREIGN = Remedy(
    "name a file that `plan.save` or `release.save` wrote",
    "name a folder or file that `querysmasher release` or `querysmasher plan --save` wrote",
)

OTHER = {
    "plan": Remedy("qs.Plan.load reads it", "`querysmasher release --plan FILE` measures a plan"),
    "release": Remedy("qs.Release.load reads it", "`querysmasher answer FILE` queries a release"),
    "estimate": Remedy("qs.Estimate.load reads it", "name the release that it was computed from"),
}
"""What to do with files of each kind."""

_DIGEST = 64
"""Length of the final checksum, which is the comment of the zip file."""

ROOM, RATIO = 2**24, 32
"""Maximum size of all arrays read at once: ROOM bytes plus RATIO times the size of the file."""

TEXT_ROOM, TEXT_RATIO = 2**23, 16
"""The same for its JSON, which takes many times more as Python objects."""

MANIFEST_ROOM = 1000

_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,  # this and the next: in the header of an array
    SyntaxError,
    LookupError,
    ValueError,
    TypeError,
    OSError,
    EOFError,
    RuntimeError,
)
"""Errors that reading a foreign file can raise."""


@dataclass(frozen=True)
class Lazy:
    """An array that is fetched when it is needed."""

    fetch: Callable[[], NDArray[Any]]


Members = dict[str, bytes | NDArray[Any] | Lazy]


def check_archive_name(path: object) -> None:
    """Refuse a name for a plan or a release that has the ending of another kind of file."""
    name = path_text(path)
    others = (*endings(), *chain(*TABLES.values()), *PAGES, ".toml", ".pdf", ".xls")
    ending = next((e for e in others if name.lower().endswith(e)), None)
    if ending is not None:
        raise FileError(
            f"path: {name!r} has the ending of another kind of file ({ending}); plans and releases are "
            "archives, with names such as 'my.plan' or 'my.release'"
        )


def write_archive(path: str | os.PathLike[str], kind: str, payload: dict[str, Any]) -> None:
    """Write `payload` as a file of the given kind, all or nothing."""
    check_archive_name(path)
    stored = ""
    with suppress(*_UNREADABLE), zipfile.ZipFile(path) as archive:
        stored = text(json.loads(_read(archive, "manifest.json", MANIFEST_ROOM))["kind"])
    if stored.startswith("querysmasher ") and stored != f"querysmasher {kind}":
        msg = f"path: {str(path)!r} contains a {stored!r}, which a {kind} must not replace"
        raise FileError(f"{msg}; choose another name")
    members: Members = {}
    plain = _take_arrays(payload, members)
    members["payload.json"] = json.dumps(plain).encode()
    members["manifest.json"] = json.dumps({"kind": f"querysmasher {kind}", "format": FORMAT}).encode()
    with replacing(path) as temporary:
        for packed in (True, False):
            with temporary.open("w+b") as stream:
                write_members(stream, members, packed)
                stream.flush()
                os.fsync(stream.fileno())
            size = temporary.stat().st_size
            with zipfile.ZipFile(temporary) as archive:
                sizes = {name: archive.getinfo(name).file_size for name in members}
            arrays = sum(sizes[name] for name, content in members.items() if isinstance(content, np.ndarray))
            texts = max(sizes[name] for name, content in members.items() if isinstance(content, bytes))
            if arrays <= ROOM + RATIO * size and texts <= TEXT_ROOM + TEXT_RATIO * size:
                break  # within the limits for reading; otherwise it is written again, not compressed


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a temporary path beside `path`; on success it replaces `path`, on error it is deleted."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"path: the folder {str(target.parent)!r} does not exist")
    if target.is_dir():
        raise FileError(f"path: {str(target)!r} is a folder; name a file in it")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    temporary.touch(exist_ok=False)  # with the default permissions of new files
    try:
        yield temporary
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_archive(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a file of the given kind; refuse one that is damaged, foreign, or of another format."""
    if not isinstance(path, str | os.PathLike):
        raise FileError(f"path: expected the path of a {kind}, such as 'my.{kind}', got {as_given(path)}")
    shown = str(path)
    if not Path(path).is_file():
        folder = ", it is a folder" if Path(path).is_dir() else ""
        raise FileError(f"path: no file {shown!r}{folder}{starting(path)}")
    try:
        with Path(path).open("rb") as stream:
            if _checksum(stream) != stream.read():
                raise ValueError
        archive = zipfile.ZipFile(path)
        manifest = read_json(_read(archive, "manifest.json", MANIFEST_ROOM))
        stored, version = text(manifest["kind"]), whole(manifest["format"])
    except _UNREADABLE:
        raise FileError(f"{shown!r} is damaged, or not a querysmasher file", FOREIGN) from None
    if stored != f"querysmasher {kind}":
        msg = f"{shown!r} contains a {stored!r}, not a 'querysmasher {kind}'"
        raise FileError(msg, OTHER.get(stored.removeprefix("querysmasher ")))
    if version != FORMAT:
        raise FileError(f"{shown!r} has format {version}; this version of querysmasher reads format {FORMAT}")
    size = Path(path).stat().st_size
    try:
        payload = read_json(_read(archive, "payload.json", TEXT_ROOM + TEXT_RATIO * size))
        return dict(_with_arrays(payload, archive, ROOM + RATIO * size).items())
    except (*_UNREADABLE, AttributeError):
        raise FileError(f"{shown!r} does not have the content of a querysmasher file") from None


def read_value(path: str | os.PathLike[str], kind: str, rebuild: Callable[[dict[str, Any]], T]) -> T:
    """Return the value that `rebuild` makes of the content of a file; refuse the file if that fails."""
    data = read_archive(path, kind)
    try:
        return rebuild(data)
    except (QuerySmasherError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        words = str(error) if isinstance(error, QuerySmasherError) else type(error).__name__
        why = words if len(words) <= 200 else words[:197] + "..."
        raise FileError(f"{str(path)!r} does not contain a complete {kind} ({why})") from None


def write_members(stream: IO[bytes], members: Members, packed: bool = True) -> None:
    """Write a zip file that ends with the checksum of everything before it."""
    forward = SimpleNamespace(write=stream.write, flush=stream.flush)  # so that sizes follow their members
    with zipfile.ZipFile(cast("IO[bytes]", forward), "w") as archive:
        for name, content in members.items():
            fetched = content.fetch() if isinstance(content, Lazy) else content
            lazy = isinstance(content, Lazy)  # large and random, so compression would not help
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if packed and not lazy else zipfile.ZIP_STORED
            with archive.open(info, "w", force_zip64=True) as member:
                if isinstance(fetched, bytes):
                    member.write(fetched)
                else:
                    np.lib.format.write_array(
                        member, np.ascontiguousarray(fetched).reshape(fetched.shape), allow_pickle=False
                    )
        archive.comment = bytes(_DIGEST)  # reserved for the checksum
    stream.write(_checksum(stream))


def _checksum(stream: IO[bytes]) -> bytes:
    """Return the checksum of a file without its last bytes, which hold it; leave the stream before them."""
    left = stream.seek(0, os.SEEK_END) - _DIGEST
    stream.seek(0)
    digest = hashlib.sha256()
    while left > 0 and (chunk := stream.read(min(left, 2**22))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest().encode()


def _take_arrays(data: Any, members: Members) -> Any:
    """Replace every array by a reference, and add it as a member."""
    if isinstance(data, np.ndarray | Lazy):
        name = f"{len(members)}.npy"
        members[name] = data
        return {"$lazy" if isinstance(data, Lazy) else "$array": name}
    if isinstance(data, dict):
        return {key: _take_arrays(value, members) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_take_arrays(value, members) for value in data]
    return data


def _with_arrays(payload: Any, archive: zipfile.ZipFile, room: int) -> Any:
    """Return the payload with arrays in place of references, each read once, of at most `room` bytes."""
    known: dict[str, NDArray[Any]] = {}
    left = room

    def put(data: Any) -> Any:
        nonlocal left
        if isinstance(data, list):
            data[:] = map(put, data)  # in place: a large text takes its memory once
            return data
        if not isinstance(data, dict):
            return data
        if set(data) == {"$lazy"}:
            _size(archive, data["$lazy"], room)
            return Lazy(partial(_read_late, archive, data["$lazy"]))
        if set(data) != {"$array"}:
            return {key: put(value) for key, value in data.items()}
        name = data["$array"]
        if name not in known:
            left -= _size(archive, name, left)
            known[name] = _read_array(archive, name)
        return known[name]

    return put(payload)


def _size(archive: zipfile.ZipFile, name: str, room: int) -> int:
    """Return the size of a member; refuse one of more than `room` bytes."""
    size = archive.getinfo(name).file_size
    if size > room:
        raise ValueError
    return size


def _read(archive: zipfile.ZipFile, name: str, room: int) -> bytes:
    _size(archive, name, room)
    return archive.read(name)


def _read_late(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read an array of a file that was complete when it was opened."""
    try:
        return _read_array(archive, name)
    except _UNREADABLE:
        raise FileError(f"{archive.filename!r} is damaged, or has changed since it was loaded") from None


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read an array; refuse one whose header declares more numbers than there are bytes."""
    info = archive.getinfo(name)
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in _HEADERS:
            raise ValueError
        shape, by_columns, dtype = _HEADERS[version](member)
        length = info.file_size - member.tell()
        if dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0:
            raise ValueError
        if math.prod(shape) * dtype.itemsize != length:
            raise ValueError
        flat = np.frombuffer(bytearray(member.read()), dtype=dtype)
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
