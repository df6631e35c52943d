"""The mechanisms that can be planned and measured, and the options of planning.

A mechanism says which strategies are allowed; a numerical method (`querysmasher.planning.solvers`) finds the
best of them. Spec files, `compare`, the documentation and error messages all derive from this list. Distinct
blocks are solved once. A new mechanism needs an entry in `MECHANISMS`.

ResidualPlanner+ has one basis per attribute, and on every attribute set the product of its attributes' bases.
A basis is chosen for the queries asked of its attribute alone, whatever they are combined with: the best
strategy S for the total and the centred queries, with its columns centred, V = C SᵀS C. Or a user gives one.

Few queries may be measured whole, not split. Cells that no query distinguishes have equal columns in every
strategy inside the queries' row space, so only distinct columns are optimised (`planning.cells`). The result
is the optimum over *all* matrix mechanisms for these queries. It answers only their linear combinations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from querysmasher.arrays import Array, one_core, pseudo_inverse, square_root
from querysmasher.attributes import Attribute
from querysmasher.errors import PlanError, as_given, as_ratio, not_one_of
from querysmasher.planning.cells import MergedRows
from querysmasher.planning.centre import Centre
from querysmasher.planning.checks import nothing_to_measure
from querysmasher.planning.drawing import raised
from querysmasher.planning.grading import are_far_apart
from querysmasher.planning.lattice import RANK, Integers, common_lattice, integer_rows
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Blocks, Solution
from querysmasher.planning.solvers import SOLVERS, Solver, solve
from querysmasher.planning.solvers.bounds import centre_value, lower_bound
from querysmasher.planning.solvers.design import solve_design
from querysmasher.planning.solvers.optimum import (
    best_of_pairs,
    best_rows,
    block_root,
    fourier_basis,
    grouped_value,
    independent_root,
    is_circulant,
    root_diagonal,
    solve_circulant_pairs,
    solve_dense,
)
from querysmasher.planning.solvers.structured import solve_fourier
from querysmasher.planning.split import Block, Part, Piece, Subworkload, Term, query_tensor, separate
from querysmasher.planning.strategies import DenseStrategy, DiagonalStrategy, MergedStrategy
from querysmasher.progress import Bar
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.workload import Workload

BASES = (*ONE_ATTRIBUTE, "haar")
"""Names of bases: the one made for a family of queries, or Haar wavelets."""


Axes = tuple[int, ...]

Choice = tuple[Blocks, float, float]
"""What is measured on one attribute set: strategies on its axes, √(loss), and a lower bound on it."""

Chosen = tuple[list[Solution], list[Choice]]
"""The distinct solutions, and the choice for every attribute set."""

Choose = Callable[[Sequence[Subworkload], "Options"], Chosen]


@dataclass(frozen=True)
class Mechanism:
    """A published rule that says which strategies are allowed."""

    name: str
    title: str
    """Its name in publications."""
    measures: str
    """What it measures, in a clause."""
    suits: str
    """When to use it, in a clause."""
    cannot: str
    """What it cannot do, in sentences; empty for the default."""
    choose: Choose | None
    """How it measures the attribute sets of a split workload; None if it splits no queries."""
    uniform_only: bool = True
    """Whether it is defined for uniform centres only."""
    has_bases: bool = False
    """Whether the user may give a basis for an attribute."""
    ties: bool = False
    """Whether it uses knowledge of impossible combinations, which the published rule does not."""


def solve_blocks(
    blocks: Sequence[Block],
    tolerance: float,
    solver: Solver,
    progress: bool | None = None,
    alone: Collection[Block] = (),
) -> list[Solution]:
    """Return one solution per block, in order; each can answer every query of its block.

    Heavy blocks run through joblib, so that ``joblib.parallel_config`` can move them to processes or to
    a cluster. A single heavy block gets all cores for its matrix products instead. Blocks that are `alone`
    are solved for pairs of cells.
    """
    by_weight = sorted(dict.fromkeys(blocks), key=lambda block: -block.cells)
    heavy = [block for block in by_weight if block.cells > limits().light_cells]
    together = len(heavy) if len(heavy) > 1 else 0

    def solved() -> Iterator[Solution]:
        if together:
            from joblib import Parallel, delayed  # noqa: PLC0415 - light blocks do not need it

            with one_core():
                jobs = (delayed(_solve)(block, tolerance, solver, alone) for block in heavy)
                yield from Parallel(n_jobs=-1, prefer="threads", return_as="generator")(jobs)
        for block in by_weight[together:]:
            with one_core() if block.cells <= limits().threaded_cells else nullcontext():
                yield _solve(block, tolerance, solver, alone)

    solutions, gap = {}, 0.0
    with Bar("Solving", len(by_weight), progress) as bar:
        for block, solution in zip(by_weight, solved(), strict=True):
            solutions[block], gap = solution, max(gap, solution.gap)
            bar.advance()
            bar.note(f"certified gap {gap:.1e}")
    return [solutions[block] for block in blocks]


def _solve(block: Block, tolerance: float, solver: Solver, alone: Collection[Block]) -> Solution:
    """Solve one block; refuse a strategy that misses a query, as double precision can at its limits."""
    (first, *_) = block.pieces
    if first.part.groups is not None and len(block.shape) == 1:
        return _solve_within(block, first.part.groups, tolerance, solver)
    if block in alone:
        even = len(block.shape) == 1 and is_circulant(block)
        solver = solve_circulant_pairs if even else partial(solve_dense, pairs=True)
    solution = solver(block, tolerance)
    if solution.strategy.rank == math.prod(n - 1 for n in block.shape):
        return solution  # its rows span the whole residual space
    for term in block.terms:
        rows = ((piece.axes, piece.part.rows) for piece in term.pieces)
        if not solution.strategy.contains([(axes, part[part.any(axis=1)]) for axes, part in rows]):
            raise PlanError(
                f"workload: queries on {len(block.shape)} attributes of sizes {block.shape} differ so much "
                "in weight or size, or so little from each other, that double precision loses some of them. "
                "Remedies: weights and coefficients that are less far apart, or fewer of these queries"
            )
    return solution


def _solve_within(block: Block, groups: Integers, tolerance: float, solver: Solver) -> Solution:
    """Solve a block of one attribute of which a replaced record keeps the group of its value.

    Columns of length 1 - 1/k, with k values in a group, are at a distance of about the same from each other
    in groups of any size: short columns of small groups cost no more than others.
    """
    sizes = np.bincount(groups)[groups]
    root = np.sqrt(np.where(sizes > 1, 1 - 1 / sizes, 1.0))
    pieces = (
        Piece(p.axes, replace(p.part, content=p.part.content / root, groups=None)) for p in block.pieces
    )
    terms = tuple(Term(t.coefficient, (piece,)) for t, piece in zip(block.terms, pieces, strict=True))
    solution = _solve(Block(block.shape, terms), tolerance, solver, ())
    rows = solution.strategy.written_out() * root
    rows /= (length := float(np.linalg.norm(rows, axis=0).max()))
    lattice = common_lattice([piece.part.lattice for piece in block.pieces], len(rows))
    strategy = DenseStrategy(block.shape, rows, lattice)
    return Solution(strategy, solution.reached * length, solution.bound * float(root.min()), solution.method)


def solve_separately(solver_for: Callable[[Options], Solver]) -> Choose:
    """Return a function that splits every set into blocks, and solves the distinct ones."""

    def choose(sets: Sequence[Subworkload], options: Options) -> Chosen:
        numbers: dict[Block, int] = {}

        @cache
        def separated(terms: tuple[Term, ...]) -> tuple[Blocks, float]:
            scale, blocks = separate(terms)
            return tuple((axes, numbers.setdefault(block, len(numbers))) for axes, block in blocks), scale

        scaled = []
        for terms in (s.terms for s in sets):
            unit = terms[0].coefficient if len(terms) == 1 else 1.0  # nearly all sets are equal up to scale
            blocks, scale = separated((Term(1.0, terms[0].pieces),) if len(terms) == 1 else terms)
            scaled.append((blocks, math.sqrt(unit * scale)))
        own: set[Block] = set()
        if options.replaced and options.are_default and not options.grouped:
            own = _alone(
                sets,
                [[(axes, list(numbers)[n]) for axes, n in blocks] for blocks, _ in scaled],
                options.agreed,
            )
        alone = {block for block in own if block.cells <= limits().paired_cells or is_circulant(block)}
        paired = alone | _tied(numbers) if options.replaced and options.are_default else alone
        solutions = solve_blocks(
            list(numbers), options.tolerance, solver_for(options), options.progress, paired
        )
        bounds = [s.bound for s in solutions]
        if options.replaced:
            own = own if options.alone else set()
            bounds = [
                centre_value(block)
                if block not in own
                else pair_root(s) / math.sqrt(2)
                if block in alone
                else max(centre_value(block), grouped_value(block_root(block)))
                for block, s in zip(numbers, solutions, strict=True)
            ]
        used = {blocks: [n for _, n in blocks] for blocks in {blocks for blocks, _ in scaled}}
        reached = {blocks: math.prod(solutions[n].reached for n in each) for blocks, each in used.items()}
        bound = {blocks: math.prod(bounds[n] for n in each) for blocks, each in used.items()}
        least = [scale * bound[blocks] for blocks, scale in scaled]
        if options.replaced and options.alone and not options.grouped:
            their = {n for n, block in enumerate(numbers) if block in own}
            independent = {
                s.attributes[axis]
                for s, (blocks, _) in zip(sets, scaled, strict=True)
                for axes, n in blocks
                if n in their
                for axis in axes
            }
            least = raised(least, sets, options.agreed, independent)
        choices = [
            (blocks, scale * reached[blocks], low) for (blocks, scale), low in zip(scaled, least, strict=True)
        ]
        return solutions, choices

    return choose


def _alone(
    sets: Sequence[Subworkload], blocks: Sequence[Sequence[tuple[Axes, Block]]], agreed: frozenset[int]
) -> set[Block]:
    """Return the blocks of single attributes whose worst pairs are their own.

    No set has another attribute of which a replaced record may change the value, nor another block for it.
    Those of few cells are solved for pairs; others are bounded for them.
    """
    shared, found = set[int](), defaultdict[int, set[Block]](set)
    for s, inside in zip(sets, blocks, strict=True):
        free = [a for a in s.every_attribute if a not in agreed]
        shared.update(free if len(free) > 1 else [])
        for axes, block in inside:
            for axis in axes:
                found[s.attributes[axis]].add(block)
    alone, others = set[Block](), set[Block]()
    for attribute, some in found.items():
        (block, *more) = some
        own = attribute not in shared | agreed and not more and len(block.shape) == 1
        own = own and block.cells <= limits().dense_values
        (alone if own else others).update(some)
    return alone - others


def _tied(blocks: Iterable[Block]) -> set[Block]:
    """Return the blocks that tie attributes together, and are charged for their own worst pairs."""
    return {b for b in blocks if len(b.shape) > 1 and b.cells <= limits().paired_cells}


def pair_root(solution: Solution) -> float:
    """Return the lower bound of a solution for pairs of cells, relative to the cost of the worst pair."""
    return solution.bound * math.sqrt(solution.strategy.column_products().farthest)


# --- bases ---


def solve_residual(block: Block, tolerance: float = 0.0) -> Solution:  # noqa: ARG001
    """Measure every residual evenly, V ∝ the projection onto the residual space: optimal for marginals."""
    weight = math.prod(n / (n - 1) for n in block.shape)  # the projection's diagonal is its inverse
    bases = tuple(map(fourier_basis, block.shape))  # any orthonormal basis; this one rounds well
    strategy = DiagonalStrategy(bases, np.full([n - 1 for n in block.shape], weight))
    reached = math.sqrt(sum(term.energy for term in block.terms) / weight)
    return Solution(strategy, reached, min(reached, lower_bound(block)), "residual")


def choose_bases(workload: Workload, given: Mapping[str, Any] | None) -> list[Solution]:
    """Return the basis of every attribute: `given` (a name, or rows over its values), or for its queries."""
    given = given or {}
    unknown = [name for name in given if name not in workload.schema]
    if unknown:
        raise PlanError(f"bases: expected attributes of {workload.schema}, got {unknown[0]!r}")
    grams: dict[str, dict[object, Array]] = {a.name: {} for a in workload.schema}
    tied: set[str] = set()
    for group in workload:
        for names, family in group.parts():
            if len(names) == 1:
                grams[names[0]].setdefault(family.key, family.gram())
            if len(names) > 1 or (not family.closed_form and are_far_apart(query_tensor(family, (0,)))):
                tied.update(names)
    made: dict[object, Solution] = {}
    solutions = []
    for attribute in workload.schema:
        queries, basis = grams[attribute.name], given.get(attribute.name)
        same = basis if basis is None or isinstance(basis, str) else id(basis)
        key = (attribute.size, tuple(queries), same, attribute.name in tied)
        if key not in made:
            made[key] = _solution(attribute, list(queries.values()), basis, attribute.name in tied)
        solutions.append(made[key])
    return solutions


def choose_products(sets: Sequence[Subworkload], options: Options) -> Chosen:
    """Measure every set by the product of its attributes' bases."""
    solutions = list(dict.fromkeys(options.bases))
    number = {solution: i for i, solution in enumerate(solutions)}

    @cache
    def loss(part: Part, bases: tuple[Solution, ...]) -> float:
        """Return the loss of one part under the product of bases."""
        matrices = tuple(basis.strategy.written_out() for basis in bases)
        strategy = DiagonalStrategy(matrices, np.ones(tuple(map(len, matrices))))
        queries = part.rows
        if not strategy.contains([(tuple(range(len(bases))), queries[queries.any(axis=1)])]):
            raise PlanError(
                f"bases: queries on attributes of sizes {part.shape} are not combinations of the bases' "
                "rows; give bases whose rows span the queries"
            )
        return float(part.energies(strategy.inverses).sum())

    @cache
    def choice(terms: tuple[Term, ...], bases: tuple[Solution, ...]) -> Choice:
        """Return the strategies of a set, √(loss), and a lower bound on that of every strategy."""
        total = sum(
            term.coefficient * math.prod(loss(p.part, tuple(bases[a] for a in p.axes)) for p in term.pieces)
            for term in terms
        )
        scale, blocks = separate(terms)
        least = centre_value if options.replaced else lower_bound
        bound = math.sqrt(scale) * math.prod(least(block) for _, block in blocks)
        chosen = tuple(((axis,), number[basis]) for axis, basis in enumerate(bases))
        return chosen, math.sqrt(total), min(bound, math.sqrt(total))

    with one_core():
        return solutions, [choice(s.terms, tuple(options.bases[a] for a in s.attributes)) for s in sets]


def _solution(attribute: Attribute, grams: list[Array], basis: Any, whole: bool) -> Solution:
    """Return a basis, with its loss on the queries of its attribute.

    Counts of the single values are added if these queries distinguish no values, or only some and the basis
    must serve the `whole` attribute, because queries tie it to others.
    """
    n = attribute.size
    if n == 1:  # nothing is ever measured on it alone
        return Solution(DenseStrategy((1,), np.ones((1, 1))), 0.0, 0.0, "basis")
    gram = sum(grams, np.zeros((n, n))) if grams else np.eye(n)
    rank = np.count_nonzero(np.linalg.eigvalsh(_doubly_centred(gram)) > RANK * np.trace(gram))
    if not rank or (whole and rank < n - 1):
        gram = gram + np.eye(n) * (np.trace(gram) / n or 1.0)
    rows = _centred(_rows(attribute, gram, basis))
    V = rows.T @ rows
    strategy = square_root(V / np.diagonal(V).max(), RANK)
    residual, dual = _doubly_centred(gram), pseudo_inverse(strategy)
    reached = math.sqrt(float(np.vdot(dual, residual @ dual)))
    bound = lower_bound(Block.of(Part((n,), (Centre.uniform(n),), residual)))
    return Solution(DenseStrategy((n,), strategy), reached, min(reached, bound), "basis")


def _rows(attribute: Attribute, gram: Array, basis: Any) -> Array:
    """Return the strategy rows of an attribute, not yet centred."""
    n = attribute.size
    if basis is None:
        return _best(gram)
    if isinstance(basis, str):
        if basis not in BASES:
            raise PlanError(f"bases[{attribute.name!r}]: {not_one_of([*BASES, 'or rows'], basis)}")
        return _haar(attribute) if basis == "haar" else _best(ONE_ATTRIBUTE[basis]((n,)).gram())
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
    start = np.full(len(gram), 1 / len(gram))
    return solve_design(square_root(_doubly_centred(gram) + 1.0, RANK), start, 1e-7).strategy()


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


def _doubly_centred(gram: Array) -> Array:
    return _centred(_centred(gram).T)


# --- whole queries ---


def root_of(merged: MergedRows) -> Array:
    """Return independent rows with the Gram matrix of the queries times the roots of their weights."""
    return independent_root(merged.rows * np.sqrt(merged.weights)[:, None])


def solve_whole(
    merged: MergedRows, tolerance: float, root: Array | None = None, *, pairs: bool = False
) -> Solution:
    """Return the optimal strategy for all queries, over the distinct columns of their cells.

    For `pairs` of cells, as if a record is replaced, the queries are less their means over columns.
    """
    if not merged.rows[merged.weights > 0].any():
        raise nothing_to_measure()
    columns, corners = merged.rows.shape[1], merged.corners
    root = root_of(merged) if root is None else root
    if corners is not None:
        root = root[:, corners.columns]
    nearness = limits().whole_nearness * tolerance
    if pairs:
        matrix, reached, bound = best_of_pairs(root, tolerance / 4, merged.classes, enough=nearness)
    else:
        diagonal = root_diagonal(root)
        start = np.ones(root.shape[1]) if diagonal is None else diagonal**2
        matrix, reached, bound = best_rows(root, start, tolerance / 4, enough=nearness)
    del root  # as large as the queries
    if corners is not None:
        matrix = corners.filled(matrix)
    rows = np.ascontiguousarray(matrix)  # as files store it, so that loaded plans predict the same bits
    lattice = None if len(rows) == columns else common_lattice([integer_rows(merged.spanning)], len(rows))
    strategy = MergedStrategy(merged.shape, merged.maps, merged.labels, rows, lattice)
    return Solution(strategy, reached, bound, "whole")


MECHANISMS = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(
            "querysmasher",
            "QuerySmasher",
            "the best strategy for every attribute set, around centres chosen for the workload; a few "
            "queries measured whole, if that is better",
            "no reason below applies",
            "",
            solve_separately(lambda options: partial(solve, solver=options.solver)),
            uniform_only=False,
            ties=True,
        ),
        Mechanism(
            "basis",
            "ResidualPlanner+",
            "one basis per attribute, made for its own queries or given as `bases={...}`",
            "policy or software downstream prescribes a basis (Haar wavelets, a hierarchy)",
            "It cannot adapt an attribute's basis to the other attributes of a query, or to queries that "
            "combine attributes, such as comparisons.",
            choose_products,
            has_bases=True,
        ),
        Mechanism(
            "residual",
            "ResidualPlanner",
            "measures every residual evenly, whatever the queries",
            "the workload has only marginals, or you may ask any marginal later: this mechanism is "
            "optimal for marginals and favours no query",
            "It adapts to marginals only.",
            solve_separately(lambda _: solve_residual),
        ),
        Mechanism(
            "fourier",
            "Weighted Fourier Factorizations",
            "adds noise to Fourier coefficients",
            "attributes are circular, or one non-product block has too many cells for any other method: "
            "planning it takes only a fast Fourier transform",
            "It cannot distinguish the ends of an attribute from its middle.",
            solve_separately(lambda _: solve_fourier),
        ),
        Mechanism(
            "whole",
            "Whole queries",
            "the queries themselves, not split: the optimum over all mechanisms, found over the cells they "
            "distinguish",
            "queries are few (at most 4,000) and you will ask no others later",
            "Its releases answer only the planned queries and their linear combinations. It refuses large "
            "tables. If records are replaced and the queries distinguish more than "
            f"{limits().paired_cells} kinds of cells, it is near-optimal.",
            None,
            ties=True,
        ),
    )
}
"""Mechanisms by name."""

DEFAULT = "querysmasher"


CENTERINGS = ("optimized", "uniform")


@dataclass(frozen=True, eq=False)
class Options:
    """A valid combination of planning options, and what they imply for a workload."""

    mechanism: Mechanism
    solver: str
    centering: str
    tolerance: float
    bases: Sequence[Solution] = ()
    """The basis of every attribute, if the mechanism has bases."""
    lines: tuple[int, ...] = ()
    """Indexes of attributes that are planned as lines or trees, with a separate centre on every set."""
    replaced: bool = False
    """Whether neighbours replace a record."""
    alone: bool = True
    """Whether nothing is measured but what is split: bounds may then draw pairs of cells in any way, and else
    independently, with the weights of the centres, as those for what is whole do."""
    agreed: frozenset[int] = frozenset()
    """The attributes of which a replaced record keeps the values."""
    grouped: bool = False
    """Whether a replaced record keeps the group of the value of some attribute: pairs are then drawn
    independently otherwise, for bounds and for prices."""
    progress: bool | None = None

    @property
    def are_default(self) -> bool:
        """Whether the mechanism and the numerical method are the default ones."""
        return self.mechanism.name == DEFAULT and self.solver == SOLVERS[0]

    @property
    def keeps_whole(self) -> bool:
        """Whether queries may be measured whole, not split, where that is better."""
        return self.are_default and self.centering == "optimized"

    @classmethod
    def of(
        cls,
        mechanism: str | None = None,
        solver: str = "optimal",
        centering: str | None = None,
        tolerance: float = 1e-3,
        bases: Mapping[str, Any] | None = None,
    ) -> Options:
        """Return the options, or refuse unknown or incompatible ones.

        The name of a mechanism as `solver` selects that mechanism.
        """
        if mechanism is None:
            mechanism, solver = named(solver)
        if mechanism not in MECHANISMS:
            raise PlanError(f"mechanism: {not_one_of(MECHANISMS, mechanism)}")
        if solver not in SOLVERS:
            raise PlanError(f"solver: {not_one_of(SOLVERS, solver)}")
        chosen = MECHANISMS[mechanism]
        if solver != SOLVERS[0] and mechanism != DEFAULT:
            msg = f"solver: expected {SOLVERS[0]!r}, as mechanism={mechanism!r} has its own method, got "
            raise PlanError(msg + repr(solver))
        if centering is None:
            centering = "uniform" if chosen.uniform_only else "optimized"
        if centering not in CENTERINGS:
            raise PlanError(f"centering: {not_one_of(CENTERINGS, centering)}")
        if centering == "optimized" and chosen.uniform_only:
            msg = f"centering: mechanism={mechanism!r} is defined for 'uniform' centres only, got 'optimized'"
            raise PlanError(msg)
        if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
            got = f"{as_given(tolerance)}{as_ratio(tolerance)}"
            raise PlanError(f"tolerance: expected a number between 0 and 1, such as 1e-3, got {got}")
        if bases is not None and not (chosen.has_bases and isinstance(bases, Mapping)):
            given = type(bases).__name__ if chosen.has_bases else f"mechanism={mechanism!r}"
            having = " or ".join(repr(m.name) for m in MECHANISMS.values() if m.has_bases)
            msg = f"bases: expected a mapping of attributes to bases, and mechanism={having}, got {given}"
            raise PlanError(msg)
        return cls(chosen, solver, centering, tolerance)


def named(solver: str) -> tuple[str, str]:
    """Return the mechanism and the numerical method that `solver` alone selects."""
    return (solver, SOLVERS[0]) if solver in MECHANISMS else (DEFAULT, solver)
