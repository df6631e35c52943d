"""What the project says of itself, what works without extras, sdist and wheel, in an empty environment."""

import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest

import querysmasher as qs
from querysmasher.report.charts import CHARTS, check_charts
from tests.builders import python

PROJECT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())
CITATION = (PROJECT / "CITATION.cff").read_text()


def test_the_metadata_is_complete():
    project = SETTINGS["project"]
    assert project["authors"] == [{"name": "QuerySmasher developers"}]
    assert project["requires-python"] == ">=3.11"
    classifiers = project["classifiers"]
    assert classifiers == sorted(set(classifiers), key=classifiers.index)
    for minor in (11, 12, 13):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    for kind in ("Development Status", "Operating System", "Topic", "Typing", "Intended Audience"):
        assert any(c.startswith(f"{kind} :: ") for c in classifiers)
    assert "urls" not in project  # no host has this project yet


def test_the_version_has_one_place():
    assert "version" not in SETTINGS["project"]
    assert SETTINGS["project"]["dynamic"] == ["version"]
    assert (PROJECT / SETTINGS["tool"]["hatch"]["version"]["path"]).samefile(qs.__file__)
    assert re.search(r"^version: (.*)$", CITATION, re.MULTILINE)[1] == qs.__version__


def test_the_citation_names_the_paper():
    software, _, paper = CITATION.partition("preferred-citation:\n")
    assert software.startswith("cff-version: 1.2.0\nmessage: ")
    assert 'name: "QuerySmasher developers"' in software
    assert 'title: "Accurate and Scalable Matrix Mechanisms via Divide and Conquer"' in paper
    authors = re.findall(r"given-names: (.*)\n +family-names: (.*)", paper)
    assert [" ".join(names) for names in authors] == [
        "Guanlin He",
        "Yingtai Xiao",
        "Jiamu Bai",
        "Xin Gu",
        "Zeyu Ding",
        "Wenpeng Yin",
        "Daniel Kifer",
    ]


def test_the_changelog_is_by_version():
    headings = re.findall(r"^## (\S+)", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == qs.__version__
    assert headings[-1] == "0.1.0"
    versions = [tuple(map(int, heading.split("."))) for heading in headings]
    assert versions == sorted(versions, reverse=True)


WITHOUT = """
import os, sys
sys.modules |= dict.fromkeys(["altair", "vl_convert"])  # as if they were not installed
import pyarrow as pa
import querysmasher as qs
schema = qs.Schema.of(age=4, sex=2)
workload = qs.all_kway(schema, [1, 2])
plan = qs.plan(workload, qs.zCDP(0.5))
plan.save("plan.qs")
release = qs.measure(qs.Plan.load("plan.qs"), pa.table({"age": [0, 1, 3], "sex": [0, 1, 1]}), seed=1)
release.save("release.qs")
answers = qs.Release.load("release.qs").answer()
release.write(workload, "answers.csv")
comparison = qs.compare(workload, qs.zCDP(0.5))
for shown in (schema, workload, plan, release, answers, comparison):
    assert repr(shown) and shown._repr_html_()
before = sorted(os.listdir())
attempts = {
    "plan": lambda: plan.report("plan.html"),
    "release": lambda: release.report("release.html", title="x"),
    "comparison": lambda: comparison.chart("methods.svg"),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except ImportError as error:
        assert isinstance(error, qs.QuerySmasherError)
        print(name, error)
assert sorted(os.listdir()) == before
"""


@pytest.mark.slow
def test_all_but_pages_and_pictures_works_without_charts(tmp_path):
    ran = python("-c", WITHOUT, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    said = "pages and charts need altair and vl-convert-python: pip install 'querysmasher[report]'"
    assert ran.stdout.splitlines() == [f"{name} {said}" for name in ("plan", "release", "comparison")]


def test_pages_are_refused_before_anything_is_computed(tmp_path, monkeypatch):
    plan = qs.plan(qs.all_kway(qs.Schema.of(age=3), 1), qs.zCDP(0.5))
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setattr("querysmasher.report.plan_report.error_rows", None)
    with pytest.raises(qs.MissingExtraError, match=r"need vl-convert-python: pip .*\[report\]"):
        plan.report(tmp_path / "plan.html")


def test_the_extra_installs_what_charts_need():
    project = SETTINGS["project"]

    def packages(requirements):
        return {r.partition(">")[0].partition("[")[0] for r in requirements}

    assert packages(project["optional-dependencies"]["report"]) == set(CHARTS.values())
    assert not packages(project["dependencies"]) & {*CHARTS.values(), "pandas"}
    assert "pandas" in packages(project["optional-dependencies"]["demo"])  # the tutorial's tables
    check_charts()


def test_make_installs_what_the_demo_needs_and_then_every_extra():
    extras = SETTINGS["project"]["optional-dependencies"]
    lines = [row for row in (PROJECT / "Makefile").read_text().splitlines() if "--editable" in row]
    demo, setup = (line.partition("[")[2].partition("]")[0].split(",") for line in lines)
    assert demo == ["demo"]
    assert sorted(setup) == sorted(extras)


def test_make_dist_installs_the_build_backend_only():
    rules = (PROJECT / "Makefile").read_text().split("\n\n")
    (dist,) = (rule for rule in rules if rule.startswith("dist:"))
    (installed,) = (rule for rule in rules if rule.startswith(".venv/dist:"))
    assert dist.splitlines()[0].partition("#")[0].split() == ["dist:", ".venv/dist"]
    (line,) = (line for line in installed.splitlines() if "pip install" in line)
    assert line.split("--quiet ")[1].split() == SETTINGS["build-system"]["requires"]


README = (PROJECT / "README.md").read_text()


def run(*command, **options):
    return subprocess.run(  # noqa: S603 - our own words
        list(map(str, command)), capture_output=True, text=True, timeout=600, check=False, **options
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist of the project, unpacked, and two wheels: of the project and of what the sdist holds."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("built")
    build(PROJECT, folder)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder, "gztar", filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    build(source, folder / "again", "-t", "wheel")
    (again,) = (folder / "again").glob("*.whl")
    return source, wheel, again


def build(project, folder, *options):
    """Run the build backend, without network."""
    ran = run(sys.executable, "-m", "hatchling", "build", "-d", folder, *options, cwd=project)
    assert ran.returncode == 0, ran.stderr


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
def test_the_sdist_holds_the_project_and_nothing_else(built):
    source, wheel, again = built
    held = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert {"LICENSE", "Makefile", "README.md", "docs/index.md", "tests/test_packaging.py"} <= held
    if (PROJECT / ".git").exists() and shutil.which("git"):
        listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=PROJECT)
        tracked = {path for path in listed.stdout.splitlines() if (PROJECT / path).is_file()}
        assert held == {"PKG-INFO", *(path for path in tracked if not path.startswith(".ci/"))}
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {"querysmasher/py.typed", "querysmasher/report/script.js"} <= set(one.namelist())
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }


@pytest.mark.slow
def test_the_wheel_runs_the_ten_lines_without_extras(tmp_path, built):
    _, wheel, _ = built
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
