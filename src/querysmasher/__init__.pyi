# The public names, listed here and nowhere else: type checkers read this file, and so does `__init__.py`.

from querysmasher.attributes import Binned as Binned
from querysmasher.attributes import Categorical as Categorical
from querysmasher.attributes import Cyclic as Cyclic
from querysmasher.attributes import Ordinal as Ordinal
from querysmasher.comparison.compare import Comparison as Comparison
from querysmasher.comparison.compare import compare as compare
from querysmasher.data.check import Check as Check
from querysmasher.data.check import check as check
from querysmasher.data.dialect import CSV as CSV
from querysmasher.errors import BudgetError as BudgetError
from querysmasher.errors import DataError as DataError
from querysmasher.errors import FileError as FileError
from querysmasher.errors import MissingExtraError as MissingExtraError
from querysmasher.errors import OutsideMeasuredSpaceError as OutsideMeasuredSpaceError
from querysmasher.errors import PlanError as PlanError
from querysmasher.errors import PredicateError as PredicateError
from querysmasher.errors import PrivacyError as PrivacyError
from querysmasher.errors import QuerySmasherError as QuerySmasherError
from querysmasher.errors import SchemaError as SchemaError
from querysmasher.errors import SpecError as SpecError
from querysmasher.errors import TooLargeError as TooLargeError
from querysmasher.errors import UnknownAttributeError as UnknownAttributeError
from querysmasher.errors import UnknownQueryError as UnknownQueryError
from querysmasher.errors import WorkloadError as WorkloadError
from querysmasher.measuring import measure as measure
from querysmasher.planning.plan import Plan as Plan
from querysmasher.planning.planner import plan as plan
from querysmasher.privacy.budget import ApproxDP as ApproxDP
from querysmasher.privacy.budget import GaussianDP as GaussianDP
from querysmasher.privacy.budget import PrivacyCost as PrivacyCost
from querysmasher.privacy.budget import zCDP as zCDP
from querysmasher.release.answers import Answers as Answers
from querysmasher.release.release import Release as Release
from querysmasher.schema import Schema as Schema
from querysmasher.workload.builders import abs_difference as abs_difference
from querysmasher.workload.builders import affine as affine
from querysmasher.workload.builders import all_kway as all_kway
from querysmasher.workload.builders import linear as linear
from querysmasher.workload.builders import marginals as marginals
from querysmasher.workload.builders import queries as queries
from querysmasher.workload.builders import random_queries as random_queries
from querysmasher.workload.hierarchy import hierarchy as hierarchy
from querysmasher.workload.predicates import where as where
from querysmasher.workload.workload import Workload as Workload

__version__: str
