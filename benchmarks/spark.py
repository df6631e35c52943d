"""Counting a Spark frame beside the same table in Arrow, in one process and in turns."""

import json
import os
import shutil
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import Table

SIZES = (42, 16, 15, 9, 7, 6, 5, 2, 2, 100, 100, 100, 99, 85)
TURNS = 2
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
        f" counts them in turns, {TURNS} times each after a small table to warm up; the least time counts.",
        ("table", "seconds", "times Arrow's", "target"),
        "counting in Spark is within its target",
    )
    if shutil.which("java") is None:
        table.add("not measured: Spark needs Java", "", "", "")
        return table
    result = run(rows)
    table.add("Arrow, in memory", f"{result['arrow']:.1f}", "", "")
    for kind, words in FRAMES.items():
        ratio = result[kind] / result["arrow"]
        table.add(f"Spark: {words}", f"{result[kind]:.1f}", f"{ratio:.2f}", "" if quick else f"<= {LIMIT}")
        if not quick:
            table.check(ratio <= LIMIT, f"Spark, {words}: {ratio:.2f} times Arrow's time, target {LIMIT}")
    return table


def run(rows):
    """Measure in a process of its own, with its own Java."""
    command = [sys.executable, "-m", "benchmarks.spark", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode:
        msg = f"spark failed:\n{done.stderr}"
        raise RuntimeError(msg)
    return json.loads(done.stdout.splitlines()[-1])


def perform(rows):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    import numpy as np  # noqa: PLC0415 - the parent stays small
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    generator = np.random.default_rng(0)
    data = pa.table({f"x{i}": generator.integers(0, size, rows) for i, size in enumerate(SIZES)})
    seconds = {}
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "table.parquet")
        pq.write_table(data, path)
        frames = {
            "arrow": data,
            "parquet": session.read.parquet(path),
            "rows": session.createDataFrame(data),
        }
        for frame in (data.slice(0, 50_000), session.createDataFrame(data.slice(0, 50_000))):
            counted(frame)
        expected = None
        for turn in range(TURNS):
            for kind, frame in frames.items():
                start = time.perf_counter()
                tables = counted(frame)
                taken = time.perf_counter() - start
                print(f"turn {turn} {kind} {taken:.1f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
                seconds[kind] = min(taken, seconds.get(kind, taken))
                expected = expected or tables
                assert all(map(np.array_equal, expected, tables)), "Spark and Arrow disagree"
    session.stop()
    return seconds


def counted(data):
    """Count the records, then all triples, as measuring does; smaller tables are sums of these."""
    from querysmasher.data import open_table  # noqa: PLC0415
    from querysmasher.schema import Schema  # noqa: PLC0415

    schema = Schema.of({f"x{i}": size for i, size in enumerate(SIZES)})
    table = open_table(schema, data, schema.names)
    table.records()
    return list(table.marginals(list(combinations(schema.names, 3))))


if __name__ == "__main__":
    print(json.dumps(perform(int(sys.argv[1]))))
