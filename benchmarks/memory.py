"""How much memory a process of its own took at most."""

import re
from pathlib import Path


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
