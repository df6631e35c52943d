"""What a first plan costs after a fresh start, as a ratio to importing numpy in the same run."""

import os
import resource
import subprocess
import sys
import tempfile

from benchmarks.report import Table

REPEATS = 7

SCHEMA = "import querysmasher as qs; s = qs.Schema.of(a=6, b=4, c=5); "
PREFIXES = "qs.all_kway(s, [1, 2], 'prefix') + qs.all_kway(s, 1, 'range')"

FIGURES = {
    "import of the library": ("import querysmasher", 1),
    "first plan, marginals": (SCHEMA + "qs.plan(qs.marginals(s, 2), qs.zCDP(0.5))", 4),
    "first plan, prefixes and ranges": (SCHEMA + f"qs.plan({PREFIXES}, qs.zCDP(0.5))", 5),
    "first plan, marginals, (ε, δ) stated": (SCHEMA + "qs.plan(qs.marginals(s, 2), qs.ApproxDP(1, 1e-6))", 6),
}
"""What runs in a fresh process, and the target of its ratio."""


def start_up(quick):
    """From an empty interpreter to a first plan."""
    repeats = 3 if quick else REPEATS
    table = Table(
        "Start-up",
        f"Processor time beyond that of an empty interpreter, the least of {repeats} fresh processes; `import"
        " numpy`, measured in the same way, is the unit. Bytecode is compiled beforehand, as by an"
        " installation.",
        ("figure", "seconds", "ours", "target"),
        "every figure is within its target",
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        empty = least_cpu("pass", environment, repeats)
        unit = least_cpu("import numpy", environment, repeats) - empty
        table.add("import numpy", f"{unit:.2f}", "1", "")
        for what, (code, limit) in FIGURES.items():
            seconds = least_cpu(code, environment, repeats) - empty
            table.add(what, f"{seconds:.2f}", f"{seconds / unit:.1f}", f"<= {limit:g}")
            table.check(seconds <= limit * unit, f"{what}: {seconds / unit:.2f}, target {limit:g}")
    return table


def least_cpu(code, environment, repeats):
    """Return the processor time of the quickest of some fresh processes, after one that writes bytecode."""
    times = []
    for _ in range(1 + repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)  # noqa: S603 - our own words
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times[1:])
