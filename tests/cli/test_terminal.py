"""Names, labels and errors are shown, and do nothing to the terminal."""

import pytest

import querysmasher as qs
from tests.cli.conftest import PEOPLE, SPEC
from tests.test_text import acts

NAME = "s\x1b]0;title\x07\x9b2J\u202e\x7f"
TOML = "s\\u001b]0;title\\u0007\\u009b2J\\u202e\\u007f"


def quiet(ran):
    """The command's output, in which nothing acts on a terminal."""
    for text in (ran.out, ran.err):
        assert not [sign for sign in text.replace("\n", "") if acts(sign)]
    return ran


@pytest.fixture
def hostile(folder):
    (folder / "release.toml").write_text(
        SPEC.replace('"sex"', f'"{TOML}"').replace('"F", "M"', f'"F", "M", "{TOML}"')
    )
    (folder / "people.csv").write_text(PEOPLE.replace("sex", NAME, 1))
    return folder


@pytest.mark.slow
def test_control_signs_in_names_are_not_printed(run, hostile):
    for arguments in (["plan"], ["plan", "--json"], ["plan", "--all", "--save", "x.plan"]):
        assert "title" in quiet(run(*arguments)).out
    for arguments in (["release"], ["release", "--json", "--out", "b", "--answers", "csv"]):
        assert "title" in quiet(run(*arguments)).out
    for arguments in (["answer", "out"], ["answer", "out", "--json"], ["answer", "b", "age >= 3"]):
        quiet(run(*arguments))
    assert "s\ufffd]0;title\ufffd" in run("plan").out
    assert qs.Release.load("out/release.qs").plan.schema.names[0] == NAME, "what is shown is all that changes"
    written = (hostile / "b" / "answers.csv").read_text() + (hostile / "b" / "summary.json").read_text()
    assert "\x1b" not in written


def test_nor_in_errors(run, hostile):
    (hostile / "people.csv").write_text("no,such\n1,2\n")
    assert "title" in quiet(run("release", code=5)).err
    assert "title" in quiet(run("release", "--json", code=5)).out
    (hostile / "release.toml").write_text(
        (hostile / "release.toml").read_text().replace("all_kway", NAME[:1] + TOML)
    )
    assert "title" in quiet(run("plan", code=2)).err
    (hostile / "release.toml").write_text(f"{NAME} = [")
    quiet(run("plan", code=2))
    quiet(run("plan", f"{NAME}.toml", code=4))
    (hostile / "release.toml").write_text(SPEC + f'[output]\nfolder = "{TOML}"\n')
    (hostile / "people.csv").write_text(PEOPLE)
    assert "title" in quiet(run("release")).out
