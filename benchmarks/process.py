"""Measurements in a process of their own: how to start one, its processor time and its peak memory.

Linux counts the parent's memory as the child's until the child has loaded its program. So the parent must
stay smaller than any child: it plans nothing itself and does not even import the library.
"""

import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def outcome(module, *arguments, one_core=False):
    """Run a module of the benchmarks with these arguments, and return what it prints last, as JSON."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    environment = os.environ | (ONE_CORE if one_core else {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603 - our own module
    if done.returncode:
        msg = f"{module} {arguments} failed:\n{done.stderr}"
        raise RuntimeError(msg)
    return json.loads(done.stdout.splitlines()[-1])


def timed(work):
    """Return what work returns, and the least processor time of up to three runs."""
    times = []
    while not times or (len(times) < 3 and math.fsum(times) < 2):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return result, min(times)


def peak_gigabytes():
    """Return the peak of this process in GB.

    Where the system keeps one for each program, that is taken: the peak that `getrusage` tells begins with
    what the process held that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text(encoding="utf-8"))[1]) * 1024 / 1e9
    import resource  # noqa: PLC0415 - which not every system has

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
