"""QuerySmasher: publish many counts about people under differential privacy.

::

    schema  = qs.Schema([...])                      # what can be: public, stated by you
    workload = qs.all_kway(schema, [1, 2])          # what is asked
    plan    = qs.plan(workload, qs.zCDP(0.1))       # how to ask it, with the error known in advance
    release = qs.measure(plan, table)               # the only step that reads data
    answers = release.answer(workload)              # consistent, unbiased, with standard errors
"""

from querysmasher.comparison.compare import Comparison, compare
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
from querysmasher.schema import Binned, Categorical, Cyclic, Ordinal, Schema
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
    "Answers",
    "ApproxDP",
    "Binned",
    "BudgetError",
    "Categorical",
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
    "TooLargeError",
    "UnknownAttributeError",
    "Workload",
    "WorkloadError",
    "abs_difference",
    "affine",
    "all_kway",
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
