"""What the name of a file ends in tells what is in it, also of the files written here."""

from __future__ import annotations

import os
from collections.abc import Sequence

from querysmasher.errors import FileError

FOREIGN_ENDINGS = (".csv", ".tsv", ".parquet", ".pq", ".xlsx", ".xls", ".html", ".htm", ".pdf", ".toml")
"""Names that end like this promise another kind of file than an archive."""


def check_ending(path: object, endings: Sequence[str]) -> str:
    """Return what the name of a file to be written ends in, which must be one of `endings`."""
    name = _as_text(path)
    ending = next((e for e in endings if name.lower().endswith(e)), None)
    if ending is None:
        msg = f"path: expected a name that ends in {' or '.join(endings)}, got {name!r}"
        raise FileError(msg)
    return ending


def check_archive_name(path: object) -> None:
    """Refuse to keep a plan or a release under a name that promises another kind of file."""
    name = _as_text(path)
    ending = next((e for e in FOREIGN_ENDINGS if name.lower().endswith(e)), None)
    if ending is not None:
        msg = (
            f"path: {name!r} is a name of another kind of file ({ending}); plans and releases are archives "
            "of their own kind, with a name such as 'my.plan' or 'my.release'"
        )
        raise FileError(msg)


def _as_text(path: object) -> str:
    """Return a path as text, or refuse what is none."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        msg = f"path: expected the path of a file to write, got {path!r}"
        raise FileError(msg)
    return os.fsdecode(path)
