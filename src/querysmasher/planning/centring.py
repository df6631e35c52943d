"""The centres that minimise a workload's total error, if every attribute has one strategy on all sets.

The total error is F = Σ_A √(c_A L_A) over attribute sets. Measure every attribute i by one strategy V_i on
all sets. Around the centre w = V⁻¹1/τ, τ = 1ᵀV⁻¹1, V splits exactly, V = 11ᵀ/τ + V_A with V_A w = 0, and
a query q costs (q·w)² where the attribute is dropped and q M qᵀ where it is kept, M = (1 − 1/τ)(V⁻¹ − τ wwᵀ).
So L_A is a sum over groups of products over attributes, and dF = tr(Λ dM) + tr(Γ d(wwᵀ)) for attribute i,
with Gram matrices Λ, Γ of its queries, weighed by what they cost.

Where Γ = tΛ, the best V is known: with ℓ = tr(ΛM) and m = wᵀΛw, the stationary points of ℓ + tm are those of
√ℓ + √(m + κ) with √(m + κ) = √ℓ/t, that is κ = ℓ/t² − m, and that sum is the error of the same
queries with a total of weight κ on this attribute alone: the optimum over all strategies of Λ + κ11ᵀ. Else t
is the ratio at the present centre. A few sweeps over the attributes converge. F is exact where every set is a
single product of families; elsewhere it ranks centres well but overrates the loss of what families leave on
several attributes. So the planner also tries centres further from uniform, each by the fraction of its
attribute's costs that is overrated (affine queries on loans gain 0.4 %).

A workload on a hundred attributes asks a few kinds of questions many times. Attributes of one size that are
asked by the same families have one *role*, and the same centre (centres by weight as well gain 0.2 %).
Attribute sets that therefore cost the same are one class, and F is a sum over classes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product, starmap

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, ROUNDING, Array, one_core
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.estimator.estimator import subsets
from querysmasher.planning.lattice import RANK
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.splitting import without_lines
from querysmasher.planning.solvers.bounds import GAIN
from querysmasher.planning.solvers.design import Levelled, equal_columns, fixed_point
from querysmasher.planning.solvers.optimum import is_circulant_gram
from querysmasher.planning.split import Kept, is_few, query_tensor, schema_order
from querysmasher.privacy.unit import Unit
from querysmasher.workload.family import Family, Indexes
from querysmasher.workload.workload import Workload

HEAVIEST = 1e4
"""Maximum ratio between the weights of the total and of the queries: a larger one changes little."""

FEW = 10
"""Centres of fewer values are tried much further from uniform: affine queries on CPS gain 0.3%."""


@dataclass(frozen=True, eq=False)
class CentreSearch:
    """The best centres found."""

    best: tuple[_RoleStrategy, ...]
    """The strategy of every attribute; attributes of one role share it."""
    is_exact: bool
    """Whether no other centres, uniform ones included, can be clearly better."""

    def at(self, multiple: float) -> Centres:
        """Return centres as ratios of integers: the best if `multiple` is 1, else further from uniform."""
        centres = {strategy: strategy.centre_at(multiple) for strategy in set(self.best)}
        return tuple(centres[strategy] for strategy in self.best)


def search_centres(workload: Workload, unit: Unit) -> CentreSearch:
    """Return the best centres found for a workload and a unit of privacy."""
    workload = without_lines(workload, _even(workload))
    corners = _corners(workload)
    families = {family.key: family for group in workload for family in group.families}
    alike = {key: _looks_alike(family) for key, family in families.items()}
    if all(alike.values()):
        return CentreSearch(tuple(map(_RoleStrategy, workload.schema.sizes)), is_exact=True)
    with one_core():
        model = _Model(workload, unit, corners)
        model.search(alike)
    return CentreSearch(tuple(model.axes[role] for role in model.role_of), model.is_exact)


def _asked(workload: Workload) -> dict[int, list[tuple[tuple[str, ...], Family]]]:
    """Return the families on each attribute of many values that is asked for, with their attributes."""
    found: dict[str, list[tuple[tuple[str, ...], Family]]] = {
        attribute.name: [] for attribute in workload.schema if attribute.size > limits().light_cells
    }
    for part in (part for group in (workload if found else ()) for part in group.parts()):
        for name in found.keys() & part[0]:
            found[name].append(part)
    return {workload.schema.position(name): parts for name, parts in found.items() if parts}


def _even(workload: Workload) -> tuple[int, ...]:
    """Return the attributes of many values for which the uniform centre is best: all families are even."""
    return tuple(a for a, parts in _asked(workload).items() if all(family.is_even for _, family in parts))


def _corners(workload: Workload) -> dict[int, Indexes]:
    """Return the values between which all queries are straight lines, of attributes asked by few queries.

    The columns of all other values lie in the middle of others: the best centre gives them no weight.
    """
    found = {}
    for a, parts in _asked(workload).items():
        size = workload.schema.sizes[a]
        families = {family.key: family for _, family in parts}.values()
        rows = sum(family.rows for family in families)
        if any(len(names) > 1 for names, _ in parts) or not rows or not is_few(rows, size, 1):
            continue
        bent = np.ones(size, dtype=bool)
        bent[1:-1] = False
        for family in families:
            for row in family.matrix():
                bent[1:-1] |= np.abs(np.diff(row, 2)) > len(row) * ROUNDING * np.abs(row).max()
        found[a] = np.flatnonzero(bent)
    return found


def _looks_alike(family: Family) -> bool:
    """Return whether a family looks the same from every value; few queries on many values never do."""
    if len(family.shape) > 1 or (not family.closed_form and is_few(family.rows, family.cells, 1)):
        return False
    return family.looks_alike or (not family.closed_form and is_circulant_gram(family.gram()))


def attribute_roles(workload: Workload) -> tuple[int, ...]:
    """Return the role of every attribute: those of one role have the same size and families."""
    schema = workload.schema
    usage: list[set[Hashable]] = [set() for _ in schema]
    for group in workload:
        for names, family in group.parts():
            for axis, attribute in enumerate(schema.positions(names)):
                usage[attribute].add((family.key, 0 if family.is_symmetric else axis))
    kinds: dict[Hashable, int] = {}
    return tuple(
        kinds.setdefault((size, frozenset(used)), len(kinds))
        for size, used in zip(schema.sizes, usage, strict=True)
    )


class _RoleStrategy:
    """The strategy of a role: its centre w, M, and the weights of the values that start the next search.

    `overrated` is the fraction of its costs that the model overrates. All of it is about `corners` only, if
    there are some, and other values have no weight.
    """

    def __init__(self, values: int, corners: Indexes | None = None) -> None:
        self.values, self.corners, self.overrated = values, corners, 0.0
        self.size = size = values if corners is None else len(corners)
        self.centre = self.start = np.full(size, 1.0 / size)
        self._classes: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None

    @cached_property
    def kept(self) -> Array:
        """M, at first that of counting single values; written out only if a query needs it."""
        return (1 - 1 / self.size) * (np.eye(self.size) - 1 / self.size)

    def centre_at(self, multiple: float) -> Centre:
        """Return the centre in ratios of small integers, further from uniform the larger `multiple`."""
        even = Centre.uniform(self.size)
        if self.corners is None and np.array_equal(self.centre, even.weights):
            return even
        further = 1 + (multiple - 1) * self.overrated * (1.4 + FEW / self.size)
        weights = np.maximum(even.weights + further * (self.centre - even.weights), 0.0)
        finest = min(max(limits().centre_integers, self.size), limits().largest_centre)
        near = Centre.near(weights / weights.sum(), finest)
        if self.corners is None:
            return replace(near, start=self.start)
        integers = np.zeros(self.values, dtype=np.int64)
        integers[self.corners] = near.exact
        return Centre.ratio(integers)

    def improve(self, kept: Array, dropped: Array) -> None:
        """Replace the strategy by the best one for Λ and Γ, with their ratio t at the present centre."""
        if np.trace(kept) <= 0:  # only its total is asked for, up to rounding errors
            return
        w = self.centre
        m, loss, price = float(w @ kept @ w), float(np.vdot(kept, self.kept)), float(w @ dropped @ w)
        mean = float(np.trace(kept)) / self.size
        total = (loss * (m / price) ** 2) - m if price > 0 and m > 0 else math.inf
        whole = kept + min(max(total, mean / HEAVIEST), mean * HEAVIEST)
        firsts, classes = self._classes = self._classes or equal_columns(whole)
        whole = whole[np.ix_(firsts, firsts)]  # values that no query distinguishes are one
        values = np.linalg.eigvalsh(whole)
        rank = int(np.count_nonzero(values > RANK * values[-1]))
        # a centre converges more slowly than its loss
        close = GAIN / (100 if len(whole) <= limits().light_cells else 1)
        start = np.bincount(classes, self.start).astype(float)
        design = fixed_point(lambda p: Levelled.of_gram(whole, rank, p), start, close, 40)
        ones = design.inverse.sum(axis=1)
        tau = float(ones.sum())
        better = design.weights * np.maximum(design.leverages / design.value, ROUNDING) ** 2
        counts = np.bincount(classes)
        self.centre, self.start = (ones / counts / tau)[classes], (better / counts / better.sum())[classes]
        left = (1 - 1 / tau) * (design.inverse - np.outer(ones, ones) / tau) / np.outer(counts, counts)
        self.kept = left[np.ix_(classes, classes)]


class _RoleFamily:
    """A family of queries and the roles of its attributes: what it costs, kept or dropped on each."""

    def __init__(
        self, roles: tuple[int, ...], family: Family, order: tuple[int, ...], corners: Indexes | None
    ) -> None:
        """Write out rows only of families on several attributes, and only a sample of very many rows."""
        self.roles, self.key = roles, family.key
        self.sets = list(subsets(range(len(roles))))
        if corners is not None:
            rows = family.matrix()[:, corners]
            self._queries = (rows.T * family.query_weights()) @ rows
            return
        if len(roles) == 1:
            self._queries = family.gram()
            return
        rows = query_tensor(family, order)
        step = max(1, rows.size // CHUNK)
        self._queries = math.sqrt(step) * rows[::step]

    def loss(self, axes: Sequence[_RoleStrategy], kept: Kept) -> float:
        """Return the sum of weight × variance of what is left on the kept axes."""
        first, gram = axes[self.roles[0]], self.gram(axes, kept, 0)
        return float(np.vdot(gram, first.kept) if 0 in kept else first.centre @ gram @ first.centre)

    def gram(self, axes: Sequence[_RoleStrategy], kept: Kept, axis: int) -> Array:
        """Return the Gram matrix of one axis, given which others are kept."""
        if len(self.roles) == 1:
            return self._queries
        weighed = self._queries
        for other, strategy in enumerate(axes[role] for role in self.roles):
            if other != axis:
                matrix = strategy.kept if other in kept else np.outer(strategy.centre, strategy.centre)
                weighed = np.moveaxis(np.tensordot(weighed, matrix, axes=(other + 1, 0)), -1, other + 1)
        size = weighed.shape[axis + 1]
        left, right = (np.moveaxis(x, axis + 1, -1).reshape(-1, size) for x in (self._queries, weighed))
        product = left.T @ right
        return np.asarray((product + product.T) / 2)


Prices = Mapping[tuple[int, Kept], float]
"""The derivative of F by the loss of a family (its number) on the axes it keeps."""


class _Model:
    """F as a function of one strategy per role."""

    def __init__(self, workload: Workload, unit: Unit, corners: Mapping[int, Indexes]) -> None:
        schema = workload.schema
        self.role_of = attribute_roles(workload)
        first = {role: a for a, role in reversed(list(enumerate(self.role_of)))}
        own = [(schema.sizes[a], corners.get(a)) for _, a in sorted(first.items())]
        self.axes = [_RoleStrategy(*each) for each in own]
        families: dict[Hashable, tuple[int, _RoleFamily]] = {}
        table: defaultdict[frozenset[int], dict[tuple[tuple[int, Kept], ...], float]] = defaultdict(dict)

        @cache
        def options(names: tuple[str, ...], family: Family) -> list[tuple[tuple[int, Kept], list[int]]]:
            positions = schema.positions(names)
            ordered = sorted(positions)
            roles = tuple(self.role_of[a] for a in ordered)
            order = schema_order(ordered if family.is_symmetric else positions)
            key = roles, order, family.key
            if key not in families:
                families[key] = len(families), _RoleFamily(roles, family, order, corners.get(ordered[0]))
            number, known = families[key]
            return [((number, kept), [ordered[a] for a in kept]) for kept in known.sets]

        for group in workload:
            for chosen in product(*starmap(options, group.parts())):
                attributes = frozenset(a for _, kept in chosen for a in kept)
                keys = tuple(sorted(key for key, _ in chosen))
                table[attributes][keys] = table[attributes].get(keys, 0.0) + group.weight
        self.families = [family for _, family in families.values()]
        public = unit.known(schema)
        classes = Counter(
            (0 if attributes in public else unit.change(), frozenset(products.items()))
            for attributes, products in table.items()
        )
        self.changes = np.array([change for change, _ in classes], dtype=float)
        self.counts = np.array(list(classes.values()), dtype=float)
        """The number of attribute sets of every class."""
        self.losses = [(n, on) for n, family in enumerate(self.families) for on in family.sets]
        products = [(n, keys, weight) for n, (_, each) in enumerate(classes) for keys, weight in each]
        self.class_of, self.weights = (np.array([each[i] for each in products]) for i in (0, 2))
        """The class and the weight of every product of losses."""
        number_of = {key: number for number, key in enumerate(self.losses)}
        width = max(len(keys) for _, keys, _ in products)
        self.factors = np.full((len(products), width), len(self.losses))
        """The losses of every product, by number; the loss after the last is one."""
        for row, (_, keys, _) in zip(self.factors, products, strict=True):
            row[: len(keys)] = [number_of[key] for key in keys]
        roles_used = [role for family in self.families for role in family.roles]
        self.is_exact = len(set(roles_used)) == len(roles_used) == len(self.families)

    def search(self, alike: Mapping[Hashable, bool]) -> None:
        """Improve the strategies of all roles in turn, until F settles, and rate them.

        Roles of which all families look `alike` from every value keep the uniform centre. So do two values:
        what is left on them is a single number, whose largest weight is smallest at that centre.
        """
        free = {role for f in self.families if not alike[f.key] for role in f.roles}
        before = math.inf
        while True:
            value, prices = self._prices()
            if not value > 0 or before - value < GAIN * value:
                break
            before = value
            for role in sorted(free):
                if self.axes[role].size > 2:
                    self.axes[role].improve(*self._grams(role, prices))
        self._rate(prices)

    def _rate(self, prices: Prices) -> None:
        """Set the fraction of every role's costs that families on several attributes cause together."""
        costs, together = np.zeros((2, len(self.axes)))
        for (number, kept), price in prices.items():
            family = self.families[number]
            for role in (family.roles[axis] for axis in kept):
                cost = price * family.loss(self.axes, kept)
                costs[role], together[role] = costs[role] + cost, together[role] + cost * (len(kept) > 1)
        for strategy, fraction in zip(self.axes, together / np.where(costs > 0, costs, 1.0), strict=True):
            strategy.overrated = float(fraction)

    def _grams(self, role: int, prices: Prices) -> tuple[Array, Array]:
        """Return Λ and Γ of a role."""
        size = self.axes[role].size
        kept, dropped = np.zeros((size, size)), np.zeros((size, size))
        for (number, on), price in prices.items():
            family = self.families[number]
            for axis in (axis for axis, other in enumerate(family.roles) if other == role and price):
                total = kept if axis in on else dropped
                total += price * family.gram(self.axes, on, axis)
        return kept, dropped

    def _prices(self) -> tuple[float, Prices]:
        """Return F and its derivatives by all losses."""
        losses = [self.families[number].loss(self.axes, on) for number, on in self.losses]
        factors = np.array([*losses, 1.0])[self.factors]
        sums = np.bincount(self.class_of, self.weights * factors.prod(axis=1), len(self.counts))
        value = float((self.counts * np.sqrt(self.changes * np.maximum(sums, 0.0))).sum())
        sums[~(sums > 0)] = math.inf
        price = (self.counts * np.sqrt(self.changes / sums) / 2)[self.class_of] * self.weights
        prices = np.zeros(len(losses) + 1)
        for place in range(self.factors.shape[1]):
            others = np.delete(factors, place, axis=1).prod(axis=1)
            np.add.at(prices, self.factors[:, place], price * others)
        return value, dict(zip(self.losses, prices[:-1].tolist(), strict=True))
