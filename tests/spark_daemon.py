"""What forks the Python workers of Spark: it has loaded what they need, so that each starts at once."""

import gc
import importlib
from contextlib import suppress

LOADED = ("pandas", "pyspark.worker", "pyspark.sql.pandas.serializers", "querysmasher.data.spark")


def serve():
    """Fork a worker whenever Spark asks for one."""
    from pyspark import daemon

    for module in LOADED:
        with suppress(ImportError):  # a worker without the library says so itself
            importlib.import_module(module)
    gc.freeze()  # after every task a worker looks for garbage
    daemon.manager()


if __name__ == "__main__":
    serve()
