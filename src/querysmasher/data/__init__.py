"""Exact counts of a table, from wherever it lives.

Nothing here is private by itself: what comes out is meant for `privacy/measurement` and for nobody else.
The way of a table: batches of Arrow rows -> small integer codes -> dense tables of counts.
"""

from querysmasher.data.counter import Limits
from querysmasher.data.table import open_table

__all__ = ["Limits", "open_table"]
