"""Limits on the numerical methods that solve blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class SolverLimits:
    """Limits on the numerical methods that solve blocks."""

    gram_values: int = 256
    """Maximum number of values of an attribute whose queries become a Gram matrix even if they are few."""
    close_cells: int = 256
    """Maximum number of cells of a block that is solved more closely than asked, which takes no time."""
    double_cells: int = 400
    """Maximum number of cells for which the interior-point method sums its Hessian in double precision."""
    lattice_entries: int = 5_000_000
    """Maximum number of entries of integer rows that are decomposed in one piece."""
    light_cells: int = 300
    """Maximum number of cells of a block that takes milliseconds: these are solved in turn, on one core."""
    threaded_cells: int = 1_200
    """Maximum number of cells of a block that is solved on one core, if it is the only heavy one."""
    interior_cells: int = 1_200
    """Maximum number of cells for the interior-point method; beyond, it runs on the active ones only."""
    interior_work: float = 1e9
    """Queries × active cells² of its steps up to which it removes gaps that are small already."""
    bounded_cells: int = 500
    """Maximum number of cells of an unsolved block of several terms that is also bounded as a whole."""
    bounded_work: float = 1e8
    """Maximum of cells × queries² of a larger one, for its queries that tie attributes together."""
    blends: tuple[float, ...] = (0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
    """Shares of the strongest term's Gram that structured strategies try in the blend of an axis."""
    rotations: int = 3
    """Number of an axis's Grams that structured strategies try to make diagonal."""
    screening_steps: int = 8
    """Number of iterations after which structured candidates are compared."""
    final_steps: int = 120
    """Maximum number of iterations of the best structured candidate."""
    wide_steps: int = 15
    """Effort to weigh few queries on many cells, in steps over all cells: where these take long."""
    wide_work: float = 2e10
    """The same, in cells × queries² of all steps: where these take little time."""
    active_cells: int = 30
    """Number of cells per independent query that take part first."""
    joining_cells: int = 12
    """Maximum number of cells per independent query that join at a time."""
    middle_work: float = 3e8
    """Maximum of cells × queries² of one step up to which a stalled search is begun anew, more exactly."""
    light_work: float = 1e7
    """Cells × queries² of a design that takes milliseconds."""
    tree_steps: int = 300
    """Maximum number of steps towards the best shares of a tree's nodes."""
    tree_gap: float = 1e-5
    """Distance from the optimum of its class at which that search ends, as a fraction of the RMSE."""
    tree_exponent: float = 1e-3
    """It also ends if steps of a smaller exponent still raise the loss."""
    tree_raises: int = 12
    """Maximum number of steps that raise that bound."""
    tree_closeness: int = 10
    """It is raised until the gap is this many times smaller than the tolerance, or no more."""
    filling_steps: int = 50
    """Maximum number of steps towards a strategy that fills its budget on all cells."""
    nearly_full: float = 0.8
    """With a rank of at least this fraction of the cells, the Gram matrix is decomposed rather than M."""
    interior_steps: int = 40
    """Maximum number of steps of the interior-point method."""
    interior_patience: int = 15
    """After this many, three times the usual number, the weights are too close to zero to continue."""
    plain_steps: int = 60
    """Maximum number of further steps if scales are far apart, where other methods may stall."""
    axis_gap: float = 1e-3
    """Gap to which the weights of one axis are found in a bound; any weights bound the loss."""
    wide_first_steps: int = 8
    """Number of steps on all cells before most of them are left out."""
    wide_inner_steps: int = 30
    """Maximum number of steps before cells join and leave."""
    wide_patience: int = 8
    """The search ends after this many rounds in a row that hardly narrow the gap."""
    wide_narrowing: float = 0.95
    """Fraction of the gap that such a round leaves at least."""
    leaving_weight: float = 1e-4
    """Cells with less than this fraction of the largest weight leave."""
    line_trials: int = 20
    """Maximum number of points tried along one direction of a search."""
    filling_bisections: int = 100
    """Maximum number of steps of the bisection when the budget fills tables like water."""
    filling_newton: int = 60
    """The same of Newton's method within each."""
    whole_nearness: int = 5
    """Tolerances within which a plan of many whole queries is good enough, if more takes minutes."""
    wide_columns: int = 4
    """With more columns per query than this, designs are found by the method for wide rows."""
