"""The best centres in a few matrix decompositions, where every attribute is asked about in one way.

Suppose a role's centre w enters the total error F only through the square q = wᵀGw of one family with Gram G
and through ℓ = √L of what that family leaves on its attribute. With a = ∂F/∂q and b = ∂F/∂ℓ, F is stationary
where a·dq + b·dℓ = 0, and so is √(q + κ) + ℓ if √(q + κ) = b/(2a). But that sum is the total error of the
family and of the total, weighing κ, on this attribute alone: the optimum over all strategies V of the Gram
matrix G + κ11ᵀ, because every V ≻ 0 splits exactly at the centre V⁻¹1 / (1ᵀV⁻¹1). So

    solve the weight design of G + κ11ᵀ, take the centre of its V, compute a, b and the next κ, and repeat.

One design replaces dozens of evaluations of F, and ℓ = √L(G + κ11ᵀ) − √(q + κ) comes with it. On one
attribute κ is 0; with many attributes it settles in two to four rounds, each from the last one's weights on.

V is taken with its diagonal scaled to one, which makes the most of weights that are not yet optimal: at
uniform weights it is the square root of the Gram matrix, scaled. From M = R diag(p) Rᵀ = Q diag(s²) Qᵀ and
Y = QᵀR follows V⁻¹ = PYᵀs⁻³YP, so that the centre needs no system to be solved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre
from querysmasher.planning.centres.model import CentreModel, Scalars
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import Design
from querysmasher.planning.solvers.fixed_point import fixed_point
from querysmasher.planning.solvers.roots import full_root
from querysmasher.planning.split import split_gram

HEAVY_TOTAL = 1e6
"""Where the total weighs more than the queries by this factor, G + κ11ᵀ loses digits of the queries."""


@dataclass(frozen=True, eq=False)
class OwnCentres:
    """Centres, one per role, and a lower bound of the total error around uniform centres."""

    centres: list[Centre]
    uniform_bound: float


def own_centres(model: CentreModel, uniform: Sequence[Centre]) -> OwnCentres | None:
    """Return the best centres, or None where some attribute is asked about in more than one way."""
    families = _family_of_role(model)
    scalars = None if families is None else model.scalars(uniform)
    if families is None or scalars is None:
        return None
    grams = {role: _gram(model, number) for role, number in families.items()}
    found = {
        role: _Own(Centre.uniform(len(g)), 0.0, np.full(len(g), 1.0 / len(g))) for role, g in grams.items()
    }
    for turn in range(limits().own_rounds):
        for role, number in families.items():
            new = _solved(grams[role], found[role], rough=turn == 0)
            if new is None:
                return None
            found[role], (square, root) = new
            scalars.squares[number], scalars.roots[number, (0,)] = square, root
        change = 0.0
        _, by_squares, by_roots = model.products.at(scalars.squares, scalars.roots)
        slopes = dict(zip(model.products.parts, by_roots.tolist(), strict=True))
        for role, number in families.items():
            square, a, b = scalars.squares[number], float(by_squares[number]), slopes.get((number, (0,)), 0.0)
            if not b > 0 or not (b / HEAVY_TOTAL) ** 2 < 4 * a * a * square:
                return None  # nothing is left on it, or its total is not measured
            total = (b / (2 * a)) ** 2
            change = max(change, abs(math.log(total / (found[role].extra + square))))
            found[role] = replace(found[role], extra=total - square)
        if change < limits().own_change:
            return _result(model, scalars, families, grams, found, uniform)
    return None


@dataclass(frozen=True, eq=False)
class _Own:
    """A centre, the weight κ of the total it is best for, and the weights p of the values."""

    centre: Centre
    extra: float
    weights: Array


def _solved(gram: Array, known: _Own, *, rough: bool) -> tuple[_Own, tuple[float, float]] | None:
    """Return the centre for the weight κ that is known, with its q and ℓ; None for dependent queries."""
    whole = gram + known.extra
    if full_root(whole) is None:
        return None
    gap = limits().own_gap if len(gram) > limits().light_cells else limits().search_gap
    design = fixed_point(
        lambda p: Design.of_gram(whole, len(whole), p),
        known.weights,
        limits().rough_gap if rough else gap,
        limits().own_steps,
    )
    norms = np.sqrt(design.leverages)
    weighted = design.image * design.weights
    raw = norms * (weighted.T @ (weighted @ norms / design.roots**3))
    centre = Centre(raw / raw.sum())
    square = float(centre.weights @ gram @ centre.weights)
    root = design.value - math.sqrt(max(square + known.extra, 0.0))
    better = design.weights * (design.leverages / design.value) ** 2  # the next step's, at no cost
    return _Own(centre, known.extra, better / better.sum()), (square, max(root, 0.0))


def _family_of_role(model: CentreModel) -> dict[int, int] | None:
    """Return the only family of every free role, by number, if its Gram matrix is known in closed form."""
    if not model.is_all_products:
        return None
    found: dict[int, int] = {}
    for number, family in enumerate(model.roles.families):
        for role in model.free.intersection(family.roles):
            if role in found or len(family.roles) > 1 or not family.family.closed_form:
                return None
            found[role] = number
    return found


def _gram(model: CentreModel, number: int) -> Array:
    gram = model.families[number].gram
    assert gram is not None  # noqa: S101 - it has a closed form
    return gram


def _result(
    model: CentreModel,
    scalars: Scalars,
    families: dict[int, int],
    grams: dict[int, Array],
    found: dict[int, _Own],
    uniform: Sequence[Centre],
) -> OwnCentres:
    """Bound F around uniform centres: any weights p bound ℓ from below, and F grows with ℓ."""
    centres = list(uniform)
    for role, number in families.items():
        p = found[role].weights
        square, centred = split_gram(grams[role], uniform[role])
        scalars.squares[number] = square
        assert centred is not None  # noqa: S101 - free roles have several values
        r = np.sqrt(p / p.sum())
        eigenvalues = np.linalg.eigvalsh(centred * np.outer(r, r))
        sure = eigenvalues > 1e-12 * eigenvalues[-1]
        scalars.roots[number, (0,)] = float(np.sqrt(eigenvalues[sure]).sum())
        centres[role] = replace(found[role].centre, start=p)
    bound, _, _ = model.products.at(scalars.squares, scalars.roots)
    return OwnCentres(centres, bound)
