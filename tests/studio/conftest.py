"""A real Studio in a process of its own, and a client that asks it as a browser does."""

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from urllib.parse import urlencode, urlsplit

import pytest

from tests.cli.conftest import PEOPLE, run  # noqa: F401 - a fixture
from tests.spec.files import HEAD

SPEC = f"""# Counts of our members, agreed in March.
{HEAD}
# The tables of the yearbook.

[[workload]]
kind = "all_kway"                 # all of them
k = [1, 2]

# Single counts that the press asks for.

[[workload]]
kind = "where"
predicate = ["age >= 5 and sex == 'F'"]

[budget]
epsilon = 1.0                     # decided by the board
delta = 1e-6

[data]
path = "people.csv"
"""


MANY = """
[[schema]]
name = "a"
kind = "ordinal"
range = [0, 299]

[[schema]]
name = "b"
kind = "ordinal"
range = [0, 299]

[[workload]]
kind = "all_kway"
k = [1, 2]
family = "range"

[budget]
rho = 0.5

[plan]
objective = "worst"
"""
"""What takes longer than any test waits."""


class Studio:
    """One Studio, its folder and its secret."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.errors = (folder.parent / f"{folder.name}.err").open("w+")
        command = [sys.executable, "-m", "querysmasher", "studio", "--no-browser", "--json", *options]
        self.process = subprocess.Popen(  # noqa: S603 - our own words
            command, cwd=folder, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        lines = [self.process.stdout.readline() for _ in range(3)]
        assert self.process.poll() is None, (folder.parent / f"{folder.name}.err").read_text()
        self.address = json.loads("".join(lines))["address"]
        parts = urlsplit(self.address)
        self.port, self.origin = parts.port, f"http://{parts.netloc}"
        self.cookie = self.ask("GET", f"{parts.path}?{parts.query}", cookie=None)[1]["set-cookie"].split(";")[
            0
        ]

    def ask(self, method, path, form=None, *, cookie="", host=None, origin="", body=None, **headers):
        """Return the status, the headers and the text of an answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            connection.putrequest(method, path, skip_host=True)
            given = {"Host": f"127.0.0.1:{self.port}" if host is None else host}
            if cookie is not None:
                given["Cookie"] = cookie or self.cookie
            if method != "GET":
                body = urlencode(form or {}, doseq=True).encode() if body is None else body
                given |= {
                    "Content-Type": "application/x-www-form-urlencoded",
                    "Content-Length": str(len(body)),
                }
                if origin is not None:
                    given["Origin"] = origin or self.origin
            more = {name.replace("_", "-"): value for name, value in headers.items()}
            for name, value in (given | more).items():
                for each in value if isinstance(value, list) else [value]:
                    if each is not None:
                        connection.putheader(name, each)
            connection.endheaders(body if method != "GET" else None)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()

    def get(self, path):
        """Return the text of a page."""
        status, headers, text = self.ask("GET", path)
        if status == 303:
            return self.get(headers["location"])
        assert status == 200, (status, text)
        return text

    def post(self, path, status=303, **form):
        """Send a form, and return the page that answers."""
        found, _, text = self.ask("POST", path, form)
        assert found == status, (found, text)
        return text

    def drop(self, page, place, status=303):
        """Press the button of a page that removes what is at a place of the spec."""
        value = re.search(rf'name="drop" value="({re.escape(place)}@\w+)"', self.get(page))[1]
        return self.post(f"/set?back={page}", status, drop=value)

    def planned(self, path="/figures"):
        """Return the panel once its figures are those of the current setting."""
        deadline = time.monotonic() + 120
        while True:
            text = self.get(path)
            if 'aria-busy="true"' not in text:
                return text
            assert time.monotonic() < deadline, text
            time.sleep(0.05)

    @property
    def spec(self):
        return (self.folder / "release.toml").read_text()

    def close(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.errors.close()


def error_of(panel):
    """The mean error that a panel shows."""
    return float(re.search(r"Expected error</dt><dd>± ([\d.,]+)", panel)[1].replace(",", ""))


def make_folder(folder, spec=SPEC):
    folder.mkdir()
    (folder / "release.toml").write_text(spec)
    (folder / "people.csv").write_text(PEOPLE)
    return folder


@pytest.fixture
def opened(tmp_path):
    """Opens a Studio on a spec, or without one, and closes it at the end."""
    open_ones = []

    def open_one(spec=SPEC, *options, name="work"):
        folder = tmp_path / name
        if not folder.exists():
            make_folder(folder, spec or "")
            if spec is None:
                (folder / "release.toml").unlink()
        open_ones.append(Studio(folder, *options))
        return open_ones[-1]

    yield open_one
    for studio in open_ones:
        studio.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """One Studio for all tests of a file that leave its spec valid."""
    one = Studio(make_folder(tmp_path_factory.mktemp("studio") / "work"))
    yield one
    one.close()


@pytest.fixture
def fresh(studio):
    """That one Studio, in a folder that looks as at the start: a new process takes seconds."""
    for path in studio.folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != ".querysmasher-studio.lock":
            path.unlink()
    (studio.folder / "release.toml").write_text(SPEC)
    (studio.folder / "people.csv").write_text(PEOPLE)
    studio.get("/decide")
    return studio
