"""The best linear unbiased estimate of any query, from the residuals that a plan or a release measures.

Errors on different attribute sets are independent, so that their variances add up. On one set the variances
of a group's families factor, unless a strategy ties them. One measurement of whole rows by itself is the case
of one set, on which queries are not split; beside residuals, they are one Schur complement on top (`whole`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from types import MappingProxyType

import numpy as np

from querysmasher.arrays import Array, less_means, square_root
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.planning.centre import Centre, Centres, complement
from querysmasher.planning.grading import are_far_apart, graded_root
from querysmasher.planning.lattice import RANK, Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import is_total, square_sum
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.planning.split import Kept, connected, query_tensor, schema_order, split_gram, split_rows
from querysmasher.planning.strategies import AxisRows, AxisStrategy, DenseStrategy, Strategy, is_line
from querysmasher.privacy.unit import Known
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group

AttributeSet = tuple[int, ...]
"""Increasing indexes of attributes in the schema."""


@dataclass(frozen=True, eq=False, slots=True)
class QueryPart:
    """What one family of a group leaves on the attributes it keeps."""

    index: int
    """The number of the family in its group."""
    kept: AttributeSet
    key: Hashable
    content: Array | Callable[[], Array]
    """The rows, or a function that returns them."""
    predict: Callable[[], Array] | None = None
    """Computes the variances at σ² = 1, or their sum, without rows: for a line, split by its strategy."""

    @property
    def rows(self) -> Array:
        """The rows, written out."""
        return self.content() if callable(self.content) else self.content


@dataclass(frozen=True, eq=False, slots=True)
class Tied:
    """Families that no strategy ties to others: their indexes, their rows, and the strategies on their axes.

    A family that keeps no attribute stands alone, without strategies.
    """

    indexes: tuple[int, ...]
    factors: tuple[AxisRows, ...]
    blocks: Blocks
    key: Hashable
    """What the variances depend on, besides the strategies."""
    predict: Callable[[], Array] | None = None
    """Computes the variances of the only family, if that is about a line."""


def tied(measured: Measured, parts: list[QueryPart]) -> Iterator[Tied]:
    """Iterate over the sets of families that no strategy on an attribute set ties to others."""
    axis_of = {attribute: axis for axis, attribute in enumerate(measured.attributes)}
    for part in parts:
        if not part.kept:
            yield Tied((part.index,), (((), part.rows),), (), (part.key, ()))
    kept = [[axis_of[a] for a in part.kept] for part in parts]
    for axes in connected([*(axes for axes, _ in measured.blocks), *kept]):
        members = [s for s in parts if s.kept and axis_of[s.kept[0]] in axes]
        blocks = tuple(block for block in measured.blocks if block[0][0] in axes)
        if len(members) == 1 and members[0].predict is not None:
            (part,) = members
            yield Tied((part.index,), (), blocks, (part.key, ()), part.predict)
            continue
        factors = tuple((tuple(axes.index(axis_of[a]) for a in s.kept), s.rows) for s in members)
        placed = tuple((tuple(map(axes.index, on)), number) for on, number in blocks)
        keys = tuple((s.key, on) for s, (on, _) in zip(members, factors, strict=True))
        yield Tied(tuple(s.index for s in members), factors, placed, (keys, placed))


def reduced(rows: Array) -> Array:
    """Return at most as many rows as columns, with the same Gram matrix."""
    if len(rows) <= rows.shape[1]:
        return rows
    return graded_root(rows) if are_far_apart(rows) else np.asarray(np.linalg.qr(rows, mode="r"), dtype=float)


@dataclass(eq=False)
class Estimator:
    """Variances, covariances and tables under given measurements.

    Variances are cached, as equivalent queries recur.
    """

    schema: Schema
    centres: Centres
    strategies: Sequence[Strategy]
    measured: Mapping[AttributeSet, Sequence[Measured]]
    """The independent measurements of each attribute set, whose variances add up."""
    known: Known
    """The attribute sets whose counts are public: measured without noise."""
    strict: bool = True
    """Whether to refuse queries that are not fully measured; otherwise missing parts count as zero."""

    def __post_init__(self) -> None:
        """Find the attributes that have a centre for every set, and a set whose rows are whole."""
        self.line_strategies: dict[tuple[int, AttributeSet], AxisStrategy] = {}
        """Strategies that determine the centre of an attribute, by the attribute and the set of others."""
        self.whole_set: AttributeSet | None = None
        """The only measured set, if its rows are whole: no query is split."""
        for attributes, noises in self.measured.items():
            for axes, number in noises[0].blocks:
                strategy = self.strategies[number]
                if strategy.whole:
                    self.whole_set = attributes
                elif is_line(strategy):
                    attribute = attributes[axes[0]]
                    others = tuple(a for a in attributes if a != attribute)
                    self.line_strategies[attribute, others] = strategy
        self.is_single = self.whole_set is not None
        """Whether there is one measurement, of whole rows."""
        self.is_split = not self.is_single
        """Whether everything is measured as residuals."""
        self.lines = frozenset(attribute for attribute, _ in self.line_strategies)
        """The attributes that have such strategies: they are split last, in order."""
        self._split_families: dict[Hashable, dict[Kept, Array]] = {}
        self._known: dict[Hashable, Array] = {}

    def centre(self, attribute: int, kept: AttributeSet) -> Array:
        """Return the centre of an attribute that a set does not keep."""
        before = tuple(sorted(a for a in kept if a not in self.lines or a < attribute))
        strategy = self.line_strategies.get((attribute, before))
        return self.centres[attribute].weights if strategy is None else strategy.centre

    # --- what queries leave on attribute sets ---

    def measured_parts(
        self, group: Group, *, summed: bool = False
    ) -> Iterator[tuple[Measured, list[QueryPart]]]:
        """Iterate over the measured attribute sets on which the group leaves something.

        With `summed`, a family with more queries than cells is replaced by as many rows as cells with the
        same Gram matrix: the variances differ, their sum does not.

        A strict estimator raises `OutsideMeasuredSpaceError`, which names all missing sets.
        """
        left, missing = [], []
        for attributes, parts in self.parts(group, summed=summed):
            if (grouped := self.known.partly(attributes)) is not None:
                parts = self._within(grouped, parts)  # noqa: PLW2901 - what is left of it
                if not parts:
                    continue
            left += [(noise, parts) for noise in self.measured.get(attributes, ())]
            if not self.measures(attributes):
                missing.append(_unplanned([self.schema.names[a] for a in attributes]))
        if missing and self.strict:
            raise unanswerable(group, "; ".join(missing), "such")
        yield from left

    def _within(self, grouped: int, parts: Sequence[QueryPart]) -> list[QueryPart]:
        """Return what is left of parts if counts by groups of an attribute's values are known; or nothing."""
        result = list(parts)
        for place, part in enumerate(parts):
            if grouped in part.kept:
                rows = part.rows.reshape(-1, *(self.schema.sizes[a] for a in part.kept))
                rows = less_means(rows, 1 + part.kept.index(grouped), self.known.groups[grouped])
                left = rows.reshape(len(rows), -1)
                key = (part.key, "within", grouped)
                result[place] = QueryPart(part.index, part.kept, key, np.ascontiguousarray(left))
                if not left.any():
                    return []
        return result

    def knows(self, group: Group, *, summed: bool = False) -> bool:
        """Return whether every set on which the group leaves something is measured completely."""
        sets = (attributes for attributes, _ in self.parts(group, summed=summed))
        return all(self.measures(attributes) and self.is_full(attributes) for attributes in sets)

    def measures(self, attributes: AttributeSet) -> bool:
        """Return whether a set is measured, with noise or without."""
        return attributes in self.measured or attributes in self.known

    def is_full(self, attributes: AttributeSet) -> bool:
        """Return whether a measured set's strategies span its whole residual space."""
        if not attributes or attributes in self.known:
            return True
        if not self.measured[attributes][0].variance:  # only groups of values are known
            return False
        ranks = [self.strategies[number].rank for _, number in self.measured[attributes][0].blocks]
        free = {a: self.schema.sizes[a] - 1 for a in attributes}
        if (grouped := self.known.partly(attributes)) is not None:
            free[grouped] = self.schema.sizes[grouped] - len(np.unique(self.known.groups[grouped]))
        return math.prod(ranks) >= math.prod(free.values())

    def parts(self, group: Group, *, summed: bool = False) -> Iterator[tuple[AttributeSet, list[QueryPart]]]:
        """Iterate over all attribute sets on which the group leaves something, measured or not."""
        if self.whole_set is not None:
            yield self._unsplit(group, self.whole_set)
            return
        options: list[list[QueryPart]] = []
        later: list[tuple[int, int, Family]] = []
        for index, (names, family) in enumerate(group.parts()):
            positions = self.schema.positions(names)
            lines = self.lines.intersection(positions)
            if lines and len(positions) == 1 and is_total(family):
                rows = np.ones((family.rows, 1))
                options.append(
                    [QueryPart(index, (), (family.key, summed), reduced(rows) if summed else rows)]
                )
                continue
            later += [(attribute, index, family) for attribute in lines]
            if not lines or len(positions) > 1:
                options.append(self._split(index, positions, family, summed))
        later.sort(key=itemgetter(0))
        for parts in product(*options):
            kept = tuple(sorted(a for part in parts for a in part.kept if a not in self.lines))
            yield from self._with_lines(kept, {part.index: part for part in parts}, later, summed)

    def _unsplit(self, group: Group, measured: AttributeSet) -> tuple[AttributeSet, list[QueryPart]]:
        """Return the group's families, not split, and a row of ones on the other measured attributes."""
        parts = []
        for index, (names, family) in enumerate(group.parts()):
            positions = self.schema.positions(names)
            order, kept = schema_order(positions), tuple(sorted(positions))
            rows = query_tensor(family, order, weighted=False).reshape(family.rows, -1)
            parts.append(QueryPart(index, kept, (family.key, order, kept), np.ascontiguousarray(rows)))
        attributes = {a for part in parts for a in part.kept}
        rest = tuple(a for a in measured if a not in attributes)
        if rest:
            ones = np.ones((1, math.prod(self.schema.sizes[a] for a in rest)))
            parts.append(QueryPart(len(parts), rest, rest, ones))
        return tuple(sorted(attributes.union(measured))), parts

    def _with_lines(
        self,
        kept: AttributeSet,
        parts: Mapping[int, QueryPart],
        later: Sequence[tuple[int, int, Family]],
        summed: bool,
    ) -> Iterator[tuple[AttributeSet, list[QueryPart]]]:
        """Split families on attributes that have a centre for every set of others, one after the other."""
        if not later:
            yield tuple(sorted(kept)), [parts[index] for index in sorted(parts)]
            return
        (attribute, index, family), *rest = later
        strategy = self.line_strategies.get((attribute, tuple(sorted(kept))))
        if strategy is None:  # nothing is measured there
            yield tuple(sorted((*kept, attribute))), list(parts.values())
            return
        if index in parts:  # rows on several attributes
            part = parts[index]
            centres = [Centre(strategy.centre) if a == attribute else None for a in part.kept]
            tensor = part.rows.reshape(-1, *(self.schema.sizes[a] for a in part.kept))
            split = [
                QueryPart(index, tuple(part.kept[axis] for axis in on), (part.key, id(strategy), on), rows)
                for on, rows in split_rows(tensor, centres).items()
            ]
        else:
            key = (family.key, id(strategy), summed)
            if summed:
                plain = family.reweighted(None)
                family = plain if plain.weights is None else plain.reweighted(np.ones(plain.rows))
                dropped = np.sqrt([max(square_sum(family, strategy.centre), 0.0)])
            else:
                dropped = family.answers(strategy.centre)

            def predict() -> Array:
                return np.array([strategy.loss(family)]) if summed else strategy.query_variances(family)

            def write_out() -> Array:
                rows = family.matrix()
                return np.asarray(rows - (rows @ strategy.centre)[:, None])

            split = [
                QueryPart(index, (), (key, ()), dropped[:, None]),
                QueryPart(index, (attribute,), (key, (0,)), write_out, predict),
            ]
        for part in split:
            if not callable(part.content) and not part.content.any():
                continue
            more = (*kept, attribute) if attribute in part.kept else kept
            yield from self._with_lines(more, {**parts, index: part}, rest, summed)

    def _split(self, index: int, positions: tuple[int, ...], family: Family, summed: bool) -> list[QueryPart]:
        """Return what a family leaves on the subsets of its attributes; lines are not split, and kept."""
        order, ordered = schema_order(positions), sorted(positions)
        centres = tuple(None if a in self.lines else self.centres[a] for a in ordered)
        key = (family.key, order, centres, summed)
        if key not in self._split_families:
            if summed and family.closed_form:
                split = _closed_form(family.reweighted(None), self.centres[positions[0]])
            else:
                split = split_rows(query_tensor(family, order, weighted=False), centres)
            split = {k: rows for k, rows in split.items() if rows.any()}
            self._split_families[key] = {k: reduced(rows) for k, rows in split.items()} if summed else split
        kept_rows = self._split_families[key].items()
        return [QueryPart(index, tuple(ordered[a] for a in on), (key, on), rows) for on, rows in kept_rows]

    # --- variances ---

    def variances(self, group: Group) -> Array:
        """Return the variance of every query of the group, with an axis per family.

        On most sets they are products of a factor on the first axes and one on the others: all of these take
        one product of matrices.
        """
        shape = group.shape
        cut = min(range(len(shape) + 1), key=lambda c: math.prod(shape[:c]) + math.prod(shape[c:]))
        result, first, others = np.zeros(shape), list[Array](), list[Array]()
        for measured, parts in self.measured_parts(group):
            factors = list(self.factors(measured, parts, group))
            before = [factor for factor in factors if math.prod(factor.shape[cut:]) == 1]
            after = [factor for factor in factors if math.prod(factor.shape[cut:]) == factor.size > 1]
            if len(before) + len(after) < len(factors):
                result += np.reshape(math.prod(factors), shape)
            else:
                first.append(np.ravel(math.prod(before)))
                others.append(np.ravel(math.prod(after)))
        return result + (np.transpose(first) @ np.array(others)).reshape(shape) if first else result

    def factors(self, measured: Measured, parts: list[QueryPart], group: Group) -> Iterator[Array]:
        """Iterate over factors of the variances of parts on one set, each with all axes."""
        yield np.full((1,) * len(parts), measured.variance)
        for families in tied(measured, parts):
            variances = self.tied_variances(families, group)
            spread = [1] * len(parts)
            for index, size in zip(families.indexes, variances.shape, strict=True):
                spread[index] = size
            yield variances.reshape(spread)

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries, without writing them out."""
        return math.fsum(
            measured.variance
            * math.prod(float(self.tied_variances(t, group).sum()) for t in tied(measured, parts))
            for measured, parts in self.measured_parts(group, summed=True)
        )

    def contains(self, group: Group) -> bool:
        """Return whether the only measurement, of whole rows, determines all queries of a group."""
        ((attributes, parts),) = self.parts(group)
        noises = self.measured.get(attributes, ())
        inside = (self.strategies[t.blocks[0][1]].contains(t.factors) for n in noises for t in tied(n, parts))
        return bool(noises) and all(inside)

    def check(self, group: Group) -> None:
        """Refuse a group that has queries outside what is measured."""
        if self.is_single:
            self.variances(group)
        else:
            next(self.measured_parts(group), None)

    def tied_variances(self, families: Tied, group: Group) -> Array:
        """Return the variances at σ² = 1 of families that are tied, with an axis for each."""
        if families.key not in self._known:
            if families.predict is not None:
                variances = families.predict()
            elif len(families.blocks) != 1:
                image = self.image(families.factors, families.blocks, group)
                variances = np.asarray((image**2).sum(axis=-1))
            else:
                strategy = self.strategies[families.blocks[0][1]]
                self._check_contained(strategy, families.factors, group)
                variances = strategy.variances(families.factors)
            self._known[families.key] = variances
        return self._known[families.key]

    def image(self, factors: Sequence[AxisRows], blocks: Blocks, group: Group) -> Array:
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
            self._check_contained(strategy, [flat], group)
            tensor = np.moveaxis(strategy.transform(moved), -1, len(lead))
            left = [-1, *(a for a in left if a not in axes)]
        return tensor.reshape(*counts, -1)

    def images(
        self, group: Group, only: Collection[AttributeSet] | None = None
    ) -> Iterator[tuple[Measured, Array]]:
        """Iterate over the measurements, with the coefficients of their answers for every query, as rows.

        With `only`, residual measurements of other attribute sets may be left out.
        """
        for measured, parts in self.measured_parts(group):
            if only is not None and measured.attributes not in only:
                continue
            axis_of = {attribute: axis for axis, attribute in enumerate(measured.attributes)}
            factors = [(tuple(axis_of[a] for a in s.kept), s.rows) for s in parts]
            yield measured, self.image(factors, measured.blocks, group).reshape(group.rows, -1)

    def covary(self, attributes: AttributeSet, rows: Array, maps: Sequence[Integers]) -> Array:
        """Return q C over the values of a measured set, with C the covariance of its residual.

        The tensors q are over classes of values: `maps` has the class of every value, by axis.
        """
        result: Array = np.zeros(())
        for measured in self.measured.get(attributes, ()):
            covaried = measured.variance * rows
            for axes, number in measured.blocks:
                strategy, at = self.strategies[number], [1 + a for a in axes]
                classes = covaried.shape[at[0]]
                if len(axes) == 1 and classes**2 < covaried.size:
                    units = strategy.covary(np.eye(classes)[:, maps[axes[0]]])
                    covaried = np.moveaxis(np.tensordot(covaried, units, (at[0], 0)), -1, at[0])
                    continue
                for axis in axes:
                    covaried = covaried.take(maps[axis], axis=1 + axis)
                last = range(rows.ndim - len(axes), rows.ndim)
                covaried = np.moveaxis(strategy.covary(np.moveaxis(covaried, at, last)), last, at)
            result = result + covaried
        return result if result.ndim else np.zeros(rows.shape)  # what is public has no error

    def table(
        self,
        attributes: AttributeSet,
        residual: Callable[[AttributeSet], Array | None],
        answers: Callable[[], Array],  # noqa: ARG002 - there are none
    ) -> Array:
        """Return a marginal on attributes in any order, right for every query that can be answered.

        `residual` returns the estimated residual of a set, or None. `answers` returns the answers to all
        whole rows.
        """
        return self.lifted(residual, attributes)

    def lifted(
        self,
        residual: Callable[[AttributeSet], Array | None],
        attributes: AttributeSet,
        lead: tuple[int, ...] = (),
        rows: Mapping[int, Array] = MappingProxyType({}),
    ) -> Array:
        """Return tables over `attributes`, in any order, after the axes `lead`.

        An attribute of `rows` has the answers to these rows in place of its cells, also in the residuals.

        `residual` returns the residuals r_A of a set A, with the axes `lead` first, or None. They sum to zero
        along each axis of A, and the marginal on S is Σ_{A⊆S} r_A ⊗ (⊗_{i∈S∖A} w_i), where w_i is the centre
        of attribute i. That of a line depends on what A keeps of other attributes and of earlier lines. So
        lines are lifted first, later ones before earlier ones, and sets that differ in them alone are added
        up before they become larger.
        """
        sizes = {a: len(rows[a]) if a in rows else self.schema.sizes[a] for a in attributes}
        ordered = sorted(attributes)

        def table(kept: AttributeSet, left: Sequence[int]) -> Array | None:
            """Return the sum over all sets of `kept` with some of `left`, lifted to `kept` with all."""
            if not left:
                values = residual(tuple(sorted(kept)))
                shape = (*lead, *(sizes[a] if a in kept else 1 for a in ordered))
                return None if values is None else np.array(values, dtype=float).reshape(shape)
            attribute, *later = left
            result, without = table((*kept, attribute), later), table(kept, later)
            if without is None:
                return result
            after = len(ordered) - 1 - ordered.index(attribute)
            centre = self.centre(attribute, kept)
            centre = rows[attribute] @ centre if attribute in rows else centre
            without = without * centre.reshape(-1, *(1,) * after)
            return without if result is None else np.add(result, without, out=result)

        result = table((), sorted(attributes, key=lambda a: (a in self.lines, a)))
        if result is None:
            result = np.zeros((*lead, *(sizes[a] for a in ordered)))
        return result.transpose([*range(len(lead)), *(len(lead) + ordered.index(a) for a in attributes)])

    def centred(self, residual: Array, attributes: AttributeSet) -> Array:
        """Return C r: along each of the last axes, one per attribute, subtract the sum times its centre."""
        for axis, attribute in enumerate(attributes, start=residual.ndim - len(attributes)):
            weights = self.centres[attribute].weights.reshape(-1, *(1,) * (residual.ndim - 1 - axis))
            residual = residual - residual.sum(axis=axis, keepdims=True) * weights
        return residual

    def _check_contained(self, strategy: Strategy, factors: Sequence[AxisRows], group: Group) -> None:
        """Refuse a group whose queries are outside the span of a strategy."""
        if self.strict and not strategy.contains(factors):
            raise unanswerable(group, "the plan measures their attribute sets, but only for other queries")


def unanswerable(group: Group, why: str, which: str = "these") -> OutsideMeasuredSpaceError:
    """Return the error that refuses a group and says which queries to plan."""
    what = f"the queries on ({', '.join(group.attributes)}) cannot be answered: {why}. "
    return OutsideMeasuredSpaceError(f"{what}Add {which} queries to the planned workload")


def within_groups(strategy: Strategy, axis: int, groups: Integers) -> DenseStrategy:
    """Return what a strategy measures of a block if the sums over groups of values of an axis are known."""
    rows = strategy.written_out()
    left = less_means(rows.reshape(-1, *strategy.shape), 1 + axis, groups).reshape(rows.shape)
    _, sizes, vectors = np.linalg.svd(left, full_matrices=False)
    kept = sizes > RANK * sizes[0]
    return DenseStrategy(strategy.shape, sizes[kept, None] * vectors[kept])


def subsets(attributes: Iterable[int]) -> list[AttributeSet]:
    """Return all subsets, in the same order for equally many attributes."""
    found: list[AttributeSet] = [()]
    for attribute in attributes:
        found += [(*subset, attribute) for subset in found]
    return found


def _closed_form(family: Family, centre: Centre) -> dict[Kept, Array]:
    """Return rows with the Gram matrices that a family leaves, without writing its queries out."""
    square, centred = split_gram(family.gram(), centre)
    split: dict[Kept, Array] = {(): np.array([[math.sqrt(square)]])}
    if centred is not None:
        inside = complement(centre.weights)
        split[0,] = square_root(inside @ centred @ inside.T, 0.0) @ inside
    return split


def _unplanned(names: Sequence[str]) -> str:
    """Say that attributes were not planned together, or that one, or the total, was not planned."""
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]} were not planned together"
    return f"{names[0] if names else 'the total'} was not planned"
