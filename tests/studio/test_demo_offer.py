"""`make demo` offers Studio to whoever is there, and waits for nobody else."""

import io

import pytest
from examples import demo

from querysmasher.demo import people_schema
from querysmasher.spec import read_spec


def test_the_plan_of_the_demo_is_a_spec(tmp_path):
    spec = read_spec(demo.write_spec(tmp_path / "release.toml"))
    assert spec.schema == people_schema()
    assert len(spec.workload.groups) == 6 + 15 + 20
    (tmp_path / "release.toml").write_text("mine")
    assert demo.write_spec(tmp_path / "release.toml").read_text() == "mine", "what is there stays"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "opens"), [("y", True), ("", False), ("n", False)])
def test_it_asks_at_a_terminal(tmp_path, monkeypatch, answer, opens):
    opened = []
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr("builtins.input", lambda _: answer)
    monkeypatch.setattr(demo, "studio", lambda spec, **options: opened.append((spec, options["browser"])))
    demo.offer(tmp_path)
    assert opened == ([(tmp_path / "release.toml", True)] if opens else [])


def test_it_does_not_wait_without_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("nobody is there"))
    demo.offer(tmp_path)
    assert list(tmp_path.iterdir()) == []
