"""The page about the code names every folder of the package, and no file that is not there."""

import re
from pathlib import Path

import querysmasher
from tests.documentation.pages import DOCS

ROOT = Path(querysmasher.__file__).parent
PAGE = (DOCS / "architecture.md").read_text()


def test_every_folder_is_named():
    folders = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")} - {"."}
    named = {folder for folder in folders if f"`{folder}/`" in PAGE}
    assert {folder for folder in folders - named if folder.count("/") == 0} == set()
    assert {folder for folder in folders - named if folder.startswith("planning/")} == set()


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    files = {path.relative_to(ROOT.parent.parent).as_posix() for path in ROOT.parent.parent.rglob("*.py")}
    assert len(named) > 10
    assert [one for one in named if not any(f"/{file}".endswith(f"/{one}") for file in files)] == []
