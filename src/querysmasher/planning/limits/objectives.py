"""Limits on plans for the largest error, for targets and for the least budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ObjectiveLimits:
    """Limits on plans for the largest error, for targets and for the least budget."""

    rounding_room: float = 1.05
    """Rounding to integers may raise errors by up to this factor; targets are then tightened by it."""
    joined_cells: int = 1_200
    """Maximum number of cells of families that a strategy ties, merged into one."""
    loose_cells: int = 400
    """The same where no strategy ties the families: then merging costs product structure."""
    loose_rows: int = 4_000
    """Maximum number of queries in all of groups that are merged although nothing ties them."""
    loose_work: float = 2e9
    """Maximum of cells³, in all groups that differ, if they are merged because the total is public."""
    joined_entries: int = 10_000_000
    """Maximum number of entries of the queries of a merged family, written out."""
    apart_entries: int = 4_000_000
    """Maximum number of coefficients of a group's estimators on one measurement, and of variances in all."""
    rounding_rounds: int = 3
    """Maximum number of times that rounding is made up for: other noise is rounded otherwise."""
    sharing_powers: tuple[float, ...] = (100.0, 300.0, 1000.0, 3000.0, 10_000.0)
    """The values of τ, in turn: τ overestimates the largest of m variances by the factor m^(1/τ) at most."""
    sharing_newton: int = 10
    """Maximum number of Newton steps for one τ."""
    sharing_rounds: int = 3
    """Maximum number of rounds for one τ."""
    sharing_parts: tuple[float, ...] = (1.0, 0.3, 0.1)
    """Parts of the way to its minimum to try: on it, queries may be larger that did not join yet."""
    sharing_still: float = 1e-3
    """Newton's method ends for one τ if a step promises less than this fraction of 1/τ."""
    sharing_entries: int = 300
    """If there are more entries than that, one query of each is enough at first, too."""
    sharing_classes: int = 1_000
    """Maximum number of classes for Newton's method; beyond, steps are along the diagonal."""
    combining_rounds: int = 5
    """Maximum number of times that the budget is shared anew."""
    combining_gain: float = 3e-4
    """The budget is not shared again after a smaller gain, as a fraction."""
    target_steps: int = 14
    """Maximum number of plans with multipliers that follow the ratios of variance to target²."""
    target_ascents: int = 5
    """Maximum number of ascents after them, if the gap is still open."""
    ascent_steps: int = 20
    """Maximum number of steps of an ascent."""
    ascent_gain: float = 1e-6
    """Gain of its last step, as a fraction."""
    ascent_gap: float = 3.0
    """There is no ascent if the gap is at most this multiple of what is wanted."""
    ascent_narrowing: float = 0.9
    """The search ends after an ascent that narrows the gap to more than this fraction."""
    target_settled: float = 1.004
    """The budget is shared anew once the bound changes by less than this factor."""
    target_multiples: tuple[float, ...] = (0.02, 0.1, 0.4, 1.0, 3.0)
    """Multiples of the multipliers of the least largest ratio, added in turn if targets are barely missed."""
    target_precision: float = 0.6
    """Precision of the plans with other weights, in tolerances, if the sum of the multipliers is small."""
    target_finest: float = 1e-3
    """The finest precision of these plans, in tolerances."""
    most_missed: float = 1.01
    """Factor by which a plan of the least cost may miss targets: its budget then grows until they are met."""
    free_tolerances: float = 5.0
    """What queries without targets may add to the least cost, in tolerances."""
    joined_targets: float = 100.0
    """Maximum ratio of targets of queries that are joined: rows of one family stay comparable."""
    capping_precision: float = 2_000.0
    """The last τ is at least this many times the weight: what smoothing takes from targets costs as much."""
    capping_newton: int = 14
    """Maximum number of Newton steps for one τ."""
    capping_tightenings: int = 4
    """Maximum number of times that the targets are tightened by what they are missed."""
    capping_rounds: int = 16
    """Maximum number of rounds in all."""
    many_sets: int = 100
    """Above this number of classes, sets with the same strategies and nearly the same noise share one."""
    alike_noise: float = 0.003
    """Fraction by which their noise variances differ at most."""
    kept_classes: float = 1.006
    """Classes of a similar plan are kept if noise variances of sets of one class differ at most by this."""
    single_entries: int = 20
    """Minimum number of entries of the same size that are worth searching together."""
    single_numbers: int = 10_000_000
    """Maximum number of numbers of these in all."""
    scaled_slack: float = 3.0
    """Tolerances by which scaled targets exceed the least possible, to leave some to other queries."""
    loosened: tuple[float, ...] = (8.0, 30.0, 100.0, 1000.0)
    """How many times worse queries without targets may be than without any, if nothing else works."""
    tight_targets: float = 3.0
    """Above this sum of the multipliers, relative to the loss, the centres of the least cost are tried."""
    centre_moves: int = 2
    """Maximum number of times that centres are chosen anew."""
    most_cost: float = 1e6
    """Maximum privacy cost that planning chooses itself: beyond, there is nothing left to protect."""
    rough_search: float = 3e-4
    """Fraction by which a rough search may miss the largest variance, per cluster."""
    short_cluster: int = 5_000
    """Maximum number of rows of an only cluster of which all are searched."""
    compared_rows: int = 20
    """Number of the largest rows of a longer cluster: rows that are smaller than one of them are left out."""
    own_groups: int = 100
    """Maximum number of groups of a workload in which groups may have several multipliers of their own."""
    tied_cells: int = 3_000
    """Maximum number of cells of a group whose weights may be a sum of products."""
    most_scopes: int = 120
    """Maximum number of scopes; beyond, families on attributes that are nearly alike share theirs."""
    worst_steps: int = 12
    """Maximum number of plans with other weights towards the least largest error."""
    worst_last_steps: int = 4
    """Maximum number of further plans around the best centres, if the gap is still open."""
    worst_settled: float = 1.0015
    """The budget is shared anew once the bound grows by less than this factor: the plan is near then."""
    worst_finer_steps: int = 24
    """Maximum number of plans after that with families merged."""
    worst_patience: int = 3
    """Number of plans in a row that gain nothing, after which the search ends."""
    worst_gaps: tuple[tuple[int, float], ...] = ((0, 1.0), (4, 1.4), (5, 2.5), (6, 4.3), (7, 4.8))
    """From which step on the gap may be how many tolerances wide: the last tenths take most plans."""
    worst_precision: float = 0.3
    """Gap that the plans with other weights should have, in tolerances."""
    worst_roughest: float = 8.0
    """Maximum gap of their blocks, some of which are a small part of a plan, in tolerances."""
    target_tightenings: int = 4
    """Maximum number of times that targets are tightened, by twice what they are missed, for one strategy."""
