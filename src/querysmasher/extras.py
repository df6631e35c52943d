"""Optional libraries, which an extra installs and which load on first use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from querysmasher.errors import MissingExtraError

CHARTS = {"altair": "altair", "vl_convert": "vl-convert-python"}
"""The modules that draw charts, and their packages."""


def check_charts() -> None:
    """Raise an error if the chart libraries are not installed, without loading them."""
    missing = [package for module, package in CHARTS.items() if find_spec(module) is None]
    if missing:
        msg = f"pages and charts need {' and '.join(missing)}: pip install 'querysmasher[report]'"
        raise MissingExtraError(msg)


def check_excel() -> None:
    """Raise an error if the library that writes Excel files is not installed, without loading it."""
    if find_spec("xlsxwriter") is None:
        raise MissingExtraError("Excel files need XlsxWriter: pip install 'querysmasher[excel]'")


def xlsxwriter() -> Any:
    """Return XlsxWriter, which writes Excel files."""
    check_excel()
    import xlsxwriter as excel  # noqa: PLC0415 - an extra

    return excel


def altair() -> Any:
    """Return altair, which describes charts."""
    check_charts()
    import altair as alt  # noqa: PLC0415 - slow to load, and an extra

    return alt


def vl_convert() -> Any:
    """Return vl-convert, which provides the scripts of charts."""
    check_charts()
    import vl_convert as convert  # noqa: PLC0415 - large, and an extra

    return convert
