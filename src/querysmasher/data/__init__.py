"""Exact counts of a table, wherever it is stored: only `privacy/measurement` may use them.

`sources` opens a table. Its batches of rows become integer codes (`encoding`, `rows`), and the codes become
dense tables of counts (`counting`).
"""
