"""The file formats of answers.

A new format needs a file with its `Format`, and its name in `FORMATS`: files, the spec, the
command, the description beside a file and `verify` look there.
"""

from __future__ import annotations

from querysmasher.endings import check_ending
from querysmasher.formats.tabular import ARROW, CSV, FEATHER, GZIP, JSON, PARQUET, Format
from querysmasher.formats.workbook import WORKBOOK

FORMATS: tuple[Format, ...] = (PARQUET, CSV, GZIP, ARROW, FEATHER, JSON, WORKBOOK)


def endings() -> dict[str, Format]:
    """Return the format of each ending of the name of a file."""
    return {ending: form for form in FORMATS for ending in form.endings}


def format_of(path: object, *, of_records: bool = False) -> Format:
    """Return the format that the name of a file of answers or records states; refuse another name."""
    known = {ending: form for ending, form in endings().items() if form.holds_records or not of_records}
    return known[check_ending(path, tuple(known))]
