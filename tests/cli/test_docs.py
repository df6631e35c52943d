"""The page on the command: its examples run, its specs are valid, its tables are complete."""

import pytest

from querysmasher.cli.command import ExitCode
from querysmasher.spec import read_codebook, read_spec
from querysmasher.spec.schemas import ATTRIBUTES
from querysmasher.spec.sections import SECTIONS
from querysmasher.spec.workloads import WORKLOADS
from tests.documentation.pages import DOCS, blocks, run_commands

PAGE = (DOCS / "commands.md").read_text()
QUARTERS = "month,quarter\n" + "".join(
    f"{month},Q{1 + place // 3}\n"
    for place, month in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    )
)


@pytest.mark.slow
def test_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = "".join(blocks(PAGE, "console"))
    assert len(commands.splitlines()) >= 8
    run_commands(commands)
    assert (tmp_path / "out" / "answers.parquet").is_file()
    assert (tmp_path / "published" / "answers.csv").is_file()


@pytest.mark.parametrize("text", blocks(PAGE, "toml"))
def test_every_spec_is_valid(tmp_path, text):
    (tmp_path / "codebook.csv").write_text(blocks(PAGE, "csv")[0])
    (tmp_path / "quarters.csv").write_text(QUARTERS)
    (tmp_path / "release.toml").write_text(text)
    assert len(read_spec(tmp_path / "release.toml").workload) > 0


def test_the_codebook_is_valid(tmp_path):
    (tmp_path / "codebook.csv").write_text(blocks(PAGE, "csv")[0])
    assert read_codebook(tmp_path / "codebook.csv").sizes == (2, 100, 4, 12)


def test_nothing_is_left_out():
    for code, meaning in ((code, code.meaning) for code in ExitCode):
        assert f"| {code} | {meaning} |" in PAGE
    for word in [*WORKLOADS, *ATTRIBUTES]:
        assert f"`{word}`" in PAGE
    for model in WORKLOADS.values():
        for key in model.model_fields:
            assert f"`{key}`" in PAGE
    for name, section in SECTIONS.items():
        for key in section.model_fields:
            assert f"`{key}`" in PAGE if name == "budget" else f"`{name}.{key}`" in PAGE
