"""Publish many counts about people under differential privacy, as accurately as the budget allows.

::

    import querysmasher as qs

    schema = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(100))])  # public
    workload = qs.all_kway(schema, [1, 2])          # the queries
    plan = qs.plan(workload, qs.zCDP(rho=0.1))      # how to measure, with the error known in advance
    release = qs.measure(plan, table)               # the only step that reads data
    answers = release.answer(workload)              # consistent, unbiased, with standard errors

- schema: `Schema` of `Categorical`, `Ordinal`, `Binned`, `Number` and `Cyclic`
- queries: `marginals`, `all_kway`, `queries`, `sums`, `means`, `where`, `ranges`, `hierarchy`, `affine`,
  `abs_difference`, `linear` and `random_queries` return a `Workload`, or a part of one
- budgets: `ApproxDP`, `zCDP`, `GaussianDP`, `PrivacyCost`; a `Ledger` adds up what releases spend
- planning, without data: `plan` and `least_budget` return a `Plan`; `compare` mechanisms (`Comparison`)
- data: `check` shows the custodian what does not fit (`Check`); `discover` finds values that nobody listed
  (`Discovered`, `DiscoveredBins`); `measure` and `explore` return a `Release`;
  `CSV` states a dialect; `records_per_person` helps to choose a bound
- results: `Release`, `Answers`, `Estimate`; `verify` checks what was published
- errors: all derive from `QuerySmasherError`
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from querysmasher.errors import UnknownNameError, suggestion

__version__ = "0.2.0"

_NAMES = {
    "attributes": "Binned Categorical Cyclic Number Ordinal",
    "comparison.compare": "Comparison compare",
    "comparison.person_bounds": "records_per_person",
    "data.check": "Check check",
    "data.framing": "CSV",
    "discovering": "Discovered DiscoveredBins discover",
    "errors": (
        "ArgumentError BudgetArgumentError BudgetError DataError FileError MissingExtraError OutOfRangeError "
        "OutsideMeasuredSpaceError PlanError PredicateError PrivacyError QuerySmasherError "
        "QuerySmasherWarning SchemaError SpecError TooLargeError UnknownAttributeError UnknownNameError "
        "UnknownQueryError WorkloadError"
    ),
    "estimate.estimate": "Estimate",
    "exploring.explore": "explore",
    "measuring": "measure",
    "planning.plan": "Plan",
    "planning.planner": "least_budget plan",
    "privacy.budget": "ApproxDP GaussianDP PrivacyCost zCDP",
    "privacy.ledger": "Ledger",
    "release.answers": "Answers",
    "release.release": "Release",
    "release.verify": "verify",
    "schema": "Schema",
    "workload.builders": (
        "abs_difference affine all_kway linear marginals means queries random_queries sums where"
    ),
    "workload.families": "ranges",
    "workload.hierarchy": "hierarchy",
    "workload.workload": "Workload",
}
"""The public names by module. They are imported on first use: `querysmasher --help` starts fast. Type
checkers read them in `__init__.pyi`."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - the table lists them


def __getattr__(name: str) -> Any:
    """Import a public name from its module, once."""
    if name not in _MODULES:
        public = [] if name.startswith("_") else __all__
        msg = f"module {__name__!r} has no attribute {name!r}{suggestion(name, public)}"
        raise UnknownNameError(msg)
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
