"""One cell of a table: a workload planned in a fresh process, with its time and peak memory."""

import json
import time
from dataclasses import asdict, dataclass
from functools import cache

from benchmarks.process import outcome, peak_gigabytes

REPEATS = 3
ENOUGH = 5.0
"""A cell is planned twice, and a third time if that took less than so many seconds; the least time counts."""


@dataclass(frozen=True)
class Cell:
    """What to plan, by names a fresh process can look up."""

    workload: str
    arguments: tuple
    tolerance: float | None = None
    solver: str = "optimal"
    fourier: bool = False
    """Also compute the error of the Fourier mechanism."""
    eigh: int = 0
    """Also time an eigendecomposition of a random symmetric matrix of this size."""


@dataclass(frozen=True)
class Result:
    """What came out: seconds of the quickest planning, and the peak memory of the process."""

    queries: int
    views: int
    rmse: float
    weighted_rmse: float
    gap: float
    build_seconds: float
    seconds: float
    cpu_seconds: float
    gigabytes: float
    fourier: float
    eigh_seconds: float


@cache
def run(cell):
    """Plan a cell in a process of its own."""
    return Result(**outcome("run", "--cell", json.dumps(asdict(cell))))


def perform(text):
    """Do what `run` asks of the fresh process: print the result as JSON."""
    import querysmasher as qs  # noqa: PLC0415 - the parent stays small
    from benchmarks import fourier, schemas  # noqa: PLC0415

    cell = Cell(**json.loads(text))
    start = time.perf_counter()
    workload = schemas.WORKLOADS[cell.workload](*cell.arguments)
    build_seconds = time.perf_counter() - start
    tolerance = cell.tolerance or schemas.tolerance(workload)
    times, cpu_times = [], []
    while len(times) < 2 or (len(times) < REPEATS and sum(times) < ENOUGH):
        start, cpu_start = time.perf_counter(), time.process_time()
        plan = qs.plan(
            workload,
            qs.PrivacyCost(1.0),
            solver=cell.solver,
            centering="uniform",
            tolerance=tolerance,
            progress=False,
        )
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
        if len(times) == 1:  # later runs still hold the plan of the one before
            gigabytes = peak_gigabytes()
    result = Result(
        queries=workload.query_count,
        views=len({g.attributes for g in workload}),
        rmse=plan.rmse if cell.workload != "weighted" else float("nan"),
        weighted_rmse=plan.weighted_rmse,
        gap=plan.gap,
        build_seconds=build_seconds,
        seconds=min(times),
        cpu_seconds=min(cpu_times),
        gigabytes=gigabytes,
        fourier=fourier.weighted_rmse(workload) if cell.fourier else float("nan"),
        eigh_seconds=_eigh_seconds(cell.eigh) if cell.eigh else float("nan"),
    )
    print(json.dumps(asdict(result)))


def _eigh_seconds(size):
    import numpy as np  # noqa: PLC0415
    import scipy.linalg  # noqa: PLC0415

    matrix = np.random.default_rng(0).standard_normal((size, size))
    matrix = matrix + matrix.T
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        scipy.linalg.eigh(matrix)
        times.append(time.perf_counter() - start)
    return min(times)
