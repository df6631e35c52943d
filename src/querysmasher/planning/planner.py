"""Make a plan: choose centres and strategies, and share the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from querysmasher.arrays import one_core
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.allocation import allocate
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.centre_search import search_centres
from querysmasher.planning.decomposition import Decomposer
from querysmasher.planning.grading import GRADED, lengths
from querysmasher.planning.integer import MAX_RECORDS, check_measurable
from querysmasher.planning.plan import Plan
from querysmasher.planning.prediction import Blocks, Measured
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import SOLVERS, UNIFORM_SOLVERS
from querysmasher.planning.solvers.basis import BasisLosses, choose_bases
from querysmasher.planning.solving import solve_blocks
from querysmasher.planning.subworkload import Block, Piece, Subworkload, separate
from querysmasher.privacy.budget import Budget
from querysmasher.progress import Bar
from querysmasher.workload.families import Family
from querysmasher.workload.workload import Workload

CENTERINGS = ("optimized", "uniform")

LEAST_SQUARE, MOST_SQUARE = 1e-150, 1e150
"""What a query's weight times its squared length may be: sums of products of two such numbers are finite."""

MOST_VALUES = 12_000
"""Prefixes, ranges and the like on more values are refused: a matrix over them takes gigabytes."""


def plan(
    workload: Workload,
    budget: Budget,
    *,
    solver: str = "optimal",
    centering: str | None = None,
    tolerance: float = 1e-3,
    bases: Mapping[str, Any] | None = None,
    max_records: int = MAX_RECORDS,
    progress: bool | None = None,
) -> Plan:
    """Plan how to measure a workload under a privacy budget. No data is needed, or touched.

    Args:
        workload: the queries.
        budget: `PrivacyCost`, `zCDP`, `GaussianDP` or `ApproxDP`.
        solver: "optimal" chooses by size (the table in `querysmasher.planning.solvers`); "dense" and
            "structured" force one. "residual", "basis" and "fourier" are the mechanisms ResidualPlanner,
            ResidualPlanner+ and Weighted Fourier Factorizations: simpler, and never more accurate.
        centering: "optimized" (the default) chooses the centre of every attribute so as to lower the error
            below the paper's optimum; "uniform" is the paper's method, and the only one of the mechanisms
            "residual", "basis" and "fourier".
        tolerance: how far above the optimum of its kind the error may be, as a fraction.
        bases: for solver="basis", an attribute's basis where it is not to be chosen by its queries: one of
            "identity", "prefix", "range", "circular", "haar", or a matrix of rows over its values.
        max_records: the public cap on the number of records that you mean to give `measure`. A plan that
            could not be measured in integers under it is refused; with fewer records, more can be.
        progress: show a progress bar; by default only on a terminal.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> print(round(qs.plan(qs.all_kway(schema, [1, 2], "prefix"), qs.PrivacyCost(1.0)).rmse, 3))
    1.805
    """
    if centering is None:
        centering = "uniform" if solver in UNIFORM_SOLVERS else "optimized"
    check_asked(workload, budget)
    _check(solver, centering, tolerance, max_records)
    _check_sizes(workload)
    far_apart = _check_scales(workload)
    if bases is not None and (solver != "basis" or not isinstance(bases, Mapping)):
        given = f"solver={solver!r}" if solver != "basis" else type(bases).__name__
        msg = f"bases: expected a mapping of attributes to bases, and solver='basis', got {given}"
        raise PlanError(msg)
    with one_core():
        own_bases = choose_bases(workload, bases) if solver == "basis" else None

    def at(centres: Centres) -> Plan:
        return plan_at(centres, centering, workload, budget, solver, tolerance, progress, own_bases)

    with Bar("Choosing centres", None, progress):
        choices = [uniform(workload.schema)]
        if centering == "optimized":
            choices = search_centres(workload, budget, far_apart=far_apart)
    best = first = at(choices[0])
    for centres in choices[1:]:
        trial = at(centres)
        if trial.weighted_loss < best.weighted_loss:
            best = trial
        elif best is not first:
            break  # a bolder step gained more
    try:
        check_measurable(best, max_records)
    except PlanError:
        even = uniform(workload.schema)
        if best.centres == even:
            raise
        best = at(even)  # whose rows are smaller integers
        check_measurable(best, max_records)
    return best


def plan_at(
    centres: Centres,
    centering: str,
    workload: Workload,
    budget: Budget,
    solver: str,
    tolerance: float,
    progress: bool | None,
    bases: list[Solution] | None = None,
) -> Plan:
    """Plan with given centres."""
    subworkloads = Decomposer(workload.schema, centres).decompose(workload.groups)
    public_total = budget.unit.total_is_public
    sets = [s for s in subworkloads if s.attributes or not public_total]  # what is public is not measured
    if not sets:
        why = "it asks only for the number of records, which these neighbours make public"
        msg = (
            f"workload: {why if subworkloads else 'all its queries are zero, so there is nothing to measure'}"
        )
        raise PlanError(msg)
    if bases is None:
        solutions, choices = _solved(sets, tolerance, solver, progress)
    else:
        with one_core():
            solutions, choices = _with_bases(sets, bases)
    reached = [c.reached for c in choices]
    factors = [budget.unit.squared_change(total=not s.attributes) for s in sets]
    variances = allocate(reached, factors, budget.privacy_cost).tolist()
    measured = tuple(
        Measured(s.attributes, c.blocks, variance, c.reached)
        for s, c, variance in zip(sets, choices, variances, strict=True)
    )
    weigh = [math.sqrt(f) for f in factors]
    return Plan(
        workload,
        budget,
        centres,
        tuple(solutions),
        measured,
        weighted_loss=math.fsum(m.variance * m.root_loss**2 for m in measured),
        gap=max(0.0, float(np.dot(weigh, reached) / np.dot(weigh, [c.bound for c in choices])) - 1),
        solver=solver,
        centering=centering,
        tolerance=tolerance,
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is measured on one attribute set: strategies on its axes, √(loss), and a lower bound of it."""

    blocks: Blocks
    reached: float
    bound: float


def _solved(
    sets: Sequence[Subworkload], tolerance: float, solver: str, progress: bool | None
) -> tuple[list[Solution], list[_Choice]]:
    """Split every set into blocks, and solve the distinct ones."""
    numbers: dict[Block, int] = {}
    patterns: dict[Blocks, Blocks] = {}
    found: list[tuple[Blocks, float]] = []
    single: dict[tuple[Piece, ...], Blocks] = {}
    for one in sets:
        alike = one.terms[0].pieces if len(one.terms) == 1 else None  # nearly always: the same up to scale
        if alike is not None and alike in single:
            found.append((single[alike], math.sqrt(one.terms[0].coefficient)))
            continue
        scale, blocks = separate(one.terms)
        numbered = tuple((own.axes, numbers.setdefault(own.block, len(numbers))) for own in blocks)
        found.append((patterns.setdefault(numbered, numbered), math.sqrt(scale)))
        if alike is not None:
            single[alike] = found[-1][0]
    solutions = solve_blocks(list(numbers), tolerance, solver, progress)
    choices = [
        _Choice(
            blocks,
            scale * math.prod(solutions[n].reached for _, n in blocks),
            scale * math.prod(solutions[n].bound for _, n in blocks),
        )
        for blocks, scale in found
    ]
    return solutions, choices


def _with_bases(sets: Sequence[Subworkload], bases: list[Solution]) -> tuple[list[Solution], list[_Choice]]:
    """Measure every set by the product of its attributes' bases."""
    solutions = list(dict.fromkeys(bases))
    number = {id(solution): i for i, solution in enumerate(solutions)}
    losses = BasisLosses()
    known: dict[object, tuple[float, float]] = {}
    patterns: dict[Blocks, Blocks] = {}
    choices = []
    for one in sets:
        own = [bases[a] for a in one.attributes]
        blocks: Blocks = tuple(((axis,), number[id(basis)]) for axis, basis in enumerate(own))
        key = (blocks, one.terms)
        if key not in known:
            known[key] = losses.roots(one.terms, own)
        choices.append(_Choice(patterns.setdefault(blocks, blocks), *known[key]))
    return solutions, choices


def check_asked(workload: object, budget: object) -> None:
    """Refuse what is no workload, or no budget."""
    if not isinstance(workload, Workload):
        msg = f"workload: expected a Workload, got {type(workload).__name__}"
        raise PlanError(msg)
    if not isinstance(budget, Budget):
        msg = f"budget: expected PrivacyCost, zCDP, GaussianDP or ApproxDP, got {budget!r}"
        raise PlanError(msg)


def _check_sizes(workload: Workload) -> None:
    for group in workload:
        for names, family in group.parts():
            if family.closed_form and family.cells > MOST_VALUES:
                msg = (
                    f"workload: the family {family} on {names[0]!r}, which has {family.cells:,} values, is "
                    f"more than can be planned; {MOST_VALUES:,} values are not. Remedies: coarser values or "
                    "bins, or single queries about it"
                )
                raise TooLargeError(msg)


def _check_scales(workload: Workload) -> bool:
    """Refuse queries whose weighted squares would overflow, or vanish; tell whether they are far apart."""
    known: dict[object, tuple[float, float]] = {}
    bounds = []
    for group in workload:
        least = most = group.weight
        for family in group.families:
            if family.key not in known:
                known[family.key] = _squares(family)
            least, most = least * known[family.key][0], most * known[family.key][1]
        if not (least >= LEAST_SQUARE and most <= MOST_SQUARE):
            msg = (
                f"workload: on ({', '.join(group.attributes)}) weight × (length of a query)² goes from "
                f"{least:.1e} to {most:.1e}; double precision allows {LEAST_SQUARE:g} to {MOST_SQUARE:g}"
            )
            raise PlanError(msg)
        bounds.append((least, most))
    return max(most for _, most in bounds) * GRADED**2 > min(least for least, _ in bounds)


def _squares(family: Family) -> tuple[float, float]:
    """Return bounds on the weighted squared lengths of the family's queries that are not zero."""
    if family.closed_form:
        return 1.0, float(family.cells)
    own = lengths(family.matrix())
    squares = own**2 * (1.0 if family.weights is None else family.weights)
    squares = squares[own > 0]
    return (float(squares.min()), float(squares.max())) if squares.size else (1.0, 1.0)


def _check(solver: str, centering: str, tolerance: float, max_records: int) -> None:
    if solver not in SOLVERS:
        msg = f"solver: expected one of {', '.join(SOLVERS)}, got {solver!r}"
        raise PlanError(msg)
    if centering not in CENTERINGS:
        msg = f"centering: expected one of {', '.join(CENTERINGS)}, got {centering!r}"
        raise PlanError(msg)
    if centering == "optimized" and solver in UNIFORM_SOLVERS:
        msg = f"centering: solver={solver!r} is defined for 'uniform' centres only, got 'optimized'"
        raise PlanError(msg)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
        msg = f"tolerance: expected a number between 0 and 1, got {tolerance!r}"
        raise PlanError(msg)
    if isinstance(max_records, bool) or not isinstance(max_records, int) or not 1 <= max_records <= 2**40:
        msg = f"max_records: expected an integer from 1 to 2^40, got {max_records!r}"
        raise PlanError(msg)
