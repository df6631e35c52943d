"""The layout in the documentation names every file of the package."""

import re
from pathlib import Path

import querysmasher
from tests.documentation.pages import DOCS

ROOT = Path(querysmasher.__file__).parent
COVERED = {"planning/solvers/"}
"""Folders whose files have one purpose, which the layout states for all of them."""


def layout():
    """Return the lines of the layout by folder: the top one is called ''."""
    page = (DOCS / "architecture.md").read_text()
    (text,) = re.findall(r"^```\nsrc/querysmasher/\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    folders, folder = {"": ""}, ""
    for line in text.splitlines():
        name = line.split()[0]
        if not line.startswith("    "):
            folder = name if name.endswith("/") else ""
        folders[folder] = folders.get(folder, "") + re.sub(r"\{([^}]*)\}", "{}", line) + "\n"
        for stem, choices, tail in re.findall(r"(\w+)\{([\w,]+)\}(\.py)", line):
            folders[folder] += " ".join(stem + choice + tail for choice in choices.split(",")) + "\n"
    return folders


def unnamed(files):
    folders = layout()
    for file in files:
        if any(file.startswith(folder) for folder in COVERED):
            continue
        folder = next((f for f in folders if f and file.startswith(f)), "")
        if not re.search(rf"(?<![\w.]){re.escape(file.rpartition('/')[2])}(?![\w])", folders[folder]):
            yield file


def test_every_file_is_named():
    files = [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py")]
    assert len(files) > 100
    assert [f for f in unnamed(files) if not f.endswith("/__init__.py")] == []


def test_a_missing_file_is_found():
    assert list(unnamed(["cli/unheard_of.py", "planning/heard.py", "unheard_of.py", "demo.py"])) == [
        "cli/unheard_of.py",
        "planning/heard.py",
        "unheard_of.py",
    ]
