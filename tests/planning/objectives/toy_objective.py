"""A toy objective, as a new one would be written: tables lose alike by not being planned alone."""

import numpy as np

import querysmasher as qs
from querysmasher.planning.objectives.objective import Objective, least_largest
from querysmasher.workload.workload import Workload


def plan_fair(workload, replan):
    """Minimise the largest ratio of a table's largest error to what it would be in a plan for it alone."""
    alone = [qs.plan(Workload(workload.schema, (group,)), replan.budget) for group in workload]
    aims = np.array([plan.worst_std for plan in alone])
    return replan.measurable(lambda centres: least_largest(workload, aims, replan, centres, "fair")).plan


FAIR = Objective("fair", plan_fair, "The largest loss of a table", largest=True)
