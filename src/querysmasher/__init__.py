"""QuerySmasher: publish many counts about people under differential privacy.

::

    schema  = qs.Schema([...])                      # the public domain, stated by you
    workload = qs.all_kway(schema, [1, 2])          # the queries
    plan    = qs.plan(workload, qs.zCDP(0.1))       # how to measure, with the error known in advance
    release = qs.measure(plan, table)               # the only step that reads data
    answers = release.answer(workload)              # consistent, unbiased, with standard errors

Public names are imported on first use, so that `querysmasher --help` starts fast. The names are those that
`__init__.pyi` imports: type checkers and this file read the same list.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from querysmasher.errors import UnknownNameError, suggestion

__version__ = "0.2.0"

_HOMES = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
"""The module that defines each public name."""

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the stub lists them


def __getattr__(name: str) -> Any:
    """Import a public name from its module, once."""
    if name not in _HOMES:
        public = [] if name.startswith("_") else __all__
        raise UnknownNameError(f"module {__name__!r} has no attribute {name!r}{suggestion(name, public)}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the module's names, including the public ones."""
    return sorted({*globals(), *__all__})
