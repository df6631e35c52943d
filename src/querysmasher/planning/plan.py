"""A plan: everything that can be known before touching data."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import Explained, TooLargeError, explained
from querysmasher.planning.centre import Centres
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.whole import estimator_of
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms import DEFAULT, MECHANISMS
from querysmasher.planning.objectives.variances import Extreme, extremes
from querysmasher.planning.solution import LEAST, Certificate, Limit, Measured, Solution
from querysmasher.planning.solvers import METHODS
from querysmasher.planning.solvers.bounds import dimension, product_bound, root_loss_bound
from querysmasher.planning.strategies import is_line
from querysmasher.planning.tying import TiedEstimator, Tying, asked
from querysmasher.privacy.budget import Budget
from querysmasher.workload.builders import check_workload
from querysmasher.workload.family import Structure
from querysmasher.workload.workload import Workload


@dataclass(frozen=True)
class BlockMethod:
    """The method that solved one distinct block."""

    sizes: tuple[int, ...]
    """Number of values of each of its attributes."""
    attribute_sets: int
    """Number of attribute sets that it belongs to."""
    measurements: int
    """Number of measurements for it."""
    method: str
    reason: str
    gap: float
    """Upper bound on how far its RMSE exceeds the optimum of the block, as a fraction."""

    @property
    def cells(self) -> int:
        """Number of cells of the block."""
        return math.prod(self.sizes)

    def __str__(self) -> str:
        """Return one line of text."""
        sizes = " × ".join(f"{n:,}" for n in self.sizes)
        return f"{self.method} on {sizes} values, gap {self.gap:.1e}: {self.reason}"


if TYPE_CHECKING:
    from querysmasher.report.expectations import Expectation


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Explained):
    """The strategies to measure, their noise, and the resulting error of every query.

    Built by `plan`, without data. Every strategy B_A has columns of length one at most. If records are added
    or removed, the total privacy cost is Σ_A c/σ²_A, with c = r² for r records per person. If records are
    replaced, it is the maximum over pairs of cells u and v of Σ_A c·‖B_A(e_u − e_v)‖²/σ²_A.
    """

    _instead: ClassVar[Mapping[str, str]] = {
        "+": "join the workloads, and plan once: qs.plan(one + other, budget)",
        "*": "scale the budget or the weights, and plan again: qs.plan(2 * workload, budget)",
        "measure": "write qs.measure(plan, data)",
        **dict.fromkeys(
            ("answer", "answers", "marginal", "table", "mean", "share", "quantile", "estimate"),
            "a plan has no data; measure first, and ask the release: release = qs.measure(plan, data)",
        ),
    }

    workload: Workload
    budget: Budget
    centres: Centres
    solutions: tuple[Solution, ...]
    measured: tuple[Measured, ...]
    weighted_loss: float
    """The sum over all queries of weight × variance."""
    certificate: Certificate
    """What the plan reaches of its objective, and a lower bound for every plan of its kind."""
    mechanism: str = DEFAULT
    solver: str = "optimal"
    centering: str = "uniform"
    tolerance: float = 1e-3
    asked: Workload | None = None
    """The workload to estimate, if the plan is meant for estimates: `workload` is then what is measured."""
    sizes_first: bool = False
    """Whether `measure` learns the number of records first, and divides the rest of the budget accordingly.

    The plan then shows what it would measure for 30,000 records. The number costs 1% of the budget, or
    nothing where the neighbours make it public.
    """
    tying: Tying | None = None
    """Which attributes are tied together, because some of their combinations are impossible.

    Centres, strategies and measurements are then about their combinations.
    """

    @cached_property
    def inner(self) -> Plan:
        """The plan as a plan of queries about combinations of tied attributes."""
        if self.tying is None:
            return self
        return replace(self, workload=self.tying.workload(self.workload), tying=None)

    @cached_property
    def zeros(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The predicates of `Schema.impossible` that are about the workload: those used, and the others."""
        tied = [] if self.tying is None else self.tying.components
        schema, used = (
            self.workload.schema,
            {p for names in tied for p, _ in self.workload.schema.zeros(names)},
        )
        stated = [predicate for predicate, _ in schema.zeros(asked(self.asked or self.workload))]
        return tuple(p for p in stated if p in used), tuple(p for p in stated if p not in used)

    @property
    def gap(self) -> float:
        """Certified: the objective is within this fraction of the best plan around these centres.

        The objective is the weighted RMSE or, with `objective="worst"`, the largest standard error relative
        to its target. For `least_budget`, the gap bounds how much smaller all targets could be at the same
        cost. If some groups are measured whole beside others, it refers to plans that answer every group from
        its own measurement.
        """
        return self.certificate.gap

    @property
    def objective(self) -> str:
        """What the plan minimises.

        The "mean" square error within the targets, the "worst" standard error relative to its target, or the
        cost that meets all targets ("least").
        """
        return self.certificate.of

    @property
    def purpose(self) -> str:
        """What the plan is for: unbiased "answers", or an "estimate" that includes unmeasured tables."""
        return "answers" if self.asked is None else "estimate"

    @property
    def weighted_rmse(self) -> float:
        """The root of (sum of weight × variance / number of queries)."""
        return math.sqrt(self.weighted_loss / self.workload.query_count)

    @cached_property
    def rmse(self) -> float:
        """The root of (sum of variances / number of queries)."""
        weights = {g.weight for g in self.workload}
        if len(weights) == 1 and all(f.weights is None for g in self.workload for f in g.families):
            return self.weighted_rmse / math.sqrt(weights.pop())
        total = math.fsum(self.estimator.total(g) for g in self.workload)
        return math.sqrt(total / self.workload.query_count)

    @property
    def worst(self) -> float | None:
        """The largest standard error of a query relative to its target; a query without target has target 1.

        None if a group has too many queries to search.
        """
        return None if self.extremes is None else max(extreme.ratio for extreme in self.extremes)

    @property
    def least_cost(self) -> float | None:
        """Certified: every plan of this kind that meets all targets costs at least this much.

        None unless `least_budget` made the plan.
        """
        return self.privacy_cost / (1 + self.gap) ** 2 if self.objective == LEAST else None

    @property
    def worst_std(self) -> float | None:
        """The largest standard error of a query, or None if a group has too many queries to search."""
        return None if self.extremes is None else max(extreme.std for extreme in self.extremes)

    @cached_property
    def extremes(self) -> tuple[Extreme, ...] | None:
        """The largest standard error of every group, and a query that has it; None if there are too many."""
        if self.tying is not None:
            pairs = zip(self.workload, self.inner.extremes or (), strict=False)
            rows = ((g, e, self.tying.group(g).rows(e.rows)) for g, e in pairs)
            made = tuple(replace(e, group=g, rows=own, rms=None) for g, e, own in rows)
            return made or None
        families = [family for group in self.workload for family in group.families]
        if any(is_line(solution.strategy) for solution in self.solutions):
            few = all(family.rows <= limits().large_worst_queries for family in families)
        else:
            few = all(family.fits_memory or family.structure is Structure.TREE for family in families)
        if not few:
            return None
        try:
            return tuple(extremes(self))
        except TooLargeError:
            return None

    @cached_property
    def fallbacks(self) -> dict[str, tuple[int, float]]:
        """The methods used instead of an optimal one, each with its number of sets and largest gap."""
        if self.mechanism != DEFAULT or self.solver != "optimal":
            return {}
        gaps: defaultdict[str, list[float]] = defaultdict(list)
        for m in self.measured:
            solutions = [self.solutions[number] for _, number in m.blocks]
            for method in dict.fromkeys(s.method for s in solutions if s.method in {"structured", "fourier"}):
                gaps[method].append(max(s.gap for s in solutions if s.method == method))
        return {method: (len(each), max(each)) for method, each in gaps.items()}

    @cached_property
    def methods(self) -> tuple[BlockMethod, ...]:
        """The numerical method chosen for every distinct block, and why; largest blocks first."""
        reasons = {name: f"you chose the mechanism {name}" for name in MECHANISMS} | METHODS
        blocks = []
        for number, sets in Counter(number for m in self.measured for _, number in m.blocks).items():
            s = self.solutions[number]
            reason, gap = reasons.get(s.method, "it was asked for"), s.gap if s.bound else 0.0
            blocks.append(BlockMethod(s.strategy.shape, sets, s.strategy.rank, s.method, reason, gap))
        return tuple(sorted(blocks, key=lambda block: (-block.cells, block.sizes)))

    @property
    def whole(self) -> tuple[int, ...]:
        """Indexes of the workload's groups that are measured whole; the others are split."""
        return tuple(sorted(group for m in self.measured for group in m.whole))

    @cached_property
    def privacy_cost(self) -> float:
        """The total privacy cost of the planned measurements."""
        return math.fsum(m.price / m.variance for m in self.measured)

    @cached_property
    def estimator(self) -> Estimator:
        """The estimator of the variance of any query under this plan."""
        if self.tying is not None:
            return TiedEstimator(self.inner.estimator, self.tying)
        return estimator_of(
            self.workload.schema,
            self.centres,
            [s.strategy for s in self.solutions],
            [(m,) for m in self.measured],
            self.budget.unit.known(self.workload.schema),
        )

    @explained("plan.variances(workload)")
    def variances(self, workload: Workload) -> Array:
        """Return the variance of every query, in the workload's order.

        The workload can be any on the same schema whose queries follow from the measurements. Other queries
        raise `OutsideMeasuredSpaceError`.
        """
        check_workload(workload, self.workload.schema, "plan")
        count = workload.query_count
        if count > limits().variances:
            raise TooLargeError(
                f"workload: {count:,} variances do not fit in memory; ask for fewer at a time"
            )
        return np.concatenate([self.estimator.variances(group).ravel() for group in workload])

    def summary(self, workload: Workload | None = None) -> Iterator[Expectation]:
        """Return the expected error of each group of the planned (or another) workload, in order."""
        workload = workload or self.workload
        check_workload(workload, self.workload.schema, "plan")
        from querysmasher.report.expectations import expect  # noqa: PLC0415 - a view

        return expect(self, workload)

    def budget_shares(self) -> dict[tuple[str, ...], float]:
        """Return the budget share of each attribute set, with all attributes that are tied to its own."""
        every, tying = self.workload.schema.names, self.tying
        shares = defaultdict[tuple[str, ...], float](float)
        for m in self.measured:
            names = tuple(every[a] for a in m.attributes) if tying is None else tying.columns(m.attributes)
            shares[names] += m.price / m.variance / self.privacy_cost
        return dict(shares)

    def limit(self) -> Limit:
        """Return a certified limit: a lower bound on the RMSE of *every* matrix mechanism within the budget.

        A plan of least mean error, without targets, that measures all queries whole already contains it. For
        other plans it is available for add/remove neighbours, and computed from a product distribution, for
        up to about 4,000 measured numbers or 200,000 cells, in up to a few minutes. If it is not available,
        the result says why.
        """
        if self.tying is not None:
            return self.inner.limit()
        large = any(is_line(s.strategy) for s in self.solutions)
        alone = large and len({a for m in self.measured for a in m.attributes}) == 1
        whole = len(self.whole) == len(self.workload.groups) and len(self.measured) == 1
        public = self.budget.unit.total_is_public
        if (whole or (alone and not public)) and self.objective == "mean" and not self.workload.has_targets:
            return Limit(self.weighted_rmse / (1 + self.gap), self.gap)  # certified for any mechanism
        if public:
            why = "it is known for add/remove neighbours only, and for plans that measure all queries whole"
            return Limit(None, None, why)
        size, most = dimension(self.workload), limits().limit_dimension
        bound = root_loss_bound(self.workload) if size <= most else product_bound(self.workload)
        if bound is None:
            reason = f"the measured space has {size:,} dimensions, more than {most:,}"
            if large:
                reason = "of large attributes, it is known for one alone, for the mean error without targets"
            return Limit(None, None, reason)
        cost = self.budget.privacy_cost / self.budget.unit.change()
        rmse = bound / math.sqrt(cost * self.workload.query_count)
        return Limit(rmse, self.weighted_rmse / rmse - 1)

    @cached_property
    def measurements(self) -> int:
        """Number of measurements."""
        ranks = [s.strategy.rank for s in self.solutions]
        return sum(math.prod(ranks[number] for _, number in m.blocks) for m in self.measured)

    def __repr__(self) -> str:
        """Return the plan and its expected errors as text."""
        from querysmasher.report.expectations import plan_text  # noqa: PLC0415 - a view

        return plan_text(self)

    @explained("plan.save('my.plan')")
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, from which `Plan.load` returns the same plan, bit for bit."""
        from querysmasher.planning.plan_file import save_plan  # noqa: PLC0415 - a view

        save_plan(self, path)

    @explained("plan.report('plan.html')")
    def report(
        self, path: str | os.PathLike[str], *, limit: bool | None = None, title: str | None = None
    ) -> Path:
        """Write a page about the plan, a single HTML file that needs no network, and return its path.

        `limit` says whether to compute `limit()` for the page; by default only if that is quick.
        """
        from querysmasher.report.plan_report import write_plan_report  # noqa: PLC0415 - a view

        return write_plan_report(self, path, limit, title)

    def _repr_html_(self) -> str:
        """Return the plan as HTML, for a notebook."""
        from querysmasher.report.expectations import plan_notebook  # noqa: PLC0415 - a view

        return plan_notebook(self)

    @classmethod
    @explained("qs.Plan.load('my.plan')")
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan from a file; refuse a damaged or foreign file."""
        from querysmasher.planning.plan_file import load_plan  # noqa: PLC0415 - a view

        return load_plan(path)
