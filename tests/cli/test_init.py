"""`init`: a file to begin with, from which all else runs as it stands."""

import pytest

import querysmasher as qs
from querysmasher.spec import read_spec, template
from tests.cli.conftest import planned_once


@pytest.mark.slow
def test_the_tour_of_the_help_runs_as_printed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run("init", "--example")
    assert ran.out.startswith("Written: release.toml, people.csv\nNext: edit release.toml")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["people.csv", "release.toml"]
    assert (tmp_path / "release.toml").read_text() == template()
    with planned_once():
        assert "Expected error" in run("plan").out
        assert "Every measurement spends the budget again" in run("release").words
    assert "age >= 18" in run("answer", "out", "age >= 18").out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "people.csv", "release.toml"]


def test_with_a_codebook(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "book.csv").write_text("attribute,kind,values\na,ordinal,0..3\nb,ordinal,0..4\n")
    ran = run("init", "sub/survey.toml", "--codebook", "sub/book.csv", "--json")
    assert ran.json == {"written": ["sub/survey.toml"]}
    assert read_spec("sub/survey.toml").schema == qs.Schema.of(a=4, b=5)
    assert 'codebook = "book.csv"' in (tmp_path / "sub" / "survey.toml").read_text()
    ran = run("init", "--codebook", "sub/book.csv")
    assert read_spec("release.toml").schema == qs.Schema.of(a=4, b=5)
    assert "querysmasher plan`" in ran.out


def test_nothing_is_overwritten_unless_forced(run, folder):
    before = (folder / "release.toml").read_text()
    run("init", code=4).fails(4, "'release.toml' already exists; --force replaces it")
    run("init", "other.toml", "--example", code=4).fails(
        4, "'people.csv' already exists; --force replaces it"
    )
    assert (folder / "release.toml").read_text() == before
    assert not (folder / "other.toml").exists()
    run("init", "--force")
    assert (folder / "release.toml").read_text() == template()


def test_mistakes(run, folder):
    ran = run("init", "x.toml", "--codebook", "people.csv", code=2)
    ran.fails(2, "codebook people.csv: expected a header with the columns attribute, kind and values")
    run("init", "x.toml", "--codebook", "none.csv", code=4)
    run("init", "none/x.toml", code=4)
    ran = run("init", "x.toml", "--codebook", "people.csv", "--example", code=2)
    assert "only one of the two" in ran.err
    assert not (folder / "x.toml").exists()
