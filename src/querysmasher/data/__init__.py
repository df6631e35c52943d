"""Exact counts of a table, wherever it lives.

Nothing here is private by itself: the counts are for `privacy/measurement` only. The steps are: batches of
rows -> small integer codes -> dense tables of counts. `sources` opens a table.
"""
