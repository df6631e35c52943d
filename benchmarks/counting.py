"""Counting all three-way marginals of a table of Adult's sizes: ours beside a plain loop over numpy.

Run: python benchmarks/counting.py [records]
"""

from __future__ import annotations

import sys
import time
from itertools import combinations

import numpy as np
import pandas as pd

from querysmasher.data.sources import open_table
from querysmasher.schema import Schema

SIZES = [42, 16, 15, 9, 7, 6, 5, 2, 2, 100, 100, 100, 99, 85]
REPEATS = 3


def plain(codes, triples):
    """The obvious loop, on codes that are already 64-bit integers."""
    for a, b, c in triples:
        cell = codes[a] * (SIZES[b] * SIZES[c]) + codes[b] * SIZES[c] + codes[c]
        yield np.bincount(cell, minlength=SIZES[a] * SIZES[b] * SIZES[c])


def timed(run):
    """Return the least of a few wall times in seconds, and the last result."""
    best, result = float("inf"), None
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - start)
    return best, result


def main(records):
    generator = np.random.default_rng(0)
    names = [f"x{place}" for place in range(len(SIZES))]
    schema = Schema.of(dict(zip(names, SIZES, strict=True)))
    codes = [generator.integers(0, size, records) for size in SIZES]
    frame = pd.DataFrame(dict(zip(names, codes, strict=True)))
    triples = list(combinations(range(len(SIZES)), 3))
    sets = [tuple(names[place] for place in triple) for triple in triples]

    def opened():
        table = open_table(schema, frame, names)
        table.records()
        return table

    plain_seconds, expected = timed(lambda: list(plain(codes, triples)))
    encode_seconds, table = timed(opened)
    count_seconds, counted = timed(lambda: list(table.marginals(sets)))
    same = all(np.array_equal(a, b.ravel()) for a, b in zip(expected, counted, strict=True))
    assert same, "the engine and the plain loop disagree"
    print(f"{records} records, {len(SIZES)} attributes, {len(sets)} marginals, least of {REPEATS} runs")
    print(f"plain numpy loop  {plain_seconds:6.2f} s  (codes given as int64)")
    print(f"encode            {encode_seconds:6.2f} s  (from pandas int64 columns)")
    print(f"count             {count_seconds:6.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
