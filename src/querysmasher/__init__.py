"""QuerySmasher: publish many counts about people under differential privacy.

::

    schema  = qs.Schema([...])                      # what can be: public, stated by you
    workload = qs.all_kway(schema, [1, 2])          # what is asked
    plan    = qs.plan(workload, qs.zCDP(0.1))       # how to ask it, with the error known in advance
    release = qs.measure(plan, table)               # the only step that reads data
    answers = release.answer(workload)              # consistent, unbiased, with standard errors

Names are fetched when they are first used, so that the command `querysmasher --help` need not wait for them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from querysmasher.attributes import Binned, Categorical, Cyclic, Ordinal
    from querysmasher.comparison.compare import Comparison, compare
    from querysmasher.data.check import Check, check
    from querysmasher.data.dialect import CSV
    from querysmasher.errors import (
        BudgetError,
        DataError,
        FileError,
        OutsideMeasuredSpaceError,
        PlanError,
        PredicateError,
        PrivacyError,
        QuerySmasherError,
        SchemaError,
        SpecError,
        TooLargeError,
        UnknownAttributeError,
        WorkloadError,
    )
    from querysmasher.measure import measure
    from querysmasher.planning.plan import Plan
    from querysmasher.planning.planner import plan
    from querysmasher.privacy.budget import ApproxDP, GaussianDP, PrivacyCost, zCDP
    from querysmasher.release.answers import Answers
    from querysmasher.release.release import Release
    from querysmasher.schema import Schema
    from querysmasher.workload.builders import (
        abs_difference,
        affine,
        all_kway,
        linear,
        marginals,
        queries,
        random_queries,
    )
    from querysmasher.workload.predicates import where
    from querysmasher.workload.rows import hierarchy
    from querysmasher.workload.workload import Workload

__version__ = "0.1.0"

__all__ = [
    "CSV",
    "Answers",
    "ApproxDP",
    "Binned",
    "BudgetError",
    "Categorical",
    "Check",
    "Comparison",
    "Cyclic",
    "DataError",
    "FileError",
    "GaussianDP",
    "Ordinal",
    "OutsideMeasuredSpaceError",
    "Plan",
    "PlanError",
    "PredicateError",
    "PrivacyCost",
    "PrivacyError",
    "QuerySmasherError",
    "Release",
    "Schema",
    "SchemaError",
    "SpecError",
    "TooLargeError",
    "UnknownAttributeError",
    "Workload",
    "WorkloadError",
    "abs_difference",
    "affine",
    "all_kway",
    "check",
    "compare",
    "hierarchy",
    "linear",
    "marginals",
    "measure",
    "plan",
    "queries",
    "random_queries",
    "where",
    "zCDP",
]

_HOMES = {
    "attributes": ("Binned", "Categorical", "Cyclic", "Ordinal"),
    "comparison.compare": ("Comparison", "compare"),
    "data.dialect": ("CSV",),
    "data.check": ("Check", "check"),
    "errors": (
        "BudgetError",
        "DataError",
        "FileError",
        "OutsideMeasuredSpaceError",
        "PlanError",
        "PredicateError",
        "PrivacyError",
        "QuerySmasherError",
        "SchemaError",
        "SpecError",
        "TooLargeError",
        "UnknownAttributeError",
        "WorkloadError",
    ),
    "measure": ("measure",),
    "planning.plan": ("Plan",),
    "planning.planner": ("plan",),
    "privacy.budget": ("ApproxDP", "GaussianDP", "PrivacyCost", "zCDP"),
    "release.answers": ("Answers",),
    "release.release": ("Release",),
    "schema": ("Schema",),
    "workload.builders": (
        "abs_difference",
        "affine",
        "all_kway",
        "linear",
        "marginals",
        "queries",
        "random_queries",
    ),
    "workload.predicates": ("where",),
    "workload.rows": ("hierarchy",),
    "workload.workload": ("Workload",),
}
"""Which module of this package has each public name; the same as the imports above."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


class _Package(ModuleType):
    """Keeps a module from taking the place of the public function of the same name: `measure`."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package

if not TYPE_CHECKING:  # where it would hide misspelt names

    def __getattr__(name: str) -> Any:
        """Fetch a public name from its module."""
        if name not in _HOME_OF:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
