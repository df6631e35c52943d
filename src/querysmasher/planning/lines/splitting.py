"""Splitting queries about lines and trees: attributes that bring a centre of their own on every set.

An attribute is one if its queries are too large to be written out, or if several families ask about it.

These attributes come last, in the order of the schema. Let T be the attributes that are kept so far, and a
the next one that is asked about. On T, every family f on a is asked with a weight λ_f where a is kept, and
what does not ask about a weighs κ in the same unit. One strategy V serves T ∪ {a}: the best for Σ λ_f G_f +
κ11ᵀ. Around its own centre w a family leaves wᵀG_f w on T, and costs tr(G_f V_A†) on T ∪ {a}: two numbers. So
the rest of the planner sees only other attributes, with queries that weigh as much as lines and trees make
them cost.

The certificate: whatever is measured around w, and the total beside it, is a strategy for Σ λ_f G_f + κ11ᵀ.
So with B a lower bound on the loss of that, √L ≥ √B − √(m + κ), m = Σ λ_f wᵀG_f w.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np

from querysmasher.errors import TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.filters import LineSolution, solve_line
from querysmasher.planning.lines.forest import solve_forest
from querysmasher.planning.lines.gram import LineGram, is_implicit, square_sum
from querysmasher.planning.lines.trees import is_nested
from querysmasher.planning.split import Decomposer, is_few
from querysmasher.planning.strategies import AxisStrategy
from querysmasher.planning.subworkload import Piece, Term
from querysmasher.schema import Schema
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.workload import Group, Workload


def large_attributes(workload: Workload, *, mean: bool = True) -> tuple[int, ...]:
    """Return the indexes of attributes that are planned as lines or trees, with centres of their own.

    Several families on one attribute are at fewer values quicker and better so than with one centre for all
    sets, if the mean error counts. Attributes whose queries all look the same from every value have closed
    forms, up to a larger size. Queries that tie attributes, and few single ones, are planned in other ways.
    """
    sizes = workload.schema.sizes
    if max(sizes) <= min(limits().dense_values, limits().mixed_values):
        return ()
    asked: defaultdict[int, dict[object, Family]] = defaultdict(dict)
    tied: set[int] = set()
    for group in workload:
        for names, family in group.parts():
            places = workload.schema.positions(names)
            if len(places) > 1:
                tied.update(places)
            else:
                asked[places[0]][family.key] = family
    return tuple(
        place
        for place, families in sorted(asked.items())
        if place not in tied and _is_large(list(families.values()), sizes[place], mean=mean)
    )


def searched_without_matrices(workload: Workload, large: Places) -> Places:
    """Return the large attributes, or none if the largest errors must, and can, be searched with matrices."""
    many = next((group for group in workload if group.rows > limits().large_worst_queries), None)
    if many is None:
        return large
    if all(workload.schema.sizes[place] <= limits().axis_values for place in large):
        return ()
    msg = (
        f"workload: targets and objective='worst' are limited to {limits().large_worst_queries:,} "
        f"queries per group where attributes have very many values, got {many.rows:,} on "
        f"({', '.join(many.attributes)}). Remedies: chosen ranges (`ranges`), coarser values, or "
        "objective='mean' without targets"
    )
    raise TooLargeError(msg)


def _is_large(families: list[Family], size: int, *, mean: bool) -> bool:
    several = mean and len(families) > 1
    if size <= (limits().mixed_values if several else limits().dense_values) or size > limits().most_values:
        return False
    if all(family.closed_form and family.looks_alike for family in families):
        return size > limits().closed_form_values
    rows = sum(family.rows for family in families if not is_implicit(family))
    if any(family.structure is Structure.TREE for family in families):
        return _is_large_tree(families, size, rows)
    if not any(map(is_implicit, families)):
        return False  # few single queries, or dense ones
    return rows == 0 or (size > limits().axis_values and is_few(rows, size, 1))


def _is_large_tree(families: list[Family], size: int, rows: int) -> bool:
    """Return whether a hierarchy, with single values and few other queries, is planned on its nodes."""
    implicit = [family for family in families if is_implicit(family)]
    if all(map(is_nested, implicit)) and 2 * rows <= size:
        return True
    if size <= limits().axis_values:
        return False  # planned with matrices
    few = rows == 0 or is_few(rows, size, 1)
    if few and all(family.spans() is not None for family in implicit if family.structure is Structure.TREE):
        return True  # its groups are ranges
    msg = (
        f"workload: a hierarchy of {size:,} values, in which some group is not a range of values, can be "
        "planned with single values and few other queries about the same attribute, not with prefixes or "
        "ranges. Remedies: one of them only; coarser values; an order of values in which groups are ranges"
    )
    raise TooLargeError(msg)


def check_cells(workload: Workload, large: tuple[int, ...]) -> None:
    """Refuse groups whose table would not fit in memory."""
    sizes, most = workload.schema.sizes, limits().structured_cells
    for group in workload:
        places = workload.schema.positions(group.attributes)
        cells = math.prod(sizes[p] for p in places)
        if cells > most and set(places) & set(large):
            msg = (
                f"workload: the table on ({', '.join(group.attributes)}) has {cells:,} cells, more than the "
                f"{most:,} that are counted and measured at once. Remedies: coarser values or bins, or fewer "
                "attributes at a time"
            )
            raise TooLargeError(msg)


Places = tuple[int, ...]

PUBLIC = 1e3
"""Weight of a total that is public, relative to the queries: it is known, so that it need not be measured."""


@dataclass(frozen=True, eq=False)
class Asked:
    """Queries with the same families on lines and trees: what they leave on other attributes; a factor."""

    families: tuple[tuple[int, Family], ...]
    """Those not split yet, by attribute."""
    terms: tuple[Term, ...]
    factor: float = 1.0
    bound: float = 1.0
    """The same factor, if every line and tree were measured as well as its certificate allows."""

    @property
    def energy(self) -> float:
        """How much they weigh on the present set, if other attributes are measured evenly."""
        return self.factor * math.fsum(term.energy for term in self.terms)

    def without(self, attribute: int, factor: float, bound: float) -> Asked:
        """Return them with one attribute split, on which they have these losses."""
        rest = tuple(own for own in self.families if own[0] != attribute)
        return replace(self, families=rest, factor=self.factor * factor, bound=self.bound * bound)


@dataclass(frozen=True, eq=False)
class SplitSet:
    """What is asked on a set: strategies on lines and trees, and terms on other attributes."""

    others: Places
    """The other attributes."""
    strategies: Mapping[int, AxisStrategy]
    terms: tuple[Term, ...]
    quality: float = 1.0
    """√(lower bound / loss) of the lines and trees."""

    @property
    def attributes(self) -> Places:
        """All attributes of the set."""
        return tuple(sorted((*self.others, *self.strategies)))


def split_sets(workload: Workload, centres: Centres, lines: Places, *, public_total: bool) -> list[SplitSet]:
    """Return the sets on which a workload leaves something, smaller ones of other attributes first."""
    decomposer = Decomposer(workload.schema, centres)
    if not lines:
        return [SplitSet(s.attributes, {}, s.terms) for s in decomposer.decompose(workload.groups)]
    asked: dict[tuple[tuple[int, Family], ...], list[Group]] = {}
    for group in workload:
        families, rest = _apart(workload.schema, group, lines)
        asked.setdefault(families, []).append(rest)
    sets: dict[Places, list[Asked]] = {}
    for families, groups in asked.items():
        for one in decomposer.decompose(groups):
            sets.setdefault(one.attributes, []).append(Asked(families, one.terms))
    trees = any(family.structure is Structure.TREE for group in workload for family in group.families)
    splitter = LineSplitter(workload.schema, trees, public_total)
    ordered = sorted(sets, key=lambda kept: (len(kept), kept))
    return [own for kept in ordered for own in splitter.split(kept, sets[kept]) if own.terms]


def without_lines(workload: Workload, lines: Places) -> Workload:
    """Return what a workload asks of other attributes, as if lines and trees only weighed their queries."""
    if not lines:
        return workload
    groups = []
    for group in workload:
        families, rest = _apart(workload.schema, group, lines)
        groups.append(replace(rest, weight=rest.weight * math.prod(family.rows for _, family in families)))
    return Workload(workload.schema, tuple(groups))


def _apart(schema: Schema, group: Group, lines: Places) -> tuple[tuple[tuple[int, Family], ...], Group]:
    """Return the families on lines and trees, by attribute, and the group without them."""
    own: dict[int, Family] = {}
    names: list[str] = []
    families: list[Family] = []
    for attributes, family in group.parts():
        places = schema.positions(attributes)
        if len(places) == 1 and places[0] in lines:
            own[places[0]] = family
        elif not set(places).isdisjoint(lines):
            msg = (
                f"queries on ({', '.join(attributes)}) tie an attribute of very many values to others; "
                "use coarser values for it"
            )
            raise TooLargeError(msg)
        else:
            names += attributes
            families.append(family)
    return tuple(sorted(own.items(), key=itemgetter(0))), Group(tuple(names), tuple(families), group.weight)


@dataclass(frozen=True, eq=False)
class _Pass:
    """Result of a pass over all sets: the loss on each, and the strategies, by attribute and set."""

    losses: dict[Places, float] = field(default_factory=dict)
    strategies: dict[tuple[int, Places], AxisStrategy] = field(default_factory=dict)

    def reached(self, kept: Places, families: Sequence[tuple[int, Family]]) -> Iterator[tuple[Places, float]]:
        """Iterate over sets on which queries about later attributes leave something, with their losses."""
        if not families:
            yield kept, 1.0
            return
        (attribute, family), *rest = families
        strategy = self.strategies[attribute, kept]
        for places, own in self.reached(kept, rest):
            yield places, own * square_sum(family, strategy.centre)
        for places, own in self.reached((*kept, attribute), rest):
            yield places, own * strategy.loss(family)

    def price(self, kept: Places, families: Sequence[tuple[int, Family]]) -> float:
        """Return the derivative of Σ√L by the weight of such queries."""
        found = ((self.losses.get(places, 0.0), own) for places, own in self.reached(kept, families))
        return math.fsum(own / (2 * math.sqrt(loss)) for loss, own in found if loss > 0)


@dataclass(eq=False)
class LineSplitter:
    """Splits lines and trees, and remembers strategies: queries that are equal up to scale recur."""

    schema: Schema
    has_trees: bool
    public_total: bool
    _known: dict[Hashable, LineSolution] = field(default_factory=dict)

    def split(self, others: Places, asked: Sequence[Asked]) -> list[SplitSet]:
        """Return the sets on which queries leave something, given what is kept of other attributes."""
        several = len({a for own in asked for a, _ in own.families}) > 1
        before, sets = None, list[SplitSet]()
        for _ in range(2 if several else 1):
            now = _Pass()
            sets = list(self._sets(others, (), asked, {}, before, now))
            before = now
        return sets

    def _sets(
        self,
        others: Places,
        kept: Places,
        asked: Sequence[Asked],
        strategies: Mapping[int, AxisStrategy],
        before: _Pass | None,
        now: _Pass,
    ) -> Iterator[SplitSet]:
        attribute = min((a for own in asked for a, _ in own.families), default=None)
        if attribute is None:
            if others or kept or not self.public_total:
                now.losses[kept] = math.fsum(own.energy for own in asked)
            loss, least = (math.fsum(getattr(own, name) for own in asked) for name in ("factor", "bound"))
            quality = math.sqrt(min(1.0, least / loss)) if loss else 1.0
            yield SplitSet(others, strategies, _sum(asked), quality)
            return
        own = [(one, dict(one.families).get(attribute)) for one in asked]
        strategy, quality = self._strategy(others, kept, attribute, own, before)
        now.strategies[attribute, kept] = strategy
        dropped = [
            one if family is None else one.without(attribute, *[square_sum(family, strategy.centre)] * 2)
            for one, family in own
        ]
        yield from self._sets(others, kept, dropped, strategies, before, now)
        losses = ((one, strategy.loss(family)) for one, family in own if family is not None)
        left = [one.without(attribute, loss, loss * quality) for one, loss in losses]
        both = {**strategies, attribute: strategy}
        yield from self._sets(others, (*kept, attribute), left, both, before, now)

    def _strategy(
        self,
        others: Places,
        kept: Places,
        attribute: int,
        asked: Sequence[tuple[Asked, Family | None]],
        before: _Pass | None,
    ) -> tuple[AxisStrategy, float]:
        """Return the strategy on an attribute beside those kept, and (lower bound / loss) of it."""
        public = self.public_total and not others and not kept
        weighed, total = self._weights(kept, attribute, asked, before)
        if public:
            even = np.full(self.schema.sizes[attribute], 1 / self.schema.sizes[attribute])
            total = PUBLIC * math.fsum(weight * square_sum(family, even) for family, weight in weighed)
        found = self._solve(LineGram.of(self.schema.sizes[attribute], weighed, total))
        strategy = found.strategy
        centre = math.fsum(weight * square_sum(family, strategy.balance) for family, weight in weighed)
        rest = math.fsum(weight * strategy.loss(family) for family, weight in weighed)
        unit = 1 - 1 / strategy.total_variance
        least = max(0.0, math.sqrt(found.bound) - math.sqrt(centre + total))
        return strategy.scaled(1 / unit), min(1.0, least**2 / (rest * unit)) if rest > 0 else 1.0

    def _weights(
        self,
        kept: Places,
        attribute: int,
        asked: Sequence[tuple[Asked, Family | None]],
        before: _Pass | None,
    ) -> tuple[list[tuple[Family, float]], float]:
        """Return the weights λ of the families on an attribute, and κ.

        In the first pass, other lines and trees count by what they leave around uniform centres. Then λ and μ
        are the prices of queries where the attribute is kept and where it is not, and κ = ℓ/t² − m as in
        `centring`, with t the mean ratio of μ to λ.
        """
        if before is None:
            weights = [(family, one.energy * self._left(one, attribute)) for one, family in asked]
            return (
                [(family, weight) for family, weight in weights if family is not None],
                math.fsum(weight for family, weight in weights if family is None),
            )
        last = before.strategies[attribute, kept]
        weighed, loss, square, price = [], 0.0, 0.0, 0.0
        for one, family in asked:
            if family is None:
                continue
            rest = [own for own in one.families if own[0] != attribute]
            on = one.energy * before.price((*kept, attribute), rest)
            m = square_sum(family, last.centre)
            weighed.append((family, on))
            loss += on * last.loss(family)
            square += on * m
            price += one.energy * before.price(kept, rest) * m
        if not price > 0:
            return weighed, 0.0
        return weighed, max(0.0, loss * (square / price) ** 2 - square)

    def _left(self, asked: Asked, attribute: int) -> float:
        """Return what queries leave of all other lines and trees, around uniform centres."""
        rest = ((self.schema.sizes[a], f) for a, f in asked.families if a != attribute)
        return math.prod(square_sum(f, np.full(n, 1 / n)) for n, f in rest)

    def _solve(self, gram: LineGram) -> LineSolution:
        scale, key = gram.scaled_key()
        if key not in self._known:
            own = gram.scaled(1 / scale)
            self._known[key] = solve_forest(own, always=self.has_trees) or solve_line(own)
        found = self._known[key]
        return LineSolution(found.strategy, found.loss * scale, found.bound * scale)


def _sum(asked: Sequence[Asked]) -> tuple[Term, ...]:
    """Return all terms, each with its factor."""
    found: dict[tuple[Piece, ...], float] = {}
    for own in asked:
        for term in own.terms:
            found[term.pieces] = found.get(term.pieces, 0.0) + own.factor * term.coefficient
    return tuple(Term(coefficient, pieces) for pieces, coefficient in found.items())
