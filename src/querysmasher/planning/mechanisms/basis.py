"""ResidualPlanner+: one basis per attribute, and on every attribute set the product of its attributes' bases.

A basis is chosen for the queries asked of its attribute alone, whatever they are combined with: the best
strategy S for the total and the centred queries, with its columns centred, V = C SᵀS C. Or the user gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from querysmasher.arrays import Array, along_axes, one_core, pseudo_inverse, square_root
from querysmasher.attributes import Attribute
from querysmasher.errors import PlanError, not_one_of
from querysmasher.planning.centre import Centre
from querysmasher.planning.grading import are_far_apart, lengths
from querysmasher.planning.mechanisms.mechanism import Choice, Task
from querysmasher.planning.solution import Blocks, Solution
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
        msg = f"bases: expected attributes of {workload.schema}, got {unknown[0]!r}"
        raise PlanError(msg)
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
    losses = BasisLosses()
    known: dict[object, tuple[float, float]] = {}
    patterns: dict[Blocks, Blocks] = {}
    choices = []
    with one_core():
        for one in task.sets:
            own = [task.bases[a] for a in one.attributes]
            blocks: Blocks = tuple(((axis,), number[basis]) for axis, basis in enumerate(own))
            key = (blocks, one.terms)
            if key not in known:
                known[key] = losses.roots(one.terms, own)
            choices.append(Choice(patterns.setdefault(blocks, blocks), *known[key]))
    return solutions, choices


class BasisLosses:
    """The losses of products of bases; the loss of each part under its bases is computed once."""

    def __init__(self) -> None:
        """Start with no results."""
        self._duals: dict[Solution, tuple[Array, Array]] = {}
        self._known: dict[tuple[Part, tuple[Solution, ...]], float] = {}

    def roots(self, terms: tuple[Term, ...], bases: Sequence[Solution]) -> tuple[float, float]:
        """Return √(loss) on one attribute set, and a lower bound on that of every strategy."""
        loss = sum(
            term.coefficient
            * math.prod(self._loss(piece.part, tuple(bases[a] for a in piece.axes)) for piece in term.pieces)
            for term in terms
        )
        scale, blocks = separate(terms)
        bound = math.sqrt(scale) * math.prod(lower_bound(own.block) for own in blocks)
        return math.sqrt(loss), min(bound, math.sqrt(loss))

    def _loss(self, part: Part, bases: tuple[Solution, ...]) -> float:
        """Return the loss of one part under the product of bases."""
        if (part, bases) not in self._known:
            pairs = [self._dual(b) for b in bases]
            projectors = [projector for _, projector in pairs]
            if not _spans(part, projectors):
                msg = (
                    f"bases: queries on attributes of sizes {part.shape} are not combinations of the bases' "
                    "rows; give bases whose rows span the queries"
                )
                raise PlanError(msg)
            self._known[part, bases] = float(part.energies([dual for dual, _ in pairs]).sum())
        return self._known[part, bases]

    def _dual(self, basis: Solution) -> tuple[Array, Array]:
        if basis not in self._duals:
            rows = basis.strategy.written_out()
            dual = pseudo_inverse(rows)
            self._duals[basis] = dual, dual @ rows
        return self._duals[basis]


def _spans(part: Part, projectors: list[Array]) -> bool:
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
            msg = f"bases[{attribute.name!r}]: {not_one_of([*BASES, 'or rows'], basis)}"
            raise PlanError(msg)
        return _haar(attribute) if basis == "haar" else _best(ONE_ATTRIBUTE[basis].of(n).gram())
    try:
        rows = np.array(basis, dtype=float)
    except (TypeError, ValueError):
        rows = np.zeros(0)
    fits = rows.ndim == 2 and rows.shape[1:] == (n,) and np.isfinite(rows).all() and rows.any()
    if fits:
        rows = rows / np.abs(rows).max()
    if not fits or np.abs(_centred(rows)).max() <= RANK:
        msg = (
            f"bases[{attribute.name!r}]: expected a matrix of finite numbers with {n} columns, one per "
            f"value, whose rows distinguish values, got {type(basis).__name__} of shape {rows.shape}"
        )
        raise PlanError(msg)
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
        msg = f"bases[{attribute.name!r}]: expected 2^k values for the basis 'haar', got {n}"
        raise PlanError(msg)
    rows: list[Array] = []
    length = n
    while length > 1:
        wave = np.repeat([1.0, -1.0], length // 2)
        rows += [np.concatenate([np.zeros(s), wave, np.zeros(n - s - length)]) for s in range(0, n, length)]
        length //= 2
    return np.array(rows)


def _centred(rows: Array) -> Array:
    """Subtract its mean from every row."""
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))
