"""The paper's timing tables: seconds to plan and peak memory, each cell in a fresh process."""

from benchmarks import paper
from benchmarks.accuracy import mixed_cell
from benchmarks.cells import Cell, run
from benchmarks.report import Table, seconds

TEXT = (
    "Seconds of decomposition and solving together, the least of two or three runs, and the peak resident"
    " memory of a fresh process (interpreter and libraries included). The paper's times are from 128 cores"
    " with 1 TB of memory; its memory also covers the assembly phase. *Times quicker* and *times smaller*"
    " are its figure over ours."
)
COLUMNS = (
    "n", "d", "views", "paper, s", "ours, s", "times quicker", "paper, GB", "ours, GB", "times smaller",
)  # fmt: skip


def prefix_times(quick):
    """1-way and 2-way prefix queries."""
    return _timed(
        "Planning time: 1-way and 2-way prefix queries",
        paper.PREFIX_TIMES,
        lambda n, d: Cell("prefix", (n, d, "<=2")),
        {(10, 10), (40, 50)} if quick else None,
    )


def mixed_times(quick):
    """Mixed workloads."""
    return _timed(
        "Planning time: mixed workloads",
        paper.MIXED_TIMES,
        mixed_cell,
        {(10, 10), (10, 40), (20, 40), (40, 40)} if quick else None,
    )


def _timed(title, known, cell, chosen):
    table = Table(title, TEXT, COLUMNS, "every cell takes less time and less memory than the paper's")
    for (n, d), (decomposition, solving, gigabytes) in known.items():
        if chosen is not None and (n, d) not in chosen:
            continue
        result, total = run(cell(n, d)), decomposition + solving
        table.add(
            n,
            d,
            f"{result.views:,}",
            f"{total:.1f}",
            seconds(result.seconds),
            f"{total / result.seconds:,.0f}",
            f"{gigabytes:g}",
            f"{result.gigabytes:.2f}",
            f"{gigabytes / result.gigabytes:,.0f}",
        )
        table.check(result.seconds <= total, f"n={n} d={d}: {result.seconds:.1f} s, paper {total:.1f} s")
        table.check(
            result.gigabytes <= gigabytes, f"n={n} d={d}: {result.gigabytes:.2f} GB, paper {gigabytes} GB"
        )
    return table
