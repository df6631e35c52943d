"""Optional libraries, which an extra installs and which load on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
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


def _loaded(check: Callable[[], None], module: str) -> Any:
    check()
    return import_module(module)


xlsxwriter = partial(_loaded, check_excel, "xlsxwriter")
"""Returns XlsxWriter, which writes Excel files."""

altair = partial(_loaded, check_charts, "altair")
"""Returns altair, which describes charts."""

vl_convert = partial(_loaded, check_charts, "vl_convert")
"""Returns vl-convert, which provides the scripts of charts."""
