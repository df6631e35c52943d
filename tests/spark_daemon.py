"""What forks the Python workers of Spark: it has loaded what they need, so that each starts at once."""

import gc
import importlib
from contextlib import suppress

from pyspark import daemon

LOADED = ("pandas", "pyspark.worker", "pyspark.sql.pandas.serializers", "querysmasher.data.spark_tasks")

if __name__ == "__main__":
    for module in LOADED:
        with suppress(ImportError):  # a worker without the library says so itself
            importlib.import_module(module)
    gc.freeze()  # after every task a worker looks for garbage
    daemon.manager()
