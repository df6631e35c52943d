"""Compare the tables of the benchmarks with those of a revision: ``python -m benchmarks.compare REVISION``.

Every number is matched by its section, table, row and column. Errors may grow by 0.5 %, times by a half.
"""

import re
import subprocess
import sys
from collections import Counter

from benchmarks.run import PARTS

WORSE, LONGER = 1.005, 1.5
"""Largest accepted ratio of errors, and of times."""


def main(revision):
    """Print every number that grew by more than is accepted, and the largest growth of each section."""
    found = 0
    for page in sorted(PARTS.glob("*.md")):
        path = f"{revision}:./docs/benchmarks/{page.name}"
        before = subprocess.run(  # noqa: S603 - a path of ours
            ["git", "show", path],  # noqa: S607 - whichever git is installed
            capture_output=True,
            text=True,
            check=False,
            cwd=PARTS.parent.parent,
        )
        old, new = numbers(before.stdout), numbers(page.read_text())
        grown = {key: new[key] / old[key] for key in old.keys() & new.keys() if old[key] > 0}
        over = {key: ratio for key, ratio in grown.items() if ratio > accepted(key)}
        found += len(over)
        print(f"{page.stem}: {len(grown)} numbers, {len(over)} grew by more than accepted")
        for table, row, column in sorted(over, key=over.get, reverse=True):
            key = table, row, column
            print(f"  {row} | {column}: {old[key]:g} -> {new[key]:g} ({over[key] - 1:+.1%})")
    return 1 if found else 0


def accepted(key):
    """Return how much a number may grow."""
    column = key[2].lower()
    return LONGER if re.search(r"second|, s$|time|ratio|gb|ms|minutes", column) else WORSE


def numbers(page):
    """Return the numbers of all tables of a page, by title, row and column; rows of one name are numbered."""
    found, title, columns, rows = {}, "", None, Counter()
    for line in page.splitlines():
        if line.startswith("#"):
            title, columns = line.strip("# "), None
        elif line.startswith("|"):
            cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
            if columns is None:
                columns = cells
            elif not set(line) <= set("|-: "):
                words = [i for i, cell in enumerate(cells) if number(cell) is None]
                row = " ".join(cells[i] for i in range((words[-1] if words and words[-1] < 3 else 0) + 1))
                rows[title, row] += 1
                row += f" ({rows[title, row]})" if rows[title, row] > 1 else ""
                for column, cell in zip(columns, cells, strict=False):
                    if number(cell) is not None:
                        found[title, row, column] = number(cell)
        else:
            columns = None
    return found


def number(cell):
    """Return the number in a cell, or None."""
    plain = cell.replace(",", "").replace("%", "").strip("* ")
    return float(plain) if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", plain) else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
