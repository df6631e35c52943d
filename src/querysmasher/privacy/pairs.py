"""How far the answers of neighbours differ where one record replaces another: a maximum over pairs of cells.

Replacing a record in cell u by one in cell v changes the marginal on A by e_v - e_u, restricted to A. With
B = ⊗B_i measured on A with noise variance σ², and V_i = B_iᵀB_i, this costs

    ‖B(e_u - e_v)‖² / σ² = (Π V_i[u,u] + Π V_i[v,v] - 2 Π V_i[u,v]) / σ²,

and the costs of all measurements add up for the same pair. So the cost of a plan is the maximum over pairs of
a sum, and not the sum of maxima. Here every measurement is relative to its longest column: its change is at
most 4, and `weights` are (longest column)² / σ².

If cells are few, the changes of all pairs are written out, and the maximum is exact. So is that of a single
row of any length, such as a sum: its ends differ most. Otherwise upper bounds:

- Let C_i have the entries V_i[u,v] off the diagonal, and 1 on it. C_i - V_i is diagonal and not negative, so
  ⊗C_i - ⊗V_i is positive semidefinite, and ‖⊗B_i(e_u - e_v)‖² ≤ 2(1 - Π C_i[u,v]). The same holds with C_i
  over distinct columns: values with the same column agree.
- The sum of these bounds is linear in the C_i[u,v] of every single attribute, as in the cost of what is
  measured on it alone. So for every attribute only pairs of its values on the upper hull of (C, cost alone)
  can attain the maximum: its *states*, of which "both records agree" is one. A hull with fewer corners that
  contains this one gives a larger bound.
- Attributes that are measured alike are in one class: how many of them are in which state decides. What is
  measured on some attributes of each class enters as an elementary symmetric function of their C, weighted by
  the largest weight of its kind, so that the maximum is over numbers of attributes only.
- What does not fit (measurements that tie attributes, a second strategy for an attribute) adds the maximum of
  its own change.

Where counts are public, both records agree on some attributes (`unit`), and only pairs of cells that do are
counted. For given values of these, a factor on them alone is a constant of at most 1, and a factor that ties
them to others has the columns of these values only: its products are bounded over all such values. Of other
attributes they agree on the group that a value is in: only pairs of values of one group are counted, and a
factor that ties such an attribute to others is bounded over the cells of every group.

Floating point: every product and every sum of a pair has a relative error of at most 2⁻⁵² per operation,
relative to the sum of all weights; fewer than 2²⁰ operations contribute to any. `MARGIN` exceeds that.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, Array

MARGIN = 2.0**-28
"""Relative to the sum of all weights, more than all rounding errors of a maximum."""

WRITTEN_OUT = 10_000_000
"""Maximum number of changes, measurements × pairs of cells, that are written out."""

MOST_CELLS = 3_000
"""Maximum number of cells of a strategy of which the products of all columns are kept."""

MOST_WORK = 5e10
"""Maximum of rows × columns² of a strategy of which all products are computed."""

MOST_STATES = 100_000
"""Maximum number of combinations of states."""


@dataclass(frozen=True, eq=False)
class Products:
    """The products of a strategy's columns, relative to the longest: C = V / max diag V, or their bounds."""

    gram: Array | None
    """C over the distinct columns, if they are few."""
    columns: NDArray[np.int64] | None
    """The column of every cell; None if each cell has its own, in order."""
    least: float
    """A lower bound on the product of two columns."""
    farthest: float
    """An upper bound on the squared distance of two columns."""
    groups: NDArray[np.int64] | None = None
    """The group of every cell, if only pairs of cells of one group count."""

    @classmethod
    def of(cls, matrix: Array, squared: float = 0.0) -> Products:
        """Return the products of the columns of a matrix; the longest has the length² `squared`, if given."""
        squared = squared or float(np.einsum("ij,ij->j", matrix, matrix).max()) or 1.0
        count = matrix.shape[1]
        if len(matrix) == 1 and count > max(MOST_CELLS, 2):  # products are linear in each of two numbers
            ends = cls.of(np.array([[matrix.min(), matrix.max()]]), squared)
            return cls(None, None, ends.least, ends.farthest)
        if matrix.size * count > MOST_WORK:
            return cls.bounded(-1.0)
        if count <= MOST_CELLS:
            gram = matrix.T @ matrix / squared
            squares = np.diagonal(gram)
            return cls(gram, None, float(gram.min()), _farthest(gram, squares, squares))
        squares = np.einsum("ij,ij->j", matrix, matrix) / squared
        least, farthest, step = 1.0, 0.0, max(1, CHUNK // count)
        for start in range(0, count, step):
            some = slice(start, start + step)
            gram = matrix[:, some].T @ matrix / squared
            least = min(least, float(gram.min()))
            farthest = max(farthest, _farthest(gram, squares[some], squares))
        return cls(None, None, least, farthest)

    @classmethod
    def bounded(cls, least: float) -> Products:
        """Return what is known if all products are at least `least`."""
        return cls(None, None, least, 2 * (1 - least))

    def among(self, classes: NDArray[np.int64]) -> Products:
        """Return bounds over pairs of cells of the same class, given the class of every cell."""
        if self.gram is None:
            return Products(None, None, self.least, self.farthest)
        least, farthest = 1.0, 0.0
        columns = np.arange(len(self.gram)) if self.columns is None else self.columns
        for number in np.unique(classes).tolist():
            some = columns[classes == number]
            gram = self.gram[np.ix_(some, some)]
            squares = np.diagonal(gram)
            least, farthest = min(least, float(gram.min())), max(farthest, _farthest(gram, squares, squares))
        return Products(None, None, least, farthest)

    def within(self, groups: NDArray[np.int64]) -> Products:
        """Return the products of pairs of cells of the same group, given the group of every cell."""
        return replace(self.among(groups), gram=self.gram, columns=self.columns, groups=groups)

    def spread(self, columns: Callable[[], NDArray[np.int64]], cells: int) -> Products:
        """Return the products over so many cells, given a function that returns the column of each."""
        if self.gram is None or cells > MOST_CELLS:
            return Products(None, None, self.least, self.farthest)
        return Products(self.gram, columns(), self.least, self.farthest)

    def over(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> tuple[Array, Array, Array]:
        """Return C[u,u], C[v,v] and C[u,v] for pairs of cells."""
        assert self.gram is not None  # noqa: S101 - the caller asks only where it is kept
        if self.columns is not None:
            first, second = self.columns[first], self.columns[second]
        squares = np.diagonal(self.gram)
        return squares[first], squares[second], self.gram[first, second]

    @cached_property
    def upper(self) -> tuple[Array, Array]:
        """For all pairs of different values, of one group: the squared distance, and C[u,v]."""
        assert self.gram is not None  # noqa: S101 - the caller asks only where it is kept
        first, second = np.triu_indices(len(self.gram) if self.columns is None else self.columns.size, 1)
        if self.groups is not None:
            same = self.groups[first] == self.groups[second]
            if not same.any():
                return np.zeros(1), np.ones(1)  # the values agree
            first, second = first[same], second[same]
        one, other, product = self.over(first, second)
        return one + other - 2 * product, product


def _farthest(gram: Array, rows: Array, columns: Array) -> float:
    return float((rows[:, None] + columns[None, :] - 2 * gram).max())


Parts = tuple[tuple[tuple[int, ...], Products], ...]
"""What is measured on an attribute set: a product of strategies, each with its attributes."""


class Pairs:
    """The largest cost over all pairs of cells of what is measured, given its weights."""

    def __init__(
        self,
        sizes: Sequence[int],
        measured: Sequence[Parts],
        weights: Array | None = None,
        agreed: Collection[int] = (),
        groups: Mapping[int, NDArray[np.int64]] = MappingProxyType({}),
    ) -> None:
        """Take the sizes of attributes, what is measured, and the attributes on which pairs agree.

        `groups` has the number of every value's group, of attributes on whose groups they agree. `weights`
        say which attributes are alike.
        """
        self.measured, self._groups = measured, groups
        used = {a for parts in measured for on, _ in parts for a in on}
        common = sorted(used.intersection(agreed))
        self.attributes = [*common, *sorted(used.difference(agreed))]
        self.sizes = {a: sizes[a] for a in self.attributes}
        cells, values = math.prod(self.sizes.values()), math.prod(sizes[a] for a in common)
        known = all(products.gram is not None for parts in measured for _, products in parts)
        self._changes: list[Array] | None = None
        if known and len(measured) * cells * (cells // values - 1) <= 2 * WRITTEN_OUT:
            self._changes = self._written_out(common)
        else:
            self.measured, self._like = self._differing(sizes, frozenset(common))
            self._classify(self._summed(np.ones(len(measured)) if weights is None else weights))

    def largest(self, weights: Array) -> tuple[float, Array]:
        """Return an upper bound on the largest sum of weights × changes, and the changes of a pair near it.

        The changes may be the means over several pairs, or bounds where these are all that is known.
        """
        if self._changes is not None:
            costs = np.zeros(np.broadcast_shapes(*(each.shape for each in self._changes)))
            for weight, each in zip(weights.tolist(), self._changes, strict=True):
                costs += weight * each
            worst = np.unravel_index(int(np.argmax(costs)), costs.shape)
            value = float(costs[worst])
            changes = np.array([np.broadcast_to(each, costs.shape)[worst] for each in self._changes])
        else:
            value, changes = self._over_states(self._summed(weights))
            changes = changes[self._like]
        return value + MARGIN * float(weights.sum()), changes

    def _written_out(self, common: Collection[int]) -> list[Array]:
        """Return the changes of all measurements, with one axis per attribute: of the pairs of its values.

        An axis on which all pairs are alike has the length one. Exchanging both cells changes nothing, so
        that pairs of values of the last attribute are written out in one order only.
        """
        ends = [
            (np.arange(n),) * 2
            if a in common
            else (np.triu_indices(n) if a == self.attributes[-1] else np.indices((n, n)).reshape(2, -1))
            for a, n in self.sizes.items()
        ]
        for i, groups in ((self.attributes.index(a), g) for a, g in self._groups.items() if a in self.sizes):
            first, second = ends[i]
            same = groups[first] == groups[second]
            ends[i] = first[same], second[same]
        axis, changes = {a: i for i, a in enumerate(self.attributes)}, []
        for parts in self.measured:
            one, other, product = (np.ones([1] * len(ends)) for _ in range(3))
            for on, products in parts:
                number = np.arange(math.prod(self.sizes[a] for a in on))
                order = np.argsort([axis[a] for a in on])
                cells = number.reshape([self.sizes[a] for a in on]).transpose(order)
                kept = [axis[on[i]] for i in order]
                pairs = (cells[np.ix_(*(ends[i][which] for i in kept))] for which in (0, 1))
                outside = [i for i in range(len(ends)) if i not in kept]
                x, y, z = (np.expand_dims(factor, outside) for factor in products.over(*pairs))
                one, other, product = one * x, other * y, product * z
            changes.append(one + other - 2 * product)
        return changes

    def _summed(self, weights: Array) -> Array:
        """Return the sums of the weights of measurements that are alike on the attributes that may differ."""
        return np.bincount(self._like, weights).astype(float)

    def _differing(
        self, sizes: Sequence[int], common: frozenset[int]
    ) -> tuple[list[Parts], NDArray[np.intp]]:
        """Return what is measured on the attributes that may differ, once each, and which each is.

        Its products are bounded over all values of the others, and over all groups of values.
        """
        if not common and not self._groups:
            return list(self.measured), np.arange(len(self.measured))
        bounds: dict[tuple[int, tuple[int | None, ...]], Products] = {}

        def differing(on: tuple[int, ...], products: Products) -> Products:
            agree = tuple(a if a in self._groups else -1 if a in common else None for a in on)
            if agree.count(None) < len(on) and (id(products), agree) not in bounds:
                cells = np.unravel_index(np.arange(math.prod(sizes[a] for a in on)), [sizes[a] for a in on])
                agreeing = zip(cells, on, agree, strict=True)
                kept = [
                    self._groups[a][c] if a in self._groups else c for c, a, i in agreeing if i is not None
                ]
                classes = np.ravel_multi_index(kept, [int(c.max()) + 1 for c in kept])
                alone = len(on) == 1 and on[0] in self._groups
                bounds[id(products), agree] = products.within(classes) if alone else products.among(classes)
            return bounds.get((id(products), agree), products)

        distinct: dict[object, int] = {}
        like, kept = list[int](), list[Parts]()
        for parts in self.measured:
            left = tuple(
                (tuple(a for a in on if a not in common), differing(on, products))
                for on, products in parts
                if not on or not common.issuperset(on)
            )
            key = frozenset((on, id(products)) for on, products in left)
            like.append(distinct.setdefault(key, len(distinct)))
            kept += [left] * (len(distinct) - len(kept))
        return kept, np.array(like, dtype=np.intp)

    # --- many cells: states of attributes, and numbers of attributes in each ---

    def _classify(self, weights: Array) -> None:
        """Decide which measurements are added up for the same pair, and which attributes are alike."""
        simple = [all(len(on) == 1 for on, _ in parts) for parts in self.measured]
        used: defaultdict[int, Counter[int]] = defaultdict(Counter)
        by_id: dict[int, Products] = {}
        for parts in (parts for parts, is_simple in zip(self.measured, simple, strict=True) if is_simple):
            for (a,), products in parts if len(parts) > 1 else ():
                used[a][id(products)] += 1
                by_id[id(products)] = products
        self._main = {a: by_id[count.most_common(1)[0][0]] for a, count in used.items()}
        self._alone: defaultdict[int, list[int]] = defaultdict(list)
        joint: list[int] = []
        self._apart = np.zeros(len(self.measured))
        """The largest change of what is bounded separately; zero for the others."""
        for i, parts in enumerate(self.measured):
            if simple[i] and len(parts) == 1:
                self._alone[parts[0][0][0]].append(i)
            elif simple[i] and all(products is self._main[a] for (a,), products in parts):
                joint.append(i)
            else:
                self._apart[i] = _own_change(parts)
        for a, indexes in self._alone.items():
            indexes.sort(key=lambda i: id(self.measured[i][0][1]))
            of = [self.measured[i][0][1] for i in indexes]
            if any(products.gram is None for products in [*of, self._main.get(a, of[0])]):
                same = [i for i, products in zip(indexes, of, strict=True) if products is self._main.get(a)]
                for i in set(indexes).difference(same):
                    self._apart[i] = _own_change(self.measured[i])
                indexes[:] = same
        self._joint = np.array(joint, dtype=np.intp)
        self._classes: list[list[int]] = []
        if not self._group(weights):  # too many states: each is bounded separately
            for i in joint:
                self._apart[i] = _own_change(self.measured[i])
            self._joint = np.array([], dtype=np.intp)
            self._main, self._classes = {}, list[list[int]]()

    def _group(self, weights: Array) -> bool:
        """Form classes of attributes that are measured alike; return whether their states are few enough."""
        keys: dict[int, list[tuple[object, ...]]] = {a: [] for a in self._main}
        for i in self._joint.tolist():
            members = [on[0] for on, _ in self.measured[i]]
            kinds = sorted(id(self._main[a]) for a in members)
            for a in members:
                keys[a].append((f"{weights[i]:.8e}", *kinds))
        alike: defaultdict[object, list[int]] = defaultdict(list)
        for a, joined in keys.items():
            unary = [(id(self.measured[i][0][1]), f"{weights[i]:.8e}") for i in self._alone.get(a, [])]
            alike[id(self._main[a]), tuple(sorted(unary)), tuple(sorted(Counter(joined).items()))].append(a)
        if self._try(list(alike.values())):
            return True
        return len(self._main) <= MOST_STATES.bit_length() and self._try([[a] for a in self._main])

    def _try(self, classes: list[list[int]]) -> bool:
        """Keep the classes if every kind of measurement is made on all attribute sets of its kind."""
        class_of = {a: number for number, members in enumerate(classes) for a in members}
        kinds: dict[tuple[int, ...], int] = {}
        self._kind_of = np.empty(len(self._joint), dtype=np.intp)
        for row, i in enumerate(self._joint.tolist()):
            numbers = [class_of[on[0]] for on, _ in self.measured[i]]
            counts = tuple(numbers.count(c) for c in range(len(classes)))
            self._kind_of[row] = kinds.setdefault(counts, len(kinds))
        number = np.bincount(self._kind_of, minlength=len(kinds))
        self._kinds = np.array(list(kinds), dtype=np.intp).reshape(len(kinds), len(classes))
        expected = [
            math.prod(math.comb(len(m), k) for m, k in zip(classes, kind, strict=True)) for kind in kinds
        ]
        self._classes, self._sets = classes, np.array(expected, dtype=float)
        fewest = math.prod(len(members) + 1 for members in classes)
        return bool(np.all(number == expected)) and fewest <= MOST_STATES

    def _over_states(self, weights: Array) -> tuple[float, Array]:
        changes = self._apart.copy()
        value = float(weights @ self._apart)
        for a, indexes in self._alone.items():
            if a not in self._main and indexes:
                distances = sum(weights[i] * self.measured[i][0][1].upper[0] for i in indexes)
                worst = int(np.argmax(distances))
                value += float(np.asarray(distances)[worst])
                for i in indexes:
                    changes[i] = self.measured[i][0][1].upper[0][worst]
        if not self._classes:
            return value, changes
        heaviest = np.zeros(len(self._kinds))
        np.maximum.at(heaviest, self._kind_of, weights[self._joint])
        spread = [self._states(members, weights) for members in self._classes]
        while math.prod(_compositions(len(m), len(s)) for m, s in zip(self._classes, spread, strict=True)) > (
            MOST_STATES
        ):
            most = max(range(len(spread)), key=lambda c: len(spread[c]))
            spread[most] = _fewer(spread[most])
        orders = self._kinds.max(axis=0, initial=0)
        numbers = [_numbers(len(m), len(s)) for m, s in zip(self._classes, spread, strict=True)]
        tables = [
            _symmetric(counts, np.array([s.product for s in states]), int(order))
            for counts, states, order in zip(numbers, spread, orders, strict=True)
        ]
        tensor = np.zeros(orders + 1)
        tensor[tuple(self._kinds.T)] = heaviest
        for table in tables:  # contracts the first axis, and appends one of numbers of attributes
            tensor = np.tensordot(tensor, table, axes=(0, 1))
        total = -2 * tensor
        for axis, (counts, states) in enumerate(zip(numbers, spread, strict=True)):
            alone = counts @ np.array([s.alone for s in states])
            total += alone.reshape([-1 if i == axis else 1 for i in range(total.ndim)])
        worst_of = np.unravel_index(int(np.argmax(total)), total.shape)
        value += float(total[worst_of]) + 2 * float(heaviest @ self._sets)
        agreeing = np.ones(len(self._kinds))
        for c, (members, states) in enumerate(zip(self._classes, spread, strict=True)):
            at = int(worst_of[c])
            choose = np.array([math.comb(len(members), k) for k in range(int(orders[c]) + 1)])
            agreeing *= (tables[c][at] / choose)[self._kinds[:, c]]
            for a in members:
                for i in self._alone.get(a, []):
                    of_states = [_change_alone(self.measured[i][0][1], s) for s in states]
                    changes[i] = float(numbers[c][at] @ np.array(of_states)) / len(members)
        changes[self._joint] = 2 * (1 - agreeing)[self._kind_of]
        return value, changes

    def _states(self, members: Sequence[int], weights: Array) -> list[State]:
        """Return the states of the attributes of a class, whose costs alone are at most those returned."""
        main, indexes = self._main[members[0]], [self._alone.get(a, []) for a in members]
        if main.gram is None:  # what is measured on the attribute alone is the same strategy
            heaviest = math.fsum(max(weights[i] for i in same) for same in zip(*indexes, strict=True))
            return [State(main.least, 2 * heaviest * (1 - main.least), None), State(1.0, 0.0, None)]
        distances, products = main.upper
        alone = np.zeros(len(distances))
        for same in zip(*indexes, strict=True):
            first = self.measured[same[0]][0][1]
            alone += max(weights[i] for i in same) * first.upper[0]
        return _hull(products, alone)


@dataclass(frozen=True, slots=True)
class State:
    """Two values of an attribute that the records may have."""

    product: float
    """C of the two values: 1 if they agree."""
    alone: float
    """The cost of what is measured on the attribute alone."""
    pair: int | None
    """The index of the pair; None if the values agree, or are not known: only C then matters."""


def _hull(products: Array, alone: Array) -> list[State]:
    """Return the corners of the upper hull of the points, and of (1, 0), from the least product on.

    No point is above the hull by more than a tiny fraction of the largest cost, which `MARGIN` exceeds.
    """
    x, y = np.append(products, 1.0), np.append(alone, 0.0)
    tiny = 1e-10 * float(y.max())
    first = int(np.lexsort((-y, x))[0])
    corners = [first, *_above(x, y, first, len(x) - 1, np.arange(len(x)), tiny), len(x) - 1]
    corners = list(dict.fromkeys(corners))
    return [State(float(x[i]), float(y[i]), None if i == len(x) - 1 else i) for i in corners]


def _above(x: Array, y: Array, left: int, right: int, among: NDArray[np.intp], tiny: float) -> Iterator[int]:
    """Iterate over the corners of the hull between two points, which are above the line through them."""
    width = float(x[right] - x[left])
    if width <= 0:
        return
    height = y[among] - y[left] - (x[among] - x[left]) * (float(y[right] - y[left]) / width)
    above = height > tiny
    if above.any():
        top = int(among[np.argmax(height)])
        yield from _above(x, y, left, top, among[above & (x[among] < x[top])], tiny)
        yield top
        yield from _above(x, y, top, right, among[above & (x[among] > x[top])], tiny)


def _change_alone(products: Products, state: State) -> float:
    """Return the change of what is measured on an attribute alone, or a bound on it."""
    if state.pair is None:
        return 2 * (1 - state.product)
    return float(products.upper[0][state.pair])


def _fewer(states: list[State]) -> list[State]:
    """Return a hull of fewer corners around this one: three, or two."""
    different = [state for state in states if state.pair is not None] or states
    most = max(different, key=lambda state: state.alone)
    low, high = different[0].product, different[-1].product
    first = State(low, most.alone, most.pair)
    if len(states) > 3:
        return [first, State(high, most.alone, most.pair), State(1.0, 0.0, None)]
    return [first, State(1.0, most.alone, most.pair)]


def _compositions(members: int, states: int) -> int:
    return math.comb(members + states - 1, states - 1)


def _numbers(members: int, states: int) -> NDArray[np.int64]:
    """Return all numbers of attributes in every state, in rows."""
    if members == 1:  # of which a line has many states
        return np.eye(states, dtype=np.int64)
    rows = np.zeros((1, 0), dtype=np.int64)
    for _ in range(states - 1):
        left = members - rows.sum(axis=1)
        further = np.arange(left.sum() + len(left)) - np.repeat(np.cumsum(left + 1) - left - 1, left + 1)
        rows = np.column_stack([np.repeat(rows, left + 1, axis=0), further])
    return np.column_stack([rows, members - rows.sum(axis=1)])


def _symmetric(numbers: NDArray[np.int64], products: Array, order: int) -> Array:
    """Return the elementary symmetric functions of the products, up to an order, for numbers of states."""
    result = np.zeros((len(numbers), order + 1))
    result[:, 0] = 1.0
    for state, product in enumerate(products.tolist()):
        count = numbers[:, state]
        powers = np.stack([_binomials(count, k) * product**k for k in range(order + 1)], axis=1)
        result = np.stack(
            [sum(result[:, j] * powers[:, k - j] for j in range(k + 1)) for k in range(order + 1)], axis=1
        )
    return result


def _binomials(count: NDArray[np.int64], k: int) -> Array:
    result = np.ones(len(count))
    for j in range(k):
        result *= (count - j) / (j + 1)
    return result


def _own_change(parts: Parts) -> float:
    """Return an upper bound on the largest change of a single measurement."""
    if len(parts) == 1:
        return parts[0][1].farthest
    least = most = 1.0
    for _, products in parts:
        ends = [least * products.least, least, most * products.least, most]
        least, most = min(ends), max(ends)
    return 2 * (1 - least)
