"""Counting a Spark frame beside the same table in Arrow, in one process and in turns."""

import json
import os
import shutil
import sys
import time
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

from benchmarks.process import outcome
from benchmarks.report import Table

SIZES = (42, 16, 15, 9, 7, 6, 5, 2, 2, 100, 100, 100, 99, 85)
TURNS = 3
LIMIT = 2.5
FRAMES = {
    "parquet": "a Parquet file that Spark reads",
    "rows": "rows sent by the driver, 10,000 per partition",
}


def spark(quick):
    """Spark beside Arrow."""
    rows = 200_000 if quick else 5_000_000
    table = Table(
        "Spark",
        f"{rows:,} records of 14 Adult-like attributes, all tables of up to 3 attributes counted, before any"
        " noise: in a local Spark of two threads, and on one core from the same table in Arrow. One process"
        " takes turns, after a small table to warm up: Arrow, Spark, Arrow. The ratio is Spark's time over"
        f" the mean of those beside it, the median of {TURNS} turns. *Passing* is how long Spark takes to go"
        " through the rows and does nothing with them.",
        ("table", "seconds", "passing, s", "times Arrow's", "target"),
        "counting in Spark is within its target",
    )
    if shutil.which("java") is None:
        table.add("not measured: Spark needs Java", "", "", "", "")
        return table
    result = run(rows)
    table.add("Arrow, in memory", f"{median(result['arrow']):.1f}", "", "", "")
    for kind, words in FRAMES.items():
        own = result[kind]
        ratio = median(own["ratios"])
        target = "" if quick else f"<= {LIMIT}"
        seconds = [f"{median(own[what]):.1f}" for what in ("seconds", "passing")]
        table.add(f"Spark: {words}", *seconds, f"{ratio:.2f}", target)
        if not quick:
            table.check(ratio <= LIMIT, f"Spark, {words}: {ratio:.2f} times Arrow's time, target {LIMIT}")
    return table


def run(rows):
    """Measure in a process of its own, with its own Java."""
    return outcome("spark", rows)


def local_session(memory):
    """Start a Spark of two threads, whose workers are this Python."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the parent stays small

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def perform(rows):
    import numpy as np  # noqa: PLC0415 - the parent stays small
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    session = local_session("4g")
    generator = np.random.default_rng(0)
    data = pa.table({f"x{i}": generator.integers(0, size, rows) for i, size in enumerate(SIZES)})
    expected = counted(data)
    counted(session.createDataFrame(data.slice(0, 50_000)))
    arrow = [timed("arrow", counted, data)]
    result = {"arrow": arrow}
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "table.parquet")
        pq.write_table(data, path)
        frames = {"parquet": session.read.parquet(path), "rows": session.createDataFrame(data)}
        for kind, frame in list(frames.items()) * TURNS:
            own = result.setdefault(kind, {"seconds": [], "passing": [], "ratios": []})
            own["seconds"].append(timed(kind, lambda frame: same(expected, counted(frame)), frame))
            arrow.append(timed("arrow", counted, data))
            own["ratios"].append(own["seconds"][-1] / mean(arrow[-2:]))
            own["passing"].append(timed(f"{kind}, passing", passed, frame))
    session.stop()
    return result


def timed(what, do, data):
    start = time.perf_counter()
    do(data)
    seconds = time.perf_counter() - start
    print(f"{what}: {seconds:.1f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return seconds


def same(expected, found):
    assert all((one == two).all() for one, two in zip(expected, found, strict=True)), (
        "Spark and Arrow disagree"
    )


def passed(frame):
    frame.write.format("noop").mode("overwrite").save()


def counted(data):
    """Count the records, then all triples, as measuring does; smaller tables are sums of these."""
    from querysmasher.data.sources import open_table  # noqa: PLC0415
    from querysmasher.schema import Schema  # noqa: PLC0415

    schema = Schema.of({f"x{i}": size for i, size in enumerate(SIZES)})
    table = open_table(schema, data, schema.names)
    table.records()
    return list(table.marginals(list(combinations(schema.names, 3))))


if __name__ == "__main__":
    print(json.dumps(perform(int(sys.argv[1]))))
