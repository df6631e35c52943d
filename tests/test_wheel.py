"""The wheel runs the ten lines of the README in an environment that has its dependencies and nothing else."""

import re
import shutil
import subprocess
import sys
import venv
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest

from tests.test_metadata import PROJECT

README = (PROJECT / "README.md").read_text()


def run(*command, **options):
    return subprocess.run(  # noqa: S603 - our own words
        list(map(str, command)), capture_output=True, text=True, timeout=600, check=False, **options
    )


def built(folder):
    """Build the wheel, by the build backend if it is installed, else by pip, which downloads it."""
    ran = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=PROJECT)
    if ran.returncode:
        ran = run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, PROJECT)
    if ran.returncode:
        pytest.skip("the build backend, hatchling, is neither installed nor can be downloaded")
    (wheel,) = folder.glob("*.whl")
    return wheel


def required(distribution, found):
    """Add the distributions that one needs without extras, as far as this system needs them."""
    for line in distribution.requires or ():
        name = re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0]
        with suppress(metadata.PackageNotFoundError):  # for another system
            if "extra ==" not in line and name not in found:
                found[name] = metadata.distribution(name)
                required(found[name], found)


def install(distribution, folder):
    """Make an installed distribution available in another environment, by links to its files."""
    for part in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
        source = Path(distribution.locate_file(part))
        if source.exists() and not (folder / part).exists():
            (folder / part).symlink_to(source)


@pytest.mark.slow
def test_the_wheel_runs_the_ten_lines_without_extras(tmp_path):
    wheel = built(tmp_path)
    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    python = next((tmp_path / "empty").glob("[Bb]*/python*"))
    (packages,) = (tmp_path / "empty").glob("[Ll]ib/**/site-packages")
    shutil.unpack_archive(wheel, packages, "zip")
    (ours,) = metadata.distributions(path=[str(packages)])
    required(ours, needed := {})
    for distribution in needed.values():
        install(distribution, packages)
    (tmp_path / "README.md").write_text(README.split("## Ten lines")[1].split("\n## ")[0])
    ran = run(python, "-I", "-m", "doctest", "README.md", cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    where = run(python, "-I", "-c", "import querysmasher; print(querysmasher.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(packages)
    assert run(python, "-I", "-c", "import pandas").returncode == 1
    ran = run(python, "-I", "-m", "querysmasher", "init", "--example", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
