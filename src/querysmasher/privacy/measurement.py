"""The only reader of a private table's exact counts: everything that leaves this file carries noise.

The exceptions are the counts that the unit of privacy declares public (`exact_counts`). Neighbours agree on
them, so that publishing them reveals nothing that the guarantee protects.

Answers are exact. The table's counts are non-negative integers that sum to at most the public cap,
so after multiplying some axes by integer factors every entry is at most cap × Π max|entries| in absolute
value, and each factor answers exactly within this bound (`factors`).

A factor of few rows need not wait for the counts: for each row, every record adds the entry of its value to
its cell of the other axes (`Sums`). These are the same integers as the rows times the counts, because
addition is associative: so a number of a million values by a thousand groups is added up in a thousand cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, product
from typing import Any

import numpy as np

from querysmasher.arrays import Numbers
from querysmasher.errors import DataError, PrivacyError
from querysmasher.privacy.accounting import (
    LARGEST,
    Distance,
    Distances,
    Dropped,
    check_budget,
    check_cost,
    distances_cost,
)
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.counts import (
    Counter,
    Counts,
    Sums,
    lower_marginals,
    maximal_sets,
    smallest_covers,
)
from querysmasher.privacy.discovery import Discovery
from querysmasher.privacy.factors import WORD, Integers
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan
from querysmasher.privacy.noise import NoiseSource
from querysmasher.privacy.unit import Unit
from querysmasher.progress import Bar
from querysmasher.schema import Schema


def measure_table(
    plan: IntegerPlan, counter: Counter, noise: NoiseSource, progress: bool | None = None
) -> Iterator[tuple[int, Numbers]]:
    """Iterate over the plan's measurements, in no particular order, with their noisy answers.

    A set may be measured several times, each time with noise of its own: the costs add up.

    Formal guarantee: what is yielded satisfies the plan's budget, for its neighbours, if `noise` is a
    cryptographic source and the table has at most `plan.max_records` records. The budget is checked
    against the exact cost before the first count, and every table of counts against the number of records:
    the answers are exact for at most `plan.max_records`. Under replace-one neighbours the
    number of records is public; it is not measured here.
    """
    check_budget(plan, noise.distribution)
    names = dict(enumerate(map(plan.names, plan.measured)))
    summed = foldable(plan)
    whole = {number: names[number] for number in names if number not in summed}
    records = _checked_records(counter, plan.max_records, progress)
    tables = chain(
        _counted(plan.schema, whole, counter, records, "Measuring", progress),
        _summed(plan, summed, counter, records, progress),
    )
    for number, counts in tables:
        rows = summed.get(number, {})
        exact = exact_answers(plan, plan.measured[number], counts, rows)
        yield number, _with_noise(plan, plan.measured[number], exact, noise)


def exact_counts(
    schema: Schema,
    unit: Unit,
    counter: Counter,
    max_records: int,
    public: tuple[Counts, ...] | None = None,
    progress: bool | None = None,
) -> tuple[Counts, ...]:
    """Return the counts on the attribute sets `unit.exact`, in that order, without noise.

    `public` are these counts as everybody knows them, if they are not taken from the table: a table that
    disagrees is refused.

    Formal guarantee: what is returned is the same for any two neighbours, so that it costs nothing, and so is
    a refusal. They differ by records that are replaced by records with the same values of all attributes in
    these sets, or values of the same groups where only groups are counted, and so count in the same cells;
    their numbers of records are the same. A refusal reveals that the table is not one of those that public
    knowledge allows, and nothing else about it.
    """
    made: dict[int, Counts] = {}
    records = _checked_records(counter, max_records, progress)
    tables = unit.tables(schema)
    names = {i: tuple(schema.names[a] for a in table.attributes) for i, table in enumerate(tables)}
    for number, counts in _counted(schema, names, counter, records, "Exact counts", progress):
        made[number] = tables[number].counted(counts)
    exact = tuple(made[number] for number in range(len(unit.exact)))
    if public is not None and not all(map(np.array_equal, exact, public)):
        raise DataError("public: the table disagrees with the public totals; nothing was measured")
    return exact if public is None else public


def measure_distances(
    distances: Distances,
    targets: Callable[[int], Integers],
    counter: Counter,
    noise: NoiseSource,
    progress: bool | None = None,
) -> Numbers:
    """Return noisy distances, in the order asked.

    `targets` maps the index of a distance to the integers it is taken from. It must not depend on the table
    except through noisy results.

    Formal guarantee: what is returned satisfies the budget of the distances, for its neighbours, on the same
    conditions as `measure_table`, for any targets.
    """
    check_cost("distances: they cost", distances_cost(distances), distances.budget, noise.distribution)
    names = dict(enumerate(map(distances.names, distances.queries)))
    records = _checked_records(counter, distances.max_records, progress)
    tables = _counted(distances.schema, names, counter, records, "Comparing", progress)
    exact = np.zeros(len(names), dtype=np.int64)
    for number, counts in tables:
        exact[number] = exact_distance(distances.queries[number], counts, targets(number))
    variances = list(dict.fromkeys(query.variance for query in distances.queries))
    return _noisy(exact, variances, np.array([variances.index(q.variance) for q in distances.queries]), noise)


def measure_dropped(
    dropped: Dropped, budget: Budget, counter: Counter, noise: NoiseSource, progress: bool | None = None
) -> Numbers:
    """Return how many records, or persons in each bin, were left out, with noise.

    Formal guarantee: what is returned satisfies the budget, for its neighbours, if `noise` is a cryptographic
    source.
    """
    if dropped.unit != budget.unit or dropped.cost > Fraction(noise.distribution.allowed_cost(budget)):
        msg = "dropped: it exceeds the budget, or is for another unit of privacy; nothing was measured"
        raise PrivacyError(msg)
    with Bar("Counting", None, progress):
        exact = counter.left_out()
    whole = type(exact) is np.ndarray and exact.dtype == np.int64 and exact.shape == (dropped.size,)
    if not whole or exact.min() < 0 or exact.max() >= WORD:
        raise DataError("data: what was left out is inconsistent with how records are chosen")
    return _noisy(exact, [dropped.variance], np.zeros(dropped.size, np.int64), noise)


def measure_values(
    discovery: Discovery, column: str, counter: Counter, noise: NoiseSource, progress: bool | None = None
) -> tuple[Integers, Numbers]:
    """Return which values are published, by their places in the counter's list, and their noisy counts.

    Formal guarantee: what is returned has the cost of the discovery up to its δ, for the neighbours of its
    budget, if `noise` is a cryptographic source and the counter counts records, or at most `discovery.most`
    values of each person. The budget is checked before the first count.
    """
    distribution = noise.distribution
    if not distribution.is_private:
        raise PrivacyError(f"noise: expected integer noise, got {distribution.name!r}, which protects nobody")
    check_cost("discovery: it costs", discovery.cost, discovery.budget.without(discovery.delta), distribution)
    with Bar("Counting", None, progress):
        (counts,) = counter.marginals([(column,)])
    if counts.dtype != np.int64 or counts.ndim != 1 or counts.min() < 0 or counts.max() >= WORD:
        raise DataError(CHANGED)
    there = np.flatnonzero(counts)
    values = _noisy(counts[there], [discovery.variance], np.zeros(there.size, np.int64), noise)
    published = values >= discovery.threshold
    return there[published], values[published]


def exact_distance(query: Distance, counts: Counts, target: Integers) -> int:
    """Return Σ|multiple × counts - target| exactly; refuse targets that do not fit, whatever the counts.

    The counts sum to at most `max_records`, so the sum is below 2·LARGEST.
    """
    fits = type(target) is np.ndarray and target.dtype == np.int64 and target.shape == counts.shape
    if not fits:
        raise PrivacyError("distances: expected targets of 64-bit integers in the shape of their marginal")
    if max(int(target.max()), -int(target.min())) * target.size >= LARGEST:
        raise PrivacyError("distances: the targets of a set exceed 61 bits")
    return int(np.abs(query.multiple * counts - target).sum())


COUNTED_CELLS = 2**20
"""Maximum number of cells that are counted where sums suffice: more are summed record by record."""


Rows = Mapping[str, Integers]
"""By the name of an attribute, the few rows of the factor on it."""


def foldable(plan: IntegerPlan) -> dict[int, Rows]:
    """Return the measurements that need sums only, by their index, with the rows of some of their factors.

    Those whose tables are small, or needed for others anyway, are not among them.
    """
    found = {}
    for number, measured in enumerate(plan.measured):
        names = plan.names(measured)
        rows = {
            names[block[axes[0]]]: factor.few_rows
            for block, strategy in measured.blocks
            for axes, factor in plan.strategies[strategy].factors
            if len(axes) == 1 and factor.few_rows is not None
        }
        if rows and math.prod(plan.schema.shape(names)) > COUNTED_CELLS:
            found[number] = rows
    rest = [set(plan.names(m)) for number, m in enumerate(plan.measured) if number not in found]
    needed = {n for n in found for other in rest if other.issuperset(plan.names(plan.measured[n]))}
    return {number: rows for number, rows in found.items() if number not in needed}


def added_up(rows: Rows, names: Sequence[str]) -> list[Sums]:
    """Return the sums on the other attributes of `names`, for each choice of a row per factor."""
    by = tuple(name for name in names if name not in rows)
    return [Sums(by, dict(zip(rows, chosen, strict=True))) for chosen in product(*rows.values())]


def _checked_records(counter: Counter, max_records: int, progress: bool | None) -> int:
    """Return the number of records; refuse more than the public cap."""
    with Bar("Counting", None, progress):  # its steps would reveal the number of records
        records = counter.records()
    if records > max_records:
        msg = f"data: the table has more records than max_records = {max_records:,}; nothing was measured"
        raise DataError(msg)
    return records


def _counted(
    schema: Schema,
    names: Mapping[int, tuple[str, ...]],
    counter: Counter,
    records: int,
    what: str,
    progress: bool | None,
) -> Iterator[tuple[int, Counts]]:
    """Iterate over attribute sets, by their keys in `names`, with their exact counts, checked."""
    numbers: dict[tuple[str, ...], list[int]] = {}
    for number, attributes in names.items():
        numbers.setdefault(attributes, []).append(number)
    sets = list(numbers)
    maximal = maximal_sets(sets)
    covers = smallest_covers(schema, sets, maximal)
    with Bar(what, len(sets), progress) as bar:
        for large, table in zip(maximal, counter.marginals(maximal), strict=True):
            shape = schema.shape(large)
            whole = type(table) is np.ndarray and table.dtype == np.int64 and table.shape == shape
            if not whole or table.min() < 0 or table.max() > records or table.sum() != records:
                raise DataError(CHANGED)  # it may exceed the cap
            for attributes, counts in lower_marginals(large, table, covers[large]):
                yield from ((number, counts) for number in numbers[attributes])
                bar.advance()


def _summed(
    plan: IntegerPlan, summed: Mapping[int, Rows], counter: Counter, records: int, progress: bool | None
) -> Iterator[tuple[int, Counts]]:
    """Iterate over tables of sums, checked: no record adds more than the largest entry.

    Each has an axis of rows per factor that is added up, then one per other attribute.
    """
    if not summed:
        return
    asked = {number: added_up(rows, plan.names(plan.measured[number])) for number, rows in summed.items()}
    tables = counter.sums([sums for each in asked.values() for sums in each])
    with Bar("Adding up", len(asked), progress) as bar:
        for number, each in asked.items():
            shape = plan.schema.shape(each[0].by)
            made = np.empty((len(each), *shape), dtype=np.int64)
            for row, sums, table in zip(range(len(each)), each, tables, strict=False):
                whole = type(table) is np.ndarray and table.dtype == np.int64
                if not whole or table.shape != shape or records * sums.largest >= WORD:
                    raise DataError(CHANGED)
                if max(int(table.max()), -int(table.min())) > records * sums.largest:
                    raise DataError(CHANGED)
                made[row] = table
            yield number, made.reshape(*map(len, summed[number].values()), *shape)
            bar.advance()


CHANGED = "data: the counts are inconsistent, as if the table had changed while it was read"


def exact_answers(
    plan: IntegerPlan, measured: IntegerMeasured, counts: Counts, folded: Collection[str] = ()
) -> Integers:
    """Return B·x exactly, with an axis per factor, in the order of the blocks and their factors.

    Of the factors on the attributes `folded`, the given counts have the answers, with an axis each, first.
    """
    factors = [
        (tuple(block[a] for a in axes), factor)
        for block, number in measured.blocks
        for axes, factor in plan.strategies[number].factors
    ]
    names = plan.names(measured)
    of_axis = {axes[0]: i for i, (axes, _) in enumerate(factors) if len(axes) == 1}
    done = [of_axis[names.index(name)] for name in folded]
    order = sorted(range(len(factors)), key=lambda i: factors[i][1].largest)
    order = [i for i in order if i not in done]
    labels = [("row", i) for i in done]
    labels += [("cell", axis) for axis, name in enumerate(names) if name not in folded]
    tensor: Numbers = counts
    if plan.max_records * math.prod(factor.largest for _, factor in factors) >= WORD:
        raise PrivacyError("plan: its answers exceed 64 bits for this many records")
    bound = plan.max_records * math.prod(f.largest for i, (_, f) in enumerate(factors) if i not in order)
    for i in order:
        axes, factor = factors[i]
        first = [labels.index(("cell", a)) for a in axes]
        rest = [axis for axis in range(len(labels)) if axis not in first]
        flat = tensor.transpose(first + rest).reshape(factor.cells, -1)
        answers = factor.exact_answers(flat, bound)
        bound *= factor.largest
        tensor = answers.reshape(len(answers), *(tensor.shape[axis] for axis in rest))
        labels = [("row", i), *(labels[axis] for axis in rest)]
    rows = [labels.index(("row", i)) for i in range(len(factors))]
    return np.asarray(tensor).transpose(rows).astype(np.int64)


def _with_noise(plan: IntegerPlan, measured: IntegerMeasured, exact: Integers, noise: NoiseSource) -> Numbers:
    """Add noise whose variance is that of the set, times the multiplier of each row."""
    multipliers, start = np.ones([1] * exact.ndim, dtype=np.int64), 0
    for _, number in measured.blocks:
        strategy = plan.strategies[number]
        stop = start + len(strategy.factors)
        if strategy.multipliers is not None:
            spread = [n if start <= i < stop else 1 for i, n in enumerate(exact.shape)]
            multipliers = multipliers * strategy.multipliers.reshape(spread)
        start = stop
    values, which = np.unique(multipliers, return_inverse=True)
    which = np.broadcast_to(which.reshape(multipliers.shape), exact.shape).ravel()
    return _noisy(exact, [measured.variance * value for value in values.tolist()], which, noise)


def _noisy(exact: Integers, variances: Sequence[Fraction], which: Integers, noise: NoiseSource) -> Numbers:
    """Add noise of variance variances[which[k]] to entry k; refuse an overflow of 64 bits.

    The probability of an overflow is negligible.
    """
    drawn: Any = np.empty(exact.size, dtype=noise.distribution.dtype)
    for number, variance in enumerate(variances):
        rows = np.flatnonzero(which == number)
        drawn[rows] = noise.draw(variance, rows.size)
    if drawn.dtype == np.int64 and drawn.size and int(np.abs(drawn).max()) >= WORD:
        raise PrivacyError("noise: a draw exceeds 64 bits; nothing is released for this attribute set")
    return exact + drawn.reshape(exact.shape)
