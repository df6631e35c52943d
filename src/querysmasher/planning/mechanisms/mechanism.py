"""A mechanism: which strategies it allows, and how it chooses among them. Distinct blocks are solved once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from querysmasher.arrays import one_core
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Blocks, Solution
from querysmasher.planning.solvers import Solver, check_answers
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.subworkload import Block, Piece, Subworkload, separate
from querysmasher.progress import Bar
from querysmasher.workload.workload import Workload


def solve_blocks(
    blocks: Sequence[Block], tolerance: float, solver: Solver, progress: bool | None = None
) -> list[Solution]:
    """Return one solution per block, in order; each can answer every query of its block.

    Heavy blocks run through joblib, so that ``joblib.parallel_config`` can move them to processes or to
    a cluster. A single heavy block gets all cores for its matrix products instead.
    """
    solutions: dict[int, Solution] = {}
    light = [i for i, b in enumerate(blocks) if b.cells <= limits().light_cells]
    heavy = sorted(set(range(len(blocks))).difference(light), key=lambda i: -blocks[i].cells)
    with Bar("Solving", len(blocks), progress) as bar:
        with one_core():
            for i in light:
                solutions[i] = _solve(blocks[i], tolerance, solver)
                bar.advance()
            if len(heavy) > 1:
                from joblib import Parallel, delayed  # noqa: PLC0415 - light blocks do not need it

                jobs = (delayed(_solve)(blocks[i], tolerance, solver) for i in heavy)
                solved = Parallel(n_jobs=-1, prefer="threads", return_as="generator")(jobs)
                for i, solution in zip(heavy, solved, strict=True):
                    solutions[i] = solution
                    bar.advance()
                    bar.note(f"certified gap {max(s.gap for s in solutions.values()):.1e}")
        if len(heavy) == 1:
            (i,) = heavy
            with one_core() if blocks[i].cells <= limits().threaded_cells else nullcontext():
                note = lambda gap: bar.note(f"certified gap {gap:.1e}")  # noqa: E731
                solutions[i] = _solve(blocks[i], tolerance, solver, note)
            bar.advance()
    return [solutions[i] for i in range(len(blocks))]


def _solve(block: Block, tolerance: float, solver: Solver, progress: Progress | None = None) -> Solution:
    """Solve one block, and check that the strategy answers every query of it."""
    solution = solver(block, tolerance, progress)
    check_answers(block, solution.strategy)
    return solution


@dataclass(frozen=True, slots=True)
class Task:
    """The subworkloads that a mechanism measures, and how carefully it chooses."""

    workload: Workload
    sets: Sequence[Subworkload]
    """The attribute sets to measure: those of the split workload, or one if the mechanism does not split."""
    tolerance: float
    solver: str = "optimal"
    """The requested numerical method, if the mechanism leaves a choice."""
    bases: Sequence[Solution] = ()
    """The basis of every attribute, if the mechanism has bases."""
    progress: bool | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What is measured on one attribute set: strategies on its axes, √(loss), and a lower bound on it."""

    blocks: Blocks
    reached: float
    bound: float


Choose = Callable[[Task], tuple[list[Solution], list[Choice]]]
"""Returns the distinct solutions, and the choice for every attribute set."""


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
    choose: Choose
    uniform_only: bool = True
    """Whether it is defined for uniform centres only."""
    splits: bool = True
    """Whether it splits queries over residual spaces."""
    has_bases: bool = False
    """Whether the user may give a basis for an attribute."""


def solve_separately(solver_for: Callable[[Task], Solver]) -> Choose:
    """Return a function that splits every set into blocks, and solves the distinct ones."""

    def choose(task: Task) -> tuple[list[Solution], list[Choice]]:
        numbers: dict[Block, int] = {}
        patterns: dict[Blocks, Blocks] = {}
        found: list[tuple[Blocks, float]] = []
        single: dict[tuple[Piece, ...], Blocks] = {}
        for one in task.sets:
            alike = one.terms[0].pieces if len(one.terms) == 1 else None  # nearly always: equal up to scale
            if alike is not None and alike in single:
                found.append((single[alike], math.sqrt(one.terms[0].coefficient)))
                continue
            scale, blocks = separate(one.terms)
            numbered = tuple((own.axes, numbers.setdefault(own.block, len(numbers))) for own in blocks)
            found.append((patterns.setdefault(numbered, numbered), math.sqrt(scale)))
            if alike is not None:
                single[alike] = found[-1][0]
        solutions = solve_blocks(list(numbers), task.tolerance, solver_for(task), task.progress)
        choices = [
            Choice(
                blocks,
                scale * math.prod(solutions[n].reached for _, n in blocks),
                scale * math.prod(solutions[n].bound for _, n in blocks),
            )
            for blocks, scale in found
        ]
        return solutions, choices

    return choose
