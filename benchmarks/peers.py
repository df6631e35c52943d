"""AIM and MST of private-pgm beside estimates, where a user supplies an environment that has them.

The environment variable QUERYSMASHER_PGM names the interpreter of an environment with `mbi`, and
QUERYSMASHER_PGM_MECHANISMS the folder `mechanisms` of the repository of private-pgm. Without them the section
states what was measured before. AIM takes from minutes to hours.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.estimates import DELTA, SEEDS, _counts, _error, _shown, _tables
from benchmarks.report import Table, console

INTERPRETER, MECHANISMS = "QUERYSMASHER_PGM", "QUERYSMASHER_PGM_MECHANISMS"
EPSILON = 1.0
NAMES = {"mst": "MST", "aim": "AIM"}

MEASURED = {
    ("mortgages (causaldata)", "mst"): (0.0519, 138.0, 37),
    ("health insurance (statsmodels)", "mst"): (0.156, 16.8, 84),
    ("adult32", "mst"): (0.238, 29.7, 193),
    ("health insurance (statsmodels)", "aim"): (0.121, 9.52, 694),
}
"""By table and mechanism: errors and processor seconds that were measured once, with the default settings."""

WHEN = "November 2026, mbi 1.0.0 with jax 0.6.2, one thread"
"""When, and with which versions."""

UNFINISHED = (
    "AIM was stopped unfinished on mortgages, after 12 minutes of processor time, and on adult32, after 4."
)


def peers(quick):
    """Compare estimates with AIM and MST."""
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    given = os.environ.get(INTERPRETER), os.environ.get(MECHANISMS)
    how = (
        "They ran in an environment of their own, one seed, with their default settings."
        if all(given)
        else f"Their figures were measured once, one seed, with their default settings ({WHEN}). {UNFINISHED}"
    )
    table = Table(
        "Beside AIM and MST",
        f"All 3-way tables at ε = {EPSILON:g}, δ = 1e-9: ‖error‖₁/N and root mean square error per cell, as "
        "above. AIM and MST are the public code of private-pgm; their tables are those of their synthetic "
        f"records. {how} *ours* are the mean of {SEEDS} seeds of `explore`. Empty cells were not measured. "
        "SWIFT of google/dpsynth was not measured: its README calls it an unpublished mechanism, and we know "
        "of no figures.",
        ("table", "ours", "AIM", "seconds", "MST", "seconds"),
        "`explore` is closer than what was measured of either",
    )
    for name, load in _tables().items():
        frame = load()
        schema = qs.Schema.of({column: int(frame[column].max()) + 1 for column in frame})
        workload = qs.marginals(schema, 3)
        truth = _counts(schema, workload, frame)
        budget = qs.ApproxDP(EPSILON, DELTA)
        found = [qs.explore(workload, frame, budget, seed=seed).estimate() for seed in range(SEEDS)]
        errors = [_error(workload, one.answer().values, truth, len(frame)) for one in found]
        ours = np.mean(errors, axis=0).tolist()
        cells = []
        for peer in ("aim", "mst"):
            theirs = MEASURED.get((name, peer))
            if all(given) and not quick:
                values, seconds = _run(*given, peer, frame, schema)
                theirs = (*_error(workload, values, truth, len(frame)), seconds)
            console.log(f"{name}: {ours} beside {NAMES[peer]} {theirs}", highlight=False)
            cells += ["", ""] if theirs is None else [_shown(theirs[:2]), f"{theirs[2]:,.0f} s"]
            if theirs is not None:
                table.check(ours[0] <= theirs[0], f"{name}: {ours[0]:.3g}, {NAMES[peer]} {theirs[0]:.3g}")
        table.add(name, _shown(ours), *cells)
    return table


def _run(interpreter, mechanisms, peer, frame, schema):
    """Return the counts of all 3-way tables, and the processor seconds that the mechanism took."""
    with tempfile.TemporaryDirectory() as folder:
        table, sizes, answers = (Path(folder, name) for name in ("table.csv", "sizes.json", "answers.npy"))
        frame.to_csv(table, index=False)
        sizes.write_text(json.dumps(dict(zip(schema.names, schema.sizes, strict=True))))
        script = Path(__file__).with_name("private_pgm.py")
        command = [interpreter, script, mechanisms, peer, table, sizes, EPSILON, DELTA, 3, 0, answers]
        done = subprocess.run(  # noqa: S603 - the user's own interpreter
            [str(part) for part in command], check=True, capture_output=True, text=True
        )
        _, seconds = json.loads(done.stdout.splitlines()[-1])
        return np.load(answers), seconds
