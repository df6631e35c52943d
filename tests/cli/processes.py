"""Real processes of the command that start at once: forks of one process that has loaded the library.

`python -m tests.cli.processes` is that process. It reads line by line what to start and whom to wait for.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADED = (
    "duckdb",
    "narwhals._arrow.dataframe",
    "pandas",
    "pyarrow.csv",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "querysmasher.cli.app",
    "querysmasher.cli.custody",
    "querysmasher.cli.releasing",
    "querysmasher.cli.reviewing",
    "querysmasher.estimate.estimate_files",
    "querysmasher.exploring.explore",
    "querysmasher.measuring",
    "querysmasher.release.verify",
    "querysmasher.spec",
    "rich.console",
    "rich.table",
    "scipy.linalg",
    "scipy.sparse.linalg",
    "scipy.special",
)
"""What commands load, which takes two seconds."""
PATIENCE = 120.0
"""Seconds to wait for a process, for machines with much else to do."""


class Processes:
    """Starts commands, each in a process of its own."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.processes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._streams = tempfile.TemporaryDirectory()

    def ask(self, **asked):
        print(json.dumps(asked), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def start(self, folder, *arguments, stage="", marker="", limit=None, powerless=False, **environment):
        """Start the command in a folder.

        At a stage, as "module:name", it leaves a marker and waits; it writes files up to a limit only.
        Without its powers, root may write only what the permissions of a file allow.
        """
        streams = [str(Path(tempfile.mkdtemp(dir=self._streams.name)) / name) for name in ("out", "err")]
        asked = {"folder": str(folder), "arguments": [str(a) for a in arguments], "streams": streams}
        stop = {
            "stage": stage,
            "marker": str(marker),
            "limit": limit,
            "powerless": powerless,
            "environment": environment,
        }
        return Command(self, self.ask(**asked, **stop), [Path(stream) for stream in streams])

    def close(self):
        self._server.communicate()
        self._streams.cleanup()


class Command:
    """A command in a process, with the methods of `subprocess.Popen`."""

    def __init__(self, processes, number, streams):
        self._processes, self._number, self._streams = processes, number, streams
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            self.returncode = self._processes.ask(ended=self._number)
        return self.returncode

    def communicate(self, timeout=PATIENCE):
        """Wait for the end, and return what was written to standard output and standard error."""
        end = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert self.returncode is not None, "the process did not end"
        out, err = (stream.read_text() for stream in self._streams)
        return out, err

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self._number, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait_for(self, marker):
        """Wait until a file is there."""
        end = time.monotonic() + PATIENCE
        while not marker.exists() and self.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        assert marker.exists(), self._streams[1].read_text()


def wait_at(stage, marker):
    """Put a function that leaves a marker and waits in the place of another."""
    module, _, path = stage.partition(":")
    holder = importlib.import_module(module)
    *way, name = path.split(".")
    for step in way:
        holder = getattr(holder, step)

    def waiting(*arguments, **options):
        Path(marker).touch()
        time.sleep(60)

    setattr(holder, name, waiting)


def become(folder, arguments, streams, stage, marker, limit, powerless, environment):
    """Run the command in this process."""
    os.chdir(folder)
    os.environ.update(environment)
    tempfile.tempdir = None  # which may have been found before
    for number, path in enumerate([os.devnull, *streams]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if powerless and os.geteuid() == 0:
        header, powers = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(header, powers) == 0
    if stage:
        wait_at(stage, marker)
    sys.argv = ["querysmasher", *arguments]
    from querysmasher.__main__ import main

    main()


def serve():
    """Start and watch processes as asked; each of them leaves here and ends by itself."""
    for module in LOADED:
        importlib.import_module(module)
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            number, status = os.waitpid(asked["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if number else None
        else:
            answer = os.fork()
            if answer == 0:
                become(**asked)
                return
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve()
