"""HDMM, the High-Dimensional Matrix Mechanism with Gaussian noise: errors only, without measurement.

Three templates for one strategy over the whole table, each with a privacy cost of 1:

- ``kronecker``: a product ⊗Vᵢ of one strategy per attribute for all queries at once, by coordinate descent.
- ``union``: every product of families has its own strategy and its own share of the budget.
- ``marginals``: all marginals, each with a weight.

Queries must be products of families on one attribute each. On an attribute that a query does not mention,
it asks for the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from querysmasher.arrays import Array, along_axes, one_core, pseudo_inverse, square_root
from querysmasher.errors import TooLargeError, WorkloadError, as_given
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import Design, solve_design
from querysmasher.workload.family import Family
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Workload

SWEEPS = 60
CONVERGED = 1e-6
"""Minimum relative gain of a sweep; below it, coordinate descent ends."""

MOST_ATTRIBUTES = 14
"""Maximum number d of attributes for the marginals template, which has 2^d weights."""

RANK = 1e-11

LARGEST = 300 * math.log(10)
"""Logarithm of the largest sum of variances reported."""


@dataclass(frozen=True)
class Errors:
    """The expected errors of a template at privacy cost 1: sums and maxima over the queries."""

    weighted_loss: float
    """The sum of weight × variance."""
    worst: float | None
    """The largest variance of a query, or None if there are too many queries."""


def hdmm(workload: Workload, template: str) -> Errors:
    """Return the errors of a template, at privacy cost 1."""
    if template not in TEMPLATES:
        raise WorkloadError(f"template: expected one of {', '.join(TEMPLATES)}, got {as_given(template)}")
    for group in workload:
        if any(len(family.shape) > 1 for family in group.families):
            raise WorkloadError(
                f"HDMM accepts only products of queries on single attributes; {group.describe()} is not one"
            )
    groups = tuple(g for g in workload if all(f.closed_form or f.matrix().any() for f in g.families))
    if not groups:
        raise WorkloadError("workload: all its queries are zero, so there is nothing to measure")
    most = limits().worst_queries  # maximum number that is inspected one by one
    is_few = all(g.rows <= most and all(f.fits_memory for f in g.families) for g in groups)
    with one_core():
        weighted_loss, worst = TEMPLATES[template](Workload(workload.schema, groups))
        return Errors(weighted_loss, worst() if is_few else None)


Outcome = tuple[float, Callable[[], float]]
"""The sum of weight × variance, and a function that computes the largest variance of a query."""


def _on_all_attributes(workload: Workload) -> list[list[Family]]:
    """Return the families of every group, with the total on each attribute that it does not mention."""
    schema = workload.schema
    totals: dict[str, Family] = {a.name: Rows((a.size,), np.ones((1, a.size))) for a in schema}
    named = (dict(zip(group.attributes, group.families, strict=True)) for group in workload)
    return [[{**totals, **families}[name] for name in schema.names] for families in named]


@dataclass(frozen=True, eq=False)
class _AxisStrategy:
    """A strategy on one attribute: the weights of its design, and the pseudo-inverse of its rows."""

    weights: Array
    inverse: Array

    @classmethod
    def best(cls, gram: Array, start: Array) -> _AxisStrategy:
        """Return the best strategy for a Gram matrix."""
        design: Design = solve_design(square_root(gram, RANK), np.maximum(start, 1e-9), 1e-6)
        return cls(design.weights / design.weights.sum(), pseudo_inverse(design.strategy()))

    def loss(self, gram: Array) -> float:
        return float(np.vdot(self.inverse, gram @ self.inverse))

    def worst(self, family: Family) -> float:
        return float(((family.matrix() @ self.inverse) ** 2).sum(axis=1).max())


def _kronecker(workload: Workload) -> Outcome:
    products, sizes = _on_all_attributes(workload), workload.schema.sizes
    families = list({family.key: family for row in products for family in row}.values())
    numbers = {family.key: number for number, family in enumerate(families)}
    used = np.array([[numbers[family.key] for family in row] for row in products])
    grams = [family.gram() for family in families]
    weights = np.log([group.weight for group in workload])
    axes = [_AxisStrategy(np.full(n, 1.0 / n), np.eye(n)) for n in sizes]
    # Of every group on every attribute, as logarithms: a product over many attributes may be any size.
    losses = np.log([[axes[a].loss(grams[k]) for a, k in enumerate(row)] for row in used.tolist()])
    total = float(np.logaddexp.reduce(weights + losses.sum(axis=1)))
    for _ in range(SWEEPS):
        before = total
        for a, axis in enumerate(axes):
            rest = weights + losses.sum(axis=1) - losses[:, a]
            weight = np.bincount(used[:, a], np.exp(rest - rest.max()), len(grams))
            blend = sum(weight[k] * grams[k] for k in np.flatnonzero(weight)) / weight.max()
            axes[a] = _AxisStrategy.best(np.asarray(blend), axis.weights)
            by_family = {k: math.log(axes[a].loss(grams[k])) for k in set(used[:, a].tolist())}
            losses[:, a] = [by_family[k] for k in used[:, a].tolist()]
        total = float(np.logaddexp.reduce(weights + losses.sum(axis=1)))
        if total > before + math.log1p(-CONVERGED):
            break
    if total > LARGEST:
        raise TooLargeError(f"its strategy on all {len(sizes)} attributes together has an error above 10^150")

    def worst() -> float:
        each = {(a, k): axes[a].worst(families[k]) for row in used.tolist() for a, k in enumerate(row)}
        return max(math.prod(each[a, k] for a, k in enumerate(row)) for row in used.tolist())

    return math.exp(total), worst


def _union(workload: Workload) -> Outcome:
    families = {family.key: family for group in workload for family in group.families}
    axes = {key: _AxisStrategy.best(f.gram(), np.full(f.cells, 1.0 / f.cells)) for key, f in families.items()}
    losses = {key: axes[key].loss(family.gram()) for key, family in families.items()}
    roots = [math.sqrt(g.weight * math.prod(losses[f.key] for f in g.families)) for g in workload]
    total = math.fsum(roots)  # a share of the budget ∝ root leaves a variance of total / root

    def worst() -> float:
        each = {key: axes[key].worst(family) for key, family in families.items()}
        pairs = zip(workload, roots, strict=True)
        return total * max(math.prod(each[f.key] for f in g.families) / root for g, root in pairs)

    return total**2, worst


def _marginals(workload: Workload) -> Outcome:
    """Return the errors of all marginals, each with a weight θ; arrays have an axis of 2 per attribute."""
    sizes = workload.schema.sizes
    d = len(sizes)
    if d > MOST_ATTRIBUTES:
        raise TooLargeError(
            f"HDMM's marginals template has 2^{d} weights; at most {MOST_ATTRIBUTES} attributes are supported"
        )
    splits: dict[object, tuple[float, float]] = {}
    energy = np.zeros([2] * d)  # of the queries, without and with each attribute
    products = _on_all_attributes(workload)
    for group, families in zip(workload, products, strict=True):
        for family in families:
            if family.key not in splits:
                gram = family.gram()
                even = float(gram.sum()) / len(gram)
                splits[family.key] = even, float(np.trace(gram)) - even
        energy += group.weight * _outer([splits[family.key] for family in families])
    scale = _outer([(n, 1) for n in sizes])  # cells that a marginal sums over
    theta = np.full([2] * d, 2.0**-d)
    above, below = [np.array([[1.0, 0], [1, 1]])] * d, [np.array([[1.0, 1], [0, 1]])] * d
    for _ in range(3_000):  # multiplicative: a fixed point exactly where the derivative is level
        lam = along_axes(theta * scale, 0, above)  # λ_A = Σ over B ⊇ A of θ_B × cells
        slope = along_axes(energy / np.maximum(lam, 1e-150) ** 2, 0, below) * scale
        level = float((theta * slope).sum())
        if slope.max() <= level * (1 + 1e-5):
            break
        theta *= np.sqrt(slope / level)
        theta /= theta.sum()
    variances = 1 / np.maximum(along_axes(theta * scale, 0, above), 1e-150)  # of residual A per unit
    loss = float((energy * variances).sum())
    return loss, lambda: max(_largest(variances, families) for families in products)


def _largest(variances: Array, families: list[Family]) -> float:
    """Return the largest variance of a product of families, from the variances of all residuals."""
    for axis in reversed(range(len(families))):  # queries of a family go to the end
        rows = families[axis].matrix()
        mean = rows.mean(axis=1)
        squares = np.stack([mean**2 * rows.shape[1], ((rows - mean[:, None]) ** 2).sum(axis=1)])
        variances = np.tensordot(variances, squares, (axis, 0))
    return float(variances.max())


def _outer(parts: Sequence[tuple[float, float]]) -> Array:
    """Return the products of all choices of one number per pair."""
    return reduce(np.multiply.outer, [np.array(pair, dtype=float) for pair in parts])


TEMPLATES: dict[str, Callable[[Workload], Outcome]] = {
    "kronecker": _kronecker,
    "union": _union,
    "marginals": _marginals,
}
