"""ResidualPlanner+: one basis per attribute, and on every attribute set the product of its attributes' bases.

A basis is chosen for the queries asked of its attribute alone, whatever they are combined with: the best
strategy S for the total and the centred queries, with its columns centred, V = C SᵀS C. Or the user gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from querysmasher.arrays import Array, along_axes, one_core, pseudo_inverse, square_root
from querysmasher.attributes import Attribute
from querysmasher.errors import PlanError, not_one_of
from querysmasher.planning.centre import Centre
from querysmasher.planning.grading import are_far_apart, lengths
from querysmasher.planning.mechanisms.mechanism import Choice, Task
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers.bounds import lower_bound
from querysmasher.planning.solvers.design import solve_design
from querysmasher.planning.strategies import DenseStrategy
from querysmasher.planning.subworkload import Block, Part, Term, separate
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Workload

BASES = (*ONE_ATTRIBUTE, "haar")
"""Names of bases: the one made for a family of queries, or Haar wavelets."""

RANK = 1e-10
OUTSIDE = 1e-9
"""A basis does not answer queries with more than this fraction of their energy outside it."""


def choose_bases(workload: Workload, given: Mapping[str, Any] | None) -> list[Solution]:
    """Return the basis of every attribute: `given` (a name, or rows over its values), or for its queries."""
    given = given or {}
    unknown = [name for name in given if name not in workload.schema]
    if unknown:
        raise PlanError(f"bases: expected attributes of {workload.schema}, got {unknown[0]!r}")
    asked: dict[str, dict[object, Array]] = {a.name: {} for a in workload.schema}
    tied: set[str] = set()
    for group in workload:
        for names, family in group.parts():
            if len(names) == 1:
                asked[names[0]].setdefault(family.key, family.gram())
            if len(names) > 1 or _is_far_apart(family):
                tied.update(names)
    made: dict[object, Solution] = {}
    solutions = []
    for attribute in workload.schema:
        grams, basis, whole = asked[attribute.name], given.get(attribute.name), attribute.name in tied
        same = basis if basis is None or isinstance(basis, str) else id(basis)
        key = (attribute.size, tuple(grams), same, whole)
        if key not in made:
            made[key] = _solution(attribute, list(grams.values()), basis, whole)
        solutions.append(made[key])
    return solutions


def choose_products(task: Task) -> tuple[list[Solution], list[Choice]]:
    """Measure every set by the product of its attributes' bases."""
    solutions = list(dict.fromkeys(task.bases))
    number = {solution: i for i, solution in enumerate(solutions)}

    @cache
    def dual(basis: Solution) -> tuple[Array, Array]:
        """Return the dual of a basis, and the projector onto its span."""
        rows = basis.strategy.written_out()
        inverse = pseudo_inverse(rows)
        return inverse, inverse @ rows

    @cache
    def loss(part: Part, bases: tuple[Solution, ...]) -> float:
        """Return the loss of one part under the product of bases."""
        duals, projectors = zip(*map(dual, bases), strict=True)
        if not _spans(part, projectors):
            raise PlanError(
                f"bases: queries on attributes of sizes {part.shape} are not combinations of the bases' "
                "rows; give bases whose rows span the queries"
            )
        return float(part.energies(duals).sum())

    @cache
    def choice(terms: tuple[Term, ...], bases: tuple[Solution, ...]) -> Choice:
        """Return the strategies of a set, √(loss), and a lower bound on that of every strategy."""
        total = sum(
            term.coefficient * math.prod(loss(p.part, tuple(bases[a] for a in p.axes)) for p in term.pieces)
            for term in terms
        )
        scale, blocks = separate(terms)
        bound = math.sqrt(scale) * math.prod(lower_bound(own.block) for own in blocks)
        own = tuple(((axis,), number[basis]) for axis, basis in enumerate(bases))
        return Choice(own, math.sqrt(total), min(bound, math.sqrt(total)))

    with one_core():
        return solutions, [
            choice(one.terms, tuple(task.bases[a] for a in one.attributes)) for one in task.sets
        ]


def _spans(part: Part, projectors: Sequence[Array]) -> bool:
    """Return whether a part's queries lie in the span of the bases, each relative to its length if known."""
    rows = part.rows
    if rows is None:
        return bool(part.energies(projectors).sum() >= (1 - OUTSIDE) * part.trace)
    inside = along_axes(rows.reshape(-1, *part.shape), 1, projectors).reshape(rows.shape)
    return bool(np.all(lengths(rows - inside) <= math.sqrt(OUTSIDE) / 10 * lengths(rows)))


def _is_far_apart(family: Family) -> bool:
    """Return whether a family's Gram matrix would lose some of its queries."""
    if family.closed_form:
        return False
    rows = family.matrix()
    return are_far_apart(rows if family.weights is None else rows * np.sqrt(family.weights)[:, None])


def _solution(attribute: Attribute, grams: list[Array], basis: Any, whole: bool) -> Solution:
    """Return a basis, with its loss on the queries of its own attribute.

    Counts of the single values are added if these queries distinguish no values, or only some and the basis
    must serve the `whole` attribute, because queries tie it to others.
    """
    n = attribute.size
    if n == 1:  # nothing is ever measured on it alone
        return Solution(DenseStrategy((1,), np.ones((1, 1))), 0.0, 0.0, "basis")
    asked = sum(grams, np.zeros((n, n))) if grams else np.eye(n)
    energies = np.linalg.eigvalsh(_centred(_centred(asked).T))
    told = np.count_nonzero(energies > RANK * np.trace(asked))
    if not told or (whole and told < n - 1):
        asked = asked + np.eye(n) * (np.trace(asked) / n or 1.0)
    rows = _centred(_rows(attribute, asked, basis))
    V = rows.T @ rows
    strategy = square_root(V / np.diagonal(V).max(), RANK)
    own = _centred(_centred(asked).T)
    dual = pseudo_inverse(strategy)
    reached = math.sqrt(float(np.vdot(dual, own @ dual)))
    bound = lower_bound(Block.of(Part((n,), (Centre.uniform(n),), own)))
    return Solution(DenseStrategy((n,), strategy), reached, min(reached, bound), "basis")


def _rows(attribute: Attribute, asked: Array, basis: Any) -> Array:
    """Return the strategy rows of an attribute, not yet centred."""
    n = attribute.size
    if basis is None:
        return _best(asked)
    if isinstance(basis, str):
        if basis not in BASES:
            raise PlanError(f"bases[{attribute.name!r}]: {not_one_of([*BASES, 'or rows'], basis)}")
        return _haar(attribute) if basis == "haar" else _best(ONE_ATTRIBUTE[basis].of(n).gram())
    try:
        rows = np.array(basis, dtype=float)
    except (TypeError, ValueError):
        rows = np.zeros(0)
    fits = rows.ndim == 2 and rows.shape[1:] == (n,) and np.isfinite(rows).all() and rows.any()
    if fits:
        rows = rows / np.abs(rows).max()
    if not fits or np.abs(_centred(rows)).max() <= RANK:
        raise PlanError(
            f"bases[{attribute.name!r}]: expected a matrix of finite numbers with {n} columns, one per "
            f"value, whose rows distinguish values, got {type(basis).__name__} of shape {rows.shape}"
        )
    return rows


def _best(gram: Array) -> Array:
    """Return the best strategy for the total and the centred queries."""
    n = len(gram)
    stacked = _centred(_centred(gram).T) + 1.0
    return solve_design(square_root(stacked, RANK), np.full(n, 1.0 / n), 1e-7).strategy()


def _haar(attribute: Attribute) -> Array:
    """Return the Haar wavelets: half against half, on ever shorter intervals."""
    n = attribute.size
    if n & (n - 1):
        raise PlanError(f"bases[{attribute.name!r}]: expected 2^k values for the basis 'haar', got {n}")
    halves = (np.repeat([1.0, -1.0], n >> level) for level in range(1, n.bit_length()))
    return np.vstack([np.kron(np.eye(n // wave.size), wave) for wave in halves])


def _centred(rows: Array) -> Array:
    """Subtract its mean from every row."""
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))
