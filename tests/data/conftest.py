from __future__ import annotations

import os
import shutil
import sys

import mixed_table
import pytest


@pytest.fixture(scope="session")
def spark():
    """A real Spark of two threads."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none here")
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers need this library too
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("querysmasher-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=[*mixed_table.IN_MEMORY, *mixed_table.ON_DISK, "spark_frame"])
def engine(request, tmp_path):
    """A function from records to one of the forms of table that we read."""
    name = request.param
    if name in mixed_table.IN_MEMORY:
        return mixed_table.IN_MEMORY[name]
    if name in mixed_table.ON_DISK:
        return lambda rows: mixed_table.ON_DISK[name](rows, tmp_path)
    session = request.getfixturevalue("spark")
    return lambda rows: mixed_table.spark_frame(rows, session)


@pytest.hookimpl(tryfirst=True)  # before the processes are told which groups there are
def pytest_collection_modifyitems(items):
    """Keep what needs Spark in one process, so that one Spark is started and not one per process."""
    for item in items:
        if "spark" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("spark"))
