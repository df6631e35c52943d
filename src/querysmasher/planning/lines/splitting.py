"""Splitting queries about lines and trees: attributes with a separate centre on every set.

An attribute is a line or a tree if its queries are too large to be written out, if several families ask
about it, or if a filter is near enough to the best for its only family.

These attributes come last, in the order of the schema. Let T be the attributes that are kept so far, and a
the next one in the queries. On T, every family f on a has a weight λ_f where a is kept, and queries without a
weigh κ in the same unit. One strategy V serves T ∪ {a}: the best for Σ λ_f G_f + κ11ᵀ. Around the centre w of
V a family leaves wᵀG_f w on T, and costs tr(G_f V_A†) on T ∪ {a}: two numbers. The rest of the planner sees
only the other attributes: what lines and trees cost has become a factor of its queries' weights.

The certificate: whatever is measured around w, and the total beside it, is a strategy for Σ λ_f G_f + κ11ᵀ.
So with B a lower bound on the loss of that, √L ≥ √B − √(m + κ), m = Σ λ_f wᵀG_f w.
If a record is replaced, √L is bounded for pairs of cells drawn from one distribution (`lines.pairs`).
Where no prefixes can be solved for, cells are drawn independently, with probabilities q of the values: by
t − √(Σ λ_f qᵀG_f q), with t the trace root at q without κ (`solvers.bounds.pair_value`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.filters import solve_line
from querysmasher.planning.lines.forest import solve_forest
from querysmasher.planning.lines.gram import (
    LineGram,
    WeightedFamily,
    is_implicit,
    is_smooth,
    is_total,
    square_sum,
)
from querysmasher.planning.lines.pairs import Pairing, paired_value
from querysmasher.planning.solvers.bounds import pair_value
from querysmasher.planning.split import Decomposer, Piece, Subworkload, Term, is_few
from querysmasher.planning.strategies import AxisStrategy
from querysmasher.schema import Schema
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.workload import Group, Workload

Attributes = tuple[int, ...]
"""Indexes of attributes in the schema."""

FILTERS = 1e-3
"""Tolerance that filters keep for all prefixes, or all ranges, with equal weights."""

PUBLIC = 1.0
"""Weight of a total that is public, relative to the queries: it is known, so that it need not be measured."""


def large_attributes(
    workload: Workload, *, mean: bool = True, tolerance: float = 1e-3, replaced: bool = False
) -> Attributes:
    """Return the attributes that are planned as lines or trees, with a separate centre on every set.

    For the mean error (`mean`), smaller attributes are included too: hierarchies and several families on one
    attribute are planned faster and better than around one centre for all sets, and filters are near enough
    to the best for all prefixes or all ranges. Attributes whose queries all look the same from every value
    have closed forms, up to a larger size. Queries that tie attributes, and few single ones, are not
    included. `replaced` says whether neighbours replace a record: filters then serve smaller attributes well,
    and hierarchies of few values are planned better around one centre.
    """
    sizes = workload.schema.sizes
    families: defaultdict[int, dict[object, Family]] = defaultdict(dict)
    tied: set[int] = set()
    for group in workload if max(sizes) > min(limits().dense_values, limits().mixed_values) else ():
        for names, family in group.parts():
            attributes = workload.schema.positions(names)
            if len(attributes) > 1:
                tied.update(attributes)
            else:
                families[attributes[0]][family.key] = family
    untied = sorted(set(families) - tied)
    few = min(limits().line_matrix, limits().paired_cells if replaced else limits().line_matrix)
    filters = few if mean and tolerance >= FILTERS else None
    return tuple(
        a
        for a in untied
        if _is_large(list(families[a].values()), sizes[a], mean=mean, filters=filters, replaced=replaced)
    )


def _is_large(families: list[Family], size: int, *, mean: bool, filters: int | None, replaced: bool) -> bool:
    few, has_tree = limits().dense_values, any(family.structure is Structure.TREE for family in families)
    if mean and (len(families) > 1 or (has_tree and not replaced)):
        few = limits().mixed_values
    elif filters and all(family.closed_form and family.weights is None for family in families):
        few = min(few, filters)
    if not max(few, 1) < size <= limits().most_values:
        return False
    if all(family.closed_form and family.looks_alike for family in families):
        return size > limits().closed_form_values
    apart = [
        family
        for family in families
        if not (is_implicit(family) or family.is_even or (size > limits().dense_values and is_smooth(family)))
    ]
    rows = sum(family.rows for family in apart)
    if has_tree:
        return _is_large_tree(families, size, rows)
    if not any(map(is_implicit, families)):
        return False  # few single queries, or dense ones
    return rows == 0 or (size > limits().axis_values and is_few(rows, size, 1))


def _is_large_tree(families: list[Family], size: int, rows: int) -> bool:
    """Return whether a hierarchy, with single values and few other queries, is planned on its nodes."""
    implicit = [family for family in families if is_implicit(family)]
    nest = all(family.levels() is not None for family in implicit)
    if nest and 2 * rows <= size:
        return True
    if size <= limits().axis_values:  # planned with matrices: around a centre on every set, or one for all
        return size <= limits().line_matrix and rows == 0 and not nest
    few = rows == 0 or is_few(rows, size, 1)
    if few and all(family.spans() is not None for family in implicit if family.structure is Structure.TREE):
        return True  # its groups are ranges
    msg = (
        f"workload: a hierarchy of {size:,} values, in which some group is not a range of values, can be "
        "planned with single values and few other queries about the same attribute, not with prefixes or "
        "ranges. Remedies: one of them only; coarser values; an order of values in which groups are ranges"
    )
    raise TooLargeError(msg)


def check_cells(workload: Workload, large: Attributes, *, sums: bool) -> None:
    """Refuse groups whose table would not fit in memory; with `sums`, those of numbers are added up."""
    most = limits().structured_cells
    for group in workload if large else ():
        parts = (family for _, family in group.parts())
        cells = math.prod(f.rows if sums and not is_implicit(f) and is_smooth(f) else f.cells for f in parts)
        if cells > most and not set(large).isdisjoint(workload.schema.positions(group.attributes)):
            msg = (
                f"workload: the table on ({', '.join(group.attributes)}) has {cells:,} cells, more than the "
                f"{most:,} that are counted and measured at once. Remedies: coarser values or bins, or fewer "
                "attributes at a time"
            )
            raise TooLargeError(msg)


LineFamilies = tuple[tuple[int, Family], ...]
"""Families on lines and trees, by attribute."""


@dataclass(frozen=True, eq=False)
class LineQueries:
    """Queries with the same families on lines and trees: their terms on other attributes, times a factor."""

    families: LineFamilies
    """The families that are not split yet."""
    terms: tuple[Term, ...]
    factor: float = 1.0
    bound: float = 1.0
    """The same factor, if every line and tree were measured as well as its certificate allows."""

    @property
    def energy(self) -> float:
        """How much they weigh on the present set, if other attributes are measured evenly."""
        return self.factor * math.fsum(term.energy for term in self.terms)

    def apart(self, attribute: int) -> tuple[Family | None, LineFamilies]:
        """Return their family on the next attribute to split, if any, and those on later ones."""
        if self.families and self.families[0][0] == attribute:
            return self.families[0][1], self.families[1:]
        return None, self.families


def split_sets(
    workload: Workload, centres: Centres, lines: Attributes, *, public_total: bool
) -> list[Subworkload]:
    """Return the sets on which a workload leaves something, smaller ones of other attributes first."""
    decomposer = Decomposer(workload.schema, centres)
    if not lines:
        return decomposer.decompose(workload.groups)
    groups_by_families: defaultdict[LineFamilies, list[Group]] = defaultdict(list)
    for group in workload:
        families, rest = _apart(workload.schema, group, lines)
        groups_by_families[families].append(rest)
    sets: defaultdict[Attributes, list[LineQueries]] = defaultdict(list)
    for families, groups in groups_by_families.items():
        for subworkload in decomposer.decompose(groups):
            sets[subworkload.attributes].append(LineQueries(families, subworkload.terms))
    trees = any(family.structure is Structure.TREE for group in workload for family in group.families)
    alone = set(sets) == {()} and len({a for families in groups_by_families for a, _ in families}) == 1
    splitter = LineSplitter(workload.schema, trees, public_total, alone)
    ordered = sorted(sets, key=lambda others: (len(others), others))
    return [part for others in ordered for part in splitter.split(others, sets[others]) if part.terms]


def without_lines(workload: Workload, lines: Attributes) -> Workload:
    """Return the workload on the other attributes; families on lines and trees only multiply weights."""
    if not lines:
        return workload
    groups = []
    for group in workload:
        families, rest = _apart(workload.schema, group, lines)
        groups.append(rest.weighted(rest.weight * math.prod(family.rows for _, family in families)))
    return Workload(workload.schema, tuple(groups))


def _apart(schema: Schema, group: Group, lines: Attributes) -> tuple[LineFamilies, Group]:
    """Return the families on lines and trees, and the group without them; totals over a line add weight."""
    on_lines, rest, weight = [], [], group.weight
    for attributes, family in group.parts():
        first = schema.positions(attributes)[0]
        if first not in lines:
            rest.append((attributes, family))
        elif is_total(family):
            weight *= float(family.query_weights().sum())
        else:
            on_lines.append((first, family))
    names = tuple(name for attributes, _ in rest for name in attributes)
    others = Group(names, tuple(family for _, family in rest), weight)
    return tuple(sorted(on_lines, key=itemgetter(0))), others


@dataclass(eq=False)
class LineSplitter:
    """Splits lines and trees, and remembers strategies: queries that are equal up to scale recur."""

    schema: Schema
    has_trees: bool
    public_total: bool
    alone: bool
    """Whether nothing is asked but about one line or tree."""
    _known: dict[Hashable, tuple[AxisStrategy, float]] = field(default_factory=dict)
    """Strategies, and lower bounds on the loss of any, for weights that sum to one."""
    _answers: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    """What `_dropped_and_left` returned: equal queries recur on many sets."""
    _drawn: dict[int, tuple[Pairing | None, Array]] = field(default_factory=dict)
    """For every attribute, one distribution of pairs of values, and of values."""
    _values: dict[Hashable, float] = field(default_factory=dict)
    """What `pair_value` or `paired_value` returned for them."""

    def split(self, others: Attributes, queries: Sequence[LineQueries]) -> list[Subworkload]:
        """Return what queries leave on the attributes `others` with every set of lines and trees."""
        return list(self._sets(others, (), queries, {}))

    def _sets(
        self,
        others: Attributes,
        kept: Attributes,
        queries: Sequence[LineQueries],
        strategies: Mapping[int, AxisStrategy],
    ) -> Iterator[Subworkload]:
        attribute = min((a for part in queries for a, _ in part.families), default=None)
        if attribute is None:
            loss, least = math.fsum(p.factor for p in queries), math.fsum(p.bound for p in queries)
            quality = math.sqrt(min(1.0, least / loss)) if loss else 1.0
            yield Subworkload(others, _sum(queries), strategies, quality)
            return
        strategy, quality = self._strategy(kept, attribute, queries)
        dropped, left = list[LineQueries](), list[LineQueries]()
        for part in queries:
            family, later = part.apart(attribute)
            if family is None:
                dropped.append(part)
                continue
            square, loss = self._dropped_and_left(strategy, family)
            for on, factor, bound in (dropped, square, square), (left, loss, loss * quality):
                on.append(LineQueries(later, part.terms, part.factor * factor, part.bound * bound))
        yield from self._sets(others, kept, dropped, strategies)
        yield from self._sets(others, (*kept, attribute), left, {**strategies, attribute: strategy})

    def _strategy(
        self, kept: Attributes, attribute: int, queries: Sequence[LineQueries]
    ) -> tuple[AxisStrategy, float]:
        """Return the strategy on an attribute beside those kept, and the ratio of lower bound to loss."""
        weighted, total = self._weights(attribute, queries)
        size = self.schema.sizes[attribute]
        if self.public_total and self.alone and not kept:
            even = np.full(size, 1 / size)
            total = PUBLIC * math.fsum(weight * square_sum(family, even) for family, weight in weighted)
        scale = math.fsum(weight for _, weight in weighted) or 1.0
        keys = sorted((repr(family.key), f"{weight / scale:.9e}") for family, weight in weighted)
        key = (size, tuple(keys), f"{total / scale:.9e}")
        if key not in self._known:
            gram = LineGram.of(size, [(family, weight / scale) for family, weight in weighted], total / scale)
            solution = solve_forest(gram, always=self.has_trees) or solve_line(
                gram, sums=not self.public_total
            )
            unit = 1 - 1 / solution.strategy.total_variance
            self._known[key] = solution.strategy.scaled(1 / unit), solution.bound
        strategy, bound = self._known[key]
        sums = [[weight * x for x in self._dropped_and_left(strategy, family)] for family, weight in weighted]
        dropped, rest = map(math.fsum, zip(*sums, strict=True))
        least = math.sqrt(bound * scale) - math.sqrt(dropped + total)
        if self.public_total:
            least = self._drawn_value(attribute, key, [(f, w / scale) for f, w in weighted], strategy.centre)
            least *= math.sqrt(scale)
        least = max(0.0, least)
        return strategy, min(1.0, least**2 / rest) if rest > 0 else 1.0

    def _drawn_value(
        self, attribute: int, key: Hashable, weighted: Sequence[WeightedFamily], centre: Array
    ) -> float:
        """Return a lower bound on √(loss), less √2, for pairs of cells; one distribution serves all sets."""
        gram = LineGram.of(self.schema.sizes[attribute], weighted)
        if attribute not in self._drawn:
            pairing = None
            if not self.has_trees and gram.classes[-1] == gram.size - 1:
                pairing = Pairing.best(gram) if self.alone else Pairing.best(gram).independent()
                q = pairing.marginals
            else:
                drawn = np.maximum(centre, 1e-3 / gram.size), np.ones(gram.size)
                q = max((p / p.sum() for p in drawn), key=partial(pair_value, gram))
            self._drawn[attribute] = pairing, q / q.sum()
        (pairing, q), key = self._drawn[attribute], (attribute, key)
        if key not in self._values:
            paired = None if pairing is None else paired_value(gram, pairing)
            self._values[key] = pair_value(gram, q) if paired is None else paired
        return self._values[key]

    def _dropped_and_left(self, strategy: AxisStrategy, family: Family) -> tuple[float, float]:
        """Return Σ weight × (q·centre)² and Σ weight × (variance on the attribute) over a family."""
        key = strategy, family.key
        if key not in self._answers:
            self._answers[key] = square_sum(family, strategy.centre), strategy.loss(family)
        return self._answers[key]

    def _weights(self, attribute: int, queries: Sequence[LineQueries]) -> tuple[list[WeightedFamily], float]:
        """Return the weights λ of the families on an attribute, and κ.

        Later lines and trees count by what queries leave around their uniform centres.
        """
        weighted, total = list[WeightedFamily](), 0.0
        for part in queries:
            family, later = part.apart(attribute)
            sizes = ((self.schema.sizes[a], f) for a, f in later)
            weight = part.energy * math.prod(square_sum(f, np.full(n, 1 / n)) for n, f in sizes)
            if family is None:
                total += weight
            else:
                weighted.append((family, weight))
        return weighted, total


def _sum(queries: Sequence[LineQueries]) -> tuple[Term, ...]:
    """Return all terms, each with its factor."""
    coefficients: defaultdict[tuple[Piece, ...], float] = defaultdict(float)
    for part in queries:
        for term in part.terms:
            coefficients[term.pieces] += part.factor * term.coefficient
    return tuple(Term(coefficient, pieces) for pieces, coefficient in coefficients.items())
