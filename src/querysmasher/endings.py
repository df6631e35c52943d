"""File name endings, which state the kind of a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from querysmasher.errors import FileError, as_given

TABLES = {"CSV": (".csv", ".csv.gz", ".tsv", ".tsv.gz"), "Parquet": (".parquet", ".pq")}
"""Endings of files of records, by their kind."""

PAGES = (".html", ".htm")
"""Endings of pages."""


def starting(path: object) -> str:
    """Return where a relative path starts, for a message about a file that is not there."""
    return "" if Path(str(path)).is_absolute() else f"; relative paths start at {str(Path.cwd())!r}"


def check_ending(path: object, endings: Sequence[str]) -> str:
    """Return the ending of the name of a file to write; refuse one that is not in `endings`."""
    name = path_text(path)
    ending = next((e for e in endings if name.lower().endswith(e)), None)
    if ending is None:
        raise FileError(f"path: expected a name that ends in {' or '.join(endings)}, got {as_given(name)}")
    return ending


def path_text(path: object) -> str:
    """Return a path as a string; refuse what is not a path."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise FileError(f"path: expected the path of a file to write, got {as_given(path)}")
    return os.fsdecode(path)
