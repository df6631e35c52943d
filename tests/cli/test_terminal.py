"""Names, labels and errors are shown, fit the terminal, and do nothing to it."""

import pytest
from rich.cells import cell_len

import querysmasher as qs
from querysmasher import demo
from querysmasher.cli import output
from tests.builders import acts
from tests.cli.conftest import PEOPLE, SPEC

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


WIDTHS = [60, 80, 100, 200, None]
"""Columns of a terminal; a pipe has none."""


@pytest.fixture(params=WIDTHS, ids=[f"{width or 'pipe'}" for width in WIDTHS])
def width(request, monkeypatch):
    monkeypatch.setattr(output, "_width", lambda: request.param)
    return request.param


def test_the_demo_fits_the_terminal(monkeypatch, tmp_path, capsys):
    """And is as wide as its tables need in a pipe."""
    long = "words " * 40
    monkeypatch.setattr(demo, "plan_without_data", lambda console: console.print(long))
    monkeypatch.setattr(demo, "release_a_table", lambda *_: {"pages": {}})
    monkeypatch.setenv("COLUMNS", "60")
    for on_terminal, width in ((True, 60), (False, 110)):
        monkeypatch.setattr("sys.stdout.isatty", lambda on_terminal=on_terminal: on_terminal)
        demo.run_demo(tmp_path)
        first = capsys.readouterr().out.splitlines()[0]
        assert width - len("words ") < len(first) <= width


def test_a_terminal_has_a_width_and_a_pipe_has_none(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert output._width() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert output._width() == 80


def cells_of(lines, columns):
    """The cells of a framed table, each joined from its lines, and of its heading."""
    rows = [
        [cell.strip() for cell in line[1:-1].replace("┃", "│").split("│")]
        for line in lines
        if line[0] in "│┃"
    ]
    assert {len(row) for row in rows} == {columns}
    return [" ".join(filter(None, column)) for column in zip(*rows, strict=True)]


HEAD = ("group", "queries", "expected error", "largest error", "budget share", "largest error of")
ROWS = [
    ("sex (identity)", "2", "± 11.2", "± 11.2", "5.5%", "sex == 'F'"),
    (
        "age (prefix) × hour (circular)",
        "57,600",
        "± 30.6",
        "± 34.2",
        "16.8%",
        "age <= 80 and hour in 22 .. 13",
    ),
    ("収入 (prefix)", "9,999,999", "± 1,230", "± 1,230", "100.0%", "x" * 60),
]


def test_no_cell_of_a_table_is_cut_off(width, capsys):
    output.print_table(HEAD, ROWS, text=[HEAD[-1]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= (width or 1000)
    assert width is not None or len(lines) == len(ROWS) + 4, "in a pipe, every row is a line"
    if lines[0].startswith("┏"):
        found = cells_of(lines, len(HEAD))
        for place, name in enumerate(HEAD):
            whole = "".join((name, *(row[place] for row in ROWS))).replace(" ", "")
            assert found[place].replace(" ", "") == whole
        for row in ROWS:  # numbers are not broken
            assert any(all(number in line for number in row[1:5]) for line in lines)
    else:  # too narrow for a table: every row is a paragraph
        assert width == 60
        text = "".join(lines).replace(" ", "")
        for row in ROWS:
            said = zip(HEAD[1:], row[1:], strict=True)
            assert ("group:" + row[0] + "".join(name + cell for name, cell in said)).replace(" ", "") in text


def test_pairs_are_broken_and_not_cut_off(width, capsys):
    digest = "0123456789abcdef" * 8
    output.print_pairs([("Head", digest), ("A longer name than others", "words " * 40)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= (width or output.WIDTH)
    assert not any(line.endswith(" ") for line in lines)
    assert digest in "".join(
        line.split(maxsplit=1)[-1] if i == 0 else line.strip() for i, line in enumerate(lines)
    )


def test_paragraphs_are_broken_between_words(width, capsys):
    output.tell("The expected error is the root mean square of the standard errors of the queries. " * 2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= (width or 1000)
    assert len(lines) == (1 if width in (200, None) else -(-163 // width))


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_plans_and_comparisons_fit(width, run, folder):
    for command in ("plan", "compare", "check"):
        out = run(command).out
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= (width or 1000)
        if command == "plan":
            assert "largest error of" in " ".join(out.split())
            assert out.count("%") >= 8  # the share of every row
