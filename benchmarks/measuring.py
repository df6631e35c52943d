"""Measuring and answering real-sized tables: ratios to plain counting, noise speed, memory, streaming."""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.process import outcome, peak_gigabytes
from benchmarks.report import Table

CASES = ("adult", "stream", "noise")


def measuring(quick):
    """Measuring, releasing and streaming."""
    table = Table(
        "Measuring",
        "One million records of 14 Adult-like attributes, all hybrid queries on up to 3 attributes, measured"
        " and answered with standard errors. The unit of time is plain `numpy.bincount` over the same 364"
        " triples in the same process. The streamed release is the mixed workload at n = 40, d = 40 on"
        " 100,000 records.",
        ("figure", "ours", "target"),
        "every figure is within its target",
    )

    def figure(what, value, form, limit):
        table.add(what, form.format(value), f"<= {limit:g}")
        table.check(value <= limit, f"{what}: {value:.4g}, target {limit:g}")

    adult = run("adult", 100_000 if quick else 1_000_000)
    for noise, limit in (("gaussian", 5), ("rounded", 25), ("discrete", 25)):
        own = adult[noise]
        ratio = (own["measure"] + own["answer"]) / adult["bincount"]
        if quick:
            table.add(f"{noise} noise: (measure + answer) / bincount", f"{ratio:.1f}", "")
            continue
        figure(f"{noise} noise: (measure + answer) / bincount", ratio, "{:.1f}", limit)
        table.add(
            f"  seconds to measure, to answer {adult['queries']:,}",
            f"{own['measure']:.1f}, {own['answer']:.1f}",
            "",
        )
    table.add("  seconds of bincount", f"{adult['bincount']:.2f}", "")
    table.add("  noisy numbers measured", f"{adult['numbers']:,}", "")
    figure("peak memory, GB", adult["gigabytes"], "{:.2f}", 3)
    for name, speed in run("noise", 1_000_000)["speeds"].items():
        table.add(f"samples per second and core: {name}", f"{speed:,.0f}", "")
    if quick:
        return table
    stream = run("stream", 100_000)
    table.add(f"streamed: {stream['answers']:,} answers, seconds", f"{stream['write']:.0f}", "")
    table.add("  seconds to plan, to measure", f"{stream['plan']:.1f}, {stream['measure']:.0f}", "")
    table.add("  bytes of Parquet", f"{stream['bytes']:,}", "")
    figure("  peak memory, GB", stream["gigabytes"], "{:.2f}", 3)
    return table


def run(case, rows):
    """Measure a case in a process of its own."""
    return outcome("measuring", case, rows)


def adult(rows):
    from itertools import combinations  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415

    import querysmasher as qs  # noqa: PLC0415
    from benchmarks.schemas import real  # noqa: PLC0415

    schema = real("adult")
    generator = np.random.default_rng(0)
    data = pd.DataFrame({a.name: generator.integers(0, a.size, rows) for a in schema})
    workload = qs.all_kway(schema, [1, 2, 3])
    plan = qs.plan(workload, qs.PrivacyCost(1.0), centering="uniform", progress=False)
    columns, sizes = [data[a.name].to_numpy() for a in schema], schema.sizes
    times = []
    for _ in range(2):
        start = time.perf_counter()
        for a, b, c in combinations(range(len(schema)), 3):
            code = (columns[a] * sizes[b] + columns[b]) * sizes[c] + columns[c]
            np.bincount(code, minlength=sizes[a] * sizes[b] * sizes[c])
        times.append(time.perf_counter() - start)
    result = {"bincount": min(times), "queries": len(workload), "numbers": plan.measurements}
    for noise in ("gaussian", "rounded", "discrete"):
        start = time.perf_counter()
        release = qs.measure(plan, data, noise=noise, progress=False)
        measured = time.perf_counter()
        answers = release.answer(workload)
        result[noise] = {"measure": measured - start, "answer": time.perf_counter() - measured}
        del release, answers
    return result


def stream(rows):
    import numpy as np  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415

    import querysmasher as qs  # noqa: PLC0415
    from benchmarks.schemas import WORKLOADS  # noqa: PLC0415

    workload = WORKLOADS["mixed"](40, 40)
    generator = np.random.default_rng(0)
    data = pd.DataFrame({a.name: generator.integers(0, a.size, rows) for a in workload.schema})
    times = [time.perf_counter()]
    plan = qs.plan(workload, qs.PrivacyCost(1.0), centering="uniform", progress=False)
    times.append(time.perf_counter())
    release = qs.measure(plan, data, noise="gaussian", progress=False)
    times.append(time.perf_counter())
    triples = qs.all_kway(workload.schema, 3, "prefix")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "answers.parquet"
        release.write(triples, path, progress=False)
        times.append(time.perf_counter())
        size = path.stat().st_size
    seconds = dict(zip(("plan", "measure", "write"), np.diff(times).tolist(), strict=True))
    return {**seconds, "answers": len(triples), "bytes": size}


def noise(size):
    from fractions import Fraction  # noqa: PLC0415

    from querysmasher.privacy.noise import (  # noqa: PLC0415
        DiscreteGaussian,
        OpenDPDiscreteGaussian,
        RoundedGaussian,
    )

    sources = {
        "rounded Gaussian": (RoundedGaussian(), size),
        "discrete Gaussian": (DiscreteGaussian(), size),
        "discrete Gaussian of OpenDP": (OpenDPDiscreteGaussian(), size // 50),
    }
    speeds = {}
    for name, (source, count) in sources.items():
        times = []
        for _ in range(3):
            start = time.perf_counter()
            source.draw(Fraction(10**12), count)
            times.append(time.perf_counter() - start)
        speeds[name] = count / min(times)
    return {"speeds": speeds}


if __name__ == "__main__":
    measured = {"adult": adult, "stream": stream, "noise": noise}[sys.argv[1]](int(sys.argv[2]))
    measured["gigabytes"] = peak_gigabytes()
    print(json.dumps(measured))
