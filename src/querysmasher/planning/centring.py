"""The centres that minimise a workload's total error, from one number per attribute.

The total error is F = Σ_A √(c_A L_A) over attribute sets. Measure every attribute i by one strategy V_i on
all sets. Around its own centre w = V⁻¹1/τ, τ = 1ᵀV⁻¹1, V splits exactly, V = 11ᵀ/τ + V_A with V_A w = 0, and
a query q costs (q·w)² where the attribute is dropped and q M qᵀ where it is kept, M = (1 − 1/τ)(V⁻¹ − τ wwᵀ).
So L_A is a sum over groups of products over attributes, and dF = tr(Λ dM) + tr(Γ d(wwᵀ)) for attribute i,
with Gram matrices Λ, Γ of what is asked of it, weighed by what it costs.

Where Γ = tΛ, the best V is known: with ℓ = tr(ΛM) and m = wᵀΛw, the stationary points of ℓ + tm are those of
√ℓ + √(m + κ) with √(m + κ) = √ℓ·(√ℓ/(t√ℓ)), that is κ = ℓ/t² − m, and that sum is the error of the same
queries with a total of weight κ on this attribute alone: the optimum over all strategies of Λ + κ11ᵀ. Else t
is the ratio at the present centre. A few sweeps over the attributes converge. F is exact where every set is a
single product of families; elsewhere it ranks centres well but overrates what is kept together, so that the
planner also tries centres further from uniform.

A workload on a hundred attributes asks a few kinds of questions many times. Attributes that it treats alike
have one *role*, and attribute sets that therefore cost the same are one class. They are found once, without
any centre; the search then evaluates only distinct classes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.planning.centre import Centre, Centres, uniform
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import LEAST, Design, fixed_point
from querysmasher.planning.solvers.optimum import RANK, is_circulant_gram
from querysmasher.planning.split import Kept, PlacedFamily, is_few
from querysmasher.privacy.unit import Unit
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Workload


class Use(NamedTuple):
    """A part of a role family in a Kronecker product."""

    family: int
    """The index of the role family."""
    kept: Kept
    """The axes that the part keeps."""
    axes: tuple[int, ...]
    """Their indices in the attribute set."""


class Coefficient(NamedTuple):
    """A product that a coefficient is a sum of."""

    weight: float
    """Weight × multiplicity."""
    dropped: tuple[int, ...]
    """The role families that keep nothing."""


class RoleTerm(NamedTuple):
    """A Kronecker product of parts, and what its coefficient is the sum of."""

    uses: tuple[Use, ...]
    coefficients: tuple[Coefficient, ...]


@dataclass(frozen=True)
class RoleFamily:
    """A family of queries and the roles of its attributes, in the schema's order."""

    roles: tuple[int, ...]
    queries: PlacedFamily

    @property
    def family(self) -> Family:
        """The family of queries."""
        return self.queries.family


@dataclass(frozen=True)
class SetClass:
    """Attribute sets with the same share of the workload."""

    roles: tuple[int, ...]
    count: int
    terms: tuple[RoleTerm, ...]


@dataclass(frozen=True)
class Roles:
    """The roles of a workload's attributes, and its classes of attribute sets."""

    role_of: tuple[int, ...]
    sizes: tuple[int, ...]
    families: tuple[RoleFamily, ...]
    classes: tuple[SetClass, ...]


def few_roles(workload: Workload, most: int) -> Roles:
    """Return the roles of a workload, coarse ones if finer ones make more than `most` classes."""
    role_of = attribute_roles(workload, coarse=False)
    places = (sorted(workload.schema.positions(group.attributes)) for group in workload)
    if len({tuple(role_of[p] for p in own) for own in places}) <= most:  # at least as many classes
        roles = find_roles(workload)
        if len(roles.classes) <= most:
            return roles
    return find_roles(workload, coarse=True)


def find_roles(workload: Workload, *, coarse: bool = False) -> Roles:
    """Find the roles and classes of a workload.

    If `coarse`, attributes of the same size with the same families share a role, whatever the weights and the
    other families of their groups; classes of sets still distinguish these.
    """
    schema = workload.schema
    role_of = attribute_roles(workload, coarse=coarse)
    role_sizes = dict(zip(role_of, schema.sizes, strict=True))
    families: dict[Hashable, tuple[int, RoleFamily]] = {}
    table: defaultdict[tuple[int, ...], Counter[Hashable]] = defaultdict(Counter)
    for group in workload:
        options = []
        for names, family in group.parts():
            given = schema.positions(names)
            ordered = sorted(given)
            roles = tuple(role_of[p] for p in ordered)
            order = tuple(range(len(given)) if family.is_symmetric else map(given.index, ordered))
            number, _ = families.setdefault(
                (roles, order, family.key), (len(families), RoleFamily(roles, PlacedFamily(family, order)))
            )
            options.append(
                [Use(number, kept, tuple(ordered[a] for a in kept)) for kept in subsets(range(len(ordered)))]
            )
        for chosen in product(*options):
            attributes = tuple(sorted(a for use in chosen for a in use.axes))
            axis_of = {a: i for i, a in enumerate(attributes)}
            uses = tuple(
                sorted(use._replace(axes=tuple(axis_of[a] for a in use.axes)) for use in chosen if use.kept)
            )
            dropped = tuple(sorted(use.family for use in chosen if not use.kept))
            table[attributes][uses, dropped, group.weight] += 1
    classes = Counter(
        (tuple(role_of[a] for a in attributes), frozenset(terms.items()))
        for attributes, terms in table.items()
    )
    return Roles(
        role_of,
        tuple(role_sizes[r] for r in range(len(role_sizes))),
        tuple(f for _, f in families.values()),
        tuple(_set_class(roles, terms, count) for (roles, terms), count in classes.items()),
    )


def attribute_roles(workload: Workload, *, coarse: bool) -> tuple[int, ...]:
    """Return the role of every attribute."""
    schema = workload.schema
    numbers: dict[Hashable, int] = {}
    usage: list[Counter[Hashable]] = [Counter() for _ in schema]
    for group in workload:
        parts = [
            (schema.positions(names), family, numbers.setdefault(family.key, len(numbers)))
            for names, family in group.parts()
        ]
        for places, family, number in parts:
            others = tuple(sorted(n for p, _, n in parts if p is not places))
            for axis, place in enumerate(places):
                asked = (number, 0 if family.is_symmetric else axis)
                usage[place][asked if coarse else (*asked, group.weight, others)] += 1
    kinds: dict[Hashable, int] = {}
    return tuple(
        kinds.setdefault((size, frozenset(used if coarse else used.items())), len(kinds))
        for size, used in zip(schema.sizes, usage, strict=True)
    )


def _set_class(roles: tuple[int, ...], terms: Iterable[tuple[Any, int]], count: int) -> SetClass:
    grouped: defaultdict[tuple[Use, ...], list[Coefficient]] = defaultdict(list)
    for (uses, dropped, weight), times in terms:
        grouped[uses].append(Coefficient(weight * times, dropped))
    return SetClass(roles, count, tuple(RoleTerm(uses, tuple(grouped[uses])) for uses in sorted(grouped)))


HEAVIEST = 1e4
"""Maximum weight of the total relative to the queries, and of these to the total: more hardly matters."""

CLOSE = 1e-5
"""Sweeps end when the error changes by less than this fraction."""

FEW = 16
"""Attributes of fewer values are tried much further from uniform centres: affine queries on CPS gain 0.2%."""

SWEEPS = 12
"""Maximum number of sweeps."""

ENTRIES = 400_000
"""Maximum number of entries of the rows of a family on several attributes: of more, some are drawn."""


@dataclass(frozen=True, eq=False)
class CentreSearch:
    """The best centres found, and uniform ones."""

    uniform: Centres
    best: tuple[Array, ...]
    """The weights of every attribute's values, which sum to one."""
    starts: tuple[Array | None, ...]
    fineness: tuple[int, ...]
    is_exact: bool
    """Whether no centres in their place can be clearly better, uniform ones included."""

    def at(self, way: float) -> Centres:
        """Return centres in ratios of small integers: uniform at 0, the best found at 1, others beyond."""
        shared: dict[tuple[int, int], Centre] = {}
        result = []
        for even, best, start, fine in zip(self.uniform, self.best, self.starts, self.fineness, strict=True):
            key = id(best), fine
            if key not in shared:
                shared[key] = even
                if start is not None:
                    further = 1 + (way - 1) * (1 + FEW / len(even))
                    weights = even.weights + further * (best - even.weights)
                    positive = np.maximum(weights, 0.0)
                    shared[key] = replace(Centre.near(positive / positive.sum(), fine), start=start)
            result.append(shared[key])
        return tuple(result)


def search_centres(workload: Workload, unit: Unit) -> CentreSearch:
    """Return the best centres found for a workload and a unit of privacy."""
    even = uniform(workload.schema)
    weights = tuple(centre.weights for centre in even)
    none = (None,) * len(even)
    keep = CentreSearch(even, weights, none, (1,) * len(even), is_exact=True)
    if all(_looks_alike(f) for f in {f.key: f for g in workload for f in g.families}.values()):
        return keep
    roles = few_roles(workload, limits().many_classes)
    free = [role for role in range(len(roles.sizes)) if not _is_symmetric(roles, role)]
    if not free:
        return keep
    with one_core():
        model = _Model(roles, unit, free)
        model.search()
    axes = [model.axes[role] for role in roles.role_of]
    return CentreSearch(
        even,
        tuple(axis.centre for axis in axes),
        tuple(axis.start for axis in axes),
        tuple(_fineness(roles, role) for role in roles.role_of),
        is_exact=model.is_exact,
    )


@dataclass(eq=False)
class _Axis:
    """The strategy of an attribute: its centre w, M, and the weights of values that proved it best."""

    size: int
    centre: Array = field(init=False)
    start: Array | None = None

    def __post_init__(self) -> None:
        self.centre = np.full(self.size, 1.0 / self.size)

    @cached_property
    def kept(self) -> Array:
        """M: at first that of the single values, which is not written out if no query asks for it."""
        return (1 - 1 / self.size) * (np.eye(self.size) - 1 / self.size)

    @property
    def dropped(self) -> Array:
        """wwᵀ."""
        return np.outer(self.centre, self.centre)

    def measure(self, inverse: Array) -> None:
        """Take another strategy, given V⁻¹ for V with V[j,j] = 1."""
        ones = inverse.sum(axis=1)
        total = float(ones.sum())
        self.centre = ones / total
        self.kept = (1 - 1 / total) * (inverse - np.outer(ones, ones) / total)

    def improve(self, kept: Array, dropped: Array) -> None:
        """Take the best strategy for Λ and Γ, as far as their ratio at the present centre tells."""
        if np.trace(kept) <= 0:  # only its total is asked for, up to rounding errors
            return
        w = self.centre
        m, loss, price = float(w @ kept @ w), float(np.vdot(kept, self.kept)), float(w @ dropped @ w)
        mean = float(np.trace(kept)) / self.size
        total = (loss * (m / price) ** 2) - m if price > 0 and m > 0 else math.inf
        whole = kept + min(max(total, mean / HEAVIEST), mean * HEAVIEST)
        start = np.full(self.size, 1.0 / self.size) if self.start is None else self.start
        gap = 1e-5 if self.size <= limits().light_cells else 1e-3
        values = np.linalg.eigvalsh(whole)
        rank = int(np.count_nonzero(values > RANK * values[-1]))
        design = fixed_point(lambda p: Design.of_gram(whole, rank, p), start, gap, 40)
        half = design.image * (design.weights * np.sqrt(design.leverages)) / design.roots[:, None] ** 1.5
        self.measure(half.T @ half)
        better = design.weights * np.maximum(design.leverages / design.value, LEAST) ** 2
        self.start = better / better.sum()


class _Asked:
    """A family of queries and the roles of its attributes: what it costs, kept or dropped on each."""

    def __init__(self, asked: RoleFamily) -> None:
        """Write out rows only of families on several attributes, and only some of very many."""
        self.roles = asked.roles
        self._gram = asked.family.gram() if len(asked.roles) == 1 else None
        self._rows = np.zeros(())
        if self._gram is None:
            rows = asked.queries.weighted
            step = max(1, rows.size // ENTRIES)
            self._rows = math.sqrt(step) * rows[::step]

    @cached_property
    def sets(self) -> list[Kept]:
        """All sets of axes that may be kept."""
        return list(subsets(range(len(self.roles))))

    def loss(self, axes: Sequence[_Axis], kept: Kept) -> float:
        """Return the sum of weight × variance of what is left on the kept axes."""
        if self._gram is not None:
            axis = axes[self.roles[0]]
            return float(np.vdot(self._gram, axis.kept) if kept else axis.centre @ self._gram @ axis.centre)
        return float(np.vdot(self._rows, self._weighed(axes, kept, None)))

    def gram(self, axes: Sequence[_Axis], kept: Kept, axis: int) -> Array:
        """Return the Gram matrix of one axis, given which others are kept."""
        if self._gram is not None:
            return self._gram
        size = int(self._rows.shape[axis + 1])
        own, other = (
            np.moveaxis(rows, axis + 1, -1).reshape(-1, size)
            for rows in (self._rows, self._weighed(axes, kept, axis))
        )
        product = own.T @ other
        return np.asarray((product + product.T) / 2)

    def _weighed(self, axes: Sequence[_Axis], kept: Kept, skip: int | None) -> Array:
        """Return the rows times the matrix of every axis but one."""
        rows = self._rows
        for place, role in enumerate(self.roles):
            if place != skip:
                matrix = axes[role].kept if place in kept else axes[role].dropped
                rows = np.moveaxis(np.tensordot(rows, matrix, axes=(place + 1, 0)), -1, place + 1)
        return rows


Prices = Mapping[tuple[int, Kept], float]
"""The derivative of F by the loss of a family (its number) on the axes it keeps."""


class _Model:
    """F as a function of one strategy per role."""

    def __init__(self, roles: Roles, unit: Unit, free: Sequence[int]) -> None:
        self.roles, self.free = roles, free
        self.axes = [_Axis(size) for size in roles.sizes]
        self.families = [_Asked(family) for family in roles.families]
        factors = (math.sqrt(unit.change(c.roles)) * c.count for c in roles.classes)
        self.classes = [(c, f) for c, f in zip(roles.classes, factors, strict=True) if f]
        tied = any(len(family.roles) > 1 for family in roles.families)
        self.is_exact = not tied and all(len(c.terms) == 1 for c, _ in self.classes)

    def search(self) -> None:
        """Improve the strategies of all free roles in turn, until F settles."""
        before = math.inf
        for _ in range(SWEEPS):
            value, prices = self._prices()
            if not value > 0 or before - value < CLOSE * value:
                break
            before = value
            for role in self.free:
                self.axes[role].improve(*self._grams(role, prices))

    def _grams(self, role: int, prices: Prices) -> tuple[Array, Array]:
        """Return Λ and Γ of a role."""
        size = self.roles.sizes[role]
        kept, dropped = np.zeros((size, size)), np.zeros((size, size))
        for number, family in enumerate(self.families):
            for axis in (place for place, own in enumerate(family.roles) if own == role):
                for on in family.sets:
                    price = prices.get((number, on), 0.0)
                    if price:
                        total = kept if axis in on else dropped
                        total += price * family.gram(self.axes, on, axis)
        return kept, dropped

    def _prices(self) -> tuple[float, Prices]:
        """Return F and its derivatives by all losses."""
        losses = [{on: f.loss(self.axes, on) for on in f.sets} for f in self.families]
        value, prices = 0.0, defaultdict[tuple[int, Kept], float](float)
        for one, factor in self.classes:
            terms = []
            for term in one.terms:
                parts = [((use.family, use.kept), losses[use.family][use.kept]) for use in term.uses]
                for weight, dropped in term.coefficients:
                    terms.append((weight, [*parts, *(((n, ()), losses[n][()]) for n in dropped)]))
            loss = math.fsum(weight * math.prod(own for _, own in parts) for weight, parts in terms)
            if not loss > 0:
                continue
            value += factor * math.sqrt(loss)
            price = factor / (2 * math.sqrt(loss))
            for weight, parts in terms:
                for place, (key, _) in enumerate(parts):
                    others = math.prod(own for i, (_, own) in enumerate(parts) if i != place)
                    prices[key] += price * weight * others
        return value, prices


def _fineness(roles: Roles, role: int) -> int:
    """Return the maximum integer of a rounded centre: less where rows on several attributes need the bits."""
    own = [f for f in roles.families if role in f.roles]
    if len({f.family.key for f in own}) > 1 or any(len(f.roles) > 1 for f in own):
        return limits().coarse_centre
    return min(max(limits().fine_centre, roles.sizes[role]), limits().largest_centre)


def _is_symmetric(roles: Roles, role: int) -> bool:
    """Return whether every family asked of a role looks the same from every value.

    Two values always do: what is left on them is a single number, whose largest weight is smallest at the
    uniform centre.
    """
    return roles.sizes[role] <= 2 or all(_looks_alike(f.family) for f in roles.families if role in f.roles)


def _looks_alike(family: Family) -> bool:
    """Return whether a family looks the same from every value; few queries on many values never do."""
    if len(family.shape) > 1 or (not family.closed_form and is_few(family.rows, family.cells, 1)):
        return False
    return family.looks_alike or (not family.closed_form and is_circulant_gram(family.gram()))
