"""A folder with a small spec and a table, and a way to run commands in it."""

import json
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from querysmasher.cli.app import app
from querysmasher.spec.spec import Spec
from tests.spec.files import AGE, SEX, SMALL

PEOPLE = "sex,age,hour,income\n" + "".join(
    f"{'FM'[i % 2]},{i % 10},{6 * (i % 4)},{(i * 7) % 25}\n" for i in range(200)
)
SPEC = SMALL + '[data]\npath = "people.csv"\n'


FULL = OSError(28, "No space left on device")
SPENT = "The table was measured, and the budget is spent. The release is kept in "


def fail(error):
    """A function that raises an error, whatever it is called with."""

    def failing(*arguments, **options):
        raise error

    return failing


def draft_of(folder, name="out"):
    """The one draft there is."""
    (draft,) = folder.glob(f"{name}.unfinished-*")
    return draft


def names(folder):
    """The names of what is in a folder, in order."""
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder we are in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "release.toml").write_text(SPEC)
    (tmp_path / "people.csv").write_text(PEOPLE)
    return tmp_path


@pytest.fixture(scope="session")
def processes():
    """Starts commands in processes of their own."""
    pytest.importorskip("resource")  # which stands for forks, too
    from tests.cli.processes import Processes

    opened = Processes()
    yield opened
    opened.close()


PLANNED = {}
"""Plans by the text of their spec."""


@contextmanager
def planned_once():
    """Plan each spec once, however many commands ask for it: planning the example takes seconds."""
    anew = Spec.plan

    def plan(self, progress=None):
        key = self.path.read_text(), self.workload, self.budget
        if key not in PLANNED:
            PLANNED[key] = anew(self, progress)
        return PLANNED[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spec, "plan", plan)
        yield


class Ran:
    """What a command did."""

    def __init__(self, result):
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr
        assert "Traceback" not in self.out + self.err
        assert result.exception is None or isinstance(result.exception, SystemExit)

    @property
    def words(self):
        """The output with its spaces and frames made one space each."""
        return " ".join(self.out.replace("│", " ").split())

    @property
    def json(self):
        return json.loads(self.out)

    def fails(self, code, message):
        """Ends with this code, and says just this on standard error."""
        assert (self.code, self.err) == (code, f"error: {message}\n")
        assert self.out == ""


@pytest.fixture
def run():
    """Runs a command, which must end well unless another code is given."""

    def run(*arguments, code=0):
        ran = Ran(CliRunner().invoke(app, [str(a) for a in arguments]))
        assert ran.code == code, ran.err
        return ran

    return run


EXPLORED = f"""{SEX}{AGE}
[[schema]]
name = "hour"
kind = "ordinal"
values = [0, 6, 12, 18]

[[workload]]
kind = "marginals"
k = [2, 3]

[budget]
epsilon = 2.0
delta = 1e-6
{{budget}}
[data]
path = "people.csv"
{{more}}
"""
