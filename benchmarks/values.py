"""Columns of a million values: discovering them, and adding a fine number up by groups."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.process import outcome, peak_gigabytes
from benchmarks.report import Table

ROWS, VALUES, PERSONS, GROUPS = 10_000_000, 1_000_000, 2_000_000, 1_000
MOST_GB, MOST_RATIO = 2, 3
SOURCES = {
    "parquet": "values of a Parquet file",
    "persons": "at most 3 values of each of 2,000,000 persons",
    "csv": "values of a CSV file",
    "duckdb": "values of a DuckDB relation",
    "spark": "values of a Spark frame (peak of the driver's Python)",
}


def values(quick):
    """Discover a million values, and add up a number of a million values by a thousand groups."""
    rows = ROWS // 100 if quick else ROWS
    table = Table(
        "A million values",
        f"{rows:,} records, of a column with {VALUES:,} different strings: `qs.discover` with ε = 1 and "
        f"δ = 1e-8, processor time of this process, and its peak memory. Then means of a number of "
        f"{VALUES:,} values by {GROUPS:,} groups, measured and answered; *ratio* is the processor time of "
        "measuring over that of measuring counts of the groups alone, in the same process.",
        ("what", "seconds", "GB", "ratio", "target"),
        "every figure is within its target",
    )
    with TemporaryDirectory() as folder:
        for kind, words in SOURCES.items():
            if kind == "spark" and shutil.which("java") is None:
                continue
            found = outcome("values", kind, rows, folder)
            table.add(words, f"{found['seconds']:.1f}", f"{found['gb']:.2f}", "", f"<= {MOST_GB} GB")
            table.check(found["gb"] <= MOST_GB, f"{words}: {found['gb']:.2f} GB, target {MOST_GB}")
    found = outcome("values", "sums", rows, "")
    table.add(
        "means by groups: measure", f"{found['seconds']:.1f}", "", f"{found['ratio']:.1f}", f"<= {MOST_RATIO}"
    )
    table.add(
        "means by groups: answer", f"{found['answer']:.1f}", f"{found['gb']:.2f}", "", f"<= {MOST_GB} GB"
    )
    table.check(
        found["ratio"] <= MOST_RATIO, f"means: {found['ratio']:.1f} times counting, target {MOST_RATIO}"
    )
    table.check(found["gb"] <= MOST_GB, f"means by groups: {found['gb']:.2f} GB, target {MOST_GB}")
    return table


def written(folder, rows):
    """Return the path of a Parquet file, which is written unless it is there: half of the values are rare."""
    import numpy as np  # noqa: PLC0415 - the parent stays small
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = Path(folder) / "table.parquet"
    if not path.exists():
        rng, part = np.random.default_rng(0), rows // 10
        schema = pa.schema([("v", pa.string()), ("p", pa.int64())])
        with pq.ParquetWriter(path, schema) as file:
            for _ in range(10):
                drawn = rng.integers(0, VALUES, part)
                drawn[: part // 2] = np.minimum(drawn[: part // 2], rng.integers(0, VALUES, part // 2))
                drawn[: part // 20] %= 100
                people = pa.array(rng.integers(0, PERSONS, part))
                file.write_table(pa.table([pa.array(drawn).cast(pa.string()), people], schema))
    return path


def perform(kind, rows, folder):
    """Measure one row."""
    import querysmasher as qs  # noqa: PLC0415 - the parent stays small

    if kind == "sums":
        return added_up(qs, rows)
    path, options = written(folder, rows), {"person": "p", "at_most": 3} if kind == "persons" else {}
    data = path
    if kind == "csv":
        import pyarrow.csv as pc  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        data = path.with_suffix(".csv")
        with pq.ParquetFile(path) as file, pc.CSVWriter(data, file.schema_arrow) as out:
            for batch in file.iter_batches():
                out.write_batch(batch)
    elif kind == "duckdb":
        import duckdb  # noqa: PLC0415

        data = duckdb.read_parquet(str(path))
    elif kind == "spark":
        from benchmarks.spark import local_session  # noqa: PLC0415

        data = local_session("2g").read.parquet(str(path))
    start = time.process_time()
    found = qs.discover(data, "v", qs.ApproxDP(1.0, 1e-8), **options)
    assert len(found) >= (100 if kind != "persons" else 0)
    return {"seconds": time.process_time() - start, "gb": peak_gigabytes()}


def added_up(qs, rows):
    """Measure means of a fine number by groups, beside counts of the groups."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    schema = qs.Schema([qs.Number("v", 0, VALUES - 1), qs.Categorical("g", range(GROUPS))])
    rng = np.random.default_rng(0)
    data = pa.table({"v": rng.integers(0, VALUES, rows), "g": rng.integers(0, GROUPS, rows).astype(np.int16)})
    groups, means = (
        qs.plan(asked, qs.zCDP(0.5), progress=False)
        for asked in (qs.queries(schema, g="identity"), qs.means(schema, "v", by=["g"]))
    )
    spent = []
    for plan in (groups, means):
        start = time.process_time()
        release = qs.measure(plan, data)
        spent.append(time.process_time() - start)
    start = time.process_time()
    found = release.mean("v", by="g")
    code = data["g"].to_numpy()
    truth = np.bincount(code, data["v"].to_numpy(), GROUPS) / np.bincount(code, minlength=GROUPS)
    assert np.abs((found.values - truth) / found.std).max() < 6
    answer = time.process_time() - start
    return {"seconds": spent[1], "ratio": spent[1] / spent[0], "answer": answer, "gb": peak_gigabytes()}


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    print(json.dumps(perform(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
