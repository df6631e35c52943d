"""Exact counts of a table, wherever it is stored.

Only `privacy/measurement` may use them, and `comparison/rehearsal` for a table that is not private.

`sources` opens a table. Its batches of rows become integer codes (`encoding`, `rows`), and the codes become
dense tables of counts (`counting`).
"""
