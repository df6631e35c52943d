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

from querysmasher.arrays import Array, one_core, pseudo_inverse, square_root
from querysmasher.errors import TooLargeError, WorkloadError, as_given
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import Design, solve_design
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group, Workload

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
    groups = tuple(g for g in workload if not any(_is_zero(family) for family in g.families))
    if not groups:
        raise WorkloadError("workload: all its queries are zero, so there is nothing to measure")
    with one_core():
        return TEMPLATES[template](Workload(workload.schema, groups))


def _is_zero(family: Family) -> bool:
    """Return whether all queries of a family are zero: their answer is zero, at no privacy cost."""
    return not family.closed_form and not family.matrix().any()


def _can_look(workload: Workload) -> bool:
    """Return whether the queries are few enough to inspect each."""
    return all(g.rows <= limits().worst_queries and all(f.fits_memory for f in g.families) for g in workload)


def _kronecker(workload: Workload) -> Errors:
    schema = workload.schema
    kinds: dict[object, Family | int] = {n: n for n in schema.sizes}  # a size stands for the total query
    uses = []  # which kind each group asks of each attribute
    for group in workload:
        row: list[object] = list(schema.sizes)
        for name, family in zip(group.attributes, group.families, strict=True):
            kinds[family.key] = family
            row[schema.position(name)] = family.key
        uses.append(row)
    numbers = {key: i for i, key in enumerate(kinds)}
    used = np.array([[numbers[key] for key in row] for row in uses])
    grams = [np.ones((k, k)) if isinstance(k, int) else k.gram() for k in kinds.values()]
    weights = np.log([g.weight for g in workload])
    designs = [_even(n) for n in schema.sizes]
    # Of every group on every attribute, as logarithms: a product over many attributes may be any size.
    losses = np.log([[_loss(designs[a], grams[k]) for a, k in enumerate(row)] for row in used.tolist()])
    known: dict[object, tuple[Array, Array]] = {}
    total = _log_sum(weights + losses.sum(axis=1))
    for _ in range(SWEEPS):
        before = total
        for a in range(len(schema)):
            rest = weights + losses.sum(axis=1) - losses[:, a]
            shares = np.bincount(used[:, a], np.exp(rest - rest.max()), len(grams))
            present = np.flatnonzero(shares)
            shares = shares / shares.max()
            key = (schema.sizes[a], tuple((int(k), float(f"{shares[k]:.9e}")) for k in present))
            if key not in known:
                blend = sum((shares[k] * grams[k] for k in present), np.zeros_like(grams[present[0]]))
                known[key] = _solved(blend, designs[a][0])
            designs[a] = known[key]
            by_kind = {int(k): math.log(_loss(designs[a], grams[k])) for k in set(used[:, a].tolist())}
            losses[:, a] = [by_kind[k] for k in used[:, a].tolist()]
        total = _log_sum(weights + losses.sum(axis=1))
        if total > before + math.log1p(-CONVERGED):
            break
    if total > LARGEST:
        raise TooLargeError(
            f"its strategy on all {len(schema)} attributes together has an error above 10^150"
        )
    worst: dict[tuple[int, int], float] = {}
    families = list(kinds.values())

    def largest(a: int, kind: int) -> float:
        """The largest variance of one attribute's queries."""
        rows, family = designs[a][1], families[kind]
        if (id(rows), kind) not in worst:
            queries = np.ones((1, family)) if isinstance(family, int) else family.matrix()
            worst[id(rows), kind] = float(((queries @ pseudo_inverse(rows)) ** 2).sum(axis=1).max())
        return worst[id(rows), kind]

    if not _can_look(workload):
        return Errors(math.exp(total), None)
    return Errors(
        math.exp(total), max(math.prod(largest(a, k) for a, k in enumerate(row)) for row in used.tolist())
    )


def _log_sum(logarithms: Array) -> float:
    """Return the logarithm of a sum, from the logarithms of its terms."""
    peak = float(logarithms.max())
    return peak + math.log(float(np.exp(logarithms - peak).sum()))


def _even(n: int) -> tuple[Array, Array]:
    """Return even weights of the cells, and the rows of the identity strategy."""
    return np.full(n, 1.0 / n), np.eye(n)


def _solved(gram: Array, start: Array) -> tuple[Array, Array]:
    """Return the weights and rows of the best strategy for a Gram matrix."""
    root = square_root(gram, RANK)
    design: Design = solve_design(root, np.maximum(start, 1e-9), 1e-6)
    return design.weights / design.weights.sum(), design.strategy()


def _loss(design: tuple[Array, Array], gram: Array) -> float:
    dual = pseudo_inverse(design[1])
    return float(np.vdot(dual, gram @ dual))


def _union(workload: Workload) -> Errors:
    solved: dict[object, tuple[float, float]] = {}
    looks = _can_look(workload)

    def loss_and_worst(family: Family) -> tuple[float, float]:
        if family.key not in solved:
            gram = family.gram()
            design = _solved(gram, _even(family.cells)[0])
            squares = (family.matrix() @ pseudo_inverse(design[1])) ** 2 if looks else np.ones((1, 1))
            solved[family.key] = _loss(design, gram), float(squares.sum(axis=1).max())
        return solved[family.key]

    def times(group: Group, part: int) -> float:
        return math.prod(loss_and_worst(family)[part] for family in group.families)

    roots = [math.sqrt(group.weight * times(group, 0)) for group in workload]
    total = math.fsum(roots)  # a share of the budget ∝ root leaves a variance of total / root
    worst = max(total / root * times(group, 1) for group, root in zip(workload, roots, strict=True))
    return Errors(total**2, worst if looks else None)


def _marginals(workload: Workload) -> Errors:
    """Return the errors of all marginals, each with a weight θ; arrays have an axis of 2 per attribute."""
    schema = workload.schema
    d = len(schema)
    if d > MOST_ATTRIBUTES:
        raise TooLargeError(
            f"HDMM's marginals template has 2^{d} weights; at most {MOST_ATTRIBUTES} attributes are supported"
        )
    splits: dict[object, tuple[float, float]] = {}
    energy = np.zeros([2] * d)  # of the queries, without and with each attribute
    for group in workload:
        parts = [(float(n), 0.0) for n in schema.sizes]
        for name, family in zip(group.attributes, group.families, strict=True):
            if family.key not in splits:
                gram = family.gram()
                even = float(gram.sum()) / len(gram)
                splits[family.key] = even, float(np.trace(gram)) - even
            parts[schema.position(name)] = splits[family.key]
        energy += group.weight * _outer(parts)
    scale = _outer([(n, 1) for n in schema.sizes])  # cells that a marginal sums over
    theta = np.full([2] * d, 2.0**-d)
    for _ in range(3_000):  # multiplicative: a fixed point exactly where the derivative is level
        lam = _along(theta * scale, [[1, 1], [0, 1]])  # λ_A = Σ over B ⊇ A of θ_B × cells
        slope = _along(energy / np.maximum(lam, 1e-150) ** 2, [[1, 0], [1, 1]]) * scale
        level = float((theta * slope).sum())
        if slope.max() <= level * (1 + 1e-5):
            break
        theta *= np.sqrt(slope / level)
        theta /= theta.sum()
    lam = np.maximum(_along(theta * scale, [[1, 1], [0, 1]]), 1e-150)
    return Errors(
        float((energy / lam).sum()), _worst_marginal(workload, lam) if _can_look(workload) else None
    )


def _outer(parts: Sequence[tuple[float, float]]) -> Array:
    """Return the products of all choices of one number per pair."""
    return reduce(np.multiply.outer, [np.array(pair, dtype=float) for pair in parts])


def _along(values: Array, matrix: list[list[int]]) -> Array:
    """Multiply every axis by a matrix."""
    for axis in range(values.ndim):
        values = np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)
    return values


def _worst_marginal(workload: Workload, lam: Array) -> float:
    """Return the largest variance of a query when residual A is known with variance 1/λ_A per unit."""
    schema, worst = workload.schema, 0.0
    for group in workload:
        families = dict(zip(schema.positions(group.attributes), group.families, strict=True))
        variances = 1 / lam
        for axis in reversed(range(len(schema))):  # queries of a family go to the end
            squares = np.array([[schema.sizes[axis]], [0.0]])
            if axis in families:
                rows = families[axis].matrix()
                mean = rows.mean(axis=1)
                squares = np.stack([mean**2 * rows.shape[1], ((rows - mean[:, None]) ** 2).sum(axis=1)])
            variances = np.tensordot(variances, squares, (axis, 0))
        worst = max(worst, float(variances.max()))
    return worst


TEMPLATES: dict[str, Callable[[Workload], Errors]] = {
    "kronecker": _kronecker,
    "union": _union,
    "marginals": _marginals,
}
