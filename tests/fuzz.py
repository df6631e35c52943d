"""Property tests on cases that nobody has seen: ``python -m tests.fuzz [--minutes 10] [PATH ...]``.

Test after test, in random order and each time with a new seed, until the time is over or enough has
failed. Every failure is printed with the command that shows it again. The exit code is 1 if there is one.
"""

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLUGINS = ["-p", "hypothesispytest", "-p", "tests.profiles", "-p", "no:cacheprovider"]
PYTEST = [sys.executable, "-m", "pytest", *PLUGINS]
ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Without other plugins, which take longer to load than pytest itself."""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on (default: 10)")
    parser.add_argument("--failures", type=int, help="stop after so many failures (default: never)")
    parser.add_argument("paths", nargs="*", default=["tests"], help="where to look for property tests")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    names = property_tests(asked.paths)
    print(f"{len(names)} property tests, {asked.minutes:g} minutes", flush=True)
    runs, failures = 0, []
    queue = []
    while time.monotonic() < end and len(failures) != asked.failures:
        queue = queue or secrets.SystemRandom().sample(names, len(names))
        failure = run(queue.pop(), end)
        runs += 1
        if failure:
            failures.append(failure)
            print(f"FAILED, again with:\n  {failure}\n", flush=True)
    print(f"{runs} runs of {len(names)} tests, {len(failures)} failures")
    for failure in failures:
        print(f"  {failure}")
    return 1 if failures else 0


def property_tests(paths):
    """Return the names of all tests with Hypothesis."""
    names = set()
    for path in paths:
        # Without the project's own options: with another -q among them, pytest lists no names.
        command = [*PYTEST, "-o", "addopts=", "--collect-only", "-q", "-m", "hypothesis", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=ALONE)  # noqa: S603
        for line in done.stdout.splitlines():
            file, sign, test = line.partition("[")[0].partition("::")
            if sign:  # a file elsewhere is named as it was given
                names.add(f"{file if (ROOT / file).exists() else path}::{test}")
        if done.returncode or not names:
            sys.exit(f"no property tests found:\n{done.stdout}{done.stderr}")
    return sorted(names)


def run(name, end):
    """Run one test with a new seed until the end; return the command that repeats a failure, or None."""
    options = ["--hypothesis-profile=fuzz", f"--hypothesis-seed={secrets.randbits(32)}", "-q", name]
    left = end - time.monotonic()
    try:
        done = subprocess.run(  # noqa: S603 - our own tests
            [*PYTEST, *options],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=ALONE,
            timeout=max(1, left),
        )
    except subprocess.TimeoutExpired:  # no failure: the time is over
        return None
    if done.returncode == 0:
        return None
    print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
    return " ".join(["python", *PYTEST[1:], *options])


if __name__ == "__main__":
    sys.exit(main())
