"""What the project says of itself to installers and to those who cite it."""

import re
import tomllib
from pathlib import Path

import querysmasher as qs

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
