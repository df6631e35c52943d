"""Solve the distinct blocks of a workload, each once, in parallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from querysmasher.arrays import one_core
from querysmasher.planning.limits import limits
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import Solver, check_answers
from querysmasher.planning.solvers.design import Progress
from querysmasher.planning.subworkload import Block
from querysmasher.progress import Bar


def solve_blocks(
    blocks: Sequence[Block],
    tolerance: float,
    solver: Solver,
    progress: bool | None = None,
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

                jobs = (delayed(_numbered)(i, blocks[i], tolerance, solver) for i in heavy)
                for i, solution in Parallel(n_jobs=-1, prefer="threads", return_as="generator_unordered")(
                    jobs
                ):
                    solutions[i] = solution
                    bar.advance()
                    bar.note(_worst(solutions))
        if len(heavy) == 1:
            (i,) = heavy
            with one_core() if blocks[i].cells <= limits().threaded_cells else nullcontext():
                solutions[i] = _solve(
                    blocks[i], tolerance, solver, lambda gap: bar.note(f"certified gap {gap:.1e}")
                )
            bar.advance()
    return [solutions[i] for i in range(len(blocks))]


def _numbered(number: int, block: Block, tolerance: float, solver: Solver) -> tuple[int, Solution]:
    return number, _solve(block, tolerance, solver)


def _solve(block: Block, tolerance: float, solver: Solver, progress: Progress | None = None) -> Solution:
    """Solve one block, and check that the strategy answers every query of it."""
    solution = solver(block, tolerance, progress)
    check_answers(block, solution.strategy)
    return solution


def _worst(solutions: Mapping[int, Solution]) -> str:
    """Return the largest certified gap of the blocks solved so far, as text."""
    return f"certified gap {max(s.gap for s in solutions.values()):.1e}"
