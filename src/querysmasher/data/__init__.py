"""Exact counts of a table, wherever it lives.

Nothing here is private by itself: the counts are for `privacy/measurement` only. The steps are: batches of
Arrow rows -> small integer codes -> dense tables of counts.
"""

from importlib import import_module

_HOMES = {"Limits": "counter", "check_source": "table", "open_table": "table"}


def __getattr__(name: str) -> object:
    """Load the readers of tables when they are first used: a plan needs none, and they load slowly."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
