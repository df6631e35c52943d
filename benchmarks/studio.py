"""Studio by the clock: from a change in the browser to new certified errors, through the server itself."""

import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from benchmarks.process import ONE_CORE, outcome
from benchmarks.report import Table

SOON = 0.2
"""Seconds until new errors are shown, for plans that take less."""
RESTING = 150
"""Most MiB of all processes at rest."""
ROWS = {
    "the example": "example",
    "Adult, ≤ 3-way": "adult",
    "100 attributes, ≤ 2-way": "hundred",
    "tree of 8,000 tracts × sex × age": "census",
}


def studio(quick):
    """Time four kinds of changes, and weigh what rests."""
    repeats = 3 if quick else 8
    table = Table(
        "Studio",
        f"From a change to new errors on the page, {repeats} times each, through the HTTP server, as a "
        "browser asks it, by the clock. Every setting is one that Studio has not seen before; only "
        "a moved budget needs no new plan. *plan itself*: `spec.plan()` of the last setting, by the clock, "
        "in a process that has planned it before; Studio solves blocks once that a change leaves alike, so "
        "that it may take less. *its errors*: the expected and largest errors of every group, from the plan. "
        "What remains is for reading and saving the file, and for the page. "
        "*processor*: seconds that all of Studio's processes take. "
        f"The load of the machine was {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores. "
        "One BLAS thread.",
        ("workload", "change", "plan itself", "its errors", "median", "95%", "processor"),
        "new errors are shown within 0.2 s where plan and errors take less, median; 150 MiB at rest",
    )
    for name, kind in list(ROWS.items())[: 2 if quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            write(kind, Path(folder))
            with closing(Server(Path(folder))) as server:
                server.errors()
                if kind == "example":
                    resting = server.megabytes()
                for change, form in CHANGES.items():
                    server.timed(*form(kind, 0))
                    times = [server.timed(*form(kind, n)) for n in range(1, repeats + 1)]
                    clock, spent = zip(*times, strict=True)
                    plan, errors = outcome("studio", folder, one_core=True)["seconds"]
                    usual, processor = statistics.median(clock), statistics.median(spent)
                    late = statistics.quantiles(clock, n=20, method="inclusive")[-1]
                    table.add(name, change, *(f"{s:.3f}" for s in (plan, errors, usual, late, processor)))
                    if plan + errors < SOON or change == "budget":
                        table.check(usual <= SOON, f"{name}, {change}: {usual:.2f} s, target {SOON} s")
    table.add("memory at rest, MiB", "", "", "", f"{resting:.0f}", "", "")
    table.check(resting <= RESTING, f"{resting:.0f} MiB at rest, target {RESTING}")
    return table


FAMILIES = {
    "example": ("age", "hour"),
    "adult": ("n0", "n1"),
    "hundred": ("a0", "a1"),
    "census": ("sex", "age"),
}
"""The attributes whose families change, in every row."""


def families(kind, number):
    """Return a form that no other number returns."""
    words = itertools.product(("identity", "prefix", "range"), repeat=2)
    chosen = next(itertools.islice(words, number, None))
    return dict(zip((f"family:{name}" for name in FAMILIES[kind]), chosen, strict=True))


CHANGES = {
    "budget": lambda _, number: ("/slide?back=/decide", {"position": 90 + number}),
    "weight": lambda _, number: ("/set?back=/decide", {"n:workload[0].weight": 1.5 + number / 8}),
    "family": lambda kind, number: ("/family?back=/decide", families(kind, number)),
    "target": lambda _, number: ("/set?back=/decide", {"n:workload[0].target": 9_000 + number}),
}
"""The forms of the changes that are timed."""


class Server:
    """One Studio in a process of its own, and a client."""

    def __init__(self, folder):
        command = [sys.executable, "-m", "querysmasher", "studio", "--no-browser", "--json"]
        self.process = subprocess.Popen(  # noqa: S603 - our own words
            command, cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ | ONE_CORE
        )
        address = json.loads("".join(self.process.stdout.readline() for _ in range(3)))["address"]
        self.place = urlsplit(address)
        self.cookie = ""
        self.cookie = (
            self.ask("GET", f"{self.place.path}?{self.place.query}")[0].getheader("set-cookie").split(";")[0]
        )

    def ask(self, method, path, **form):
        """Return an answer and its text."""
        with closing(HTTPConnection(self.place.hostname, self.place.port, timeout=600)) as connection:
            about = {
                "Cookie": self.cookie,
                "Origin": f"http://{self.place.netloc}",
                "Content-Type": "application/x-www-form-urlencoded",
            }
            connection.request(method, path, urlencode(form) if method == "POST" else None, about)
            answer = connection.getresponse()
            return answer, answer.read().decode()

    def errors(self, path="/decide"):
        """Return the page with the errors, once they are known."""
        text = self.ask("GET", path)[1]
        while 'aria-busy="true"' in text:
            text = self.ask("GET", "/figures?wait=yes")[1] or text  # nothing is new
        assert "Expected error" in text, text[:2000]
        assert 'class="stale"' not in text
        return text

    def timed(self, path, form):
        """Return the seconds of a change by the clock, and those of the processor."""
        before, start = self.seconds(), time.perf_counter()
        answer, text = self.ask("POST", path, **form)
        assert answer.status == 303, text
        self.errors(answer.getheader("location"))
        return time.perf_counter() - start, self.seconds() - before

    def processes(self):
        """Return the numbers of the server and of all that it has started."""
        found = [self.process.pid]
        for number in found:
            for tasks in Path(f"/proc/{number}/task").glob("*/children"):
                found += map(int, tasks.read_text().split())
        return found

    def seconds(self):
        """Return what the processes have taken of the processor."""
        ticks = 0
        for number in self.processes():
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def megabytes(self):
        """Return the memory of the processes at rest, in MiB: what they share is divided among them."""
        deadline = time.monotonic() + 150
        while (
            len(self.processes()) > 3 and time.monotonic() < deadline
        ):  # until those that planned have ended
            time.sleep(1)
        texts = [Path(f"/proc/{number}/smaps_rollup").read_text() for number in self.processes()]
        return sum(int(re.search(r"Pss:\s*(\d+)", text)[1]) for text in texts) / 1024

    def close(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        self.process.stdout.close()


# --- specs ---


def write(kind, folder):
    """Write the spec of a row."""
    from querysmasher.spec import template  # noqa: PLC0415 - the parent of cells stays small

    text = (
        template()
        if kind == "example"
        else "\n".join([*SPECS[kind](folder), "[budget]\nepsilon = 1.0\ndelta = 1e-6\n"])
    )
    (folder / "release.toml").write_text(text, encoding="utf-8")


def attribute(name, size, kind="categorical"):
    return f'[[schema]]\nname = "{name}"\nkind = "{kind}"\nrange = [0, {size - 1}]\n'


def adult(_):
    from benchmarks.schemas import REAL  # noqa: PLC0415

    words, numbers = REAL["adult"]
    yield from (attribute(f"w{i}", size) for i, size in enumerate(words))
    yield from (attribute(f"n{i}", size, "ordinal") for i, size in enumerate(numbers))
    yield '[[workload]]\nkind = "all_kway"\nk = [1, 2, 3]\n'


def hundred(_):
    yield from (attribute(f"a{i}", 2 + i % 9) for i in range(100))
    yield '[[workload]]\nkind = "all_kway"\nk = [1, 2]\n'


def census(folder):
    codes = [
        f"{state:02}{county:03}{tract:04}"
        for state in range(50)
        for county in range(16)
        for tract in range(10)
    ]
    values = ";".join(codes)
    (folder / "codebook.csv").write_text(
        f"attribute,kind,values,type\ntract,categorical,{values},text\nsex,categorical,F;M,\nage,ordinal,0..17,\n"
    )
    yield 'codebook = "codebook.csv"\n'
    yield '[[workload]]\nkind = "all_kway"\nk = [1, 2, 3]\n'
    yield 'family = {tract = {hierarchy = [2, 5]}, age = "identity"}\n'


SPECS = {"adult": adult, "hundred": hundred, "census": census}


def alone(folder):
    """Return the seconds of a plan, and of its errors, in a process that has planned before."""
    from querysmasher.cli.specs import Expectations  # noqa: PLC0415
    from querysmasher.spec import read_spec  # noqa: PLC0415

    times = []
    for _ in range(4):
        spec = read_spec(Path(folder) / "release.toml")
        start = time.perf_counter()
        planned = spec.plan()
        middle = time.perf_counter()
        assert planned.worst_std is not None  # first: what it finds serves the rows
        assert Expectations(planned, spec).rows(every=False)
        times.append((middle - start, time.perf_counter() - middle))
    return {"seconds": [statistics.median(each) for each in zip(*times[1:], strict=True)]}


if __name__ == "__main__":
    print(json.dumps(alone(sys.argv[1])))
