"""Plans and releases on disk: one zip file of plain arrays and JSON, checksummed, without pickle.

A payload is nested plain data (dicts, lists, texts, numbers, None) in which NumPy arrays may stand, and
`Lazy` arrays, which are fetched one at a time when written and when read, so that files may be larger than
memory. A file appears under its name only when it is whole, and is read back only when every byte is
right: it ends with the checksum of all that stands before.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import FileError

FORMAT = 2

_DIGEST = 64
"""The length of the closing checksum, which stands in the zip's comment."""

_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    LookupError,
    ValueError,
    TypeError,
    OSError,
    EOFError,
    RuntimeError,
)
"""What reading a file that is not ours can raise."""


@dataclass(frozen=True)
class Lazy:
    """An array that is fetched when it is needed."""

    fetch: Callable[[], NDArray[Any]]


Members = dict[str, bytes | NDArray[Any] | Lazy]


def write_archive(path: str | os.PathLike[str], kind: str, payload: dict[str, Any]) -> None:
    """Write `payload` as a file of the given kind, all or nothing."""
    members: Members = {}
    plain = _take_arrays(payload, members)
    members["payload.json"] = json.dumps(plain).encode()
    members["manifest.json"] = json.dumps({"kind": f"querysmasher {kind}", "format": FORMAT}).encode()
    with replacing(path) as temporary, temporary.open("wb") as stream:
        write_members(stream, members)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`, which takes its place if all goes well and goes if not."""
    target = Path(path)
    if not target.parent.is_dir():
        msg = f"path: the folder {str(target.parent)!r} does not exist"
        raise FileError(msg)
    if target.is_dir():
        msg = f"path: {str(target)!r} is a folder"
        raise FileError(msg)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    temporary.touch(exist_ok=False)  # with the permissions that new files get here
    try:
        yield temporary
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_archive(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a file of the given kind back; refuse one that is damaged, foreign, or of a later format."""
    shown = str(path)
    if not Path(path).is_file():
        msg = f"path: there is no file {shown!r}"
        raise FileError(msg)
    try:
        _check_digest(Path(path))
        archive = zipfile.ZipFile(path)
        manifest = json.loads(archive.read("manifest.json"))
        found, version = manifest["kind"], manifest["format"]
    except _UNREADABLE:
        msg = f"{shown!r} is damaged, or no file of querysmasher"
        raise FileError(msg) from None
    if found != f"querysmasher {kind}":
        msg = f"{shown!r} holds a {found!r}, not a 'querysmasher {kind}'"
        raise FileError(msg)
    if version != FORMAT:
        msg = f"{shown!r} has format {version}; this version of querysmasher reads format {FORMAT}"
        raise FileError(msg)
    try:
        return dict(_put_arrays(json.loads(archive.read("payload.json")), archive).items())
    except (*_UNREADABLE, AttributeError):
        msg = f"{shown!r} does not hold what a file of querysmasher holds"
        raise FileError(msg) from None


def write_members(stream: IO[bytes], members: Members) -> None:
    """Write a zip file that ends with the checksum of all before it."""
    hashing = _Hashing(stream)
    with zipfile.ZipFile(cast("IO[bytes]", hashing), "w") as archive:
        for name, content in members.items():
            fetched = content.fetch() if isinstance(content, Lazy) else content
            lazy = isinstance(content, Lazy)  # large and random: not worth compressing
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_STORED if lazy else zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                if isinstance(fetched, bytes):
                    member.write(fetched)
                else:
                    np.lib.format.write_array(
                        member, np.ascontiguousarray(fetched).reshape(fetched.shape), allow_pickle=False
                    )
        archive.comment = bytes(_DIGEST)  # the checksum's place
    stream.write(hashing.digest.hexdigest().encode())


class _Hashing:
    """Passes bytes on and digests them, holding the last few back: they are the checksum's place."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.digest = hashlib.sha256()
        self._stream = stream
        self._held = b""

    def write(self, data: bytes | memoryview) -> int:
        pending = self._held + bytes(data)
        ready, self._held = pending[:-_DIGEST], pending[-_DIGEST:]
        self.digest.update(ready)
        self._stream.write(ready)
        return len(data)

    def flush(self) -> None:
        self._stream.flush()


def _check_digest(path: Path) -> None:
    """Raise ValueError unless the file ends with the checksum of all before."""
    left = path.stat().st_size - _DIGEST
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while left > 0:
            chunk = stream.read(min(left, 2**22))
            if not chunk:
                raise ValueError
            digest.update(chunk)
            left -= len(chunk)
        if digest.hexdigest().encode() != stream.read():
            raise ValueError


def _take_arrays(data: Any, members: Members) -> Any:
    """Replace every array by a reference, and make it a member."""
    if isinstance(data, np.ndarray | Lazy):
        name = f"{len(members)}.npy"
        members[name] = data
        return {"$lazy" if isinstance(data, Lazy) else "$array": name}
    if isinstance(data, dict):
        return {key: _take_arrays(value, members) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_take_arrays(value, members) for value in data]
    return data


def _put_arrays(data: Any, archive: zipfile.ZipFile) -> Any:
    if isinstance(data, dict):
        if set(data) == {"$array"}:
            return _read_array(archive, data["$array"])
        if set(data) == {"$lazy"}:
            return Lazy(partial(_read_late, archive, data["$lazy"]))
        return {key: _put_arrays(value, archive) for key, value in data.items()}
    if isinstance(data, list):
        return [_put_arrays(value, archive) for value in data]
    return data


def _read_late(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read an array of a file that was whole when it was opened."""
    try:
        return _read_array(archive, name)
    except _UNREADABLE:
        msg = f"{archive.filename!r} has changed since it was loaded"
        raise FileError(msg) from None


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
    return array
