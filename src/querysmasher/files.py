"""Plans and releases on disk: one zip file of plain arrays and JSON, checksummed, without pickle.

A payload is nested plain data (dicts, lists, texts, numbers, None) in which NumPy arrays may stand.
A file appears under its name only when it is whole, and is read back only when every byte is right.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.errors import FileError

FORMAT = 1


def write_archive(path: str | os.PathLike[str], kind: str, payload: dict[str, Any]) -> None:
    """Write `payload` as a file of the given kind, all or nothing."""
    target = Path(path)
    if not target.parent.is_dir():
        msg = f"path: the folder {str(target.parent)!r} does not exist"
        raise FileError(msg)
    members: dict[str, bytes] = {}
    plain = _take_arrays(payload, members)
    members["payload.json"] = json.dumps(plain, allow_nan=False).encode()
    manifest = {
        "kind": f"querysmasher {kind}",
        "format": FORMAT,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    members["manifest.json"] = json.dumps(manifest).encode()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for name, data in members.items():
                    archive.writestr(name, data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_archive(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a file of the given kind back; refuse one that is damaged, foreign, or of a later format."""
    shown = str(path)
    if not Path(path).is_file():
        msg = f"path: there is no file {shown!r}"
        raise FileError(msg)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(members.pop("manifest.json"))
        found, version, digests = manifest["kind"], manifest["format"], manifest["sha256"]
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        TypeError,
        OSError,
        EOFError,
        RuntimeError,
        NotImplementedError,
    ):
        msg = f"{shown!r} is damaged, or no file of querysmasher"
        raise FileError(msg) from None
    if found != f"querysmasher {kind}":
        msg = f"{shown!r} holds a {found!r}, not a 'querysmasher {kind}'"
        raise FileError(msg)
    if version != FORMAT:
        msg = f"{shown!r} has format {version}; this version of querysmasher reads format {FORMAT}"
        raise FileError(msg)
    if digests != {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}:
        msg = f"{shown!r} is damaged: its checksums do not match"
        raise FileError(msg)
    payload = _put_arrays(json.loads(members["payload.json"]), members)
    assert isinstance(payload, dict)  # noqa: S101 - what write_archive wrote
    return payload


def _take_arrays(data: Any, members: dict[str, bytes]) -> Any:
    """Replace every array by a reference, and store it as a member."""
    if isinstance(data, np.ndarray):
        name = f"{len(members)}.npy"
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.ascontiguousarray(data).reshape(data.shape), allow_pickle=False)
        members[name] = stream.getvalue()
        return {"$array": name}
    if isinstance(data, dict):
        return {key: _take_arrays(value, members) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_take_arrays(value, members) for value in data]
    return data


def _put_arrays(data: Any, members: dict[str, bytes]) -> Any:
    if isinstance(data, dict):
        if set(data) == {"$array"}:
            return np.lib.format.read_array(io.BytesIO(members[data["$array"]]), allow_pickle=False)
        return {key: _put_arrays(value, members) for key, value in data.items()}
    if isinstance(data, list):
        return [_put_arrays(value, members) for value in data]
    return data
