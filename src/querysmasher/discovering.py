"""Values that nobody listed: which ones exist is measured, as a schema may not be read from the table."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Numbers, one_core
from querysmasher.attributes import Attribute, Binned, Categorical, Label, literal
from querysmasher.data.foreign import quietly
from querysmasher.data.sources import check_source
from querysmasher.data.values import open_values
from querysmasher.errors import BudgetError, DataError, Remedy, as_given, explained
from querysmasher.formatting import count
from querysmasher.guarantees import REACH
from querysmasher.html import element, notebook, table
from querysmasher.measuring import check_ledger, measure, spending
from querysmasher.planning.planner import plan
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.budget import KINDS, Budget, number, readable
from querysmasher.privacy.discovery import Discovery
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.ledger import Ledger
from querysmasher.privacy.measurement import measure_values
from querysmasher.privacy.noise import noise_source
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.privacy.unit import Unit
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.release import Release
from querysmasher.release.tidy import frame_of
from querysmasher.schema import Schema
from querysmasher.workload.builders import queries
from querysmasher.workload.families import Prefix
from querysmasher.workload.workload import Group

EXAMPLE = "qs.discover(table, 'dest', qs.ApproxDP(epsilon=1.0, delta=1e-6))"

DELTA_SHARE = 0.5
"""The share of a budget's δ that the threshold takes, unless one is stated."""

MOST_VALUES = 10**9
"""Maximum of `at_most`."""

MOST_SHOWN = 8

STATED = Remedy(
    "state it, well below 1 / number of people: qs.discover(…, delta=1e-7)",
    "state it beside the values, well below 1 / number of people: delta = 1e-7",
)
PERSON = Remedy("state person= as well, or omit it", "state [measure] person as well, or omit it")


@dataclass(frozen=True, eq=False, repr=False)
class Discovered:
    """Values of a column that were found, each with a noisy count: they carry noise and may be published.

    Attributes:
        column: the name of the column.
        values: the values, in order: text, numbers, booleans and dates.
        counts: for each, how many records have it (of how many persons it was counted, if persons are
            distinguished), with noise. Only counts above the threshold are here, so the small ones among them
            are too large on average.
        discovery: the noise, the threshold and what they cost.
        noise: which noise was drawn.
        person: the column that says to whom a record belongs, or None.
        entry: the entry in the ledger, if there is one.
    """

    column: str
    values: tuple[Label, ...]
    counts: Numbers
    discovery: Discovery
    noise: NoiseRecord
    person: str | None = None
    entry: Entry | None = None

    @property
    def std(self) -> float:
        """The standard error of the noise of each count."""
        variance = float(self.discovery.variance)
        return math.sqrt(variance + self.noise.distribution.extra_variance(variance))

    @cached_property
    def threshold(self) -> int:
        """The least noisy count that is published."""
        return self.discovery.threshold

    @property
    def found_from(self) -> int:
        """The least number of records (or persons) of which a value is found with a probability of 97.5%."""
        return math.ceil(self.threshold + REACH * self.std)

    def attribute(self, other: Label | None = "other", **options: Any) -> Categorical:
        """Return an attribute of these values; all others count as `other`.

        `options` are those of `Categorical`, such as `missing`.
        """
        values = self.values or (() if other is None else (other,))
        return Categorical(self.column, values, other=other, **options)

    @property
    def guarantee(self) -> str:
        """What is guaranteed about the values and counts, and whom it protects."""
        if not self.noise.is_private:
            return "This is a simulation with a seed: it protects nobody."
        budget, delta = self.discovery.budget, self.discovery.delta
        beside = "" if budget.stated_delta else f" up to delta = {readable(float(delta))}"
        whom = budget.unit.describe(self.person)
        if self.person is not None:
            number = self.discovery.most or 1
            most, verb = count(number, "value"), "is" if number == 1 else "are"
            change = f"adding or removing all records of one person (a value of {self.person!r})"
            whom = (
                f"for any two tables that differ by {change}, of whom at most {most} of {self.column!r} "
                f"{verb} counted. The unit of privacy is the person, however many records a person has."
            )
        return f"The values and their counts satisfy {budget.claim()}{beside}, {whom}"

    def words(self) -> str:
        """Return what was counted, and which values are missing, in sentences."""
        what = "records" if self.person is None else "persons"
        each = ""
        if self.discovery.most is not None:
            most, verb = count(self.discovery.most, "value"), "is" if self.discovery.most == 1 else "are"
            each = f"Of each person at most {most} {verb} counted, once each, chosen at random. "
        own = readable(float(self.discovery.delta))
        single = self.person is None and self.discovery.budget.unit.records_per_person == 1
        who = "record" if single else "person"
        return (
            f"A value is published if its noisy count of {what} is at least {self.threshold:,}. {each}"
            f"A value of {self.found_from:,} {what} or more is found with a probability of at least 97.5%. "
            f"A value that only one {who} has appears with a probability of at most {own:g}. How many values "
            "were not found is not disclosed. Records without a value are not counted."
        )

    def to_frame(self, backend: Any = "pandas") -> Any:
        """Return the values, their noisy counts and standard errors as a data frame of a library."""
        values = self.values if len({*map(type, self.values)}) < 2 else [*map(str, self.values)]
        columns = {self.column: pa.array(values), "count": self.counts, "std": np.full(len(self), self.std)}
        return frame_of(pa.table(columns), backend)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "column": self.column,
            "values": [str(v) if hasattr(v, "isoformat") else v for v in self.values],
            "counts": self.counts.tolist(),
            "std": self.std,
            "threshold": self.threshold,
            "discovery": self.discovery.to_json(),
            "cost": str(self.discovery.cost),
            "noise": self.noise.name,
            "person": self.person,
            "guarantee": self.guarantee,
        }

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def __repr__(self) -> str:
        """Show some values."""
        shown = [literal(value) for value in self.values[:MOST_SHOWN]]
        more = [f"… {len(self) - MOST_SHOWN:,} more"] if len(self) > MOST_SHOWN else []
        return f"Discovered({self.column!r}, [{', '.join([*shown, *more])}])"

    def _repr_html_(self) -> str:
        """Show values and counts in a notebook."""
        rows = [(str(v), f"{n:,}") for v, n in zip(self.values, self.counts.tolist(), strict=True)]
        shown = table([self.column, f"count (± {self.std:,.1f})"], rows[:MOST_SHOWN], numbers=[1])
        more = len(rows) - MOST_SHOWN
        rest = element("p", f"… {count(more, 'more value')}") if more > 0 else None
        return notebook(f"{count(len(self), 'value')} of {self.column}", shown, rest)


@dataclass(frozen=True, eq=False, repr=False)
class DiscoveredBins:
    """Edges of bins of about equally many records: they come from noisy counts, and may be published.

    Attributes:
        column: the name of the column.
        edges: the edges, on the public grid; fewer than asked if many records have one number.
        release: the noisy counts on the grid from which they follow.
    """

    column: str
    edges: tuple[float, ...]
    release: Release

    def attribute(self, **options: Any) -> Binned:
        """Return an attribute with these bins; `options` are those of `Binned`, such as `missing`."""
        return Binned(self.column, edges=self.edges, **options)

    @property
    def guarantee(self) -> str:
        """What is guaranteed about the edges, and whom it protects."""
        return self.release.guarantee

    def __len__(self) -> int:
        """Return the number of bins."""
        return len(self.edges) - 1

    def __repr__(self) -> str:
        """Show the attribute."""
        return f"DiscoveredBins({self.attribute()!r})"


DIGITS = 3
"""Number of significant digits of the grid on which edges are found, unless one is stated."""

POWERS = range(-3, 12)
"""The powers of ten of its numbers."""

MOST_BINS = 1_000
"""Maximum number of bins."""


def grid(column: str) -> Binned:
    """Return the public grid of all numbers of three digits, of either sign, from 0.001 to 10^12."""
    digits = range(10 ** (DIGITS - 1), 10**DIGITS)
    above: list[float] = [
        n * 10**shift if shift >= 0 else float(f"{n}e{shift}")
        for shift in (power + 1 - DIGITS for power in POWERS)
        for n in digits
    ]
    above = [int(x) if float(x).is_integer() else x for x in above]
    above.append(10 ** (POWERS[-1] + 1))
    return Binned(column, edges=[-math.inf, *(-x for x in reversed(above)), 0, *above, math.inf])


def _edges(release: Release, attribute: Attribute, bins: int) -> tuple[float, ...]:
    """Return edges between which about equally many records lie, by the noisy counts of a grid.

    An edge that would leave less than half a share of the records on one side is left out: many records have
    one number there.
    """
    asked = Group((attribute.name,), (Prefix((attribute.size,)),))
    up_to = np.maximum.accumulate(release.answer_group(asked)[0][: attribute.listed])
    share = up_to[-1] / bins
    near = np.abs(up_to[None, :-1] - share * np.arange(1, bins)[:, None]).argmin(axis=1)
    starts = [0]
    for last in near.tolist():
        before = up_to[starts[-1] - 1] if starts[-1] else 0.0
        if min(up_to[last] - before, up_to[-1] - up_to[last]) >= share / 2:
            starts.append(last + 1)
    numbers: Any = attribute.values if attribute.edges is None else attribute.edges
    end = attribute.listed - (attribute.edges is None)
    return tuple(numbers[i] for i in (*starts, end))


def _discover_bins(
    data: Any, column: str | Attribute, budget: Budget, bins: int, person: str | None, **options: Any
) -> DiscoveredBins:
    """Measure the counts of a fine public grid, and read the edges of equally full bins from them."""
    if type(bins) is not int or not 2 <= bins <= MOST_BINS:
        raise DataError(f"bins: expected an integer from 2 to {MOST_BINS:,}, got {as_given(bins)}")
    given = grid(column) if isinstance(column, str) else column
    if not given.ordered or given.natural_family != "prefix" or not (given.is_computed or _numeric(given)):
        raise DataError(
            f"column: expected a number, such as qs.Number({given.name!r}, 0, 200_000), got {given.kind}"
        )
    if given.missing is None:
        given = replace(given, missing="missing")
    schema = Schema([given])
    workload = queries(schema, {given.name: "prefix"})
    unknown = "refuse" if budget.unit.total_is_public else "drop"
    release = measure(plan(workload, budget), data, person=person, unknown=unknown, **options)
    return DiscoveredBins(given.name, _edges(release, given, bins), release)


def _numeric(attribute: Attribute) -> bool:
    return all(type(v) in (int, float) for v in attribute.values[: attribute.listed])


@overload
def discover(
    data: Any,
    column: str,
    budget: Budget,
    *,
    person: str | None = ...,
    at_most: int | None = ...,
    bins: None = ...,
    delta: float | None = ...,
    noise: str = ...,
    ledger: Ledger | None = ...,
    seed: int | None = ...,
    progress: bool | None = ...,
) -> Discovered: ...
@overload
def discover(
    data: Any,
    column: str | Attribute,
    budget: Budget,
    *,
    person: str | None = ...,
    bins: int,
    noise: str = ...,
    ledger: Ledger | None = ...,
    seed: int | None = ...,
    progress: bool | None = ...,
) -> DiscoveredBins: ...
@scrubbed
@explained(EXAMPLE)
def discover(
    data: Any,
    column: str | Attribute,
    budget: Budget,
    *,
    person: str | None = None,
    at_most: int | None = None,
    bins: int | None = None,
    delta: float | None = None,
    noise: str = "rounded",
    ledger: Ledger | None = None,
    seed: int | None = None,
    progress: bool | None = None,
) -> Discovered | DiscoveredBins:
    """Return the values of a column that enough records have, privately: values that nobody listed.

    Every value that exists is counted, noise is added, and the values whose noisy counts reach a threshold
    are returned. The threshold is so high that a value that only one person has appears with a probability
    of at most δ. A value of few records is missing from the result: let it count as `other`.

    Formal guarantee: without a seed, the returned values and counts satisfy the budget for its neighbours
    and unit of privacy. A budget that states a δ, `ApproxDP`, is spent with this δ in total. Any other
    budget holds up to `delta`: but for an event of at most this probability. (`privacy.discovery` has the
    proof.)

    Args:
        data: anything that `measure` accepts.
        column: the name of the column. All its values are read as they are; those of a CSV file are text.
        budget: what the discovery spends.
        person: the column that identifies the person of a record. Values are then counted by persons: at
            most `at_most` values of each person, chosen at random and independently of all other persons,
            once each. Records without a person are left out. Not available with replace-one neighbours.
        at_most: with `person`, how many values of each person are counted; by default `records_per_person` of
            the budget.
        bins: instead of values, find edges of so many bins of a number, of about equally many records, on a
            fine public grid: all numbers of three digits up to 10^12, or that of a `Number` (or a `Binned`
            or `Ordinal` attribute) given as `column`. No threshold and no `delta` is needed: the noisy
            counts of the grid are an ordinary measurement, and `.release` has them. Of each person at most
            `records_per_person` records are counted.
        delta: the probability that the threshold takes; by default half of the δ that the budget states.
        noise: "rounded", "discrete" or "opendp", as for `measure`.
        ledger: records what this call spends, before the table is opened. Its limit must state a δ.
        seed: for tests and simulation only: a result with a seed protects nobody.
        progress: show progress bars; by default only on a terminal.

    >>> import pyarrow
    >>> from querysmasher import ApproxDP
    >>> flights = pyarrow.table({"dest": ["ATL"] * 500 + ["LAX"] * 300 + ["XNA"]})
    >>> found = discover(flights, "dest", ApproxDP(epsilon=1.0, delta=1e-6), seed=1)
    >>> found.values
    ('ATL', 'LAX')
    >>> found.attribute(other="other")
    Categorical('dest', ['ATL', 'LAX'], other='other')
    """
    if bins is not None:
        for name, value in (("at_most", at_most), ("delta", delta)):
            if value is not None:
                raise DataError(f"{name}: expected None together with bins, got {as_given(value)}")
        if not isinstance(column, str | Attribute):
            raise DataError(f"column: expected a name or an attribute, got {as_given(column)}")
        options = {"noise": noise, "ledger": ledger, "seed": seed, "progress": progress}
        return _discover_bins(data, column, budget, bins, person, **options)
    if not isinstance(column, str) or not column:
        raise DataError(f"column: expected the name of a column, got {as_given(column)}; write {EXAMPLE}")
    if type(budget) not in KINDS.values():
        raise BudgetError(f"budget: expected a budget, got {as_given(budget)}; write {EXAMPLE}")
    source = noise_source(noise, seed)
    bound = None if person is None else Bound.drawn(person, _unit(budget, at_most), seed)
    if person is None and at_most is not None:
        raise DataError("at_most: expected None, because persons are not distinguished", PERSON)
    most = None if bound is None else bound.most
    discovery = Discovery.planned(budget, most, _delta(budget, delta), source.distribution)
    record = NoiseRecord(source.distribution.name, source.description, seed is not None)
    schema = Schema([Categorical(column, [0])])
    quietly("looking for the table", check_source, schema, data, [column], "drop", bound)
    entry = None
    if ledger is not None:
        check_ledger(ledger, budget, seed is None)
        entry = ledger.charge_discovery(discovery, column, source.distribution, person)
    with spending(entry), one_core():
        values = quietly("reading the values", open_values, column, data, bound)
        places, counts = measure_values(discovery, column, values.counter, source, progress)
        labels = values.labels(places)
    order = sorted(range(len(labels)), key=lambda i: _order(labels[i]))
    return Discovered(
        column, tuple(labels[i] for i in order), counts[order], discovery, record, person, entry
    )


def _unit(budget: Budget, at_most: int | None) -> Unit:
    """Return the unit of privacy with the number of values of a person instead of records."""
    if at_most is None:
        return budget.unit
    if type(at_most) is not int or not 1 <= at_most <= MOST_VALUES:
        raise DataError(f"at_most: expected an integer from 1 to {MOST_VALUES:,}, got {as_given(at_most)}")
    return Unit(budget.neighbours, at_most)


def _delta(budget: Budget, delta: float | None) -> Fraction:
    """Return the δ that the threshold takes."""
    stated = budget.stated_delta
    if delta is None:
        if stated is None:
            raise BudgetError(
                f"delta: expected a probability, because {budget!r} states none for the threshold", STATED
            )
        delta = DELTA_SHARE * stated
    given = number("delta", delta)
    if stated is not None and given >= stated:
        raise BudgetError(f"delta: expected less than the delta = {stated!r} of the budget, got {given!r}")
    return Fraction(given)


def _order(value: Label) -> tuple[int, Any]:
    """Return what sorts values: booleans, numbers, dates, then text."""
    kinds = (bool, int | float, date, str)
    return next(number for number, kind in enumerate(kinds) if isinstance(value, kind)), value
