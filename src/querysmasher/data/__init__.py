"""Exact counts of a table, wherever it lives.

Nothing here is private by itself: the counts are for `privacy/measurement` only. The steps are: batches of
Arrow rows -> small integer codes -> dense tables of counts.
"""

from querysmasher.data.counter import Limits
from querysmasher.data.table import check_source, open_table

__all__ = ["Limits", "check_source", "open_table"]
