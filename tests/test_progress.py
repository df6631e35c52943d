"""Progress bars: for people at a terminal, and without a number where the number is a secret."""

import io

import pytest
from rich.console import Console

import querysmasher as qs
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


def test_a_bar_inside_another_is_a_stage_of_it(terminal):
    with Bar("Planning", None, shown=True):
        with Bar("Choosing centres", None, shown=None):
            pass
        with Bar("Solving", 7, shown=True) as stage:
            stage.advance(3)
            stage.note("certified gap 1.0e-03")
        with Bar("Hidden", 2, shown=False) as hidden:
            hidden.advance()
    text = terminal()
    assert "Planning" in text
    assert "solving 3/7 certified gap 1.0e-03" in text
    assert "Hidden" not in text.title(), "a bar that is not wanted stays away from the outer one, too"
    with Bar("Counting", None, shown=True):
        pass
    assert "Counting" in terminal(), "after the outer bar, others are shown again"


@pytest.mark.slow
def test_a_plan_has_one_bar(monkeypatch):
    """However many stages it has: centres, blocks, queries that are measured as they are."""
    shown = []
    monkeypatch.setattr(
        "rich.progress.Progress.start", lambda bar: shown.append([task.description for task in bar.tasks])
    )
    workload = qs.all_kway(qs.Schema.of(a=8, b=6, c=5), [1, 2], "prefix")
    qs.plan(workload, qs.PrivacyCost(1), progress=True)
    assert shown == [["Planning"]]
    shown.clear()
    qs.least_budget(qs.all_kway(qs.Schema.of(a=3, b=2), 1).within(10), progress=True)
    assert shown == [["Planning"]]
