"""Progress bars: for people at a terminal, and without a number where the number is a secret."""

import io

import pytest
from rich.console import Console

from querysmasher.progress import Bar


@pytest.fixture
def terminal(monkeypatch):
    """Draws bars into a recording."""
    console = Console(force_terminal=True, record=True, width=100, file=io.StringIO())
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    return console.export_text


def test_steps_and_notes_are_shown(terminal):
    with Bar("Solving", 7, shown=True) as bar:
        bar.advance(3)
        bar.note("certified gap 1.0e-03")
    text = terminal()
    assert "Solving" in text
    assert "3/7" in text
    assert "certified gap 1.0e-03" in text


def test_steps_that_must_not_be_seen_are_not(terminal):
    with Bar("Counting", None, shown=True) as bar:
        bar.advance(41)
    text = terminal()
    assert "Counting" in text
    assert "41" not in text


def test_nothing_is_drawn_without_a_terminal(capsys):
    with Bar("Solving", 7) as bar:
        bar.advance()
        bar.note("x")
    assert capsys.readouterr() == ("", "")


def test_the_certified_gap_of_blocks_is_told(monkeypatch, limit_planning):
    import querysmasher as qs

    notes = []
    monkeypatch.setattr(Bar, "note", lambda self, text: notes.append(text))
    limit_planning(light_cells=4)
    schema = qs.Schema.of(a=6, b=7, c=8)
    qs.plan(qs.all_kway(schema, 1, "prefix"), qs.PrivacyCost(1), centering="uniform")
    assert len(notes) >= 3
    assert all(note.startswith("certified gap ") for note in notes)
    notes.clear()
    qs.plan(qs.all_kway(qs.Schema.of(a=9), 1, "prefix"), qs.PrivacyCost(1), centering="uniform")
    assert notes
