"""Solve the distinct blocks of a workload, each once, in parallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from querysmasher.arrays import one_core
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import solve
from querysmasher.planning.subworkload import Block, Part
from querysmasher.progress import Bar

LIGHT_CELLS = 300
"""Blocks up to this size take milliseconds: they are solved in turn, on one core each."""

THREADED_CELLS = 1_200
"""Larger blocks are worth several threads for their matrix products."""


def solve_blocks(
    blocks: Sequence[Block],
    parts: Sequence[Part],
    tolerance: float,
    solver: str,
    progress: bool | None = None,
) -> list[Solution]:
    """Return one solution per block, in order.

    Heavy blocks run through joblib, so that ``joblib.parallel_config`` moves them to processes or to a
    cluster; a single heavy block gets all cores for its matrix products instead.
    """
    solutions: dict[int, Solution] = {}
    heavy = sorted((i for i, b in enumerate(blocks) if b.cells > LIGHT_CELLS), key=lambda i: -blocks[i].cells)
    light = [i for i, b in enumerate(blocks) if b.cells <= LIGHT_CELLS]
    with Bar("Solving", len(blocks), progress) as bar:
        with one_core():
            for i in light:
                solutions[i] = solve(blocks[i], _needed(blocks[i], parts), tolerance, solver)
                bar.advance()
            if len(heavy) > 1:
                from joblib import Parallel, delayed  # noqa: PLC0415 - light blocks do without

                jobs = (
                    delayed(_solve)(i, blocks[i], _needed(blocks[i], parts), tolerance, solver) for i in heavy
                )
                for i, solution in Parallel(n_jobs=-1, prefer="threads", return_as="generator_unordered")(
                    jobs
                ):
                    solutions[i] = solution
                    bar.advance()
                    bar.note(_worst(solutions))
        if len(heavy) == 1:
            (i,) = heavy
            with one_core() if blocks[i].cells <= THREADED_CELLS else nullcontext():
                solutions[i] = solve(
                    blocks[i],
                    _needed(blocks[i], parts),
                    tolerance,
                    solver,
                    lambda gap: bar.note(f"certified gap {gap:.1e}"),
                )
            bar.advance()
    return [solutions[i] for i in range(len(blocks))]


def _solve(
    number: int, block: Block, parts: Mapping[int, Part], tolerance: float, solver: str
) -> tuple[int, Solution]:
    return number, solve(block, parts, tolerance, solver)


def _worst(solutions: Mapping[int, Solution]) -> str:
    """Say how far from their optimum the blocks solved so far can be."""
    return f"certified gap {max(s.gap for s in solutions.values()):.1e}"


def _needed(block: Block, parts: Sequence[Part]) -> dict[int, Part]:
    """Return the parts the block speaks of: all that has to travel to a worker."""
    return {number: parts[number] for _, pieces in block.terms for _, number in pieces}
