"""Residual measurements: what they know of any query. Their errors are independent: variances add up.

On an attribute set the variances of a group's families factor, unless a strategy ties them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from operator import itemgetter

import numpy as np

from querysmasher.arrays import Array, square_root
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.planning.centre import Centre, Centres, complement
from querysmasher.planning.grading import are_far_apart, graded_root
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import square_sum
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.planning.split import Kept, PlacedFamily, split_gram, split_rows
from querysmasher.planning.strategies import AxisRows, AxisStrategy, Strategy, has_own_centre
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group


@dataclass(frozen=True, eq=False, slots=True)
class LineRows:
    """What a family leaves on an attribute that has a centre of its own, not written out."""

    family: Family
    strategy: AxisStrategy
    summed: bool
    """Whether only the sum over all queries is needed."""

    def variances(self) -> Array:
        """Return the variances at σ² = 1, or their sum."""
        if self.summed:
            return np.array([self.strategy.loss(self.family, weighted=False)])
        return self.strategy.query_variances(self.family)

    def written_out(self) -> Array:
        """Return the rows."""
        rows = self.family.matrix()
        return rows - (rows @ self.strategy.centre)[:, None]


@dataclass(frozen=True, eq=False, slots=True)
class Share:
    """What one family of a group leaves on the attributes it keeps: rows, or a factor per query."""

    place: int
    kept: tuple[int, ...]
    key: Hashable
    written: Array | None
    line: LineRows | None = None

    @property
    def rows(self) -> Array:
        """The rows, written out."""
        if self.written is not None:
            return self.written
        assert self.line is not None  # noqa: S101 - one of both is there
        return self.line.written_out()


@dataclass(frozen=True, eq=False, slots=True)
class Tied:
    """Families that no strategy ties to others: their indices, their rows, and the strategies on their axes.

    A family that keeps no attribute stands alone, without strategies.
    """

    places: tuple[int, ...]
    factors: tuple[AxisRows, ...]
    blocks: Blocks
    key: Hashable
    """What the variances depend on, besides the strategies."""
    line: LineRows | None = None
    """The only family, if it is about an attribute with a centre of its own."""


def tied(measured: Measured, shares: list[Share]) -> Iterator[Tied]:
    """Iterate over the sets of families that no strategy on an attribute set ties to others."""
    for share in shares:
        if not share.kept:
            yield Tied((share.place,), (((), share.rows),), (), (share.key, ()))
    axis_of = {attribute: axis for axis, attribute in enumerate(measured.attributes)}
    open_shares = [share for share in shares if share.kept]
    open_blocks = list(measured.blocks)
    while open_shares:
        members, axes = [], {axis_of[a] for a in open_shares[0].kept}
        blocks: list[tuple[tuple[int, ...], int]] = []
        size = -1
        while len(axes) != size:  # grow until nothing more is tied
            size = len(axes)
            blocks = [b for b in open_blocks if axes & set(b[0])]
            members = [s for s in open_shares if axes & {axis_of[a] for a in s.kept}]
            axes |= {a for b in blocks for a in b[0]} | {axis_of[a] for s in members for a in s.kept}
        open_shares = [s for s in open_shares if s not in members]
        open_blocks = [b for b in open_blocks if b not in blocks]
        if len(members) == 1 and members[0].line is not None:
            yield Tied((members[0].place,), (), tuple(blocks), (members[0].key, ()), members[0].line)
            continue
        order = sorted(axes)
        factors = tuple((tuple(order.index(axis_of[a]) for a in s.kept), s.rows) for s in members)
        placed = tuple((tuple(order.index(a) for a in on), number) for on, number in blocks)
        asked = tuple((s.key, on) for s, (on, _) in zip(members, factors, strict=True))
        yield Tied(tuple(s.place for s in members), factors, placed, (asked, placed))


def _reduced(rows: Array) -> Array:
    """Return at most as many rows as columns, with the same Gram matrix."""
    if len(rows) <= rows.shape[1]:
        return rows
    return graded_root(rows) if are_far_apart(rows) else np.asarray(np.linalg.qr(rows, mode="r"), dtype=float)


@dataclass(eq=False)
class Residuals:
    """Predicts variances from residual measurements, and caches them: equivalent queries recur."""

    schema: Schema
    centres: Centres
    strategies: Sequence[Strategy]
    measured: Mapping[tuple[int, ...], Sequence[Measured]]
    """The independent measurements of each attribute set, whose variances add up."""
    public_total: bool

    def __post_init__(self) -> None:
        """Find the attributes that have a centre for every set."""
        self._lines: dict[tuple[int, tuple[int, ...]], AxisStrategy] = {}
        """Strategies that bring the centre of an attribute, by the attribute and the set of others."""
        for attributes, noises in self.measured.items():
            for axes, number in noises[0].blocks:
                strategy = self.strategies[number]
                if has_own_centre(strategy):
                    place = attributes[axes[0]]
                    self._lines[place, tuple(a for a in attributes if a != place)] = strategy
        self.lines = frozenset(attribute for attribute, _ in self._lines)
        """The attributes that have such strategies: they are split last, in order."""
        self._shares: dict[Hashable, dict[tuple[int, ...], Array]] = {}
        self._known: dict[Hashable, Array] = {}

    def line_strategies(self, attribute: int) -> list[AxisStrategy]:
        """Return the strategies that bring a centre of an attribute; none if it has one for all sets."""
        return [strategy for (place, _), strategy in self._lines.items() if place == attribute]

    def line(self, attribute: int, kept: tuple[int, ...]) -> AxisStrategy | None:
        """Return the strategy that brings the centre of an attribute, given what else is kept."""
        return self._lines.get((attribute, tuple(sorted(kept))))

    def centre(self, attribute: int, kept: tuple[int, ...]) -> Array:
        """Return the centre of an attribute that a set does not keep."""
        if attribute not in self.lines:
            return self.centres[attribute].weights
        strategy = self.line(attribute, tuple(a for a in kept if a not in self.lines or a < attribute))
        return np.zeros(self.schema.sizes[attribute]) if strategy is None else strategy.centre

    def shares(
        self, group: Group, *, summed: bool = False, known: bool = False
    ) -> Iterator[tuple[Measured, list[Share]]]:
        """Iterate over the measured attribute sets on which the group leaves something.

        With `summed`, a family with more queries than cells is replaced by as many rows as cells with the
        same Gram matrix: the variances differ, their sum does not.

        Raises `OutsideMeasuredSpaceError`, which names all missing sets, unless `known`.
        """
        found, missing = [], []
        for attributes, shares in self.all_shares(group, summed):
            found += [(noise, shares) for noise in self.measured.get(attributes, ())]
            if attributes not in self.measured and (attributes or not self.public_total):
                missing.append(_unplanned([self.schema.names[a] for a in attributes]))
        if missing and not known:
            msg = (
                f"the queries on ({', '.join(group.attributes)}) cannot be answered: {'; '.join(missing)}. "
                "Add such queries to the planned workload"
            )
            raise OutsideMeasuredSpaceError(msg)
        yield from found

    def knows(self, group: Group) -> bool:
        """Return whether everything is measured of the group's queries."""
        return all(
            self.is_full(attributes) if attributes in self.measured else not attributes and self.public_total
            for attributes, _ in self.all_shares(group, summed=False)
        )

    def is_full(self, attributes: tuple[int, ...]) -> bool:
        """Return whether a measured set's strategies span its whole residual space."""
        ranks = [self.strategies[number].rank for _, number in self.measured[attributes][0].blocks]
        return math.prod(ranks) == math.prod(self.schema.sizes[a] - 1 for a in attributes)

    def all_shares(self, group: Group, summed: bool) -> Iterator[tuple[tuple[int, ...], list[Share]]]:
        """Iterate over all attribute sets on which the group leaves something, measured or not."""
        options: list[list[Share]] = []
        later: list[tuple[int, int, Family]] = []
        for place, (names, family) in enumerate(group.parts()):
            places = self.schema.positions(names)
            lines = self.lines.intersection(places)
            later += [(attribute, place, family) for attribute in lines]
            if lines and len(places) == 1:
                continue
            key, split = self._split(places, family, summed)
            ordered = sorted(places)
            options.append(
                [Share(place, tuple(ordered[a] for a in on), (key, on), rows) for on, rows in split.items()]
            )
        later.sort(key=itemgetter(0))
        for shares in product(*options):
            kept = tuple(sorted(a for share in shares for a in share.kept if a not in self.lines))
            yield from self._with_lines(kept, {share.place: share for share in shares}, later, summed)

    def _with_lines(
        self,
        kept: tuple[int, ...],
        shares: Mapping[int, Share],
        later: Sequence[tuple[int, int, Family]],
        summed: bool,
    ) -> Iterator[tuple[tuple[int, ...], list[Share]]]:
        """Split families on attributes that have a centre for every set of others, one after the other."""
        if not later:
            if all(share.written is None or share.written.any() for share in shares.values()):
                yield tuple(sorted(kept)), [shares[place] for place in sorted(shares)]
            return
        (attribute, place, family), *rest = later
        strategy = self.line(attribute, kept)
        if strategy is None:  # nothing is measured there
            yield tuple(sorted((*kept, attribute))), list(shares.values())
            return
        if place in shares:
            found = list(self._split_line(shares[place], attribute, strategy))
        else:
            key = (family.key, id(strategy), summed)
            dropped = Share(place, (), (key, ()), self._dropped(family, strategy, summed))
            line = LineRows(family, strategy, summed)
            found = [dropped, Share(place, (attribute,), (key, (0,)), None, line)]
        for share in found:
            more = (*kept, attribute) if attribute in share.kept else kept
            yield from self._with_lines(more, {**shares, place: share}, rest, summed)

    def _split_line(self, share: Share, attribute: int, strategy: AxisStrategy) -> Iterator[Share]:
        """Iterate over what rows on several attributes leave without and with one of them."""
        centres = [Centre(strategy.centre) if a == attribute else None for a in share.kept]
        tensor = share.rows.reshape(-1, *(self.schema.sizes[a] for a in share.kept))
        for on, rows in split_rows(tensor, centres).items():
            kept = tuple(share.kept[axis] for axis in on)
            yield Share(share.place, kept, (share.key, id(strategy), on), rows)

    def _dropped(self, family: Family, strategy: AxisStrategy, summed: bool) -> Array:
        """Return what the queries of a family leave of an attribute that is dropped, as rows of one entry."""
        key = (family.key, id(strategy), summed, "dropped")
        if key not in self._known:
            if summed:
                found = np.array([math.sqrt(max(square_sum(family, strategy.centre, weighted=False), 0.0))])
            else:
                found = family.original.answers(strategy.centre)
            self._known[key] = found
        return self._known[key][:, None]

    def variances(self, group: Group, *, known: bool = False) -> Array:
        """Return the variance of every query of the group, with an axis per family.

        With `known`, what is not measured counts as zero; else it is refused.
        """
        result = np.zeros(group.shape)
        for measured, shares in self.shares(group, known=known):
            result += self.variances_on(measured, shares, group, strict=not known)
        return result

    def variances_on(self, measured: Measured, shares: list[Share], group: Group, *, strict: bool) -> Array:
        """Return the variances of parts on one set; `strict` refuses parts outside its strategies."""
        term = np.full((1,) * len(shares), measured.variance)
        for families in tied(measured, shares):
            variances = self.tied_variances(families, group, strict=strict)
            spread = [1] * len(shares)
            for place, size in zip(families.places, variances.shape, strict=True):
                spread[place] = size
            term = term * variances.reshape(spread)
        return term

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries, without writing them out."""
        total = 0.0
        for measured, shares in self.shares(group, summed=True):
            term = measured.variance
            for families in tied(measured, shares):
                term *= float(self.tied_variances(families, group).sum())
            total += term
        return total

    def _split(
        self, places: tuple[int, ...], family: Family, summed: bool
    ) -> tuple[Hashable, dict[Kept, Array]]:
        """Return a key of the content, and rows by kept axes, numbered in increasing order of `places`."""
        queries = PlacedFamily.on(places, family)
        centres = tuple(None if p in self.lines else self.centres[p] for p in sorted(places))
        key = (family.key, queries.order, centres, summed)
        if key not in self._shares:
            if summed and family.closed_form:
                self._shares[key] = self._closed_form(places[0], family)
            else:
                split = split_rows(queries.tensor(weighted=False), centres)
                self._shares[key] = {k: _reduced(rows) for k, rows in split.items()} if summed else split
        return key, self._shares[key]

    def _closed_form(self, place: int, family: Family) -> dict[Kept, Array]:
        """Return rows with the Gram matrices that a family leaves, without writing its queries out."""
        square, centred = split_gram(family.gram(), self.centres[place])
        split: dict[Kept, Array] = {(): np.array([[math.sqrt(square)]])}
        if centred is not None:
            inside = complement(self.centres[place].weights)
            split[0,] = square_root(inside @ centred @ inside.T, 0.0) @ inside
        return split

    def tied_variances(self, own: Tied, group: Group, *, strict: bool = True) -> Array:
        """Return the variances at σ² = 1 of families that are tied, with an axis for each."""
        key = (own.key, strict)
        if key not in self._known:
            if own.line is not None:
                found = own.line.variances()
            elif not own.blocks:
                found = own.factors[0][1][:, 0] ** 2
            elif len(own.blocks) > 1:
                image = self.image(own.factors, own.blocks, group, strict=strict)
                found = np.asarray((image**2).sum(axis=-1))
            else:
                strategy = self.strategies[own.blocks[0][1]]
                if strict and not strategy.contains(own.factors):
                    self._refuse(group)
                found = strategy.variances(own.factors)
            self._known[key] = found
        return self._known[key]

    def image(
        self,
        factors: Sequence[AxisRows],
        blocks: Sequence[tuple[tuple[int, ...], int]],
        group: Group,
        *,
        strict: bool = True,
    ) -> Array:
        """Return q B† for all products q of the factors' rows: an axis per factor and one for B's rows."""
        counts = [len(rows) for _, rows in factors]
        shape = {
            a: n for on, number in blocks for a, n in zip(on, self.strategies[number].shape, strict=True)
        }
        if math.prod(counts) * math.prod(shape.values()) > limits().merged_entries:
            msg = (
                f"queries on ({', '.join(group.attributes)}): writing out {math.prod(counts):,} queries over "
                f"{math.prod(shape.values()):,} cells would take too much memory; ask for fewer at a time"
            )
            raise TooLargeError(msg)
        tensor: Array = np.ones(())
        order: list[int] = []
        for axes, rows in factors:
            tensor = np.multiply.outer(tensor, rows.reshape(len(rows), *(shape[a] for a in axes)))
            order += [-1, *axes]
        lead = [i for i, a in enumerate(order) if a < 0]
        tensor = tensor.transpose(lead + [order.index(a) for a in range(len(shape))])
        left = list(range(len(shape)))
        for axes, number in blocks:  # a block's axes become one axis, the first after the lead
            strategy = self.strategies[number]
            at = [len(lead) + left.index(a) for a in axes]
            moved = np.moveaxis(tensor, at, range(tensor.ndim - len(at), tensor.ndim))
            flat = (tuple(range(len(axes))), moved.reshape(-1, math.prod(strategy.shape)))
            if strict and not strategy.contains([flat]):
                self._refuse(group)
            tensor = np.moveaxis(strategy.transform(moved), -1, len(lead))
            left = [-1, *(a for a in left if a not in axes)]
        return tensor.reshape(*counts, -1)

    def covary(self, attributes: tuple[int, ...], rows: Array) -> Array:
        """Return q C for tensors q over a measured set's cells, with C the covariance of its residual."""
        return sum(
            (m.variance * self._covary(m, rows, self.strategies) for m in self.measured[attributes]),
            start=np.zeros(rows.shape),
        )

    @staticmethod
    def _covary(measured: Measured, rows: Array, strategies: Sequence[Strategy]) -> Array:
        for axes, number in measured.blocks:
            at, last = [1 + a for a in axes], range(rows.ndim - len(axes), rows.ndim)
            rows = np.moveaxis(strategies[number].covary(np.moveaxis(rows, at, last)), last, at)
        return rows

    def outside(self, attributes: tuple[int, ...], rows: Array) -> Array | None:
        """Return what is left of tensors outside a measured set's strategies; None if these span all."""
        if self.is_full(attributes):
            return None
        return rows - self._covary(self.measured[attributes][0], rows, self._projector.strategies)

    def outside_squares(self, attributes: tuple[int, ...], shares: list[Share], group: Group) -> Array:
        """Return the squared lengths of what product queries leave outside a measured set's strategies."""
        if self.is_full(attributes):
            return np.zeros((1,) * len(shares))
        length = np.ones((1,) * len(shares))
        for place, share in enumerate(shares):
            spread = [-1 if i == place else 1 for i in range(len(shares))]
            length = length * (share.rows**2).sum(axis=1).reshape(spread)
        (projector,) = self._projector.measured[attributes]
        return np.maximum(length - self._projector.variances_on(projector, shares, group, strict=False), 0.0)

    @cached_property
    def _projector(self) -> Residuals:
        """The same sets measured by orthonormal rows, with noise of variance 1."""
        return replace(
            self,
            strategies=[strategy.orthonormal() for strategy in self.strategies],
            measured={place: (replace(own[0], variance=1.0),) for place, own in self.measured.items()},
        )

    def images(
        self, group: Group, only: Collection[tuple[int, ...]] | None = None, *, known: bool = False
    ) -> Iterator[tuple[Measured, Array]]:
        """Iterate over the attribute sets, with q B† for every query of the group, as rows.

        With `only`, other attribute sets may be left out; with `known`, what is not measured counts as zero.
        """
        for measured, shares in self.shares(group, known=known):
            if only is not None and measured.attributes not in only:
                continue
            axis_of = {attribute: axis for axis, attribute in enumerate(measured.attributes)}
            kept = [s for s in shares if s.kept]
            factors = [(tuple(axis_of[a] for a in s.kept), s.rows) for s in kept]
            image = self.image(factors, measured.blocks, group, strict=not known)
            spread = [len(s.rows) if s.kept else 1 for s in shares]
            image = image.reshape(*spread, image.shape[-1])
            for share in shares:
                if not share.kept:
                    image = image * share.rows[:, 0].reshape(
                        [-1 if s is share else 1 for s in [*shares, None]]
                    )
            yield measured, image.reshape(group.rows, -1)

    def _refuse(self, group: Group) -> None:
        msg = (
            f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan measures their "
            "attribute sets, but only for other queries. Add these queries to the planned workload"
        )
        raise OutsideMeasuredSpaceError(msg)


def _unplanned(names: Sequence[str]) -> str:
    """Say that attributes were not planned together, or that one, or the total, was not planned."""
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]} were not planned together"
    return f"{names[0] if names else 'the total'} was not planned"
