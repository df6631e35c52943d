"""A mechanism: which strategies it allows, and how it chooses among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from querysmasher.planning.measured import Blocks
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import Solver
from querysmasher.planning.solving import solve_blocks
from querysmasher.planning.subworkload import Block, Piece, Subworkload, separate
from querysmasher.workload.workload import Workload


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
